// SPDX-License-Identifier: GPL-2.0-only
/*
 * The reader of recordings, for files and pipes.
 *
 * A block is decoded as a whole before its first event is given out, so a wrong block gives no
 * event. Work and memory are bounded by the file's size and the limits of a block: a head with a
 * right checksum is believed, and skips its contents whether or not these are right.
 */
#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>
#include <zstd.h>

#include "format.h"

#define READ_BYTES	(256u << 10)

/**
 * struct trace_reader - a file that is read
 * @path: its name
 * @fd: the file
 * @place: place in the file of the first byte in @window
 * @window: bytes that were read from the file; the first @taken of them were used
 * @sequence: number of the next block
 * @wrong: blocks with wrong contents since the last right one
 * @lost: a block was left out, and no event stands for it yet
 * @last_ns: time of the last event
 * @events: events of a block
 * @room: number of events that have memory
 * @count: number of events
 * @next: the next to give out
 * @ended: the summary or the end of the file was reached
 */
struct trace_reader {
	char *path;
	int fd;
	uint64_t place;
	struct trace_bytes window;
	size_t taken;
	uint32_t sequence;
	uint32_t wrong;
	bool lost;
	uint64_t last_ns;
	struct trace_event *events;
	uint32_t room;
	uint32_t count;
	uint32_t next;
	bool ended;
	char *header;
	char *summary;
	struct trace_damage damage;
	struct trace_coder *coder;
	ZSTD_DCtx *zstd;
	struct trace_bytes plain;
};

/* Reads on until so many unused bytes are there; returns their number, less at the file's end. */
static size_t fill(struct trace_reader *reader, size_t wanted)
{
	struct trace_bytes *window = &reader->window;

	if (window->count - reader->taken >= wanted)
		return window->count - reader->taken;
	if (reader->taken) {
		memmove(window->at, window->at + reader->taken, window->count - reader->taken);
		window->count -= reader->taken;
		reader->place += reader->taken;
		reader->taken = 0;
	}
	while (window->count < wanted) {
		ssize_t got;

		if (!trace_bytes_room(window, window->count + READ_BYTES))
			break;
		got = read(reader->fd, window->at + window->count, READ_BYTES);
		if (got < 0 && errno == EINTR)
			continue;
		if (got <= 0)
			break;
		window->count += (size_t)got;
	}
	return window->count;
}

static const uint8_t *unused(const struct trace_reader *reader)
{
	return reader->window.at + reader->taken;
}

/* The contents of the block at the begin of the unused bytes, if these are whole and right. */
static bool unpack(struct trace_reader *reader, const struct trace_head *head)
{
	size_t size = (size_t)TRACE_HEAD_BYTES + head->packed;
	const uint8_t *packed;

	if (fill(reader, size) < size || !trace_bytes_room(&reader->plain, head->plain + 1u))
		return false;
	packed = unused(reader) + TRACE_HEAD_BYTES;
	/* One frame that names its size, and nothing behind it. */
	if (trace_crc(packed, head->packed) != head->crc ||
	    ZSTD_findFrameCompressedSize(packed, head->packed) != head->packed ||
	    ZSTD_getFrameContentSize(packed, head->packed) != head->plain)
		return false;
	reader->plain.count = ZSTD_decompressDCtx(reader->zstd, reader->plain.at, head->plain,
						  packed, head->packed);
	return reader->plain.count == head->plain;
}

static char *text_of(const struct trace_reader *reader)
{
	char *text = malloc(reader->plain.count + 1);

	if (!text)
		return NULL;
	memcpy(text, reader->plain.at, reader->plain.count);
	text[reader->plain.count] = 0;
	if (strlen(text) == reader->plain.count)
		return text;
	free(text);
	return NULL;
}

static bool make_room(struct trace_reader *reader, uint32_t events)
{
	struct trace_event *at;

	if (events <= reader->room)
		return true;
	at = realloc(reader->events, events * sizeof(*at));
	if (!at)
		return false;
	reader->events = at;
	reader->room = events;
	return true;
}

static void count_lost(struct trace_reader *reader, uint32_t blocks)
{
	reader->damage.blocks += blocks;
	reader->lost |= blocks > 0;
	reader->wrong = 0;
}

/* Takes the block's contents; returns false if they are wrong. */
static bool take(struct trace_reader *reader, const struct trace_head *head)
{
	uint32_t missing;

	if (head->sequence < reader->sequence || !unpack(reader, head))
		return false;
	if (head->type == TRACE_BLOCK_EVENTS_TYPE) {
		reader->count = 0;
		reader->next = 0;
		if (!head->events || !make_room(reader, head->events) ||
		    !trace_decode(reader->coder, reader->plain.at, reader->plain.count,
				  reader->events, head->events) ||
		    reader->events[0].ns < reader->last_ns)
			return false;
		reader->count = head->events;
	} else if (head->type == TRACE_BLOCK_SUMMARY) {
		reader->summary = text_of(reader);
		if (!reader->summary)
			return false;
		reader->ended = true;
	} else {
		return false;
	}
	missing = head->sequence - reader->sequence;
	count_lost(reader, missing > reader->wrong ? missing : reader->wrong);
	reader->sequence = head->sequence + 1;
	return true;
}

