// SPDX-License-Identifier: GPL-2.0-only
/* See net.h. */
#include "cpu.h"
#include "dma.h"
#include "model.h"
#include "net.h"
#include "nic.h"
#include "packet.h"
#include "records.h"
#include "run.h"
#include "send.h"

#define HEADER_BYTES	52u	/* IP and TCP with timestamps */
#define FRAME_BYTES	38u	/* Ethernet: preamble, header, check sum, gap */
#define TIMER_NS	4000000u	/* timeout, unless two round trips are longer */
#define START_NS	200000u	/* flows begin within this time */
#define REORDER		3u	/* packets behind a hole before the hole is a loss */
#define DUPLICATES	3u	/* ACKs for packets out of order that are sent at once */
#define SLICE_PACKETS	16u
#define WINDOW_SHIFT	10	/* the congestion window counts 1/1024 packets */
#define WINDOW_LEAST	(2ull << WINDOW_SHIFT)
#define WINDOW_MOST	(1ull << 30)	/* the receive window is smaller */
#define GRO_MOST	64u

/* What the sender knows of a packet. */
enum state { STATE_SENT, STATE_ARRIVED, STATE_LOST };

/*
 * struct flow - a connection
 *
 * Sender:
 * @acked:	all packets below have arrived in order, as far as the sender knows
 * @next:	packet that was never sent
 * @right:	end of the receive window
 * @window:	congestion window, in 1/1024 packets; @slow_start_end: above, it grows slowly
 * @recovers:	from a loss, until all packets below @recovery_end have arrived
 * @before:	window at the loss, in packets; @delivered, @sent: packets since
 * @in_flight:	packets in STATE_SENT
 * @lost:	packets in STATE_LOST
 * @sends:	packets sent so far; @order: the value when a packet was sent last
 * @arrived_order: largest @order of a packet that has arrived
 * @sending:	in the ring of senders
 * @quiet:	no ACK since the last timer
 *
 * Receiver:
 * @read:	next packet for the application
 * @received:	all packets below are in order
 * @highest:	end of all packets received
 * @packets:	received packets by sequence number; PACKET_NONE
 * @unacked:	packets in order that no ACK has told; @told: receive window's end as told
 * @duplicates:	packets from GRO since a hole has opened
 * @untold:	an ACK for them waits for the poll's end (SACK compression)
 * @reads:	a read is in progress
 * @read_bytes:	bytes that the application has asked for and that no whole packet has filled
 * @runs:	the application can run
 * @request_bytes: read of the request in progress
 * @answers:	of the read in progress, not written; @corked: written, and waiting for @in_nic
 * @in_nic:	packets with answers whose buffers are mapped
 * @joined, @joined_count: in GRO
 */
struct flow {
	u32 acked, next, right;
	u64 window, slow_start_end;
	bool recovers;
	u32 recovery_end, before, delivered, sent;
	u32 in_flight, lost;
	u32 sends, arrived_order;
	bool sending;
	bool quiet;
	u8 *states;
	u32 *order;

	u32 read, received, highest;
	u32 *packets;
	u32 unacked, told, duplicates;
	bool untold;
	bool reads;
	u64 read_bytes;
	bool runs;
	u64 request_bytes;
	u32 answers;
	bool corked;
	u32 in_nic;
	u32 joined[GRO_MOST];
	u32 joined_count;
};

/*
 * struct ack - an ACK under way
 * @answers:	the packet carries answers
 * @received, @right, @highest: of the receiver when it was sent
 */
struct ack {
	u32 flow;
	bool answers;
	u32 received, right, highest;
};

static struct flow *flows;
static u32 size;	/* packets that a flow remembers, a power of two */
static u32 window_packets, gro_packets;
static u64 data_bytes;	/* of a packet */
static u64 wire_ns;	/* time of a packet on the wire */
static u64 wire_free_ns;
static u32 *senders;	/* flows with packets for the wire; a ring */
static u32 sender_first, sender_count;
static u64 outstanding;	/* packets sent and not read */

static struct records acks;

static struct ack *ack_at(u32 number)
{
	return (struct ack *)acks.memory + number;
}

