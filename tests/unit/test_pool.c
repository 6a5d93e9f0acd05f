// SPDX-License-Identifier: GPL-2.0-only
/*
 * Pools: a buffer's bytes go to the bounce buffer and come back, and reach no other buffer.
 * Bounce buffers are never shared, and a chunk is freed only when no CPU can use the chunk any
 * more.
 */
#include "unit_world.h"

#define START		(3ULL << XS_CHUNK_LG2)
#define LAST		(~0ULL)
#define MEMORY_BYTES	(96u * 4096)
#define CHUNKS		24u

/* First physical address of buffers: a large number. */
#define MEMORY_PHYS	0xfedc900040000ULL

static struct {
	struct xs_pool pool;
	struct xs_counts counts[TEST_CPUS];
	u8 *memory;
	u8 *chunk[XS_CHUNKS_MAX];	/* from the device's view */
	u32 direction[XS_CHUNKS_MAX];
	u32 chunks;
	u32 chunks_max;
	u64 allocations;
	u64 alloc_fails_in;
	u64 now_ns;
	u64 told;
	bool mute;
	struct buffer *impatient;	/* is mapped while a chunk is added */
	u64 early;	/* an IOVA without a word during the copy */
	void (*meanwhile)(void);	/* called once, when the clock is read */
	u32 going;	/* chunks that no CPU can find any more */
	bool drops_fail;
	bool maps_not_undone;
	u64 stuck;	/* stuck pages reported to the backend */
} m;

static bool is_buffer(u64 phys, u32 bytes)
{
	return CHECK(phys >= MEMORY_PHYS &&
		     phys - MEMORY_PHYS + bytes <= MEMORY_BYTES);
}

static void copy(u8 *to, const u8 *from, u32 bytes)
{
	test_point();
	while (bytes--)
		*to++ = *from++;
}

static bool unmap_at(u64 iova, bool copies);

void xs_copy_in(void *bounce, u64 phys, u32 bytes)
{
	CHECK(!m.early || !unmap_at(m.early, true));
	if (is_buffer(phys, bytes))
		copy(bounce, m.memory + (phys - MEMORY_PHYS), bytes);
}

void xs_copy_out(u64 phys, const void *bounce, u32 bytes)
{
	if (is_buffer(phys, bytes))
		copy(m.memory + (phys - MEMORY_PHYS), bounce, bytes);
}

/* ---- backend of the pool ---- */

static bool fails_now(void)
{
	u64 left = __atomic_load_n(&m.alloc_fails_in, __ATOMIC_RELAXED);

	if (left)
		__atomic_store_n(&m.alloc_fails_in, left - 1, __ATOMIC_RELAXED);
	return left == 1;
}

static void *pool_alloc(void *world, size_t bytes, u32 cpu, bool atomic)
{
	(void)world;
	(void)cpu;
	CHECK(atomic || test_can_sleep());
	if (fails_now())
		return NULL;
	m.allocations++;
	return test_alloc(bytes);
}

static void pool_free(void *world, void *memory, size_t bytes)
{
	u64 *words = memory;

	(void)world;
	if (!memory)
		return;
	/* Poison, so that a use after free is seen. */
	for (size_t i = 0; i < bytes / sizeof(*words); i++)
		words[i] = 0xdddddddddddddddd;
	m.allocations--;
	test_free(memory);
}

static u64 pool_clock(void *world)
{
	void (*meanwhile)(void) = xs_load(&m.meanwhile);

	(void)world;
	if (meanwhile) {
		xs_store(&m.meanwhile, NULL);
		meanwhile();
	}
	return __atomic_load_n(&m.now_ns, __ATOMIC_RELAXED);
}

/* Can any CPU still find the chunk of an IOVA? */
static bool is_known(u64 iova)
{
	return __atomic_load_n(&m.pool.chunks[(iova - START) >> XS_CHUNK_LG2],
			       __ATOMIC_RELAXED);
}

/* Some chunks are about to be freed: during the wait no CPU may find them. */
static void pool_quiesce(void *world)
{
	u32 known = 0;

	/* An engine's pool is not checked here. */
	if (!m.pool.chunks)
		return;
	(void)world;
	for (u32 i = 0; i < XS_CHUNKS_MAX; i++)
		known += is_known(START + ((u64)i << XS_CHUNK_LG2));
	CHECK(known < m.chunks);
	for (u32 i = 0; i < m.pool.cpu_count; i++)
		for (u32 kind = 0; kind < XS_BOUNCE_KINDS; kind++) {
			struct xs_block *open =
				xs_load(&m.pool.cpus[i]->open[kind]);

			CHECK(open == &m.pool.none || is_known(open->iova));
		}
	test_quiesce();
	m.going = m.chunks - known;
}

static void be_impatient(void);

static void *pool_add_chunk(void *world, u64 iova, u32 direction, bool *not_undone)
{
	u64 at = (iova - START) >> XS_CHUNK_LG2;

	(void)world;
	CHECK(test_can_sleep() && direction < XS_DIRECTIONS);
	CHECK(iova == START + (at << XS_CHUNK_LG2));
	if (!CHECK(at < XS_CHUNKS_MAX && !m.chunk[at]) ||
	    m.chunks == m.chunks_max || fails_now())
		return NULL;
	if (m.impatient)
		be_impatient();
	m.chunks++;
	m.direction[at] = direction;
	m.chunk[at] = test_alloc(XS_CHUNK_BYTES);
	*not_undone = m.maps_not_undone;
	return m.chunk[at];
}

static bool pool_drop_chunk(void *world, u64 iova, void *memory)
{
	u64 at = (iova - START) >> XS_CHUNK_LG2;

	(void)world;
	if (!CHECK(at < XS_CHUNKS_MAX && m.chunk[at] == memory))
		return true;
	if (m.drops_fail)
		return false;
	CHECK(m.going--);
	m.chunks--;
	m.chunk[at] = NULL;
	test_free(memory);
	return true;
}

static void pool_short_of(void *world)
{
	(void)world;
	__atomic_add_fetch(&m.told, 1, __ATOMIC_RELAXED);
}

static void pool_stuck(void *world, u64 iova, u64 pages)
{
	(void)world;
	CHECK(iova >= START && iova % XS_CHUNK_BYTES == 0);
	m.stuck += pages;
}

static const struct xs_backend_ops ops = {
	.alloc = pool_alloc, .free = pool_free, .clock = pool_clock,
	.quiesce = pool_quiesce, .add_chunk = pool_add_chunk,
	.drop_chunk = pool_drop_chunk, .short_of = pool_short_of,
	.stuck = pool_stuck,
};

static const struct xs_backend_ops mute_ops = {
	.alloc = pool_alloc, .free = pool_free, .clock = pool_clock,
	.quiesce = pool_quiesce, .add_chunk = pool_add_chunk,
	.drop_chunk = pool_drop_chunk,
};

static bool begin(u32 cpus)
{
	test_relax();
	m.memory = test_alloc(MEMORY_BYTES);
	m.chunks_max = CHUNKS;
	m.now_ns = 5;
	m.told = 0;
	for (u32 i = 0; i < MEMORY_BYTES; i++)
		m.memory[i] = (u8)(i * 7 + i / 256);
	for (u32 i = 0; i < TEST_CPUS; i++)
		m.counts[i] = (struct xs_counts){ 0 };
	if (!xs_pool_init(&m.pool, m.mute ? &mute_ops : &ops, NULL, START, cpus,
			  m.counts))
		return false;
	xs_pool_limit(&m.pool, CHUNKS);
	return true;
}

/* Sum over all CPUs. */
static struct xs_counts counted(void)
{
	struct xs_counts sum = { 0 };

	for (u32 i = 0; i < TEST_CPUS; i++)
		xs_counts_add(&sum, &m.counts[i]);
	return sum;
}

