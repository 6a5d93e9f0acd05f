// SPDX-License-Identifier: GPL-2.0-only
/*
 * The engine as one translation unit, as in the module. This file has all of the program's
 * knowledge of the engine's internals, and must change with the engine.
 *
 * The labels mark the engine's instructions for step.c. Labels at both ends work because this
 * unit is compiled with -fno-toplevel-reorder.
 */
__asm__(".text\n.globl path_text_begin\npath_text_begin:\n");

#include "../../core/parts.h"

#include "path.h"

u64 path_map_below(struct xs_engine *engine, u64 phys, u32 pages, u64 last)
{
	if (pages == 1) {
		xs_enter();
		return xs_engine_map_one(engine, xs_memory_at(phys), phys, 0,
					 last);
	}
	return xs_engine_map(engine, phys, pages, 0, last);
}

u64 path_map(struct xs_engine *engine, u64 phys, u32 pages)
{
	return path_map_below(engine, phys, pages, ~0ULL);
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

struct path_iova path_iova(struct xs_engine *engine)
{
	struct path_iova iova = {
		.taken_pages = engine->space.taken * XS_BLOCK_PAGES,
		.given_pages = xs_count_given(engine),
	};

	return iova;
}

__asm__(".text\n.globl path_text_end\npath_text_end:\n");
