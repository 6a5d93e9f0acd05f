// SPDX-License-Identifier: GPL-2.0-only
/*
 * The model of lines of sim/scale, unchanged, with the hooks that the compiler calls for each
 * access of the engine, and its counts. Its platform stands for the one here, and its counts have
 * other names. The number of the running CPU is defined by tally.c.
 */
#define XSMMU_PLATFORM_SCALE_H
#include <stddef.h>

#include <xsmmu/engine.h>

#include "replay.h"

#define SCALE_CPUS	64
#define scale_cpu	running_cpu
#define tally		lines_tally

/* Locks of the engine are words that the engine reads and writes. */
void scale_lock(xs_lock_t *lock);
void scale_unlock(xs_lock_t *lock);
void scale_off(void);
void scale_on(void);
void scale_enter(void);
void scale_exit(void);
void scale_prefetchw(const void *at);

/* The machine has no room, which is no fault of the engine. */
#define scale_fail(why)	replay_stop("%s", why)
#include "../../sim/scale/arena.c"
#include "../../sim/scale/hash_map.c"
#undef scale_fail

#define scale_fail	engine_broken
#include "../../sim/scale/line.c"
#include "../../sim/scale/tally.c"
#include "../../sim/scale/hooks.c"
