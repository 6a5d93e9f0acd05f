// SPDX-License-Identifier: GPL-2.0-only
/*
 * Data races, freed memory, and restoring memory after a run.
 *
 * The compiler calls the __tsan_ functions before each access of the code under test. A new run
 * starts from the memory that setup() left: each word is recorded before the first change.
 */
#include <string.h>

#include "inside.h"

#define BOUNCES		(1u << 14)
#define BOUNCE_USES	24
#define UNDO_MAX	(1u << 14)
#define FINISH_STACK_BYTES	(1u << 20)	/* more than finish() uses */

struct use {
	u16 clock;
	u8 thread;
	u8 access;
	u8 bytes;	/* of the eight bytes, one bit each */
};

/* Eight bytes of memory. */
struct bounce {
	uintptr_t at;
	u32 run;
	u32 count;
	bool freed;
	bool kept;
	struct use uses[BOUNCE_USES];
};

static struct bounce bounces[BOUNCES];
static u32 bounces_used;
static u32 run;

static struct {
	uintptr_t at;
	u64 value;
} undo[UNDO_MAX];

static u32 undo_count;

void shadow_reset(void)
{
	run++;
	bounces_used = 0;
}

static struct bounce *bounce_of(uintptr_t at)
{
	u32 slot = (u32)mix(7, at) & (BOUNCES - 1);

	while (bounces[slot].run == run && bounces[slot].at != at)
		slot = (slot + 1) & (BOUNCES - 1);
	if (bounces[slot].run != run) {
		if (++bounces_used > BOUNCES / 2)
			ex_fail("more than %u words of memory: raise bounce buffers", BOUNCES / 2);
		bounces[slot].run = run;
		bounces[slot].at = at;
		bounces[slot].count = 0;
		bounces[slot].freed = false;
		bounces[slot].kept = false;
	}
	return &bounces[slot];
}

/* ---- restoring memory ---- */

void undo_note(uintptr_t at, u32 bytes)
{
	if (is_setup())
		return;
	for (uintptr_t word = at & ~7ul; word < at + bytes; word += 8) {
		struct bounce *bounce = bounce_of(word);

		if (bounce->kept)
			continue;
		if (undo_count == UNDO_MAX)
			ex_fail("more than %u words are changed: raise UNDO_MAX", UNDO_MAX);
		bounce->kept = true;
		undo[undo_count].at = word;
		memcpy(&undo[undo_count++].value, (const void *)word, 8);
	}
}

void undo_all(void)
{
	while (undo_count) {
		undo_count--;
		memcpy((void *)undo[undo_count].at, &undo[undo_count].value, 8);
	}
}

/* ---- races ---- */

static bool conflict(enum access a, enum access b)
{
	static const bool table[4][4] = {
		[PLAIN_READ] = { [PLAIN_WRITE] = true, [ATOMIC_WRITE] = true },
		[PLAIN_WRITE] = { true, true, true, true },
		[ATOMIC_READ] = { [PLAIN_WRITE] = true },
		[ATOMIC_WRITE] = { [PLAIN_READ] = true, [PLAIN_WRITE] = true },
	};

	return table[a][b];
}

static void use_bounce(struct bounce *bounce, u8 bytes, enum access access)
{
	u8 me = (u8)(self - threads);
	u16 clock = self->now.clock.at[me];

	if (bounce->freed)
		ex_fail("T%u uses %p, which was freed", me, (void *)bounce->at);
	for (u32 i = 0; i < bounce->count; i++) {
		const struct use *use = &bounce->uses[i];

		if (use->thread != me && use->bytes & bytes &&
		    conflict(use->access, access) &&
		    self->now.clock.at[use->thread] < use->clock)
			ex_fail("DATA RACE: T%u and T%u at %p", use->thread, me, (void *)bounce->at);
	}
	for (u32 i = 0; i < bounce->count; i++) {
		struct use *use = &bounce->uses[i];

		if (use->thread == me && use->access == access &&
		    !(use->bytes & ~bytes)) {
			use->clock = clock;
			use->bytes = bytes;
			return;
		}
	}
	if (bounce->count == BOUNCE_USES)
		ex_fail("a word has more than %u kinds of use: raise BOUNCE_USES", BOUNCE_USES);
	bounce->uses[bounce->count].clock = clock;
	bounce->uses[bounce->count].thread = me;
	bounce->uses[bounce->count].access = (u8)access;
	bounce->uses[bounce->count++].bytes = bytes;
}