/* Buffers that count as mapped can be found. */
static void check_counts(void)
{
	struct xs_counts sum = counted();
	u64 iova = 0, found = 0;
	u32 bytes;

	for (; xs_pool_next(&m.pool, &iova, &bytes); iova += bytes)
		found++;
	CHECK(found == sum.copied_maps - sum.copied_unmaps);
}

static void end(void)
{
	check_counts();
	m.going = m.chunks;
	xs_pool_destroy(&m.pool);
	CHECK(!m.allocations && !m.chunks && !world_warnings());
	test_free(m.memory);
	m.alloc_fails_in = 0;
}

/* End the pool; nothing is mapped. */
static void end_empty(void)
{
	xs_pool_trim(&m.pool, 0);
	CHECK(!m.chunks);
	end();
}

/* ---- a driver and its device ---- */

struct buffer {
	u64 phys;
	u32 bytes;
	enum xs_direction direction;
	u64 iova;
};

static u8 *memory_at(const struct buffer *buffer, u32 at)
{
	return m.memory + (buffer->phys - MEMORY_PHYS) + at;
}

/* Returns the place where the device finds a byte of the buffer. */
static u8 *bounce_at(const struct buffer *buffer, u32 at)
{
	u64 offset = buffer->iova + at - START;

	return m.chunk[offset >> XS_CHUNK_LG2] + (offset & (XS_CHUNK_BYTES - 1));
}

static u64 map_so(struct buffer *buffer, u64 last, u32 keep, bool copies)
{
	xs_enter();
	buffer->iova = xs_pool_map(&m.pool, buffer->phys, buffer->bytes,
				   buffer->direction, last, keep, copies);
	xs_exit();
	if (!buffer->iova)
		return 0;
	CHECK(xs_pool_has(&m.pool, buffer->iova));
	CHECK(xs_pool_has(&m.pool, buffer->iova + buffer->bytes - 1));
	CHECK(m.direction[(buffer->iova - START) >> XS_CHUNK_LG2] == buffer->direction);
	return buffer->iova;
}

static void be_impatient(void)
{
	m.now_ns += XS_POOL_DRY_NS;
	CHECK(!map_so(m.impatient, LAST, 0, true));
}

static bool map(struct buffer *buffer)
{
	if (map_so(buffer, LAST, 0, true))
		return true;
	xs_pool_grow(&m.pool);
	m.now_ns += XS_POOL_DRY_NS;
	return map_so(buffer, LAST, 0, true);
}

static bool unmap_at(u64 iova, bool copies)
{
	bool ok;

	xs_enter();
	ok = xs_pool_unmap(&m.pool, iova, copies);
	xs_exit();
	return ok;
}

static void unmap(const struct buffer *buffer)
{
	CHECK(unmap_at(buffer->iova, true));
}

static bool sync_at(u64 iova, u32 bytes, bool to_device)
{
	bool ok;

	xs_enter();
	ok = xs_pool_sync(&m.pool, iova, bytes, to_device);
	xs_exit();
	return ok;
}

static void check_equal(const struct buffer *buffer, bool equal)
{
	u32 same = 0;

	for (u32 i = 0; i < buffer->bytes; i++)
		same += *memory_at(buffer, i) == *bounce_at(buffer, i);
	CHECK(equal ? same == buffer->bytes : same < buffer->bytes);
}

static void device_writes(const struct buffer *buffer, u8 add)
{
	for (u32 i = 0; i < buffer->bytes; i++)
		*bounce_at(buffer, i) += add;
}

/* ---- tests ---- */

static void copies(void)
{
	static const u32 sizes[] = { 1, 60, 256, 257, 1514, 2048, 4095, 4096 };

	if (!CHECK(begin(1)))
		return;
	for (u32 i = 0; i < sizeof(sizes) / sizeof(sizes[0]); i++)
		for (u32 direction = 0; direction < XS_DIRECTIONS; direction++) {
			struct buffer buffer = { MEMORY_PHYS + 100, sizes[i],
						 direction, 0 };
			u8 first = *memory_at(&buffer, 0);

			CHECK(map(&buffer));
			check_equal(&buffer, true);
			device_writes(&buffer, 1);
			check_equal(&buffer, false);
			unmap(&buffer);
			CHECK(*memory_at(&buffer, 0) ==
			      (u8)(first + (direction != XS_DIRECTION_READ)));
			/* Bytes beside the buffer are not copied, in or out. */
			CHECK(map(&buffer));
			*memory_at(&buffer, sizes[i]) ^= 0x55;
			*(memory_at(&buffer, 0) - 1) ^= 0x55;
			first = *memory_at(&buffer, sizes[i]);
			unmap(&buffer);
			CHECK(*memory_at(&buffer, sizes[i]) == first);
			CHECK(*(memory_at(&buffer, 0) - 1) != *memory_at(&buffer, 0));
			/* Nothing is copied back if the caller does not want the data. */
			first = *memory_at(&buffer, sizes[i] - 1);
			CHECK(map(&buffer));
			device_writes(&buffer, 1);
			CHECK(unmap_at(buffer.iova, false));
			CHECK(*memory_at(&buffer, sizes[i] - 1) == first);
			/* A buffer that the device writes is always copied in. */
			*memory_at(&buffer, 0) ^= 0x55;
			CHECK(map_so(&buffer, LAST, 0, false));
			check_equal(&buffer, direction != XS_DIRECTION_READ);
			CHECK(unmap_at(buffer.iova, false));
		}
	end_empty();
}

/* A driver reads or writes a mapped buffer, with dma_sync. */
static void syncs(void)
{
	if (!CHECK(begin(1)))
		return;
	for (u32 direction = 0; direction < XS_DIRECTIONS; direction++) {
		struct buffer buffer = { MEMORY_PHYS + 300, 1000, direction, 0 };
		bool reads = direction != XS_DIRECTION_WRITE;
		bool writes = direction != XS_DIRECTION_READ;
		u8 was = *memory_at(&buffer, 500);

		CHECK(map(&buffer));
		device_writes(&buffer, 1);
		CHECK(sync_at(buffer.iova + 500, 20, false));
		CHECK(*memory_at(&buffer, 500) == (u8)(was + writes));
		CHECK(*memory_at(&buffer, 519) ==
		      (u8)(*bounce_at(&buffer, 519) - !writes));
		CHECK(*memory_at(&buffer, 499) != *bounce_at(&buffer, 499));
		CHECK(*memory_at(&buffer, 520) != *bounce_at(&buffer, 520));
		*memory_at(&buffer, 999) = 77;
		*bounce_at(&buffer, 999) = 78;
		CHECK(sync_at(buffer.iova + 999, 1, true));
		CHECK(*bounce_at(&buffer, 999) == (reads ? 77 : 78));
		/* Ranges outside of the buffer. */
		CHECK(sync_at(buffer.iova, 1000, true));
		CHECK(sync_at(buffer.iova + 1000, 0, true));
		*bounce_at(&buffer, 1000) = 3;
		was = *memory_at(&buffer, 1000);
		CHECK(sync_at(buffer.iova, 1001, true));
		CHECK(*bounce_at(&buffer, 1000) == 3);
		CHECK(sync_at(buffer.iova + 999, 2, false));
		CHECK(*memory_at(&buffer, 1000) == was);
		CHECK(!sync_at(buffer.iova + 1000, 1, false));
		unmap(&buffer);
		CHECK(!sync_at(buffer.iova, 1, true));
	}
	CHECK(!sync_at(START + XS_POOL_BYTES - 1, 1, true));
	CHECK(!sync_at(START + XS_POOL_BYTES, 1, true));
	CHECK(!sync_at(START - 1, 1, true));
	end_empty();
}

static u32 bounce_lg2(const struct buffer *buffer)
{
	return m.pool.chunks[(buffer->iova - START) >> XS_CHUNK_LG2]->lg2;
}

/*
 * Each buffer has an exclusive bounce buffer of the smallest fitting size, and starts at its
 * beginning.
 */
