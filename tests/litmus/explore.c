// SPDX-License-Identifier: GPL-2.0-only
/*
 * Explores all choices depth first; see explore.h.
 *
 * A run replays the choices up to the last choice with an untried alternative, takes the
 * alternative, and continues. At each possible thread switch the state is hashed: every
 * thread's actions and read values, all messages in order, and all views. A run that reaches a
 * known state ends. The hash has 64 bits, so the chance that two of at most STATES_MAX states
 * collide is below 1 in a million.
 *
 * Words used by a single thread, and words that no thread writes, are no part of the state. The
 * explorer learns the shared words during the exploration, see is_shared().
 */
#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "inside.h"

#define STATES_MAX	(1u << 23)	/* half of them are used at most */
#define STATES_MIN	(1u << 14)
#define WORDS		(1u << 14)
#define CHOICES_MAX	4096
#define EVENTS_MAX	2000
#define STEPS_MAX	200000
#define OUTCOMES_MAX	64
#define LOOKS		1024	/* random runs that find no shared word */
#define RARITIES	8
#define ARENA_BYTES	(4ul << 20)	/* of setup and of each thread */

struct thread threads[EX_THREADS];
u32 thread_count;
struct thread *self;
bool hazards_fail;

static const struct ex_program *program;
static struct coroutine scheduler;
static jmp_buf finish_failed;
static bool in_setup;
static u32 cpu_alone;		/* CPU that setup or finish has set */

static struct {
	u16 chosen;
	u16 count;
} choices[CHOICES_MAX];

static u32 choice_count;	/* of the runs so far */
static u32 choice_at;		/* in this run */
static u64 chance;		/* not 0: random state that makes the choices */
static u32 rarity;		/* about one choice of 2^rarity is then not the first alternative */

static u64 *states;
static u32 states_size;
static u32 state_count;
static u32 states_max = STATES_MAX / 2;
static u64 runs, complete;

static char failure[400];
static char outcomes[OUTCOMES_MAX][32];
static u32 outcome_count;

/* Used words with their users; kept from run to run. */
static struct {
	uintptr_t at;
	u8 users;	/* threads, one bit each */
	u8 writers;
} words[WORDS];

static u32 word_count;
static bool begins_again;

static u8 *arenas;
static size_t arena_used[EX_THREADS + 1];
static size_t arena_setup;

extern struct ex_site __start_ex_sites[], __stop_ex_sites[];

/* ---- functions that platform_litmus.h calls ---- */

u32 ex_thread(void)
{
	return self ? (u32)(self - threads) : 0;
}

u32 ex_cpu(void)
{
	return self ? self->cpu : cpu_alone;
}

void ex_be_cpu(u32 cpu)
{
	if (self)
		self->cpu = cpu;
	else
		cpu_alone = cpu;
}

void ex_fail(const char *format, ...)
{
	va_list values;

	va_start(values, format);
	vsnprintf(failure, sizeof(failure), format, values);
	va_end(values);
	if (in_setup) {
		printf("%-20s FAILED  0 states, 0 runs, 0 complete, 0.00 s: setup: %s\n",
		       program->name, failure);
		exit(1);
	}
	if (!self)
		longjmp(finish_failed, 1);
	coroutine_switch(&self->stack, &scheduler);
	abort();
}

bool is_shared(uintptr_t at, bool write)
{
	u32 slot = (u32)mix(3, at) & (WORDS - 1);
	u8 me = (u8)(1u << (self - threads));
	bool was, is;

	while (words[slot].at && words[slot].at != at)
		slot = (slot + 1) & (WORDS - 1);
	if (!words[slot].at && ++word_count > WORDS / 2)
		ex_fail("more than %u words: raise WORDS", WORDS / 2);
	was = words[slot].writers && words[slot].users & (words[slot].users - 1);
	words[slot].at = at;
	words[slot].users |= me;
	words[slot].writers |= write ? me : 0;
	is = words[slot].writers && words[slot].users & (words[slot].users - 1);
	if (is && !was) {
		begins_again = true;
		coroutine_switch(&self->stack, &scheduler);
		abort();
	}
	return is;
}

void event(u64 a, u64 b)
{
	self->history = mix(self->history, mix(a, b));
	if (++self->events > EVENTS_MAX)
		ex_fail("T%u does more than %u things: it waits, or raise EVENTS_MAX",
			ex_thread(), EVENTS_MAX);
}

static u32 choose_by_chance(u32 count)
{
	chance = mix(chance, 1);
	return chance >> (64 - rarity) ? 0 : (u32)(chance % count);
}

