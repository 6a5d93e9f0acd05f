/* SPDX-License-Identifier: GPL-2.0-only */
/* The event loop of a point. */
#ifndef MODEL_RUN_H
#define MODEL_RUN_H

#include <xsmmu/needs.h>

/* Kinds of events; what the number of each names. */
enum run_kind {
	RUN_ARRIVE,	/* packet (net.h): a packet reaches the NIC */
	RUN_ACK,	/* acknowledgement (net.h): an ACK reaches the sender */
	RUN_WIRE,	/* nothing: the wire is free for the next segment */
	RUN_FLOW_TIMER,	/* flow */
	RUN_NIC,	/* nothing: the NIC may write its next bytes */
	RUN_CORE,	/* core: the core looks for work */
	RUN_READ,	/* read (nic.h): a read of the NIC begins */
	RUN_COMMAND,	/* nothing: the hardware takes the next command from the queue */
	RUN_DMA_TIMER,	/* CPU */
	RUN_SEND,	/* nothing: the NIC may read the next page that it sends */
	RUN_SEND_ARRIVES, /* stream: the other host has a segment */
	RUN_SEND_TIMER,	/* stream */
	RUN_DRIVE,	/* drive: a request has come, or another has ended */
	RUN_DRIVE_SERVED, /* request */
	RUN_END,	/* nothing: a part of the run ends */
};

/* Have an event happen at @ns, or now if that is later. */
void run_at(u64 ns, enum run_kind kind, u32 at);

/* Run the point. Returns the time that was measured, in ns. */
u64 run(void);

#endif
