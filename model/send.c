// SPDX-License-Identifier: GPL-2.0-only
/* See send.h. */
#include "count.h"
#include "cpu.h"
#include "dma.h"
#include "link.h"
#include "model.h"
#include "net.h"
#include "nic.h"
#include "packet.h"
#include "records.h"
#include "run.h"
#include "send.h"

#define HEAD_BYTES	128u
#define PARTS		17u		/* MAX_SKB_FRAGS */
#define FRAME_BYTES	90u		/* headers of a packet on the wire, from Ethernet to TCP */
#define TIMER_NS	4000000u
#define START_NS	200000u
#define MEMORY		(1ULL << 36)	/* physical memory of fragments: nothing else is there */

/*
 * struct segment - a segment whose buffers are mapped
 * @iovas, @pages: of the head, and of each fragment
 * @part, @page: that the NIC reads next
 * @next:	in the list of segments to send
 */
struct segment {
	u32 stream;
	u32 parts;
	u64 iovas[PARTS + 1];
	u32 pages[PARTS + 1];
	u32 part, page;
	u32 next;
};

/*
 * struct stream - a connection that sends
 * @acked, @next: segments that the CPU knows of as received, and that the application has written
 * @arrived:	segments that the other host has received
 * @runs:	the application can run
 * @quiet:	no ACK since the last timer
 */
struct stream {
	u32 acked, next, arrived;
	bool runs;
	bool quiet;
};

/*
 * struct reading - bytes that the NIC reads or has not put on the wire
 * @end_ns:	time at which they are on the wire
 */
struct reading {
	u64 end_ns;
	u64 bytes;
};

static struct stream *streams;
static struct records segments;
static u32 window;	/* of a stream, in segments */
static u32 first, last, waiting;	/* segments that the NIC has to read */
static struct reading *readings;	/* a ring, in the order of their ends */
static u64 reading_first, reading_count, reading_room, reading_bytes;
static u64 read_free_ns, wire_free_ns;
static u64 frame_bytes;	/* on the wire, of each page of data */
static bool scheduled;
static enum limit read_limit;	/* what the last page has waited for longest */
static u64 memory;

static u64 later(u64 a, u64 b)
{
	return a > b ? a : b;
}

static u32 core_of(u32 stream)
{
	return net_core((u32)model.params.flows + stream);
}

void send_init(void)
{
	const struct model_params *params = &model.params;
	u64 payload = params->mtu_bytes - (FRAME_BYTES - 38);

	if (!params->send_flows)
		return;
	streams = model_new(params->send_flows, sizeof(*streams));
	window = (u32)later(params->window_bytes / params->send_bytes, 2);
	frame_bytes = XS_PAGE_BYTES + FRAME_BYTES * XS_PAGE_BYTES / payload;
	reading_room = params->pcie_read_bytes / 64 + 2;
	readings = model_new(reading_room, sizeof(*readings));
	for (u32 i = 0; i < params->send_flows; i++)
		run_at(1 + model_random(START_NS), RUN_SEND_TIMER, i);
}

static struct segment *segment_at(u32 number)
{
	return (struct segment *)segments.memory + number;
}

/* ---- the application ---- */

static void wake(u64 ns, u32 number)
{
	struct stream *stream = &streams[number];

	if (stream->runs || stream->next - stream->acked >= window)
		return;
	stream->runs = true;
	cpu_wake_application(core_of(number), ns, (u32)model.params.flows + number);
}

static u64 map_part(u64 ns, struct segment *segment, u64 phys, u64 bytes)
{
	u32 at = segment->parts++;

	segment->pages[at] = (u32)((bytes + XS_PAGE_BYTES - 1) / XS_PAGE_BYTES);
	return dma_map(ns, phys, segment->pages[at], phys == DMA_SLAB ? HEAD_BYTES : DMA_WHOLE,
		       &segment->iovas[at]);
}

static u64 map_segment(u64 ns, struct segment *segment)
{
	u64 left = model.params.send_bytes, most = model.params.fragment_bytes;

	ns = map_part(ns, segment, DMA_SLAB, HEAD_BYTES);
	while (left) {
		u64 bytes = left < most ? left : most;

		memory = (memory + 64 * XS_PAGE_BYTES) & (MEMORY - 1);
		ns = map_part(ns + model.params.page_ns, segment, MEMORY + memory, bytes);
		left -= bytes;
	}
	return ns;
}

static void go(u64 ns)
{
	if (scheduled)
		return;
	scheduled = true;
	run_at(ns, RUN_SEND, 0);
}

u64 send_write(u64 ns, u32 number, bool *more)
{
	const struct model_params *params = &model.params;
	struct stream *stream = &streams[number - params->flows];
	u32 at = records_take(&segments, sizeof(struct segment));

	*segment_at(at) = (struct segment) { .stream = number - (u32)params->flows };
	ns += params->app_read_ns * params->send_bytes / later(params->read_bytes, 1);
	ns += params->send_bytes * params->copy_page_ns / XS_PAGE_BYTES;
	ns = map_segment(ns + params->ack_ns, segment_at(at));
	stream->next++;
	if (waiting++)
		segment_at(last)->next = at;
	else
		first = at;
	last = at;
	go(ns);
	*more = stream->next - stream->acked < window;
	stream->runs = *more;
	return ns;
}

