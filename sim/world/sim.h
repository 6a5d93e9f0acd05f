/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * The simulated world: CPUs, memory, an IOMMU with caches and a queue, devices, and a driver
 * that uses the engine.
 *
 * A run is a sequence of steps. A step is one action of a CPU (map, unmap, end a poll, ...).
 * Each step draws from a separate stream, derived from the seed and the step's number. Leaving
 * out a step changes little of other steps, so a failing run can be shortened. There is one
 * world at a time.
 */
#ifndef SIM_H
#define SIM_H

#include <xsmmu/engine.h>

#include "config.h"
#include "event.h"

#define SIM_BLOCKS	320u
/* Of IOVA: the blocks, a gap of at least a block up to the next page-table page, the window. */
#define SIM_PAGES	(SIM_BLOCKS * 64u + 64u + XS_TABLE_PAGES + SIM_WINDOW)
#define SIM_DEVICES	4u
#define SIM_MAPPINGS	4096u
#define SIM_PARTS	6u
#define SIM_STALE	64u
#define SIM_LOW_PAGES	(1ULL << XS_LOW_LG2)	/* of 4 GiB */

/*
 * Memory beyond SIM_MEMORY is never freed: device registers and the like. The first SIM_REGISTERS
 * pages are in the window, all others are at SIM_PERMANENT.
 */
#define SIM_PERMANENT	(1u << 20)

/* ---- CPUs ---- */

struct sim_cpu {
	u64 stream;		/* of the running step */
	u64 step;
	u64 off_since_ns;
	u64 points;		/* points passed so far */
	u64 step_since_points;	/* value of @points when the task's step began */
	u64 off_since_points;	/* value of @points when interrupts went off */
	u64 off_since_events;	/* value of the world's @events then */
	u32 off_pages;		/* removed and released since then */
	u64 deadline_ns;	/* of the CPU's timer, 0: none */
	u64 fires_ns;		/* deadline plus the timer's lateness */
	u32 off;		/* nesting depth of disabled interrupts */
	u32 locks;
	bool started;		/* has a stack that runs */
	bool busy;		/* in a step */
	bool interrupted;	/* runs an interrupt */
	u32 straying;		/* nesting depth of bad unmaps */
	u32 warnings;		/* in bad unmaps */
	u32 causes;		/* flush causes that the running call allows */
	u64 map;		/* number of the running map, 0: none */
	u64 map_began_ns;
	struct sim_unflushed unflushed;
	u32 handed_page;	/* last page handed to a driver here */
	bool has_batch;		/* the engine got memory for the batch */
	u32 entered;		/* nested calls of the engine */
	u64 exits;		/* returns from outermost calls so far */
	u32 bound;		/* nesting depth of pinning to this CPU; see sim_migrate() */
	bool online;
	bool retiring;		/* the CPU stays offline until this ends */
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
	u32 gap_pages;		/* pages of an unfilled gap */
	u32 gap_part;		/* the part behind the gap */
	u32 memory[SIM_PARTS];
	u32 part_pages[SIM_PARTS];
	u8 kind[SIM_PARTS];	/* enum sim_memory_kind */
	u8 device;
	u64 era;		/* of the policy at the map */
	u32 named;		/* pages named by bad unmaps */
};

/*
 * A page of the identity window: @mappings that drivers have, and running @calls that map the page
 * or unmap it.
 */
struct sim_window_page {
	u32 mappings;
	u32 calls;
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
	u64 step_most_points;	/* in one step, without interrupts */
	u64 off_most_points;	/* in one stretch without interrupts */
	u32 off_most_pages;
	u64 off_max_ns;		/* longest interrupts-off times, this and last epoch */
	u64 off_old_ns;
	u64 epoch_end_ns;
	u64 steps;		/* begun */
	u64 events;
	u64 operations;		/* calls of the engine */
	u64 maps_begun;
	u64 digest;
	u32 calls;		/* running calls of the engine */
	u32 expiring;		/* timers in their handler */
	bool calm;		/* the end: no more faults */

	/* The driver. */
	struct sim_mapping live[SIM_MAPPINGS];	/* a ring */
	u32 live_first;
	u32 live_count;
	u32 in_flight;		/* mappings used by a running call */
	u32 unmap_serial;
	u32 map_serial;
	bool setting;		/* the policy is being changed */
	bool direct;		/* entries are written in place now */
	bool forgetting;	/* and the end of direct writes has begun */
	u64 era;		/* of the policy; a change of policy begins and ends an era */
	u32 map_steps;		/* running steps, or parts of them, that map */
	u32 mapping_pages;	/* pages of these calls */
	u32 unmapping_pages;	/* pages of running calls that unmap */
	u32 mending;		/* pages of wholly named mappings, not given back */
	bool trimming;		/* a trim, mend or retry call is running */
	bool trim_due;		/* the engine has asked for a trim */
	u32 refusals;		/* removals that fail; ~0: until a retry */
	bool stuck[SIM_PAGES];	/* pages that the engine has reported as stuck */
	bool retry_due;		/* the engine must be called for a retry */
	u64 unstuck;		/* pages removed by retries */
	bool weak;		/* a policy in force gives a batch-aware driver less than strict */
	u64 weak_periods;
	u32 window;		/* first page of the identity window, 0: none */
	u32 window_pages;
	struct sim_window_page in_window[SIM_WINDOW];	/* by page of memory */
	u32 locked, locked_pages;	/* pages of memory that no driver may map now */
	u32 stale[SIM_STALE];	/* IOVA pages unmapped last, targets of attacks; a ring */
	u32 stale_at;

