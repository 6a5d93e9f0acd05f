/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * Coroutines: stacks that one thread changes between. A change costs a few
 * nanoseconds on x86-64, where it is written by hand, and a system call
 * elsewhere.
 */
#ifndef SIM_COROUTINE_H
#define SIM_COROUTINE_H

#include <stdbool.h>
#include <stddef.h>

#ifndef __x86_64__
#include <ucontext.h>
#endif

/* Is AddressSanitizer here? */
#if defined(__SANITIZE_ADDRESS__)
#define SANITIZED 1
#elif defined(__has_feature)
#if __has_feature(address_sanitizer)
#define SANITIZED 1
#endif
#endif

/* Zeroed is one that is the thread itself, or not begun. */
struct coroutine {
#ifdef __x86_64__
	void *stack_pointer;
#else
	ucontext_t context;
#endif
	void *stack;		/* kept from one use to the next */
	size_t stack_bytes;
	void *shadow;		/* AddressSanitizer's */
};

/* (Re)begin at @run, which never returns. */
void coroutine_begin(struct coroutine *coroutine, void (*run)(void));

/* Go on in @to; returns when something goes on in @from. */
void coroutine_switch(struct coroutine *from, struct coroutine *to);

#endif
