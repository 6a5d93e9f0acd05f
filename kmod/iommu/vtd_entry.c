// SPDX-License-Identifier: GPL-2.0-only
/*
 * Entries of page tables of Intel VT-d, second-stage and first-stage (VT-d specification, 9.8 and
 * 9.7), which differ in the bits beside the address.
 */
#include <linux/bits.h>
#include <linux/iommu.h>

#include "table.h"
#include "vtd_table.h"

#define ENTRY_READ	BIT_ULL(0)
#define ENTRY_WRITE	BIT_ULL(1)
#define ENTRY_LARGE	BIT_ULL(7)
#define ENTRY_SNOOP	BIT_ULL(11)	/* second-stage */
#define ENTRY_USER	BIT_ULL(2)	/* first-stage, as the bits below */
#define ENTRY_ACCESSED	BIT_ULL(5)
#define ENTRY_DIRTY	BIT_ULL(6)
#define ENTRY_NO_CODE	BIT_ULL(63)

static const char *find_table(struct xs_root *root, struct device *dev)
{
	struct xs_vtd_table table;
	const char *why = xs_vtd_find_table(&table, dev);

	if (why)
		return why;
	root->first = table.first;
	root->levels = table.levels;
	root->flushes = table.flushes;
	root->known = ENTRY_READ | ENTRY_WRITE;
	root->known |= table.is_first_stage ?
		ENTRY_USER | ENTRY_ACCESSED | ENTRY_DIRTY |
			ENTRY_NO_CODE :
		ENTRY_SNOOP;
	return NULL;
}

static bool refers(u64 value, u32 levels)
{
	return value & (ENTRY_READ | ENTRY_WRITE) && !(value & ENTRY_LARGE);
}

/*
 * The driver of 6.12 makes writable second-stage pages readable, too. First-stage pages are
 * always readable.
 */
static bool is_right(const struct xs_root *root, u64 bits, u32 prot)
{
	return !(bits & ~root->known) &&
	       !(bits & ENTRY_WRITE) == !(prot & IOMMU_WRITE) &&
	       (bits & ENTRY_READ || !(prot & IOMMU_READ));
}

static const char *learn_bits(const struct xs_root *root, u64 entry, u64 phys,
			      u32 prot, u64 *bits)
{
	*bits = entry & ~XS_ENTRY_ADDRESS;
	if ((entry & XS_ENTRY_ADDRESS) != phys)
		return "an entry is not where it should be";
	return is_right(root, *bits, prot) ? NULL :
					     "an entry has unknown bits";
}

const struct xs_format xs_format_vtd = {
	.find = find_table,
	.refers = refers,
	.learn = learn_bits,
};
