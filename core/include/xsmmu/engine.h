/* SPDX-License-Identifier: GPL-2.0 OR MIT */
/*
 * The engine: one per IOMMU domain that is attached.
 *
 * It places mappings, defers their unmaps, and flushes. Life of a page:
 *
 *   free -> mapped -> [deferred ->] flushed -> free
 *
 * Between unmap and flush its IOVA is held, and its memory too if the policy
 * says so. A flush removes the pages from the page table, invalidates, waits,
 * and only then lets IOVAs and memory go.
 *
 * Each CPU has its own open block, magazines, batch and statistics, guarded by its
 * own lock. The two common cases take no lock: a map of one page takes a free
 * page of the open block by one atomic operation, and an unmap appends to the
 * batch by two. Lock order: a CPU's lock, then a partial list's, the depot's or the
 * space's; never two CPUs' at once. That of torn mappings is taken alone.
 *
 * Each call reads the policy once. A change stores the new one, waits for the
 * calls that may have read the old one, and flushes what they have deferred. So
 * when it returns the new level holds for everything.
 */
#ifndef XSMMU_ENGINE_H
#define XSMMU_ENGINE_H

#include <xsmmu/batch.h>
#include <xsmmu/block.h>
#include <xsmmu/stats.h>
#include <xsmmu/magazine.h>
#include <xsmmu/policy.h>
#include <xsmmu/pool.h>
#include <xsmmu/partial.h>

#define XS_RANGES_MAX	32	/* upper limit of range_commands_max */
#define XS_CPUS_MAX	0xffffu
#define XS_EMPTY_BLOCKS	16u

/*
 * struct xs_tuning - what the operator may set beside the policy
 * @window_us:		bound on the age of a deferred unmap, 1 .. 10,000,000
 * @batch_pages:	threshold of XS_FLUSH_FULL, 1 .. 1,024 pages. No flush has
 *			more than this and one mapping of a block.
 * @range_commands_max:	with XS_SCOPE_AUTO, more commands than this become one
 *			domain command, 1 .. XS_RANGES_MAX
 * @copy_bytes:		buffers up to so many bytes are copied, 0 ..
 *			XS_BOUNCE_MAX_BYTES; of an engine that has a pool
 * @pool_mib:		what that may have, 2 .. XS_POOL_MAX_MIB
 * @batch_aware:	all drivers are: under a policy that waits for their flush
 *			an ordinary unmap is not deferred, so that nothing they
 *			do is below the level that they have
 */
struct xs_tuning {
	u32 window_us;
	u32 batch_pages;
	u32 range_commands_max;
	u32 copy_bytes;
	u32 pool_mib;
	bool batch_aware;
};

#define XS_WINDOW_MAX_US	10000000u
#define XS_BATCH_MAX_PAGES	1024u

/* Extents of maps that wait for their flush; a test may have fewer. */
#ifndef XS_UNFLUSHED_EXTENTS
#define XS_UNFLUSHED_EXTENTS	64u
#endif

/*
 * struct xs_unflushed - what one CPU has mapped without the flush that the backend needs
 * @count:	of @extents. Read without the lock, too: it is 0 when the flush is done, not before
 * @pages:	of all of them
 * @extents:	page << 16 | pages; of what is not mapped any more, too, so they may
 *		overlap
 */
struct xs_unflushed {
	u32 count;
	u32 pages;
	u64 extents[XS_UNFLUSHED_EXTENTS];
};

/*
 * struct xs_cpu - one CPU's part of an engine; guarded by @lock, but what is said
 * @open:	the blocks whose pages this CPU hands out, by size; the engine's
 *		@none, in which nothing is free, for none. Read without the lock by
 *		this CPU.
 * @batch:	see batch.h
 * @free-block cache:	@in the free-block cache blocks that are all free, to be opened next
 * @probe:	the CPU whose partial list is looked at next
 * @order-n ranges:	magazines, for page placement
 * @partial list:	has a lock of its own
 */
struct xs_cpu {
	struct xs_block *open[XS_SIZES];
	struct xs_batch batch;
	xs_lock_t lock XS_CACHE_LINE;
	u32 id;
	u32 empties;
	u32 probe;
	struct xs_block *empty[XS_EMPTY_BLOCKS];
	struct xs_cache magazines[XS_SIZES];
	struct xs_stats stats;
	struct xs_unflushed unflushed;
	struct xs_partial partial;
} XS_CACHE_LINE;

