// SPDX-License-Identifier: GPL-2.0-only
/*
 * Threads add to counters under the lock of lab/native/engine, for a time. Fails if an addition
 * is lost. Every thread also holds a second lock for some additions, as the engine does.
 */
#include <asm/prctl.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

#include "platform_native.h"

#define THREADS	4u

struct native_area *native_areas[NATIVE_CPUS];

static xs_lock_t outer NATIVE_LINE, inner NATIVE_LINE;
static u64 outer_count, inner_count;
static bool stop;

struct adder {
	pthread_t thread;
	struct native_area area;
	u64 outer;
	u64 inner;
};

static void *add(void *data)
{
	struct adder *adder = data;

	if (syscall(SYS_arch_prctl, ARCH_SET_GS, &adder->area))
		exit(2);
	while (!xs_load(&stop)) {
		xs_lock(&outer);
		outer_count++;
		if (++adder->outer % 3 == 0) {
			xs_lock(&inner);
			inner_count++;
			adder->inner++;
			xs_unlock(&inner);
		}
		xs_unlock(&outer);
		if (adder->outer % 3)
			continue;
		xs_lock(&inner);
		inner_count++;
		adder->inner++;
		xs_unlock(&inner);
	}
	return NULL;
}

int main(int count, char **words)
{
	static struct adder adders[THREADS];
	struct timespec time = { .tv_nsec = 1000000L * (count > 1 ? atoi(words[1]) : 0) };
	u64 outers = 0, inners = 0;

	for (u32 i = 0; i < THREADS; i++) {
		adders[i].area.id = i;
		if (pthread_create(&adders[i].thread, NULL, add, &adders[i]))
			return 2;
	}
	nanosleep(&time, NULL);
	xs_store(&stop, true);
	for (u32 i = 0; i < THREADS; i++) {
		pthread_join(adders[i].thread, NULL);
		outers += adders[i].outer;
		inners += adders[i].inner;
	}
	printf("%llu additions, %llu of them counted; %llu, %llu\n", (unsigned long long)outers,
	       (unsigned long long)outer_count, (unsigned long long)inners,
	       (unsigned long long)inner_count);
	return outers != outer_count || inners != inner_count || outer.word || inner.word;
}
