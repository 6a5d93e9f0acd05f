// SPDX-License-Identifier: GPL-2.0-only
/*
 * The module parameter rules: which devices get which policy before their driver binds.
 *
 *   rules="0000:01:00.0=fused,max_window_us:500;class:0108=strict;driver:igb=fused;*=none"
 *
 * A rule consists of a match, "=", a policy, auto or none, and tunables. Rules are separated
 * by ";". The first rule that matches a device applies.
 */
#include <linux/ctype.h>
#include <linux/pci.h>
#include <linux/slab.h>
#include <linux/string.h>

#include <xsmmu/policy.h>

#include "../log.h"
#include "assignment.h"
#include "floor.h"
#include "remembered.h"
#include "rules.h"

enum rule_kind {
	RULE_ANY,	/* * */
	RULE_ADDRESS,	/* 0000:01:00.0 or 01:00.0; /vendor:device, if given, must match, too */
	RULE_CLASS,	/* class: and 2, 4 or 6 digits; the base class comes first */
	RULE_ID,	/* vendor:device */
	RULE_DRIVER,	/* driver: and its name */
};

/*
 * struct rule - a rule
 * @identified:	for RULE_ADDRESS: @vendor and @device must match
 * @passed_over:	the log has said that they do not
 * @class:	digits of a class
 * @shift:	number of bits of a class that @class leaves out
 * @driver:	name of a driver, in rules_text
 */
struct rule {
	enum rule_kind kind;
	struct xs_address address;
	bool identified;
	bool passed_over;
	u32 class;
	u32 shift;
	u16 vendor;
	u16 device;
	const char *driver;
	struct xs_request request;
};

static struct rule *rules;
static u32 rule_count;
static char *rules_text;

/* ---- reading ---- */

static bool is_hex(const char *text, size_t digits)
{
	for (; digits; digits--)
		if (!isxdigit(*text++))
			return false;
	return !*text;
}

static bool read_class(struct rule *rule, const char *digits)
{
	size_t length = strlen(digits);

	if (length % 2 || length > 6 || !length || !is_hex(digits, length))
		return false;
	rule->kind = RULE_CLASS;
	rule->shift = 24 - 4 * length;
	return !kstrtou32(digits, 16, &rule->class);
}

static bool read_address(struct rule *rule, const char *text)
{
	unsigned int domain = 0, bus, slot, function;
	int end = 0;

	if (sscanf(text, "%x:%x:%x.%x%n", &domain, &bus, &slot, &function,
		   &end) != 4 || text[end]) {
		domain = 0;
		end = 0;
		if (sscanf(text, "%x:%x.%x%n", &bus, &slot, &function,
			   &end) != 3 || text[end])
			return false;
	}
	if (domain > INT_MAX || bus > 0xff || slot > 0x1f || function > 7)
		return false;
	rule->kind = RULE_ADDRESS;
	rule->address.domain = domain;
	rule->address.bus = bus;
	rule->address.devfn = PCI_DEVFN(slot, function);
	return true;
}

static bool read_id(struct rule *rule, char *text)
{
	if (strlen(text) != 9 || text[4] != ':' || !is_hex(text + 5, 4))
		return false;
	text[4] = '\0';
	rule->kind = RULE_ID;
	return is_hex(text, 4) && !kstrtou16(text, 16, &rule->vendor) &&
	       !kstrtou16(text + 5, 16, &rule->device);
}

/* Another device gets the address when a card is moved to another slot or added. */
static bool read_place(struct rule *rule, char *text)
{
	char *identity = strchr(text, '/');

	if (identity) {
		*identity++ = '\0';
		if (!read_id(rule, identity))
			return false;
		rule->identified = true;
	}
	return read_address(rule, text);
}

static bool read_match(struct rule *rule, char *text)
{
	if (!strcmp(text, "*")) {
		rule->kind = RULE_ANY;
		return true;
	}
	if (!strncmp(text, "class:", 6))
		return read_class(rule, text + 6);
	if (!strncmp(text, "driver:", 7)) {
		rule->kind = RULE_DRIVER;
		rule->driver = text + 7;
		return *rule->driver;
	}
	return strchr(text, '.') ? read_place(rule, text) : read_id(rule, text);
}

/* Reads a tunable and its value. */
static bool read_tunable(struct xs_tuning *tuning, char *text)
{
	char *value = strchr(text, ':');
	u32 *field = NULL;

	if (!value)
		return false;
	*value++ = '\0';
	if (!strcmp(text, "max_window_us"))
		field = &tuning->window_us;
	else if (!strcmp(text, "batch_pages"))
		field = &tuning->batch_pages;
	else if (!strcmp(text, "range_commands_max"))
		field = &tuning->range_commands_max;
	else if (!strcmp(text, "copy_bytes"))
		field = &tuning->copy_bytes;
	else if (!strcmp(text, "pool_mib"))
		field = &tuning->pool_mib;
	return field && !kstrtou32(value, 10, field) &&
	       xs_tuning_is_valid(tuning);
}

