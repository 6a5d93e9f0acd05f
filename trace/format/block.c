// SPDX-License-Identifier: GPL-2.0-only
/*
 * Heads of blocks, memory that grows, and errors.
 *
 * A head is trusted only with its own checksum, so the length in a damaged head moves no reader.
 */
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <zlib.h>

#include "format.h"

#define CHECKED_BYTES	(TRACE_HEAD_BYTES - 4u)

/* Little endian; returns the place behind. */
uint8_t *trace_put(uint8_t *to, uint32_t value, unsigned int bytes)
{
	for (unsigned int i = 0; i < bytes; i++)
		*to++ = (uint8_t)(value >> (8 * i));
	return to;
}

uint32_t trace_get(const uint8_t *from, unsigned int bytes)
{
	uint32_t value = 0;

	for (unsigned int i = 0; i < bytes; i++)
		value |= (uint32_t)from[i] << (8 * i);
	return value;
}

uint32_t trace_crc(const uint8_t *at, size_t count)
{
	return (uint32_t)crc32(crc32(0, NULL, 0), at, (uInt)count);
}

void trace_head_put(uint8_t *to, const struct trace_head *head)
{
	uint8_t *at = to + TRACE_MAGIC_BYTES;

	memcpy(to, TRACE_MAGIC, TRACE_MAGIC_BYTES);
	at = trace_put(at, head->version, 2);
	at = trace_put(at, head->type, 2);
	at = trace_put(at, head->sequence, 4);
	at = trace_put(at, head->events, 4);
	at = trace_put(at, head->plain, 4);
	at = trace_put(at, head->packed, 4);
	at = trace_put(at, head->crc, 4);
	trace_put(at, trace_crc(to, CHECKED_BYTES), 4);
}

/* Returns false if the bytes are not the head of a block of this version. */
bool trace_head_get(const uint8_t *from, struct trace_head *head)
{
	head->version = (uint16_t)trace_get(from + 8, 2);
	head->type = (uint16_t)trace_get(from + 10, 2);
	head->sequence = trace_get(from + 12, 4);
	head->events = trace_get(from + 16, 4);
	head->plain = trace_get(from + 20, 4);
	head->packed = trace_get(from + 24, 4);
	head->crc = trace_get(from + 28, 4);
	return !memcmp(from, TRACE_MAGIC, TRACE_MAGIC_BYTES) && head->version == TRACE_VERSION &&
	       trace_get(from + CHECKED_BYTES, 4) == trace_crc(from, CHECKED_BYTES) &&
	       head->events <= TRACE_BLOCK_EVENTS && head->plain <= TRACE_PLAIN_MAX &&
	       head->packed <= TRACE_PACKED_MAX;
}

/* Makes room for so many bytes in all; returns false without memory. */
bool trace_bytes_room(struct trace_bytes *bytes, size_t room)
{
	uint8_t *at;

	if (room <= bytes->room)
		return true;
	room += room / 4;
	at = realloc(bytes->at, room);
	if (!at)
		return false;
	bytes->at = at;
	bytes->room = room;
	return true;
}

void trace_error_set(struct trace_error *error, const char *format, ...)
{
	va_list words;

	va_start(words, format);
	vsnprintf(error->text, sizeof(error->text), format, words);
	va_end(words);
	/* A name of a file may have a line break. */
	for (char *c = error->text; *c; c++)
		if ((unsigned char)*c < ' ')
			*c = '?';
}
