/* SPDX-License-Identifier: GPL-2.0-only */
/* Parameters for debugging and for tests. */
#ifndef XSMMU_DEBUG_H
#define XSMMU_DEBUG_H

#include <linux/jump_label.h>
#include <linux/types.h>

/* Checks whether the parameter debug is set. Context: any. */
DECLARE_STATIC_KEY_FALSE(xs_debug_key);
#define xs_debug_on()	static_branch_unlikely(&xs_debug_key)

/*
 * Fault injection, in builds for tests only (-DXS_FAIL_NTH). xs_fails() is true for the n-th
 * allocation or map after fail_nth=n was written. xs_refuses() is true for each of the next n
 * removals after refuse=n was written. Context: any.
 */
#ifdef XS_FAIL_NTH
#define XS_REFUSES	true
bool xs_fails(void);
bool xs_refuses(void);
#else
#define XS_REFUSES	false
static inline bool xs_fails(void)
{
	return false;
}

static inline bool xs_refuses(void)
{
	return false;
}
#endif

#endif
