// SPDX-License-Identifier: GPL-2.0-only
/* See dma.h. */
#include <stdlib.h>
#include <string.h>

#include "count.h"
#include "dma.h"
#include "kernel.h"
#include "model.h"
#include "path.h"
#include "queue.h"
#include "run.h"
#include "walk.h"

#define SPACE_END	(1ULL << 47)
#define MSI_FIRST	0xfee00000ULL
#define MSI_LAST	0xfeefffffULL
#define COPY_IOVA	(1ULL << 37)	/* page of the copies' pool, above all others */
#define COPY_SLOTS	64u

/*
 * struct unmapped - pages whose unmap has returned and that are not flushed
 * @ns:		end of the unmap
 */
struct unmapped {
	u64 ns;
	u64 pages;
};

/*
 * struct range - a range that dma_unmap_later() has unmapped
 * @ns:		end of the unmap
 * @gone:	the caller has let go of the memory
 */
struct range {
	u64 ns;
	u64 iova;
	u32 pages;
	bool gone;
};

/*
 * struct dma_cpu - a CPU's part
 * @unmapped:	oldest first, from @head on
 * @later:	ranges that wait for dma_flush(), oldest first
 * @polls:	the engine wants a call at the end of the next poll
 * @copies:	copies so far; each takes the next slot
 */
struct dma_cpu {
	struct unmapped *unmapped;
	u32 head, count, room;
	struct range *later;
	u32 later_count, later_room;
	bool polls;
	u64 copies;
};

static struct dma_cpu *cpus;
static struct xs_engine *engine;
static struct kernel *kernel;
static u64 now_ns;	/* time of the running CPU, within a call */
static bool trims;
static bool immediate;	/* the unmap in progress was flushed */
static u64 map_lock_free_ns;
static u64 large_pages;	/* pages of all large pages so far */
static bool ages;	/* nothing is invalidated yet */

/* ---- exposure ---- */

static void expose_later(u64 pages)
{
	struct dma_cpu *cpu = &cpus[running_cpu];

	if (cpu->head == cpu->count)
		cpu->head = cpu->count = 0;
	if (cpu->count == cpu->room) {
		cpu->room = cpu->room ? 2 * cpu->room : 1024;
		cpu->unmapped = model_again(cpu->unmapped, cpu->room * sizeof(*cpu->unmapped));
	}
	cpu->unmapped[cpu->count++] = (struct unmapped) { now_ns, pages };
}

static void expose_since(u64 ns, u64 pages)
{
	exposure_add(now_ns > ns ? now_ns - ns : 0, pages);
}

/* The @pages pages that CPU @at has unmapped first are flushed. */
static void expose(u32 at, u64 pages)
{
	struct dma_cpu *cpu = &cpus[at];

	while (pages && cpu->head < cpu->count) {
		struct unmapped *first = &cpu->unmapped[cpu->head];
		u64 part = first->pages < pages ? first->pages : pages;

		expose_since(first->ns, part);
		pages -= part;
		first->pages -= part;
		cpu->head += !first->pages;
	}
}

/* ---- the engine's backend ---- */

static int backend_map(void *data, void **entries, u64 iova, u64 phys, u32 pages, u32 prot)
{
	return 0;
}

static int backend_remove(void *data, xs_gather_t *gather, u64 iova, u64 pages)
{
	return 0;
}

static void backend_invalidate(void *data, xs_gather_t *gather, const struct xs_range *ranges,
			       u32 count, struct xs_commands *sent)
{
	sent->page += count;
	sent->domain += !count;
	if (ages)
		return;
	now_ns += model.params.flush_ns;
	for (u32 i = 0; i < count; i++)
		now_ns = queue_send_pages(now_ns, ranges[i].page, ranges[i].pages);
	if (!count)
		now_ns = queue_send_domain(now_ns);
}

static void backend_gather_init(xs_gather_t *gather)
{
	gather->frees = false;
}

static u64 backend_clock(void *data)
{
	return now_ns;
}

static void backend_deferred(void *data, u32 cpu, bool arm, u64 deadline_ns)
{
	if (cpu == running_cpu)
		cpus[cpu].polls = true;
	if (arm)
		run_at(deadline_ns, RUN_DMA_TIMER, cpu);
}

