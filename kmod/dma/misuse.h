/* SPDX-License-Identifier: GPL-2.0-only */
/* Checks of batch-aware drivers, with the parameter debug=1; see misuse.c. */
#ifndef XSMMU_DMA_MISUSE_H
#define XSMMU_DMA_MISUSE_H

#include <linux/device.h>
#include <linux/types.h>

/**
 * xs_debug_unmap - record an unmap without a flush
 * @dev: the device, with the mapping still in place
 * @iova: first byte
 * @bytes: length
 *
 * Context: any.
 */
void xs_debug_unmap(struct device *dev, u64 iova, u64 bytes);

/**
 * xs_debug_flush - check the unmaps that a flush has covered
 * @dev: the device that was flushed
 *
 * Context: any.
 */
void xs_debug_flush(struct device *dev);

/**
 * xs_debug_map - record a map without a flush
 * @dev: the device
 * @iova: first byte of the mapping
 *
 * Context: any.
 */
void xs_debug_map(struct device *dev, u64 iova);

/**
 * xs_debug_flush_maps - forget the maps that a map-side flush has covered
 * @dev: the device that was flushed
 * @all_cpus: the flush covers the maps of all CPUs, not only of the calling CPU
 *
 * Context: any.
 */
void xs_debug_flush_maps(struct device *dev, bool all_cpus);

/**
 * xs_debug_forget - forget a device that is being detached
 * @dev: the device; all its unmaps are flushed
 *
 * Context: any.
 */
void xs_debug_forget(struct device *dev);

#endif
