/* SPDX-License-Identifier: GPL-2.0 OR MIT */
/*
 * A pool: memory that stays mapped, through which small buffers are copied. An unmap of a
 * copied buffer needs no invalidation. The device never sees the memory beside the buffer, nor
 * the buffer's own memory after the unmap.
 *
 * A chunk is 2 MiB of memory, mapped as a whole for a single direction: read, write or both, by
 * the device. A chunk is made of bounce buffers of equal size. A buffer has a bounce buffer as
 * long as the buffer is mapped; the bounce buffer's word says which memory was copied.
 *
 * An area is 64 contiguous bounce buffers. Areas are handed out like blocks of pages (block.h):
 * by bits of the word `free`, from the area that a CPU has open, and from partial lists. So the
 * common cases of map and unmap take no lock. An empty area returns to its chunk, and may serve
 * another CPU.
 *
 * After an unmap the device can still access the bounce buffer, with the last copied data,
 * until another buffer is copied there. If the device writes late, the next buffer receives the
 * data. A bounce buffer that the device writes begins as a copy of its buffer too, so that
 * bytes which the device does not write stay unchanged. While the buffer is mapped, data that
 * the driver writes there may be overwritten by the copy back: a sync copies nothing to a bounce
 * buffer that the device does not read.
 *
 * Unused bounce buffers lie in areas that CPUs have open, and in areas with less than
 * XS_LIST_MIN_FREE free, at most a quarter of each. A CPU looks at another CPU's partial list
 * before it takes an idle area, so holes are reused. When no bounce buffer of a kind is left and
 * the pool is at its limit, empty chunks are freed.
 */
#ifndef XSMMU_POOL_H
#define XSMMU_POOL_H

#include <xsmmu/block.h>
#include <xsmmu/stats.h>

#define XS_CHUNK_LG2		21
#define XS_CHUNK_BYTES		(1u << XS_CHUNK_LG2)
#define XS_CHUNKS_MAX		128u
#define XS_BOUNCE_MIN_LG2		8
#define XS_BOUNCE_MAX_LG2		12	/* on any platform: an area fits in a chunk */
#define XS_BOUNCE_SIZES		(XS_BOUNCE_MAX_LG2 - XS_BOUNCE_MIN_LG2 + 1)
#define XS_BOUNCE_MAX_BYTES	(1u << XS_BOUNCE_MAX_LG2)
#define XS_BOUNCE_ALIGN_LG2	11	/* alignment kept in the bounce buffer */
#define XS_AREA_BOUNCES_LG2	6
#define XS_AREAS_MAX		(XS_CHUNK_BYTES >> (XS_BOUNCE_MIN_LG2 + XS_AREA_BOUNCES_LG2))

/* IOVAs of a pool, in bytes. */
#define XS_POOL_BYTES		((u64)XS_CHUNKS_MAX << XS_CHUNK_LG2)
#define XS_POOL_MIB		64u	/* default limit */
#define XS_POOL_MAX_MIB		((u32)(XS_POOL_BYTES >> 20))

/* @start of a pool that was not added: xs_pool_has() is then false for each IOVA. */
#define XS_POOL_ABSENT		(1ULL << 63)

/* Pause before the next request for memory, after a failed allocation or at the limit. */
#define XS_POOL_PAUSE_NS	1000000000ULL

/* Pause before a CPU that found no bounce buffer of a kind searches again. */
#define XS_POOL_DRY_NS		1000000ULL
#define XS_AREA_LOOKS	16u	/* CPUs searched at most */

/* Access of a device to a bounce buffer. */
enum xs_direction {
	XS_DIRECTION_BOTH,
	XS_DIRECTION_READ,
	XS_DIRECTION_WRITE,
	XS_DIRECTIONS
};

#define XS_BOUNCE_KINDS		(XS_DIRECTIONS * XS_BOUNCE_SIZES)

