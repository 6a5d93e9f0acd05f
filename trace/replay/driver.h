/* SPDX-License-Identifier: GPL-2.0-only */
/* Turns the events of a recording into calls of the DMA API (calls.h). */
#ifndef REPLAY_DRIVER_H
#define REPLAY_DRIVER_H

#include "../format/trace.h"

void driver_init(void);

/* Replay the event in progress. */
void driver_event(const struct trace_event *event);

/* The recording has ended: lists without all of their entries are mapped. */
void driver_finish(void);

/* The recording begins again: what is mapped is unmapped, as if all drivers were unbound. */
void driver_again(void);

#endif
