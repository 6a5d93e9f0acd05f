// SPDX-License-Identifier: GPL-2.0-only
/*
 * The engine as one translation unit, as in the module. This file has all of the programs'
 * knowledge of the engine's internals, and must change with the engine.
 */
#include "../../core/parts.h"

#include "path.h"

u64 path_map(struct xs_engine *engine, u64 phys, u32 pages, u32 prot)
{
	if (pages == 1) {
		xs_enter();
		return xs_engine_map_one(engine, xs_memory_at(phys), phys, prot,
					 ~0ULL);
	}
	return xs_engine_map(engine, phys, pages, prot, ~0ULL);
}

void path_unmap(struct xs_engine *engine, u64 iova, u32 pages)
{
	if (pages == 1)
		xs_engine_unmap_one(engine, iova);
	else
		xs_engine_unmap(engine, iova, pages, false);
}

void path_unmap_deferred(struct xs_engine *engine, u64 iova, u32 pages)
{
	if (pages == 1)
		xs_engine_unmap_one_deferred(engine, iova);
	else
		xs_engine_unmap_deferred(engine, iova, pages);
}

u64 path_taken_pages(const struct xs_engine *engine)
{
	return engine->space.taken * XS_BLOCK_PAGES;
}
