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

/*
 * Context of the three functions below: xs_mutex, before the device is removed, and the mutex of
 * the device's IOMMU group (xs_group_look()); or the notifier of a bind. The functions follow
 * dev->iommu and read state of the IOMMU driver for the device and the domain. They may sleep.
 */

/**
 * xs_iommu_check - check whether the module supports the IOMMU of a device
 * @dev: the device
 *
 * Return: NULL, or the reason why not.
 */
const char *xs_iommu_check(struct device *dev);

/**
 * xs_iommu_format - format of the page tables of a device's IOMMU
 * @dev: the device
 *
 * Return: the format; NULL if the module cannot write these page tables.
 */
const struct xs_format *xs_iommu_format(struct device *dev);

/**
 * xs_iommu_describe - properties of a device's IOMMU
 * @iommu: result
 * @dev: the device
 * @domain: domain that the device is attached to
 *
 * Return: NULL, or the reason why the device cannot be served.
 */
const char *xs_iommu_describe(struct xs_iommu *iommu, struct device *dev,
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

/**
 * xs_iommu_attribute - read an attribute of an IOMMU's own sysfs group, for the files of kinds
 * @dev: a device behind the IOMMU
 * @group_name: name of the sysfs group
 * @name: name of the attribute, a hexadecimal number
 * @value: result; unchanged on failure
 *
 * Context: as xs_iommu_check().
 * Return: false if the attribute cannot be read.
 */
bool xs_iommu_attribute(struct device *dev, const char *group_name,
			const char *name, u64 *value);

/**
 * xs_iommu_driver - name of the driver of an IOMMU, for the files of kinds
 * @dev: a device behind the IOMMU
 *
 * Context: as xs_iommu_check().
 * Return: the name, or "".
 */
const char *xs_iommu_driver(struct device *dev);

#endif
