// SPDX-License-Identifier: GPL-2.0-only
#include "programs.h"

const struct ex_program *const *const ex_programs[] = {
	model_programs, batch_programs, slot_programs, block_programs, policy_programs,
	space_programs, timer_programs, map_programs, local_programs, magazine_programs, pool_programs,
	stuck_programs, identity_programs, count_programs, NULL
};
