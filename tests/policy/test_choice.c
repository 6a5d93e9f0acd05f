// SPDX-License-Identifier: GPL-2.0-only
/*
 * Choices for a group (kmod/attach/choice.c) above the true decisions of kmod/policy, and a group
 * whose properties the test sets. tests/python/test_decide.py compiles and runs this program.
 */
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#include <linux/iommu.h>

#include "../../core/policy.c"
#include "../../kmod/attach/choice.c"
#include "../../kmod/policy/auto.c"
#include "../../kmod/policy/decide.c"
#include "../../kmod/policy/remembered.c"

static u32 failed;

#define CHECK(condition) \
	((condition) ? (void)0 : \
	 (void)(failed++, printf("%s:%d: %s\n", __func__, __LINE__, #condition)))

/* ---- a group of two devices ---- */

struct mutex xs_mutex;

static struct device_driver driver = { "driver" };
static struct pci_bus bus = { .number = 1 };
static struct pci_dev pdevs[2];
static struct xs_device devices[2];
static struct xs_group group;
static const struct xs_ops_instance *const instance = (const void *)&bus;

/* What the test says of the group, and what the functions have done, a letter each. */
static const char *refusal;
static bool others, cannot_copy, orphan_ends;
static u32 facts;
static enum xs_level floor_now;
static struct xs_request rule;
static bool has_rule;
static char done[64], logged[1024];

static void note(char step)
{
	size_t length = strlen(done);

	if (length < sizeof(done) - 1)
		done[length] = step;
}

static bool did(const char *steps)
{
	bool same = !strcmp(done, steps);

	if (!same)
		printf("done: %s, not %s\n", done, steps);
	memset(done, 0, sizeof(done));
	return same;
}

void test_log(const char *format, ...)
{
	size_t length = strlen(logged);
	va_list values;

	va_start(values, format);
	vsnprintf(logged + length, sizeof(logged) - length, format, values);
	va_end(values);
}

/* The log contains @text; empties the log. */
static bool said(const char *text)
{
	bool has = *text ? !!strstr(logged, text) : !*logged;

	if (!has)
		printf("log: '%s', not '%s'\n", logged, text);
	logged[0] = '\0';
	return has;
}

bool xs_floor_allows(const struct xs_policy *policy)
{
	return xs_policy_level(policy, false) >= floor_now;
}

const char *xs_floor_name(void)
{
	return xs_level_name(floor_now);
}

const struct xs_request *xs_rules_find(struct pci_dev *pdev, const char *name)
{
	note(name ? 'R' : 'r');
	return has_rule ? &rule : NULL;
}

struct xs_situation xs_group_situation(const struct xs_group *its)
{
	return (struct xs_situation){
		.now = its->assignment,
		.facts = facts,
		.is_attached = xs_group_is_attached(its),
	};
}

bool xs_group_assign(struct xs_group *its, const struct xs_assignment *next)
{
	bool same = xs_assignment_equals(next, &its->assignment);

	note(same ? '=' : 'A');
	its->assignment = *next;
	return !same;
}

void xs_group_set_tables(struct xs_group *its)
{
	note('T');
}

void xs_group_log_auto(struct xs_group *its)
{
}

void xs_group_look(struct xs_group *its)
{
	note('L');
}

void xs_group_end_orphan(struct xs_group *its, struct device *locked)
{
	note('E');
	if (orphan_ends)
		its->attachment.instance = NULL;
}

void xs_device_prepare(struct xs_device *xdev)
{
	note('P');
}

void xs_device_attach(struct xs_device *xdev)
{
	note('X');
}

bool xs_group_cannot_copy(const struct xs_group *its)
{
	return xs_group_is_attached(its) && cannot_copy;
}

s64 xs_group_live(struct xs_group *its)
{
	return 37;
}

bool xs_others_use_kernel_path(struct xs_device *xdev)
{
	return others;
}

/* Only the second device is refused. */
const char *xs_device_refusal(const struct xs_device *xdev)
{
	return xdev == &devices[1] ? refusal : NULL;
}

struct xs_device *xs_group_refusal(const struct xs_group *its, const char **why)
{
	*why = refusal;
	return refusal && !xs_group_is_attached(its) ? &devices[1] : NULL;
}

bool xs_device_has_driver(const struct xs_device *xdev)
{
	return xdev->dev->driver;
}

/* ---- helpers ---- */

static void reset(void)
{
	xs_remembered_stop();
	memset(&group, 0, sizeof(group));
	memset(devices, 0, sizeof(devices));
	memset(done, 0, sizeof(done));
	logged[0] = '\0';
	refusal = NULL;
	others = cannot_copy = orphan_ends = has_rule = false;
	facts = XS_FACT_ETHERNET;
	floor_now = XS_LEVEL_NONE;
	INIT_LIST_HEAD(&group.devices);
	for (u32 i = 0; i < 2; i++) {
		pdevs[i] = (struct pci_dev){ .bus = &bus, .devfn = i };
		devices[i].dev = &pdevs[i].dev;
		devices[i].group = &group;
		list_add(&devices[i].list, &group.devices);
	}
}

static void bind(u32 device)
{
	pdevs[device].dev.driver = &driver;
	group.attachment.instance = instance;
	group.attachment.drivers++;
}

static int choose_policy(const char *name)
{
	return xs_group_choose(&group, xs_policy_find(name), !strcmp(name, "auto"));
}

static bool has(const char *policy)
{
	return group.assignment.policy == xs_policy_find(policy);
}

static u64 number_of(u32 device)
{
	const struct xs_remembered *found = xs_remembered_find(&pdevs[device]);

	return found ? found->number : 0;
}

static void set_rule(const char *policy)
{
	has_rule = true;
	rule = (struct xs_request){ .policy = xs_policy_find(policy) };
	if (rule.policy)
		rule.tuning = xs_tuning_default(rule.policy);
}

/* ---- tests ---- */

static void an_operators_choice(void)
{
	u64 first;

	reset();
	CHECK(!choose_policy("fused") && has("fused") && did("ELA"));
	first = group.assignment.number;
	CHECK(first && number_of(0) == first && number_of(1) == first);
	/* The choice is as new as any, even if it changes nothing. */
	CHECK(!choose_policy("fused") && did("EL="));
	CHECK(group.assignment.number > first && number_of(1) > first);
	/* A removed device keeps its own last choice. */
	first = group.assignment.number;
	devices[1].is_removed = true;
	CHECK(!choose_policy("auto") && group.assignment.line && did("ELA"));
	CHECK(number_of(0) > first && number_of(1) == first);
	CHECK(!choose_policy("none") && !group.assignment.policy && did("ELA"));
	CHECK(said(""));
}

static void refused_choices(void)
{
	struct xs_assignment before;

	/* Only without drivers does a group change between the kernel's own path and the module. */
	reset();
	pdevs[1].dev.driver = &driver;
	CHECK(choose_policy("fused") == -EBUSY && said("a driver is bound"));
	CHECK(!group.assignment.policy && !number_of(0) && did("EL"));
	CHECK(!choose_policy("none") && did("EL="));
	devices[1].is_removed = true;
	devices[0].on_kernel_path = true;
	CHECK(!choose_policy("fused") && !devices[0].on_kernel_path && did("ELA"));
	devices[1].is_removed = false;
	bind(0);
	before = group.assignment;
	CHECK(choose_policy("none") == -EBUSY && said("a driver is bound"));
	CHECK(!memcmp(&before, &group.assignment, sizeof(before)));
	CHECK(!choose_policy("strict") && has("strict"));

	/* An orphaned group with mappings in use, and the same with nothing mapped any more. */
	pdevs[0].dev.driver = pdevs[1].dev.driver = NULL;
	group.attachment.drivers = 0;
	CHECK(choose_policy("none") == -EBUSY && said("37 pages are still in use"));
	CHECK(has("strict") && !choose_policy("lazy") && has("lazy"));
	orphan_ends = true;
	CHECK(!choose_policy("none") && !group.assignment.policy);

	/* The floor, which `none` is not below. */
	reset();
	floor_now = XS_LEVEL_HELD;
	CHECK(choose_policy("lazy") == -EPERM && said("lazy is lazy, and min_level is held"));
	CHECK(!group.assignment.policy && !choose_policy("fused"));
	CHECK(!choose_policy("none"));

	/* Copying cannot begin under a driver that was bound without. */
	reset();
	CHECK(!choose_policy("fused"));
	bind(0);
	cannot_copy = true;
	CHECK(choose_policy("copy") == -EBUSY && said("copying can begin only"));
	CHECK(has("fused") && !choose_policy("strict"));
	/* A rule may have chosen copy too late; choosing copy again is refused all the same. */
	group.assignment.policy = xs_policy_find("copy");
	group.assignment.tuning = xs_tuning_default(group.assignment.policy);
	CHECK(choose_policy("copy") == -EBUSY && said("copying can begin only"));

	/* A device that the module cannot attach: the reason of the device comes first. */
	reset();
	refusal = "untrusted";
	floor_now = XS_LEVEL_STRICT;
	CHECK(choose_policy("lazy") == -EOPNOTSUPP && said("refused: untrusted"));
	CHECK(!choose_policy("none") && said(""));
}

static void tunables(void)
{
	struct xs_tuning tuning;
	u64 first;

	reset();
	tuning = xs_tuning_default(xs_policy_find("fused"));
	CHECK(xs_group_tune(&group, &tuning, false) == -ENODATA);
	CHECK(!choose_policy("auto"));
	CHECK(xs_group_tune(&group, &tuning, false) == -ENODATA);
	CHECK(!choose_policy("fused"));
	tuning.window_us = 0;
	CHECK(xs_group_tune(&group, &tuning, false) == -ERANGE);
	/* Over the policy of a rule, a tunable is a choice of the operator. */
	group.assignment.number = 0;
	tuning.window_us = 555;
	did("ELAELA");
	CHECK(!xs_group_tune(&group, &tuning, false) && did("A"));
	first = group.assignment.number;
	CHECK(first && number_of(0) == first && number_of(1) == first);
	CHECK(xs_remembered_find(&pdevs[1])->request.tuning.window_us == 555);

	bind(0);
	cannot_copy = true;
	tuning.copy_bytes = 256;
	CHECK(xs_group_tune(&group, &tuning, true) == -EBUSY && said("copying can begin only"));
	CHECK(!group.assignment.tuning.copy_bytes);
	/* Another tunable beside a copy_bytes that came too late. */
	CHECK(!xs_group_tune(&group, &tuning, false));
	group.attachment.instance = NULL;
	refusal = "untrusted";
	CHECK(xs_group_tune(&group, &tuning, false) == -EOPNOTSUPP && said("untrusted"));
}

static void tables(void)
{
	reset();
	CHECK(xs_group_choose_tables(&group, true) == -ENODATA);
	CHECK(!choose_policy("fused") && did("ELA"));
	group.assignment.number = 0;
	CHECK(!xs_group_choose_tables(&group, true) && did("LA"));
	CHECK(group.assignment.direct && group.assignment.number);
	CHECK(number_of(0) == group.assignment.number);
	/* The same choice restarts direct tables that have ended. */
	CHECK(!xs_group_choose_tables(&group, true) && did("LT="));
	devices[0].seen.no_tables = devices[1].seen.no_tables = "no format";
	CHECK(xs_group_choose_tables(&group, true) == -EOPNOTSUPP && said("no format"));
	CHECK(did("L") && !xs_group_choose_tables(&group, false) && did("LA"));
	CHECK(!group.assignment.direct);
	/* Another policy keeps the tables. */
	devices[0].seen.no_tables = devices[1].seen.no_tables = NULL;
	CHECK(!xs_group_choose_tables(&group, true) && !choose_policy("strict"));
	CHECK(group.assignment.direct);
}

static void devices_come(void)
{
	reset();
	set_rule("fused");
	xs_device_appear(&devices[0]);
	CHECK(has("fused") && did("rA"));
	/* The choice is made with a fresh look, and before the attach. */
	set_rule("strict");
	pdevs[0].dev.driver = &driver;
	xs_device_bind(&devices[0]);
	CHECK(has("strict") && did("PRAX"));
	/* A device that has a driver when it is found decides nothing. */
	reset();
	set_rule("strict");
	pdevs[0].dev.driver = &driver;
	xs_device_appear(&devices[0]);
	CHECK(!group.assignment.policy && did("="));
	/* Nor does a device beside a driver on the kernel's own path. */
	others = true;
	xs_device_bind(&devices[0]);
	CHECK(!group.assignment.policy && did("P=X"));

	/* The rule of a blocked device. */
	reset();
	set_rule("fused");
	xs_device_appear(&devices[0]);
	bind(0);
	set_rule("strict");
	refusal = "untrusted";
	pdevs[1].dev.driver = &driver;
	xs_device_bind(&devices[1]);
	CHECK(has("fused") && said(""));
	refusal = NULL;
	xs_device_bind(&devices[1]);
	CHECK(has("strict"));

	/* `auto` is evaluated again for each device. */
	reset();
	CHECK(!choose_policy("auto") && has("fused"));
	facts |= XS_FACT_STORAGE;
	xs_device_appear(&devices[1]);
	CHECK(has("strict") && group.assignment.line);
	CHECK(number_of(0) == group.assignment.number);
}

static void passed_over(void)
{
	reset();
	CHECK(!choose_policy("auto"));
	refusal = "untrusted";
	xs_device_appear(&devices[1]);
	CHECK(!group.assignment.policy && !group.assignment.line);
	CHECK(said("auto is chosen for IOMMU group 7 and passed over: untrusted"));
	/* Once for each reason. */
	xs_device_appear(&devices[0]);
	CHECK(!group.assignment.policy && said(""));
	refusal = "not coherent";
	xs_device_appear(&devices[0]);
	CHECK(said("passed over: not coherent"));
	/* The choice applies again when nothing speaks against it. */
	refusal = NULL;
	xs_device_appear(&devices[0]);
	CHECK(has("fused") && group.assignment.line);
	CHECK(number_of(0) == group.assignment.number);
	/* In an attached group such a device is blocked instead. */
	bind(0);
	refusal = "untrusted";
	xs_device_appear(&devices[1]);
	CHECK(has("fused") && said(""));
}

int main(void)
{
	an_operators_choice();
	refused_choices();
	tunables();
	tables();
	devices_come();
	passed_over();
	xs_remembered_stop();
	printf("%u failed\n", failed);
	return failed != 0;
}
