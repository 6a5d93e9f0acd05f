// SPDX-License-Identifier: GPL-2.0-only
/*
 * Parts of the recorder (trace/record) that need no kernel.
 *
 *   record-parts print FILE	as xsmmu-record --print
 *   record-parts device NAME	status 0 if there is such a device
 *   record-parts odd DRIVER	prints a device with this driver, as in the header
 */
#include <stdio.h>
#include <string.h>

#include "../../trace/record/device.h"
#include "../../trace/record/print.h"

int main(int count, char **words)
{
	struct trace_error error = { "" };
	struct device device = { .name = "0000:01:00.0", .group = 1 };
	bool done;

	if (count != 3)
		return 2;
	if (!strcmp(words[1], "odd")) {
		snprintf(device.driver, sizeof(device.driver), "%s", words[2]);
		device_print(&device, stdout);
		return 0;
	}
	if (!strcmp(words[1], "print"))
		done = print_recording(words[2], &error);
	else
		done = device_read(&device, words[2], &error);
	fputs(error.text, stderr);
	return done ? 0 : 1;
}
