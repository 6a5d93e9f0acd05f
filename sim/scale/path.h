/* SPDX-License-Identifier: GPL-2.0-only */
/* The engine's interface for the workloads; see path.c. */
#ifndef SCALE_PATH_H
#define SCALE_PATH_H

#include <xsmmu/engine.h>

/*
 * Use of the IOVA space, in pages.
 * @taken_pages: in blocks that were taken from the space
 * @given_pages: of those, mapped, dead or in a large mapping's rest;
 *	neither in a magazine nor in an open block's rest
 */
struct path_iova {
	u64 taken_pages;
	u64 given_pages;
};

u64 path_map(struct xs_engine *engine, u64 phys, u32 pages);
u64 path_map_below(struct xs_engine *engine, u64 phys, u32 pages, u64 last);
void path_unmap(struct xs_engine *engine, u64 iova, u32 pages);
void path_unmap_deferred(struct xs_engine *engine, u64 iova, u32 pages);
struct path_iova path_iova(struct xs_engine *engine);

/* Begin and end of the engine's instructions. */
extern const char path_text_begin[], path_text_end[];

#endif
