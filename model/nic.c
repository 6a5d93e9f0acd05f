// SPDX-License-Identifier: GPL-2.0-only
/* See nic.h. */
#include "count.h"
#include "cpu.h"
#include "dma.h"
#include "driver.h"
#include "link.h"
#include "model.h"
#include "net.h"
#include "nic.h"
#include "page.h"
#include "records.h"
#include "run.h"
#include "send.h"

#define ENTRY_BYTES	64u
#define NO_PACKET	PACKET_NONE

/*
 * struct queue - a receive queue
 * @descriptors: ring
 * @posted:	descriptors that the NIC has or had; those from @first to the one before @posted are
 *		not released. Both count up; the place is the remainder.
 * @current:	descriptor that takes the next packet; at most @posted
 * @completed:	packets written, or being written, in order
 * @control:	IOVA pages of the control rings
 * @visits:	entries used so far, by ring
 * @released, @filled: pages of the descriptor in progress
 */
struct queue {
	struct descriptor *descriptors;
	u64 first, current, posted;
	struct packet_list completed;
	u64 *control[RING_COUNT];
	u64 visits[RING_COUNT];
	u32 released, filled;
};

/*
 * struct nic - what all queues share
 * @waiting:	packets in the buffer; the first is being written
 * @buffered:	bytes in the buffer
 * @placed:	the first packet has its parts; @part is the next to be written, behind the last the
 *		completion
 * @entries:	IOVA pages of control entries to be written before the next part
 * @scheduled:	an event for nic_run() exists
 * @limit:	what the last write has waited for
 * @completions: packets in all lists of completions
 */
struct nic {
	struct packet_list waiting;
	u64 buffered;
	bool placed;
	u32 part;
	u64 *entries;
	u32 entry_first, entry_count, entry_room;
	bool scheduled;
	enum limit limit;
	u64 arrived_ns;
	u32 completions;
};

/*
 * struct read - a read to come
 * @ack:	of a packet to send; 0: of a posted descriptor
 * @iova:	of the packet's data
 */
struct read {
	u32 queue;
	u32 ack;
	u64 iova;
};

static struct queue *queues;
static struct records reads;
static struct nic nic;
static u64 ring_size;	/* descriptors of a queue */

/* ---- set-up ---- */

/*
 * Rings of as many pages lie a multiple of their size apart, as in Linux, so that all use the same
 * sets of the IOTLB at the same place: alloc_iova_fast() takes IOVAs from the top of the space and
 * aligns each to its size (size_aligned), and the pages of rings that are allocated page by page
 * (mlx5_frag_buf_alloc_node()) follow each other.
 */
static void control_init(struct queue *queue)
{
	for (u32 ring = 0; ring < RING_COUNT; ring++) {
		queue->control[ring] = model_new(model.params.control_pages, sizeof(u64));
		for (u64 i = 0; i < model.params.control_pages; i++) {
			u32 page = page_take(0);

			dma_map(0, page_phys(page), 1, DMA_WHOLE, &queue->control[ring][i]);
		}
	}
}

void nic_init(void)
{
	queues = model_new(model.params.queues, sizeof(*queues));
	for (u32 i = 0; i < model.params.queues; i++) {
		running_cpu = i;
		control_init(&queues[i]);
	}
}

void nic_start(void)
{
	ring_size = model.params.ring / model.params.descriptor_packets;
	if (ring_size < 2)
		ring_size = 2;
	nic.entry_room = 1024;
	nic.entries = model_new(nic.entry_room, sizeof(*nic.entries));
	for (u32 i = 0; i < model.params.queues; i++) {
		bool more = true;

		running_cpu = i;
		queues[i].descriptors = model_new(ring_size, sizeof(*queues[i].descriptors));
		while (more)
			nic_refill(0, i, &more);
	}
}

/* ---- control rings ---- */

/* Returns the IOVA page of the ring's next entry. */
static u64 next_entry(u32 at, enum nic_ring ring)
{
	struct queue *queue = &queues[at];
	u64 page = queue->visits[ring]++ * ENTRY_BYTES / XS_PAGE_BYTES;

	return queue->control[ring][page % model.params.control_pages];
}

static void go(void)
{
	if (nic.scheduled)
		return;
	nic.scheduled = true;
	run_at(model.now_ns, RUN_NIC, 0);
}

static void write_entry(u32 queue, enum nic_ring ring)
{
	if (nic.entry_count == nic.entry_room)
		return;	/* the NIC joins entries when it cannot write them in time */
	nic.entries[(nic.entry_first + nic.entry_count++) % nic.entry_room] =
		next_entry(queue, ring);
	go();
}

