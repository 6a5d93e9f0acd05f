// SPDX-License-Identifier: GPL-2.0-only
/*
 * Small buffers that are copied through the pool. A driver fills a buffer, maps the buffer by
 * the pool, lets the device write, and unmaps, on any CPU; the pool's worker adds and removes
 * memory. The device also writes to stale addresses.
 *
 * All bytes of a buffer have one value: @ours is the driver's last value, @theirs the device's
 * last value.
 */
#include <string.h>

#include "sim.h"

#define BUFFERS		40u
#define BUFFERS_ALIKE	4u
#define BUFFER_ROOM	(2 * XS_BOUNCE_MAX_BYTES)
/* The highest addresses of memory that any CPU has. */
#define BUFFERS_PHYS	((1ULL << 52) - BUFFERS * BUFFER_ROOM)
#define POOL_START	(1ULL << 50)
#define POOL_CHUNKS	(SIM_POOL_MIB >> (XS_CHUNK_LG2 - 20))
#define COPY_STALE	16u

struct buffer {
	u64 iova;
	u64 phys;
	u32 bytes;
	enum xs_direction direction;
	bool busy;		/* a call uses the buffer */
	bool mapped;
	u8 ours;
	u8 theirs;
};

static struct buffer buffers[BUFFERS];
static u8 memory[BUFFERS * BUFFER_ROOM];

/* The chunks that the IOMMU maps. */
static struct {
	u8 *memory;
	u32 direction;
} mapped[XS_CHUNKS_MAX];

static u64 stale[COPY_STALE];
static u32 stale_at;
static u32 chunks;
static bool working;	/* the pool's worker runs */
static bool wanted;

static u8 *memory_of(const struct buffer *buffer)
{
	return &memory[buffer->phys - BUFFERS_PHYS];
}

static bool is_filled(const u8 *bytes, u32 count, u8 value)
{
	return bytes[0] == value && !memcmp(bytes, bytes + 1, count - 1);
}

static void copy(u8 *to, const u8 *from, u32 bytes)
{
	/* Copy in two parts; other CPUs may have a turn in between. */
	u32 half = bytes / 2;

	memcpy(to, from, half);
	sim_point();
	memcpy(to + half, from + half, bytes - half);
}

void xs_copy_in(void *bounce, u64 phys, u32 bytes)
{
	copy(bounce, &memory[phys - BUFFERS_PHYS], bytes);
}

void xs_copy_out(u64 phys, const void *bounce, u32 bytes)
{
	copy(&memory[phys - BUFFERS_PHYS], bounce, bytes);
}

/* ---- backend of the pool ---- */

static u32 chunk_at(u64 iova)
{
	return (u32)((iova - POOL_START) >> XS_CHUNK_LG2);
}

/* Returns the memory that the device finds at @iova, NULL if nothing is mapped. */
static u8 *bounce_at(u64 iova)
{
	u8 *chunk = mapped[chunk_at(iova)].memory;

	return chunk ? chunk + (iova & (XS_CHUNK_BYTES - 1)) : NULL;
}

void *copy_add_chunk(void *world, u64 iova, u32 direction, bool *not_undone)
{
	u32 at = chunk_at(iova);

	if (at >= XS_CHUNKS_MAX || mapped[at].memory)
		sim_fail("copies", "chunk %u is added twice", at);
	if (sim_fault(FAULT_TABLE))
		return NULL;
	if (++chunks > POOL_CHUNKS)
		sim_fail("copies", "the pool has %u chunks, and may have %u", chunks, POOL_CHUNKS);
	mapped[at].memory = memory_alloc(world, XS_CHUNK_BYTES, XS_ANY_CPU, false);
	mapped[at].direction = direction;
	return mapped[at].memory;
}

bool copy_drop_chunk(void *world, u64 iova, void *chunk)
{
	u32 at = chunk_at(iova);

	if (at >= XS_CHUNKS_MAX || mapped[at].memory != chunk)
		sim_fail("copies", "chunk %u is dropped, and is another one", at);
	for (u32 i = 0; i < BUFFERS; i++)
		if (buffers[i].mapped && chunk_at(buffers[i].iova) == at)
			sim_fail("copies", "chunk %u is dropped, and has copies", at);
	mapped[at].memory = NULL;
	chunks--;
	memory_free(world, chunk, XS_CHUNK_BYTES);
	return true;
}

