// SPDX-License-Identifier: GPL-2.0-only
/* See litmus_world.h. */
#include <string.h>

#include <xsmmu/flush.h>
#include <xsmmu/place.h>

#include "litmus_world.h"

#define PHYS_PAGES	128
#define SPACE_PAGES	(LITMUS_BLOCKS * XS_BLOCK_PAGES)
#define IOVA_PAGES	(SPACE_PAGES + PHYS_PAGES)	/* with the window of identity placement */
#define WINDOW		(1ULL << 40)

struct xs_engine engine;

/* State of an IOVA page. */
enum { VACANT, MAPPED, STALE };

/* All words except the timers are plain. */
static struct {
	u64 state[IOVA_PAGES];
	u64 behind[IOVA_PAGES];		/* the page of memory */
	u64 unflushed[IOVA_PAGES];	/* mapped, but no device may use the page yet */
	u64 sticks[IOVA_PAGES];		/* the next removal fails */
	u64 reached[PHYS_PAGES];	/* number of IOVA pages, mapped or stale */
	u64 held[PHYS_PAGES];
	u64 refs[PHYS_PAGES];		/* atomic; in use if COUNTED */
	enum { PLAIN, SHARED, COUNTED } kind[PHYS_PAGES];
	u64 pruned;			/* of the window's page-table page */
	u64 unmapping[EX_THREADS];	/* by thread: a page of memory + 1 */
	struct xs_counts counts[LITMUS_CPUS];
	u64 memory[PHYS_PAGES];		/* a page's bytes: the page's number + 1 */
	u64 chunks;
	u64 timers[LITMUS_CPUS];
	u64 polled[LITMUS_CPUS];	/* by the CPU itself, as in Linux */
	u64 clock_ns;
	u64 refuses;			/* maps */
	const char *expected;
	xs_lock_t lock;
	bool tears;
} world;

/*
 * A flush that has found a record closes the fast path. The store depends on the read, and
 * Linux keeps such a store behind the read.
 */
const struct ex_dependency world_dependencies[] = {
	{ "load &batch->limit", "store &batch->limit = 0" },
	{ NULL, NULL }
};

/* ---- the backend's operations ---- */

/* Pages above 4 GiB are the upper half; the window follows. */
static u32 page_of(u64 iova)
{
	u64 page = iova >> XS_PAGE_LG2;

	if (iova >= WINDOW)
		page -= (WINDOW >> XS_PAGE_LG2) - SPACE_PAGES;
	else if (page >> XS_NEAR_LG2)
		page -= (1ULL << XS_NEAR_LG2) - SPACE_PAGES / 2;
	ex_assert(page < IOVA_PAGES);
	return (u32)page;
}

/* Several CPUs at once may map and remove memory that is not PLAIN. */
static void reach(u64 behind, u64 change)
{
	if (world.kind[behind] == COUNTED)
		ex_rmw(&world.reached[behind], 8, EX_ADD, change,
		       EX_SITE(EX_RELAXED, "world: reach"));
	else if (world.kind[behind] == PLAIN)
		world.reached[behind] += change;
}

/* The window's page-table page: no use while it is pruned. */
static void use_table(u32 page)
{
	ex_assert(page < SPACE_PAGES || world.pruned != ~0ULL);
}

static void world_prune(void *unused, u64 iova, u64 pages)
{
	if (iova < WINDOW)
		return;
	world.pruned++;
	for (u32 i = SPACE_PAGES; i < IOVA_PAGES; i++)
		ex_assert(world.state[i] == VACANT);
}

static int world_map(void *unused, void **entries, u64 iova, u64 phys, u32 pages, u32 prot)
{
	u32 page = page_of(iova), behind = (u32)(phys >> XS_PAGE_LG2);

	if (ex_load(&world.refuses, 8, EX_SITE(EX_RELAXED, "world: refuses")))
		return -1;
	use_table(page);
	for (u32 i = 0; i < pages; i++) {
		ex_assert(world.state[page + i] == VACANT);
		world.state[page + i] = MAPPED;
		world.behind[page + i] = behind + i;
		if (prot & XS_MAP_UNFLUSHED)
			world.unflushed[page + i] = true;
		reach(behind + i, 1);
	}
	return 0;
}

/* No program's range contains pages of other maps. */
static void world_flush_maps(void *unused, const struct xs_range *ranges, u32 count)
{
	for (u32 i = 0; i < count; i++)
		for (u32 j = 0; j < ranges[i].pages; j++)
			world.unflushed[page_of(ranges[i].page << XS_PAGE_LG2) + j] = false;
}

static void world_gather_init(xs_gather_t *gather)
{
	gather->count = 0;
	gather->part = false;
}

