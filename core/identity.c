// SPDX-License-Identifier: GPL-2.0 OR MIT
/* Identity placement; see identity.h. Maps and unmaps of a page, and the memory of the words. */
#include <xsmmu/identity.h>
#include <xsmmu/stuck.h>
#include <xsmmu/flush.h>

/* ---- memory of the words ---- */

/* New tables between two requests for a trim. */
#define XS_IDENTITY_SURPLUS	64u

static bool xs_table_alloc(struct xs_engine *engine, struct xs_identity_table *table)
{
	size_t entries = XS_TABLE_PAGES / XS_BLOCK_PAGES * sizeof(void *);
	size_t words = XS_TABLE_PAGES * sizeof(xs_atomic64_t);
	void *made = xs_ops(engine)->alloc(xs_backend(engine), words, XS_ANY_CPU, true);

	table->entries = made ? xs_ops(engine)->alloc(xs_backend(engine), entries, XS_ANY_CPU,
						      true) : 0;
	if (!table->entries) {
		xs_ops(engine)->free(xs_backend(engine), made, words);
		return false;
	}
	xs_store_release(&table->words, made);
	return true;
}

static void xs_table_free(struct xs_engine *engine, xs_atomic64_t *words, void **entries)
{
	xs_ops(engine)->free(xs_backend(engine), words, XS_TABLE_PAGES * sizeof(*words));
	xs_ops(engine)->free(xs_backend(engine), entries,
			     XS_TABLE_PAGES / XS_BLOCK_PAGES * sizeof(*entries));
}

/* Makes the words of a page's table. Returns false without memory. Entered. */
static xs_noinline bool xs_identity_grow(struct xs_engine *engine, u64 page)
{
	struct xs_identity *identity = &engine->identity;
	u64 at = page - identity->first;
	struct xs_identity_table *table;
	bool surplus = false, made = true;
	xs_flags_t flags;

	if (at >= xs_load_acquire(&identity->pages))
		return false;
	table = &identity->tables[at >> XS_TABLE_PAGES_LG2];
	flags = xs_lock_irqsave(&identity->lock);
	if (!table->words) {
		made = xs_table_alloc(engine, table);
		identity->used += made;
		surplus = made && identity->used == identity->kept + XS_IDENTITY_SURPLUS;
	}
	xs_unlock_irqrestore(&identity->lock, flags);
	if (surplus && xs_ops(engine)->surplus)
		xs_ops(engine)->surplus(xs_backend(engine));
	return made;
}

void xs_identity_init(struct xs_identity *identity, u64 start, u64 memory_pages)
{
	xs_lock_init(&identity->lock);
	identity->first = start ? start >> XS_PAGE_LG2 : XS_NO_IDENTITY;
	identity->size = start ? (memory_pages + XS_TABLE_PAGES - 1) >> XS_TABLE_PAGES_LG2 : 0;
	identity->tables = 0;
	identity->pages = 0;
	identity->used = 0;
	identity->kept = 0;
}

void xs_identity_prepare(struct xs_engine *engine)
{
	struct xs_identity *identity = &engine->identity;

	if (!identity->size || identity->tables)
		return;
	identity->tables = xs_ops(engine)->alloc(xs_backend(engine),
						 identity->size * sizeof(*identity->tables),
						 XS_ANY_CPU, false);
	if (!identity->tables)
		return;
	/* From the first record of the window on, a flush looks where a page goes back to. */
	xs_store(&engine->reserves, true);
	xs_store_release(&identity->pages, identity->size << XS_TABLE_PAGES_LG2);
}

void xs_identity_destroy(struct xs_engine *engine)
{
	struct xs_identity *identity = &engine->identity;

	for (u64 i = 0; identity->tables && i < identity->size; i++)
		if (identity->tables[i].words)
			xs_table_free(engine, identity->tables[i].words,
				      identity->tables[i].entries);
	xs_ops(engine)->free(xs_backend(engine), identity->tables,
			     identity->size * sizeof(*identity->tables));
	identity->tables = 0;
	identity->pages = 0;
}

