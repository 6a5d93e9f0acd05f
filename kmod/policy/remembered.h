/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * The operator's choices, remembered by the addresses of devices as long as the module is loaded:
 * a choice applies again after a re-plug, and to a virtual function that is made anew. If devices
 * of a group have different choices, the last choice counts.
 */
#ifndef XSMMU_POLICY_REMEMBERED_H
#define XSMMU_POLICY_REMEMBERED_H

#include <linux/pci.h>

#include "assignment.h"

/**
 * struct xs_address - address of a PCI device
 * @domain:	PCI domain
 * @bus:	bus number
 * @devfn:	device and function
 */
struct xs_address {
	int domain;
	u8 bus;
	u8 devfn;
};

/**
 * struct xs_remembered - a choice of the operator, for one device
 * @list:	entry in the list of choices
 * @address:	address of the device
 * @vendor:	vendor of the device
 * @device:	device ID
 * @class:	class of the device
 * @request:	the choice
 * @number:	sequence number of the choice
 */
struct xs_remembered {
	struct list_head list;
	struct xs_address address;
	u16 vendor;
	u16 device;
	u32 class;
	struct xs_request request;
	u64 number;
};

/* Checks whether @pdev has @address. Context: any. */
static inline bool xs_address_is(const struct xs_address *address,
				 struct pci_dev *pdev)
{
	return address->domain == pci_domain_nr(pdev->bus) &&
	       address->bus == pdev->bus->number &&
	       address->devfn == pdev->devfn;
}

/**
 * xs_remembered_find - find the operator's choice for a device
 * @pdev: the device
 *
 * Forgets a choice that was made for another device at the same address, and logs it: vendor,
 * device ID and class must be the same.
 *
 * Context: xs_mutex.
 * Return: the choice, or NULL.
 */
const struct xs_remembered *xs_remembered_find(struct pci_dev *pdev);

/* Returns the sequence number of a new choice. Context: xs_mutex. */
u64 xs_remembered_number(void);

/**
 * xs_remembered_set - remember the operator's choice for a device
 * @pdev: the device
 * @assignment: what the choice has put in force, with its sequence number
 *
 * Without memory for the record, the choice is lost when the device is removed.
 *
 * Context: xs_mutex; sleeps.
 */
void xs_remembered_set(struct pci_dev *pdev,
		       const struct xs_assignment *assignment);

/**
 * xs_remembered_stop - forget all choices
 *
 * Context: module load or unload, when no group exists.
 */
void xs_remembered_stop(void);

#endif
