// SPDX-License-Identifier: GPL-2.0-only
/* The tests' backend and driver; see unit_world.h. */
#include "unit_world.h"

/* The only world; references identify pages of memory by address alone. */
static struct world *the_world;

static u32 warnings;
static const char *last_warning;

#define get(p)		__atomic_load_n(p, __ATOMIC_RELAXED)
/* Reads in order; nothing here is stored with release. */
#define get_next(p)	__atomic_load_n(p, __ATOMIC_ACQUIRE)
#define put(p, v)	__atomic_store_n(p, v, __ATOMIC_RELAXED)
#define add(p, v)	__atomic_add_fetch(p, v, __ATOMIC_RELAXED)
#define try(p, old, v) \
	__atomic_compare_exchange_n(p, old, v, false, __ATOMIC_RELAXED, __ATOMIC_RELAXED)

bool xs_warn_once(bool broken, const char *text)
{
	if (broken) {
		add(&warnings, 1);
		put(&last_warning, text);
	}
	return broken;
}

u32 world_warnings(void)
{
	return __atomic_exchange_n(&warnings, 0, __ATOMIC_RELAXED);
}

/* Counts down to the failure. */
static bool fails_now(u64 *fails_in)
{
	u64 left = get(fails_in);

	while (left && !try(fails_in, &left, left - 1))
		;
	return left == 1;
}

/* ---- counts ---- */

/* An engine on another platform has no counts. */
xs_counts_t *xs_counts_new(void)
{
	if (!the_world)
		return test_alloc(TEST_CPUS * sizeof(struct xs_counts));
	return the_world->engine.ops->alloc(the_world, TEST_CPUS *
					    sizeof(struct xs_counts),
					    XS_ANY_CPU, false);
}

void xs_counts_free(xs_counts_t *counts)
{
	if (!the_world)
		test_free(counts);
	else
		the_world->engine.ops->free(the_world, counts,
					    TEST_CPUS * sizeof(struct xs_counts));
}

struct xs_counts *xs_counts_of(xs_counts_t *counts, u32 cpu)
{
	return &counts[cpu];
}

/* ---- memory ---- */

static u64 phys_of(u32 page)
{
	return (u64)page << XS_PAGE_LG2;
}

static u32 word_page(u64 word)
{
	return (u32)(word >> WORD_PAGE_SHIFT & 0xffff);
}

/* Index of an IOVA in the arrays. */
static u64 page_of(const struct world *world, u64 iova)
{
	u64 page = (iova >> XS_PAGE_LG2) - world->first_page;

	return CHECK(page < world->end_page) ? page : 0;
}

xs_ref_t xs_ref_of(u64 phys)
{
	struct memory *memory = &the_world->memory[phys >> XS_PAGE_LG2];

	CHECK(get(&memory->refs) || the_world->frees_early);
	if (fails_now(&the_world->ref_asked_in))
		the_world->ref_asked(the_world);
	switch (get(&memory->kind)) {
	case MEMORY_COUNTED:
	case MEMORY_FOLIO:
		return &the_world->memory[get(&memory->head)];
	case MEMORY_SLAB:
		return XS_REF_UNHELD;
	}
	return XS_REF_NONE;
}

u32 xs_ref_span(xs_ref_t ref, u64 phys)
{
	struct memory *memory = &the_world->memory[phys >> XS_PAGE_LG2];
	const struct memory *end = the_world->memory + WORLD_MEMORY_PAGES;
	u32 pages = 1;

	while (get(&memory->kind) == MEMORY_FOLIO && ++memory < end &&
	       get(&memory->kind) == MEMORY_FOLIO &&
	       &the_world->memory[get(&memory->head)] == ref)
		pages++;
	return pages;
}

static struct memory *memory_of(xs_ref_t ref)
{
	struct memory *memory = ref;

	if (!CHECK(memory >= the_world->memory &&
		   memory < the_world->memory + WORLD_MEMORY_PAGES) ||
	    !CHECK(((size_t)ref - (size_t)the_world->memory) %
		   sizeof(*memory) == 0))
		return NULL;
	return memory;
}

/* Memory goes back to the allocator: no promise to hold the page remains. */
static void check_freed(struct world *world, u64 page)
{
	if (xs_likely(!get(&world->memory[page].reach)))
		return;
	for (u32 i = 0; i < world->end_page; i++) {
		u64 word = get_next(&world->word[i]);
		u64 owner = get_next(&world->owner[i]);

		if (word && word_page(word) == page &&
		    owner & (OWNER_MAPPED | OWNER_PROMISED) &&
		    word == get_next(&world->word[i]))
			CHECK(world->frees_early);
	}
}

static void memory_put(struct world *world, struct memory *memory)
{
	u32 head = get(&memory->head);
	u32 pages = get(&memory->pages);
	u64 refs = get(&memory->refs);

	do {
		if (!CHECK(refs))
			return;
		for (u32 i = 0; refs == 1 && i < pages; i++)
			check_freed(world, head + i);
	} while (!try(&memory->refs, &refs, refs - 1));
	for (u32 i = 1; refs == 1 && i < pages; i++)
		put(&world->memory[head + i].refs, 0);
}

bool xs_ref_hold(xs_ref_t ref)
{
	struct memory *memory = memory_of(ref);
	u64 refs = memory ? get(&memory->refs) : 0;

	while (refs && !try(&memory->refs, &refs, refs + 1))
		;
	return refs;
}

/* Fails now and then, as allowed. */
bool xs_ref_hold_fast(xs_ref_t ref)
{
	return add(&the_world->fast_holds, 1) % 8 && xs_ref_hold(ref);
}

void xs_ref_release(xs_ref_t ref)
{
	struct memory *memory = memory_of(ref);

	if (!memory)
		return;
	if (get(&memory->reach))
		add(&the_world->let_go, 1);
	memory_put(the_world, memory);
}

/* ---- the engine's backend ---- */

/* Clear the word: one IOVA page less refers to the memory. */
static void forget(struct world *world, u64 word)
{
	add(&world->memory[word_page(word)].reach, -1);
}

static bool map_page(struct world *world, u64 page, u64 memory, u32 prot)
{
	u64 none = 0;
	u64 word = add(&world->last_number, 1) << WORD_NUMBER_SHIFT |
		   memory << WORD_PAGE_SHIFT | WORD_TABLE |
		   (prot & WORD_PROT) |
		   (prot & XS_MAP_UNFLUSHED ? WORD_UNFLUSHED : 0);
	u64 pruning = get(&world->pruning);

	if (!CHECK(page + world->first_page) ||
	    !CHECK(get(&world->memory[memory].refs)))
		return false;
	CHECK(page + 1 < pruning || page >= get(&world->pruning_end) || !pruning);
	/* Free of stale translations, and mapped by no other mapping. */
	if (!CHECK(try(&world->word[page], &none, word)))
		return false;
	add(&world->memory[memory].reach, 1);
	return true;
}

