/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * Coroutines: stacks that one thread switches between. A switch costs a few nanoseconds on
 * x86-64, where the code is assembly, and a system call elsewhere.
 */
#ifndef SIM_COROUTINE_H
#define SIM_COROUTINE_H

#include <stdbool.h>
#include <stddef.h>

#ifndef __x86_64__
#include <ucontext.h>
#endif

/* SANITIZED: the build uses AddressSanitizer. */
#if defined(__SANITIZE_ADDRESS__)
#define SANITIZED 1
#elif defined(__has_feature)
#if __has_feature(address_sanitizer)
#define SANITIZED 1
#endif
#endif

/* A zeroed coroutine is the thread's own stack, or not begun. */
struct coroutine {
#ifdef __x86_64__
	void *stack_pointer;
#else
	ucontext_t context;
#endif
	void *stack;		/* allocated once, for all uses */
	size_t stack_bytes;
	void *shadow;		/* of AddressSanitizer */
};

/* (Re)begin at @run, which never returns. */
void coroutine_begin(struct coroutine *coroutine, void (*run)(void));

/* Continue @to. Returns when a switch continues @from. */
void coroutine_switch(struct coroutine *from, struct coroutine *to);

#endif
