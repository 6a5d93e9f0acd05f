/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * Small programs of the real code, explored exhaustively under a weak memory model: every
 * schedule, every message that a load may read, every place in a word's order that a store may
 * take.
 *
 * The model is views over messages (Kang et al., "A promising semantics for relaxed-memory
 * concurrency", POPL 2017) without promises: as weak as C11 (RC11) and arm64, except for load
 * buffering, where a store overtakes an older load. Instead, the explorer reports a possible
 * load buffering as a HAZARD failure: a store that only dependencies, invisible to the
 * explorer, keep behind a load of the same word. Fully ordered operations have a full barrier
 * on both sides, as in Linux.
 *
 * The explorer also sees plain accesses: the compiler instruments the code under test as for
 * ThreadSanitizer, and races.c receives the calls. Two conflicting accesses without order by
 * release and acquire are a data race, which fails; so plain accesses need no weak values.
 */
#ifndef EXPLORE_H
#define EXPLORE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define EX_THREADS	5
#define EX_LOCATIONS	64

enum ex_order { EX_RELAXED, EX_ACQUIRE, EX_RELEASE, EX_ACQ_REL, EX_FULL };

/* An access in the source; the linker makes a table of all accesses. */
struct ex_site {
	const char *file;
	const char *function;
	const char *text;
	uint32_t line;
	uint32_t order;		/* as written */
	uint32_t hits;
	uint32_t weak;		/* 1 + weaker order to use, as a test; 0: as written */
	uint64_t unused[3];	/* 64 bytes, as aligned: the table has no gaps */
};

#define EX_SITE(order_, text_) ({					\
	static struct ex_site ex_site_					\
	__attribute__((section("ex_sites"), used, aligned(64))) = {	\
		.file = __FILE__, .function = __func__, .text = text_,	\
		.line = __LINE__, .order = order_,			\
	};								\
	&ex_site_;							\
})

/*
 * A store that a dependency keeps behind another thread's read of the same word: read and store
 * as in the source; NULL ends the list.
 */
struct ex_dependency {
	const char *read;
	const char *store;
};

/*
 * struct ex_program - a program to explore
 * @setup:	runs once, alone; each run starts with the memory that setup leaves
 * @threads:	up to the first NULL; thread number N is CPU N, see ex_be_cpu()
 * @interrupts:	of the thread with the same number: comes once, at any access with
 * 		interrupts on, or after all threads
 * @finish:	runs alone after each run; may be NULL
 * @expect:	all outcomes (see ex_outcome()), sorted, or NULL
 * @fails:	beginning of the expected failure, or NULL
 * @dependencies: dependencies that prevent hazards; NULL: none
 * @dependent:	dependencies prevent all hazards
 */
struct ex_program {
	const char *name;
	void (*setup)(void);
	void (*threads[EX_THREADS + 1])(void);
	void (*interrupts[EX_THREADS])(void);
	void (*finish)(void);
	const char *expect;
	const char *fails;
	const struct ex_dependency *dependencies;
	bool dependent;
};

/* The programs of this binary: a NULL-terminated list of NULL-terminated lists. */
extern const struct ex_program *const *const ex_programs[];

/* Functions that platform_litmus.h builds on. */
uint64_t ex_load(const void *at, uint32_t bytes, struct ex_site *site);
void ex_store(void *at, uint32_t bytes, uint64_t value, struct ex_site *site);
enum ex_change { EX_SWAP, EX_OR, EX_ANDNOT, EX_ADD };
uint64_t ex_rmw(void *at, uint32_t bytes, enum ex_change change,
		uint64_t operand, struct ex_site *site);
bool ex_try(void *at, uint32_t bytes, uint64_t *old, uint64_t value,
	    struct ex_site *site);
void ex_fence(struct ex_site *site);

/* Disable interrupts and restore the previous state; locks are taken with interrupts off only. */
bool ex_irq_save(void);
void ex_irq_restore(bool were_on);

void ex_lock_init(void *lock);
void ex_lock(void *lock, struct ex_site *site);
void ex_unlock(void *lock, struct ex_site *site);
void ex_assert_locked(void *lock);

/* Read-side sections, and waiting for the end of all sections that have begun. */
void ex_enter(struct ex_site *site);
void ex_exit(struct ex_site *site);
void ex_grace(struct ex_site *site);

/* Zeroed memory; freed memory is not used again in the same run. */
void *ex_alloc(size_t bytes);
void ex_free(void *memory, size_t bytes);

/* Returns any of 0 .. @count - 1: all values are explored. */
uint32_t ex_choose(uint32_t count);

/* The running thread, and the CPU that the thread has set. */
uint32_t ex_thread(void);
uint32_t ex_cpu(void);
void ex_be_cpu(uint32_t cpu);

/* Fail unless @holds. */
#define ex_assert(holds) \
	((void)((holds) || (ex_fail("%s:%u: " #holds, __FILE__, __LINE__), 0)))
__attribute__((format(printf, 1, 2), noreturn)) void ex_fail(const char *format, ...);

/* Report the outcome of this run; from finish(). */
__attribute__((format(printf, 1, 2))) void ex_outcome(const char *format, ...);

#endif
