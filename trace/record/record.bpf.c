// SPDX-License-Identifier: GPL-2.0-only
/*
 * Writes each call of the DMA API by chosen devices to the ring of its CPU.
 *
 * Maps are recorded at the end of the call, when their address is known; unmaps at the begin,
 * because at the end the address may already belong to another mapping. No kernel has all functions
 * below: the recorder loads the programs whose functions exist (list of trace/record/programs.c).
 * Fields of kernel structures are found by the kernel's BTF, so the structures here have the used
 * fields only.
 */
#include <stdbool.h>
#include <linux/bpf.h>
#include <bpf/bpf_helpers.h>
#include <bpf/bpf_tracing.h>
#include <bpf/bpf_core_read.h>

#include "trace.h"
#include "raw.h"

typedef __u64 u64;
typedef __u32 u32;
typedef __u16 u16;
typedef __u8 u8;

#define DMA_MAPPING_ERROR (~0ull)
#define DMA_ATTR_SKIP_CPU_SYNC (1ul << 5)
#define DMA_ATTR_MMIO (1ul << 10) /* no bit of a kernel before 6.17 */
#define DMA_IOVA_USE_SWIOTLB (1ull << 63)
#define SG_CHAIN 1ull
#define SG_END 2ull
#define SG_BYTES_MAX 48
#define POLL_PARENTS 3 /* above a network device, of which one may be recorded */

#pragma clang attribute push(__attribute__((preserve_access_index)), apply_to = record)

struct kobject {
	const char *name;
};

struct device {
	struct device *parent;
	struct kobject kobj;
};

struct net_device {
	struct device dev;
};

struct napi_struct {
	struct net_device *dev;
	u32 napi_id;
};

struct scatterlist {
	unsigned long page_link;
	u32 offset;
	u32 length;
	u64 dma_address;
	u32 dma_length;
};

struct sg_table {
	struct scatterlist *sgl;
	u32 nents;
	u32 orig_nents;
};

struct dma_iova_state {
	u64 addr;
	u64 __size;
};

#pragma clang attribute pop

#include "hold.h"

/*
 * Set before the program is loaded, and constant for the verifier. Weak, so that the compiler does
 * not know the values.
 */
__weak const __u32 device_count = 0;
__weak const __u64 names[RAW_DEVICES][RAW_NAME / sizeof(__u64)] = {};
__weak const __u32 page_shift = 12;
/* Address of the kernel variable that places struct page; 0 if there is none. */
__weak const __u64 symbol = 0;

/* Shared with the recorder. */
__u32 recording = 0;
__u64 vmemmap = 0; /* struct page of the first page of memory */
__u64 symbol_value = 0;
__u32 page_struct_bytes = 0;
__u32 tells_slab = 0;
struct raw_device devices[RAW_DEVICES] = {};
struct raw_cpu cpus[RAW_CPUS] = {};

struct ring {
	__uint(type, BPF_MAP_TYPE_RINGBUF);
	__uint(max_entries, 4096);
};

struct {
	__uint(type, BPF_MAP_TYPE_ARRAY_OF_MAPS);
	__uint(max_entries, 1);
	__type(key, u32);
	__array(values, struct ring);
} rings SEC(".maps");

/* Devices that are not recorded. If it is full, their names are compared at each call. */
struct {
	__uint(type, BPF_MAP_TYPE_HASH);
	__uint(max_entries, 1024);
	__type(key, u64);
	__type(value, u8);
} others SEC(".maps");

/* ---- devices ---- */

static bool same_name(const u64 *found, u32 index)
{
	const u64 *name = names[index];

	return found[0] == name[0] && found[1] == name[1] && found[2] == name[2];
}

