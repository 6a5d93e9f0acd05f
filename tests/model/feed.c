// SPDX-License-Identifier: GPL-2.0-only
/*
 * Feeds accesses to the model's translation and link, for comparison with other programs. Reads
 * numbers from standard input: iotlb_entries, iotlb_ways, l1_entries, l2_entries, l3_entries,
 * walkers, table_read_ns, pcie_mbps, pcie_latency_ns, pcie_credit_bytes, 1 with an IOMMU; then
 * commands, each of a letter and its numbers:
 *
 *	a PAGE			access; prints the reads of tables, 0 for a hit
 *	d FIRST LAST		drop translations
 *	t			drop all entries of walk caches
 *	w PAGE BYTES		write as soon as the link is ready; prints the time of its begin and
 *				the time at which the data are visible
 */
#include <stdio.h>
#include <stdlib.h>

#include "count.h"
#include "link.h"
#include "model.h"
#include "walk.h"

static u64 number(void)
{
	unsigned long long found;

	if (scanf("%llu", &found) != 1)
		exit(1);
	return found;
}

static void set_up(void)
{
	struct model_params *params = &model.params;

	params->iotlb_entries = number();
	params->iotlb_ways = number();
	params->l1_entries = number();
	params->l2_entries = number();
	params->l3_entries = number();
	params->walkers = number();
	params->table_read_ns = number();
	params->pcie_mbps = number();
	params->pcie_latency_ns = number();
	params->pcie_credit_bytes = number();
	params->side = number() ? SIDE_KERNEL_STRICT : SIDE_OFF;
	counts_reset();
	walk_init();
	link_init();
}

static void access_page(u64 page)
{
	u64 before = counts.reads;

	model.now_ns = walk_at(model.now_ns, page).ready_ns;
	printf("%llu\n", (unsigned long long)(counts.reads - before));
}

static void write_page(u64 page, u64 bytes)
{
	enum limit limit;

	model.now_ns = link_ready_at(model.now_ns, bytes, &limit);
	printf("%llu ", (unsigned long long)model.now_ns);
	printf("%llu\n", (unsigned long long)link_write(model.now_ns, page, bytes));
}

int main(void)
{
	char command;

	set_up();
	while (scanf(" %c", &command) == 1) {
		u64 first = command == 't' ? 0 : number();

		if (command == 'a')
			access_page(first);
		else if (command == 'd')
			walk_drop(first, number());
		else if (command == 't')
			walk_drop_tables();
		else if (command == 'w')
			write_page(first, number());
		else
			return 1;
	}
	return 0;
}
