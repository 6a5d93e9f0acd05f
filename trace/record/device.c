// SPDX-License-Identifier: GPL-2.0-only
#include <limits.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "device.h"
#include "json.h"

#define FOLDER "/sys/bus/pci/devices"

/* Reads a word of a file of the device; "" if there is none. */
static void word_of(const char *name, const char *file, char *word, size_t room)
{
	char path[PATH_MAX];
	FILE *from;

	word[0] = 0;
	snprintf(path, sizeof(path), FOLDER "/%s/%s", name, file);
	from = fopen(path, "r");
	if (!from)
		return;
	if (!fgets(word, room, from))
		word[0] = 0;
	word[strcspn(word, "\n")] = 0;
	fclose(from);
}

/* The last part of a link of the device; "" if there is none. */
static void target_of(const char *name, const char *link, char *target, size_t room)
{
	char path[PATH_MAX], found[PATH_MAX];
	ssize_t bytes;
	char *last;

	target[0] = 0;
	snprintf(path, sizeof(path), FOLDER "/%s/%s", name, link);
	bytes = readlink(path, found, sizeof(found) - 1);
	if (bytes < 0)
		return;
	found[bytes] = 0;
	last = strrchr(found, '/');
	snprintf(target, room, "%.63s", last ? last + 1 : found);
}

/* The chosen policy, which the file shows in brackets. */
static void policy_of(struct device *device)
{
	char line[256], *begin, *end;

	word_of(device->name, "xsmmu/policy", line, sizeof(line));
	begin = strchr(line, '[');
	end = begin ? strchr(begin, ']') : NULL;
	if (!end)
		return;
	*end = 0;
	if (strcmp(begin + 1, "none"))
		snprintf(device->policy, sizeof(device->policy), "%s", begin + 1);
}

static bool is_physical(const struct device *device)
{
	const char *ending = strrchr(device->policy, '-');

	if (device->policy[0])
		return ending && !strcmp(ending, "-identity");
	return strncmp(device->type, "DMA", strlen("DMA"));
}

bool device_read(struct device *device, const char *name, struct trace_error *error)
{
	char group[16];

	memset(device, 0, sizeof(*device));
	if (strlen(name) < sizeof(device->name))
		snprintf(device->name, sizeof(device->name), "%s", name);
	if (!strchr(device->name, ':') || strchr(name, '/') || !device_exists(device)) {
		snprintf(error->text, sizeof(error->text),
			 "there is no PCI device %.40s: lspci -D lists them", name);
		return false;
	}
	word_of(name, "vendor", device->vendor, sizeof(device->vendor));
	word_of(name, "device", device->product, sizeof(device->product));
	word_of(name, "class", device->class, sizeof(device->class));
	word_of(name, "iommu_group/type", device->type, sizeof(device->type));
	if (!device->type[0])
		snprintf(device->type, sizeof(device->type), "none");
	target_of(name, "driver", device->driver, sizeof(device->driver));
	target_of(name, "iommu_group", group, sizeof(group));
	device->group = group[0] ? atoi(group) : -1;
	policy_of(device);
	device->is_physical = is_physical(device);
	return true;
}

bool device_exists(const struct device *device)
{
	char path[PATH_MAX];

	snprintf(path, sizeof(path), FOLDER "/%s", device->name);
	return !access(path, F_OK);
}

void device_counts(const struct device *device, struct device_counts *counts)
{
	char mapped[32], unmapped[32];

	word_of(device->name, "xsmmu/stats/mapped_pages", mapped, sizeof(mapped));
	word_of(device->name, "xsmmu/stats/unmapped_pages", unmapped, sizeof(unmapped));
	counts->known = device->policy[0] && mapped[0] && unmapped[0];
	counts->mapped = strtoull(mapped, NULL, 10);
	counts->unmapped = strtoull(unmapped, NULL, 10);
}

void device_print(const struct device *device, FILE *to)
{
	const struct {
		const char *name;
		const char *value;
	} texts[] = {
		{ "name", device->name },	{ "driver", device->driver },
		{ "vendor", device->vendor },	{ "device", device->product },
		{ "class", device->class },	{ "type", device->type },
		{ "policy", device->policy },
	};

	fputc('{', to);
	for (size_t at = 0; at < sizeof(texts) / sizeof(texts[0]); at++) {
		fprintf(to, "\"%s\":", texts[at].name);
		json_string(to, texts[at].value);
		fputc(',', to);
	}
	fprintf(to, "\"group\":%d,\"physical\":%s}", device->group,
		device->is_physical ? "true" : "false");
}
