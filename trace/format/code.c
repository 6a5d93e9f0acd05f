// SPDX-License-Identifier: GPL-2.0-only
/*
 * The coding of a block's events.
 *
 * The shape of an event is what repeats: kind, flags, CPU, device, queue. The other fields are
 * columns, and a column's values stand by shape: values of one shape are alike, so zstd finds
 * their repetitions, such as buffers that are used again in the same order. Only time and IOVAs
 * are differences. References to earlier events (an unmap to its map) made blocks no smaller.
 *
 * Coding counts against the recorded workload: events are sorted by a chain for each shape, and a
 * value that all events of a shape have is coded once and copied.
 */
#include <stdlib.h>
#include <string.h>

#include "format.h"

#define UNIT_BITS	12u
#define UNIT_MASK	((1ull << UNIT_BITS) - 1)
#define SLOT_BITS	17u
#define SLOTS		(1u << SLOT_BITS)
/* No event takes more: its values, and a shape of its own. */
#define EVENT_BYTES_MAX	80u

/* All columns but the units, whose values depend on the event before. */
enum column { NS, LOW, BYTES, SPAN, OFFSET, PAGE };

/**
 * struct shape - what events have in common
 * @cpu: CPU
 * @device: device
 * @queue: queue
 * @kind: enum trace_kind
 * @flags: TRACE_* bits
 * @differ: a bit for each column with different values; most have one value, which is coded once
 * @slot: place in the coder's table
 * @count: number of its events
 * @first: its first event
 * @last: its last event
 */
struct shape {
	uint16_t cpu;
	uint16_t device;
	uint32_t queue;
	uint8_t kind;
	uint8_t flags;
	uint8_t differ;
	uint32_t slot;
	uint32_t count;
	uint32_t first;
	uint32_t last;
};

/**
 * struct trace_coder - a block that is coded or decoded
 * @events: events of the block
 * @count: number of them
 * @at: next byte of the contents
 * @end: end of the contents
 * @wrong: the contents are no events
 * @shapes: shapes in the block
 * @shape_count: number of them
 * @shape: number of each event's shape
 * @order: decoding: events by shape, those of a shape in order of time; coding: the next event of
 *   each event's shape
 * @begin: decoding: where each shape begins in @order
 * @slots: coding: table of shapes by their fields: number + 1, 0 if free; free between blocks
 * @recent: coding: the last shape of each kind
 */
struct trace_coder {
	struct trace_event *events;
	uint32_t count;
	uint8_t *at;
	const uint8_t *end;
	bool wrong;
	struct shape shapes[TRACE_BLOCK_EVENTS];
	uint32_t shape_count;
	uint32_t shape[TRACE_BLOCK_EVENTS];
	uint32_t order[TRACE_BLOCK_EVENTS];
	uint32_t begin[TRACE_BLOCK_EVENTS + 1];
	uint32_t slots[SLOTS];
	uint32_t recent[TRACE_KINDS];
};

struct trace_coder *trace_coder_new(void)
{
	return calloc(1, sizeof(struct trace_coder));
}

void trace_coder_free(struct trace_coder *coder)
{
	free(coder);
}

static uint64_t zigzag(uint64_t value)
{
	return value << 1 ^ (value >> 63 ? UINT64_MAX : 0);
}

static uint64_t unzigzag(uint64_t code)
{
	return code >> 1 ^ (code & 1 ? UINT64_MAX : 0);
}

/* ---- coding ---- */

/* Returns the place behind the value. The caller has made room. */
static inline uint8_t *put(uint8_t *to, uint64_t value)
{
	for (; value > 0x7f; value >>= 7)
		*to++ = (uint8_t)(value | 0x80);
	*to++ = (uint8_t)value;
	return to;
}

static uint8_t *put_repeated(uint8_t *to, uint64_t value, uint32_t times)
{
	size_t done = (size_t)(put(to, value) - to), all = done * times;

	for (size_t step; done < all; done += step) {
		step = done < all - done ? done : all - done;
		memcpy(to + done, to, step);
	}
	return to + all;
}

