/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * Configuration of a world: sizes, rates and faults. Small sizes make edge cases common. Swarm
 * mode draws the whole configuration from the seed.
 */
#ifndef SIM_CONFIG_H
#define SIM_CONFIG_H

#include <xsmmu/engine.h>

/* Injected faults. Each comment names the real fault and the reason the engine must survive. */
enum sim_fault {
	/*
	 * kmalloc(GFP_ATOMIC) fails under memory pressure, for a magazine or a leaf of
	 * references. The engine continues without the memory, only slower.
	 */
	FAULT_ALLOC,
	/*
	 * The IOMMU driver has no memory for a page-table page. The map fails and the placed
	 * range goes back at once, because no device could see the range.
	 */
	FAULT_TABLE,
	/*
	 * The invalidation queue is full of other devices' flushes. A flush takes long while
	 * holding a CPU's lock; other CPUs wait or go around the lock.
	 */
	FAULT_QUEUE_FULL,
	/*
	 * The IOMMU completes slowly, as when a device TLB answers late. The engine may release
	 * nothing before completion.
	 */
	FAULT_SLOW,
	/*
	 * Invalidation time-out (VT-d's ITE): the device did not answer, the hardware drops the
	 * waiting commands, and the IOMMU driver submits all of them again. A flush ends with
	 * the last try.
	 */
	FAULT_LOST,
	/*
	 * Hardware evicts cached translations at any time. An engine that relies on cached
	 * entries is wrong.
	 */
	FAULT_EVICT,
	/*
	 * Hot-unplug: a device disappears with all mappings, and the driver then unmaps all of
	 * them from one CPU.
	 */
	FAULT_REMOVAL,
	/* Another CPU drains: suspend, or a policy change by an operator. */
	FAULT_FLUSH,
	/*
	 * The clock jumps because a virtual machine was paused or a CPU spent long in an
	 * interrupt. All timers expire at once.
	 */
	FAULT_JUMP,
	/*
	 * A timer fires late because interrupts were off. Bounds are late by the same time, and
	 * no more.
	 */
	FAULT_LATE_TIMER,
	/* An operator writes another policy or tunable under traffic. */
	FAULT_POLICY,
	/* A CPU goes offline. Deferred unmaps and cached IOVAs of the CPU must not stay there. */
	FAULT_OFFLINE,
	/*
	 * A page's reference is not where the fast path looks (huge pages whose page structs
	 * were given back), so the engine must take the slow path.
	 */
	FAULT_UNSURE,
	/*
	 * Memory is short, and the engine is asked to give back unneeded memory: leaves of the
	 * space go, with their page-table pages.
	 */
	FAULT_TRIM,
	/*
	 * A bad unmap: an error code, an address beyond the space, or a wrong size. Mappings
	 * must not change.
	 */
	FAULT_BAD_UNMAP,
	/*
	 * A driver frees memory before the unmap (igb does). The page cannot be held, so the
	 * unmap must flush at once.
	 */
	FAULT_FREED_EARLY,
	/*
	 * Two CPUs unmap one mapping at once: an interrupt completes a request that a reset
	 * cancels. Exactly one unmap gets the mapping.
	 */
	FAULT_TWICE,
	/* An operator switches between direct tables and the IOMMU driver under traffic. */
	FAULT_TABLES,
	/*
	 * The IOMMU driver has no memory for a removal request (virtio-iommu), once, several
	 * times, or until memory returns. Nobody may get the IOVAs meanwhile, and the engine
	 * holds all memory that can be held.
	 */
	FAULT_REMOVE,
	/*
	 * A task of a batch-aware driver migrates between two calls. The task's unmaps and
	 * unflushed maps are on several CPUs then, and the task's flush covers all of them.
	 */
	FAULT_MIGRATE,
	FAULT_COUNT
};

#define SIM_MEMORY	4096u	/* pages that are allocated */
#define SIM_REGISTERS	64u	/* pages behind these that are never freed */
#define SIM_WINDOW	(SIM_MEMORY + SIM_REGISTERS)	/* pages of memory that a window can have */
#define SIM_TABLE_LG2	(XS_PAGE_LG2 - 3)	/* entries of a real page-table page */
#define SIM_POOL_MIB	6u	/* for copies; small enough to run out at times */