/* ---- the NIC ---- */

/* Returns the time at which the NIC may read another page. */
static u64 room_at(u64 ns)
{
	while (reading_count && readings[reading_first].end_ns <= ns) {
		reading_bytes -= readings[reading_first].bytes;
		reading_first = (reading_first + 1) % reading_room;
		reading_count--;
	}
	if (reading_bytes + XS_PAGE_BYTES <= model.params.pcie_read_bytes || !reading_count)
		return ns;
	return readings[reading_first].end_ns;
}

/* Reads a page. Returns the time at which its bytes are on the wire. */
static u64 read_page(u64 ns, u64 page, u64 bytes, u64 on_wire)
{
	u64 ready = link_read(ns, page), arrived = later(ready, read_free_ns);

	if (wire_free_ns > arrived)
		read_limit = LIMIT_LINK;
	else
		read_limit = read_free_ns > ready ? LIMIT_PCIE : LIMIT_WALKS;
	read_free_ns = later(read_free_ns, ready) + model_bytes_ns(bytes, model.params.pcie_mbps);
	wire_free_ns = later(wire_free_ns, read_free_ns) +
		       model_bytes_ns(on_wire, model.params.link_mbps);
	readings[(reading_first + reading_count++) % reading_room] =
		(struct reading) { wire_free_ns, bytes };
	reading_bytes += bytes;
	return wire_free_ns;
}

static void sent(u32 number, u64 ns)
{
	const struct segment *segment = segment_at(number);
	u32 core = core_of(segment->stream);

	counts.sent_bytes += model.params.send_bytes;
	nic_write_sent(core);
	cpu_sent(core, ns, (struct cpu_sent) { .segment = number });
	run_at(ns + model.params.base_rtt_ns, RUN_SEND_ARRIVES, segment->stream);
}

/* The NIC reads the next page of the first segment. */
static void read_next(void)
{
	u32 number = first;
	struct segment *segment = segment_at(number);
	u64 ns = model.now_ns, end;
	bool head = !segment->part;

	if (head)
		link_read(ns, nic_next_send(core_of(segment->stream)));
	end = read_page(ns, segment->iovas[segment->part] + segment->page,
			head ? HEAD_BYTES : XS_PAGE_BYTES, head ? 0 : frame_bytes);
	if (++segment->page < segment->pages[segment->part])
		return;
	segment->page = 0;
	if (++segment->part < segment->parts)
		return;
	first = segment->next;
	waiting--;
	sent(number, end);
}

void send_read(void)
{
	u64 ns;

	while (waiting) {
		ns = room_at(model.now_ns);
		if (ns > model.now_ns) {
			run_at(ns, RUN_SEND, 0);
			return;
		}
		read_next();
	}
	scheduled = false;
}

/* ---- completions and ACKs ---- */

static bool together(const struct segment *segment)
{
	return segment->parts > model.params.send_together;
}

u64 send_clean(u64 ns, u32 number)
{
	const struct segment *segment = segment_at(number);
	bool defer = model.params.aware || together(segment);

	for (u32 i = 0; i < segment->parts; i++) {
		u32 bytes = i ? DMA_WHOLE : HEAD_BYTES;

		ns = defer ? dma_unmap_later(ns, segment->iovas[i], segment->pages[i], bytes) :
			     dma_unmap(ns, segment->iovas[i], segment->pages[i], bytes);
	}
	return defer && !model.params.aware ? dma_flush(ns) : ns;
}

u64 send_free(u64 ns, u32 number)
{
	const struct segment *segment = segment_at(number);

	for (u32 i = 0; i < segment->parts; i++)
		dma_let_go(segment->iovas[i]);
	records_give(&segments, number);
	return ns + model.params.page_ns;
}

static void send_ack_back(u32 number)
{
	u32 packet = packet_take((u32)model.params.flows + number, streams[number].arrived);

	packet_at(packet)->bytes = FRAME_BYTES;
	nic_arrive(packet);
}

void send_arrives(u32 number)
{
	streams[number].arrived++;
	send_ack_back(number);
}

u64 send_acked(u64 ns, u32 number, u32 end)
{
	struct stream *stream = &streams[number - model.params.flows];

	stream->quiet = false;
	stream->acked = (u32)later(stream->acked, end);
	wake(ns, number - (u32)model.params.flows);
	return ns;
}

enum limit send_limit(void)
{
	if (waiting)
		return read_limit;
	for (u32 i = 0; i < model.params.send_flows; i++)
		if (streams[i].runs)
			return counts.locked_ns * 2 > counts.busy_ns ? LIMIT_LOCK : LIMIT_CPU;
	return LIMIT_SENDER;
}

void send_timer(u32 number)
{
	struct stream *stream = &streams[number];

	if (stream->quiet && stream->arrived > stream->acked)
		send_ack_back(number);
	stream->quiet = true;
	wake(model.now_ns, number);
	run_at(model.now_ns + TIMER_NS, RUN_SEND_TIMER, number);
}
