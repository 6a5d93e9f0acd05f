// SPDX-License-Identifier: GPL-2.0-only
/*
 * The writer of recordings.
 *
 * Events are kept until a block is full, and written as a whole block. After a failed write the
 * file is cut to its last whole block, so the events so far stay readable.
 */
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>
#include <zstd.h>

#include "format.h"

#define ZSTD_LEVEL	1
/* A recorder that is killed loses at most so much of the recording. */
#define BLOCK_NS	10000000000ull

/**
 * struct trace_writer - a file that is written
 * @path: name of the complete file
 * @part: name until then
 * @fd: the file
 * @failed: a write has failed, and no other is tried
 * @place: bytes in whole blocks
 * @sequence: number of whole blocks
 * @events: events of the next block, in order of time
 * @count: number of them
 * @last_ns: time of the last event
 */
struct trace_writer {
	char *path;
	char *part;
	int fd;
	bool failed;
	uint64_t place;
	uint32_t sequence;
	struct trace_event *events;
	uint32_t count;
	uint64_t last_ns;
	struct trace_coder *coder;
	ZSTD_CCtx *zstd;
	struct trace_bytes plain;
	struct trace_bytes packed;
};

static void writer_free(struct trace_writer *writer)
{
	if (writer->fd >= 0)
		close(writer->fd);
	trace_coder_free(writer->coder);
	ZSTD_freeCCtx(writer->zstd);
	free(writer->plain.at);
	free(writer->packed.at);
	free(writer->events);
	free(writer->path);
	free(writer->part);
	free(writer);
}

static bool write_all(int fd, const uint8_t *at, size_t count)
{
	while (count) {
		ssize_t done = write(fd, at, count);

		if (done < 0 && errno == EINTR)
			continue;
		if (done <= 0) {
			errno = done ? errno : ENOSPC;
			return false;
		}
		at += done;
		count -= (size_t)done;
	}
	return true;
}

static bool fail(struct trace_writer *writer, struct trace_error *error, const char *why)
{
	writer->failed = true;
	if (ftruncate(writer->fd, (off_t)writer->place))
		why = "a write failed, and the last block could not be removed";
	trace_error_set(error, "%s: byte %llu: %s; the events before are kept in this file",
			writer->part, (unsigned long long)writer->place, why);
	return false;
}

/* Writes the plain contents as a block. */
static bool write_block(struct trace_writer *writer, enum trace_block_type type, uint32_t events,
			const void *plain, size_t bytes, struct trace_error *error)
{
	struct trace_head head = {
		.version = TRACE_VERSION,
		.type = (uint16_t)type,
		.sequence = writer->sequence,
		.events = events,
		.plain = (uint32_t)bytes,
	};
	size_t size = ZSTD_compressBound(bytes);

	if (!trace_bytes_room(&writer->packed, TRACE_HEAD_BYTES + size))
		return fail(writer, error, "out of memory");
	size = ZSTD_compressCCtx(writer->zstd, writer->packed.at + TRACE_HEAD_BYTES, size, plain,
				 bytes, ZSTD_LEVEL);
	if (ZSTD_isError(size))
		return fail(writer, error, ZSTD_getErrorName(size));
	head.packed = (uint32_t)size;
	head.crc = trace_crc(writer->packed.at + TRACE_HEAD_BYTES, size);
	trace_head_put(writer->packed.at, &head);
	size += TRACE_HEAD_BYTES;
	if (!write_all(writer->fd, writer->packed.at, size))
		return fail(writer, error, strerror(errno));
	writer->place += size;
	writer->sequence++;
	return true;
}

static bool write_text(struct trace_writer *writer, enum trace_block_type type, const char *text,
		       struct trace_error *error)
{
	size_t bytes = strlen(text);

	if (bytes > TRACE_PLAIN_MAX)
		return fail(writer, error, "a header or summary of more than 8 MiB");
	return write_block(writer, type, 0, text, bytes, error);
}

static bool write_events(struct trace_writer *writer, struct trace_error *error)
{
	uint32_t count = writer->count;

	if (!count)
		return true;
	writer->count = 0;
	if (!trace_encode(writer->coder, writer->events, count, &writer->plain))
		return fail(writer, error, "out of memory");
	return write_block(writer, TRACE_BLOCK_EVENTS_TYPE, count, writer->plain.at,
			   writer->plain.count, error);
}

static struct trace_writer *writer_new(const char *path)
{
	struct trace_writer *writer = calloc(1, sizeof(*writer));

