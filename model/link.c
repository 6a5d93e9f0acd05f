// SPDX-License-Identifier: GPL-2.0-only
/* See link.h. */
#include "link.h"
#include "model.h"
#include "walk.h"

#define PAYLOAD_BYTES	256u	/* of a PCIe packet */

/*
 * struct write - a write under way
 * @end_ns:	time at which the credits are free again
 * @limit:	what has taken most of the time
 */
struct write {
	u64 end_ns;
	u64 bytes;
	enum limit limit;
};

/* A ring of the writes under way, in the order of their begins and ends. */
static struct write *writes;
static u64 room, first, count, used;

static u64 link_free_ns, visible_ns;
static enum limit link_limit;	/* why the link is not free earlier */

void link_init(void)
{
	/* Nearly all writes have 64 bytes or more; one that finds no room waits for the first. */
	room = model.params.pcie_credit_bytes / 64 + 64;
	writes = model_new(room, sizeof(*writes));
	first = count = used = link_free_ns = visible_ns = 0;
}

static void retire(u64 ns)
{
	while (count && writes[first].end_ns <= ns) {
		used -= writes[first].bytes;
		first = (first + 1) % room;
		count--;
	}
}

/*
 * Returns the time, @ns or later, at which @bytes of credits are free, if no further write begins;
 * sets @limit if that is later.
 */
static u64 credits_at(u64 ns, u64 bytes, enum limit *limit)
{
	u64 at = first, left = count, in_use = used;

	while (in_use + bytes > model.params.pcie_credit_bytes && left) {
		if (writes[at].end_ns > ns) {
			ns = writes[at].end_ns;
			*limit = writes[at].limit;
		}
		in_use -= writes[at].bytes;
		at = (at + 1) % room;
		left--;
	}
	return ns;
}

static u64 first_bytes(u64 bytes)
{
	return bytes < PAYLOAD_BYTES ? bytes : PAYLOAD_BYTES;
}

u64 link_ready_at(u64 ns, u64 bytes, enum limit *limit)
{
	retire(ns);
	if (link_free_ns > ns) {
		*limit = link_limit;
		ns = link_free_ns;
	}
	if (count == room && writes[first].end_ns > ns) {
		*limit = writes[first].limit;
		ns = writes[first].end_ns;
	}
	return credits_at(ns, first_bytes(bytes), limit);
}

static u64 later(u64 a, u64 b)
{
	return a > b ? a : b;
}

/* Returns what has kept a write from being visible at @end, when all of it has arrived. */
static enum limit limit_of(struct translation found, u64 arrival, u64 end)
{
	if (found.ready_ns > visible_ns && found.ready_ns > end)
		return found.stalled_ns * 2 > found.ready_ns - arrival ? LIMIT_QUEUE : LIMIT_WALKS;
	if (visible_ns > end && count)
		return writes[(first + count - 1) % room].limit;
	return LIMIT_PCIE;
}

u64 link_write(u64 ns, u64 page, u64 bytes)
{
	u64 arrival = ns + model_bytes_ns(first_bytes(bytes), model.params.pcie_mbps), end;
	struct translation found = { arrival, 0 };
	enum limit limit;

	if (link_ready_at(ns, bytes, &limit) > ns)
		model_broken("a write begins without credits, or before the write before has ended");
	link_limit = LIMIT_PCIE;
	end = credits_at(ns + model_bytes_ns(bytes, model.params.pcie_mbps), bytes, &link_limit);
	link_free_ns = end;
	if (model.params.side != SIDE_OFF)
		found = walk_at(arrival, page);
	limit = limit_of(found, arrival, end);
	visible_ns = later(later(visible_ns, found.ready_ns), end);
	writes[(first + count++) % room] = (struct write) {
		visible_ns + model.params.pcie_latency_ns, bytes, limit
	};
	used += bytes;
	return visible_ns + model.params.pcie_latency_ns;
}

u64 link_read(u64 ns, u64 page)
{
	if (model.params.side != SIDE_OFF)
		ns = walk_at(ns, page).ready_ns;
	return ns + model.params.pcie_latency_ns;
}