static u32 at(u32 seq)
{
	return seq & (size - 1);
}

static u64 greater(u64 a, u64 b)
{
	return a > b ? a : b;
}

static u64 lesser(u64 a, u64 b)
{
	return a < b ? a : b;
}

u32 net_core(u32 flow)
{
	u32 queues = (u32)model.params.queues;

	if (flow >= model.params.flows)
		return queues - 1 - (flow - (u32)model.params.flows) % queues;
	return flow % queues;
}

static void flow_init(struct flow *flow)
{
	flow->states = model_new(size, sizeof(*flow->states));
	flow->order = model_new(size, sizeof(*flow->order));
	flow->packets = model_new(size, sizeof(*flow->packets));
	flow->window = model.params.initial_window << WINDOW_SHIFT;
	flow->slow_start_end = WINDOW_MOST;
	flow->right = flow->told = window_packets;
}

void net_init(void)
{
	const struct model_params *params = &model.params;

	data_bytes = params->mtu_bytes - HEADER_BYTES;
	window_packets = (u32)greater(params->window_bytes / data_bytes, 2);
	gro_packets = (u32)lesser(greater(params->gro_bytes / data_bytes, 1), GRO_MOST);
	size = 2u << xs_log2(2 * window_packets);
	wire_ns = model_bytes_ns(params->mtu_bytes + FRAME_BYTES, params->link_mbps);
	if (params->off_mbps)
		wire_ns = greater(wire_ns, model_bytes_ns(data_bytes, params->off_mbps));
	flows = model_new(params->flows, sizeof(*flows));
	senders = model_new(params->flows, sizeof(*senders));
	for (u32 i = 0; i < params->flows; i++) {
		flow_init(&flows[i]);
		run_at(1 + model_random(START_NS), RUN_FLOW_TIMER, i);
	}
}

/* ---- sender ---- */

static void send(u32 number, u32 seq)
{
	struct flow *flow = &flows[number];

	flow->states[at(seq)] = STATE_SENT;
	flow->order[at(seq)] = ++flow->sends;
	flow->in_flight++;
	flow->sent++;
	wire_free_ns = greater(wire_free_ns, model.now_ns) + wire_ns;
	run_at(wire_free_ns + model.params.base_rtt_ns / 2, RUN_ARRIVE, packet_take(number, seq));
}

/* Returns the next lost packet; the end of what was sent if there is none. */
static u32 first_lost(const struct flow *flow)
{
	u32 seq = flow->acked;

	if (!flow->lost)
		return flow->next;
	while (seq != flow->next && flow->states[at(seq)] != STATE_LOST)
		seq++;
	return seq;
}

/* Whether the windows allow a packet. */
static bool may_send(const struct flow *flow)
{
	return (u64)flow->in_flight << WINDOW_SHIFT < flow->window &&
	       (flow->lost || flow->next < flow->right);
}

static void send_next(u32 number)
{
	struct flow *flow = &flows[number];
	u32 seq = first_lost(flow);

	if (seq == flow->next) {
		flow->next++;
		outstanding++;
	} else {
		flow->lost--;
		counts.resent++;
	}
	send(number, seq);
}

/* The sender's NIC takes the flows' segments in turn. */
static void pump(u32 number)
{
	struct flow *flow = &flows[number];

	if (flow->sending || !may_send(flow))
		return;
	flow->sending = true;
	senders[(sender_first + sender_count++) % (u32)model.params.flows] = number;
	if (sender_count == 1)
		run_at(wire_free_ns, RUN_WIRE, 0);
}

void net_wire(void)
{
	u32 number = senders[sender_first];
	struct flow *flow = &flows[number];

	for (u32 i = 0; i < gro_packets && may_send(flow); i++)
		send_next(number);
	flow->sending = false;
	sender_first = (sender_first + 1) % (u32)model.params.flows;
	sender_count--;
	if (sender_count)
		run_at(wire_free_ns, RUN_WIRE, 0);
	pump(number);
}

