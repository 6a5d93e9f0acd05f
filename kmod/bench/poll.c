// SPDX-License-Identifier: GPL-2.0-only
/* A real NAPI poll, run on demand; see poll.h. */
#include <linux/bottom_half.h>
#include <linux/etherdevice.h>
#include <linux/limits.h>
#include <trace/events/napi.h>

#include "clock.h"
#include "poll.h"

static int poll_poll(struct napi_struct *napi, int budget)
{
	struct lab_poll *poll = container_of(napi, struct lab_poll, napi);

	poll->work(poll->context);
	napi_complete_done(napi, 1);
	poll->returned = lab_clock();
	return 1;
}

static void poll_probe(void *data, struct napi_struct *napi, int work, int budget)
{
	struct lab_poll *poll = data;
	u64 now = lab_clock();

	if (napi != &poll->napi)
		return;
	poll->probed = now;
	complete(&poll->done);
}

int lab_poll_create(struct lab_poll *poll)
{
	poll->netdev = alloc_netdev(0, KBUILD_MODNAME, NET_NAME_UNKNOWN, ether_setup);
	if (!poll->netdev)
		return -ENOMEM;
	init_completion(&poll->done);
	netif_napi_add(poll->netdev, &poll->napi, poll_poll);
	napi_enable(&poll->napi);
	return 0;
}

void lab_poll_destroy(struct lab_poll *poll)
{
	napi_disable(&poll->napi);
	netif_napi_del(&poll->napi);
	free_netdev(poll->netdev);
}

int lab_poll_enter(struct lab_poll *poll)
{
	return register_trace_prio_napi_poll(poll_probe, poll, INT_MIN);
}

void lab_poll_leave(struct lab_poll *poll)
{
	unregister_trace_napi_poll(poll_probe, poll);
	tracepoint_synchronize_unregister();
}

void lab_poll_start(struct lab_poll *poll, void (*work)(void *context), void *context)
{
	poll->work = work;
	poll->context = context;
	reinit_completion(&poll->done);
	local_bh_disable();
	napi_schedule(&poll->napi);
	local_bh_enable();
}

void lab_poll_wait(struct lab_poll *poll)
{
	wait_for_completion(&poll->done);
}