static void sizes(void)
{
	static struct buffer buffers[3 * 64];
	struct buffer odd = { MEMORY_PHYS, 0, XS_DIRECTION_READ, 0 };
	const u32 count = sizeof(buffers) / sizeof(buffers[0]);

	if (!CHECK(begin(1)))
		return;
	for (u32 lg2 = XS_BOUNCE_MIN_LG2; lg2 <= XS_BOUNCE_MAX_LG2; lg2++) {
		for (u32 i = 0; i < count; i++) {
			struct buffer *buffer = &buffers[i];

			buffer->phys = MEMORY_PHYS + 4001 + 2 * i;
			buffer->bytes = (1u << lg2) - i % (1u << (lg2 - 1));
			buffer->direction = XS_DIRECTION_READ;
			CHECK(map(buffer));
			CHECK(buffer->iova % (1u << lg2) == 0 ||
			      lg2 == XS_BOUNCE_MAX_LG2);
			CHECK(bounce_lg2(buffer) == lg2);
			*bounce_at(buffer, 0) = (u8)i;
			*bounce_at(buffer, buffer->bytes - 1) = (u8)i;
		}
		for (u32 i = 0; i < count; i++) {
			CHECK(*bounce_at(&buffers[i], 0) == (u8)i);
			CHECK(*bounce_at(&buffers[i], buffers[i].bytes - 1) ==
			      (u8)i);
			unmap(&buffers[i]);
		}
	}
	/* One chunk for each size was enough. */
	CHECK(m.chunks == XS_BOUNCE_SIZES);
	CHECK(!map(&odd) && m.chunks == XS_BOUNCE_SIZES);
	/* Bounce buffers are aligned like their buffers. */
	for (u32 i = 0; i < 3; i++)
		CHECK(map(&buffers[i]));
	for (u32 i = 3; i < 6; i++) {
		buffers[i].bytes = 60;
		CHECK(map(&buffers[i]));
	}
	for (u32 lg2 = 0; lg2 < 14; lg2++) {
		odd.bytes = 60;
		odd.phys = MEMORY_PHYS + 5 * (1u << lg2);
		CHECK(map(&odd));
		CHECK(!(odd.iova & ((1u << (lg2 < 11 ? lg2 : 11)) - 1)));
		CHECK(bounce_lg2(&odd) == (lg2 < 8 ? 8 : lg2 < 11 ? lg2 : 11));
		unmap(&odd);
	}
	for (u32 i = 0; i < 6; i++)
		unmap(&buffers[i]);
	end_empty();
}

/* Use all bounce buffers of a chunk, in the smallest size. */
static void full(void)
{
	static struct buffer buffers[XS_CHUNK_BYTES >> XS_BOUNCE_MIN_LG2];
	const u32 count = sizeof(buffers) / sizeof(buffers[0]);

	if (!CHECK(begin(1)))
		return;
	xs_pool_limit(&m.pool, 1);
	for (u32 i = 0; i < count && !test_failed(); i++) {
		buffers[i] = (struct buffer){ MEMORY_PHYS + 1, 1, XS_DIRECTION_READ, 0 };
		CHECK(map(&buffers[i]));
		*bounce_at(&buffers[i], 0) = (u8)(i % 255);
	}
	for (u32 i = 0; i < count && !test_failed(); i++) {
		CHECK(*bounce_at(&buffers[i], 0) == (u8)(i % 255));
		unmap(&buffers[i]);
	}
	end_empty();
}

/*
 * A buffer keeps the offset within 4 KiB if the buffer is large, or if the device requires the
 * offset.
 */
static void offsets(void)
{
	struct buffer buffer = { MEMORY_PHYS + 8192 + 1500, 2500, XS_DIRECTION_BOTH, 0 };
	struct buffer small = { MEMORY_PHYS + 8192 + 4000, 96, XS_DIRECTION_BOTH, 0 };
	u64 iova = 0;
	u32 bytes;

	if (!CHECK(begin(1)))
		return;
	CHECK(map(&buffer));
	CHECK(buffer.iova % 4096 == 1500);
	check_equal(&buffer, true);
	CHECK(xs_pool_next(&m.pool, &iova, &bytes) && iova == buffer.iova &&
	      bytes == 2500);
	CHECK(sync_at(buffer.iova + 2499, 1, false));
	CHECK(!sync_at(buffer.iova - 1, 1, false));
	/* An unmap may name any address inside. */
	device_writes(&buffer, 1);
	CHECK(unmap_at(buffer.iova & ~4095ULL, true));
	check_equal(&buffer, true);
	CHECK(!unmap_at(buffer.iova, true));
	/* An aligned buffer fits exactly; with the offset kept the buffer would not fit. */
	buffer.phys += 97;
	CHECK(map(&buffer) && buffer.iova % 4096 == 1596);
	check_equal(&buffer, true);
	device_writes(&buffer, 1);
	unmap(&buffer);
	check_equal(&buffer, true);
	CHECK(!map_so(&buffer, LAST, 4095, true));
	buffer.phys += 3;
	CHECK(map(&buffer) && buffer.iova % 4096 == 0);
	check_equal(&buffer, true);
	unmap(&buffer);
	CHECK(!map_so(&buffer, LAST, 4095, true));
	for (u32 keep = 1; keep < 4096; keep += keep + 1) {
		CHECK(map_so(&small, LAST, keep, true) &&
		      small.iova % 4096 == 4000);
		unmap(&small);
	}
	/* A bounce buffer never keeps an offset within a larger page. */
	CHECK(!map_so(&small, LAST, 8191, true));
	CHECK(!map_so(&small, LAST, 65535, true));
	small.phys++;
	CHECK(!map_so(&small, LAST, 4095, true));
	CHECK(map(&small) && small.iova % 256 == 0);
	unmap(&small);
	small.phys += 2048;
	/* A copy is aligned to four bytes, so an unaligned offset cannot be kept. */
	buffer.phys = MEMORY_PHYS + 8192 + 1503;
	CHECK(!map_so(&buffer, LAST, 4095, true));
	CHECK(map(&buffer) && buffer.iova % 4096 == 1500);
	check_equal(&buffer, true);
	CHECK(sync_at(buffer.iova, 1, false));
	CHECK(!sync_at(buffer.iova - 1, 1, false));
	CHECK(!sync_at(buffer.iova + 2500, 1, false));
	iova = 0;
	CHECK(xs_pool_next(&m.pool, &iova, &bytes) && iova == buffer.iova &&
	      bytes == 2500);
	*memory_at(&buffer, 0) ^= 0x55;
	*memory_at(&buffer, 2499) ^= 0x55;
	CHECK(sync_at(buffer.iova, 2500, true));
	check_equal(&buffer, true);
	device_writes(&buffer, 1);
	CHECK(sync_at(buffer.iova, 2500, false));
	check_equal(&buffer, true);
	device_writes(&buffer, 2);
	unmap(&buffer);
	check_equal(&buffer, true);
	/* No bounce buffer for a device that cannot address the whole of it. */
	CHECK(!map_so(&small, START + XS_POOL_BYTES - 2, 0, true));
	CHECK(map_so(&small, START + XS_POOL_BYTES - 1, 0, true));
	unmap(&small);
	small.bytes = XS_BOUNCE_MAX_BYTES + 1;
	CHECK(!map_so(&small, LAST, 0, true));
	end_empty();
}

