/* SPDX-License-Identifier: GPL-2.0-only */
/* The parts of xsmmu_dma_api_test.ko, a file for each subject; main.c lists the modes. */
#ifndef XSMMU_DMA_API_TEST_H
#define XSMMU_DMA_API_TEST_H

#include "../test_driver.h"

/* main.c */
int wrong(struct device *dev, const char *what);
phys_addr_t translated(struct device *dev, dma_addr_t iova);
struct pci_dev *device_at(const char *text, u32 *value);

/* api.c */
int probe_api(struct device *dev, u32 kernel);

/* lifetime.c */
#define CROWD	700
int probe_fail(struct device *dev, u32 unused);
int probe_slow(struct device *dev, u32 unused);
int probe_late(struct device *dev, u32 unused);
int probe_crowd(struct device *dev, u32 count);
int probe_keep(struct device *dev, u32 unused);
struct device *kept_device(void);

/* race.c */
bool release_tardy(void);

/* mismatch.c */
int probe_free(struct device *dev, u32 unused);
int probe_bad_unmap(struct device *dev, u32 unused);
int probe_tear(struct device *dev, u32 left);

/* space.c */
u32 map_often(struct device *dev, struct page *page, size_t size, dma_addr_t *iovas, u32 most);
void unmap_often(struct device *dev, size_t size, const dma_addr_t *iovas, u32 count);
int probe_many(struct device *dev, u32 count);
int probe_row(struct device *dev, u32 unused);
int probe_whole(struct device *dev, u32 ahead);

/* ranges.c */
int probe_ranges(struct device *dev, u32 unused);
int probe_unrecorded(struct device *dev, u32 unused);
int probe_unrecorded_chunk(struct device *dev, u32 unused);

#endif
