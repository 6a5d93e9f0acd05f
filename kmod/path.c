// SPDX-License-Identifier: GPL-2.0-only
/*
 * The DMA path as one translation unit: the backend, the engine, the DMA API and the functions
 * for batch-aware drivers.
 *
 * A map or an unmap costs little more than a few calls between files would, so the compiler
 * gets all files together and inlines across them. The order of the files matters only in that
 * inlined functions come first.
 */
#include "backend.c"
#include "../core/policy.c"
#include "../core/stats.c"
#include "../core/slot.c"
#include "../core/tree.c"
#include "../core/space.c"
#include "../core/partial.c"
#include "../core/block.c"
#include "../core/magazine.c"
#include "../core/pool.c"
#include "../core/batch.c"
#include "../core/flush.c"
#include "../core/stuck.c"
#include "../core/place.c"
#include "../core/map.c"
#include "../core/unmap.c"
#include "../core/tear.c"
#include "../core/engine.c"
#include "../core/leak_check.c"
#include "dma.c"
#include "copy.c"
#include "instances.c"
#include "driver.c"
