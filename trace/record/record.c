// SPDX-License-Identifier: GPL-2.0-only
/*
 * xsmmu-record: writes the DMA of devices to a file. `xsmmu record` runs it; docs/record.md
 * describes both.
 */
#include <errno.h>
#include <getopt.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "print.h"
#include "session.h"

#define RING_KIB_MAX (1u << 20)

static const char usage[] =
	"usage: xsmmu-record -O FILE [--seconds N] [--raw] [--check] [--max-overhead PERCENT] [--ring-kib N] [--tracepoints] DEVICE...\n"
	"       xsmmu-record --print FILE\n"
	"Records calls of the DMA API by PCI devices (0000:01:00.0) until N seconds are over, or SIGINT.\n";

enum word {
	OPTION_SECONDS = 256,
	OPTION_RAW,
	OPTION_CHECK,
	OPTION_MAX_OVERHEAD,
	OPTION_RING_KIB,
	OPTION_TRACEPOINTS,
};

static const struct option words[] = {
	{ "seconds", required_argument, NULL, OPTION_SECONDS },
	{ "raw", no_argument, NULL, OPTION_RAW },
	{ "check", no_argument, NULL, OPTION_CHECK },
	{ "max-overhead", required_argument, NULL, OPTION_MAX_OVERHEAD },
	{ "ring-kib", required_argument, NULL, OPTION_RING_KIB },
	{ "tracepoints", no_argument, NULL, OPTION_TRACEPOINTS },
	{ NULL },
};

static void stop(int number)
{
	(void)number;
	session_stop();
}

static int complain(const char *text, int status)
{
	fprintf(stderr, "xsmmu-record: %s\n", text);
	return status;
}

/* A number in a range; false for another word. */
static bool number(const char *word, double least, double most, double *found)
{
	char *end;

	errno = 0;
	*found = strtod(word, &end);
	return end != word && !*end && !errno && *found >= least && *found <= most;
}

static bool set(struct session_options *options, int option, const char *word)
{
	double found;

	switch (option) {
	case 'O':
		options->file = word;
		return true;
	case OPTION_SECONDS:
		return number(word, 0.001, 1e9, &options->seconds);
	case OPTION_RAW:
		options->raw = true;
		return true;
	case OPTION_CHECK:
		options->check = true;
		return true;
	case OPTION_TRACEPOINTS:
		options->tracepoints = true;
		return true;
	case OPTION_MAX_OVERHEAD:
		if (!number(word, 0.01, 100, &found))
			return false;
		options->share = found / 100;
		return true;
	case OPTION_RING_KIB:
		if (!number(word, 4, RING_KIB_MAX, &found))
			return false;
		options->ring_bytes = (uint32_t)found << 10;
		return !(options->ring_bytes & (options->ring_bytes - 1));
	}
	return false;
}

static bool add_device(struct session_options *options, const char *name, struct trace_error *error)
{
	for (unsigned int at = 0; at < options->count; at++) {
		if (!strcmp(name, options->devices[at].name)) {
			snprintf(error->text, sizeof(error->text),
				 "%s is named twice: name each device once", name);
			return false;
		}
	}
	if (options->count == RAW_DEVICES) {
		snprintf(error->text, sizeof(error->text),
			 "more than %d devices: record some of them in another recording",
			 RAW_DEVICES);
		return false;
	}
	return device_read(&options->devices[options->count], name, error) && ++options->count;
}

static int read_words(struct session_options *options, int count, char **arguments)
{
	struct trace_error error;
	int option;

	opterr = 0;
	while ((option = getopt_long(count, arguments, "O:", words, NULL)) >= 0) {
		if (!set(options, option, optarg))
			return complain(usage, 2);
	}
	if (!options->file || optind == count)
		return complain(usage, 2);
	for (int at = optind; at < count; at++) {
		if (!add_device(options, arguments[at], &error))
			return complain(error.text, 1);
	}
	return 0;
}

int main(int count, char **arguments)
{
	struct session_options options = { 0 };
	struct sigaction action = { .sa_handler = stop };
	struct trace_error error = { "" };
	int status;

	if (count == 3 && !strcmp(arguments[1], "--print"))
		return print_recording(arguments[2], &error) ? 0 : complain(error.text, 1);
	status = read_words(&options, count, arguments);
	if (status)
		return status;
	sigaction(SIGINT, &action, NULL);
	sigaction(SIGTERM, &action, NULL);
	sigaction(SIGHUP, &action, NULL);
	/* A file that may grow no more is an error of writing, with its message. */
	signal(SIGXFSZ, SIG_IGN);
	signal(SIGPIPE, SIG_IGN);
	return session_run(&options, &error) ? 0 : complain(error.text, 1);
}
