// SPDX-License-Identifier: GPL-2.0-only
/*
 * On x86-64 the variable vmemmap_base. On arm64 a constant of the build, which the kernel shows in
 * the notes of /proc/kcore for crash tools, less the begin of memory.
 */
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "place.h"

#define NOTES_BYTES (128u << 10)

#if defined(__x86_64__)

const char place_unknown[] =
	"/proc/kallsyms does not show the address of vmemmap_base; record with kernel.kptr_restrict at most 1";

uint64_t place_symbol(void)
{
	FILE *file = fopen("/proc/kallsyms", "r");
	char line[256], name[128];
	uint64_t address, found = 0;

	while (file && !found && fgets(line, sizeof(line), file)) {
		if (sscanf(line, "%" SCNx64 " %*c %127s", &address, name) == 2 &&
		    !strcmp(name, "vmemmap_base"))
			found = address;
	}
	if (file)
		fclose(file);
	return found;
}

uint64_t place_vmemmap(uint64_t value)
{
	return value;
}

#elif defined(__aarch64__)

#define PAGE_STRUCT_BYTES 64u

const char place_unknown[] = "/proc/kcore does not show VMEMMAP_START; record as root";

static uint64_t number(const char *notes, size_t bytes, const char *name)
{
	const char *found = memmem(notes, bytes, name, strlen(name));

	return found ? strtoull(found + strlen(name), NULL, 16) : 0;
}

uint64_t place_symbol(void)
{
	return 0;
}

uint64_t place_vmemmap(uint64_t value)
{
	FILE *file = fopen("/proc/kcore", "r");
	char *notes = calloc(1, NOTES_BYTES + 1);
	uint64_t begin = 0, memory = 0;

	(void)value;
	if (file && notes && fread(notes, 1, NOTES_BYTES, file)) {
		begin = number(notes, NOTES_BYTES, "NUMBER(VMEMMAP_START)=");
		memory = number(notes, NOTES_BYTES, "NUMBER(PHYS_OFFSET)=");
	}
	if (file)
		fclose(file);
	free(notes);
	return begin ? begin - memory / sysconf(_SC_PAGESIZE) * PAGE_STRUCT_BYTES : 0;
}

#else

const char place_unknown[] = "the recorder does not know where this architecture has struct page";

uint64_t place_symbol(void)
{
	return 0;
}

uint64_t place_vmemmap(uint64_t value)
{
	(void)value;
	return 0;
}

#endif
