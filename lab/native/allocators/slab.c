// SPDX-License-Identifier: GPL-2.0-only
/*
 * Memory of the kernel's code; see shim.h. A CPU takes objects from a free list of its own and
 * frees them to it, as in Linux's SLUB; lists that grow too long, or are empty, exchange BATCH
 * objects with a shared list.
 */
#include "shim.h"
#include "iova.h"

#define BATCH		32u
#define GRACE		64u	/* frees of a CPU until an object's grace period ends */

struct object {
	struct object *next;
};

/*
 * struct cpu_list - free objects of a CPU
 * @waiting: objects whose grace period runs, a ring
 */
struct cpu_list {
	struct object *first;
	u32 count;
	u32 at;
	void **waiting;
} __attribute__((aligned(64)));

/*
 * struct kmem_cache - a cache
 * @lock: a byte, guards @shared; no lock of the allocators, so it is not counted as one
 */
struct kmem_cache {
	size_t bytes;
	u32 lock __attribute__((aligned(64)));
	struct object *shared;
	struct cpu_list cpus[];
};

u32 kernel_cpus;

static struct kmem_cache *sheaves;

void kernel_bug(const char *text)
{
	program_fail(text);
}

/* ---- single objects: the size stands on the line before ---- */

void *kernel_alloc(size_t bytes)
{
	u64 *memory = program_alloc(bytes + KERNEL_LINE);

	*memory = bytes + KERNEL_LINE;
	return (u8 *)memory + KERNEL_LINE;
}

void kernel_free(const void *memory)
{
	u64 *start = (u64 *)((u8 *)(size_t)memory - KERNEL_LINE);

	if (memory)
		program_free(start, *start);
}

void *kernel_alloc_percpu(size_t bytes)
{
	if (bytes > KERNEL_LINE)
		kernel_bug("per-CPU data of more than a line");
	return kernel_alloc((size_t)kernel_cpus * KERNEL_LINE);
}

/* ---- caches ---- */

static struct kmem_cache *make_cache(size_t bytes)
{
	struct kmem_cache *cache =
		kernel_alloc(sizeof(*cache) + kernel_cpus * sizeof(cache->cpus[0]));

	cache->bytes = ALIGN(bytes, KERNEL_LINE);
	for (u32 i = 0; i < kernel_cpus; i++)
		cache->cpus[i].waiting = kernel_alloc(GRACE * sizeof(void *));
	return cache;
}

struct kmem_cache *kernel_cache(size_t bytes)
{
	if (!sheaves)
		sheaves = make_cache(sizeof(struct slab_sheaf));
	return make_cache(bytes);
}

/* The objects stay: a program makes one state only. */
void kmem_cache_destroy(struct kmem_cache *cache)
{
	kernel_free(cache);
}

static void push(struct cpu_list *list, struct object *object)
{
	object->next = list->first;
	list->first = object;
	list->count++;
}

static struct object *pop(struct cpu_list *list)
{
	struct object *object = list->first;

	list->first = object->next;
	list->count--;
	return object;
}

static void lock_shared(struct kmem_cache *cache)
{
	while (__atomic_exchange_n(&cache->lock, 1, __ATOMIC_ACQUIRE))
		__builtin_ia32_pause();
}

static void unlock_shared(struct kmem_cache *cache)
{
	__atomic_store_n(&cache->lock, 0, __ATOMIC_RELEASE);
}

static noinline void refill(struct kmem_cache *cache, struct cpu_list *mine)
{
	u8 *fresh;

	lock_shared(cache);
	while (cache->shared && mine->count < BATCH) {
		struct object *object = cache->shared;

		cache->shared = object->next;
		push(mine, object);
	}
	unlock_shared(cache);
	if (mine->count)
		return;
	fresh = program_alloc((BATCH + 1) * cache->bytes);
	/* As kmalloc() does; a maple tree's pointers to nodes have other data in their low bits. */
	if (is_power_of_2(cache->bytes))
		fresh = (u8 *)ALIGN((u64)fresh, cache->bytes);
	for (u32 i = BATCH; i--;)
		push(mine, (struct object *)(fresh + i * cache->bytes));
}

static noinline void give(struct kmem_cache *cache, struct cpu_list *mine)
{
	lock_shared(cache);
	while (mine->count > BATCH) {
		struct object *object = pop(mine);

		object->next = cache->shared;
		cache->shared = object;
	}
	unlock_shared(cache);
}

void *kmem_cache_alloc(struct kmem_cache *cache, gfp_t gfp)
{
	struct cpu_list *mine = &cache->cpus[xs_cpu_id()];

	if (unlikely(!mine->first))
		refill(cache, mine);
	return pop(mine);
}

void *kmem_cache_zalloc(struct kmem_cache *cache, gfp_t gfp)
{
	return memset(kmem_cache_alloc(cache, gfp), 0, cache->bytes);
}

void kmem_cache_free(struct kmem_cache *cache, void *object)
{
	struct cpu_list *mine = &cache->cpus[xs_cpu_id()];

	push(mine, object);
	if (unlikely(mine->count > 2 * BATCH))
		give(cache, mine);
}

void kmem_cache_free_bulk(struct kmem_cache *cache, size_t count, void **objects)
{
	for (size_t i = 0; i < count; i++)
		kmem_cache_free(cache, objects[i]);
}

void kernel_free_rcu(struct kmem_cache *cache, void *object)
{
	struct cpu_list *mine = &cache->cpus[xs_cpu_id()];
	void **place = &mine->waiting[mine->at++ % GRACE];
	void *old = *place;

	*place = object;
	if (old)
		kmem_cache_free(cache, old);
}

/* ---- sheaves ---- */

int kmem_cache_refill_sheaf(struct kmem_cache *cache, gfp_t gfp, struct slab_sheaf **sheaf,
			    unsigned int count)
{
	if (count > ARRAY_SIZE((*sheaf)->objects))
		kernel_bug("an operation needs more objects than a sheaf has");
	while ((*sheaf)->size < count)
		(*sheaf)->objects[(*sheaf)->size++] = kmem_cache_alloc(cache, gfp);
	return 0;
}

struct slab_sheaf *kmem_cache_prefill_sheaf(struct kmem_cache *cache, gfp_t gfp,
					    unsigned int count)
{
	struct slab_sheaf *sheaf = kmem_cache_alloc(sheaves, gfp);

	sheaf->size = 0;
	kmem_cache_refill_sheaf(cache, gfp, &sheaf, count);
	return sheaf;
}

void kmem_cache_return_sheaf(struct kmem_cache *cache, gfp_t gfp, struct slab_sheaf *sheaf)
{
	kmem_cache_free_bulk(cache, sheaf->size, sheaf->objects);
	kmem_cache_free(sheaves, sheaf);
}
