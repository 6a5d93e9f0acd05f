/* SPDX-License-Identifier: GPL-2.0 OR MIT */
/*
 * The engine: one instance for each attached IOMMU group, also across a change of the group's
 * domain.
 *
 * The engine places mappings, defers unmaps, and flushes. Life of a page:
 *
 *   free -> mapped -> [deferred ->] flushed -> free
 *
 * Between unmap and flush the IOVA is held; the memory is held too if the policy says so. A
 * flush removes the pages from the page table, invalidates, waits, and only then releases IOVAs
 * and memory.
 *
 * Each CPU has an open block, magazines, a batch and statistics, guarded by the CPU's lock. The
 * two common cases take no lock: a map of a single page takes one of the CPU's local pages
 * (place.h) by plain loads and stores. A deferred unmap of a single page takes one compare and
 * swap, of the slot, to claim the mapping; another of the batch's head, to allocate a record, is
 * not locked, because only the CPU writes the head. A policy that holds pages adds a reference.
 * Lock order: a CPU's lock, then the lock of a partial list, a depot or the space. No path holds
 * two CPUs' locks. The lock of torn mappings is never held together with another lock.
 *
 * A call reads the policy, or @mode on the fast paths. A policy change stores both, waits for the
 * calls that may have read an old value, and flushes the unmaps that those calls deferred. So the
 * new level holds for every mapping when the change returns.
 *
 * Context words in the engine's headers: "entered" means between xs_enter() and xs_exit(), so
 * that quiesce() waits for the caller (in the module: with preemption off); "CPU's lock" means
 * that lock held with interrupts off; "any" means process, softirq or interrupt context, entered
 * or not; "may sleep" means process context, not entered, no lock held.
 */
#ifndef XSMMU_ENGINE_H
#define XSMMU_ENGINE_H

#include <xsmmu/batch.h>
#include <xsmmu/block.h>
#include <xsmmu/identity.h>
#include <xsmmu/stats.h>
#include <xsmmu/magazine.h>
#include <xsmmu/policy.h>
#include <xsmmu/pool.h>
#include <xsmmu/partial.h>

#define XS_RANGES_MAX	32	/* upper limit of range_commands_max */
#define XS_CPUS_MAX	0xffffu
#define XS_EMPTY_BLOCKS	16u

/**
 * struct xs_tuning - parameters of an engine beside the policy: tunables of the operator, and
 *   @batch_aware, which the caller computes from the group's drivers
 * @window_us: bound on the age of a deferred unmap, in us, 1 .. 10,000,000
 * @batch_pages: threshold of XS_FLUSH_FULL, 1 .. 1,024 pages. A flush has at most this many
 *   pages plus one mapping of a block.
 * @range_commands_max: with XS_SCOPE_AUTO, a flush that needs more range commands sends a
 *   single domain command, 1 .. XS_RANGES_MAX
 * @copy_bytes: size of the largest buffer that is copied, 0 .. XS_BOUNCE_MAX_BYTES; only for an
 *   engine with a pool
 * @pool_mib: size limit of the pool, 2 .. XS_POOL_MAX_MIB
 * @batch_aware: all drivers are batch-aware. Under a policy that waits for the driver's flush,
 *   an ordinary unmap is then not deferred, so no unmap of such a driver falls below the
 *   driver's level.
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

/* Extents of maps that wait for a flush; a test may have fewer. */
#ifndef XS_UNFLUSHED_EXTENTS
#define XS_UNFLUSHED_EXTENTS	64u
#endif

/**
 * struct xs_unflushed - maps of one CPU that wait for the flush that the backend needs
 * @count: number of @extents. Also read without the lock: @count becomes 0 after the flush is
 *   done, not before.
 * @pages: sum of the pages of @extents
 * @extents: page << 16 | pages. Extents of mappings that are no longer mapped stay in the list,
 *   so extents may overlap.
 */
struct xs_unflushed {
	u32 count;
	u32 pages;
	u64 extents[XS_UNFLUSHED_EXTENTS];
};