static void bad_unmaps(void)
{
	struct buffer buffer = { MEMORY_PHYS, 512, XS_DIRECTION_WRITE, 0 };
	u8 was;

	if (!CHECK(begin(1)))
		return;
	CHECK(!unmap_at(START, true));
	CHECK(map(&buffer));
	was = *memory_at(&buffer, 0);
	CHECK(!unmap_at(buffer.iova + 2048, true));
	CHECK(!unmap_at(buffer.iova + XS_CHUNK_BYTES, true));
	CHECK(!unmap_at(START - 1, true) && !unmap_at(0, true));
	CHECK(!unmap_at(START + XS_POOL_BYTES, true));
	unmap(&buffer);
	device_writes(&buffer, 1);
	CHECK(!unmap_at(buffer.iova, true));
	CHECK(*memory_at(&buffer, 0) == was);
	/*
	 * A second unmap at the begin of the next mapping does not copy the previous buffer's
	 * bytes.
	 */
	m.early = buffer.iova;
	CHECK(map(&buffer) && buffer.iova == m.early);
	m.early = 0;
	unmap(&buffer);
	end_empty();
}

/* The pool is empty until asked to grow, and never exceeds the limit. */
static void grows(void)
{
	static struct buffer buffers[3 * 512];
	struct buffer other = { MEMORY_PHYS, 1, XS_DIRECTION_READ, 0 };
	u32 count = 0;

	if (!CHECK(begin(1)))
		return;
	xs_pool_grow(&m.pool);
	CHECK(!m.chunks);
	xs_pool_limit(&m.pool, 2);
	while (count < 3 * 512) {
		buffers[count] = (struct buffer){ MEMORY_PHYS, 4096,
						  XS_DIRECTION_BOTH, 0 };
		if (!map(&buffers[count]))
			break;
		count++;
	}
	/*
	 * One request for each of three chunks; the third allocation failed, and is not
	 * requested again soon.
	 */
	CHECK(count == 2 * 512 && m.chunks == 2 && m.told == 3);
	CHECK(!map(&other) && m.told == 3);
	xs_pool_limit(&m.pool, 3);
	CHECK(!map(&other) && m.told == 3);
	m.now_ns += XS_POOL_PAUSE_NS;
	CHECK(!map_so(&other, LAST, 0, true) && m.told == 4);
	/* The backend is asked once, for every shortage. */
	CHECK(!map_so(&buffers[count], LAST, 0, true) && m.told == 4);
	/* After a miss, a CPU searches only the CPU's own areas for a while. */
	xs_pool_grow(&m.pool);
	CHECK(m.chunks == 3 && !m.pool.wanted);
	m.now_ns += XS_POOL_DRY_NS - 1;
	CHECK(!map_so(&other, LAST, 0, true));
	m.now_ns++;
	CHECK(map(&other) != map(&buffers[count]));
	if (other.iova)
		unmap(&other);
	else
		unmap(&buffers[count]);
	while (count)
		unmap(&buffers[--count]);
	/* Idle areas make room for another kind. */
	other.direction = XS_DIRECTION_WRITE;
	m.now_ns += XS_POOL_PAUSE_NS;
	CHECK(map(&other) && m.chunks == 1);
	unmap(&other);
	xs_pool_limit(&m.pool, 2 * XS_CHUNKS_MAX);
	CHECK(m.pool.limit == XS_CHUNKS_MAX);
	end_empty();
}

/* A map during the growth of the pool does not request another chunk. */
static void once(void)
{
	static struct buffer buffers[1024];
	struct buffer buffer = { MEMORY_PHYS, 4096, XS_DIRECTION_BOTH, 0 };

	if (!CHECK(begin(1)))
		return;
	m.impatient = &buffer;
	CHECK(map(&buffer) && m.chunks == 1 && m.told == 1);
	m.impatient = NULL;
	unmap(&buffer);
	/* Areas that return before the growth do not cancel the growth; at the limit they do. */
	for (u32 count = 512; count <= 1024; count += 512) {
		const u8 *first = m.chunk[0];

		for (u32 i = 0; i < count; i++) {
			buffers[i] = buffer;
			CHECK(map_so(&buffers[i], LAST, 0, true));
		}
		m.now_ns += XS_POOL_DRY_NS;
		CHECK(!map_so(&buffer, LAST, 0, true) && m.pool.wanted);
		for (u32 i = 0; i < count; i++)
			unmap(&buffers[i]);
		xs_pool_limit(&m.pool, 2);
		xs_pool_grow(&m.pool);
		CHECK(m.chunks == 2 && !m.pool.wanted && m.chunk[0] == first);
		m.now_ns += XS_POOL_PAUSE_NS;
	}
	end_empty();
}

/* At the limit all requests wait; later the requests are made again. */
static void asks_again(void)
{
	struct buffer used = { MEMORY_PHYS, 4096, XS_DIRECTION_BOTH, 0 };
	struct buffer first = { MEMORY_PHYS, 4096, XS_DIRECTION_READ, 0 };
	struct buffer second = { MEMORY_PHYS, 4096, XS_DIRECTION_WRITE, 0 };

	if (!CHECK(begin(1)))
		return;
	xs_pool_limit(&m.pool, 1);
	CHECK(map(&used) && m.told == 1);
	CHECK(!map_so(&first, LAST, 0, true));
	CHECK(!map_so(&second, LAST, 0, true) && m.told == 2);
	xs_pool_grow(&m.pool);
	CHECK(!m.pool.wanted);
	unmap(&used);
	m.now_ns += XS_POOL_PAUSE_NS;
	CHECK(!map_so(&first, LAST, 0, true) && m.told == 3);
	CHECK(map(&first));
	unmap(&first);
	end_empty();
}

/* After a failed allocation, the pool makes no request for a while. */
static void pauses(void)
{
	struct buffer buffer = { MEMORY_PHYS, 4096, XS_DIRECTION_BOTH, 0 };

	for (u32 fails_in = 1; fails_in <= 3; fails_in++) {
		if (!CHECK(begin(1)))
			return;
		xs_pool_limit(&m.pool, 1);
		CHECK(!map_so(&buffer, LAST, 0, true) && m.told == 1);
		m.alloc_fails_in = fails_in;
		xs_pool_grow(&m.pool);
		CHECK(!m.chunks && !m.alloc_fails_in);
		m.now_ns += XS_POOL_PAUSE_NS - 1 - XS_POOL_DRY_NS;
		CHECK(!map(&buffer) && m.told == 1);
		m.now_ns += XS_POOL_DRY_NS;
		CHECK(map(&buffer) && m.told == 2);
		unmap(&buffer);
		end_empty();
	}
	m.mute = true;
	CHECK(begin(1) && map(&buffer));
	unmap(&buffer);
	end_empty();
	m.mute = false;
}

/* Fail every allocation of the set-up. */
static void fails(void)
{
	u32 fails_in = 0;
	bool ok = false;

	while (!ok && !test_failed()) {
		m.alloc_fails_in = ++fails_in;
		ok = begin(3);
		if (ok)
			m.alloc_fails_in = 0;
		end();
	}
	CHECK(fails_in == 2 + 3 + 1);
}

/* Chunks without a used bounce buffer are freed, except for spare chunks; all others stay. */
static void trims(void)
{
	static struct buffer buffers[4 * 512];
	u32 count = 0;

	if (!CHECK(begin(2)))
		return;
	for (; count < 4 * 512; count++) {
		buffers[count] = (struct buffer){ MEMORY_PHYS + count, 4096,
						  XS_DIRECTION_WRITE, 0 };
		test_be_cpu(count / 512 & 1);
		CHECK(map(&buffers[count]));
	}
	CHECK(m.chunks == 4 && !xs_pool_trim(&m.pool, 0));
	for (u32 i = 0; i < 4 * 512; i++)
		if (i % 512)
			unmap(&buffers[i]);
	CHECK(!xs_pool_trim(&m.pool, 0) && m.chunks == 4);
	for (u32 i = 0; i < 3 * 512; i += 512)
		unmap(&buffers[i]);
	CHECK(xs_pool_trim(&m.pool, 1) == 2 && m.chunks == 2);
	CHECK(!xs_pool_trim(&m.pool, 1));
	CHECK(xs_pool_trim(&m.pool, 0) == 1 && m.chunks == 1);
	check_equal(&buffers[3 * 512], true);
	unmap(&buffers[3 * 512]);
	/* A freed chunk can be added again. */
	CHECK(xs_pool_trim(&m.pool, 0) == 1);
	xs_pool_limit(&m.pool, 1);
	CHECK(map(&buffers[0]));
	unmap(&buffers[0]);
	test_be_cpu(0);
	end_empty();
}

