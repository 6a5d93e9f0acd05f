/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * Where the kernel has struct page of a page, which differs from boot to boot.
 */
#ifndef RECORD_PLACE_H
#define RECORD_PLACE_H

#include <stdint.h>

/* The address of the kernel variable that has the place, 0 if there is none or it is not shown. */
uint64_t place_symbol(void);

/* Why the place is not known, if it is not. */
extern const char place_unknown[];

/* The address of struct page of page frame 0, given that variable's value; 0 if it is not known. */
uint64_t place_vmemmap(uint64_t value);

#endif
