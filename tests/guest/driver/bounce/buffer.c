// SPDX-License-Identifier: GPL-2.0-only
/* A buffer as the driver maps it and as the device finds it. */
#include <linux/delay.h>
#include <linux/dma-mapping.h>
#include <linux/iommu.h>
#include <linux/scatterlist.h>

#include "bounce.h"

/* Returns the memory behind @iova; NULL if the page is not mapped. */
u8 *found(struct device *dev, dma_addr_t iova)
{
	phys_addr_t phys = iommu_iova_to_phys(iommu_get_domain_for_dev(dev), iova);

	return phys ? phys_to_virt(phys) : NULL;
}

/* Returns the number of @bytes in the page of @iova; found() translates all of them. */
size_t in_page(dma_addr_t iova, size_t bytes)
{
	return min(bytes, PAGE_SIZE - offset_in_page(iova));
}

/* Writes as the device would, without a check of the IOMMU's permissions. */
void writes(struct device *dev, dma_addr_t iova, size_t bytes, u8 value)
{
	size_t at, part;

	for (at = 0; at < bytes; at += part) {
		part = in_page(iova + at, bytes - at);
		memset(found(dev, iova + at), value, part);
	}
}

bool is_like(struct device *dev, dma_addr_t iova, const u8 *bytes, size_t count)
{
	size_t at, part;

	for (at = 0; at < count; at += part) {
		part = in_page(iova + at, count - at);
		if (memcmp(found(dev, iova + at), bytes + at, part))
			return false;
	}
	return true;
}

bool is_filled(const u8 *bytes, size_t count, u8 value)
{
	return !memchr_inv(bytes, value, count);
}

bool is_copied(struct device *dev, const struct buffer *buffer)
{
	return found(dev, buffer->iova) != buffer->memory;
}

/* Does nothing if @buffer is not mapped, so that a failed check can end with an unmap. */
void unmap(struct device *dev, struct buffer *buffer, unsigned long attrs)
{
	if (buffer->is_mapped)
		dma_unmap_single_attrs(dev, buffer->iova, buffer->bytes, buffer->dir, attrs);
	buffer->is_mapped = false;
}

/*
 * Maps @buffer, and while the module does not copy, unmaps and maps again, @tries times in all:
 * the first maps of a kind may come before the pool has memory.
 */
int map_soon(struct device *dev, struct buffer *buffer, unsigned long attrs, u32 tries)
{
	for (u32 try = 1;; try++) {
		buffer->iova = dma_map_single_attrs(dev, buffer->memory, buffer->bytes,
						    buffer->dir, attrs);
		if (dma_mapping_error(dev, buffer->iova))
			return wrong(dev, "dma_map_single() failed");
		buffer->is_mapped = true;
		if (is_copied(dev, buffer) || try == tries)
			return 0;
		unmap(dev, buffer, attrs);
		msleep(20);
	}
}

int map(struct device *dev, struct buffer *buffer, bool copied)
{
	int error = map_soon(dev, buffer, 0, copied ? TRIES : 1);

	if (error || is_copied(dev, buffer) == copied)
		return error;
	unmap(dev, buffer, 0);
	return wrong(dev, copied ? "a small buffer is not copied" : "a large buffer is copied");
}

/* As map_soon(), for a list. Returns the number of DMA segments. */
int map_list_soon(struct device *dev, struct scatterlist *list, int segments,
			 enum dma_data_direction dir, unsigned long attrs, u32 tries)
{
	for (u32 try = 1;; try++) {
		int count = dma_map_sg_attrs(dev, list, segments, dir, attrs);

		if (!count)
			return wrong(dev, "dma_map_sg() failed");
		if (found(dev, sg_dma_address(list)) != sg_virt(list) || try == tries)
			return count;
		dma_unmap_sg_attrs(dev, list, segments, dir, attrs);
		msleep(20);
	}
}

/* Maps and unmaps a buffer; returns whether the map succeeded. */
bool can_map(struct device *dev, struct buffer *buffer)
{
	dma_addr_t iova = dma_map_single(dev, buffer->memory, buffer->bytes, buffer->dir);

	if (dma_mapping_error(dev, iova))
		return false;
	dma_unmap_single(dev, iova, buffer->bytes, buffer->dir);
	return true;
}