void copy_short_of(void *world)
{
	(void)world;
	wanted = true;
}

/* ---- the driver ---- */

static bool reads(const struct buffer *buffer)
{
	return buffer->direction != XS_DIRECTION_WRITE;
}

static bool writes(const struct buffer *buffer)
{
	return buffer->direction != XS_DIRECTION_READ;
}

/* The buffer has an exclusive bounce buffer, in memory mapped for the buffer's direction only. */
static void check_mapped(const struct buffer *buffer)
{
	u32 at = chunk_at(buffer->iova);

	if (at >= XS_CHUNKS_MAX || !mapped[at].memory ||
	    mapped[at].direction != buffer->direction ||
	    chunk_at(buffer->iova + buffer->bytes - 1) != at)
		sim_fail("copies", "%u bytes are copied to %llx, where the device cannot be",
			 buffer->bytes, (unsigned long long)buffer->iova);
	for (u32 i = 0; i < BUFFERS; i++) {
		const struct buffer *other = &buffers[i];

		if (other != buffer && other->mapped &&
		    other->iova < buffer->iova + buffer->bytes &&
		    buffer->iova < other->iova + other->bytes)
			sim_fail("copies", "two copies are at %llx",
				 (unsigned long long)buffer->iova);
	}
}

static void check_bytes(const struct buffer *buffer, const u8 *bytes, u8 value, const char *where)
{
	if (!is_filled(bytes, buffer->bytes, value))
		sim_fail("copies", "%u bytes at %llx are not what they should be, in %s",
			 buffer->bytes, (unsigned long long)buffer->iova, where);
}

static void choose(struct buffer *buffer)
{
	buffer->bytes = 1 + sim_draw(1u << (6 + sim_draw(7)));
	buffer->direction = (enum xs_direction)sim_draw(XS_DIRECTIONS);
	if (sim.config.copy_alike) {
		buffer->bytes = XS_BOUNCE_MAX_BYTES - sim_draw(2);
		buffer->direction = XS_DIRECTION_BOTH;
	}
}

static void map(struct buffer *buffer)
{
	bool copies = sim_draw(4);

	choose(buffer);
	buffer->phys = BUFFERS_PHYS + (buffer - buffers) * BUFFER_ROOM +
		       sim_draw(XS_BOUNCE_MAX_BYTES);
	buffer->ours = (u8)sim_draw(256);
	buffer->theirs = buffer->ours;
	memset(memory_of(buffer), buffer->ours, buffer->bytes);
	sim.copying++;
	sim_call_begin(0);
	xs_enter();
	buffer->iova = xs_pool_map(&sim.engine.pool, buffer->phys, buffer->bytes, buffer->direction,
				   ~0ULL, 0, copies);
	xs_exit();
	sim_call_end();
	sim.copying--;
	if (!buffer->iova)
		return;
	sim.copied++;
	check_mapped(buffer);
	if (copies || writes(buffer))
		check_bytes(buffer, bounce_at(buffer->iova), buffer->ours, "the bounce buffer");
	else
		memset(bounce_at(buffer->iova), buffer->ours, buffer->bytes);
	buffer->mapped = true;
}

static void unmap(struct buffer *buffer)
{
	bool copies = sim_draw(4);
	bool done;

	/* Another buffer may get the bounce buffer from here on. */
	buffer->mapped = false;
	sim.uncopying++;
	sim_call_begin(0);
	xs_enter();
	done = xs_pool_unmap(&sim.engine.pool, buffer->iova + sim_draw(buffer->bytes), copies);
	xs_exit();
	sim_call_end();
	sim.uncopying--;
	sim.uncopied++;
	stale[stale_at++ % COPY_STALE] = buffer->iova;
	if (!done)
		sim_fail("copies", "nothing is copied at %llx", (unsigned long long)buffer->iova);
	check_bytes(buffer, memory_of(buffer),
		    copies && writes(buffer) ? buffer->theirs : buffer->ours, "memory");
}