static void arrived(struct flow *flow, u32 seq)
{
	if (flow->states[at(seq)] == STATE_ARRIVED)
		return;
	flow->delivered++;
	if (flow->states[at(seq)] == STATE_SENT) {
		flow->in_flight--;
		flow->arrived_order = (u32)greater(flow->arrived_order, flow->order[at(seq)]);
	} else {
		flow->lost--;
	}
	flow->states[at(seq)] = STATE_ARRIVED;
}

static void reduce(struct flow *flow)
{
	if (flow->recovers)
		return;
	flow->recovers = true;
	flow->recovery_end = flow->next;
	flow->before = (u32)(flow->window >> WINDOW_SHIFT);
	flow->slow_start_end =
		greater(flow->window * model.params.loss_permille / 1000, WINDOW_LEAST);
	flow->delivered = 0;
	flow->sent = 0;
}

/*
 * Proportional rate reduction (RFC 6937), as Linux has it: while a flow recovers from a loss, ACKs
 * of @packets packets allow so many that the flow has its new window when the recovery ends.
 */
static void recover(struct flow *flow, u32 packets)
{
	u32 target = (u32)(flow->slow_start_end >> WINDOW_SHIFT), allowed;

	if (flow->acked >= flow->recovery_end) {
		flow->recovers = false;
		flow->window = flow->slow_start_end;
		return;
	}
	if (flow->in_flight > target) {
		allowed = (u32)(((u64)flow->delivered * target + flow->before - 1) / flow->before);
		allowed = allowed > flow->sent ? allowed - flow->sent : 0;
	} else {
		allowed = flow->delivered > flow->sent ? flow->delivered - flow->sent : 0;
		allowed = (u32)lesser(target - flow->in_flight, greater(allowed, packets) + 1);
	}
	if (!flow->sent && !allowed)
		allowed = 1;
	flow->window = (u64)(flow->in_flight + allowed) << WINDOW_SHIFT;
}

/* As tcp_is_cwnd_limited(): a window that something else keeps from being used does not grow. */
static void grow(struct flow *flow, u32 packets)
{
	u64 used = (u64)(flow->in_flight + packets) << WINDOW_SHIFT;
	bool slow_start = flow->window < flow->slow_start_end;

	if (slow_start)
		used *= 2;
	if (flow->recovers || used + (1ull << WINDOW_SHIFT) <= flow->window)
		return;
	if (slow_start)
		flow->window += (u64)packets << WINDOW_SHIFT;
	else
		flow->window += ((u64)packets << 2 * WINDOW_SHIFT) / flow->window;
}

static void lose(struct flow *flow, u32 seq)
{
	flow->states[at(seq)] = STATE_LOST;
	flow->in_flight--;
	flow->lost++;
}

/* Finds what the receiver has out of order, and what is lost. */
static void scan(struct flow *flow, u32 highest)
{
	bool any = false;
	u32 behind = 0;

	for (u32 seq = flow->acked; seq < highest; seq++)
		if (seq < flow->received || flow->packets[at(seq)] != PACKET_NONE) {
			arrived(flow, seq);
			behind++;
		}
	if (behind < REORDER && !flow->recovers)
		return;
	for (u32 seq = flow->acked; seq < highest; seq++)
		if (flow->states[at(seq)] == STATE_SENT &&
		    flow->order[at(seq)] < flow->arrived_order) {
			lose(flow, seq);
			any = true;
		}
	if (any)
		reduce(flow);
}

void net_ack_arrives(u32 number)
{
	const struct ack *ack = ack_at(number);
	struct flow *flow = &flows[ack->flow];
	u32 packets = ack->received > flow->acked ? ack->received - flow->acked : 0;
	u32 delivered = flow->delivered;

	flow->quiet = false;
	for (u32 seq = flow->acked; seq < ack->received; seq++)
		arrived(flow, seq);
	if (packets)
		flow->acked = ack->received;
	flow->right = (u32)greater(flow->right, ack->right);
	if (packets)
		grow(flow, packets);
	if (ack->highest > flow->acked)
		scan(flow, ack->highest);
	if (flow->recovers)
		recover(flow, flow->delivered > delivered ? flow->delivered - delivered : 0);
	pump(ack->flow);
	records_give(&acks, number);
}

