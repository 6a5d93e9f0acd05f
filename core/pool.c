// SPDX-License-Identifier: GPL-2.0 OR MIT
/* Copies of small buffers; see pool.h. */
#include <xsmmu/pool.h>

static enum xs_direction xs_direction_of(u32 kind)
{
	return kind / XS_BOUNCE_SIZES;
}

static u32 xs_kind_of(enum xs_direction direction, u32 lg2)
{
	return direction * XS_BOUNCE_SIZES + lg2 - XS_BOUNCE_MIN_LG2;
}

static bool xs_direction_reads(enum xs_direction direction)
{
	return direction != XS_DIRECTION_WRITE;
}

static bool xs_direction_writes(enum xs_direction direction)
{
	return direction != XS_DIRECTION_READ;
}

/* ---- bounce buffers ---- */

/* Memory that a bounce buffer is a copy of. */
struct xs_origin {
	u64 phys;
	u32 bytes;
};

static u64 xs_word_of(u64 phys, u32 bytes)
{
	return phys << XS_BOUNCE_MAX_LG2 | (bytes - 1);
}

static struct xs_origin xs_origin_of(u64 word)
{
	struct xs_origin origin = {
		.phys = word >> XS_BOUNCE_MAX_LG2,
		.bytes = (word & (XS_BOUNCE_MAX_BYTES - 1)) + 1,
	};

	return origin;
}

/*
 * Offset of a buffer in its bounce buffer: 0, but in a bounce buffer of the largest size a buffer
 * keeps its offset if there is room. The offset is rounded down to four bytes. For an unaligned
 * buffer some drivers (sdhci with ADMA) have the device skip the first bytes, and write the bytes
 * into the buffer after a sync; with the unaligned offset the copy of the unmap would undo the
 * write.
 */
static u32 xs_offset_in_bounce(u64 phys, u32 bytes, u32 lg2)
{
	u32 offset = phys & (XS_BOUNCE_MAX_BYTES - 1) & ~3u;

	if (lg2 != XS_BOUNCE_MAX_LG2 || offset + bytes > XS_BOUNCE_MAX_BYTES)
		return 0;
	return offset;
}

/* Finds the chunk at an IOVA, and the bounce buffer *@at in the chunk; NULL without a chunk. */
static struct xs_chunk *xs_pool_find(const struct xs_pool *pool, u64 iova,
				     u32 *at)
{
	u64 offset = iova - pool->start;
	struct xs_chunk *chunk;

	if (xs_unlikely(!xs_pool_has(pool, iova)))
		return 0;
	chunk = xs_load_acquire(&pool->chunks[offset >> XS_CHUNK_LG2]);
	if (chunk)
		*at = (offset & (XS_CHUNK_BYTES - 1)) >> chunk->lg2;
	return chunk;
}

static u8 *xs_bounce_of(const struct xs_chunk *chunk, u32 at)
{
	return chunk->memory + ((size_t)at << chunk->lg2);
}

static struct xs_block *xs_area_of(struct xs_chunk *chunk, u32 at)
{
	return &chunk->area[at >> XS_AREA_BOUNCES_LG2];
}

/* ---- areas ---- */

static void xs_pool_tell(struct xs_pool *pool, bool tell)
{
	if (tell && pool->ops->short_of)
		pool->ops->short_of(pool->backend);
}

/* Gives an area, all free and claimed by the caller, back to its chunk. */
static void xs_area_put(struct xs_pool *pool, struct xs_block *area)
{
	struct xs_chunk *chunk;
	xs_flags_t flags;
	u32 at = 0;

	xs_partial_leave(area);
	chunk = xs_pool_find(pool, area->iova, &at);
	at >>= XS_AREA_BOUNCES_LG2;
	flags = xs_lock_irqsave(&pool->lock);
	if (!chunk->idle_areas++) {
		chunk->next = pool->idle[chunk->kind];
		pool->idle[chunk->kind] = chunk;
	}
	chunk->idle[at / 64] |= 1ULL << at % 64;
	xs_unlock_irqrestore(&pool->lock, flags);
}

/* Takes an idle area of the first chunk with an idle area. */
static struct xs_block *xs_area_take(struct xs_pool *pool, u32 kind)
{
	struct xs_chunk *chunk = pool->idle[kind];
	u32 word = 0, at;

