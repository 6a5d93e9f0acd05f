// SPDX-License-Identifier: GPL-2.0-only
/* See driver.h. */
#include <stdlib.h>

#include "calls.h"
#include "driver.h"
#include "mappings.h"
#include "replay.h"
#include "tally.h"
#include "timeline.h"
#include "world.h"

#define KIND(kind)	(1u << (kind))
#define ONE		KIND(MAPPED_ONE)
#define LIST		KIND(MAPPED_LIST)
#define LINK		KIND(MAPPED_LINK)
#define RANGE		KIND(MAPPED_RANGE)

/* Entries of the longest list; a longer one is damage. */
#define ENTRIES_MAX	(1u << 20)

/* Two years. Windows are added to times, which must not overflow. */
#define NS_END		(1ULL << 56)

/*
 * struct list - a list of which the entries are being read, on a CPU
 * @event:	the map; @event.kind is 0 if there is none
 * @count:	entries that were read
 * @range:	the CPU's last range, for its links
 */
struct list {
	struct trace_event event;
	struct part *parts;
	u32 count;
	u32 room;
	u32 range;
};

static struct list *lists;
static u32 gaps;

void driver_init(void)
{
	mappings_init();
	lists = calloc(replay.options.cpus, sizeof(*lists));
	if (!lists)
		replay_stop("no memory for %u CPUs", replay.options.cpus);
}

static struct part part_of(const struct trace_event *event)
{
	struct part part = { event->page, event->bytes, event->offset, event->flags };

	return part;
}

static struct world *world_at(const struct trace_event *event)
{
	return world_of(event->device);
}

/* ---- maps ---- */

static void unmap(struct world *world, u32 number)
{
	call_unmap(world, number);
	mapping_drop(number);
}

/* A driver ends a mapping that it has made. */
static void lived(u32 number)
{
	times_add(&tally.lifetime, replay.now_ns - mapping_at(number)->ns, 1);
}

/* Returns a new mapping. If its address is mapped since before a gap, the unmap is in the gap. */
static u32 new_mapping(const struct trace_event *event, enum mapping_kind kind)
{
	u32 all = ~RANGE, number, old;

	while (gaps) {
		old = mapping_find(event->device, event->iova, event->bytes, all);
		if (!old || mapping_at(old)->gaps == gaps)
			break;
		tally_leave_out(LEFT_MAP_LOST);
		unmap(world_at(event), old);
	}
	number = mapping_new(event->device, event->iova, event->bytes, kind);
	mapping_at(number)->gaps = gaps;
	mapping_add(number);
	return number;
}

static void map(const struct trace_event *event)
{
	struct part part = part_of(event);

	if (!part_pages(&part)) {
		tally_leave_out(LEFT_EMPTY);
		return;
	}
	call_map(world_at(event), new_mapping(event, MAPPED_ONE), &part);
}

static void alloc(const struct trace_event *event)
{
	struct part part = part_of(event);

	if (!part_pages(&part)) {
		tally_leave_out(LEFT_EMPTY);
		return;
	}
	call_alloc(world_at(event), new_mapping(event, MAPPED_COHERENT), &part);
}

static void list_end(struct list *list)
{
	struct trace_event event = list->event;
	u64 pages = 0;

	list->event.kind = 0;
	if (list->count < event.span)
		tally_leave_out(LEFT_LIST);
	for (u32 i = 0; i < list->count; i++)
		pages += part_pages(&list->parts[i]);
	if (!list->count)
		return;
	if (pages > MAPPING_PAGES_MAX)
		tally_leave_out(LEFT_EMPTY);
	else
		call_map_list(world_at(&event), new_mapping(&event, MAPPED_LIST), list->parts,
			      list->count);
}

static void list_begin(const struct trace_event *event)
{
	struct list *list = &lists[running_cpu];

	if (list->event.kind)
		list_end(list);
	if (!event->span || event->span > ENTRIES_MAX) {
		tally_leave_out(LEFT_EMPTY);
		return;
	}
	list->event = *event;
	list->count = 0;
}

