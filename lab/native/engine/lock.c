// SPDX-License-Identifier: GPL-2.0-only
/*
 * Waiting for a lock, as in Linux's queued spinlock: each waiting CPU spins on a line of its
 * own, and gets the lock in the order of arrival. Linux lets the first waiting CPU spin on the
 * lock's word without a place in the queue; here it has a place, too.
 *
 * A CPU waits for a single lock at a time, because no interrupt comes: one place is enough.
 */
#include "platform_native.h"

#define TAIL_SHIFT	16

/**
 * struct waiting - place of a CPU in a queue
 * @next: the CPU behind; written by that CPU
 * @first: the CPU is first in the queue; written by the CPU before
 */
struct waiting {
	struct waiting *next;
	bool first;
} NATIVE_LINE;

static struct waiting places[NATIVE_CPUS];

_Static_assert(NATIVE_CPUS < 1u << TAIL_SHIFT, "each CPU fits in a lock's word");

/* Returns the last CPU of the queue before this one, or NULL. */
static struct waiting *append(xs_lock_t *lock, u32 tail)
{
	u32 word = __atomic_load_n(&lock->word, __ATOMIC_RELAXED);

	while (!__atomic_compare_exchange_n(&lock->word, &word,
					    (word & NATIVE_LOCKED) | tail, false,
					    __ATOMIC_ACQ_REL, __ATOMIC_RELAXED))
		;
	return word >> TAIL_SHIFT ? &places[(word >> TAIL_SHIFT) - 1] : NULL;
}

static void await_first(struct waiting *place, struct waiting *before)
{
	__atomic_store_n(&before->next, place, __ATOMIC_RELEASE);
	while (!__atomic_load_n(&place->first, __ATOMIC_ACQUIRE))
		__builtin_ia32_pause();
}

static void tell_next(struct waiting *place)
{
	struct waiting *next;

	do {
		next = __atomic_load_n(&place->next, __ATOMIC_ACQUIRE);
		if (!next)
			__builtin_ia32_pause();
	} while (!next);
	__atomic_store_n(&next->first, true, __ATOMIC_RELEASE);
}

void native_lock_wait(xs_lock_t *lock)
{
	struct waiting *place = &places[xs_cpu_id()], *before;
	u32 tail = (xs_cpu_id() + 1) << TAIL_SHIFT, word = tail;

	place->next = NULL;
	place->first = false;
	before = append(lock, tail);
	if (before)
		await_first(place, before);
	while (__atomic_load_n(&lock->word, __ATOMIC_ACQUIRE) & NATIVE_LOCKED)
		__builtin_ia32_pause();
	/* The word is not 0, so no other CPU takes the lock now. */
	if (__atomic_compare_exchange_n(&lock->word, &word, NATIVE_LOCKED, false,
					__ATOMIC_ACQUIRE, __ATOMIC_RELAXED))
		return;
	__atomic_store_n((u8 *)&lock->word, NATIVE_LOCKED, __ATOMIC_RELAXED);
	tell_next(place);
}