static bool is_in_window(const struct world *world, u64 page)
{
	return xs_identity_has(&world->engine.identity, world->first_page + page);
}

/* A wait for all sections must include all maps, except maps in a driver's own blocks. */
static bool is_in_section(const struct world *world, u64 iova)
{
	const struct xs_block *block;

	if (test_is_entered(test_cpu()))
		return true;
	block = xs_space_block(&world->engine.space, iova >> XS_PAGE_LG2);
	return !block || !block->small;
}

/* ---- page-table pages ---- */

static u64 table_of(const struct world *world, u64 page)
{
	return (world->first_page + page) / TABLE_PAGES -
	       world->first_page / TABLE_PAGES;
}

/* Returns a token for the table of a page, valid as long as the table is in use; not 0. */
static void *token_of(const struct world *world, u64 page)
{
	u64 table = table_of(world, page);

	return (void *)(size_t)((table + 1) << 32 |
				(u32)get(&world->table[table]));
}

/* Tables within these pages go. */
static void lose_tables(struct world *world, u64 page, u64 pages)
{
	u64 at = page + -(world->first_page + page) % TABLE_PAGES;

	for (; at + TABLE_PAGES <= page + pages; at += TABLE_PAGES)
		add(&world->table[table_of(world, at)], 1);
}

/* Is the pointer that the engine has stored for the block still valid? */
static void check_entries(struct world *world, void **entries, u64 iova,
			  u32 pages)
{
	struct xs_block *block;
	u64 page = page_of(world, iova);
	void *known;

	if (!entries) {
		lose_tables(world, page, pages);
		return;
	}
	block = xs_space_block(&world->engine.space, iova >> XS_PAGE_LG2);
	if (is_in_window(world, page))
		CHECK(entries == xs_identity_entries(&world->engine.identity,
						     iova >> XS_PAGE_LG2));
	else
		CHECK(entries == &block->entries && block->small);
	known = xs_load(entries);
	CHECK(!known || known == token_of(world, page));
	xs_store(entries, token_of(world, page));
}

/* The same for removed pages; nothing is stored for ranges larger than a block. */
static void check_removed_entries(struct world *world, u64 page, u64 pages)
{
	for (u64 end = page + pages; page < end; page += XS_BLOCK_PAGES) {
		const struct xs_block *block =
			xs_space_block(&world->engine.space,
				       world->first_page + page);

		if (block && xs_load(&block->entries))
			CHECK(xs_load(&block->entries) == token_of(world, page));
	}
}

/*
 * A map fails and leaves some of these pages mapped, which the driver never owned. Memory of
 * more than a block cannot be held.
 */
static void note_not_undone(struct world *world, u64 iova, u32 pages)
{
	u64 serial = add(&world->last_serial, 1);
	u64 held = pages > XS_BLOCK_PAGES ? 0 : OWNER_PROMISED;

	for (u64 page = page_of(world, iova); pages--; page++)
		put(&world->owner[page],
		    serial * OWNER_SERIAL | held | OWNER_REFUSED);
}

static int world_map(void *opaque, void **entries, u64 iova, u64 phys, u32 pages,
		     u32 prot)
{
	struct world *world = opaque;
	int error = 0;

	test_point();
	CHECK(is_in_section(world, iova));
	CHECK(iova % XS_PAGE_BYTES == 0 && phys % XS_PAGE_BYTES == 0 && pages);
	if (world->mapping)
		world->mapping(world, iova);
	if (world->map_fails_late)
		return -XS_ENOMEM;
	check_entries(world, entries, iova, pages);
	if (get(&world->maps_fail) || fails_now(&world->map_fails_in)) {
		if (!get(&world->maps_not_undone))
			return -XS_ENOMEM;
		note_not_undone(world, iova, pages);
		pages -= pages / 2;
		error = XS_MAP_NOT_UNDONE;
	}
	for (u32 i = 0; i < pages; i++)
		if (!map_page(world, page_of(world, iova + phys_of(i)),
			      (phys >> XS_PAGE_LG2) + i, prot))
			return -XS_EINVAL;
	test_point();
	return error;
}

static void world_flush_maps(void *opaque, const struct xs_range *ranges,
			     u32 count)
{
	struct world *world = opaque;

	test_point();
	CHECK(count && count <= XS_RANGES_MAX);
	add(&world->map_flushes, 1);
	add(&world->map_ranges, count);
	for (u32 i = 0; i < count; i++) {
		u64 page = page_of(world, ranges[i].page << XS_PAGE_LG2);
		u64 end = page + ranges[i].pages;

		CHECK(end > page && end <= world->end_page);
		add(&world->map_pages, ranges[i].pages);
		for (; page < end; page++)
			__atomic_fetch_and(&world->word[page],
					   ~(u64)WORD_UNFLUSHED,
					   __ATOMIC_RELAXED);
	}
}

static u64 serial_at(const struct world *world, u64 page)
{
	return get(&world->owner[page]) / OWNER_SERIAL;
}

/* A removal splits no mapping, and empties a page table only at the end of a single mapping. */
static void check_removal(const struct world *world, u64 page, u64 pages)
{
	u64 last = page + pages - 1;
	u64 table = (world->first_page + page + TABLE_PAGES - 1) / TABLE_PAGES *
		    TABLE_PAGES - world->first_page;

	if (page)
		CHECK(serial_at(world, page - 1) != serial_at(world, page));
	if (last + 1 < world->end_page)
		CHECK(serial_at(world, last) != serial_at(world, last + 1));
	if (table + TABLE_PAGES <= last + 1)
		CHECK(serial_at(world, page) == serial_at(world, last));
}

static void remove_page(struct world *world, xs_gather_t *gather, u64 page)
{
	u64 word = get(&world->word[page]);
	u64 owner = get(&world->owner[page]);

	/* A bad unmap removes each page of the window that it names, as a whole mapping. */
	if (is_in_window(world, page) && owner & OWNER_TORN)
		put(&world->owner[page], owner &= ~(u64)OWNER_MAPPED);
	while (CHECK(owner && !(owner & (OWNER_MAPPED | OWNER_REMOVED))) &&
	       !try(&world->owner[page], &owner, owner | OWNER_REMOVED))
		;
	while (word & WORD_TABLE &&
	       !try(&world->word[page], &word,
		    (word & ~(u64)WORD_TABLE) | WORD_CACHED))
		;
	CHECK(!get(&world->tag[page]));
	put(&world->tag[page], gather->id);
	gather->removed++;
}

/* Does this removal fail? */
static bool removal_fails(struct world *world)
{
	if (fails_now(&world->removal_fails_in))
		return true;
	return get(&world->removals_to_fail) && !get(&world->removal_fails_in) &&
	       add(&world->removals_to_fail, -1);
}

