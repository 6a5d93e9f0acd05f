// SPDX-License-Identifier: GPL-2.0-only
#include <inttypes.h>

#include "check.h"

/**
 * struct counted - others' counts
 * @by: whose
 * @note: what the counts contain beside the recorded calls
 * @mapped: pages
 * @unmapped: pages
 * @maps: calls of iommu:map, of which a list or a coherent buffer may have several; if @has_calls
 * @unmaps: calls that unmap, if @has_calls
 * @has_calls: see @unmaps
 */
struct counted {
	const char *by;
	const char *note;
	uint64_t mapped;
	uint64_t unmapped;
	uint64_t maps;
	uint64_t unmaps;
	bool has_calls;
};

void check_begin(struct check *check)
{
	for (unsigned int at = 0; at < check->count; at++)
		device_counts(&check->devices[at], &check->begin[at]);
}

/* A group's counts are those of all its devices, so each group is counted once. */
static bool is_counted(const struct check *check, unsigned int device)
{
	for (unsigned int other = 0; other < device; other++) {
		if (check->devices[other].group == check->devices[device].group)
			return true;
	}
	return false;
}

static bool by_module(const struct check *check, struct counted *counted)
{
	for (unsigned int at = 0; at < check->count; at++) {
		struct device_counts now;

		device_counts(&check->devices[at], &now);
		if (!now.known || !check->begin[at].known)
			return false;
		if (is_counted(check, at))
			continue;
		counted->mapped += now.mapped - check->begin[at].mapped;
		counted->unmapped += now.unmapped - check->begin[at].unmapped;
	}
	counted->by = "module";
	counted->note = "the module counts whole IOMMU groups, and calls at begin and end";
	return true;
}

static void by_tracepoints(const struct check *check, struct counted *counted)
{
	for (unsigned int cpu = 0; cpu < programs_cpus(check->programs); cpu++) {
		const struct raw_cpu *counts = programs_cpu(check->programs, cpu);

		counted->mapped += counts->map_bytes >> check->page_shift;
		counted->unmapped += counts->unmap_bytes >> check->page_shift;
		counted->maps += counts->maps;
		counted->unmaps += counts->unmaps;
	}
	counted->by = "iommu:map and iommu:unmap";
	counted->note = "the tracepoints count all devices, and name none";
	counted->has_calls = true;
}

static void print_pair(const char *name, uint64_t recorded, uint64_t counted, FILE *to)
{
	fprintf(to, "\"%s\":[%" PRIu64 ",%" PRIu64 "],", name, recorded, counted);
}

void check_print(const struct check *check, const struct tally *tally, FILE *to)
{
	struct counted counted = { 0 };
	bool equal;

	if (check->programs) {
		by_tracepoints(check, &counted);
	} else if (!by_module(check, &counted)) {
		fputs("{\"by\":\"none\",\"note\":\"no device is attached to the module; --check counts iommu:map and iommu:unmap\"}",
		      to);
		return;
	}
	fprintf(to, "{\"by\":\"%s\",\"note\":\"%s\",", counted.by, counted.note);
	print_pair("mapped_pages", tally->mapped_pages, counted.mapped, to);
	print_pair("unmapped_pages", tally->unmapped_pages, counted.unmapped, to);
	equal = tally->mapped_pages == counted.mapped && tally->unmapped_pages == counted.unmapped;
	if (counted.has_calls) {
		fprintf(to, "\"iommu_maps\":%" PRIu64 ",", counted.maps);
		print_pair("unmaps", tally->unmapped_calls, counted.unmaps, to);
		equal &= tally->unmapped_calls == counted.unmaps;
	}
	fprintf(to, "\"equal\":%s}", equal ? "true" : "false");
}