/* Makes the first @count words ABSENT, which this caller has made BUSY. */
static void xs_words_absent(xs_atomic64_t *words, u32 count)
{
	while (count--)
		xs_a64_set_release(&words[count], 0);
}

/* Makes all words of a table BUSY if all are ABSENT, so that no page there is mapped. */
static bool xs_table_claim(xs_atomic64_t *words)
{
	for (u32 i = 0; i < XS_TABLE_PAGES; i++) {
		u64 absent = 0;

		if (xs_a64_read(&words[i]) ||
		    !xs_a64_try_acquire(&words[i], &absent, XS_WORD_BUSY)) {
			xs_words_absent(words, i);
			return false;
		}
	}
	return true;
}

#define XS_TRIM_TABLES	32u

/* Hides up to XS_TRIM_TABLES unused tables from *@at on. Returns their number. */
static u32 xs_identity_hide(struct xs_engine *engine, u64 *at, struct xs_identity_table *hidden)
{
	struct xs_identity *identity = &engine->identity;
	u32 count = 0;

	for (; *at < identity->size && count < XS_TRIM_TABLES; ++*at) {
		struct xs_identity_table *table = &identity->tables[*at];
		xs_flags_t flags;

		if (!xs_load_acquire(&table->words) || !xs_table_claim(table->words))
			continue;
		if (xs_ops(engine)->prune)
			xs_ops(engine)->prune(xs_backend(engine),
					      (identity->first + (*at << XS_TABLE_PAGES_LG2)) <<
						      XS_PAGE_LG2, XS_TABLE_PAGES);
		flags = xs_lock_irqsave(&identity->lock);
		hidden[count++] = *table;
		xs_store(&table->words, (xs_atomic64_t *)0);
		identity->used--;
		xs_unlock_irqrestore(&identity->lock, flags);
	}
	return count;
}

void xs_identity_trim(struct xs_engine *engine)
{
	struct xs_identity *identity = &engine->identity;
	struct xs_identity_table hidden[XS_TRIM_TABLES];
	xs_flags_t flags;
	u64 at = 0;

	if (!xs_load_acquire(&identity->pages))
		return;
	while (at < identity->size) {
		u32 count = xs_identity_hide(engine, &at, hidden);

		/* Calls that have found the words before see BUSY pages. */
		if (count)
			xs_ops(engine)->quiesce(xs_backend(engine));
		while (count--)
			xs_table_free(engine, hidden[count].words, hidden[count].entries);
	}
	flags = xs_lock_irqsave(&identity->lock);
	identity->kept = identity->used;
	xs_unlock_irqrestore(&identity->lock, flags);
}

void xs_identity_forget_entries(struct xs_engine *engine)
{
	struct xs_identity *identity = &engine->identity;

	for (u64 i = 0; i < xs_load_acquire(&identity->pages) >> XS_TABLE_PAGES_LG2; i++) {
		/* A trim may hide and free the words at the same time. */
		xs_flags_t flags = xs_lock_irqsave(&identity->lock);

		for (u32 at = 0; identity->tables[i].words && at < XS_TABLE_PAGES / XS_BLOCK_PAGES;
		     at++)
			xs_store(&identity->tables[i].entries[at], (void *)0);
		xs_unlock_irqrestore(&identity->lock, flags);
	}
}

void xs_identity_exclude(struct xs_engine *engine, u64 start, u64 last)
{
	struct xs_identity *identity = &engine->identity;
	u64 bytes = identity->size << (XS_TABLE_PAGES_LG2 + XS_PAGE_LG2);
	u64 first = identity->first << XS_PAGE_LG2;

	if (!identity->size || last < first || start >= first + bytes)
		return;
	/* Tables, if the engine began with identity placement, have no words yet. */
	xs_identity_destroy(engine);
	identity->size = 0;
}

