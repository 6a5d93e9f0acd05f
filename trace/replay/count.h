/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * Counts of the engine's accesses to memory, and of transfers of cache lines between CPUs. Only the
 * program xsmmu-replay-lines counts, in which trace/count stands for uncounted.c.
 */
#ifndef REPLAY_COUNT_H
#define REPLAY_COUNT_H

#include <stddef.h>

#include <xsmmu/needs.h>

/* Whether this program counts. */
extern const bool count_can;

/* Called before the engine has memory. */
void count_init(void);

/* Called around each event. */
void count_begin(void);
void count_end(void);

/* Prints a pair of JSON. */
void count_print(void);

/* The engine's memory, zeroed, in whole lines; NULL if there is none. */
void *count_alloc(size_t bytes);
void count_free(void *memory, size_t bytes);

#endif