void net_timer(u32 number)
{
	struct flow *flow = &flows[number];

	if (flow->quiet && flow->next > flow->acked) {
		for (u32 seq = flow->acked; seq != flow->next; seq++)
			if (flow->states[at(seq)] == STATE_SENT)
				lose(flow, seq);
		reduce(flow);
		flow->window = WINDOW_LEAST;
	}
	flow->quiet = true;
	pump(number);
	run_at(model.now_ns + greater(TIMER_NS, 2 * model.params.base_rtt_ns), RUN_FLOW_TIMER,
	       number);
}

enum limit net_limit(u64 gap)
{
	u64 unread = outstanding;

	if (gap <= wire_ns + wire_ns / 4)
		return LIMIT_LINK;
	for (u32 i = 0; i < model.params.flows; i++)
		unread -= flows[i].in_flight + flows[i].lost;
	if ((unread + nic_waiting()) * 2 < outstanding)
		return LIMIT_SENDER;
	return counts.locked_ns * 2 > counts.busy_ns ? LIMIT_LOCK : LIMIT_CPU;
}

/* ---- receiver ---- */

/* Send a packet that tells what was received; with @answers it carries answers, too. */
static u64 send_packet(u64 ns, u32 number, bool answers)
{
	struct flow *flow = &flows[number];
	u32 ack = records_take(&acks, sizeof(struct ack));
	u64 iova;

	counts.acks++;
	flow->unacked = 0;
	flow->told = flow->read + window_packets;
	flow->untold = false;
	*ack_at(ack) = (struct ack) {
		number, answers, flow->received, flow->told, flow->highest
	};
	flow->in_nic += answers;
	ns = dma_map(ns + model.params.ack_ns, DMA_SLAB, 1, NET_ACK_BYTES, &iova);
	nic_send(ns, net_core(number), ack, iova);
	return ns;
}

static u64 send_ack(u64 ns, u32 number)
{
	return send_packet(ns, number, false);
}

u64 net_completed(u64 ns, u32 number)
{
	struct flow *flow = &flows[number];

	flow->in_nic--;
	if (!flow->corked || flow->in_nic)
		return ns;
	flow->corked = false;
	return send_packet(ns, number, true);
}

void net_sent(u64 ns, u32 ack, u64 iova)
{
	u64 jitter = model_random(model.params.base_rtt_ns / 16 + 1);

	cpu_sent(net_core(ack_at(ack)->flow), ns, (struct cpu_sent) {
		.iova = iova, .flow = ack_at(ack)->answers ? ack_at(ack)->flow : NET_NO_FLOW,
	});
	run_at(ns + model.params.base_rtt_ns / 2 + jitter, RUN_ACK, ack);
}

static void wake(u64 ns, u32 number)
{
	struct flow *flow = &flows[number];

	if (flow->runs || flow->read == flow->received)
		return;
	flow->runs = true;
	cpu_wake_application(net_core(number), ns, number);
}

/* Takes a packet into the flow. Returns false if the flow has it already. */
static bool keep(struct flow *flow, u32 packet)
{
	u32 seq = packet_at(packet)->seq;

	if (seq < flow->received || flow->packets[at(seq)] != PACKET_NONE)
		return false;
	flow->packets[at(seq)] = packet;
	flow->highest = (u32)greater(flow->highest, seq + 1);
	while (flow->received < flow->highest && flow->packets[at(flow->received)] != PACKET_NONE) {
		flow->received++;
		flow->unacked++;
	}
	return true;
}

/* A duplicate, or a packet behind a hole, is told at once, as is the end of a hole. */
static bool tells(struct flow *flow, bool had_hole)
{
	if (flow->received == flow->highest) {
		flow->duplicates = 0;
		return had_hole;
	}
	flow->untold = ++flow->duplicates > DUPLICATES;
	return !flow->untold;
}

/* GRO hands the packets that it has joined to TCP. */
static u64 deliver(u64 ns, u32 number)
{
	struct flow *flow = &flows[number];
	bool had_hole = flow->received != flow->highest, repeated = false;

	if (!flow->joined_count)
		return ns;
	counts.merged++;
	ns += model.params.gro_ns;
	for (u32 i = 0; i < flow->joined_count; i++)
		if (!keep(flow, flow->joined[i])) {
			ns = packet_free(ns, flow->joined[i]);
			repeated = true;
		}
	flow->joined_count = 0;
	if (tells(flow, had_hole) || repeated)
		ns = send_ack(ns, number);
	wake(ns, number);
	return ns;
}