/* ---- map ---- */

/* Removes and invalidates a page that this caller has made BUSY. */
static bool xs_identity_remove_now(struct xs_engine *engine, u64 page, bool again)
{
	bool removed = again ? xs_flush_failed_map(engine, page, 1) :
			       xs_flush_now(engine, page, 1);

	if (xs_likely(removed)) {
		xs_identity_done(engine, page, 1);
		return true;
	}
	xs_count(engine->counts, immediate_pages, -1ULL);
	xs_identity_stick(engine, page, 1);
	xs_identity_keep(engine, page, XS_REF_UNHELD);
	return false;
}

/*
 * Writes the entry of a page that this caller has made BUSY. Returns false if the backend has
 * refused the map; the page is then not mapped.
 */
static xs_noinline bool xs_identity_write(struct xs_engine *engine, xs_atomic64_t *word,
					  u64 page, u32 prot)
{
	u64 present = XS_WORD_PRESENT | (u64)prot << XS_WORD_PROT_SHIFT | 1;
	int error = xs_ops(engine)->map(xs_backend(engine),
					xs_identity_entries(&engine->identity, page),
					page << XS_PAGE_LG2,
					xs_identity_phys(&engine->identity, page), 1, prot);

	if (xs_likely(!error)) {
		xs_count(engine->counts, identity_writes, 1);
		xs_a64_set_release(word, present);
		return true;
	}
	xs_engine_map_failed(engine);
	if (error == XS_MAP_NOT_UNDONE) {
		/* BUSY meanwhile: no other map shares what is mapped in part. */
		xs_count(engine->counts, maps, 1);
		xs_count(engine->counts, unmaps, 1);
		xs_identity_remove_now(engine, page, true);
	} else {
		xs_a64_set_release(word, 0);
	}
	return false;
}

u64 xs_identity_map(struct xs_engine *engine, u64 phys, u32 prot, u64 last)
{
	u64 page = (phys >> XS_PAGE_LG2) + engine->identity.first;
	u64 busy = XS_WORD_BUSY | (u64)prot << XS_WORD_PROT_SHIFT;
	xs_atomic64_t *word = xs_identity_word(&engine->identity, page);
	u64 iova = page << XS_PAGE_LG2, absent = 0;

	if (!word && xs_identity_grow(engine, page))
		word = xs_identity_word(&engine->identity, page);
	if (!word || prot > XS_IDENTITY_PROT_MAX || iova > last)
		goto not;
	if (xs_identity_share(word, prot))
		return iova;
	if (!xs_a64_try_acquire(word, &absent, busy))
		goto not;
	return xs_identity_write(engine, word, page, prot) ? iova : XS_IDENTITY_REFUSED;
not:
	xs_count(engine->counts, identity_misses, 1);
	return XS_IDENTITY_NOT;
}

/* ---- unmap ---- */

/* True if a page has a mapping. */
static xs_inline bool xs_word_is_mapped(u64 word)
{
	return (word & XS_WORD_STATE) == XS_WORD_PRESENT && word & XS_WORD_COUNT;
}

/*
 * True if a deferred unmap of a mapped page needs a record: the mapping is the last, and no record
 * of the CPU stands for the page. @pending: the CPU in a word.
 */
static xs_inline bool xs_word_needs_record(u64 word, u64 pending)
{
	return (word & XS_WORD_COUNT) == 1 &&
	       (pending & XS_WORD_PROMISE || (word & XS_WORD_CPU) != pending);
}

/*
 * Ends an unmap of a page that is not mapped. The page may wait for the flush of an earlier unmap:
 * no device reaches it after the return. @ref: held in vain, if any.
 */