/* Finds a device by its name, and keeps its pointer. Returns -1 if it is not recorded. */
static __noinline int resolve(u64 pointer)
{
	const struct device *dev = (const struct device *)pointer;
	const char *text = BPF_CORE_READ(dev, kobj.name);
	u64 name[RAW_NAME / sizeof(u64)] = {};
	u8 one = 1;

	bpf_probe_read_kernel_str(name, sizeof(name), text);
	for (u32 i = 0; i < RAW_DEVICES && i < device_count; i++) {
		if (same_name(name, i)) {
			devices[i].pointer = pointer;
			return i;
		}
	}
	bpf_map_update_elem(&others, &pointer, &one, BPF_ANY);
	return -1;
}

static __noinline int look_up(u64 pointer)
{
	return bpf_map_lookup_elem(&others, &pointer) ? -1 : resolve(pointer);
}

/* Returns the index of a device, which is not NULL, or -1 if the call is not to be recorded. */
static __always_inline int index_of(const struct device *dev)
{
	u64 pointer = (u64)dev;

	if (!recording)
		return -1;
	/* Most recordings are of one device. */
	if (devices[0].pointer == pointer)
		return 0;
	for (u32 i = 1; i < RAW_DEVICES && i < device_count; i++) {
		if (devices[i].pointer == pointer)
			return i;
	}
	return look_up(pointer);
}

/* The memory of a removed device may become another device. */
SEC("?fentry/device_del")
int BPF_PROG(removed, struct device *dev)
{
	u64 pointer = (u64)dev;

	bpf_map_delete_elem(&others, &pointer);
	for (u32 i = 0; i < RAW_DEVICES && i < device_count; i++) {
		if (devices[i].pointer == pointer) {
			devices[i].pointer = 0;
			__sync_fetch_and_add(&devices[i].removed, 1);
		}
	}
	return 0;
}

/* ---- events ---- */

static __noinline int lose(u32 cpu, u64 ns, u64 events)
{
	struct raw_cpu *of = &cpus[cpu & (RAW_CPUS - 1)];

	of->lost_ns = ns;
	__sync_fetch_and_add(&of->lost, events);
	return 0;
}

static __always_inline struct raw_event *begin(u32 cpu, u64 ns, u64 events)
{
	void *ring = bpf_map_lookup_elem(&rings, &cpu);
	struct raw_event *event = ring ? bpf_ringbuf_reserve(ring, sizeof(*event), 0) : NULL;

	if (!event)
		lose(cpu, ns, events);
	return event;
}

static __always_inline void emit(int device, u8 kind, u8 flags, u64 iova, u64 phys, u64 bytes,
				 u32 span)
{
	u64 ns = bpf_ktime_get_ns();
	struct raw_event *event = begin(bpf_get_smp_processor_id(), ns, 1);

	if (!event)
		return;
	event->ns = ns;
	event->iova = iova;
	event->phys = phys;
	event->bytes = bytes;
	event->span = span;
	event->device = device;
	event->kind = kind;
	event->flags = flags;
	/* The recorder looks at the rings by time: waking it would cost more than the event. */
	bpf_ringbuf_submit(event, BPF_RB_NO_WAKEUP);
}

static __always_inline u8 flags_of(u32 direction, unsigned long attrs, bool failed)
{
	return (direction & TRACE_DIRECTION) | (failed ? TRACE_FAILED : 0) |
	       (attrs & DMA_ATTR_SKIP_CPU_SYNC ? TRACE_SKIP_SYNC : 0) |
	       (attrs & DMA_ATTR_MMIO ? TRACE_MMIO : 0);
}

/* An argument as a plain number: the verifier does not let a pointer change to an unknown one in a
 * loop. */
static __always_inline u64 argument(const u64 *ctx, u32 index)
{
	u64 value = 0;

	bpf_probe_read_kernel(&value, sizeof(value), ctx + index);
	return value;
}

/* TRACE_UNHELD if the module could not hold the memory at a physical address; 0 if not known. */
static __always_inline u8 unheld_phys(u64 phys)
{
	u64 page = (phys >> page_shift) * bpf_core_type_size(struct page);

	return vmemmap ? unheld_at(vmemmap + page) : 0;
}

