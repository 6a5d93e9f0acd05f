// SPDX-License-Identifier: GPL-2.0-only
/* The platform's state, and a program's CPUs; see platform_native.h. */
#define _GNU_SOURCE
#include <asm/prctl.h>
#include <errno.h>
#include <linux/membarrier.h>
#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "backend.h"

struct native_area *native_areas[NATIVE_CPUS];
struct native_page *native_pages;
u8 *native_memory;

void native_fail(const char *text)
{
	fprintf(stderr, "%s: %s\n", program_invocation_short_name, text);
	_exit(1);
}

void native_order_all(void)
{
	/* Every running thread executes a full barrier, so quiesce() sees who is inside. */
	if (syscall(SYS_membarrier, MEMBARRIER_CMD_PRIVATE_EXPEDITED, 0, 0))
		native_fail("the kernel refuses membarrier()");
}

void native_make_cpu(u32 id)
{
	/* Without effect after the first time. */
	syscall(SYS_membarrier, MEMBARRIER_CMD_REGISTER_PRIVATE_EXPEDITED, 0, 0);
	native_areas[id] = aligned_alloc(4096, sizeof(**native_areas));
	if (!native_areas[id])
		native_fail("no memory");
	*native_areas[id] = (struct native_area) { .id = id, .self = native_areas[id] };
}

void native_become(u32 id)
{
	if (syscall(SYS_arch_prctl, ARCH_SET_GS, native_areas[id]))
		native_fail("the kernel refuses arch_prctl(ARCH_SET_GS)");
}

void native_pin(int cpu)
{
	char text[64];
	cpu_set_t *set = CPU_ALLOC((size_t)cpu + 1);
	size_t bytes = CPU_ALLOC_SIZE((size_t)cpu + 1);

	CPU_ZERO_S(bytes, set);
	CPU_SET_S((size_t)cpu, bytes, set);
	if (sched_setaffinity(0, bytes, set)) {
		snprintf(text, sizeof(text), "this process may not run on CPU %d", cpu);
		native_fail(text);
	}
	CPU_FREE(set);
}
