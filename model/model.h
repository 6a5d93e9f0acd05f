/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * The state of a point that all parts share: parameters, time, random numbers, counters; and how a
 * run ends. All arithmetic is in whole numbers, so a point has the same result on every machine.
 */
#ifndef MODEL_MODEL_H
#define MODEL_MODEL_H

#include <stddef.h>

#include <xsmmu/backend.h>

#include "params.h"

/*
 * struct model - the point
 * @now_ns:	time; never goes back
 * @random:	state of model_random()
 * @events:	events so far
 */
struct model {
	struct model_params params;
	u64 now_ns;
	u64 random;
	u64 events;
};

extern struct model model;

/* End the run: the model contradicts itself. Prints the time; status 1. */
void model_broken(const char *format, ...)
	__attribute__((noreturn, cold, format(printf, 1, 2)));

/* Returns a number below @end, above 0. */
u64 model_random(u64 end);

/* Zeroed memory, and memory of another size. Never NULL. */
void *model_new(size_t count, size_t bytes);
void *model_again(void *memory, size_t bytes);

/* Returns the time of @bytes bytes at a rate, in ns, rounded up. */
static inline u64 model_bytes_ns(u64 bytes, u64 mbps)
{
	return (bytes * 8000 + mbps - 1) / mbps;
}

#endif
