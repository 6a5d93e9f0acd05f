/* SPDX-License-Identifier: GPL-2.0-only */
/* The engine's interface for programs; see path.c. */
#ifndef ENGINE_PATH_H
#define ENGINE_PATH_H

#include <xsmmu/engine.h>

/* As kmod/dma/streaming.c maps and unmaps, with the fast paths of single pages. */
u64 path_map(struct xs_engine *engine, u64 phys, u32 pages, u32 prot);
void path_unmap(struct xs_engine *engine, u64 iova, u32 pages);
void path_unmap_deferred(struct xs_engine *engine, u64 iova, u32 pages);

/* Returns the pages of IOVA that the engine has taken from the space. */
u64 path_taken_pages(const struct xs_engine *engine);

#endif