static void list_entry(const struct trace_event *event)
{
	struct list *list = &lists[running_cpu];
	struct part part = part_of(event);

	if (!list->event.kind || list->event.device != event->device) {
		tally_leave_out(LEFT_ENTRY);
		return;
	}
	if (list->count == list->room) {
		list->room = list->room ? 2 * list->room : 64;
		list->parts = realloc(list->parts, list->room * sizeof(*list->parts));
		if (!list->parts)
			replay_stop("no memory for a list of %u entries", list->room);
	}
	part.flags = list->event.flags | (event->flags & TRACE_UNHELD);
	if (part_pages(&part)) {
		list->parts[list->count++] = part;
	} else {
		tally_leave_out(LEFT_EMPTY);
		list->event.span--;
	}
	if (list->count >= list->event.span)
		list_end(list);
}

/* ---- unmaps ---- */

static void unmap_kind(const struct trace_event *event, u32 kinds, enum left_out reason)
{
	u32 number = mapping_find(event->device, event->iova, event->bytes, kinds);

	if (!number) {
		tally_leave_out(reason);
		return;
	}
	if (mapping_at(number)->bytes != event->bytes && event->kind != TRACE_UNMAP_LIST)
		tally_leave_out(LEFT_SIZE);
	lived(number);
	unmap(world_at(event), number);
}

/* ---- two-step calls ---- */

static bool has_link(const struct mapping *range, const struct trace_event *event)
{
	return range->kind == MAPPED_RANGE && range->device == event->device &&
	       event->iova >= range->address &&
	       event->iova + event->bytes <= range->address + range->bytes;
}

/* Returns the range of a link: the last of the CPU, or one that begins here; 0 if not known. */
static u32 range_of(const struct trace_event *event)
{
	u32 number = lists[running_cpu].range;

	if (number && has_link(mapping_at(number), event))
		return number;
	return mapping_find(event->device, event->iova, event->bytes, RANGE);
}

static void range_alloc(const struct trace_event *event)
{
	struct part part = { 0, event->bytes, event->offset, 0 };
	u32 number;

	if (!part_pages(&part)) {
		tally_leave_out(LEFT_EMPTY);
		return;
	}
	number = new_mapping(event, MAPPED_RANGE);
	lists[running_cpu].range = number;
	call_range(world_at(event), number);
}

static void range_link(const struct trace_event *event)
{
	struct part part = part_of(event);
	u32 range = range_of(event);

	if (!part_pages(&part)) {
		tally_leave_out(LEFT_EMPTY);
		return;
	}
	if (!range)
		tally_leave_out(LEFT_LINK);
	call_link(world_at(event), new_mapping(event, MAPPED_LINK), range, &part);
}

enum links { LINKS_COUNT, LINKS_FORGET, LINKS_UNMAP };

/*
 * Goes through the links of @bytes from the event's address on: links follow each other, or begin
 * at pages. Returns their number.
 */
static u32 each_link(const struct trace_event *event, u64 bytes, enum links what)
{
	u64 begin = event->iova, at = begin;
	u32 count = 0, number;

	while (at - begin < bytes) {
		number = mapping_find(event->device, at, bytes - (at - begin), LINK);
		if (!number) {
			at = (at | (XS_PAGE_BYTES - 1)) + 1;
			continue;
		}
		at += mapping_at(number)->bytes;
		count++;
		if (what != LINKS_COUNT)
			lived(number);
		if (what == LINKS_FORGET)
			mapping_drop(number);
		else if (what == LINKS_UNMAP)
			unmap(world_at(event), number);
	}
	return count;
}

static void range_unlink(const struct trace_event *event)
{
	struct part part = part_of(event);

	if (!part_pages(&part))
		tally_leave_out(LEFT_EMPTY);
	else if (!each_link(event, event->bytes, LINKS_UNMAP))
		tally_leave_out(LEFT_UNLINK);
}

/* The range of the kernel's model is unmapped as a whole if its begin has all links. */
static void free_links(const struct trace_event *event, u32 number)
{
	struct world *world = world_at(event);
	u64 all = mapping_at(number)->bytes;
	u64 bytes = event->bytes < all ? event->bytes : all;

	if (world->kernel && call_is_whole(world, number, bytes) &&
	    each_link(event, bytes, LINKS_COUNT) == mapping_at(number)->links) {
		each_link(event, bytes, LINKS_FORGET);
		call_unmap_range(world, number, bytes);
		return;
	}
	each_link(event, all, LINKS_UNMAP);
	if (world->kernel && !mapping_at(number)->links)
		call_free_range(world, number);
}

