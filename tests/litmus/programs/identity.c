// SPDX-License-Identifier: GPL-2.0-only
/*
 * Identity placement: the word of a page while CPUs map, share, revive, unmap, flush and trim. A
 * page is not written or removed twice, no mapped page is removed, no reference is lost, memory
 * without a reference is unreachable, and no word is used after a trim has freed it.
 */
#include <xsmmu/flush.h>

#include "programs.h"

#define PAGE	1	/* of memory */
#define OTHER	2

static u64 iova, other, told;
static u32 refs;	/* that no thread gives up */

/*
 * A call changes a page's word by the value that it has read there, and does all else according
 * to that value: Linux keeps these stores behind the read, so no program here can have a hazard.
 */
#define PROGRAM .dependent = true

/* ---- a driver ---- */

/* Maps with a reference of the caller's own; 0 if the memory is free. A device uses the page. */
static u64 map(u32 phys)
{
	u64 mapped;

	if (!world_get(phys))
		return 0;
	mapped = world_map_page(phys);
	world_use(mapped, phys);
	return mapped;
}

/* Unmaps, and frees the memory at once. */
static void unmap_and_free(u64 mapped, u32 phys)
{
	world_use(mapped, phys);
	world_unmap(mapped);
	world_put(phys);
}

static void unmap_now(u64 mapped, u32 phys)
{
	world_use(mapped, phys);
	ex_assert(xs_engine_unmap(&engine, mapped, 1, true));
	world_put(phys);
}

/* A batch-aware driver frees the memory after its flush. */
static void unmap_promised(u64 mapped, u32 phys)
{
	world_use(mapped, phys);
	world_unmap_promised(mapped);
	xs_engine_flush_explicit(&engine, false);
	world_put(phys);
}

static void map_and_unmap(void)
{
	u64 mapped = map(PAGE);

	if (mapped)
		unmap_and_free(mapped, PAGE);
}

static void unmap_first(void)
{
	unmap_and_free(iova, PAGE);
}

static void unmap_first_now(void)
{
	unmap_now(iova, PAGE);
}

static void unmap_first_promised(void)
{
	unmap_promised(iova, PAGE);
}

static void map_only(void)
{
	told = map(PAGE);
}

/* Flushes the batch of one CPU, as its timer does. */
static void flush_of(u32 id)
{
	struct xs_cpu *cpu = engine.cpus[id];
	xs_flags_t flags = xs_cpu_lock_any(cpu);

	xs_flush_batch(&engine, cpu, XS_FLUSH_TIME);
	xs_cpu_unlock_any(cpu, flags);
}

static void flush0(void)
{
	flush_of(0);
}

static void flush1(void)
{
	flush_of(1);
}

static void trim(void)
{
	xs_identity_trim(&engine);
}

/* ---- beginnings and ends ---- */

/* The page has words, and is not mapped. */
static void begin(const char *policy)
{
	world_begin(policy);
	if (xs_policy_find(policy)->hold == XS_HOLD_PAGES)
		world_own(PAGE, 1);
	else
		world_share(PAGE);
	refs = 1;
	iova = 0;
	other = 0;
	told = 0;
}

/* The page is mapped, and no other driver has a reference. */
static void begin_mapped(const char *policy)
{
	begin(policy);
	refs = 0;
	iova = world_map_page(PAGE);
	ex_assert(xs_identity_has(&engine.identity, iova >> XS_PAGE_LG2));
}

/* The page was unmapped on CPU 0, and is mapped again: the CPU has a record. */
static void begin_revived(void)
{
	begin_mapped("fused-identity");
	world_unmap(iova);
	ex_assert(world_map_page(PAGE) == iova);
}

static void begin_strict(void)
{
	begin("strict-identity");
}

static void begin_strict_mapped(void)
{
	begin_mapped("strict-identity");
}

static void begin_held(void)
{
	begin("fused-identity");
}

/* So that the next unmap on CPU 0 takes the fast path. */
static void begin_held_mapped(void)
{
	begin_mapped("fused-identity");
	world_unmap(world_map_page(OTHER));
}