/* The recorder runs this once, and computes `vmemmap`. */
SEC("syscall")
int read_symbol(void *ctx)
{
	u64 value = 0;

	bpf_probe_read_kernel(&value, sizeof(value), (const void *)symbol);
	symbol_value = value;
	page_struct_bytes = bpf_core_type_size(struct page);
	tells_slab = hold_prepare();
	return 0;
}

/* ---- single buffers ---- */

static __always_inline void emit_map(int device, u8 flags, u64 iova, u64 phys, u64 bytes,
				     u32 span)
{
	if (iova == DMA_MAPPING_ERROR)
		emit(device, TRACE_MAP, flags | TRACE_FAILED, 0, phys, bytes, span);
	else
		emit(device, TRACE_MAP, flags, iova, phys, bytes, span);
}

static __always_inline void mapped(struct device *dev, u64 phys, u64 bytes, u8 flags, u64 iova)
{
	int device = index_of(dev);

	if (device < 0)
		return;
	if (!(flags & TRACE_MMIO))
		flags |= unheld_phys(phys);
	emit_map(device, flags, iova, phys, bytes, 0);
}

static __always_inline void unmapped(struct device *dev, u64 iova, u64 bytes, u32 dir,
				     unsigned long attrs)
{
	int device = index_of(dev);

	if (device >= 0)
		emit(device, TRACE_UNMAP, flags_of(dir, attrs, false), iova, 0, bytes, 0);
}

SEC("?fexit/dma_map_page_attrs")
int BPF_PROG(map_page, struct device *dev, struct page *page, u64 offset, u64 bytes, u32 dir,
	     unsigned long attrs, u64 iova)
{
	int device = index_of(dev);
	u8 flags = flags_of(dir, attrs & ~DMA_ATTR_MMIO, false) | RAW_PAGE;

	if (device < 0)
		return 0;
	if (page->_refcount.counter ? is_unheld_kind(page) : head_is_unheld(argument(ctx, 1)))
		flags |= TRACE_UNHELD;
	emit_map(device, flags, iova, (u64)page, bytes, offset);
	return 0;
}

SEC("?fexit/dma_map_phys")
int BPF_PROG(map_phys, struct device *dev, u64 phys, u64 bytes, u32 dir, unsigned long attrs,
	     u64 iova)
{
	mapped(dev, phys, bytes, flags_of(dir, attrs, false), iova);
	return 0;
}

SEC("?fexit/dma_map_resource")
int BPF_PROG(map_resource, struct device *dev, u64 phys, u64 bytes, u32 dir, unsigned long attrs,
	     u64 iova)
{
	mapped(dev, phys, bytes, flags_of(dir, attrs | DMA_ATTR_MMIO, false), iova);
	return 0;
}

SEC("?fentry/dma_unmap_page_attrs")
int BPF_PROG(unmap_page, struct device *dev, u64 iova, u64 bytes, u32 dir, unsigned long attrs)
{
	unmapped(dev, iova, bytes, dir, attrs & ~DMA_ATTR_MMIO);
	return 0;
}

SEC("?fentry/dma_unmap_phys")
int BPF_PROG(unmap_phys, struct device *dev, u64 iova, u64 bytes, u32 dir, unsigned long attrs)
{
	unmapped(dev, iova, bytes, dir, attrs);
	return 0;
}

SEC("?fentry/dma_unmap_resource")
int BPF_PROG(unmap_resource, struct device *dev, u64 iova, u64 bytes, u32 dir, unsigned long attrs)
{
	unmapped(dev, iova, bytes, dir, attrs | DMA_ATTR_MMIO);
	return 0;
}

/* ---- scatter lists ---- */

/* A walk over a list; nothing here changes but @sg, or the verifier would follow each entry of its
 * own. */
