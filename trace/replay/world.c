// SPDX-License-Identifier: GPL-2.0-only
/* See world.h. */
#include <stdlib.h>
#include <string.h>

#include "checks.h"
#include "count.h"
#include "kernel.h"
#include "memory.h"
#include "path.h"
#include "replay.h"
#include "tally.h"
#include "world.h"

/* As kmod/domain/backend.c sets up an engine in a domain of 48 bits. */
#define WINDOW_END	(1ULL << 47)
#define GIB		(1ULL << 30)

/* Interrupts: reserved on x86. */
#define MSI_FIRST	0xfee00000ULL
#define MSI_LAST	0xfeefffffULL

#define SHRINK_NS	10000000000ULL
#define NEVER		(~0ULL)

static struct world *worlds[REPLAY_DEVICES];
static u32 world_end;

/* Another device with the same world, plus 1; 0: none. */
static u16 shared[REPLAY_DEVICES];

/* ---- the backend ---- */

static int backend_map(void *data, void **entries, u64 iova, u64 phys, u32 pages, u32 prot)
{
	struct world *world = data;

	(void)entries;
	if (checks_are_on(world))
		checks_entry(iova >> XS_PAGE_LG2, phys, pages, prot);
	shadow_write(&world->shadow, iova >> XS_PAGE_LG2, phys, pages);
	return 0;
}

static int backend_remove(void *data, xs_gather_t *gather, u64 iova, u64 pages)
{
	struct world *world = data;
	bool frees;

	if (checks_are_on(world))
		checks_remove(iova >> XS_PAGE_LG2, pages);
	frees = shadow_remove(&world->shadow, iova >> XS_PAGE_LG2, pages);
	if (frees && checks_are_on(world))
		checks_table_freed(iova >> XS_PAGE_LG2);
	gather->frees |= frees;
	return 0;
}

void world_count_range(u64 page, u64 pages, struct xs_commands *sent)
{
	u64 last = page + pages - 1;

	if (page == last || xs_log2(page ^ last) + 1 <= WORLD_RANGE_MAX_LG2)
		sent->page++;
	else
		sent->domain++;
}

/* As backend_invalidate() in kmod/domain/invalidate.c. */
static void backend_invalidate(void *data, xs_gather_t *gather, const struct xs_range *ranges,
			       u32 count, struct xs_commands *sent)
{
	struct world *world = data;
	struct xs_commands now = { 0 };
	u32 asked = count;

	if (count > 1 && gather->frees)
		count = 0;
	if (!count) {
		now.domain = 1;
		/* The driver frees tables with a range's command: kmod asks for that of a page. */
		now.page = gather->frees;
	}
	for (u32 i = 0; i < count; i++)
		world_count_range(ranges[i].page, ranges[i].pages, &now);
	if (checks_are_on(world))
		checks_invalidate(ranges, asked, count, &now);
	shadow_invalidate(&world->shadow, ranges, count);
	shadow_check_flushed(&world->shadow);
	gather->frees = false;
	sent->page += now.page;
	sent->domain += now.domain;
	tally.commands_page += now.page;
	tally.commands_domain += now.domain;
}

static void backend_gather_init(xs_gather_t *gather)
{
	gather->frees = false;
}

static u64 backend_clock(void *data)
{
	(void)data;
	return replay.now_ns;
}

void world_wake(struct world *world, u64 ns)
{
	if (ns < world->next_ns)
		world->next_ns = ns;
}

static void backend_deferred(void *data, u32 cpu, bool arm, u64 deadline_ns)
{
	struct world *world = data;

	if (cpu == running_cpu)
		world->cpus[cpu].deferred = true;
	if (arm) {
		world->cpus[cpu].deadline_ns = deadline_ns;
		world_wake(world, deadline_ns);
	}
}

static void *backend_alloc(void *data, size_t bytes, u32 cpu, bool atomic)
{
	void *memory;

	(void)data;
	(void)cpu;
	(void)atomic;
	bytes = (bytes + 63) & ~(size_t)63;
	memory = count_alloc(bytes);
	if (memory)
		gauge_add(&tally.bytes, (s64)bytes);
	return memory;
}