/* An offset is mostly unknown, or that of the IOVA. */
static uint64_t offset_code(const struct trace_event *event)
{
	if (!event->offset)
		return 0;
	if (event->offset == (event->iova & UNIT_MASK))
		return 1;
	return (uint64_t)event->offset + 1;
}

static inline uint64_t value_of(const struct trace_event *event, enum column column)
{
	switch (column) {
	case NS:
		return event->ns;
	case LOW:
		return event->iova & UNIT_MASK;
	case BYTES:
		return event->bytes;
	case SPAN:
		return event->span;
	case OFFSET:
		return offset_code(event);
	default:
		return event->page;
	}
}

static bool is_same(const struct shape *a, const struct trace_event *b)
{
	return a->cpu == b->cpu && a->device == b->device && a->queue == b->queue &&
	       a->kind == b->kind && a->flags == b->flags;
}

static uint32_t add_shape(struct trace_coder *coder, const struct trace_event *event,
			  uint32_t slot)
{
	uint32_t at = (uint32_t)(event - coder->events);

	coder->shapes[coder->shape_count] = (struct shape) {
		.cpu = event->cpu,
		.device = event->device,
		.queue = event->queue,
		.kind = event->kind,
		.flags = event->flags,
		.differ = 1u << NS,
		.slot = slot,
		.first = at,
		.last = at,
	};
	coder->slots[slot] = ++coder->shape_count;
	return coder->shape_count - 1;
}

/* Returns the number of an event's shape, which may be new. */
static uint32_t find_shape(struct trace_coder *coder, const struct trace_event *event)
{
	uint64_t hash = event->cpu | (uint64_t)event->device << 16 | (uint64_t)event->queue << 32;
	uint32_t slot, number;

	hash = (hash ^ (uint64_t)(event->kind | event->flags << 8) << 20) * 0x9e3779b97f4a7c15ull;
	slot = (uint32_t)(hash >> (64 - SLOT_BITS));
	for (; (number = coder->slots[slot]); slot = (slot + 1) % SLOTS)
		if (is_same(&coder->shapes[number - 1], event))
			return number - 1;
	return add_shape(coder, event, slot);
}

/* Notes in which columns two events of a shape differ. */
static inline void compare(struct shape *shape, const struct trace_event *a,
			   const struct trace_event *b)
{
	if ((a->iova ^ b->iova) & UNIT_MASK)
		shape->differ |= 1u << LOW | 1u << OFFSET;
	if (a->bytes != b->bytes)
		shape->differ |= 1u << BYTES;
	if (a->span != b->span)
		shape->differ |= 1u << SPAN;
	if (a->offset != b->offset)
		shape->differ |= 1u << OFFSET;
	if (a->page != b->page)
		shape->differ |= 1u << PAGE;
}

/* Sorts events by shape, makes differences of their times, and puts the numbers of their shapes. */
static uint8_t *put_numbers(struct trace_coder *coder, uint8_t *to)
{
	struct trace_event *event = coder->events;
	uint64_t last_ns = 0;

	coder->shape_count = 0;
	/* No event has a shape without a kind. */
	coder->shapes[0].kind = 0;
	memset(coder->recent, 0, sizeof(coder->recent));
	for (uint32_t at = 0, count = coder->count; at < count; at++, event++) {
		uint32_t number = coder->recent[event->kind];
		uint64_t ns = event->ns;
		struct shape *shape;

		if (!is_same(&coder->shapes[number], event))
			number = coder->recent[event->kind] = find_shape(coder, event);
		shape = &coder->shapes[number];
		compare(shape, event, &coder->events[shape->last]);
		coder->order[shape->last] = at;
		shape->last = at;
		shape->count++;
		event->ns = ns - last_ns;
		last_ns = ns;
		to = put(to, number);
	}
	return to;
}

