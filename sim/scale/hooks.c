// SPDX-License-Identifier: GPL-2.0-only
/*
 * Hooks that the compiler calls for each memory access of the engine.
 *
 * -fsanitize=thread is used only for these calls: libtsan is not linked, and the
 * functions here replace libtsan's. The hooks see plain and atomic accesses that
 * are left after optimisation. Accesses to the stack and to tables that are never
 * written are not counted; a write anywhere else ends the run, because the count
 * would miss the write.
 */
#include "hooks.h"

#include "arena.h"
#include "tally.h"

u64 hooks_stack_top;

/*
 * The last access was a plain read that fetched the line. A plain write of the same word right
 * afterwards is the other half of one instruction, for which x86 requests the line once. A load
 * before an atomic operation is a separate request.
 */
static u64 fetched_at;
static u32 fetched_by;

static bool is_counted(u64 address, bool writes)
{
	u64 here = (u64)__builtin_frame_address(0);

	if (!tally_on)
		return false;
	if (xs_likely(arena_has(address))) {
		tally.accesses++;
		return true;
	}
	if (writes && (address < here || address > hooks_stack_top))
		scale_fail("the engine writes memory whose line is not known");
	return false;
}

static void hook_read(u64 address, u64 bytes, u64 pc)
{
	u64 last = address + bytes - 1;

	if (!is_counted(address, false))
		return;
	fetched_at = 0;
	for (u64 at = address & ~(u64)(LINE_BYTES - 1); at <= last; at += LINE_BYTES)
		if (line_is_transfer(tally_read(arena_line(at), LINE_ENGINE, pc)))
			fetched_at = address;
	fetched_by = scale_cpu;
}

static void hook_write(u64 address, u64 bytes, u64 pc)
{
	u64 last = address + bytes - 1;

	if (!is_counted(address, true))
		return;
	fetched_at = 0;
	for (u64 at = address & ~(u64)(LINE_BYTES - 1); at <= last; at += LINE_BYTES)
		tally_write(arena_line(at), LINE_ENGINE, pc);
}

void scale_prefetchw(const void *at)
{
	hook_write((u64)at, 1, (u64)__builtin_return_address(0));
}

static void hook_plain_write(u64 address, u64 bytes, u64 pc)
{
	if (address == fetched_at && scale_cpu == fetched_by)
		line_write(arena_line(address), scale_cpu);
	hook_write(address, bytes, pc);
}

void scale_lock(xs_lock_t *lock)
{
	enum line_event event;
	u64 pc = (u64)__builtin_return_address(0);

	if (lock->word)
		scale_fail("a lock is taken that is held");
	lock->word = 1;
	if (!tally_on)
		return;
	/* A waiter gets the line when the lock is dropped. */
	event = line_write(arena_line((u64)lock), scale_cpu);
	tally_lock(&tally.locks, (u64)lock, line_is_transfer(event));
	tally.accesses++;
	tally_event(LINE_ENGINE, event, pc);
}

void scale_unlock(xs_lock_t *lock)
{
	if (!lock->word)
		scale_fail("a lock is dropped that nobody has");
	lock->word = 0;
	if (!tally_on)
		return;
	hook_write((u64)lock, sizeof(*lock), (u64)__builtin_return_address(0));
	tally_unlock((u64)lock);
}

void scale_off(void)
{
	tally_stretch_begin(&tally_stretches.off);
}

void scale_on(void)
{
	tally_stretch_end(&tally_stretches.off);
}

void scale_enter(void)
{
	tally_stretch_begin(&tally_stretches.entered);
}

void scale_exit(void)
{
	tally_stretch_end(&tally_stretches.entered);
}

#define HERE	((u64)__builtin_return_address(0))

void __tsan_init(void)
{
}

void __tsan_func_entry(void *caller)
{
	(void)caller;
}

void __tsan_func_exit(void)
{
}

#define PLAIN(bytes)							\
void __tsan_read##bytes(void *at)					\
{									\
	hook_read((u64)at, bytes, HERE);				\
}									\
									\
void __tsan_write##bytes(void *at)					\
{									\
	hook_plain_write((u64)at, bytes, HERE);			\
}									\
									\
void __tsan_unaligned_read##bytes(void *at)				\
{									\
	hook_read((u64)at, bytes, HERE);				\
}									\
									\
void __tsan_unaligned_write##bytes(void *at)				\
{									\
	hook_plain_write((u64)at, bytes, HERE);			\
}

PLAIN(1)
PLAIN(2)
PLAIN(4)
PLAIN(8)
PLAIN(16)

void __tsan_read_range(void *at, size_t bytes)
{
	if (bytes)
		hook_read((u64)at, bytes, HERE);
}

void __tsan_write_range(void *at, size_t bytes)
{
	if (bytes)
		hook_write((u64)at, bytes, HERE);
}

void __tsan_atomic_thread_fence(int order)
{
	(void)order;
}

void __tsan_atomic_signal_fence(int order)
{
	(void)order;
}

/* A compare and swap requests the line even on failure. */
#define ATOMIC(bits, word)						\
word __tsan_atomic##bits##_load(const word *at, int order)		\
{									\
	(void)order;							\
	hook_read((u64)at, sizeof(word), HERE);				\
	return *at;							\
}									\
									\
void __tsan_atomic##bits##_store(word *at, word value, int order)	\
{									\
	(void)order;							\
	hook_write((u64)at, sizeof(word), HERE);			\
	*at = value;							\
}									\
									\
int __tsan_atomic##bits##_compare_exchange_strong(word *at, word *old, word value, int order,	\
						  int failed)		\
{									\
	(void)order;							\
	(void)failed;							\
	hook_write((u64)at, sizeof(word), HERE);			\
	return __atomic_compare_exchange_n(at, old, value, false, __ATOMIC_SEQ_CST,	\
					   __ATOMIC_RELAXED);		\
}									\
									\
int __tsan_atomic##bits##_compare_exchange_weak(word *at, word *old, word value, int order,	\
						int failed)		\
{									\
	(void)order;							\
	(void)failed;							\
	hook_write((u64)at, sizeof(word), HERE);			\
	return __atomic_compare_exchange_n(at, old, value, false, __ATOMIC_SEQ_CST,	\
					   __ATOMIC_RELAXED);		\
}

#define ATOMIC_CHANGE(bits, word, name, change)				\
word __tsan_atomic##bits##_##name(word *at, word value, int order)	\
{									\
	word old;							\
									\
	(void)order;							\
	hook_write((u64)at, sizeof(word), HERE);			\
	old = *at;							\
	*at = (word)(change);						\
	return old;							\
}

#define ATOMICS(bits, word)						\
	ATOMIC(bits, word)						\
	ATOMIC_CHANGE(bits, word, exchange, value)			\
	ATOMIC_CHANGE(bits, word, fetch_add, old + value)		\
	ATOMIC_CHANGE(bits, word, fetch_sub, old - value)		\
	ATOMIC_CHANGE(bits, word, fetch_and, old & value)		\
	ATOMIC_CHANGE(bits, word, fetch_or, old | value)		\
	ATOMIC_CHANGE(bits, word, fetch_xor, old ^ value)		\
	ATOMIC_CHANGE(bits, word, fetch_nand, ~(old & value))

ATOMICS(8, u8)
ATOMICS(16, u16)
ATOMICS(32, u32)
ATOMICS(64, u64)
