/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * Direct tables: the module writes entries of the IOMMU's page table in place, so that the
 * IOMMU driver need not walk down to each entry.
 *
 * The driver's own map makes the tables and writes the first entry of a block. From this entry
 * the module learns where the block's entries are, as the hardware finds them, and which bits
 * an entry has beside the address. The module writes the second entry and asks the driver
 * whether the driver finds the page. After that a map in the block is a store. An unexpected
 * finding ends direct tables, and the driver's operations take over.
 *
 * Each format has a file, which knows where the root is, where an entry is, and which bits an
 * entry has.
 */
#ifndef XSMMU_IOMMU_TABLE_H
#define XSMMU_IOMMU_TABLE_H

#include <linux/bits.h>
#include <linux/io.h>
#include <linux/iommu.h>
#include <linux/mm.h>
#include <linux/pci.h>

#include <xsmmu/backend.h>

#define XS_ENTRY_ADDRESS	GENMASK_ULL(51, PAGE_SHIFT)

/* Combinations of the flags IOMMU_READ to IOMMU_PRIV. */
#define XS_TABLES_KINDS		64

#define XS_TABLE_LG2		(PAGE_SHIFT - 3)
#define XS_TABLE_ENTRIES	(1u << XS_TABLE_LG2)

struct xs_format;

/**
 * struct xs_root - a page table, and how the IOMMU reads it
 * @format:	format; NULL if no page table was found
 * @first:	first page of the table
 * @device:	entry of the IOMMU's device table, for formats whose driver adds levels: the table
 *		and the levels are read from there at each use, instead of @first and @levels
 * @known:	bits that an entry may have beside the address
 * @levels:	number of levels
 * @flushes:	written entries must be made visible to the IOMMU
 */
struct xs_root {
	const struct xs_format *format;
	u64 *first;
	const u64 *device;
	u64 known;
	u32 levels;
	bool flushes;
};

/**
 * struct xs_tables - direct tables of a group
 * @on:		the module writes entries in place
 * @root:	the page table
 * @bits:	bits of an entry beside the address, by kind of mapping; 0 if not known yet or not
 *		@on
 * @only:	as @bits, but 0 if a map needs more than writing the entry
 * @off_why:	the reason why direct tables, which are chosen, are not @on; NULL for none
 */
struct xs_tables {
	bool on;
	struct xs_root root;
	u64 bits[XS_TABLES_KINDS];
	u64 only[XS_TABLES_KINDS];
	const char *off_why;
};

/**
 * struct xs_format - format of page tables
 * @find:	finds the page table that the hardware uses for @dev and fills in @root, which is
 *		zeroed. Returns NULL, or the reason why the module cannot use the table. May sleep
 * @levels:	number of levels of the table that @value refers to; only for formats with
 *		&xs_root.device
 * @refers:	checks whether @value refers to a table of @levels levels
 * @learn:	checks that @entry is the entry that the driver writes for a page at @phys with
 *		@prot, and sets *@bits to its bits beside the address. Returns NULL, or the reason
 *		why the entry is not
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
 * The engine keeps a word for each block: the address of the block's first entry, of which the
 * lowest bits are 0. XS_ENTRIES_TRIED is set in the word once the driver has confirmed an entry
 * that the module wrote. Bit 0 would cost a register, as the compiler would keep the bit as the
 * result of xs_entries_are_tried().
 */
#define XS_ENTRIES_TRIED	BIT(1)

static __always_inline bool xs_entries_are_tried(const void *entries)
{
	return (unsigned long)entries & XS_ENTRIES_TRIED;
}

/* First entry of a block with tried entries. Subtracting costs no instruction, as masking would. */
static __always_inline u64 *xs_entries_tried(const void *entries)
{
	return (u64 *)((unsigned long)entries - XS_ENTRIES_TRIED);
}

/* Kind of a mapping: all flags on which its entries may depend. */
static __always_inline u32 xs_tables_kind(u32 prot)
{
	return prot & (XS_TABLES_KINDS - 1);
}

/**
 * xs_root_find - find the page table that the hardware uses for a device
 * @root: result
 * @dev: the device
 *
 * Context: as xs_iommu_look(), or the notifier of a bind; may sleep.
 * Return: NULL, or the reason why the module cannot use the page table.
 */
const char *xs_root_find(struct xs_root *root, struct device *dev);

/* Forgets the bits of entries. Context: any. */
static inline void xs_tables_forget(struct xs_tables *tables)
{
	for (u32 i = 0; i < XS_TABLES_KINDS; i++) {
		WRITE_ONCE(tables->only[i], 0);
		WRITE_ONCE(tables->bits[i], 0);
	}
}

/* The words at a physical address; NULL if the address is not memory. */
static inline u64 *xs_words_at(u64 phys)
{
	return pfn_valid(PHYS_PFN(phys)) ? phys_to_virt(phys) : NULL;
}

/* The table to which an entry refers; for all words that are laid out like an entry. */
static inline u64 *xs_table_at(u64 entry)
{
	return xs_words_at(entry & XS_ENTRY_ADDRESS);
}

/**
 * xs_root_entry - find the entry of an IOVA
 * @root: the page table
 * @iova: the IOVA
 *
 * Context: any; the table must stay.
 * Return: the entry in the last-level table; NULL if there is no such table.
 */
u64 *xs_root_entry(const struct xs_root *root, u64 iova);

/**
 * xs_tables_learn - learn the bits of an entry that the driver has written
 * @tables: result: the bits for this kind of mapping
 * @entry: the entry
 * @phys: physical address of the page
 * @prot: IOMMU_* flags of the map
 *
 * Context: any.
 * Return: NULL, or the reason why @entry is not as expected.
 */
const char *xs_tables_learn(struct xs_tables *tables, u64 entry, u64 phys,
			    u32 prot);

/* Makes entries visible to an IOMMU that does not snoop the CPU's caches. */
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
	/* Entries must be visible before the device is told of them, and before an invalidation. */
	wmb();
}
#else
/* Supported SMMUs snoop the CPU's caches, so only the order matters. */
static __always_inline void xs_entries_flush(u64 *entry, u32 count)
{
	/* Entries must be visible before the device is told of them, and before an invalidation. */
	wmb();
}
#endif

/*
 * Writes @count entries for the pages @phys, except for XS_PHYS_NONE, and makes them visible
 * to the IOMMU.
 */
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

/*
 * Writes @count entries for contiguous pages, or clears them if @value is 0, and makes them
 * visible to the IOMMU.
 */
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
