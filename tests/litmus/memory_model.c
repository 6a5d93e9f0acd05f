// SPDX-License-Identifier: GPL-2.0-only
/*
 * The memory model: words are sequences of messages, threads have views.
 *
 * A store needs no point at which other threads may go first: a store changes nothing that
 * other threads must see, and takes any place after the messages that the thread has seen, so
 * going first loses no behaviour. Only reading operations have a point.
 *
 * A word that is not shared (explore.c) has no messages, and is read and written in place.
 */
#include <string.h>

#include "inside.h"

/*
 * struct message - a store to a word
 * @glued:	written by a read-modify-write, right after the message that it read
 * @lazy:	written by a plain store: the value is in memory
 */
struct message {
	u64 value;
	u64 id;
	u32 writer;
	u32 event;
	struct sight sight;
	struct trail trail;
	bool glued;
	bool lazy;
};

/* A read of a word: a store that the read causes may become a hazard. */
struct reader {
	u32 thread;
	u16 event;
	const struct ex_site *site;
};

#define READERS	96

struct location {
	uintptr_t at;
	u32 bytes;
	u32 count;
	u32 reader_count;
	u64 order_hash;
	struct message messages[MESSAGES];
	u8 order[MESSAGES];	/* messages, oldest first */
	u8 place[MESSAGES];	/* of a message in order[] */
	struct reader readers[READERS];
};

static struct location locations[EX_LOCATIONS];
static u32 location_count;

/* Sight of full barriers, which have a total order. */
static struct view barrier_view;

void memory_reset(void)
{
	location_count = 0;
	memset(&barrier_view, 0, sizeof(barrier_view));
}

/* ---- views ---- */

static void view_join(struct view *into, const struct view *from)
{
	for (u32 i = 0; i < location_count; i++) {
		const u8 *place = locations[i].place;

		if (place[from->at[i]] > place[into->at[i]])
			into->at[i] = from->at[i];
	}
}

static void clock_join(struct clock *into, const struct clock *from)
{
	for (u32 i = 0; i < EX_THREADS; i++)
		if (from->at[i] > into->at[i])
			into->at[i] = from->at[i];
}

void sight_join(struct sight *into, const struct sight *from)
{
	view_join(&into->view, &from->view);
	clock_join(&into->clock, &from->clock);
}

/* Independent of the order in which locations were found. */
u64 view_hash(const struct view *view)
{
	u64 hash = 0;

	for (u32 i = 0; i < location_count; i++)
		if (view->at[i])
			hash += mix(locations[i].at,
				    locations[i].messages[view->at[i]].id);
	return hash;
}

u64 memory_hash(void)
{
	u64 hash = mix(1, view_hash(&barrier_view));

	for (u32 i = 0; i < location_count; i++)
		if (locations[i].count > 1)
			hash += mix(locations[i].at, locations[i].order_hash);
	return hash;
}

/* ---- trails ---- */

void trail_join(struct trail *into, const struct trail *from)
{
	clock_join(&into->cause, &from->cause);
	clock_join(&into->kept, &from->kept);
}

/* Returns the trail that a release publishes. */
struct trail trail_released(void)
{
	struct trail trail = self->trail;

	clock_join(&trail.kept, &self->seen);
	return trail;
}

/* Add an acquired trail to all following stores. */
void trail_acquire(const struct trail *from)
{
	trail_join(&self->trail, from);
	clock_join(&self->seen, &from->kept);
}

/* The running thread reads a message with trail @from. */
static void trail_read(const struct trail *from, bool acquires)
{
	u32 me = ex_thread();
	struct clock kept = from->kept;

	kept.at[me] = self->trail.cause.at[me];
	clock_join(&self->trail.cause, &from->cause);
	clock_join(&self->seen, &kept);
	if (acquires)
		clock_join(&self->trail.kept, &kept);
}

/* ---- barriers ---- */

/* Later events are no part of the released clock. */
static void release_clock(void)
{
	self->now.clock.at[self - threads]++;
	self->acquired.clock.at[self - threads]++;
}

static void barrier_release(struct thread *thread)
{
	thread->released = thread->now;
	thread->trail.kept = thread->seen;
	thread->now.clock.at[thread - threads]++;
	thread->acquired.clock.at[thread - threads]++;
}

