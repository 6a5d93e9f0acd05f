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
#define REG_PHYSICAL_LOW 0x1c	/* physical address at which the device reads its write back */
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
	writel(ATTACK_BYTES, attacker->registers + REG_LENGTH);
	writel(ATTRIBUTES_NON_SECURE, attacker->registers + REG_ATTRIBUTES);
	/* lab_attacker_aim() relies on zeroed registers; an earlier driver may have left others. */
	writel(0, attacker->registers + REG_IOVA_LOW);
	writel(0, attacker->registers + REG_IOVA_HIGH);
	writel(0, attacker->registers + REG_PHYSICAL_LOW);
	writel(0, attacker->registers + REG_PHYSICAL_HIGH);
	return 0;
}

/* Writes only changed halves, because a register access costs some hundred instructions. */
static void address_write(struct lab_attacker *attacker, u64 *known, u64 address, u32 low, u32 high)
{
	if (lower_32_bits(*known ^ address))
		writel(lower_32_bits(address), attacker->registers + low);
	if (upper_32_bits(*known ^ address))
		writel(upper_32_bits(address), attacker->registers + high);
	*known = address;
}

void lab_attacker_aim(struct lab_attacker *attacker, dma_addr_t iova, phys_addr_t target)
{
	attacker->target = phys_to_virt(target);
	address_write(attacker, &attacker->iova, iova, REG_IOVA_LOW, REG_IOVA_HIGH);
	address_write(attacker, &attacker->physical, target, REG_PHYSICAL_LOW, REG_PHYSICAL_HIGH);
}

/* Have the device write once. Return: the device's result register. */
static u32 shoot(struct lab_attacker *attacker)
{
	writel(1, attacker->registers + REG_ARM);
	readl(attacker->registers + REG_FIRE);
	return readl(attacker->registers + REG_RESULT);
}

enum lab_attack lab_attacker_fire(struct lab_attacker *attacker, u32 content)
{
	WRITE_ONCE(*attacker->target, content);
	switch (shoot(attacker)) {
	case RESULT_LANDED:
		/* The device has compared the word by DMA; the check of the CPU's view decides. */
		return READ_ONCE(*attacker->target) == content ? LAB_ATTACK_ASTRAY
							       : LAB_ATTACK_LANDED;
	case RESULT_MISMATCH:
		return LAB_ATTACK_ASTRAY;
	default:
		return LAB_ATTACK_REFUSED;
	}
}

bool lab_attacker_passes(struct lab_attacker *attacker)
{
	u32 result = shoot(attacker);

	return result == RESULT_LANDED || result == RESULT_MISMATCH;
}

void lab_attacker_shoot(struct lab_attacker *attacker, dma_addr_t iova, phys_addr_t target,
			struct lab_tally *tally)
{
	u32 *word = phys_to_virt(target);
	u32 content = READ_ONCE(*word);
	enum lab_attack came_of_it;

	lab_attacker_aim(attacker, iova, target);
	came_of_it = lab_attacker_fire(attacker, 0);
	WRITE_ONCE(*word, content);
	tally->attempts++;
	tally->landed += came_of_it == LAB_ATTACK_LANDED;
	tally->astray += came_of_it == LAB_ATTACK_ASTRAY;
}

void lab_tally_print(struct seq_buf *result, const char *name, const struct lab_tally *tally)
{
	if (tally)
		seq_buf_printf(result, ",\"attempts%s\":%llu,\"landed%s\":%llu", name,
			       tally->attempts, name, tally->landed);
	else
		seq_buf_printf(result, ",\"attempts%s\":null,\"landed%s\":null", name, name);
}
