// SPDX-License-Identifier: GPL-2.0-only
/* See drive.h. */
#include "core.h"
#include "count.h"
#include "dma.h"
#include "drive.h"
#include "model.h"
#include "run.h"
#include "walk.h"

#define RING_PAGES	2u		/* of a core, for commands and for completions each */
#define ENTRY_BYTES	64u
#define MEMORY		(1ULL << 36)
#define START_NS	20000u
#define NOTHING		(~0u)

/*
 * struct request - a request under way
 * @fresh_ns:	time from which on the job could submit it
 * @mapped_ns:	time of the doorbell
 * @begun_ns:	time at which the drive has begun; @served_ns: at which it has the block
 * @walk_ns, @link_ns: waits for page walks, and for links in use, from then on
 * @done_ns:	time from which on the CPU sees the completion
 * @next:	in the list that has the request
 */
struct request {
	u32 job, drive;
	u64 iova;
	u64 fresh_ns, mapped_ns, begun_ns, served_ns, done_ns;
	u64 walk_ns, link_ns;
	u32 next;
};

/* A first-in-first-out list. */
struct list {
	u32 first, last;
	u32 count;
};

/*
 * struct drive - a drive
 * @waiting:	requests that the drive has not begun
 * @serving:	requests that the drive serves
 * @link_free_ns: end of the last transfer
 */
struct drive {
	struct list waiting;
	u32 serving;
	u64 link_free_ns;
};

/*
 * struct core - a core
 * @done:	requests with a completion, the earliest first
 * @fresh:	requests of the core's jobs to be submitted
 * @rings, @visits: IOVA pages of the rings, and entries used so far
 */
struct core {
	struct list done, fresh;
	u64 rings[2 * RING_PAGES];
	u64 visits;
};

static struct request *requests;
static struct drive *drives;
static struct core *cores;
static u64 bridge_free_ns;
static u32 turn;	/* of drives */
static u64 counted_ns;	/* time up to which limits are counted */

static u32 block_pages(void)
{
	return (u32)((model.params.block_bytes + XS_PAGE_BYTES - 1) / XS_PAGE_BYTES);
}

static u64 later(u64 a, u64 b)
{
	return a > b ? a : b;
}

static void push(struct list *list, u32 number)
{
	requests[number].next = NOTHING;
	if (list->count++)
		requests[list->last].next = number;
	else
		list->first = number;
	list->last = number;
}

static u32 pop(struct list *list)
{
	u32 number = list->first;

	list->first = requests[number].next;
	list->count--;
	return number;
}

static u32 core_of(u32 number)
{
	return requests[number].job % (u32)model.params.cores;
}

void drive_map_rings(void)
{
	if (!model.params.jobs)
		return;
	cores = model_new(model.params.cores, sizeof(*cores));
	for (u32 i = 0; i < model.params.cores; i++) {
		running_cpu = i;
		for (u32 page = 0; page < 2 * RING_PAGES; page++)
			dma_map(0, (1ULL + i * 2 * RING_PAGES + page) << XS_PAGE_LG2, 1, DMA_WHOLE,
				&cores[i].rings[page]);
	}
}

void drive_init(void)
{
	const struct model_params *params = &model.params;

	if (!params->jobs)
		return;
	requests = model_new(params->jobs * params->depth, sizeof(*requests));
	drives = model_new(params->drives, sizeof(*drives));
	for (u32 i = 0; i < params->jobs * params->depth; i++) {
		requests[i].job = i % (u32)params->jobs;
		push(&cores[core_of(i)].fresh, i);
	}
	for (u32 i = 0; i < params->cores; i++)
		if (cores[i].fresh.count)
			core_wake(i, 1 + model_random(START_NS));
}

/* ---- drives ---- */

static u64 ring_entry(struct core *core, bool completion)
{
	u64 page = core->visits * ENTRY_BYTES / XS_PAGE_BYTES % RING_PAGES;

	core->visits += completion;
	return core->rings[page + RING_PAGES * completion];
}

static u64 translated(u64 ns, u64 page)
{
	return model.params.side == SIDE_OFF ? ns : walk_at(ns, page).ready_ns;
}

/*
 * The drive reads the commands whose doorbells have rung; an event for each comes then. It has the
 * block after its service time.
 */
void drive_next(u32 at)
{
	struct drive *drive = &drives[at];
	u64 service = model.params.drive_service_ns, ns;

	while (drive->waiting.count && drive->serving < model.params.drive_parallel) {
		u32 number = drive->waiting.first;

		if (requests[number].mapped_ns > model.now_ns)
			return;
		pop(&drive->waiting);
		drive->serving++;
		requests[number].begun_ns = model.now_ns;
		ns = translated(model.now_ns, ring_entry(&cores[core_of(number)], false));
		ns += model.params.pcie_latency_ns + service * 3 / 4;
		run_at(ns + model_random(service / 2 + 1), RUN_DRIVE_SERVED, number);
	}
}