/* A removal of these pages fails after removing the first half. */
static u64 refuse(struct world *world, u64 page, u64 pages)
{
	for (u64 i = 0; i < pages; i++)
		__atomic_fetch_or(&world->owner[page + i], OWNER_REFUSED,
				  __ATOMIC_RELAXED);
	return pages / 2;
}

static bool is_removal(const struct world *world, const xs_gather_t *gather,
		       u64 iova, u64 pages)
{
	return CHECK(gather->id && iova % XS_PAGE_BYTES == 0 && pages) &&
	       CHECK(page_of(world, iova) + pages <= world->end_page);
}

static int world_remove(void *opaque, xs_gather_t *gather, u64 iova, u64 pages)
{
	struct world *world = opaque;
	u64 page = page_of(world, iova);
	bool fails;

	test_point();
	if (!is_removal(world, gather, iova, pages))
		return 0;
	CHECK(!get(&world->removes_none));
	if (world->removing)
		world->removing(world);
	check_removal(world, page, pages);
	check_removed_entries(world, page, pages);
	lose_tables(world, page, pages);
	fails = removal_fails(world);
	if (fails)
		pages = refuse(world, page, pages);
	for (u64 end = page + pages; page < end; page++)
		remove_page(world, gather, page);
	add(&world->removals, 1);
	test_point();
	return fails ? -XS_ENOMEM : 0;
}

static int world_remove_again(void *opaque, xs_gather_t *gather, u64 iova,
			      u64 pages)
{
	struct world *world = opaque;
	u64 page = page_of(world, iova);

	test_point();
	if (!is_removal(world, gather, iova, pages))
		return 0;
	CHECK(!get(&world->removes_outside) ||
	      (!test_is_entered(test_cpu()) && test_can_sleep()));
	if (world->removing)
		world->removing(world);
	if (removal_fails(world))
		return -XS_ENOMEM;
	lose_tables(world, page, pages);
	for (u64 end = page + pages; page < end; page++) {
		u64 owner = __atomic_fetch_and(&world->owner[page],
					       ~(u64)OWNER_REFUSED,
					       __ATOMIC_RELAXED);

		CHECK(owner & OWNER_REFUSED);
		if (!(owner & OWNER_REMOVED))
			remove_page(world, gather, page);
	}
	add(&world->removals, 1);
	test_point();
	return 0;
}

static void world_stuck(void *opaque, u64 iova, u64 pages)
{
	struct world *world = opaque;

	add(&world->stuck_pages, pages);
	add(&world->ever_stuck, pages);
	for (u64 page = page_of(world, iova); pages--; page++)
		CHECK(get(&world->owner[page]) & OWNER_REFUSED);
}

/* Another CPU may be about to remove the page, too. */
static void remove_part_page(struct world *world, xs_gather_t *gather, u64 page)
{
	u64 word = get(&world->word[page]);
	u32 none = 0;

	while (word & WORD_TABLE)
		if (try(&world->word[page], &word,
			(word & ~(u64)WORD_TABLE) | WORD_CACHED)) {
			CHECK(__atomic_compare_exchange_n(
				&world->tag[page], &none, gather->id, false,
				__ATOMIC_RELAXED, __ATOMIC_RELAXED));
			gather->removed++;
			return;
		}
}

static int world_remove_part(void *opaque, xs_gather_t *gather,
			     const struct xs_range *part,
			     const struct xs_range *whole)
{
	struct world *world = opaque;
	const struct xs_range *range = world->exact_unmap ? whole : part;
	u64 page = range->page - world->first_page;

	test_point();
	CHECK(gather->id && part->pages && part->page >= whole->page &&
	      part->page + part->pages <= whole->page + whole->pages);
	if (!CHECK(page + range->pages <= world->end_page))
		return -XS_EINVAL;
	for (u64 i = part->page; i < part->page + part->pages; i++) {
		u64 owner = get(&world->owner[i - world->first_page]);

		CHECK(!(owner & OWNER_MAPPED) || owner & OWNER_TORN);
	}
	if (get(&world->parts_fail)) {
		add(&world->parts_fail, -1);
		refuse(world, whole->page - world->first_page, whole->pages);
		if (world->part_failed)
			world->part_failed(world);
		return -XS_ENOMEM;
	}
	if (world->records_lost)
		return XS_REMOVED_ALL;
	check_removed_entries(world, page, range->pages);
	lose_tables(world, page, range->pages);
	for (u64 end = page + range->pages; page < end; page++)
		remove_part_page(world, gather, page);
	add(&world->removals, 1);
	test_point();
	return world->exact_unmap ? XS_REMOVED_ALL : 0;
}

/* Returns whether @page was removed with @gather. */
static bool invalidate_page(struct world *world, const xs_gather_t *gather,
			    u64 page)
{
	u64 word = get(&world->word[page]);
	bool ours = get(&world->tag[page]) == gather->id;
	u64 exposed = get(&world->now_ns) - get(&world->unmapped_ns[page]);
	u64 left;

	do {
		left = word & WORD_TABLE ? word & ~(u64)WORD_CACHED : 0;
	} while (!try(&world->word[page], &word, left));
	if (word && !left)
		forget(world, word);
	if (ours) {
		put(&world->tag[page], 0);
		if (exposed > get(&world->exposed_max_ns))
			put(&world->exposed_max_ns, exposed);
	}
	return ours;
}

static void world_invalidate(void *opaque, xs_gather_t *gather,
			     const struct xs_range *ranges, u32 count,
			     struct xs_commands *sent)
{
	static const struct xs_range all = { 0, ~0ULL };
	struct world *world = opaque;
	u64 end = world->first_page + world->end_page;
	u32 covered = 0;

	test_point();
	CHECK(gather->id);
	for (u32 i = 0; i < (count ? count : 1); i++) {
		const struct xs_range *range = count ? &ranges[i] : &all;

		u64 page = range->page > world->first_page ?
			range->page : world->first_page;

		CHECK(range->pages);
		for (; page < end && page - range->page < range->pages; page++)
			covered += invalidate_page(world, gather,
						   page - world->first_page);
	}
	CHECK(covered == gather->removed);
	gather->removed = 0;
	add(&world->invalidations, 1);
	if (world->sends == SENDS_GLOBAL) {
		sent->global++;
		add(&world->sent_global, 1);
	} else if (count && world->sends == SENDS_ASKED) {
		sent->page += count;
		add(&world->sent_page, count);
	} else {
		sent->domain++;
		add(&world->sent_domain, 1);
	}
	test_point();
}

static void world_gather_init(xs_gather_t *gather)
{
	gather->id = add(&the_world->last_gather, 1);
	gather->removed = 0;
}

static u64 world_clock(void *opaque)
{
	struct world *world = opaque;

	test_point();
	if (world->ticking)
		world->ticking(world);
	return get(&world->now_ns);
}

