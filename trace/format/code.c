// SPDX-License-Identifier: GPL-2.0-only
/*
 * The coding of a block's events: for now fields of fixed size, which zstd packs.
 */
#include <stdlib.h>
#include <string.h>

#include "format.h"

struct trace_coder {
	int unused;
};

struct trace_coder *trace_coder_new(void)
{
	return calloc(1, sizeof(struct trace_coder));
}

void trace_coder_free(struct trace_coder *coder)
{
	free(coder);
}

bool trace_encode(struct trace_coder *coder, const struct trace_event *events, uint32_t count,
		  struct trace_bytes *plain)
{
	size_t bytes = count * sizeof(*events);

	(void)coder;
	if (!trace_bytes_room(plain, bytes))
		return false;
	memcpy(plain->at, events, bytes);
	plain->count = bytes;
	return true;
}

bool trace_decode(struct trace_coder *coder, const uint8_t *plain, size_t bytes,
		  struct trace_event *events, uint32_t count)
{
	(void)coder;
	if (bytes != count * sizeof(*events))
		return false;
	memcpy(events, plain, bytes);
	return true;
}
