/* SPDX-License-Identifier: GPL-2.0-only */
/* Memory. */
#ifndef TEST_LINUX_SLAB_H
#define TEST_LINUX_SLAB_H

#include <stdlib.h>

#define kzalloc(bytes, flags)	calloc(1, bytes)
#define kfree(memory)		free(memory)

#endif
