/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * Parameters of a run: `key=value` pairs, each at most once, in any order. A value is a decimal
 * number, or one of a few words. A workload describes its keys in a table; whatever is not in the
 * table is refused, never ignored.
 */
#ifndef XSMMU_LAB_PARAMS_H
#define XSMMU_LAB_PARAMS_H

#include <linux/types.h>

struct device;

struct lab_param {
	const char *key;
	u32 *value;	/* holds the default before, and the choice after parsing */
	u32 min, last;	/* inclusive bounds */
	const char *const *words;	/* NULL, or what to write for 0 to @last */
};

/**
 * lab_params_parse() - read the parameters of a run
 * @dev: for log lines
 * @workload: for log lines
 * @text: overwritten
 * @params: the table of all keys, at most 32
 * @count: of @params
 *
 * Return: 0; -EINVAL for an unknown or repeated key, an unknown word or something that is not a
 * number; -ERANGE for a value out of bounds. Each error leaves one log line.
 */
int lab_params_parse(struct device *dev, const char *workload, char *text,
		     const struct lab_param *params, unsigned int count);

#endif
