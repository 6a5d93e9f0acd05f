// SPDX-License-Identifier: GPL-2.0-only
/* Drivers at work; see traffic.h. */
#include "draw.h"
#include "allocator.h"
#include "step.h"
#include "tally.h"
#include "traffic.h"
#include "scale_world.h"

/* Mean time per buffer that the driver and the network stack spend besides mapping. */
#define PACKET_NS	200

/* Of a million buffers, @parts live @rings rings on average; 0: to the end. */
struct life {
	u32 parts;
	u32 rings;
};

#define LIVES 3

static const struct life lives[LIFE_COUNT][LIVES] = {
	[LIFE_MIXED] = { { 100000, 100 }, { 2000, 0 } },
	[LIFE_AGED] = { { 100000, 100 }, { 10000, 1000 }, { 100, 100000 } },
};

enum phase { PHASE_UNMAP, PHASE_MAP };

/*
 * struct cpu - a CPU and the CPU's driver
 * @left:	buffers to take from the ring, or to map, in this poll
 * @inbox_left:	buffers of other CPUs to unmap in this poll
 * @still:	buffers that stay mapped
 * @kept:	buffers unmapped by a batch-aware driver, freed after the driver's flush
 */
struct cpu {
	struct fifo ring;
	struct fifo inbox;
	struct fifo still;
	struct fifo kept;
	struct heap parked;
	enum phase phase;
	u32 left;
	u32 inbox_left;
	u64 polls;
};

struct traffic_count traffic_count;
bool traffic_stepping;

static struct cpu cpus[SCALE_CPUS];
static struct traffic_config traffic;
static struct xs_engine *engine;

#define CALL(call)			\
	do {				\
		if (traffic_stepping)	\
			step_begin();	\
		call;			\
		if (traffic_stepping)	\
			step_end();	\
	} while (0)

static u32 draw_pages(void)
{
	u32 lg2;

	if (traffic.pages)
		return traffic.pages;
	if (!traffic.sizes || draw(16))
		return 1;
	lg2 = draw(6);
	return (1u << lg2) + 1 + draw(1u << lg2);
}

static void map_one(struct fifo *to, u32 pages)
{
	struct packet packet = { .phys = memory_take(), .pages = pages };

	CALL(packet.iova = path_map(engine, packet.phys, packet.pages));
	if (!packet.iova)
		scale_fail("the engine has no IOVA left");
	fifo_add(to, &packet);
	traffic_count.maps++;
	traffic_count.mapped_pages += packet.pages;
}

static void unmap_one(struct cpu *cpu, const struct packet *packet)
{
	if (traffic.aware) {
		CALL(path_unmap_deferred(engine, packet->iova, packet->pages));
		fifo_add(&cpu->kept, packet);
	} else {
		CALL(path_unmap(engine, packet->iova, packet->pages));
		memory_put(packet->phys);
	}
	traffic_count.unmaps++;
	traffic_count.unmapped_pages += packet->pages;
}

static void finish_poll(struct cpu *cpu)
{
	struct world_cpu *world = &world_cpus[scale_cpu];

	if (traffic.aware)
		CALL(xs_engine_flush_explicit(engine, false));
	while (cpu->kept.count)
		memory_put(fifo_take(&cpu->kept).phys);
	if (world->deferred)
		CALL(world->deferred = !xs_engine_poll(engine));
}

/* A buffer is completed on this CPU; unmap the buffer here or on another CPU. */
static void complete(struct cpu *cpu, const struct packet *packet)
{
	u32 other;

	traffic_count.completed++;
	if (traffic.cpus == 1 || draw(100) >= traffic.elsewhere) {
		unmap_one(cpu, packet);
		return;
	}
	other = draw(traffic.cpus - 1);
	other += other >= scale_cpu;
	fifo_add(&cpus[other].inbox, packet);
	traffic_count.handed++;
}

/* Take a buffer that the device has filled. */
static void take_one(struct cpu *cpu)
{
	struct packet packet = fifo_take(&cpu->ring);
	u32 drawn = draw(1000000);

	for (u32 i = 0; i < LIVES; i++) {
		const struct life *life = &lives[traffic.life][i];

		if (drawn < life->parts) {
			packet.due = life->rings ? cpu->polls +
				draw_exponential((u64)life->rings * TRAFFIC_RING / TRAFFIC_POLL) :
				~0ULL;
			heap_add(&cpu->parked, &packet);
			return;
		}
		drawn -= life->parts;
	}
	complete(cpu, &packet);
}