	u64 copied, uncopied;	/* counts of copied buffers, mapped and unmapped */
	u32 copying, uncopying;	/* running calls that map and unmap copied buffers */

	/* The world's counts, to compare with the statistics. */
	u64 maps, mapped_pages, map_failures, unmaps, unmapped_pages;
	u64 commands_page, commands_domain, accesses, bad_unmaps;
	u64 flushes[XS_FLUSH_COUNT];
	u64 memory_out, allocations;
	u64 faults[FAULT_COUNT];
};

extern struct sim_world sim;

/* ---- draws, from the stream of the running step ---- */

extern struct sim_cpu *sim_me;	/* the running CPU, NULL: outside of all CPUs */
extern bool sim_from_bytes;

/* Draw from a fuzzer's input while there is some left. */
u32 sim_draw_byte(u32 limit);

/*
 * Draw a number below @limit, which is not 0. Source: wyrand, Wang Yi. Use one draw per
 * expression: the compiler chooses the order of evaluation.
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

/* Draw whether a fault happens now, and count faults. */
static inline bool sim_fault(enum sim_fault fault)
{
	if (sim.calm || !sim_chance(sim.config.fault[fault]))
		return false;
	sim.faults[fault]++;
	return true;
}

/* Begin a call of the engine. @causes: flush causes that the call allows. */
static inline void sim_call_begin(u32 causes)
{
	sim_me->causes = causes;
	sim.calls++;
	sim.operations++;
}

/* Begin a call that maps @pages pages. */
static inline void sim_map_begin(u32 pages)
{
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
}

/* The running CPU has removed or released @pages pages. */
static inline void sim_worked(u32 pages)
{
	if (sim_me->off)
		sim_me->off_pages += pages;
}

/* ---- IOVAs: pages are numbered from the start of the space ---- */

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

/* Is this a page of the identity window? */
static inline bool sim_is_window(u32 page)
{
	return sim.window && page >= sim.window;
}

/* Are all @pages pages inside the space, or all inside the identity window? */
static inline bool sim_is_inside(u64 iova, u64 pages)
{
	u64 page = (iova >> XS_PAGE_LG2) - sim_first_page();
	u64 size = sim.config.blocks * XS_BLOCK_PAGES;

	if (sim.window && page >= sim.window) {
		page -= sim.window;
		size = sim.window_pages;
	}
	return !(iova & (XS_PAGE_BYTES - 1)) && pages && page < size && pages <= size - page;
}

/* End of the pages of IOVA that this run uses. */
static inline u32 sim_end_page(void)
{
	return sim.window ? sim.window + sim.window_pages : sim.config.blocks * XS_BLOCK_PAGES;
}

/* ---- a run ---- */

/* The steps left out of a run, and the source of draws. */
struct sim_run {
	u64 seed;
	u64 operations;		/* end of the run */
	const u8 *skipped;	/* a bit per step to leave out, NULL: none */
	u64 skipped_steps;	/* number of bits */
	const u8 *bytes;	/* source of draws, NULL: the seed */
	size_t byte_count;
	bool traced;		/* print each event */
};

/* Run @run in a new world of @config; sim.failure says how the run ended. */
void sim_run(const struct sim_config *config, const struct sim_run *run);

/* Report a checker's finding and end the run. Does not return. */
_Noreturn void sim_fail(const char *checker, const char *format, ...)
	__attribute__((format(printf, 2, 3)));

/* Pass an event to the checkers, the digest and the trace. */
void sim_event(enum sim_event_kind kind, u32 cpu, u32 page, u32 pages, u32 a, u64 b);

/* Print an event (trace.c). */
void trace_event(const struct sim_event *event);

/* ---- parts of the world, each in its own file ---- */

/* cpu.c */
void cpus_begin(const struct sim_run *run);
void cpus_run(void (*only)(void));	/* run @only on CPU 0; NULL: steps on all CPUs */
void cpus_stop(void);		/* return to the caller of cpus_run(), for ever */
bool sim_step_begin(void);	/* begin the next step's stream; false: none left */

/*
 * The scheduler may move the running task to another CPU, unless the task is bound. The task is
 * in no call of the engine.
 */
void sim_migrate(void);
void sim_interrupt_if_due(void);	/* run the interrupt of a timer */
void cpus_quiesce(void *world);

/* time.c */
void time_pass(u64 ns);
void time_jump(void);
void time_fire(void);		/* fire due timers; interrupts are on */
u64 time_clock(void *world);
void time_deferred(void *world, u32 cpu, bool arm, u64 deadline_ns);

