/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * Cores with a NIC; core.h has their time. Core i polls queue i (NAPI) and runs the applications
 * of the queue's flows. A completion while the core does not poll raises an interrupt, after
 * moderation_ns. Polls go before applications until they have had the core for softirq_us; then
 * ksoftirqd competes, and an application that can run has the core for app_slice_us.
 *
 * A core works in slices of a few packets, so the order of events on two cores may be wrong by the
 * length of a slice, some us.
 */
#ifndef MODEL_CPU_H
#define MODEL_CPU_H

#include <xsmmu/needs.h>

void cpu_init(void);

/* The queue has a completion that CPUs see from @ns on. */
void cpu_completion(u32 core, u64 ns);

/* The application of a flow can read. */
void cpu_wake_application(u32 core, u64 ns, u32 flow);

/* The core looks for work. */
void cpu_run(u32 core);

/*
 * struct cpu_sent - a packet that the NIC has sent
 * @ns:		time of the completion
 * @segment:	of send.h; SEND_NONE: a packet without data
 * @iova:	of a packet without data
 * @flow:	that net_completed() is told; NET_NO_FLOW
 */
struct cpu_sent {
	u64 ns;
	u32 segment;
	u32 flow;
	u64 iova;
};

/* The NIC has sent a packet; CPUs see the completion from @ns on. */
void cpu_sent(u32 core, u64 ns, struct cpu_sent sent);

#endif
