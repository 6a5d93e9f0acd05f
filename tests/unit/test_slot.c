// SPDX-License-Identifier: GPL-2.0-only
/* Slots: encoding, claims, and how mappings fill slots. */
#include "unit_world.h"

#define SPACES	512

/* ---- the encoding ---- */

static void check_one(xs_ref_t ref)
{
	u64 slot = xs_slot_one(ref);

	CHECK(xs_slot_is_one(slot) && !xs_slot_is_many(slot));
	CHECK(xs_slot_ref(slot) == ref);
	CHECK(slot != XS_SLOT_VACANT && !xs_slot_is_vacant(slot));
	slot = xs_slot_vacant_with_ref(slot);
	CHECK(xs_slot_is_vacant(slot));
	CHECK(!xs_slot_is_many(slot) && !xs_slot_is_one(slot));
	CHECK(xs_slot_vacant_ref(slot) ==
	      (xs_ref_can_be_held(ref) ? ref : XS_REF_NONE));
}

static void check_many(xs_ref_t ref, u32 pages)
{
	u64 slot = xs_slot_many(ref, pages);

	CHECK(xs_slot_is_many(slot) && !xs_slot_is_one(slot));
	CHECK(xs_slot_ref(slot) == ref);
	CHECK(xs_slot_span(slot) == (xs_ref_can_be_held(ref) ? 1 : pages));
	CHECK(slot != XS_SLOT_VACANT);
}

static void encoding(void)
{
	static const u64 bits[] = { 8, 1ULL << 63, 0xffff888000000040ULL,
				    ~7ULL };

	CHECK(!xs_slot_is_one(XS_SLOT_VACANT));
	CHECK(!xs_slot_is_many(XS_SLOT_VACANT));
	CHECK(!xs_ref_can_be_held(XS_REF_NONE));
	CHECK(!xs_ref_can_be_held(XS_REF_UNHELD));
	check_one(XS_REF_NONE);
	check_one(XS_REF_UNHELD);
	for (u32 i = 0; i < sizeof(bits) / sizeof(bits[0]); i++) {
		xs_ref_t ref = (xs_ref_t)(size_t)bits[i];

		CHECK(xs_ref_can_be_held(ref));
		check_one(ref);
		check_many(ref, 1);
	}
	for (u32 pages = 1; pages <= XS_BLOCK_PAGES; pages++) {
		check_many(XS_REF_NONE, pages);
		check_many(XS_REF_UNHELD, pages);
	}
}

/* ---- claims ---- */

static void claim(void)
{
	xs_slot_t slot;
	u64 found = xs_slot_one(XS_REF_NONE), stale = found;

	xs_a64_set(&slot, found);
	CHECK(xs_slot_claim(&slot, &found));
	CHECK(xs_a64_read(&slot) == XS_SLOT_VACANT);
	CHECK(!xs_slot_claim(&slot, &stale) && stale == XS_SLOT_VACANT);
	found = xs_slot_one((xs_ref_t)(size_t)64);
	xs_a64_set(&slot, found);
	CHECK(xs_slot_claim_with_ref(&slot, &found) && found == 64);
	CHECK(xs_slot_vacant_ref(xs_a64_read(&slot)) == (xs_ref_t)(size_t)64);
	CHECK(!xs_slot_claim_with_ref(&slot, &stale));
}

struct race {
	u64 seed;
	xs_slot_t slots[SPACES];
	u32 claims[SPACES];
};

static void race_run(void *argument, u32 cpu)
{
	struct race *race = argument;
	u64 random = race->seed * TEST_CPUS + cpu;

	for (u32 i = 0; i < 2 * SPACES; i++) {
		u32 at = test_below(&random, SPACES);
		u64 found = xs_a64_read(&race->slots[at]);

		if (found != XS_SLOT_VACANT &&
		    xs_slot_claim(&race->slots[at], &found))
			__atomic_fetch_add(&race->claims[at], 1,
					   __ATOMIC_RELAXED);
	}
}

/* Of several CPUs that claim the same mapping, exactly one succeeds. */
static void race_seed(u64 seed)
{
	struct race *race = test_alloc(sizeof(*race));

	race->seed = seed;
	for (u32 i = 0; i < SPACES; i++)
		xs_a64_set(&race->slots[i], xs_slot_one(XS_REF_NONE));
	/* With a seed, or running freely where seeds are not supported. */
	if (seed % 2 || !test_threads(4, seed, race_run, race))
		test_threads(4, 0, race_run, race);
	for (u32 i = 0; i < SPACES; i++)
		CHECK(race->claims[i] == (xs_a64_read(&race->slots[i]) ==
					  XS_SLOT_VACANT));
	test_free(race);
}