static xs_noinline bool xs_identity_bad(struct xs_engine *engine, u64 page, xs_ref_t ref)
{
	struct xs_misuse misuse = {
		.what = "an unmap that matches no mapping",
		.iova = page << XS_PAGE_LG2,
		.pages = 1,
	};

	if (xs_ref_can_be_held(ref))
		xs_ref_release(ref);
	xs_engine_flush(engine, XS_FLUSH_EXPLICIT);
	xs_engine_report_misuse(engine, &misuse);
	return false;
}

/* Counts an unmap that leaves the page present, without a record. @ref: held in vain, if any. */
static xs_inline void xs_identity_keeps(struct xs_engine *engine, xs_ref_t ref)
{
	if (xs_unlikely(xs_ref_can_be_held(ref)))
		xs_ref_release(ref);
	xs_count(engine->counts, kept_unmaps, 1);
}

/* What an unmap at once has done to a page: not mapped, shared, removed, or stuck. */
enum xs_unmapped { XS_UNMAPPED_NOT, XS_UNMAPPED_SHARED, XS_UNMAPPED_REMOVED, XS_UNMAPPED_STUCK };

/* Takes a mapping of a page, and removes the entry if no other mapping has the page. */
static enum xs_unmapped xs_identity_unmap_word(struct xs_engine *engine, xs_atomic64_t *word,
					       u64 page)
{
	u64 found = xs_a64_read(word);
	bool is_last;

	do {
		if (!xs_word_is_mapped(found))
			return XS_UNMAPPED_NOT;
		is_last = (found & XS_WORD_COUNT) == 1;
	} while (!xs_a64_try(word, &found, is_last ? XS_WORD_BUSY : found - 1));
	xs_count(engine->counts, unmaps, 1);
	if (is_last)
		return xs_identity_remove_now(engine, page, false) ? XS_UNMAPPED_REMOVED :
								     XS_UNMAPPED_STUCK;
	xs_identity_keeps(engine, XS_REF_NONE);
	return XS_UNMAPPED_SHARED;
}

/* Unmaps a page, and removes its entry before the return if no other mapping has the page. */
static xs_noinline bool xs_identity_unmap_now(struct xs_engine *engine, xs_atomic64_t *word,
					      u64 page)
{
	enum xs_unmapped unmapped = xs_identity_unmap_word(engine, word, page);

	if (unmapped == XS_UNMAPPED_NOT)
		return xs_identity_bad(engine, page, XS_REF_NONE);
	return unmapped != XS_UNMAPPED_STUCK;
}

void xs_identity_defer(struct xs_engine *engine, u64 page, xs_ref_t ref, bool promise)
{
	xs_flags_t flags;
	struct xs_cpu *cpu = xs_cpu_lock(engine, &flags);
	u64 record;
	bool room = xs_flush_alloc_records(engine, cpu, 1, 1, &record);

	if (room) {
		xs_record_write(xs_batch_record(&cpu->batch, record), xs_key_of(page, 1, 1), ref);
		if (promise)
			xs_a64_set_release(&cpu->batch.promised, 1);
		xs_flush_if_full(engine, cpu);
	}
	xs_cpu_unlock(cpu, flags);
	if (xs_likely(room))
		return;
	if (xs_identity_take(engine, page, cpu->id))
		xs_identity_remove_now(engine, page, false);
	else
		xs_count(engine->counts, kept_unmaps, 1);
	if (xs_ref_can_be_held(ref))
		xs_ref_release(ref);
}

/* Holds a page of the window. Returns false if the page cannot be held. */
static xs_inline bool xs_identity_hold(struct xs_engine *engine, u64 page, xs_ref_t *ref)
{
	*ref = xs_ref_of(xs_identity_phys(&engine->identity, page));
	if (xs_likely(xs_ref_can_be_held(*ref)))
		return xs_likely(xs_ref_hold_fast(*ref)) || xs_ref_hold(*ref);
	return *ref == XS_REF_NONE;
}

