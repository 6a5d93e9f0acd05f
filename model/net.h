/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * TCP, as far as a receiver's throughput needs it. A sequence number is that of a packet; all
 * packets have the size of the MTU.
 *
 * Senders share a wire, which takes segments of up to gro_bytes from them in turn. It carries at
 * most link_mbps, and off_mbps of data if that was measured. A sender has a congestion window (slow
 * start, then a packet each round trip; loss_permille of it left after a loss, by proportional rate
 * reduction), respects the receive window, and sends lost packets first. Once three packets behind
 * a hole have arrived, each packet is lost that was sent before one of those that have arrived
 * (SACK and RACK); all are lost if no ACK has come for a timeout.
 *
 * The receiver joins packets that follow each other in a poll (GRO). TCP hands what is in order to
 * the application, wakes it, and keeps the rest: pages behind a hole stay in use. An ACK goes out
 * at the end of an application's read, and for each packet from GRO that is out of order or that
 * fills a hole; after three for a hole, at the end of a poll. The receive window is what the
 * application has left room for.
 *
 * An application that answers requests writes the answers to those of a read at once; TCP joins
 * what it writes while an earlier answer is in the NIC.
 */
#ifndef MODEL_NET_H
#define MODEL_NET_H

#include "count.h"

/* Size of the buffer of a packet without data. */
#define NET_ACK_BYTES	128u

#define NET_NO_FLOW	(~0u)

void net_init(void);

/* The driver hands on a received packet. Returns the CPU's time at the end. */
u64 net_receive(u64 ns, u32 core, u32 packet);

/* A poll ends; with @done it has found the queue empty, and GRO hands on all that it has. */
u64 net_poll_end(u64 ns, u32 core, bool done);

/**
 * net_read - the application of a flow runs
 * @ns: time of the core
 * @flow: flow
 * @more: set if the flow has more to read
 * @finished: set if a read has ended
 *
 * Return: time at the end.
 */
u64 net_read(u64 ns, u32 flow, bool *more, bool *finished);

/* The NIC has read an ACK's packet, at @ns. */
void net_sent(u64 ns, u32 ack, u64 iova);

/* The CPU has released the buffer of a packet with answers. Returns the CPU's time at the end. */
u64 net_completed(u64 ns, u32 flow);

/* An ACK, and a timer, reach the sender. */
void net_ack_arrives(u32 ack);
void net_timer(u32 flow);

/* The wire is free for the next segment. */
void net_wire(void);

/* Returns what has kept a packet from coming for @gap ns, while the NIC was not in arrears. */
enum limit net_limit(u64 gap);

/* Returns the core of a flow, or of a stream (send.h). */
u32 net_core(u32 flow);

#endif