/* Returns the time at which the block has crossed the drive's link and the bridge. */
static u64 transfer(struct drive *drive, struct request *request)
{
	u64 ns = model.now_ns, left = model.params.block_bytes;

	for (u64 page = request->iova; left; page++) {
		u64 bytes = left < XS_PAGE_BYTES ? left : XS_PAGE_BYTES;

		ns = later(translated(model.now_ns, page), ns);
		drive->link_free_ns = later(drive->link_free_ns, ns) +
				      model_bytes_ns(bytes, model.params.drive_mbps);
		bridge_free_ns += model_bytes_ns(bytes, model.params.pcie_mbps);
		bridge_free_ns = later(bridge_free_ns, drive->link_free_ns);
		left -= bytes;
	}
	request->walk_ns = ns - model.now_ns;
	ns += model_bytes_ns(model.params.block_bytes, model.params.drive_mbps);
	request->link_ns = bridge_free_ns > ns ? bridge_free_ns - ns : 0;
	return bridge_free_ns;
}

void drive_served(u32 number)
{
	struct request *request = &requests[number];
	struct drive *drive = &drives[request->drive];
	u32 at = core_of(number);
	struct core *core = &cores[at];
	u64 ns = transfer(drive, request);

	ns = later(ns, translated(model.now_ns, ring_entry(core, true)));
	request->served_ns = model.now_ns;
	request->done_ns = ns + model.params.pcie_latency_ns;
	if (!core->done.count && !core->fresh.count && !model.params.drive_polls) {
		counts.interrupts++;
		request->done_ns += model.params.moderation_ns;
	}
	push(&core->done, number);
	core_wake(at, request->done_ns);
	drive->serving--;
	drive_next(request->drive);
}

/* ---- cores ---- */

/*
 * Returns what a request has waited for longest: its core, page walks, links, or its drive. A
 * request that has waited for nothing long is limited by its drive, too: by the time of a request.
 */
static enum limit limit_of(const struct request *request, u64 now)
{
	u64 queued = later(request->begun_ns - request->mapped_ns,
			   model.params.drive_service_ns / 4);
	u64 waited = now - request->done_ns + request->mapped_ns - request->fresh_ns;

	if (waited > queued && waited > request->walk_ns && waited > request->link_ns)
		return counts.locked_ns * 2 > counts.busy_ns ? LIMIT_LOCK : LIMIT_CPU;
	if (request->walk_ns > queued && request->walk_ns > request->link_ns)
		return LIMIT_WALKS;
	return request->link_ns > queued ? LIMIT_PCIE : LIMIT_DRIVE;
}

/* Counts the time since the last completion for what the request has waited for. */
static void count_limit(const struct request *request, u64 now)
{
	if (now <= counted_ns)
		return;
	counts.limits_ns[limit_of(request, now)] += now - counted_ns;
	counted_ns = now;
}

static u64 submit(u64 ns, u32 number)
{
	struct request *request = &requests[number];
	u64 phys = MEMORY + (u64)number * 64 * XS_PAGE_BYTES;

	request->drive = turn++ % (u32)model.params.drives;
	ns += model.params.io_submit_ns;
	ns = dma_map(ns, phys, block_pages(), DMA_WHOLE, &request->iova);
	request->mapped_ns = ns;
	push(&drives[request->drive].waiting, number);
	run_at(ns, RUN_DRIVE, request->drive);
	return ns;
}

static u64 finish(u64 ns, u32 number)
{
	dma_let_go(requests[number].iova);
	count_limit(&requests[number], ns);
	counts.requests++;
	counts.bytes += model.params.block_bytes;
	ns += model.params.io_complete_ns;
	requests[number].fresh_ns = ns;
	push(&cores[core_of(number)].fresh, number);
	return ns;
}

/* Returns the number of completions that the core sees. */
static u32 visible(const struct core *core, u64 ns)
{
	u32 count = 0, number = core->done.first;

	for (u32 i = 0; i < core->done.count && requests[number].done_ns <= ns; i++) {
		number = requests[number].next;
		count++;
	}
	return count;
}

/* Unmaps a batch, flushes once, and only then hands the requests on. */
static u64 complete_batch(struct core *core, u64 ns, u32 count)
{
	u32 number = core->done.first;

	for (u32 i = 0; i < count; i++, number = requests[number].next)
		ns = dma_unmap_later(ns, requests[number].iova, block_pages(), DMA_WHOLE);
	ns = dma_flush(ns);
	while (count--)
		ns = finish(ns, pop(&core->done));
	return ns;
}

static u64 complete(struct core *core, u64 ns, u32 count)
{
	u32 number;

	if (model.params.aware || count > model.params.send_together)
		return complete_batch(core, ns, count);
	number = pop(&core->done);
	ns = dma_unmap(ns, requests[number].iova, block_pages(), DMA_WHOLE);
	return finish(ns, number);
}

void drive_core(u32 at)
{
	struct core *core = &cores[at];
	u64 ns = model.now_ns;
	u32 count;

	if (!core_begin(at))
		return;
	count = visible(core, ns);
	if (count)
		ns = dma_poll_end(complete(core, ns, count));
	else if (core->fresh.count)
		ns = submit(ns, pop(&core->fresh));
	core_end(at, ns);
	if (core->fresh.count)
		core_wake(at, ns);
	else if (core->done.count)
		core_wake(at, later(ns, requests[core->done.first].done_ns));
}