struct walk {
	u64 sg;
	u64 ns;
	u32 cpu;
	u32 mapped; /* entries with an address for the device */
	u16 device;
	u8 flags;
	u8 each; /* whether entries are recorded */
};

#define SG_FIELD(type, sg, field) \
	(*(type *)((char *)(sg) + bpf_core_field_offset(struct scatterlist, field)))

static __always_inline void emit_entry(const struct walk *walk, const u64 *sg, u32 index)
{
	struct raw_event *event = begin(walk->cpu, walk->ns, 1);
	u64 page = SG_FIELD(u64, sg, page_link) & ~(SG_CHAIN | SG_END);
	u32 span;

	if (!event)
		return;
	if (bpf_core_field_exists(struct scatterlist, dma_length))
		span = SG_FIELD(u32, sg, dma_length);
	else
		span = SG_FIELD(u32, sg, length);
	if (index >= walk->mapped)
		span = 0;
	event->ns = walk->ns;
	event->iova = span ? SG_FIELD(u64, sg, dma_address) : 0;
	event->phys = vmemmap ? ((page - vmemmap) / bpf_core_type_size(struct page) << page_shift) +
					SG_FIELD(u32, sg, offset)
			      : 0;
	event->bytes = SG_FIELD(u32, sg, length);
	event->span = span;
	event->device = walk->device;
	event->kind = TRACE_ENTRY;
	event->flags = walk->flags | unheld_at(page);
	bpf_ringbuf_submit(event, BPF_RB_NO_WAKEUP);
}

static __always_inline void add_up(const struct walk *walk, u64 offset, u64 bytes)
{
	struct raw_cpu *cpu = &cpus[walk->cpu & (RAW_CPUS - 1)];
	u64 mask = (1ull << page_shift) - 1;
	u32 each = walk->each & 1;

	cpu->sum[each] += bytes;
	cpu->pages[each] += ((offset & mask) + bytes + mask) >> page_shift;
}

static long walk_entry(u32 index, struct walk *walk)
{
	u64 sg[SG_BYTES_MAX / sizeof(u64)] = {};
	u64 at = walk->sg;

	if (bpf_core_type_size(struct scatterlist) > sizeof(sg))
		return 1;
	bpf_probe_read_kernel(sg, bpf_core_type_size(struct scatterlist), (const void *)at);
	if (SG_FIELD(u64, sg, page_link) & SG_CHAIN) {
		at = SG_FIELD(u64, sg, page_link) & ~(SG_CHAIN | SG_END);
		bpf_probe_read_kernel(sg, bpf_core_type_size(struct scatterlist), (const void *)at);
	}
	add_up(walk, SG_FIELD(u32, sg, offset), SG_FIELD(u32, sg, length));
	if (walk->each)
		emit_entry(walk, sg, index);
	walk->sg = at + bpf_core_type_size(struct scatterlist);
	return SG_FIELD(u64, sg, page_link) & SG_END ? 1 : 0;
}

static __always_inline u64 first_iova(u64 sg)
{
	u64 iova = 0;

	bpf_probe_read_kernel(
		&iova, sizeof(iova),
		(const void *)(sg + bpf_core_field_offset(struct scatterlist, dma_address)));
	return iova;
}

/*
 * Records a list, and its entries if it was mapped. The place of the list's own event is taken
 * first, so it is before its entries, and completed when their sum is known. An interrupt during a
 * walk may unmap lists, but a list that it maps is counted as lost: its entries could not be told
 * from the others'.
 */
