/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * Data that the machine sends over TCP. An application writes segments of send_bytes (TSO) while
 * the window has room. A segment is a head in slab memory and fragments of at most fragment_bytes,
 * each contiguous and mapped by itself. The NIC reads them page by page, with at most
 * pcie_read_bytes under way or not yet on the wire; once all are sent, the next poll unmaps head
 * and fragments. The other host acknowledges each segment; its ACKs come as received packets.
 *
 * A segment whose mapped parts are more than send_together is unmapped with one flush (CLAIMS A,
 * xSMMU's transmit); else each part is unmapped by itself.
 *
 * Streams have the numbers behind those of the flows of net.h. They are spread over the queues from
 * the last one on, so that with queues enough flows and streams have cores of their own.
 */
#ifndef MODEL_SEND_H
#define MODEL_SEND_H

#include "count.h"
#include "records.h"

#define SEND_NONE	RECORD_NONE	/* no segment */

void send_init(void);

/**
 * send_write - the application of a stream writes a segment
 * @ns: time of the core
 * @stream: number
 * @more: set if the window has room for another segment
 *
 * Return: time at the end.
 */
u64 send_write(u64 ns, u32 stream, bool *more);

/* The NIC may read its next page. */
void send_read(void);

/*
 * The CPU unmaps the buffers of a sent segment, and frees them: with a batch-aware driver after the
 * flush at the poll's end. Both return the CPU's time at the end.
 */
u64 send_clean(u64 ns, u32 segment);
u64 send_free(u64 ns, u32 segment);

/* The other host has received a segment: an ACK is on its way. */
void send_arrives(u32 stream);

/* The CPU has an ACK of all segments of a stream below @end. Returns the time at the end. */
u64 send_acked(u64 ns, u32 stream, u32 end);

/* Returns what keeps the machine from sending more. */
enum limit send_limit(void);

/* The timer of a stream: without an ACK the last segment is sent again, which is acknowledged. */
void send_timer(u32 stream);

#endif
