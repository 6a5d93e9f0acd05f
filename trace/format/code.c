// SPDX-License-Identifier: GPL-2.0-only
/*
 * The coding of a block's events.
 *
 * The shape of an event is what repeats: kind, flags, CPU, device, queue. The other fields are
 * columns, and a column's values stand by shape: values of one shape are alike, so zstd finds
 * their repetitions, such as buffers that are used again in the same order. Only time and IOVAs
 * are differences. References to earlier events (an unmap to its map) made blocks no smaller.
 */
#include <stdlib.h>
#include <string.h>

#include "format.h"

#define UNIT_BITS	12u
#define UNIT_MASK	((1ull << UNIT_BITS) - 1)
#define SLOTS		(2 * TRACE_BLOCK_EVENTS)
/* No event takes more: its values, and a shape of its own. */
#define EVENT_BYTES_MAX	80u

/**
 * struct shape - what events have in common
 * @cpu: CPU
 * @device: device
 * @queue: queue
 * @kind: enum trace_kind
 * @flags: TRACE_* bits
 */
struct shape {
	uint16_t cpu;
	uint16_t device;
	uint32_t queue;
	uint8_t kind;
	uint8_t flags;
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
 * @order: events by shape, those of a shape in order of time
 * @begin: where each shape begins in @order
 * @slots: table of shapes by their fields: number + 1, 0 if free
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

/* The caller has made room. */
static void put(struct trace_coder *coder, uint64_t value)
{
	for (; value > 0x7f; value >>= 7)
		*coder->at++ = (uint8_t)(value | 0x80);
	*coder->at++ = (uint8_t)value;
}

static bool is_same(const struct shape *a, const struct shape *b)
{
	return a->cpu == b->cpu && a->device == b->device && a->queue == b->queue &&
	       a->kind == b->kind && a->flags == b->flags;
}

/* Returns the number of an event's shape, which may be new. */
static uint32_t find_shape(struct trace_coder *coder, const struct trace_event *event)
{
	const struct shape shape = {
		.cpu = event->cpu,
		.device = event->device,
		.queue = event->queue,
		.kind = event->kind,
		.flags = event->flags,
	};
	uint64_t hash = shape.cpu | (uint64_t)shape.device << 16 | (uint64_t)shape.queue << 32;
	uint32_t at;

	hash = (hash ^ (uint64_t)(shape.kind | shape.flags << 8) << 20) * 0x9e3779b97f4a7c15ull;
	for (at = (uint32_t)(hash >> 40) % SLOTS; coder->slots[at]; at = (at + 1) % SLOTS)
		if (is_same(&coder->shapes[coder->slots[at] - 1], &shape))
			return coder->slots[at] - 1;
	coder->shapes[coder->shape_count] = shape;
	coder->slots[at] = ++coder->shape_count;
	return coder->shape_count - 1;
}

static void put_shapes(struct trace_coder *coder)
{
	coder->shape_count = 0;
	memset(coder->slots, 0, sizeof(coder->slots));
	for (uint32_t i = 0; i < coder->count; i++)
		coder->shape[i] = find_shape(coder, &coder->events[i]);
	put(coder, coder->shape_count);
	for (uint32_t i = 0; i < coder->shape_count; i++) {
		const struct shape *shape = &coder->shapes[i];

		put(coder, shape->kind);
		put(coder, shape->flags);
		put(coder, shape->cpu);
		put(coder, shape->device);
		put(coder, shape->queue);
	}
	for (uint32_t i = 0; i < coder->count; i++)
		put(coder, coder->shape[i]);
}

static void put_ns(struct trace_coder *coder)
{
	for (uint32_t i = 0; i < coder->count; i++) {
		uint32_t n = coder->order[i];

		put(coder, coder->events[n].ns - (n ? coder->events[n - 1].ns : 0));
	}
}

static void put_iovas(struct trace_coder *coder)
{
	for (uint32_t i = 0; i < coder->shape_count; i++) {
		uint64_t last = 0;

		for (uint32_t j = coder->begin[i]; j < coder->begin[i + 1]; j++) {
			uint64_t unit = coder->events[coder->order[j]].iova >> UNIT_BITS;

			put(coder, zigzag(unit - last));
			last = unit;
		}
	}
	for (uint32_t i = 0; i < coder->count; i++)
		put(coder, coder->events[coder->order[i]].iova & UNIT_MASK);
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

static void put_sizes(struct trace_coder *coder)
{
	for (uint32_t i = 0; i < coder->count; i++)
		put(coder, coder->events[coder->order[i]].bytes);
	for (uint32_t i = 0; i < coder->count; i++)
		put(coder, coder->events[coder->order[i]].span);
	for (uint32_t i = 0; i < coder->count; i++)
		put(coder, offset_code(&coder->events[coder->order[i]]));
	for (uint32_t i = 0; i < coder->count; i++)
		put(coder, coder->events[coder->order[i]].page);
}

/* Codes events as contents of a block; returns false without memory. */
bool trace_encode(struct trace_coder *coder, struct trace_event *events, uint32_t count,
		  struct trace_bytes *plain)
{
	if (!trace_bytes_room(plain, (size_t)count * EVENT_BYTES_MAX))
		return false;
	coder->events = events;
	coder->count = count;
	coder->at = plain->at;
	put_shapes(coder);
	sort(coder);
	put_ns(coder);
	put_iovas(coder);
	put_sizes(coder);
	plain->count = (size_t)(coder->at - plain->at);
	return true;
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