/* The same with a chunk after a failed map that the backend could not undo. */
static void left_chunks(void)
{
	struct buffer buffer = { MEMORY_PHYS, 4096, XS_DIRECTION_WRITE, 0 };
	u64 pages = XS_CHUNK_BYTES / XS_PAGE_BYTES;

	if (!CHECK(begin(2)))
		return;
	m.maps_not_undone = m.drops_fail = true;
	CHECK(!map(&buffer) && m.chunks == 1);
	CHECK(m.pool.stuck_pages == pages && m.pool.count == 1);
	CHECK(!xs_pool_trim(&m.pool, 0) && m.chunks == 1);
	CHECK(!unmap_at(START, true));
	m.maps_not_undone = false;
	m.now_ns += XS_POOL_PAUSE_NS;
	CHECK(map(&buffer) && m.chunks == 2);
	CHECK(buffer.iova - START >= XS_CHUNK_BYTES);
	m.drops_fail = false;
	xs_pool_retry(&m.pool);
	CHECK(!m.pool.stuck_pages && m.chunks == 1 && m.pool.count == 1);
	unmap(&buffer);
	end_empty();
}

/* A chunk that the backend cannot remove keeps IOVA and memory, and is not used. */
static void stuck_chunks(void)
{
	struct buffer buffer = { MEMORY_PHYS, 4096, XS_DIRECTION_WRITE, 0 };
	u64 pages = XS_CHUNK_BYTES / XS_PAGE_BYTES;
	u64 stuck;

	if (!CHECK(begin(2)))
		return;
	CHECK(map(&buffer));
	stuck = buffer.iova & ~(u64)(XS_CHUNK_BYTES - 1);
	unmap(&buffer);
	m.drops_fail = true;
	CHECK(!xs_pool_trim(&m.pool, 0) && m.chunks == 1);
	CHECK(m.pool.stuck_pages == pages && m.pool.count == 1);
	xs_pool_retry(&m.pool);
	CHECK(m.pool.stuck_pages == pages && m.pool.count == 1);
	CHECK(!unmap_at(stuck, true));
	CHECK(map(&buffer) && m.chunks == 2);
	CHECK((buffer.iova & ~(u64)(XS_CHUNK_BYTES - 1)) != stuck);
	m.drops_fail = false;
	xs_pool_retry(&m.pool);
	CHECK(!m.pool.stuck_pages && m.chunks == 1 && m.pool.count == 1);
	unmap(&buffer);
	CHECK(map(&buffer) && m.chunks == 1);
	unmap(&buffer);
	end_empty();
}

/* A retry leaves a chunk in use alone, also before the stuck chunk. */
static void stuck_beside(void)
{
	struct buffer kept = { MEMORY_PHYS, 4096, XS_DIRECTION_WRITE, 0 };
	struct buffer buffer = { MEMORY_PHYS, 4096, XS_DIRECTION_READ, 0 };

	if (!CHECK(begin(1)))
		return;
	CHECK(map(&kept) && map(&buffer) && m.chunks == 2);
	CHECK(kept.iova < buffer.iova);
	unmap(&buffer);
	m.drops_fail = true;
	CHECK(!xs_pool_trim(&m.pool, 0));
	CHECK(m.pool.stuck_pages == XS_CHUNK_BYTES / XS_PAGE_BYTES);
	m.drops_fail = false;
	xs_pool_retry(&m.pool);
	CHECK(!m.pool.stuck_pages && m.chunks == 1 && m.pool.count == 1);
	check_equal(&kept, true);
	unmap(&kept);
	end_empty();
}

/*
 * The end of the pool is the last try to remove a stuck chunk: on failure the memory is lost,
 * and the backend is told.
 */
static void lost_chunks(void)
{
	struct buffer buffer = { MEMORY_PHYS, 4096, XS_DIRECTION_WRITE, 0 };

	if (!CHECK(begin(1)))
		return;
	CHECK(map(&buffer));
	unmap(&buffer);
	m.drops_fail = true;
	m.stuck = 0;
	xs_pool_destroy(&m.pool);
	CHECK(m.stuck == XS_CHUNK_BYTES / XS_PAGE_BYTES);
	CHECK(!m.allocations && m.chunks == 1);
	m.drops_fail = false;
	m.going = 1;
	pool_drop_chunk(NULL, START, m.chunk[0]);
	test_free(m.memory);
}

/* Areas that another CPU has emptied, or nearly emptied, are used before the pool grows. */
static void moves_from(u32 from)
{
	static struct buffer buffers[2 * 512];
	u32 count = 0;

	if (!CHECK(begin(2)))
		return;
	test_be_cpu(!from);
	xs_pool_limit(&m.pool, 1);
	/* Idle areas of this CPU do not prevent that. */
	buffers[0] = (struct buffer){ MEMORY_PHYS, 4096, XS_DIRECTION_WRITE, 0 };
	CHECK(map(&buffers[0]));
	unmap(&buffers[0]);
	test_be_cpu(from);
	m.now_ns += XS_POOL_PAUSE_NS;
	for (; count < 512; count++) {
		buffers[count] = (struct buffer){ MEMORY_PHYS, 4096,
						  XS_DIRECTION_WRITE, 0 };
		CHECK(map(&buffers[count]));
	}
	test_be_cpu(!from);
	buffers[512] = buffers[0];
	CHECK(!map(&buffers[512]));
	/* Half of an area: partial, on the other CPU's partial list. */
	for (u32 i = 0; i < 32; i++)
		unmap(&buffers[i]);
	for (u32 i = 0; i < 32; i++)
		CHECK(map(&buffers[i]));
	CHECK(!map(&buffers[512]));
	/* A whole area, on no list. */
	for (u32 i = 64; i < 128; i++)
		unmap(&buffers[i]);
	for (u32 i = 64; i < 128; i++)
		CHECK(map(&buffers[i]));
	CHECK(!map(&buffers[512]) && m.chunks == 1);
	while (count)
		unmap(&buffers[--count]);
	test_be_cpu(0);
	end_empty();
}

static void moves(void)
{
	moves_from(1);
	moves_from(0);
}

/* A search looks at so many CPUs, and the next search continues from there. */
static void looks(void)
{
	static struct buffer buffers[512];
	struct buffer wanted = { MEMORY_PHYS, 4096, XS_DIRECTION_WRITE, 0 };
	u32 searches = 0;

	/* The pool has memory for CPUs that no thread runs on. */
	if (!CHECK(begin(3 * XS_AREA_LOOKS)))
		return;
	xs_pool_limit(&m.pool, 1);
	test_be_cpu(1);
	for (u32 i = 0; i < 512; i++) {
		buffers[i] = wanted;
		CHECK(map(&buffers[i]));
	}
	test_be_cpu(0);
	/* From now on the search begins behind CPU 1. */
	CHECK(!map_so(&wanted, LAST, 0, true));
	for (u32 i = 0; i < 32; i++)
		CHECK(unmap_at(buffers[i].iova, true));
	do
		m.now_ns += XS_POOL_DRY_NS;
	while (++searches < 9 && !map_so(&wanted, LAST, 0, true));
	CHECK(searches == 2);
	unmap(&wanted);
	for (u32 i = 32; i < 512; i++)
		unmap(&buffers[i]);
	end_empty();
}

