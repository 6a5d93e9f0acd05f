// SPDX-License-Identifier: GPL-2.0-only
/*
 * Finds out whether the administrator made the kernel's own path strict. The IOMMU core does
 * not export its answer, so the module reads the command line again, by the kernel's rules:
 * next_arg(), parse_args(), iommu_dma_setup(), intel_iommu_setup() and
 * parse_amd_iommu_options(), which are alike in Linux 6.1, 6.12, 7.2 and 7.3.
 */
#include <linux/ctype.h>
#include <linux/err.h>
#include <linux/fs.h>
#include <linux/init.h>
#include <linux/kstrtox.h>
#include <linux/sizes.h>
#include <linux/slab.h>
#include <linux/string.h>

#include "floor.h"

/* A command line has up to 2 KiB, and a boot configuration adds up to 32 KiB. */
#define LINE_BYTES	SZ_64K

bool xs_boot_is_strict __ro_after_init =
	IS_ENABLED(CONFIG_IOMMU_DEFAULT_DMA_STRICT);

/*
 * intel_iommu= or amd_iommu= selects strict. The kernel reads these last, so nothing reverts
 * them.
 */
static bool driver_is_strict __initdata;

/*
 * Returns the command line, to be freed by kvfree(); NULL if the line cannot be read
 * completely.
 */
static char *__init read_line(void)
{
	struct file *file = filp_open("/proc/cmdline", O_RDONLY, 0);
	char *line = NULL;
	ssize_t bytes = 0;
	loff_t at = 0;

	if (IS_ERR(file))
		return NULL;
	line = kvzalloc(LINE_BYTES, GFP_KERNEL);
	do {
		if (line)
			bytes = kernel_read(file, line + at, LINE_BYTES - at,
					    &at);
	} while (line && bytes > 0 && at < LINE_BYTES);
	filp_close(file, NULL);
	if (!bytes && at)
		return line;
	kvfree(line);
	return NULL;
}

/*
 * Takes the first word of a line that begins with a word: its name, and its value without
 * quotes, or NULL if the word has no equals sign. Returns the rest of the line.
 */
static char *__init take_word(char *line, char **name, char **value)
{
	bool whole = *line == '"', quoted = whole;
	char *equals = NULL, *at, *last;

	*name = at = line + whole;
	for (; *at && (quoted || !isspace(*at)); at++) {
		if (*at == '"')
			quoted = !quoted;
		/* An equals sign that comes first belongs to the name. */
		if (*at == '=' && !equals && at > *name)
			equals = at;
	}
	last = at - 1;
	line = *at ? at + 1 : at;
	*at = '\0';
	*value = NULL;
	if (equals) {
		*equals = '\0';
		*value = equals + 1;
		if (**value == '"') {
			++*value;
			whole = true;
		}
	}
	if (whole && last >= *name && *last == '"')
		*last = '\0';
	return skip_spaces(line);
}

/* Checks whether a part of a comma-separated list begins with @begin. */
static bool __init has_part(const char *list, const char *begin)
{
	while (list) {
		if (strstarts(list, begin))
			return true;
		list = strchr(list, ',');
		if (list)
			list++;
	}
	return false;
}

static void __init take(char *name, const char *value)
{
	strreplace(name, '-', '_');
	/* kstrtobool() leaves the variable as it is if the value is invalid. */
	if (!strcmp(name, "iommu.strict") && value)
		(void)!kstrtobool(value, &xs_boot_is_strict);
	if (IS_ENABLED(CONFIG_INTEL_IOMMU) && !strcmp(name, "intel_iommu"))
		driver_is_strict |= has_part(value, "strict");
	if (IS_ENABLED(CONFIG_AMD_IOMMU) && !strcmp(name, "amd_iommu"))
		driver_is_strict |= has_part(value, "fullflush");
}

static void __init read_words(char *line)
{
	char *name, *value;

	line = skip_spaces(line);
	while (*line) {
		line = take_word(line, &name, &value);
		/* The words after "--" are for init. */
		if (!value && !strcmp(name, "--"))
			return;
		take(name, value);
	}
}

void __init xs_boot_start(void)
{
	char *line = read_line();

	if (line)
		read_words(line);
	xs_boot_is_strict |= !line || driver_is_strict;
	kvfree(line);
}
