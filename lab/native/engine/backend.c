// SPDX-License-Identifier: GPL-2.0-only
/*
 * The backend: a page table that is one array, and invalidations that are counted. Part of
 * path.c.
 *
 * A map writes an entry of 8 bytes and a removal clears it, as direct tables do. An invalidation
 * sends nothing. With a wait, each command keeps a lock for the time of the wait, which stands
 * for the lock of the IOMMU's queue; without a wait, commands share nothing.
 */
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

#include <xsmmu/engine.h>

#include "backend.h"

#define ENTRY_BITS	3ULL	/* readable and writable */

u64 *native_table;
u64 native_wait_ns;
bool native_short;

static xs_lock_t queue NATIVE_LINE;

static int native_map(void *backend, void **entries, u64 iova, u64 phys, u32 pages, u32 prot)
{
	u64 *entry = &native_table[iova >> XS_PAGE_LG2];

	(void)backend;
	(void)entries;
	(void)prot;
	for (u32 i = 0; i < pages; i++)
		xs_store(&entry[i], (phys + i * XS_PAGE_BYTES) | ENTRY_BITS);
	return 0;
}

static int native_remove(void *backend, xs_gather_t *gather, u64 iova, u64 pages)
{
	u64 *entry = &native_table[iova >> XS_PAGE_LG2];

	(void)backend;
	(void)gather;
	for (u64 i = 0; i < pages; i++)
		xs_store(&entry[i], 0);
	native_member(removed_pages) += pages;
	return 0;
}

static void wait_for_command(void)
{
	xs_flags_t flags = xs_lock_irqsave(&queue);
	u64 end = native_now() + native_wait_ns;

	while (native_now() < end)
		__builtin_ia32_pause();
	xs_unlock_irqrestore(&queue, flags);
}

static void native_invalidate(void *backend, xs_gather_t *gather, const struct xs_range *ranges,
			      u32 count, struct xs_commands *sent)
{
	(void)backend;
	(void)gather;
	(void)ranges;
	for (u32 i = 0; native_wait_ns && i < (count ? count : 1); i++)
		wait_for_command();
	native_member(commands_page) += count;
	native_member(commands_domain) += !count;
	sent->page += count;
	sent->domain += !count;
}

static void native_gather_init(xs_gather_t *gather)
{
	*gather = (xs_gather_t) { .start = ~0ULL, .queued = true };
}

static u64 native_clock(void *backend)
{
	(void)backend;
	return native_now();
}

static void native_deferred(void *backend, u32 cpu, bool arm, u64 deadline_ns)
{
	(void)backend;
	if (cpu == xs_cpu_id())
		native_member(deferred) = true;
	if (arm)
		xs_store(&native_areas[cpu]->deadline_ns, deadline_ns);
}

static void *native_alloc(void *backend, size_t bytes, u32 cpu, bool atomic)
{
	size_t room = (bytes + 63) & ~(size_t)63;
	void *memory = aligned_alloc(64, room);

	(void)backend;
	(void)cpu;
	(void)atomic;
	return memory ? memset(memory, 0, room) : NULL;
}

static void native_free(void *backend, void *memory, size_t bytes)
{
	(void)backend;
	(void)bytes;
	free(memory);
}

/* A CPU that is inside now is seen outside soon, because each section is short. */
static void native_quiesce(void *backend)
{
	(void)backend;
	native_order_all();
	for (u32 i = 0; i < NATIVE_CPUS && native_areas[i]; i++)
		while (xs_load_acquire(&native_areas[i]->inside))
			__builtin_ia32_pause();
}

static void *native_add_chunk(void *backend, u64 iova, u32 direction, bool *not_undone)
{
	void *memory = aligned_alloc(XS_CHUNK_BYTES, XS_CHUNK_BYTES);

	(void)not_undone;
	if (!memory)
		return NULL;
	/* Without effect on a system without huge pages. */
	madvise(memory, XS_CHUNK_BYTES, MADV_HUGEPAGE);
	native_map(backend, NULL, iova, 0, XS_CHUNK_BYTES >> XS_PAGE_LG2, direction);
	return memset(memory, 0, XS_CHUNK_BYTES);
}

static bool native_drop_chunk(void *backend, u64 iova, void *memory)
{
	(void)backend;
	memset(&native_table[iova >> XS_PAGE_LG2], 0,
	       (XS_CHUNK_BYTES >> XS_PAGE_LG2) * sizeof(*native_table));
	free(memory);
	return true;
}

static void native_short_of(void *backend)
{
	(void)backend;
	xs_store(&native_short, true);
}

static void native_misuse(void *backend, const struct xs_misuse *misuse)
{
	(void)backend;
	native_fail(misuse->what);
}

/* Memory of empty parts of the space stays: a run is short. */
const struct xs_backend_ops native_ops = {
	.map = native_map,
	.remove = native_remove,
	.invalidate = native_invalidate,
	.gather_init = native_gather_init,
	.clock = native_clock,
	.deferred = native_deferred,
	.alloc = native_alloc,
	.free = native_free,
	.quiesce = native_quiesce,
	.add_chunk = native_add_chunk,
	.drop_chunk = native_drop_chunk,
	.short_of = native_short_of,
	.misuse = native_misuse,
};