/* A CPU keeps the CPU's only area with holes. */
static void left_alone(void)
{
	static struct buffer buffers[5 * 64];
	u32 count = 0;
	u64 area;

	if (!CHECK(begin(2)))
		return;
	test_be_cpu(1);
	for (; count < 3 * 64; count++) {
		buffers[count] = (struct buffer){ MEMORY_PHYS, 4096,
						  XS_DIRECTION_WRITE, 0 };
		CHECK(map(&buffers[count]));
	}
	/* An area of 64 pages. */
	area = buffers[0].iova >> 18;
	/* Enough that the area is on that CPU's partial list. */
	for (u32 i = 0; i < 32; i++)
		unmap(&buffers[i]);
	test_be_cpu(0);
	for (; count < 5 * 64; count++) {
		buffers[count] = buffers[0];
		CHECK(map(&buffers[count]));
		CHECK(buffers[count].iova >> 18 != area);
	}
	for (u32 i = 32; i < count; i++)
		unmap(&buffers[i]);
	end_empty();
}

/* A shortage of one kind does not affect other kinds. */
static void dry(void)
{
	static struct buffer buffers[65];
	struct buffer other = { MEMORY_PHYS, 4096, XS_DIRECTION_READ, 0 };
	u32 count = 0;

	if (!CHECK(begin(1)))
		return;
	buffers[count] = (struct buffer){ MEMORY_PHYS, 4096, XS_DIRECTION_WRITE, 0 };
	CHECK(map(&buffers[count++]));
	CHECK(!map_so(&other, LAST, 0, true));
	for (; count < 65; count++) {
		buffers[count] = buffers[0];
		CHECK(map_so(&buffers[count], LAST, 0, true));
	}
	while (count)
		unmap(&buffers[--count]);
	end_empty();
}

/* Load that moves between CPUs and leaves buffers behind uses the holes. */
static void holes(void)
{
	static struct buffer buffers[8][512];

	if (!CHECK(begin(TEST_CPUS)))
		return;
	for (u32 round = 0; round < 4; round++)
		for (u32 cpu = 0; cpu < 8; cpu++) {
			test_be_cpu(cpu);
			for (u32 i = 0; i < 512; i++) {
				struct buffer *buffer = &buffers[cpu][i];

				if (buffer->iova)
					continue;
				*buffer = (struct buffer){
					MEMORY_PHYS, 4096, XS_DIRECTION_WRITE, 0 };
				CHECK(map(buffer));
				/* The backend grows the pool at once. */
				xs_pool_grow(&m.pool);
			}
			for (u32 i = 0; i < 512; i++)
				if (i % 64) {
					unmap(&buffers[cpu][i]);
					buffers[cpu][i].iova = 0;
				}
			xs_pool_trim(&m.pool, 0);
			test_relax();
		}
	/*
	 * At most 568 bounce buffers in 9 areas are used at a time, and each CPU may keep two
	 * areas.
	 */
	CHECK(m.chunks <= (9 + 2 * 8) / 8 + 1);
	for (u32 cpu = 0; cpu < 8; cpu++)
		for (u32 i = 0; i < 512; i += 64) {
			unmap(&buffers[cpu][i]);
			buffers[cpu][i].iova = 0;
		}
	test_be_cpu(0);
	end_empty();
}

/*
 * A CPU may open an area that another CPU has emptied and given back, if the first CPU found
 * the area before the last bounce buffer was freed.
 */
static void share(void *argument)
{
	u32 kind = XS_DIRECTION_WRITE * XS_BOUNCE_SIZES;

	(void)argument;
	if (is_known(START) && m.pool.cpus[0]->open[kind] == &m.pool.none)
		xs_store(&m.pool.cpus[0]->open[kind], &m.pool.chunks[0]->area[5]);
}

static void shared(void)
{
	struct buffer buffer = { MEMORY_PHYS + 1, 1, XS_DIRECTION_WRITE, 0 };

	if (!CHECK(begin(1)))
		return;
	for (u32 i = 0; i < 300 && !test_failed(); i++) {
		CHECK(map(&buffer));
		unmap(&buffer);
		test_interrupts(share, NULL);
		xs_pool_trim(&m.pool, 0);
		test_interrupts(NULL, NULL);
		CHECK(!m.chunks);
		test_relax();
	}
	end();
}

/* The bounce buffers of an area, and of the next area. */
static struct buffer bounces[128];

static void unmap_area(void)
{
	for (u32 i = 0; i < 64; i++)
		unmap(&bounces[i]);
}

/*
 * The shared area is used up, and emptied when the CPU looks for another area: the CPU finds
 * the same area.
 */
static void reopened(void)
{
	struct buffer one = { MEMORY_PHYS + 1, 1, XS_DIRECTION_WRITE, 0 };
	u32 kind = XS_DIRECTION_WRITE * XS_BOUNCE_SIZES;
	u64 first;

	if (!CHECK(begin(2)))
		return;
	test_be_cpu(1);
	for (u32 i = 0; i < 128; i++) {
		bounces[i] = one;
		CHECK(map(&bounces[i]));
	}
	first = bounces[0].iova & ~(64ULL * 256 - 1);
	xs_store(&m.pool.cpus[0]->open[kind], &m.pool.chunks[0]->area[0]);
	CHECK(first == m.pool.chunks[0]->area[0].iova);
	test_be_cpu(0);
	m.meanwhile = unmap_area;
	CHECK(map(&one));
	CHECK(!m.meanwhile && one.iova >= first &&
	      one.iova < first + 64ULL * 256);
	/* No other CPU gets the area. */
	test_be_cpu(1);
	for (u32 i = 0; i < 64; i++) {
		CHECK(map(&bounces[i]));
		CHECK(bounces[i].iova >= first + 64ULL * 256);
	}
	for (u32 i = 0; i < 128; i++)
		unmap(&bounces[i]);
	unmap(&one);
	end_empty();
}

/* ---- threads ---- */

#define SLOTS	160u
#define CPUS	3u

/*
 * struct traffic - parameters of a run
 * @used:	slots
 * @few:	one size and direction, so that areas and chunks become empty often
 * @rude:	a driver also unmaps buffers that another driver unmaps
 */
struct traffic {
	u64 seed;
	u32 steps;
	u32 used;
	bool few;
	bool rude;
};

struct shared {
	struct traffic traffic;
	u64 mapped;
	u64 unmapped;
	u64 iova;
	struct buffer *slots[SLOTS];
};

/* Each slot has a separate part of memory, so a buffer's bytes are exclusive. */
static struct buffer *draw(const struct traffic *traffic, u64 *random, u32 slot)
{
	static const u32 sizes[] = { 256, 4096, 2048 };
	struct buffer *buffer = test_alloc(sizeof(*buffer));
	u32 size = sizes[traffic->few ? 0 : test_below(random, 3)];

	buffer->phys = MEMORY_PHYS + slot * (MEMORY_BYTES / SLOTS);
	buffer->bytes = 1 + test_below(random, size);
	if (buffer->bytes > MEMORY_BYTES / SLOTS)
		buffer->bytes = MEMORY_BYTES / SLOTS;
	buffer->direction = !traffic->few && test_below(random, 2) ? XS_DIRECTION_BOTH :
							      XS_DIRECTION_WRITE;
	return buffer;
}

/* The device writes the whole buffer, and the whole buffer comes back. */
static void use(struct buffer *buffer, u64 *random)
{
	u8 value = (u8)test_random(random);

	check_equal(buffer, true);
	for (u32 i = 0; i < buffer->bytes; i++)
		*bounce_at(buffer, i) = value;
	if (test_below(random, 2))
		CHECK(sync_at(buffer->iova, buffer->bytes, false));
	unmap(buffer);
	for (u32 i = 0; i < buffer->bytes; i++)
		CHECK(*memory_at(buffer, i) == value);
}

static struct buffer taken;