static u32 choose(u32 count)
{
	if (count < 2)
		return 0;
	if (chance)
		return choose_by_chance(count);
	if (choice_at == choice_count) {
		if (choice_count == CHOICES_MAX) {
			printf("more than %u choices: raise CHOICES_MAX\n", CHOICES_MAX);
			exit(2);
		}
		choices[choice_count].chosen = 0;
		choices[choice_count++].count = (u16)count;
	}
	return choices[choice_at++].chosen;
}

u32 ex_choose(u32 count)
{
	u32 chosen = choose(count);

	if (count > 1)
		event(10, chosen);
	return chosen;
}

bool is_dependent(const struct ex_site *read, const struct ex_site *store)
{
	const struct ex_dependency *at = program->dependencies;

	for (; at && at->read; at++)
		if (!strcmp(at->read, read->text) && !strcmp(at->store, store->text))
			return true;
	return false;
}

void step(void)
{
	if (++self->steps > STEPS_MAX)
		ex_fail("T%u takes more than %u steps: it loops, or raise STEPS_MAX",
			ex_thread(), STEPS_MAX);
}

void interrupt_point(void)
{
	void (*interrupt)(void) = program->interrupts[self - threads];

	step();
	if (!interrupt || self->interrupted || self->irqs_off || !choose(2))
		return;
	self->interrupted = true;
	event(11, 0);
	interrupt();
}

void point(void)
{
	interrupt_point();
	coroutine_switch(&self->stack, &scheduler);
}

bool ex_irq_save(void)
{
	bool were_on = self && !self->irqs_off;

	if (were_on) {
		interrupt_point();
		self->irqs_off = true;
	}
	return were_on;
}

void ex_irq_restore(bool were_on)
{
	if (self && were_on)
		self->irqs_off = false;
}

void *ex_alloc(size_t bytes)
{
	u32 owner = self ? ex_thread() + 1 : 0;
	u8 *memory = arenas + owner * ARENA_BYTES + arena_used[owner];

	bytes = (bytes + 63) & ~63ul;
	arena_used[owner] += bytes;
	if (arena_used[owner] > ARENA_BYTES)
		ex_fail("more than %lu bytes: raise ARENA_BYTES", ARENA_BYTES);
	memset(memory, 0, bytes);
	if (self)
		shadow_access((uintptr_t)memory, (u32)bytes, PLAIN_WRITE);
	return memory;
}

void ex_free(void *memory, size_t bytes)
{
	if (memory && self)
		shadow_free((uintptr_t)memory, bytes);
}

void ex_outcome(const char *format, ...)
{
	char text[32];
	va_list values;
	u32 at = 0;

	va_start(values, format);
	vsnprintf(text, sizeof(text), format, values);
	va_end(values);
	while (at < outcome_count && strcmp(outcomes[at], text) < 0)
		at++;
	if (at < outcome_count && !strcmp(outcomes[at], text))
		return;
	if (outcome_count == OUTCOMES_MAX)
		ex_fail("more than %u outcomes", OUTCOMES_MAX);
	memmove(outcomes[at + 1], outcomes[at],
		(outcome_count++ - at) * sizeof(outcomes[0]));
	memcpy(outcomes[at], text, sizeof(text));
}

/* ---- one run ---- */

bool is_setup(void)
{
	return in_setup;
}

static u64 state_hash(void)
{
	u64 hash = memory_hash() + sync_hash();

	for (u32 i = 0; i < thread_count; i++) {
		u64 one = mix(i, threads[i].history);

		one = mix(one, view_hash(&threads[i].now.view));
		one = mix(one, view_hash(&threads[i].acquired.view));
		hash += mix(one, view_hash(&threads[i].released.view));
	}
	return hash ? hash : 1;
}

/* Returns the hash's entry in the table of states, or a free entry. */
static u64 *find_state(u64 hash)
{
	u32 slot = (u32)(hash >> 20) & (states_size - 1);

	while (states[slot] && states[slot] != hash)
		slot = (slot + 1) & (states_size - 1);
	return &states[slot];
}

static void states_reset(u32 size)
{
	free(states);
	states_size = size;
	states = calloc(size, sizeof(*states));
	if (!states)
		exit(2);
}

static void states_double(void)
{
	u64 *old = states;
	u32 size = states_size;

	states = NULL;
	states_reset(2 * size);
	for (u32 i = 0; i < size; i++)
		if (old[i])
			*find_state(old[i]) = old[i];
	free(old);
}

/* Record the state. Returns true if the state was known. */
static bool is_known(void)
{
	u64 hash = state_hash();
	u64 *state = find_state(hash);

	if (*state)
		return true;
	*state = hash;
	if (++state_count > states_max)
		snprintf(failure, sizeof(failure), "BOUND: more than %u states", states_max);
	else if (state_count > states_size / 2)
		states_double();
	return false;
}