u64 nic_next_send(u32 queue)
{
	return next_entry(queue, RING_SEND);
}

void nic_write_sent(u32 queue)
{
	write_entry(queue, RING_SENT);
}

void nic_interrupt(u32 queue)
{
	write_entry(queue, RING_EVENT);
}

static struct read *read_at(u32 number)
{
	return (struct read *)reads.memory + number;
}

static void add_read(u64 ns, u32 queue, u32 ack, u64 iova)
{
	u32 number = records_take(&reads, sizeof(struct read));

	*read_at(number) = (struct read) { queue, ack, iova };
	run_at(ns, RUN_READ, number);
}

void nic_send(u64 ns, u32 queue, u32 ack, u64 iova)
{
	add_read(ns, queue, ack, iova);
}

void nic_read(u32 number)
{
	struct read read = *read_at(number);
	u64 ns = model.now_ns;

	records_give(&reads, number);
	if (!read.ack) {
		link_read(ns, next_entry(read.queue, RING_RECEIVE));
		return;
	}
	ns = link_read(ns, next_entry(read.queue, RING_SEND));
	ns = link_read(ns, read.iova);
	write_entry(read.queue, RING_SENT);
	net_sent(ns, read.ack, read.iova);
}

/* ---- the buffer ---- */

/* Counts the time since the last arrival for what has kept the next packet from coming. */
static void count_limit(void)
{
	u64 gap = model.now_ns - nic.arrived_ns;

	nic.arrived_ns = model.now_ns;
	if (!model.params.flows)
		counts.limits_ns[send_limit()] += gap;
	else if (nic.buffered > model.params.nic_buffer_bytes / 4)
		counts.limits_ns[nic.limit] += gap;
	else
		counts.limits_ns[net_limit(gap)] += gap;
}

void nic_arrive(u32 packet)
{
	u64 bytes = packet_at(packet)->bytes;

	counts.arrived++;
	count_limit();
	if (nic.buffered + bytes > model.params.nic_buffer_bytes) {
		counts.dropped++;
		packet_give(packet);
		return;
	}
	nic.buffered += bytes;
	packet_push(&nic.waiting, packet);
	go();
}

static u32 queue_of(const struct packet *packet)
{
	return net_core(packet->flow);
}

/* ---- descriptors ---- */

static u64 descriptor_bytes(void)
{
	return model.params.descriptor_pages * XS_PAGE_BYTES;
}

/* Closes the current descriptor. Returns the next; NULL if none is posted. */
static struct descriptor *current_descriptor(struct queue *queue, u64 bytes)
{
	struct descriptor *now;

	if (queue->current == queue->posted)
		return NULL;
	now = &queue->descriptors[queue->current % ring_size];
	if (now->used + bytes > descriptor_bytes() && now->used) {
		now->closed = true;
		if (++queue->current == queue->posted)
			return NULL;
		now = &queue->descriptors[queue->current % ring_size];
	}
	return now;
}

/* Gives @bytes of a packet their parts in the current descriptor. */
static void place_in(struct queue *queue, struct packet *packet, u64 bytes)
{
	struct descriptor *now = &queue->descriptors[queue->current % ring_size];
	u64 strides = (bytes + model.params.stride_bytes - 1) / model.params.stride_bytes;
	u64 at = now->used, end = at + bytes;

	while (at < end) {
		u64 next = (at / XS_PAGE_BYTES + 1) * XS_PAGE_BYTES;

		if (next > end)
			next = end;
		packet->parts[packet->part_count++] = (struct packet_part) {
			now->pages[at / XS_PAGE_BYTES], (u32)(queue->current % ring_size),
			(u32)(next - at)
		};
		now->parts++;
		at = next;
	}
	now->used += strides * model.params.stride_bytes;
	if (now->used >= descriptor_bytes() || driver()->one_packet) {
		now->closed = true;
		queue->current++;
	}
}

/* Returns false if the queue has no descriptor. */
static bool place(struct queue *queue, struct packet *packet)
{
	u64 bytes = packet->bytes, most = descriptor_bytes();
	u64 needed = (bytes + most - 1) / most;

	if (!current_descriptor(queue, bytes < most ? bytes : most) ||
	    queue->posted - queue->current < needed)
		return false;
	for (u64 left = bytes; left; left -= left < most ? left : most)
		place_in(queue, packet, left < most ? left : most);
	return true;
}

/* Returns the oldest descriptor if it is done. */
static struct descriptor *oldest_done(struct queue *queue)
{
	struct descriptor *oldest = &queue->descriptors[queue->first % ring_size];