/* The page is absent, so that it is mapped in the window again. */
static void is_absent(void)
{
	if (engine.policy->placement != XS_PLACE_IDENTITY)
		world_set("fused-identity");
	ex_assert(xs_identity_has(&engine.identity, world_map_page(PAGE) >> XS_PAGE_LG2));
}

static void none_mapped(void)
{
	world_check(0);
	is_absent();
}

static void all_gone(void)
{
	world_check(0);
	ex_assert(world_refs(PAGE) == refs);
	ex_assert(world_is_gone(PAGE));
	is_absent();
}

/* Only map_only() has mapped the page, unless the memory was free. */
static void one_left(void)
{
	if (!told) {
		all_gone();
		return;
	}
	world_check(1);
	ex_assert(world_refs(PAGE) == refs + 1);
	world_use(told, PAGE);
}

static void one_mapped(void)
{
	world_check(1);
	world_use(told, PAGE);
}

/* ---- strict ---- */

static const struct ex_program strict_two = {
	PROGRAM, .name = "identity_strict_two", .setup = begin_strict,
	.threads = { map_and_unmap, map_and_unmap }, .finish = none_mapped
};
static const struct ex_program strict_shared = {
	PROGRAM, .name = "identity_strict_shared", .setup = begin_strict_mapped,
	.threads = { unmap_first, map_and_unmap }, .finish = none_mapped
};
static const struct ex_program strict_three = {
	PROGRAM, .name = "identity_strict_three", .setup = begin_strict_mapped,
	.threads = { unmap_first, map_only, map_and_unmap }, .finish = one_mapped
};

/* An interrupt in the middle of a map or an unmap. */
static const struct ex_program strict_interrupt = {
	PROGRAM, .name = "identity_strict_interrupt", .setup = begin_strict_mapped,
	.threads = { unmap_first, map_and_unmap }, .interrupts = { map_and_unmap },
	.finish = none_mapped
};

/* ---- revival ---- */

static const struct ex_program revived = {
	PROGRAM, .name = "identity_revived", .setup = begin_revived, .threads = { unmap_first, flush0 },
	.finish = all_gone
};
/* On another CPU than the record. */
static const struct ex_program two_records = {
	PROGRAM, .name = "identity_two_records", .setup = begin_revived,
	.threads = { flush0, unmap_first }, .finish = all_gone
};
static const struct ex_program two_flushes = {
	PROGRAM, .name = "identity_two_flushes", .setup = begin_revived,
	.threads = { flush0, unmap_first, flush1 }, .finish = all_gone
};
static const struct ex_program revived_elsewhere = {
	PROGRAM, .name = "identity_revived_elsewhere", .setup = begin_held_mapped,
	.threads = { unmap_first, map_only, flush0 }, .finish = one_left
};
static const struct ex_program mapped_twice = {
	PROGRAM, .name = "identity_mapped_twice", .setup = begin_held_mapped,
	.threads = { unmap_first, map_and_unmap }, .finish = all_gone
};

/* An interrupt between the word's change and the record. */
static const struct ex_program interrupted = {
	PROGRAM, .name = "identity_interrupted", .setup = begin_held_mapped,
	.threads = { unmap_first, flush0 }, .interrupts = { map_and_unmap },
	.finish = all_gone
};

/*
 * Some drivers free before their unmap, so the interrupt's reference may be the last: its unmap has
 * no record when it comes between the word's change and the record, and relies on that record.
 */
static void begin_early(void)
{
	begin_held_mapped();
	world_own(PAGE, 2);
}

static void free_and_unmap(void)
{
	world_put(PAGE);
	world_unmap(iova);
}

static void map_and_free_last(void)
{
	u64 mapped = world_map_page(PAGE);
	bool is_shared = (xs_a64_read(&engine.identity.tables[0].words[PAGE]) & XS_WORD_COUNT) > 1;

	world_unmap(mapped);
	/* The first driver has freed the memory, and has not unmapped. */
	if (is_shared)
		refs++;
	else
		world_put(PAGE);
}