static void begin_thread(void)
{
	void (*interrupt)(void) = program->interrupts[self - threads];

	program->threads[self - threads]();
	if (interrupt && !self->interrupted) {
		self->interrupted = true;
		interrupt();
	}
	self->ended = true;
	for (;;)
		point();
}

static void go_on(struct thread *thread)
{
	self = thread;
	coroutine_switch(&scheduler, &thread->stack);
	self = NULL;
}

static void begin_run(void)
{
	undo_all();
	memory_reset();
	sync_reset();
	shadow_reset();
	trace_reset();
	choice_at = 0;
	runs++;
	memset(arena_used, 0, sizeof(arena_used));
	arena_used[0] = arena_setup;
	for (u32 i = 0; i < thread_count; i++) {
		struct coroutine stack = threads[i].stack;

		memset(&threads[i], 0, sizeof(threads[i]));
		threads[i].stack = stack;
		threads[i].cpu = i;
		threads[i].now.clock.at[i] = 1;
		threads[i].acquired.clock.at[i] = 1;
	}
	for (u32 i = 0; i < thread_count && !failure[0] && !begins_again; i++) {
		coroutine_begin(&threads[i].stack, begin_thread);
		go_on(&threads[i]);
	}
}

static bool can_go_on(const struct thread *thread)
{
	if (thread->waits_lock && thread->waits_lock->holder)
		return false;
	if (thread->waits_grace && thread->waits_for)
		return false;
	return !thread->ended;
}

static void end_run(void)
{
	for (u32 i = 0; i < thread_count; i++)
		if (!threads[i].ended) {
			snprintf(failure, sizeof(failure), "DEADLOCK: T%u waits for ever", i);
			return;
		}
	complete++;
	cpu_alone = 0;
	if (program->finish && !setjmp(finish_failed))
		program->finish();
}

static void run_once(void)
{
	u32 last = 0;

	begin_run();
	while (!failure[0] && !begins_again) {
		u32 ready[EX_THREADS];
		u32 count = 0;

		/* The first choice is to continue with the same thread. */
		for (u32 i = 0; i < thread_count; i++)
			if (can_go_on(&threads[(last + i) % thread_count]))
				ready[count++] = (last + i) % thread_count;
		if (!count) {
			end_run();
			return;
		}
		if (!chance && choice_at == choice_count && is_known())
			return;
		if (failure[0])
			return;
		last = ready[choose(count)];
		go_on(&threads[last]);
	}
}

/* ---- all runs ---- */

/* Take the next alternative of the last choice that has an alternative. */
static bool advance(void)
{
	while (choice_count) {
		if (++choices[choice_count - 1].chosen < choices[choice_count - 1].count)
			return true;
		choice_count--;
	}
	return false;
}

/*
 * A newly found shared word restarts the exploration. Runs with random choices find most shared
 * words beforehand. The random numbers have no seed, so the runs are the same each time. Some
 * runs switch threads often, other runs rarely. A failing run is a failure.
 */
static void look_around(void)
{
	u32 looks = 0;

	chance = 1;
	while (looks < LOOKS && !failure[0]) {
		rarity = looks++ % RARITIES + 1;
		begins_again = false;
		run_once();
		if (begins_again)
			looks = 0;
		/* A bound on resources; a failure may come first in the exploration. */
		if (!strncmp(failure, "more than ", 10))
			failure[0] = '\0';
	}
	chance = 0;
}

static void run_all(void)
{
	choice_count = 0;
	runs = complete = state_count = 0;
	look_around();
	if (failure[0])
		return;
	do {
		states_reset(STATES_MIN);
		state_count = choice_count = outcome_count = 0;
		runs = complete = 0;
		begins_again = false;
		do
			run_once();
		while (!failure[0] && !begins_again && advance());
	} while (begins_again);
}

static void check_outcomes(void)
{
	char all[OUTCOMES_MAX * 33] = "";

	for (u32 i = 0; i < outcome_count; i++) {
		strcat(all, i ? " " : "");
		strcat(all, outcomes[i]);
	}
	if (program->expect && strcmp(all, program->expect))
		snprintf(failure, sizeof(failure), "outcomes \"%.150s\", not \"%.150s\"",
			 all, program->expect);
}

/* Returns whether the program fails; see @failure. */
static bool explore(void)
{
	failure[0] = '\0';
	hazards_fail = !program->dependent;
	memset(words, 0, sizeof(words));
	word_count = 0;
	run_all();
	if (!failure[0])
		check_outcomes();
	return failure[0];
}

