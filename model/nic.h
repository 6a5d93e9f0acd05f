/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * The NIC: a buffer that all queues share and that is emptied in order, and for each queue a ring
 * of descriptors, a list of completions and control rings. A packet takes whole strides of a
 * descriptor; one that does not fit in the rest of a descriptor begins in the next, unless it is
 * larger than a descriptor.
 *
 * The NIC visits pages of control rings as real ones do: a completion for each packet received and
 * sent, a send descriptor for each packet sent, a receive descriptor, and an event for each
 * interrupt; 64 bytes each.
 */
#ifndef MODEL_NIC_H
#define MODEL_NIC_H

#include "packet.h"

/* Control rings of a queue. */
enum nic_ring { RING_RECEIVE, RING_COMPLETION, RING_SEND, RING_SENT, RING_EVENT, RING_COUNT };

/* Map the control rings, as a driver does when it is loaded. */
void nic_init(void);

/* Post all descriptors. */
void nic_start(void);

/* A packet has come over the wire. */
void nic_arrive(u32 packet);

/* The NIC may write its next bytes. */
void nic_run(void);

/* Returns the next packet whose completion the CPU sees at @ns; PACKET_NONE. */
u32 nic_completed(u32 queue, u64 ns);

/* Returns the time of the queue's next completion; 0 if there is none under way. */
u64 nic_next_completion(u32 queue);

/* Returns the number of packets with completions that the CPU has not taken. */
u32 nic_waiting(void);

/* The CPU has processed a packet: the stack now holds its pages. */
void nic_processed(u32 queue, u32 packet);

/*
 * Release or post a page of descriptors that are done. Returns the CPU's time at the end; @more is
 * cleared if there is nothing left to do.
 */
u64 nic_refill(u64 ns, u32 queue, bool *more);

/* Have the NIC send a packet whose data are in an IOVA page, from @ns on; see net_sent(). */
void nic_send(u64 ns, u32 queue, u32 ack, u64 iova);

/* Returns the IOVA page of the next send descriptor; has a sent packet's completion written. */
u64 nic_next_send(u32 queue);
void nic_write_sent(u32 queue);

/* A read of the NIC begins: of a posted descriptor, or of a packet to send. */
void nic_read(u32 number);

/* The NIC tells the queue's CPU of a completion. */
void nic_interrupt(u32 queue);

#endif