/*
 * What the common maps and unmaps of one page may do, and all that they look at of
 * the policy: know how to hold the page; hold it, and defer an ordinary unmap; defer
 * one without a flush.
 */
#define XS_MODE_HOLDS	1u
#define XS_MODE_HELD	2u
#define XS_MODE_PROMISE	4u

/*
 * struct xs_tears - torn mappings (tear.h); all guarded by @lock, as their records are
 * @done:	records of those whose IOVAs xs_engine_mend() gives back
 * @left:	pages of torn mappings that no unmap has named; read without the lock, too
 */
struct xs_tears {
	xs_lock_t lock;
	struct xs_torn *done;
	u64 left;
};

/*
 * struct xs_engine - the first line is constant under traffic
 * @mode:	XS_MODE_* of the policy
 * @remembers:	as in the configuration
 * @policy, @tuning: written by xs_engine_set(), read without a lock; of the
 *		tuning what the policy's row does not have. The policy is one of
 *		@rows, the other one is that of before.
 * @cpus:	one per CPU
 * @reserves:	some block is kept or has pages that are reserved, or was and had
 * @reclaimed_ns: when a round began that takes from all CPUs what they keep; @reclaim_at:
 *		the CPU that it goes on with, 0 when it has ended
 * @pool:	copies of small buffers, which its caller asks for; it has no addresses
 *		before xs_engine_add_pool()
 * @tears:	mappings that unmaps did not match
 */
struct xs_engine {
	const struct xs_policy *policy;
	u32 mode;
	struct xs_tuning tuning;
	bool remembers;
	u32 cpu_count;
	struct xs_cpu **cpus;
	xs_counts_t *counts;
	const struct xs_backend_ops *ops;
	void *backend;
	struct xs_policy rows[2];
	bool reserves;
	struct xs_space space XS_CACHE_LINE;
	struct xs_block none;
	xs_atomic64_t reclaimed_ns XS_CACHE_LINE;
	xs_atomic64_t reclaim_at;
	struct xs_depot depots[XS_SIZES];
	struct xs_pool pool;
	struct xs_tears tears;
};

/*
 * struct xs_engine_config
 * @start, @end: IOVAs that may be handed out, in bytes
 * @cpu_count:	xs_cpu_id() is below this, XS_CPUS_MAX at most
 * @tuning:	NULL: the policy's defaults
 * @remembers:	write down at each map how its pages can be held, whatever the policy:
 *		the backend's removals may fail
 */
struct xs_engine_config {
	const struct xs_backend_ops *ops;
	void *backend;
	u64 start;
	u64 end;
	u32 cpu_count;
	const struct xs_policy *policy;
	const struct xs_tuning *tuning;
	bool remembers;
};

/* 0, -EINVAL or -ENOMEM; nothing is left behind on error. May sleep. */
int xs_engine_init(struct xs_engine *engine,
		   const struct xs_engine_config *config);

/*
 * Give it a pool, for its callers to map small buffers by (pool.h): at addresses that
 * it hands out to nobody, below 4 GiB if there is room. Before the first map. 0 or
 * -ENOMEM. May sleep.
 */
int xs_engine_add_pool(struct xs_engine *engine);

/*
 * Free an engine that was drained; whoever used it has stopped. Never fails:
 * mappings that were not undone stay in the backend's page table (the caller
 * finds them with xs_engine_next_mapping() first).
 */
void xs_engine_destroy(struct xs_engine *engine);

/* The defaults of a policy. */
struct xs_tuning xs_tuning_default(const struct xs_policy *policy);

/*
 * Change policy and tuning, also under traffic; when it returns, no call goes on
 * under the old one, and what was deferred before is flushed. If the placement changes,
 * what CPUs and depots keep is given up. @tuning is in range. One caller at a time. May
 * sleep.
 */
void xs_engine_set(struct xs_engine *engine, const struct xs_policy *policy,
		   const struct xs_tuning *tuning);

/*
 * The same without a change: when it returns, all calls of before have, and what
 * they deferred is flushed. For whoever changes what callers ask for.
 */
