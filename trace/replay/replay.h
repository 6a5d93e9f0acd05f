/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * The state of a run that all parts share: options, the recording's time, and the event in
 * progress; and how a run ends.
 */
#ifndef REPLAY_REPLAY_H
#define REPLAY_REPLAY_H

#include <xsmmu/engine.h>

#include "../format/trace.h"

/* The calls of a recording are carried out by the engine, or by a model of the kernel. */
enum replay_side { SIDE_ENGINE, SIDE_KERNEL_STRICT, SIDE_KERNEL_LAZY };

#define REPLAY_DEVICES	65536u
#define REPLAY_CPUS_MAX	4096u
/* 64 TiB, half of the IOVA space: the identity window is as large as memory. */
#define REPLAY_MEMORY_MAX	(1ULL << 34)

/* Exit statuses. */
enum { STATUS_BROKEN = 1, STATUS_USAGE = 2, STATUS_FILE = 3 };

/*
 * struct replay_options - how to replay
 * @name:	of the policy, or of the kernel's mode
 * @policy:	the engine's policy; NULL for the kernel's modes
 * @aware:	unmaps wait for the end of their poll, as a batch-aware driver's
 * @gap_ns:	with @aware, a CPU without unmaps for so long has ended its batch, poll or not
 * @cpus:	CPUs of the recorded machine
 * @hz:		ticks a second of the recorded kernel, for the kernel's own timer
 * @raw:	identities of pages are page frame numbers
 * @memory_pages: end of the recorded machine's memory, in pages
 * @repeat:	how often the recording is replayed
 * @check:	device whose engine the checkers of sim/check watch; REPLAY_DEVICES: none
 * @counts:	replay so many events, and count transfers of lines; 0: all events, without counts
 * @unheld_known: the recording names the memory that the module cannot hold
 */
struct replay_options {
	const char *file;
	const char *name;
	enum replay_side side;
	const struct xs_policy *policy;
	struct xs_tuning tuning;
	bool aware;
	u64 gap_ns;
	u32 cpus;
	u32 hz;
	bool raw;
	u64 memory_pages;
	u64 repeat;
	u32 check;
	u64 counts;
	bool unheld_known;
};

/*
 * struct replay - the run
 * @now_ns:	the recording's time; never goes back
 * @event:	event in progress
 * @number:	number of the event, from 1
 */
struct replay {
	struct replay_options options;
	u64 now_ns;
	struct trace_event event;
	u64 number;
};

extern struct replay replay;

/*
 * End the run: an invariant of DESIGN.md, section 3, or another promise is broken. Prints the
 * event's place. @invariant: number, or 0.
 */
void replay_violated(u32 invariant, const char *format, ...)
	__attribute__((noreturn, cold, format(printf, 2, 3)));

/* End the run for another reason. */
void replay_stop(const char *format, ...) __attribute__((noreturn, cold, format(printf, 1, 2)));

#endif
