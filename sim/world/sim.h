/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * The simulated world: CPUs, memory, an IOMMU with its caches and its queue,
 * devices, and a driver that uses the engine.
 *
 * A run is a sequence of steps. Each is one thing that a CPU does (map, unmap,
 * end a poll, ...) and draws all it needs from a stream of its own, made of the
 * seed and the step's number; so one that is left out changes little of the
 * others, and a failing run can be made shorter. There is one world at a time.
 */
#ifndef SIM_H
#define SIM_H

#include <xsmmu/engine.h>

#include "config.h"
#include "event.h"

#define SIM_BLOCKS	320u
#define SIM_PAGES	(SIM_BLOCKS * 64u)	/* of IOVA */
#define SIM_MEMORY	4096u			/* pages that are allocated */
#define SIM_DEVICES	4u
#define SIM_MAPPINGS	4096u
#define SIM_PARTS	6u
#define SIM_STALE	64u
#define SIM_LOW_PAGES	(1ULL << XS_LOW_LG2)	/* of 4 GiB */

/* Memory beyond SIM_MEMORY is never freed: device registers and the like. */
#define SIM_PERMANENT	(1u << 20)

/* ---- CPUs ---- */

struct sim_cpu {
	u64 stream;		/* of the running step */
	u64 step;
	u64 off_since_ns;
	u64 points;		/* passed so far */
	u64 off_since_points;	/* when interrupts went off, of these */
	u32 off_pages;		/* removed and released since then */
	u64 deadline_ns;	/* of its timer, 0: none */
	u64 fires_ns;		/* the same, as late as the timer is */
	u32 off;		/* interrupts, how often */
	u32 locks;
	bool started;		/* has a stack that runs */
	bool busy;		/* in a step */
	bool interrupted;	/* runs an interrupt */
	u32 straying;		/* in a call that is to be ignored, how often */
	u32 warnings;		/* in those */
	u32 causes;		/* of a flush, that the running call can have */
	u64 map;		/* the number of the running one, 0: none */
	u64 map_began_ns;
	struct sim_unflushed unflushed;
	u32 handed_page;	/* the last one that a driver got here */
	bool has_batch;		/* the engine got memory for it */
	u32 entered;		/* calls of the engine, nested */
	u64 exits;		/* from the outermost one, so far */
	u32 bound;		/* its task cannot be moved, how often */
	bool online;
	bool retiring;		/* until then it does not come back */
	bool poll_due;
	bool polling;
};

/* A mapping of the driver. @memory[i]: first page of part i, of @kind[i]. */
struct sim_mapping {
	u64 iova;
	u32 pages;
	u32 prot;
	bool scattered;
	u32 part_count;
	u32 gap_pages;		/* that stay unfilled, */
	u32 gap_part;		/* before this part */
	u32 memory[SIM_PARTS];
	u32 part_pages[SIM_PARTS];
	u8 kind[SIM_PARTS];	/* enum sim_memory_kind */
	u8 device;
	u64 era;		/* of the policy, when it was mapped */
	u32 named;		/* pages, by unmaps that are not its own */
};

struct sim_failure {
	bool failed;
	const char *checker;
	char text[200];
};

struct sim_world {
	struct sim_config config;
	struct xs_engine engine;
	struct sim_cpu cpus[SIM_CPUS];
	struct sim_failure failure;

	u64 now_ns;
	u64 next_timer_ns;
	u64 off_most_points;	/* in one stretch without interrupts */
	u32 off_most_pages;
	u64 off_max_ns;		/* interrupts, in this epoch and the last one */
	u64 off_old_ns;
	u64 epoch_end_ns;
	u64 steps;		/* begun */
	u64 operations;		/* calls of the engine */
	u64 maps_begun;
	u64 digest;
	u32 calls;		/* of the engine, running */
	u32 expiring;		/* timers in their handler */
	bool calm;		/* the end: no more faults */

