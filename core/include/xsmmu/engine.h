/* SPDX-License-Identifier: GPL-2.0 OR MIT */
/*
 * The engine: one per IOMMU domain that is taken over.
 *
 * It places mappings, defers their unmaps, and syncs. Life of a page:
 *
 *   free -> mapped -> [deferred ->] synced -> free
 *
 * Between unmap and sync its IOVA is held, and its memory too if the policy
 * says so. A sync removes the pages from the page table, invalidates, waits,
 * and only then lets IOVAs and memory go.
 *
 * Each CPU has its own open block, magazines, batch and ledger, guarded by its
 * own lock. The two common cases take no lock: a map of one page takes the
 * next page of the open block by one atomic operation, and an unmap in a block
 * that already has dead pages sets its bits by another. Lock order: a CPU's
 * lock, then the depot's or the space's; never two CPUs' at once.
 *
 * The policy is one pointer, so nothing reads half of it. Who read the old one
 * before a change can only add dead pages to a block that a batch knows; a
 * block is put into a batch under the CPU's lock, with the policy of then.
 */
#ifndef XSMMU_ENGINE_H
#define XSMMU_ENGINE_H

#include <xsmmu/batch.h>
#include <xsmmu/ledger.h>
#include <xsmmu/magazine.h>
#include <xsmmu/policy.h>

#define XS_RANGES_MAX	32	/* upper limit of range_commands_max */

/*
 * struct xs_tuning - what the operator may set beside the policy
 * @window_us:		bound on the age of a deferred unmap, 1 .. 10,000,000
 * @batch_pages:	threshold of XS_SYNC_FULL, 1 .. 1,024 pages. Seen
 *			when a block joins the batch, so pages that join blocks
 *			in between may pass it.
 * @range_commands_max:	with XS_SCOPE_AUTO, more commands than this become one
 *			domain command, 1 .. XS_RANGES_MAX
 */
struct xs_tuning {
	u32 window_us;
	u32 batch_pages;
	u32 range_commands_max;
};

#define XS_WINDOW_MAX_US	10000000u
#define XS_BATCH_MAX_PAGES	1024u

/*
 * struct xs_cpu - one CPU's part of an engine; guarded by @lock, but @open and
 * what is said below
 * @open:	the block being filled: IOVA of its next page | pages gone, from
 *		0 to XS_BLOCK_PAGES; XS_OPEN_NONE if none is
 * @listings:	of blocks in the batch so far
 * @armed:	the world has been asked to call xs_engine_expire()
 * @promised:	a batch-aware driver's unmap is in the batch; set without the
 *		lock too
 * @elsewhere:	number of such unmaps that may be in another CPU's batch
 * @settled:	@elsewhere when all batches were last synced because of that
 */
struct xs_cpu {
	xs_atomic64_t open;
	xs_lock_t lock;
	u32 id;
	u64 listings;
	bool armed;
	bool promised;
	u64 elsewhere;
	u64 settled;
	struct xs_cache pieces[XS_PIECE_LG2S];
	struct xs_batch batch;
	struct xs_ledger ledger;
};

#define XS_OPEN_GONE	(XS_PAGE_BYTES - 1)
#define XS_OPEN_STEP	(XS_PAGE_BYTES + 1)
#define XS_OPEN_NONE	((u64)XS_BLOCK_PAGES)

/*
 * struct xs_engine
 * @policy, @tuning: written by xs_engine_set(), read without a lock
 * @cpus:	one per CPU
 */
struct xs_engine {
	const struct xs_world_ops *ops;
	void *world;
	const struct xs_policy *policy;
	struct xs_tuning tuning;
	struct xs_cpu **cpus;
	u32 cpu_count;
	xs_counts_t *counts;
	struct xs_space space;
	struct xs_depot depots[XS_PIECE_LG2S];
};

/*
 * struct xs_engine_config
 * @start, @end: IOVAs that may be handed out, in bytes
 * @cpu_count:	xs_cpu_id() is below this, XS_CPUS_MAX at most
 */
struct xs_engine_config {
	const struct xs_world_ops *ops;
	void *world;
	u64 start;
	u64 end;
	u32 cpu_count;
	const struct xs_policy *policy;
};

/* 0, -EINVAL or -ENOMEM; nothing is left behind on error. May sleep. */
int xs_engine_init(struct xs_engine *engine,
		   const struct xs_engine_config *config);

/*
 * Free an engine that was drained; whoever used it has stopped. Never fails:
 * mappings that were not undone stay in the world's page table (the caller
 * finds them with xs_engine_next_used() first).
 */
void xs_engine_destroy(struct xs_engine *engine);

/* The defaults of a policy. */
struct xs_tuning xs_tuning_default(const struct xs_policy *policy);

/*
 * Change policy and tuning, also under traffic; what was deferred before is
 * synced when it returns. @tuning is in range. One caller at a time.
 */
void xs_engine_set(struct xs_engine *engine, const struct xs_policy *policy,
		   const struct xs_tuning *tuning);

