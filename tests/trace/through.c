// SPDX-License-Identifier: GPL-2.0-only
/*
 * Events through the writer and the reader, for tests of the file format.
 *
 *   through write FILE	events of standard input to FILE; the header is {}, the summary {}
 *   through read FILE	events of FILE to standard output, then a line about the damage to standard
 *			error
 *
 * An event is a struct trace_event of this machine. A failure prints its line and ends with 1.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "trace.h"

static int failed(const struct trace_error *error)
{
	fprintf(stderr, "%s\n", error->text);
	return 1;
}

static int write_events(const char *path)
{
	struct trace_error error;
	struct trace_writer *writer = trace_create(path, "{}", &error);
	struct trace_event event;
	bool wrong = false;

	if (!writer)
		return failed(&error);
	while (!wrong && fread(&event, sizeof(event), 1, stdin))
		wrong = !trace_write(writer, &event, &error);
	if (wrong)
		failed(&error);
	return !trace_finish(writer, "{}", &error) ? failed(&error) : wrong;
}

static int read_events(const char *path)
{
	struct trace_error error;
	struct trace_reader *reader = trace_open(path, &error);
	const struct trace_damage *damage;
	struct trace_event event;

	if (!reader)
		return failed(&error);
	while (trace_next(reader, &event))
		fwrite(&event, sizeof(event), 1, stdout);
	damage = trace_damage(reader);
	fprintf(stderr, "header %s summary %s blocks %llu bytes %llu cut %d\n", trace_header(reader),
		trace_summary(reader) ? trace_summary(reader) : "-",
		(unsigned long long)damage->blocks, (unsigned long long)damage->bytes, damage->cut);
	trace_close(reader);
	return 0;
}

int main(int count, char **words)
{
	if (count == 3 && !strcmp(words[1], "write"))
		return write_events(words[2]);
	if (count == 3 && !strcmp(words[1], "read"))
		return read_events(words[2]);
	fprintf(stderr, "usage: through write|read FILE\n");
	return 2;
}
