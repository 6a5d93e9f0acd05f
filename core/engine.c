// SPDX-License-Identifier: GPL-2.0 OR MIT
/* Set-up, flush points from outside, and changes of policy; see engine.h. */
#include <xsmmu/place.h>
#include <xsmmu/flush.h>
#include <xsmmu/tear.h>

/* ---- misuse ---- */

void xs_engine_report_misuse(struct xs_engine *engine,
			     const struct xs_misuse *misuse)
{
	xs_count(engine->counts, bad_unmaps, 1);
	xs_ops(engine)->misuse(xs_backend(engine), misuse);
}

void xs_engine_report_ignored(struct xs_engine *engine, u64 iova, const char *what)
{
	struct xs_misuse misuse = { .what = what, .iova = iova };

	xs_engine_report_misuse(engine, &misuse);
}

/* ---- flush points ---- */

bool xs_engine_poll(struct xs_engine *engine)
{
	xs_flags_t flags;
	struct xs_cpu *cpu;
	bool empty;

	xs_enter();
	cpu = xs_cpu_lock(engine, &flags);
	if (xs_flushes_on(xs_policy_of(engine), XS_FLUSH_POLL))
		xs_flush_batch(engine, cpu, XS_FLUSH_POLL);
	empty = xs_batch_is_empty(&cpu->batch);
	xs_cpu_unlock(cpu, flags);
	xs_exit();
	return empty;
}

/* Depends on @promised and not on the policy, which may have changed since the unmap. */
static void xs_flush_promised(struct xs_engine *engine, struct xs_cpu *cpu)
{
	if (xs_a64_read(&cpu->batch.promised))
		xs_flush_batch(engine, cpu, XS_FLUSH_EXPLICIT);
}

void xs_engine_flush_explicit(struct xs_engine *engine, bool everywhere)
{
	xs_flags_t flags;

	for (u32 i = 0; everywhere && i < engine->cpu_count; i++) {
		struct xs_cpu *cpu = engine->cpus[i];

		if (xs_batch_is_empty(&cpu->batch))
			continue;
		flags = xs_cpu_lock_any(cpu);
		xs_flush_promised(engine, cpu);
		xs_cpu_unlock_any(cpu, flags);
	}
	if (!everywhere) {
		struct xs_cpu *cpu;

		xs_enter();
		cpu = xs_cpu_lock(engine, &flags);
		xs_flush_promised(engine, cpu);
		xs_cpu_unlock(cpu, flags);
		xs_exit();
	}
}

u64 xs_engine_expire(struct xs_engine *engine, u32 cpu_id)
{
	struct xs_cpu *cpu = engine->cpus[cpu_id];
	struct xs_batch *batch = &cpu->batch;
	xs_flags_t flags = xs_cpu_lock_any(cpu);
	u64 deadline = 0;

	batch->armed = false;
	if (!xs_batch_is_empty(batch)) {
		deadline = xs_flush_deadline(engine, cpu);
		if (deadline <= xs_ops(engine)->clock(xs_backend(engine))) {
			/* A flush that must leave records arms a timer for them. */
			xs_flush_batch(engine, cpu, XS_FLUSH_TIME);
			deadline = 0;
		}
	} else if (batch->unended) {
		if (cpu_id == xs_cpu_id())
			xs_batch_end_group(batch);
		else
			deadline = xs_flush_next_deadline(engine);
	}
	/* Else the CPU starts the timer again for the next batch. */
	if (deadline && cpu_id == xs_cpu_id())
		batch->armed = true;
	xs_cpu_unlock_any(cpu, flags);
	return deadline;
}

void xs_engine_flush(struct xs_engine *engine, enum xs_flush_point cause)
{
	for (u32 i = 0; i < engine->cpu_count; i++) {
		struct xs_cpu *cpu = engine->cpus[i];
		xs_flags_t flags;

		if (cause != XS_FLUSH_DRAIN && xs_batch_is_empty(&cpu->batch))
			continue;
		flags = xs_cpu_lock_any(cpu);
		/* A running timer may be too late for a new window. */
		if (cause == XS_FLUSH_DRAIN)
			cpu->batch.armed = false;
		xs_flush_batch(engine, cpu, cause);
		if (cause == XS_FLUSH_DRAIN)
			xs_place_close(engine, cpu);
		xs_cpu_unlock_any(cpu, flags);
	}
}

/* ---- changes ---- */

void xs_engine_settle(struct xs_engine *engine)
{
	xs_ops(engine)->quiesce(xs_backend(engine));
	xs_engine_flush(engine, XS_FLUSH_DRAIN);
}

/*
 * Writes the row that no call reads: the previous change waited for the calls that may have
 * read the row before.
 */
