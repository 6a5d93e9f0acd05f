// SPDX-License-Identifier: GPL-2.0-only
/* splitmix64; see draw.h. */
#include <math.h>

#include "draw.h"

static u64 state;

void draw_seed(u64 seed)
{
	state = seed;
}

u64 draw_bits(void)
{
	u64 bits = state += 0x9e3779b97f4a7c15;

	bits = (bits ^ bits >> 30) * 0xbf58476d1ce4e5b9;
	bits = (bits ^ bits >> 27) * 0x94d049bb133111eb;
	return bits ^ bits >> 31;
}

u32 draw(u32 bound)
{
	return (u32)((draw_bits() >> 32) * bound >> 32);
}

u64 draw_exponential(u64 mean)
{
	double unit = (double)((draw_bits() >> 11) + 1) / 9007199254740992.0;

	return 1 + (u64)(-log(unit) * (double)mean);
}
