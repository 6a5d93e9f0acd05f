/* SPDX-License-Identifier: GPL-2.0-only */
/* The runs of this program; each prints lines of JSON. */
#ifndef SCALE_RUN_H
#define SCALE_RUN_H

#include "traffic.h"

/*
 * struct run_options - options of a run
 * @warm_polls, @polls: polls of each CPU before and during counting
 * @maps:	numbers of maps at which the ageing run reports
 * @sites:	print the instructions that caused transfers
 */
struct run_options {
	struct traffic_config traffic;
	u32 warm_polls;
	u32 polls;
	u64 maps[16];
	u32 checkpoints;
	bool sites;
};

/* Count transfers and locks under traffic. */
void run_count(const struct run_options *options);

/* Measure a long life: use of IOVAs and number of instructions. */
void run_ageing(const struct run_options *options);

/*
 * Measure the longest stretches without interrupts, or without preemption, of calls on all
 * CPUs.
 */
void run_stretch(const struct run_options *options);

/*
 * Run the model alone. Each word is a CPU, an access and a line, as in "0w3": w, r, or one of
 * the probes b (bump), l (load), s (store), x (compare and swap), c (copy two lines to the next
 * two).
 */
void run_lines(u32 count, char **words);

/* Print "key": value, after a comma unless the pair is the first. */
void run_tell(const char *key, u64 value);
void run_tell_text(const char *key, const char *value);
void run_tell_open(const char *key);
void run_tell_close(void);
void run_tell_line(void);
void run_tell_traffic(const struct traffic_config *traffic);

#endif
