// SPDX-License-Identifier: GPL-2.0-only
/* The dma_ops instances: see instance.h. ops.c writes the operations. Part of path.c. */
#include <linux/cache.h>

#include "instance.h"

struct xs_ops_instance xs_ops_instances[2 * XS_INSTANCES] __ro_after_init;
struct xs_backend *xs_instance_backends[XS_INSTANCES];

const struct xs_ops_instance *xs_instance_get(struct xs_backend *backend,
					      bool copies)
{
	u32 kind = copies ? XS_INSTANCES : 0;
	u32 i;

	for (i = 0; i < XS_INSTANCES; i++) {
		if (!xs_instance_backends[i]) {
			xs_instance_backends[i] = backend;
			return &xs_ops_instances[kind + i];
		}
	}
	return NULL;
}

void xs_instance_put(const struct xs_ops_instance *instance)
{
	*instance->backend = NULL;
}