/* The CPU that takes a slot, or the slot's buffer, owns the slot's memory. */
static void use_slot(struct shared *shared, u64 *random)
{
	u32 slot = test_below(random, shared->traffic.used);
	struct buffer *buffer = __atomic_exchange_n(&shared->slots[slot],
						    &taken, __ATOMIC_ACQ_REL);

	if (buffer == &taken)
		return;
	if (buffer) {
		use(buffer, random);
		test_free(buffer);
		buffer = NULL;
	} else {
		buffer = draw(&shared->traffic, random, slot);
		if (!map_so(buffer, LAST, 0, true)) {
			test_free(buffer);
			buffer = NULL;
		}
	}
	__atomic_store_n(&shared->slots[slot], buffer, __ATOMIC_RELEASE);
}

/* Exactly one of several unmaps of a mapping succeeds. */
static void be_rude(struct shared *shared, u32 cpu)
{
	struct buffer buffer = { MEMORY_PHYS, 1, XS_DIRECTION_READ, 0 };
	u64 iova = __atomic_load_n(&shared->iova, __ATOMIC_ACQUIRE);

	if (iova && unmap_at(iova, true))
		__atomic_add_fetch(&shared->unmapped, 1, __ATOMIC_RELAXED);
	if (cpu == 1 && map_so(&buffer, LAST, 0, true)) {
		__atomic_add_fetch(&shared->mapped, 1, __ATOMIC_RELAXED);
		iova = __atomic_exchange_n(&shared->iova, buffer.iova,
					   __ATOMIC_ACQ_REL);
		if (iova && unmap_at(iova, true))
			__atomic_add_fetch(&shared->unmapped, 1,
					   __ATOMIC_RELAXED);
	}
}

static void work(void *argument, u32 cpu)
{
	struct shared *shared = argument;
	const struct traffic *traffic = &shared->traffic;
	u64 random = traffic->seed * 16 + cpu;

	for (u32 step = 0; step < traffic->steps && !test_failed(); step++) {
		if (cpu && traffic->rude) {
			be_rude(shared, cpu);
		} else if (cpu) {
			use_slot(shared, &random);
		} else if (test_below(&random, 4)) {
			xs_pool_grow(&m.pool);
			__atomic_add_fetch(&m.now_ns, XS_POOL_DRY_NS,
					   __ATOMIC_RELAXED);
			test_relax();
		} else if (!traffic->rude) {
			xs_pool_trim(&m.pool, !traffic->few &&
					      test_below(&random, 2));
		}
	}
}

static void run_threads(const struct traffic *traffic, bool by_turns)
{
	struct shared *shared = test_alloc(sizeof(*shared));
	struct buffer first = { MEMORY_PHYS, 1, XS_DIRECTION_READ, 0 };

	shared->traffic = *traffic;
	test_replay(traffic->seed, 0);
	if (CHECK(begin(CPUS) && map(&first) && unmap_at(first.iova, true)) &&
	    test_threads(CPUS, by_turns ? traffic->seed : 0, work, shared)) {
		for (u32 i = 0; i < SLOTS; i++) {
			if (shared->slots[i])
				unmap(shared->slots[i]);
			test_free(shared->slots[i]);
		}
		if (shared->iova)
			shared->unmapped += unmap_at(shared->iova, true);
		CHECK(shared->mapped == shared->unmapped);
		end_empty();
	} else {
		end();
	}
	test_free(shared);
}

static void many_turns(u64 seed)
{
	const struct traffic many = { .seed = seed, .steps = 150, .used = SLOTS };

	run_threads(&many, true);
}

static void few_turns(u64 seed)
{
	const struct traffic few = { .seed = seed, .steps = 60, .used = 3,
				    .few = true };

	run_threads(&few, true);
}

static void rude_turns(u64 seed)
{
	const struct traffic rude = { .seed = seed, .steps = 40, .rude = true };

	run_threads(&rude, true);
}

static void freely(u64 seed)
{
	const struct traffic many = { .seed = seed, .steps = 2000, .used = SLOTS };
	const struct traffic few = { .seed = seed, .steps = 2000, .used = 70,
				    .few = true };

	run_threads(&many, false);
	run_threads(&few, false);
}

static void by_turns(void)
{
	test_seeds(60, many_turns);
}

static void by_turns_few(void)
{
	test_seeds(500, few_turns);
}

static void by_turns_rude(void)
{
	test_seeds(300, rude_turns);
}

static void at_once(void)
{
	test_seeds(4, freely);
}

/* ---- the pool of an engine ---- */

static struct xs_engine engine;

static bool begin_engine(u64 end)
{
	struct xs_engine_config config = {
		.ops = &ops, .end = end, .cpu_count = 1,
		.policy = xs_policy_find("copy"),
	};

	m.chunks_max = CHUNKS;
	return CHECK(!xs_engine_init(&engine, &config));
}

static void end_engine(void)
{
	m.going = m.chunks;
	xs_engine_destroy(&engine);
	CHECK(!m.allocations && !m.chunks && !world_warnings());
}

/* No IOVA inside the pool's range is handed out; the range is below 4 GiB if possible. */
static void check_apart(u64 end, u64 start)
{
	const u64 bytes = XS_CHUNK_BYTES > XS_BLOCK_BYTES ? XS_CHUNK_BYTES :
							    XS_BLOCK_BYTES;
	const u32 pages = (u32)(bytes / XS_PAGE_BYTES);
	u32 count = 0;
	u64 iova;

	if (!begin_engine(end))
		return;
	CHECK(!xs_pool_has(&engine.pool, 0) && !xs_pool_has(&engine.pool, ~0ULL));
	CHECK(!xs_engine_add_pool(&engine) && engine.pool.start == start);
	CHECK(xs_pool_has(&engine.pool, start) && !xs_pool_has(&engine.pool, start - 1));
	while ((iova = xs_engine_alloc_iova(&engine, pages, LAST))) {
		CHECK(!xs_pool_has(&engine.pool, iova));
		CHECK(iova + bytes <= end);
		count++;
	}
	/* The first block of the space is never handed out. */
	CHECK(count == (end - XS_POOL_BYTES) / bytes - 1);
	CHECK(xs_engine_live_pages(&engine) == (s64)count * pages);
	end_engine();
}

static void apart(void)
{
	check_apart(2 * XS_POOL_BYTES, XS_POOL_BYTES);
	check_apart((4ULL << 30) + 2 * XS_POOL_BYTES, XS_POOL_BYTES);
	/* There is no room for the pool, and none below. */
	if (!begin_engine(2 * XS_POOL_BYTES - 1))
		return;
	CHECK(xs_engine_add_pool(&engine) == -XS_ENOMEM);
	end_engine();
	/* The pool may use the space reserved for 32-bit devices. */
	if (!begin_engine(6ULL << 30) ||
	    !CHECK(!xs_space_reserve(&engine.space, 0, (4ULL << 30) - XS_POOL_BYTES - 1)))
		return;
	CHECK(!xs_engine_add_pool(&engine) &&
	      engine.pool.start == (4ULL << 30) - XS_POOL_BYTES);
	end_engine();
	if (!begin_engine(6ULL << 30) ||
	    !CHECK(!xs_space_reserve(&engine.space, 0, (4ULL << 30) - 1)))
		return;
	CHECK(!xs_engine_add_pool(&engine) && engine.pool.start == 4ULL << 30);
	end_engine();
}

/* An engine's retry includes the chunks of the pool. */
static void stuck_in_engine(void)
{
	u64 pages = XS_CHUNK_BYTES / XS_PAGE_BYTES;

	if (!begin_engine(2 * XS_POOL_BYTES) ||
	    !CHECK(!xs_engine_add_pool(&engine)))
		return;
	xs_enter();
	CHECK(!xs_pool_map(&engine.pool, MEMORY_PHYS, 8, XS_DIRECTION_WRITE, LAST, 0,
			   false));
	xs_exit();
	xs_pool_grow(&engine.pool);
	m.drops_fail = true;
	CHECK(m.chunks == 1 && !xs_pool_trim(&engine.pool, 0));
	CHECK(xs_engine_stuck_pages(&engine) == pages);
	CHECK(xs_engine_retry(&engine) == pages && m.chunks == 1);
	m.drops_fail = false;
	m.going = 1;
	CHECK(!xs_engine_retry(&engine) && !m.chunks);
	CHECK(!xs_engine_stuck_pages(&engine));
	end_engine();
}