static void backend_free(void *data, void *memory, size_t bytes)
{
	(void)data;
	if (!memory)
		return;
	bytes = (bytes + 63) & ~(size_t)63;
	gauge_add(&tally.bytes, -(s64)bytes);
	count_free(memory, bytes);
}

/* Calls never interrupt each other here. */
static void backend_quiesce(void *data)
{
	(void)data;
}

static void backend_surplus(void *data)
{
	struct world *world = data;

	world->trim_due = true;
}

static void backend_prune(void *data, u64 iova, u64 pages)
{
	struct world *world = data;

	shadow_prune(&world->shadow, iova >> XS_PAGE_LG2, pages);
}

/* The shadow does not have the pool, which is mapped by large entries. Its memory is not used. */
static void *backend_add_chunk(void *data, u64 iova, u32 direction, bool *not_undone)
{
	(void)iova;
	(void)direction;
	(void)not_undone;
	return backend_alloc(data, XS_CHUNK_BYTES, XS_ANY_CPU, false);
}

static bool backend_drop_chunk(void *data, u64 iova, void *memory)
{
	(void)iova;
	backend_free(data, memory, XS_CHUNK_BYTES);
	return true;
}

static void backend_short_of(void *data)
{
	struct world *world = data;

	world->grow_due = true;
}

/* The world replays only unmaps that match their map. */
static void backend_misuse(void *data, const struct xs_misuse *misuse)
{
	(void)data;
	replay_violated(0, "the engine does not know the mapping of IOVA 0x%llx: %s",
			(unsigned long long)misuse->iova, misuse->what);
}

static void backend_flushed(void *data, u32 cpu, u32 cause, u32 pages, u32 ranges,
			    const struct xs_commands *sent, u64 oldest_ns)
{
	if (checks_are_on(data))
		checks_flushed(cpu, cause, pages, ranges, sent, oldest_ns);
}

static const struct xs_backend_ops backend_ops = {
	.map = backend_map,
	.remove = backend_remove,
	.invalidate = backend_invalidate,
	.gather_init = backend_gather_init,
	.clock = backend_clock,
	.deferred = backend_deferred,
	.alloc = backend_alloc,
	.free = backend_free,
	.quiesce = backend_quiesce,
	.surplus = backend_surplus,
	.prune = backend_prune,
	.add_chunk = backend_add_chunk,
	.drop_chunk = backend_drop_chunk,
	.short_of = backend_short_of,
	.misuse = backend_misuse,
	.flushed = backend_flushed,
};

_Static_assert(sizeof(struct xs_counts) <= TURNS_COUNTS_BYTES, "raise TURNS_COUNTS_BYTES");

xs_counts_t *xs_counts_new(void)
{
	return backend_alloc(NULL, replay.options.cpus * (size_t)TURNS_COUNTS_BYTES, XS_ANY_CPU,
			     false);
}

void xs_counts_free(xs_counts_t *counts)
{
	backend_free(NULL, counts, replay.options.cpus * (size_t)TURNS_COUNTS_BYTES);
}

/* ---- the kernel's model ---- */

static void kernel_removes(void *data, u64 page, u64 pages)
{
	struct world *world = data;

	shadow_remove(&world->shadow, page, pages);
}

static void kernel_invalidates(void *data, u64 page, u64 pages)
{
	struct world *world = data;
	struct xs_range range = { page, pages };
	struct xs_commands sent = { 0 };

	shadow_invalidate(&world->shadow, &range, pages ? 1 : 0);
	if (pages)
		world_count_range(page, pages, &sent);
	else
		sent.domain = 1;
	tally.commands_page += sent.page;
	tally.commands_domain += sent.domain;
}

static void kernel_flushed(void *data, enum xs_flush_point cause)
{
	(void)data;
	tally.flushes[cause]++;
}

static void kernel_wakes(void *data, u64 ns)
{
	world_wake(data, ns);
}

