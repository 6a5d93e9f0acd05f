// SPDX-License-Identifier: GPL-2.0-only
/* A run from begin to end, and the events of the run. */
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "../check/check.h"
#include "sim.h"

struct sim_world sim;

static bool traced;

void sim_fail(const char *checker, const char *format, ...)
{
	va_list arguments;

	va_start(arguments, format);
	vsnprintf(sim.failure.text, sizeof(sim.failure.text), format, arguments);
	va_end(arguments);
	sim.failure.checker = checker;
	sim.failure.failed = true;
	cpus_stop();
	abort();
}

bool xs_warn_once(bool broken, const char *text)
{
	if (xs_unlikely(broken))
		sim_fail("accounts", "the engine warns: %s", text);
	return broken;
}

/* ---- events ---- */

static u64 stir(u64 digest, u64 value)
{
	digest = (digest ^ value) * 0x9fb21c651e98df25;
	return digest ^ digest >> 35;
}

void sim_event(enum sim_event_kind kind, u32 cpu, u32 page, u32 pages, u32 a, u64 b)
{
	const struct sim_event event = {
		(u8)kind, (u8)cpu, page, pages, a, b, sim.now_ns, sim.calls
	};

	sim.events++;
	/* @b is the address of a structure here, and differs from run to run. */
	if (kind == EV_ACCOUNTS || kind == EV_READING || kind == EV_FLUSH || kind == EV_MAP_FLUSH)
		sim.digest = stir(sim.digest, kind);
	else
		sim.digest = stir(stir(sim.digest, (u64)page << 32 | pages) ^ a,
				  b ^ sim.now_ns << 16 ^ (u64)cpu << 8 ^ kind);
	if (xs_unlikely(traced))
		trace_event(&event);
	check_event(&event);
}

/* ---- run ---- */

void sim_run(const struct sim_config *config, const struct sim_run *run)
{
	memset(&sim, 0, sizeof(sim));
	sim.config = *config;
	sim.direct = config->direct;
	life_window();
	sim.now_ns = 1000000;
	sim.next_timer_ns = ~0ULL;
	traced = run->traced;
	memory_begin();
	table_begin();
	cache_begin();
	queue_begin();
	sim_iommu_begin();
	check_begin();
	cpus_begin(run);
	cpus_run(life_begin);
	if (!sim.failure.failed)
		cpus_run(NULL);
	if (!sim.failure.failed)
		cpus_run(life_end);
	memory_end();
}