	while (!chunk->idle[word])
		word++;
	at = xs_ctz(chunk->idle[word]);
	chunk->idle[word] &= chunk->idle[word] - 1;
	if (!--chunk->idle_areas)
		pool->idle[kind] = chunk->next;
	return &chunk->area[word * 64 + at];
}

/* The same; NULL without an idle area, and then tells the backend. */
static struct xs_block *xs_area_fresh(struct xs_pool *pool, u32 kind, u64 now)
{
	struct xs_block *area = 0;
	bool tell = false;

	xs_lock(&pool->lock);
	if (pool->idle[kind]) {
		area = xs_area_take(pool, kind);
	} else if (now >= pool->pause_ns) {
		tell = !pool->wanted;
		pool->wanted |= 1u << kind;
	}
	xs_unlock(&pool->lock);
	xs_pool_tell(pool, tell);
	return area;
}

/* The next search looks at the next CPU. */
static void xs_area_next_cpu(struct xs_pool *pool, struct xs_pool_cpu *cpu)
{
	cpu->search_cpu = cpu->search_cpu + 1 < pool->cpu_count ? cpu->search_cpu + 1 : 0;
}

/*
 * Takes an area of another CPU with several listed areas, which seems to have stopped mapping.
 * Looks at a single CPU, the same as long as the CPU has such areas.
 */
static struct xs_block *xs_area_other(struct xs_pool *pool,
				      struct xs_pool_cpu *cpu, u32 kind)
{
	struct xs_partial *partial = &pool->cpus[cpu->search_cpu]->partials[kind];
	struct xs_block *area = 0;

	if (xs_load(&partial->listed[0]) > 1)
		area = xs_partial_get(partial, 0, ~0ULL, XS_PARTIAL_ANY);
	if (!area)
		xs_area_next_cpu(pool, cpu);
	return area;
}

/* Takes a listed area of any CPU. Looks at a few CPUs; the next search continues from there. */
static struct xs_block *xs_area_steal(struct xs_pool *pool,
				      struct xs_pool_cpu *cpu, u32 kind)
{
	for (u32 i = 0; i < pool->cpu_count && i < XS_AREA_LOOKS; i++) {
		struct xs_partial *partial =
			&pool->cpus[cpu->search_cpu]->partials[kind];
		struct xs_block *area =
			xs_partial_get(partial, 0, ~0ULL, XS_PARTIAL_ANY);

		if (area)
			return area;
		xs_area_next_cpu(pool, cpu);
	}
	return 0;
}

/* Closes an area of a CPU. */
static void xs_area_shut(struct xs_pool *pool, struct xs_block *area)
{
	if (area != &pool->none && xs_block_close(area))
		xs_area_put(pool, area);
}

/* Opens an area; NULL if there is none. */
static struct xs_block *xs_area_get(struct xs_pool *pool,
				    struct xs_pool_cpu *cpu, u32 kind, u64 now)
{
	struct xs_block *area;

	area = xs_partial_get(&cpu->partials[kind], 0, ~0ULL, XS_PARTIAL_ANY);
	if (!area)
		area = xs_area_other(pool, cpu, kind);
	if (area)
		return area;
	area = xs_area_fresh(pool, kind, now);
	if (!area)
		return xs_area_steal(pool, cpu, kind);
	xs_partial_join(&cpu->partials[kind], area, 0);
	xs_block_open(area);
	return area;
}

/* Opens another area; NULL if there is none, or was none lately. */
static xs_noinline struct xs_block *xs_area_open(struct xs_pool *pool, u32 kind)
{
	struct xs_pool_cpu *cpu = pool->cpus[xs_cpu_id()];
	u64 now = pool->ops->clock(pool->backend);
	struct xs_block *open, *area;
	xs_flags_t flags;

	if (now < xs_load(&cpu->dry_ns[kind]))
		return 0;
	flags = xs_lock_irqsave(&cpu->lock);
	open = cpu->open[kind];
	area = xs_area_get(pool, cpu, kind, now);
	if (!area)
		xs_store(&cpu->dry_ns[kind], now + XS_POOL_DRY_NS);
	if (area) {
		xs_store(&cpu->open[kind], area);
		/* Equal if a CPU that shared the area has emptied it. */
		if (area != open)
			xs_area_shut(pool, open);
	}
	xs_unlock_irqrestore(&cpu->lock, flags);
	return area;
}