/**
 * struct xs_chunk - a chunk
 * @memory: the memory
 * @iova: start in bytes
 * @kind: direction and size of the bounce buffers
 * @lg2: log2 of the size of the bounce buffers
 * @areas: number of areas
 * @words: word of each bounce buffer: 0, or the address of the copied memory from bit 12 on (52
 *   bits), and the number of bytes less 1 below
 * @idle_areas: number of areas that no CPU has
 * @stuck: the backend could not remove the chunk
 * @next: in the pool's list of chunks with idle areas, or in a list of chunks to free
 * @idle: a bit for each area that no CPU has
 * @area: the areas
 *
 * The first cache line is constant; the pool's lock guards the other members.
 */
struct xs_chunk {
	u8 *memory;
	u64 iova;
	u32 kind;
	u32 lg2;
	u32 areas;
	xs_atomic64_t *words;
	u32 idle_areas XS_CACHE_LINE;
	bool stuck;
	struct xs_chunk *next;
	u64 idle[XS_AREAS_MAX / 64];
	struct xs_block area[];
};

/**
 * struct xs_pool_cpu - one CPU's part of a pool
 * @open: areas from which the CPU takes bounce buffers, the pool's @none without an open area.
 *   This CPU reads @open without the lock.
 * @lock: guards all members
 * @search_cpu: CPU that owns the next partial list to search
 * @dry_ns: time before which the CPU does not search again, by kind
 * @partials: partial lists, which have locks of their own
 */
struct xs_pool_cpu {
	struct xs_block *open[XS_BOUNCE_KINDS];
	xs_lock_t lock XS_CACHE_LINE;
	u32 search_cpu;
	u64 dry_ns[XS_BOUNCE_KINDS];
	struct xs_partial partials[XS_BOUNCE_KINDS];
} XS_CACHE_LINE;

/**
 * struct xs_pool - a pool
 * @ops: operations of the backend
 * @backend: first argument of the operations
 * @start: start of the pool's IOVAs in bytes
 * @chunks: chunks by address; NULL where there is none
 * @cpus: part of each CPU
 * @cpu_count: number of CPUs
 * @counts: counters of copies
 * @none: area without a free bounce buffer
 * @lock: guards all members below, and idle areas of chunks
 * @limit: largest number of chunks
 * @count: chunks that the pool has or is about to have
 * @stuck_pages: pages of chunks that the backend could not remove. Such chunks stay in @chunks
 *   without an idle area, so no bounce buffer of them is handed out.
 * @wanted: kinds that need bounce buffers; the backend has been told
 * @pause_ns: time before which no memory is requested
 * @idle: chunks with idle areas, by kind
 *
 * The members of the first cache line are constant.
 */
struct xs_pool {
	const struct xs_backend_ops *ops;
	void *backend;
	u64 start;
	struct xs_chunk **chunks;
	struct xs_pool_cpu **cpus;
	u32 cpu_count;
	xs_counts_t *counts;
	struct xs_block none;
	xs_lock_t lock XS_CACHE_LINE;
	u32 limit;
	u32 count;
	u64 stuck_pages;
	u32 wanted;
	u64 pause_ns;
	struct xs_chunk *idle[XS_BOUNCE_KINDS];
};

/**
 * xs_pool_init - make an empty pool
 * @pool: pool
 * @ops: operations of the backend
 * @backend: first argument of the operations
 * @start: start of XS_POOL_BYTES of IOVAs for the pool only, not 0, a multiple of a chunk
 * @cpu_count: number of CPUs
 * @counts: counters of copies
 *
 * Context: may sleep.
 * Return: false without memory; nothing stays allocated.
 */
bool xs_pool_init(struct xs_pool *pool, const struct xs_backend_ops *ops,
		  void *backend, u64 start, u32 cpu_count, xs_counts_t *counts);

/**
 * xs_pool_destroy - unmap and free a pool, with all buffers in it
 * @pool: pool that no caller uses any more; afterwards without IOVAs
 *
 * The memory of chunks that the backend cannot remove is lost.
 *
 * Context: may sleep.
 */
void xs_pool_destroy(struct xs_pool *pool);

