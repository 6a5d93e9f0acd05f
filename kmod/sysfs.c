// SPDX-License-Identifier: GPL-2.0-only
/*
 * /sys/bus/pci/devices/<bdf>/xsmmu/: the operator's interface. The file policy lists all
 * policies with the choice in brackets, like /sys/kernel/mm/transparent_hugepage/enabled; if
 * `auto` is chosen, auto_policy names the policy. Statistics are one value a file. Counters
 * count since the module was loaded; live_pages, held_pages, stuck_pages, torn_pages and
 * pool_bytes are present values. The file used counts since the attach how far direct tables,
 * copying and deferred unmaps are used, a name and a number on each line.
 */
#include <linux/capability.h>
#include <linux/kobject.h>
#include <linux/slab.h>
#include <linux/sysfs.h>

#include "attach/attach.h"
#include "attach/choice.h"
#include "policy/auto.h"
#include "attach/state.h"
#include "sysfs.h"

/* A kobject of the module below a device's kobject. */
struct xs_kobject {
	struct kobject kobj;
	struct xs_device *xdev;
};

struct xs_attribute {
	struct attribute attr;
	ssize_t (*show)(struct xs_device *xdev, char *page);
	ssize_t (*store)(struct xs_device *xdev, const char *text);
};

#define XS_ATTRIBUTE(name, mode, store) \
	static struct xs_attribute name##_attribute = { \
		{ #name, mode }, name##_show, store }
#define XS_RO(name)	XS_ATTRIBUTE(name, 0444, NULL)
#define XS_RW(name)	XS_ATTRIBUTE(name, 0644, name##_store)
/*
 * For files that reveal the traffic of other users, and for auto_policy, which may wait for a
 * look.
 */
#define XS_ROOT_ONLY(name)	XS_ATTRIBUTE(name, 0400, NULL)

/* ---- policy and tuning ---- */

static ssize_t policy_show(struct xs_device *xdev, char *page)
{
	const struct xs_policy *chosen = xdev->group->assignment.policy;
	bool is_auto = xdev->group->assignment.line;
	int at = sysfs_emit(page, "%s %s", chosen ? "none" : "[none]",
			    is_auto ? "[auto]" : "auto");
	u32 i;

	for (i = 0; i < xs_policy_count; i++)
		at += sysfs_emit_at(page, at, &xs_policies[i] == chosen &&
					      !is_auto ?
				    " [%s]" : " %s", xs_policies[i].name);
	return at + sysfs_emit_at(page, at, "\n");
}

static ssize_t policy_store(struct xs_device *xdev, const char *text)
{
	const struct xs_policy *policy = xs_policy_find(text);
	bool is_auto = !strcmp(text, "auto");

	if (!policy && !is_auto && strcmp(text, "none")) {
		dev_err(xdev->dev, "xsmmu: refused: unknown policy \"%.32s\"; read the policy file for the valid ones\n",
			text);
		return -EINVAL;
	}
	return xs_group_choose(xdev->group, policy, is_auto);
}
XS_RW(policy);

/* The choice of `auto`; if `auto` is not chosen, the choice that `auto` would make now. */
static ssize_t auto_policy_show(struct xs_device *xdev, char *page)
{
	struct xs_group *group = xdev->group;
	const struct xs_auto_line *line = group->assignment.line;
	struct xs_situation situation;
	const char *why;

	/*
	 * The reader may have changed the domain just before, and expects a choice for the new
	 * domain: see xs_group_look().
	 */
	if (!line && xs_look_is_due())
		return restart_syscall();
	if (xs_group_refusal(group, &why))
		return sysfs_emit(page, "none none: %s\n", why);
	if (!line) {
		situation = xs_group_situation(group);
		line = xs_auto_find(situation.facts, situation.is_aware);
	}
	return sysfs_emit(page, "%s %s: %s\n", line->policy,
			  xs_level_name(xs_policy_level(xs_policy_find(line->policy),
							group->attachment.is_aware)),
			  line->why);
}
XS_ROOT_ONLY(auto_policy);

/*
 * The device of the group that the module cannot attach, and the reason; empty if a policy can
 * be chosen.
 */
static ssize_t declined_show(struct xs_device *xdev, char *page)
{
	struct xs_device *declined;
	const char *why;

	declined = xs_group_refusal(xdev->group, &why);
	return declined ? sysfs_emit(page, "%s: %s\n",
				     dev_name(declined->dev), why) : 0;
}
XS_RO(declined);

static ssize_t level_show(struct xs_device *xdev, char *page)
{
	return sysfs_emit(page, "%s\n",
			  xs_level_name(xs_group_level(xdev->group)));
}
XS_RO(level);

static ssize_t state_show(struct xs_device *xdev, char *page)
{
	return sysfs_emit(page, "%s\n", xs_group_state(xdev->group));
}
XS_RO(state);

/*
 * The writer of the tables in force; the chosen writer if the group is not attached. `used` has
 * the number of pages that direct tables have mapped.
 */
static ssize_t tables_show(struct xs_device *xdev, char *page)
{
	const struct xs_group *group = xdev->group;
	bool direct = xs_group_is_attached(group) ?
		READ_ONCE(group->backend.domain.tables.on) :
		group->assignment.direct;

	return sysfs_emit(page, direct ? "kernel [direct]\n" :
					 "[kernel] direct\n");
}

static ssize_t tables_store(struct xs_device *xdev, const char *text)
{
	bool direct = !strcmp(text, "direct");
	int error;

	if (!direct && strcmp(text, "kernel")) {
		dev_err(xdev->dev,
			"xsmmu: refused: unknown tables \"%.32s\": must be kernel or direct\n",
			text);
		return -EINVAL;
	}
	error = xs_group_choose_tables(xdev->group, direct);
	if (error == -ENODATA)
		dev_err(xdev->dev, "xsmmu: refused: choose a policy before tables\n");
	return error;
}
XS_RW(tables);

/* The reason why direct tables, which are chosen, are off in an attached group; else empty. */
static ssize_t no_direct_show(struct xs_device *xdev, char *page)
{
	const struct xs_group *group = xdev->group;
	const char *why = xs_group_is_attached(group) ?
		READ_ONCE(group->backend.domain.tables.off_why) : NULL;

	return why ? sysfs_emit(page, "%s\n", why) : 0;
}
XS_RO(no_direct);

/* 1 if all drivers of the attached group are batch-aware. */
static ssize_t batch_aware_show(struct xs_device *xdev, char *page)
{
	return sysfs_emit(page, "%d\n", xdev->group->attachment.is_aware);
}
XS_RO(batch_aware);

/* 1 if all maps of this device fail, because the module cannot attach it to its attached group. */
static ssize_t blocked_show(struct xs_device *xdev, char *page)
{
	return sysfs_emit(page, "%d\n", xdev->is_attached && xdev->is_blocked);
}
XS_RO(blocked);

static ssize_t tune(struct xs_device *xdev, const char *name, const char *text,
		    u32 *field, const struct xs_tuning *tuning, u32 first,
		    u32 last)
{
	int error = kstrtou32(text, 10, field);

	if (!error)
		error = xs_group_tune(xdev->group, tuning,
				      field == &tuning->copy_bytes);
	if (error == -ENODATA)
		dev_err(xdev->dev, xdev->group->assignment.line ?
			"xsmmu: refused: auto has its policy's defaults: choose a policy by its name before %s\n" :
			"xsmmu: refused: choose a policy before %s\n", name);
	else if (error == -EINVAL || error == -ERANGE)
		dev_err(xdev->dev,
			"xsmmu: refused: %s \"%.32s\": must be a whole number from %u to %u\n",
			name, text, first, last);
	return error;
}

#define XS_TUNING(name, field, first, last) \
	static ssize_t name##_show(struct xs_device *xdev, char *page) \
	{ \
		return sysfs_emit(page, "%u\n", \
				  xs_group_tuning(xdev->group).field); \
	} \
	static ssize_t name##_store(struct xs_device *xdev, const char *text) \
	{ \
		struct xs_tuning tuning = xdev->group->assignment.tuning; \
	\
		return tune(xdev, #name, text, &tuning.field, &tuning, first, \
			    last); \
	} \
	XS_RW(name)

/* Default tunables of each policy, in the syntax of a rule. */
static ssize_t defaults_show(struct xs_device *xdev, char *page)
{
	int at = 0;
	u32 i;

	for (i = 0; i < xs_policy_count; i++) {
		struct xs_tuning tuning = xs_tuning_default(&xs_policies[i]);

		at += sysfs_emit_at(page, at,
				    "%s,max_window_us:%u,batch_pages:%u,range_commands_max:%u,copy_bytes:%u,pool_mib:%u\n",
				    xs_policies[i].name, tuning.window_us,
				    tuning.batch_pages,
				    tuning.range_commands_max,
				    tuning.copy_bytes, tuning.pool_mib);
	}
	return at;
}
XS_RO(defaults);

/* 1 if copying can begin now; 0 if the drivers of the group must be unbound first. */
static ssize_t can_copy_show(struct xs_device *xdev, char *page)
{
	return sysfs_emit(page, "%d\n", !xs_group_cannot_copy(xdev->group));
}
XS_RO(can_copy);

XS_TUNING(max_window_us, window_us, 1, XS_WINDOW_MAX_US);
XS_TUNING(batch_pages, batch_pages, 1, XS_BATCH_MAX_PAGES);
XS_TUNING(range_commands_max, range_commands_max, 1, XS_RANGES_MAX);
XS_TUNING(copy_bytes, copy_bytes, 0, XS_BOUNCE_MAX_BYTES);
XS_TUNING(pool_mib, pool_mib, XS_CHUNK_BYTES >> 20, XS_POOL_MAX_MIB);

static ssize_t exposure_ns_show(struct xs_device *xdev, char *page)
{
	struct xs_stats *sum = &xdev->group->stats.sum;
	int at = 0;
	u32 i;

	xs_group_sum(xdev->group, sum);
	for (i = 0; i < XS_EXPOSURE_BUCKETS; i++)
		if (sum->exposure[i])
			at += sysfs_emit_at(page, at, "%llu %llu\n",
					    xs_stats_bucket_last_ns(i),
					    sum->exposure[i]);
	return at + sysfs_emit_at(page, at, "max %llu\n", sum->exposure_max_ns);
}
XS_ROOT_ONLY(exposure_ns);

/*
 * Unmapped pages that were not flushed inside their unmap. On a CPU that reorders stores, a reader
 * may see a flush before its unmap.
 */
static u64 deferred(const struct xs_stats *sum)
{
	return max_t(s64, xs_counts_unmapped(&sum->counts) - sum->counts.immediate_pages -
			  sum->counts.kept_unmaps, 0);
}

/* The use of choices since the attach; empty if the group is not attached. */
static ssize_t used_show(struct xs_device *xdev, char *page)
{
	struct xs_backend *backend = &xdev->group->backend;
	struct xs_stats *sum = &xdev->group->stats.sum;

	if (!xs_group_is_attached(xdev->group))
		return 0;
	xs_engine_stats(&backend->engine, sum);
	return sysfs_emit(page,
			  "mapped_pages %llu\n"
			  "direct_pages %llu\ndirect_misses %lld\ndirect_large %lld\n"
			  "copied_maps %llu\nuncopied_maps %llu\ncopy_misses %llu\n"
			  "deferred_pages %llu\nimmediate_pages %llu\n",
			  xs_counts_mapped(&sum->counts),
			  xs_backend_direct_pages(backend),
			  atomic64_read(&backend->direct_use.misses),
			  atomic64_read(&backend->direct_use.large),
			  sum->counts.copied_maps, sum->counts.maps,
			  sum->counts.copy_misses, deferred(sum),
			  sum->counts.immediate_pages);
}
XS_ROOT_ONLY(used);

static struct attribute *device_attrs[] = {
	&policy_attribute.attr,
	&auto_policy_attribute.attr,
	&declined_attribute.attr,
	&tables_attribute.attr,
	&no_direct_attribute.attr,
	&batch_aware_attribute.attr,
	&blocked_attribute.attr,
	&used_attribute.attr,
	&level_attribute.attr,
	&state_attribute.attr,
	&max_window_us_attribute.attr,
	&batch_pages_attribute.attr,
	&range_commands_max_attribute.attr,
	&copy_bytes_attribute.attr,
	&pool_mib_attribute.attr,
	&defaults_attribute.attr,
	&can_copy_attribute.attr,
	&exposure_ns_attribute.attr,
	NULL
};
ATTRIBUTE_GROUPS(device);

/* ---- statistics ---- */

#define XS_STAT(name, value) \
	static ssize_t name##_show(struct xs_device *xdev, char *page) \
	{ \
		struct xs_stats *sum = &xdev->group->stats.sum; \
	\
		xs_group_sum(xdev->group, sum); \
		return sysfs_emit(page, "%llu\n", (u64)(value)); \
	} \
	XS_ROOT_ONLY(name)

XS_STAT(maps, sum->counts.maps);
XS_STAT(unmaps, sum->counts.unmaps);
XS_STAT(mapped_pages, xs_counts_mapped(&sum->counts));
XS_STAT(unmapped_pages, xs_counts_unmapped(&sum->counts));
XS_STAT(live_pages, xs_group_live(xdev->group));
XS_STAT(deferred_pages, deferred(sum));
XS_STAT(flushed_pages, sum->flushed_pages);
XS_STAT(held_pages, max_t(s64, deferred(sum) - sum->flushed_pages, 0));
XS_STAT(stuck_pages, xs_group_is_attached(xdev->group) ?
		     xs_engine_stuck_pages(&xdev->group->backend.engine) : 0);
XS_STAT(map_failures, sum->map_failures);
XS_STAT(kept_unmaps, sum->counts.kept_unmaps);
XS_STAT(identity_writes, sum->counts.identity_writes);
XS_STAT(identity_misses, sum->counts.identity_misses);
XS_STAT(copied_maps, sum->counts.copied_maps);
XS_STAT(copied_unmaps, sum->counts.copied_unmaps);
XS_STAT(copied_bytes, sum->counts.copied_bytes);
XS_STAT(copy_misses, sum->counts.copy_misses);
XS_STAT(pool_bytes, xs_group_is_attached(xdev->group) ?
		    (u64)xdev->group->backend.engine.pool.count << XS_CHUNK_LG2 : 0);
XS_STAT(bad_unmaps, sum->counts.bad_unmaps);
XS_STAT(torn_pages, xs_group_is_attached(xdev->group) ?
		    xs_engine_torn_pages(&xdev->group->backend.engine) : 0);
XS_STAT(map_flushes, atomic64_read(&xdev->group->backend.counts.map_flushes));
XS_STAT(flush_unmap, sum->flushes[XS_FLUSH_UNMAP]);
XS_STAT(flush_block, sum->flushes[XS_FLUSH_BLOCK]);
XS_STAT(flush_poll, sum->flushes[XS_FLUSH_POLL]);
XS_STAT(flush_full, sum->flushes[XS_FLUSH_FULL]);
XS_STAT(flush_time, sum->flushes[XS_FLUSH_TIME]);
XS_STAT(flush_explicit, sum->flushes[XS_FLUSH_EXPLICIT]);
XS_STAT(flush_drain, sum->flushes[XS_FLUSH_DRAIN]);
XS_STAT(inv_page, sum->commands_page);
XS_STAT(inv_domain, sum->commands_domain);
XS_STAT(inv_global, sum->commands_global);

static struct attribute *stats_attrs[] = {
	&maps_attribute.attr,
	&unmaps_attribute.attr,
	&mapped_pages_attribute.attr,
	&unmapped_pages_attribute.attr,
	&live_pages_attribute.attr,
	&deferred_pages_attribute.attr,
	&flushed_pages_attribute.attr,
	&held_pages_attribute.attr,
	&stuck_pages_attribute.attr,
	&map_failures_attribute.attr,
	&kept_unmaps_attribute.attr,
	&identity_writes_attribute.attr,
	&identity_misses_attribute.attr,
	&copied_maps_attribute.attr,
	&copied_unmaps_attribute.attr,
	&copied_bytes_attribute.attr,
	&copy_misses_attribute.attr,
	&pool_bytes_attribute.attr,
	&bad_unmaps_attribute.attr,
	&torn_pages_attribute.attr,
	&map_flushes_attribute.attr,
	&flush_unmap_attribute.attr,
	&flush_block_attribute.attr,
	&flush_poll_attribute.attr,
	&flush_full_attribute.attr,
	&flush_time_attribute.attr,
	&flush_explicit_attribute.attr,
	&flush_drain_attribute.attr,
	&inv_page_attribute.attr,
	&inv_domain_attribute.attr,
	&inv_global_attribute.attr,
	NULL
};
ATTRIBUTE_GROUPS(stats);

/* ---- plumbing ---- */

static struct xs_device *xdev_of(struct kobject *kobj)
{
	return container_of(kobj, struct xs_kobject, kobj)->xdev;
}

/*
 * A removal of a file holds xs_mutex and waits until the file is closed, so an operation of
 * the file must not wait for xs_mutex. A file may be read at any time, so its value is kept
 * under xs_mutex or counted: a read follows no dev->iommu and no domain, and reads no
 * register.
 */
static ssize_t attribute_show(struct kobject *kobj, struct attribute *attr,
			      char *page)
{
	struct xs_attribute *at = container_of(attr, struct xs_attribute, attr);
	ssize_t got;

	if (!mutex_trylock(&xs_mutex))
		return restart_syscall();
	got = at->show(xdev_of(kobj), page);
	mutex_unlock(&xs_mutex);
	return got;
}

static ssize_t attribute_store(struct kobject *kobj, struct attribute *attr,
			       const char *text, size_t size)
{
	struct xs_attribute *at = container_of(attr, struct xs_attribute, attr);
	ssize_t error;
	char *word;

	/* The same capabilities as for the type of an IOMMU group. */
	if (!capable(CAP_SYS_ADMIN) || !capable(CAP_SYS_RAWIO))
		return -EACCES;
	word = kstrndup(text, size, GFP_KERNEL);
	if (!word)
		return -ENOMEM;
	if (!mutex_trylock(&xs_mutex)) {
		kfree(word);
		return restart_syscall();
	}
	error = at->store(xdev_of(kobj), strim(word));
	mutex_unlock(&xs_mutex);
	kfree(word);
	return error ? error : size;
}

static const struct sysfs_ops xs_sysfs_ops = {
	.show = attribute_show,
	.store = attribute_store,
};

static void release(struct kobject *kobj)
{
	kfree(container_of(kobj, struct xs_kobject, kobj));
}

static const struct kobj_type device_type = {
	.release = release,
	.sysfs_ops = &xs_sysfs_ops,
	.default_groups = device_groups,
};

static const struct kobj_type stats_type = {
	.release = release,
	.sysfs_ops = &xs_sysfs_ops,
	.default_groups = stats_groups,
};

static struct kobject *add(struct xs_device *xdev, const struct kobj_type *type,
			   struct kobject *parent, const char *name)
{
	struct xs_kobject *made = kzalloc(sizeof(*made), GFP_KERNEL);

	if (!made)
		return NULL;
	made->xdev = xdev;
	if (kobject_init_and_add(&made->kobj, type, parent, "%s", name)) {
		kobject_put(&made->kobj);
		return NULL;
	}
	return &made->kobj;
}

static void remove(struct kobject *kobj)
{
	kobject_del(kobj);
	kobject_put(kobj);
}

int xs_sysfs_add(struct xs_device *xdev)
{
	lockdep_assert_held(&xs_mutex);
	xdev->kobj = add(xdev, &device_type, &xdev->dev->kobj, "xsmmu");
	if (!xdev->kobj)
		return -ENOMEM;
	xdev->stats = add(xdev, &stats_type, xdev->kobj, "stats");
	if (!xdev->stats) {
		remove(xdev->kobj);
		xdev->kobj = NULL;
		return -ENOMEM;
	}
	return 0;
}

void xs_sysfs_remove(struct xs_device *xdev)
{
	lockdep_assert_held(&xs_mutex);
	if (!xdev->kobj)
		return;
	remove(xdev->stats);
	remove(xdev->kobj);
}
