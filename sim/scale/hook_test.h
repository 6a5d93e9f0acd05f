/* SPDX-License-Identifier: GPL-2.0-only */
/* Accesses of known number; see hook_test.c. */
#ifndef SCALE_HOOK_TEST_H
#define SCALE_HOOK_TEST_H

#include "platform_scale.h"

/* Two lines. */
struct probe_two {
	u64 words[16];
};

void probe_bump(u64 *word);
u64 probe_load(const u64 *word);
void probe_store(u64 *word);
bool probe_swap(xs_atomic64_t *word);
void probe_copy(struct probe_two *to, const struct probe_two *from);

#endif