/**
 * struct xs_cpu - one CPU's part of an engine
 * @local_busy: a map of this CPU takes one of the @local pages. A map that has interrupted that map
 *   leaves @local and the first of @open as they are.
 * @local: local pages of this CPU: free pages that the CPU has taken from the first of @open, for
 *   maps of single pages without a locked operation. The first of @open changes only while there
 *   are none. Written by this CPU, under @lock or while @local_busy is set; by another CPU only
 *   under @lock while no map of this CPU uses XS_MODE_LOCAL.
 * @open: blocks from which this CPU allocates pages, by size; the engine's @none, which has no
 *   free page, if no block is open. This CPU reads @open without the lock.
 * @batch: see batch.h
 * @lock: guards all members unless stated otherwise
 * @id: number of the CPU
 * @empty_count: number of blocks in @empty
 * @search_cpu: CPU that owns the next partial list to search
 * @empty: the free-block cache: claimed blocks without a page in use, opened before a fresh
 *   block
 * @magazines: order-n ranges for page placement, by size
 * @stats: this CPU's statistics
 * @unflushed: maps that wait for a flush
 * @partial: this CPU's partial list, which has a lock of its own
 */
struct xs_cpu {
	bool local_busy;
	u64 local;
	struct xs_block *open[XS_SIZES];
	struct xs_batch batch;
	xs_lock_t lock XS_CACHE_LINE;
	u32 id;
	u32 empty_count;
	u32 search_cpu;
	struct xs_block *empty[XS_EMPTY_BLOCKS];
	struct xs_cache magazines[XS_SIZES];
	struct xs_stats stats;
	struct xs_unflushed unflushed;
	struct xs_partial partial;
} XS_CACHE_LINE;

/*
 * Permissions of the common maps and unmaps of a single page, which look at nothing else of
 * the policy. LOCAL: a map takes one of the CPU's local pages. HOLDS: a map writes down how the
 * page can be held. HELD: an ordinary unmap holds the page and is deferred. PROMISE: an unmap by a
 * batch-aware driver is deferred without holding the page. IDENTITY: the same map and ordinary
 * unmap look at the identity window first.
 */
#define XS_MODE_HOLDS	1u
#define XS_MODE_HELD	2u
#define XS_MODE_PROMISE	4u
#define XS_MODE_LOCAL	8u
#define XS_MODE_IDENTITY	16u

/**
 * struct xs_tears - torn mappings (tear.h)
 * @lock: guards all members and the records of torn mappings
 * @done: records that xs_engine_mend() handles next
 * @unnamed: pages of torn mappings that no unmap has named; also read without the lock
 */
struct xs_tears {
	xs_lock_t lock;
	struct xs_torn *done;
	u64 unnamed;
};

