// SPDX-License-Identifier: GPL-2.0-only
/* Locks, and read-side sections with their grace periods. */
#include <string.h>

#include "inside.h"

static struct lock locks[LOCKS];
static u32 lock_count;

/* Sights at the begin of all grace periods so far: later sections see them. */
static struct sight begun;

/* Possible causes of any section or grace period. */
static struct trail trail;

/* Sight at the end of each thread's sections. */
static struct sight over[EX_THREADS];

void sync_reset(void)
{
	lock_count = 0;
	memset(&begun, 0, sizeof(begun));
	memset(&trail, 0, sizeof(trail));
	memset(over, 0, sizeof(over));
}

static u64 sight_hash(const struct sight *sight)
{
	return view_hash(&sight->view);
}

u64 sync_hash(void)
{
	u64 hash = sight_hash(&begun);

	for (u32 i = 0; i < lock_count; i++)
		hash += mix((u64)(uintptr_t)locks[i].at,
			    mix(locks[i].last + locks[i].holder,
				sight_hash(&locks[i].sight)));
	for (u32 i = 0; i < thread_count; i++)
		hash += mix(i, mix(sight_hash(&over[i]), threads[i].waits_for +
				   sight_hash(&threads[i].after)));
	return hash;
}

static void release(void)
{
	self->now.clock.at[self - threads]++;
	self->acquired.clock.at[self - threads]++;
}

static void acquire(const struct sight *from)
{
	sight_join(&self->now, from);
	sight_join(&self->acquired, from);
}

static void join_trail(void)
{
	struct trail mine = trail_released();

	trail_join(&trail, &mine);
}

/* ---- locks ---- */

static struct lock *lock_of(void *at)
{
	for (u32 i = 0; i < lock_count; i++)
		if (locks[i].at == at)
			return &locks[i];
	if (lock_count == LOCKS)
		ex_fail("more than %u locks: raise LOCKS", LOCKS);
	memset(&locks[lock_count], 0, sizeof(locks[0]));
	locks[lock_count].at = at;
	return &locks[lock_count++];
}

void ex_lock_init(void *lock)
{
	if (self)
		memset(&lock_of(lock)->holder, 0, sizeof(u32));
}

void ex_lock(void *at, struct ex_site *site)
{
	enum ex_order order = order_of(site);
	struct lock *lock;

	if (!self)
		return;
	lock = lock_of(at);
	if (lock->holder == ex_thread() + 1)
		ex_fail("%s:%u: takes a lock that it has", site->file, site->line);
	if (!self->irqs_off)
		ex_fail("%s:%u: takes a lock with interrupts on", site->file, site->line);
	if (is_shared((uintptr_t)at, true)) {
		self->waits_lock = lock;
		point();
		self->waits_lock = NULL;
	}
	lock->holder = ex_thread() + 1;
	if (order == EX_ACQUIRE)
		acquire(&lock->sight);
	trail_acquire(&lock->trail);
	event(lock->last, (u64)(uintptr_t)at);
	trace_event(site, 0, NULL, 0);
}

void ex_unlock(void *at, struct ex_site *site)
{
	enum ex_order order = order_of(site);
	struct lock *lock;

	if (!self)
		return;
	ex_assert_locked(at);
	lock = lock_of(at);
	if (order == EX_RELEASE)
		sight_join(&lock->sight, &self->now);
	lock->trail = trail_released();
	event(5, lock->last);
	lock->last = self->history;
	lock->holder = 0;
	release();
	trace_event(site, 0, NULL, 0);
}

void ex_assert_locked(void *at)
{
	if (self && lock_of(at)->holder != ex_thread() + 1)
		ex_fail("a lock is not held that should be");
}

/* ---- read-side sections ---- */

void ex_enter(struct ex_site *site)
{
	order_of(site);
	if (!self || self->depth++)
		return;
	self->entered++;
	if (!is_shared((uintptr_t)&begun, false))
		return;
	self->depth--;
	point();
	self->depth++;
	acquire(&begun);
	trail_acquire(&trail);
	event(6, self->entered);
	trace_event(site, 0, NULL, 0);
}

void ex_exit(struct ex_site *site)
{
	u32 me = ex_thread();

	order_of(site);
	if (!self || --self->depth || !is_shared((uintptr_t)&begun, false))
		return;
	sight_join(&over[me], &self->now);
	join_trail();
	for (u32 i = 0; i < thread_count; i++) {
		if (!(threads[i].waits_for >> me & 1))
			continue;
		threads[i].waits_for &= ~(1u << me);
		sight_join(&threads[i].after, &self->now);
	}
	release();
	event(7, self->entered);
	trace_event(site, 0, NULL, 0);
}

/*
 * Each section either sees everything that the begin of the grace period saw, or has ended, and
 * the end of the grace period sees the section. The begin settles the set of earlier sections.
 */
void ex_grace(struct ex_site *site)
{
	enum ex_order order = order_of(site);

	if (!self)
		return;
	is_shared((uintptr_t)&begun, true);
	point();
	barrier_full(self);
	sight_join(&begun, &self->now);
	join_trail();
	release();
	memset(&self->after, 0, sizeof(self->after));
	for (u32 i = 0; i < thread_count; i++) {
		sight_join(&self->after, &over[i]);
		if (threads[i].depth && &threads[i] != self &&
		    order != EX_RELAXED)
			self->waits_for |= 1u << i;
	}
	event(8, self->waits_for);
	trace_event(site, self->waits_for, "begins, waits for mask", 0);
	self->waits_grace = true;
	point();
	self->waits_grace = false;
	acquire(&self->after);
	trail_acquire(&trail);
	barrier_full(self);
	event(9, 0);
	trace_event(site, 0, "is over", 0);
}