/*
 * Unmaps a page and defers the flush. The page is held before its word says that the page is
 * unmapped, so an interrupt that revives and unmaps the page needs no record of its own, even if
 * this call has not written the record yet. A batch-aware driver keeps its pages, so the record of
 * its unmap holds nothing, and stands for no other unmap.
 */
static xs_inline bool xs_identity_unmap_deferred(struct xs_engine *engine,
						 const struct xs_policy *policy,
						 xs_atomic64_t *word, u64 page, bool promise)
{
	struct xs_cpu *cpu = xs_count_cpu(engine->counts);
	u64 pending = xs_word_cpu(cpu->id, promise);
	bool holds = policy->hold == XS_HOLD_PAGES && !promise;
	xs_ref_t ref = promise ? XS_REF_UNHELD : XS_REF_NONE;
	u64 found = xs_a64_read(word);
	bool defers;

	do {
		if (xs_unlikely(!xs_word_is_mapped(found)))
			return xs_identity_bad(engine, page, ref);
		defers = xs_word_needs_record(found, pending);
		if (defers && holds) {
			if (xs_unlikely(!xs_identity_hold(engine, page, &ref)))
				return xs_identity_unmap_now(engine, word, page);
			holds = false;
		}
	} while (xs_unlikely(!xs_a64_try(word, &found, defers ?
					 ((found - 1) & ~XS_WORD_CPU) | pending : found - 1)));
	xs_count(engine->counts, unmaps, 1);
	if (!defers) {
		xs_identity_keeps(engine, ref);
	} else if (xs_likely(xs_batch_append_fast(&cpu->batch, page, ref))) {
		if (promise)
			xs_a64_set_release(&cpu->batch.promised, 1);
	} else {
		xs_identity_defer(engine, page, ref, promise);
	}
	return true;
}

void xs_identity_unmap_all(struct xs_engine *engine, u64 page, u64 pages,
			   struct xs_misuse *misuse)
{
	for (u64 end = page + pages; page < end; page++) {
		xs_atomic64_t *word = xs_identity_word(&engine->identity, page);
		enum xs_unmapped unmapped;

		if (!word)
			return;
		unmapped = xs_identity_unmap_word(engine, word, page);
		/* By this call or an earlier one: devices may still reach the page. */
		if (xs_identity_is_stuck(engine, page))
			misuse->removed = -XS_ENOMEM;
		if (unmapped == XS_UNMAPPED_NOT)
			continue;
		if (!misuse->mapped_pages)
			misuse->mapped_iova = page << XS_PAGE_LG2;
		misuse->mapped_pages = 1;
		misuse->shared |= unmapped == XS_UNMAPPED_SHARED;
	}
}

bool xs_identity_unmap_one(struct xs_engine *engine, u64 page, bool promise)
{
	const struct xs_policy *policy = xs_policy_of(engine);
	xs_atomic64_t *word = xs_identity_word(&engine->identity, page);
	bool waits = promise && xs_policy_waits(policy);

	if (xs_unlikely(!word))
		return xs_identity_bad(engine, page, XS_REF_NONE);
	if (policy->flushes & (XS_FLUSH_BIT(XS_FLUSH_UNMAP) | XS_FLUSH_ORDINARY) && !waits)
		return xs_identity_unmap_now(engine, word, page);
	return xs_identity_unmap_deferred(engine, policy, word, page, waits);
}

bool xs_identity_unmap_at_once(struct xs_engine *engine, u64 page)
{
	xs_atomic64_t *word = xs_identity_word(&engine->identity, page);

	return word ? xs_identity_unmap_now(engine, word, page) :
		      xs_identity_bad(engine, page, XS_REF_NONE);
}

/* ---- flush ---- */