static void kernel_stops(const char *why) __attribute__((noreturn));

static void kernel_stops(const char *why)
{
	replay_stop("%s", why);
}

static const struct kernel_ops kernel_ops = {
	.clock = backend_clock,
	.remove = kernel_removes,
	.invalidate = kernel_invalidates,
	.flushed = kernel_flushed,
	.wake = kernel_wakes,
	.stop = kernel_stops,
};

static struct kernel *kernel_make(struct world *world)
{
	struct kernel_config config = {
		.ops = &kernel_ops,
		.data = world,
		.cpus = replay.options.cpus,
		.hz = replay.options.hz,
		.lazy = replay.options.side == SIDE_KERNEL_LAZY,
	};

	return kernel_new(&config);
}

/* ---- set-up ---- */

static u64 window_start(void)
{
	u64 memory = (replay.options.memory_pages << XS_PAGE_LG2) + GIB - 1;

	return WINDOW_END - memory / GIB * GIB;
}

/* As engine_make() in kmod/attach/attach.c. */
static void engine_make(struct world *world)
{
	struct xs_engine_config config = {
		.ops = &backend_ops,
		.backend = world,
		.cpu_count = replay.options.cpus,
		.policy = replay.options.policy,
		.tuning = &replay.options.tuning,
		.start = 0,
		.end = window_start() - XS_BLOCK_BYTES,
		.identity = window_start(),
		.memory_pages = replay.options.memory_pages,
	};

	world->engine = backend_alloc(world, sizeof(*world->engine), XS_ANY_CPU, false);
	if (!world->engine || xs_engine_init(world->engine, &config) ||
	    xs_space_reserve(&world->engine->space, MSI_FIRST, MSI_LAST) ||
	    xs_engine_add_pool(world->engine))
		replay_stop("no memory for an engine of %u CPUs", config.cpu_count);
}

/* A page is flushed at the window's end at the latest, as timers are never late here. */
static u64 bound_ns(void)
{
	const struct replay_options *options = &replay.options;

	if (options->policy && options->policy->flushes & XS_FLUSH_BIT(XS_FLUSH_TIME))
		return options->tuning.window_us * 1000ULL;
	return 0;
}

static struct world *world_new(u32 device)
{
	struct world *world = calloc(1, sizeof(*world));

	if (!world)
		replay_stop("no memory for a device");
	world->next_ns = NEVER;
	world->cpus = calloc(replay.options.cpus, sizeof(*world->cpus));
	if (!world->cpus)
		replay_stop("no memory for %u CPUs", replay.options.cpus);
	shadow_init(&world->shadow, replay.options.cpus, window_start() >> XS_PAGE_LG2,
		    bound_ns());
	if (replay.options.policy)
		engine_make(world);
	else
		world->kernel = kernel_make(world);
	if (replay.options.check == device)
		checks_begin(world);
	return world;
}

void world_share(u32 device, u32 other)
{
	shared[device] = (u16)(other + 1);
}

struct world *world_of(u32 device)
{
	if (shared[device])
		device = shared[device] - 1u;
	if (!worlds[device]) {
		worlds[device] = world_new(device);
		if (device >= world_end)
			world_end = device + 1;
	}
	return worlds[device];
}

void world_each(void (*each)(struct world *world))
{
	for (u32 i = 0; i < world_end; i++)
		if (worlds[i])
			each(worlds[i]);
}

/* ---- flush points ---- */

enum xs_level world_level(void)
{
	if (replay.options.side == SIDE_KERNEL_STRICT)
		return XS_LEVEL_STRICT;
	if (replay.options.side == SIDE_KERNEL_LAZY)
		return XS_LEVEL_LAZY;
	return xs_policy_level(replay.options.policy, replay.options.aware);
}

