/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * The world that the checkers of sim/check see in a replay, in the place of sim/world/sim.h, whose
 * guard this file defines: their sources are compiled unchanged, with this file included first.
 * checks.c makes the events.
 */
#ifndef SIM_H
#define SIM_H

#include <xsmmu/engine.h>

#include "../../sim/world/event.h"

/* A checker's bit mask of CPUs has 64 bits; for pages of the identity window, 8. */
#define SIM_CPUS	64u
#define SIM_WINDOW_CPUS	8u

/* A checker's page number has 16 bits. */
#define SIM_PAGES	65536u

/* Memory from here on never goes back to an allocator. */
#define SIM_MEMORY	(1u << 18)
#define SIM_TABLE_LG2	(XS_PAGE_LG2 - 3)

/*
 * struct sim_world - what checkers ask about the world
 * @window:	first page of the identity window; 0: none
 */
struct sim_world {
	struct {
		u32 cpus;
		u32 blocks;
		u32 table_lg2;
		bool first_stage;
		bool remembers;
	} config;
	u32 window;
};

extern struct sim_world sim;

static inline bool sim_is_window(u32 page)
{
	return sim.window && page >= sim.window;
}

static inline u32 sim_end_page(void)
{
	return SIM_PAGES;
}

/* Report a checker's finding and end the run. */
_Noreturn void sim_fail(const char *checker, const char *format, ...)
	__attribute__((format(printf, 2, 3)));

#endif