/* Takes a free bounce buffer of an area, as a bit; 0 if there is none. */
static xs_inline u64 xs_area_take_bounce(struct xs_block *area)
{
	u64 free = xs_a64_read(&area->free);

	while (xs_likely(free))
		if (xs_likely(xs_a64_try_acquire(&area->free, &free,
						 free & (free - 1))))
			return free & -free;
	return 0;
}

/* ---- map and unmap ---- */

static xs_inline void xs_pool_copy_in(struct xs_pool *pool, u8 *bounce, u64 phys,
				      u32 bytes)
{
	xs_copy_in(bounce, phys, bytes);
	xs_count(pool->counts, copied_bytes, bytes);
}

static xs_inline void xs_pool_copy_out(struct xs_pool *pool, u64 phys,
				       const u8 *bounce, u32 bytes)
{
	xs_copy_out(phys, bounce, bytes);
	xs_count(pool->counts, copied_bytes, bytes);
}

/* log2 of the size of a buffer's bounce buffer; may be more than the largest size. */
static xs_inline u32 xs_lg2_of(u64 phys, u32 bytes, bool offset)
{
	u32 lg2 = xs_lg2_ceil(bytes);
	u32 align = xs_ctz(phys | 1u << XS_BOUNCE_ALIGN_LG2);

	if (lg2 < align)
		lg2 = align;
	if (lg2 < XS_BOUNCE_MIN_LG2)
		lg2 = XS_BOUNCE_MIN_LG2;
	return offset && lg2 < XS_BOUNCE_MAX_LG2 ? XS_BOUNCE_MAX_LG2 : lg2;
}

/*
 * True if a bounce buffer of the largest size, with the buffer at @start, keeps the bits of
 * @keep.
 */
static xs_inline bool xs_offset_fits(u32 keep, u64 phys, u32 start)
{
	return keep < XS_BOUNCE_MAX_BYTES &&
	       start == (phys & (XS_BOUNCE_MAX_BYTES - 1));
}

static xs_noinline u64 xs_pool_miss(struct xs_pool *pool)
{
	xs_count(pool->counts, copy_misses, 1);
	return 0;
}

/* xs_pool_map(), inlined as a whole. */
static xs_inline u64 xs_pool_map_one(struct xs_pool *pool, u64 phys, u32 bytes,
				     enum xs_direction direction, u64 last, u32 keep,
				     bool copies)
{
	u32 lg2 = xs_lg2_of(phys, bytes, keep), start, kind, at;
	struct xs_chunk *chunk;
	struct xs_block *area;
	u64 bounce, iova;
	u8 *memory;

	start = xs_offset_in_bounce(phys, bytes, lg2);
	if (xs_unlikely(bytes - 1 >= XS_BOUNCE_MAX_BYTES ||
			(keep && !xs_offset_fits(keep, phys, start)) ||
			pool->start + XS_POOL_BYTES - 1 > last))
		return 0;
	kind = xs_kind_of(direction, lg2);
	area = xs_load(&pool->cpus[xs_cpu_id()]->open[kind]);
	do {
		bounce = xs_area_take_bounce(area);
	} while (xs_unlikely(!bounce) && (area = xs_area_open(pool, kind)));
	if (xs_unlikely(!bounce))
		return xs_pool_miss(pool);
	iova = area->iova + ((u64)xs_ctz(bounce) << lg2) + start;
	/* The area came to this CPU under a lock, after its chunk was published. */
	chunk = xs_load(&pool->chunks[(iova - pool->start) >> XS_CHUNK_LG2]);
	at = (iova - pool->start) & (XS_CHUNK_BYTES - 1);
	memory = chunk->memory + at;
	/* Bytes that the device does not write must not come back from another buffer. */
	if (copies || xs_direction_writes(direction))
		xs_pool_copy_in(pool, memory, phys, bytes);
	xs_a64_set_release(&chunk->words[at >> lg2], xs_word_of(phys, bytes));
	xs_count(pool->counts, copied_maps, 1);
	return iova;
}

u64 xs_pool_map(struct xs_pool *pool, u64 phys, u32 bytes, enum xs_direction direction,
		u64 last, u32 keep, bool copies)
{
	return xs_pool_map_one(pool, phys, bytes, direction, last, keep, copies);
}