/* Does a page of the range stick? The next removal succeeds. */
static bool sticks(u32 page, u64 pages)
{
	bool any = false;

	for (u32 i = 0; i < pages; i++) {
		any |= world.sticks[page + i];
		world.sticks[page + i] = false;
	}
	return any;
}

static int world_remove(void *unused, xs_gather_t *gather, u64 iova, u64 pages)
{
	u32 page = page_of(iova);
	bool stuck = sticks(page, pages);

	use_table(page);
	for (u32 i = 0; i < pages; i++) {
		ex_assert(world.state[page + i] == MAPPED);
		ex_assert(gather->count < LITMUS_REMOVED);
		if (stuck)
			continue;
		world.state[page + i] = STALE;
		gather->pages[gather->count++] = page + i;
	}
	return stuck ? -1 : 0;
}

/* Remove all mapped pages of the range. */
static void remove_any(xs_gather_t *gather, u32 page, u64 pages)
{
	for (u32 i = 0; i < pages; i++) {
		if (world.state[page + i] == VACANT)
			continue;
		ex_assert(gather->count < LITMUS_REMOVED);
		world.state[page + i] = STALE;
		gather->pages[gather->count++] = page + i;
	}
}

static int world_remove_again(void *unused, xs_gather_t *gather, u64 iova, u64 pages)
{
	remove_any(gather, page_of(iova), pages);
	return 0;
}

static void world_stuck(void *unused, u64 iova, u64 pages)
{
}

/*
 * Other CPUs may remove the same pages, in the order of the driver's lock; each CPU invalidates
 * the pages that any of them has removed.
 */
static int world_remove_part(void *unused, xs_gather_t *gather, const struct xs_range *part,
			     const struct xs_range *whole)
{
	u32 page = page_of(part->page << XS_PAGE_LG2);
	xs_flags_t flags = xs_lock_irqsave(&world.lock);
	bool stuck = sticks(page, part->pages);

	ex_assert(world.tears);
	gather->part = true;
	if (!stuck)
		remove_any(gather, page, part->pages);
	xs_unlock_irqrestore(&world.lock, flags);
	return stuck ? -1 : 0;
}

static bool is_covered(const struct xs_range *ranges, u32 count, u32 page)
{
	for (u32 i = 0; i < count; i++)
		if (page - page_of(ranges[i].page << XS_PAGE_LG2) < ranges[i].pages)
			return true;
	return !count;
}

static void world_invalidate(void *unused, xs_gather_t *gather,
			     const struct xs_range *ranges, u32 count,
			     struct xs_commands *sent)
{
	xs_flags_t flags = gather->part ? xs_lock_irqsave(&world.lock) : false;

	for (u32 i = 0; i < gather->count; i++) {
		u32 page = gather->pages[i];

		ex_assert(is_covered(ranges, count, page));
		if (gather->part && world.state[page] == VACANT)
			continue;
		ex_assert(world.state[page] == STALE);
		world.state[page] = VACANT;
		reach(world.behind[page], -1ULL);
	}
	if (gather->part)
		xs_unlock_irqrestore(&world.lock, flags);
	sent->domain++;
}

static u64 world_clock(void *unused)
{
	return world.clock_ns;
}

static void world_deferred(void *unused, u32 cpu, bool arm, u64 deadline_ns)
{
	if (cpu == ex_cpu())
		world.polled[cpu] = true;
	if (arm)
		ex_rmw(&world.timers[cpu], 8, EX_SWAP, 1,
		       EX_SITE(EX_RELAXED, "world: timer armed"));
}

/*
 * Memory of chunks. A few of the first and last bounce buffers are written when a chunk comes
 * and when the chunk goes, so that each use must be ordered between the two.
 */
#define CHUNK_BOUNCES	2

static u64 chunk_memory[XS_CHUNK_BYTES / 8];

static void touch_chunk(void)
{
	const u32 words = XS_BOUNCE_MAX_BYTES / 8;

	for (u32 i = 0; i < CHUNK_BOUNCES; i++)
		chunk_memory[i * words] = chunk_memory[(63 - i) * words] = 0;
}

static void *world_add_chunk(void *unused, u64 iova, u32 direction, bool *not_undone)
{
	ex_assert(!world.chunks++);
	touch_chunk();
	return chunk_memory;
}

static bool world_drop_chunk(void *unused, u64 iova, void *memory)
{
	world.chunks--;
	touch_chunk();
	return true;
}

static void *world_alloc(void *unused, size_t bytes, u32 cpu, bool atomic)
{
	return ex_alloc(bytes);
}

static void world_free(void *unused, void *memory, size_t bytes)
{
	ex_free(memory, bytes);
}

static void world_quiesce(void *unused)
{
	ex_grace(EX_SITE(EX_FULL, "quiesce"));
}