/* The flush of a batch-aware driver on the running CPU. */
static void end_batch(struct world *world)
{
	world->cpus[running_cpu].batch_ns = 0;
	if (checks_are_on(world))
		checks_call(XS_FLUSH_BIT(XS_FLUSH_EXPLICIT));
	xs_engine_flush_explicit(world->engine, false);
	if (checks_are_on(world))
		checks_batch_ended();
	if (xs_policy_waits(replay.options.policy) && world->shadow.pending[running_cpu])
		replay_violated(3, "a driver's flush leaves %llu pages",
				(unsigned long long)world->shadow.pending[running_cpu]);
}

void world_batch(struct world *world)
{
	u64 end = replay.now_ns + replay.options.gap_ns;

	world->cpus[running_cpu].batch_ns = end;
	world_wake(world, end);
}

static void poll_ended(struct world *world)
{
	struct world_cpu *cpu = &world->cpus[running_cpu];

	if (!world->engine)
		return;
	if (cpu->batch_ns)
		end_batch(world);
	if (checks_are_on(world))
		checks_poll();
	if (cpu->deferred)
		cpu->deferred = !xs_engine_poll(world->engine);
	if (checks_are_on(world))
		checks_poll_end();
	if (replay.options.policy->flushes & XS_FLUSH_BIT(XS_FLUSH_POLL) &&
	    world->shadow.pending[running_cpu])
		replay_violated(3, "the flush at a poll's end leaves %llu pages",
				(unsigned long long)world->shadow.pending[running_cpu]);
}

void world_poll(void)
{
	world_each(poll_ended);
}

static void cpu_due(struct world *world, u32 at)
{
	struct world_cpu *cpu = &world->cpus[at];

	running_cpu = at;
	if (cpu->batch_ns && cpu->batch_ns <= replay.now_ns)
		end_batch(world);
	if (cpu->deadline_ns && cpu->deadline_ns <= replay.now_ns) {
		cpu->deadline_ns = 0;
		if (checks_are_on(world))
			checks_call(XS_FLUSH_BIT(XS_FLUSH_TIME));
		cpu->deadline_ns = xs_engine_expire(world->engine, at);
		if (checks_are_on(world))
			checks_return();
		if (cpu->deadline_ns && cpu->deadline_ns <= replay.now_ns)
			cpu->deadline_ns = replay.now_ns + 1;
	}
}

static u64 earlier(u64 next, u64 ns)
{
	return ns && ns < next ? ns : next;
}

/* Has the flush points of now pass, and looks for the next. */
static void engine_due(struct world *world)
{
	u64 next = NEVER;

	for (u32 i = 0; i < replay.options.cpus; i++)
		cpu_due(world, i);
	if (world->shrink_ns && world->shrink_ns <= replay.now_ns) {
		struct xs_pool *pool = &world->engine->pool;

		xs_pool_trim(pool, pool->count <= pool->limit);
		world->shrink_ns = pool->count ? replay.now_ns + SHRINK_NS : 0;
	}
	for (u32 i = 0; i < replay.options.cpus; i++)
		next = earlier(earlier(next, world->cpus[i].deadline_ns), world->cpus[i].batch_ns);
	world->next_ns = earlier(next, world->shrink_ns);
}

static void world_due(struct world *world)
{
	if (world->next_ns > replay.now_ns)
		return;
	if (world->kernel) {
		world->next_ns = NEVER;
		kernel_expire(world->kernel);
	} else {
		engine_due(world);
		world_work(world);
	}
}

static u64 next_of_all(void)
{
	u64 next = NEVER;

	for (u32 i = 0; i < world_end; i++)
		if (worlds[i] && worlds[i]->next_ns < next)
			next = worlds[i]->next_ns;
	return next;
}

void world_advance(u64 ns)
{
	u64 next;

	while (next = next_of_all(), next <= ns) {
		if (next > replay.now_ns)
			replay.now_ns = next;
		world_each(world_due);
	}
	if (ns > replay.now_ns)
		replay.now_ns = ns;
	if (checks_world)
		checks_time();
}

static void drain(struct world *world)
{
	if (!world->engine)
		return;
	if (checks_are_on(world))
		checks_drain();
	xs_engine_flush(world->engine, XS_FLUSH_DRAIN);
	if (checks_are_on(world))
		checks_drain_end();
}

