/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * The calls of the DMA API in the world of a device: as the module's DMA layer (kmod/dma) calls
 * the engine, or as the kernel's own path does (kernel.h).
 *
 * Scatter lists have no padding here, because a recording does not have the device's segment
 * boundary. A list of one entry is a buffer. Devices reach all IOVAs, and nothing is privileged.
 */
#ifndef REPLAY_CALLS_H
#define REPLAY_CALLS_H

#include <xsmmu/needs.h>

struct world;

/*
 * struct part - a part of memory that is mapped, contiguous
 * @page:	identity of the first page; 0: not known
 * @bytes:	size
 * @offset:	in the first page, in bytes
 * @flags:	TRACE_* bits
 */
struct part {
	u64 page;
	u64 bytes;
	u32 offset;
	u8 flags;
};

/* Returns the number of pages of a part; 0 if the part is empty or larger than a mapping can be. */
u32 part_pages(const struct part *part);

/* Map; set IOVA, pages and way of a mapping that mapping_new() has made. */
void call_map(struct world *world, u32 mapping, const struct part *part);
void call_map_list(struct world *world, u32 mapping, const struct part *parts, u32 count);
void call_alloc(struct world *world, u32 mapping, const struct part *part);

/* Reserve IOVAs for a range; under a policy nothing, because the module declines. */
void call_range(struct world *world, u32 mapping);

/* Map a link at @offset bytes of a range. */
void call_link(struct world *world, u32 mapping, u32 range, const struct part *part);

/* Unmap as the mapping was made; the caller drops the mapping. */
void call_unmap(struct world *world, u32 mapping);

/* In the kernel's modes: tests whether the first @bytes of a range, and no others, are linked. */
bool call_is_whole(struct world *world, u32 range, u64 bytes);

/* In the kernel's modes: unmap the first @bytes of a range, and free the range. */
void call_unmap_range(struct world *world, u32 range, u64 bytes);

/* In the kernel's modes: free a range without links. */
void call_free_range(struct world *world, u32 range);

/* A sync of a buffer that may be copied. */
void call_sync(struct world *world, u32 mapping, u64 bytes, bool to_device);

#endif
