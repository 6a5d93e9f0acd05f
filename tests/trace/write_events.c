// SPDX-License-Identifier: GPL-2.0-only
/*
 * Writes a recording for tests, by the writer of trace/format.
 *
 *   write-events FILE HEADER        events from standard input, a line each: the fields of struct
 *                                   trace_event in the order of READ_FIELDS, as numbers
 *   write-events FILE HEADER COUNT  a driver at work, of about COUNT events: on each of 4 CPUs a
 *                                   ring of 1,024 buffers, and polls of up to 64; of 16 buffers, one
 *                                   is a list of 4 entries and one has 3 pages
 */
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>

#include "../../trace/format/trace.h"

#define FIELDS	11

#define CPUS	4u
#define RING	1024u
#define POLL	64u

static struct trace_writer *writer;
static uint64_t written;

static void check(bool ok, const struct trace_error *error)
{
	if (ok)
		return;
	fprintf(stderr, "write-events: %s\n", error->text);
	exit(1);
}

static void write_event(const struct trace_event *event)
{
	struct trace_error error;

	check(trace_write(writer, event, &error), &error);
	written++;
}

static void copy_lines(void)
{
	uint64_t f[FIELDS];

	while (scanf("%" SCNu64, &f[0]) == 1) {
		struct trace_event event;

		for (int i = 1; i < FIELDS; i++)
			if (scanf("%" SCNu64, &f[i]) != 1)
				exit(2);
		event = (struct trace_event) {
			.kind = (uint8_t)f[0], .ns = f[1], .cpu = (uint16_t)f[2],
			.device = (uint16_t)f[3], .iova = f[4], .page = f[5], .bytes = f[6],
			.span = f[7], .queue = (uint32_t)f[8], .offset = (uint32_t)f[9],
			.flags = (uint8_t)f[10],
		};
		write_event(&event);
	}
}

/* ---- a driver ---- */

static uint64_t now_ns, random_state = 1, next_page[CPUS];

static uint32_t draw(uint32_t below)
{
	random_state = random_state * 6364136223846793005u + 1442695040888963407u;
	return (uint32_t)(random_state >> 33) % below;
}

static uint64_t address_of(uint32_t cpu, uint32_t slot)
{
	return (((uint64_t)cpu << 20) + slot * 4 + 1) << 12;
}

static void list(struct trace_event event, uint8_t kind)
{
	event.kind = kind;
	event.bytes = 4 * 4096;
	event.span = 4;
	write_event(&event);
	event.kind = TRACE_ENTRY;
	event.bytes = event.span = 4096;
	for (uint32_t i = 0; kind == TRACE_MAP_LIST && i < 4; i++, event.iova += 4096, event.page++)
		write_event(&event);
}

static void buffer(uint32_t cpu, uint32_t slot, bool maps)
{
	uint32_t form = slot % 16;
	struct trace_event event = {
		.ns = now_ns += 50 + draw(100), .iova = address_of(cpu, slot), .cpu = (uint16_t)cpu,
		.page = maps ? 1 + ((uint64_t)cpu << 16) + next_page[cpu]++ % 4096 * 4 : 0,
		.flags = 2,
	};

	if (form == 0) {
		list(event, maps ? TRACE_MAP_LIST : TRACE_UNMAP_LIST);
		return;
	}
	event.kind = maps ? TRACE_MAP : TRACE_UNMAP;
	event.bytes = form == 1 ? 3 * 4096 : 2048;
	write_event(&event);
}

static void work(uint64_t count)
{
	uint64_t at[CPUS] = { 0 };

	for (uint32_t cpu = 0; cpu < CPUS; cpu++)
		for (uint32_t slot = 0; slot < RING; slot++)
			buffer(cpu, slot, true);
	while (written < count) {
		uint32_t cpu = draw(CPUS), some = 1 + draw(POLL);
		struct trace_event end = { .kind = TRACE_POLL, .cpu = (uint16_t)cpu };

		for (uint32_t i = 0; i < some; i++)
			buffer(cpu, (uint32_t)((at[cpu] + i) % RING), false);
		end.ns = now_ns += 500;
		write_event(&end);
		for (uint32_t i = 0; i < some; i++)
			buffer(cpu, (uint32_t)((at[cpu] + i) % RING), true);
		at[cpu] += some;
	}
}

int main(int count, char **words)
{
	struct trace_error error;

	if (count < 3)
		return 2;
	writer = trace_create(words[1], words[2], &error);
	check(writer, &error);
	if (count > 3)
		work(strtoull(words[3], NULL, 10));
	else
		copy_lines();
	check(trace_finish(writer, "{}", &error), &error);
	return 0;
}