static void *backend_alloc(void *data, size_t bytes, u32 cpu, bool atomic)
{
	void *memory = NULL;

	bytes = (bytes + 63) & ~(size_t)63;
	if (posix_memalign(&memory, 64, bytes))
		model_broken("no memory for the engine");
	return memset(memory, 0, bytes);
}

static void backend_free(void *data, void *memory, size_t bytes)
{
	free(memory);
}

static void backend_quiesce(void *data)
{
}

static void backend_surplus(void *data)
{
	trims = true;
}

/* Leaf tables of a free range go back, so the IOMMU forgets all. */
static void backend_prune(void *data, u64 iova, u64 pages)
{
	walk_drop_tables();
}

static void backend_misuse(void *data, const struct xs_misuse *misuse)
{
	model_broken("the engine does not know the mapping of IOVA 0x%llx: %s",
		     (unsigned long long)misuse->iova, misuse->what);
}

/* An immediate flush ends before its unmap returns, and exposes nothing. */
static void backend_flushed(void *data, u32 cpu, u32 cause, u32 pages, u32 ranges,
			    const struct xs_commands *sent, u64 oldest_ns)
{
	if (cause == XS_FLUSH_UNMAP)
		immediate = true;
	else
		expose(cpu, pages);
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
	.misuse = backend_misuse,
	.flushed = backend_flushed,
};

static void engine_make(void)
{
	struct xs_tuning tuning = xs_tuning_default(model.params.policy);
	struct xs_engine_config config = {
		.ops = &backend_ops,
		.cpu_count = (u32)model.params.cores,
		.policy = model.params.policy,
		.tuning = &tuning,
		.end = SPACE_END,
	};

	tuning.batch_aware = model.params.aware;
	tuning.copy_bytes = 0;
	engine = backend_alloc(NULL, sizeof(*engine), XS_ANY_CPU, false);
	if (xs_engine_init(engine, &config) ||
	    xs_space_reserve(&engine->space, MSI_FIRST, MSI_LAST))
		model_broken("no memory for the engine");
}

/* ---- the kernel's modes ---- */

static void kernel_removes(void *data, u64 page, u64 pages)
{
}

static void kernel_invalidates(void *data, u64 page, u64 pages)
{
	if (pages)
		now_ns = queue_send_pages(now_ns, page, pages);
	else
		now_ns = queue_send_domain(now_ns);
}

/* A flush of the domain covers what all CPUs have unmapped. */
static void kernel_flushed(void *data, enum xs_flush_point cause)
{
	if (cause == XS_FLUSH_UNMAP)
		return;
	for (u32 i = 0; i < model.params.cores; i++)
		expose(i, ~0ULL);
}

static void kernel_wakes(void *data, u64 ns)
{
	run_at(ns, RUN_DMA_TIMER, running_cpu);
}

static void kernel_stops(const char *why) __attribute__((noreturn));

static void kernel_stops(const char *why)
{
	model_broken("%s", why);
}

static const struct kernel_ops kernel_ops = {
	.clock = backend_clock,
	.remove = kernel_removes,
	.invalidate = kernel_invalidates,
	.flushed = kernel_flushed,
	.wake = kernel_wakes,
	.stop = kernel_stops,
};

static void kernel_make(void)
{
	struct kernel_config config = {
		.ops = &kernel_ops,
		.cpus = (u32)model.params.cores,
		.hz = (u32)model.params.hz,
		.lazy = model.params.side == SIDE_KERNEL_LAZY,
	};

	kernel = kernel_new(&config);
}

/* ---- calls ---- */

static u64 map_ns(void)
{
	const struct model_params *params = &model.params;

	if (kernel)
		return params->kernel_map_ns;
	return params->direct ? params->direct_map_ns : params->engine_map_ns;
}

static u64 unmap_ns(void)
{
	const struct model_params *params = &model.params;

	if (kernel)
		return params->kernel_unmap_ns;
	return params->direct ? params->direct_unmap_ns : params->engine_unmap_ns;
}

static bool copies(u32 bytes)
{
	return model.params.policy && bytes != DMA_WHOLE &&
	       bytes <= model.params.policy->copy_bytes;
}

/* A copy has the next bounce buffer of its CPU; neither map nor unmap sends a command. */
static u64 copy(u32 bytes, u64 *iova)
{
	*iova = COPY_IOVA + running_cpu * COPY_SLOTS + cpus[running_cpu].copies++ % COPY_SLOTS;
	return now_ns + map_ns() + bytes * model.params.copy_page_ns / XS_PAGE_BYTES;
}