static const struct xs_policy *xs_engine_row(struct xs_engine *engine,
					     const struct xs_policy *policy,
					     const struct xs_tuning *tuning)
{
	struct xs_policy *row =
		&engine->rows[engine->policy == &engine->rows[0]];

	*row = *policy;
	row->ranges_max = tuning->range_commands_max;
	if (tuning->batch_aware && xs_policy_waits(policy))
		row->flushes |= XS_FLUSH_ORDINARY;
	return row;
}

static u32 xs_mode_of(const struct xs_engine *engine,
		      const struct xs_policy *row)
{
	bool holds = row->hold == XS_HOLD_PAGES;
	u32 mode = 0;

	if (row->placement == XS_PLACE_BLOCK)
		mode |= XS_MODE_LOCAL;
	if (holds || engine->remembers)
		mode |= XS_MODE_HOLDS;
	/* The slow path looks for empty blocks. */
	if (xs_flushes_on(row, XS_FLUSH_BLOCK))
		return mode;
	if (xs_policy_waits(row))
		mode |= XS_MODE_PROMISE;
	if (holds &&
	    !(row->flushes & (XS_FLUSH_BIT(XS_FLUSH_UNMAP) | XS_FLUSH_ORDINARY)))
		mode |= row->placement == XS_PLACE_IDENTITY ? XS_MODE_IDENTITY : XS_MODE_HELD;
	return mode;
}

/* From now on each CPU defers under its lock, and so sees the new tunables. */
static void xs_engine_limit(struct xs_engine *engine)
{
	for (u32 i = 0; i < engine->cpu_count; i++) {
		struct xs_cpu *cpu = engine->cpus[i];
		xs_flags_t flags = xs_cpu_lock_any(cpu);

		xs_store(&cpu->batch.limit, 0);
		xs_cpu_unlock_any(cpu, flags);
	}
}

static void xs_engine_limit_pool(struct xs_engine *engine)
{
	if (engine->pool.chunks)
		xs_pool_limit(&engine->pool,
			      engine->tuning.pool_mib >> (XS_CHUNK_LG2 - 20));
}

/*
 * Drains what a CPU caches. @and_local: its local pages, too, because no map uses XS_MODE_LOCAL.
 * A change to block placement finds none; a map takes the first as soon as the map sees the end of
 * the change, so the change does not look.
 */
static void xs_cpu_drain(struct xs_engine *engine, struct xs_cpu *cpu, bool and_local)
{
	xs_flags_t flags = xs_cpu_lock_any(cpu);

	if (and_local)
		xs_place_back_local(engine, cpu);
	xs_place_drain(engine, cpu);
	xs_cpu_unlock_any(cpu, flags);
}

/* Gives all cached IOVAs of CPUs and depots back to their blocks; see xs_cpu_drain(). */
static void xs_engine_drain_caches(struct xs_engine *engine, bool and_local)
{
	for (u32 i = 0; i < engine->cpu_count; i++)
		xs_cpu_drain(engine, engine->cpus[i], and_local);
	xs_place_drain_depots(engine, XS_ALL_MAGAZINES);
}

/*
 * A map has found no IOVA: takes back the local pages of all CPUs, idle ones included. There are
 * none until the next xs_engine_set(), because the space is small for what is mapped.
 */
static void xs_engine_recall(struct xs_engine *engine)
{
	xs_store(&engine->recall_due, false);
	xs_store(&engine->mode, engine->mode & ~XS_MODE_LOCAL);
	xs_ops(engine)->quiesce(xs_backend(engine));
	xs_engine_drain_caches(engine, true);
}

void xs_engine_set(struct xs_engine *engine, const struct xs_policy *policy,
		   const struct xs_tuning *tuning)
{
	bool moves = policy->placement != engine->policy->placement;
	u32 mode;

	if (policy->placement == XS_PLACE_IDENTITY)
		xs_identity_prepare(engine);

	/* No call marks pages at present: all marks are from an earlier policy. */
	if (!xs_flushes_on(engine->policy, XS_FLUSH_BLOCK) &&
	    xs_flushes_on(policy, XS_FLUSH_BLOCK))
		xs_space_clear_dead(&engine->space);
	/* Unmaps that were deferred under a shorter window keep the window until their flush. */
	if (tuning->window_us < engine->tuning.window_us)
		xs_store(&engine->tuning.window_us, tuning->window_us);
	xs_store(&engine->tuning.copy_bytes, tuning->copy_bytes);
	xs_store(&engine->tuning.pool_mib, tuning->pool_mib);
	xs_engine_limit_pool(engine);
	xs_store(&engine->tuning.batch_pages, tuning->batch_pages);
	xs_engine_limit(engine);
	xs_store_release(&engine->policy,
			 xs_engine_row(engine, policy, tuning));
	mode = xs_mode_of(engine, engine->policy);
	/* Local pages begin below. */
	xs_store(&engine->mode, mode & (engine->mode | ~XS_MODE_LOCAL));
	xs_engine_settle(engine);
	/*
	 * The new placement does not use the cached IOVAs of the old placement, and no call
	 * caches more.
	 */
	if (moves)
		xs_engine_drain_caches(engine, !(mode & XS_MODE_LOCAL));
	/* Calls under the old mode are over: a recall is for local pages that are back by now. */
	xs_store(&engine->recall_due, false);
	/*
	 * A map reads @local without the lock. Because of quiesce() in xs_engine_settle(), a map
	 * that sees XS_MODE_LOCAL from here on also sees that an earlier change, or a trim, took
	 * the pages.
	 */
	xs_store(&engine->mode, mode);
	xs_store(&engine->tuning.window_us, tuning->window_us);
}

