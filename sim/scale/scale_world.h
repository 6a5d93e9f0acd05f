/* SPDX-License-Identifier: GPL-2.0-only */
/* The backend's operations, and the state of each CPU that the harness needs. */
#ifndef SCALE_WORLD_H
#define SCALE_WORLD_H

#include <xsmmu/engine.h>

/*
 * @deferred:	has deferred since the last poll, so a poll is due
 * @deadline_ns: of the CPU's timer, 0: none
 */
struct world_cpu {
	bool deferred;
	u64 deadline_ns;
};

extern const struct xs_backend_ops world_ops;
extern struct world_cpu world_cpus[SCALE_CPUS];

/* The engine has asked for xs_engine_trim(). */
extern bool world_trim_wanted;

/* Make an engine for @cpus CPUs over IOVAs up to @end. */
struct xs_engine *world_engine(const struct xs_policy *policy, u32 cpus, u64 end);

#endif
