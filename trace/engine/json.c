// SPDX-License-Identifier: GPL-2.0-only
/* See json.h. */
#include <inttypes.h>

#include "json.h"

static bool is_first = true;

void json_string(FILE *to, const char *text)
{
	fputc('"', to);
	for (; *text; text++) {
		if (*text == '"' || *text == '\\')
			fprintf(to, "\\%c", *text);
		else if ((unsigned char)*text < ' ')
			fprintf(to, "\\u%04x", (unsigned int)*text);
		else
			fputc(*text, to);
	}
	fputc('"', to);
}

void json_key(const char *name)
{
	printf(is_first ? "\"%s\": " : ", \"%s\": ", name);
	is_first = false;
}

void json_number(const char *name, uint64_t value)
{
	json_key(name);
	printf("%" PRIu64, value);
}

void json_text(const char *name, const char *value)
{
	json_key(name);
	json_string(stdout, value);
}

void json_truth(const char *name, bool value)
{
	json_key(name);
	fputs(value ? "true" : "false", stdout);
}

void json_open(const char *name)
{
	json_key(name);
	putchar('{');
	is_first = true;
}

void json_close(void)
{
	putchar('}');
	is_first = false;
}
