// SPDX-License-Identifier: GPL-2.0-only
/*
 * Invariant 3 again, by sync points: what was deferred before a call that syncs
 * is synced when it returns. A poll, and a CPU that goes off-line, sync what
 * that CPU has batched: the pages of blocks in which only it has unmapped. Under
 * a policy that syncs empty blocks none waits for anything else.
 */
#include "check.h"

/* What README.md says of each policy, in the order of EV_POLICY's numbers. */
static const struct {
	bool poll;
	bool block;
} points[] = {
	{ false, false },	/* strict */
	{ false, false },	/* lazy */
	{ false, true },	/* fands */
	{ true, false },	/* xsmmu */
	{ true, false },	/* fused */
};

static void check_all(u64 called, const char *what)
{
	u32 page = shadow_oldest();

	if (page && shadow.pages[page].returned < called)
		sim_fail("points", "%s has left IOVA page %u unsynced", what, page);
}

static void check_cpu(u32 cpu, u64 called, const char *what)
{
	for (u32 at = shadow.oldest[cpu]; at; at = shadow.pages[at].newer) {
		const struct shadow_block *block = &shadow.blocks[at / BLOCK_PAGES];

		if (shadow.pages[at].returned >= called)
			return;
		if (block->dead == block->dead_by[cpu])
			sim_fail("points", "%s has left IOVA page %u of CPU %u unsynced", what, at, cpu);
	}
}

/*
 * Blocks that were all unmapped when the last call of the engine returned. One
 * that was synced in part before may wait for its time: it is not asked for.
 */
static void check_empty(void)
{
	while (shadow.empty_count) {
		u32 at = shadow.empty[--shadow.empty_count];
		const struct shadow_block *block = &shadow.blocks[at];

		if (points[shadow.policy].block && block->dead == BLOCK_PAGES)
			sim_fail("points", "block %u is all unmapped and unsynced", at);
	}
}

void check_points(const struct sim_event *event)
{
	u64 called;

	if (event->kind == EV_TIME) {
		if (!event->calls && !shadow.changing)
			check_empty();
		return;
	}
	called = shadow.called[event->cpu][shadow.calling[event->cpu] - 1];
	switch (event->a) {
	case CALL_POLL:
		if (event->b && points[shadow.policy].poll)
			check_cpu(event->page, called, "the end of a poll");
		break;
	case CALL_RETIRE:
		check_cpu(event->page, called, "a CPU that goes off-line");
		break;
	case CALL_SYNC:
		check_all(called, "a sync");
		break;
	case CALL_SET:
		check_all(called, "a change of policy");
		break;
	}
}