static void world_deferred(void *opaque, u32 cpu, bool arm, u64 deadline_ns)
{
	struct world *world = opaque;

	CHECK(cpu < world->cpus);
	/* As in Linux, where each CPU has a private list. */
	if (cpu == test_cpu())
		put(&world->cpu[cpu].poll_due, 1);
	if (arm) {
		add(&world->timers, 1);
		put(&world->cpu[cpu].deadline_ns, deadline_ns);
	} else {
		CHECK(get(&world->cpu[cpu].deadline_ns) ||
		      get(&world->cpu[cpu].firing));
	}
}

/* The size is stored in front of the memory, to be compared when the memory is freed. */
#define SIZE_ROOM	64

static void *world_alloc(void *opaque, size_t bytes, u32 cpu, bool atomic)
{
	struct world *world = opaque;
	u64 *memory;

	CHECK(atomic || test_can_sleep());
	CHECK(cpu == XS_ANY_CPU || cpu < world->cpus);
	if (world->allocating)
		world->allocating(world);
	if (fails_now(&world->alloc_fails_in))
		return NULL;
	memory = test_alloc(bytes + SIZE_ROOM);
	*memory = bytes;
	add(&world->allocations, 1);
	return (char *)memory + SIZE_ROOM;
}

static void world_free_memory(void *opaque, void *memory, size_t bytes)
{
	struct world *world = opaque;
	u64 *start;

	if (!memory)
		return;
	start = (u64 *)((char *)memory - SIZE_ROOM);
	CHECK(*start == bytes);
	/* Poison, so that a use after free is seen. */
	for (size_t i = 0; i < bytes / sizeof(u64); i++)
		((u64 *)memory)[i] = 0xdddddddddddddddd;
	add(&world->allocations, -1);
	test_free(start);
}

static void world_quiesce(void *opaque)
{
	struct world *world = opaque;

	if (world->meanwhile)
		world->meanwhile(world);
	test_quiesce();
}

static void world_surplus(void *opaque)
{
	struct world *world = opaque;

	add(&world->surplus, 1);
}

/* The trim has the words of these pages. */
static void check_busy(struct world *world, u64 page, u64 end)
{
	const struct xs_identity *identity = &world->engine.identity;

	for (; page < end; page++) {
		u64 at = page - identity->first;
		struct xs_identity_table *table = &identity->tables[at >> XS_TABLE_PAGES_LG2];

		CHECK(xs_a64_read(&table->words[at & (XS_TABLE_PAGES - 1)]) == XS_WORD_BUSY);
	}
}

/* No CPU can have a page of the range, or take one. */
static void check_taken(struct world *world, u64 first, u64 end)
{
	struct xs_space *space = &world->engine.space;
	xs_flags_t flags;

	if (xs_identity_has(&world->engine.identity, first)) {
		check_busy(world, first, end);
		return;
	}
	flags = xs_lock_irqsave(&space->lock);
	CHECK(xs_tree_find(&space->tree, 1, first / XS_BLOCK_PAGES,
			   end / XS_BLOCK_PAGES) == XS_NO_BLOCK);
	xs_unlock_irqrestore(&space->lock, flags);
}

/* Nothing is mapped in the range, and no map starts there during the prune. */
static void world_prune(void *opaque, u64 iova, u64 pages)
{
	struct world *world = opaque;
	u64 first = (iova >> XS_PAGE_LG2) - world->first_page;
	u64 end = first + pages;

	CHECK(test_can_sleep() && pages && !get(&world->pruning));
	check_taken(world, iova >> XS_PAGE_LG2, (iova >> XS_PAGE_LG2) + pages);
	if (first >= world->end_page)
		return;
	if (end > world->end_page)
		end = world->end_page;
	put(&world->pruning_end, end);
	put(&world->pruning, first + 1);
	test_point();
	for (u64 page = first; page < end; page++)
		CHECK(!get(&world->word[page]));
	lose_tables(world, first, end - first);
	test_point();
	put(&world->pruning, 0);
	add(&world->pruned, pages);
}

static void world_flushed(void *opaque, u32 cpu, u32 cause, u32 pages,
			  u32 ranges, const struct xs_commands *sent,
			  u64 oldest_ns)
{
	struct world *world = opaque;

	(void)ranges;
	(void)oldest_ns;
	CHECK(cpu < world->cpus && cause < XS_FLUSH_COUNT && pages);
	/* All pages of a flush may be mapped again. */
	CHECK(sent->page + sent->domain + sent->global ||
	      (world->engine.identity.size && cause != XS_FLUSH_UNMAP));
	add(&world->flushed_calls, 1);
	if (cause == XS_FLUSH_UNMAP)
		return;
	CHECK(pages <= XS_BATCH_MAX_PAGES + XS_BLOCK_PAGES);
	if (pages > get(&world->flushed_pages_max))
		put(&world->flushed_pages_max, pages);
}

static void world_misuse(void *opaque, const struct xs_misuse *misuse)
{
	struct world *world = opaque;

	put(&world->misuse_removed, misuse->removed);
	put(&world->misuse_shared, misuse->shared);
	put(&world->misuse_iova, misuse->mapped_pages ? misuse->mapped_iova : 0);
	xs_warn_once(true, misuse->what);
}

/* Mandatory and optional backend operations. */
#define BARE_OPS \
	.map = world_map, .flush_maps = world_flush_maps, \
	.remove = world_remove, .remove_again = world_remove_again, \
	.remove_part = world_remove_part, .stuck = world_stuck, \
	.invalidate = world_invalidate, .gather_init = world_gather_init, \
	.clock = world_clock, .deferred = world_deferred, \
	.alloc = world_alloc, .free = world_free_memory, \
	.quiesce = world_quiesce, .misuse = world_misuse

static const struct xs_backend_ops bare_ops = { BARE_OPS };

static const struct xs_backend_ops world_ops = {
	BARE_OPS,
	.surplus = world_surplus,
	.prune = world_prune,
	.flushed = world_flushed,
};

/* ---- begin and end ---- */

struct world *world_new(const struct world_config *config, u64 alloc_fails_in)
{
	struct xs_engine_config engine = {
		.ops = config->bare ? &bare_ops : &world_ops,
		.start = config->start,
		.end = config->start + config->blocks * XS_BLOCK_BYTES,
		.cpu_count = config->cpus,
		.policy = config->policy,
		.tuning = config->tuning,
		.remembers = config->remembers,
	};
	struct world *world = test_alloc(sizeof(*world));

	if (config->identity) {
		CHECK(config->blocks * XS_BLOCK_PAGES < WORLD_WINDOW);
		engine.identity = config->start + WORLD_WINDOW * XS_PAGE_BYTES;
		engine.memory_pages = WORLD_WINDOW_PAGES;
	}
	CHECK(config->blocks <= WORLD_BLOCKS_MAX && config->cpus <= TEST_CPUS);
	the_world = world;
	world->cpus = config->cpus;
	world->first_page = config->start >> XS_PAGE_LG2;
	world->rows[0].policy = config->policy;
	world->end_page = config->identity ? WORLD_WINDOW + WORLD_WINDOW_PAGES :
					     config->blocks * XS_BLOCK_PAGES;
	world->now_ns = 1000000;
	world->alloc_fails_in = alloc_fails_in;
	world->bare = config->bare;
	world->engine.ops = engine.ops;
	engine.backend = world;
	if (xs_engine_init(&world->engine, &engine)) {
		CHECK(alloc_fails_in && !world->allocations);
		world_free(world);
		return NULL;
	}
	world->alloc_fails_in = 0;
	return world;
}

