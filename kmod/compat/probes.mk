# SPDX-License-Identifier: GPL-2.0-only
#
# What this kernel has, found by looking into its headers: the XS_HAVE_* of compat.h, for each module that includes it.

linux := $(srctree)/include/linux
has = $(if $(shell grep -sE '$(2)' $(linux)/$(1)),-DXS_HAVE_$(3))

ccflags-y += $(call has,dma-map-ops.h,[*]map_phys,MAP_PHYS)
ccflags-y += $(call has,dma-map-ops.h,[*]alloc_pages_op,ALLOC_PAGES_OP)
ccflags-y += $(call has,dma-map-ops.h,[*]alloc_noncontiguous,ALLOC_NONCONTIGUOUS)
ccflags-y += $(call has,device.h,dev_flag_accessors.dma_iommu,DEV_FLAG_DMA_IOMMU)
ccflags-y += $(call has,device.h,dma_iommu *: *1,DMA_IOMMU_BIT)
ccflags-y += $(call has,device.h,dev_flag_accessors.dma_skip_sync,DEV_FLAG_DMA_SKIP_SYNC)
ccflags-y += $(call has,device.h,dma_skip_sync *: *1,DMA_SKIP_SYNC_BIT)
ccflags-y += $(call has,iommu.h,iommu_map_atomic,IOMMU_MAP_ATOMIC)
ccflags-y += $(call has,iommu.h,iommu_driver_get_domain_for_dev,DRIVER_GET_DOMAIN)
ccflags-y += $(call has,iommu.h,attach_deferred *: *1,ATTACH_DEFERRED)
ccflags-y += $(call has,iommu.h,int .[*]iotlb_sync_map,SYNC_MAP_ERROR)
ccflags-y += $(call has,iommu.h,struct iommu_pages_list,IOMMU_PAGES_LIST)
ccflags-y += $(call has,generic_pt/iommu.h,iommupt_from_domain,GENERIC_PT)
ccflags-y += $(call has,hrtimer.h,void hrtimer_setup,HRTIMER_SETUP)
ccflags-y += $(call has,../trace/stages/stage6_event_callback.h,assign_str.dst. src,ASSIGN_STR_SOURCE)
ccflags-y += $(call has,page-flags.h,hugetlb_optimize_vmemmap_key,FAKE_HEADS)
ccflags-y += $(call has,page-flags.h,PAGE_TYPE_OPS.LargeKmalloc,LARGE_KMALLOC)
