/* SPDX-License-Identifier: GPL-2.0 OR MIT */
/*
 * The part of a platform that is common to all backends without real memory: an address
 * identifies a page, and functions of the backend hold pages, copy buffers and keep counters.
 * needs.h has the meaning of each name.
 *
 * A platform may define xs_prefetchw(), xs_ref_hold_fast(), xs_copy_in(), xs_copy_out() and
 * xs_counts_of() as macros before the platform includes this file.
 */
#ifndef XSMMU_MODELLED_H
#define XSMMU_MODELLED_H

#define xs_ops(engine)		((engine)->ops)
#define xs_backend(engine)	((engine)->backend)

typedef void *xs_ref_t;
typedef u64 xs_memory_t;

#define xs_memory_at(phys)	(phys)
#define xs_memory_ref(memory)	xs_ref_of(memory)
#ifndef xs_prefetchw
#define xs_prefetchw(p)		((void)(p))
#endif

xs_ref_t xs_ref_of(u64 phys);
u32 xs_ref_span(xs_ref_t ref, u64 phys);
bool xs_ref_hold(xs_ref_t ref);
#ifndef xs_ref_hold_fast
bool xs_ref_hold_fast(xs_ref_t ref);
#endif
void xs_ref_release(xs_ref_t ref);

#ifndef xs_copy_in
void xs_copy_in(void *bounce, u64 phys, u32 bytes);
void xs_copy_out(u64 phys, const void *bounce, u32 bytes);
#endif

struct xs_counts;
typedef struct xs_counts xs_counts_t;

xs_counts_t *xs_counts_new(void);
void xs_counts_free(xs_counts_t *counts);
#ifndef xs_counts_of
struct xs_counts *xs_counts_of(xs_counts_t *counts, u32 cpu);
#endif

#endif
