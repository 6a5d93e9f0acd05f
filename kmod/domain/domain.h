/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * The backend of an engine in Linux, for one IOMMU group: page tables and invalidations of the
 * group's default domain, flush points, and memory for the pool.
 *
 * The engine maps in the group's default domain, in which the IOMMU core has already mapped the
 * reserved regions. No other code allocates IOVAs in the domain meanwhile, because all devices of
 * the group that do DMA use the engine.
 *
 * "Sections" are readers on the DMA path: in an RCU section of the engine (xs_enter()), or in an
 * SRCU section of &xs_backend_srcu.
 *
 * The backend does not read the state of devices or of the assignment: attach.c passes what it
 * needs in struct xs_backend_config. Its functions are called with xs_mutex held where the
 * comment says so, which serializes them for a group.
 */
#ifndef XSMMU_DOMAIN_H
#define XSMMU_DOMAIN_H

#include <linux/hrtimer.h>
#include <linux/iommu.h>
#include <linux/list.h>
#include <linux/mutex.h>
#include <linux/spinlock.h>
#include <linux/srcu.h>
#include <linux/workqueue.h>

#include <xsmmu/engine.h>

#include "../iommu/iommu.h"
#include "../iommu/table.h"

struct xs_backend;

typedef int (*xs_map_pages_t)(struct iommu_domain *domain, unsigned long iova,
			      phys_addr_t phys, size_t page_bytes, size_t pages,
			      int prot, gfp_t gfp, size_t *mapped);

/**
 * struct xs_domain - the IOMMU domain in which a backend maps now, and how
 *
 * Lifetime: from xs_backend_init() to the next change of the domain, and from change to change.
 * Written under xs_mutex and the backend's @work_lock, read in sections, unless said otherwise.
 *
 * @now:	the group's default domain; xs_no_domain while the group is orphaned, and until a
 *		driver binds for which the default domain translates
 * @former:	the previous domain, while calls that have seen it are under way; else NULL.
 *		Read after @now (see former_domain())
 * @iommu:	properties of the IOMMU; @iommu.flushes_maps is true only if the backend must flush
 *		maps itself
 * @is_known:	the backend calls the domain's own operations; else it calls the IOMMU core
 * @is_generic:	the domain has generic page tables
 * @maps_generic: a map needs only the map of the generic page tables
 * @map_pages:	the domain operation for the map fast path; NULL if a map needs more than that
 *		operation
 * @unmap_pages: the domain's operation that unmaps single pages; NULL if the domain has none
 * @root:	page table of the domain, if its driver prunes (@iommu.prunes); @root.format is NULL
 *		if the table was not found
 * @tables:	state of direct tables. @tables.on is set under xs_mutex and may be cleared in any
 *		context
 */
struct xs_domain {
	struct iommu_domain *now;
	struct iommu_domain *former;
	struct xs_iommu iommu;
	bool is_known;
	bool is_generic;
	bool maps_generic;
	xs_map_pages_t map_pages;
	size_t (*unmap_pages)(struct iommu_domain *domain, unsigned long iova,
			      size_t page_bytes, size_t pages,
			      struct iommu_iotlb_gather *gather);
	struct xs_root root;
	struct xs_tables tables;
};

/**
 * struct xs_backend_cpu - per-CPU state of a backend
 * @lock:	serializes the starts of @timer; taken with interrupts off
 * @timer:	fires when the oldest deferred unmap of the CPU reaches the window
 * @home:	calls xs_engine_expire() on the CPU, after @timer has fired on another CPU
 * @dirty:	entry in the list of backends that the end of the CPU's next NAPI poll flushes; only
 *		the CPU itself changes the list while it is on-line, with interrupts off
 * @backend:	constant
 * @cpu:	constant
 */
struct xs_backend_cpu {
	spinlock_t lock;
	struct hrtimer timer;
	struct work_struct home;
	struct list_head dirty;
	struct xs_backend *backend;
	u32 cpu;
};

/**
 * struct xs_backend_counts - what a backend has sent since its group was created, over all engines
 * @map_flushes: map-side flushes
 * @page:	page-selective commands that the engine does not count: of map-side flushes, of
 *		invalidations for freed page-table pages and after failed maps, and of removals
 *		where each removal is a command
 * @domain:	the same of domain-selective commands
 */