void barrier_full(struct thread *thread)
{
	thread->now = thread->acquired;
	view_join(&thread->now.view, &barrier_view);
	barrier_view = thread->now.view;
	view_join(&thread->acquired.view, &thread->now.view);
	barrier_release(thread);
}

enum ex_order order_of(struct ex_site *site)
{
	if (self)
		site->hits++;
	return site->weak ? site->weak - 1 : site->order;
}

void ex_fence(struct ex_site *site)
{
	enum ex_order order = order_of(site);

	if (!self)
		return;
	if (order == EX_FULL) {
		point();
		barrier_full(self);
	} else if (order != EX_RELAXED) {
		self->now = self->acquired;
		barrier_release(self);
	}
	event(3, site->line);
	trace_event(site, 0, NULL, 0);
}

/* ---- locations ---- */

static u64 raw_read(uintptr_t at, u32 bytes)
{
	u64 value = 0;

	/* Nearly all words have 8 bytes, and finish() reads very many words. */
	if (bytes == 8)
		memcpy(&value, (const void *)at, 8);
	else
		memcpy(&value, (const void *)at, bytes);
	return value;
}

static void raw_write(uintptr_t at, u32 bytes, u64 value)
{
	undo_note(at, bytes);
	memcpy((void *)at, &value, bytes);
}

static u64 truncated(u64 value, u32 bytes)
{
	return bytes == 8 ? value : value & ((1ULL << 8 * bytes) - 1);
}

static void reorder_hash(struct location *location)
{
	u64 hash = 0;

	for (u32 i = 0; i < location->count; i++) {
		const struct message *message =
			&location->messages[location->order[i]];

		hash = mix(hash, message->id + message->glued);
	}
	location->order_hash = hash;
}

static struct location *new_location(uintptr_t at, u32 bytes)
{
	struct location *location = &locations[location_count];

	if (location_count == EX_LOCATIONS)
		ex_fail("more than %u locations: raise EX_LOCATIONS", EX_LOCATIONS);
	location->at = at;
	location->bytes = bytes;
	location->count = 1;
	location->reader_count = 0;
	location->order[0] = 0;
	location->place[0] = 0;
	memset(&location->messages[0], 0, sizeof(location->messages[0]));
	location->messages[0].value = raw_read(at, bytes);
	location->messages[0].id = at;
	location_count++;
	reorder_hash(location);
	return location;
}

/* Returns the message at @place. A plain store's value is in memory until the next store. */
static struct message *message_at(struct location *location, u32 place)
{
	struct message *message = &location->messages[location->order[place]];

	if (message->lazy) {
		message->value = raw_read(location->at, location->bytes);
		message->lazy = false;
	}
	return message;
}

/* Returns NULL if only setup has stored there. */
static struct location *find_location(uintptr_t at, u32 bytes)
{
	for (u32 i = 0; i < location_count; i++) {
		struct location *location = &locations[i];

		if (location->at == at && location->bytes == bytes)
			return location;
		if (at < location->at + location->bytes &&
		    location->at < at + bytes)
			ex_fail("a word is accessed in two sizes: not modelled");
	}
	return NULL;
}

static struct location *location_of(uintptr_t at, u32 bytes)
{
	struct location *location = find_location(at, bytes);

	if (!location)
		return new_location(at, bytes);
	message_at(location, location->count - 1);
	return location;
}

static u32 index_of(const struct location *location)
{
	return (u32)(location - locations);
}

/* The running thread has seen or written message @number. */
static void advance(const struct location *location, u8 number)
{
	u8 *acquired = &self->acquired.view.at[index_of(location)];

	self->now.view.at[index_of(location)] = number;
	if (location->place[number] > location->place[*acquired])
		*acquired = number;
}

/* Insert a message of the running thread at @place; messages from there on move up. */
static struct message *insert(struct location *location, u32 place)
{
	u32 number = location->count++;
	struct message *message = &location->messages[number];

