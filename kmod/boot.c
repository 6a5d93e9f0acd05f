// SPDX-License-Identifier: GPL-2.0-only
/* What the kernel was booted with; it tells modules by /proc only. */
#include <linux/err.h>
#include <linux/fs.h>
#include <linux/gfp.h>
#include <linux/init.h>
#include <linux/kstrtox.h>
#include <linux/string.h>

#include "xsmmu.h"

bool xs_boot_is_strict __ro_after_init =
	IS_ENABLED(CONFIG_IOMMU_DEFAULT_DMA_STRICT);

/* To be freed by free_page(); NULL if it cannot be read. */
static char *__init read_line(void)
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

static bool intel_is_strict __initdata;

/* As the kernel reads them: a word counts by what it begins with. */
static void __init take(const char *option, const char *value)
{
	if (!strcmp(option, "iommu.strict")) {
		if (kstrtobool(value, &xs_boot_is_strict))
			xs_boot_is_strict = true;
	} else if (!strcmp(option, "intel_iommu")) {
		if (strstarts(value, "strict"))
			intel_is_strict = true;
	}
}

void __init xs_boot_start(void)
{
	char *line = read_line();
	char *word, *rest = line;

	if (!line)
		xs_boot_is_strict = true;
	while ((word = strsep(&rest, " \n"))) {
		char *option = strsep(&word, "=");
		const char *value;

		strreplace(option, '-', '_');
		while ((value = strsep(&word, ",")))
			take(option, value);
	}
	/* That is read last. */
	xs_boot_is_strict |= intel_is_strict;
	free_page((unsigned long)line);
}
