/* SPDX-License-Identifier: GPL-2.0 OR MIT */
/*
 * What the engine needs of its backend, checked.
 *
 * Each backend (the Linux module, the unit tests, the simulation) has one platform header:
 * the things that are the same everywhere but spelled differently. Its name is XS_PLATFORM,
 * which the compiler's command line defines, quotes included; without that it is
 * <platform.h>, the module's. Platforms in userspace begin with userspace.h, backends without
 * real memory with modelled.h as well. What differs in behaviour is in world.h.
 *
 * Required of a platform header:
 *   types      u8 u16 u32 u64 s64 bool size_t
 *   XS_PAGE_LG2  log2 of a page's bytes, 12 .. 16: the CPU's, as memory goes back to its
 *              allocator by those
 *   xs_inline, xs_noinline  always, never inlined: the map and unmap paths are
 *              one function each, what is rare stays out of them
 *   xs_no_canary  no look at the stack's end: on those paths, with no array there
 *   xs_enter(), xs_exit()  around each call that looks at what the engine keeps
 *              without a lock: the caller stays on this CPU, may be interrupted,
 *              and the backend's quiesce() waits for the exit. They nest.
 *   xs_lock_t  a lock that may be taken in any context, interrupts included
 *              xs_lock_init(l)   xs_lock(l) -> xs_flags_t   xs_unlock(l, flags)
 *              xs_lock_nested(l), xs_unlock_nested(l): the same while another
 *              lock of the engine is held (interrupts are off already)
 *              xs_assert_locked(l): somebody has it
 *   xs_local_save() -> xs_flags_t, xs_local_restore(flags): no interrupts
 *   xs_cpu_id()      the running CPU, stable between enter and exit
 *   xs_atomic64_t  a 64-bit word, every operation fully ordered, but what says that it is
 *              less: no stronger than its place needs it (tests/litmus):
 *              xs_a64_read(a) and xs_a64_set(a, v), which are not ordered,
 *              xs_a64_set_release(a, v), ordered behind what was before it,
 *              xs_a64_or(a, v) -> old value, xs_a64_andnot(a, v) -> old value,
 *              xs_a64_swap(a, v) -> old value,
 *              xs_a64_try(a, &old, v) -> bool: compare and swap; on failure
 *              old is the value found, and nothing is ordered
 *              xs_a64_or_relaxed(a, v), xs_a64_andnot_relaxed(a, v),
 *              xs_a64_swap_relaxed(a, v), xs_a64_swap_release(a, v),
 *              xs_a64_try_relaxed(a, &old, v), xs_a64_try_acquire(a, &old, v)
 *   xs_counts_t *  a struct xs_counts per CPU:
 *              xs_counts_new(), xs_counts_free(c), xs_counts_of(c, cpu),
 *              xs_count(c, field, n): add to this CPU's, exact in any context,
 *              xs_count_cpu(c): the field cpu of this CPU's, where the caller
 *              stays on it
 *   xs_popcount(u64); xs_ctz(u64), xs_log2(u64) rounded down: not for 0
 *   xs_load(p), xs_store(p, v): a single access that is not torn
 *   xs_load_acquire(p), xs_store_release(p, v)
 *   xs_prefetchw(p)  it is about to be written
 *   xs_likely(c), xs_unlikely(c); xs_assume(c): the compiler may rely on @c
 *   xs_warn_once(c, text) -> bool: report a broken invariant once, go on
 *   xs_ops(engine)  the struct xs_backend_ops to use: engine->ops, or the only
 *              one there is, so that calls need not be indirect
 *   xs_backend(engine)  the first argument of those calls: engine->backend, or the
 *              same known otherwise
 *   xs_gather_t  collects what a flush's removals free; opaque to the engine
 *   xs_ref_t     what is held of one page (pointer-sized); see slot.h
 *   xs_ref_of(phys) -> xs_ref_t: how the page at @phys can be held; the three
 *              lowest bits of what can be held are 0
 *   xs_memory_t  what the caller of a map of one page knows of the memory at an
 *              address: xs_memory_at(phys), or better,
 *              xs_memory_ref(memory) -> xs_ref_t: the same as xs_ref_of(phys)
 *   xs_ref_span(ref, phys) -> u32: the pages from @phys on that holding @ref,
 *              which xs_ref_of(phys) gave, keeps; at least 1
 *   xs_ref_hold(ref) -> bool: false, and nothing is held, if the page is free
 *   xs_ref_hold_fast(ref) -> bool: the same, and may also fail for no reason
 *   xs_ref_release(ref)
 *   xs_copy_in(bounce buffer, phys, bytes), xs_copy_out(phys, bounce buffer, bytes): copy memory
 *              into a bounce buffer of a pool, or back
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

/* What functions return negated; the same numbers in every backend. */
enum xs_errno { XS_ENOMEM = 12, XS_EINVAL = 22, XS_EILSEQ = 84 };

#endif
