// SPDX-License-Identifier: GPL-2.0-only
/*
 * A libFuzzer target for the reader of recordings.
 *
 * The first byte chooses: the rest is a file; or the rest is the contents of blocks, which get
 * right heads and checksums, because no fuzzer guesses these. What is read must be in order of time
 * and valid for the writer, and must be the same after writing and reading again.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>
#include <zstd.h>

#include "format.h"

#define PLAIN_BYTES	4096u
#define PATH_BYTES	64u
/* Contents begin with the number of their events and the length. */
#define PART_HEAD	4u

int LLVMFuzzerTestOneInput(const uint8_t *bytes, size_t count);

static void fail(const char *why)
{
	printf("FAIL %s\n", why);
	fflush(stdout);
	abort();
}

static void append(int fd, const void *bytes, size_t count)
{
	if (write(fd, bytes, count) != (ssize_t)count)
		fail("memory: no room for the file");
}

static void append_block(int fd, uint32_t sequence, uint32_t events, const uint8_t *plain,
			 size_t bytes)
{
	static uint8_t packed[TRACE_HEAD_BYTES + 2 * PLAIN_BYTES];
	struct trace_head head = {
		.version = TRACE_VERSION,
		.type = sequence ? TRACE_BLOCK_EVENTS_TYPE : TRACE_BLOCK_HEADER,
		.sequence = sequence,
		.events = events,
		.plain = (uint32_t)bytes,
	};

	head.packed = (uint32_t)ZSTD_compress(packed + TRACE_HEAD_BYTES, 2 * PLAIN_BYTES, plain,
					      bytes, 1);
	head.crc = trace_crc(packed + TRACE_HEAD_BYTES, head.packed);
	trace_head_put(packed, &head);
	append(fd, packed, TRACE_HEAD_BYTES + head.packed);
}

/* Makes a file of blocks with these contents. */
static void append_parts(int fd, const uint8_t *bytes, size_t count)
{
	uint32_t sequence = 0;

	append_block(fd, sequence++, 0, (const uint8_t *)"{}", 2);
	while (count > PART_HEAD) {
		uint32_t events = trace_get(bytes, 2);
		size_t length = trace_get(bytes + 2, 2) % PLAIN_BYTES;

		bytes += PART_HEAD;
		count -= PART_HEAD;
		length = length < count ? length : count;
		append_block(fd, sequence++, events, bytes, length);
		bytes += length;
		count -= length;
	}
}

/* An event that was read must be the same after coding and decoding. */
static void check_again(struct trace_coder *coder, struct trace_event *events, uint32_t count)
{
	static struct trace_event again[TRACE_BLOCK_EVENTS];
	static struct trace_bytes plain;

	if (!trace_encode(coder, events, count, &plain) || plain.count > TRACE_PLAIN_MAX)
		fail("coding: no contents");
	if (!trace_decode(coder, plain.at, plain.count, again, count))
		fail("coding: contents are refused");
	if (memcmp(events, again, count * sizeof(*again)))
		fail("coding: other events");
}

static void read_all(struct trace_reader *reader)
{
	static struct trace_event events[TRACE_BLOCK_EVENTS];
	static struct trace_coder *coder;
	uint32_t count = 0;
	uint64_t ns = 0;

	if (!coder)
		coder = trace_coder_new();
	if (!coder)
		fail("memory: none");
	while (count < TRACE_BLOCK_EVENTS && trace_next(reader, &events[count])) {
		const struct trace_event *event = &events[count++];

		if (event->ns < ns)
			fail("time: goes back");
		if (!event->kind || event->kind >= TRACE_KINDS || event->flags & ~TRACE_FLAGS)
			fail("event: not valid");
		ns = event->ns;
	}
	if (count)
		check_again(coder, events, count);
}

int LLVMFuzzerTestOneInput(const uint8_t *bytes, size_t count)
{
	char path[PATH_BYTES];
	struct trace_reader *reader;
	struct trace_error error;
	int fd;

	if (!count)
		return 0;
	fd = memfd_create("fuzz", MFD_CLOEXEC);
	if (fd < 0)
		fail("memory: no file");
	if (bytes[0] & 1)
		append_parts(fd, bytes + 1, count - 1);
	else
		append(fd, bytes + 1, count - 1);
	snprintf(path, sizeof(path), "/proc/self/fd/%d", fd);
	reader = trace_open(path, &error);
	if (reader) {
		read_all(reader);
		trace_close(reader);
	}
	close(fd);
	return 0;
}
