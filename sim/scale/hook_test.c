// SPDX-License-Identifier: GPL-2.0-only
/*
 * Functions with a known number of accesses, compiled like the engine: tests that the compiler
 * calls the hooks for each access, and how hooks count.
 */
#include "hook_test.h"

void probe_bump(u64 *word)
{
	(*word)++;
}

u64 probe_load(const u64 *word)
{
	return *word;
}

void probe_store(u64 *word)
{
	*word = 1;
}

bool probe_swap(xs_atomic64_t *word)
{
	u64 old = 0;

	return xs_a64_try(word, &old, 1);
}

void probe_copy(struct probe_two *to, const struct probe_two *from)
{
	*to = *from;
}
