/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * The clock of the micro workload: the CPU's cycle counter, read raw.
 *
 * Under QEMU's `-icount shift=0` the counter advances by exactly one per guest instruction, on
 * x86 and on arm64 with a 1 GHz counter, and a read in the middle of straight code is exact. A
 * conversion to nanoseconds would lose the exactness: the kernel calibrates the counter
 * against another clock and is some parts per million off. So figures are kept in raw ticks,
 * and a loop of known length decides once per run whether a tick is an instruction. If not
 * (KVM, bare metal, an emulated guest without -icount), the caller scales ticks to
 * nanoseconds.
 */
#ifndef XSMMU_LAB_CLOCK_H
#define XSMMU_LAB_CLOCK_H

#include <linux/compiler.h>
#include <linux/timex.h>
#include <linux/types.h>

/*
 * lab_clock - read the clock
 *
 * Not ordered against the surrounding instructions on real hardware: an error of some ten
 * cycles, which does not matter for sections of 64 pages and more.
 */
static __always_inline u64 lab_clock(void)
{
	u64 now;

	barrier();
	now = get_cycles();
	barrier();
	return now;
}

/**
 * struct lab_clock - properties of the clock in a run
 * @instructions: one tick is one guest instruction
 * @read_ticks: ticks that one read adds to a measured section; subtract once per section. An error
 *	of some three instructions per section remains, from the compiler's placement of the reads
 * @period_ticks: length of a timer tick (a jiffy)
 * @edge: when the last awaited timer tick had been handled
 */
struct lab_clock {
	bool instructions;
	u32 read_ticks;
	u64 period_ticks;
	u64 edge;
};

/**
 * lab_clock_identify() - determine the unit of a tick and the cost of a read
 * @clock: @instructions and @read_ticks are filled in
 *
 * Context: any. Takes some hundred thousand ticks.
 */
void lab_clock_identify(struct lab_clock *clock);

/**
 * lab_clock_calibrate() - fill in all of @clock
 * @clock: the clock of the current run
 *
 * Context: process, preemption enabled, on the CPU that will measure. Takes four timer ticks.
 */
void lab_clock_calibrate(struct lab_clock *clock);

/**
 * lab_clock_await_quiet() - wait for a stretch of time without a timer tick
 * @clock: a calibrated clock
 * @ticks: length of the stretch. If it is longer than a timer tick, the wait ends after the next
 *	tick.
 *
 * Busy: the CPU does not go idle, which would change when other timers expire. Interrupts stay on.
 * Disable preemption from before the call until the end of the measurement.
 */
void lab_clock_await_quiet(struct lab_clock *clock, u64 ticks);

#endif