/* xs_pool_unmap(), inlined as a whole. */
static xs_inline bool xs_pool_unmap_one(struct xs_pool *pool, u64 iova,
					bool copies)
{
	struct xs_origin origin;
	struct xs_chunk *chunk;
	struct xs_block *area;
	u32 at = 0;
	u64 word;

	chunk = xs_pool_find(pool, iova, &at);
	if (xs_unlikely(!chunk))
		return false;
	word = xs_a64_read(&chunk->words[at]);
	if (xs_unlikely(!word ||
			!xs_a64_try_acquire(&chunk->words[at], &word, 0)))
		return false;
	origin = xs_origin_of(word);
	if (copies && xs_direction_writes(xs_chunk_direction(chunk)))
		xs_pool_copy_out(pool, origin.phys,
				 xs_bounce_of(chunk, at) +
					 xs_offset_in_bounce(origin.phys,
							     origin.bytes,
							     chunk->lg2),
				 origin.bytes);
	xs_count(pool->counts, copied_unmaps, 1);
	area = xs_area_of(chunk, at);
	if (xs_unlikely(xs_block_free(area, 1ULL << at % 64)))
		xs_area_put(pool, area);
	return true;
}

bool xs_pool_unmap(struct xs_pool *pool, u64 iova, bool copies)
{
	return xs_pool_unmap_one(pool, iova, copies);
}

bool xs_pool_sync(struct xs_pool *pool, u64 iova, u32 bytes, bool to_device)
{
	struct xs_origin origin;
	struct xs_chunk *chunk;
	u32 at = 0, start;
	u64 word;
	u8 *bounce;

	if (!bytes)
		return true;
	chunk = xs_pool_find(pool, iova, &at);
	word = chunk ? xs_a64_read(&chunk->words[at]) : 0;
	if (!word)
		return false;
	origin = xs_origin_of(word);
	start = (iova & ((1u << chunk->lg2) - 1)) -
		xs_offset_in_bounce(origin.phys, origin.bytes, chunk->lg2);
	if (start >= origin.bytes)
		return false;
	if (bytes > origin.bytes - start)
		bytes = origin.bytes - start;
	bounce = chunk->memory + (iova - chunk->iova);
	if (to_device && xs_direction_reads(xs_chunk_direction(chunk)))
		xs_pool_copy_in(pool, bounce, origin.phys + start, bytes);
	else if (!to_device && xs_direction_writes(xs_chunk_direction(chunk)))
		xs_pool_copy_out(pool, origin.phys + start, bounce, bytes);
	return true;
}

/* Number of bytes copied into a bounce buffer, and their IOVA. */
static u32 xs_bounce_holds(const struct xs_chunk *chunk, u32 at, u64 *iova)
{
	u64 word = xs_a64_read(&chunk->words[at]);
	struct xs_origin origin = xs_origin_of(word);

	*iova = chunk->iova + ((u64)at << chunk->lg2) +
		xs_offset_in_bounce(origin.phys, origin.bytes, chunk->lg2);
	return word ? origin.bytes : 0;
}

bool xs_pool_next(const struct xs_pool *pool, u64 *iova, u32 *bytes)
{
	u64 at = *iova > pool->start ? *iova : pool->start;

	while (pool->chunks && xs_pool_has(pool, at)) {
		u32 bounce = 0, lg2 = XS_CHUNK_LG2;
		struct xs_chunk *chunk = xs_pool_find(pool, at, &bounce);
		u64 first = 0;

		*bytes = chunk ? xs_bounce_holds(chunk, bounce, &first) : 0;
		if (*bytes && first >= at) {
			*iova = first;
			return true;
		}
		if (chunk)
			lg2 = chunk->lg2;
		at = ((at >> lg2) + 1) << lg2;
	}
	return false;
}

/* ---- chunks ---- */

static size_t xs_chunk_bytes(u32 areas)
{
	return sizeof(struct xs_chunk) + areas * sizeof(struct xs_block);
}

static size_t xs_words_bytes(u32 lg2)
{
	return sizeof(xs_atomic64_t) << (XS_CHUNK_LG2 - lg2);
}

/* Frees a chunk that no look-up finds, after the backend has removed the memory. */
static void xs_chunk_free(struct xs_pool *pool, struct xs_chunk *chunk)
{
	pool->ops->free(pool->backend, chunk->words, xs_words_bytes(chunk->lg2));
	pool->ops->free(pool->backend, chunk, xs_chunk_bytes(chunk->areas));
}