/**
 * struct xs_engine - an engine; the first cache line is constant under traffic
 * @policy: policy in force, an element of @rows. Written by xs_engine_set(), read without a
 *   lock.
 * @mode: XS_MODE_* of the policy, for the fast paths. Written after @policy: until xs_engine_set()
 *   returns, a call may see one of the two old and the other new. XS_MODE_LOCAL is clear while the
 *   placement changes, and once xs_engine_trim() has taken back local pages, until the next
 *   xs_engine_set() returns.
 * @tuning: tunables that the policy's row does not have. Written by xs_engine_set(), read
 *   without a lock.
 * @remembers: as in the configuration
 * @cpu_count: number of CPUs
 * @cpus: part of each CPU
 * @counts: counters of the map and unmap paths
 * @ops: operations of the backend
 * @backend: first argument of the backend's operations
 * @rows: copy of the policy in force, and copy of the previous policy
 * @recall_due: a map has found no IOVA, so xs_engine_trim() takes back the local pages
 * @reserves: set for good when the first block is reserved low or has reserved pages, or when the
 *   identity window has tables: not every page goes back to a magazine
 * @space: IOVA space
 * @none: block without a free page
 * @reclaimed_ns: start time of the last reclaim round, which takes back the IOVAs that CPUs
 *   cache
 * @reclaim_at: CPU at which the reclaim round continues; the number of CPUs until the depots are
 *   empty, or the next round begins. A round begins at CPU 0, so 0 means that no round is in
 *   progress.
 * @drained: size of the last depot that was drained. A hint, written without a lock.
 * @depots: depots of magazines, by size
 * @pool: pool of bounce buffers for callers that ask for copies; without addresses until
 *   xs_engine_add_pool()
 * @tears: mappings that unmaps did not match
 * @identity: window of identity placement
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
	bool recall_due;
	bool reserves;
	struct xs_identity identity XS_CACHE_LINE;
	struct xs_space space XS_CACHE_LINE;
	struct xs_block none;
	xs_atomic64_t reclaimed_ns XS_CACHE_LINE;
	xs_atomic64_t reclaim_at;
	u32 drained;
	struct xs_depot depots[XS_SIZES];
	struct xs_pool pool;
	struct xs_tears tears;
};

/**
 * struct xs_engine_config - configuration of an engine
 * @ops: operations of the backend
 * @backend: first argument of the backend's operations
 * @start: first usable IOVA, in bytes
 * @end: end of the usable IOVAs, in bytes
 * @cpu_count: xs_cpu_id() is less than this; at most XS_CPUS_MAX
 * @policy: initial policy
 * @tuning: initial tunables; NULL for the policy's defaults
 * @remembers: a map writes down how the pages can be held under every policy, because removals
 *   by the backend may fail
 * @identity: start of the window of identity placement in bytes, a multiple of what a page-table
 *   page maps, at or above @end and a block more; 0 without a window
 * @memory_pages: end of the physical memory that the window has, in pages
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
	u64 identity;
	u64 memory_pages;
};

/**
 * xs_engine_init - initialise an engine
 * @engine: zeroed memory, or an engine that was destroyed
 * @config: configuration
 *
 * Context: may sleep.
 * Return: 0, -EINVAL or -ENOMEM. On error no memory stays allocated.
 */
int xs_engine_init(struct xs_engine *engine,
		   const struct xs_engine_config *config);

/**
 * xs_engine_add_pool - give an engine a pool of bounce buffers
 * @engine: engine without mappings
 *
 * The pool's addresses are reserved in the IOVA space: below 4 GiB if there is room.
 *
 * Context: may sleep; before the first map.
 * Return: 0; -ENOMEM without memory, or without XS_POOL_BYTES of contiguous free IOVAs.
 */
int xs_engine_add_pool(struct xs_engine *engine);

/**
 * xs_engine_destroy - free an engine that was drained
 * @engine: engine that no caller uses any more
 *
 * Never fails. Mappings that were not unmapped stay in the backend's page table; the caller
 * finds such mappings with xs_engine_next_mapping() first.
 *
 * Context: may sleep.
 */
void xs_engine_destroy(struct xs_engine *engine);

/**
 * xs_tuning_default - default tunables of a policy
 * @policy: policy
 *
 * Context: any.
 * Return: the defaults.
 */
struct xs_tuning xs_tuning_default(const struct xs_policy *policy);

/**
 * xs_engine_set - change policy and tunables, also under traffic
 * @engine: engine
 * @policy: new policy
 * @tuning: new tunables, in range
 *
 * On return no call uses the old policy any more, and all earlier deferred unmaps are flushed.
 * If the placement changes, CPUs and depots give up cached IOVAs.
 *
 * Context: may sleep; one caller at a time, and never together with xs_engine_trim().
 */
void xs_engine_set(struct xs_engine *engine, const struct xs_policy *policy,
		   const struct xs_tuning *tuning);

/**
 * xs_engine_settle - wait for running calls and flush deferred unmaps
 * @engine: engine
 *
 * On return all calls that were running have returned, and the unmaps that those calls deferred
 * are flushed. Used after a change that all later calls see; for example, when maps have begun to
 * fail for a detach.
 *
 * Context: may sleep.
 */
