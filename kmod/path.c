// SPDX-License-Identifier: GPL-2.0-only
/*
 * The DMA path as one translation unit: the backend (domain/), the engine (core/), and the DMA
 * API with the functions for batch-aware drivers (dma/).
 *
 * A map or an unmap costs little more than a few calls between files would, so the compiler
 * gets all files together and inlines across them. Each file is a part of this unit, and may use
 * the static functions of the files before it, never of a file behind it. The engine calls the
 * backend through the operations in domain/backend.c.
 */
#include "domain/sections.c"
#include "domain/no_domain.c"
#include "domain/invalidate.c"
#include "domain/prune.c"
#include "domain/direct.c"
#include "domain/remove.c"
#include "domain/map.c"
#include "domain/chunk.c"
#include "domain/switch.c"
#include "domain/retry.c"
#include "domain/events.c"
#include "domain/backend.c"
#include "../core/parts.h"
#include "dma/instance.c"
#include "dma/streaming.c"
#include "dma/scatterlist.c"
#include "dma/coherent.c"
#include "dma/bounce.c"
#include "dma/aware.c"
#include "dma/ops.c"
