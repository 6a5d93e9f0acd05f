/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * SSDs behind the IOMMU, and jobs that keep requests on them. A job runs on a core, keeps `depth`
 * requests of block_bytes under way, and takes the drives in turn. For each request its core maps
 * the block as a range and rings the doorbell; after the completion it unmaps the range. A driver
 * that is batch-aware, or with send_together below the number of completions that it finds, flushes
 * once for all of them before any is handed on (CLAIMS A, xSMMU's NVMe path).
 *
 * A drive serves drive_parallel requests at a time, each in drive_service_ns, give or take a
 * quarter. It reads a command and writes a completion in rings of the core, and moves the block
 * page by page, in order, at drive_mbps; all drives share the bridge's pcie_mbps and the IOMMU. A
 * completion raises an interrupt, after moderation_ns, if the core has none to handle; with
 * drive_polls the core looks for completions itself.
 */
#ifndef MODEL_DRIVE_H
#define MODEL_DRIVE_H

#include <xsmmu/needs.h>

void drive_init(void);

/* Map the rings, before the allocator's IOVAs are aged. */
void drive_map_rings(void);

/* A drive begins with the next request; a request is served; a core looks for work. */
void drive_next(u32 drive);
void drive_served(u32 request);
void drive_core(u32 core);

#endif