void shadow_access(uintptr_t at, u32 bytes, enum access access)
{
	for (uintptr_t word = at & ~7ul; word < at + bytes; word += 8) {
		u32 first = word < at ? (u32)(at - word) : 0;
		u32 end = at + bytes - word < 8 ? (u32)(at + bytes - word) : 8;

		use_bounce(bounce_of(word), (u8)((0xffu << first) & (0xffu >> (8 - end))),
			   access);
	}
}

/* A free counts as a store to all of the memory, and is the last access. */
void shadow_free(uintptr_t at, size_t bytes)
{
	shadow_access(at, (u32)bytes, PLAIN_WRITE);
	for (uintptr_t word = at & ~7ul; word < at + bytes; word += 8)
		bounce_of(word)->freed = true;
}

/*
 * Is the word in memory that the running thread has just allocated and not published? Then a
 * store is still part of the initialisation.
 */
bool shadow_is_new(uintptr_t at)
{
	const struct bounce *bounce = bounce_of(at & ~7ul);
	u8 me = (u8)(self - threads);

	return bounce->count == 1 && bounce->uses[0].thread == me &&
	       bounce->uses[0].access == PLAIN_WRITE &&
	       bounce->uses[0].bytes == 0xff &&
	       bounce->uses[0].clock == self->now.clock.at[me];
}

/* ---- functions that the compiler calls ---- */

static bool is_own_stack(uintptr_t at)
{
	return at - (uintptr_t)self->stack.stack < self->stack.stack_bytes;
}

/*
 * finish() runs on the explorer's own stack. Restoring finish()'s writes would overwrite later
 * frames of the explorer.
 */
static bool is_stack_of_finish(uintptr_t at)
{
	return at - (uintptr_t)__builtin_frame_address(0) < FINISH_STACK_BYTES;
}

static void plain_read(const void *at, u32 bytes)
{
	if (!self || is_own_stack((uintptr_t)at))
		return;
	step();
	shadow_access((uintptr_t)at, bytes, PLAIN_READ);
}

static void plain_write(void *at, u32 bytes)
{
	if (!self) {
		if (!is_stack_of_finish((uintptr_t)at))
			undo_note((uintptr_t)at, bytes);
		return;
	}
	if (is_own_stack((uintptr_t)at))
		return;
	step();
	shadow_access((uintptr_t)at, bytes, PLAIN_WRITE);
	undo_note((uintptr_t)at, bytes);
	memory_plain_write((uintptr_t)at, bytes);
}

#define ACCESS(bytes)							\
	void __tsan_read##bytes(const void *at);			\
	void __tsan_read##bytes(const void *at) { plain_read(at, bytes); } \
	void __tsan_unaligned_read##bytes(const void *at);		\
	void __tsan_unaligned_read##bytes(const void *at) { plain_read(at, bytes); } \
	void __tsan_write##bytes(void *at);				\
	void __tsan_write##bytes(void *at) { plain_write(at, bytes); }	\
	void __tsan_unaligned_write##bytes(void *at);			\
	void __tsan_unaligned_write##bytes(void *at) { plain_write(at, bytes); }

ACCESS(1)
ACCESS(2)
ACCESS(4)
ACCESS(8)
ACCESS(16)

void __tsan_read_range(const void *at, size_t bytes);
void __tsan_read_range(const void *at, size_t bytes)
{
	plain_read(at, (u32)bytes);
}

void __tsan_write_range(void *at, size_t bytes);
void __tsan_write_range(void *at, size_t bytes)
{
	plain_write(at, (u32)bytes);
}

void __tsan_init(void);
void __tsan_init(void)
{
}

void __tsan_func_entry(void *from);
void __tsan_func_entry(void *from)
{
	(void)from;
}

void __tsan_func_exit(void);
void __tsan_func_exit(void)
{
}