static void world_misuse(void *unused, const struct xs_misuse *misuse)
{
	if (!world.expected || strcmp(world.expected, misuse->what))
		ex_fail("bad unmap: %s", misuse->what);
}

static const struct xs_backend_ops ops = {
	.map = world_map,
	.flush_maps = world_flush_maps,
	.remove = world_remove,
	.remove_again = world_remove_again,
	.stuck = world_stuck,
	.prune = world_prune,
	.remove_part = world_remove_part,
	.invalidate = world_invalidate,
	.gather_init = world_gather_init,
	.clock = world_clock,
	.deferred = world_deferred,
	.add_chunk = world_add_chunk,
	.drop_chunk = world_drop_chunk,
	.alloc = world_alloc,
	.free = world_free,
	.quiesce = world_quiesce,
	.misuse = world_misuse,
};

/* ---- functions that platform_litmus.h declares ---- */

bool xs_warn_once(bool broken, const char *text)
{
	if (broken)
		ex_fail("warning: %s", text);
	return broken;
}

xs_counts_t *xs_counts_new(void)
{
	return world.counts;
}

void xs_counts_free(xs_counts_t *counts)
{
}

struct xs_counts *xs_counts_of(xs_counts_t *counts, u32 cpu)
{
	return &counts[cpu];
}

/* The reference of a page of memory is the page's number + 1, times 64. */
static u32 phys_of(xs_ref_t ref)
{
	return (u32)((size_t)ref / 64 - 1);
}

xs_ref_t xs_ref_of(u64 phys)
{
	return (xs_ref_t)(((phys >> XS_PAGE_LG2) + 1) * 64);
}

u32 xs_ref_span(xs_ref_t ref, u64 phys)
{
	return 1;
}

bool xs_ref_hold(xs_ref_t ref)
{
	u32 page = phys_of(ref);

	ex_assert(page < PHYS_PAGES);
	if (world.kind[page] == COUNTED)
		return world_get(page);
	world.held[page]++;
	return true;
}

/* Until the unmap has returned, the driver keeps the page, too. */
void xs_ref_release(xs_ref_t ref)
{
	u32 page = phys_of(ref);

	ex_assert(page < PHYS_PAGES);
	if (world.kind[page] == COUNTED) {
		world_put(page);
		return;
	}
	ex_assert(world.held[page]);
	ex_assert(world.unmapping[ex_thread()] == page + 1 || world_is_gone(page));
	world.held[page]--;
}

void xs_copy_in(void *bounce, u64 phys, u32 bytes)
{
	*(u64 *)bounce = world.memory[phys >> XS_PAGE_LG2];
}

void xs_copy_out(u64 phys, const void *bounce, u32 bytes)
{
	world.memory[phys >> XS_PAGE_LG2] = *(const u64 *)bounce;
}

/* ---- for programs ---- */

bool world_memory_is_own(u32 phys)
{
	return world.memory[phys] == phys + 1;
}

void world_begin(const char *policy)
{
	struct xs_engine_config config = {
		.ops = &ops,
		.end = (1ULL << (XS_NEAR_LG2 + XS_PAGE_LG2)) + LITMUS_BLOCKS * XS_BLOCK_BYTES,
		.cpu_count = LITMUS_CPUS,
		.policy = xs_policy_find(policy),
	};

	if (config.policy->placement == XS_PLACE_IDENTITY) {
		config.identity = WINDOW;
		config.memory_pages = PHYS_PAGES;
	}
	memset(&world, 0, sizeof(world));
	for (u32 i = 0; i < PHYS_PAGES; i++)
		world.memory[i] = i + 1;
	xs_lock_init(&world.lock);
	world.clock_ns = 1000;
	ex_assert(config.policy && !xs_engine_init(&engine, &config));
	/* At most the number of records, see platform_litmus.h. */
	engine.tuning.batch_pages = XS_BATCH_RECORDS;
	/* So that the batch has records, and the CPU has an open block. */
	for (u32 cpu = 0; cpu < LITMUS_CPUS; cpu++) {
		ex_be_cpu(cpu);
		world_unmap(world_map_page(0));
		xs_engine_flush(&engine, XS_FLUSH_EXPLICIT);
	}
	ex_be_cpu(0);
	ex_assert(world_is_gone(0));
	memset(world.timers, 0, sizeof(world.timers));
	memset(world.polled, 0, sizeof(world.polled));
	for (u32 cpu = 0; cpu < LITMUS_CPUS; cpu++)
		engine.cpus[cpu]->batch.armed = false;
}

void world_set(const char *name)
{
	const struct xs_policy *policy = xs_policy_find(name);
	struct xs_tuning tuning = xs_tuning_default(policy);

	tuning.batch_pages = XS_BATCH_RECORDS;
	xs_engine_set(&engine, policy, &tuning);
}