/* memory.c */
void memory_begin(void);
void memory_end(void);		/* free the engine's allocations */
bool memory_take(u32 pages, enum sim_memory_kind kind, u32 *first);
void memory_share(u32 page, enum sim_memory_kind kind);	/* another owner of a page that has one */
void memory_drop(u32 first, u32 pages, enum sim_memory_kind kind);
void *memory_alloc(void *world, size_t bytes, u32 cpu, bool atomic);
void memory_free(void *world, void *memory, size_t bytes);

/* table.c */
void table_begin(void);
int table_map(u32 page, u32 pages, u64 entry);
void table_remove(xs_gather_t *gather, u32 page, u32 pages);
void table_free(xs_gather_t *gather);
void table_write(u32 last, u32 page, u64 entry);
u32 table_directory(u32 page);		/* entry of the root; 0: none */
u32 table_last(u32 directory, u32 page);
u64 table_entry(u32 last, u32 page);
u32 table_generation(u32 table);	/* changes when the table is freed */

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
void sim_iommu_begin(void);
extern const struct xs_backend_ops sim_ops;

/* device.c */
void device_look(void);		/* a device accesses memory */
void device_note_stale(u32 page);	/* IOVA page to attack from now on */

/* driver.c */

/*
 * Does a deferred unmap promise that nothing stale is left after the driver's flush? Yes if all
 * policies in force between begin and end of the unmap promise that.
 */
struct driver_promise {
	u64 weak_periods;
	bool strict;
};

struct driver_promise driver_promise_begin(void);
bool driver_promise_end(const struct driver_promise *promise);

/* Flush causes of a call that unmaps. */
#define CAUSES_OF_UNMAP	(XS_FLUSH_BIT(XS_FLUSH_UNMAP) | XS_FLUSH_BIT(XS_FLUSH_BLOCK) | \
			 XS_FLUSH_BIT(XS_FLUSH_FULL))

void driver_start(void);
bool driver_step_mapping(u32 step);	/* false: not a step of the driver */
bool driver_map(u32 pages, u64 last);	/* 0 pages: any mapping */
u32 driver_kind(void);		/* draw a kind of memory */
u64 driver_limit(void);		/* draw the highest address of a device */
void driver_tell_mapped(u32 page, u32 pages, u32 memory, u32 prot);
void driver_tell_handed(u32 page, u32 pages, u64 last, bool reserved);
void driver_unmap(const struct sim_mapping *mapping, bool now);
void driver_unmap_index(u32 index, bool now);	/* index among live mappings */
void driver_flush(bool everywhere);	/* a batch-aware driver's flush of unmaps */
void driver_flush_maps(bool everywhere);	/* and of maps */
void driver_unmap_twice(void);
void driver_bad_unmap(void);	/* unmap a range that is not a mapping */

/* Flush causes of a bad unmap. */
#define CAUSES_OF_BAD_UNMAP	(CAUSES_OF_UNMAP | XS_FLUSH_BIT(XS_FLUSH_EXPLICIT))

/* Begin and end of an unmap. @how: UNMAP_*. Returns the serial of the unmap. */
u32 driver_unmap_begin(const struct sim_mapping *mapping, u32 how);
void driver_unmap_end(const struct sim_mapping *mapping, u32 cpu, u32 serial, bool nothing_left);

/*
 * A batch-aware driver's unmap, without flush and end. *@serial: to pass to the end. Returns
 * whether nothing stale may be left after the flush.
 */
bool driver_unmap_deferred(const struct sim_mapping *mapping, u32 *serial);

/* operator.c */
void operator_step(void);
void operator_interrupt(void);
void operator_tell(const struct xs_policy *policy, const struct xs_tuning *tuning, bool changing);
void operator_flush(enum xs_flush_point cause);
void operator_retire(u32 cpu);

/* life.c */
void life_window(void);		/* place the identity window */
void life_begin(void);		/* make the engine */
void life_end(void);		/* unmap everything, and check that nothing is left */
void life_trim(bool all);	/* give back unused leaves; @all: memory, too */
void life_retry(void);		/* retry the removal of stuck pages */

/* aware_driver.c: blocks of a batch-aware driver */
void block_begin(void);
void block_step(void);
void block_end(void);		/* give back all blocks */

/* copy.c: copied buffers, and the backend of the pool */
void copy_begin(void);
void copy_step(void);
void copy_end(void);		/* unmap all buffers */
void *copy_add_chunk(void *world, u64 iova, u32 direction, bool *not_undone);
bool copy_drop_chunk(void *world, u64 iova, void *memory);
void copy_short_of(void *world);

/* path.c: the inline one-page paths of the engine */
u64 path_map_one(struct xs_engine *engine, u64 phys, u32 prot, u64 last);
void path_unmap_one(struct xs_engine *engine, u64 iova);
void path_unmap_one_deferred(struct xs_engine *engine, u64 iova);

#endif
