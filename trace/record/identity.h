/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * Identities of addresses: a permutation by a random key, which is forgotten with the recording.
 *
 * The number of the 2 MiB frame is permuted and the bits below are kept, so a recording shows that
 * memory is used again and which buffers are neighbours, and does not show where they are.
 */
#ifndef RECORD_IDENTITY_H
#define RECORD_IDENTITY_H

#include <stdbool.h>
#include <stdint.h>

#define IDENTITY_SHIFT 21 /* of a frame */

struct identity;

/* NULL if there is no random number or no memory. A raw identity keeps addresses as they are. */
struct identity *identity_new(bool raw);
void identity_free(struct identity *identity);

/* The page number, permuted, of a physical address; 0 only for address 0. */
uint64_t identity_page(struct identity *identity, uint64_t phys, unsigned int page_shift);

/* Identities of memory's pages are below this number. */
uint64_t identity_end(const struct identity *identity, unsigned int page_shift);

/* An address for devices that see physical addresses, permuted as the pages are. */
uint64_t identity_address(struct identity *identity, uint64_t address);

#endif
