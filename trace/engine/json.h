/* SPDX-License-Identifier: GPL-2.0-only */
/* JSON of programs. The pairs of an object are printed to standard output, with their commas. */
#ifndef ENGINE_JSON_H
#define ENGINE_JSON_H

#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>

/* Print text of any characters as a string. */
void json_string(FILE *to, const char *text);

/* Print the name of a pair, after a comma unless the pair is the first of its object. */
void json_key(const char *name);

/* Print a pair. */
void json_number(const char *name, uint64_t value);
void json_text(const char *name, const char *value);
void json_truth(const char *name, bool value);

/* Begin and end an object that is the value of a pair. */
void json_open(const char *name);
void json_close(void);

#endif
