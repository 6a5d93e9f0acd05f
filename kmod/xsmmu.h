/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * What the module's files share.
 *
 * A group is an IOMMU group: its devices share an address space, so they share
 * a policy and, while any of them has a driver, an engine. A policy is chosen
 * while no driver is bound; the group is attached when the first driver
 * binds (its DMA operations become ours) and given back when the last one is
 * gone and nothing is mapped any more. The engine works on the group's default
 * domain, which has the direct mappings of its reserved regions already; nobody
 * else allocates in it meanwhile, since every device of the group that does DMA
 * is ours.
 *
 * What a driver allocated may be freed long after it is gone. Until then the group is orphaned
 * : the devices' operations stay ours and the engine keeps the books, but
 * of the domain it touches nothing any more, as that may change or go.
 *
 * Locks: xs_mutex guards the list of groups and all of this but the engine; it
 * may sleep and is not taken on the DMA path. Nor is it where CPUs go off-line:
 * the IOMMU core waits for CPU hotplug with its group's mutex held, and we for
 * that one with xs_mutex held. xs_running changes under xs_mutex while no CPU
 * comes or goes, so that whoever sees one go may read it.
 */
#ifndef XSMMU_KMOD_H
#define XSMMU_KMOD_H

#include <linux/dma-map-ops.h>
#include <linux/hrtimer.h>
#include <linux/jump_label.h>
#include <linux/kobject.h>
#include <linux/list.h>
#include <linux/mutex.h>
#include <linux/pci.h>
#include <linux/spinlock.h>
#include <linux/srcu.h>
#include <linux/workqueue.h>

#include <xsmmu/engine.h>

#include "iommu/iommu.h"
#include "tables/tables.h"

#undef pr_fmt
#define pr_fmt(fmt) "xsmmu: " fmt

struct xs_group;

#define XS_MSI_PAGES	8

typedef int (*xs_map_pages_t)(struct iommu_domain *domain, unsigned long iova,
			      phys_addr_t phys, size_t page_bytes, size_t pages,
			      int prot, gfp_t gfp, size_t *mapped);

/*
 * What the engine's backend keeps for one CPU of a attached group.
 * @lock:  of who starts @timer
 * @dirty: on this CPU's list of what the end of its next poll flushes; only this
 *	   CPU touches it, with interrupts off
 */
struct xs_group_cpu {
	spinlock_t lock;
	struct hrtimer timer;
	struct list_head dirty;
	struct xs_group *group;
	u32 cpu;
};

/* Commands that the engine does not know of, by kind. */
struct xs_group_commands {
	atomic64_t page;
	atomic64_t domain;
};

