/* SPDX-License-Identifier: GPL-2.0 OR MIT */
/*
 * A policy is five choices: placement, flush points, scope of a flush, held resources, and the
 * size up to which buffers are copied. Policies are rows of a table; no code of the engine
 * depends on a policy's name.
 */
#ifndef XSMMU_POLICY_H
#define XSMMU_POLICY_H

#include <xsmmu/needs.h>

/* Source of a mapping's IOVA. */
enum xs_placement {
	XS_PLACE_PAGE,	/* an order-n range of the CPU's magazines */
	XS_PLACE_BLOCK,	/* the next pages of the CPU's open block */
	XS_PLACE_IDENTITY,	/* a single page's physical address (identity.h); else as BLOCK */
};

/* Causes of a flush. An unmap before the next flush point is deferred. */
enum xs_flush_point {
	XS_FLUSH_UNMAP,		/* inside the unmap */
	XS_FLUSH_BLOCK,		/* the last page of a block was unmapped */
	XS_FLUSH_POLL,		/* a NAPI poll ended on this CPU */
	XS_FLUSH_FULL,		/* the batch reached its threshold */
	XS_FLUSH_TIME,		/* the oldest deferred unmap reached its bound */
	XS_FLUSH_EXPLICIT,	/* the driver asked; also after a bad unmap */
	XS_FLUSH_DRAIN,		/* detach, policy change, CPU offline, suspend */
	XS_FLUSH_COUNT
};

#define XS_FLUSH_BIT(point) (1u << (point))

/*
 * Set beside the flush points, never in the table: ordinary unmaps are flushed before they
 * return.
 */
#define XS_FLUSH_ORDINARY	(1u << 31)

/* Scope of a flush's invalidation. */
enum xs_scope {
	XS_SCOPE_RANGE,		/* each range; page-walk caches kept if allowed */
	XS_SCOPE_DOMAIN,	/* one domain-selective command */
	XS_SCOPE_AUTO,		/* ranges while cheaper, else the domain */
};

/* Resources kept from reuse until the flush; IOVAs always are. */
enum xs_hold {
	XS_HOLD_IOVA,
	XS_HOLD_PAGES,		/* IOVAs and pages */
};

/* Guarantees of a policy, weakest first. */
enum xs_level {
	XS_LEVEL_NONE,		/* no guarantee: no policy in force, or stuck pages */
	XS_LEVEL_LAZY,		/* access may last until after the page is reused */
	XS_LEVEL_BOUNDED,	/* access ends by the next flush point or the bound */
	XS_LEVEL_HELD,		/* and the page is not freed before */
	XS_LEVEL_STRICT,	/* nothing stale when the unmap returns */
};

/**
 * struct xs_policy - a row of the table
 * @name: the user's spelling
 * @placement: source of IOVAs
 * @flushes: XS_FLUSH_BIT()s of the flush points
 * @scope: scope of a flush's invalidation
 * @hold: held resources
 * @ranges_max: with XS_SCOPE_AUTO, more ranges than this become a single domain command; set in
 *   the engine's copy of the row only
 * @window_us: default bound on the age of a deferred unmap, in us; > 0 if any flush point
 *   besides UNMAP is set
 * @batch_pages: default threshold of XS_FLUSH_FULL in pages; set for every policy that defers,
 *   because the batch is finite
 * @copy_bytes: default size of the largest buffer that is copied (pool.h), 0 for no copies
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

/*
 * The table. The order of the rows is the order of the names in the file `policy`, and has no other
 * meaning.
 */
extern const struct xs_policy xs_policies[];
extern const u32 xs_policy_count;

/**
 * xs_policy_find - find a policy by name
 * @name: name
 *
 * Context: any.
 * Return: the row, or NULL.
 */
const struct xs_policy *xs_policy_find(const char *name);

/**
 * xs_policy_level - level that a policy gives a driver
 * @policy: policy
 * @batch_aware: the driver flushes explicitly before it frees or hands on its buffers
 *
 * Context: any.
 * Return: the level, never rounded up.
 */
enum xs_level xs_policy_level(const struct xs_policy *policy, bool batch_aware);

/**
 * xs_policy_waits - test for a policy that waits for a batch-aware driver's flush
 * @policy: policy
 *
 * Context: any.
 * Return: true if unmaps of a batch-aware driver are deferred until the driver's flush or an
 *   earlier flush.
 */
static inline bool xs_policy_waits(const struct xs_policy *policy)
{
	return policy->flushes & XS_FLUSH_BIT(XS_FLUSH_EXPLICIT);
}

/**
 * xs_level_name - name of a level
 * @level: level
 *
 * Context: any.
 * Return: "none", "lazy", "bounded", "held" or "strict".
 */
const char *xs_level_name(enum xs_level level);

/**
 * xs_flush_name - name of a flush point
 * @point: flush point
 *
 * Context: any.
 * Return: "unmap", "block", "poll", "full", "time", "explicit" or "drain".
 */
const char *xs_flush_name(enum xs_flush_point point);

#endif
