// SPDX-License-Identifier: GPL-2.0-only
/* Decisions: see assignment.h. */
#include "assignment.h"
#include "auto.h"
#include "floor.h"
#include "remembered.h"
#include "rules.h"

struct xs_assignment xs_decide_request(const struct xs_situation *situation,
				       const struct xs_request *request)
{
	struct xs_assignment next = situation->now;

	next.policy = request->policy;
	next.line = NULL;
	if (request->is_auto) {
		next.line = xs_auto_find(situation->facts, situation->is_aware);
		next.policy = xs_policy_find(next.line->policy);
		next.tuning = xs_tuning_default(next.policy);
	} else if (next.policy) {
		next.tuning = request->tuning;
	}
	if (next.policy)
		next.direct = request->direct;
	return next;
}

struct xs_assignment xs_decide_choice(const struct xs_situation *situation,
				      const struct xs_request *choice,
				      const char **floor)
{
	struct xs_assignment next = xs_decide_request(situation, choice);

	*floor = !next.policy || xs_floor_allows(next.policy) ? NULL :
								xs_floor_name();
	next.number = xs_remembered_number();
	return next;
}

/* Compares levels for drivers that are not batch-aware. */
static bool is_stronger(const struct xs_assignment *next,
			const struct xs_assignment *now)
{
	return next->policy &&
	       (!now->policy || xs_policy_level(next->policy, false) >
					xs_policy_level(now->policy, false));
}

/* Compares the levels that the drivers of the group get now. */
static bool is_weaker(const struct xs_assignment *next,
		      const struct xs_assignment *now, bool is_aware)
{
	return xs_policy_level(next->policy, is_aware) <
	       xs_policy_level(now->policy, is_aware);
}

struct xs_assignment xs_decide_device(const struct xs_situation *situation,
				      struct pci_dev *pdev, const char *driver,
				      bool can_attach)
{
	const struct xs_remembered *choice = xs_remembered_find(pdev);
	struct xs_assignment now = situation->now, next;
	const struct xs_request *rule;

	if (choice && choice->number > now.number) {
		next = xs_decide_request(situation, &choice->request);
		if (situation->is_attached && !is_stronger(&next, &now))
			next = now;
		next.number = choice->number;
		return next;
	}
	rule = now.number ? NULL : xs_rules_find(pdev, driver);
	if (!rule || (situation->is_attached && !can_attach))
		return now;
	next = xs_decide_request(situation, rule);
	return is_stronger(&next, &now) ? next : now;
}

struct xs_assignment xs_decide_again(const struct xs_situation *situation)
{
	const struct xs_assignment *now = &situation->now;
	struct xs_request request = { .is_auto = true, .direct = now->direct };
	struct xs_assignment next;

	if (!now->line)
		return *now;
	next = xs_decide_request(situation, &request);
	if (next.line == now->line ||
	    (situation->is_attached && is_weaker(&next, now, situation->is_aware)))
		return *now;
	return next;
}
