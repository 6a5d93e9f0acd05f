/* SPDX-License-Identifier: GPL-2.0-only */
/* The parts of xsmmu_bounce_test.ko, a file for each subject; main.c lists the modes. */
#ifndef XSMMU_BOUNCE_TEST_H
#define XSMMU_BOUNCE_TEST_H

#include <linux/dma-direction.h>

#include "../test_driver.h"

#define BUFFER_BYTES	(4 * PAGE_SIZE)
#define MEMORY_BYTES	(2 * BUFFER_BYTES)
#define TRIES		100

struct scatterlist;

struct buffer {
	u8 *memory;
	size_t bytes;
	enum dma_data_direction dir;
	dma_addr_t iova;
	bool is_mapped;
};

/* main.c */
extern unsigned int limit;	/* bytes of the largest buffer that the module copies */
extern u8 *memory;		/* MEMORY_BYTES for the probe's buffers, zeroed */
int wrong(struct device *dev, const char *what);

/* buffer.c */
u8 *found(struct device *dev, dma_addr_t iova);
size_t in_page(dma_addr_t iova, size_t bytes);
void writes(struct device *dev, dma_addr_t iova, size_t bytes, u8 value);
bool is_like(struct device *dev, dma_addr_t iova, const u8 *bytes, size_t count);
bool is_filled(const u8 *bytes, size_t count, u8 value);
bool is_copied(struct device *dev, const struct buffer *buffer);
int map(struct device *dev, struct buffer *buffer, bool copied);
int map_soon(struct device *dev, struct buffer *buffer, unsigned long attrs, u32 tries);
int map_list_soon(struct device *dev, struct scatterlist *list, int segments,
		  enum dma_data_direction dir, unsigned long attrs, u32 tries);
void unmap(struct device *dev, struct buffer *buffer, unsigned long attrs);
bool can_map(struct device *dev, struct buffer *buffer);

/* checks.c */
int check_list(struct device *dev, const size_t *bytes, bool copied);
int probe_checks(struct device *dev, u32 unused);
int probe_plain(struct device *dev, u32 unused);
int probe_size(struct device *dev, u32 unused);

/* pool.c */
int probe_fill(struct device *dev, u32 grows);
int probe_stale(struct device *dev, u32 unused);
int probe_fresh(struct device *dev, u32 unused);

/* kept.c */
int probe_keep(struct device *dev, u32 unused);

/* patterns.c */
enum alignment { ALIGN_1, ALIGN_2, ALIGN_BEGIN, ALIGN_END, ALIGN_ROW, ALIGN_PAGE, ALIGN_FEW,
		 ALIGN_LARGE };
int probe_flip(struct device *dev, u32 syncs);
int probe_align(struct device *dev, u32 alignment);
int probe_polls(struct device *dev, u32 unused);
int probe_prime(struct device *dev, u32 unused);
int probe_svm(struct device *dev, u32 unused);

#endif
