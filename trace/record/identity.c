// SPDX-License-Identifier: GPL-2.0-only
/*
 * A Feistel network of four rounds whose round function is SipHash-2-4, over the frame numbers
 * below 2^n for memory, and over all others for the rest: a value is permuted again until it is in
 * its range (Black and Rogaway, "Ciphers with Arbitrary Finite Domains"). Small numbers stay small,
 * which keeps the file small.
 */
#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/random.h>

#include "identity.h"

#define ROUNDS 4
#define BITS_ALL 40 /* of any frame number: addresses are below 2^61; even */
#define CACHE 4096  /* frames; a power of two */

/**
 * struct identity - a permutation
 * @raw: nothing is permuted
 * @key: random
 * @memory_bits: the frame numbers of memory are below 2 to this power
 * @cached: frame numbers plus 1 with known results
 * @results: their results
 */
struct identity {
	bool raw;
	uint64_t key[2];
	unsigned int memory_bits;
	uint64_t cached[CACHE];
	uint64_t results[CACHE];
};

static uint64_t rotated(uint64_t value, unsigned int bits)
{
	return value << bits | value >> (64 - bits);
}

static void sip_round(uint64_t *v)
{
	v[0] += v[1];
	v[2] += v[3];
	v[1] = rotated(v[1], 13) ^ v[0];
	v[3] = rotated(v[3], 16) ^ v[2];
	v[0] = rotated(v[0], 32);
	v[2] += v[1];
	v[0] += v[3];
	v[1] = rotated(v[1], 17) ^ v[2];
	v[3] = rotated(v[3], 21) ^ v[0];
	v[2] = rotated(v[2], 32);
}

/* SipHash-2-4 (Aumasson and Bernstein) of one word of 8 bytes. */
static uint64_t sip_hash(const uint64_t *key, uint64_t word)
{
	uint64_t v[4] = {
		key[0] ^ 0x736f6d6570736575,
		key[1] ^ 0x646f72616e646f6d,
		key[0] ^ 0x6c7967656e657261,
		key[1] ^ 0x7465646279746573,
	};
	const uint64_t words[2] = { word, 8ull << 56 };

	for (int at = 0; at < 2; at++) {
		v[3] ^= words[at];
		sip_round(v);
		sip_round(v);
		v[0] ^= words[at];
	}
	v[2] ^= 0xff;
	for (int at = 0; at < 4; at++)
		sip_round(v);
	return v[0] ^ v[1] ^ v[2] ^ v[3];
}

/* A permutation of the numbers of an even number of bits. */
static uint64_t feistel(const struct identity *identity, uint64_t value, unsigned int bits)
{
	unsigned int half = bits / 2;
	uint64_t mask = (1ull << half) - 1;
	uint64_t left = value >> half, right = value & mask;

	for (uint64_t at = 0; at < ROUNDS; at++) {
		uint64_t next =
			left ^
			(sip_hash(identity->key, at << 56 | (uint64_t)bits << 48 | right) & mask);

		left = right;
		right = next;
	}
	return left << half | right;
}

static uint64_t permuted(const struct identity *identity, uint64_t frame)
{
	uint64_t end = 1ull << identity->memory_bits;
	bool in_memory = frame < end;
	unsigned int bits = in_memory ? (identity->memory_bits + 1) & ~1u : BITS_ALL;

	do {
		frame = feistel(identity, frame, bits);
	} while ((frame < end) != in_memory);
	return frame;
}

static uint64_t frame_of(struct identity *identity, uint64_t frame)
{
	uint64_t *cached = &identity->cached[frame % CACHE],
		 *result = &identity->results[frame % CACHE];

	if (*cached != frame + 1) {
		*result = permuted(identity, frame);
		*cached = frame + 1;
	}
	return *result;
}

/* The end of the memory that the kernel lists, or 2^40. */
static uint64_t memory_end(void)
{
	FILE *file = fopen("/proc/iomem", "r");
	uint64_t begin, last, end = 0;
	char line[256];

	while (file && fgets(line, sizeof(line), file)) {
		if (line[0] != ' ' && sscanf(line, "%" SCNx64 "-%" SCNx64, &begin, &last) == 2 &&
		    strstr(line, "System RAM") && last > end)
			end = last + 1;
	}
	if (file)
		fclose(file);
	return end ? end : 1ull << 40;
}

struct identity *identity_new(bool raw)
{
	struct identity *identity = calloc(1, sizeof(*identity));
	uint64_t last = (memory_end() - 1) >> IDENTITY_SHIFT;

	if (!identity)
		return NULL;
	identity->raw = raw;
	identity->memory_bits = last ? 64 - __builtin_clzll(last) : 1;
	if (getrandom(identity->key, sizeof(identity->key), 0) == sizeof(identity->key))
		return identity;
	free(identity);
	return NULL;
}

void identity_free(struct identity *identity)
{
	if (identity)
		explicit_bzero(identity, sizeof(*identity));
	free(identity);
}

uint64_t identity_address(struct identity *identity, uint64_t address)
{
	uint64_t below = address & ((1ull << IDENTITY_SHIFT) - 1);

	if (identity->raw || !address || address >> IDENTITY_SHIFT >> BITS_ALL)
		return address;
	/* One more, so that no address but 0 becomes 0. */
	return ((frame_of(identity, address >> IDENTITY_SHIFT) + 1) << IDENTITY_SHIFT) | below;
}

uint64_t identity_page(struct identity *identity, uint64_t phys, unsigned int page_shift)
{
	return identity_address(identity, phys) >> page_shift;
}

uint64_t identity_end(const struct identity *identity, unsigned int page_shift)
{
	return ((1ull << identity->memory_bits) + 1) << (IDENTITY_SHIFT - page_shift);
}
