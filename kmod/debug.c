// SPDX-License-Identifier: GPL-2.0-only
/* Parameters for debugging and for tests. */
#include <linux/atomic.h>
#include <linux/moduleparam.h>

#include "debug.h"

DEFINE_STATIC_KEY_FALSE(xs_debug_key);

static bool debug;

static int set_debug(const char *text, const struct kernel_param *param)
{
	int error = param_set_bool(text, param);

	if (error)
		return error;
	if (debug)
		static_branch_enable(&xs_debug_key);
	else
		static_branch_disable(&xs_debug_key);
	return 0;
}

static const struct kernel_param_ops debug_ops = {
	.flags = KERNEL_PARAM_OPS_FL_NOARG,
	.set = set_debug,
	.get = param_get_bool,
};
module_param_cb(debug, &debug_ops, &debug, 0644);
__MODULE_PARM_TYPE(debug, "bool");
MODULE_PARM_DESC(debug, "find misuse by batch-aware drivers (slow)");

#ifdef XS_FAIL_NTH
static int fail_nth;
module_param(fail_nth, int, 0644);

bool xs_fails(void)
{
	int left = READ_ONCE(fail_nth);

	while (left > 0 && !try_cmpxchg(&fail_nth, &left, left - 1))
		;
	return left == 1;
}

static int refuse;
module_param(refuse, int, 0644);

bool xs_refuses(void)
{
	int left = READ_ONCE(refuse);

	while (left > 0 && !try_cmpxchg(&refuse, &left, left - 1))
		;
	return left > 0;
}
#endif
