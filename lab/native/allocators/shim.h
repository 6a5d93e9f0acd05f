/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * The kernel's headers, for the parts of Linux that are compiled here: lib/rbtree.c,
 * lib/maple_tree.c and drivers/iommu/iova.c, unchanged. The build lets each header that they
 * include, and that is not taken from the kernel's source, include this file.
 *
 *   duplicate    macros and bit operations, with the kernel's meaning
 *   stub         lockdep, tracepoints, CPU hotplug, modules, exports: nothing
 *   different    a spinlock is the platform's lock; per-CPU data has a line for each CPU; a
 *                cache of objects (slab.c) has a free list for each CPU; delayed work never
 *                runs, because a run is shorter than its delay; a grace period of RCU is a
 *                number of later frees, because all readers have the tree's lock
 *
 * The kernel's own headers for userspace (tools/include, tools/testing/shared) do not fit: a
 * lock is pthread's there, which costs more than a kernel's, and the caches have a single list.
 */
#ifndef ALLOCATORS_SHIM_H
#define ALLOCATORS_SHIM_H

#include <errno.h>
#include <limits.h>
#include <stdio.h>
#include <string.h>

#include XS_PLATFORM

/* ---- compiler ---- */

#define __rcu
#define __percpu
#define __must_check
#define __force
#define __bitwise
#define __must_hold(lock)
#undef __always_inline
#define __always_inline		inline __attribute__((always_inline))
#define noinline		__attribute__((noinline))
#define noinline_for_kasan	noinline
#define fallthrough		__attribute__((fallthrough))
#define __maybe_unused		__attribute__((unused))
#define likely			xs_likely
#define unlikely		xs_unlikely
#define barrier()		__asm__ __volatile__("" ::: "memory")
#define READ_ONCE(x)		xs_load(&(x))
#define WRITE_ONCE(x, v)	xs_store(&(x), v)
/* x86 keeps loads in order among themselves, and stores. */
#define smp_rmb()		barrier()
/* As above. */
#define smp_wmb()		barrier()
#define static_assert		_Static_assert
#define BUILD_BUG_ON(c)		static_assert(!(c), #c)
#define IS_ENABLED(option)	0
#define IS_REACHABLE(option)	1
#define CONFIG_64BIT		1

/* ---- types and numbers ---- */

typedef unsigned int gfp_t;
typedef u64 dma_addr_t;

struct list_head {
	struct list_head *next, *prev;
};

struct hlist_node {
	struct hlist_node *next, **pprev;
};

#define PAGE_SHIFT		12
#define PAGE_SIZE		(1UL << PAGE_SHIFT)
#define BITS_PER_LONG		64
#define BITS_TO_LONGS(n)	(((n) + BITS_PER_LONG - 1) / BITS_PER_LONG)
#define BIT(n)			(1UL << (n))
#define container_of(ptr, type, member) \
	((type *)((char *)(ptr) - offsetof(type, member)))
#define ARRAY_SIZE(a)		(sizeof(a) / sizeof((a)[0]))
#define min(a, b)		((a) < (b) ? (a) : (b))
#define max(a, b)		((a) > (b) ? (a) : (b))
#define min_t(type, a, b)	min((type)(a), (type)(b))
#define max_t(type, a, b)	max((type)(a), (type)(b))
#define swap(a, b) \
	do { typeof(a) swap_ = (a); (a) = (b); (b) = swap_; } while (0)
#define ALIGN(x, a)		(((x) + (a) - 1) & ~((typeof(x))(a) - 1))
#define ALIGN_DOWN(x, a)	((x) & ~((typeof(x))(a) - 1))
#define is_power_of_2(n)	((n) && !((n) & ((n) - 1)))
#define __ffs(x)		((unsigned long)__builtin_ctzl(x))
#define fls_long(x)		((x) ? 64u - (unsigned int)__builtin_clzl(x) : 0u)
#define order_base_2(n)		((n) > 1 ? fls_long((unsigned long)(n) - 1) : 0u)
#define roundup_pow_of_two(n)	(1UL << order_base_2(n))

/*
 * Where the compiler calls a hook for each access (sim/scale/hooks.h), the functions of the
 * library have none.
 */