/*
 * struct xs_group - see the head of this file
 * @engine:	first, so that it and the group, its backend, are one pointer
 * @list, @running: in xs_groups; in xs_running, while it has an engine
 * @policy:	chosen, NULL for none
 * @auto_line:	by which auto has chosen it; NULL if it was chosen by its name
 * @tuning:	the operator's, valid with @policy
 * @direct:	chosen: entries of the page table are written in place
 * @chosen:	0: not by the operator; else the how-manieth of their choices it is
 * @clean:	the kernel's own path has nothing mapped below 4 GiB but @MSI pages, as no
 *		driver has used it since that was looked at
 * @MSI pages, @msi_page_count: pages that the kernel has mapped there for interrupts
 * @devices:	our struct xs_device, all of the group's PCI devices
 * @attached:	devices with a driver that is served
 * @aware:	all drivers of those are batch-aware
 * @instance:	what the devices' dma_ops point to; the fields below are valid while
 *		it is not NULL: there is an engine
 * @domain:	the group's default domain; from when it is orphaned until a driver comes
 *		for which it translates, one that maps nothing
 * @geometry:	of the default domain, when the engine was made
 * @iommu:	what that is like; of its flushes of maps, those that are ours to make
 * @name:	of the device it was made for, for the log
 * @active:	maps were counted
 * @strayed, @torn: a call that was ignored has been warned of; an unmap that did not match
 *		what is mapped
 * @stuck_in:	the domain that the group has left with pages that could not be removed from
 *		it; to be compared only. @stuck_live: some of them are mapped still, and the
 *		engine does not know them as stuck: what is unmapped now is stuck, too
 * @left:	the domain before @domain, while calls are under way that have seen it
 * @starved:	jiffies when the IOMMU driver last had no memory for a removal
 * @leaving:	of remove_partial()
 * @is_known:	the domain's own operations are called
 * @map_pages, @maps_generic: by which, if that is all that a map needs
 * @unmap_pages: the domain's own, for what was mapped as single pages
 * @leaves:	it is about to orphan, or to be given back: maps fail
 * @partial:	calls at work that remove what may not be mapped in part, and one
 *		more once it has @was orphaned
 * @generic:	the domain has generic page tables
 * @tables:	what is written in place
 * @root:	of the page table, where @iommu prunes; its format is NULL if it is not known
 * @map_flushes:	map-side flushes since load
 * @other_commands: what those have sent; invalidations for freed page-table pages and for
 *		what an error has left mapped; removals, where each is a command
 * @trim, @trimming: work: frees what the engine says there is too much of; while
 *		it does, and while nobody may
 * @retry:	work: tries again to remove pages that are stuck
 * @grow, @shrink: works: add memory to the pool, and look whether there is too much
 * @node:	where memory is near
 * @past:	sum of the statistics of earlier engines
 * @failure:	why the last attach failed, NULL if it did not
 */
struct xs_group {
	struct xs_engine engine;
	struct list_head list;
	struct list_head running;
	struct iommu_group *iommu_group;
	const struct xs_policy *policy;
	const struct xs_auto_line *auto_line;
	struct xs_tuning tuning;
	bool direct;
	u64 chosen;
	bool clean;
	u64 msi_pages[XS_MSI_PAGES];
	u32 msi_page_count;
	struct list_head devices;

	u32 attached;
	bool aware;
	const struct xs_ops_instance *instance;
	struct iommu_domain *domain;
	struct iommu_domain_geometry geometry;
	struct xs_tables tables;
	struct xs_root root;
	bool is_known;
	bool maps_generic;
	xs_map_pages_t map_pages;
	size_t (*unmap_pages)(struct iommu_domain *domain, unsigned long iova,
			      size_t page_bytes, size_t pages,
			      struct iommu_iotlb_gather *gather);
	char name[32];
	bool active;
	bool strayed;
	bool torn;
	const struct iommu_domain *stuck_in;
	bool stuck_live;
	struct iommu_domain *left;
	unsigned long starved;
	atomic_t partial;
	bool was_orphaned;
	bool leaves;
	spinlock_t leaving;
	struct xs_iommu iommu;
	bool generic;
	atomic64_t map_flushes;
	struct xs_group_commands other_commands;
	struct work_struct trim;
	struct delayed_work retry;
	struct work_struct grow;
	struct delayed_work shrink;
	struct mutex trimming;
	int node;
	struct xs_group_cpu *cpus;

	struct xs_stats past;
	struct xs_stats sum;	/* scratch, under xs_mutex */
	const char *failure;
};

static_assert(offsetof(struct xs_group, engine) == 0);

/*
 * struct xs_seen - the IOMMU of a device, and the domain that the device was attached to, as
 * xs_group_look() found them. Nothing else keeps a pointer into either.
 * @iommu:	the IOMMU, to be compared only
 * @untried:	NULL if it is of a kind that was tried, or why not
 * @type:	of the domain; IOMMU_DOMAIN_BLOCKED: no domain was found
 * @like:	the properties of the IOMMU, if @type is one of the DMA API
 * @unserved:	NULL, or why a domain of this device cannot be an engine's
 * @no_tables:	NULL if entries of the page table can be written in place, or why not
 */
struct xs_seen {
	const struct iommu_device *iommu;
	const char *untried;
	unsigned int type;
	struct xs_iommu like;
	const char *unserved;
	const char *no_tables;
};

