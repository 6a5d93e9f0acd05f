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
 * A format is three things, here for VT-d's (vtd.c): where the root is
 * (xs_root_find()), where an entry is (xs_root_entry()), what is in one
 * (xs_tables_learn()).
 */
#ifndef XSMMU_TABLES_H
#define XSMMU_TABLES_H

#include <linux/iommu.h>
#include <linux/pci.h>

#include <asm/processor.h>
#include <asm/special_insns.h>

#include <xsmmu/world.h>

#define XS_ENTRY_ADDRESS	GENMASK_ULL(51, 12)
#define XS_ENTRY_READ		BIT_ULL(0)
#define XS_ENTRY_WRITE		BIT_ULL(1)
#define XS_ENTRY_LARGE		BIT_ULL(7)
#define XS_ENTRY_SNOOP		BIT_ULL(11)	/* of the second stage */
#define XS_ENTRY_USER		BIT_ULL(2)	/* of the first, as these */
#define XS_ENTRY_ACCESSED	BIT_ULL(5)
#define XS_ENTRY_DIRTY		BIT_ULL(6)
#define XS_ENTRY_NO_CODE	BIT_ULL(63)

/* IOMMU_READ to IOMMU_PRIV. */
#define XS_TABLES_KINDS		64

#define XS_TABLE_LG2		9
#define XS_TABLE_ENTRIES	(1u << XS_TABLE_LG2)

/*
 * struct xs_root - where a page table is, and how the IOMMU reads it
 * @first:	its first page
 * @levels:	that it has
 * @known:	bits that an entry may have beside the address
 * @flushes:	the IOMMU does not look into the CPU's caches
 */
struct xs_root {
	u64 *first;
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

/* The entry of an IOVA, NULL if there is no last table for it. */
u64 *xs_root_entry(const struct xs_root *root, u64 iova);

/*
 * NULL, and its other bits are known, if @entry is what the driver has to have written;
 * or why it is not.
 */
const char *xs_tables_learn(struct xs_tables *tables, u64 entry, u64 phys,
			    u32 prot);

/* An IOMMU that does not look into the CPU's caches sees @count entries. */
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
