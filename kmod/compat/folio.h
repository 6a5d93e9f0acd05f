/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * Can a stale page pointer lead to a read-only page struct? While huge pages
 * gave their tail page structs back as copies of the head (e7d324850bfc, "mm:
 * hugetlb: free the 2nd vmemmap page", 5.18, to 6.19), if that was switched on.
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

/* Memory of kmalloc() that is no slab has no references since 6.15, and a type of its own. */
#ifdef XS_HAVE_LARGE_KMALLOC
#define xs_is_large_kmalloc(folio)	folio_test_large_kmalloc(folio)
#else
#define xs_is_large_kmalloc(folio)	false
#endif

#endif
