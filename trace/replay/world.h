/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * The world of a device: an engine, or the kernel's model, above a page table and the IOMMU's
 * caches; and the flush points that come from outside, in the recording's time. Each device has
 * an engine of its own, but for devices of the same IOMMU group.
 *
 * The IOMMU is VT-d's with second-stage tables and no caching mode: a page-selective command
 * covers an aligned power of two of pages, up to 2^18, and a map needs no flush.
 */
#ifndef REPLAY_WORLD_H
#define REPLAY_WORLD_H

#include <xsmmu/engine.h>

#include "shadow.h"

/* Largest page-selective command, log2 of pages. */
#define WORLD_RANGE_MAX_LG2	18

/*
 * struct world_cpu - a CPU's flush points
 * @deferred:	the engine wants xs_engine_poll() at the end of the next poll
 * @deadline_ns: of the CPU's timer; 0: none
 * @batch_ns:	end of a batch-aware driver's batch, unless it unmaps again before; 0: none
 */
struct world_cpu {
	bool deferred;
	u64 deadline_ns;
	u64 batch_ns;
};

struct kernel;

/*
 * struct world - the world of a device
 * @engine:	NULL in the kernel's modes
 * @kernel:	NULL under a policy
 * @next_ns:	no flush point in time is earlier
 * @trim_due, @grow_due: the engine has asked for xs_engine_trim(), xs_pool_grow()
 * @shrink_ns:	next check for unused chunks of the pool; 0: none
 */
struct world {
	struct xs_engine *engine;
	struct kernel *kernel;
	struct shadow shadow;
	struct world_cpu *cpus;
	u64 next_ns;
	bool trim_due;
	bool grow_due;
	u64 shrink_ns;
};

/* Returns the world of a device, made at the first call; the checked one with its checks. */
struct world *world_of(u32 device);

/* Device @device has the world of device @other, an earlier one. */
void world_share(u32 device, u32 other);

/* Calls @each for all worlds. */
void world_each(void (*each)(struct world *world));

/* Has all flush points pass that are not later than @ns, in their order; and sets the time. */
void world_advance(u64 ns);

/* Has all flush points pass that are left. */
void world_finish(void);

/* A NAPI poll has ended on the running CPU. */
void world_poll(void);

/* A flush point is due at @ns at the latest. */
void world_wake(struct world *world, u64 ns);

/* A batch-aware driver has unmapped on the running CPU. */
void world_batch(struct world *world);

/* The level that the driver has: under the policy, and with batch awareness. */
enum xs_level world_level(void);

/*
 * Checks after a driver's unmap: the level holds, for the IOVAs that the unmap named, and for their
 * folios. @now: the memory is freed next.
 */
void world_unmapped(struct world *world, u64 page, u32 pages, bool now, const u32 *folios,
		    u32 count);

/* Work that the engine has asked for, and that runs in a task in the module. */
void world_work(struct world *world);

/* Counts the command that invalidates a range, or the domain if the range is too large. */
void world_count_range(u64 page, u64 pages, struct xs_commands *sent);

/* Ends the run if statistics and world do not balance. Returns pages that are still mapped. */
u64 world_balance(struct world *world);

/* After the balance of all worlds: ends the run if the engines' counts are not the world's. */
void world_check_sums(void);

#endif
