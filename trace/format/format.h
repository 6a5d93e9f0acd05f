/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * Inside of the file format: blocks, and the coding of a block's events. docs/trace.md is the
 * specification; the numbers here are its numbers.
 */
#ifndef TRACE_FORMAT_H
#define TRACE_FORMAT_H

#include <stddef.h>

#include "trace.h"

#define TRACE_MAGIC		"\x89XSMMU\r\n"
#define TRACE_MAGIC_BYTES	8u
#define TRACE_VERSION		1u
#define TRACE_HEAD_BYTES	36u
#define TRACE_BLOCK_EVENTS	65536u
/* Limits of a block: no reader needs more memory than these and the events take. */
#define TRACE_PLAIN_MAX		(8u << 20)
#define TRACE_PACKED_MAX	(TRACE_PLAIN_MAX + (1u << 17))
#define TRACE_FLAGS		0x3fu

enum trace_block_type {
	TRACE_BLOCK_HEADER = 1,
	TRACE_BLOCK_EVENTS_TYPE,
	TRACE_BLOCK_SUMMARY,
};

/**
 * struct trace_head - the head of a block
 * @version: version of the format
 * @type: enum trace_block_type
 * @sequence: number of blocks before this one
 * @events: number of events
 * @plain: bytes of the contents
 * @packed: bytes of the zstd frame that holds the contents
 * @crc: CRC-32 of that frame
 */
struct trace_head {
	uint16_t version;
	uint16_t type;
	uint32_t sequence;
	uint32_t events;
	uint32_t plain;
	uint32_t packed;
	uint32_t crc;
};

/**
 * struct trace_bytes - memory that grows
 * @at: the bytes
 * @count: number of bytes in use
 * @room: number of bytes allocated
 */
struct trace_bytes {
	uint8_t *at;
	size_t count;
	size_t room;
};

uint8_t *trace_put(uint8_t *to, uint32_t value, unsigned int bytes);
uint32_t trace_get(const uint8_t *from, unsigned int bytes);
void trace_head_put(uint8_t *to, const struct trace_head *head);
bool trace_head_get(const uint8_t *from, struct trace_head *head);
bool trace_bytes_room(struct trace_bytes *bytes, size_t room);
uint32_t trace_crc(const uint8_t *at, size_t count);
void trace_error_set(struct trace_error *error, const char *format, ...)
	__attribute__((format(printf, 2, 3)));

struct trace_coder;

struct trace_coder *trace_coder_new(void);
void trace_coder_free(struct trace_coder *coder);
bool trace_encode(struct trace_coder *coder, struct trace_event *events, uint32_t count,
		  struct trace_bytes *plain);
bool trace_decode(struct trace_coder *coder, uint8_t *plain, size_t bytes,
		  struct trace_event *events, uint32_t count);

#endif
