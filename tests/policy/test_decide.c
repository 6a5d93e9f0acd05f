// SPDX-License-Identifier: GPL-2.0-only
/*
 * Decisions of kmod/policy (decide.c, auto.c, remembered.c), which read no group: each branch, by
 * situation, request, rule and remembered choice. tests/python/test_decide.py compiles and runs
 * this program.
 */
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#include "../../core/policy.c"
#include "../../kmod/policy/decide.c"
#include "../../kmod/policy/auto.c"
#include "../../kmod/policy/remembered.c"

static u32 failed;
static char logged[256];

#define CHECK(condition) \
	((condition) ? (void)0 : \
	 (void)(failed++, printf("%s:%d: %s\n", __func__, __LINE__, #condition)))

/* ---- what decisions ask ---- */

static enum xs_level floor_now;
static struct xs_request rule;
static bool has_rule;
static const char *rule_driver;

bool xs_floor_allows(const struct xs_policy *policy)
{
	return xs_policy_level(policy, false) >= floor_now;
}

const char *xs_floor_name(void)
{
	return xs_level_name(floor_now);
}

const struct xs_request *xs_rules_find(struct pci_dev *pdev, const char *driver)
{
	rule_driver = driver;
	return has_rule ? &rule : NULL;
}

void test_log(const char *format, ...)
{
	va_list values;

	va_start(values, format);
	vsnprintf(logged, sizeof(logged), format, values);
	va_end(values);
}

/* ---- helpers ---- */

static struct pci_bus bus = { .domain = 1, .number = 2 };

static struct pci_dev device(void)
{
	return (struct pci_dev){
		.bus = &bus, .devfn = 3,
		.vendor = 0x8086, .device = 0x10d3, .class = 0x020000,
	};
}

/* A request for a policy by its name, with a window that is no default. */
static struct xs_request asks(const char *policy)
{
	struct xs_request request = {
		.policy = xs_policy_find(policy),
		.is_auto = !strcmp(policy, "auto"),
	};

	if (request.policy) {
		request.tuning = xs_tuning_default(request.policy);
		request.tuning.window_us = 77;
	}
	return request;
}

/* A group of an Ethernet NIC that has @policy. */
static struct xs_situation has(const char *policy, bool is_attached)
{
	struct xs_situation situation = {
		.facts = XS_FACT_ETHERNET,
		.is_attached = is_attached,
	};
	struct xs_request request = asks(policy);

	situation.now = xs_decide_request(&situation, &request);
	return situation;
}

static bool is(const struct xs_assignment *next, const char *policy)
{
	return next->policy == xs_policy_find(policy);
}

static void remember(const char *policy, u64 number)
{
	struct xs_situation none = has("none", false);
	struct xs_request request = asks(policy);
	struct xs_assignment chosen = xs_decide_request(&none, &request);
	struct pci_dev pdev = device();

	chosen.number = number;
	chosen.direct = true;
	xs_remembered_set(&pdev, &chosen);
}

static struct xs_assignment appear(const struct xs_situation *situation,
				   bool can_attach)
{
	struct pci_dev pdev = device();

	return xs_decide_device(situation, &pdev, "driver", can_attach);
}

static void reset(void)
{
	xs_remembered_stop();
	has_rule = false;
	floor_now = XS_LEVEL_NONE;
	logged[0] = '\0';
}

static void set_rule(const char *policy)
{
	has_rule = true;
	rule = asks(policy);
}

/* ---- tests ---- */

static void requests(void)
{
	struct xs_situation situation = has("auto", false);
	struct xs_request request = asks("fused");
	struct xs_assignment next;

	CHECK(situation.now.line && is(&situation.now, "fused"));
	CHECK(situation.now.tuning.window_us == xs_policy_find("fused")->window_us);
	situation.now.number = 5;
	request.direct = true;
	next = xs_decide_request(&situation, &request);
	CHECK(is(&next, "fused") && !next.line && next.direct);
	CHECK(next.tuning.window_us == 77 && next.number == 5);

	/* Without a policy, tunables and tables stay. */
	situation.now = next;
	request = asks("none");
	next = xs_decide_request(&situation, &request);
	CHECK(!next.policy && !next.line && next.direct);
	CHECK(next.tuning.window_us == 77);

	request = asks("auto");
	next = xs_decide_request(&situation, &request);
	CHECK(next.line && !next.direct);
	request.direct = true;
	situation.is_aware = true;
	situation.facts |= XS_FACT_STORAGE;
	next = xs_decide_request(&situation, &request);
	CHECK(next.line->facts == XS_FACT_AWARE && next.direct);
	situation.is_aware = false;
	next = xs_decide_request(&situation, &request);
	CHECK(next.line->facts == XS_FACT_STORAGE && is(&next, "strict"));
	floor_now = XS_LEVEL_STRICT;
	next = xs_decide_request(&situation, &request);
	CHECK(next.line->facts == XS_FACT_FLOOR_STRICT && is(&next, "strict"));
	reset();
}

static void choices_of_the_operator(void)
{
	struct xs_situation situation = has("fused", true);
	struct xs_request request = asks("lazy");
	const char *floor = "not set";
	struct xs_assignment first, second;

	first = xs_decide_choice(&situation, &request, &floor);
	CHECK(!floor && is(&first, "lazy"));
	floor_now = XS_LEVEL_HELD;
	second = xs_decide_choice(&situation, &request, &floor);
	CHECK(floor && !strcmp(floor, "held"));
	CHECK(first.number && second.number > first.number);
	for (u32 i = 0; i < 3; i++) {
		request = asks(i == 0 ? "none" : i == 1 ? "auto" : "fused");
		second = xs_decide_choice(&situation, &request, &floor);
		CHECK(!floor);
	}
	/* The level counts for drivers that are not batch-aware. */
	floor_now = XS_LEVEL_STRICT;
	situation.is_aware = true;
	second = xs_decide_choice(&situation, &request, &floor);
	CHECK(floor && !strcmp(floor, "strict"));
	reset();
}

static void newer_choices(void)
{
	struct xs_situation situation = has("strict", false);
	struct xs_assignment next;

	/* A group that is not attached has the last choice, whatever its level. */
	remember("lazy", 7);
	situation.now.number = 6;
	next = appear(&situation, true);
	CHECK(is(&next, "lazy") && next.number == 7 && next.tuning.window_us == 77);
	remember("none", 8);
	next = appear(&situation, true);
	CHECK(!next.policy && next.number == 8);
	situation.now.number = 8;
	next = appear(&situation, true);
	CHECK(is(&next, "strict") && next.number == 8);
	situation.now.number = 9;
	next = appear(&situation, true);
	CHECK(is(&next, "strict") && next.number == 9);

	/* The level of an attached group is not lowered; the choice counts as made. */
	situation.is_attached = true;
	situation.now.number = 6;
	next = appear(&situation, true);
	CHECK(is(&next, "strict") && next.number == 8);
	remember("copy", 10);
	next = appear(&situation, true);
	CHECK(is(&next, "strict") && next.number == 10);
	situation = has("fused", true);
	situation.is_aware = true;
	next = appear(&situation, true);
	CHECK(is(&next, "copy") && next.number == 10);

	/* `auto` is evaluated for the group. */
	remember("auto", 11);
	situation = has("none", false);
	situation.facts = XS_FACT_STORAGE;
	next = appear(&situation, true);
	CHECK(is(&next, "strict") && next.line && next.number == 11);
	reset();
}

static void rules_of_devices(void)
{
	struct xs_situation situation = has("fused", false);
	struct xs_assignment next;

	next = appear(&situation, true);
	CHECK(is(&next, "fused"));
	CHECK(rule_driver && !strcmp(rule_driver, "driver"));
	set_rule("strict");
	next = appear(&situation, true);
	CHECK(is(&next, "strict") && next.tuning.window_us == 77 && !next.number);
	/* At the same level the first rule stays. */
	set_rule("xsmmu");
	next = appear(&situation, true);
	CHECK(is(&next, "fused"));
	set_rule("lazy");
	next = appear(&situation, true);
	CHECK(is(&next, "fused"));
	set_rule("none");
	next = appear(&situation, true);
	CHECK(is(&next, "fused"));

	/* A blocked device of an attached group changes nothing. */
	set_rule("strict");
	next = appear(&situation, false);
	CHECK(is(&next, "strict"));
	situation.is_attached = true;
	next = appear(&situation, false);
	CHECK(is(&next, "fused"));
	next = appear(&situation, true);
	CHECK(is(&next, "strict"));

	/* Rules never change a choice of the operator, and the operator's choice precedes them. */
	situation.now.number = 3;
	next = appear(&situation, true);
	CHECK(is(&next, "fused") && next.number == 3);
	situation = has("none", false);
	remember("lazy", 4);
	next = appear(&situation, true);
	CHECK(is(&next, "lazy") && next.number == 4);
	reset();

	situation = has("none", false);
	set_rule("lazy");
	next = appear(&situation, true);
	CHECK(is(&next, "lazy"));
	reset();
}

static void auto_again(void)
{
	struct xs_situation situation = has("fused", false);
	struct xs_assignment next;

	/* `auto` changes no policy that was named. */
	situation.facts = XS_FACT_STORAGE;
	next = xs_decide_again(&situation);
	CHECK(is(&next, "fused") && !next.line);
	situation = has("none", false);
	next = xs_decide_again(&situation);
	CHECK(!next.policy);

	situation = has("auto", true);
	situation.now.direct = true;
	situation.now.number = 12;
	situation.facts |= XS_FACT_STORAGE;
	next = xs_decide_again(&situation);
	CHECK(is(&next, "strict") && next.direct && next.number == 12);

	/* The level of an attached group is not lowered, until the group is detached. */
	situation.now = next;
	situation.facts = XS_FACT_ETHERNET;
	next = xs_decide_again(&situation);
	CHECK(is(&next, "strict") && next.line->facts == XS_FACT_STORAGE);
	/* Batch-aware drivers get level strict from fused, too. */
	situation.is_aware = true;
	next = xs_decide_again(&situation);
	CHECK(is(&next, "fused") && next.line->facts == XS_FACT_AWARE);
	situation.is_aware = false;
	situation.is_attached = false;
	next = xs_decide_again(&situation);
	CHECK(is(&next, "fused") && next.line->facts == XS_FACT_ETHERNET);

	/* The reason changes, and the policy does not. */
	situation = has("auto", true);
	situation.facts |= XS_FACT_TOLD_OF_MAPS;
	next = xs_decide_again(&situation);
	CHECK(next.line != situation.now.line && is(&next, "fused"));
	reset();
}

static void equal_assignments(void)
{
	struct xs_situation situation = has("auto", false);
	struct xs_assignment a = situation.now, b = a;

	a.number = 1;
	CHECK(xs_assignment_equals(&a, &b));
#define DIFFERS(change) do { \
		b = a; \
		change; \
		CHECK(!xs_assignment_equals(&a, &b)); \
	} while (0)
	DIFFERS(b.policy = xs_policy_find("xsmmu"));
	DIFFERS(b.policy = NULL);
	DIFFERS(b.line = NULL);
	DIFFERS(b.direct = true);
	DIFFERS(b.tuning.window_us++);
	DIFFERS(b.tuning.batch_pages++);
	DIFFERS(b.tuning.range_commands_max++);
	DIFFERS(b.tuning.copy_bytes++);
	DIFFERS(b.tuning.pool_mib++);
	/* Without a policy, neither tunables nor tables are in force. */
	a.policy = NULL;
	b = a;
	b.direct = true;
	b.tuning.window_us++;
	CHECK(xs_assignment_equals(&a, &b));
}

static void remembered_choices(void)
{
	struct pci_bus elsewhere = bus;
	struct pci_dev pdev = device(), other;
	const struct xs_remembered *found;

	CHECK(!xs_remembered_find(&pdev));
	remember("fused", 1);
	found = xs_remembered_find(&pdev);
	CHECK(found && found->number == 1 && found->request.tuning.window_us == 77);
	CHECK(found && !found->request.is_auto && found->request.direct);
	other = pdev;
	other.devfn++;
	CHECK(!xs_remembered_find(&other));
	other = pdev;
	other.bus = &elsewhere;
	elsewhere.number++;
	CHECK(!xs_remembered_find(&other));
	elsewhere = bus;
	elsewhere.domain++;
	CHECK(!xs_remembered_find(&other) && !logged[0]);
	CHECK(xs_remembered_find(&pdev) == found);

	/* Of another device at the address, none of three properties may differ. */
	for (u32 i = 0; i < 3; i++) {
		remember(i == 0 ? "fused" : i == 1 ? "auto" : "none", 2 + i);
		other = pdev;
		other.vendor += i == 0;
		other.device += i == 1;
		other.class += i == 2;
		CHECK(!xs_remembered_find(&other));
		CHECK(strstr(logged, i == 0 ? "the choice of fused is" :
				     i == 1 ? "the choice of auto is" :
					      "the choice of none is"));
		CHECK(strstr(logged, "8086:10d3 of class 020000"));
		CHECK(!xs_remembered_find(&pdev));
	}

	/* The last choice replaces the choice before. */
	remember("auto", 6);
	found = xs_remembered_find(&pdev);
	CHECK(found && found->request.is_auto);
	remember("lazy", 7);
	found = xs_remembered_find(&pdev);
	CHECK(found && found->number == 7 && !found->request.is_auto);
	CHECK(found && found->request.policy == xs_policy_find("lazy"));
	CHECK(xs_remembered_number() < xs_remembered_number());
	xs_remembered_stop();
	CHECK(!xs_remembered_find(&pdev));
	reset();
}

int main(void)
{
	requests();
	choices_of_the_operator();
	newer_choices();
	rules_of_devices();
	auto_again();
	equal_assignments();
	remembered_choices();
	printf("%u failed\n", failed);
	return failed != 0;
}