/*
 * struct xs_device - a PCI device behind an IOMMU
 * @seen:	of the IOMMU, under xs_mutex
 * @on_kernel_path: it has a driver that uses the kernel's own path, or has had one whose
 *		probe failed
 * @bound:	it has a driver that is served
 * @aware:	that driver is batch-aware
 * @taken:	its DMA operations are ours; we have a reference of @dev
 * @gone:	it has been removed, and stays here until the group is detached
 * @dma:	the kernel's own DMA path while @taken, to be restored. Its @iommu may be
 *		restored later, when the lock of @dev can be had: see xs_device_settle()
 * @removed, @removed_ops: in a list of attach.c, while the kernel releases the device from
 *		its IOMMU; the DMA operations that the device has afterwards
 * @blocked:	not to be attached, in a group that is: its maps fail
 * @claimed:	no one changes the type of the group's default domain
 * @told:	the line of auto that the log has for it
 * @passed_over: the reason that the log has for leaving its group to the kernel's own path
 */
struct xs_device {
	struct list_head list;
	struct device *dev;
	struct xs_group *group;
	struct xs_seen seen;
	bool on_kernel_path;
	bool bound;
	bool aware;
	bool taken;
	bool gone;
	bool blocked;
	bool claimed;
	const struct xs_auto_line *told;
	const char *passed_over;
	struct {
		const struct dma_map_ops *ops;
		bool iommu;
	} dma;
	struct list_head removed;
	const struct dma_map_ops *removed_ops;
	struct kobject *kobj;
	struct kobject *stats;
};

extern struct mutex xs_mutex;
extern struct list_head xs_groups;
extern struct list_head xs_running;

/*
 * group.c; all under xs_mutex. xs_group_device(): the device of the group that is @dev and
 * that is not removed, or NULL.
 *
 * xs_group_look(): refresh what is known of the IOMMU of each device. It takes the mutex of
 * the IOMMU group, and sleeps. It is called when a device appears, when a driver is about to
 * probe, when a domain was attached, and when the operator chooses; nothing else follows
 * dev->iommu of a device without a driver. A device that is being removed is not looked at,
 * as xs_device_remove() comes before the kernel releases the device from its IOMMU.
 */
struct xs_device *xs_device_find(struct device *dev);
struct xs_device *xs_group_device(const struct xs_group *group,
				  struct device *dev);
void xs_group_look(struct xs_group *group);
void xs_device_add(struct device *dev);
void xs_device_remove(struct xs_device *xdev);
void xs_group_clean(struct xs_group *group);
bool xs_others_use_kernel_path(struct xs_device *xdev);
enum xs_level xs_group_level(const struct xs_group *group);
const char *xs_group_state(struct xs_group *group);
s64 xs_group_live(struct xs_group *group);
void xs_group_sum(struct xs_group *group, struct xs_stats *sum);

/*
 * Does it have a driver that uses the DMA API? Bridges' do not, or manage it
 * themselves; not all of them say so (shpchp).
 */
static inline bool xs_device_has_driver(const struct xs_device *xdev)
{
	struct device_driver *driver;
	bool has;

	/* It is unbound, and its module gone, without our locks. */
	rcu_read_lock();
	driver = READ_ONCE(xdev->dev->driver);
	has = driver && !to_pci_driver(driver)->driver_managed_dma;
	rcu_read_unlock();
	return has && !pci_is_bridge(to_pci_dev(xdev->dev));
}

/*
 * attach.c; all under xs_mutex but the last three. A group whose handles are all gone is
 * given back by xs_group_end_orphan(), if not before; the caller has the lock of @locked,
 * which may be NULL.
 *
 * xs_device_settle(): the caller has the device's lock; what was not restored of the kernel's
 * own DMA path for want of that lock is restored.
 *
 * xs_device_leave(): a device that is taken is about to be released from its IOMMU.
 * xs_device_left(): it was released. The kernel may have reset its DMA operations, which are
 * those of its group again, on the return. It takes no mutex: what was mapped may be freed at
 * any time.
 *
 * xs_look_is_due(): a domain was attached, and no look has followed yet.
 */
