/* SPDX-License-Identifier: GPL-2.0-only */
/* Interfaces between the parts of the explorer. */
#ifndef EXPLORE_INSIDE_H
#define EXPLORE_INSIDE_H

#include "coroutine.h"
#include "explore.h"

typedef uint8_t u8;
typedef uint16_t u16;
typedef uint32_t u32;
typedef uint64_t u64;

#define MESSAGES	80	/* to one location in one run */
#define LOCKS		24

/* By location, the message at or after which a thread reads. */
struct view {
	u8 at[EX_LOCATIONS];
};

/* By thread, the events that are known to have happened before. */
struct clock {
	u16 at[EX_THREADS];
};

/* State that release and acquire hand over. */
struct sight {
	struct view view;
	struct clock clock;
};

/*
 * Causes of a store, and the causes that the processor also keeps before the store: by acquire,
 * release or a barrier, not by a dependency.
 */
struct trail {
	struct clock cause;
	struct clock kept;
};

/*
 * struct thread - a thread of a program
 * @now, @acquired, @released: current sight; sight after an acquire fence; sight at
 * 		the last release fence
 * @trail:	causes of the next plain or relaxed store
 * @seen:	reads so far, and everything ordered before them
 * @history:	hash of all actions and read values, which determine the thread's state
 * @waits_lock, @waits_grace: the thread cannot continue while set
 * @irqs_off, @interrupted: no interrupt can come; the interrupt has come
 */
struct thread {
	struct coroutine stack;
	struct sight now, acquired, released;
	struct trail trail;
	struct clock seen;
	u64 history;
	u32 events;
	u32 steps;
	u32 cpu;
	bool ended;
	bool irqs_off;
	bool interrupted;
	struct lock *waits_lock;
	bool waits_grace;
	/* read-side sections */
	u32 depth;
	u32 entered;		/* sections so far */
	/* the grace period that the thread waits for */
	u32 waits_for;		/* threads, one bit each */
	struct sight after;	/* sight of the end of their sections */
};

struct lock {
	void *at;
	u32 holder;		/* thread + 1 */
	u64 last;		/* event of the last unlock */
	struct sight sight;
	struct trail trail;
};

/* State of the current run: explore.c. */
extern struct thread threads[EX_THREADS];
extern u32 thread_count;
extern struct thread *self;	/* NULL: setup or finish */
bool is_setup(void);
void step(void);		/* counts a step; bounds endless loops */
void interrupt_point(void);	/* the thread's interrupt may come here */
void point(void);		/* as interrupt_point(); another thread may also continue here */
void event(u64 a, u64 b);
extern bool hazards_fail;

/* Does a dependency keep the store behind the read? */
bool is_dependent(const struct ex_site *read, const struct ex_site *store);

/*
 * Record a use of the word at @at, or of the lock or section at @at. Returns whether several
 * threads use the word and at least one writes the word. A word that is not shared has one value
 * at a time, and the order of accesses does not matter. The exploration restarts when a word
 * becomes shared.
 */
bool is_shared(uintptr_t at, bool write);

/* Returns a hash of two numbers. */
static inline u64 mix(u64 hash, u64 value)
{
	hash = (hash ^ value * 0x9e3779b97f4a7c15ull) * 0xd6e8feb86659fd93ull;
	hash = (hash ^ hash >> 32) * 0xd6e8feb86659fd93ull;
	return hash ^ hash >> 29;
}

/* memory_model.c */
void memory_reset(void);
u64 memory_hash(void);
void memory_plain_write(uintptr_t at, u32 bytes);
void sight_join(struct sight *into, const struct sight *from);
u64 view_hash(const struct view *view);
struct trail trail_released(void);
void trail_acquire(const struct trail *from);
void trail_join(struct trail *into, const struct trail *from);
void barrier_full(struct thread *thread);
enum ex_order order_of(struct ex_site *site);

/* locks.c */
void sync_reset(void);
u64 sync_hash(void);

/* races.c */
enum access { PLAIN_READ, PLAIN_WRITE, ATOMIC_READ, ATOMIC_WRITE };
void shadow_reset(void);
void shadow_access(uintptr_t at, u32 bytes, enum access access);
void shadow_free(uintptr_t at, size_t bytes);
bool shadow_is_new(uintptr_t at);
void undo_note(uintptr_t at, u32 bytes);
void undo_all(void);

/* history.c */
void trace_reset(void);
void trace_event(const struct ex_site *site, u64 value, const char *note, u32 number);
void trace_print(void);

#endif
