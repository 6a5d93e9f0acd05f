/* SPDX-License-Identifier: GPL-2.0-only */
/* The DMA operations of attached and of blocked devices. */
#ifndef XSMMU_DMA_OPS_H
#define XSMMU_DMA_OPS_H

#include <linux/init.h>

#include "instance.h"

/* DMA operations of blocked devices: every map and every allocation fails. */
extern const struct dma_map_ops xs_blocked_ops;

/**
 * xs_ops_init - write the DMA operations into all instances
 *
 * Context: module load.
 */
void __init xs_ops_init(void);

/* Checks whether @ops are operations of the module. Context: any. */
static inline bool xs_is_ours(const struct dma_map_ops *ops)
{
	return xs_is_instance(ops) || ops == &xs_blocked_ops;
}

#endif
