// SPDX-License-Identifier: GPL-2.0-only
/*
 * Uses the processor's trap flag: a trap after each instruction arrives as a signal. The
 * handler checks whether the instruction belongs to the engine.
 */
#define _GNU_SOURCE
#include <signal.h>
#include <ucontext.h>

#include "path.h"
#include "step.h"

#define TRAP_FLAG	"0x100"

static u64 counted, last_pc;

static void trapped(int signal, siginfo_t *info, void *context)
{
	const ucontext_t *at = context;
	u64 pc = (u64)at->uc_mcontext.gregs[REG_RIP];

	(void)signal;
	(void)info;
	/* An instruction that repeats itself (rep) traps each time, and counts once. */
	counted += pc != last_pc && pc >= (u64)path_text_begin && pc < (u64)path_text_end;
	last_pc = pc;
}

/* Fail if the compiler has placed functions elsewhere, because then nothing would be counted. */
static void check_place(u64 pc)
{
	if (pc < (u64)path_text_begin || pc >= (u64)path_text_end)
		scale_fail("the engine is not where its labels are");
}

void step_init(void)
{
	struct sigaction action = { .sa_sigaction = trapped, .sa_flags = SA_SIGINFO };

	check_place((u64)path_map);
	check_place((u64)path_iova);
	check_place((u64)xs_engine_poll);
	check_place((u64)xs_space_alloc_block);
	sigaction(SIGTRAP, &action, NULL);
}

void step_begin(void)
{
	__asm__ __volatile__("pushfq; orq $" TRAP_FLAG ", (%%rsp); popfq" ::: "memory", "cc");
}

void step_end(void)
{
	__asm__ __volatile__("pushfq; andq $~" TRAP_FLAG ", (%%rsp); popfq" ::: "memory", "cc");
}

u64 step_counted(void)
{
	return counted;
}
