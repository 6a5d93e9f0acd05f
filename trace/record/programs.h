/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * The BPF programs: chosen by what the kernel has, loaded, attached, and their shared memory.
 */
#ifndef RECORD_PROGRAMS_H
#define RECORD_PROGRAMS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "raw.h"
#include "trace.h"

struct programs;

/**
 * struct programs_options - what to load
 * @names: names of the devices
 * @devices: number of names
 * @check: also count iommu:map and iommu:unmap
 * @ring_bytes: size of a CPU's ring, a power of two; 0 for a size by the number of CPUs
 */
struct programs_options {
	const char *const *names;
	unsigned int devices;
	bool check;
	uint32_t ring_bytes;
};

/**
 * struct programs_cost - what the programs have used while the kernel measured it
 * @ns: time
 * @runs: number of calls
 * @missed: calls inside of the same program, which were not recorded; always counted
 */
struct programs_cost {
	uint64_t ns;
	uint64_t runs;
	uint64_t missed;
};

/* Loads and attaches; nothing is recorded yet. NULL if the kernel refuses: @error says why. */
struct programs *programs_open(const struct programs_options *options, struct trace_error *error);

/* Detaches. When it returns, no program runs, and the rings have all events. */
void programs_detach(struct programs *programs);
void programs_close(struct programs *programs);

/* Begins or suspends recording. */
void programs_record(struct programs *programs, bool on);

unsigned int programs_cpus(const struct programs *programs);
/* The file descriptor of a CPU's ring. */
int programs_ring(const struct programs *programs, unsigned int cpu);
uint32_t programs_ring_bytes(const struct programs *programs);
/* The counts of a CPU, which change at any time. */
const struct raw_cpu *programs_cpu(const struct programs *programs, unsigned int cpu);
const struct raw_device *programs_device(const struct programs *programs, unsigned int device);
/* The physical address of a byte of a page, given its struct page; 0 if it is not known. */
uint64_t programs_phys(const struct programs *programs, uint64_t page, unsigned int page_shift,
		       uint64_t offset);
/* Why pages of lists and of maps by page have no identity; NULL if they have. */
const char *programs_why_no_pages(const struct programs *programs);
/* Whether all maps of memory that the module cannot hold have TRACE_UNHELD. */
bool programs_know_unheld(const struct programs *programs);

/* Has the kernel measure the time of programs, or not; false if it refuses or there are none. */
bool programs_measure(struct programs *programs, bool on);
void programs_cost(const struct programs *programs, struct programs_cost *cost);
/* Names of the attached programs' functions, as JSON strings with commas. */
void programs_print(const struct programs *programs, char *text, size_t room);

#endif