#ifdef __SANITIZE_THREAD__
void __tsan_read_range(void *at, long bytes);
void __tsan_write_range(void *at, long bytes);

#define memcpy(to, from, bytes)						\
	(__tsan_read_range((void *)(size_t)(from), (long)(bytes)),		\
	 __tsan_write_range(to, (long)(bytes)), __builtin_memcpy(to, from, bytes))
#define memmove(to, from, bytes)					\
	(__tsan_read_range((void *)(size_t)(from), (long)(bytes)),		\
	 __tsan_write_range(to, (long)(bytes)), __builtin_memmove(to, from, bytes))
#define memset(to, value, bytes) \
	(__tsan_write_range(to, (long)(bytes)), __builtin_memset(to, value, bytes))
#endif

/* ---- warnings ---- */

/* Ends the program. */
void kernel_bug(const char *text) __attribute__((noreturn, cold));

#define kernel_never(c)	({ bool is_ = (c); if (unlikely(is_)) kernel_bug(#c); is_; })
#define BUG_ON		(void)kernel_never
#define WARN_ON		kernel_never
#define WARN_ON_ONCE	kernel_never
#define pr_err(...)	((void)0)
#define pr_cont(...)	((void)0)
#define pr_info(...)	((void)0)

/* Only of a function of xarray.h that nothing here calls. */
#define find_next_bit(...)	0ul

#define MAX_ERRNO	4095
#define IS_ERR_VALUE(x)	unlikely((unsigned long)(void *)(x) >= (unsigned long)-MAX_ERRNO)
#define ERR_PTR(e)	((void *)(long)(e))
#define PTR_ERR(p)	((long)(p))
#define IS_ERR(p)	IS_ERR_VALUE(p)

/* ---- modules, CPUs, lockdep, tracing: nothing ---- */

#define EXPORT_SYMBOL_GPL(name)
#define EXPORT_SYMBOL(name)
#define MODULE_AUTHOR(text)
#define MODULE_DESCRIPTION(text)
#define MODULE_LICENSE(text)
#define __init
#define tracepoint_string(text)		(text)
#define trace_ma_op(...)		((void)0)
#define trace_ma_read(...)		((void)0)
#define trace_ma_write(...)		((void)0)
#define kmemleak_transient_leak(p)	((void)(p))
#define lockdep_is_held(lock)		1
#define lockdep_assert_held(lock)	((void)(lock))
#define CPUHP_IOMMU_IOVA_DEAD		0
#define cpuhp_setup_state_multi(state, name, up, down)	((void)(down), 0)
#define cpuhp_remove_multi_state(state)			((void)0)
#define cpuhp_state_add_instance_nocalls(state, node)	((void)(node), 0)
#define cpuhp_state_remove_instance_nocalls(state, node)	((void)(node))
#define hlist_entry_safe(ptr, type, member) \
	((ptr) ? container_of(ptr, type, member) : NULL)

struct mutex {
	bool locked;
};

#define DEFINE_MUTEX(name)	struct mutex name
#define mutex_lock(m)		((void)(m))
#define mutex_unlock(m)		((void)(m))

/* ---- locks ---- */

typedef xs_lock_t spinlock_t;

#define spin_lock_init(lock)		xs_lock_init(lock)
#define spin_lock(lock)			xs_lock(lock)
#define spin_unlock(lock)		xs_unlock(lock)
#define spin_lock_irqsave(lock, flags)	((flags) = xs_lock_irqsave(lock))
#define spin_unlock_irqrestore(lock, flags)	xs_unlock_irqrestore(lock, flags)
/* Only of functions of xarray.h and maple_tree.h that nothing here calls. */
#define spin_lock_bh(lock)		spin_lock(lock)
#define spin_unlock_bh(lock)		spin_unlock(lock)
#define spin_lock_irq(lock)		spin_lock(lock)
#define spin_unlock_irq(lock)		spin_unlock(lock)
#define spin_lock_nested(lock, class)	spin_lock(lock)
#define SINGLE_DEPTH_NESTING		1
#define might_alloc(gfp)		((void)(gfp))
#define assert_spin_locked(lock)	xs_assert_locked(lock)

/* ---- RCU ---- */

struct rcu_head {
	struct rcu_head *next;
	void (*func)(struct rcu_head *head);
};

