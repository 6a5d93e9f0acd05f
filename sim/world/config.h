/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * What a world is like: sizes, rates and faults. Sizes are small, so that edges
 * are common; swarm mode draws all of it from the seed.
 */
#ifndef SIM_CONFIG_H
#define SIM_CONFIG_H

#include <xsmmu/engine.h>

/*
 * Faults, each with the real one that it stands for, and why the engine must
 * survive it.
 */
enum sim_fault {
	/*
	 * kmalloc(GFP_ATOMIC) fails under memory pressure: for a magazine or
	 * a leaf of references. The engine works on without, only slower.
	 */
	FAULT_ALLOC,
	/*
	 * The IOMMU driver has no memory for a page-table page: the map fails
	 * and what was placed goes back, for it was never visible.
	 */
	FAULT_TABLE,
	/*
	 * The invalidation queue is full, because other devices' flushes fill
	 * it: a flush takes long, with a CPU's lock held. All others wait or
	 * go around it.
	 */
	FAULT_QUEUE_FULL,
	/*
	 * The IOMMU is slow to complete, as when a device TLB answers late.
	 * Nothing may be let go until it does.
	 */
	FAULT_SLOW,
	/*
	 * Invalidation time-out (VT-d's ITE): the device did not answer, the
	 * hardware drops what waits in the queue, and the IOMMU driver submits
	 * it all again. A flush is done when its last try is.
	 */
	FAULT_LOST,
	/*
	 * Hardware evicts cached translations whenever it likes. An engine
	 * that relies on what is cached is wrong.
	 */
	FAULT_EVICT,
	/*
	 * Hot-unplug: a device goes with all its mappings, which its driver
	 * then undoes at once from one CPU.
	 */
	FAULT_REMOVAL,
	/*
	 * Another CPU drains: suspend, or a change of policy by an operator.
	 */
	FAULT_FLUSH,
	/*
	 * The clock jumps: a virtual machine was paused, or a CPU was in an
	 * interrupt for long. All timers are due at once.
	 */
	FAULT_JUMP,
	/*
	 * A timer comes late, as it does when interrupts were off. Bounds are
	 * as late as it is, and no later.
	 */
	FAULT_LATE_TIMER,
	/* An operator writes another policy or tunable under traffic. */
	FAULT_POLICY,
	/*
	 * A CPU goes off-line: what it has deferred and cached must not stay
	 * there.
	 */
	FAULT_OFFLINE,
	/*
	 * A page's reference is not where the fast path looks (huge pages
	 * whose page structs were given back), so it has to be taken the long
	 * way.
	 */
	FAULT_UNSURE,
	/*
	 * Memory is short, and the engine is asked for what it does not need:
	 * leaves of the space go, with their page-table pages.
	 */
	FAULT_TRIM,
	/*
	 * A driver unmaps what it has not mapped, or not so: an error code, an
	 * address beyond the space, another size. Nothing may change.
	 */
	FAULT_BAD_UNMAP,
	/*
	 * A driver frees its memory before it unmaps it (igb does): then the
	 * page cannot be held, and its unmap must flush at once.
	 */
	FAULT_FREED_EARLY,
	/*
	 * A driver unmaps one mapping twice at a time: its interrupt completes
	 * what its reset cancels. One of the two gets it.
	 */
	FAULT_TWICE,
	/* An operator has entries written in place, or by the IOMMU driver, under traffic. */
	FAULT_TABLES,
	/*
	 * The IOMMU driver has no memory for a request to remove pages (virtio-iommu), once,
	 * several times, or until memory comes back: nobody else may get the IOVAs meanwhile, and
	 * what can be held of the memory is.
	 */
	FAULT_REMOVE,
	FAULT_COUNT
};

#define SIM_TABLE_LG2	(XS_PAGE_LG2 - 3)	/* entries of real page-table pages */
#define SIM_POOL_MIB	6u	/* for copies, so that there is too little at times */

enum sim_memory_kind {
	MEMORY_COUNTED,		/* a reference of its own for each page */
	MEMORY_FOLIO,		/* one for all pages */
	MEMORY_SLAB,		/* cannot be held */
	MEMORY_PERMANENT,	/* is never freed */
	MEMORY_KINDS
};

/* What a step may be, and how often: weights of a draw. */
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
 * struct sim_config
 * @policy:	the first one
 * @tuning:	with it
 * @blocks:	of IOVA space, block 0 included
 * @low_blocks:	of them are below 4 GiB; 0: all are
 * @memory_pages: that can be allocated
 * @live_max:	mappings of the driver at once
 * @table_lg2, @directory_lg2: entries of a last page-table page, and of one above
 * @first_stage: its entries cannot say "write only"
 * @caching:	the IOTLB caches what is not there too, so each map needs a flush
 * @direct:	entries are written in place, where the table is known
 * @iotlb, @walk, @device_tlb: entries of the caches, powers of two
 * @devices, @ats: how many, and how many of them have a TLB
 * @queue:	entries of the invalidation queue
 * @turn:	points between two turns, on average
 * @wait_turn:	of the looks at a command that waits, one in so many is a turn
 * @step_ns:	time of a step, on average
 * @looks:	accesses of devices in a step, at most
 * @attack:	percentage of them at pages unmapped before
 * @step:	weights
 * @multi:	one map in so many is of more than a page
 * @large:	one map in so many is of more than a block
 * @scatter:	one map of more pages in so many is in parts
 * @fifo:	mappings are undone in their order, or at random
 * @aware:	one unmap in so many is a batch-aware driver's
 * @at_once:	one unmap in so many is to be flushed at once
 * @low:	one map in so many has a limit that matters
 * @kinds:	weights of the kinds of memory
 * @copy_alike:	buffers that are copied are of one size and way, so that memory for them
 *		comes and goes
 * @remembers:	the engine writes down how pages can be held, whatever the policy
 * @fault:	each happens one time in so many that it could, 0: never
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
	u32 fault[FAULT_COUNT];
};

/* The plain world, of a policy. */
struct sim_config sim_config_plain(const struct xs_policy *policy);

/* Any world, drawn from @seed; @policy NULL: drawn too. */
struct sim_config sim_config_drawn(const struct xs_policy *policy, u64 seed);

const char *sim_fault_name(enum sim_fault fault);

#endif