	/* The driver. */
	struct sim_mapping live[SIM_MAPPINGS];	/* a ring */
	u32 live_first;
	u32 live_count;
	u32 in_flight;		/* mappings that a running call is about */
	u32 unmap_serial;
	u32 map_serial;
	bool setting;		/* the policy is being changed */
	bool direct;		/* entries are written in place, now */
	bool forgetting;	/* and soon not any more */
	u64 era;		/* of the policy: another one, or two of them */
	u32 mapping;		/* calls that map, running; */
	u32 mapping_pages;	/* their pages, */
	u32 unmapping_pages;	/* and those of calls that unmap */
	u32 mending;		/* pages named in parts, all of their mapping, and not given back */
	bool trimming;		/* somebody has the engine trim, mend or try again */
	u32 refusals;		/* removals to fail; ~0: until one is tried again */
	bool stuck[SIM_PAGES];	/* what the engine has told of */
	bool retry_due;		/* it has to be called again for that */
	u64 unstuck;		/* pages that were removed then */
	bool weak;		/* one in force gives a batch-aware driver less than strict */
	u64 weak_periods;
	u32 stale[SIM_STALE];	/* IOVA pages unmapped last, to be attacked; a ring */
	u32 stale_at;

	u64 copied, uncopied;	/* buffers that were mapped by copies, and unmapped */
	u32 copying, uncopying;	/* calls that do, running */

	/* What the world counted, to compare with the statistics. */
	u64 maps, mapped_pages, map_failures, unmaps, unmapped_pages;
	u64 commands_page, commands_domain, accesses, bad_unmaps;
	u64 flushes[XS_FLUSH_COUNT];
	u64 memory_out, allocations;
	u64 faults[FAULT_COUNT];
};

extern struct sim_world sim;

/* ---- draws, from the stream of the running step ---- */

extern struct sim_cpu *sim_me;	/* the CPU that runs, NULL: outside of all */
extern bool sim_from_bytes;

/* The same from a fuzzer's input, used up from the instance, while there is some. */
u32 sim_draw_byte(u32 limit);

/*
 * A number below @limit, which is not 0. Source: wyrand, Wang Yi. One draw an
 * expression: in which order a compiler evaluates two is its own choice.
 */
static inline u32 sim_draw(u32 limit)
{
	__uint128_t product;

	if (xs_unlikely(sim_from_bytes))
		return sim_draw_byte(limit);
	sim_me->stream += 0xa0761d6478bd642f;
	product = (__uint128_t)sim_me->stream * (sim_me->stream ^ 0xe7037ed1a0b428db);
	return (u32)((u64)(u32)(product >> 64 ^ product) * limit >> 32);
}

/* True once in @one_in, never for 0. */
static inline bool sim_chance(u32 one_in)
{
	return one_in && !sim_draw(one_in);
}

/* Draw whether a fault happens now, and count it. */
static inline bool sim_fault(enum sim_fault fault)
{
	if (sim.calm || !sim_chance(sim.config.fault[fault]))
		return false;
	sim.faults[fault]++;
	return true;
}

/* @causes: of a flush, that it can have */
static inline void sim_call_begin(u32 causes)
{
	sim_me->causes = causes;
	sim.calls++;
	sim.operations++;
}

/* A call that maps @pages pages. */
static inline void sim_map_begin(u32 pages)
{
	sim.mapping++;
	sim.mapping_pages += pages;
	sim_me->map = ++sim.maps_begun;
	sim_me->map_began_ns = sim.now_ns;
	sim_call_begin(XS_FLUSH_BIT(XS_FLUSH_FULL));
}

static inline void sim_call_end(void)
{
	sim.calls--;
}

static inline void sim_map_end(u32 pages)
{
	sim_call_end();
	sim_me->map = 0;
	sim.mapping_pages -= pages;
	sim.mapping--;
}

/* The CPU that runs has removed or released pages. */
static inline void sim_worked(u32 pages)
{
	if (sim_me->off)
		sim_me->off_pages += pages;
}

