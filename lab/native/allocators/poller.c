// SPDX-License-Identifier: GPL-2.0-only
/* A thread at work; see timed.h. */
#include "timed.h"

#define PAGES_MASK	((1ULL << IOVA_PAGE_LG2) - 1)
#define BUFFER_BYTES	(256ULL << 10)	/* physical memory of a buffer */

static u32 draw(struct poller *poller, u32 bound)
{
	poller->drawn ^= poller->drawn << 13;
	poller->drawn ^= poller->drawn >> 7;
	poller->drawn ^= poller->drawn << 17;
	return (u32)((poller->drawn >> 32) * bound >> 32);
}

static u64 cpu_ns(void)
{
	struct timespec now;

	clock_gettime(CLOCK_THREAD_CPUTIME_ID, &now);
	return (u64)now.tv_sec * 1000000000 + (u64)now.tv_nsec;
}

/* ---- maps and unmaps ---- */

/* Maps a buffer, whose number makes the physical address. */
static xs_inline u64 map_one(u64 buffer, u32 pages)
{
	struct iova_request request = {
		.phys = (buffer + 1) * BUFFER_BYTES,
		.last = ~0ULL,
		.pages = pages,
		.align_pages = iova_natural(pages),
	};
	u64 iova = timed.options.allocator->alloc(timed.state, &request);

	if (xs_unlikely(!iova))
		native_fail("the allocator has no IOVA left");
	return iova | pages;
}

static xs_inline void unmap_one(u64 buffer)
{
	timed.options.allocator->free(timed.state, buffer & ~PAGES_MASK,
				      (u32)(buffer & PAGES_MASK));
}

static xs_noinline void map_all(struct poller *poller)
{
	u64 first = (u64)poller->id * timed.options.ring;

	for (u32 i = 0; i < timed.options.ring; i++)
		poller->ring[i] = map_one(first + i, poller->sizes[i]);
}

static xs_noinline void unmap_all(const u64 *buffers, u32 count)
{
	for (u32 i = 0; i < count; i++)
		unmap_one(buffers[i]);
}

/* ---- between them ---- */

static void draw_sizes(struct poller *poller)
{
	for (u32 i = 0; i < timed.options.ring; i++) {
		u32 lg2, pages = timed.options.pages ? timed.options.pages : 1;

		if (timed.options.sizes && !draw(poller, 16)) {
			lg2 = draw(poller, 6);
			pages = (1u << lg2) + 1 + draw(poller, 1u << lg2);
		}
		poller->sizes[i] = pages;
	}
}

static struct mailbox *mailbox_of(u32 from, u32 to)
{
	return &timed.mailboxes[(size_t)from * timed.options.count + to];
}

/* Hands a buffer to another thread, as often as the options say. */
static bool hand_over(struct poller *poller, u64 buffer)
{
	u32 to;

	if (!timed.mailboxes || draw(poller, 100) >= timed.options.elsewhere)
		return false;
	to = draw(poller, timed.options.count - 1);
	to += to >= poller->id;
	return mailbox_send(mailbox_of(poller->id, to), buffer);
}

/*
 * Parks a buffer in the place of another, at random, so that a buffer stays for 100 rings on
 * average. Returns the other, 0 if there is none.
 */
static u64 park(struct poller *poller, u64 buffer)
{
	u64 *place = &poller->parked[draw(poller, poller->parked_count)];
	u64 other = *place;

	*place = buffer;
	return other;
}

/* Decides the fate of each buffer of the ring. Returns the number of buffers to unmap here. */
static u32 exchange(struct poller *poller)
{
	u32 ring = timed.options.ring, count = timed.options.count, left = 0, first, handed = 0;

	for (u32 i = 0; i < ring; i++) {
		u64 buffer = poller->ring[i];

		if (timed.options.mixed && !draw(poller, PARKED_PART))
			buffer = park(poller, buffer);
		if (buffer && hand_over(poller, buffer))
			handed++;
		else if (buffer)
			poller->unmaps[left++] = buffer;
	}
	first = draw(poller, count);
	for (u32 i = 0, room = left + ring; timed.mailboxes && i < count; i++) {
		struct mailbox *mailbox = mailbox_of((first + i) % count, poller->id);

		while (left < room && mailbox_take(mailbox, &poller->unmaps[left]))
			left++;
	}
	poller->handed += handed;
	return left;
}

static void poll(struct poller *poller)
{
	u64 start, mapped, unmap_start, end;
	u32 ring = timed.options.ring, unmaps;

	draw_sizes(poller);
	start = cpu_ns();
	map_all(poller);
	mapped = cpu_ns();
	unmaps = exchange(poller);
	unmap_start = cpu_ns();
	unmap_all(poller->unmaps, unmaps);
	end = cpu_ns();
	if (xs_load(&timed.phase) != TIMED_MEASURE || poller->polls == POLLS_MAX || !unmaps)
		return;
	poller->maps += ring;
	poller->unmapped += unmaps;
	poller->pair_ps[poller->polls] = (mapped - start) * 1000 / ring +
					 (end - unmap_start) * 1000 / unmaps;
	xs_store(&poller->polls, poller->polls + 1);
}

void poller_drain(struct poller *poller)
{
	u64 buffer;

	for (u32 i = 0; i < poller->parked_count; i++)
		if (poller->parked[i])
			unmap_one(poller->parked[i]);
	for (u32 i = 0; i < poller->kept_count; i++)
		unmap_one(poller->kept[i]);
	for (u32 i = 0; timed.mailboxes && i < timed.options.count; i++)
		while (mailbox_take(mailbox_of(i, poller->id), &buffer))
			unmap_one(buffer);
}

/* Polls as long as the run is in a phase. */
static void poll_while(struct poller *poller, enum timed_phase phase)
{
	while (xs_load_acquire(&timed.phase) == phase)
		poll(poller);
}

void *poller_main(void *data)
{
	struct poller *poller = data;
	u64 start, cpu_start;

	native_pin(timed.options.cpus[poller->id]);
	native_become(poller->id);
	/* The buffers that stay come first, from all CPUs, above the physical memory of rings. */
	for (u32 i = 0; i < poller->kept_count; i++)
		poller->kept[i] = map_one((1ULL << 24) + ((u64)i << 12) + poller->id, 1);
	pthread_barrier_wait(&timed.barrier);
	poll_while(poller, TIMED_WARM);
	timed_waits[poller->id] = (struct waits) { 0 };
	poller->handed = 0;
	start = native_now();
	cpu_start = cpu_ns();
	poll_while(poller, TIMED_MEASURE);
	poller->ns = native_now() - start;
	poller->cpu_ns = cpu_ns() - cpu_start;
	pthread_barrier_wait(&timed.barrier);
	return NULL;
}
