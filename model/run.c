// SPDX-License-Identifier: GPL-2.0-only
/* See run.h. */
#include "core.h"
#include "count.h"
#include "cpu.h"
#include "dma.h"
#include "drive.h"
#include "driver.h"
#include "heap.h"
#include "link.h"
#include "model.h"
#include "net.h"
#include "nic.h"
#include "queue.h"
#include "run.h"
#include "send.h"
#include "walk.h"

#define NS_PER_MS	1000000ull
#define EVENTS_MOST	100000000ull

static struct heap heap;

void run_at(u64 ns, enum run_kind kind, u32 at)
{
	heap_add(&heap, ns > model.now_ns ? ns : model.now_ns, kind, at);
}

/* A timer of the DMA API has the core when the core is free, and keeps it until its end. */
static void timer(u32 cpu)
{
	core_charge(cpu, dma_timer(core_free_at(cpu), cpu));
}

static void look_for_work(u32 core)
{
	if (model.params.jobs)
		drive_core(core);
	else
		cpu_run(core);
}

static void dispatch(const struct event *event)
{
	switch ((enum run_kind)event->kind) {
	case RUN_ARRIVE:
		nic_arrive(event->at);
		break;
	case RUN_ACK:
		net_ack_arrives(event->at);
		break;
	case RUN_WIRE:
		net_wire();
		break;
	case RUN_FLOW_TIMER:
		net_timer(event->at);
		break;
	case RUN_NIC:
		nic_run();
		break;
	case RUN_READ:
		nic_read(event->at);
		break;
	case RUN_COMMAND:
		queue_run();
		break;
	case RUN_CORE:
		look_for_work(event->at);
		break;
	case RUN_DMA_TIMER:
		timer(event->at);
		break;
	case RUN_SEND:
		send_read();
		break;
	case RUN_SEND_ARRIVES:
		send_arrives(event->at);
		break;
	case RUN_SEND_TIMER:
		send_timer(event->at);
		break;
	case RUN_DRIVE:
		drive_next(event->at);
		break;
	case RUN_DRIVE_SERVED:
		drive_served(event->at);
		break;
	case RUN_END:
		break;
	}
}

static void run_until(u64 ns)
{
	struct event event;

	run_at(ns, RUN_END, 0);
	while (heap_take(&heap, &event)) {
		model.now_ns = event.ns;
		if (event.kind == RUN_END)
			return;
		if (++model.events > EVENTS_MOST)
			model_broken("more than %llu events: give a smaller time_ms", EVENTS_MOST);
		dispatch(&event);
	}
}

static void init_network(void)
{
	driver_init();
	cpu_init();
	nic_start();
	net_init();
	send_init();
}

static void init(void)
{
	walk_init();
	queue_init();
	dma_init();
	core_init();
	if (model.params.jobs)
		drive_map_rings();
	else
		nic_init();
	dma_age();
	link_init();
	if (model.params.jobs)
		drive_init();
	else
		init_network();
}

u64 run(void)
{
	u64 end = model.params.time_ms * NS_PER_MS, warm = end / 4;

	init();
	run_until(warm);
	counts_reset();
	run_until(end);
	return end - warm;
}
