/* SPDX-License-Identifier: GPL-2.0-only */
/* Calls of a driver beside those of sim/scale/path.h; see path.c. */
#ifndef NATIVE_DRIVER_H
#define NATIVE_DRIVER_H

#include "../../../sim/scale/path.h"

/* Copy a buffer that the device writes. Returns the IOVA; 0: map the buffer's page instead. */
u64 driver_copy(struct xs_engine *engine, u64 phys, u32 bytes);

/* Undo driver_copy(); false if the buffer was mapped instead. */
bool driver_uncopy(struct xs_engine *engine, u64 iova);

/* Compare the platform with the engine's headers. */
void driver_check_platform(void);

#endif