struct xs_backend_counts {
	atomic64_t map_flushes;
	atomic64_t page;
	atomic64_t domain;
};

/**
 * struct xs_direct_use - use of direct tables since the attach
 *
 * Maps in place are not counted, because a counter would cost each of them an instruction. They
 * are all maps in periods of direct tables, except @misses and @large.
 *
 * @before:	pages mapped in earlier periods of direct tables; under xs_mutex
 * @first:	pages that the engine had mapped when the last period began; under xs_mutex
 * @last:	the same when the period ended; U64_MAX while direct tables are on
 * @misses:	pages of other mappings than @large that the IOMMU driver mapped in all periods
 * @large:	pages that only the IOMMU driver maps: of mappings larger than a block, of coherent
 *		memory, and of device registers
 */
struct xs_direct_use {
	u64 before;
	u64 first;
	u64 last;
	atomic64_t misses;
	atomic64_t large;
};

/**
 * struct xs_backend - an engine and its backend, for one IOMMU group
 *
 * Lifetime: the memory is part of the group's. The fields from @engine to @cpus are valid from
 * xs_backend_init() to xs_backend_exit(), which is while the group is attached.
 *
 * @engine:	must be the first member: the engine's address is the address of its backend. Has
 *		its own locks
 * @domain:	the domain in which the backend maps now
 * @direct_use:	use of direct tables
 * @maps_fail:	all maps fail, as the group is about to be orphaned or detached; written under
 *		xs_mutex, read in sections
 * @stuck_in:	the domain that the group left while pages could not be removed from that domain;
 *		NULL for none. Only compared, never dereferenced. Written under xs_mutex and
 *		@work_lock
 * @stuck_live:	some of the pages in @stuck_in are still mapped for a driver, and the engine does
 *		not know them as stuck: pages that are unmapped now become stuck, too. Written under
 *		@work_lock; set for a mapping under @sparse_lock
 * @sparse:	number of calls that are removing ranges which may be mapped only in part, plus 1
 *		once @was_orphaned
 * @sparse_lock: serializes removals of ranges that may be mapped only in part (remove_sparse())
 * @was_orphaned: the group has been orphaned since the engine was made; under xs_mutex
 * @starved:	jiffies when the IOMMU driver last had no memory for a removal; no lock
 * @said_ignored: a warning was logged of an ignored call; no lock: a race logs twice
 * @said_torn:	a warning was logged of an unmap that does not match its mapping; no lock
 * @node:	NUMA node of the device for which the engine was made; constant
 * @name:	name of the device for which the engine was made, for the log; constant
 * @cpus:	array of nr_cpu_ids; NULL outside xs_backend_init() .. xs_backend_exit()
 * @work_lock:	held by the works below while they run, and where the domain or the policy changes:
 *		guards the pool's chunks, the retries of removals, changes of the domain, and the
 *		engine's mode. Taken inside xs_mutex
 * @trim:	work: frees memory of the engine that is surplus, and takes back IOVAs that idle
 *		CPUs keep
 * @retry:	work: tries again to remove stuck pages
 * @grow:	work: adds chunks to the pool
 * @shrink:	work: frees chunks of the pool that are surplus
 * @group_id:	number of the IOMMU group; constant
 * @counts:	statistics
 */
struct xs_backend {
	struct xs_engine engine;
	struct xs_domain domain;
	struct xs_direct_use direct_use;
	bool maps_fail;
	const struct iommu_domain *stuck_in;
	bool stuck_live;
	atomic_t sparse;
	spinlock_t sparse_lock;
	bool was_orphaned;
	unsigned long starved;
	bool said_ignored;
	bool said_torn;
	int node;
	char name[32];
	struct xs_backend_cpu *cpus;
	struct mutex work_lock;
	struct work_struct trim;
	struct delayed_work retry;
	struct work_struct grow;
	struct delayed_work shrink;
	int group_id;
	struct xs_backend_counts counts;
};

static_assert(offsetof(struct xs_backend, engine) == 0);