	if (number == MESSAGES)
		ex_fail("more than %u messages to a word: raise MESSAGES", MESSAGES);
	for (u32 i = number; i > place; i--) {
		location->order[i] = location->order[i - 1];
		location->place[location->order[i]] = (u8)i;
	}
	location->order[place] = (u8)number;
	location->place[number] = (u8)place;
	message->writer = ex_thread();
	message->event = self->trail.cause.at[ex_thread()];
	message->id = mix(self->events + 1, 77 + (u64)(self - threads));
	message->glued = false;
	message->lazy = false;
	advance(location, (u8)number);
	return message;
}

/* ---- hazards ---- */

static void note_reader(struct location *location, const struct ex_site *site)
{
	u32 thread = (u32)(self - threads);
	struct reader *reader;

	if (location->reader_count == READERS)
		ex_fail("more than %u reads of a word: raise READERS", READERS);
	reader = &location->readers[location->reader_count++];
	reader->thread = thread;
	reader->event = self->trail.cause.at[thread];
	reader->site = site;
}

/*
 * Has the reading thread read or written the word again, ordered before @message? Then the
 * thread cannot have read @message earlier, because a word's messages are read and written in
 * order.
 */
static bool is_coherent(const struct location *location,
			const struct reader *reader,
			const struct message *message)
{
	u32 place = location->place[message - location->messages];

	for (u32 i = 0; i < location->reader_count; i++) {
		const struct reader *later = &location->readers[i];

		if (later->thread == reader->thread &&
		    later->event >= reader->event &&
		    message->trail.kept.at[later->thread] >= later->event)
			return true;
	}
	for (u32 i = 1; i < place; i++) {
		const struct message *older =
			&location->messages[location->order[i]];

		if (older->writer == reader->thread &&
		    older->event >= reader->event)
			return true;
	}
	return false;
}

/* Could an older load read @message if there were no dependencies? */
static void check_hazard(const struct location *location,
			 const struct message *message, const struct ex_site *site)
{
	if (!hazards_fail)
		return;
	for (u32 i = 0; i < location->reader_count; i++) {
		const struct reader *reader = &location->readers[i];

		if (reader->thread == (u32)(self - threads) ||
		    message->trail.cause.at[reader->thread] < reader->event ||
		    is_coherent(location, reader, message) ||
		    is_dependent(reader->site, site))
			continue;
		ex_fail("HAZARD: only dependencies keep '%s' behind T%u's '%s'",
			site->text, reader->thread, reader->site->text);
	}
}

/* ---- accesses ---- */

static void finish_write(struct location *location, struct message *message,
			 u64 value, enum ex_order order)
{
	u32 index = index_of(location);

	message->value = truncated(value, location->bytes);
	message->sight = order >= EX_RELEASE ? self->now : self->released;
	message->sight.view.at[index] = self->now.view.at[index];
	message->trail = order >= EX_RELEASE ? trail_released() : self->trail;
	if (location->place[message - location->messages] == location->count - 1)
		raw_write(location->at, location->bytes, message->value);
}

static void seal(struct location *location, struct message *message,
		 enum ex_order order)
{
	message->id = mix(message->id, mix(view_hash(&message->sight.view),
					   message->value));
	reorder_hash(location);
	if (order >= EX_RELEASE)
		release_clock();
}

static void see(struct location *location, const struct message *message,
		enum ex_order order)
{
	bool acquires = order == EX_ACQUIRE || order >= EX_ACQ_REL;

	advance(location, (u8)(message - location->messages));
	sight_join(&self->acquired, &message->sight);
	if (acquires)
		sight_join(&self->now, &message->sight);
	trail_read(&message->trail, acquires);
}

static void count_event(void)
{
	self->trail.cause.at[self - threads]++;
}

u64 ex_load(const void *at, u32 bytes, struct ex_site *site)
{
	struct location *location;
	struct message *message;
	enum ex_order order;
	u32 oldest, age;

	if (!self)
		return raw_read((uintptr_t)at, bytes);
	order = order_of(site);
	if (!is_shared((uintptr_t)at, false)) {
		interrupt_point();
		shadow_access((uintptr_t)at, bytes, ATOMIC_READ);
		return raw_read((uintptr_t)at, bytes);
	}
	point();
	count_event();
	location = location_of((uintptr_t)at, bytes);
	note_reader(location, site);
	oldest = location->place[self->now.view.at[index_of(location)]];
	age = ex_choose(location->count - oldest);
	message = message_at(location, location->count - 1 - age);
	see(location, message, order);
	shadow_access((uintptr_t)at, bytes, ATOMIC_READ);
	event(message->id, message->value);
	trace_event(site, message->value, age ? "stale by" : NULL, age);
	return message->value;
}

