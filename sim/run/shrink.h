/* SPDX-License-Identifier: GPL-2.0-only */
#ifndef SIM_SHRINK_H
#define SIM_SHRINK_H

#include "../world/sim.h"

/*
 * Leave out steps of the failing run @run while the same checker fails, and print a trace of
 * the rest. Takes some seconds at most.
 */
void shrink(const struct sim_config *config, const struct sim_run *run);

#endif
