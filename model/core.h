/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * The time of cores, whatever they work on: until when a core is busy, and when it next looks for
 * work. A core has one event at a time that counts; an earlier wake-up replaces a later one.
 */
#ifndef MODEL_CORE_H
#define MODEL_CORE_H

#include <xsmmu/needs.h>

void core_init(void);

/* The core has work from @ns on, and looks for it when it is free. */
void core_wake(u32 at, u64 ns);

/*
 * Begin a slice of the core at an event. Returns false if the event does not count, or if the core
 * is still busy; the core then has an event at the end of what it does.
 */
bool core_begin(u32 at);

/* End the slice, which has lasted until @ns. */
void core_end(u32 at, u64 ns);

/* Returns the time at which the core is free; the core is busy with something else until @ns. */
u64 core_free_at(u32 at);
void core_charge(u32 at, u64 ns);

#endif
