/* SPDX-License-Identifier: GPL-2.0 OR MIT */
/*
 * A policy is five choices: where mappings are placed, what causes a flush, what a
 * flush invalidates, what is held until then, and up to which size buffers are copied
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

/* What can cause a flush. An unmap before any of them is deferred. */
enum xs_flush_point {
	XS_FLUSH_UNMAP,		/* inside the unmap itself */
	XS_FLUSH_BLOCK,		/* the last page of a block was unmapped */
	XS_FLUSH_POLL,		/* a NAPI poll ended on this CPU */
	XS_FLUSH_FULL,		/* the batch reached its threshold */
	XS_FLUSH_TIME,		/* the oldest deferred unmap reached its bound */
	XS_FLUSH_EXPLICIT,	/* the driver asked */
	XS_FLUSH_DRAIN,		/* detach, policy change, CPU off-line */
	XS_FLUSH_COUNT
};

#define XS_FLUSH_BIT(point) (1u << (point))

/* Beside them, never in the table: ordinary unmaps, too, flush inside themselves. */
#define XS_FLUSH_ORDINARY	(1u << 31)

/* What a flush invalidates. */
enum xs_scope {
	XS_SCOPE_RANGE,		/* each range, page-walk caches kept if legal */
	XS_SCOPE_DOMAIN,	/* one domain-selective command */
	XS_SCOPE_AUTO,		/* ranges while cheaper, else the domain */
};

/* What is kept from reuse until the flush. IOVAs always are. */
enum xs_hold {
	XS_HOLD_IOVA,
	XS_HOLD_PAGES,		/* IOVAs and pages */
};

/* What a policy guarantees, weakest first. */
enum xs_level {
	XS_LEVEL_NONE,		/* not ours */
	XS_LEVEL_LAZY,		/* may outlive the reuse of the page */
	XS_LEVEL_BOUNDED,	/* ends by the next flush point or the bound */
	XS_LEVEL_HELD,		/* and the page is not given back before */
	XS_LEVEL_STRICT,	/* nothing stale when the unmap returns */
};

/*
 * struct xs_policy - one row
 * @name:	as the user spells it
 * @flushes:	XS_FLUSH_BIT()s of the flush points
 * @window_us:	default bound on the age of a deferred unmap, > 0 if any
 *		flush point but UNMAP is set
 * @ranges_max:	of XS_SCOPE_AUTO, set where the row is in force: more ranges than
 *		this become one domain command
 * @batch_pages: default threshold of XS_FLUSH_FULL, in pages; every deferring
 *		policy has one, for the batch is finite
 * @copy_bytes:	default of the largest buffer that is copied (pool.h), 0 for none
 */
struct xs_policy {
	const char *name;
	enum xs_placement placement;
	u32 flushes;
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
 * driver flushes explicitly before it frees or hands on its buffers.
 */
enum xs_level xs_policy_level(const struct xs_policy *policy, bool batch_aware);

/*
 * Does @policy defer the unmaps of a batch-aware driver until the driver's flush
 * or an earlier one, and is that flush one?
 */
static inline bool xs_policy_waits(const struct xs_policy *policy)
{
	return policy->flushes & XS_FLUSH_BIT(XS_FLUSH_EXPLICIT);
}

/* "none", "lazy", "bounded", "held" or "strict". */
const char *xs_level_name(enum xs_level level);

/* "unmap", "block", "poll", "full", "time", "explicit" or "drain". */
const char *xs_flush_name(enum xs_flush_point point);

#endif