/* ---- IOVAs: pages have numbers, from the first of the space on ---- */

static inline u64 sim_first_page(void)
{
	return sim.config.low_blocks ? SIM_LOW_PAGES - sim.config.low_blocks * XS_BLOCK_PAGES : 0;
}

static inline u32 sim_page_of(u64 iova)
{
	return (u32)((iova >> XS_PAGE_LG2) - sim_first_page());
}

static inline u64 sim_iova_of(u32 page)
{
	return (sim_first_page() + page) << XS_PAGE_LG2;
}

/* Are all of them of the space? */
static inline bool sim_is_inside(u64 iova, u64 pages)
{
	u64 page = (iova >> XS_PAGE_LG2) - sim_first_page();

	return !(iova & (XS_PAGE_BYTES - 1)) && pages &&
	       page < sim.config.blocks * XS_BLOCK_PAGES &&
	       pages <= sim.config.blocks * XS_BLOCK_PAGES - page;
}

/* ---- a run ---- */

/* Which steps of a run are left out, and where draws come from. */
struct sim_run {
	u64 seed;
	u64 operations;		/* to end after */
	const u8 *skipped;	/* a bit per step, NULL: none */
	u64 skipped_steps;	/* bits there are */
	const u8 *bytes;	/* draws come from here, NULL: from the seed */
	size_t byte_count;
	bool traced;		/* print each event */
};

/* Run @run in a new world of @config; sim.failure says how it ended. */
void sim_run(const struct sim_config *config, const struct sim_run *run);

/* A checker's finding: ends the run. Does not return. */
_Noreturn void sim_fail(const char *checker, const char *format, ...)
	__attribute__((format(printf, 2, 3)));

/* Tell the checkers, the digest and the trace. */
void sim_event(enum sim_event_kind kind, u32 cpu, u32 page, u32 pages, u32 a, u64 b);

/* Print an event (trace.c). */
void trace_event(const struct sim_event *event);

/* ---- parts of the world, each in its own file ---- */

/* cpu.c */
void cpus_begin(const struct sim_run *run);
void cpus_run(void (*only)(void));	/* that on CPU 0, NULL: steps on all */
void cpus_stop(void);		/* go back to cpus_run()'s caller, for ever */
bool sim_step_begin(void);	/* the next step's stream; false: none left */
void sim_interrupt_if_due(void);	/* a timer's */
void cpus_quiesce(void *world);

/* time.c */
void time_pass(u64 ns);
void time_jump(void);
void time_fire(void);		/* timers that are due; interrupts are on */
u64 time_clock(void *world);
void time_deferred(void *world, u32 cpu, bool arm, u64 deadline_ns);

/* memory.c */
void memory_begin(void);
void memory_end(void);		/* free what the engine has */
bool memory_take(u32 pages, enum sim_memory_kind kind, u32 *first);
void memory_drop(u32 first, u32 pages, enum sim_memory_kind kind);
void *memory_alloc(void *world, size_t bytes, u32 cpu, bool atomic);
void memory_free(void *world, void *memory, size_t bytes);

/* table.c */
void table_begin(void);
int table_map(u32 page, u32 pages, u64 entry);
void table_remove(xs_gather_t *gather, u32 page, u32 pages);
void table_free(xs_gather_t *gather);
void table_write(u32 last, u32 page, u64 entry);
u32 table_directory(u32 page);		/* what the root says; 0: none */
u32 table_last(u32 directory, u32 page);
u64 table_entry(u32 last, u32 page);
u32 table_generation(u32 table);	/* changes when it is freed */

/* cache.c */
void cache_begin(void);
void cache_access(u32 device, u32 page, bool write);
void cache_absence(u32 page, u32 pages);
void cache_evict(void);
void cache_invalidate_iommu(u32 page, u32 pages, bool hint);
void cache_invalidate_device(u32 device, u32 page, u32 pages);

