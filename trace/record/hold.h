/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * Whether the module could hold a page from its unmap to its flush; a part of record.bpf.c.
 *
 * The decision is that of kmod/platform.h, made at the map: a slab page and a page of a device
 * cannot be held (xs_memory_ref()), nor can a page without a reference (xs_ref_hold()). The first
 * page decides for a buffer, as in the module.
 */
#ifndef RECORD_HOLD_H
#define RECORD_HOLD_H

#pragma clang attribute push(__attribute__((preserve_access_index)), apply_to = record)

typedef struct {
	int counter;
} atomic_t;

struct page {
	unsigned long flags;
	unsigned long compound_head;
	u32 page_type;
	atomic_t _refcount;
};

/* The flags since 6.18, the place of the head since 7.0. */
struct page___new {
	struct {
		unsigned long f;
	} flags;
	unsigned long compound_info;
};

struct zoneref {
	void *zone;
};

struct zonelist {
	struct zoneref _zonerefs[1];
};

#pragma clang attribute pop

/* Types of pages since 6.12; before 6.10 slab is a flag. Their values here are not used. */
enum pagetype {
	PGTY_slab = 1,
};

enum pageflags {
	PG_slab = 1,
};

enum zone_type {
	ZONE_DEVICE = 1,
	__MAX_NR_ZONES,
};

/* Of page flags, set in pages of devices; 0 if the kernel has none. Set by hold_prepare(). */
__u64 device_bit = 0;

static __always_inline bool has_types(void)
{
	return bpf_core_enum_value_exists(enum pagetype, PGTY_slab);
}

/* Kernels with types of pages also have bpf_rdonly_cast(), so that reading a page is no call. */
static __always_inline const struct page *page_at(u64 address)
{
	return bpf_core_cast((void *)address, struct page);
}

static __always_inline u64 log2_up(u64 value)
{
	u64 bits = 0;

	while (bits < 16 && 1ull << bits < value)
		bits++;
	return bits;
}

/*
 * Finds the bit that tells pages of devices, where their zone is the last and its number a power of
 * two. A page's zone is below its node, which has the highest bits of the flags; a list of zones
 * has each zone of each node, and an end. Returns whether slab pages can be told.
 */
static __always_inline bool hold_prepare(void)
{
	u64 zone, zones, nodes;

	if (!has_types() && !bpf_core_enum_value_exists(enum pageflags, PG_slab))
		return false;
	if (!bpf_core_enum_value_exists(enum zone_type, ZONE_DEVICE) ||
	    !bpf_core_type_exists(struct zonelist))
		return true;
	zone = bpf_core_enum_value(enum zone_type, ZONE_DEVICE);
	zones = bpf_core_enum_value(enum zone_type, __MAX_NR_ZONES);
	nodes = bpf_core_type_size(struct zonelist) / bpf_core_type_size(struct zoneref) / zones;
	if (zone + 1 == zones && !(zone & (zone - 1)))
		device_bit = zone << (64 - log2_up(nodes) - log2_up(zones));
	return true;
}

static __always_inline u64 flags_of_page(const struct page *page)
{
	const struct page___new *since = (const void *)page;
	u64 flags;

	/* One load, which the compiler must not share with the other, as the place differs. */
	if (bpf_core_field_exists(since->flags.f)) {
		flags = since->flags.f;
		barrier_var(flags);
		return flags;
	}
	flags = page->flags;
	barrier_var(flags);
	return flags;
}

/*
 * The head of a tail page: bit 0 tells that the word is its address or, in ones, a mask for it. The
 * verifier takes the word for a pointer, so it is not read through a page.
 */
static __always_inline u64 head_of(u64 address)
{
	u64 info = 0, at, size;

	/* An offset that the kernel lacks must not be computed at all. */
	if (bpf_core_field_exists(struct page___new, compound_info)) {
		at = bpf_core_field_offset(struct page___new, compound_info);
		barrier_var(at);
	} else {
		at = bpf_core_field_offset(struct page, compound_head);
		barrier_var(at);
	}
	bpf_probe_read_kernel(&info, sizeof(info), (const void *)(address + at));
	size = -(info & ~1ull);
	if (!(info & 1))
		return address;
	return size & (size - 1) ? info & ~1ull : address & info;
}

static __always_inline bool is_slab_flag(u64 flags)
{
	return bpf_core_enum_value_exists(enum pageflags, PG_slab) &&
	       flags >> bpf_core_enum_value(enum pageflags, PG_slab) & 1;
}

/* @page has a reference, so it is no tail. */
static __always_inline bool is_unheld_kind(const struct page *page)
{
	u64 flags = flags_of_page(page);

	if (flags & device_bit)
		return true;
	if (has_types())
		return page->page_type >> 24 == bpf_core_enum_value(enum pagetype, PGTY_slab);
	return is_slab_flag(flags);
}

/* A page without a reference may be a tail, whose head decides. */
static __noinline bool head_is_unheld(u64 address)
{
	const struct page *page;
	u64 flags;

	if (has_types()) {
		page = page_at(head_of(address));
		return !page->_refcount.counter || is_unheld_kind(page);
	}
	page = (const struct page *)head_of(address);
	flags = BPF_CORE_READ(page, flags);
	return flags & device_bit || is_slab_flag(flags) || !BPF_CORE_READ(page, _refcount.counter);
}

/* TRACE_UNHELD if the module could not hold the page at an address; the verifier knows no page. */
static __always_inline u8 unheld_at(u64 address)
{
	const struct page *page;

	if (!has_types())
		return head_is_unheld(address) ? TRACE_UNHELD : 0;
	page = page_at(address);
	if (page->_refcount.counter)
		return is_unheld_kind(page) ? TRACE_UNHELD : 0;
	return head_is_unheld(address) ? TRACE_UNHELD : 0;
}

#endif
