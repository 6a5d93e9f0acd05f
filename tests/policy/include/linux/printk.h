/* SPDX-License-Identifier: GPL-2.0-only */
/* The log: each test program has its own. */
#ifndef TEST_LINUX_PRINTK_H
#define TEST_LINUX_PRINTK_H

struct device;

/* Formats are not checked: Linux's s64 is a long long. */
void test_log(const char *format, ...);

#define pr_err(...)		test_log(__VA_ARGS__)
#define dev_err(dev, ...)	((void)(dev), test_log(__VA_ARGS__))
#define dev_warn(dev, ...)	((void)(dev), test_log(__VA_ARGS__))

#endif