	if (queue->first == queue->posted || !oldest->closed || oldest->parts)
		return NULL;
	return oldest;
}

u64 nic_refill(u64 ns, u32 at, bool *more)
{
	struct queue *queue = &queues[at];
	struct descriptor *done = oldest_done(queue), *next;

	if (done && !queue->filled) {
		ns = driver()->release(ns, at, done, queue->released++);
		if (queue->released == model.params.descriptor_pages) {
			queue->released = 0;
			queue->first++;
		}
		return ns;
	}
	*more = queue->posted < queue->first + ring_size;
	if (!*more)
		return ns;
	next = &queue->descriptors[queue->posted % ring_size];
	ns = driver()->fill(ns, at, next, queue->filled++);
	if (queue->filled < model.params.descriptor_pages)
		return ns;
	queue->filled = 0;
	queue->posted++;
	next->used = 0;
	next->parts = 0;
	next->closed = false;
	add_read(ns, at, 0, 0);
	return ns;
}

void nic_processed(u32 at, u32 number)
{
	struct packet *packet = packet_at(number);

	for (u32 i = 0; i < packet->part_count; i++) {
		page_at(packet->parts[i].page)->refs++;
		queues[at].descriptors[packet->parts[i].descriptor].parts--;
	}
}

/* ---- writes ---- */

static void drop_first(void)
{
	counts.dropped++;
	nic.buffered -= packet_at(nic.waiting.first)->bytes;
	packet_give(packet_pop(&nic.waiting));
}

/* Returns the first packet, with its parts; NULL if the buffer is empty. */
static struct packet *first_packet(void)
{
	while (nic.waiting.count) {
		struct packet *packet = packet_at(nic.waiting.first);

		if (!nic.placed) {
			packet->part_count = 0;
			nic.part = 0;
			nic.placed = place(&queues[queue_of(packet)], packet);
		}
		if (nic.placed)
			return packet;
		drop_first();
	}
	return NULL;
}

static void complete(struct packet *packet)
{
	u32 at = queue_of(packet), number = packet_pop(&nic.waiting);

	packet->done_ns = link_write(model.now_ns, next_entry(at, RING_COMPLETION), ENTRY_BYTES);
	nic.placed = false;
	nic.buffered -= packet->bytes;
	nic.completions++;
	counts.packets++;
	packet_push(&queues[at].completed, number);
	cpu_completion(at, packet->done_ns);
}

static u64 next_bytes(const struct packet *packet)
{
	u64 bytes;

	if (nic.entry_count || nic.part == packet->part_count)
		return ENTRY_BYTES;
	bytes = packet->parts[nic.part].bytes;
	return bytes < model.params.pcie_credit_bytes ? bytes : model.params.pcie_credit_bytes;
}

static void write_next(struct packet *packet, u64 bytes)
{
	struct packet_part *part;

	if (nic.entry_count) {
		link_write(model.now_ns, nic.entries[nic.entry_first], ENTRY_BYTES);
		nic.entry_first = (nic.entry_first + 1) % nic.entry_room;
		nic.entry_count--;
		return;
	}
	if (nic.part == packet->part_count) {
		complete(packet);
		return;
	}
	part = &packet->parts[nic.part];
	link_write(model.now_ns, page_at(part->page)->iova, bytes);
	part->bytes -= (u32)bytes;
	nic.part += !part->bytes;
}

/* @scheduled stays set meanwhile, so that an entry for a ring adds no second event. */
void nic_run(void)
{
	while (nic.entry_count || nic.waiting.count) {
		struct packet *packet = first_packet();
		u64 bytes, ns;

		if (!packet && !nic.entry_count)
			break;
		bytes = next_bytes(packet);
		ns = link_ready_at(model.now_ns, bytes, &nic.limit);
		if (ns > model.now_ns) {
			run_at(ns, RUN_NIC, 0);
			return;
		}
		write_next(packet, bytes);
	}
	nic.scheduled = false;
}

/* ---- completions ---- */

u32 nic_completed(u32 queue, u64 ns)
{
	struct packet_list *list = &queues[queue].completed;

	if (!list->count || packet_at(list->first)->done_ns > ns)
		return PACKET_NONE;
	nic.completions--;
	return packet_pop(list);
}

u64 nic_next_completion(u32 queue)
{
	const struct packet_list *list = &queues[queue].completed;

	return list->count ? packet_at(list->first)->done_ns : 0;
}

u32 nic_waiting(void)
{
	return nic.completions;
}
