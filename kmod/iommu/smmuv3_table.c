// SPDX-License-Identifier: GPL-2.0-only
/*
 * First-stage page tables of Arm's SMMUv3, in the CPU's format (Arm Architecture Reference
 * Manual, D8; SMMUv3 specification, 3.3, 5.2 and 5.4).
 *
 * The SMMU has a stream table, of one level or two, indexed by the device's stream ID. A
 * stream table entry refers to context descriptors. The first context descriptor is for
 * requests without PASID, and refers to the page table.
 */
#include <linux/bitfield.h>
#include <linux/bits.h>
#include <linux/io.h>
#include <linux/iommu.h>
#include <linux/platform_device.h>

#include "table.h"

#define IDR0			0x00
#define IDR0_COHERENT		BIT(4)
#define STREAMS			0x80
#define STREAMS_CONFIG		0x88
#define REGISTERS_BYTES		0x90
#define STREAMS_LG2		GENMASK(5, 0)
#define STREAMS_SPLIT		GENMASK(10, 6)
#define STREAMS_FORMAT		GENMASK(17, 16)
#define FORMAT_LINEAR		0
#define FORMAT_TWO_LEVELS	1
#define TABLE_ADDRESS		GENMASK_ULL(51, 6)
#define PART_SPAN		GENMASK_ULL(4, 0)

/* First word of a stream table entry, which has 8 words. */
#define STREAM_WORDS		8
#define STREAM_IS_VALID		BIT_ULL(0)
#define STREAM_CONFIG		GENMASK_ULL(3, 1)
#define CONFIG_FIRST_STAGE	5
#define STREAM_FORMAT		GENMASK_ULL(5, 4)	/* format if there are several contexts */

/* Words of a context descriptor. */
#define CONTEXT_IOVA_REST	GENMASK_ULL(5, 0)	/* 64 minus the bits of an IOVA */
#define CONTEXT_GRANULE		GENMASK_ULL(7, 6)
#define CONTEXT_CACHES		GENMASK_ULL(11, 8)	/* cacheability of walks: inner, outer */
#define CACHES_BOTH		5			/* write-back, both */
#define CONTEXT_IS_VALID	BIT_ULL(31)
#define CONTEXT_PHYS		GENMASK_ULL(34, 32)	/* bits of a physical address */
#define PHYS_52			6
#define CONTEXT_TABLE		GENMASK_ULL(51, 4)

#define ENTRY_TYPE		GENMASK_ULL(1, 0)
#define TYPE_TABLE		3			/* or a page, in a last-level table */
#define ENTRY_ATTRIBUTES	GENMASK_ULL(4, 2)
#define ENTRY_USER		BIT_ULL(6)
#define ENTRY_READ_ONLY		BIT_ULL(7)
#define ENTRY_SHARED		GENMASK_ULL(9, 8)
#define ENTRY_ACCESSED		BIT_ULL(10)
#define ENTRY_NOT_GLOBAL	BIT_ULL(11)
#define ENTRY_NO_CODE		GENMASK_ULL(54, 53)

/* The stream table entry of a device, in memory; NULL if there is none. */
static const u64 *find_stream(void __iomem *registers, u32 id)
{
	u32 config = readl(registers + STREAMS_CONFIG);
	u64 *streams = xs_words_at(readq(registers + STREAMS) & TABLE_ADDRESS);
	u32 split = FIELD_GET(STREAMS_SPLIT, config);
	u64 part;

	if (!streams || (u64)id >> FIELD_GET(STREAMS_LG2, config))
		return NULL;
	switch (FIELD_GET(STREAMS_FORMAT, config)) {
	case FORMAT_LINEAR:
		return &streams[id * STREAM_WORDS];
	case FORMAT_TWO_LEVELS:
		part = READ_ONCE(streams[id >> split]);
		id &= (1u << split) - 1;
		/* A span of n means 2^(n-1) streams. */
		if (!FIELD_GET(PART_SPAN, part) ||
		    id >> (FIELD_GET(PART_SPAN, part) - 1))
			return NULL;
		streams = xs_words_at(part & TABLE_ADDRESS);
		return streams ? &streams[id * STREAM_WORDS] : NULL;
	default:
		return NULL;
	}
}

