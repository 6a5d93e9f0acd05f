/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * What is counted, and the time of each CPU.
 *
 * Time decides two things only: which CPU is next (the one whose time is least),
 * and which locks would be waited for. What an event takes is a round number of
 * the right size, below, and not measured.
 */
#ifndef SCALE_TALLY_H
#define SCALE_TALLY_H

#include "line.h"

enum tally_ns {
	TALLY_ACCESS_NS = 1,
	TALLY_TRANSFER_NS = 60,
	TALLY_COLD_NS = 80,
	TALLY_CALL_NS = 20,	/* a call of the world, beside its lines */
	TALLY_COMMAND_NS = 600,	/* from a command to its completion */
};

/*
 * struct tally_locks - of the engine, or of the kernel's queue
 * @taken:	acquisitions
 * @fetched:	of those, the lock's line had to come from another CPU
 * @waits:	of those, another CPU would have had the lock
 */
struct tally_locks {
	u64 taken;
	u64 fetched;
	u64 waits;
	u64 wait_ns;
};

/*
 * struct tally - counts since tally_start()
 * @accesses:	of the engine to its own memory
 * @stack:	accesses of the engine to what is not its memory: not counted
 *		otherwise
 */
struct tally {
	u64 events[LINE_CLASSES][LINE_EVENTS];
	u64 accesses;
	u64 stack;
	u64 removes;
	u64 flushes;		/* invalidations, of any number of commands */
	u64 commands_page;
	u64 commands_domain;
	struct tally_locks locks;
	struct tally_locks queue;
};

extern struct tally tally;

/*
 * struct tally_stretch - a stretch without interrupts, or without preemption
 * @depth:	of the running one, 0: none
 * @accesses, @flushes: when it began
 * @most_accesses, @most_flushes: in one, of the engine to memory, and waits for invalidations
 */
struct tally_stretch {
	u32 depth;
	u64 accesses, flushes;
	u64 most_accesses, most_flushes;
};

struct tally_stretches {
	struct tally_stretch off;
	struct tally_stretch entered;
};

extern struct tally_stretches tally_stretches;

void tally_stretch_begin(struct tally_stretch *stretch);
void tally_stretch_end(struct tally_stretch *stretch);

/* Does the model run at all; is it not suspended for the harness' own calls? */
extern bool tally_on;

/* Count from now on. */
void tally_start(void);
bool tally_started(void);

/* This CPU's time. */
u64 tally_now(void);
void tally_spend(u64 ns);

/* The CPU whose time is least, of the first @cpus. */
u32 tally_next_cpu(u32 cpus);

/* Count an event; @pc: by which instruction, 0: none of the engine. */
void tally_event(enum line_class class, enum line_event event, u64 pc);

/* Access a line and count what that was. */
enum line_event tally_read(struct line *line, enum line_class class, u64 pc);
enum line_event tally_write(struct line *line, enum line_class class, u64 pc);

/* A lock is taken, or dropped; its line is the caller's to account. */
void tally_lock(struct tally_locks *locks, u64 address, bool fetched);
void tally_unlock(u64 address);

/* Call @tell for each instruction that caused transfers. */
void tally_sites(void (*tell)(u64 pc, u64 transfers));

#endif
