// SPDX-License-Identifier: GPL-2.0-only
/* Magazines behave as a bag: every item that was put in comes out once, on any CPU. */
#include <xsmmu/magazine.h>

#include "harness.h"

#define FULL_MAX	64
#define ITEMS	(3 * FULL_MAX * XS_MAGAZINE_ITEMS)
#define CACHES	3

static struct {
	struct xs_depot depot;
	struct xs_cache caches[CACHES];
	u8 *inside;	/* item is in the bag */
	u32 count;
	u64 allocations;
	u32 fail_percent;
	u64 random;
} m;

static void *magazine_alloc(void *world, size_t bytes, u32 cpu, bool atomic)
{
	(void)world;
	(void)cpu;
	CHECK(atomic);
	if (test_below(&m.random, 100) < m.fail_percent)
		return NULL;
	m.allocations++;
	return test_alloc(bytes);
}

static void magazine_free(void *world, void *memory, size_t bytes)
{
	(void)world;
	CHECK(bytes == sizeof(struct xs_magazine));
	m.allocations -= memory != NULL;
	test_free(memory);
}

static const struct xs_backend_ops ops = { .alloc = magazine_alloc,
					 .free = magazine_free };

/* Items are large numbers, so that a lost bit is noticed. */
#define ITEM(i)	((u64)(i) << 24 | 1ULL << 39)

static void begin(u64 seed, u32 fail_percent, u32 items_max)
{
	xs_depot_init(&m.depot, &ops, NULL, items_max, FULL_MAX);
	for (u32 i = 0; i < CACHES; i++)
		m.caches[i] = (struct xs_cache){ NULL, NULL };
	m.inside = test_alloc(ITEMS);
	m.count = 0;
	m.fail_percent = fail_percent;
	m.random = seed;
}

static u64 bag_count(void)
{
	u64 count = xs_depot_count(&m.depot);

	for (u32 i = 0; i < CACHES; i++)
		count += xs_cache_count(&m.caches[i]);
	return count;
}

/* The depot has as many magazines as counted, and no more than the limit. */
static void check_depot(void)
{
	u32 full = 0;

	for (struct xs_magazine *at = m.depot.full; at; at = at->next) {
		CHECK(at->count <= m.depot.items_max);
		full++;
	}
	CHECK(full == m.depot.full_count && full <= FULL_MAX);
}

static void out(void *context, u64 value)
{
	u64 item = (value & ~(1ULL << 39)) >> 24;

	(void)context;
	CHECK(value == ITEM(item));
	if (CHECK(item < ITEMS) && CHECK(m.inside[item])) {
		m.inside[item] = false;
		m.count--;
	}
}

static void end(void)
{
	xs_flags_t flags = xs_local_save();

	for (u32 i = 0; i < CACHES; i++)
		xs_cache_drain(&m.caches[i], &m.depot, out, NULL);
	xs_local_restore(flags);
	xs_depot_drain(&m.depot, out, NULL);
	CHECK(!m.count && !bag_count());
	check_depot();
	xs_depot_destroy(&m.depot);
	CHECK(!m.allocations);
	test_free(m.inside);
}

static bool put(u32 cache, u32 item)
{
	xs_flags_t flags = xs_local_save();
	bool done = xs_cache_put(&m.caches[cache], &m.depot, ITEM(item));

	xs_local_restore(flags);
	if (done) {
		CHECK(!m.inside[item]);
		m.inside[item] = true;
		m.count++;
	}
	return done;
}

static bool take(u32 cache)
{
	xs_flags_t flags = xs_local_save();
	u64 item = 0;
	bool done = xs_cache_get(&m.caches[cache], &m.depot, &item);

	xs_local_restore(flags);
	if (done)
		out(NULL, item);
	return done;
}

static void empty(void)
{
	begin(1, 0, XS_MAGAZINE_ITEMS);
	CHECK(!take(0));
	CHECK(put(0, 7) && take(0) && !take(0));
	CHECK(put(1, 7) && !take(0) && take(1));
	end();
}

/* One CPU frees items in full magazines, and another CPU takes the items. */
static void between_cpus(void)
{
	static const u32 sizes[] = { 1, 2, 7, XS_MAGAZINE_ITEMS };

	for (u32 i = 0; i < sizeof(sizes) / sizeof(sizes[0]); i++) {
		const u32 count = 4 * sizes[i];
		u32 moved = 0;

		begin(1, 0, sizes[i]);
		for (u32 item = 0; item < count; item++)
			CHECK(put(0, item));
		check_depot();
		while (take(1))
			moved++;
		CHECK(moved == count - 2 * sizes[i]);
		CHECK(moved + bag_count() == count);
		end();
	}
}

/* A full depot refuses a magazine, and nothing is lost; repeatedly. */
static void full_depot(void)
{
	for (u32 items_max = 2; items_max <= XS_MAGAZINE_ITEMS; items_max += 20) {
		begin(1, 0, items_max);
		for (u32 round = 0; round < 3; round++) {
			u32 item = 0;

			while (item < ITEMS && put(0, item))
				item++;
			CHECK(item == (FULL_MAX + 2) * items_max);
			CHECK(bag_count() == item);
			check_depot();
			/* Take all items out: on another CPU, from the depot, and on this CPU. */
			while (take(1))
				;
			if (round == 1)
				xs_depot_drain(&m.depot, out, NULL);
			while (take(0))
				;
			CHECK(!m.count && !m.depot.full_count);
		}
		end();
	}
}

static void no_memory(void)
{
	begin(1, 100, XS_MAGAZINE_ITEMS);
	CHECK(!put(0, 1) && !take(0));
	m.fail_percent = 0;
	for (u32 i = 0; i < 2 * XS_MAGAZINE_ITEMS; i++)
		CHECK(put(0, i));
	m.fail_percent = 100;
	CHECK(!put(0, ITEMS - 1));
	CHECK(take(0) && put(0, ITEMS - 1));
	end();
}

static void against_model_seed(u64 seed)
{
	u64 random = seed;
	u32 bias = 50;

	begin(seed, (u32)(seed % 4) * 20, 1 + (u32)(seed * 7) % XS_MAGAZINE_ITEMS);
	for (u32 step = 0; step < 20000 && !test_failed(); step++) {
		u32 cache = test_below(&random, CACHES);
		u32 item = test_below(&random, ITEMS);

		test_replay(seed, step);
		if (step % 1000 == 0)
			bias = 20 + test_below(&random, 60);
		if (test_below(&random, 100) >= bias)
			take(cache);
		else if (!m.inside[item])
			put(cache, item);
		if (step % 64 == 0) {
			CHECK(bag_count() == m.count);
			check_depot();
		}
	}
	end();
}

static void against_model(void)
{
	test_seeds(20, against_model_seed);
}

const struct test magazine_tests[] = {
	{ "magazine_empty", empty },
	{ "magazine_between_cpus", between_cpus },
	{ "magazine_full_depot", full_depot },
	{ "magazine_no_memory", no_memory },
	{ "magazine_against_model", against_model },
	{ NULL, NULL },
};