static const char *find_in(struct xs_root *root, void __iomem *registers,
			   u32 id)
{
	static const u32 granule = PAGE_SHIFT == 12 ? 0 : PAGE_SHIFT == 14 ? 2 : 1;
	const u64 *stream, *context;
	u64 first, low;

	if (!(readl(registers + IDR0) & IDR0_COHERENT))
		return "its IOMMU does not snoop the CPU's caches";
	stream = find_stream(registers, id);
	first = stream ? READ_ONCE(*stream) : 0;
	if (!(first & STREAM_IS_VALID) ||
	    FIELD_GET(STREAM_CONFIG, first) != CONFIG_FIRST_STAGE ||
	    FIELD_GET(STREAM_FORMAT, first))
		return "its IOMMU has no page table of the first stage for it";
	context = xs_words_at(first & TABLE_ADDRESS);
	low = context ? READ_ONCE(context[0]) : 0;
	if (!(low & CONTEXT_IS_VALID) ||
	    FIELD_GET(CONTEXT_GRANULE, low) != granule)
		return "its page table has another page size";
	/* The driver follows the firmware, which may differ from the register. */
	if (FIELD_GET(CONTEXT_CACHES, low) != CACHES_BOTH)
		return "its IOMMU does not snoop the CPU's caches";
	/*
	 * 52-bit addresses, with pages of 64 KiB: an entry has the four highest address bits below
	 * the others.
	 */
	if (FIELD_GET(CONTEXT_PHYS, low) >= PHYS_52)
		return "its page table has 52-bit addresses";
	root->first = xs_words_at(READ_ONCE(context[1]) & CONTEXT_TABLE);
	root->levels = DIV_ROUND_UP(64 - FIELD_GET(CONTEXT_IOVA_REST, low) -
				    PAGE_SHIFT, XS_TABLE_LG2);
	return root->first ? NULL : "its page table is not in memory";
}

static const char *find_table(struct xs_root *root, struct device *dev)
{
	const struct iommu_fwspec *firmware = dev_iommu_fwspec_get(dev);
	struct device *iommu = dev->iommu->iommu_dev->dev->parent;
	struct resource *resource = NULL;
	void __iomem *registers;
	const char *why;

	if (iommu && dev_is_platform(iommu))
		resource = platform_get_resource(to_platform_device(iommu),
						 IORESOURCE_MEM, 0);
	registers = resource ? ioremap(resource->start, REGISTERS_BYTES) : NULL;
	if (!registers)
		return "the registers of its IOMMU cannot be read";
	why = "it has more than one stream";
	if (firmware && firmware->num_ids == 1)
		why = find_in(root, registers, firmware->ids[0]);
	iounmap(registers);
	root->known = ENTRY_TYPE | ENTRY_ATTRIBUTES | ENTRY_USER |
		      ENTRY_READ_ONLY | ENTRY_SHARED | ENTRY_ACCESSED |
		      ENTRY_NOT_GLOBAL | ENTRY_NO_CODE;
	/* A barrier must put entries into memory before the SMMU is told of them. */
	root->flushes = true;
	return why;
}

static bool refers(u64 value, u32 levels)
{
	return FIELD_GET(ENTRY_TYPE, value) == TYPE_TABLE;
}

/* A writable page may be readable, too. */
static const char *learn_bits(const struct xs_root *root, u64 entry, u64 phys,
			      u32 prot, u64 *bits)
{
	*bits = entry & ~XS_ENTRY_ADDRESS;
	if ((entry & XS_ENTRY_ADDRESS) != phys)
		return "an entry is not where it should be";
	if (*bits & ~root->known ||
	    FIELD_GET(ENTRY_TYPE, *bits) != TYPE_TABLE ||
	    !(*bits & ENTRY_ACCESSED) ||
	    !(*bits & ENTRY_READ_ONLY) != !!(prot & IOMMU_WRITE))
		return "an entry has unknown bits";
	return NULL;
}

const struct xs_format xs_format_smmuv3 = {
	.find = find_table,
	.refers = refers,
	.learn = learn_bits,
};
