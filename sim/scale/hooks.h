/* SPDX-License-Identifier: GPL-2.0-only */
/* The compiler's calls, see hooks.c; names and types are libtsan's. */
#ifndef SCALE_HOOKS_H
#define SCALE_HOOKS_H

/* Selects counting locks. */
#define SCALE_HOOKS
#include "platform_scale.h"

/* Addresses from the engine's frames up to this address are on the stack. */
extern u64 hooks_stack_top;

void __tsan_init(void);
void __tsan_func_entry(void *caller);
void __tsan_func_exit(void);
void __tsan_read_range(void *at, size_t bytes);
void __tsan_write_range(void *at, size_t bytes);
void __tsan_atomic_thread_fence(int order);
void __tsan_atomic_signal_fence(int order);

#define HOOKS_PLAIN(bytes)						\
	void __tsan_read##bytes(void *at);				\
	void __tsan_write##bytes(void *at);				\
	void __tsan_unaligned_read##bytes(void *at);			\
	void __tsan_unaligned_write##bytes(void *at);

HOOKS_PLAIN(1)
HOOKS_PLAIN(2)
HOOKS_PLAIN(4)
HOOKS_PLAIN(8)
HOOKS_PLAIN(16)

#define HOOKS_ATOMIC(bits, word)					\
	word __tsan_atomic##bits##_load(const word *at, int order);	\
	void __tsan_atomic##bits##_store(word *at, word value, int order);	\
	word __tsan_atomic##bits##_exchange(word *at, word value, int order);	\
	word __tsan_atomic##bits##_fetch_add(word *at, word value, int order);	\
	word __tsan_atomic##bits##_fetch_sub(word *at, word value, int order);	\
	word __tsan_atomic##bits##_fetch_and(word *at, word value, int order);	\
	word __tsan_atomic##bits##_fetch_or(word *at, word value, int order);	\
	word __tsan_atomic##bits##_fetch_xor(word *at, word value, int order);	\
	word __tsan_atomic##bits##_fetch_nand(word *at, word value, int order);	\
	int __tsan_atomic##bits##_compare_exchange_strong(word *at, word *old, word value,	\
							  int order, int failed);		\
	int __tsan_atomic##bits##_compare_exchange_weak(word *at, word *old, word value,	\
							int order, int failed);

HOOKS_ATOMIC(8, u8)
HOOKS_ATOMIC(16, u16)
HOOKS_ATOMIC(32, u32)
HOOKS_ATOMIC(64, u64)

#endif