void xs_device_bind(struct xs_device *xdev);
void xs_device_settle(struct xs_device *xdev);
void xs_device_leave(struct xs_device *xdev);
void xs_device_left(struct device *dev);
bool xs_look_is_due(void);
void xs_group_end_orphan(struct xs_group *group, struct device *locked);
void xs_group_set(struct xs_group *group);
void xs_group_update_aware(struct xs_group *group);
int xs_attach_init(void);
void xs_attach_exit(void);

/* Where a PCI device is. */
struct xs_address {
	int domain;
	u8 bus;
	u8 devfn;
};

/*
 * struct xs_choice
 * @policy:	NULL for none
 * @is_auto:	@policy and @tuning are auto's, when it is asked for what a group is like
 * @line:	by which it has chosen them then
 * @tuning, @direct: valid with a policy
 */
struct xs_choice {
	const struct xs_policy *policy;
	bool is_auto;
	const struct xs_auto_line *line;
	struct xs_tuning tuning;
	bool direct;
};

/*
 * choice.c; all under xs_mutex. xs_device_choose(): for a device that has appeared, or
 * whose driver is about to probe (@binds), what was chosen before or the rules say.
 * xs_device_refusal(): why the module does not take the device over; NULL if the module can.
 * xs_group_refusal(): the first device of a group that has such a reason, and the reason; NULL
 * if all can be attached, and for a group at work, where such a device is blocked.
 * xs_group_tuning(): what is in force of the group's. xs_group_tune(): is it @copies that
 * are asked for? xs_group_choose(): @policy is NULL with @is_auto, and is found.
 * xs_group_decide_again(): what auto has chosen may be another policy by now; true if it
 * was, and is in force. A group at work is not weakened.
 */
int xs_choice_start(const char *rules, const char *min_level);
const char *xs_choice_floor(void);
void xs_choice_stop(void);
void xs_device_choose(struct xs_device *xdev, bool binds);
bool xs_group_cannot_copy(const struct xs_group *group);
const char *xs_device_refusal(const struct xs_device *xdev);
struct xs_device *xs_group_refusal(const struct xs_group *group,
				   const char **why);
void xs_group_be_strict(struct xs_group *group);
int xs_group_choose(struct xs_group *group, const struct xs_policy *policy,
		    bool is_auto);
bool xs_group_decide_again(struct xs_group *group);
struct xs_tuning xs_group_tuning(const struct xs_group *group);
int xs_group_tune(struct xs_group *group, const struct xs_tuning *tuning,
		  bool copies);
int xs_group_choose_tables(struct xs_group *group, bool direct);
bool xs_choice_is_allowed(const struct xs_policy *policy);
bool xs_tuning_is_valid(const struct xs_tuning *tuning);
bool xs_address_is(const struct xs_address *address, struct pci_dev *pdev);

/*
 * auto.c; under xs_mutex. A line of its table: with these facts of a group, this policy is
 * chosen, for this reason. xs_auto_find(): the one that holds for it, by the last look.
 * xs_auto_say(): in the log, once for each device.
 */
struct xs_auto_line {
	u32 facts;
	const char *policy;
	const char *why;
};
const struct xs_auto_line *xs_auto_find(const struct xs_group *group);
void xs_auto_say(struct xs_group *group);

/*
 * rules.c. xs_rules_start(): 0 or a negative errno, and a line in the log names the word
 * that is wrong. xs_rules_find(): the choice of the first rule that matches, or NULL;
 * without a driver, also if it is not known before there is one.
 */
int xs_rules_start(const char *text);
void xs_rules_stop(void);
const struct xs_choice *xs_rules_find(struct pci_dev *pdev, const char *driver);

/*
 * dma.c. A instance is what the dma_ops of a group's devices point to: operations
 * like all others', and where the group is found without a look-up. Both are
 * constant; there are as many as groups can be attached at a time, and as many again
 * whose operations copy small buffers (copy.c). With xs_blocked_ops nothing can be mapped.
 */
