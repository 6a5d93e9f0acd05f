/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * Kinds of IOMMUs: one file for each kind recognises it and describes maps and invalidations
 * under its driver. No other code depends on a kind.
 *
 * The IOMMU drivers decide which commands they send, and their choices are right on each kind.
 * The module knows these choices in order to leave out needless calls, and to count commands.
 */
#ifndef XSMMU_IOMMU_H
#define XSMMU_IOMMU_H

#include <linux/iommu.h>

#include <xsmmu/backend.h>

struct xs_format;

/**
 * struct xs_iommu - properties of an IOMMU for one domain
 * @flushes_maps: the driver must be called after each map (iotlb_sync_map)
 * @kicks:	each removal is a request, and an invalidation notifies the device of the requests
 *		and waits for them; the same holds for maps
 * @commands:	number of page-selective commands for a range, or U32_MAX if the range must not be
 *		invalidated by itself; NULL if one command covers any range that fits
 * @range_max_lg2: log2 of the largest page-selective command, in pages, if a command covers an
 *		aligned power of two of pages; else 0. Negative: there are no page-selective
 *		commands. Without @commands, a longer range becomes a domain-selective command
 * @flush_all_via_range: all of a domain is invalidated as one range, because the driver may leave
 *		out device TLBs (ATS) when asked for the whole domain
 * @unmap_covers_holes: a removal may have any length and may have holes, unless @exact_unmap
 * @exact_unmap: a removal must cover mapped pages only
 * @pages_only:	an invalidation of a range covers single pages, not larger entries
 * @prunes:	an unmap of unmapped pages frees empty page-table pages
 * @maps_singly: a large entry must not replace an empty page-table page: the driver would free the
 *		page before the invalidation, and @prunes is false
 * @grows:	the driver adds levels to the table for a higher IOVA, by commands of its own, which
 *		the module does not count
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
	bool grows;
};

/**
 * struct xs_seen - the IOMMU of a device and the domain that the device is attached to, as of the
 *		    last xs_group_look()
 * @iommu:	the IOMMU; only compared, never dereferenced
 * @untried:	reason why the module does not support this kind of IOMMU; NULL if supported
 * @type:	type of the domain; IOMMU_DOMAIN_BLOCKED if no domain was found
 * @like:	properties of the IOMMU; valid if @type is a type of the DMA API
 * @unserved:	reason why an engine cannot use a domain of this device; NULL if an engine can
 * @no_tables:	reason why direct tables are not possible; NULL if they are
 */
struct xs_seen {
	const struct iommu_device *iommu;
	const char *untried;
	unsigned int type;
	struct xs_iommu like;
	const char *unserved;
	const char *no_tables;
};

/**
 * struct xs_iommu_kind - a kind of IOMMU
 * @is:		checks whether @dev is behind an IOMMU of this kind
 * @describe:	changes the properties in @iommu, which are set for an unknown IOMMU, to those of
 *		this kind, for @domain, to which @dev is attached. Returns NULL, or the reason why
 *		@dev cannot be served. May sleep
 * @format:	format of the page tables, if the module can write them; else NULL
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
extern const struct xs_iommu_kind xs_iommu_fake;

/**
 * xs_iommu_look - look at the IOMMU of a device and the domain that the device is attached to
 * @seen: result
 * @dev: the device
 * @domain: the domain, or NULL
 *
 * Follows dev->iommu, and reads state of the IOMMU driver for the device and the domain.
 *
 * Context: xs_mutex, before the device is removed, and the mutex of the device's IOMMU group
 * (xs_group_look()); sleeps.
 */
void xs_iommu_look(struct xs_seen *seen, struct device *dev,
		   struct iommu_domain *domain);

/**
 * xs_iommu_is_one - check whether one page-selective command covers a range
 * @iommu: the IOMMU; its commands cover aligned powers of two of pages
 * @page: number of the first page
 * @pages: length
 *
 * Context: any.
 */
static __always_inline bool xs_iommu_is_one(const struct xs_iommu *iommu,
					    u64 page, u64 pages)
{
	return fls64(page ^ (page + pages - 1)) <= iommu->range_max_lg2;
}

/**
 * xs_iommu_widening - mask that widens a range to the range of its command
 * @iommu: the IOMMU
 * @page: number of the first page
 * @pages: length
 *
 * Context: any.
 * Return: the low bits in which page numbers of the range and of the command differ; 0 where
 * commands do not cover aligned powers of two of pages, and where the number of pages does not fit
 * into 31 bits: VT-d's driver counts pages in 32 bits.
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

/**
 * xs_iommu_count - count the commands of an invalidation
 * @iommu: the IOMMU
 * @range: range that is invalidated
 * @sent: the commands are added here
 *
 * Context: any.
 */
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

#endif