/*
 * Map @pages pages from @phys (page aligned); the IOVA range ends at or below
 * @last (bytes, the last of a page) and is aligned to the next power of two of its
 * size, at most a block's. Returns the IOVA, or 0 if there is none. Any
 * context; on no IOVA, deferred unmaps of this CPU are synced first.
 */
u64 xs_engine_map(struct xs_engine *engine, u64 phys, u32 pages, u32 prot,
		  u64 last);

/*
 * The same in parts, for a contiguous IOVA range over scattered memory:
 * reserve a range, then fill parts of it, each page at most once. What was
 * reserved is undone by one xs_engine_unmap() of the whole range, filled or
 * not. @small: the whole range is at most a block, so its pages can be held.
 * Pages of a small range that stay unfilled are skipped: with xs_engine_skip(),
 * unless all do. Fill returns 0 or a negative errno, which counts as a failed
 * map.
 */
u64 xs_engine_reserve(struct xs_engine *engine, u32 pages, u64 last);
void xs_engine_skip(struct xs_engine *engine, u64 iova, u32 pages);
int xs_engine_fill(struct xs_engine *engine, u64 iova, u64 phys, u32 pages,
		   u32 prot, bool small);

/*
 * Undo a mapping of @pages pages at @iova. With @now the sync is done before
 * the return, else when the policy says. Any context.
 */
void xs_engine_unmap(struct xs_engine *engine, u64 iova, u32 pages, bool now);

/*
 * The same for a batch-aware driver, which keeps the memory until its sync has
 * returned: nothing is held. A policy that does not wait for a driver's sync
 * (xs_policy_waits()) takes it for an ordinary unmap. Any context.
 */
void xs_engine_unmap_no_sync(struct xs_engine *engine, u64 iova, u32 pages);

/*
 * The driver's sync: when it returns, no stale translation exists of what the
 * caller has unmapped without one. @everywhere: it may have run on other CPUs
 * since then, so what any CPU has deferred is synced. Any context.
 */
void xs_engine_sync_explicit(struct xs_engine *engine, bool everywhere);

/*
 * A block of a batch-aware driver: @pages pages of IOVA in a row, 1 ..
 * XS_BLOCK_PAGES, that start on a block of their own. Each page is a mapping of
 * its own, used at most once; those that never are must be dropped. The IOVAs are
 * free again when the last one was unmapped or dropped. Take returns the IOVA,
 * or 0 if there is none. Any context.
 *
 * Map maps @pages pages of it, from @iova on, to the memory at phys[0], phys[1]
 * and so on; what is in a row there too, in one call of the world. Returns how
 * many it has mapped: fewer than @pages if the world refused the next ones.
 *
 * They are undone by xs_engine_unmap*(), or many by one call: those of the block
 * at @iova whose bits are in @mask.
 */
u64 xs_engine_take_block(struct xs_engine *engine, u32 pages, u64 last);
u32 xs_engine_map_in_block(struct xs_engine *engine, u64 iova, const u64 *phys,
			   u32 pages, u32 prot);
void xs_engine_unmap_in_block_no_sync(struct xs_engine *engine, u64 iova,
				      u64 mask);
void xs_engine_drop_in_block(struct xs_engine *engine, u64 iova, u32 pages);

/* A NAPI poll ended on the running CPU. */
void xs_engine_poll(struct xs_engine *engine);

/*
 * The timer of CPU @cpu fired. Syncs what has reached its bound. Returns the
 * deadline to fire at next, or 0 if none is needed. Any CPU, any context.
 */
u64 xs_engine_expire(struct xs_engine *engine, u32 cpu);

/*
 * Sync all that any CPU has deferred before the call. XS_SYNC_DRAIN also
 * closes open blocks.
 */
void xs_engine_sync(struct xs_engine *engine, enum xs_sync cause);

/*
 * CPU @cpu went off-line: sync it, close its block and give back what it had
 * cached. Any CPU.
 */
void xs_engine_retire_cpu(struct xs_engine *engine, u32 cpu);

/* The sum of all ledgers. */
void xs_engine_ledger(struct xs_engine *engine, struct xs_ledger *sum);

/*
 * Do the accounts balance? To be asked of an engine at rest. Writes the sum of
 * all ledgers to *@sum and compares it with a count of what the space has
 * given out. Returns the number of pages that are still mapped, or -XS_EILSEQ
 * if a balance is broken, which xs_warn_once() reports.
 */
s64 xs_engine_audit(struct xs_engine *engine, struct xs_ledger *sum);

/*
 * Pages mapped now, never negative on a sound engine, under traffic too; a
 * negative value is a broken invariant.
 */
s64 xs_engine_live(const struct xs_engine *engine);

/*
 * The first block at or after @block that is in use, XS_NO_BLOCK if there is
 * none; to name what is outstanding.
 */
u32 xs_engine_next_used(const struct xs_engine *engine, u32 block);

#endif