/* queue.c */
void queue_begin(void);
void queue_flush(const struct xs_range *range, bool hint);
void queue_hardware(void);	/* the IOMMU executes the next command */

/* sim_iommu.c */
extern const struct xs_backend_ops sim_ops;

/* device.c */
void device_look(void);		/* a device accesses memory */
void device_note_stale(u32 page);	/* of IOVA, to be attacked from now on */

/* driver.c */

/*
 * Does an unmap without a flush promise that nothing is left after the driver's?
 * It does if all policies that were in force, from before it to after it, say so.
 */
struct driver_promise {
	u64 weak_periods;
	bool strict;
};

struct driver_promise driver_promise_begin(void);
bool driver_promise_end(const struct driver_promise *promise);

/* What can flush in a call that unmaps. */
#define CAUSES_OF_UNMAP	(XS_FLUSH_BIT(XS_FLUSH_UNMAP) | XS_FLUSH_BIT(XS_FLUSH_BLOCK) | \
			 XS_FLUSH_BIT(XS_FLUSH_FULL))

void driver_start(void);
bool driver_step_mapping(u32 step);	/* false: it is none of the driver's */
bool driver_map(u32 pages, u64 last);	/* 0 pages: any mapping */
u32 driver_kind(void);		/* draw a kind of memory */
u64 driver_limit(void);		/* draw the highest address of a device */
void driver_tell_mapped(u32 page, u32 pages, u32 memory, u32 prot);
void driver_tell_handed(u32 page, u32 pages, u64 last, bool reserved);
void driver_unmap(const struct sim_mapping *mapping, bool now);
void driver_unmap_index(u32 index, bool now);	/* of those that are mapped */
void driver_flush(bool everywhere);	/* a batch-aware driver's, of its unmaps */
void driver_flush_maps(bool everywhere);	/* and of its maps */
void driver_unmap_twice(void);
void driver_bad_unmap(void);	/* unmap what is not mapped so */

/* What can flush in a call that unmaps what is not mapped so. */
#define CAUSES_OF_BAD_UNMAP	(CAUSES_OF_UNMAP | XS_FLUSH_BIT(XS_FLUSH_EXPLICIT))

/* The two ends of an unmap. @how: UNMAP_*. Returns its serial. */
u32 driver_unmap_begin(const struct sim_mapping *mapping, u32 how);
void driver_unmap_end(const struct sim_mapping *mapping, u32 cpu, u32 serial, bool nothing_left);

/*
 * A batch-aware driver's unmap, without its flush and its end. Returns whether nothing may
 * be left after the flush; *@serial: for the end.
 */
bool driver_unmap_deferred(const struct sim_mapping *mapping, u32 *serial);

/* operator.c */
void operator_step(void);
void operator_interrupt(void);
void operator_tell(const struct xs_policy *policy, const struct xs_tuning *tuning, bool changing);
void operator_flush(enum xs_flush_point cause);
void operator_retire(u32 cpu);

/* life.c */
void life_begin(void);		/* make the engine */
void life_end(void);		/* unmap all, and see that nothing is left */
void life_trim(bool all);	/* have it give back what is gone; @all: memory, too */
void life_retry(void);		/* have it remove what is stuck */

/* aware_driver.c: blocks of a batch-aware driver */
void block_begin(void);
void block_step(void);
void block_end(void);		/* give all back */

/* copy.c: buffers that are copied, and the pool's world */
void copy_begin(void);
void copy_step(void);
void copy_end(void);		/* unmap all */
void *copy_add_chunk(void *world, u64 iova, u32 direction, bool *left);
bool copy_drop_chunk(void *world, u64 iova, void *memory);
void copy_short_of(void *world);

/* path.c: the inline one-page paths of the engine */
u64 path_map_one(struct xs_engine *engine, u64 phys, u32 prot, u64 last);
void path_unmap_one(struct xs_engine *engine, u64 iova);
void path_unmap_one_deferred(struct xs_engine *engine, u64 iova);

#endif