/* Choose a place for a store, newest first; never between a glued pair. */
static u32 choose_place(struct location *location)
{
	u32 oldest = location->place[self->now.view.at[index_of(location)]];
	u32 places[MESSAGES];
	u32 count = 0;

	for (u32 place = location->count; place > oldest; place--)
		if (place == location->count ||
		    !location->messages[location->order[place]].glued)
			places[count++] = place;
	return places[ex_choose(count)];
}

/* No other thread sees the word, or the word is new: no message. */
static void store_alone(uintptr_t at, u32 bytes, u64 value, enum ex_order order)
{
	shadow_access(at, bytes, shadow_is_new(at) ? PLAIN_WRITE : ATOMIC_WRITE);
	raw_write(at, bytes, value);
	if (order >= EX_RELEASE)
		release_clock();
}

void ex_store(void *at, u32 bytes, u64 value, struct ex_site *site)
{
	enum ex_order order = order_of(site);
	struct location *location;
	struct message *message;
	u32 place, behind;

	if (!self) {
		raw_write((uintptr_t)at, bytes, value);
		return;
	}
	interrupt_point();
	if ((shadow_is_new((uintptr_t)at) && !find_location((uintptr_t)at, bytes)) ||
	    !is_shared((uintptr_t)at, true)) {
		store_alone((uintptr_t)at, bytes, value, order);
		return;
	}
	count_event();
	shadow_access((uintptr_t)at, bytes, ATOMIC_WRITE);
	location = location_of((uintptr_t)at, bytes);
	place = choose_place(location);
	behind = location->count - place;
	message = insert(location, place);
	finish_write(location, message, value, order);
	trace_event(site, value, behind ? "overtaken by" : NULL, behind);
	check_hazard(location, message, site);
	seal(location, message, order);
	event(message->id, 2);
}

/* A plain store to a word that is also accessed atomically: the newest message. */
void memory_plain_write(uintptr_t at, u32 bytes)
{
	for (u32 i = 0; i < location_count; i++) {
		struct location *location = &locations[i];
		struct message *message;

		if (at >= location->at + location->bytes ||
		    location->at >= at + bytes)
			continue;
		message_at(location, location->count - 1);
		message = insert(location, location->count);
		message->sight = self->now;
		message->trail = self->trail;
		message->lazy = true;
		message->id = mix(message->id, self->history);
		reorder_hash(location);
		event(message->id, 4);
	}
}

/* Write @value right after @message. */
static void modify(struct location *location, struct message *message,
		   u64 value, const struct ex_site *site, enum ex_order order)
{
	u32 place = location->place[message - location->messages] + 1u;
	struct message *next = insert(location, place);

	next->glued = true;
	finish_write(location, next, value, order);
	sight_join(&next->sight, &message->sight);
	check_hazard(location, next, site);
	seal(location, next, order);
	event(message->id, next->id);
}

static bool is_glued_to(const struct location *location, u32 place)
{
	return place + 1 < location->count &&
	       location->messages[location->order[place + 1]].glued;
}

static u64 changed(enum ex_change change, u64 old, u64 operand)
{
	switch (change) {
	case EX_SWAP:
		return operand;
	case EX_OR:
		return old | operand;
	case EX_ANDNOT:
		return old & ~operand;
	case EX_ADD:
		return old + operand;
	}
	return old;
}

/* A read-modify-write of an unshared word is at most a barrier. */
static void rmw_alone(uintptr_t at, u32 bytes, struct ex_site *site)
{
	enum ex_order order = order_of(site);

	shadow_access(at, bytes, ATOMIC_WRITE);
	if (order == EX_FULL)
		barrier_full(self);
	else if (order >= EX_RELEASE)
		release_clock();
	event(12, site->line);
}

/* A word known only to the running thread, or only to setup. */
static u64 rmw_raw(uintptr_t at, u32 bytes, enum ex_change change, u64 operand)
{
	u64 old = raw_read(at, bytes);

	raw_write(at, bytes, changed(change, old, operand));
	return old;
}