/* Maps hold a lock that all CPUs share, in turn: the walk of all cache tags (CLAIMS D). */
static u64 map_locked(u64 ns)
{
	u64 begin = map_lock_free_ns > ns ? map_lock_free_ns : ns;

	if (!model.params.map_lock_ns || ages)
		return ns;
	map_lock_free_ns = begin + model.params.map_lock_ns;
	counts.locked_ns += map_lock_free_ns - ns;
	return map_lock_free_ns;
}

u64 dma_map(u64 ns, u64 phys, u32 pages, u32 bytes, u64 *iova)
{
	now_ns = ns;
	*iova = phys >> XS_PAGE_LG2;
	if (model.params.side == SIDE_OFF)
		return ns;
	if (copies(bytes))
		return copy(bytes, iova);
	now_ns = map_locked(now_ns + map_ns() + (pages - 1) * model.params.entry_ns);
	counts.mapped += pages;
	if (kernel)
		*iova = kernel_alloc(kernel, pages);
	else
		*iova = path_map(engine, phys, pages, 3) >> XS_PAGE_LG2;
	return now_ns;
}

u64 dma_map_large(u64 ns, u64 *iova)
{
	*iova = WALK_LARGE + large_pages;
	large_pages += DMA_LARGE_PAGES;
	if (model.params.side == SIDE_OFF)
		return ns;
	counts.mapped += DMA_LARGE_PAGES;
	return ns + map_ns();
}

static bool defers(void)
{
	return kernel ? model.params.side == SIDE_KERNEL_LAZY :
			!(model.params.policy->flushes & XS_FLUSH_BIT(XS_FLUSH_UNMAP));
}

static void trim(void)
{
	if (!trims)
		return;
	trims = false;
	xs_engine_trim(engine);
}

u64 dma_unmap(u64 ns, u64 iova, u32 pages, u32 bytes)
{
	now_ns = ns;
	if (model.params.side == SIDE_OFF)
		return ns;
	now_ns += unmap_ns() + (pages - 1) * model.params.entry_ns;
	if (copies(bytes))
		return now_ns;
	counts.unmapped += pages;
	if (defers())
		expose_later(pages);
	if (kernel) {
		kernel_unmap(kernel, iova, pages, true);
		return now_ns;
	}
	immediate = false;
	path_unmap(engine, iova << XS_PAGE_LG2, pages);
	if (immediate && defers())
		cpus[running_cpu].count--;
	trim();
	return now_ns;
}

static void keep_for_flush(u64 iova, u32 pages)
{
	struct dma_cpu *cpu = &cpus[running_cpu];

	if (cpu->later_count == cpu->later_room) {
		cpu->later_room = cpu->later_room ? 2 * cpu->later_room : 256;
		cpu->later = model_again(cpu->later, cpu->later_room * sizeof(*cpu->later));
	}
	cpu->later[cpu->later_count++] = (struct range) { now_ns, iova, pages, false };
}

u64 dma_unmap_later(u64 ns, u64 iova, u32 pages, u32 bytes)
{
	now_ns = ns;
	if (model.params.side == SIDE_OFF)
		return ns;
	now_ns += unmap_ns() + (pages - 1) * model.params.entry_ns;
	if (copies(bytes))
		return now_ns;
	counts.unmapped += pages;
	keep_for_flush(iova, pages);
	if (kernel)
		return now_ns;
	immediate = false;
	path_unmap_deferred(engine, iova << XS_PAGE_LG2, pages);
	if (immediate)
		cpus[running_cpu].later_count--;
	return now_ns;
}

void dma_let_go(u64 iova)
{
	struct dma_cpu *cpu = &cpus[running_cpu];

	for (u32 i = 0; i < cpu->later_count; i++)
		if (cpu->later[i].iova == iova)
			cpu->later[i].gone = true;
}

/* The running CPU's ranges are flushed. Memory that is gone already was exposed. */
static void end_later(void)
{
	struct dma_cpu *cpu = &cpus[running_cpu];

	while (cpu->later_count) {
		struct range range = cpu->later[--cpu->later_count];

		if (range.gone)
			expose_since(range.ns, range.pages);
		if (kernel)
			kernel_free(kernel, range.iova, range.pages);
	}
}

