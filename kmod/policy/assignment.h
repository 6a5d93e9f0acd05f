/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * Policy decides: from the operator's choices, the rules, `auto` and the floor, a function of this
 * folder returns the assignment that a group is to have. The functions read no group and change
 * none; attach.c applies an assignment.
 *
 * An operator's choice is remembered by the addresses of the group's devices (remembered.c), and
 * precedes the rules. Rules never change an operator's choice. If rules differ for devices of one
 * group, the highest level counts. A request may be `auto`: `auto` is evaluated when it is
 * selected, on device add, before probe, and when batch awareness changes.
 */
#ifndef XSMMU_POLICY_ASSIGNMENT_H
#define XSMMU_POLICY_ASSIGNMENT_H

#include <linux/pci.h>

#include <xsmmu/engine.h>

struct xs_auto_line;

/**
 * struct xs_assignment - what is to be in force for a group
 * @policy:	the policy; NULL for none, which leaves the group to the kernel's own path
 * @line:	line of the table of `auto` that chose @policy, which says the reason; NULL if the
 *		operator or a rule named the policy
 * @tuning:	tunables; in force if @policy is not NULL
 * @direct:	use direct tables; in force if @policy is not NULL
 * @number:	sequence number of the operator's choice; 0 if the operator made none
 */
struct xs_assignment {
	const struct xs_policy *policy;
	const struct xs_auto_line *line;
	struct xs_tuning tuning;
	bool direct;
	u64 number;
};

/**
 * xs_assignment_equals - compare policy, reason, tables and tunables of two assignments
 * @a: an assignment
 * @b: another; neither sequence numbers nor @batch_aware count
 *
 * Context: any.
 */
static inline bool xs_assignment_equals(const struct xs_assignment *a,
			  const struct xs_assignment *b)
{
	return a->policy == b->policy && a->line == b->line &&
	       (!a->policy ||
		(a->direct == b->direct &&
		 a->tuning.window_us == b->tuning.window_us &&
		 a->tuning.batch_pages == b->tuning.batch_pages &&
		 a->tuning.range_commands_max == b->tuning.range_commands_max &&
		 a->tuning.copy_bytes == b->tuning.copy_bytes &&
		 a->tuning.pool_mib == b->tuning.pool_mib));
}

/**
 * struct xs_request - what the operator or a rule asks for
 * @policy:	the policy; NULL for none, and with @is_auto
 * @is_auto:	let `auto` choose the policy and its tunables
 * @tuning:	tunables; valid if @policy is not NULL
 * @direct:	use direct tables
 */
struct xs_request {
	const struct xs_policy *policy;
	bool is_auto;
	struct xs_tuning tuning;
	bool direct;
};

/**
 * struct xs_situation - the facts of a group on which decisions depend
 * @now:	the assignment that the group has
 * @facts:	XS_FACT_* of its devices (auto.h)
 * @is_aware:	all drivers of its attached devices are batch-aware
 * @is_attached: the group has an engine
 */
struct xs_situation {
	struct xs_assignment now;
	u32 facts;
	bool is_aware;
	bool is_attached;
};

/**
 * xs_decide_request - the assignment that grants a request
 * @situation: the group
 * @request: the request
 *
 * Evaluates `auto`. With no policy, tunables and tables stay as they are.
 *
 * Context: any.
 * Return: the assignment, with the sequence number of @now.
 */
struct xs_assignment xs_decide_request(const struct xs_situation *situation,
				       const struct xs_request *request);

/**
 * xs_decide_choice - the assignment that grants a choice of the operator
 * @situation: the group
 * @choice: the choice
 * @floor: result: name of the floor, if the level of the policy is below; else NULL
 *
 * As xs_decide_request(), with a new sequence number. The caller refuses the choice if *@floor is
 * not NULL.
 *
 * Context: xs_mutex.
 */
struct xs_assignment xs_decide_choice(const struct xs_situation *situation,
				      const struct xs_request *choice,
				      const char **floor);

/**
 * xs_decide_device - decide for a group when one of its devices appears or gets a driver
 * @situation: the group
 * @pdev: the device
 * @driver: name of the driver that is about to probe, or NULL
 * @can_attach: the module can attach the device. The rule of another device does not change a
 *	group that is attached
 *
 * Grants an operator's choice for the device that is newer than the choice for the group; else,
 * if the operator has chosen nothing for the group, the rule for the device, if its level is
 * higher. Rules and remembered choices have passed the floor when they were made. The level of an
 * attached group is never lowered. Forgets a choice that was made for another device at the same
 * address, and logs it.
 *
 * Context: xs_mutex.
 * Return: the assignment; @now of @situation if nothing is to change.
 */
struct xs_assignment xs_decide_device(const struct xs_situation *situation,
				      struct pci_dev *pdev, const char *driver,
				      bool can_attach);

/**
 * xs_decide_again - evaluate `auto` again after facts of a group may have changed
 * @situation: the group
 *
 * A policy below the level in force is not assigned to a group that is attached.
 *
 * Context: any.
 * Return: @now of @situation if `auto` is not in force, if it chooses the same line, or if the new
 * policy is weaker and the group is attached.
 */
struct xs_assignment xs_decide_again(const struct xs_situation *situation);

/**
 * xs_tuning_is_valid - check that all tunables are in their ranges
 * @tuning: the tunables
 *
 * Context: any.
 */
static inline bool xs_tuning_is_valid(const struct xs_tuning *tuning)
{
	return tuning->window_us && tuning->window_us <= XS_WINDOW_MAX_US &&
	       tuning->batch_pages &&
	       tuning->batch_pages <= XS_BATCH_MAX_PAGES &&
	       tuning->range_commands_max &&
	       tuning->range_commands_max <= XS_RANGES_MAX &&
	       tuning->copy_bytes <= XS_BOUNCE_MAX_BYTES &&
	       tuning->pool_mib >= XS_CHUNK_BYTES >> 20 &&
	       tuning->pool_mib <= XS_POOL_MAX_MIB;
}

#endif
