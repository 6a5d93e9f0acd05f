// SPDX-License-Identifier: GPL-2.0-only
/*
 * The backend and the engine as one translation unit, as in the module (kmod/path.c), and the
 * calls of a driver, which the module makes in the same way (kmod/dma/streaming.c, bounce.c).
 */
#include "backend.c"
#include "../../../sim/scale/path.c"
#include "driver.h"

_Static_assert(sizeof(struct xs_counts) <= NATIVE_COUNTS_BYTES, "raise NATIVE_COUNTS_BYTES");

u64 driver_copy(struct xs_engine *engine, u64 phys, u32 bytes)
{
	u64 iova = 0;

	xs_enter();
	if (xs_likely(bytes <= xs_load(&engine->tuning.copy_bytes)))
		iova = xs_pool_map_one(&engine->pool, phys, bytes, XS_DIRECTION_WRITE, ~0ULL, 0,
				       true);
	xs_exit();
	return iova;
}

bool driver_uncopy(struct xs_engine *engine, u64 iova)
{
	if (!xs_pool_has(&engine->pool, iova))
		return false;
	xs_enter();
	if (xs_unlikely(!xs_pool_unmap_one(&engine->pool, iova, true)))
		native_fail("an unmap of a copy that is not there");
	xs_exit();
	return true;
}

void driver_check_platform(void)
{
	if (NATIVE_UNHELD != XS_REF_UNHELD)
		native_fail("NATIVE_UNHELD is not XS_REF_UNHELD");
}