#define XS_INSTANCES	256
struct xs_ops_instance {
	struct dma_map_ops ops;
	struct xs_group **group;
};
extern const struct xs_ops_instance xs_ops_instances[2 * XS_INSTANCES];
extern struct xs_group *xs_instance_groups[XS_INSTANCES];
extern const struct dma_map_ops xs_blocked_ops;

static inline bool xs_is_instance(const struct dma_map_ops *ops)
{
	return (uintptr_t)ops - (uintptr_t)xs_ops_instances < sizeof(xs_ops_instances);
}

/* Do these copy small buffers? */
static inline bool xs_instance_copies(const struct dma_map_ops *ops)
{
	return (uintptr_t)ops - (uintptr_t)&xs_ops_instances[XS_INSTANCES] <
	       sizeof(xs_ops_instances) / 2;
}

static inline bool xs_is_ours(const struct dma_map_ops *ops)
{
	return xs_is_instance(ops) || ops == &xs_blocked_ops;
}

static inline struct xs_group *xs_instance_group(const struct dma_map_ops *ops)
{
	return *container_of(ops, struct xs_ops_instance, ops)->group;
}

/* The group of @dev, for who has something of it, which keeps it. On the DMA path. */
static inline struct xs_group *xs_group_of(struct device *dev)
{
	return xs_instance_group(dev->dma_ops);
}

/*
 * The same for anybody: NULL if it has been given back meanwhile, which a thread of the
 * driver's may be late for. It stays until the end of the section that the caller is in.
 */
static inline struct xs_group *xs_group_now(struct device *dev)
{
	const struct dma_map_ops *ops = READ_ONCE(dev->dma_ops);

	return xs_is_instance(ops) ? xs_instance_group(ops) : NULL;
}

/*
 * boot.c; read at load. xs_boot_is_strict: did the administrator make the kernel's own path
 * strict? If the command line cannot be read, it is true.
 */
extern bool xs_boot_is_strict;
void xs_boot_start(void);

/* debug.c; xs_debug_on(): is misuse to be found? */
DECLARE_STATIC_KEY_FALSE(xs_debug_key);
#define xs_debug_on()	static_branch_unlikely(&xs_debug_key)
void xs_debug_unmap(struct device *dev, u64 iova, u64 bytes);
void xs_debug_flush(struct device *dev);
void xs_debug_map(struct device *dev, u64 iova);
void xs_debug_flush_maps(struct device *dev, bool everywhere);
void xs_debug_forget(struct device *dev);

/*
 * world.c. xs_backend_invalidate(): what the engine does not know of, counted;
 * xs_backend_flush(): all of its domain, not counted, where it is not in the blocking domain; of
 * commands for maps that another one has sent, xs_backend_count_map_flush() counts those.
 *
 * A map with XS_MAP_UNFLUSHED, where
 * xs_backend_map_unflushed() gives it, is to be followed by xs_backend_flush_maps() for its
 * range. What a map of many parts has left when one failed with @error is undone by
 * xs_backend_undo(). xs_backend_unmap_partial(): a list with holes. Both return false if the
 * IOMMU driver could not remove it: then the caller must not free the memory.
 *
 * xs_backend_is_stuck(): has the group pages that could not be removed, of what is unmapped?
 * xs_backend_retry_in(): one that has left its domain tries again to remove them; the domain
 * that it has now cannot go meanwhile. Both may sleep.
 *
 * xs_backend_prune(): frees page-table pages that are about nothing but these pages, of
 * which none is mapped; xs_backend_map_singly(): maps, and flushes, by no larger entry,
 * also in a domain that drivers do not map in yet. Both: 0 or a negative errno.
 *
 * xs_backend_set_tables(): entries are written in place from the return on, or are not, as the
 * group's choice is, of one with an engine. @xdev is bound, NULL while the group is orphaned.
 * May sleep.
 *
 * xs_backend_srcu is for calls that are not in the engine's own sections, since they may
 * take long, for those of several steps, and for what follows a free: neither a group
 * nor its domain goes before.
 */