u64 net_receive(u64 ns, u32 core, u32 packet)
{
	u32 number = packet_at(packet)->flow;
	struct flow *flow = &flows[number];

	if (number >= model.params.flows) {
		ns = send_acked(ns + model.params.gro_ns, number, packet_at(packet)->seq);
		return packet_free(ns, packet);
	}
	if (flow->joined_count &&
	    packet_at(packet)->seq != packet_at(flow->joined[flow->joined_count - 1])->seq + 1)
		ns = deliver(ns, number);
	flow->joined[flow->joined_count++] = packet;
	if (flow->joined_count == gro_packets)
		ns = deliver(ns, number);
	return ns;
}

u64 net_poll_end(u64 ns, u32 core, bool done)
{
	for (u32 i = core; i < model.params.flows; i += (u32)model.params.queues) {
		if (done)
			ns = deliver(ns, i);
		if (flows[i].untold)
			ns = send_ack(ns, i);
	}
	return ns;
}

/* Counts the requests that a packet ends. Returns the CPU's time behind them. */
static u64 serve(u64 ns, struct flow *flow)
{
	if (!model.params.request_bytes)
		return ns;
	flow->request_bytes += data_bytes;
	while (flow->request_bytes >= model.params.request_bytes) {
		flow->request_bytes -= model.params.request_bytes;
		flow->answers++;
		ns += model.params.request_ns;
	}
	return ns;
}

/*
 * The application writes the answers to all requests of a read at once. While the NIC has a packet
 * with answers, TCP keeps further ones back to send them together (tcp_autocorking).
 */
static u64 answer(u64 ns, u32 number)
{
	struct flow *flow = &flows[number];

	if (!flow->answers)
		return ns;
	flow->answers = 0;
	if (flow->in_nic) {
		flow->corked = true;
		return ns;
	}
	return send_packet(ns, number, true);
}

static u64 read_packet(u64 ns, u32 number)
{
	struct flow *flow = &flows[number];
	u32 packet = flow->packets[at(flow->read)];

	flow->packets[at(flow->read++)] = PACKET_NONE;
	flow->read_bytes -= data_bytes;
	outstanding--;
	counts.bytes += data_bytes;
	ns += data_bytes * model.params.copy_page_ns / XS_PAGE_BYTES;
	return serve(packet_free(ns, packet), flow);
}

/* Begins a read, or as many as it takes for a packet. */
static u64 begin_read(u64 ns, struct flow *flow)
{
	flow->reads = true;
	do {
		flow->read_bytes += model.params.read_bytes;
		ns += model.params.app_read_ns;
	} while (flow->read_bytes < data_bytes);
	return ns;
}

/* As tcp_cleanup_rbuf(): a window of at most a half that a read has doubled is told. */
static bool opens(const struct flow *flow)
{
	u32 now = flow->told - flow->received, next = flow->read + window_packets - flow->received;

	return 2 * now <= window_packets && next >= 2 * now;
}

/* A read that has found less than it has asked for ends, too. */
static u64 end_read(u64 ns, u32 number)
{
	struct flow *flow = &flows[number];

	flow->reads = false;
	if (flow->read == flow->received)
		flow->read_bytes = 0;
	if (flow->unacked > !!flow->answers || opens(flow))
		ns = send_ack(ns, number);
	return answer(ns, number);
}

u64 net_read(u64 ns, u32 number, bool *more, bool *finished)
{
	struct flow *flow = &flows[number];

	if (!flow->reads)
		ns = begin_read(ns, flow);
	for (u32 i = 0; i < SLICE_PACKETS && flow->read_bytes >= data_bytes &&
	     flow->read < flow->received; i++)
		ns = read_packet(ns, number);
	*more = flow->read < flow->received;
	*finished = !*more || flow->read_bytes < data_bytes;
	flow->runs = *more;
	return *finished ? end_read(ns, number) : ns;
}
