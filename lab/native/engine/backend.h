/* SPDX-License-Identifier: GPL-2.0-only */
/* State of the backend (backend.c) that the harness sets, and what the backend needs. */
#ifndef NATIVE_BACKEND_H
#define NATIVE_BACKEND_H

#include <time.h>

#include "platform_native.h"

/* End of the IOVA space: the table has an entry for each page below. */
#define NATIVE_IOVA_END	(32ULL << 30)

extern u64 *native_table;

/* Time for which a command keeps the queue's lock; 0: nothing waits, and no lock is taken. */
extern u64 native_wait_ns;

/* The pool has asked for bounce buffers. */
extern bool native_short;

/* Order the accesses of all CPUs before the call before the accesses after the call. */
void native_order_all(void);

static inline u64 native_now(void)
{
	struct timespec now;

	clock_gettime(CLOCK_MONOTONIC_RAW, &now);
	return (u64)now.tv_sec * 1000000000 + (u64)now.tv_nsec;
}

#endif