static void races(void)
{
	test_seeds(10, race_seed);
}

/* ---- filling ---- */

static struct {
	xs_slot_t slots[XS_BLOCK_PAGES + 1];
	xs_ref_t expected[XS_BLOCK_PAGES];
} f;

/* Memory of all kinds, in folios of a few pages or in single pages. */
static void make_memory(struct world *world, u64 *random, bool slabs)
{
	for (u32 at = 0; at < XS_BLOCK_PAGES;) {
		enum memory_kind kind = test_below(random, MEMORY_KINDS);
		u32 pages = 1 + test_below(random, 6);
		u32 head = at;

		if (kind == MEMORY_SLAB && !slabs)
			kind = MEMORY_COUNTED;
		for (; pages && at < XS_BLOCK_PAGES; pages--, at++) {
			struct memory *memory = &world->memory[at];

			memory->refs = 1;
			memory->kind = kind;
			memory->head = kind == MEMORY_FOLIO ? head : at;
		}
	}
}

/*
 * The expected reference of each page; a page covered by an earlier page's reference has none.
 * If there are too many references, none is held.
 */
static void expect(const struct world *world, u32 pages, bool holds)
{
	bool unheld = !holds;
	u32 refs = 0;

	for (u32 i = 0; i < pages; i++) {
		const struct memory *memory = &world->memory[i];
		bool first = !i || memory[-1].head != memory->head;

		unheld |= memory->kind == MEMORY_SLAB;
		f.expected[i] = XS_REF_NONE;
		if (unheld)
			f.expected[i] = XS_REF_UNHELD;
		else if (memory->kind == MEMORY_COUNTED ||
			 (memory->kind == MEMORY_FOLIO && first))
			f.expected[i] = (xs_ref_t)&world->memory[memory->head];
		refs += xs_ref_can_be_held(f.expected[i]);
	}
	for (u32 i = 0; refs > XS_HOLDS_MAX && i < pages; i++)
		f.expected[i] = XS_REF_UNHELD;
}

/* Each page is covered once, by the expected reference. */
static void check_filled(u32 pages)
{
	u32 at = 0;

	while (at < pages && !test_failed()) {
		u64 slot = xs_a64_read(&f.slots[at]);
		u32 span = xs_slot_span(slot);

		if (!CHECK(xs_slot_is_many(slot)) || !CHECK(span) ||
		    !CHECK(at + span <= pages))
			return;
		for (u32 i = 0; i < span; i++, at++) {
			CHECK(xs_slot_ref(slot) == f.expected[at]);
			CHECK(!i || xs_a64_read(&f.slots[at]) ==
					    XS_SLOT_VACANT);
		}
	}
	CHECK(xs_a64_read(&f.slots[pages]) == XS_SLOT_VACANT);
}

static void fill_seed(u64 seed)
{
	struct world_config config = { .blocks = 4, .cpus = 1,
				       .policy = &xs_policies[0] };
	struct world *world = world_new(&config, 0);
	u64 random = seed;
	u32 pages = 1 + test_below(&random, seed % 2 ? XS_BLOCK_PAGES : 20);
	bool holds = seed % 8;

	test_replay(seed, 0);
	make_memory(world, &random, seed % 3 == 0);
	for (u32 i = 0; i <= XS_BLOCK_PAGES; i++)
		xs_a64_set(&f.slots[i], XS_SLOT_VACANT);
	expect(world, pages, holds);
	xs_slots_fill(f.slots, 0, pages, holds);
	check_filled(pages);
	for (u32 i = 0; i <= XS_BLOCK_PAGES; i++)
		xs_a64_set(&f.slots[i], XS_SLOT_VACANT);
	for (u32 i = 0; i < pages; i++)
		f.expected[i] = XS_REF_NONE;
	xs_slots_fill_none(f.slots, pages);
	check_filled(pages);
	for (u32 i = 0; i < XS_BLOCK_PAGES; i++)
		world->memory[i].refs = 0;
	world_end(world);
}

static void fill(void)
{
	test_seeds(300, fill_seed);
}

const struct test slot_tests[] = {
	{ "slot_encoding", encoding },
	{ "slot_claim", claim },
	{ "slot_races", races, .threads = true },
	{ "slot_fill", fill },
	{ NULL, NULL },
};