static __always_inline void record_list(int device, u64 sg, u32 entries, u8 kind, u8 flags,
					u32 mapped)
{
	u32 each = kind == TRACE_MAP_LIST;
	struct walk walk = {
		.sg = sg,
		.ns = bpf_ktime_get_ns(),
		.cpu = bpf_get_smp_processor_id(),
		.mapped = mapped,
		.device = device,
		.flags = flags,
		.each = each,
	};
	struct raw_cpu *cpu = &cpus[walk.cpu & (RAW_CPUS - 1)];
	u64 iova = first_iova(sg);
	struct raw_event *event;

	if (__sync_lock_test_and_set(&cpu->in_list[each], 1)) {
		lose(walk.cpu, walk.ns, each ? 1 + entries : 1);
		return;
	}
	cpu->sum[each] = 0;
	cpu->pages[each] = 0;
	event = begin(walk.cpu, walk.ns, each ? 1 + entries : 1);
	if (event) {
		event->ns = walk.ns;
		event->iova = flags & TRACE_FAILED ? 0 : iova;
		event->span = entries;
		event->device = device;
		event->kind = kind;
		event->flags = flags;
		bpf_loop(entries, walk_entry, &walk, 0);
		event->bytes = cpu->sum[each];
		event->phys = cpu->pages[each];
		bpf_ringbuf_submit(event, BPF_RB_NO_WAKEUP);
	}
	cpu->in_list[each] = 0;
}

static __always_inline u64 list_of(u64 table)
{
	u64 sg = 0;

	bpf_probe_read_kernel(&sg, sizeof(sg),
			      (const void *)(table + bpf_core_field_offset(struct sg_table, sgl)));
	return sg;
}

SEC("?fexit/dma_map_sg_attrs")
int BPF_PROG(map_sg, struct device *dev, struct scatterlist *sg, u32 entries, u32 dir,
	     unsigned long attrs, u32 mapped)
{
	int device = index_of(dev);

	if (device >= 0)
		record_list(device, argument(ctx, 1), entries, TRACE_MAP_LIST,
			    flags_of(dir, attrs, !mapped), mapped);
	return 0;
}

SEC("?fexit/dma_map_sgtable")
int BPF_PROG(map_sgtable, struct device *dev, struct sg_table *table, u32 dir, unsigned long attrs,
	     int error)
{
	int device = index_of(dev);

	if (device >= 0)
		record_list(device, list_of(argument(ctx, 1)), table->orig_nents, TRACE_MAP_LIST,
			    flags_of(dir, attrs, error), error ? 0 : table->nents);
	return 0;
}

SEC("?fentry/dma_unmap_sg_attrs")
int BPF_PROG(unmap_sg, struct device *dev, struct scatterlist *sg, u32 entries, u32 dir,
	     unsigned long attrs)
{
	int device = index_of(dev);

	if (device >= 0)
		record_list(device, argument(ctx, 1), entries, TRACE_UNMAP_LIST,
			    flags_of(dir, attrs, false), 0);
	return 0;
}

/* ---- syncs ---- */

static __always_inline void synced(struct device *dev, u64 iova, u64 bytes, u32 dir, u8 kind)
{
	int device = index_of(dev);

	if (device >= 0)
		emit(device, kind, flags_of(dir, 0, false), iova, 0, bytes, 0);
}

static __always_inline void list_synced(const u64 *ctx, struct device *dev, u32 entries, u32 dir,
					u8 kind)
{
	int device = index_of(dev);

	if (device >= 0)
		record_list(device, argument(ctx, 1), entries, kind, flags_of(dir, 0, false), 0);
}

