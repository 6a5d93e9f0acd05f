// SPDX-License-Identifier: GPL-2.0-only
/*
 * Functions that libelf.a of elfutils 0.192 calls and does not have
 * (https://sourceware.org/PR32293), for the static program. A search tree of elfutils begins with
 * the root for tsearch(); one thread uses it here, so its lock is not taken.
 */
#include <search.h>
#include <stddef.h>

void eu_search_tree_init(void **root);
void eu_search_tree_fini(void **root, void (*free_node)(void *node));
void *eu_tsearch(const void *key, void **root, int (*compare)(const void *, const void *));
void *eu_tdelete(const void *key, void **root, int (*compare)(const void *, const void *));

void __attribute__((weak)) eu_search_tree_init(void **root)
{
	*root = NULL;
}

void __attribute__((weak)) eu_search_tree_fini(void **root, void (*free_node)(void *node))
{
	tdestroy(*root, free_node);
}

void *__attribute__((weak)) eu_tsearch(const void *key, void **root,
				       int (*compare)(const void *, const void *))
{
	return tsearch(key, root, compare);
}

void *__attribute__((weak)) eu_tdelete(const void *key, void **root,
				       int (*compare)(const void *, const void *))
{
	return tdelete(key, root, compare);
}