void world_back_local(u32 cpu)
{
	xs_flags_t flags = xs_cpu_lock_any(engine.cpus[cpu]);

	xs_place_back_local(&engine, engine.cpus[cpu]);
	xs_cpu_unlock_any(engine.cpus[cpu], flags);
}

void world_open(u32 cpu, struct xs_block *block)
{
	world_back_local(cpu);
	engine.cpus[cpu]->open[0] = block;
}

u64 world_map_page(u32 phys)
{
	u64 iova = path_map_one((u64)phys << XS_PAGE_LG2);

	ex_assert(iova);
	return iova;
}

void world_share(u32 phys)
{
	world.kind[phys] = SHARED;
}

void world_own(u32 phys, u32 refs)
{
	world.kind[phys] = COUNTED;
	world.refs[phys] = refs;
}

bool world_get(u32 phys)
{
	u64 refs;

	if (world.kind[phys] != COUNTED)
		return true;
	refs = ex_load(&world.refs[phys], 8, EX_SITE(EX_RELAXED, "world: references"));
	while (refs && !ex_try(&world.refs[phys], 8, &refs, refs + 1,
			       EX_SITE(EX_RELAXED, "world: a reference more")))
		;
	return refs;
}

/* The last reference orders all others before, as in Linux. */
void world_put(u32 phys)
{
	u64 before;

	if (world.kind[phys] != COUNTED)
		return;
	before = ex_rmw(&world.refs[phys], 8, EX_ADD, -1ULL,
			EX_SITE(EX_FULL, "world: a reference less"));
	ex_assert(before);
	ex_assert(before > 1 || world_is_gone(phys));
}

u64 world_refs(u32 phys)
{
	return world.refs[phys];
}

void world_use(u64 iova, u32 phys)
{
	ex_assert(world.state[page_of(iova)] == MAPPED);
	ex_assert(world.behind[page_of(iova)] == phys);
}

u64 world_map_unflushed(u32 phys)
{
	u64 iova = xs_engine_map_unflushed(&engine, (u64)phys << XS_PAGE_LG2, 1,
					   3 | XS_MAP_UNFLUSHED, ~0ULL);

	ex_assert(iova);
	return iova;
}

bool world_is_usable(u64 iova)
{
	return !world.unflushed[page_of(iova)];
}

/* An interrupt may unmap in the middle. */
void world_unmap(u64 iova)
{
	u64 before = world.unmapping[ex_thread()];

	world.unmapping[ex_thread()] = world.behind[page_of(iova)] + 1;
	path_unmap_one(iova);
	world.unmapping[ex_thread()] = before;
}

void world_unmap_promised(u64 iova)
{
	path_unmap_one_deferred(iova);
}

bool world_is_gone(u32 phys)
{
	if (world.kind[phys] == COUNTED)
		return !ex_load(&world.reached[phys], 8, EX_SITE(EX_RELAXED, "world: reached"));
	return !world.reached[phys];
}

bool world_timer_runs(u32 cpu)
{
	return ex_load(&world.timers[cpu], 8, EX_SITE(EX_RELAXED, "world: timer"));
}

void world_timer_fires(u32 cpu)
{
	ex_rmw(&world.timers[cpu], 8, EX_SWAP, 0,
	       EX_SITE(EX_RELAXED, "world: timer fires"));
	if (xs_engine_expire(&engine, cpu))
		ex_rmw(&world.timers[cpu], 8, EX_SWAP, 1,
		       EX_SITE(EX_RELAXED, "world: timer goes on"));
}

void world_poll(void)
{
	if (world.polled[ex_cpu()])
		world.polled[ex_cpu()] = !xs_engine_poll(&engine);
}

void world_set_clock(u64 ns)
{
	world.clock_ns = ns;
}

void world_expect(const char *text)
{
	world.expected = text;
}

void world_tears(void)
{
	world.tears = true;
}

void world_stick(u64 iova)
{
	world.sticks[page_of(iova)] = true;
}

void world_refuse(void)
{
	ex_store(&world.refuses, 8, true, EX_SITE(EX_RELAXED, "world: refuse"));
}

void world_check(u32 mapped)
{
	struct xs_stats sum;

	xs_engine_mend(&engine, false);

	for (u32 cpu = 0; cpu < LITMUS_CPUS; cpu++)
		ex_assert(xs_batch_is_empty(&engine.cpus[cpu]->batch) ||
			  (world_timer_runs(cpu) && world.polled[cpu]));
	xs_engine_flush(&engine, XS_FLUSH_DRAIN);
	for (u32 i = 0; i < PHYS_PAGES; i++)
		ex_assert(!world.held[i]);
	ex_assert(xs_engine_leak_check(&engine, &sum) == (s64)mapped);
}
