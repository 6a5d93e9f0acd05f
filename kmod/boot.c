// SPDX-License-Identifier: GPL-2.0-only
/* What the kernel was booted with; it tells modules by /proc only. */
#include <linux/err.h>
#include <linux/fs.h>
#include <linux/gfp.h>
#include <linux/kstrtox.h>
#include <linux/string.h>

#include "xsmmu.h"

/* To be freed by free_page(); NULL if it cannot be read. */
static char *read_line(void)
{
	struct file *file = filp_open("/proc/cmdline", O_RDONLY, 0);
	ssize_t bytes = -ENOMEM;
	char *line = NULL;
	loff_t at = 0;

	if (IS_ERR(file))
		return NULL;
	line = (char *)get_zeroed_page(GFP_KERNEL);
	if (line)
		bytes = kernel_read(file, line, PAGE_SIZE - 1, &at);
	filp_close(file, NULL);
	if (bytes > 0)
		return line;
	free_page((unsigned long)line);
	return NULL;
}

/*
 * Call @take with each of the values, which commas part, of @option, which ends with
 * "=". False: the command line cannot be read.
 */
static bool for_each_value(const char *option, bool *found,
			   void (*take)(const char *value, bool *found))
{
	char *line = read_line();
	bool is_read = line;
	char *word, *rest = line;

	while (line && (word = strsep(&rest, " \n"))) {
		char *value, *values = word + strlen(option);

		if (strncmp(word, option, strlen(option)))
			continue;
		while ((value = strsep(&values, ",")))
			take(value, found);
	}
	free_page((unsigned long)line);
	return is_read;
}

static void take_strict(const char *value, bool *strict)
{
	if (kstrtobool(value, strict))
		*strict = true;
}

static void take_intel_strict(const char *value, bool *strict)
{
	if (!strcmp(value, "strict"))
		*strict = true;
}

bool xs_boot_is_strict(void)
{
	bool strict = IS_ENABLED(CONFIG_IOMMU_DEFAULT_DMA_STRICT);

	return !for_each_value("iommu.strict=", &strict, take_strict) ||
	       !for_each_value("intel_iommu=", &strict, take_intel_strict) ||
	       strict;
}

static void take_scalable(const char *value, bool *scalable)
{
	if (!strcmp(value, "sm_on"))
		*scalable = true;
	else if (!strcmp(value, "sm_off"))
		*scalable = false;
}

bool xs_boot_is_scalable(void)
{
	bool scalable =
		IS_ENABLED(CONFIG_INTEL_IOMMU_SCALABLE_MODE_DEFAULT_ON);

	return !for_each_value("intel_iommu=", &scalable, take_scalable) ||
	       scalable;
}
