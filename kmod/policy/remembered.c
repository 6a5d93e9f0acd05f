// SPDX-License-Identifier: GPL-2.0-only
/* Choices of the operator: see remembered.h. */
#include <linux/list.h>
#include <linux/slab.h>

#include "remembered.h"

static LIST_HEAD(choices);
static u64 last_number;

static struct xs_remembered *find(struct pci_dev *pdev)
{
	struct xs_remembered *found;

	list_for_each_entry(found, &choices, list)
		if (xs_address_is(&found->address, pdev))
			return found;
	return NULL;
}

const struct xs_remembered *xs_remembered_find(struct pci_dev *pdev)
{
	struct xs_remembered *found = find(pdev);
	const char *name = "none";

	if (!found || (found->vendor == pdev->vendor &&
		       found->device == pdev->device &&
		       found->class == pdev->class))
		return found;
	if (found->request.is_auto)
		name = "auto";
	else if (found->request.policy)
		name = found->request.policy->name;
	dev_warn(&pdev->dev, "xsmmu: the choice of %s is dropped: it was for device %04x:%04x of class %06x, which was at this address before: choose again\n",
		 name, found->vendor, found->device, found->class);
	list_del(&found->list);
	kfree(found);
	return NULL;
}

u64 xs_remembered_number(void)
{
	return ++last_number;
}

void xs_remembered_set(struct pci_dev *pdev,
		       const struct xs_assignment *assignment)
{
	struct xs_remembered *found = find(pdev);

	if (!found) {
		found = kzalloc(sizeof(*found), GFP_KERNEL);
		if (!found)
			return;
		found->address.domain = pci_domain_nr(pdev->bus);
		found->address.bus = pdev->bus->number;
		found->address.devfn = pdev->devfn;
		list_add(&found->list, &choices);
	}
	found->vendor = pdev->vendor;
	found->device = pdev->device;
	found->class = pdev->class;
	found->number = assignment->number;
	found->request.policy = assignment->policy;
	found->request.is_auto = assignment->line;
	found->request.tuning = assignment->tuning;
	found->request.direct = assignment->direct;
}

void xs_remembered_stop(void)
{
	struct xs_remembered *found, *next;

	list_for_each_entry_safe(found, next, &choices, list)
		kfree(found);
	INIT_LIST_HEAD(&choices);
}
