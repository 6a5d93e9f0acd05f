// SPDX-License-Identifier: GPL-2.0-only
/* See cpu.h. */
#include <stdlib.h>

#include "core.h"
#include "count.h"
#include "cpu.h"
#include "dma.h"
#include "driver.h"
#include "model.h"
#include "net.h"
#include "nic.h"
#include "send.h"

#define SLICE_NS	2000u

/* Parts of a poll, in their order. */
enum phase { PHASE_BEGIN, PHASE_PACKETS, PHASE_SENT, PHASE_REFILL, PHASE_END };

/*
 * struct core - a core
 * @polling:	NAPI is scheduled
 * @poll_ns:	the poll begins no earlier
 * @phase:	of the poll
 * @budget:	packets left of the poll
 * @done:	the poll has found the queue empty
 * @softirq_ns:	time of polls since an application had the core
 * @app_ns:	time of the application's turn so far
 * @app_turn:	polls wait
 * @flows:	flows whose applications can run, first come first served; a ring
 * @sent:	packets whose buffers are not freed, oldest first; a ring
 * @cleaned:	packets of @sent, oldest first, that are unmapped and wait for the poll's flush
 */
struct core {
	bool polling;
	u64 poll_ns;
	enum phase phase;
	u64 budget;
	bool done;
	u64 softirq_ns, app_ns;
	bool app_turn;
	u32 *flows;
	u32 flow_first, flow_count;
	struct cpu_sent *sent;
	u32 sent_first, sent_count, sent_room;
	u32 cleaned;
};

static struct core *cores;
static u32 applications;	/* of all flows and streams */

void cpu_init(void)
{
	applications = (u32)(model.params.flows + model.params.send_flows);
	cores = model_new(model.params.cores, sizeof(*cores));
	for (u64 i = 0; i < model.params.cores; i++) {
		cores[i].flows = model_new(applications, sizeof(u32));
		cores[i].sent_room = 4096;
		cores[i].sent = model_new(cores[i].sent_room, sizeof(struct cpu_sent));
	}
}

void cpu_completion(u32 at, u64 ns)
{
	struct core *core = &cores[at];

	if (core->polling)
		return;
	core->polling = true;
	core->poll_ns = ns + model.params.moderation_ns;
	counts.interrupts++;
	nic_interrupt(at);
	core_wake(at, core->poll_ns);
}

void cpu_wake_application(u32 at, u64 ns, u32 flow)
{
	struct core *core = &cores[at];
	u32 place = (core->flow_first + core->flow_count++) % applications;

	core->flows[place] = flow;
	core_wake(at, ns);
}

static void enlarge(struct core *core)
{
	struct cpu_sent *sent = model_new(2 * core->sent_room, sizeof(*sent));

	for (u32 i = 0; i < core->sent_count; i++)
		sent[i] = core->sent[(core->sent_first + i) % core->sent_room];
	free(core->sent);
	core->sent = sent;
	core->sent_first = 0;
	core->sent_room *= 2;
}

void cpu_sent(u32 at, u64 ns, struct cpu_sent sent)
{
	struct core *core = &cores[at];
	u32 place;

	if (core->sent_count == core->sent_room)
		enlarge(core);
	place = (core->sent_first + core->sent_count++) % core->sent_room;
	sent.ns = ns;
	core->sent[place] = sent;
	cpu_completion(at, ns);
}

/* ---- polls ---- */

/* The next completion, received or sent; 0 if none is under way. */
static u64 next_completion(const struct core *core, u32 at)
{
	u64 received = nic_next_completion(at);
	u64 sent = core->sent_count ? core->sent[core->sent_first].ns : 0;

	return !sent || (received && received < sent) ? received : sent;
}

static u64 poll_packet(struct core *core, u32 at, u64 ns)
{
	u32 packet = core->budget ? nic_completed(at, ns) : PACKET_NONE;

	if (packet == PACKET_NONE) {
		core->done = core->budget;
		core->phase = PHASE_SENT;
		return ns;
	}
	core->budget--;
	nic_processed(at, packet);
	return net_receive(ns + model.params.packet_ns, at, packet);
}

static u64 unmap_sent(u64 ns, struct cpu_sent sent)
{
	if (sent.segment != SEND_NONE)
		return send_clean(ns, sent.segment);
	if (model.params.aware)
		return dma_unmap_later(ns, sent.iova, 1, NET_ACK_BYTES);
	return dma_unmap(ns, sent.iova, 1, NET_ACK_BYTES);
}