void xs_engine_settle(struct xs_engine *engine);

/*
 * Free the memory of empty parts of the space, and their page-table pages; and
 * xs_engine_mend(). May sleep. One caller at a time.
 */
void xs_engine_trim(struct xs_engine *engine);

/*
 * Map @pages pages from @phys (page aligned); the IOVA range ends at or below
 * @last (bytes, the last of a page) and is aligned to the next power of two of its
 * size, at most a block's. Returns the IOVA, or 0 if there is none. Any
 * context; on no IOVA, deferred unmaps of this CPU are flushed first.
 */
u64 xs_engine_map(struct xs_engine *engine, u64 phys, u32 pages, u32 prot,
		  u64 last);

/*
 * The same in steps, for a contiguous IOVA range over scattered memory: reserve a
 * range, then fill it. One of at most XS_BLOCK_PAGES by one call, whose page i is at
 * phys[i], or blocked: XS_PHYS_NONE. A larger one in parts, each page at most once.
 * What was reserved is undone by one xs_engine_unmap() of the whole range, filled or
 * not. Both return 0 or a negative errno, which counts as a failed map; then any
 * pages of what was to be filled may be mapped. After XS_MAP_LEFT, which counts so, too,
 * it is undone by one xs_engine_unmap_left().
 */
u64 xs_engine_reserve(struct xs_engine *engine, u32 pages, u64 last);
int xs_engine_fill_each(struct xs_engine *engine, u64 iova, const u64 *phys,
			u32 pages, u32 prot);
int xs_engine_fill(struct xs_engine *engine, u64 iova, u64 phys, u32 pages,
		   u32 prot);

/*
 * Maps of a batch-aware driver in a backend where each needs a flush, but which get one
 * together: as xs_engine_map() and xs_engine_map_in_block() with XS_MAP_UNFLUSHED in
 * @prot, but no device may use them before the next xs_engine_flush_maps() of the caller
 * has returned. May be undone before that. A mapping of more than a block is flushed at
 * once.
 *
 * xs_engine_flush_maps(): all that the caller has mapped so may be used. @everywhere: it
 * may have run on other CPUs since then. Commands are as few as for a flush of unmaps:
 * one for each extent of neighbours, or of all from the first to the last.
 */
u64 xs_engine_map_unflushed(struct xs_engine *engine, u64 phys, u32 pages,
			    u32 prot, u64 last);
u32 xs_engine_map_in_block_unflushed(struct xs_engine *engine, u64 iova,
				     const u64 *phys, u32 pages, u32 prot);
void xs_engine_flush_maps(struct xs_engine *engine, bool everywhere);

/*
 * Undo a mapping of @pages pages at @iova. With @now the flush is done before
 * the return, else when the policy says. Any context. If there is no mapping of so
 * many pages, that is warned of and counted, here and below, and false is returned;
 * the pages that are mapped are removed and invalidated at once, of whichever mapping
 * they are (tear.h). With @now, false also if the backend could not remove the pages:
 * devices may reach them, so the caller must not free the memory.
 */
bool xs_engine_unmap(struct xs_engine *engine, u64 iova, u32 pages, bool now);

/*
 * The same at once of a mapping whose map has failed with XS_MAP_LEFT: some of its pages are
 * mapped, some are not, and the backend may not know which. Any context.
 */
bool xs_engine_unmap_left(struct xs_engine *engine, u64 iova, u32 pages);

/*
 * The same for a batch-aware driver, which keeps the memory until its flush has
 * returned: nothing is held. A policy that does not wait for a driver's flush
 * (xs_policy_waits()) takes it for an ordinary unmap. Any context.
 */
void xs_engine_unmap_deferred(struct xs_engine *engine, u64 iova, u32 pages);

/*
 * The driver's flush: when it returns, no stale translation exists of what the
 * caller has unmapped without one. @everywhere: it may have run on other CPUs
 * since then, so what any CPU has deferred is flushed. Any context.
 */
void xs_engine_flush_explicit(struct xs_engine *engine, bool everywhere);

