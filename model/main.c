// SPDX-License-Identifier: GPL-2.0-only
/*
 * xsmmu-model: a timed model of a machine whose NIC receives under an IOMMU policy. Reads a point
 * (params.h) from standard input and prints a JSON object. The same point gives the same bytes on
 * every machine.
 */
#include <stdio.h>

#include "model.h"
#include "report.h"
#include "run.h"

int main(void)
{
	params_read(&model.params);
	model.random = model.params.seed;
	report_print(run());
	return fflush(stdout) ? 1 : 0;
}
