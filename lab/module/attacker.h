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
#include <linux/seq_buf.h>
#include <linux/types.h>

#define LAB_ATTACKER_VENDOR 0x1b36
#define LAB_ATTACKER_DEVICE 0x0005

struct lab_attacker {
	void __iomem *registers;
	u32 *target;	/* the word that the write should change */
	u64 iova, physical;	/* what the address registers hold */
};

/* What it writes. */
#define LAB_ATTACK_WORD 0x12345678

enum lab_attack {
	LAB_ATTACK_REFUSED,	/* the IOMMU let nothing through */
	LAB_ATTACK_LANDED,	/* the word in the target page was overwritten */
	LAB_ATTACK_ASTRAY,	/* the write went through, but not to the target */
};

/* What came of some writes. */
struct lab_tally {
	u64 attempts, landed, astray;
};

int lab_attacker_create(struct lab_attacker *attacker, struct pci_dev *pdev);

/**
 * lab_attacker_aim() - choose where to write
 * @attacker: the device
 * @iova: what the device is told, 4 bytes are written there
 * @target: the aligned word of RAM where that should land. The caller sees to it that a stale
 *	translation to it does no harm
 */
void lab_attacker_aim(struct lab_attacker *attacker, dma_addr_t iova, phys_addr_t target);

/**
 * lab_attacker_fire() - write once to where lab_attacker_aim() said
 * @attacker: the device
 * @content: what the target word is set to before, so that a hit is seen and none is counted
 *	twice; not LAB_ATTACK_WORD
 *
 * Context: any; three MMIO accesses. Return: what came of it.
 */
enum lab_attack lab_attacker_fire(struct lab_attacker *attacker, u32 content);

/**
 * lab_attacker_passes() - write once to where lab_attacker_aim() said, and touch nothing else
 * @attacker: the device
 *
 * For a target that others use meanwhile. Context: any; three MMIO accesses. Return: true if the
 * IOMMU let the write through, wherever it went.
 */
bool lab_attacker_passes(struct lab_attacker *attacker);

/**
 * lab_attacker_shoot() - write once to a word, and put it back as it was
 * @attacker: the device
 * @iova: see lab_attacker_aim()
 * @target: see lab_attacker_aim()
 * @tally: what came of it is counted there
 *
 * Context: nobody else may look at the word meanwhile; three to seven MMIO accesses.
 */
void lab_attacker_shoot(struct lab_attacker *attacker, dma_addr_t iova, phys_addr_t target,
			struct lab_tally *tally);

/**
 * lab_tally_print() - write a tally as two members of a JSON object, each after a comma
 * @result: where to
 * @name: what their names end with
 * @tally: its attempts and what landed; or NULL where it does not apply: null then, never 0
 */
void lab_tally_print(struct seq_buf *result, const char *name, const struct lab_tally *tally);

#endif