void xs_engine_settle(struct xs_engine *engine);

/**
 * xs_engine_trim - free the memory of empty parts of the IOVA space
 * @engine: engine
 *
 * Frees leaves of the tree and page-table pages, and calls xs_engine_mend(). If a map has found no
 * IOVA, all CPUs give up cached IOVAs first, and no CPU has local pages (place.h) until the next
 * xs_engine_set().
 *
 * Context: may sleep; never together with xs_engine_trim(), xs_engine_mend(), xs_engine_retry() or
 *   xs_engine_set() of the same engine (in the module: work_lock).
 */
void xs_engine_trim(struct xs_engine *engine);

/**
 * xs_engine_map - map contiguous physical pages
 * @engine: engine
 * @phys: physical address in bytes, page aligned
 * @pages: number of pages
 * @prot: passed to the backend
 * @last: highest IOVA in bytes, inclusive, the last byte of a page
 *
 * The IOVA is aligned to @pages rounded up to a power of two, but to no more than a block. If
 * no IOVA is free, the deferred unmaps of this CPU are flushed and the search is repeated.
 *
 * Context: any.
 * Return: the IOVA in bytes; 0 on failure.
 */
u64 xs_engine_map(struct xs_engine *engine, u64 phys, u32 pages, u32 prot,
		  u64 last);

/**
 * xs_engine_alloc_iova - allocate an IOVA range for scattered memory
 * @engine: engine
 * @pages: number of pages
 * @last: highest IOVA in bytes, inclusive
 *
 * The caller then fills the range by one xs_engine_fill_each(), or by any number of
 * xs_engine_fill() and one xs_engine_publish(). From then on the range is a mapping; before, no
 * unmap finds the range. A single xs_engine_unmap() of the whole range frees the range, also if
 * a fill has failed.
 *
 * Context: any.
 * Return: the IOVA in bytes; 0 on failure.
 */
u64 xs_engine_alloc_iova(struct xs_engine *engine, u32 pages, u64 last);

/**
 * xs_engine_fill_each - map scattered pages to an allocated range of at most a block
 * @engine: engine
 * @iova: from xs_engine_alloc_iova()
 * @phys: physical address of each page in bytes; XS_PHYS_NONE leaves a page unmapped
 * @pages: size of the whole range, at most XS_BLOCK_PAGES
 * @prot: passed to the backend
 *
 * Called once for a range. On return the range is a mapping. On failure, which counts as a
 * failed map, any subset of the pages may be mapped.
 *
 * Context: any.
 * Return: 0; -ENOMEM: undo by xs_engine_unmap(); XS_MAP_NOT_UNDONE: undo by a single
 *   xs_engine_unmap_failed_map().
 */
int xs_engine_fill_each(struct xs_engine *engine, u64 iova, const u64 *phys,
			u32 pages, u32 prot);

/**
 * xs_engine_fill - map contiguous memory to a part of an allocated range
 * @engine: engine
 * @iova: start of the part in bytes
 * @phys: physical address in bytes, page aligned
 * @pages: size of the part
 * @prot: passed to the backend
 *
 * Each page of the range is filled at most once. On failure, which counts as a failed map, any
 * subset of the pages may be mapped.
 *
 * Context: any; not entered.
 * Return: 0; a negative errno: undo by xs_engine_unmap(); XS_MAP_NOT_UNDONE: undo by a single
 *   xs_engine_unmap_failed_map().
 */
int xs_engine_fill(struct xs_engine *engine, u64 iova, u64 phys, u32 pages,
		   u32 prot);

/**
 * xs_engine_publish - make a range that xs_engine_fill() has filled a mapping
 * @engine: engine
 * @iova: from xs_engine_alloc_iova()
 * @pages: size of the whole range
 *
 * Called once for a range, after the last xs_engine_fill(), also if that call has failed, or
 * without any. Nothing holds the memory of a range of at most a block.
 *
 * Context: any.
 */
