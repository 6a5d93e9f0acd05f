/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * Kinds of IOMMUs: a file for each says how it is recognised, and what maps and
 * invalidations are like under its driver. Nothing else asks for a kind.
 *
 * What is sent is the driver's business and right on each of them; that it is known here
 * lets the module leave out what is not needed, and count.
 */
#ifndef XSMMU_IOMMU_H
#define XSMMU_IOMMU_H

#include <linux/iommu.h>

#include <xsmmu/backend.h>

struct xs_format;

/*
 * struct xs_iommu - what an IOMMU is like, for one domain
 * @flushes_maps:	its driver has to be told of each map
 * @kicks:	a removal is a request of its own, which an invalidation tells the device of,
 *		and waits for; so is a map
 * @commands:	how many page-selective commands a range is, where that is not one, U32_MAX if it
 *		must not be asked for; else NULL
 * @range_max_lg2: log2 of the largest page-selective command, in pages, where each is about an
 *		aligned power of two of them, else 0; negative: there are none. Without @commands, a
 *		longer range becomes the domain's command
 * @flush_all_via_range: all of a domain is invalidated as one range: asked for the domain, its
 *		driver may leave out the TLBs of devices (ATS)
 * @unmap_covers_holes:	a removal may be of any length, and have holes, unless
 * @exact_unmap:	a removal must be of what is mapped, to the page
 * @pages_only:	an invalidation of a range is of single pages, not of larger entries
 * @prunes:	an unmap of nothing frees empty page-table pages
 * @maps_singly: a large entry that takes the place of an empty page-table page is not to be
 *		mapped: the driver frees that before it invalidates, and @prunes is not so
 */
struct xs_iommu {
	bool flushes_maps;
	bool kicks;
	u32 (*commands)(const struct xs_iommu *iommu, u64 page, u64 pages);
	s32 range_max_lg2;
	bool flush_all_via_range;
	bool unmap_covers_holes;
	bool exact_unmap;
	bool pages_only;
	bool prunes;
	bool maps_singly;
};

/*
 * struct xs_iommu_kind
 * @is:		is @dev behind one of these?
 * @describe:	what it is like for @domain, which @dev is attached to; changes what is
 *		so on IOMMUs that nothing is known of. NULL, or why @dev cannot be
 *		served. May sleep
 * @format:	of its page tables, if we can write them
 */
struct xs_iommu_kind {
	bool (*is)(struct device *dev);
	const char *(*describe)(struct xs_iommu *iommu, struct device *dev,
				struct iommu_domain *domain);
	const struct xs_format *format;
};

extern const struct xs_iommu_kind xs_iommu_vtd;
extern const struct xs_iommu_kind xs_iommu_amd;
extern const struct xs_iommu_kind xs_iommu_smmuv3;
extern const struct xs_iommu_kind xs_iommu_virtio;

/*
 * These functions follow dev->iommu and read what the IOMMU's driver keeps for @dev and for
 * @domain. Context: xs_mutex, before the device is removed, and the mutex of the device's
 * IOMMU group (xs_group_look()); or the notifier of a bind. They may sleep.
 *
 * xs_iommu_check(): NULL if the IOMMU of @dev can be used, or why not.
 * xs_iommu_format(): the format of its page tables, NULL if it is none that we can write.
 * xs_iommu_describe(): NULL, and the properties of the IOMMU in @iommu, or why the device
 * cannot be served.
 */
const char *xs_iommu_check(struct device *dev);
const struct xs_format *xs_iommu_format(struct device *dev);
const char *xs_iommu_describe(struct xs_iommu *iommu, struct device *dev,
			      struct iommu_domain *domain);

/* Whether one page-selective command, which covers an aligned power of two, is enough. */
static __always_inline bool xs_iommu_is_one(const struct xs_iommu *iommu,
					    u64 page, u64 pages)
{
	return fls64(page ^ (page + pages - 1)) <= iommu->range_max_lg2;
}

/*
 * The low bits of a page's number in which the first and the last page of a range differ from
 * those of the command that the range becomes; 0 where commands are not of aligned powers of two,
 * and where their number does not fit into 31 bits: VT-d's driver counts pages in 32.
 */
static __always_inline u64 xs_iommu_widening(const struct xs_iommu *iommu,
					     u64 page, u64 pages)
{
	s32 lg2;

	if (likely(pages == 1))
		return 0;
	lg2 = fls64(page ^ (page + pages - 1));
	return lg2 <= iommu->range_max_lg2 && lg2 < 31 ? (1ull << lg2) - 1 : 0;
}

/* Count the commands that are sent for an invalidation of @range. */
static __always_inline void xs_iommu_count(const struct xs_iommu *iommu,
					   const struct xs_range *range,
					   struct xs_commands *sent)
{
	if (unlikely(iommu->commands)) {
		u32 commands = iommu->commands(iommu, range->page,
					       range->pages);

		if (commands == U32_MAX)
			sent->domain++;
		else
			sent->page += commands;
	} else if (xs_iommu_is_one(iommu, range->page, range->pages)) {
		sent->page++;
	} else {
		sent->domain++;
	}
}

/*
 * For kinds. xs_iommu_attribute(): read attribute @name of the IOMMU's own sysfs group, a
 * hexadecimal number. xs_iommu_driver(): the name of the driver of the IOMMU's device, or "".
 */
bool xs_iommu_attribute(struct device *dev, const char *group_name,
			const char *name, u64 *value);
const char *xs_iommu_driver(struct device *dev);

#endif