void xs_engine_retire_cpu(struct xs_engine *engine, u32 cpu_id)
{
	struct xs_cpu *cpu = engine->cpus[cpu_id];
	xs_flags_t flags = xs_cpu_lock_any(cpu);

	xs_flush_batch(engine, cpu, XS_FLUSH_DRAIN);
	cpu->batch.armed = false;
	/* A CPU that is off-line appends nothing, and maps nothing. */
	cpu->batch.unended = false;
	xs_place_back_local(engine, cpu);
	xs_place_drain(engine, cpu);
	xs_cpu_unlock_any(cpu, flags);
	xs_place_drain_depots(engine, XS_ALL_MAGAZINES);
}

/*
 * A CPU may still have a block open that another CPU has claimed and given back. The CPU finds
 * no free page in the block, but must forget the block before the block's memory is freed.
 */
static void xs_engine_forget(struct xs_engine *engine)
{
	for (u32 i = 0; i < engine->cpu_count; i++) {
		struct xs_cpu *cpu = engine->cpus[i];
		xs_flags_t flags = xs_cpu_lock_any(cpu);

		for (u32 lg2 = 0; lg2 < XS_SIZES; lg2++) {
			struct xs_block *open = cpu->open[lg2];
			u64 page = open->iova >> XS_PAGE_LG2;

			if (xs_space_block(&engine->space, page) != open)
				xs_store(&cpu->open[lg2], &engine->none);
		}
		xs_cpu_unlock_any(cpu, flags);
	}
}

/* Frees detached leaves and their page-table pages. */
static void xs_trim_free(struct xs_engine *engine,
			 const struct xs_detached *detached, u32 count)
{
	for (u32 i = 0; i < count && xs_ops(engine)->prune; i++)
		xs_ops(engine)->prune(xs_backend(engine),
				      detached[i].block * XS_BLOCK_BYTES,
				      XS_LEAF_PAGES);
	xs_engine_forget(engine);
	xs_ops(engine)->quiesce(xs_backend(engine));
	xs_space_free_leaves(&engine->space, detached, count);
}

void xs_engine_trim(struct xs_engine *engine)
{
	struct xs_detached detached[XS_DETACH_MAX];
	bool found;

	if (xs_load(&engine->recall_due))
		xs_engine_recall(engine);
	xs_engine_mend(engine, false);
	/* A leaf that becomes empty behind the search is left for another round. */
	do {
		u64 from = 0;

		found = false;
		while (from < XS_SPACE_PAGES) {
			u32 count = xs_space_detach(&engine->space, &from,
						    detached);

			if (!count)
				continue;
			xs_trim_free(engine, detached, count);
			found = true;
		}
	} while (xs_space_end_trim(&engine->space, found));
	xs_identity_trim(engine);
}

/* ---- set-up ---- */

static bool xs_cpus_init(struct xs_engine *engine)
{
	for (u32 i = 0; i < engine->cpu_count; i++) {
		struct xs_cpu *cpu = xs_ops(engine)->alloc(xs_backend(engine),
							   sizeof(*cpu), i,
							   false);

		if (!cpu)
			return false;
		xs_lock_init(&cpu->lock);
		xs_lock_init(&cpu->partial.lock);
		for (u32 lg2 = 0; lg2 < XS_SIZES; lg2++)
			cpu->open[lg2] = &engine->none;
		cpu->id = i;
		engine->cpus[i] = cpu;
		xs_counts_of(engine->counts, i)->cpu = cpu;
	}
	return true;
}

/* Magazines of larger ranges have fewer items, so that all hold about as many pages. */
static u32 xs_depot_items(u32 lg2)
{
	u32 items = XS_MAGAZINE_ITEMS >> lg2;

	return items > 2 ? items : 2;
}

