/* SPDX-License-Identifier: GPL-2.0-only */
/* The part of Linux that kmod/policy needs, for tests of its decisions in userspace. */
#ifndef TEST_LINUX_TYPES_H
#define TEST_LINUX_TYPES_H

#include <xsmmu/needs.h>

struct list_head {
	struct list_head *next, *prev;
};

#endif
