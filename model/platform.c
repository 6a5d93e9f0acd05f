// SPDX-License-Identifier: GPL-2.0-only
/* What platform_turns.h and modelled.h need of the program. */
#include <stdlib.h>

#include <xsmmu/engine.h>

#include "dma.h"
#include "model.h"

_Static_assert(sizeof(struct xs_counts) <= TURNS_COUNTS_BYTES, "raise TURNS_COUNTS_BYTES");

u32 running_cpu;

void engine_broken(const char *text)
{
	model_broken("%s", text);
}

xs_counts_t *xs_counts_new(void)
{
	return model_new(model.params.cores, TURNS_COUNTS_BYTES);
}

void xs_counts_free(xs_counts_t *memory)
{
	free(memory);
}

/* Slab memory cannot be held; all other memory can. */
xs_ref_t xs_ref_of(u64 phys)
{
	return phys >= DMA_SLAB ? XS_REF_UNHELD : (xs_ref_t)((phys & ~(XS_PAGE_BYTES - 1)) | 8);
}

u32 xs_ref_span(xs_ref_t ref, u64 phys)
{
	return XS_BLOCK_PAGES;
}

bool xs_ref_hold(xs_ref_t ref)
{
	return true;
}

void xs_ref_release(xs_ref_t ref)
{
}