/* Has the backend remove and free the memory of a chunk. Returns false on failure. */
static bool xs_chunk_unmap(struct xs_pool *pool, struct xs_chunk *chunk)
{
	return pool->ops->drop_chunk(pool->backend, chunk->iova, chunk->memory);
}

static void xs_chunk_fill(struct xs_chunk *chunk)
{
	for (u32 i = 0; i < chunk->areas; i++) {
		struct xs_block *area = &chunk->area[i];

		area->iova = chunk->iova + ((u64)i << (XS_AREA_BOUNCES_LG2 +
						       chunk->lg2));
		chunk->idle[i / 64] |= 1ULL << i % 64;
	}
	chunk->idle_areas = chunk->areas;
}

/*
 * Makes a chunk; NULL without memory. A chunk with a failed and incomplete map is stuck, and is
 * not counted.
 */
static struct xs_chunk *xs_chunk_new(struct xs_pool *pool, u32 kind, u64 iova)
{
	u32 lg2 = XS_BOUNCE_MIN_LG2 + kind % XS_BOUNCE_SIZES;
	u32 areas = 1u << (XS_CHUNK_LG2 - XS_AREA_BOUNCES_LG2 - lg2);
	struct xs_chunk *chunk = pool->ops->alloc(pool->backend,
						  xs_chunk_bytes(areas),
						  XS_ANY_CPU, false);

	if (!chunk)
		return 0;
	chunk->kind = kind;
	chunk->lg2 = lg2;
	chunk->areas = areas;
	chunk->iova = iova;
	chunk->words = pool->ops->alloc(pool->backend, xs_words_bytes(lg2),
					XS_ANY_CPU, false);
	if (chunk->words)
		chunk->memory = pool->ops->add_chunk(pool->backend, iova,
						     xs_direction_of(kind),
						     &chunk->stuck);
	if (chunk->memory) {
		if (!chunk->stuck)
			xs_chunk_fill(chunk);
		return chunk;
	}
	xs_chunk_free(pool, chunk);
	return 0;
}

static struct xs_chunk **xs_pool_place(struct xs_pool *pool,
				       const struct xs_chunk *chunk)
{
	return &pool->chunks[(chunk->iova - pool->start) >> XS_CHUNK_LG2];
}

static void xs_chunk_tell_stuck(struct xs_pool *pool,
				const struct xs_chunk *chunk)
{
	pool->ops->stuck(pool->backend, chunk->iova, XS_CHUNK_BYTES / XS_PAGE_BYTES);
}

/* Makes a chunk stuck, or no longer stuck; a stuck chunk counts as a chunk of the pool. */
static void xs_chunk_stick(struct xs_pool *pool, struct xs_chunk *chunk,
			   bool stuck)
{
	u64 pages = XS_CHUNK_BYTES / XS_PAGE_BYTES;
	xs_flags_t flags = xs_lock_irqsave(&pool->lock);

	chunk->stuck = stuck;
	pool->count += stuck ? 1 : -1;
	xs_store(&pool->stuck_pages,
		 pool->stuck_pages + (stuck ? pages : -pages));
	xs_unlock_irqrestore(&pool->lock, flags);
	if (stuck)
		xs_chunk_tell_stuck(pool, chunk);
}

/* Adds a chunk. Returns false without memory. */
static bool xs_pool_add(struct xs_pool *pool, u32 kind)
{
	struct xs_chunk *chunk;
	xs_flags_t flags;
	u32 at = 0;

	while (pool->chunks[at])
		at++;
	chunk = xs_chunk_new(pool, kind,
			     pool->start + ((u64)at << XS_CHUNK_LG2));
	if (!chunk)
		return false;
	if (chunk->stuck) {
		xs_chunk_stick(pool, chunk, true);
		xs_store_release(xs_pool_place(pool, chunk), chunk);
		return false;
	}
	flags = xs_lock_irqsave(&pool->lock);
	xs_store_release(&pool->chunks[at], chunk);
	chunk->next = pool->idle[kind];
	pool->idle[kind] = chunk;
	/* Clears requests that were raised while the chunk was being allocated. */
	pool->wanted &= ~(1u << kind);
	xs_unlock_irqrestore(&pool->lock, flags);
	return true;
}

void xs_pool_limit(struct xs_pool *pool, u32 limit)
{
	xs_flags_t flags = xs_lock_irqsave(&pool->lock);

	pool->limit = limit < XS_CHUNKS_MAX ? limit : XS_CHUNKS_MAX;
	xs_unlock_irqrestore(&pool->lock, flags);
}

