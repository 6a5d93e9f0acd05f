// SPDX-License-Identifier: GPL-2.0-only
/* See core.h. */
#include "core.h"
#include "count.h"
#include "model.h"
#include "run.h"

/*
 * struct core_time - the time of a core
 * @free_ns:	end of the slice in progress
 * @wake_ns:	time of the next RUN_CORE that counts; 0: none
 */
struct core_time {
	u64 free_ns;
	u64 wake_ns;
};

static struct core_time *cores;

void core_init(void)
{
	cores = model_new(model.params.cores, sizeof(*cores));
}

void core_wake(u32 at, u64 ns)
{
	struct core_time *core = &cores[at];

	if (ns < core_free_at(at))
		ns = core_free_at(at);
	if (core->wake_ns && core->wake_ns <= ns)
		return;
	core->wake_ns = ns;
	run_at(ns, RUN_CORE, at);
}

bool core_begin(u32 at)
{
	struct core_time *core = &cores[at];

	if (core->wake_ns != model.now_ns)
		return false;
	core->wake_ns = 0;
	running_cpu = at;
	if (core->free_ns <= model.now_ns)
		return true;
	core_wake(at, core->free_ns);
	return false;
}

void core_end(u32 at, u64 ns)
{
	counts.busy_ns += ns - model.now_ns;
	cores[at].free_ns = ns;
}

u64 core_free_at(u32 at)
{
	return cores[at].free_ns > model.now_ns ? cores[at].free_ns : model.now_ns;
}

void core_charge(u32 at, u64 ns)
{
	counts.busy_ns += ns - core_free_at(at);
	cores[at].free_ns = ns;
}
