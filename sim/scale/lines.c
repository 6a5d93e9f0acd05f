// SPDX-License-Identifier: GPL-2.0-only
/* Runs the model alone, with a known number of accesses. */
#include "hooks.h"

#include "arena.h"
#include "hook_test.h"
#include "run.h"
#include "tally.h"

#define LINES 10

static void access_line(char kind, u8 *at)
{
	u64 *word = (u64 *)at;

	if (kind == 'r')
		tally_read(arena_line((u64)at), LINE_ENGINE, 0);
	else if (kind == 'w')
		tally_write(arena_line((u64)at), LINE_ENGINE, 0);
	else if (kind == 'b')
		probe_bump(word);
	else if (kind == 'l')
		probe_load(word);
	else if (kind == 's')
		probe_store(word);
	else if (kind == 'x')
		probe_swap((xs_atomic64_t *)at);
	else if (kind == 'c')
		probe_copy((struct probe_two *)(at + 2 * LINE_BYTES), (struct probe_two *)at);
	else
		scale_fail("an access is one of r w b l s x c");
}

static void do_word(const char *word, u8 *lines)
{
	u32 cpu = 0;

	for (; *word >= '0' && *word <= '9'; word++)
		cpu = cpu * 10 + (u32)(*word - '0');
	if (cpu >= SCALE_CPUS || !*word || word[1] < '0' || word[1] > '5')
		scale_fail("an access is a CPU, a letter and a line, as 0w3");
	scale_cpu = cpu;
	access_line(*word, lines + (u32)(word[1] - '0') * LINE_BYTES);
}

void run_lines(u32 count, char **words)
{
	/* Large enough that no CPU has the lines in a cache yet. */
	u8 *lines = arena_alloc(8192 + LINES * LINE_BYTES);

	hooks_stack_top = (u64)__builtin_frame_address(0) + 65536;
	tally_on = true;
	tally_start();
	for (u32 i = 0; i < count; i++)
		do_word(words[i], lines);
	for (u32 event = 0; event < LINE_EVENTS; event++)
		run_tell(line_event_name(event), tally.events[LINE_ENGINE][event]);
	run_tell("accesses", tally.accesses);
	run_tell_line();
}