/*
 * Frees a chunk that no look-up finds. If the backend could not remove the chunk, devices may
 * reach it, and the chunk keeps its place. Returns true if the chunk is free.
 */
static bool xs_pool_drop(struct xs_pool *pool, struct xs_chunk *chunk)
{
	bool dropped = xs_chunk_unmap(pool, chunk);

	if (dropped == chunk->stuck)
		xs_chunk_stick(pool, chunk, !dropped);
	if (dropped)
		xs_chunk_free(pool, chunk);
	else
		xs_store_release(xs_pool_place(pool, chunk), chunk);
	return dropped;
}

void xs_pool_retry(struct xs_pool *pool)
{
	for (u32 i = 0; pool->stuck_pages && i < XS_CHUNKS_MAX; i++) {
		struct xs_chunk *chunk = pool->chunks[i];

		if (!chunk || !chunk->stuck)
			continue;
		/* A bad unmap by the driver may look at the chunk. */
		xs_store(&pool->chunks[i], (struct xs_chunk *)0);
		pool->ops->quiesce(pool->backend);
		xs_pool_drop(pool, chunk);
	}
}

/* Hides a chunk, so that no call can take its bounce buffers. The lock is held. */
static void xs_pool_detach(struct xs_pool *pool, struct xs_chunk *chunk)
{
	struct xs_chunk **link = &pool->idle[chunk->kind];

	while (*link != chunk)
		link = &(*link)->next;
	*link = chunk->next;
	xs_store(xs_pool_place(pool, chunk), (struct xs_chunk *)0);
	pool->count--;
}

/* Detaches an idle chunk, if there are more than @kept of its kind. */
static struct xs_chunk *xs_pool_spare(struct xs_pool *pool, u32 kind, u32 kept)
{
	struct xs_chunk *spare = 0;
	xs_flags_t flags = xs_lock_irqsave(&pool->lock);

	for (struct xs_chunk *chunk = pool->idle[kind]; chunk;
	     chunk = chunk->next)
		if (chunk->idle_areas == chunk->areas && !kept--) {
			spare = chunk;
			break;
		}
	if (spare)
		xs_pool_detach(pool, spare);
	xs_unlock_irqrestore(&pool->lock, flags);
	return spare;
}

/* Closes the open areas of all CPUs, which may be the last areas of a chunk in use. */
static void xs_pool_close(struct xs_pool *pool, u32 kind)
{
	for (u32 i = 0; i < pool->cpu_count; i++) {
		struct xs_pool_cpu *cpu = pool->cpus[i];
		xs_flags_t flags;
		struct xs_block *open;

		xs_enter();
		flags = xs_lock_irqsave(&cpu->lock);
		open = cpu->open[kind];
		xs_store(&cpu->open[kind], &pool->none);
		xs_area_shut(pool, open);
		xs_unlock_irqrestore(&cpu->lock, flags);
		xs_exit();
	}
}

u32 xs_pool_trim(struct xs_pool *pool, u32 kept)
{
	struct xs_chunk *chunk, *gone = 0;
	u32 count = 0;

	for (u32 kind = 0; kind < XS_BOUNCE_KINDS; kind++) {
		xs_pool_close(pool, kind);
		while ((chunk = xs_pool_spare(pool, kind, kept))) {
			chunk->next = gone;
			gone = chunk;
			count++;
		}
	}
	if (!gone)
		return 0;
	/* A CPU that shares an area may still have it open. */
	for (u32 kind = 0; kind < XS_BOUNCE_KINDS; kind++)
		xs_pool_close(pool, kind);
	pool->ops->quiesce(pool->backend);
	while ((chunk = gone)) {
		gone = chunk->next;
		count -= !xs_pool_drop(pool, chunk);
	}
	return count;
}

/*
 * Selects a wanted kind that may have a chunk, and counts the chunk. Returns XS_BOUNCE_KINDS if
 * there is no such kind; *@full is true if the limit is the reason.
 */