/*
 * Without memory for the pool, at any point: the engine has no pool, and nothing is left
 * behind.
 */
static void no_memory(void)
{
	int error = -XS_ENOMEM;

	for (u32 fails_in = 1; error; fails_in++) {
		if (!begin_engine(2 * XS_POOL_BYTES))
			return;
		m.alloc_fails_in = fails_in;
		error = xs_engine_add_pool(&engine);
		CHECK(error == (m.alloc_fails_in ? 0 : -XS_ENOMEM));
		CHECK(error == 0 || engine.pool.start == XS_POOL_ABSENT);
		m.alloc_fails_in = 0;
		end_engine();
	}
}

/* Above the near leaves nothing exists yet, and there is no memory to record a reservation. */
static void no_memory_for_space(void)
{
	const u64 near = XS_PAGE_BYTES << XS_NEAR_LG2;

	if (!begin_engine(16 * near) ||
	    !CHECK(!xs_space_reserve(&engine.space, 0, near - 1)))
		return;
	m.alloc_fails_in = 1;
	CHECK(xs_engine_add_pool(&engine) == -XS_ENOMEM && !m.alloc_fails_in);
	CHECK(engine.pool.start == XS_POOL_ABSENT);
	CHECK(!xs_engine_add_pool(&engine) && engine.pool.start == near);
	end_engine();
}

/* Copied buffers are live and counted; the limit follows the tunables. */
static void lives(void)
{
	static struct xs_stats sum;
	struct xs_tuning tuning = xs_tuning_default(xs_policy_find("copy"));
	u64 iova, again;

	m.memory = test_alloc(MEMORY_BYTES);
	if (!begin_engine(2 * XS_POOL_BYTES) ||
	    !CHECK(!xs_engine_add_pool(&engine)))
		return;
	CHECK(engine.pool.limit == XS_POOL_MIB / 2 && tuning.copy_bytes == 4096);
	xs_enter();
	CHECK(!xs_pool_map(&engine.pool, MEMORY_PHYS, 300, XS_DIRECTION_BOTH, LAST, 0, true));
	xs_exit();
	xs_pool_grow(&engine.pool);
	m.now_ns += XS_POOL_DRY_NS;
	xs_enter();
	iova = xs_pool_map(&engine.pool, MEMORY_PHYS, 300, XS_DIRECTION_BOTH, LAST, 0, true);
	again = xs_pool_map(&engine.pool, MEMORY_PHYS, 200, XS_DIRECTION_READ, LAST, 0, true);
	xs_exit();
	CHECK(iova && !again && xs_engine_live_pages(&engine) == 1);
	CHECK(xs_engine_leak_check(&engine, &sum) == 1);
	CHECK(sum.counts.copied_maps == 1 && sum.counts.copied_bytes == 300);
	CHECK(sum.counts.copy_misses == 2 && !sum.counts.maps);
	xs_enter();
	CHECK(xs_pool_sync(&engine.pool, iova, 40, true));
	CHECK(xs_pool_sync(&engine.pool, iova, 7, false));
	CHECK(xs_pool_unmap(&engine.pool, iova, true));
	CHECK(!xs_pool_unmap(&engine.pool, iova, true));
	xs_exit();
	CHECK(!xs_engine_leak_check(&engine, &sum) && sum.counts.copied_bytes == 647);
	CHECK(sum.counts.copied_unmaps == 1);
	tuning.pool_mib = 7;
	tuning.copy_bytes = 100;
	xs_engine_set(&engine, xs_policy_find("copy"), &tuning);
	CHECK(engine.pool.limit == 3 && engine.tuning.copy_bytes == 100);
	/* The leak check detects a count that matches no mapping. */
	xs_enter();
	CHECK(xs_pool_map(&engine.pool, MEMORY_PHYS, 300, XS_DIRECTION_BOTH, LAST, 0, true));
	xs_exit();
	xs_count(engine.counts, copied_unmaps, 1);
	CHECK(xs_engine_leak_check(&engine, &sum) == -XS_EILSEQ);
	CHECK(world_warnings() == 1);
	end_engine();
	test_free(m.memory);
}

/* A concurrent reading never sees an unmap without the map. */
static void live_run(void *argument, u32 cpu)
{
	u64 *stopped = argument;

	for (u32 i = 0; cpu && i < 60 && !test_failed(); i++) {
		u64 iova;

		xs_enter();
		iova = xs_pool_map(&engine.pool, MEMORY_PHYS + 4096 * cpu, 60,
				   XS_DIRECTION_READ, LAST, 0, true);
		CHECK(!iova || xs_pool_unmap(&engine.pool, iova, true));
		xs_exit();
	}
	__atomic_fetch_add(stopped, 1, __ATOMIC_RELAXED);
	while (!cpu && !test_failed() &&
	       __atomic_load_n(stopped, __ATOMIC_RELAXED) < CPUS) {
		CHECK(xs_engine_live_pages(&engine) >= 0);
		test_relax();
	}
}

static void live_seed(u64 seed)
{
	struct xs_engine_config config = {
		.ops = &ops, .end = 2 * XS_POOL_BYTES, .cpu_count = CPUS,
		.policy = xs_policy_find("copy"),
	};
	u64 stopped = 0;

	test_replay(seed, 0);
	m.chunks_max = CHUNKS;
	m.memory = test_alloc(MEMORY_BYTES);
	if (!CHECK(!xs_engine_init(&engine, &config) &&
		   !xs_engine_add_pool(&engine)))
		return;
	xs_enter();
	CHECK(!xs_pool_map(&engine.pool, MEMORY_PHYS, 60, XS_DIRECTION_READ, LAST,
			   0, true));
	xs_exit();
	xs_pool_grow(&engine.pool);
	m.now_ns += XS_POOL_DRY_NS;
	if (!test_threads(CPUS, seed, live_run, &stopped))
		test_threads(CPUS, 0, live_run, &stopped);
	test_be_cpu(0);
	CHECK(!xs_engine_live_pages(&engine));
	end_engine();
	test_free(m.memory);
}

static void lives_meanwhile(void)
{
	test_seeds(100, live_seed);
}

const struct test pool_tests[] = {
	{ "pool_copies", copies },
	{ "pool_syncs", syncs },
	{ "pool_sizes", sizes },
	{ "pool_full", full },
	{ "pool_offsets", offsets },
	{ "pool_bad_unmaps", bad_unmaps },
	{ "pool_grows", grows },
	{ "pool_once", once },
	{ "pool_asks_again", asks_again },
	{ "pool_pauses", pauses },
	{ "pool_fails", fails },
	{ "pool_trims", trims },
	{ "pool_stuck_chunks", stuck_chunks },
	{ "pool_stuck_beside", stuck_beside },
	{ "pool_lost_chunks", lost_chunks },
	{ "pool_left_chunks", left_chunks },
	{ "pool_moves", moves },
	{ "pool_looks", looks },
	{ "pool_left_alone", left_alone },
	{ "pool_dry", dry },
	{ "pool_holes", holes },
	{ "pool_shared", shared, .threads = true },
	{ "pool_reopened", reopened },
	{ "pool_by_turns", by_turns, .threads = true },
	{ "pool_by_turns_few", by_turns_few, .threads = true },
	{ "pool_by_turns_rude", by_turns_rude, .threads = true },
	{ "pool_at_once", at_once, .threads = true },
	{ "pool_apart", apart },
	{ "pool_stuck_in_engine", stuck_in_engine },
	{ "pool_no_memory", no_memory },
	{ "pool_no_memory_for_space", no_memory_for_space },
	{ "pool_lives", lives },
	{ "pool_lives_meanwhile", lives_meanwhile, .threads = true },
	{ NULL, NULL },
};
