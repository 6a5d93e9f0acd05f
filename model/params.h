/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * The parameters of a point, as read from standard input. parameters.toml has the unit, the range
 * and the meaning of each; tests/python/test_model.py compares that list with this one.
 */
#ifndef MODEL_PARAMS_H
#define MODEL_PARAMS_H

#include <xsmmu/needs.h>

/* P(name, lowest, highest) */
#define MODEL_NUMBERS(P) \
	/* machine */ \
	P(cores, 1, 256) \
	P(table_read_ns, 1, 10000) \
	P(walkers, 1, 64) \
	P(serial_table, 0, 1) \
	P(iotlb_entries, 8, 65536) \
	P(iotlb_ways, 1, 64) \
	P(l1_entries, 1, 4096) \
	P(l2_entries, 1, 4096) \
	P(l3_entries, 1, 4096) \
	P(pcie_mbps, 100, 4000000) \
	P(pcie_latency_ns, 0, 100000) \
	P(pcie_credit_bytes, 512, 16777216) \
	P(pcie_read_bytes, 8192, 16777216) \
	P(link_mbps, 10, 1600000) \
	P(command_wait_ns, 0, 1000000) \
	P(command_busy_ns, 0, 1000000) \
	P(command_stall_ns, 0, 1000000) \
	P(command_restarts, 0, 1) \
	P(lock_hold_ns, 0, 1000000) \
	P(lock_waiters, 0, 1024) \
	P(lock_waiter_ns, 0, 1000000) \
	P(aged_pages, 0, 1000000) \
	P(kernel_map_ns, 0, 100000) \
	P(kernel_unmap_ns, 0, 100000) \
	P(engine_map_ns, 0, 100000) \
	P(engine_unmap_ns, 0, 100000) \
	P(direct_map_ns, 0, 100000) \
	P(direct_unmap_ns, 0, 100000) \
	P(entry_ns, 0, 10000) \
	P(flush_ns, 0, 100000) \
	P(packet_ns, 0, 100000) \
	P(gro_ns, 0, 100000) \
	P(copy_page_ns, 0, 100000) \
	P(ack_ns, 0, 100000) \
	P(app_read_ns, 0, 1000000) \
	P(page_ns, 0, 100000) \
	P(poll_ns, 0, 100000) \
	P(map_lock_ns, 0, 100000) \
	P(io_submit_ns, 0, 1000000) \
	P(io_complete_ns, 0, 1000000) \
	P(drives, 1, 256) \
	P(drive_parallel, 1, 65536) \
	P(drive_service_ns, 100, 100000000) \
	P(drive_mbps, 100, 4000000) \
	P(drive_polls, 0, 1) \
	P(softirq_us, 1, 100000) \
	P(app_slice_us, 1, 100000) \
	/* driver */ \
	P(queues, 1, 256) \
	P(ring, 1, 65536) \
	P(descriptor_packets, 1, 1024) \
	P(descriptor_pages, 1, 64) \
	P(stride_bytes, 1, 16384) \
	P(cache_pages, 0, 65536) \
	P(nic_buffer_bytes, 4096, 67108864) \
	P(moderation_ns, 0, 1000000) \
	P(budget, 1, 1024) \
	P(control_pages, 1, 1024) \
	P(send_together, 0, 255) \
	P(hz, 24, 10000) \
	/* workload */ \
	P(flows, 0, 4096) \
	P(mtu_bytes, 576, 65536) \
	P(off_mbps, 0, 1600000) \
	P(base_rtt_ns, 100, 100000000) \
	P(initial_window, 1, 4096) \
	P(loss_permille, 100, 990) \
	P(window_bytes, 4096, 67108864) \
	P(read_bytes, 1, 67108864) \
	P(gro_bytes, 1, 1048576) \
	P(request_bytes, 0, 1048576) \
	P(request_ns, 0, 10000000) \
	P(send_flows, 0, 4096) \
	P(send_bytes, 4096, 65536) \
	P(fragment_bytes, 4096, 65536) \
	P(jobs, 0, 1024) \
	P(depth, 1, 4096) \
	P(block_bytes, 512, 131072)

/* The driver's recycling; see driver.h. */
enum model_driver {
	DRIVER_NONE,
	DRIVER_MLX5_CACHE,
	DRIVER_PAGE_POOL,
	DRIVER_HALF_PAGES,
	DRIVER_FANDS,
	DRIVER_XSMMU,
	DRIVER_LARGE_PAGES,
	DRIVER_COUNT
};

/* What becomes of walk caches at a page-selective command. */
enum model_hint { HINT_DROPPED, HINT_KEPT, HINT_COUNT };

/* What carries out the calls of the DMA API; see dma.h. */
enum model_side { SIDE_OFF, SIDE_KERNEL_STRICT, SIDE_KERNEL_LAZY, SIDE_ENGINE };

struct xs_policy;

/*
 * struct model_params - a point
 * @policy_name: as given
 * @side, @policy: what the name means; @policy is NULL but for SIDE_ENGINE
 * @direct:	the engine writes page tables itself
 * @aware:	the driver flushes once at the end of each poll
 * @seed:	of everything that is drawn
 * @time_ms:	time that is simulated
 */
struct model_params {
#define MODEL_FIELD(name, lowest, highest) u64 name;
	MODEL_NUMBERS(MODEL_FIELD)
#undef MODEL_FIELD
	enum model_driver driver;
	enum model_hint hint;
	const char *policy_name;
	enum model_side side;
	const struct xs_policy *policy;
	bool direct;
	bool aware;
	u64 seed;
	u64 time_ms;
};

/**
 * params_read - read a point from standard input
 * @params: the point
 *
 * A line is `name value`; empty lines and lines that begin with # do not count. Each parameter must
 * be there once. On an error prints a line on standard error and exits with status 2.
 */
void params_read(struct model_params *params);

#endif