/* Reads tables:, which selects direct tables. */
static bool read_tables(struct xs_request *request, const char *text)
{
	if (!strcmp(text, "tables:direct"))
		request->direct = true;
	else if (!strcmp(text, "tables:kernel"))
		request->direct = false;
	else
		return false;
	return true;
}

static int refuse(const char *what, const char *word)
{
	pr_err("refused: rules: %s: \"%s\"\n", what, word);
	return -EINVAL;
}

static int read_request(struct xs_request *request, char *text)
{
	char *word = strsep(&text, ",");

	request->policy = xs_policy_find(word);
	request->is_auto = !strcmp(word, "auto");
	if (!request->policy && !request->is_auto && strcmp(word, "none"))
		return refuse("unknown policy", word);
	if (!request->policy && !request->is_auto)
		return text ? refuse("none has no tunables", text) : 0;
	if (request->policy && !xs_floor_allows(request->policy))
		return refuse("level is below min_level", word);
	if (request->policy)
		request->tuning = xs_tuning_default(request->policy);
	while ((word = strsep(&text, ","))) {
		if (read_tables(request, word))
			continue;
		if (request->is_auto)
			return refuse("auto has no tunables", word);
		if (!read_tunable(&request->tuning, word))
			return refuse("unknown tunable, or value out of range; write NAME:NUMBER, with a colon", word);
	}
	return 0;
}

static int read_rule(struct rule *rule, char *text)
{
	char *match = strsep(&text, "=");

	if (!text)
		return refuse("missing = and policy", match);
	if (!read_match(rule, match))
		return refuse("invalid match, must be an address, class:, vendor:device, driver: or *",
			      match);
	return read_request(&rule->request, text);
}

int xs_rules_start(const char *text)
{
	char *rest, *word;
	int error = 0;
	u32 most = 1;

	for (const char *at = text; *at; at++)
		most += *at == ';';
	rules = kcalloc(most, sizeof(*rules), GFP_KERNEL);
	rules_text = rest = kstrdup(text, GFP_KERNEL);
	if (!rules || !rules_text)
		error = -ENOMEM;
	while (!error && (word = strsep(&rest, ";"))) {
		word = strim(word);
		if (!*word)
			continue;
		error = read_rule(&rules[rule_count], word);
		rule_count += !error;
	}
	if (error)
		xs_rules_stop();
	return error;
}

void xs_rules_stop(void)
{
	kfree(rules);
	kfree(rules_text);
	rules = NULL;
	rules_text = NULL;
	rule_count = 0;
}

/* ---- deciding ---- */

static bool is_identity(const struct rule *rule, const struct pci_dev *pdev)
{
	return pdev->vendor == rule->vendor && pdev->device == rule->device;
}

/* Checks that the device at the address of a rule is the device that the rule names. */
static bool is_meant(struct rule *rule, struct pci_dev *pdev)
{
	if (!rule->identified || is_identity(rule, pdev))
		return true;
	if (!rule->passed_over)
		dev_warn(&pdev->dev, "xsmmu: passed over: the rule for this address is for %04x:%04x, and this device is %04x:%04x. If it is to have the rule: xsmmu set %s POLICY --persist\n",
			 rule->vendor, rule->device, pdev->vendor, pdev->device,
			 dev_name(&pdev->dev));
	rule->passed_over = true;
	return false;
}

static bool matches(struct rule *rule, struct pci_dev *pdev, const char *driver)
{
	switch (rule->kind) {
	case RULE_ANY:
		return true;
	case RULE_ADDRESS:
		return xs_address_is(&rule->address, pdev) &&
		       is_meant(rule, pdev);
	case RULE_CLASS:
		return pdev->class >> rule->shift == rule->class;
	case RULE_ID:
		return is_identity(rule, pdev);
	case RULE_DRIVER:
		return driver && !strcmp(rule->driver, driver);
	}
	return false;
}

const struct xs_request *xs_rules_find(struct pci_dev *pdev, const char *driver)
{
	u32 i;

	for (i = 0; i < rule_count; i++) {
		if (matches(&rules[i], pdev, driver))
			return &rules[i].request;
		/* This rule may match once the device has a driver. */
		if (!driver && rules[i].kind == RULE_DRIVER)
			return NULL;
	}
	return NULL;
}
