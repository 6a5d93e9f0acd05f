/* SPDX-License-Identifier: GPL-2.0-only */
/* The module parameter rules: which devices get which policy before their driver binds. */
#ifndef XSMMU_POLICY_RULES_H
#define XSMMU_POLICY_RULES_H

#include <linux/pci.h>

struct xs_request;

/**
 * xs_rules_start - read the rules
 * @text: text of the parameter rules
 *
 * Context: module load, after xs_floor_start(); sleeps.
 * Return: 0 or a negative errno. A log line names the invalid word.
 */
int xs_rules_start(const char *text);

/**
 * xs_rules_stop - free the rules
 *
 * Context: module load or unload, when no group exists.
 */
void xs_rules_stop(void);

/**
 * xs_rules_find - find the rule for a device
 * @pdev: the device
 * @driver: name of the driver that is about to probe, or NULL
 *
 * Context: xs_mutex.
 * Return: the request of the first rule that matches. NULL if none does, or if @driver is NULL and
 * a rule before the first match depends on the driver.
 */
const struct xs_request *xs_rules_find(struct pci_dev *pdev, const char *driver);

#endif
