/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * The counts, and the time of each CPU.
 *
 * Time decides only the next CPU (the CPU with the least time) and whether a lock would be
 * waited for. The durations of events below are round numbers of the right size, not
 * measurements.
 */
#ifndef SCALE_TALLY_H
#define SCALE_TALLY_H

#include "line.h"

enum tally_ns {
	TALLY_ACCESS_NS = 1,
	TALLY_TRANSFER_NS = 60,
	TALLY_COLD_NS = 80,
	TALLY_CALL_NS = 20,	/* a call of the backend, beside the lines */
	TALLY_COMMAND_NS = 600,	/* from a command to the completion */
};

/*
 * struct tally_locks - locks of the engine, or of the kernel's queue
 * @taken:	acquisitions
 * @fetched:	acquisitions that fetched the lock's line from another CPU
 * @waits:	acquisitions while another CPU would have held the lock
 * @longest_ns:	longest of these waits
 */
struct tally_locks {
	u64 taken;
	u64 fetched;
	u64 waits;
	u64 longest_ns;
};

/*
 * struct tally - counts since tally_start()
 * @accesses:	of the engine to the engine's own memory
 */
struct tally {
	u64 events[LINE_CLASSES][LINE_EVENTS];
	u64 accesses;
	u64 flushes;		/* invalidations, of any number of commands */
	u64 commands_page;
	u64 commands_domain;
	struct tally_locks locks;
	struct tally_locks queue;
};

extern struct tally tally;

/*
 * struct tally_stretch - stretches without interrupts, or without preemption
 * @depth:	nesting depth of the running stretch, 0: none
 * @accesses, @flushes: counts at the begin of the running stretch
 * @most_accesses, @most_flushes: most memory accesses of the engine, and most waits for
 *	invalidations, in a stretch
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

/* The line model runs, and is not suspended for the harness' own calls. */
extern bool tally_on;

/* Start counting. */
void tally_start(void);
bool tally_started(void);

/* The running CPU's time. */
u64 tally_now(void);
void tally_spend(u64 ns);

/* Returns the CPU with the least time, of the first @cpus. */
u32 tally_next_cpu(u32 cpus);

/* Count an event; @pc: the causing instruction, 0: not the engine's. */
void tally_event(enum line_class class, enum line_event event, u64 pc);

/* Access a line, count and return the event. */
enum line_event tally_read(struct line *line, enum line_class class, u64 pc);
enum line_event tally_write(struct line *line, enum line_class class, u64 pc);

/* Count taking or dropping a lock; the caller accounts for the lock's line. */
void tally_lock(struct tally_locks *locks, u64 address, bool fetched);
void tally_unlock(u64 address);

/* Call @tell for each instruction that caused transfers. */
void tally_sites(void (*tell)(u64 pc, u64 transfers));

#endif