extern struct srcu_struct xs_backend_srcu;
extern const struct xs_backend_ops xs_linux_backend;
u32 xs_backend_map_unflushed(const struct xs_group *group);
int xs_backend_flush_maps(struct xs_group *group, u64 iova, u32 pages);
bool xs_backend_unmap_partial(struct xs_group *group, u64 iova, u32 pages);
bool xs_backend_undo(struct xs_group *group, u64 iova, u32 pages, int error);
int xs_backend_sweep(struct xs_group *group, u64 iova, u32 pages);
int xs_backend_prune(struct xs_group *group, u64 iova, u64 pages);
int xs_backend_map_singly(struct xs_group *group, u64 iova, u64 phys, u32 pages,
			  u32 prot);
void xs_backend_trim(struct work_struct *work);
void xs_backend_retry(struct work_struct *work);
void xs_backend_retry_in(struct xs_group *group, struct iommu_domain *domain);
bool xs_backend_is_stuck(struct xs_group *group);
void xs_backend_count_map_flush(struct xs_group *group,
				const struct xs_range *range);
void xs_backend_invalidate(struct xs_group *group, xs_gather_t *gather,
			   const struct xs_range *ranges, u32 count);
void xs_backend_flush(struct xs_group *group);
void xs_backend_set_tables(struct xs_group *group, struct xs_device *xdev);
int xs_backend_init(struct xs_group *group, struct iommu_domain *domain,
		    struct xs_device *xdev);
int xs_backend_enter(struct xs_group *group, struct iommu_domain *domain,
		     struct xs_device *xdev);
void xs_backend_shut(struct xs_group *group);
void xs_backend_leave(struct xs_group *group);
bool xs_backend_is_blocked(const struct xs_group *group);
void xs_backend_exit(struct xs_group *group);
void xs_backend_forget_cpu(struct xs_group *group, u32 cpu);
int xs_backend_start(void);
void xs_backend_stop(void);

/*
 * chunk.c: what world.h says of the first three; two works; and all chunks into the
 * group's domain, or out of it, with @trimming held. xs_chunks_map(): 0, or -ENOMEM with none
 * mapped, or XS_MAP_LEFT. xs_chunks_unmap(): false if the IOMMU driver could not remove one.
 * xs_chunks_drop(): those that are idle; those that cannot be removed are stuck then. It takes
 * @trimming.
 */
void *xs_chunk_add(void *backend, u64 iova, u32 direction, bool *left);
bool xs_chunk_drop(void *backend, u64 iova, void *memory);
void xs_chunks_short(void *backend);
void xs_chunks_grow(struct work_struct *work);
void xs_chunks_shrink(struct work_struct *work);
int xs_chunks_map(struct xs_group *group);
bool xs_chunks_unmap(struct xs_group *group);
void xs_chunks_drop(struct xs_group *group);

/*
 * Is this allocation, or map, to fail? In a build for tests (-DXS_FAIL_NTH) the
 * parameter fail_nth=n says so of the n-th from now on, and refuse=n of the next n removals;
 * main.c.
 */
#ifdef XS_FAIL_NTH
#define XS_REFUSES	true
bool xs_fails(void);
bool xs_refuses(void);
#else
#define XS_REFUSES	false
static inline bool xs_fails(void)
{
	return false;
}

static inline bool xs_refuses(void)
{
	return false;
}
#endif

/*
 * What the operator does for a new domain. Of a group of several devices 6.1 does not change the
 * type. One whose devices have all been removed is gone, and after a rescan they have another one.
 */
#define XS_NEW_DOMAIN(group) \
	"write identity to /sys/kernel/iommu_groups/" group "/type and then DMA-FQ; if that is refused, as Linux 6.1 does for a group of several devices, write 1 to the file remove of each device in /sys/kernel/iommu_groups/" group "/devices, and then to /sys/bus/pci/rescan"

/* sysfs.c */
int xs_sysfs_add(struct xs_device *xdev);
void xs_sysfs_remove(struct xs_device *xdev);

#endif
