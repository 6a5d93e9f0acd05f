// SPDX-License-Identifier: GPL-2.0-only
/*
 * The engine's placements: the part of a map and of a strict unmap that places, of the unchanged
 * engine. `magazines` is placement `page`, `blocks` is placement `block`.
 */
#include "../../../core/parts.h"

#include "iova.h"

/* The engine starts its space in the second block, because IOVA 0 means "none". */
static void *make_engine(const char *policy, u32 cpus, u64 end)
{
	struct xs_engine_config config = {
		.ops = program_ops,
		.start = XS_PAGE_BYTES,
		.end = end,
		.cpu_count = cpus,
		.policy = xs_policy_find(policy),
	};
	struct xs_engine *engine = program_alloc(sizeof(*engine));

	if (!config.policy || xs_engine_init(engine, &config))
		program_fail("the engine does not start");
	return engine;
}

static void *make_magazines(u32 cpus, u64 end)
{
	return make_engine("strict", cpus, end);
}

static void *make_blocks(u32 cpus, u64 end)
{
	return make_engine("fused", cpus, end);
}

/* The first part of xs_engine_map() and xs_engine_map_one(). */
static u64 ours_alloc(void *state, const struct iova_request *request)
{
	struct xs_engine *engine = state;
	const struct xs_policy *policy = xs_policy_of(engine);
	struct xs_block *block;
	u64 iova = 0;

	xs_enter();
	if (request->pages == 1 && xs_load(&engine->mode) & XS_MODE_LOCAL)
		iova = xs_take_local(xs_count_cpu(engine->counts), request->last, &block);
	else if (request->pages == 1)
		iova = xs_map_one_range(engine, policy, request->last);
	if (!iova)
		iova = xs_place(engine, policy, request->pages, request->last);
	xs_exit();
	return iova;
}

/* The end of an unmap, as in xs_unplace(). */
static void ours_free(void *state, u64 iova, u32 pages)
{
	struct xs_engine *engine = state;

	xs_enter();
	if (pages > XS_BLOCK_PAGES) {
		xs_flags_t flags = xs_local_save();

		xs_space_free_extent(&engine->space, iova, pages);
		xs_local_restore(flags);
	} else {
		xs_place_back(engine, xs_policy_of(engine), iova >> XS_PAGE_LG2, pages);
	}
	xs_exit();
}

/* Leaves; a look-up takes fewer steps to the lowest of them. */
static struct iova_shape ours_shape(void *state)
{
	struct xs_engine *engine = state;
	struct iova_shape shape = { 0 };
	u64 page = 0;

	while (xs_tree_next_leaf(&engine->space.tree, &page)) {
		u32 depth = page >> XS_NEAR_LG2 ? XS_NODE_LEVELS + 1 : 2;

		shape.nodes++;
		shape.depth_sum += depth;
		if (depth > shape.deepest)
			shape.deepest = depth;
		page += XS_LEAF_PAGES;
	}
	return shape;
}

static u64 ours_left(void *state)
{
	return xs_count_given(state);
}

const struct iova_allocator iova_magazines = {
	.name = "magazines",
	.align_max = XS_BLOCK_PAGES,
	.make = make_magazines,
	.alloc = ours_alloc,
	.free = ours_free,
	.shape = ours_shape,
	.left = ours_left,
};

const struct iova_allocator iova_blocks = {
	.name = "blocks",
	.align_max = XS_BLOCK_PAGES,
	.make = make_blocks,
	.alloc = ours_alloc,
	.free = ours_free,
	.shape = ours_shape,
	.left = ours_left,
};