static void sync(struct buffer *buffer)
{
	bool to_device = sim_draw(2);
	bool done;

	if (to_device) {
		buffer->ours = (u8)sim_draw(256);
		memset(memory_of(buffer), buffer->ours, buffer->bytes);
	}
	xs_enter();
	done = xs_pool_sync(&sim.engine.pool, buffer->iova, buffer->bytes, to_device);
	xs_exit();
	if (!done)
		sim_fail("copies", "nothing is synced at %llx", (unsigned long long)buffer->iova);
	if (to_device && reads(buffer))
		buffer->theirs = buffer->ours;
	else if (!to_device && writes(buffer))
		buffer->ours = buffer->theirs;
	check_bytes(buffer, memory_of(buffer), buffer->ours, "memory");
	check_bytes(buffer, bounce_at(buffer->iova), buffer->theirs, "the bounce buffer");
}

/* ---- the device ---- */

static void device_writes(struct buffer *buffer)
{
	if (!writes(buffer))
		return;
	buffer->theirs = (u8)sim_draw(256);
	memset(bounce_at(buffer->iova), buffer->theirs, buffer->bytes);
}

static bool is_owned(u64 iova)
{
	for (u32 i = 0; i < BUFFERS; i++)
		if ((buffers[i].mapped || buffers[i].busy) &&
		    iova >> XS_BOUNCE_MAX_LG2 == buffers[i].iova >> XS_BOUNCE_MAX_LG2)
			return true;
	return false;
}

/*
 * Write to memory that is in no bounce buffer. While a map runs, such memory cannot be told
 * apart.
 */
static void device_writes_late(void)
{
	u64 iova = stale[sim_draw(COPY_STALE)];

	if (!iova || sim.copying || is_owned(iova) || !bounce_at(iova) ||
	    mapped[chunk_at(iova)].direction == XS_DIRECTION_READ)
		return;
	*bounce_at(iova) ^= 0xff;
}

/* ---- the pool's worker ---- */

static void work(void)
{
	if (working || sim_me->interrupted)
		return;
	working = true;
	if (sim_draw(2) || !wanted)
		xs_pool_trim(&sim.engine.pool, sim_draw(2));
	if (wanted) {
		wanted = false;
		xs_pool_grow(&sim.engine.pool);
		/* Let enough time pass that all CPUs look for pool memory again. */
		time_pass(XS_POOL_DRY_NS);
	}
	working = false;
}

void copy_step(void)
{
	struct buffer *buffer = &buffers[sim_draw(sim.config.copy_alike ? BUFFERS_ALIKE : BUFFERS)];

	if (!sim_draw(sim.config.copy_alike ? 4 : 24)) {
		work();
		return;
	}
	if (!sim_draw(8))
		device_writes_late();
	if (buffer->busy)
		return;
	buffer->busy = true;
	if (!buffer->mapped)
		map(buffer);
	else if (sim_draw(3))
		unmap(buffer);
	else if (sim_draw(2))
		sync(buffer);
	else
		device_writes(buffer);
	buffer->busy = false;
}

void copy_begin(void)
{
	memset(buffers, 0, sizeof(buffers));
	memset(mapped, 0, sizeof(mapped));
	memset(stale, 0, sizeof(stale));
	stale_at = 0;
	chunks = 0;
	working = false;
	wanted = false;
	if (!sim.config.step[STEP_COPY])
		return;
	if (!xs_pool_init(&sim.engine.pool, &sim_ops, NULL, POOL_START, sim.config.cpus,
			  sim.engine.counts))
		sim_fail("world", "the pool cannot be made");
	xs_pool_limit(&sim.engine.pool, POOL_CHUNKS);
}

/* Unmap all buffers. Then the pool is unused, and all pool memory can go. */
void copy_end(void)
{
	if (!sim.config.step[STEP_COPY])
		return;
	for (u32 i = 0; i < BUFFERS; i++)
		if (buffers[i].mapped)
			unmap(&buffers[i]);
	xs_pool_trim(&sim.engine.pool, 0);
	for (u32 i = 0; i < XS_CHUNKS_MAX; i++)
		if (mapped[i].memory)
			sim_fail("copies", "chunk %u is empty, and is not dropped", i);
	if (sim.engine.pool.count)
		sim_fail("copies", "no chunk is there, and %u are counted", sim.engine.pool.count);
}