void xs_engine_publish(struct xs_engine *engine, u64 iova, u32 pages);

/**
 * xs_engine_map_unflushed - xs_engine_map() for a batch-aware driver, without the flush
 * @engine: engine
 * @phys: physical address in bytes, page aligned
 * @pages: number of pages
 * @prot: with XS_MAP_UNFLUSHED; passed to the backend
 * @last: highest IOVA in bytes, inclusive
 *
 * For a backend that needs a flush after a map. No device may use the mapping before the
 * caller's next xs_engine_flush_maps() has returned. The mapping may be unmapped earlier. A
 * mapping larger than a block is flushed at once.
 *
 * Context: any.
 * Return: the IOVA in bytes; 0 on failure.
 */
u64 xs_engine_map_unflushed(struct xs_engine *engine, u64 phys, u32 pages,
			    u32 prot, u64 last);

/**
 * xs_engine_map_in_block_unflushed - xs_engine_map_in_block() without the flush
 * @engine: engine
 * @iova: first page, in bytes
 * @phys: physical address of each page in bytes
 * @pages: number of pages
 * @prot: with XS_MAP_UNFLUSHED; passed to the backend
 *
 * As xs_engine_map_unflushed().
 *
 * Context: any.
 * Return: number of pages mapped.
 */
u32 xs_engine_map_in_block_unflushed(struct xs_engine *engine, u64 iova,
				     const u64 *phys, u32 pages, u32 prot);

/**
 * xs_engine_flush_maps - make unflushed maps usable by devices
 * @engine: engine
 * @everywhere: flush the maps of all CPUs, because the caller may have run on other CPUs
 *
 * On return devices may use all mappings that the caller has mapped unflushed. The flush sends
 * as few commands as a flush of unmaps: a command for each extent of neighbours, or a single
 * command from the first extent to the last.
 *
 * Context: any.
 */
void xs_engine_flush_maps(struct xs_engine *engine, bool everywhere);

/**
 * xs_engine_unmap - unmap a mapping
 * @engine: engine
 * @iova: start in bytes
 * @pages: size of the mapping
 * @now: flush before the return; otherwise the policy decides
 *
 * If there is no mapping of @pages pages at @iova, the unmap is bad: the engine counts the call
 * and tells the backend. The pages that are mapped, of whichever mapping, are removed and
 * invalidated before the return (tear.h).
 *
 * Context: any.
 * Return: false for a bad unmap, and if the mapping was flushed before the return and the backend
 *   could not remove the pages: devices may reach the memory, so the caller must not free it.
 */
bool xs_engine_unmap(struct xs_engine *engine, u64 iova, u32 pages, bool now);

/**
 * xs_engine_unmap_failed_map - undo a map that failed with XS_MAP_NOT_UNDONE
 * @engine: engine
 * @iova: start in bytes
 * @pages: size of the mapping
 *
 * Some pages are mapped and some are not, and the backend may not know which. The flush is done
 * before the return.
 *
 * Context: any.
 * Return: as xs_engine_unmap() with @now.
 */
bool xs_engine_unmap_failed_map(struct xs_engine *engine, u64 iova, u32 pages);

/**
 * xs_engine_unmap_deferred - unmap for a batch-aware driver, without a flush
 * @engine: engine
 * @iova: start in bytes
 * @pages: size of the mapping
 *
 * The driver keeps the memory until its flush has returned, so the engine holds no pages. Under
 * a policy that does not wait for a driver's flush (xs_policy_waits()) the call is an ordinary
 * unmap. Bad unmaps are handled as in xs_engine_unmap().
 *
 * Context: any.
 */
void xs_engine_unmap_deferred(struct xs_engine *engine, u64 iova, u32 pages);

/**
 * xs_engine_flush_explicit - the flush of a batch-aware driver
 * @engine: engine
 * @everywhere: flush the batches of all CPUs, because the caller may have run on other CPUs
 *
 * On return no stale translation exists of a mapping that the caller has unmapped by an unmap
 * without a flush.
 *
 * Context: any.
 */
