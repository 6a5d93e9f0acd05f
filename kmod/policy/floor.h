/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * The floor: the lowest level that may be chosen. A policy counts with its level for drivers that
 * are not batch-aware.
 */
#ifndef XSMMU_POLICY_FLOOR_H
#define XSMMU_POLICY_FLOOR_H

#include <linux/types.h>

struct xs_policy;

/*
 * The administrator made the kernel's own path strict on the kernel's command line, or the command
 * line cannot be read (boot.c). Constant after load.
 */
extern bool xs_boot_is_strict;

/**
 * xs_boot_start - read the command line of the kernel into xs_boot_is_strict
 *
 * Context: module load; sleeps.
 */
void xs_boot_start(void);

/**
 * xs_floor_start - set the floor
 * @name: text of the parameter min_level; empty for the default: strict if the kernel's own path
 *	was made strict or the kernel is locked down, else none
 *
 * Context: module load, after xs_boot_start().
 * Return: 0 or -EINVAL, with a log line.
 */
int xs_floor_start(const char *name);

/* Checks that the level of @policy is not below the floor. Context: any, after xs_floor_start(). */
bool xs_floor_allows(const struct xs_policy *policy);

/* Returns the name of the floor. Context: any, after xs_floor_start(). */
const char *xs_floor_name(void);

#endif
