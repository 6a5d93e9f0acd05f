/* SPDX-License-Identifier: GPL-2.0-only */
/* How far the IOVAs of what is mapped are spread, by looking at all of it. */
#ifndef SCALE_SPREAD_H
#define SCALE_SPREAD_H

#include "platform_scale.h"

/*
 * @live_pages:	mapped
 * @blocks:	naturally aligned groups of 64 pages that have any of those
 * @tables:	page-table pages, groups of 512, that have any
 * @last_page:	the highest one
 */
struct spread {
	u64 live_pages;
	u64 mappings;
	u64 blocks;
	u64 tables;
	u64 last_page;
};

/* Of the traffic's mappings; fails if two have the same IOVA. */
struct spread spread_now(void);

#endif