#define SYNC_SINGLE(name, function, kind)                                    \
	SEC("?fentry/" #function)                                            \
	int BPF_PROG(name, struct device *dev, u64 iova, u64 bytes, u32 dir) \
	{                                                                    \
		synced(dev, iova, bytes, dir, kind);                         \
		return 0;                                                    \
	}
#define SYNC_LIST(name, function, kind)                                                      \
	SEC("?fentry/" #function)                                                            \
	int BPF_PROG(name, struct device *dev, struct scatterlist *sg, u32 entries, u32 dir) \
	{                                                                                    \
		list_synced(ctx, dev, entries, dir, kind);                                   \
		return 0;                                                                    \
	}

SYNC_SINGLE(sync_cpu, __dma_sync_single_for_cpu, TRACE_SYNC_CPU)
SYNC_SINGLE(sync_cpu_old, dma_sync_single_for_cpu, TRACE_SYNC_CPU)
SYNC_SINGLE(sync_device, __dma_sync_single_for_device, TRACE_SYNC_DEVICE)
SYNC_SINGLE(sync_device_old, dma_sync_single_for_device, TRACE_SYNC_DEVICE)
SYNC_LIST(sync_list_cpu, __dma_sync_sg_for_cpu, TRACE_SYNC_CPU)
SYNC_LIST(sync_list_cpu_old, dma_sync_sg_for_cpu, TRACE_SYNC_CPU)
SYNC_LIST(sync_list_device, __dma_sync_sg_for_device, TRACE_SYNC_DEVICE)
SYNC_LIST(sync_list_device_old, dma_sync_sg_for_device, TRACE_SYNC_DEVICE)

/* ---- coherent memory; pools take theirs from dma_alloc_attrs() ---- */

static __always_inline void allocated(struct device *dev, const u64 *handle, u64 page, u64 bytes,
				      bool failed)
{
	int device = index_of(dev);
	u64 iova = 0;

	if (device < 0)
		return;
	if (!failed)
		bpf_probe_read_kernel(&iova, sizeof(iova), handle);
	emit(device, TRACE_ALLOC, RAW_PAGE | (failed ? TRACE_FAILED : 0), iova, page, bytes, 0);
}

static __always_inline void freed(struct device *dev, u64 iova, u64 bytes)
{
	int device = index_of(dev);

	if (device >= 0)
		emit(device, TRACE_FREE, 0, iova, 0, bytes, 0);
}

SEC("?fexit/dma_alloc_attrs")
int BPF_PROG(alloc, struct device *dev, u64 bytes, u64 *handle, u32 gfp, unsigned long attrs,
	     void *memory)
{
	allocated(dev, handle, 0, bytes, !memory);
	return 0;
}

SEC("?fentry/dma_free_attrs")
int BPF_PROG(free_, struct device *dev, u64 bytes, void *memory, u64 iova, unsigned long attrs)
{
	if (memory)
		freed(dev, iova, bytes);
	return 0;
}

SEC("?fexit/dma_alloc_pages")
int BPF_PROG(alloc_pages, struct device *dev, u64 bytes, u64 *handle, u32 dir, u32 gfp,
	     struct page *page)
{
	allocated(dev, handle, (u64)page, bytes, !page);
	return 0;
}

SEC("?fentry/dma_free_pages")
int BPF_PROG(free_pages, struct device *dev, u64 bytes, struct page *page, u64 iova, u32 dir)
{
	freed(dev, iova, bytes);
	return 0;
}

SEC("?fexit/dma_alloc_noncontiguous")
int BPF_PROG(alloc_list, struct device *dev, u64 bytes, u32 dir, u32 gfp, unsigned long attrs,
	     struct sg_table *table)
{
	u64 address = list_of((u64)table) + bpf_core_field_offset(struct scatterlist, dma_address);

	allocated(dev, (const u64 *)address, 0, bytes, !table);
	return 0;
}

SEC("?fentry/dma_free_noncontiguous")
int BPF_PROG(free_list, struct device *dev, u64 bytes, struct sg_table *table, u32 dir)
{
	freed(dev, first_iova(list_of((u64)table)), bytes);
	return 0;
}

/* ---- the two-step API ---- */

static __always_inline void iova_event(struct device *dev, const struct dma_iova_state *state,
				       u8 kind, u8 flags, u64 phys, u64 offset, u64 bytes)
{
	int device = index_of(dev);

	if (device < 0)
		return;
	if (kind == TRACE_IOVA_LINK && !(flags & TRACE_MMIO))
		flags |= unheld_phys(phys);
	emit(device, kind, flags, state->addr + offset, phys, bytes, 0);
}

/* False only says that the driver has to map in another way. */
SEC("?fexit/dma_iova_try_alloc")
int BPF_PROG(iova_alloc, struct device *dev, struct dma_iova_state *state, u64 phys, u64 bytes,
	     u8 done)
{
	if (done)
		iova_event(dev, state, TRACE_IOVA_ALLOC, 0, phys, 0, bytes);
	return 0;
}

SEC("?fexit/dma_iova_link")
int BPF_PROG(iova_link, struct device *dev, struct dma_iova_state *state, u64 phys, u64 offset,
	     u64 bytes, u32 dir, unsigned long attrs, int error)
{
	iova_event(dev, state, TRACE_IOVA_LINK, flags_of(dir, attrs, error), phys, offset, bytes);
	return 0;
}

SEC("?fexit/dma_iova_sync")
int BPF_PROG(iova_sync, struct device *dev, struct dma_iova_state *state, u64 offset, u64 bytes,
	     int error)
{
	iova_event(dev, state, TRACE_IOVA_SYNC, error ? TRACE_FAILED : 0, 0, offset, bytes);
	return 0;
}

SEC("?fentry/dma_iova_unlink")
int BPF_PROG(iova_unlink, struct device *dev, struct dma_iova_state *state, u64 offset, u64 bytes,
	     u32 dir, unsigned long attrs)
{
	iova_event(dev, state, TRACE_IOVA_UNLINK, flags_of(dir, attrs, false), 0, offset, bytes);
	return 0;
}

/* With nothing linked, dma_iova_destroy() calls dma_iova_free(). */
SEC("?fentry/dma_iova_destroy")
int BPF_PROG(iova_destroy, struct device *dev, struct dma_iova_state *state, u64 bytes, u32 dir,
	     unsigned long attrs)
{
	if (bytes)
		iova_event(dev, state, TRACE_IOVA_FREE, flags_of(dir, attrs, false), 0, 0, bytes);
	return 0;
}

SEC("?fentry/dma_iova_free")
int BPF_PROG(iova_free, struct device *dev, struct dma_iova_state *state)
{
	iova_event(dev, state, TRACE_IOVA_FREE, 0, 0, 0, 0);
	return 0;
}

/* ---- polls, and the kernel's own count ---- */

SEC("?tp_btf/napi_poll")
int BPF_PROG(poll, struct napi_struct *napi, int work, int budget)
{
	struct net_device *link = napi->dev;
	struct device *dev = link ? link->dev.parent : NULL;

	/* The parent of a virtio NIC is a virtio device, whose parent is the PCI device. */
	for (u32 i = 0; i < POLL_PARENTS && dev; i++) {
		int device = index_of(dev);

		if (device >= 0) {
			emit(device, TRACE_POLL, 0, 0, 0, work > 0 ? work : 0, napi->napi_id);
			return 0;
		}
		dev = dev->parent;
	}
	return 0;
}

SEC("?tp_btf/map")
int BPF_PROG(iommu_map, unsigned long iova, u64 phys, u64 bytes)
{
	struct raw_cpu *cpu = &cpus[bpf_get_smp_processor_id() & (RAW_CPUS - 1)];

	if (recording) {
		__sync_fetch_and_add(&cpu->maps, 1);
		__sync_fetch_and_add(&cpu->map_bytes, bytes);
	}
	return 0;
}

SEC("?tp_btf/unmap")
int BPF_PROG(iommu_unmap, unsigned long iova, u64 bytes, u64 unmapped_bytes)
{
	struct raw_cpu *cpu = &cpus[bpf_get_smp_processor_id() & (RAW_CPUS - 1)];

	if (recording) {
		__sync_fetch_and_add(&cpu->unmaps, 1);
		__sync_fetch_and_add(&cpu->unmap_bytes, unmapped_bytes);
	}
	return 0;
}

char LICENSE[] SEC("license") = "GPL";