#define kfree_rcu(object, member)	kernel_free_rcu(maple_node_cache, object)
#define call_rcu(head, function)	(function)(head)
#define rcu_read_lock()			((void)0)
#define rcu_read_unlock()		((void)0)
#define rcu_assign_pointer(p, v)	xs_store_release(&(p), v)
#define rcu_dereference_check(p, c)	READ_ONCE(p)
#define rcu_dereference_protected(p, c)	(p)
#define rcu_dereference_raw(p)		READ_ONCE(p)
#define RCU_INIT_POINTER(p, v)		((p) = (v))

/* ---- CPUs ---- */

#define KERNEL_LINE	64u

extern u32 kernel_cpus;

#define num_online_cpus()		kernel_cpus
#define for_each_possible_cpu(cpu)	for ((cpu) = 0; (cpu) < kernel_cpus; (cpu)++)
#define for_each_online_cpu		for_each_possible_cpu
#define per_cpu_ptr(p, cpu)	((typeof(p))((char *)(p) + (size_t)(cpu) * KERNEL_LINE))
#define raw_cpu_ptr(p)		per_cpu_ptr(p, xs_cpu_id())
#define cache_line_size()	KERNEL_LINE
#define __alloc_percpu(bytes, align)	kernel_alloc_percpu(bytes)
#define free_percpu(p)		kernel_free(p)

/* ---- memory ---- */

#define GFP_KERNEL		0u
#define GFP_ATOMIC		0u
#define GFP_NOWAIT		0u
#define __GFP_NOWARN		0u
#define SLAB_HWCACHE_ALIGN	0u
#define SLAB_PANIC		0u
#define __GFP_BITS_SHIFT	27
#define gfpflags_allow_blocking(gfp)	((void)(gfp), false)

struct kmem_cache;

struct kmem_cache_args {
	unsigned int align;
	unsigned int sheaf_capacity;
};

/* Objects that an operation may need; struct slab_sheaf of mm/slub.c. */
struct slab_sheaf {
	unsigned int size;
	void *objects[62];
};

/* Zeroed memory that starts on a line; never NULL. */
void *kernel_alloc(size_t bytes);
void kernel_free(const void *memory);
void *kernel_alloc_percpu(size_t bytes);

#define kzalloc_objs(type, count)	((type *)kernel_alloc(sizeof(type) * (count)))
#define kfree				kernel_free

struct kmem_cache *kernel_cache(size_t bytes);

#define kmem_cache_create(name, bytes, args, ...)	((void)(args), kernel_cache(bytes))
void kmem_cache_destroy(struct kmem_cache *cache);
void *kmem_cache_alloc(struct kmem_cache *cache, gfp_t gfp);
void *kmem_cache_zalloc(struct kmem_cache *cache, gfp_t gfp);
void kmem_cache_free(struct kmem_cache *cache, void *object);
void kmem_cache_free_bulk(struct kmem_cache *cache, size_t count, void **objects);
struct slab_sheaf *kmem_cache_prefill_sheaf(struct kmem_cache *cache, gfp_t gfp,
					    unsigned int count);
int kmem_cache_refill_sheaf(struct kmem_cache *cache, gfp_t gfp, struct slab_sheaf **sheaf,
			    unsigned int count);
void kmem_cache_return_sheaf(struct kmem_cache *cache, gfp_t gfp, struct slab_sheaf *sheaf);

static inline void *kmem_cache_alloc_from_sheaf(struct kmem_cache *cache, gfp_t gfp,
						struct slab_sheaf *sheaf)
{
	return sheaf->objects[--sheaf->size];
}

static inline unsigned int kmem_cache_sheaf_size(struct slab_sheaf *sheaf)
{
	return sheaf->size;
}

/* Frees an object after a grace period. */
void kernel_free_rcu(struct kmem_cache *cache, void *object);

/* ---- delayed work ---- */

struct work_struct {
	void (*func)(struct work_struct *work);
};

struct delayed_work {
	struct work_struct work;
};

#define msecs_to_jiffies(ms)		(ms)
#define INIT_DELAYED_WORK(w, f)		((w)->work.func = (f))
#define schedule_delayed_work(w, delay)	((void)(w))
#define cancel_delayed_work_sync(w)	((void)(w))

#endif