/*
 * A block of a batch-aware driver: @pages pages of IOVA contiguous, 1 ..
 * XS_BLOCK_PAGES, that start on a block of their own. Each page is a mapping of
 * its own, used at most once; those that never are must be dropped. The IOVAs are
 * free again when the last one was unmapped or dropped. Take returns the IOVA,
 * or 0 if there is none. Any context.
 *
 * Map maps @pages pages of it, from @iova on, to the memory at phys[0], phys[1]
 * and so on; what is contiguous there too, in one call of the backend. Returns how
 * many it has mapped: fewer than @pages if the backend refused the next ones.
 *
 * They are undone by xs_engine_unmap*(), or many by one call: those of the block
 * at @iova whose bits are in @mask.
 */
u64 xs_engine_take_block(struct xs_engine *engine, u32 pages, u64 last);
u32 xs_engine_map_in_block(struct xs_engine *engine, u64 iova, const u64 *phys,
			   u32 pages, u32 prot);
void xs_engine_unmap_in_block_deferred(struct xs_engine *engine, u64 iova,
				       u64 mask);
void xs_engine_drop_in_block(struct xs_engine *engine, u64 iova, u32 pages);

/*
 * A NAPI poll ended on the running CPU. False: the batch is not empty, so the end of
 * the next poll is to be told, too.
 */
bool xs_engine_poll(struct xs_engine *engine);

/*
 * The timer of CPU @cpu fired. Flushes what has reached its bound. Returns the
 * deadline to fire at next, or 0 if none is needed. Any CPU, any context.
 */
u64 xs_engine_expire(struct xs_engine *engine, u32 cpu);

/*
 * Flush all that any CPU has deferred before the call. XS_FLUSH_DRAIN also
 * closes open blocks.
 */
void xs_engine_flush(struct xs_engine *engine, enum xs_flush_point cause);

/*
 * CPU @cpu went off-line: flush it, close its block and give back what it had
 * cached. Any CPU.
 */
void xs_engine_retire_cpu(struct xs_engine *engine, u32 cpu);

/*
 * Give the IOVAs of torn mappings back that are done (tear.h). @abandoned: those also
 * that an unmap began in; their driver is gone, and they were unmapped by nothing else.
 * One caller at a time. May sleep.
 */
void xs_engine_mend(struct xs_engine *engine, bool abandoned);

/* Pages of torn mappings that no unmap has named. Any context. */
u64 xs_engine_torn(struct xs_engine *engine);

/*
 * A call that its caller cannot mean: counted, and the backend is told. For the engine's
 * own files. Entered.
 */
void xs_engine_tell_bad_unmap(struct xs_engine *engine,
			      const struct xs_bad_unmap *bad_unmap);

/* The same of one that is ignored. */
void xs_engine_bad_unmap(struct xs_engine *engine, u64 iova, const char *what);

/* A map fails for a reason of the backend's: counted. Entered. */
void xs_engine_map_failed(struct xs_engine *engine);

/*
 * Pages that the backend could not remove (stuck.h), and those of pools. Any context; under
 * traffic the sum may be a moment old in part.
 */
u64 xs_engine_stuck(const struct xs_engine *engine);

/*
 * Have the backend remove stuck pages again, and let go of those that are gone. Returns
 * how many are left. May sleep. One caller at a time, also of xs_engine_trim().
 */
u64 xs_engine_retry(struct xs_engine *engine);

/* The sum of all statistics. */
void xs_engine_stats(struct xs_engine *engine, struct xs_stats *sum);

/*
 * Do the accounts balance? To be asked of an engine at rest. Writes the sum of
 * all statistics to *@sum and compares it with a count of what the space has
 * given out. Returns the number of pages that are still mapped, or -XS_EILSEQ
 * if a balance is broken, which xs_warn_once() reports.
 */
s64 xs_engine_leak_check(struct xs_engine *engine, struct xs_stats *sum);

/*
 * Pages mapped and buffers copied now, never negative on a sound engine, under traffic too; a
 * negative value is a broken invariant.
 */
s64 xs_engine_live(const struct xs_engine *engine);

/*
 * The first mapping at or after *@iova, of *@pages pages; false if there is none.
 * To name what is outstanding. All maps have ended, unmaps may run beside it, and the caller
 * keeps leaves from being freed. Takes the lock of torn mappings.
 */
bool xs_engine_next_mapping(struct xs_engine *engine, u64 *iova, u32 *pages);

#endif
