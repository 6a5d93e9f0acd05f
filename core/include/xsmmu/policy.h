/* SPDX-License-Identifier: GPL-2.0 OR MIT */
/*
 * A policy is five choices: where mappings are placed, what causes a sync, what a
 * sync invalidates, what is held until then, and up to which size buffers are copied
 * instead. Policies are rows of one table; nothing in the engine knows one by name.
 */
#ifndef XSMMU_POLICY_H
#define XSMMU_POLICY_H

#include <xsmmu/needs.h>

/* Where a mapping gets its IOVA. */
enum xs_placement {
	XS_PLACE_PAGE,	/* its own, from per-CPU magazines */
	XS_PLACE_BLOCK,	/* the next pages of this CPU's open block */
};

/* What can cause a sync. An unmap before any of them is deferred. */
enum xs_sync {
	XS_SYNC_UNMAP,		/* inside the unmap itself */
	XS_SYNC_BLOCK,		/* the last page of a block was unmapped */
	XS_SYNC_POLL,		/* a NAPI poll ended on this CPU */
	XS_SYNC_FULL,		/* the batch reached its threshold */
	XS_SYNC_TIME,		/* the oldest deferred unmap reached its bound */
	XS_SYNC_EXPLICIT,	/* the driver asked */
	XS_SYNC_DRAIN,		/* detach, policy change, CPU off-line */
	XS_SYNC_COUNT
};

#define XS_SYNC_BIT(point) (1u << (point))

/* Beside them, never in the table: ordinary unmaps, too, sync inside themselves. */
#define XS_SYNC_ORDINARY	(1u << 31)

/* What a sync invalidates. */
enum xs_scope {
	XS_SCOPE_RANGE,		/* each range, page-walk caches kept if legal */
	XS_SCOPE_DOMAIN,	/* one domain-selective command */
	XS_SCOPE_AUTO,		/* ranges while cheaper, else the domain */
};

/* What is kept from reuse until the sync. IOVAs always are. */
enum xs_hold {
	XS_HOLD_IOVA,
	XS_HOLD_PAGES,		/* IOVAs and pages */
};

/* What a policy guarantees, weakest first. */
enum xs_level {
	XS_LEVEL_NONE,		/* not ours */
	XS_LEVEL_LAZY,		/* may outlive the reuse of the page */
	XS_LEVEL_BOUNDED,	/* ends by the next sync point or the bound */
	XS_LEVEL_HELD,		/* and the page is not given back before */
	XS_LEVEL_STRICT,	/* nothing stale when the unmap returns */
};

/*
 * struct xs_policy - one row
 * @name:	as the user spells it
 * @syncs:	XS_SYNC_BIT()s of the sync points
 * @window_us:	default bound on the age of a deferred unmap, > 0 if any
 *		sync point but UNMAP is set
 * @ranges_max:	of XS_SCOPE_AUTO, set where the row is in force: more ranges than
 *		this become one domain command
 * @batch_pages: default threshold of XS_SYNC_FULL, in pages; every deferring
 *		policy has one, for the batch is finite
 * @copy_bytes:	default of the largest buffer that is copied (pool.h), 0 for none
 */
struct xs_policy {
	const char *name;
	enum xs_placement placement;
	u32 syncs;
	enum xs_scope scope;
	enum xs_hold hold;
	u32 ranges_max;
	u32 window_us;
	u32 batch_pages;
	u32 copy_bytes;
};

/* The table, strictest first. */
extern const struct xs_policy xs_policies[];
extern const u32 xs_policy_count;

/* The row called @name, NULL if there is none. */
const struct xs_policy *xs_policy_find(const char *name);

/*
 * The level that @policy gives a driver, never rounded up. @batch_aware: the
 * driver syncs explicitly before it frees or hands on its buffers.
 */
enum xs_level xs_policy_level(const struct xs_policy *policy, bool batch_aware);

/*
 * Does @policy defer the unmaps of a batch-aware driver until the driver's sync
 * or an earlier one, and is that sync one?
 */
static inline bool xs_policy_waits(const struct xs_policy *policy)
{
	return policy->syncs & XS_SYNC_BIT(XS_SYNC_EXPLICIT);
}

/* "none", "lazy", "bounded", "held" or "strict". */
const char *xs_level_name(enum xs_level level);

/* "unmap", "block", "poll", "full", "time", "explicit" or "drain". */
const char *xs_sync_name(enum xs_sync point);

#endif