static void start_poll(struct cpu *cpu)
{
	cpu->phase = PHASE_UNMAP;
	cpu->left = TRAFFIC_POLL;
	cpu->inbox_left = cpu->inbox.count;
}

static void do_one(struct cpu *cpu)
{
	tally_spend(PACKET_NS / 2 + draw(PACKET_NS));
	if (cpu->phase == PHASE_MAP) {
		map_one(&cpu->ring, draw_pages());
		if (!--cpu->left) {
			cpu->polls++;
			traffic_count.polls++;
			start_poll(cpu);
		}
	} else if (cpu->inbox_left && (!cpu->left || draw(2))) {
		struct packet packet = fifo_take(&cpu->inbox);

		cpu->inbox_left--;
		unmap_one(cpu, &packet);
	} else if (cpu->parked.count && cpu->parked.packets[0].due <= cpu->polls) {
		struct packet packet = heap_take(&cpu->parked);

		complete(cpu, &packet);
	} else if (cpu->left) {
		cpu->left--;
		take_one(cpu);
	} else {
		finish_poll(cpu);
		cpu->phase = PHASE_MAP;
		cpu->left = TRAFFIC_POLL;
	}
}

static void check_timer(void)
{
	struct world_cpu *world = &world_cpus[scale_cpu];

	if (!world->deadline_ns || world->deadline_ns > tally_now())
		return;
	world->deadline_ns = 0;
	CALL(world->deadline_ns = xs_engine_expire(engine, scale_cpu));
}

/* Models a work item of the kernel; runs on the next CPU. */
static void check_trim(void)
{
	if (!world_trim_wanted)
		return;
	world_trim_wanted = false;
	CALL(xs_engine_trim(engine));
}

void traffic_turn(void)
{
	scale_cpu = tally_next_cpu(traffic.cpus);
	check_timer();
	check_trim();
	do_one(&cpus[scale_cpu]);
}

struct xs_engine *traffic_begin(const struct traffic_config *config)
{
	traffic = *config;
	draw_seed(config->seed);
	scale_cpu = 0;
	engine = world_engine(config->policy, config->cpus, config->end);
	for (u32 i = 0; i < config->cpus; i++) {
		scale_cpu = i;
		/* Rings are filled and polled at different times. */
		tally_spend(draw(TRAFFIC_POLL * PACKET_NS));
		cpus[i].phase = PHASE_MAP;
		cpus[i].left = TRAFFIC_RING;
	}
	for (u32 i = 0; i < config->kept; i++) {
		scale_cpu = i % config->cpus;
		map_one(&cpus[scale_cpu].still, 1);
	}
	return engine;
}

static void each_of(const struct fifo *fifo, void (*tell)(const struct packet *packet))
{
	for (u32 at = 0; at < fifo->count; at++)
		tell(fifo_at(fifo, at));
}

void traffic_each(void (*tell)(const struct packet *packet))
{
	for (u32 i = 0; i < traffic.cpus; i++) {
		each_of(&cpus[i].ring, tell);
		each_of(&cpus[i].inbox, tell);
		each_of(&cpus[i].still, tell);
		for (u32 at = 0; at < cpus[i].parked.count; at++)
			tell(&cpus[i].parked.packets[at]);
	}
}

static void unmap_each(struct cpu *cpu, struct fifo *fifo)
{
	while (fifo->count) {
		struct packet packet = fifo_take(fifo);

		unmap_one(cpu, &packet);
	}
}

static void unmap_all(struct cpu *cpu)
{
	unmap_each(cpu, &cpu->ring);
	unmap_each(cpu, &cpu->inbox);
	unmap_each(cpu, &cpu->still);
	while (cpu->parked.count) {
		struct packet packet = heap_take(&cpu->parked);

		unmap_one(cpu, &packet);
	}
	finish_poll(cpu);
}

void traffic_end(void)
{
	static struct xs_stats stats;

	for (scale_cpu = 0; scale_cpu < traffic.cpus; scale_cpu++)
		unmap_all(&cpus[scale_cpu]);
	scale_cpu = 0;
	xs_engine_flush(engine, XS_FLUSH_DRAIN);
	if (memory_out())
		scale_fail("pages of memory are still held after the last flush");
	tally_on = false;
	if (xs_engine_leak_check(engine, &stats))
		scale_fail("mappings are left after the last unmap");
	xs_engine_destroy(engine);
}

const char *traffic_life_name(enum traffic_life life)
{
	static const char *const names[LIFE_COUNT] = {
		[LIFE_SHORT] = "short",
		[LIFE_MIXED] = "mixed",
		[LIFE_AGED] = "aged",
	};

	return names[life];
}
