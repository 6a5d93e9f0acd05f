/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * One shim per change of a kernel API. probes.mk looks for the API in the kernel's headers and
 * defines XS_HAVE_*. Code outside this folder is written for the newest kernel.
 */
#ifndef XSMMU_COMPAT_H
#define XSMMU_COMPAT_H

#include <linux/dma-map-ops.h>
#include <linux/hrtimer.h>
#include <linux/iommu.h>

/*
 * The selector of a device's DMA path beside dev->dma_ops. b5c58b2fdc42 ("dma-mapping: direct
 * calls for dma-iommu", 6.12) added a bit to struct device; later kernels have an accessor of
 * a flag word.
 *
 * The bit shares its word with bits of the driver core, and a write of one bit undoes a
 * concurrent write of another bit. So the caller holds the lock of the device, under which the
 * driver core writes. The accessors of later kernels are atomic.
 */
#if defined(XS_HAVE_DEV_FLAG_DMA_IOMMU)
static inline bool xs_dma_iommu_clear(struct device *dev)
{
	bool was = dev_dma_iommu(dev);

	if (was)
		dev_clear_dma_iommu(dev);
	return was;
}

static inline void xs_dma_iommu_restore(struct device *dev, bool was)
{
	dev_assign_dma_iommu(dev, was);
}
#elif defined(XS_HAVE_DMA_IOMMU_BIT)
static inline bool xs_dma_iommu_clear(struct device *dev)
{
	bool was = dev->dma_iommu;

	if (was)
		dev->dma_iommu = false;
	return was;
}

static inline void xs_dma_iommu_restore(struct device *dev, bool was)
{
	dev->dma_iommu = was;
}
#else	/* dev->dma_ops alone decides */
static inline bool xs_dma_iommu_clear(struct device *dev)
{
	return false;
}

static inline void xs_dma_iommu_restore(struct device *dev, bool was)
{
}
#endif

/*
 * f406c8e4b770 ("dma: avoid redundant calls for sync operations", 6.10): the DMA core may skip
 * the operations behind dma_sync_*(), as decided when a driver sets its mask, if it does. This
 * makes the DMA core call the operations. Later kernels have the bit in the flag word, too.
 * The caller holds the lock of the device, as above.
 */
static inline void xs_dma_skip_no_sync(struct device *dev)
{
#if defined(XS_HAVE_DEV_FLAG_DMA_SKIP_SYNC)
	dev_clear_dma_skip_sync(dev);
#elif defined(XS_HAVE_DMA_SKIP_SYNC_BIT) && defined(CONFIG_DMA_NEED_SYNC)
	if (dev->dma_skip_sync)
		dev->dma_skip_sync = false;
#endif
}

/*
 * Later kernels: a driver never calls dma_sync_*() for such a mapping, so the mapping must not
 * be copied.
 */
#ifndef DMA_ATTR_REQUIRE_COHERENT
#define DMA_ATTR_REQUIRE_COHERENT	0
#endif

/* 1369459b2e21 ("iommu: Add a gfp parameter to iommu_map()", 6.3) */
#ifdef XS_HAVE_IOMMU_MAP_ATOMIC
#define iommu_map(domain, iova, phys, size, prot, gfp) \
	iommu_map_atomic(domain, iova, phys, size, prot)
#endif

/*
 * Since 6.19, generic page tables are called without the domain's operations.
 *
 * xs_domain_map_generic() returns 0 or a negative errno, and adds the bytes that are mapped to
 * *@mapped, also on error. xs_domain_unmap_generic() returns the bytes that are removed.
 */
#ifdef XS_HAVE_GENERIC_PT
#include <linux/generic_pt/iommu.h>

#define xs_have_generic_pt()	true

static inline bool xs_domain_is_generic(struct iommu_domain *domain)
{
	return iommupt_from_domain(domain);
}

static inline int xs_domain_map_generic(struct iommu_domain *domain, u64 iova,
					u64 phys, size_t bytes, int prot,
					size_t *mapped)
{
	struct pt_iommu *table = iommupt_from_domain(domain);

	return table->ops->map_range(table, iova, phys, bytes, prot,
				     GFP_ATOMIC, mapped);
}

static inline size_t xs_domain_unmap_generic(struct iommu_domain *domain,
					     u64 iova, size_t bytes,
					     struct iommu_iotlb_gather *gather)
{
	struct pt_iommu *table = iommupt_from_domain(domain);

	return table->ops->unmap_range(table, iova, bytes, gather);
}
#else
#define xs_have_generic_pt()	false

static inline bool xs_domain_is_generic(struct iommu_domain *domain)
{
	return false;
}

static inline int xs_domain_map_generic(struct iommu_domain *domain, u64 iova,
					u64 phys, size_t bytes, int prot,
					size_t *mapped)
{
	return -EOPNOTSUPP;
}

static inline size_t xs_domain_unmap_generic(struct iommu_domain *domain,
					     u64 iova, size_t bytes,
					     struct iommu_iotlb_gather *gather)
{
	return 0;
}
#endif

/*
 * fa4c4507099f ("iommu: Allow .iotlb_sync_map to fail and handle s390's -ENOMEM
 * return", 6.7)
 */
static inline int xs_domain_sync_map(struct iommu_domain *domain, u64 iova,
				     size_t bytes)
{
#ifdef XS_HAVE_SYNC_MAP_ERROR
	return domain->ops->iotlb_sync_map(domain, iova, bytes);
#else
	domain->ops->iotlb_sync_map(domain, iova, bytes);
	return 0;
#endif
}

/* In 6.16 the list of page-table pages in a gather got a type. */
static inline bool xs_gather_frees_tables(struct iommu_iotlb_gather *gather)
{
#ifdef XS_HAVE_IOMMU_PAGES_LIST
	return !list_empty(&gather->freelist.pages);
#else
	return !list_empty(&gather->freelist);
#endif
}

/* Checks whether the device still uses the tables of an earlier kernel. Since 6.7 a bit tells. */
static inline bool xs_attach_is_deferred(struct device *dev)
{
#ifdef XS_HAVE_ATTACH_DEFERRED
	return dev->iommu->attach_deferred;
#else
	const struct iommu_ops *ops = dev->iommu->iommu_dev->ops;

	return ops->is_attach_deferred && ops->is_attach_deferred(dev);
#endif
}

/*
 * The domain that @dev is attached to, for a caller that holds the mutex of its IOMMU
 * group. iommu_get_domain_for_dev() refuses such a caller since a75b2be249d6 ("iommu: Add
 * iommu_driver_get_domain_for_dev() helper", 7.0).
 */
static inline struct iommu_domain *xs_locked_domain(struct device *dev)
{
#ifdef XS_HAVE_DRIVER_GET_DOMAIN
	return iommu_driver_get_domain_for_dev(dev);
#else
	return iommu_get_domain_for_dev(dev);
#endif
}

/* 908a1d775422 ("hrtimers: Introduce hrtimer_setup()", 6.13) */
#ifndef XS_HAVE_HRTIMER_SETUP
static inline void hrtimer_setup(struct hrtimer *timer,
				 enum hrtimer_restart (*function)(struct hrtimer *),
				 clockid_t clock, enum hrtimer_mode mode)
{
	hrtimer_init(timer, clock, mode);
	timer->function = function;
}
#endif

/* c759e609030c ("tracing: Remove __assign_str_len()" and its source, 6.10) */
#ifdef XS_HAVE_ASSIGN_STR_SOURCE
#define xs_assign_str(field, source)	__assign_str(field, source)
#else
#define xs_assign_str(field, source)	__assign_str(field)
#endif

#endif
