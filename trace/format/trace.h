/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * Recordings of the DMA API: events, and files of them. docs/trace.md describes the file.
 */
#ifndef TRACE_TRACE_H
#define TRACE_TRACE_H

#include <stdbool.h>
#include <stdint.h>

/**
 * enum trace_kind - what a driver did
 * @TRACE_MAP: mapped a buffer
 * @TRACE_UNMAP: unmapped a buffer; recorded at the begin of the call
 * @TRACE_MAP_LIST: mapped a scatter list; its entries follow as @TRACE_ENTRY, on the same CPU
 * @TRACE_ENTRY: an entry of the list before
 * @TRACE_UNMAP_LIST: unmapped a scatter list; recorded at the begin of the call
 * @TRACE_ALLOC: allocated coherent memory
 * @TRACE_FREE: freed coherent memory
 * @TRACE_SYNC_CPU: took a buffer back for the CPU, without an unmap
 * @TRACE_SYNC_DEVICE: gave a buffer to the device again
 * @TRACE_IOVA_ALLOC: reserved a range of IOVAs (the two-step API)
 * @TRACE_IOVA_LINK: mapped memory in a part of such a range
 * @TRACE_IOVA_SYNC: made the links of a range visible to the device
 * @TRACE_IOVA_UNLINK: unmapped a part of such a range
 * @TRACE_IOVA_FREE: unmapped what was linked, and gave the range back
 * @TRACE_POLL: a NAPI poll has ended
 * @TRACE_LOST: the recorder has lost events of a CPU
 */
enum trace_kind {
	TRACE_MAP = 1,
	TRACE_UNMAP,
	TRACE_MAP_LIST,
	TRACE_ENTRY,
	TRACE_UNMAP_LIST,
	TRACE_ALLOC,
	TRACE_FREE,
	TRACE_SYNC_CPU,
	TRACE_SYNC_DEVICE,
	TRACE_IOVA_ALLOC,
	TRACE_IOVA_LINK,
	TRACE_IOVA_SYNC,
	TRACE_IOVA_UNLINK,
	TRACE_IOVA_FREE,
	TRACE_POLL,
	TRACE_LOST,
	TRACE_KINDS
};

/* Bits of trace_event.flags; the direction is the kernel's enum dma_data_direction. */
#define TRACE_DIRECTION		0x03u
#define TRACE_FAILED		0x04u	/* the call returned an error, and has mapped nothing */
#define TRACE_SKIP_SYNC		0x08u	/* DMA_ATTR_SKIP_CPU_SYNC */
#define TRACE_MMIO		0x10u	/* memory of a device, not of the machine */
/* Maps, entries and links: memory that the module cannot hold until a flush, such as slab pages. */
#define TRACE_UNHELD		0x20u

/**
 * struct trace_event - an event
 * @ns: time since the recording's begin
 * @iova: address that the device uses, in bytes; of a list, of the first entry
 * @page: identity of the first page of memory: the page frame number, permuted unless the recording
 *   is raw; 0 if not known
 * @bytes: size of the buffer, the part or the entry; of a list, the sum of the entries;
 *   @TRACE_POLL: the work done; @TRACE_LOST: the number of events
 * @span: @TRACE_ENTRY: bytes at @iova for the device, 0 if merged into an earlier entry;
 *   @TRACE_MAP_LIST, @TRACE_UNMAP_LIST: number of entries of the caller; @TRACE_LOST: ns before @ns
 *   in which the events were lost; else 0
 * @queue: NAPI identity of @TRACE_POLL; else the NAPI identity or interrupt of the queue, 0 if not
 *   known
 * @offset: of the buffer in its first page, in bytes
 * @cpu: CPU of the caller; 0xffff of @TRACE_LOST of all CPUs
 * @device: index in the header's list of devices
 * @kind: enum trace_kind
 * @flags: TRACE_* bits
 */
struct trace_event {
	uint64_t ns;
	uint64_t iova;
	uint64_t page;
	uint64_t bytes;
	uint64_t span;
	uint32_t queue;
	uint32_t offset;
	uint16_t cpu;
	uint16_t device;
	uint8_t kind;
	uint8_t flags;
};

/**
 * struct trace_error - why a call failed
 * @text: one line in English, with the place in the file and what to do; no newline
 */
struct trace_error {
	char text[256];
};

struct trace_writer;

/**
 * trace_create - begin a file
 * @path: file, which must not exist; written under a temporary name until trace_finish()
 * @header: JSON text of the header
 * @error: set on failure
 *
 * Return: the writer, or NULL.
 */
struct trace_writer *trace_create(const char *path, const char *header, struct trace_error *error);

/**
 * trace_write - append an event
 * @writer: writer
 * @event: event, no older than the one before
 * @error: set on failure
 *
 * Return: false if the disk is full or the event is not valid.
 */
bool trace_write(struct trace_writer *writer, const struct trace_event *event,
		 struct trace_error *error);

/**
 * trace_flush - write the events that have waited for ten seconds
 * @writer: writer
 * @ns: now; trace_write() does the same with the time of its event
 * @error: set on failure
 *
 * So a recorder that is killed loses the events of ten seconds at most, also if its devices are
 * quiet.
 *
 * Return: false if the disk is full.
 */
bool trace_flush(struct trace_writer *writer, uint64_t ns, struct trace_error *error);

/**
 * trace_finish - write what is left and the summary, and give the file its name
 * @writer: writer, which is freed
 * @summary: JSON text: totals, lost events, overhead
 * @error: set on failure
 *
 * Return: false on failure; the temporary file is left, with its whole blocks.
 */
bool trace_finish(struct trace_writer *writer, const char *summary, struct trace_error *error);

struct trace_reader;

/**
 * struct trace_damage - what a reader has left out
 * @blocks: number of blocks with a wrong checksum or contents
 * @bytes: number of bytes in them, and between blocks
 * @cut: the file has no summary: the recorder did not end, or the end is missing
 */
struct trace_damage {
	uint64_t blocks;
	uint64_t bytes;
	bool cut;
};

/**
 * trace_open - open a file
 * @path: file
 * @error: set on failure: no such file, not a recording, a newer version
 *
 * Return: the reader, or NULL.
 */
struct trace_reader *trace_open(const char *path, struct trace_error *error);

/* Returns the JSON text of the header, until trace_close(). */
const char *trace_header(const struct trace_reader *reader);

/**
 * trace_next - read the next event
 * @reader: reader
 * @event: set to the event
 *
 * A damaged block is left out and counted; a @TRACE_LOST event with 0 bytes stands for it.
 *
 * Return: false at the end of the file.
 */
bool trace_next(struct trace_reader *reader, struct trace_event *event);

/* Returns what was left out so far. */
const struct trace_damage *trace_damage(const struct trace_reader *reader);

/* Returns the JSON text of the summary, after the last event; NULL if the file is cut. */
const char *trace_summary(const struct trace_reader *reader);

void trace_close(struct trace_reader *reader);

#endif