static uint8_t *put_shapes(struct trace_coder *coder, uint8_t *to)
{
	to = put(to, coder->shape_count);
	for (uint32_t i = 0; i < coder->shape_count; i++) {
		const struct shape *shape = &coder->shapes[i];

		to = put(to, shape->kind);
		to = put(to, shape->flags);
		to = put(to, shape->cpu);
		to = put(to, shape->device);
		to = put(to, shape->queue);
		coder->slots[shape->slot] = 0;
	}
	return to;
}

static uint8_t *put_units(const struct trace_coder *coder, uint8_t *to)
{
	const struct trace_event *events = coder->events;

	for (uint32_t i = 0; i < coder->shape_count; i++) {
		const struct shape *shape = &coder->shapes[i];
		uint32_t at = shape->first;
		uint64_t last = 0;

		for (uint32_t left = shape->count; left; left--, at = coder->order[at]) {
			uint64_t unit = events[at].iova >> UNIT_BITS;

			to = put(to, zigzag(unit - last));
			last = unit;
		}
	}
	return to;
}

static inline uint8_t *put_column(const struct trace_coder *coder, uint8_t *to, enum column column)
{
	const struct trace_event *events = coder->events;

	for (uint32_t i = 0; i < coder->shape_count; i++) {
		const struct shape *shape = &coder->shapes[i];
		uint32_t at = shape->first;

		if (!(shape->differ & 1u << column)) {
			to = put_repeated(to, value_of(&events[at], column), shape->count);
			continue;
		}
		for (uint32_t left = shape->count; left; left--, at = coder->order[at])
			to = put(to, value_of(&events[at], column));
	}
	return to;
}

/* Codes events, whose times are then differences, as contents of a block; returns false without
 * memory. */
bool trace_encode(struct trace_coder *coder, struct trace_event *events, uint32_t count,
		  struct trace_bytes *plain)
{
	uint8_t *numbers, *end, *to;

	if (!trace_bytes_room(plain, (size_t)count * EVENT_BYTES_MAX))
		return false;
	coder->events = events;
	coder->count = count;
	/* The shapes stand before the events' numbers, and are known after. */
	numbers = plain->at + (size_t)count * EVENT_BYTES_MAX / 2;
	end = put_numbers(coder, numbers);
	to = put_shapes(coder, plain->at);
	memmove(to, numbers, (size_t)(end - numbers));
	to += end - numbers;
	to = put_column(coder, to, NS);
	to = put_units(coder, to);
	to = put_column(coder, to, LOW);
	to = put_column(coder, to, BYTES);
	to = put_column(coder, to, SPAN);
	to = put_column(coder, to, OFFSET);
	to = put_column(coder, to, PAGE);
	plain->count = (size_t)(to - plain->at);
	return true;
}

/* ---- decoding ---- */

/* Sorts events by shape. */
static void sort(struct trace_coder *coder)
{
	uint32_t *begin = coder->begin;

	memset(begin, 0, (coder->shape_count + 1) * sizeof(*begin));
	for (uint32_t i = 0; i < coder->count; i++)
		begin[coder->shape[i] + 1]++;
	for (uint32_t i = 0; i < coder->shape_count; i++)
		begin[i + 1] += begin[i];
	for (uint32_t i = 0; i < coder->count; i++)
		coder->order[begin[coder->shape[i]]++] = i;
	/* Each shape now begins where the one before ended. */
	for (uint32_t i = coder->shape_count; i > 0; i--)
		begin[i] = begin[i - 1];
	begin[0] = 0;
}

static uint64_t take(struct trace_coder *coder)
{
	uint64_t value = 0;

	for (unsigned int shift = 0; shift < 64 && coder->at < coder->end; shift += 7) {
		uint8_t byte = *coder->at++;

		value |= (uint64_t)(byte & 0x7f) << shift;
		if (byte & 0x80)
			continue;
		/* The tenth byte has one bit. */
		coder->wrong |= shift == 63 && byte > 1;
		return value;
	}
	coder->wrong = true;
	return 0;
}

