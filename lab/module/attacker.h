/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * The attacker: a device that writes to an IOVA when told to, and says whether the write went
 * through.
 *
 * This is QEMU's iommu-testdev. A write of 4 bytes is done synchronously inside the MMIO read that
 * fires it, through the IOMMU as any device's DMA; the device then reads the target back by
 * physical address. A refused write raises a fault at the IOMMU, as it should: the kernel handles
 * it (rate-limited log lines) while we go on.
 */
#ifndef XSMMU_LAB_ATTACKER_H
#define XSMMU_LAB_ATTACKER_H

#include <linux/mm_types.h>
#include <linux/pci.h>
#include <linux/types.h>

#define LAB_ATTACKER_VENDOR 0x1b36
#define LAB_ATTACKER_DEVICE 0x0005

struct lab_attacker {
	void __iomem *registers;
	u32 *target;	/* the word that the write should change */
};

enum lab_attack {
	LAB_ATTACK_REFUSED,	/* the IOMMU let nothing through */
	LAB_ATTACK_LANDED,	/* the word in the target page was overwritten */
	LAB_ATTACK_ASTRAY,	/* the write went through, but not to the target */
};

int lab_attacker_create(struct lab_attacker *attacker, struct pci_dev *pdev);

/**
 * lab_attacker_aim() - choose where to write
 * @attacker: the device
 * @iova: what the device is told, 4 bytes are written there
 * @target: the page where that should land, owned by the caller as long as attacks go on, so that
 *	a stale translation to it does no harm
 */
void lab_attacker_aim(struct lab_attacker *attacker, dma_addr_t iova, struct page *target);

/**
 * lab_attacker_fire() - write once to where lab_attacker_aim() said
 * @attacker: the device
 *
 * The target word is cleared before, so an earlier hit is never counted again. Context: any; three
 * MMIO accesses. Return: what came of it.
 */
enum lab_attack lab_attacker_fire(struct lab_attacker *attacker);

#endif
