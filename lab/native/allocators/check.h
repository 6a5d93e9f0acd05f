/* SPDX-License-Identifier: GPL-2.0-only */
/* A check of an allocator; see check.c. */
#ifndef ALLOCATORS_CHECK_H
#define ALLOCATORS_CHECK_H

#include "iova.h"

/* Ends the program if the allocator breaks a promise of the interface. */
void check_allocator(const struct iova_allocator *allocator, u64 seed);

#endif
