// SPDX-License-Identifier: GPL-2.0-only
/* See model.h. */
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>

#include "model.h"

#define STATUS_BROKEN	1

struct model model;

void model_broken(const char *format, ...)
{
	va_list words;

	fprintf(stderr, "xsmmu-model: at %llu ns: ", (unsigned long long)model.now_ns);
	va_start(words, format);
	vfprintf(stderr, format, words);
	va_end(words);
	fprintf(stderr, "\n");
	exit(STATUS_BROKEN);
}

/* splitmix64 */
u64 model_random(u64 end)
{
	u64 z = model.random += 0x9e3779b97f4a7c15ull;

	z = (z ^ z >> 30) * 0xbf58476d1ce4e5b9ull;
	z = (z ^ z >> 27) * 0x94d049bb133111ebull;
	return (z ^ z >> 31) % end;
}

void *model_new(size_t count, size_t bytes)
{
	void *memory = calloc(count ? count : 1, bytes);

	if (!memory)
		model_broken("no memory for %zu objects of %zu bytes", count, bytes);
	return memory;
}

void *model_again(void *memory, size_t bytes)
{
	memory = realloc(memory, bytes);
	if (!memory)
		model_broken("no memory for %zu bytes", bytes);
	return memory;
}
