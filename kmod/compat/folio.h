/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * xs_fake_heads() - whether a stale page pointer may lead to a read-only page struct
 *
 * From 5.18 (e7d324850bfc, "mm: hugetlb: free the 2nd vmemmap page") to 6.19, huge pages can
 * give back their tail page structs, which then are read-only copies of the head, if the
 * administrator has switched the feature on.
 */
#ifndef XSMMU_COMPAT_FOLIO_H
#define XSMMU_COMPAT_FOLIO_H

#include <linux/jump_label.h>
#include <linux/page-flags.h>

#if defined(XS_HAVE_FAKE_HEADS) && \
	defined(CONFIG_HUGETLB_PAGE_OPTIMIZE_VMEMMAP)
#define xs_fake_heads()	static_branch_unlikely(&hugetlb_optimize_vmemmap_key)
#else
#define xs_fake_heads()	false
#endif

/* Since 6.15, memory of kmalloc() that is not in a slab has a type, and no references. */
#ifdef XS_HAVE_LARGE_KMALLOC
#define xs_is_large_kmalloc(folio)	folio_test_large_kmalloc(folio)
#else
#define xs_is_large_kmalloc(folio)	false
#endif

#endif
