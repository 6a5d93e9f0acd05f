/* SPDX-License-Identifier: GPL-2.0 OR MIT */
/*
 * A pool: memory of our own that stays mapped, through which small buffers are
 * copied. There is nothing to invalidate when one is unmapped, and the device never
 * sees a byte of the memory beside it, nor of its own once it is unmapped.
 *
 * A chunk is 2 MiB of memory, mapped as a whole for one way, which is what the device
 * may do: read, write or both. It is made of bounce buffers of one size. A buffer has a bounce
 * buffer for as long as it is mapped; the bounce buffer's word says which memory it is a copy of.
 *
 * 64 bounce buffers contiguous are a area, which is handed out like a block of pages is (block.h):
 * by bits of its word `free`, from that which a CPU has open, from partial lists. So both
 * common cases, map and unmap, take no lock. An empty area is its chunk's, and may
 * serve another CPU.
 *
 * What the device still has is the bounce buffer, with what was copied last, until another buffer
 * is. If it writes there later the next buffer has it. A bounce buffer that the device writes
 * begins as a copy of its buffer, too: what the device does not write is not changed. As long as
 * it is mapped, what the driver writes in between may be: a sync copies nothing to what
 * the device does not read.
 *
 * Bounce buffers that nobody uses are anywhere: in areas that CPUs have open, and in those with
 * less than XS_BLOCK_MUCH free, at most a quarter of each. A CPU looks at what is partial
 * on another's partial list before it takes a area that is idle, so holes are reused. When there
 * are no bounce buffers of a kind, what is empty of others is freed for them, if there is anything.
 */
#ifndef XSMMU_POOL_H
#define XSMMU_POOL_H

#include <xsmmu/block.h>
#include <xsmmu/stats.h>

#define XS_CHUNK_LG2		21
#define XS_CHUNK_BYTES		(1u << XS_CHUNK_LG2)
#define XS_CHUNKS_MAX		128u
#define XS_BOUNCE_MIN_LG2		8
#define XS_BOUNCE_MAX_LG2		12	/* of any platform's pages: a area is in a chunk */
#define XS_BOUNCE_SIZES		(XS_BOUNCE_MAX_LG2 - XS_BOUNCE_MIN_LG2 + 1)
#define XS_BOUNCE_MAX_BYTES	(1u << XS_BOUNCE_MAX_LG2)
#define XS_BOUNCE_ALIGN_LG2	11	/* of a buffer, which its bounce buffer has, too */
#define XS_AREA_BOUNCES_LG2	6
#define XS_AREAS_MAX		(XS_CHUNK_BYTES >> (XS_BOUNCE_MIN_LG2 + XS_AREA_BOUNCES_LG2))

/* IOVAs that a pool may use, from its start on. */
#define XS_POOL_BYTES		((u64)XS_CHUNKS_MAX << XS_CHUNK_LG2)
#define XS_POOL_MIB		64u	/* if nothing is said */
#define XS_POOL_MAX_MIB		((u32)(XS_POOL_BYTES >> 20))

/* Where a pool begins that has none: no IOVA is near. */
#define XS_POOL_BLOCKED		(1ULL << 63)

/* After there was no memory, or the limit, none is asked for again for so long. */
#define XS_POOL_PAUSE_NS	1000000000ULL

/* A CPU that found no bounce buffer of a kind looks for none for so long. */
#define XS_POOL_DRY_NS		1000000ULL
#define XS_AREA_LOOKS	16u	/* CPUs whose areas are looked at when there is no other */

/* What a device may do with a bounce buffer. */
enum xs_direction {
	XS_DIRECTION_BOTH,
	XS_DIRECTION_READ,
	XS_DIRECTION_WRITE,
	XS_DIRECTIONS
};

#define XS_BOUNCE_KINDS		(XS_DIRECTIONS * XS_BOUNCE_SIZES)

/*
 * struct xs_chunk - the first line is constant, the rest guarded by the pool's lock
 * @lg2:	the size of its bounce buffers
 * @words:	of its bounce buffers: 0, or the address of the memory that it is a copy of, of 52
 *		bits, from the 13th bit on, and below it how many bytes, less one
 * @idle:	areas that no CPU has, a bit for each
 * @idle_areas:	how many
 * @next:	in the pool's list of those with idle areas, or in one of those that go
 * @stuck:	the backend could not remove it
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

/*
 * struct xs_pool_cpu - one CPU's part
 * @open:	the areas whose bounce buffers it hands out, the pool's @none for none; read
 *		without the lock by this CPU
 * @dry_ns:	until when it looks for no other one
 * @probe:	the CPU whose partial list is looked at next
 */
