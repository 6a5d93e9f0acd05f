/* SPDX-License-Identifier: GPL-2.0-only */
/* The shape of a red-black tree of the kernel. */
#ifndef ALLOCATORS_RBTREE_SHAPE_H
#define ALLOCATORS_RBTREE_SHAPE_H

#include <linux/rbtree.h>

#include "iova.h"

static inline void rbtree_add_shape(const struct rb_node *node, u32 depth, struct iova_shape *shape)
{
	if (!node)
		return;
	shape->nodes++;
	shape->depth_sum += depth;
	if (depth > shape->deepest)
		shape->deepest = depth;
	rbtree_add_shape(node->rb_left, depth + 1, shape);
	rbtree_add_shape(node->rb_right, depth + 1, shape);
}

/* The shape below @root. */
static inline struct iova_shape rbtree_shape(const struct rb_node *root)
{
	struct iova_shape shape = { 0 };

	rbtree_add_shape(root, 1, &shape);
	return shape;
}

#endif
