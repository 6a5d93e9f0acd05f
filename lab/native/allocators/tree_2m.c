// SPDX-License-Identifier: GPL-2.0-only
/*
 * The kernel's allocator with magazines for ranges of up to 2 MiB, as proposed in 2026. The build
 * changes the one line of iova.c that names the number of orders. The other instance (tree.c) has
 * the file's functions under their own names.
 */
#define IOVA_SECOND
#define IOVA_SOURCE			<iova_2m.c>

#define init_iova_domain		second_init_iova_domain
#define alloc_iova			second_alloc_iova
#define find_iova			second_find_iova
#define __free_iova			second___free_iova
#define free_iova			second_free_iova
#define alloc_iova_fast			second_alloc_iova_fast
#define free_iova_fast			second_free_iova_fast
#define put_iova_domain			second_put_iova_domain
#define reserve_iova			second_reserve_iova
#define iova_rcache_range		second_iova_rcache_range
#define iova_domain_init_rcaches	second_iova_domain_init_rcaches
#define iova_cache_get			second_iova_cache_get
#define iova_cache_put			second_iova_cache_put

#include "tree.c"
