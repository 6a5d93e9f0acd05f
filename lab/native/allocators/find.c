// SPDX-License-Identifier: GPL-2.0-only
/* The list of all allocators. */
#include <string.h>

#include "iova.h"

static const struct iova_allocator *const allocators[] = {
	&iova_tree, &iova_merged, &iova_cached, &iova_cached_2m, &iova_maple,
	&iova_magazines, &iova_blocks, &iova_identity,
};

const struct iova_allocator *iova_find(const char *name)
{
	for (size_t i = 0; i < sizeof(allocators) / sizeof(allocators[0]); i++)
		if (!strcmp(allocators[i]->name, name))
			return allocators[i];
	return NULL;
}
