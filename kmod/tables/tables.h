/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * Direct tables: entries of the IOMMU's page table that we write in place, instead of
 * having its driver walk down to each.
 *
 * The driver's own map makes the tables and writes the first entry of a block. That
 * says where the block's entries are, as the hardware finds them, and what else is in
 * an entry. The second one we write, and ask the driver if it sees it. From then on a
 * map of that block is a store. What is not as it should be ends it: the driver's
 * operations do the work.
 *
 * A format is a file: where the root is, where an entry is, what is in one.
 */
#ifndef XSMMU_TABLES_H
#define XSMMU_TABLES_H

#include <linux/bits.h>
#include <linux/io.h>
#include <linux/iommu.h>
#include <linux/mm.h>
#include <linux/pci.h>

#include <xsmmu/backend.h>

#define XS_ENTRY_ADDRESS	GENMASK_ULL(51, PAGE_SHIFT)

/* IOMMU_READ to IOMMU_PRIV. */
#define XS_TABLES_KINDS		64

#define XS_TABLE_LG2		(PAGE_SHIFT - 3)
#define XS_TABLE_ENTRIES	(1u << XS_TABLE_LG2)

struct xs_format;

/*
 * struct xs_root - where a page table is, and how the IOMMU reads it
 * @format:	of what it is; NULL: none was found
 * @first:	its first page
 * @levels:	that it has
 * @device:	what refers to it, where the driver adds levels, which is asked instead
 * @known:	bits that an entry may have beside the address
 * @flushes:	what is written has to be made visible to the IOMMU
 */
struct xs_root {
	const struct xs_format *format;
	u64 *first;
	const u64 *device;
	u64 known;
	u32 levels;
	bool flushes;
};

/*
 * struct xs_tables - of a group
 * @on:		entries are written in place
 * @bits:	what is in an entry beside the address, by the kind of mapping; 0: not
 *		known yet, or not @on
 * @only:	the same, where that is all that there is to a map
 */
struct xs_tables {
	bool on;
	struct xs_root root;
	u64 bits[XS_TABLES_KINDS];
	u64 only[XS_TABLES_KINDS];
};

/*
 * struct xs_format
 * @find:	NULL, and the page table that the hardware has for @dev in @root, which is
 *		zeroed; or why it is none that we know. May sleep
 * @levels:	of the table that @value refers to; for those that have a @device only
 * @refers:	does @value refer to a table, that has @levels?
 * @learn:	NULL, and what is in an entry beside the address in @bits, if @entry is what
 *		the driver has to have written for this page; or why it is not
 */
struct xs_format {
	const char *(*find)(struct xs_root *root, struct device *dev);
	u32 (*levels)(u64 value);
	bool (*refers)(u64 value, u32 levels);
	const char *(*learn)(const struct xs_root *root, u64 entry, u64 phys,
			     u32 prot, u64 *bits);
};

extern const struct xs_format xs_format_vtd;
extern const struct xs_format xs_format_amd;
extern const struct xs_format xs_format_smmuv3;

/*
 * What is kept of a block: where its first entry is; not as an address, which are
 * negative numbers in the kernel, as long as the driver was not asked for it.
 */
#define XS_ENTRIES_TRIED	BIT(63)

static __always_inline bool xs_entries_are_tried(const void *entries)
{
	return (long)entries < 0;
}

/* Of a mapping: all that its entries may depend on. */
static __always_inline u32 xs_tables_kind(u32 prot)
{
	return prot & (XS_TABLES_KINDS - 1);
}

/*
 * Find the page table that the hardware has for @dev. NULL, or why it is none that we know.
 * May sleep.
 */
const char *xs_root_find(struct xs_root *root, struct device *dev);

/* Nothing is known of entries any more. */
static inline void xs_tables_forget(struct xs_tables *tables)
{
	for (u32 i = 0; i < XS_TABLES_KINDS; i++) {
		WRITE_ONCE(tables->only[i], 0);
		WRITE_ONCE(tables->bits[i], 0);
	}
}

/* The words at a physical address; NULL if that is no memory. */
static inline u64 *xs_words_at(u64 phys)
{
	return pfn_valid(PHYS_PFN(phys)) ? phys_to_virt(phys) : NULL;
}

/* What an entry of a table, or what is laid out like one, refers to. */
static inline u64 *xs_table_at(u64 entry)
{
	return xs_words_at(entry & XS_ENTRY_ADDRESS);
}

/* The entry of an IOVA, NULL if there is no last table for it. */
u64 *xs_root_entry(const struct xs_root *root, u64 iova);

/*
 * NULL, and its other bits are known, if @entry is what the driver has to have written;
 * or why it is not.
 */
const char *xs_tables_learn(struct xs_tables *tables, u64 entry, u64 phys,
			    u32 prot);

/* Make entries visible to an IOMMU that does not look into the CPU's caches. */
#ifdef CONFIG_X86
static __always_inline void xs_entries_flush(u64 *entry, u32 count)
{
	unsigned long line = boot_cpu_data.x86_clflush_size;
	unsigned long at = (unsigned long)entry & -line;

	if (__builtin_constant_p(count) && count == 1)
		clflushopt(entry);
	else
		for (; at < (unsigned long)(entry + count); at += line)
			clflushopt((void *)at);
	/* Before what tells the device of them, or asks for an invalidation. */
	wmb();
}
#else
/* IOMMUs of Arm do, if they are accepted, but there is an order to keep. */
static __always_inline void xs_entries_flush(u64 *entry, u32 count)
{
	/* Before what tells the device of them, or asks for an invalidation. */
	wmb();
}
#endif

/* Write @count entries, each of its own page, but for those of none. Visible to the IOMMU. */
static __always_inline void xs_entries_write_each(const struct xs_tables *tables,
						  u64 *entry, const u64 *phys,
						  u64 bits, u32 count)
{
	for (u32 i = 0; i < count; i++)
		if (likely(phys[i] != XS_PHYS_NONE))
			WRITE_ONCE(entry[i], phys[i] | bits);
	if (tables->root.flushes)
		xs_entries_flush(entry, count);
}

/* Write @count entries, or clear them, with @value 0. Visible to the IOMMU. */
static __always_inline void xs_entries_write(const struct xs_tables *tables,
					     u64 *entry, u64 value, u32 count)
{
	u64 step = value ? PAGE_SIZE : 0;

	for (u32 i = 0; i < count; i++, value += step)
		WRITE_ONCE(entry[i], value);
	if (tables->root.flushes)
		xs_entries_flush(entry, count);
}

#endif
