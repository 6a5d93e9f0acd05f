/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * The NIC's PCIe link. Posted writes are translated as they arrive and end in order: a write whose
 * translation waits for a walk holds up all later ones. A write goes in PCIe packets of 256 bytes:
 * its translation begins with the first, and each goes when its credits are there. The credits of a
 * write are free again pcie_latency_ns after its data are visible. Reads are translated beside the
 * writes and use no credits.
 */
#ifndef MODEL_LINK_H
#define MODEL_LINK_H

#include "count.h"

void link_init(void);

/**
 * link_ready_at - time at which the next write can begin
 * @ns: time
 * @bytes: size of the write, at most pcie_credit_bytes
 * @limit: set to what the write waits for; only if it waits
 *
 * Return: time at which the link is free and the first PCIe packet has credits; @ns if that is now.
 */
u64 link_ready_at(u64 ns, u64 bytes, enum limit *limit);

/**
 * link_write - write to memory
 * @ns: time, at which link_ready_at() is @ns
 * @page: IOVA page
 * @bytes: size, within the page
 *
 * Return: time at which the data are visible to CPUs.
 */
u64 link_write(u64 ns, u64 page, u64 bytes);

/* Read from memory. Returns the time at which the NIC has the data. */
u64 link_read(u64 ns, u64 page);

#endif