static u32 xs_pool_lacks(struct xs_pool *pool, bool *full)
{
	xs_flags_t flags = xs_lock_irqsave(&pool->lock);
	u32 kind = XS_BOUNCE_KINDS;

	/* At the limit, areas that have come back must suffice for now. */
	for (u32 i = 0; i < XS_BOUNCE_KINDS && pool->count >= pool->limit; i++)
		if (pool->idle[i])
			pool->wanted &= ~(1u << i);
	*full = pool->wanted && pool->count >= pool->limit;
	if (pool->wanted && !*full) {
		kind = xs_ctz(pool->wanted);
		pool->count++;
	}
	xs_unlock_irqrestore(&pool->lock, flags);
	return kind;
}

/* Pauses after a failed allocation or at the limit; uncounts @count chunks. */
static void xs_pool_pause(struct xs_pool *pool, u32 count)
{
	u64 now = pool->ops->clock(pool->backend);
	xs_flags_t flags = xs_lock_irqsave(&pool->lock);

	pool->count -= count;
	pool->wanted = 0;
	pool->pause_ns = now + XS_POOL_PAUSE_NS;
	xs_unlock_irqrestore(&pool->lock, flags);
}

void xs_pool_grow(struct xs_pool *pool)
{
	bool full, trimmed = false;
	u32 kind;

	for (;;) {
		kind = xs_pool_lacks(pool, &full);
		if (kind < XS_BOUNCE_KINDS) {
			if (!xs_pool_add(pool, kind))
				xs_pool_pause(pool, 1);
		} else if (full && !trimmed) {
			trimmed = true;
			xs_pool_trim(pool, 0);
		} else {
			if (full)
				xs_pool_pause(pool, 0);
			return;
		}
	}
}

/* ---- set-up ---- */

static bool xs_pool_add_cpu(struct xs_pool *pool, u32 id)
{
	struct xs_pool_cpu *cpu = pool->ops->alloc(pool->backend, sizeof(*cpu),
						   id, false);

	if (!cpu)
		return false;
	xs_lock_init(&cpu->lock);
	for (u32 kind = 0; kind < XS_BOUNCE_KINDS; kind++) {
		xs_lock_init(&cpu->partials[kind].lock);
		cpu->open[kind] = &pool->none;
	}
	pool->cpus[id] = cpu;
	return true;
}

bool xs_pool_init(struct xs_pool *pool, const struct xs_backend_ops *ops,
		  void *backend, u64 start, u32 cpu_count, xs_counts_t *counts)
{
	bool ok;

	pool->ops = ops;
	pool->backend = backend;
	pool->start = start;
	pool->cpu_count = cpu_count;
	pool->counts = counts;
	xs_lock_init(&pool->lock);
	pool->limit = pool->count = pool->wanted = 0;
	pool->stuck_pages = 0;
	pool->pause_ns = 0;
	for (u32 kind = 0; kind < XS_BOUNCE_KINDS; kind++)
		pool->idle[kind] = 0;
	xs_a64_set(&pool->none.free, 0);
	pool->chunks = ops->alloc(backend, XS_CHUNKS_MAX * sizeof(*pool->chunks),
				  XS_ANY_CPU, false);
	pool->cpus = ops->alloc(backend, cpu_count * sizeof(*pool->cpus),
				XS_ANY_CPU, false);
	ok = pool->chunks && pool->cpus;
	for (u32 i = 0; ok && i < cpu_count; i++)
		ok = xs_pool_add_cpu(pool, i);
	if (!ok)
		xs_pool_destroy(pool);
	return ok;
}

void xs_pool_destroy(struct xs_pool *pool)
{
	for (u32 i = 0; pool->chunks && i < XS_CHUNKS_MAX; i++) {
		struct xs_chunk *chunk = pool->chunks[i];

		/* Memory that cannot be removed is lost, and is never used again. */
		if (!chunk)
			continue;
		if (!xs_chunk_unmap(pool, chunk))
			xs_chunk_tell_stuck(pool, chunk);
		xs_chunk_free(pool, chunk);
	}
	for (u32 i = 0; pool->cpus && i < pool->cpu_count; i++)
		pool->ops->free(pool->backend, pool->cpus[i],
				sizeof(*pool->cpus[i]));
	pool->ops->free(pool->backend, pool->cpus,
			pool->cpu_count * sizeof(*pool->cpus));
	pool->ops->free(pool->backend, pool->chunks,
			XS_CHUNKS_MAX * sizeof(*pool->chunks));
	pool->start = XS_POOL_ABSENT;
	pool->count = 0;
	pool->stuck_pages = 0;
	pool->chunks = 0;
	pool->cpus = 0;
}