/**
 * struct xs_backend_config - where a backend is to map, and how
 * @domain:	default domain of the group; a device of the group has a driver, so the domain stays
 * @dev:	a device of the group that has a driver, or that a driver is about to probe
 * @iommu:	properties of the IOMMU of @dev
 * @direct:	use direct tables
 * @no_direct:	reason why direct tables cannot be used in this group; NULL for none
 * @policy:	policy of a new engine
 * @tuning:	tunables of a new engine
 */
struct xs_backend_config {
	struct iommu_domain *domain;
	struct device *dev;
	const struct xs_iommu *iommu;
	bool direct;
	const char *no_direct;
	const struct xs_policy *policy;
	const struct xs_tuning *tuning;
};

/* Stands in for no domain: maps fail, unmaps find nothing, and nothing is sent. */
extern struct iommu_domain xs_no_domain;

/**
 * xs_backend_has_no_domain - check whether a backend maps in no domain at present
 * @backend: the backend
 *
 * Context: xs_mutex, @work_lock or a section.
 */
static inline bool xs_backend_has_no_domain(const struct xs_backend *backend)
{
	return backend->domain.now == &xs_no_domain;
}

/*
 * For DMA calls that are not in an RCU section of the engine: calls that take long, calls of
 * several steps, and the work after a free. A backend and its domain outlive the section.
 */
extern struct srcu_struct xs_backend_srcu;

/* The operations of each backend: see <xsmmu/backend.h>. */
extern const struct xs_backend_ops xs_linux_backend;

/* ---- events.c: lifetime of the module ---- */

/**
 * xs_backend_start - follow the ends of NAPI polls
 *
 * Context: module load.
 * Return: 0 or a negative errno.
 */
int xs_backend_start(void);

/**
 * xs_backend_stop - undo xs_backend_start()
 *
 * Context: module load or unload; sleeps.
 */
void xs_backend_stop(void);

/**
 * xs_backend_forget_cpu - take a backend off the list of a CPU's next NAPI poll
 * @backend: the backend
 * @cpu: a CPU that is offline, or the calling CPU
 *
 * Context: interrupts off if @cpu is the calling CPU.
 */
void xs_backend_forget_cpu(struct xs_backend *backend, u32 cpu);

/* ---- backend.c: lifetime of an attachment ---- */

/**
 * xs_backend_create - set up the parts of a backend that live as long as its group
 * @backend: zeroed memory
 * @group_id: number of the IOMMU group
 *
 * Context: any.
 */
void xs_backend_create(struct xs_backend *backend, int group_id);

/**
 * xs_backend_init - set up a backend and make its engine
 * @backend: the backend
 * @config: where to map
 *
 * Invalidates cached translations of the kernel's own path.
 *
 * Context: xs_mutex; sleeps.
 * Return: NULL, or the reason of a failure.
 */
const char *xs_backend_init(struct xs_backend *backend,
			    const struct xs_backend_config *config);

/**
 * xs_backend_exit - undo xs_backend_init()
 * @backend: the backend; nothing is mapped, and no device has the module's operations
 * @sum: result: the statistics of the engine, which is checked for leaks; NULL if no driver has
 *	used the engine
 *
 * Waits for calls that have seen the module's operations.
 *
 * Context: xs_mutex; sleeps.
 */
void xs_backend_exit(struct xs_backend *backend, struct xs_stats *sum);

/* ---- switch.c: lifetime of a domain ---- */

/**
 * xs_backend_leave - orphan a group: remove all mappings, and use no domain from then on
 * @backend: backend of the group, which has no driver left
 *
 * Names the mappings in the log.
 *
 * Context: xs_mutex; takes @work_lock; sleeps.
 */
void xs_backend_leave(struct xs_backend *backend);

/**
 * xs_backend_enter - move an orphaned group back to a domain, because a driver has come
 * @backend: backend of the group, without a domain
 * @config: where to map
 *
 * Context: xs_mutex; takes @work_lock; sleeps.
 * Return: 0; or a negative errno or XS_MAP_NOT_UNDONE, and the backend stays without a domain.
 */
int xs_backend_enter(struct xs_backend *backend,
		     const struct xs_backend_config *config);

/* ---- direct.c ---- */

