// SPDX-License-Identifier: GPL-2.0-only
/* No allocator: the IOVA is the physical address. */
#include "iova.h"

static void *make_identity(u32 cpus, u64 end)
{
	(void)cpus;
	(void)end;
	return program_alloc(1);
}

static u64 identity_alloc(void *state, const struct iova_request *request)
{
	(void)state;
	if (request->phys + ((u64)request->pages << IOVA_PAGE_LG2) - 1 > request->last)
		return 0;
	return request->phys;
}

static void identity_free(void *state, u64 iova, u32 pages)
{
	(void)state;
	(void)iova;
	(void)pages;
}

static struct iova_shape identity_shape(void *state)
{
	(void)state;
	return (struct iova_shape) { 0 };
}

static u64 identity_left(void *state)
{
	(void)state;
	return 0;
}

const struct iova_allocator iova_identity = {
	.name = "identity",
	.make = make_identity,
	.alloc = identity_alloc,
	.free = identity_free,
	.shape = identity_shape,
	.left = identity_left,
};
