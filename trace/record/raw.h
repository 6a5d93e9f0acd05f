/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * Events as the BPF program hands them over, and the memory that it shares with the recorder.
 *
 * Each CPU has a ring of its own, so a ring names the CPU, is written without waiting for other
 * CPUs, and is in the order of time but for interrupts between the time of an event and its place
 * in the ring.
 */
#ifndef RECORD_RAW_H
#define RECORD_RAW_H

#define RAW_DEVICES 16 /* devices that can be recorded at a time */
#define RAW_NAME 24    /* bytes of a device's name, with its zero */
#define RAW_CPUS 1024  /* CPUs that can be recorded; a power of two */

/* A bit of raw_event.flags: @phys is the address of struct page, 0 if not known, and @span the
 * offset. */
#define RAW_PAGE 0x80u

/**
 * struct raw_event - an event in a ring
 * @ns: CLOCK_MONOTONIC; of the entries of a list, that of the list
 * @iova: address that the device uses
 * @phys: physical address of the memory, 0 if not known; of a list, the pages of its entries
 * @bytes: as in struct trace_event
 * @span: TRACE_ENTRY: bytes at @iova for the device; lists: number of entries; TRACE_POLL: NAPI
 * identity
 * @device: index in the names given to the program
 * @kind: enum trace_kind
 * @flags: TRACE_* bits
 */
struct raw_event {
	unsigned long long ns;
	unsigned long long iova;
	unsigned long long phys;
	unsigned long long bytes;
	unsigned int span;
	unsigned short device;
	unsigned char kind;
	unsigned char flags;
};

/**
 * struct raw_cpu - counts of a CPU, which only grow
 * @lost: events for which the ring had no room, and lists inside of lists
 * @lost_ns: time of the last of them
 * @maps: calls seen by the tracepoint iommu:map, if it is counted
 * @map_bytes: sum of their sizes
 * @unmaps: calls seen by the tracepoint iommu:unmap
 * @unmap_bytes: sum of their sizes
 * @sum: bytes of the list that is being walked: [0], or [1] if its entries are recorded
 * @pages: pages of its entries
 * @in_list: whether such a list is being walked
 */
struct raw_cpu {
	unsigned long long lost;
	unsigned long long lost_ns;
	unsigned long long maps;
	unsigned long long map_bytes;
	unsigned long long unmaps;
	unsigned long long unmap_bytes;
	unsigned long long sum[2];
	unsigned long long pages[2];
	unsigned long long in_list[2];
} __attribute__((aligned(128)));

/**
 * struct raw_device - a device that is recorded
 * @pointer: the kernel's struct device, 0 until its first call and after its removal
 * @removed: how often it was removed from the machine
 */
struct raw_device {
	unsigned long long pointer;
	unsigned long long removed;
};

#endif