static double seconds(void)
{
	struct timespec now;

	clock_gettime(CLOCK_MONOTONIC, &now);
	return (double)now.tv_sec + (double)now.tv_nsec / 1e9;
}

static bool explore_and_tell(bool quiet)
{
	double start = seconds();
	const char *fails = program->fails;
	bool failed = explore();
	bool wanted = !fails ? !failed :
		      failed && !strncmp(failure, fails, strlen(fails));

	printf("%-20s %s  %u states, %llu runs, %llu complete, %.2f s%s%s\n",
	       program->name, wanted ? "ok" : "FAILED", state_count,
	       (unsigned long long)runs, (unsigned long long)complete,
	       seconds() - start, failed ? ": " : "", failure);
	if (!wanted && !quiet)
		trace_print();
	return !wanted;
}

/* ---- weaker orders, which programs must notice ---- */

static const char *const order_names[] = {
	"relaxed", "acquire", "release", "acq_rel", "full"
};

/* Print the numbers of the sites that the programs explored so far have executed. */
static void tell_sites(void)
{
	u32 number = 0;

	for (struct ex_site *site = __start_ex_sites; site < __stop_ex_sites; site++, number++)
		if (site->hits && site->order != EX_RELAXED)
			printf("site %u\t%s\t%s\t%s\t%s\n", number, order_names[site->order],
			       site->file, site->function, site->text);
}

/* "NUMBER=ORDER": the site has this order from now on. */
static bool weaken(const char *word)
{
	char *end;
	u32 number = (u32)strtoul(word, &end, 10);
	struct ex_site *site = &__start_ex_sites[number];

	for (u32 order = EX_RELAXED; order <= EX_FULL && *end == '='; order++) {
		if (site >= __stop_ex_sites || strcmp(end + 1, order_names[order]))
			continue;
		site->weak = order + 1;
		return true;
	}
	return false;
}

static void prepare(void)
{
	memset(threads, 0, sizeof(threads));
	memset(arena_used, 0, sizeof(arena_used));
	for (thread_count = 0; program->threads[thread_count]; thread_count++)
		;
	in_setup = true;
	cpu_alone = 0;
	if (program->setup)
		program->setup();
	in_setup = false;
	arena_setup = arena_used[0];
}

static bool run_program(bool quiet)
{
	bool failed;

	prepare();
	failed = explore_and_tell(quiet);
	undo_all();
	return failed;
}

/* Is the program named on the command line, or is no program named? */
static bool is_wanted(char **names, int count)
{
	for (int i = 0; i < count; i++)
		if (!strcmp(names[i], program->name))
			return true;
	return !count;
}

/* The code under test has crashed: the last failure. */
static void crashed(int number)
{
	printf("%-20s FAILED  %u states, %llu runs, %llu complete, 0.00 s: CRASH: signal %d\n",
	       program->name, state_count, (unsigned long long)runs,
	       (unsigned long long)complete, number);
	trace_print();
	fflush(stdout);
	_exit(1);
}

static void catch_crashes(void)
{
	static u8 stack[64 << 10];
	stack_t alternative = { .ss_sp = stack, .ss_size = sizeof(stack) };
	struct sigaction action = { .sa_handler = crashed, .sa_flags = SA_ONSTACK };

	sigaltstack(&alternative, NULL);
	sigaction(SIGSEGV, &action, NULL);
	sigaction(SIGBUS, &action, NULL);
	sigaction(SIGILL, &action, NULL);
}

/* litmus [--quiet] [--sites] [--states N] [--weak SITE=ORDER]... [PROGRAM...] */
int main(int count, char **arguments)
{
	bool sites = false, quiet = false, failed = false;
	int names = 0;

	for (int i = 1; i < count; i++) {
		if (!strcmp(arguments[i], "--quiet"))
			quiet = true;
		else if (!strcmp(arguments[i], "--sites"))
			sites = true;
		else if (!strcmp(arguments[i], "--states") && i + 1 < count)
			states_max = (u32)strtoul(arguments[++i], NULL, 10);
		else if (strcmp(arguments[i], "--weak") || i + 1 == count)
			arguments[names++] = arguments[i];
		else if (!weaken(arguments[++i]))
			return 2;
	}
	arenas = calloc(EX_THREADS + 1, ARENA_BYTES);
	catch_crashes();
	for (u32 list = 0; ex_programs[list]; list++) {
		for (u32 i = 0; ex_programs[list][i]; i++) {
			program = ex_programs[list][i];
			if (is_wanted(arguments, names))
				failed |= run_program(quiet);
		}
	}
	if (sites)
		tell_sites();
	return failed;
}