void world_free(struct world *world)
{
	the_world = NULL;
	test_free(world);
}

/* The statistics of a drained engine agree with the world's counts. */
static void check_stats(const struct world *world, const struct xs_stats *sum)
{
	u64 exposed = 0, unmapped;
	u64 flushes = 0;

	for (u32 i = 0; i < XS_EXPOSURE_BUCKETS; i++)
		exposed += sum->exposure[i];
	for (u32 i = 0; i < XS_FLUSH_COUNT; i++)
		flushes += sum->flushes[i];
	/* The exposure of stuck pages is unknown. */
	unmapped = xs_counts_unmapped(&sum->counts) - sum->counts.kept_unmaps;
	CHECK(exposed == unmapped || (exposed < unmapped && world->ever_stuck));
	CHECK(unmapped == sum->counts.immediate_pages + sum->flushed_pages);
	CHECK(sum->counts.stuck_pages == sum->unstuck_pages);
	CHECK(!xs_engine_stuck_pages(&world->engine));
	CHECK(sum->commands_page == world->sent_page);
	CHECK(sum->commands_domain == world->sent_domain);
	CHECK(sum->commands_global == world->sent_global);
	CHECK(flushes == world->flushed_calls || world->bare);
}

void world_end(struct world *world)
{
	struct xs_stats *sum = test_alloc(sizeof(*sum));

	xs_engine_flush(&world->engine, XS_FLUSH_DRAIN);
	world_check_flushed(world);
	CHECK(xs_engine_live_pages(&world->engine) == 0);
	CHECK(xs_engine_leak_check(&world->engine, sum) == 0);
	check_stats(world, sum);
	for (u32 cpu = 0; cpu < world->cpus; cpu++)
		xs_engine_retire_cpu(&world->engine, cpu);
	CHECK(xs_engine_leak_check(&world->engine, sum) == 0);
	for (u32 i = 0; i < world->end_page; i++)
		CHECK(!world->word[i] && !world->tag[i]);
	for (u32 i = 0; i < WORLD_MEMORY_PAGES; i++)
		CHECK(!world->memory[i].refs && !world->memory[i].reach);
	xs_engine_destroy(&world->engine);
	CHECK(!world->allocations);
	if (!CHECK(!world_warnings()))
		test_print("# warned: %s", get(&last_warning));
	test_free(sum);
	world_free(world);
}

/* ---- time and flush points ---- */

/* Fire the timer of @cpu, which was due at @deadline_ns. */
static void fire(struct world *world, u32 cpu)
{
	u64 deadline, old = 0;

	put(&world->cpu[cpu].deadline_ns, 0);
	add(&world->cpu[cpu].firing, 1);
	deadline = xs_engine_expire(&world->engine, cpu);
	/* Unless the timer was armed again, or fired again, meanwhile. */
	if (deadline)
		try(&world->cpu[cpu].deadline_ns, &old, deadline);
	add(&world->cpu[cpu].firing, -1);
}

void world_fire(struct world *world, u32 cpu)
{
	u64 deadline = get(&world->cpu[cpu].deadline_ns);

	if (deadline && deadline <= get(&world->now_ns))
		fire(world, cpu);
}

void world_advance(struct world *world, u64 ns)
{
	u64 end = world->now_ns + ns;

	while (!test_failed()) {
		u64 first = ~0ULL;
		u32 at = 0;

		for (u32 cpu = 0; cpu < world->cpus; cpu++)
			if (world->cpu[cpu].deadline_ns &&
			    world->cpu[cpu].deadline_ns < first) {
				first = world->cpu[cpu].deadline_ns;
				at = cpu;
			}
		if (first > end)
			break;
		if (first > world->now_ns)
			put(&world->now_ns, first);
		fire(world, at);
		CHECK(!world->cpu[at].deadline_ns ||
		      world->cpu[at].deadline_ns > world->now_ns);
	}
	put(&world->now_ns, end);
}

void world_poll(struct world *world)
{
	u64 *due = &world->cpu[test_cpu()].poll_due;

	if (get(due) && xs_engine_poll(&world->engine))
		put(due, 0);
}

/* ---- changes of policy ---- */

/* Does the row promise that an ordinary unmap leaves nothing at the return? */
static bool is_strict(const struct world_row *row)
{
	const struct xs_policy *policy = get(&row->policy);

	return policy->flushes & XS_FLUSH_BIT(XS_FLUSH_UNMAP) ||
	       (get(&row->batch_aware) && xs_policy_waits(policy));
}

static bool is_holding(const struct world_row *row)
{
	return get(&row->policy)->hold == XS_HOLD_PAGES || is_strict(row);
}

/* Does the row promise that a batch-aware driver's unmap leaves nothing after the flush? */
static bool is_strict_if_aware(const struct world_row *row)
{
	return xs_policy_level(get(&row->policy), true) == XS_LEVEL_STRICT;
}

/* Does each row promise so that a call begun at @changes may have seen? */
static bool always(const struct world *world, u64 changes,
		   bool (*is)(const struct world_row *row))
{
	u64 last = (get(&world->changes) + 1) / 2;

	CHECK(last - changes / 2 < WORLD_ROWS);
	for (u64 i = changes / 2; i <= last; i++)
		if (!is(&world->rows[i % WORLD_ROWS]))
			return false;
	return true;
}

/* Has the engine mapped a page of the window again? Its owner may not know yet. No trim runs. */
static bool is_revived(const struct world *world, u64 page)
{
	const struct xs_identity *identity = &world->engine.identity;
	u64 at = world->first_page + page - identity->first;
	const xs_atomic64_t *words;

	if (!is_in_window(world, page) || !identity->tables)
		return false;
	words = xs_load_acquire(&identity->tables[at >> XS_TABLE_PAGES_LG2].words);
	return words && xs_a64_read(&words[at & (XS_TABLE_PAGES - 1)]) & XS_WORD_COUNT;
}

/* Returns the word of a page after the unmap's return, if still reachable; else 0. */
static u64 word_left(const struct world *world, u64 page, u64 *owner)
{
	u64 left, word;

	*owner = get_next(&world->owner[page]);
	if (!(*owner & OWNER_RETURNED))
		return 0;
	left = get_next(&world->left[page]);
	word = get_next(&world->word[page]);
	if (word >> WORD_NUMBER_SHIFT != left || is_revived(world, page) ||
	    (get_next(&world->owner[page]) & ~(u64)OWNER_REMOVED) !=
	    (*owner & ~(u64)OWNER_REMOVED))
		return 0;
	return word;
}

