/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * A recording as text, a line for each event, for people and tests.
 */
#ifndef RECORD_PRINT_H
#define RECORD_PRINT_H

#include <stdbool.h>

#include "trace.h"

/* Prints a recording to standard output; false if it cannot be read. */
bool print_recording(const char *file, struct trace_error *error);

#endif
