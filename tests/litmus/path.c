// SPDX-License-Identifier: GPL-2.0-only
/*
 * The engine as one translation unit, as in the module, so that programs can call the engine's
 * inline functions.
 */
#include "../../core/parts.h"

#include "litmus_world.h"

u64 path_map_one(u64 phys)
{
	return xs_engine_map(&engine, phys, 1, 3, ~0ULL);
}

void path_unmap_one(u64 iova)
{
	xs_engine_unmap_one(&engine, iova);
}

void path_unmap_one_deferred(u64 iova)
{
	xs_engine_unmap_one_deferred(&engine, iova);
}