/* The timers of a pool do not end while the pool has a chunk, and flush nothing. */
static void stop_shrinking(struct world *world)
{
	world->shrink_ns = 0;
}

void world_finish(void)
{
	u64 next;

	world_each(stop_shrinking);
	while (next = next_of_all(), next != NEVER)
		world_advance(next);
	world_each(drain);
}

/* ---- after calls ---- */

/* A batch-aware driver keeps the memory until its flush, which end_batch() checks. */
static bool waits_for_driver(bool now)
{
	return replay.options.aware && !now && xs_policy_waits(replay.options.policy);
}

void world_unmapped(struct world *world, u64 page, u32 pages, bool now, const u32 *folios,
		    u32 count)
{
	enum xs_level level = world_level();

	if (waits_for_driver(now))
		return;
	if (((now && world->engine) || level == XS_LEVEL_STRICT) &&
	    shadow_pending(&world->shadow, page, pages))
		replay_violated(3, "an unmap returns while the device can reach the memory");
	for (u32 i = 0; level == XS_LEVEL_HELD && i < count; i++) {
		const struct folio *folio = memory_at(folios[i]);

		if (folio->pending && !folio->holds && !folio->registers)
			replay_violated(2, "an unmap returns while a page is neither flushed nor held");
	}
}

void world_work(struct world *world)
{
	u64 taken = path_taken_pages(world->engine);

	if (taken > tally.taken)
		tally.taken = taken;
	if (world->grow_due) {
		world->grow_due = false;
		xs_pool_grow(&world->engine->pool);
		if (!world->shrink_ns) {
			world->shrink_ns = replay.now_ns + SHRINK_NS;
			world_wake(world, world->shrink_ns);
		}
	}
	if (!world->trim_due)
		return;
	world->trim_due = false;
	if (checks_are_on(world))
		checks_call(XS_FLUSH_BIT(XS_FLUSH_UNMAP));
	xs_engine_trim(world->engine);
	if (checks_are_on(world))
		checks_return();
}

/* Sums of all engines' own statistics. */
static u64 sum_page, sum_domain, sum_flushed;

static void add_sums(const struct xs_stats *sum)
{
	for (u32 i = 0; i < XS_FLUSH_COUNT; i++)
		tally.flushes[i] += sum->flushes[i];
	sum_page += sum->commands_page;
	sum_domain += sum->commands_domain;
	sum_flushed += sum->flushed_pages + sum->counts.immediate_pages;
	tally.copied_maps += sum->counts.copied_maps;
	tally.copied_bytes += sum->counts.copied_bytes;
}

void world_check_sums(void)
{
	if (!replay.options.policy)
		return;
	if (sum_page != tally.commands_page || sum_domain != tally.commands_domain)
		replay_violated(6, "the engines count other commands than were sent");
	/* In the identity window a page may be flushed for several unmaps, or for none. */
	if (replay.options.policy->placement != XS_PLACE_IDENTITY &&
	    sum_flushed != tally.exposure.count)
		replay_violated(6, "the engines count %llu flushed pages, and %llu were flushed",
				(unsigned long long)sum_flushed,
				(unsigned long long)tally.exposure.count);
}

u64 world_balance(struct world *world)
{
	struct xs_stats sum;
	s64 live;

	if (world->shadow.all_pending)
		replay_violated(6, "%llu pages are still not flushed after the end",
				(unsigned long long)world->shadow.all_pending);
	if (!world->engine)
		return world->shadow.live;
	live = xs_engine_leak_check(world->engine, &sum);
	if (live < 0)
		replay_violated(6, "the engine's counters do not balance");
	if ((u64)live - (sum.counts.copied_maps - sum.counts.copied_unmaps) != world->shadow.live)
		replay_violated(6, "the engine counts %lld mapped pages, and drivers have %llu",
				(long long)live, (unsigned long long)world->shadow.live);
	add_sums(&sum);
	if (checks_are_on(world))
		checks_end(world->shadow.live);
	return world->shadow.live;
}
