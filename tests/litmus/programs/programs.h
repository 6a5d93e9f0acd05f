/* SPDX-License-Identifier: GPL-2.0-only */
/* The lists of programs, one for each file. */
#ifndef LITMUS_PROGRAMS_H
#define LITMUS_PROGRAMS_H

#include "litmus_world.h"

extern const struct ex_program *const model_programs[];
extern const struct ex_program *const batch_programs[];
extern const struct ex_program *const slot_programs[];
extern const struct ex_program *const block_programs[];
extern const struct ex_program *const policy_programs[];
extern const struct ex_program *const space_programs[];
extern const struct ex_program *const timer_programs[];
extern const struct ex_program *const map_programs[];
extern const struct ex_program *const local_programs[];
extern const struct ex_program *const magazine_programs[];
extern const struct ex_program *const pool_programs[];
extern const struct ex_program *const stuck_programs[];
extern const struct ex_program *const identity_programs[];
extern const struct ex_program *const count_programs[];

#endif
