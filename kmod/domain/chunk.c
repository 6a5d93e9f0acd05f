// SPDX-License-Identifier: GPL-2.0-only
/*
 * Memory for a group's pool (xsmmu/pool.h). A chunk is mapped as long as the pool has it, by
 * one large entry where the IOMMU has entries of 2 MiB. One work adds chunks when there are
 * too few bounce buffers, and another work checks periodically whether there are too many.
 *
 * While the group is orphaned, its chunks are not mapped, and no chunk is added. Copies stay
 * valid for their driver, as mappings do.
 */
#include <linux/gfp.h>
#include <linux/iommu.h>
#include <linux/sched/mm.h>

#include "../compat/compat.h"
#include "../debug.h"
#include "domain.h"

#define CHUNK_PAGES	(XS_CHUNK_BYTES >> PAGE_SHIFT)
#define SHRINK_TICKS	(10 * HZ)

static const u32 chunk_prots[] = {
	[XS_DIRECTION_BOTH] = IOMMU_CACHE | IOMMU_READ | IOMMU_WRITE,
	[XS_DIRECTION_READ] = IOMMU_CACHE | IOMMU_READ,
	[XS_DIRECTION_WRITE] = IOMMU_CACHE | IOMMU_WRITE,
};

/*
 * Maps a chunk by a large entry. An empty page-table page, of the kernel's own path or of an
 * earlier engine, may be in the way, and is pruned first. Does not call iommu_map() where a
 * removal can fail: after an error iommu_map() drops the result of its own removal. Returns 0,
 * a negative errno, or XS_MAP_NOT_UNDONE.
 */
static int map_chunk(struct xs_backend *backend, u64 iova, void *memory, u32 direction)
{
	struct xs_range range = { iova >> PAGE_SHIFT, CHUNK_PAGES };
	int error;

	if (xs_fails())
		return -ENOMEM;
	if (backend->domain.iommu.maps_singly || backend->domain.iommu.kicks)
		return map_singly(backend, iova, virt_to_phys(memory),
					     CHUNK_PAGES, chunk_prots[direction]);
	error = prune(backend, iova, CHUNK_PAGES);
	if (error)
		return error;
	error = iommu_map(backend->domain.now, iova, virt_to_phys(memory),
			  XS_CHUNK_BYTES, chunk_prots[direction], GFP_KERNEL);
	if (!error && backend->domain.iommu.flushes_maps)
		count_map_flush(backend, &range);
	return error;
}

/*
 * Unmaps a chunk and invalidates: by its range, or the whole domain where a range invalidation
 * does not cover larger entries (@pages_only). False: the driver could not remove all of the
 * chunk.
 */
static bool unmap_chunk(struct xs_backend *backend, u64 iova)
{
	struct xs_range range = { iova >> PAGE_SHIFT, CHUNK_PAGES };
	xs_gather_t gather;
	int error = 0;

	if (xs_backend_has_no_domain(backend))
		return !backend->stuck_in;
	backend_gather_init(&gather);
	if (xs_refuses() || iommu_unmap_fast(backend->domain.now, iova, XS_CHUNK_BYTES,
					     &gather) != XS_CHUNK_BYTES)
		error = backend_remove_again(backend, &gather, iova,
						      CHUNK_PAGES);
	else if (backend->domain.iommu.kicks)
		atomic64_inc(&backend->counts.page);
	invalidate_counted(backend, &gather, &range,
			   !backend->domain.iommu.pages_only);
	return !error;
}

static void *chunk_add(void *data, u64 iova, u32 direction, bool *not_undone)
{
	struct xs_backend *backend = data;
	struct page *page;
	int error;

	lockdep_assert_held(&backend->work_lock);
	if (READ_ONCE(backend->maps_fail) || xs_fails())
		return NULL;
	page = alloc_pages_node(backend->node, GFP_KERNEL | __GFP_ZERO |
				__GFP_NOWARN | __GFP_NORETRY,
				get_order(XS_CHUNK_BYTES));
	if (!page)
		return NULL;
	error = map_chunk(backend, iova, page_address(page), direction);
	if (!error)
		return page_address(page);
	if (error == XS_MAP_NOT_UNDONE) {
		*not_undone = true;
		return page_address(page);
	}
	__free_pages(page, get_order(XS_CHUNK_BYTES));
	return NULL;
}

static bool chunk_drop(void *data, u64 iova, void *memory)
{
	if (!unmap_chunk(data, iova))
		return false;
	free_pages((unsigned long)memory, get_order(XS_CHUNK_BYTES));
	return true;
}

static bool chunks_unmap(struct xs_backend *backend)
{
	struct xs_chunk **chunks = backend->engine.pool.chunks;
	bool unmapped = true;

	lockdep_assert_held(&backend->work_lock);
	for (u32 i = 0; chunks && i < XS_CHUNKS_MAX; i++)
		if (chunks[i])
			unmapped &= unmap_chunk(backend, chunks[i]->iova);
	return unmapped;
}

/* Frees all idle chunks. Chunks that cannot be removed become stuck. */
static void chunks_drop(struct xs_backend *backend)
{
	mutex_lock(&backend->work_lock);
	if (backend->engine.pool.chunks)
		xs_pool_trim(&backend->engine.pool, 0);
	mutex_unlock(&backend->work_lock);
}

static int chunks_map(struct xs_backend *backend)
{
	struct xs_chunk **chunks = backend->engine.pool.chunks;
	bool unmapped = true;
	int error = 0;
	u32 i;

	lockdep_assert_held(&backend->work_lock);
	for (i = 0; chunks && i < XS_CHUNKS_MAX && !error; i++)
		if (chunks[i])
			error = map_chunk(backend, chunks[i]->iova,
					  chunks[i]->memory,
					  xs_chunk_direction(chunks[i]));
	/* The last chunk tried is not mapped. */
	for (i = error ? i - 1 : 0; i--; )
		if (chunks[i])
			unmapped &= unmap_chunk(backend, chunks[i]->iova);
	return unmapped ? error : XS_MAP_NOT_UNDONE;
}

/* Queues the work only while the backend is set up. */
static void chunks_short(void *data)
{
	struct xs_backend *backend = data;

	if (backend->cpus)
		schedule_work(&backend->grow);
}

/* An allocation for a disk's pool must not wait for I/O to the disk. */
static void grow_work(struct work_struct *work)
{
	struct xs_backend *backend = container_of(work, struct xs_backend, grow);
	unsigned int flags;

	mutex_lock(&backend->work_lock);
	flags = memalloc_noio_save();
	xs_pool_grow(&backend->engine.pool);
	memalloc_noio_restore(flags);
	mutex_unlock(&backend->work_lock);
	schedule_delayed_work(&backend->shrink, SHRINK_TICKS);
}

/* Keeps one idle chunk of each direction for later use, unless the pool is above its limit. */
static void shrink_work(struct work_struct *work)
{
	struct xs_backend *backend = container_of(to_delayed_work(work),
						  struct xs_backend, shrink);
	struct xs_pool *pool = &backend->engine.pool;

	mutex_lock(&backend->work_lock);
	xs_pool_trim(pool, READ_ONCE(pool->count) <= READ_ONCE(pool->limit));
	mutex_unlock(&backend->work_lock);
	if (READ_ONCE(pool->count))
		schedule_delayed_work(&backend->shrink, SHRINK_TICKS);
}
