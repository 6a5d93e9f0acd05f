/* SPDX-License-Identifier: GPL-2.0-only */
/* The properties of a PCI device that identify the device. */
#ifndef TEST_LINUX_PCI_H
#define TEST_LINUX_PCI_H

#include <linux/types.h>

struct pci_bus {
	int domain;
	u8 number;
};

struct pci_dev {
	struct pci_bus *bus;
	u8 devfn;
	u16 vendor;
	u16 device;
	u32 class;
	int dev;
};

static inline int pci_domain_nr(const struct pci_bus *bus)
{
	return bus->domain;
}

#endif