static void range_free(const struct trace_event *event)
{
	u32 number = mapping_find(event->device, event->iova, event->bytes, RANGE);

	if (!number) {
		tally_leave_out(LEFT_IOVA_FREE);
		return;
	}
	free_links(event, number);
	if (lists[mapping_at(number)->cpu].range == number)
		lists[mapping_at(number)->cpu].range = 0;
	/* The IOVAs of links that were not found stay in use for good. */
	if (!mapping_at(number)->links)
		mapping_drop(number);
}

/* ---- all events ---- */

static void sync(const struct trace_event *event)
{
	struct world *world = world_at(event);
	u32 number;

	if (!world->engine || !world->engine->tuning.copy_bytes)
		return;
	number = mapping_find(event->device, event->iova, event->bytes, ONE);
	if (number)
		call_sync(world, number, event->bytes, event->kind == TRACE_SYNC_DEVICE);
}

static void lost(const struct trace_event *event)
{
	tally_leave_out(LEFT_LOST);
	tally.lost += event->bytes;
	gaps++;
}

static void dispatch(const struct trace_event *event)
{
	switch (event->kind) {
	case TRACE_MAP:
		map(event);
		break;
	case TRACE_UNMAP:
		unmap_kind(event, ONE, LEFT_UNMAP);
		break;
	case TRACE_MAP_LIST:
		list_begin(event);
		break;
	case TRACE_ENTRY:
		list_entry(event);
		break;
	case TRACE_UNMAP_LIST:
		unmap_kind(event, LIST, LEFT_UNMAP_LIST);
		break;
	case TRACE_ALLOC:
		alloc(event);
		break;
	case TRACE_FREE:
		unmap_kind(event, KIND(MAPPED_COHERENT), LEFT_FREE);
		break;
	case TRACE_SYNC_CPU:
	case TRACE_SYNC_DEVICE:
		sync(event);
		break;
	case TRACE_IOVA_ALLOC:
		range_alloc(event);
		break;
	case TRACE_IOVA_LINK:
		range_link(event);
		break;
	case TRACE_IOVA_SYNC:
		break;
	case TRACE_IOVA_UNLINK:
		range_unlink(event);
		break;
	case TRACE_IOVA_FREE:
		range_free(event);
		break;
	case TRACE_POLL:
		world_poll();
		break;
	default:
		tally_leave_out(LEFT_KIND);
	}
}

void driver_event(const struct trace_event *event)
{
	if (event->ns >= NS_END) {
		tally_leave_out(LEFT_LATE);
		return;
	}
	if (event->ns < replay.now_ns && event->kind != TRACE_LOST)
		tally_leave_out(LEFT_TIME);
	world_advance(event->ns);
	/* A gap of all CPUs names none. */
	if (event->kind == TRACE_LOST) {
		lost(event);
		return;
	}
	if (event->cpu >= replay.options.cpus) {
		tally_leave_out(LEFT_CPU);
		return;
	}
	running_cpu = event->cpu;
	if (event->flags & TRACE_FAILED) {
		tally_leave_out(LEFT_FAILED);
		return;
	}
	dispatch(event);
	timeline_note();
	if (event->kind != TRACE_POLL && world_at(event)->engine)
		world_work(world_at(event));
}

void driver_finish(void)
{
	for (u32 i = 0; i < replay.options.cpus; i++)
		if (lists[i].event.kind) {
			running_cpu = i;
			list_end(&lists[i]);
		}
}

/* Ranges go after their links. */
void driver_again(void)
{
	driver_finish();
	for (u32 ranges = 0; ranges <= 1; ranges++)
		for (u32 at = mapping_after(0); at; at = mapping_after(at)) {
			struct world *world = world_of(mapping_at(at)->device);

			if ((mapping_at(at)->kind == MAPPED_RANGE) != ranges)
				continue;
			if (!ranges)
				call_unmap(world, at);
			else if (world->kernel)
				call_free_range(world, at);
			mapping_drop(at);
		}
	for (u32 i = 0; i < replay.options.cpus; i++)
		lists[i].range = 0;
}
