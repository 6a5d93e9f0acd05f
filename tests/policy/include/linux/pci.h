/* SPDX-License-Identifier: GPL-2.0-only */
/* A PCI device: its identity, and the name of its driver. */
#ifndef TEST_LINUX_PCI_H
#define TEST_LINUX_PCI_H

#include <linux/printk.h>
#include <linux/types.h>

struct device_driver {
	const char *name;
};

struct device {
	struct device_driver *driver;
};

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
	struct device dev;
};

static inline struct pci_dev *to_pci_dev(struct device *dev)
{
	return (void *)((char *)dev - offsetof(struct pci_dev, dev));
}

static inline int pci_domain_nr(const struct pci_bus *bus)
{
	return bus->domain;
}

#endif