struct xs_pool_cpu {
	struct xs_block *open[XS_BOUNCE_KINDS];
	xs_lock_t lock XS_CACHE_LINE;
	u32 probe;
	u64 dry_ns[XS_BOUNCE_KINDS];
	struct xs_partial partials[XS_BOUNCE_KINDS];
} XS_CACHE_LINE;

/*
 * struct xs_pool - the first line is constant, but for what it points to
 * @start:	of its IOVAs
 * @chunks:	by their place in those; NULL: none there
 * @cpus:	one per CPU
 * @counts:	where copies are counted
 * @none:	a area in which nothing is free
 * @lock:	guards what follows
 * @limit:	chunks that it may have
 * @count:	that it has, or is about to
 * @stuck_pages: of chunks that the backend could not remove. They stay in @chunks, where no
 *		area of theirs is idle, so nobody gets a bounce buffer of them
 * @idle:	chunks with idle areas, by kind
 * @wanted:	kinds that are short of bounce buffers; the backend has been told
 * @pause_ns:	until when nothing is asked for
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

/*
 * Make an empty pool for CPUs below @cpu_count, of IOVAs from @start on, which is not 0;
 * they are XS_POOL_BYTES, whole chunks and nobody else's. What it does is counted in
 * @counts. False: no memory; nothing is left behind. May sleep.
 */
bool xs_pool_init(struct xs_pool *pool, const struct xs_backend_ops *ops,
		  void *backend, u64 start, u32 cpu_count, xs_counts_t *counts);

/*
 * Unmap and free it, whatever is in it; then no IOVA is its. The memory of chunks that the
 * backend cannot remove is lost. It is no longer used by anyone. May sleep.
 */
void xs_pool_destroy(struct xs_pool *pool);

/* It has no more than @limit chunks, XS_CHUNKS_MAX at most; what it has it keeps. */
void xs_pool_limit(struct xs_pool *pool, u32 limit);

/*
 * Add the chunks that are wanted; at the limit, trim first. May sleep. One caller at a
 * time, also of trim.
 */
void xs_pool_grow(struct xs_pool *pool);

/*
 * Have the backend remove chunks again that it could not remove. May sleep. One caller at a
 * time, also of grow and trim.
 */
void xs_pool_retry(struct xs_pool *pool);

/*
 * Free chunks in which no bounce buffer is used, but for @kept of each kind; CPUs give up what they
 * have open. To be called now and then. May sleep. Returns how many.
 */
u32 xs_pool_trim(struct xs_pool *pool, u32 kept);

/*
 * Copy @bytes bytes at @phys for a device that may do @direction, and addresses up to @last.
 * The bits of @keep, one less than a power of two, or 0, stay as they are in the address,
 * which can only be if they are of XS_BOUNCE_MAX_BYTES - 1, and the last two are 0. Without
 * @copies the copy of what the device only reads is left to xs_pool_sync(). Returns the
 * address for the device; 0 if there is no bounce buffer, or could be none. Entered, here and
 * below; any context.
 */
u64 xs_pool_map(struct xs_pool *pool, u64 phys, u32 bytes, enum xs_direction direction,
		u64 last, u32 keep, bool copies);

/*
 * The device is done with what was mapped at @iova, or around it; it is copied back if it
 * may write and @copies is set. False: nothing is mapped there.
 */
bool xs_pool_unmap(struct xs_pool *pool, u64 iova, bool copies);

/*
 * Copy a part of what is mapped, up to @bytes at @iova, to the device or from it, where it
 * may read or write. False: @iova is no part of what is mapped.
 */
bool xs_pool_sync(struct xs_pool *pool, u64 iova, u32 bytes, bool to_device);

/*
 * The first buffer that is mapped at or after *@iova, which it has then, of *@bytes; false
 * if there is none. Of a pool at rest, to name what is outstanding.
 */
bool xs_pool_next(const struct xs_pool *pool, u64 *iova, u32 *bytes);

static inline enum xs_direction xs_chunk_direction(const struct xs_chunk *chunk)
{
	return (enum xs_direction)(chunk->kind / XS_BOUNCE_SIZES);
}

/* Is it of the pool's IOVAs? */
static xs_inline bool xs_pool_has(const struct xs_pool *pool, u64 iova)
{
	return iova - pool->start < XS_POOL_BYTES;
}

#endif