u64 dma_flush(u64 ns)
{
	now_ns = ns;
	if (model.params.side == SIDE_OFF)
		return ns;
	if (!kernel)
		xs_engine_flush_explicit(engine, false);
	else if (cpus[running_cpu].later_count)
		now_ns = queue_send_domain(now_ns + model.params.flush_ns);
	end_later();
	return now_ns;
}

u64 dma_map_block(u64 ns, const u64 *phys, u32 pages, u64 *iova)
{
	now_ns = ns;
	*iova = phys[0] >> XS_PAGE_LG2;
	if (model.params.side == SIDE_OFF)
		return ns;
	now_ns += map_ns() + (pages - 1) * model.params.entry_ns;
	counts.mapped += pages;
	if (kernel) {
		*iova = kernel_alloc(kernel, pages);
		return now_ns;
	}
	*iova = xs_engine_alloc_block(engine, pages, ~0ULL);
	if (!*iova || xs_engine_map_in_block(engine, *iova, phys, pages, 3) != pages)
		model_broken("no IOVA for a block");
	*iova >>= XS_PAGE_LG2;
	return now_ns;
}

u64 dma_unmap_block(u64 ns, u64 iova, u32 pages)
{
	now_ns = ns;
	if (model.params.side == SIDE_OFF)
		return ns;
	if (kernel)
		return dma_unmap(ns, iova, pages, DMA_WHOLE);
	now_ns += unmap_ns() + (pages - 1) * model.params.entry_ns;
	counts.unmapped += pages;
	expose_later(pages);
	xs_engine_unmap_in_block_deferred(engine, iova << XS_PAGE_LG2,
					  pages == 64 ? ~0ULL : (1ULL << pages) - 1);
	trim();
	return now_ns;
}

u64 dma_poll_end(u64 ns)
{
	struct dma_cpu *cpu = &cpus[running_cpu];

	now_ns = ns;
	if (cpu->polls)
		cpu->polls = !xs_engine_poll(engine);
	return now_ns;
}

u64 dma_timer(u64 ns, u32 cpu)
{
	u64 deadline;

	now_ns = ns;
	running_cpu = cpu;
	if (kernel) {
		kernel_expire(kernel);
		return now_ns;
	}
	deadline = xs_engine_expire(engine, cpu);
	if (deadline)
		run_at(deadline > ns ? deadline : ns + 1, RUN_DMA_TIMER, cpu);
	return now_ns;
}

/* ---- ageing ---- */

static u64 take(void)
{
	if (kernel)
		return kernel_alloc(kernel, 1);
	return path_map(engine, XS_PAGE_BYTES, 1, 3) >> XS_PAGE_LG2;
}

static void give(u64 iova)
{
	if (kernel)
		kernel_free(kernel, iova, 1);
	else
		path_unmap(engine, iova << XS_PAGE_LG2, 1);
}

/* Nothing is deferred any more, and no timer runs. */
static void rest(void)
{
	xs_engine_flush(engine, XS_FLUSH_FULL);
	now_ns = ~0ULL >> 2;
	for (u32 i = 0; i < model.params.cores; i++)
		xs_engine_expire(engine, i);
	now_ns = 0;
}

/*
 * Long traffic leaves IOVAs in the allocator's caches in any order: as many as drivers use, and
 * aged_pages, are taken and given back one by one, in an order that is drawn.
 */
void dma_age(void)
{
	u64 ring = model.params.jobs ? model.params.jobs * model.params.depth :
		   model.params.queues * model.params.descriptor_pages *
		   (model.params.ring / model.params.descriptor_packets + 1);
	u64 count = ring + model.params.queues * model.params.cache_pages +
		    model.params.aged_pages;
	u64 *iovas;

	if (model.params.side == SIDE_OFF)
		return;
	ages = true;
	iovas = model_new(count, sizeof(*iovas));
	for (u64 i = 0; i < count; i++) {
		running_cpu = (u32)(i % model.params.cores);
		iovas[i] = take();
	}
	for (u64 left = count; left; left--) {
		u64 at = model_random(left);

		running_cpu = (u32)model_random(model.params.cores);
		give(iovas[at]);
		iovas[at] = iovas[left - 1];
	}
	free(iovas);
	if (engine)
		rest();
	ages = false;
}

void dma_init(void)
{
	cpus = model_new(model.params.cores, sizeof(*cpus));
	if (model.params.side == SIDE_OFF)
		return;
	if (model.params.side == SIDE_ENGINE)
		engine_make();
	else
		kernel_make();
}
