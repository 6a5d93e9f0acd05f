/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * The platform of a program that measures the engine on real CPUs: a CPU is a pinned thread.
 *
 * Each primitive has the instructions that it has in the module (kmod/platform.h,
 * kmod/primitives.h) on x86-64, so that a figure is the engine's:
 *
 *   per-CPU data   behind the register GS, which user programs do not use: a count is one
 *                  instruction
 *   locks          four bytes, taken by one compare and swap; waiting CPUs form a queue
 *   pages          64 bytes each, with flags, head and reference count where Linux has them
 *   backend        the only instance, so its operations are inlined
 *
 * What a program cannot do is left out: interrupts are not turned off, and leaving a section
 * does not look for a task that wants the CPU.
 */
#ifndef XSMMU_PLATFORM_NATIVE_H
#define XSMMU_PLATFORM_NATIVE_H

/* As the module's: a word that only the running CPU writes needs no locked operation. */
#ifdef __x86_64__
#define xs_a64_try_local(a, old, v) ({					\
	bool xs_is_;							\
									\
	asm volatile("cmpxchgq %[to], %[at]"				\
		     : [at] "+m" (*(a)), "+a" (*(old)), "=@ccz" (xs_is_)	\
		     : [to] "r" ((u64)(v)) : "memory");			\
	xs_is_;								\
})
#endif

#include <xsmmu/userspace.h>

#define xs_assume(c)	do { if (!(c)) __builtin_unreachable(); } while (0)

#define NATIVE_CPUS	1024u
#define NATIVE_LINE	__attribute__((aligned(64)))

/* Print the reason why the run has failed, and end the program. */
void native_fail(const char *text) __attribute__((noreturn, cold));

/* ---- per-CPU data ---- */

#define NATIVE_COUNTS_BYTES	192

/**
 * struct native_area - per-CPU data
 * @id: number of the CPU, counted from 0
 * @inside: sections that the CPU has entered and not left
 * @self: this area
 * @deferred: the CPU has deferred an unmap since its last poll
 * @removed_pages: pages that the backend has removed on this CPU
 * @commands_page: page-selective commands that the backend was told to send on this CPU
 * @commands_domain: domain-selective commands
 * @deadline_ns: time of the CPU's timer, 0: none. Other CPUs write it, too.
 * @counts: the engine's counters of the CPU, a struct xs_counts
 */
struct native_area {
	u32 id;
	u32 inside;
	struct native_area *self;
	bool deferred;
	u64 removed_pages;
	u64 commands_page;
	u64 commands_domain;
	u64 deadline_ns NATIVE_LINE;
	u8 counts[NATIVE_COUNTS_BYTES] NATIVE_LINE;
} __attribute__((aligned(4096)));

extern struct native_area *native_areas[NATIVE_CPUS];

/* Make the per-CPU data of CPU @id. */
void native_make_cpu(u32 id);

/* Make the per-CPU data of CPU @id the data of the calling thread. */
void native_become(u32 id);

/* Let the calling thread run on this CPU of the machine only. */
void native_pin(int cpu);

/* The running CPU's copy of a word at an offset of its area. */
#define native_here(type, offset)	(*(type __seg_gs *)(size_t)(offset))
#define native_member(member) \
	native_here(typeof(((struct native_area *)0)->member), \
		    offsetof(struct native_area, member))

/* ---- locks ---- */

typedef struct {
	u32 word;	/* NATIVE_LOCKED, and from bit 16 on the last waiting CPU + 1 */
} xs_lock_t;

typedef u32 xs_flags_t;

#define NATIVE_LOCKED	1u

void native_lock_wait(xs_lock_t *lock);

static xs_inline void xs_lock_init(xs_lock_t *lock)
{
	lock->word = 0;
}

static xs_inline void xs_lock(xs_lock_t *lock)
{
	u32 unlocked = 0;

	if (xs_unlikely(!__atomic_compare_exchange_n(&lock->word, &unlocked, NATIVE_LOCKED, false,
						     __ATOMIC_ACQUIRE, __ATOMIC_RELAXED)))
		native_lock_wait(lock);
}

/* Only the lowest byte is written: waiting CPUs change the upper half meanwhile. */
static xs_inline void xs_unlock(xs_lock_t *lock)
{
	__atomic_store_n((u8 *)&lock->word, 0, __ATOMIC_RELEASE);
}

static xs_inline xs_flags_t xs_lock_irqsave(xs_lock_t *lock)
{
	xs_lock(lock);
	return 0;
}

#define xs_unlock_irqrestore(lock, flags)	((void)(flags), xs_unlock(lock))
#define xs_local_save()		0u
#define xs_local_restore(flags)	((void)(flags))
#define xs_assert_locked(lock)	((void)(lock))

/* ---- sections ---- */

