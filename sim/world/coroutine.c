// SPDX-License-Identifier: GPL-2.0-only
/* Coroutines; see coroutine.h. */
#include <stdlib.h>
#include <stdint.h>

#include "coroutine.h"

#ifdef SANITIZED
#define STACK_BYTES	(512u << 10)
#include <sanitizer/asan_interface.h>
#include <sanitizer/common_interface_defs.h>
#else
#define STACK_BYTES	(128u << 10)
#endif

/* The coroutine left last; the next coroutine learns that stack's bounds from AddressSanitizer. */
static struct coroutine *left;

/* Tell AddressSanitizer of the stack in use. */
static void leave(struct coroutine *from, struct coroutine *to)
{
	left = from;
#ifdef SANITIZED
	__sanitizer_start_switch_fiber(&from->shadow, to->stack, to->stack_bytes);
#else
	(void)to;
#endif
}

static void arrive(struct coroutine *at)
{
#ifdef SANITIZED
	const void *stack;
	size_t bytes;

	__sanitizer_finish_switch_fiber(at->shadow, &stack, &bytes);
	if (!left->stack) {
		left->stack = (void *)(uintptr_t)stack;
		left->stack_bytes = bytes;
	}
#else
	(void)at;
#endif
}

static struct coroutine *beginning;
static void (*beginning_run)(void);

static void first(void)
{
	arrive(beginning);
#ifdef SANITIZED
	/* Frames that an earlier run left on this stack are dead. */
	__asan_handle_no_return();
#endif
	beginning_run();
	abort();
}

#ifdef __x86_64__
/* Saves the callee-saved registers on one stack and loads them from another. */
void coroutine_jump(void **save, void *load);

__asm__(".text\n"
	".globl coroutine_jump\n"
	".type coroutine_jump, @function\n"
	"coroutine_jump:\n"
	"	pushq %rbp\n"
	"	pushq %rbx\n"
	"	pushq %r12\n"
	"	pushq %r13\n"
	"	pushq %r14\n"
	"	pushq %r15\n"
	"	movq %rsp, (%rdi)\n"
	"	movq %rsi, %rsp\n"
	"	popq %r15\n"
	"	popq %r14\n"
	"	popq %r13\n"
	"	popq %r12\n"
	"	popq %rbx\n"
	"	popq %rbp\n"
	"	ret\n"
	".size coroutine_jump, .-coroutine_jump\n");

static void prepare(struct coroutine *coroutine)
{
	uintptr_t end = (uintptr_t)coroutine->stack + STACK_BYTES;
	void **top = (void **)(end & ~(uintptr_t)63);

	/* Align as after a call: the stack pointer is 8 off a multiple of 16. */
	*--top = NULL;
	*--top = (void *)(uintptr_t)first;
	for (int i = 0; i < 6; i++)
		*--top = NULL;
	coroutine->stack_pointer = top;
}

static void jump(struct coroutine *from, struct coroutine *to)
{
	coroutine_jump(&from->stack_pointer, to->stack_pointer);
}
#else
static void prepare(struct coroutine *coroutine)
{
	getcontext(&coroutine->context);
	coroutine->context.uc_stack.ss_sp = coroutine->stack;
	coroutine->context.uc_stack.ss_size = STACK_BYTES;
	coroutine->context.uc_link = NULL;
	makecontext(&coroutine->context, first, 0);
}

static void jump(struct coroutine *from, struct coroutine *to)
{
	swapcontext(&from->context, &to->context);
}
#endif

/*
 * The first switch to a begun coroutine must be the next switch of all, because one variable
 * hands over the function to run.
 */
void coroutine_begin(struct coroutine *coroutine, void (*run)(void))
{
	if (!coroutine->stack) {
		coroutine->stack = malloc(STACK_BYTES);
		coroutine->stack_bytes = STACK_BYTES;
		if (!coroutine->stack)
			abort();
	}
#ifdef SANITIZED
	/* An earlier run on this stack may have ended inside a function. */
	__asan_unpoison_memory_region(coroutine->stack, STACK_BYTES);
#endif
	prepare(coroutine);
	beginning = coroutine;
	beginning_run = run;
}

void coroutine_switch(struct coroutine *from, struct coroutine *to)
{
	leave(from, to);
	jump(from, to);
	arrive(from);
}
