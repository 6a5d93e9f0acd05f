// SPDX-License-Identifier: GPL-2.0-only
/* Parameters of a run; see params.h. */
#include <linux/device.h>
#include <linux/kernel.h>
#include <linux/string.h>

#include "params.h"

static int params_find(const struct lab_param *params, unsigned int count, const char *key)
{
	unsigned int i;

	for (i = 0; i < count; i++)
		if (!strcmp(params[i].key, key))
			return i;
	return -ENOENT;
}

static int params_set_word(struct device *dev, const char *workload, const struct lab_param *param,
			   const char *text)
{
	char known[96];
	u32 i, length = 0;

	for (i = 0; i <= param->last; i++) {
		if (!strcmp(param->words[i], text)) {
			*param->value = i;
			return 0;
		}
		length += scnprintf(known + length, sizeof(known) - length, " %s", param->words[i]);
	}
	dev_err(dev, "%s: %s=%s is unknown, expected one of%s\n", workload, param->key, text,
		known);
	return -EINVAL;
}

static int params_set(struct device *dev, const char *workload, const struct lab_param *param,
		      const char *text)
{
	unsigned int value;
	int ret;

	if (param->words)
		return params_set_word(dev, workload, param, text);
	ret = kstrtouint(text, 10, &value);
	if (ret == -EINVAL) {
		dev_err(dev, "%s: %s=%s is not a decimal number\n", workload, param->key, text);
		return ret;
	}
	if (ret || value < param->min || value > param->last) {
		dev_err(dev, "%s: %s=%s is out of range, expected %u to %u\n", workload, param->key, text,
			param->min, param->last);
		return -ERANGE;
	}
	*param->value = value;
	return 0;
}

int lab_params_parse(struct device *dev, const char *workload, char *text,
		     const struct lab_param *params, unsigned int count)
{
	unsigned long seen = 0;
	char *pair, *key;
	int i, ret;

	while ((pair = strsep(&text, " \t\n"))) {
		if (!*pair)
			continue;
		key = strsep(&pair, "=");
		i = params_find(params, count, key);
		if (i < 0) {
			dev_err(dev, "%s: unknown parameter %s\n", workload, key);
			return -EINVAL;
		}
		if (!pair || test_and_set_bit(i, &seen)) {
			dev_err(dev, "%s: %s is given %s\n", workload, key,
				pair ? "twice" : "no value");
			return -EINVAL;
		}
		ret = params_set(dev, workload, &params[i], pair);
		if (ret)
			return ret;
	}
	return 0;
}
