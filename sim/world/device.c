// SPDX-License-Identifier: GPL-2.0-only
/*
 * Devices. A device uses mapped pages, tries pages unmapped a moment ago (as an attacker or a
 * slow device would), and tries random addresses.
 */
#include "sim.h"

static u32 target(void)
{
	u32 percent = sim_draw(100);
	const struct sim_mapping *mapping;

	if (percent < sim.config.attack && sim.stale_at)
		return sim.stale[sim_draw(sim.stale_at < SIM_STALE ? sim.stale_at : SIM_STALE)];
	if (percent % 4 && sim.live_count) {
		mapping = &sim.live[(sim.live_first + sim_draw(sim.live_count)) % SIM_MAPPINGS];
		return sim_page_of(mapping->iova) + sim_draw(mapping->pages);
	}
	return sim_draw(sim_end_page());
}

void device_note_stale(u32 page)
{
	sim.stale[sim.stale_at++ % SIM_STALE] = page;
}

void device_look(void)
{
	u32 page = target();
	u32 device = sim_draw(sim.config.devices);

	cache_access(device, page, sim_draw(2));
}
