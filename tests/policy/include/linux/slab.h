/* SPDX-License-Identifier: GPL-2.0-only */
/* Memory, and the log of a device. */
#ifndef TEST_LINUX_SLAB_H
#define TEST_LINUX_SLAB_H

#include <stdlib.h>

#define kzalloc(bytes, flags)	calloc(1, bytes)
#define kfree(memory)		free(memory)

__attribute__((format(printf, 2, 3)))
void dev_warn(const int *dev, const char *format, ...);

#endif
