/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * A NIC driver's treatment of receive pages: a table of functions for each way, in a file
 * driver_*.c of its own. A descriptor gets its pages when it is posted, and gives them up when all
 * packets in it were processed; packets then may still be in the stack, or in the application's
 * socket.
 *
 * Each function runs on the queue's core and returns the core's time at its end.
 */
#ifndef MODEL_DRIVER_H
#define MODEL_DRIVER_H

#include <xsmmu/needs.h>

#define DESCRIPTOR_PAGES	64u

/*
 * struct descriptor - a receive descriptor
 * @pages:	by number
 * @iova:	first IOVA page, of drivers that map a range
 * @used:	bytes that the NIC has used
 * @parts:	parts of packets that are not processed
 * @closed:	the NIC uses the descriptor no more
 */
struct descriptor {
	u32 pages[DESCRIPTOR_PAGES];
	u64 iova;
	u64 used;
	u32 parts;
	bool closed;
};

/*
 * struct driver_ops - a way
 * @one_packet:	a descriptor takes one packet
 * @init:	set up for all queues; may be NULL
 * @fill:	give a descriptor a mapped page at place @i; called for all places in order
 * @release:	a descriptor gives up the page at place @i; called for all places in order
 * @unref:	the stack has dropped the last reference of a page that the driver does not own
 */
struct driver_ops {
	bool one_packet;
	void (*init)(void);
	u64 (*fill)(u64 ns, u32 queue, struct descriptor *descriptor, u32 i);
	u64 (*release)(u64 ns, u32 queue, struct descriptor *descriptor, u32 i);
	u64 (*unref)(u64 ns, u32 page);
};

/* No recycling: a page is mapped for each use. */
extern const struct driver_ops driver_none;

/*
 * mlx5 of Linux 6.0 (mlx5e_rx_cache_get(), mlx5e_rx_cache_put()): a first-in-first-out cache for
 * each queue. A page enters when its descriptor is done, whether or not the stack has let go, and
 * stays mapped; a full cache takes none, and the page is unmapped. If the first page is still in
 * use, the driver allocates and maps a new page.
 */
extern const struct driver_ops driver_mlx5_cache;

/* The page pool with recycling by the stack: pages come back, mapped, when the stack frees them. */
extern const struct driver_ops driver_page_pool;

/*
 * igb: a packet uses half of a page, and the page is used again at once for the other half if the
 * stack has only this packet; else the page is unmapped.
 */
extern const struct driver_ops driver_half_pages;

/* F&S and FANDS: a range of IOVA for a descriptor, which is unmapped as a whole; no recycling. */
extern const struct driver_ops driver_fands;

/* xSMMU: mlx5's cache; pages that leave it wait on a list for a flush at the end of the poll. */
extern const struct driver_ops driver_xsmmu;

/*
 * Buffers in large pages: 2 MiB are mapped at a time and stay mapped, and their parts of 4 KiB come
 * back when the stack frees them. A translation covers all of a large page.
 */
extern const struct driver_ops driver_large_pages;

/* The point's driver. */
const struct driver_ops *driver(void);

void driver_init(void);

/* A poll ends. */
u64 driver_end(u64 ns, u32 queue);

/*
 * Common parts. driver_new_page() allocates and maps a page. driver_unmap() unmaps a page and lets
 * go of it: at once, or with a batch-aware driver at the end of the poll, after one flush.
 * driver_let_go() ends the driver's ownership, and frees the page if the stack has no reference.
 */
u64 driver_new_page(u64 ns, u32 queue, u32 *page);
u64 driver_unmap(u64 ns, u32 page);
u64 driver_let_go(u64 ns, u32 page);
u64 driver_free_page(u64 ns, u32 page);

/* As driver_unmap() with a batch-aware driver. */
u64 driver_unmap_later(u64 ns, u32 page);

/*
 * struct page_ring - a first-in-first-out ring of pages
 * @room:	most pages
 */
struct page_ring {
	u32 *pages;
	u32 room;
	u32 first;
	u32 count;
};

void page_ring_init(struct page_ring *ring, u32 room);
bool page_ring_put(struct page_ring *ring, u32 page);
/* Returns the first page and takes it off, or only looks; PAGE_NONE if the ring is empty. */
u32 page_ring_get(struct page_ring *ring);
u32 page_ring_first(const struct page_ring *ring);

/* mlx5's cache, for the drivers that have it. */
void driver_cache_init(void);
u64 driver_cache_fill(u64 ns, u32 queue, struct descriptor *descriptor, u32 i);
bool driver_cache_put(u32 queue, u32 page);

#endif
