/* SPDX-License-Identifier: GPL-2.0-only */
/* Spread of the mapped IOVAs, computed from all mappings. */
#ifndef SCALE_SPREAD_H
#define SCALE_SPREAD_H

#include "platform_scale.h"

/*
 * @live_pages:	mapped pages
 * @blocks:	naturally aligned groups of 64 pages with a mapped page
 * @tables:	page-table pages, groups of 512, with a mapped page
 */
struct spread {
	u64 live_pages;
	u64 blocks;
	u64 tables;
};

/* Compute the spread of the traffic's mappings; fails if two mappings share an IOVA. */
struct spread spread_now(void);

#endif
