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
	u32 full_max;	/* of the depot, with what drained CPUs have put there */
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

static void begin_keeping(u64 seed, u32 fail_percent, u32 items_max, u32 cache_max)
{
	xs_depot_init(&m.depot, &ops, NULL, items_max, FULL_MAX, cache_max);
	for (u32 i = 0; i < CACHES; i++)
		m.caches[i] = (struct xs_cache){ .loaded = NULL };
	m.inside = test_alloc(ITEMS);
	m.count = 0;
	m.full_max = FULL_MAX;
	m.fail_percent = fail_percent;
	m.random = seed;
}

static void begin(u64 seed, u32 fail_percent, u32 items_max)
{
	begin_keeping(seed, fail_percent, items_max, 0);
}

static u64 bag_count(void)
{
	u64 count = xs_depot_count(&m.depot);

	for (u32 i = 0; i < CACHES; i++)
		count += xs_cache_count(&m.caches[i]);
	return count;
}

/* A list has as many magazines as counted, none of them without items, and ends at the last. */
static void check_full(const struct xs_magazines *list)
{
	const struct xs_magazine *last = NULL;
	u32 count = 0;

	for (const struct xs_magazine *at = list->first; at; at = at->next) {
		CHECK(at->count && at->count <= m.depot.items_max);
		last = at;
		count++;
	}
	CHECK(count == list->count && (!last || last == list->last));
}

/* No place has more magazines than its limit. */
static void check_limits(void)
{
	check_full(&m.depot.full);
	CHECK(m.depot.full.count <= m.full_max);
	for (u32 i = 0; i < CACHES; i++) {
		const struct xs_cache *cache = &m.caches[i];

		check_full(&cache->full);
		CHECK(cache->full.count + cache->empty.count <= m.depot.cache_max);
	}
}

static void drain(u32 cache)
{
	xs_flags_t flags = xs_local_save();

	xs_cache_drain(&m.caches[cache], &m.depot);
	xs_local_restore(flags);
	m.full_max = FULL_MAX;
	if (m.full_max < m.depot.full.count)
		m.full_max = m.depot.full.count;
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
	for (u32 i = 0; i < CACHES; i++)
		drain(i);
	xs_depot_drain(&m.depot, ~0u, out, NULL);
	CHECK(!m.count && !bag_count() && !m.allocations);
	check_limits();
	xs_depot_destroy(&m.depot);
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
		check_limits();
		while (take(1))
			moved++;
		CHECK(moved == count - 2 * sizes[i]);
		CHECK(moved + bag_count() == count);
		end();
	}
}

/*
 * A CPU keeps some magazines, and gets its own items again, last first. It allocates nothing
 * more and leaves the depot alone, and the rest of its items goes to the depot.
 */
static void kept(void)
{
	const u32 items = 7, keeps = 3, count = (2 + keeps) * items;
	struct xs_cache *cache = &m.caches[0];

	begin_keeping(1, 0, items, keeps);
	for (u32 round = 0; round < 3; round++) {
		for (u32 item = 0; item < count; item++)
			CHECK(put(0, item));
		check_limits();
		CHECK(cache->full.count == keeps && !m.depot.empty.count);
		CHECK(m.allocations == 2 + keeps && !take(1));
		for (u32 item = count; item--;) {
			CHECK(take(0));
			CHECK(!m.inside[item]);
		}
		CHECK(!cache->full.count && cache->empty.count == keeps);
	}
	/* Empty magazines go back to where the full magazine came from, and are used again. */
	for (u32 round = 0; round < 3; round++) {
		u64 before = m.allocations;

		for (u32 item = 0; item < 2 * count; item++)
			CHECK(put(0, item));
		/* CPU 1 keeps two empty magazines from the first round on. */
		CHECK(round < 2 || m.allocations == before);
		while (take(1))
			;
		while (take(0))
			;
		CHECK(!m.count && cache->empty.count == keeps);
		CHECK(m.depot.empty.count == m.allocations - keeps - 2 * 2);
	}
	end();
}

/* A CPU keeps its magazines beside a full depot, and takes its own items before the depot's. */
static void kept_beside_depot(void)
{
	const u32 items = 7, keeps = 3, count = (2 + keeps) * items;
	u32 first = 0;

	begin_keeping(1, 0, items, keeps);
	while (put(1, first))
		first++;
	CHECK(m.depot.full.count == FULL_MAX);
	for (u32 item = 0; item < count; item++)
		CHECK(put(0, first + item));
	for (u32 item = count; item--;) {
		CHECK(take(0));
		CHECK(!m.inside[first + item]);
	}
	CHECK(m.depot.full.count == FULL_MAX && !xs_cache_count(&m.caches[0]));
	end();
}

/* Another CPU finds all items of a drained CPU, also those of a magazine that was not full. */
static void drained(void)
{
	const u32 items = 7, keeps = 3, count = (1 + keeps) * items + 2;

	begin_keeping(1, 0, items, keeps);
	for (u32 round = 0; round < 3; round++) {
		for (u32 item = 0; item < count; item++)
			CHECK(put(round, item));
		CHECK(!take((round + 1) % CACHES));
		drain(round);
		CHECK(!xs_cache_count(&m.caches[round]) && xs_depot_count(&m.depot) == count);
		check_limits();
		while (take((round + 1) % CACHES))
			;
		CHECK(!m.count && !take(round));
	}
	end();
}

/* Magazines leave the depot a few at a time: those with items first, then the empty ones. */
static void drained_in_parts(void)
{
	const u32 items = 7, count = 6 * items;

	begin_keeping(1, 0, items, 4);
	for (u32 item = 0; item < count; item++)
		CHECK(put(0, item));
	for (u32 i = 0; i < items; i++)
		CHECK(take(0));
	drain(0);
	CHECK(m.allocations == 6);
	CHECK(xs_depot_drain(&m.depot, 0, out, NULL) == 0 && m.count == 5 * items);
	CHECK(xs_depot_drain(&m.depot, 2, out, NULL) == 2 && m.count == 3 * items);
	CHECK(xs_depot_drain(&m.depot, 4, out, NULL) == 4 && !m.count);
	CHECK(!m.allocations && xs_depot_drain(&m.depot, 1, out, NULL) == 0);
	end();
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
			check_limits();
			/* Take all items out: on another CPU, from the depot, and on this CPU. */
			while (take(1))
				;
			if (round == 1)
				xs_depot_drain(&m.depot, ~0u, out, NULL);
			while (take(0))
				;
			CHECK(!m.count && !m.depot.full.count);
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

	begin_keeping(seed, (u32)(seed % 4) * 20, 1 + (u32)(seed * 7) % XS_MAGAZINE_ITEMS,
		      (u32)(seed % 5) * 3);
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
		if (!test_below(&random, 1000))
			drain(cache);
		if (!test_below(&random, 1000))
			xs_depot_drain(&m.depot, test_below(&random, 8), out, NULL);
		if (step % 64 == 0) {
			CHECK(bag_count() == m.count);
			check_limits();
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
	{ "magazine_kept", kept },
	{ "magazine_kept_beside_depot", kept_beside_depot },
	{ "magazine_drained", drained },
	{ "magazine_drained_in_parts", drained_in_parts },
	{ "magazine_full_depot", full_depot },
	{ "magazine_no_memory", no_memory },
	{ "magazine_against_model", against_model },
	{ NULL, NULL },
};
