/* SPDX-License-Identifier: GPL-2.0-only */
/* Prints the result as a JSON object. */
#ifndef MODEL_REPORT_H
#define MODEL_REPORT_H

#include <xsmmu/needs.h>

/* @ns: time that was measured */
void report_print(u64 ns);

#endif
