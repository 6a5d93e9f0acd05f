// SPDX-License-Identifier: GPL-2.0-only
#include <stdio.h>
#include <stdlib.h>
#include <sys/resource.h>
#include <unistd.h>

#include "merge.h"
#include "overhead.h"

#define PERIOD_NS 1000000000ull
#define MEASURE_EVERY_NS (PERIOD_NS / 5)
#define MEASURED_NS (MEASURE_EVERY_NS / 10)
/* Less busy CPUs than this share of one CPU count as this much, or an idle machine could not be
 * recorded. */
#define BUSY_MIN 0.1
#define PART_MIN 0.01
#define PART_WHOLE 0.97

/**
 * struct sample - the machine at a moment
 * @ns: the moment
 * @busy_ns: see struct overhead_found
 * @recorder_ns: see struct overhead_found
 * @cost: of the programs
 */
struct sample {
	uint64_t ns;
	double busy_ns;
	double recorder_ns;
	struct programs_cost cost;
};

/**
 * struct overhead - a measurement
 * @programs: the programs
 * @limit: the largest share, 0 for none
 * @part: part of each period that is recorded
 * @first: begin of the recording
 * @last: begin of the period
 * @programs_ns: time of the programs in past periods
 * @runs_ns: measured time of programs
 * @runs: measured calls
 * @measured_ns: how long the kernel has measured in this period, up to @since
 * @since: when it last began or stopped, or the period began
 * @is_measuring: whether the kernel measures
 * @known: whether it ever did
 */
struct overhead {
	struct programs *programs;
	double limit;
	double part;
	struct sample first;
	struct sample last;
	double programs_ns;
	double runs_ns;
	double runs;
	double measured_ns;
	uint64_t since;
	bool is_measuring;
	bool known;
};

/* User, nice, system, interrupts and stolen time are busy; idle and waiting for disks are not. */
static double busy_ns(void)
{
	unsigned long long user, nice, system, idle, wait, irq, softirq;
	FILE *file = fopen("/proc/stat", "r");
	double found = 0;

	if (!file)
		return 0;
	if (fscanf(file, "cpu %llu %llu %llu %llu %llu %llu %llu", &user, &nice, &system, &idle,
		   &wait, &irq, &softirq) == 7)
		found = (double)(user + nice + system + irq + softirq) * 1e9 / sysconf(_SC_CLK_TCK);
	fclose(file);
	return found;
}

static double own_ns(void)
{
	struct rusage used;

	getrusage(RUSAGE_SELF, &used);
	return (used.ru_utime.tv_sec + used.ru_stime.tv_sec) * 1e9 +
	       (used.ru_utime.tv_usec + used.ru_stime.tv_usec) * 1e3;
}

static void sample(struct overhead *overhead, struct sample *sample, uint64_t now)
{
	sample->ns = now;
	sample->busy_ns = busy_ns();
	sample->recorder_ns = own_ns();
	programs_cost(overhead->programs, &sample->cost);
}

static void measure(struct overhead *overhead, bool on, uint64_t now)
{
	if (on == overhead->is_measuring)
		return;
	if (!on)
		overhead->measured_ns += now - overhead->since;
	overhead->is_measuring = programs_measure(overhead->programs, on) && on;
	overhead->known |= overhead->is_measuring;
	overhead->since = now;
}

struct overhead *overhead_new(struct programs *programs, double limit)
{
	struct overhead *overhead = calloc(1, sizeof(*overhead));

	if (!overhead)
		return NULL;
	overhead->programs = programs;
	overhead->limit = limit;
	overhead->part = 1;
	sample(overhead, &overhead->first, merge_now());
	measure(overhead, true, overhead->first.ns);
	overhead->last = overhead->first;
	return overhead;
}

void overhead_free(struct overhead *overhead)
{
	if (overhead)
		programs_measure(overhead->programs, false);
	free(overhead);
}

/* The kernel counts busy CPUs by ticks, and may miss some of the time that was used. */
static double share(double used_ns, double busy, double elapsed_ns)
{
	if (busy < elapsed_ns * BUSY_MIN)
		busy = elapsed_ns * BUSY_MIN;
	if (busy < used_ns)
		busy = used_ns;
	return elapsed_ns > 0 ? used_ns / busy : 0;
}

/* Adds what the programs have used since the last sample, scaled by the part that was measured. */
static double add(struct overhead *overhead, const struct sample *now)
{
	double elapsed = now->ns - overhead->last.ns;
	double ns = now->cost.ns - overhead->last.cost.ns;
	double measured_ns = overhead->measured_ns;

	if (overhead->is_measuring)
		measured_ns += now->ns - overhead->since;
	overhead->measured_ns = 0;
	overhead->since = now->ns;
	overhead->runs_ns += ns;
	overhead->runs += now->cost.runs - overhead->last.cost.runs;
	ns = measured_ns > 0 ? ns * elapsed / measured_ns : 0;
	overhead->programs_ns += ns;
	return ns;
}

/* The part of the next period that is recorded, by the cost of the last one. */
static void adjust(struct overhead *overhead, const struct sample *now, double programs_ns)
{
	double used = programs_ns + now->recorder_ns - overhead->last.recorder_ns;
	double found =
		share(used, now->busy_ns - overhead->last.busy_ns, now->ns - overhead->last.ns);

	overhead->part = found > 0 ? overhead->part * overhead->limit / found : 1;
	if (overhead->part > PART_WHOLE)
		overhead->part = 1;
	if (overhead->part < PART_MIN)
		overhead->part = PART_MIN;
}

bool overhead_tick(struct overhead *overhead, uint64_t now)
{
	uint64_t since = now - overhead->last.ns;

	if (since >= PERIOD_NS) {
		struct sample next;
		double used;

		sample(overhead, &next, now);
		used = add(overhead, &next);
		if (overhead->limit > 0)
			adjust(overhead, &next, used);
		overhead->last = next;
		since = 0;
	}
	measure(overhead, overhead->limit > 0 || since % MEASURE_EVERY_NS < MEASURED_NS, now);
	return since < overhead->part * PERIOD_NS;
}

void overhead_found(struct overhead *overhead, struct overhead_found *found)
{
	struct sample now;

	sample(overhead, &now, merge_now());
	add(overhead, &now);
	overhead->last = now;
	found->known = overhead->known;
	found->programs_ns = overhead->programs_ns;
	found->run_ns = overhead->runs > 0 ? overhead->runs_ns / overhead->runs : 0;
	found->recorder_ns = now.recorder_ns - overhead->first.recorder_ns;
	found->busy_ns = now.busy_ns - overhead->first.busy_ns;
	found->share = share(found->programs_ns + found->recorder_ns, found->busy_ns,
			     now.ns - overhead->first.ns);
}