#define native_barrier()	__asm__ __volatile__("" ::: "memory")

static xs_inline void xs_enter(void)
{
	native_member(inside)++;
	native_barrier();
}

static xs_inline void xs_exit(void)
{
	native_barrier();
	native_member(inside)--;
}

#define xs_cpu_id()		(native_member(id))

/* ---- counters: a pointer to counters is an offset in each CPU's area ---- */

struct xs_counts;
typedef struct xs_counts xs_counts_t;

#define xs_counts_new()		((xs_counts_t *)offsetof(struct native_area, counts))
#define xs_counts_free(c)	((void)(c))
#define xs_counts_of(c, cpu)	((struct xs_counts *)((u8 *)native_areas[cpu] + (size_t)(c)))
#define xs_count_cpu(c)		native_here(struct xs_cpu *, &(c)->cpu)
#define xs_count(c, field, n)	((void)(native_here(u64, &(c)->field) += (n)))

/* ---- the backend ---- */

struct xs_backend_ops;
extern const struct xs_backend_ops native_ops;
#define xs_ops(engine)		(&native_ops)
#define xs_backend(engine)	((void *)(engine))

/* As large as Linux's. */
typedef struct {
	u64 start;
	u64 end;
	u64 page_bytes;
	void *freed[2];
	bool queued;
} xs_gather_t;

static xs_inline bool xs_warn_once(bool broken, const char *text)
{
	if (xs_unlikely(broken))
		native_fail(text);
	return false;
}

/* ---- memory ---- */

/**
 * struct native_page - page of memory, laid out like Linux's struct page
 * @flags: zone, and flags that no page here has
 * @head: 1 + the address of the first page of a compound page; here 0
 * @refs: reference count
 */
struct native_page {
	u64 flags;
	u64 head;
	u64 other[4];
	u32 others;
	u32 refs;
	u64 last;
};

_Static_assert(sizeof(struct native_page) == 64, "as large as Linux's struct page");
_Static_assert(offsetof(struct native_page, refs) == 52, "the reference count is Linux's");

/* A physical address is an offset in the memory. */
extern struct native_page *native_pages;
extern u8 *native_memory;

#define NATIVE_SLAB	(1ULL << 9)
#define NATIVE_DEVICE	(1ULL << 63)

typedef struct native_page *xs_memory_t;
typedef void *xs_ref_t;

/* The value of XS_REF_UNHELD, which is declared later. */
#define NATIVE_UNHELD	((xs_ref_t)2)

#define xs_memory_at(phys)	(&native_pages[(phys) >> XS_PAGE_LG2])
#define xs_ref_of(phys)		xs_memory_ref(xs_memory_at(phys))
#define xs_prefetchw(p) \
	__asm__ __volatile__("prefetchw %0" : : "m" (*(const char *)(p)))

static xs_inline xs_ref_t xs_memory_ref(const struct native_page *page)
{
	u64 head = xs_load(&page->head);

	if (xs_unlikely(head & 1))
		page = (const struct native_page *)(head - 1);
	if (xs_unlikely(page->flags & NATIVE_SLAB) || xs_unlikely(page->flags & NATIVE_DEVICE))
		return NATIVE_UNHELD;
	return (xs_ref_t)page;
}

static xs_inline u32 xs_ref_span(xs_ref_t ref, u64 phys)
{
	(void)ref;
	(void)phys;
	return 1;
}

/* Takes a reference unless the page is free. */
static xs_inline bool xs_ref_hold(xs_ref_t ref)
{
	struct native_page *page = ref;
	u32 refs = __atomic_load_n(&page->refs, __ATOMIC_RELAXED);

	do {
		if (xs_unlikely(!refs))
			return false;
	} while (xs_unlikely(!__atomic_compare_exchange_n(&page->refs, &refs, refs + 1, false,
							  __ATOMIC_SEQ_CST, __ATOMIC_RELAXED)));
	return true;
}

#define xs_ref_hold_fast(ref)	xs_ref_hold(ref)

static xs_inline void xs_ref_release(xs_ref_t ref)
{
	struct native_page *page = ref;

	if (xs_unlikely(!__atomic_sub_fetch(&page->refs, 1, __ATOMIC_SEQ_CST)))
		native_fail("a page was freed that its driver still has");
}

/* The kernel's memcpy() on a CPU with fast short copies. */
static xs_inline void native_copy(void *to, const void *from, size_t bytes)
{
	__asm__ __volatile__("rep movsb" : "+D" (to), "+S" (from), "+c" (bytes) :: "memory");
}

#define xs_copy_in(bounce, phys, bytes)	native_copy(bounce, native_memory + (phys), bytes)
#define xs_copy_out(phys, bounce, bytes)	native_copy(native_memory + (phys), bounce, bytes)

#endif