/* Leaves out what is no head, up to the next place where one may begin. */
static void skip(struct trace_reader *reader)
{
	size_t count = reader->window.count - reader->taken;
	const uint8_t *found = memmem(unused(reader) + 1, count - 1, TRACE_MAGIC,
				      TRACE_MAGIC_BYTES);
	size_t bytes;

	if (found)
		bytes = (size_t)(found - unused(reader));
	else
		bytes = count < TRACE_HEAD_BYTES ? count : count - (TRACE_MAGIC_BYTES - 1);
	reader->taken += bytes;
	reader->damage.bytes += bytes;
}

/* At the file's end; what follows the summary belongs to no recording. */
static void end(struct trace_reader *reader)
{
	size_t count;

	while ((count = fill(reader, 1))) {
		reader->taken += count;
		reader->damage.bytes += count;
	}
	reader->damage.cut = !reader->summary;
	count_lost(reader, reader->wrong);
	reader->ended = true;
}

/* Takes the next right block; returns false at the end of the file. */
static bool next_block(struct trace_reader *reader)
{
	struct trace_head head;

	while (!reader->ended && fill(reader, TRACE_HEAD_BYTES) >= TRACE_HEAD_BYTES) {
		size_t size;

		if (!trace_head_get(unused(reader), &head)) {
			skip(reader);
			continue;
		}
		size = (size_t)TRACE_HEAD_BYTES + head.packed;
		if (take(reader, &head)) {
			reader->taken += size;
			if (!reader->ended)
				return true;
			break;
		}
		/* A block that the file's end cuts is not wrong. */
		if (fill(reader, size) < size)
			break;
		reader->taken += size;
		reader->damage.bytes += size;
		reader->wrong++;
	}
	end(reader);
	return false;
}

bool trace_next(struct trace_reader *reader, struct trace_event *event)
{
	bool more = reader->next < reader->count || next_block(reader);

	if (reader->lost) {
		uint64_t ns = more ? reader->events[reader->next].ns : reader->last_ns;

		reader->lost = false;
		memset(event, 0, sizeof(*event));
		event->kind = TRACE_LOST;
		event->ns = ns;
		event->span = ns - reader->last_ns;
		return true;
	}
	if (!more)
		return false;
	*event = reader->events[reader->next++];
	reader->last_ns = event->ns;
	return true;
}

static void refuse(const struct trace_reader *reader, struct trace_error *error, size_t count)
{
	const uint8_t *at = reader->window.at;
	unsigned int version = count < 10 ? 0 : at[8] | (unsigned int)at[9] << 8;

	if (!count)
		trace_error_set(error, "%s: byte 0: the file is empty: nothing was recorded",
				reader->path);
	else if (memcmp(at, TRACE_MAGIC, count < TRACE_MAGIC_BYTES ? count : TRACE_MAGIC_BYTES))
		trace_error_set(error, "%s: byte 0: not a recording of xsmmu", reader->path);
	else if (version > TRACE_VERSION)
		trace_error_set(error, "%s: byte 8: format %u is newer than format %u of this program: update xsmmu",
				reader->path, version, TRACE_VERSION);
	else if (count < TRACE_HEAD_BYTES)
		trace_error_set(error, "%s: byte %zu: cut within its header: nothing can be read",
				reader->path, count);
	else
		trace_error_set(error, "%s: byte 0: the header is cut or damaged: nothing tells which devices were recorded",
				reader->path);
}

static bool open_header(struct trace_reader *reader, struct trace_error *error)
{
	size_t count = fill(reader, TRACE_HEAD_BYTES);
	struct trace_head head;

	if (count >= TRACE_HEAD_BYTES && trace_head_get(reader->window.at, &head) &&
	    head.type == TRACE_BLOCK_HEADER && unpack(reader, &head))
		reader->header = text_of(reader);
	if (!reader->header) {
		refuse(reader, error, count);
		return false;
	}
	reader->taken = (size_t)TRACE_HEAD_BYTES + head.packed;
	reader->sequence = 1;
	return true;
}

struct trace_reader *trace_open(const char *path, struct trace_error *error)
{
	struct trace_reader *reader = calloc(1, sizeof(*reader));

	if (!reader) {
		trace_error_set(error, "%s: out of memory", path);
		return NULL;
	}
	reader->fd = open(path, O_RDONLY | O_CLOEXEC);
	if (reader->fd < 0) {
		trace_error_set(error, "%s: %s", path, strerror(errno));
		trace_close(reader);
		return NULL;
	}
	reader->path = strdup(path);
	reader->coder = trace_coder_new();
	reader->zstd = ZSTD_createDCtx();
	if (!reader->path || !reader->coder || !reader->zstd)
		trace_error_set(error, "%s: out of memory", path);
	else if (open_header(reader, error))
		return reader;
	trace_close(reader);
	return NULL;
}

const char *trace_header(const struct trace_reader *reader)
{
	return reader->header;
}

const struct trace_damage *trace_damage(const struct trace_reader *reader)
{
	return &reader->damage;
}

const char *trace_summary(const struct trace_reader *reader)
{
	return reader->summary;
}

void trace_close(struct trace_reader *reader)
{
	if (reader->fd >= 0)
		close(reader->fd);
	trace_coder_free(reader->coder);
	ZSTD_freeDCtx(reader->zstd);
	free(reader->window.at);
	free(reader->plain.at);
	free(reader->events);
	free(reader->header);
	free(reader->summary);
	free(reader->path);
	free(reader);
}
