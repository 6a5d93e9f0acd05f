/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * Numbered records, as many as are in use at a time. A record keeps its number while it is taken;
 * its address changes when another is taken. The record that came back last is taken first.
 */
#ifndef MODEL_RECORDS_H
#define MODEL_RECORDS_H

#include <stddef.h>

#include <xsmmu/needs.h>

#define RECORD_NONE	0u	/* no record */

/*
 * struct records - records of a type
 * @memory:	by number, from 1 on
 * @spare:	numbers of records that came back; a stack
 * @count:	records so far; @room: for how many there is memory
 */
struct records {
	void *memory;
	u32 *spare;
	u32 count, room, spare_count;
};

/* Returns the number of a record of @bytes bytes, which has any contents. */
u32 records_take(struct records *all, size_t bytes);

void records_give(struct records *all, u32 number);

#endif
