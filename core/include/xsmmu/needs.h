/* SPDX-License-Identifier: GPL-2.0 OR MIT */
/*
 * What the engine needs of a platform header. The end of this file checks types and sizes.
 *
 * Each backend (the Linux module, the unit tests, the simulation) has a platform header, for
 * primitives that are the same everywhere but spelled differently. The compiler's command line
 * defines XS_PLATFORM as the header's name, quotes included; without a definition the engine
 * includes <platform.h>, the module's header. Platforms in userspace begin with userspace.h;
 * backends without real memory also include modelled.h. Differences in behaviour are in
 * backend.h.
 *
 * Required of a platform header:
 *   types      u8 u16 u32 u64 s64 bool size_t
 *   XS_PAGE_LG2  log2 of the bytes of a CPU's page, 12 .. 16: memory goes back to
 *              its allocator in such pages
 *   xs_inline, xs_noinline  always inlined, never inlined: the map and unmap paths
 *              are a single function each, and rare cases stay outside
 *   xs_no_canary  no stack canary: for the map and unmap paths, without arrays
 *   xs_enter(), xs_exit()  around each call that reads the engine's state without
 *              a lock: the caller stays on its CPU and may be interrupted, and the
 *              backend's quiesce() waits for the exit. The calls nest.
 *   xs_lock_t  a lock for any context, interrupts included
 *              xs_lock_init(l)
 *              xs_lock_irqsave(l) -> xs_flags_t, xs_unlock_irqrestore(l, flags):
 *              with interrupts off
 *              xs_lock(l), xs_unlock(l): for a caller with interrupts off, and so
 *              for a caller that holds another lock of the engine
 *              xs_assert_locked(l): some CPU holds the lock
 *   xs_local_save() -> xs_flags_t, xs_local_restore(flags): interrupts off
 *   xs_cpu_id()      the running CPU, stable between enter and exit
 *   xs_atomic64_t  a 64-bit word. Operations are fully ordered unless stated
 *              otherwise; a weaker operation is as strong as its users need
 *              (tests/litmus).
 *              xs_a64_read(a) and xs_a64_set(a, v): no ordering
 *              xs_a64_set_release(a, v): ordered after all earlier accesses
 *              xs_a64_or(a, v) -> old value, xs_a64_andnot(a, v) -> old value,
 *              xs_a64_swap(a, v) -> old value
 *              xs_a64_try(a, &old, v) -> bool: compare and swap; on failure
 *              old is the present value, and there is no ordering
 *              xs_a64_or_relaxed(a, v), xs_a64_andnot_relaxed(a, v),
 *              xs_a64_swap_relaxed(a, v), xs_a64_swap_release(a, v),
 *              xs_a64_try_relaxed(a, &old, v), xs_a64_try_acquire(a, &old, v)
 *              xs_a64_try_local(a, &old, v): xs_a64_try_relaxed() of a word that only
 *              the running CPU writes. Atomic against interrupts of the CPU only: a
 *              write of another CPU could be lost
 *   xs_counts_t *  a struct xs_counts for each CPU:
 *              xs_counts_new(), xs_counts_free(c), xs_counts_of(c, cpu),
 *              xs_count(c, field, n): add to the running CPU's field, exact in any
 *              context,
 *              xs_count_cpu(c): the running CPU's field cpu, for a caller that
 *              stays on the CPU
 *   xs_popcount(u64); xs_ctz(u64), xs_log2(u64) rounded down: not for 0
 *   xs_load(p), xs_store(p, v): a single access without tearing
 *   xs_load_acquire(p), xs_store_release(p, v)
 *   xs_prefetchw(p)  prefetch for a write
 *   xs_likely(c), xs_unlikely(c); xs_assume(c): the compiler may rely on @c
 *   xs_warn_once(c, text) -> bool: report a broken invariant once, and go on
 *   xs_ops(engine)  the struct xs_backend_ops to use: engine->ops, or the only
 *              instance, so that calls need not be indirect
 *   xs_backend(engine)  first argument of the backend's operations:
 *              engine->backend, or the same value from another source
 *   xs_gather_t  collects the pages that a flush's removals free; opaque to the
 *              engine
 *   xs_ref_t     a held reference for a page (pointer-sized); see slot.h
 *   xs_ref_of(phys) -> xs_ref_t: how the page at @phys can be held; the three
 *              lowest bits of a reference are 0
 *   xs_memory_t  description of the memory by the caller of a map of a single page:
 *              xs_memory_at(phys), or the same value without the look-up (in the
 *              module: the struct page)
 *              xs_memory_ref(memory) -> xs_ref_t: the same as xs_ref_of(phys)
 *   xs_ref_span(ref, phys) -> u32: number of pages from @phys on that are kept by
 *              holding @ref, the result of xs_ref_of(phys); at least 1
 *   xs_ref_hold(ref) -> bool: false, and nothing is held, if the page is free
 *   xs_ref_hold_fast(ref) -> bool: the same, but may also fail for a page that is
 *              not free
 *   xs_ref_release(ref)
 *   xs_copy_in(bounce buffer, phys, bytes), xs_copy_out(phys, bounce buffer, bytes):
 *              copy memory into a bounce buffer of a pool, or back
 */
#ifndef XSMMU_NEEDS_H
#define XSMMU_NEEDS_H

#ifdef XS_PLATFORM
#include XS_PLATFORM
#else
#include <platform.h>
#endif

_Static_assert(sizeof(u8) == 1 && sizeof(u16) == 2, "u8, u16");
_Static_assert(sizeof(u32) == 4 && sizeof(u64) == 8, "u32, u64");
_Static_assert((u32)-1 > 0 && (u64)-1 > 0 && (s64)-1 < 0, "signedness");
_Static_assert(XS_PAGE_LG2 >= 12 && XS_PAGE_LG2 <= 16, "pages of 4 to 64 KiB");
_Static_assert(sizeof(xs_atomic64_t) == 8, "xs_atomic64_t is 64 bits");
_Static_assert(sizeof(xs_ref_t) == sizeof(void *), "xs_ref_t is a pointer");
_Static_assert(sizeof(void *) == 8, "a slot keeps a pointer in 64 bits");

/* Error numbers, returned negated; the same in every backend. */
enum xs_errno { XS_ENOMEM = 12, XS_EINVAL = 22, XS_EILSEQ = 84 };

#endif