/**
 * xs_pool_limit - limit the number of chunks of a pool
 * @pool: pool
 * @limit: largest number of chunks, cut to XS_CHUNKS_MAX; present chunks stay
 *
 * Context: any.
 */
void xs_pool_limit(struct xs_pool *pool, u32 limit);

/**
 * xs_pool_grow - add the chunks that are wanted; at the limit, trim first
 * @pool: pool
 *
 * Context: may sleep; never together with xs_pool_grow(), xs_pool_trim() or xs_pool_retry() of the
 *   same pool (in the module: work_lock).
 */
void xs_pool_grow(struct xs_pool *pool);

/**
 * xs_pool_retry - ask the backend again to remove stuck chunks
 * @pool: pool
 *
 * Called by xs_engine_retry().
 *
 * Context: as xs_pool_grow().
 */
void xs_pool_retry(struct xs_pool *pool);

/**
 * xs_pool_trim - free chunks without a used bounce buffer; to be called periodically
 * @pool: pool
 * @kept: unused chunks of each kind that stay
 *
 * CPUs close their open areas.
 *
 * Context: as xs_pool_grow(), which calls this function.
 * Return: number of freed chunks.
 */
u32 xs_pool_trim(struct xs_pool *pool, u32 kept);

/**
 * xs_pool_map - copy a buffer into a bounce buffer
 * @pool: pool
 * @phys: physical address of the buffer in bytes
 * @bytes: size of the buffer
 * @direction: access of the device
 * @last: highest IOVA of the device in bytes, inclusive
 * @keep: mask of address bits that must be equal in @phys and the result, a power of two less
 *   1, or 0. Possible only up to XS_BOUNCE_MAX_BYTES - 1, and if the last two bits are 0.
 * @copies: copy now; else the copy of a buffer that the device only reads is left to
 *   xs_pool_sync()
 *
 * Context: any; entered.
 * Return: IOVA in bytes; 0 if no bounce buffer is free, or none is possible.
 */
u64 xs_pool_map(struct xs_pool *pool, u64 phys, u32 bytes, enum xs_direction direction,
		u64 last, u32 keep, bool copies);

/**
 * xs_pool_unmap - unmap a copied buffer
 * @pool: pool
 * @iova: any address inside the bounce buffer
 * @copies: copy back if the device may write
 *
 * Context: any; entered.
 * Return: false if no buffer is mapped there.
 */
bool xs_pool_unmap(struct xs_pool *pool, u64 iova, bool copies);

/**
 * xs_pool_sync - copy a part of a mapped buffer
 * @pool: pool
 * @iova: start in bytes
 * @bytes: size, cut to the end of the buffer
 * @to_device: copy to the bounce buffer if the device may read; else copy back if the device
 *   may write
 *
 * Context: any; entered.
 * Return: false if @iova is outside all mapped buffers.
 */
bool xs_pool_sync(struct xs_pool *pool, u64 iova, u32 bytes, bool to_device);

/**
 * xs_pool_next - find the next mapped buffer, to name outstanding buffers
 * @pool: pool at rest
 * @iova: start of the search in bytes; on success the start of the buffer
 * @bytes: on success the size of the buffer
 *
 * Context: no other call runs.
 * Return: false if no buffer is mapped at or after *@iova.
 */
bool xs_pool_next(const struct xs_pool *pool, u64 *iova, u32 *bytes);

/**
 * xs_chunk_direction - access of the device to a chunk
 * @chunk: chunk
 *
 * Context: any.
 * Return: the access.
 */
static inline enum xs_direction xs_chunk_direction(const struct xs_chunk *chunk)
{
	return (enum xs_direction)(chunk->kind / XS_BOUNCE_SIZES);
}

/**
 * xs_pool_has - test for an IOVA of a pool
 * @pool: pool
 * @iova: address in bytes
 *
 * Context: any.
 * Return: true if @iova belongs to the pool.
 */
static xs_inline bool xs_pool_has(const struct xs_pool *pool, u64 iova)
{
	return iova - pool->start < XS_POOL_BYTES;
}

#endif