	if (!writer)
		return NULL;
	writer->fd = -1;
	writer->path = strdup(path);
	writer->part = malloc(strlen(path) + sizeof(".part"));
	writer->events = malloc(TRACE_BLOCK_EVENTS * sizeof(*writer->events));
	writer->coder = trace_coder_new();
	writer->zstd = ZSTD_createCCtx();
	if (!writer->path || !writer->part || !writer->events || !writer->coder || !writer->zstd) {
		writer_free(writer);
		return NULL;
	}
	stpcpy(stpcpy(writer->part, path), ".part");
	/* So that the memory is there before the recording, and costs no page faults in it. */
	explicit_bzero(writer->events, TRACE_BLOCK_EVENTS * sizeof(*writer->events));
	return writer;
}

static bool create(struct trace_writer *writer, struct trace_error *error)
{
	if (!access(writer->path, F_OK)) {
		trace_error_set(error, "%s: exists: remove it, or choose another name",
				writer->path);
		return false;
	}
	writer->fd = open(writer->part, O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0666);
	if (writer->fd >= 0)
		return true;
	if (errno == EEXIST)
		trace_error_set(error, "%s: exists: a recording runs or did not end; move it away or remove it",
				writer->part);
	else
		trace_error_set(error, "%s: %s", writer->part, strerror(errno));
	return false;
}

struct trace_writer *trace_create(const char *path, const char *header, struct trace_error *error)
{
	struct trace_writer *writer = writer_new(path);

	if (!writer) {
		trace_error_set(error, "%s: out of memory", path);
		return NULL;
	}
	if (!create(writer, error)) {
		writer_free(writer);
		return NULL;
	}
	if (write_text(writer, TRACE_BLOCK_HEADER, header, error))
		return writer;
	/* A file without a header is of no use. */
	unlink(writer->part);
	writer_free(writer);
	return NULL;
}

static bool is_valid(const struct trace_writer *writer, const struct trace_event *event,
		     struct trace_error *error)
{
	if (writer->failed) {
		trace_error_set(error, "%s: byte %llu: an earlier write has failed", writer->part,
				(unsigned long long)writer->place);
	} else if (!event->kind || event->kind >= TRACE_KINDS) {
		trace_error_set(error, "%s: there is no event of kind %u", writer->part,
				event->kind);
	} else if (event->flags & ~TRACE_FLAGS) {
		trace_error_set(error, "%s: unknown flags 0x%x of an event", writer->part,
				event->flags);
	} else if (event->ns < writer->last_ns) {
		trace_error_set(error, "%s: time goes back from %llu to %llu ns", writer->part,
				(unsigned long long)writer->last_ns, (unsigned long long)event->ns);
	} else {
		return true;
	}
	return false;
}

bool trace_flush(struct trace_writer *writer, uint64_t ns, struct trace_error *error)
{
	if (!writer->count || ns < writer->events[0].ns || ns - writer->events[0].ns < BLOCK_NS)
		return true;
	return write_events(writer, error);
}

bool trace_write(struct trace_writer *writer, const struct trace_event *event,
		 struct trace_error *error)
{
	if (!is_valid(writer, event, error))
		return false;
	if (writer->count == TRACE_BLOCK_EVENTS && !write_events(writer, error))
		return false;
	if (!trace_flush(writer, event->ns, error))
		return false;
	writer->events[writer->count++] = *event;
	writer->last_ns = event->ns;
	return true;
}

/* Gives the complete file its name. */
static bool publish(struct trace_writer *writer, struct trace_error *error)
{
	if (fsync(writer->fd) && errno != EINVAL)
		return fail(writer, error, strerror(errno));
	if (!renameat2(AT_FDCWD, writer->part, AT_FDCWD, writer->path, RENAME_NOREPLACE))
		return true;
	/* Some file systems have no such rename. */
	if (errno == EINVAL && access(writer->path, F_OK) && !rename(writer->part, writer->path))
		return true;
	trace_error_set(error, "%s: complete, but not renamed to %s: %s", writer->part,
			writer->path, strerror(errno));
	return false;
}

bool trace_finish(struct trace_writer *writer, const char *summary, struct trace_error *error)
{
	bool done = false;

	if (writer->failed)
		trace_error_set(error, "%s: byte %llu: an earlier write has failed; the events before are kept in this file",
				writer->part, (unsigned long long)writer->place);
	else
		done = write_events(writer, error) &&
		       write_text(writer, TRACE_BLOCK_SUMMARY, summary, error) &&
		       publish(writer, error);
	writer_free(writer);
	return done;
}
