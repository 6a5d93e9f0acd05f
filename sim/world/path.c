// SPDX-License-Identifier: GPL-2.0-only
/*
 * The engine as one translation unit, as in the module, so that the world can call the engine's
 * inline functions.
 */
#include "../../core/parts.h"

#include "sim.h"

u64 path_map_one(struct xs_engine *engine, u64 phys, u32 prot, u64 last)
{
	xs_enter();
	return xs_engine_map_one(engine, xs_memory_at(phys), phys, prot,
				 last);
}

void path_unmap_one(struct xs_engine *engine, u64 iova)
{
	xs_engine_unmap_one(engine, iova);
}

void path_unmap_one_deferred(struct xs_engine *engine, u64 iova)
{
	xs_engine_unmap_one_deferred(engine, iova);
}