static const struct ex_program interrupted_early = {
	PROGRAM, .name = "identity_interrupted_early", .setup = begin_early,
	.threads = { free_and_unmap, flush0 }, .interrupts = { map_and_free_last },
	.finish = all_gone
};

/* ---- removals beside records ---- */

static const struct ex_program now = {
	PROGRAM, .name = "identity_now", .setup = begin_revived, .threads = { unmap_first_now, flush0 },
	.finish = all_gone
};
static const struct ex_program now_mapped = {
	PROGRAM, .name = "identity_now_mapped", .setup = begin_revived,
	.threads = { flush0, unmap_first_now, map_only }, .finish = one_left
};

/* The driver's flush covers its unmap, whoever else flushes the page. */
static void own_is_gone(void)
{
	unmap_first_promised();
	ex_assert(world_is_gone(PAGE));
}

static const struct ex_program promised = {
	PROGRAM, .name = "identity_promised", .setup = begin_revived,
	.threads = { flush0, own_is_gone }, .finish = all_gone
};
static const struct ex_program promised_here = {
	PROGRAM, .name = "identity_promised_here", .setup = begin_revived,
	.threads = { own_is_gone, flush0 }, .finish = all_gone
};
/* The record of such an unmap holds nothing, and does not stand for an ordinary unmap. */
static void begin_unheld(void)
{
	begin_held_mapped();
	world_unmap_promised(iova);
	ex_assert(world_map_page(PAGE) == iova);
}

static const struct ex_program unheld = {
	PROGRAM, .name = "identity_unheld", .setup = begin_unheld,
	.threads = { unmap_first, flush0 }, .finish = all_gone
};
static const struct ex_program promised_shared = {
	PROGRAM, .name = "identity_promised_shared", .setup = begin_held_mapped,
	.threads = { unmap_first_promised, map_and_unmap }, .finish = all_gone
};

/* ---- words come and go ---- */

/* The words of the window are freed: the next map makes new ones. */
static void begin_without_words(void)
{
	begin_strict();
	trim();
	ex_assert(!engine.identity.used);
	world_share(OTHER);
}

static void map_now_other(void)
{
	unmap_now(map(OTHER), OTHER);
}

static void map_now(void)
{
	unmap_now(map(PAGE), PAGE);
}

/* A bad unmap finds no words, or absent pages. */
static void unmap_wild(void)
{
	world_expect("an unmap that matches no mapping");
	xs_engine_unmap(&engine, (engine.identity.first + OTHER + 1) << XS_PAGE_LG2, 1, false);
}

static const struct ex_program grows = {
	PROGRAM, .name = "identity_grows", .setup = begin_without_words,
	.threads = { map_now, map_now_other, unmap_wild }, .finish = none_mapped
};
static const struct ex_program trims = {
	PROGRAM, .name = "identity_trims", .setup = begin_strict,
	.threads = { trim, map_now }, .finish = none_mapped
};
static const struct ex_program trims_new = {
	PROGRAM, .name = "identity_trims_new", .setup = begin_without_words,
	.threads = { trim, map_now }, .finish = none_mapped
};
static const struct ex_program trims_mapped = {
	PROGRAM, .name = "identity_trims_mapped", .setup = begin_strict_mapped,
	.threads = { trim, unmap_first, map_only }, .finish = one_mapped
};

/* A page that is unmapped and not flushed keeps its words. */
static void begin_unflushed(void)
{
	begin_held_mapped();
	unmap_first();
}

static void trim_and_map(void)
{
	trim();
	map_only();
}

static const struct ex_program trims_unflushed = {
	PROGRAM, .name = "identity_trims_unflushed", .setup = begin_unflushed,
	.threads = { flush0, trim_and_map }, .finish = one_left
};

/* A trim that finds a mapped page gives the absent pages before back. */
#define LOWER	0

static void begin_trim_in_vain(void)
{
	begin_strict_mapped();
	world_share(LOWER);
	other = world_map_page(LOWER);
}

