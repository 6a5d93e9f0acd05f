/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * Small numbers for the IOVA pages of the checked world: a block of 64 pages has one while some of
 * its pages are in use, so that a page keeps its place in its block. A page of the identity window
 * is numbered by its folio.
 */
#ifndef REPLAY_NUMBERS_H
#define REPLAY_NUMBERS_H

#include <xsmmu/needs.h>

/* @window: first number of the identity window; 0: there is none. */
void numbers_init(u32 window);

/* The next pages to be used are those of a mapping, whose blocks need numbers in a row. */
void numbers_expect(u32 pages);

/* Returns the number of a page; 0 if its block has none. @folio: its memory, in the window. */
u32 number_of(u64 page, u32 folio);
u32 number_in_window(u32 folio);

/* @pages pages of a block, from number @number on, begin or end to be in use. */
u32 numbers_use(u64 page, u32 pages);
void numbers_end(u64 page, u32 pages);

#endif
