/* SPDX-License-Identifier: GPL-2.0 OR MIT */
/*
 * The IOVA space of one engine: an array of blocks.
 *
 * A block is XS_BLOCK_PAGES pages of IOVA, naturally aligned, so that one
 * page-selective command covers it. It is taken from the space, handed out in
 * one of three shapes, and goes back as a whole when its last page is back:
 *
 *   open    consecutive mappings fill it front to back (block placement)
 *   carved  cut into equal pieces that magazines recycle (page placement)
 *   whole   one of several that serve a mapping larger than a block
 *
 * Two words say all about its pages:
 *
 *   back  free of stale translations: never handed out, or synced
 *   dead  unmapped, not synced yet
 *
 * and the others are mapped, being synced, cached by a magazine or yet to be
 * handed out by the CPU that fills the block. An unmap sets bits in dead; the sync takes them
 * out, and sets them in back when it is done. All of back: the block is free.
 * So a free block has no stale translation, and no lock is needed to say so.
 *
 * First fit from the bottom keeps IOVAs below 4 GiB as long as possible, for
 * devices that cannot address more or claim to.
 */
#ifndef XSMMU_SPACE_H
#define XSMMU_SPACE_H

#include <xsmmu/world.h>

#define XS_BLOCK_LG2	6
#define XS_BLOCK_PAGES	(1u << XS_BLOCK_LG2)
#define XS_BLOCK_BYTES	(XS_PAGE_BYTES << XS_BLOCK_LG2)
#define XS_BLOCK_ALL	(~0ULL)		/* mask of all pages of a block */
#define XS_PIECE_LG2S	(XS_BLOCK_LG2 + 1)	/* pieces of 1, 2, .. 64 pages */
#define XS_NOT_CARVED	0xff

#define XS_NO_BLOCK	((u32)-1)

/* References are stored as the page table is: a leaf per 512 pages. */
#define XS_REFS_LG2	9

struct xs_block {
	xs_atomic64_t dead;
	xs_atomic64_t back;
	xs_atomic64_t listing;	/* in whose batch it is, see batch.h */
	u8 piece_lg2;		/* carved: log2 of a piece's pages, else
				 * XS_NOT_CARVED; constant from take to free */
};

_Static_assert(sizeof(struct xs_block) == 32, "an index is a shift");

/*
 * struct xs_space - see the head of this file
 * @blocks:	one per block of [0, @end_block), indexed by IOVA >> 18
 * @refs:	leaf of references per 512 pages, NULL until first used; written
 *		once under @lock, then constant
 * @used:	bit per block, guarded by @lock
 * @hint:	no block below is free; guarded by @lock
 * @taken:	blocks in use, reserved ones not counted; guarded by @lock
 */
struct xs_space {
	const struct xs_world_ops *ops;
	void *world;
	struct xs_block *blocks;
	xs_ref_t **refs;
	u32 end_block;
	xs_lock_t lock;
	u64 *used;
	u32 hint;
	u32 taken;
};

/*
 * Make a space of IOVAs [@start, @end), in bytes, rounded inwards to blocks;
 * block 0 is never handed out. Returns 0, -EINVAL for an empty space or
 * -ENOMEM. May sleep.
 */
int xs_space_init(struct xs_space *space, const struct xs_world_ops *ops,
		  void *world, u64 start, u64 end);

/* Free the space's memory. It is no longer used by anyone. */
void xs_space_destroy(struct xs_space *space);

/*
 * Never hand out IOVAs of [@start, @last], rounded outwards to blocks. Before
 * the first take only.
 */
void xs_space_reserve(struct xs_space *space, u64 start, u64 last);

/*
 * Take @count neighbouring free blocks, all below @limit_block, the first one
 * aligned to the next power of two of @count. Their references can be written,
 * their words are the caller's to set. Returns the first or XS_NO_BLOCK. Any context.
 */
u32 xs_space_take(struct xs_space *space, u32 count, u32 limit_block);

/* Give a block back, all of whose pages are. Any context. */
void xs_space_give(struct xs_space *space, u32 block);

/* The reference of one IOVA page; its block is taken. */
static xs_inline xs_ref_t *xs_space_ref(const struct xs_space *space, u64 page)
{
	return &space->refs[page >> XS_REFS_LG2]
			   [page & ((1u << XS_REFS_LG2) - 1)];
}

#endif
