// SPDX-License-Identifier: GPL-2.0-only
/* The clock of the micro workload; see clock.h. */
#include <linux/irqflags.h>
#include <linux/jiffies.h>
#include <linux/math64.h>
#include <linux/minmax.h>
#include <linux/preempt.h>

#include "clock.h"

#define LOOP_SHORT 1000UL
#define LOOP_LONG 3000UL
#define LOOP_INSTRUCTIONS 2	/* per iteration */
#define CALIBRATIONS 16

/* Two instructions per iteration on known architectures; 0 iterations on others. */
static __always_inline void loop_run(unsigned long iterations)
{
#if defined(CONFIG_X86)
	asm volatile("1: dec %0\n\tjnz 1b" : "+r" (iterations) : : "cc");
#elif defined(CONFIG_ARM64)
	asm volatile("1: subs %0, %0, #1\n\tb.ne 1b" : "+r" (iterations) : : "cc");
#endif
}

/* The minimum of several runs with interrupts off: the loop and one read of the clock. */
static u64 loop_ticks(unsigned long iterations)
{
	u64 start, least = U64_MAX;
	unsigned long flags;
	int i;

	for (i = 0; i < CALIBRATIONS; i++) {
		local_irq_save(flags);
		start = lab_clock();
		if (iterations)
			loop_run(iterations);
		least = min(least, lab_clock() - start);
		local_irq_restore(flags);
	}
	return least;
}

static void await_edge(struct lab_clock *clock)
{
	unsigned long now = jiffies;

	/* No cpu_relax(), which makes an emulator leave translated code for seconds. */
	while (jiffies == now)
		barrier();
	clock->edge = lab_clock();
}

void lab_clock_identify(struct lab_clock *clock)
{
	clock->read_ticks = loop_ticks(0);
	clock->instructions = loop_ticks(LOOP_LONG) - loop_ticks(LOOP_SHORT) ==
			      LOOP_INSTRUCTIONS * (LOOP_LONG - LOOP_SHORT);
}

void lab_clock_calibrate(struct lab_clock *clock)
{
	u64 previous;
	int i;

	lab_clock_identify(clock);
	clock->period_ticks = U64_MAX;
	preempt_disable();
	await_edge(clock);
	for (i = 0; i < 3; i++) {
		previous = clock->edge;
		await_edge(clock);
		clock->period_ticks = min(clock->period_ticks, clock->edge - previous);
	}
	preempt_enable();
}

void lab_clock_await_quiet(struct lab_clock *clock, u64 ticks)
{
	u64 since;

	div64_u64_rem(lab_clock() - clock->edge, clock->period_ticks, &since);
	if (since + ticks >= clock->period_ticks)
		await_edge(clock);
}