/**
 * xs_backend_set_tables - begin direct tables anew, or end them
 * @backend: a backend that is set up
 * @config: where to map, and whether by direct tables; NULL while the group is orphaned
 *
 * Context: xs_mutex; sleeps.
 */
void xs_backend_set_tables(struct xs_backend *backend,
			   const struct xs_backend_config *config);

/**
 * xs_backend_direct_pages - number of pages that were mapped in place since the attach
 * @backend: a backend that is set up
 *
 * Maps under way may be missing. The padding of a list counts as mapped in place.
 *
 * Context: xs_mutex.
 * Return: pages.
 */
u64 xs_backend_direct_pages(const struct xs_backend *backend);

/* ---- map.c, remove.c: for the DMA path ---- */

/**
 * xs_backend_unflushed_flag - flag for maps that one later flush covers
 * @backend: the backend
 *
 * Context: a section, or xs_mutex.
 * Return: XS_MAP_UNFLUSHED if the IOMMU needs map-side flushes: a map with this flag must be
 * followed by xs_backend_flush_maps(). Else 0.
 */
u32 xs_backend_unflushed_flag(const struct xs_backend *backend);

/**
 * xs_backend_flush_maps - flush the maps of a range that were made with XS_MAP_UNFLUSHED
 * @backend: the backend
 * @iova: first byte
 * @pages: length
 *
 * Context: a section; does not sleep.
 * Return: 0 or a negative errno.
 */
int xs_backend_flush_maps(struct xs_backend *backend, u64 iova, u32 pages);

/**
 * xs_backend_maps_singly - check whether pages of a block need a map and an unmap call each
 * @backend: the backend
 *
 * Context: a section.
 * Return: true where a removal must match the map, and where the driver joins neighbours in memory
 * into one larger entry (AMD-Vi's driver of 7.x, any power of two of pages), a part of which cannot
 * be removed.
 */
bool xs_backend_maps_singly(const struct xs_backend *backend);

/**
 * xs_backend_unmap_sparse - unmap a range that has holes, and flush
 * @backend: the backend
 * @iova: first byte
 * @pages: length
 *
 * Context: a section; does not sleep.
 * Return: false if the IOMMU driver could not remove all pages: the caller must not free the
 * memory.
 */
bool xs_backend_unmap_sparse(struct xs_backend *backend, u64 iova, u32 pages);

/**
 * xs_backend_undo - undo a map of several parts, one of which has failed
 * @backend: the backend
 * @iova: first byte of the range that the engine has allocated
 * @pages: length
 * @error: result of the failed part: a negative errno or XS_MAP_NOT_UNDONE
 *
 * Context: a section; does not sleep.
 * Return: false if the IOMMU driver could not remove all pages: the caller must not free the
 * memory.
 */
bool xs_backend_undo(struct xs_backend *backend, u64 iova, u32 pages, int error);

/* ---- retry.c ---- */

/**
 * xs_backend_drain - make all maps fail, and flush all unmaps
 * @backend: the backend; its group has no driver
 *
 * Maps that are under way have ended on return. The first half of xs_backend_leave();
 * xs_backend_enter() undoes it.
 *
 * Context: xs_mutex; takes @work_lock; sleeps.
 * Return: true if nothing is mapped or stuck, so the backend needs its domain no more.
 */
bool xs_backend_drain(struct xs_backend *backend);

/**
 * xs_backend_retry_in - try again to remove stuck pages
 * @backend: backend of a group that has left a domain, or is about to be detached
 * @domain: domain that the group has now, which must not go meanwhile; NULL if the group has no
 *	device left
 *
 * If @domain is another domain than the pages are stuck in, its devices do not reach the pages.
 * If a new domain was allocated at the address of the freed one, the retry finds nothing mapped,
 * which is right.
 *
 * Context: xs_mutex; takes @work_lock; sleeps.
 * Return: true if the group has unmapped pages that could not be removed.
 */
bool xs_backend_retry_in(struct xs_backend *backend, struct iommu_domain *domain);

/**
 * xs_backend_mend - flush, and unmap the rest of mappings that drivers have unmapped in part
 * @backend: backend of a group that has no driver left
 *
 * Context: xs_mutex; takes @work_lock; sleeps.
 */
void xs_backend_mend(struct xs_backend *backend);

#endif
