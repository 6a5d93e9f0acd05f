// SPDX-License-Identifier: GPL-2.0-only
/* A CPU at work; see run.h. */
#include "run.h"

#define CALIBRATED	20000u	/* operations of a calibration */
#define TRIES		5	/* the calibration is the median of so many */

static u32 draw(struct worker *worker, u32 bound)
{
	worker->drawn ^= worker->drawn << 13;
	worker->drawn ^= worker->drawn >> 7;
	worker->drawn ^= worker->drawn << 17;
	return (u32)((worker->drawn >> 32) * bound >> 32);
}

/* ---- calibration ---- */

static u64 median_of(u64 *values)
{
	for (u32 i = 1; i < TRIES; i++)
		for (u32 at = i; at && values[at - 1] > values[at]; at--) {
			u64 value = values[at];

			values[at] = values[at - 1];
			values[at - 1] = value;
		}
	return values[TRIES / 2];
}

static u64 cmpxchg_ns(void)
{
	static __thread u64 word NATIVE_LINE;
	u64 start = native_now(), old = word;

	for (u32 i = 0; i < CALIBRATED; i++) {
		if (!__atomic_compare_exchange_n(&word, &old, old + 1, false, __ATOMIC_SEQ_CST,
						 __ATOMIC_SEQ_CST))
			native_fail("a compare and swap of the CPU's own word has failed");
		old++;
	}
	return native_now() - start;
}

static u64 clock_ns(void)
{
	u64 start = native_now();

	for (u32 i = 0; i < CALIBRATED; i++)
		native_now();
	return native_now() - start;
}

static void calibrate(struct worker *worker, u32 at)
{
	u64 cmpxchg[TRIES], clock[TRIES];

	for (u32 i = 0; i < TRIES; i++) {
		cmpxchg[i] = cmpxchg_ns();
		clock[i] = clock_ns();
	}
	worker->cmpxchg_ps[at] = median_of(cmpxchg) * 1000 / CALIBRATED;
	worker->clock_ps[at] = median_of(clock) * 1000 / CALIBRATED;
}

/* ---- a poll ---- */

static xs_noinline void map_all(struct worker *worker)
{
	for (u32 i = 0; i < run.options.ring; i++) {
		u64 iova = path_map(run.engine, worker->phys + i * XS_PAGE_BYTES, 1);

		if (xs_unlikely(!iova))
			native_fail("the engine has no IOVA left");
		worker->iovas[i] = iova;
	}
}

/* Returns the number of buffers that are copied; the others are mapped. */
static xs_noinline u32 copy_all(struct worker *worker)
{
	u32 copied = run.options.ring;

	for (u32 i = 0; i < run.options.ring; i++) {
		u64 phys = worker->phys + i * XS_PAGE_BYTES;
		u64 iova = driver_copy(run.engine, phys, run.options.bytes);

		if (xs_unlikely(!iova)) {
			iova = path_map(run.engine, phys, 1);
			copied--;
		}
		if (xs_unlikely(!iova))
			native_fail("the engine has no IOVA left");
		worker->iovas[i] = iova;
	}
	return copied;
}

void worker_unmap(u64 iova)
{
	if (!run.options.bytes || !driver_uncopy(run.engine, iova))
		path_unmap(run.engine, iova, 1);
}

static xs_noinline void unmap_all(const u64 *iovas, u32 count)
{
	for (u32 i = 0; i < count; i++)
		path_unmap(run.engine, iovas[i], 1);
}

static xs_noinline void unmap_all_aware(const u64 *iovas, u32 count)
{
	for (u32 i = 0; i < count; i++)
		path_unmap_deferred(run.engine, iovas[i], 1);
	xs_engine_flush_explicit(run.engine, false);
}

static xs_noinline void uncopy_all(const u64 *iovas, u32 count)
{
	for (u32 i = 0; i < count; i++)
		worker_unmap(iovas[i]);
}

/* The end of a poll, and the CPU's timer. */
static void end_poll(void)
{
	struct native_area *area = native_member(self);
	u64 deadline_ns = xs_load(&area->deadline_ns);

	if (area->deferred) {
		area->deferred = false;
		if (!xs_engine_poll(run.engine))
			area->deferred = true;
	}
	if (deadline_ns && native_now() >= deadline_ns) {
		xs_store(&area->deadline_ns, 0);
		deadline_ns = xs_engine_expire(run.engine, area->id);
		if (deadline_ns)
			xs_store(&area->deadline_ns, deadline_ns);
	}
}

/* ---- handing over ---- */

/*
 * Hands pages of the ring to other CPUs, and takes pages from other CPUs, at most as many as a
 * ring has. A page whose mailbox is full stays here. Returns the number of pages to unmap.
 */
