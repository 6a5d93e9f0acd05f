/* SPDX-License-Identifier: GPL-2.0 OR MIT */
/*
 * All files of the engine, for a translation unit that contains the engine. A file may use the
 * static functions of the files before it.
 */
#include "policy.c"
#include "stats.c"
#include "slot.c"
#include "tree.c"
#include "space.c"
#include "partial.c"
#include "block.c"
#include "magazine.c"
#include "pool.c"
#include "batch.c"
#include "flush.c"
#include "stuck.c"
#include "place.c"
#include "identity.c"
#include "map.c"
#include "unmap.c"
#include "tear.c"
#include "engine.c"
#include "leak_check.c"