bool xs_identity_take(struct xs_engine *engine, u64 page, u32 cpu)
{
	xs_atomic64_t *word = xs_identity_word(&engine->identity, page);
	u64 found = word ? xs_a64_read(word) : 0, next;

	do {
		/* Another CPU's record stands for the page, or none. */
		if ((found & XS_WORD_STATE) != XS_WORD_PRESENT ||
		    (found & XS_WORD_CPU & ~XS_WORD_PROMISE) != xs_word_cpu(cpu, false))
			return false;
		next = found & XS_WORD_COUNT ? found & ~XS_WORD_CPU : XS_WORD_BUSY;
	} while (!xs_a64_try(word, &found, next));
	return next == XS_WORD_BUSY;
}

void xs_identity_done(struct xs_engine *engine, u64 page, u64 pages)
{
	for (u64 end = page + pages; page < end; page++) {
		xs_atomic64_t *word = xs_identity_word(&engine->identity, page);

		if (xs_likely((xs_a64_read(word) & XS_WORD_STATE) == XS_WORD_BUSY))
			xs_a64_set_release(word, 0);
	}
}

/* ---- stuck pages ---- */

void xs_identity_stick(struct xs_engine *engine, u64 page, u64 pages)
{
	xs_count(engine->counts, stuck_pages, pages);
	xs_ops(engine)->stuck(xs_backend(engine), page << XS_PAGE_LG2, pages);
	/* A retry waits for all calls between its look at the word and its use of the page. */
	for (u64 end = page + pages; page < end; page++)
		xs_a64_set(xs_identity_word(&engine->identity, page), XS_WORD_STUCK);
}

bool xs_identity_is_stuck(const struct xs_engine *engine, u64 page)
{
	xs_atomic64_t *word = xs_identity_word(&engine->identity, page);

	return word && (xs_a64_read(word) & XS_WORD_STATE) == XS_WORD_STUCK;
}

void xs_identity_keep(struct xs_engine *engine, u64 page, xs_ref_t ref)
{
	if (!xs_ref_can_be_held(ref) && !xs_identity_hold(engine, page, &ref))
		return;
	if (!xs_ref_can_be_held(ref))
		return;
	/* If the driver freed the page before its unmap, what is held may be of another kind. */
	if (xs_likely(xs_ref_of(xs_identity_phys(&engine->identity, page)) == ref))
		xs_a64_or_relaxed(xs_identity_word(&engine->identity, page), XS_WORD_HELD);
	else
		xs_ref_release(ref);
}

/* Asks the backend again to remove a stuck page; no other call uses the page. */
static void xs_identity_try(struct xs_engine *engine, xs_atomic64_t *word, u64 page)
{
	struct xs_commands sent = { 0, 0, 0 };
	bool gone = xs_flush_again(engine, page, 1, &sent);
	xs_ref_t ref = XS_REF_NONE;
	xs_flags_t flags;
	struct xs_cpu *cpu;

	if (gone && xs_a64_read(word) & XS_WORD_HELD)
		ref = xs_ref_of(xs_identity_phys(&engine->identity, page));
	if (gone)
		xs_a64_set_release(word, 0);
	if (xs_ref_can_be_held(ref))
		xs_ref_release(ref);
	xs_enter();
	cpu = xs_cpu_lock(engine, &flags);
	xs_stuck_count(engine, cpu, gone, &sent);
	xs_cpu_unlock(cpu, flags);
	xs_exit();
}

/* Stuck pages of the XS_BLOCK_PAGES pages at @words. */
static u64 xs_words_stuck(xs_atomic64_t *words)
{
	u64 stuck = 0;

	for (u32 i = 0; i < XS_BLOCK_PAGES; i++)
		if ((xs_a64_read(&words[i]) & XS_WORD_STATE) == XS_WORD_STUCK)
			stuck |= 1ULL << i;
	return stuck;
}

/*
 * Retries stuck pages of a table. Only pages that were stuck before the wait: calls that mark pages
 * have references to hand over afterwards.
 */