enum sim_memory_kind {
	MEMORY_COUNTED,		/* one reference per page */
	MEMORY_FOLIO,		/* one reference for all pages */
	MEMORY_SLAB,		/* cannot be held */
	MEMORY_PERMANENT,	/* is never freed */
	MEMORY_KINDS
};

/* Kinds of steps. A configuration gives each kind a weight. */
enum sim_step {
	STEP_MAP,
	STEP_UNMAP,
	STEP_POLL,
	STEP_LOOK,
	STEP_FLUSH,
	STEP_BLOCK,
	STEP_READ,
	STEP_COPY,
	STEP_COUNT
};

/*
 * struct sim_config - sizes, rates and faults of a world
 * @policy:	policy at the start
 * @tuning:	tunables at the start
 * @blocks:	size of the IOVA space, block 0 included
 * @low_blocks:	blocks below 4 GiB; 0: all blocks
 * @memory_pages: pages that can be allocated
 * @live_max:	most mappings of the driver at once
 * @table_lg2, @directory_lg2: log2 of the entries of a last-level and of an upper table
 * @first_stage: entries cannot express "write only"
 * @caching:	the IOTLB caches absent translations, so each map needs a flush
 * @direct:	entries are written in place where the table is known
 * @iotlb, @walk, @device_tlb: entries of the caches, powers of two
 * @devices, @ats: number of devices, and of devices with a TLB
 * @queue:	entries of the invalidation queue
 * @turn:	points between two turns, on average
 * @wait_turn:	one in so many looks at a waiting command is a turn
 * @step_ns:	time of a step, on average
 * @looks:	most device accesses in a step
 * @attack:	percentage of accesses to pages unmapped before
 * @step:	weights of the kinds of steps
 * @multi:	one map in so many has more than a page
 * @large:	one map in so many has more than a block
 * @scatter:	one multi-page map in so many has several parts
 * @fifo:	unmap in the order of the maps, else at random
 * @aware:	one unmap in so many comes from a batch-aware driver
 * @at_once:	one unmap in so many must flush at once
 * @low:	one map in so many has a limit that matters
 * @kinds:	weights of the kinds of memory
 * @copy_alike:	all copied buffers have one size and one direction, so pool chunks come and go
 * @remembers:	the engine records how to hold pages, under any policy
 * @window:	pages of memory that the identity window has, 0: no window
 * @again:	one map in so many is of a page that a driver has mapped
 * @recycle:	one unmap in so many of a page that the window has is followed by a map of the page
 * @fault:	each fault happens one time in so many opportunities, 0: never
 */
struct sim_config {
	const struct xs_policy *policy;
	struct xs_tuning tuning;
	u32 cpus;
	u32 blocks;
	u32 low_blocks;
	u32 memory_pages;
	u32 live_max;
	u32 table_lg2;
	u32 directory_lg2;
	bool first_stage;
	bool caching;
	bool direct;
	u32 iotlb;
	u32 walk;
	u32 device_tlb;
	u32 devices;
	u32 ats;
	u32 queue;
	u32 turn;
	u32 wait_turn;
	u32 step_ns;
	u32 looks;
	u32 attack;
	u32 step[STEP_COUNT];
	u32 multi;
	u32 large;
	u32 scatter;
	bool fifo;
	u32 aware;
	u32 at_once;
	u32 low;
	u32 kinds[MEMORY_KINDS];
	bool copy_alike;
	bool remembers;
	u32 window;
	u32 again;
	u32 recycle;
	u32 fault[FAULT_COUNT];
};

/* Returns the plain world of @policy. */
struct sim_config sim_config_plain(const struct xs_policy *policy);

/* Returns a world drawn from @seed; @policy NULL: the policy is drawn too. */
struct sim_config sim_config_drawn(const struct xs_policy *policy, u64 seed);

const char *sim_fault_name(enum sim_fault fault);

#endif