static void note_before(struct world *world)
{
	u64 owner;

	for (u32 page = 0; page < world->end_page; page++) {
		world->before[page] = word_left(world, page, &owner) >>
				      WORD_NUMBER_SHIFT;
		world->before_serial[page] = owner / OWNER_SERIAL;
	}
}

/* All pages unmapped before are unreachable, unless they were mapped again. */
static void check_before(const struct world *world)
{
	for (u32 page = 0; page < world->end_page; page++)
		CHECK(!world->before[page] ||
		      get_next(&world->word[page]) >> WORD_NUMBER_SHIFT !=
			      world->before[page] ||
		      is_revived(world, page) ||
		      serial_at(world, page) != world->before_serial[page]);
}

/* Pages unmapped by now and still reachable have the level of @row. */
static void check_row(struct world *world, const struct world_row *row)
{
	for (u32 page = 0; page < world->end_page; page++) {
		struct memory *memory;
		u64 owner, word = word_left(world, page, &owner);
		u64 refs;

		if (!word)
			continue;
		CHECK(!(row->policy->flushes & XS_FLUSH_BIT(XS_FLUSH_UNMAP)));
		CHECK(!is_strict(row) || owner & OWNER_AWARE);
		memory = &world->memory[word_page(word)];
		if (row->policy->hold != XS_HOLD_PAGES ||
		    get(&memory->kind) == MEMORY_PERMANENT)
			continue;
		refs = get_next(&memory->refs);
		if (get_next(&world->word[page]) >> WORD_NUMBER_SHIFT !=
		    word >> WORD_NUMBER_SHIFT)
			continue;
		CHECK(refs || world->frees_early);
		try(&world->owner[page], &owner, owner | OWNER_PROMISED);
	}
}

void world_set_policy(struct world *world, const struct xs_policy *policy,
		      const struct xs_tuning *tuning)
{
	struct world_row *row =
		&world->rows[(world->changes / 2 + 1) % WORLD_ROWS];

	note_before(world);
	put(&row->policy, policy);
	put(&row->batch_aware, tuning->batch_aware);
	add(&world->changes, 1);
	xs_engine_set(&world->engine, policy, tuning);
	add(&world->changes, 1);
	check_before(world);
	check_row(world, row);
}

void world_settle(struct world *world)
{
	note_before(world);
	xs_engine_settle(&world->engine);
	check_before(world);
}

void world_trim(struct world *world, bool always)
{
	if (__atomic_exchange_n(&world->surplus, 0, __ATOMIC_RELAXED) || always)
		xs_engine_trim(&world->engine);
}

/* ---- inspection ---- */

bool world_reachable(const struct world *world, u64 iova)
{
	return get(&world->word[page_of(world, iova)]);
}

bool world_access(struct world *world, u64 iova, u32 prot, u64 *phys)
{
	u64 page = page_of(world, iova);
	u64 word = get(&world->word[page]);

	do {
		if (!word || prot & ~word & WORD_PROT || word & WORD_UNFLUSHED)
			return false;
	} while (!try(&world->word[page], &word, word | WORD_CACHED));
	*phys = phys_of(word_page(word));
	return true;
}

void world_check(struct world *world, u64 window_ns)
{
	for (u32 page = 0; page < world->end_page; page++) {
		u64 word = world->word[page];

		if (word && !(world->owner[page] & (OWNER_MAPPED | OWNER_REFUSED)))
			CHECK(world->now_ns - world->unmapped_ns[page] <
			      window_ns);
	}
}

void world_check_flushed(struct world *world)
{
	for (u32 page = 0; page < world->end_page; page++)
		if (world->word[page])
			CHECK(world->owner[page] & (OWNER_MAPPED | OWNER_REFUSED));
}

u64 world_mapped_pages(const struct world *world)
{
	u64 mapped = 0;

	for (u32 page = 0; page < world->end_page; page++)
		mapped += world->owner[page] & OWNER_MAPPED;
	return mapped;
}

const struct xs_stats *world_stats(struct world *world)
{
	static struct xs_stats sum;

	xs_engine_stats(&world->engine, &sum);
	return &sum;
}

/* ---- the driver ---- */

static bool memory_take(struct world *world, struct mapping *mapping)
{
	u64 serial = add(&world->last_serial, 1);
	u64 random = serial;
	u32 room = (world->engine.identity.size ? WORLD_WINDOW_PAGES : WORLD_MEMORY_PAGES) -
		   mapping->pages;
	u32 start = test_below(&random, room);
	u32 got = 0;

	/* Find contiguous free pages, from a random place on. */
	for (u32 at = 0; at < room && got < mapping->pages; at += got + 1) {
		mapping->page = (start + at) % room;
		for (got = 0; got < mapping->pages; got++) {
			u64 none = 0;

			if (!try(&world->memory[mapping->page + got].refs,
				 &none, 1))
				break;
		}
		for (u32 i = 0; got < mapping->pages && i < got; i++)
			add(&world->memory[mapping->page + i].refs, -1);
	}
	for (u32 i = 0; got == mapping->pages && i < got; i++) {
		struct memory *memory = &world->memory[mapping->page + i];
		bool folio = mapping->kind == MEMORY_FOLIO;

		put(&memory->kind, mapping->kind);
		put(&memory->head, mapping->page + (folio ? 0 : i));
		put(&memory->pages, folio ? got : 1);
	}
	mapping->serial = serial;
	return got == mapping->pages;
}

void driver_free(struct world *world, const struct mapping *mapping)
{
	u32 counted = mapping->kind == MEMORY_FOLIO ? 1 : mapping->pages;

	for (u32 i = 0; i < counted; i++)
		memory_put(world, &world->memory[mapping->page + i]);
}

/* Does another mapping still have this page of the window? */
static bool is_shared(const struct world *world, u64 page, u64 owner)
{
	return is_in_window(world, page) && owner & OWNER_MAPPED;
}

/* The driver is about to unmap. */
static void note_unmap(struct world *world, u64 iova, u32 pages, u64 serial)
{
	for (u64 page = page_of(world, iova); pages--; page++) {
		if (get(&world->shares[page])) {
			add(&world->shares[page], -1);
			continue;
		}
		put(&world->unmapped_ns[page], get(&world->now_ns));
		put(&world->left[page],
		    get(&world->word[page]) >> WORD_NUMBER_SHIFT);
		put(&world->owner[page], serial * OWNER_SERIAL);
	}
}

/* The unmap has returned; the pages may belong to another mapping by now. */
static void note_unmapped(struct world *world, const struct mapping *mapping,
			  u64 flags)
{
	u64 page = page_of(world, mapping->iova);

	for (u64 end = page + mapping->pages; page < end; page++) {
		u64 owner = get(&world->owner[page]);

		while (owner / OWNER_SERIAL == mapping->serial &&
		       !is_shared(world, page, owner) &&
		       !try(&world->owner[page], &owner,
			    owner | OWNER_RETURNED | flags))
			;
	}
}

