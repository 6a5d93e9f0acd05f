// SPDX-License-Identifier: GPL-2.0-only
/*
 * Data races, freed memory, and restoring memory after a run.
 *
 * The compiler calls the __tsan_ functions before each access of the code under test. A new run
 * starts from the memory that setup() left: each word is recorded before the first change.
 */
#include <string.h>

#include "inside.h"

#define CELLS		(1u << 14)
#define CELL_USES	24
#define UNDO_MAX	(1u << 14)
#define FINISH_STACK_BYTES	(1u << 20)	/* more than finish() uses */

struct use {
	u16 clock;
	u8 thread;
	u8 access;
	u8 bytes;	/* of the eight bytes, one bit each */
};

/* Eight bytes of memory. */
struct cell {
	uintptr_t at;
	u32 run;
	u32 count;
	bool freed;
	bool kept;
	struct use uses[CELL_USES];
};

static struct cell cells[CELLS];
static u32 cells_used;
static u32 run;

static struct {
	uintptr_t at;
	u64 value;
} undo[UNDO_MAX];

static u32 undo_count;

void shadow_reset(void)
{
	run++;
	cells_used = 0;
}

static struct cell *cell_of(uintptr_t at)
{
	u32 slot = (u32)mix(7, at) & (CELLS - 1);

	while (cells[slot].run == run && cells[slot].at != at)
		slot = (slot + 1) & (CELLS - 1);
	if (cells[slot].run != run) {
		if (++cells_used > CELLS / 2)
			ex_fail("more than %u words of memory: raise CELLS", CELLS / 2);
		cells[slot].run = run;
		cells[slot].at = at;
		cells[slot].count = 0;
		cells[slot].freed = false;
		cells[slot].kept = false;
	}
	return &cells[slot];
}

/* ---- restoring memory ---- */

void undo_note(uintptr_t at, u32 bytes)
{
	if (is_setup())
		return;
	for (uintptr_t word = at & ~7ul; word < at + bytes; word += 8) {
		struct cell *cell = cell_of(word);

		if (cell->kept)
			continue;
		if (undo_count == UNDO_MAX)
			ex_fail("more than %u words are changed: raise UNDO_MAX", UNDO_MAX);
		cell->kept = true;
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

static void use_cell(struct cell *cell, u8 bytes, enum access access)
{
	u8 me = (u8)(self - threads);
	u16 clock = self->now.clock.at[me];

	if (cell->freed)
		ex_fail("T%u uses %p, which was freed", me, (void *)cell->at);
	for (u32 i = 0; i < cell->count; i++) {
		const struct use *use = &cell->uses[i];

		if (use->thread != me && use->bytes & bytes &&
		    conflict(use->access, access) &&
		    self->now.clock.at[use->thread] < use->clock)
			ex_fail("DATA RACE: T%u and T%u at %p", use->thread, me, (void *)cell->at);
	}
	for (u32 i = 0; i < cell->count; i++) {
		struct use *use = &cell->uses[i];

		if (use->thread == me && use->access == access &&
		    !(use->bytes & ~bytes)) {
			use->clock = clock;
			use->bytes = bytes;
			return;
		}
	}
	if (cell->count == CELL_USES)
		ex_fail("a word has more than %u kinds of use: raise CELL_USES", CELL_USES);
	cell->uses[cell->count].clock = clock;
	cell->uses[cell->count].thread = me;
	cell->uses[cell->count].access = (u8)access;
	cell->uses[cell->count++].bytes = bytes;
}

void shadow_access(uintptr_t at, u32 bytes, enum access access)
{
	for (uintptr_t word = at & ~7ul; word < at + bytes; word += 8) {
		u32 first = word < at ? (u32)(at - word) : 0;
		u32 end = at + bytes - word < 8 ? (u32)(at + bytes - word) : 8;

		use_cell(cell_of(word), (u8)((0xffu << first) & (0xffu >> (8 - end))),
			   access);
	}
}

/* A free counts as a store to all of the memory, and is the last access. */
void shadow_free(uintptr_t at, size_t bytes)
{
	shadow_access(at, (u32)bytes, PLAIN_WRITE);
	for (uintptr_t word = at & ~7ul; word < at + bytes; word += 8)
		cell_of(word)->freed = true;
}

/*
 * Is the word in memory that the running thread has just allocated and not published? Then a
 * store is still part of the initialisation.
 */
bool shadow_is_new(uintptr_t at)
{
	const struct cell *cell = cell_of(at & ~7ul);
	u8 me = (u8)(self - threads);

	return cell->count == 1 && cell->uses[0].thread == me &&
	       cell->uses[0].access == PLAIN_WRITE &&
	       cell->uses[0].bytes == 0xff &&
	       cell->uses[0].clock == self->now.clock.at[me];
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
