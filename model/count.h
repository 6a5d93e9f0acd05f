/* SPDX-License-Identifier: GPL-2.0-only */
/* Counters of a point, from the end of the warm-up on. */
#ifndef MODEL_COUNT_H
#define MODEL_COUNT_H

#include <xsmmu/needs.h>

/* What keeps the NIC from writing the next bytes to memory. */
enum limit {
	LIMIT_LINK,	/* the link, or the measured throughput without an IOMMU, is used up */
	LIMIT_PCIE,	/* PCIe's rate, or its latency with all credits in use */
	LIMIT_WALKS,	/* page walks */
	LIMIT_QUEUE,	/* walks wait for invalidation commands */
	LIMIT_LOCK,	/* CPUs wait for the invalidation queue's lock or for commands */
	LIMIT_CPU,	/* CPUs process packets */
	LIMIT_SENDER,	/* windows, loss recovery, round trips */
	LIMIT_DRIVE,	/* SSDs: their rate, or their time with too few requests */
	LIMIT_COUNT
};

/*
 * struct counts - counters
 * @bytes:	delivered to applications
 * @requests:	of SSDs
 * @sent_bytes:	data that NICs have sent
 * @packets:	that NICs have written to memory
 * @arrived, @dropped: packets that have reached the NIC, and those of them that found no room
 * @resent:	packets sent again
 * @visits, @misses: translations, and those that the IOTLB did not have
 * @l1_misses, @l2_misses, @l3_misses: walks that did not find the entry in the walk cache of the
 *   level; level 3 points to leaf tables
 * @reads:	reads of page tables
 * @acks:	packets sent by receivers
 * @mapped, @unmapped: pages
 * @recycled:	pages that the driver has taken from its cache
 * @commands_page, @commands_domain: invalidation commands
 * @merged:	packets handed to TCP after GRO
 * @polls, @interrupts: of NAPI
 * @busy_ns:	sum of all cores
 * @locked_ns:	part of @busy_ns in which CPUs wait for commands or for the queue's lock
 * @exposed:	pages flushed after their unmap had returned
 * @limits_ns:	time by limit
 */
struct counts {
	u64 bytes;
	u64 requests;
	u64 sent_bytes;
	u64 packets;
	u64 arrived, dropped, resent;
	u64 visits, misses;
	u64 l1_misses, l2_misses, l3_misses;
	u64 reads;
	u64 acks;
	u64 mapped, unmapped;
	u64 recycled;
	u64 commands_page, commands_domain;
	u64 merged;
	u64 polls, interrupts;
	u64 busy_ns;
	u64 locked_ns;
	u64 limits_ns[LIMIT_COUNT];
};

extern struct counts counts;

/* Returns the name of a limit, as in the result. */
const char *limit_name(enum limit limit);

/*
 * Times from an unmap's return to the end of its flush: a histogram with 32 buckets for each power
 * of two of ns, so a quantile is at most 1/32 above the true one.
 */
void exposure_add(u64 ns, u64 pages);

/* Returns the time, in ns, that @permille of 1,000 pages do not exceed; 0 without pages. */
u64 exposure_quantile(u64 permille);

/* Forget all counters: the warm-up is over. */
void counts_reset(void);

#endif
