/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * Parameters of a run: `key=value` pairs, each key at most once, in any order. A value is a
 * decimal number or a word from a list. A workload describes its keys in a table; keys that
 * are not in the table are refused.
 */
#ifndef XSMMU_LAB_PARAMS_H
#define XSMMU_LAB_PARAMS_H

#include <linux/types.h>

struct device;

struct lab_param {
	const char *key;
	u32 *value;	/* default before parsing, choice after */
	u32 min, last;	/* inclusive bounds */
	const char *const *words;	/* NULL, or the words for 0 to @last */
};

/**
 * lab_params_parse() - read the parameters of a run
 * @dev: for log lines
 * @workload: for log lines
 * @text: overwritten
 * @params: the table of all keys, at most 32
 * @count: number of @params
 *
 * Return: 0; -EINVAL for an unknown or repeated key, a missing value, an unknown word or a value
 * that is not a number; -ERANGE for a value out of bounds. Each error leaves one log line.
 */
int lab_params_parse(struct device *dev, const char *workload, char *text,
		     const struct lab_param *params, unsigned int count);

#endif