u64 ex_rmw(void *at, u32 bytes, enum ex_change change, u64 operand,
	   struct ex_site *site)
{
	enum ex_order order = order_of(site);
	struct location *location;
	struct message *message;
	u32 places[MESSAGES];
	u32 oldest, count = 0;
	u64 old;

	if (!self)
		return rmw_raw((uintptr_t)at, bytes, change, operand);
	point();
	if (!is_shared((uintptr_t)at, true)) {
		rmw_alone((uintptr_t)at, bytes, site);
		return rmw_raw((uintptr_t)at, bytes, change, operand);
	}
	count_event();
	location = location_of((uintptr_t)at, bytes);
	if (order == EX_FULL)
		barrier_full(self);
	note_reader(location, site);
	oldest = location->place[self->now.view.at[index_of(location)]];
	for (u32 place = location->count; place-- > oldest;)
		if (!is_glued_to(location, place))
			places[count++] = place;
	message = message_at(location, places[ex_choose(count)]);
	see(location, message, order);
	shadow_access((uintptr_t)at, bytes, ATOMIC_WRITE);
	old = message->value;
	trace_event(site, old, NULL, 0);
	modify(location, message, changed(change, old, operand), site, order);
	if (order == EX_FULL)
		barrier_full(self);
	return old;
}

/*
 * The choices of a compare and swap: messages with a different value, for which the operation
 * is an unordered read, and messages that the operation can replace.
 */
static u32 try_choices(struct location *location, u64 old, enum ex_order order,
		       u32 *places)
{
	u32 index = index_of(location);
	u32 oldest = location->place[self->now.view.at[index]];
	struct sight now = self->acquired;
	u32 after = oldest;
	u32 count = 0;

	view_join(&now.view, &barrier_view);
	if (order == EX_FULL)
		after = location->place[now.view.at[index]];
	for (u32 place = location->count; place-- > oldest;) {
		bool same = message_at(location, place)->value == old;

		if (!same || (place >= after && !is_glued_to(location, place)))
			places[count++] = place;
	}
	return count;
}

/* @message is replaced by the swap. */
static void try_succeeds(struct location *location, struct message *message,
			 u64 value, struct ex_site *site, enum ex_order order)
{
	if (order == EX_FULL)
		barrier_full(self);
	see(location, message, order);
	shadow_access(location->at, location->bytes, ATOMIC_WRITE);
	trace_event(site, value, "done", 0);
	modify(location, message, value, site, order);
	if (order == EX_FULL)
		barrier_full(self);
}

/* Returns the value found. */
static u64 try_shared(uintptr_t at, u32 bytes, u64 old, u64 value,
		      struct ex_site *site)
{
	enum ex_order order = order_of(site);
	struct location *location;
	struct message *message;
	u32 places[MESSAGES];
	u64 found;

	count_event();
	location = location_of(at, bytes);
	note_reader(location, site);
	message = message_at(location, places[ex_choose(
		try_choices(location, old, order, places))]);
	found = message->value;
	if (found == old) {
		try_succeeds(location, message, value, site, order);
		return found;
	}
	see(location, message, EX_RELAXED);
	shadow_access(at, bytes, ATOMIC_READ);
	event(message->id, found);
	trace_event(site, found, "refused: is", 0);
	return found;
}

static u64 try_raw(uintptr_t at, u32 bytes, u64 old, u64 value)
{
	u64 found = raw_read(at, bytes);

	if (found == old)
		raw_write(at, bytes, value);
	return found;
}

bool ex_try(void *at, u32 bytes, u64 *old, u64 value, struct ex_site *site)
{
	u64 found;

	if (!self) {
		found = try_raw((uintptr_t)at, bytes, *old, value);
	} else {
		point();
		if (is_shared((uintptr_t)at, true)) {
			found = try_shared((uintptr_t)at, bytes, *old, value, site);
		} else {
			rmw_alone((uintptr_t)at, bytes, site);
			found = try_raw((uintptr_t)at, bytes, *old, value);
		}
	}
	if (found == *old)
		return true;
	*old = found;
	return false;
}