/* Takes a number of at most so much. */
static uint64_t take_limited(struct trace_coder *coder, uint64_t most)
{
	uint64_t value = take(coder);

	if (value <= most)
		return value;
	coder->wrong = true;
	return 0;
}

static void take_shapes(struct trace_coder *coder)
{
	coder->shape_count = (uint32_t)take_limited(coder, coder->count);
	for (uint32_t i = 0; i < coder->shape_count; i++) {
		struct shape *shape = &coder->shapes[i];

		shape->kind = (uint8_t)take_limited(coder, TRACE_KINDS - 1);
		shape->flags = (uint8_t)take_limited(coder, TRACE_FLAGS);
		shape->cpu = (uint16_t)take_limited(coder, UINT16_MAX);
		shape->device = (uint16_t)take_limited(coder, UINT16_MAX);
		shape->queue = (uint32_t)take_limited(coder, UINT32_MAX);
		coder->wrong |= !shape->kind;
	}
	coder->wrong |= !coder->shape_count;
	for (uint32_t i = 0; i < coder->count && !coder->wrong; i++) {
		const struct shape *shape;

		coder->shape[i] = (uint32_t)take_limited(coder, coder->shape_count - 1);
		shape = &coder->shapes[coder->shape[i]];
		memset(&coder->events[i], 0, sizeof(coder->events[i]));
		coder->events[i].kind = shape->kind;
		coder->events[i].flags = shape->flags;
		coder->events[i].cpu = shape->cpu;
		coder->events[i].device = shape->device;
		coder->events[i].queue = shape->queue;
	}
}

static void take_ns(struct trace_coder *coder)
{
	uint64_t ns = 0;

	for (uint32_t i = 0; i < coder->count; i++)
		coder->events[coder->order[i]].ns = take(coder);
	for (uint32_t i = 0; i < coder->count; i++) {
		coder->wrong |= coder->events[i].ns > UINT64_MAX - ns;
		ns += coder->events[i].ns;
		coder->events[i].ns = ns;
	}
}

static void take_iovas(struct trace_coder *coder)
{
	for (uint32_t i = 0; i < coder->shape_count; i++) {
		uint64_t unit = 0;

		for (uint32_t j = coder->begin[i]; j < coder->begin[i + 1]; j++) {
			unit += unzigzag(take(coder));
			coder->wrong |= unit > UINT64_MAX >> UNIT_BITS;
			coder->events[coder->order[j]].iova = unit << UNIT_BITS;
		}
	}
	for (uint32_t i = 0; i < coder->count; i++)
		coder->events[coder->order[i]].iova |= take_limited(coder, UNIT_MASK);
}

static void take_sizes(struct trace_coder *coder)
{
	for (uint32_t i = 0; i < coder->count; i++)
		coder->events[coder->order[i]].bytes = take(coder);
	for (uint32_t i = 0; i < coder->count; i++)
		coder->events[coder->order[i]].span = take(coder);
	for (uint32_t i = 0; i < coder->count; i++) {
		struct trace_event *event = &coder->events[coder->order[i]];
		uint64_t code = take_limited(coder, (uint64_t)UINT32_MAX + 1);

		event->offset = (uint32_t)(code == 1 ? event->iova & UNIT_MASK : code - !!code);
	}
	for (uint32_t i = 0; i < coder->count; i++)
		coder->events[coder->order[i]].page = take(coder);
}

/* Decodes contents of a block; returns false if they are not exactly so many events. */
bool trace_decode(struct trace_coder *coder, uint8_t *plain, size_t bytes,
		  struct trace_event *events, uint32_t count)
{
	coder->events = events;
	coder->count = count;
	coder->at = plain;
	coder->end = plain + bytes;
	coder->wrong = false;
	take_shapes(coder);
	if (coder->wrong)
		return false;
	sort(coder);
	take_ns(coder);
	take_iovas(coder);
	take_sizes(coder);
	return !coder->wrong && coder->at == coder->end;
}