/* Frees the buffers of the oldest packet. */
static u64 free_sent(struct core *core, u64 ns)
{
	struct cpu_sent first = core->sent[core->sent_first];

	core->sent_first = (core->sent_first + 1) % core->sent_room;
	core->sent_count--;
	core->cleaned--;
	if (first.segment != SEND_NONE)
		return send_free(ns, first.segment);
	dma_let_go(first.iova);
	return first.flow == NET_NO_FLOW ? ns : net_completed(ns, first.flow);
}

static u64 clean_sent(struct core *core, u64 ns)
{
	struct cpu_sent next = core->sent[(core->sent_first + core->cleaned) % core->sent_room];

	if (core->cleaned == core->sent_count || next.ns > ns) {
		core->phase = PHASE_REFILL;
		return ns;
	}
	ns = unmap_sent(ns, next);
	core->cleaned++;
	return model.params.aware ? ns : free_sent(core, ns);
}

static u64 end_poll(struct core *core, u32 at, u64 ns)
{
	ns = driver_end(net_poll_end(ns, at, core->done), at);
	while (core->cleaned)
		ns = free_sent(core, ns);
	ns = dma_poll_end(ns);
	core->phase = PHASE_BEGIN;
	if (!core->done)
		return ns;
	core->polling = false;
	core->softirq_ns = 0;
	if (next_completion(core, at))
		cpu_completion(at, next_completion(core, at));
	return ns;
}

/* A step of a poll: a packet, or a page of a descriptor. */
static u64 poll(struct core *core, u32 at, u64 ns)
{
	bool more = true;

	switch (core->phase) {
	case PHASE_BEGIN:
		core->budget = model.params.budget;
		core->phase = PHASE_PACKETS;
		counts.polls++;
		return ns + model.params.poll_ns;
	case PHASE_PACKETS:
		return poll_packet(core, at, ns);
	case PHASE_SENT:
		return clean_sent(core, ns);
	case PHASE_REFILL:
		ns = nic_refill(ns, at, &more);
		if (!more)
			core->phase = PHASE_END;
		return ns;
	case PHASE_END:
		return end_poll(core, at, ns);
	}
	return ns;
}

/* ---- applications ---- */

static u64 application(struct core *core, u64 ns)
{
	u32 flow = core->flows[core->flow_first];
	bool more, finished = true;

	if (flow >= model.params.flows)
		ns = send_write(ns, flow, &more);
	else
		ns = net_read(ns, flow, &more, &finished);
	if (more && !finished)
		return ns;
	core->flow_first = (core->flow_first + 1) % applications;
	core->flow_count--;
	if (more)
		core->flows[(core->flow_first + core->flow_count++) % applications] = flow;
	return ns;
}

static bool polls_now(struct core *core)
{
	if (!core->polling || core->poll_ns > model.now_ns)
		return false;
	if (!core->flow_count)
		core->app_turn = false;
	return !core->app_turn;
}

/* Whose turn is next, after @ns of the present turn. */
static void take_turns(struct core *core, bool polled, u64 ns)
{
	if (polled) {
		core->softirq_ns += ns;
		if (core->softirq_ns < model.params.softirq_us * 1000)
			return;
		core->app_turn = true;
	} else {
		core->app_ns += ns;
		if (!core->app_turn || core->app_ns < model.params.app_slice_us * 1000)
			return;
		core->app_turn = false;
	}
	core->softirq_ns = 0;
	core->app_ns = 0;
}

void cpu_run(u32 at)
{
	struct core *core = &cores[at];
	u64 ns = model.now_ns;
	bool polls;

	if (!core_begin(at))
		return;
	polls = polls_now(core);
	if (polls)
		while (core->polling && core->poll_ns <= ns && ns < model.now_ns + SLICE_NS)
			ns = poll(core, at, ns);
	else if (core->flow_count)
		ns = application(core, ns);
	take_turns(core, polls, ns - model.now_ns);
	core_end(at, ns);
	if (core->flow_count || (core->polling && core->poll_ns <= ns))
		core_wake(at, ns);
	else if (core->polling)
		core_wake(at, core->poll_ns);
}