void xs_engine_flush_explicit(struct xs_engine *engine, bool everywhere);

/**
 * xs_engine_alloc_block - allocate a block of IOVA for a batch-aware driver
 * @engine: engine
 * @pages: number of contiguous pages that the driver may use, 1 .. XS_BLOCK_PAGES
 * @last: highest IOVA in bytes, inclusive
 *
 * The range starts at a block boundary. Each page is mapped on its own, at most once; a page
 * that is never mapped must be dropped. The IOVAs are free again when the last page was
 * unmapped or dropped. Pages are unmapped by xs_engine_unmap*() or
 * xs_engine_unmap_in_block_deferred().
 *
 * Context: any.
 * Return: the IOVA in bytes; 0 on failure.
 */
u64 xs_engine_alloc_block(struct xs_engine *engine, u32 pages, u64 last);

/**
 * xs_engine_map_in_block - map pages of a driver's block
 * @engine: engine
 * @iova: first page, in bytes
 * @phys: physical address of each page in bytes
 * @pages: number of pages
 * @prot: passed to the backend
 *
 * Neighbours in memory are mapped by a single call of the backend.
 *
 * Context: any.
 * Return: number of pages mapped, counted from @iova; less than @pages if the backend refused
 *   the next page.
 */
u32 xs_engine_map_in_block(struct xs_engine *engine, u64 iova, const u64 *phys,
			   u32 pages, u32 prot);

/**
 * xs_engine_unmap_in_block_deferred - unmap pages of a driver's block, without a flush
 * @engine: engine
 * @iova: start of the block, in bytes
 * @mask: bit i selects page i of the block
 *
 * As xs_engine_unmap_deferred() of each selected page.
 *
 * Context: any.
 */
void xs_engine_unmap_in_block_deferred(struct xs_engine *engine, u64 iova,
				       u64 mask);

/**
 * xs_engine_drop_in_block - give up pages of a driver's block that were never mapped
 * @engine: engine
 * @iova: first page, in bytes
 * @pages: number of pages
 *
 * Context: any.
 */
void xs_engine_drop_in_block(struct xs_engine *engine, u64 iova, u32 pages);

/**
 * xs_engine_poll - a NAPI poll has ended on the running CPU
 * @engine: engine
 *
 * Context: any.
 * Return: true if the batch is empty; false if the caller must call again at the end of the
 *   next poll.
 */
bool xs_engine_poll(struct xs_engine *engine);

/**
 * xs_engine_expire - the timer of a CPU has fired
 * @engine: engine
 * @cpu: CPU that the timer belongs to; the call may run on any CPU
 *
 * Flushes the batch if the oldest unmap has reached its bound. A call on another CPU than @cpu
 * may need a further call although the batch is empty; a call on @cpu needs none then.
 *
 * Context: any.
 * Return: time of the next deadline in ns (clock() of the backend); 0 if no timer is needed.
 */
u64 xs_engine_expire(struct xs_engine *engine, u32 cpu);

/**
 * xs_engine_flush - flush the batches of all CPUs
 * @engine: engine
 * @cause: flush point to count. XS_FLUSH_DRAIN also closes open blocks, but for those of which
 *   another CPU has local pages.
 *
 * On return every unmap that any CPU had deferred before the call is flushed.
 *
 * Context: any.
 */
void xs_engine_flush(struct xs_engine *engine, enum xs_flush_point cause);

/**
 * xs_engine_retire_cpu - a CPU has gone offline
 * @engine: engine
 * @cpu: the CPU, on which no other call runs; this call may run on any CPU
 *
 * Flushes the CPU's batch, closes the CPU's open blocks, and gives back the IOVAs that the CPU
 * and the depots cached.
 *
 * Context: any.
 */
void xs_engine_retire_cpu(struct xs_engine *engine, u32 cpu);

