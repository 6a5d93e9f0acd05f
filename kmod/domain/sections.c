// SPDX-License-Identifier: GPL-2.0-only
/*
 * The wait for readers on the DMA path: RCU sections of the engine, and SRCU sections of calls that
 * take long. Part of path.c.
 */
#include <linux/rcupdate.h>
#include <linux/srcu.h>

#include "domain.h"

DEFINE_SRCU(xs_backend_srcu);

static void backend_quiesce(void *data)
{
	synchronize_rcu();
	synchronize_srcu(&xs_backend_srcu);
}
