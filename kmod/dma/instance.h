/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * The dma_ops instances of attached devices, and the backend behind each.
 */
#ifndef XSMMU_DMA_INSTANCE_H
#define XSMMU_DMA_INSTANCE_H

#include <linux/dma-map-ops.h>

#include "../domain/domain.h"

/*
 * Number of groups that can be attached at a time. Each has two instances: the operations of
 * one map all buffers, and the operations of the other copy small buffers (bounce.c).
 */
#define XS_INSTANCES	256

/**
 * struct xs_ops_instance - the dma_ops of the devices of one group; constant after load
 * @ops:	DMA operations, the same in all instances of a kind
 * @backend:	where to find the group's backend, without a look-up
 */
struct xs_ops_instance {
	struct dma_map_ops ops;
	struct xs_backend **backend;
};

extern struct xs_ops_instance xs_ops_instances[2 * XS_INSTANCES];
extern struct xs_backend *xs_instance_backends[XS_INSTANCES];

/**
 * xs_instance_get - take a free dma_ops instance for a group
 * @backend: backend of the group
 * @copies: the operations are to copy small buffers
 *
 * Context: xs_mutex.
 * Return: the instance; NULL if XS_INSTANCES groups are attached.
 */
const struct xs_ops_instance *xs_instance_get(struct xs_backend *backend,
					      bool copies);

/**
 * xs_instance_put - give an instance back
 * @instance: the instance; no device has its operations any more
 *
 * Context: xs_mutex.
 */
void xs_instance_put(const struct xs_ops_instance *instance);

/* Checks whether @ops are the operations of an instance. Context: any. */
static inline bool xs_is_instance(const struct dma_map_ops *ops)
{
	return (uintptr_t)ops - (uintptr_t)xs_ops_instances < sizeof(xs_ops_instances);
}

/* Checks whether @ops copy small buffers. Context: any. */
static inline bool xs_instance_copies(const struct dma_map_ops *ops)
{
	return (uintptr_t)ops - (uintptr_t)&xs_ops_instances[XS_INSTANCES] <
	       sizeof(xs_ops_instances) / 2;
}

/* The backend of an instance; NULL if its group was detached. Context: any. */
static inline struct xs_backend *xs_instance_backend(const struct dma_map_ops *ops)
{
	return *container_of(ops, struct xs_ops_instance, ops)->backend;
}

/**
 * xs_backend_of - the backend of an attached device, for callers that hold a mapping
 * @dev: the device
 *
 * A group with a mapping is not detached.
 *
 * Context: any.
 */
static inline struct xs_backend *xs_backend_of(struct device *dev)
{
	return xs_instance_backend(dev->dma_ops);
}

/**
 * xs_backend_now - the backend of a device that may have been detached
 * @dev: the device
 *
 * For callers without a mapping, such as a late thread of the driver.
 *
 * Context: an RCU section of the engine or an SRCU section of &xs_backend_srcu. The backend stays
 * until the end of the section.
 * Return: the backend; NULL if the device is not attached.
 */
static inline struct xs_backend *xs_backend_now(struct device *dev)
{
	const struct dma_map_ops *ops = READ_ONCE(dev->dma_ops);

	return xs_is_instance(ops) ? xs_instance_backend(ops) : NULL;
}

#endif