static void unmap_lower(void)
{
	world_unmap(other);
}

static void map_lower(void)
{
	told = world_map_page(LOWER);
}

static void two_mapped(void)
{
	world_check(2);
	world_use(told, LOWER);
}

static const struct ex_program trims_in_vain = {
	PROGRAM, .name = "identity_trims_in_vain", .setup = begin_trim_in_vain,
	.threads = { trim, unmap_lower, map_lower }, .finish = two_mapped
};

/* ---- changes ---- */

static void set_strict(void)
{
	world_set("strict-identity");
	for (u32 cpu = 0; cpu < LITMUS_CPUS; cpu++)
		ex_assert(xs_batch_is_empty(&engine.cpus[cpu]->batch));
}

static void set_fused(void)
{
	world_set("fused");
}

static void begin_changing(void)
{
	begin_held_mapped();
	set_fused();
}

static void set_held(void)
{
	world_set("fused-identity");
}

static const struct ex_program to_strict = {
	PROGRAM, .name = "identity_to_strict", .setup = begin_revived,
	.threads = { unmap_first, set_strict }, .finish = all_gone
};
static const struct ex_program to_blocks = {
	PROGRAM, .name = "identity_to_blocks", .setup = begin_held,
	.threads = { map_and_unmap, set_fused }, .finish = all_gone
};
static const struct ex_program from_blocks = {
	PROGRAM, .name = "identity_from_blocks", .setup = begin_changing,
	.threads = { unmap_first, set_held }, .finish = all_gone
};

/*
 * The backend refuses maps from now on: when the seal returns, each map that has succeeded is
 * counted, and none succeeds any more.
 */
static void seal(void)
{
	world_refuse();
	xs_ops(&engine)->quiesce(xs_backend(&engine));
	xs_identity_seal(&engine);
	other = xs_engine_live_pages(&engine);
}

static void map_or_not(void)
{
	told = path_map_one(PAGE << XS_PAGE_LG2);
}

static void all_counted(void)
{
	ex_assert(other == 1 + (told != 0));
	ex_assert(!path_map_one(PAGE << XS_PAGE_LG2));
}

static const struct ex_program seals = {
	PROGRAM, .name = "identity_seals", .setup = begin_strict_mapped,
	.threads = { seal, map_or_not }, .finish = all_counted
};

/* ---- stuck pages ---- */

static void begin_stuck(void)
{
	begin_held_mapped();
	unmap_first();
	world_stick(iova);
}

static void retry(void)
{
	xs_engine_retry(&engine);
}

static void retry_and_map(void)
{
	retry();
	map_only();
}

static void removed(void)
{
	ex_assert(!xs_engine_retry(&engine));
	one_left();
}

static const struct ex_program stuck = {
	PROGRAM, .name = "identity_stuck", .setup = begin_stuck,
	.threads = { flush0, retry_and_map }, .finish = removed
};

/* Another CPU maps what the retry has removed. */
static void begin_stuck_before(void)
{
	begin_stuck();
	world_own(PAGE, 2);
	refs = 1;
	flush0();
}

static const struct ex_program stuck_mapped = {
	PROGRAM, .name = "identity_stuck_mapped", .setup = begin_stuck_before,
	.threads = { retry, map_only }, .finish = removed
};

/*
 * Both CPUs have a record of the page, and a flush of CPU 1 makes the page stuck. A flush of CPU 0
 * cannot remove another page, and so looks for stuck pages. One of the references is enough.
 */
static void begin_sticking(void)
{
	begin_revived();
	other = world_map_page(OTHER + 1);
	world_unmap(other);
	world_stick(other);
	ex_be_cpu(1);
	unmap_first();
	world_stick(iova);
	ex_be_cpu(0);
}

static void begin_stuck_twice(void)
{
	begin_sticking();
	flush1();
}