/* Number of filled pages of a mapping in parts: all but the last pages. */
static u32 filled_of(const struct mapping *mapping)
{
	u32 unfilled = mapping->parts && mapping->pages > 1 ?
		       1 + mapping->pages / 4 : 0;

	return mapping->pages - unfilled;
}

/* Fill a range except for the last pages. */
static int fill_parts(struct xs_engine *engine, const struct mapping *mapping,
		      u64 iova)
{
	u32 filled = filled_of(mapping), pages = mapping->pages;
	u32 step = filled / mapping->parts + 1;
	u64 phys[XS_BLOCK_PAGES];
	int error = 0;

	for (u32 at = 0; at < pages && at < XS_BLOCK_PAGES; at++)
		phys[at] = at < filled ? phys_of(mapping->page + at) :
					 XS_PHYS_NONE;
	if (pages <= XS_BLOCK_PAGES)
		return xs_engine_fill_each(engine, iova, phys, pages,
					   mapping->prot);
	for (u32 at = 0; !error && at < filled; at += step) {
		u32 part = filled - at < step ? filled - at : step;

		error = xs_engine_fill(engine, iova + phys_of(at),
				       phys_of(mapping->page + at), part,
				       mapping->prot);
	}
	xs_engine_publish(engine, iova, pages);
	return error;
}

/* Map a range for scattered memory. */
static u64 map_parts(struct world *world, const struct mapping *mapping,
		     u64 last)
{
	struct xs_engine *engine = &world->engine;
	u64 iova = xs_engine_alloc_iova(engine, mapping->pages, last);
	int error = iova ? fill_parts(engine, mapping, iova) : 0;

	if (!error)
		return iova;
	CHECK((error == XS_MAP_NOT_UNDONE) == !!get(&world->maps_not_undone));
	if (error == XS_MAP_NOT_UNDONE) {
		note_not_undone(world, iova, mapping->pages);
		xs_engine_unmap_failed_map(engine, iova, mapping->pages);
		return 0;
	}
	note_unmap(world, iova, mapping->pages, mapping->serial);
	xs_engine_unmap(engine, iova, mapping->pages, true);
	return 0;
}

static u64 map_any(struct world *world, const struct mapping *mapping, u64 last)
{
	u64 phys = phys_of(mapping->page);

	if (mapping->parts)
		return map_parts(world, mapping, last);
	if (mapping->deferred)
		return xs_engine_map_unflushed(&world->engine, phys,
					       mapping->pages,
					       mapping->prot | XS_MAP_UNFLUSHED,
					       last);
	if (mapping->pages == 1 && mapping->serial & 1)
		return path_map_one(&world->engine, phys, mapping->prot, last);
	return xs_engine_map(&world->engine, phys, mapping->pages,
			     mapping->prot, last);
}

/* Alignment of a mapping: the next power of two. */
static u64 align_of(u32 pages)
{
	u64 align = XS_PAGE_BYTES;

	while (align < pages * XS_PAGE_BYTES)
		align *= 2;
	return align;
}

/* The driver owns the pages of @mapping, which had no owner. */
static bool own(struct world *world, const struct mapping *mapping)
{
	u64 page = page_of(world, mapping->iova);

	if (!CHECK(page + mapping->pages <= world->end_page))
		return false;
	for (u32 i = 0; i < mapping->pages; i++) {
		if (is_in_window(world, page) &&
		    get(&world->owner[page]) & OWNER_MAPPED) {
			add(&world->shares[page], 1);
			return CHECK(get(&world->word[page]) & WORD_TABLE);
		}
		CHECK(!(get(&world->owner[page + i]) & OWNER_MAPPED));
		put(&world->owner[page + i],
		    mapping->serial * OWNER_SERIAL | OWNER_MAPPED);
	}
	return true;
}

bool driver_map(struct world *world, struct mapping *mapping, u64 last)
{
	if (!memory_take(world, mapping))
		return false;
	mapping->iova = map_any(world, mapping, last);
	if (!mapping->iova) {
		driver_free(world, mapping);
		return false;
	}
	CHECK(mapping->iova % align_of(mapping->pages) == 0);
	CHECK(mapping->iova + phys_of(mapping->pages) - 1 <= last);
	return own(world, mapping);
}

bool driver_map_again(struct world *world, struct mapping *mapping, const struct mapping *of,
		      u64 last)
{
	struct memory *memory = &world->memory[of->page];

	*mapping = *of;
	mapping->pages = 1;
	mapping->serial = add(&world->last_serial, 1);
	add(&world->memory[get(&memory->head)].refs, 1);
	mapping->iova = map_any(world, mapping, last);
	if (!mapping->iova) {
		driver_free(world, mapping);
		return false;
	}
	return own(world, mapping);
}

bool driver_map_at(struct world *world, struct mapping *mapping, u64 iova)
{
	u64 phys;

	if (!memory_take(world, mapping))
		return false;
	mapping->iova = iova;
	phys = phys_of(mapping->page);
	if (!(mapping->deferred ?
		      xs_engine_map_in_block_unflushed(&world->engine, iova,
						       &phys, 1,
						       mapping->prot |
							     XS_MAP_UNFLUSHED) :
		      xs_engine_map_in_block(&world->engine, iova, &phys, 1,
					     mapping->prot))) {
		driver_free(world, mapping);
		return false;
	}
	return own(world, mapping);
}

/* Memory in groups of @run contiguous pages. */
u32 driver_map_block(struct world *world, struct mapping *mappings, u32 pages,
		     u32 run, u64 iova)
{
	u64 phys[XS_BLOCK_PAGES] = { 0 };
	u32 done;

	for (u32 i = 0; i < pages; i++) {
		struct mapping some = { .pages = run, .prot = PROT_READ_ };

		if (i % run == 0 && !CHECK(memory_take(world, &some)))
			return 0;
		if (i % run == 0)
			mappings[i] = some;
		else
			mappings[i] = mappings[i - 1];
		mappings[i].pages = 1;
		mappings[i].page += i % run > 0;
		mappings[i].serial = add(&world->last_serial, 1);
		mappings[i].iova = iova + phys_of(i);
		phys[i] = phys_of(mappings[i].page);
	}
	done = xs_engine_map_in_block(&world->engine, iova, phys, pages,
				      PROT_READ_);
	for (u32 i = 0; i < done; i++)
		own(world, &mappings[i]);
	for (u32 i = done; i < pages; i++)
		driver_free(world, &mappings[i]);
	return done;
}

void driver_unmap_block_deferred(struct world *world,
				 const struct mapping *mappings, u64 mask)
{
	for (u32 i = 0; i < XS_BLOCK_PAGES; i++)
		if (mask >> i & 1)
			note_unmap(world, mappings[i].iova, 1,
				   mappings[i].serial);
	xs_engine_unmap_in_block_deferred(&world->engine, mappings[0].iova,
					  mask);
	for (u32 i = 0; i < XS_BLOCK_PAGES; i++)
		if (mask >> i & 1)
			note_unmapped(world, &mappings[i], OWNER_AWARE);
}

