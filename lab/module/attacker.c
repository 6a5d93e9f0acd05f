// SPDX-License-Identifier: GPL-2.0-only
/* QEMU's iommu-testdev as the attacker; see attacker.h. */
#include <linux/io.h>
#include <linux/kernel.h>
#include <linux/mm.h>

#include "attacker.h"

/* Registers in BAR 0, 32 bits each; QEMU's docs/specs/iommu-testdev.rst. */
#define REG_FIRE 0x00		/* a read does the DMA if armed */
#define REG_IOVA_LOW 0x04
#define REG_IOVA_HIGH 0x08
#define REG_LENGTH 0x0c
#define REG_RESULT 0x10
#define REG_ARM 0x14
#define REG_ATTRIBUTES 0x18
#define REG_PHYSICAL_LOW 0x1c	/* where the device reads back what it wrote */
#define REG_PHYSICAL_HIGH 0x20

#define ATTRIBUTES_NON_SECURE 0xa	/* space 1 (non-secure) and "space is valid" */
#define RESULT_LANDED 0
#define RESULT_MISMATCH 0xdead0004
#define ATTACK_BYTES 4

int lab_attacker_create(struct lab_attacker *attacker, struct pci_dev *pdev)
{
	int ret = pcim_iomap_regions(pdev, BIT(0), "xsmmu_lab");

	if (ret)
		return ret;
	attacker->registers = pcim_iomap_table(pdev)[0];
	return 0;
}

void lab_attacker_aim(struct lab_attacker *attacker, dma_addr_t iova, struct page *target)
{
	void __iomem *registers = attacker->registers;
	phys_addr_t physical = page_to_phys(target);

	attacker->target = page_address(target);
	writel(lower_32_bits(iova), registers + REG_IOVA_LOW);
	writel(upper_32_bits(iova), registers + REG_IOVA_HIGH);
	writel(lower_32_bits(physical), registers + REG_PHYSICAL_LOW);
	writel(upper_32_bits(physical), registers + REG_PHYSICAL_HIGH);
	writel(ATTACK_BYTES, registers + REG_LENGTH);
	writel(ATTRIBUTES_NON_SECURE, registers + REG_ATTRIBUTES);
}

enum lab_attack lab_attacker_fire(struct lab_attacker *attacker)
{
	void __iomem *registers = attacker->registers;

	WRITE_ONCE(*attacker->target, 0);
	writel(1, registers + REG_ARM);
	readl(registers + REG_FIRE);
	switch (readl(registers + REG_RESULT)) {
	case RESULT_LANDED:
		/* The device has compared the word; what the CPU sees is what counts. */
		return READ_ONCE(*attacker->target) ? LAB_ATTACK_LANDED : LAB_ATTACK_ASTRAY;
	case RESULT_MISMATCH:
		return LAB_ATTACK_ASTRAY;
	default:
		return LAB_ATTACK_REFUSED;
	}
}
