/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * The attacker: a device that writes to an IOVA on command, and reports whether the write went
 * through.
 *
 * The device is QEMU's iommu-testdev. An MMIO read fires a write of 4 bytes, which is complete when
 * the MMIO read returns. The write passes the IOMMU like any DMA; the device then reads the target
 * back by physical address. A refused write raises a fault at the IOMMU, which the kernel handles
 * (rate-limited log lines) while the attack continues.
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
	u64 iova, physical;	/* contents of the address registers */
};

/* The word that the device writes. */
#define LAB_ATTACK_WORD 0x12345678

enum lab_attack {
	LAB_ATTACK_REFUSED,	/* the IOMMU let nothing through */
	LAB_ATTACK_LANDED,	/* the word in the target page was overwritten */
	LAB_ATTACK_ASTRAY,	/* the write went through, but not to the target */
};

/* Counts of writes by their outcome. */
struct lab_tally {
	u64 attempts, landed, astray;
};

int lab_attacker_create(struct lab_attacker *attacker, struct pci_dev *pdev);

/**
 * lab_attacker_aim() - choose the target of later writes
 * @attacker: the device
 * @iova: IOVA to which the device writes 4 bytes
 * @target: physical address of the aligned word of RAM that the write should change. The caller
 *	must make sure that a write to @target through a stale translation does no harm.
 */
void lab_attacker_aim(struct lab_attacker *attacker, dma_addr_t iova, phys_addr_t target);

/**
 * lab_attacker_fire() - write once to the target of lab_attacker_aim()
 * @attacker: the device
 * @content: written to the target word before the shot, so that a hit is detected and counted only
 *	once; must not be LAB_ATTACK_WORD
 *
 * Context: any; three MMIO accesses.
 * Return: outcome of the write.
 */
enum lab_attack lab_attacker_fire(struct lab_attacker *attacker, u32 content);

/**
 * lab_attacker_passes() - write once to the target of lab_attacker_aim(), and touch nothing else
 * @attacker: the device
 *
 * For a target that other code may use at the same time.
 *
 * Context: any; three MMIO accesses.
 * Return: true if the IOMMU let the write through, to any address.
 */
bool lab_attacker_passes(struct lab_attacker *attacker);

/**
 * lab_attacker_shoot() - write once to a word, and restore the word
 * @attacker: the device
 * @iova: see lab_attacker_aim()
 * @target: see lab_attacker_aim()
 * @tally: counts the outcome
 *
 * Context: no other code may read the word during the call; three to seven MMIO accesses.
 */
void lab_attacker_shoot(struct lab_attacker *attacker, dma_addr_t iova, phys_addr_t target,
			struct lab_tally *tally);

/**
 * lab_tally_print() - print a tally as two members of a JSON object, each after a comma
 * @result: buffer to print to
 * @name: suffix of the members' names
 * @tally: attempts and hits to print; if NULL, the tally does not apply and the members are null
 */
void lab_tally_print(struct seq_buf *result, const char *name, const struct lab_tally *tally);

#endif