/* Can an engine that remembers references hold the memory when the world refuses the removal? */
static bool can_be_held(const struct mapping *mapping)
{
	return mapping->pages <= XS_BLOCK_PAGES &&
	       (mapping->kind == MEMORY_FOLIO ||
		(mapping->kind == MEMORY_COUNTED &&
		 mapping->pages <= XS_HOLDS_MAX));
}

/*
 * The policy's promise about the memory counts from here on; during a change, the promise
 * common to both policies.
 */
void driver_unmap_only(struct world *world, const struct mapping *mapping,
		       bool now)
{
	u64 changes = get(&world->changes);
	bool strict = now || mapping->pages > XS_BLOCK_PAGES;
	bool unmapped = true, refused;

	note_unmap(world, mapping->iova, mapping->pages, mapping->serial);
	if (now || mapping->pages > 1 || mapping->serial & 1)
		unmapped = xs_engine_unmap(&world->engine, mapping->iova,
					   mapping->pages, now);
	else
		path_unmap_one(&world->engine, mapping->iova);
	strict |= always(world, changes, is_strict);
	refused = driver_refused(world, mapping);
	if (strict && !refused)
		CHECK(!driver_reachable(world, mapping));
	if (now)
		CHECK(unmapped != refused);
	if (mapping->kind != MEMORY_PERMANENT &&
	    (!refused || can_be_held(mapping)) &&
	    (strict || always(world, changes, is_holding)))
		note_unmapped(world, mapping, OWNER_PROMISED);
	else
		note_unmapped(world, mapping, 0);
}

bool driver_unmap_deferred(struct world *world, const struct mapping *mapping)
{
	u64 changes = get(&world->changes);

	note_unmap(world, mapping->iova, mapping->pages, mapping->serial);
	if (mapping->pages == 1 && mapping->serial & 1)
		path_unmap_one_deferred(&world->engine, mapping->iova);
	else
		xs_engine_unmap_deferred(&world->engine, mapping->iova,
					 mapping->pages);
	note_unmapped(world, mapping, OWNER_AWARE);
	return always(world, changes, is_strict_if_aware);
}

void driver_keeps(struct world *world, const struct mapping *mapping)
{
	u64 page = page_of(world, mapping->iova);

	if (mapping->pages == 1 && world->engine.remembers &&
	    can_be_held(mapping) && driver_refused(world, mapping))
		__atomic_fetch_or(&world->owner[page], OWNER_PROMISED,
				  __ATOMIC_RELAXED);
}

void driver_unmap_aware(struct world *world, const struct mapping *mappings,
			u32 count, bool everywhere)
{
	u32 promises = 0;

	for (u32 i = 0; i < count; i++)
		if (driver_unmap_deferred(world, &mappings[i]))
			promises |= 1u << i;
	xs_engine_flush_explicit(&world->engine, everywhere);
	for (u32 i = 0; i < count; i++) {
		CHECK(!(promises >> i & 1) ||
		      driver_refused(world, &mappings[i]) ||
		      !driver_reachable(world, &mappings[i]));
		if (promises >> i & 1)
			driver_keeps(world, &mappings[i]);
		driver_free(world, &mappings[i]);
	}
}

void driver_unmap(struct world *world, const struct mapping *mapping, bool now)
{
	driver_unmap_only(world, mapping, now);
	driver_free(world, mapping);
}

/* An unmap is about to name these pages. Records the mapped ones. */
static void note_torn(struct world *world, u64 page, u64 end)
{
	for (; page < end; page++)
		if (get(&world->owner[page]) & OWNER_MAPPED)
			put(&world->owner[page],
			    get(&world->owner[page]) | OWNER_TORN);
}

/* Named pages are blocked. */
static void check_torn(const struct world *world, u64 page, u64 end)
{
	for (; page < end; page++) {
		u64 owner = get(&world->owner[page]);

		if (owner & OWNER_TORN)
			CHECK(!get(&world->word[page]));
	}
}

bool driver_tear(struct world *world, u64 iova, u32 pages, u32 how)
{
	struct xs_engine *engine = &world->engine;
	u64 page = iova >> XS_PAGE_LG2, end = page + pages;
	bool right = false;

	page = page > world->first_page ? page - world->first_page : 0;
	end = end > world->first_page ? end - world->first_page : 0;
	if (end > world->end_page)
		end = world->end_page;
	note_torn(world, page, end);
	if (how == 0)
		right = xs_engine_unmap(engine, iova, pages, false);
	else if (how == 1)
		right = xs_engine_unmap(engine, iova, pages, true);
	else
		xs_engine_unmap_deferred(engine, iova, pages);
	check_torn(world, page, end);
	return right;
}

void driver_note_torn(struct world *world, const struct mapping *mapping)
{
	u64 page = page_of(world, mapping->iova);

	note_torn(world, page, page + mapping->pages);
}

void driver_is_torn(struct world *world, const struct mapping *mapping)
{
	u64 page = page_of(world, mapping->iova);

	for (u32 i = 0; i < mapping->pages; i++) {
		CHECK(!get(&world->word[page + i]));
		put(&world->owner[page + i], mapping->serial * OWNER_SERIAL);
	}
}

void driver_check(struct world *world, const struct mapping *mapping)
{
	u32 filled = filled_of(mapping);

	for (u32 i = 0; i < mapping->pages; i++) {
		u64 iova = mapping->iova + phys_of(i);
		u64 phys = 0;

		for (u32 prot = PROT_READ_; prot <= PROT_WRITE_; prot *= 2) {
			bool torn = get(&world->owner[page_of(world, iova)]) &
				    OWNER_TORN;
			bool may = i < filled && mapping->prot & prot && !torn;
			bool does = world_access(world, iova, prot, &phys);

			CHECK(does == may || (world->exact_unmap && may));
			CHECK(!does || phys == phys_of(mapping->page + i));
		}
	}
}

bool driver_refused(const struct world *world, const struct mapping *mapping)
{
	u64 page = page_of(world, mapping->iova);
	u64 owner = get(&world->owner[page]);

	return owner / OWNER_SERIAL == mapping->serial && owner & OWNER_REFUSED;
}

bool driver_reachable(const struct world *world, const struct mapping *mapping)
{
	u64 page = page_of(world, mapping->iova);

	for (u32 i = 0; i < mapping->pages; i++) {
		u64 word = get(&world->word[page + i]);

		u64 owner = get(&world->owner[page + i]);

		if (word && word_page(word) == mapping->page + i &&
		    owner / OWNER_SERIAL == mapping->serial &&
		    !is_shared(world, page + i, owner))
			return true;
	}
	return false;
}
