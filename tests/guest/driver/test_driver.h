/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * Common parts of the test drivers: a table of modes, parameters that are commands, and QEMU's
 * iommu-testdev, which all of them drive.
 */
#ifndef XSMMU_TEST_DRIVER_H
#define XSMMU_TEST_DRIVER_H

#include <linux/io.h>
#include <linux/module.h>
#include <linux/pci.h>

/**
 * struct test_mode - a row of a driver's table of modes
 * @name:	value of the parameter mode
 * @text:	description for the list of modes
 * @probe:	runs the mode when the driver binds; gets @arg
 * @arg:	distinguishes modes with the same @probe
 */
struct test_mode {
	const char *name;
	const char *text;
	int (*probe)(struct device *dev, u32 arg);
	u32 arg;
};

struct test_modes {
	const struct test_mode *chosen;
	const struct test_mode *table;
	u32 count;
};

/* An unknown name changes nothing, and the log lists the table. */
static inline int test_set_mode(const char *text, const struct kernel_param *param)
{
	struct test_modes *modes = param->arg;

	for (u32 i = 0; i < modes->count; i++)
		if (sysfs_streq(text, modes->table[i].name)) {
			modes->chosen = &modes->table[i];
			return 0;
		}
	pr_err(KBUILD_MODNAME ": no mode '%.*s'; write one of these to the parameter mode:\n",
	       (int)strcspn(text, "\n"), text);
	for (u32 i = 0; i < modes->count; i++)
		pr_err("  %s: %s\n", modes->table[i].name, modes->table[i].text);
	return -EINVAL;
}

static inline int test_get_mode(char *text, const struct kernel_param *param)
{
	const struct test_modes *modes = param->arg;

	return sysfs_emit(text, "%s\n", modes->chosen->name);
}

/* Defines the parameter mode, with the first row of @rows as its default, and test_modes. */
#define TEST_MODES(rows)							\
	static struct test_modes test_modes = { rows, rows, ARRAY_SIZE(rows) };	\
	static const struct kernel_param_ops test_mode_ops = {			\
		.set = test_set_mode, .get = test_get_mode			\
	};									\
	module_param_cb(mode, &test_mode_ops, &test_modes, 0644);		\
	MODULE_PARM_DESC(mode, "the probe's work; an unknown name logs a list of all")

/* Runs the chosen mode of TEST_MODES(). */
#define test_run_mode(pdev) test_modes.chosen->probe(&(pdev)->dev, test_modes.chosen->arg)

/* Defines a parameter by the members of its struct kernel_param_ops. */
#define TEST_PARAM(name, perm, text, ...)					\
	static const struct kernel_param_ops name##_ops = { __VA_ARGS__ };	\
	module_param_cb(name, &name##_ops, NULL, perm);				\
	MODULE_PARM_DESC(name, text)

/* Defines test_driver, for module_pci_driver(). */
#define TEST_DRIVER(probe_function)						\
	static const struct pci_device_id test_ids[] = {			\
		{ PCI_DEVICE(0x1b36, 0x0005) },					\
		{ }								\
	};									\
	MODULE_DEVICE_TABLE(pci, test_ids);					\
	static struct pci_driver test_driver = {				\
		.name = KBUILD_MODNAME,						\
		.id_table = test_ids,						\
		.probe = probe_function,					\
	}

/* Registers in the device's BAR 0, 32 bits each. */
enum {
	TESTDEV_FIRE = 0x00,	/* a read does the DMA if armed */
	TESTDEV_IOVA_LOW = 0x04,
	TESTDEV_IOVA_HIGH = 0x08,
	TESTDEV_LENGTH = 0x0c,
	TESTDEV_ARM = 0x14,
	TESTDEV_ATTRIBUTES = 0x18,
	TESTDEV_PHYSICAL_LOW = 0x1c,
	TESTDEV_PHYSICAL_HIGH = 0x20,
};

/* Returns whether a device write to @iova changes @word, the memory behind @iova; restores it. */
static inline bool test_write_lands(void __iomem *registers, dma_addr_t iova, u32 *word)
{
	phys_addr_t phys = virt_to_phys(word);
	u32 before = READ_ONCE(*word);
	bool landed;

	writel(sizeof(*word), registers + TESTDEV_LENGTH);
	writel(0xa, registers + TESTDEV_ATTRIBUTES);
	writel(lower_32_bits(iova), registers + TESTDEV_IOVA_LOW);
	writel(upper_32_bits(iova), registers + TESTDEV_IOVA_HIGH);
	writel(lower_32_bits(phys), registers + TESTDEV_PHYSICAL_LOW);
	writel(upper_32_bits(phys), registers + TESTDEV_PHYSICAL_HIGH);
	writel(1, registers + TESTDEV_ARM);
	readl(registers + TESTDEV_FIRE);
	landed = READ_ONCE(*word) != before;
	WRITE_ONCE(*word, before);
	return landed;
}

#endif