static const struct ex_program sticking = {
	PROGRAM, .name = "identity_sticking", .setup = begin_sticking,
	.threads = { flush0, flush1 }, .finish = removed
};
static const struct ex_program stuck_twice = {
	PROGRAM, .name = "identity_stuck_twice", .setup = begin_stuck_twice,
	.threads = { flush0, retry_and_map }, .finish = removed
};

/* The unmap removes, and the page sticks, unless another map shares the page. */
static void begin_stuck_now(void)
{
	begin_held_mapped();
	world_stick(iova);
}

static void unmap_stuck(void)
{
	xs_engine_unmap(&engine, iova, 1, true);
	world_put(PAGE);
}

static const struct ex_program stuck_now = {
	PROGRAM, .name = "identity_stuck_now", .setup = begin_stuck_now,
	.threads = { unmap_stuck, retry_and_map }, .finish = removed
};

/* ---- bad unmaps of several pages ---- */

/* Names the page and the next, which is not mapped. */
static void unmap_two(void)
{
	world_expect("an unmap that matches no mapping");
	ex_assert(!xs_engine_unmap(&engine, iova, 2, false));
}

static void unmap_two_of_flushed(void)
{
	unmap_two();
	ex_assert(world_is_gone(PAGE));
}

static void unmap_two_and_free(void)
{
	world_use(iova, PAGE);
	unmap_two();
	world_put(PAGE);
}

static void gone_at_once(void)
{
	unmap_two_and_free();
	ex_assert(world_is_gone(PAGE));
}

/* The page was unmapped before, and waits for its flush. */
static const struct ex_program bad_flushed = {
	PROGRAM, .name = "identity_bad_flushed", .setup = begin_unflushed,
	.threads = { flush0, unmap_two_of_flushed }, .finish = all_gone
};
static const struct ex_program bad_revived = {
	PROGRAM, .name = "identity_bad_revived", .setup = begin_revived,
	.threads = { flush0, gone_at_once }, .finish = all_gone
};
static const struct ex_program bad_mapped = {
	PROGRAM, .name = "identity_bad_mapped", .setup = begin_strict_mapped,
	.threads = { unmap_two_and_free, map_only }, .finish = one_mapped
};
static const struct ex_program bad_trims = {
	PROGRAM, .name = "identity_bad_trims", .setup = begin_strict_mapped,
	.threads = { trim, gone_at_once }, .finish = none_mapped
};
static const struct ex_program bad_stuck = {
	PROGRAM, .name = "identity_bad_stuck", .setup = begin_stuck_now,
	.threads = { unmap_two_and_free, retry }, .finish = removed
};

/* ---- no room ---- */

/*
 * An interrupt in the middle of an append fills the ring, so that the unmap of the page is not
 * deferred.
 */
#define MANY	XS_BATCH_RECORDS

static u64 many[MANY];

static void begin_many(void)
{
	begin_held_mapped();
	other = world_map_page(OTHER + 1);
	for (u32 i = 0; i < MANY; i++)
		many[i] = world_map_page(OTHER + 2 + i);
}

static void unmap_other(void)
{
	world_unmap(other);
}

static void unmap_many(void)
{
	for (u32 i = 0; i < MANY; i++)
		world_unmap(many[i]);
	unmap_first();
}

static const struct ex_program no_room = {
	PROGRAM, .name = "identity_no_room", .setup = begin_many,
	.threads = { unmap_other }, .interrupts = { unmap_many },
	.finish = all_gone
};

const struct ex_program *const identity_programs[] = {
	&strict_two, &strict_shared, &strict_three, &strict_interrupt, &revived, &two_records,
	&two_flushes, &revived_elsewhere, &mapped_twice, &interrupted,
	&interrupted_early, &now, &now_mapped, &promised, &promised_here, &unheld,
	&promised_shared, &grows, &trims, &trims_new, &trims_mapped,
	&trims_in_vain, &trims_unflushed, &to_strict, &to_blocks, &from_blocks, &seals,
	&stuck, &stuck_mapped, &sticking, &stuck_twice,
	&stuck_now, &bad_flushed, &bad_revived, &bad_mapped, &bad_trims, &bad_stuck, &no_room, NULL
};