static void xs_table_retry(struct xs_engine *engine, xs_atomic64_t *words, u64 page)
{
	for (u32 at = 0; at < XS_TABLE_PAGES; at += XS_BLOCK_PAGES) {
		u64 stuck = xs_words_stuck(words + at);

		if (stuck)
			xs_ops(engine)->quiesce(xs_backend(engine));
		for (; stuck; stuck &= stuck - 1) {
			u32 i = at + xs_ctz(stuck);

			xs_identity_try(engine, &words[i], page + i);
		}
	}
}

void xs_identity_retry(struct xs_engine *engine)
{
	struct xs_identity *identity = &engine->identity;

	for (u64 i = 0; i < xs_load_acquire(&identity->pages) >> XS_TABLE_PAGES_LG2; i++) {
		xs_atomic64_t *words = xs_load_acquire(&identity->tables[i].words);

		if (words)
			xs_table_retry(engine, words, identity->first + (i << XS_TABLE_PAGES_LG2));
	}
}

void xs_identity_seal(struct xs_engine *engine)
{
	struct xs_identity *identity = &engine->identity;
	u64 tables = xs_load_acquire(&identity->pages) >> XS_TABLE_PAGES_LG2;

	for (u64 at = 0; at < tables; at++) {
		xs_atomic64_t *words;

		/* A trim may hide and free the words at the same time. */
		xs_enter();
		words = xs_load_acquire(&identity->tables[at].words);
		for (u32 i = 0; words && i < XS_TABLE_PAGES; i++)
			if ((xs_a64_read(&words[i]) & XS_WORD_STATE) == XS_WORD_PRESENT)
				xs_a64_andnot_relaxed(&words[i], XS_WORD_PROT);
		xs_exit();
	}
	/* Maps that have shared an entry before are counted as mapped by now. */
	if (tables)
		xs_ops(engine)->quiesce(xs_backend(engine));
}

/* ---- inspection ---- */

u64 xs_identity_next(const struct xs_engine *engine, u64 *from)
{
	const struct xs_identity *identity = &engine->identity;
	u64 first = *from > identity->first ? *from - identity->first : 0, count = 0;
	u64 window = xs_load_acquire(&identity->pages);

	for (u64 at = first; !count && at < window; ) {
		const xs_atomic64_t *words;
		u64 end = (at | (XS_TABLE_PAGES - 1)) + 1;

		/* As in xs_identity_seal(). */
		xs_enter();
		words = xs_load_acquire(&identity->tables[at >> XS_TABLE_PAGES_LG2].words);
		for (; words && !count && at < end; at++) {
			u64 word = xs_a64_read(&words[at & (XS_TABLE_PAGES - 1)]);

			count = xs_word_is_mapped(word) ? word & XS_WORD_COUNT : 0;
			*from = identity->first + at;
		}
		xs_exit();
		at = count ? at : end;
	}
	return count;
}

u64 xs_identity_given(const struct xs_engine *engine)
{
	const struct xs_identity *identity = &engine->identity;
	u64 end = identity->first + xs_load_acquire(&identity->pages), given = 0;

	for (u64 page = identity->first; page < end; page++) {
		const xs_atomic64_t *word = xs_identity_word(identity, page);
		u64 found = word ? xs_a64_read(word) : 0;

		if (xs_word_is_mapped(found))
			given += found & XS_WORD_COUNT;
		given += (found & XS_WORD_STATE) == XS_WORD_STUCK;
		if (!word)
			page |= XS_TABLE_PAGES - 1;
	}
	for (u32 i = 0; i < engine->cpu_count; i++) {
		const struct xs_batch *batch = &engine->cpus[i]->batch;
		u64 head = xs_a64_read(&batch->head);

		for (u64 at = batch->tail; batch->records && at < head; at++) {
			u64 key = xs_load(&xs_batch_record(batch, at)->key);

			given += xs_key_is_valid(key) &&
				 xs_identity_has(identity, xs_key_page(key));
		}
	}
	return given;
}
