/* SPDX-License-Identifier: GPL-2.0-only */
/* Tracepoints xsmmu:map, xsmmu:unmap and xsmmu:flush. */
#undef TRACE_SYSTEM
#define TRACE_SYSTEM xsmmu

#if !defined(XSMMU_TRACE_H) || defined(TRACE_HEADER_MULTI_READ)
#define XSMMU_TRACE_H

#include <linux/device.h>
#include <linux/tracepoint.h>

#include <xsmmu/policy.h>

#include "compat/compat.h"

DECLARE_EVENT_CLASS(xsmmu_mapping,
	TP_PROTO(struct device *dev, u64 iova, u32 pages),
	TP_ARGS(dev, iova, pages),
	TP_STRUCT__entry(
		__string(device, dev_name(dev))
		__field(u64, iova)
		__field(u32, pages)
	),
	TP_fast_assign(
		xs_assign_str(device, dev_name(dev));
		__entry->iova = iova;
		__entry->pages = pages;
	),
	TP_printk("device=%s iova=0x%llx pages=%u", __get_str(device),
		  __entry->iova, __entry->pages)
);

DEFINE_EVENT(xsmmu_mapping, map,
	TP_PROTO(struct device *dev, u64 iova, u32 pages),
	TP_ARGS(dev, iova, pages));

DEFINE_EVENT(xsmmu_mapping, unmap,
	TP_PROTO(struct device *dev, u64 iova, u32 pages),
	TP_ARGS(dev, iova, pages));

TRACE_EVENT(flush,
	TP_PROTO(int group, u32 cause, u32 pages, u32 ranges, u32 page_commands,
		 u32 domain_commands, u64 oldest_ns),
	TP_ARGS(group, cause, pages, ranges, page_commands, domain_commands,
		oldest_ns),
	TP_STRUCT__entry(
		__field(int, group)
		__field(u32, cause)
		__field(u32, pages)
		__field(u32, ranges)
		__field(u32, page_commands)
		__field(u32, domain_commands)
		__field(u64, oldest_ns)
	),
	TP_fast_assign(
		__entry->group = group;
		__entry->cause = cause;
		__entry->pages = pages;
		__entry->ranges = ranges;
		__entry->page_commands = page_commands;
		__entry->domain_commands = domain_commands;
		__entry->oldest_ns = oldest_ns;
	),
	TP_printk("group=%d cause=%s pages=%u ranges=%u page_commands=%u domain_commands=%u oldest_ns=%llu",
		  __entry->group, xs_flush_name(__entry->cause),
		  __entry->pages, __entry->ranges, __entry->page_commands,
		  __entry->domain_commands, __entry->oldest_ns)
);

#endif

#undef TRACE_INCLUDE_PATH
#define TRACE_INCLUDE_PATH .
#undef TRACE_INCLUDE_FILE
#define TRACE_INCLUDE_FILE trace
#include <trace/define_trace.h>