/* Number of full magazines that have no more than @pages pages. */
static u32 xs_depot_magazines(u32 lg2, u32 pages)
{
	return pages / (xs_depot_items(lg2) << lg2);
}

int xs_engine_init(struct xs_engine *engine,
		   const struct xs_engine_config *config)
{
	int error;

	if (config->cpu_count > XS_CPUS_MAX)
		return -XS_EINVAL;
	engine->ops = config->ops;
	engine->backend = config->backend;
	engine->tuning = config->tuning ? *config->tuning :
					  xs_tuning_default(config->policy);
	engine->policy = 0;
	engine->policy = xs_engine_row(engine, config->policy,
				       &engine->tuning);
	engine->remembers = config->remembers;
	engine->mode = xs_mode_of(engine, engine->policy);
	engine->recall_due = false;
	engine->reserves = false;
	engine->cpu_count = config->cpu_count;
	xs_a64_set(&engine->reclaimed_ns, 0);
	xs_a64_set(&engine->reclaim_at, 0);
	xs_a64_set(&engine->none.free, 0);
	engine->none.iova = 0;
	engine->pool.start = XS_POOL_ABSENT;
	engine->pool.chunks = 0;
	engine->pool.stuck_pages = 0;
	xs_lock_init(&engine->tears.lock);
	engine->tears.done = 0;
	engine->tears.unnamed = 0;
	for (u32 lg2 = 0; lg2 < XS_SIZES; lg2++)
		xs_depot_init(&engine->depots[lg2], config->ops,
			      config->backend, xs_depot_items(lg2),
			      xs_depot_magazines(lg2, XS_DEPOT_PAGES),
			      xs_depot_magazines(lg2, XS_CACHE_PAGES));
	xs_identity_init(&engine->identity, config->identity, config->memory_pages);
	if (config->policy->placement == XS_PLACE_IDENTITY)
		xs_identity_prepare(engine);
	error = xs_space_init(&engine->space, config->ops, config->backend,
			      config->start, config->end);
	if (error) {
		xs_identity_destroy(engine);
		return error;
	}
	engine->counts = xs_counts_new();
	engine->cpus = xs_ops(engine)->alloc(xs_backend(engine),
					     engine->cpu_count *
					     sizeof(*engine->cpus),
					     XS_ANY_CPU, false);
	if (engine->counts && engine->cpus && xs_cpus_init(engine))
		return 0;
	xs_engine_destroy(engine);
	return -XS_ENOMEM;
}

int xs_engine_add_pool(struct xs_engine *engine)
{
	u64 start = xs_space_reserve_any(&engine->space, XS_POOL_BYTES,
					 XS_LOW_LAST);

	if (!start)
		start = xs_space_reserve_any(&engine->space, XS_POOL_BYTES,
					     ~0ULL);
	if (!start || !xs_pool_init(&engine->pool, xs_ops(engine),
				    xs_backend(engine), start, engine->cpu_count,
				    engine->counts))
		return -XS_ENOMEM;
	xs_engine_limit_pool(engine);
	return 0;
}

static void xs_cpu_free(struct xs_engine *engine, struct xs_cpu *cpu)
{
	xs_ops(engine)->free(xs_backend(engine), cpu->batch.records,
			     XS_BATCH_RECORDS * sizeof(*cpu->batch.records));
	xs_ops(engine)->free(xs_backend(engine), cpu, sizeof(*cpu));
}

/* Memory that was allocated in a context that may sleep is freed in such a context too. */
void xs_engine_destroy(struct xs_engine *engine)
{
	/* A block that a CPU gives back may be on another CPU's partial list. */
	for (u32 i = 0; engine->cpus && i < engine->cpu_count; i++)
		if (engine->cpus[i])
			xs_cpu_drain(engine, engine->cpus[i], true);
	for (u32 i = 0; engine->cpus && i < engine->cpu_count; i++)
		if (engine->cpus[i])
			xs_cpu_free(engine, engine->cpus[i]);
	for (u32 lg2 = 0; lg2 < XS_SIZES; lg2++)
		xs_depot_destroy(&engine->depots[lg2]);
	if (engine->pool.chunks)
		xs_pool_destroy(&engine->pool);
	xs_identity_destroy(engine);
	/* Before the leaves, which own the other records. */
	xs_tears_free(engine);
	xs_space_destroy(&engine->space);
	xs_counts_free(engine->counts);
	xs_ops(engine)->free(xs_backend(engine), engine->cpus,
			     engine->cpu_count * sizeof(*engine->cpus));
	engine->cpus = 0;
}