static u32 exchange(struct worker *worker)
{
	u32 ring = run.options.ring, count = run.options.count, left = 0, first;

	for (u32 i = 0; i < ring; i++) {
		if (draw(worker, 100) < run.options.elsewhere) {
			u32 to = draw(worker, count - 1);

			to += to >= worker->id;
			if (mailbox_send(run_mailbox(worker->id, to), worker->iovas[i])) {
				worker->handed++;
				continue;
			}
		}
		worker->unmaps[left++] = worker->iovas[i];
	}
	first = draw(worker, count);
	for (u32 i = 0, room = left + ring; i < count; i++) {
		struct mailbox *mailbox = run_mailbox((first + i) % count, worker->id);

		while (left < room && mailbox_take(mailbox, &worker->unmaps[left]))
			left++;
	}
	return left;
}

/* ---- polls ---- */

static u64 cpu_ns(void)
{
	struct timespec now;

	clock_gettime(CLOCK_THREAD_CPUTIME_ID, &now);
	return (u64)now.tv_sec * 1000000000 + (u64)now.tv_nsec;
}

/* Commands that the backend has counted on this CPU. */
static u64 commands(void)
{
	return native_member(commands_page) + native_member(commands_domain);
}

static u64 per_page_ps(const struct worker *worker, u64 ns, u32 pages)
{
	u64 ps = ns * 1000, read_ps = worker->clock_ps[0];

	return (ps > read_ps ? ps - read_ps : 0) / pages;
}

/* Maps the ring; returns the number of copied buffers. */
static u32 map_ring(struct worker *worker)
{
	if (run.options.bytes)
		return copy_all(worker);
	map_all(worker);
	return 0;
}

static void unmap_ring(const u64 *iovas, u32 pages)
{
	if (run.options.bytes)
		uncopy_all(iovas, pages);
	else if (run.options.aware)
		unmap_all_aware(iovas, pages);
	else
		unmap_all(iovas, pages);
	end_poll();
}

static void poll(struct worker *worker)
{
	bool recorded = xs_load(&run.phase) == RUN_MEASURE && worker->polls < POLLS_MAX;
	u32 ring = run.options.ring, pages = ring, copied;
	const u64 *iovas = worker->iovas;
	u64 start, mapped, unmap_start, end;

	if (recorded && !worker->polls) {
		worker->began_commands = commands();
		worker->began_cpu_ns = cpu_ns();
		worker->began_ns = native_now();
	}
	start = native_now();
	copied = map_ring(worker);
	mapped = native_now();
	if (run.mailboxes) {
		pages = exchange(worker);
		iovas = worker->unmaps;
	}
	unmap_start = native_now();
	unmap_ring(iovas, pages);
	end = native_now();
	/* The main thread ends the run, but may not get a CPU. */
	if (xs_unlikely(end > run.limit_ns))
		native_fail("the run does not end: another program keeps its main thread from running");
	worker->maps += ring;
	worker->unmapped += pages;
	/* The pool grows as long as buffers are not copied. */
	xs_store(&worker->steady, !run.options.bytes || copied == ring ? worker->steady + 1 : 0);
	if (!recorded || !pages || xs_load(&run.phase) != RUN_MEASURE)
		return;
	worker->map_ps[worker->polls] = per_page_ps(worker, mapped - start, ring);
	worker->unmap_ps[worker->polls] = per_page_ps(worker, end - unmap_start, pages);
	worker->recorded_copies += copied;
	worker->recorded_unmaps += pages;
	worker->ended_commands = commands();
	worker->ended_ns = end;
	worker->ended_cpu_ns = cpu_ns();
	xs_store(&worker->polls, worker->polls + 1);
}

/* A work item of the kernel: adds memory to the pool, between polls. */
static void grow_pool(void)
{
	if (!xs_load(&native_short) || pthread_mutex_trylock(&run.grow_lock))
		return;
	xs_store(&native_short, false);
	xs_pool_grow(&run.engine->pool);
	pthread_mutex_unlock(&run.grow_lock);
}

void *worker_main(void *data)
{
	struct worker *worker = data;

	native_pin(run.options.cpus[worker->id]);
	native_become(worker->id);
	/* The main thread makes the engine. */
	pthread_barrier_wait(&run.barrier);
	pthread_barrier_wait(&run.barrier);
	calibrate(worker, 0);
	pthread_barrier_wait(&run.barrier);
	while (xs_load_acquire(&run.phase) != RUN_STOP) {
		poll(worker);
		grow_pool();
	}
	pthread_barrier_wait(&run.barrier);
	calibrate(worker, 1);
	pthread_barrier_wait(&run.barrier);
	return NULL;
}