/**
 * xs_engine_mend - give back the IOVAs of torn mappings that are done (tear.h)
 * @engine: engine
 * @abandoned: also of mappings in which an unmap began, because the driver is gone and no other
 *   unmap will name the rest
 *
 * Context: as xs_engine_trim().
 */
void xs_engine_mend(struct xs_engine *engine, bool abandoned);

/**
 * xs_engine_torn_pages - pages of torn mappings that no unmap has named
 * @engine: engine
 *
 * Context: any.
 * Return: number of pages.
 */
u64 xs_engine_torn_pages(struct xs_engine *engine);

/**
 * xs_engine_report_misuse - count a misuse and tell the backend
 * @engine: engine
 * @misuse: description of the call
 *
 * For the engine's own files.
 *
 * Context: entered.
 */
void xs_engine_report_misuse(struct xs_engine *engine,
			     const struct xs_misuse *misuse);

/**
 * xs_engine_report_ignored - xs_engine_report_misuse() of a call that the engine ignores
 * @engine: engine
 * @iova: address that the caller named, in bytes
 * @what: description for a person
 *
 * Context: entered.
 */
void xs_engine_report_ignored(struct xs_engine *engine, u64 iova, const char *what);

/**
 * xs_engine_map_failed - count a map that the backend refused
 * @engine: engine
 *
 * Context: entered.
 */
void xs_engine_map_failed(struct xs_engine *engine);

/**
 * xs_engine_stuck_pages - pages that the backend could not remove (stuck.h), pools included
 * @engine: engine
 *
 * Context: any, also under traffic.
 * Return: number of pages; at least the number of pages that were stuck throughout the call.
 */
u64 xs_engine_stuck_pages(const struct xs_engine *engine);

/**
 * xs_engine_retry - ask the backend again to remove stuck pages
 * @engine: engine
 *
 * Releases the memory and the IOVAs of pages that the backend has removed.
 *
 * Context: as xs_engine_trim(); also never together with xs_pool_grow() or xs_pool_trim() of the
 *   engine's pool.
 * Return: number of pages that are still stuck.
 */
u64 xs_engine_retry(struct xs_engine *engine);

/**
 * xs_engine_stats - sum of all statistics
 * @engine: engine
 * @sum: result
 *
 * Context: any; takes each CPU's lock in turn.
 */
void xs_engine_stats(struct xs_engine *engine, struct xs_stats *sum);

/**
 * xs_engine_leak_check - compare the statistics with the state of the blocks
 * @engine: engine at rest
 * @sum: the sum of all statistics is written here
 *
 * Reports a broken balance by xs_warn_once().
 *
 * Context: no other call runs.
 * Return: number of pages and copied buffers that are still mapped, or -XS_EILSEQ if a balance
 *   is broken.
 */
s64 xs_engine_leak_check(struct xs_engine *engine, struct xs_stats *sum);

/**
 * xs_engine_live_pages - pages mapped and buffers copied at present
 * @engine: engine
 *
 * Context: any, also under traffic.
 * Return: the count. Under traffic it misses calls that run meanwhile. It can be negative on a
 *   CPU that reorders stores, such as arm64, and beside a bad unmap of a page that is being
 *   mapped; see xs_engine_is_balanced().
 */
s64 xs_engine_live_pages(const struct xs_engine *engine);

/**
 * xs_engine_is_balanced - test that no more pages were unmapped than mapped
 * @engine: engine
 *
 * Context: may sleep; also under traffic.
 * Return: false if an invariant is broken.
 */
bool xs_engine_is_balanced(struct xs_engine *engine);

/**
 * xs_engine_next_mapping - find the next mapping, to name outstanding mappings
 * @engine: engine
 * @iova: start of the search in bytes; on success the start of the mapping
 * @pages: on success the size of the mapping
 *
 * Context: takes the lock of torn mappings. All maps have ended; unmaps may run. The caller
 *   prevents leaves from being freed.
 * Return: true if there is a mapping at or after *@iova.
 */
bool xs_engine_next_mapping(struct xs_engine *engine, u64 *iova, u32 *pages);

#endif
