// SPDX-License-Identifier: GPL-2.0 OR MIT
/*
 * The range allocator under blocks: a bitmap, first fit from the bottom.
 *
 * Blocks come and go once per 64 pages, so a lock and a scan from the hint
 * cost little; the lowest free block is also the one whose page-table pages
 * and caches are warmest.
 */
#include <xsmmu/space.h>

#define WORD_LG2	6
#define WORD_BITS	(1u << WORD_LG2)
#define REFS_BYTES	(sizeof(xs_ref_t) << XS_REFS_LG2)
#define BLOCKS_PER_LEAF	(1u << (XS_REFS_LG2 - XS_BLOCK_LG2))

static u32 words(const struct xs_space *space)
{
	return (space->end_block + WORD_BITS - 1) >> WORD_LG2;
}

static u32 leaves(const struct xs_space *space)
{
	return (space->end_block + BLOCKS_PER_LEAF - 1) / BLOCKS_PER_LEAF;
}

static bool is_used(const struct xs_space *space, u32 block)
{
	return space->used[block >> WORD_LG2] >> (block & (WORD_BITS - 1)) & 1;
}

static void set_used(struct xs_space *space, u32 block, bool used)
{
	u64 bit = 1ULL << (block & (WORD_BITS - 1));

	if (used)
		space->used[block >> WORD_LG2] |= bit;
	else
		space->used[block >> WORD_LG2] &= ~bit;
}

/* Never hand @block out: used, and all of it back. */
static void withhold(struct xs_space *space, u32 block)
{
	set_used(space, block, true);
	xs_a64_set(&space->blocks[block].back, XS_BLOCK_ALL);
}

int xs_space_init(struct xs_space *space, const struct xs_world_ops *ops,
		  void *world, u64 start, u64 end)
{
	u64 first = (start + XS_BLOCK_BYTES - 1) / XS_BLOCK_BYTES;
	u64 last = end / XS_BLOCK_BYTES;

	if (!first)
		first = 1;	/* IOVA 0 means "none" */
	if (last > 0x7fffffff)
		last = 0x7fffffff;
	if (first >= last)
		return -XS_EINVAL;

	space->ops = ops;
	space->world = world;
	space->end_block = (u32)last;
	space->hint = (u32)first;
	space->taken = 0;
	xs_lock_init(&space->lock);
	space->blocks = ops->alloc(world, last * sizeof(*space->blocks), false);
	space->refs = ops->alloc(world, leaves(space) * sizeof(*space->refs),
				 false);
	space->used = ops->alloc(world, words(space) * sizeof(u64), false);
	if (!space->blocks || !space->refs || !space->used) {
		xs_space_destroy(space);
		return -XS_ENOMEM;
	}

	for (u32 block = 0; block < first; block++)
		withhold(space, block);
	for (u32 block = (u32)last; block < words(space) * WORD_BITS; block++)
		set_used(space, block, true);
	return 0;
}

void xs_space_destroy(struct xs_space *space)
{
	if (space->refs)
		for (u32 leaf = 0; leaf < leaves(space); leaf++)
			space->ops->free(space->world, space->refs[leaf],
					 REFS_BYTES);
	space->ops->free(space->world, space->refs,
			 leaves(space) * sizeof(*space->refs));
	space->ops->free(space->world, space->blocks,
			 space->end_block * sizeof(*space->blocks));
	space->ops->free(space->world, space->used, words(space) * sizeof(u64));
	space->refs = 0;
	space->blocks = 0;
	space->used = 0;
}

void xs_space_reserve(struct xs_space *space, u64 start, u64 last)
{
	u64 block = start / XS_BLOCK_BYTES;

	for (; block <= last / XS_BLOCK_BYTES && block < space->end_block;
	     block++)
		withhold(space, (u32)block);
}

/* A leaf of references to nothing, NULL if there is no memory. */
static xs_ref_t *new_leaf(struct xs_space *space)
{
	xs_ref_t *leaf = space->ops->alloc(space->world, REFS_BYTES, true);

	for (u32 i = 0; leaf && i < 1u << XS_REFS_LG2; i++)
		leaf[i] = XS_REF_NONE(1);
	return leaf;
}

/* Make the references of @count blocks writable. False: no memory. */
static bool add_refs(struct xs_space *space, u32 block, u32 count)
{
	u32 last = (block + count - 1) / BLOCKS_PER_LEAF;

	for (u32 leaf = block / BLOCKS_PER_LEAF; leaf <= last; leaf++) {
		if (xs_likely(space->refs[leaf]))
			continue;
		space->refs[leaf] = new_leaf(space);
		if (!space->refs[leaf])
			return false;
	}
	return true;
}

/* The first free block at or after @block, or one past the end. */
static u32 next_free(const struct xs_space *space, u32 block)
{
	u32 word = block >> WORD_LG2;
	u64 free;

	if (block >= space->end_block)
		return space->end_block;
	free = ~space->used[word] & (~0ULL << (block & (WORD_BITS - 1)));
	while (!free) {
		if (++word >= words(space))
			return space->end_block;
		free = ~space->used[word];
	}
	return word * WORD_BITS + xs_ctz(free);
}

/* The first run of @count free blocks aligned to @align, below @limit. */
static u32 find_run(const struct xs_space *space, u32 count, u32 align,
		    u32 limit)
{
	u32 block = space->hint;
	u32 run;

	for (;;) {
		block = next_free(space, block);
		block = (block + align - 1) & ~(align - 1);
		if (block >= limit || count > limit - block)
			return XS_NO_BLOCK;
		for (run = 0; run < count && !is_used(space, block + run);)
			run++;
		if (run == count)
			return block;
		block += run + 1;
	}
}

u32 xs_space_take(struct xs_space *space, u32 count, u32 limit_block)
{
	u32 align = 1;
	u32 block;

	if (limit_block > space->end_block)
		limit_block = space->end_block;
	if (!count || count > limit_block)
		return XS_NO_BLOCK;
	while (align < count)
		align <<= 1;

	xs_lock_nested(&space->lock);
	if (count == 1) {
		block = next_free(space, space->hint);
		space->hint = block;
		if (block >= limit_block)
			block = XS_NO_BLOCK;
	} else {
		block = find_run(space, count, align, limit_block);
	}
	if (block != XS_NO_BLOCK && !add_refs(space, block, count))
		block = XS_NO_BLOCK;
	if (block != XS_NO_BLOCK) {
		for (u32 i = 0; i < count; i++)
			set_used(space, block + i, true);
		space->taken += count;
	}
	xs_unlock_nested(&space->lock);
	return block;
}

void xs_space_give(struct xs_space *space, u32 block)
{
	xs_lock_nested(&space->lock);
	set_used(space, block, false);
	space->taken--;
	if (block < space->hint)
		space->hint = block;
	xs_unlock_nested(&space->lock);
}
