/* SPDX-License-Identifier: GPL-2.0 OR MIT */
/*
 * Unmaps that do not match a mapping: of a wrong size, from the middle, of several
 * mappings.
 *
 * The driver takes the pages that it named for unmapped, so the device must not
 * reach them when the call returns. Each mapping that has some of these pages is
 * torn: the call claims it as its right unmap would, keeps a record of it, and then
 * removes and invalidates the pages at once, under every policy. The device keeps
 * the other pages of the mapping.
 *
 * The IOVAs of a torn mapping stay in use until the driver has named all of its
 * pages, in one call or in several, or has unmapped it as it was mapped. Then the
 * record is done, and xs_engine_mend() gives the IOVAs back. It waits for all calls
 * that run: one of them may still be mapping these pages, and a driver can unmap
 * what another one is about to map. It removes all of them again after that.
 *
 * A mapping of which the backend could not remove the pages is stuck at once (stuck.h), and so
 * is one that there is no memory to keep a record of, although it is removed:
 * xs_engine_retry() waits for all calls, too.
 *
 * The claim decides between the calls: when a mapping is torn, its slots are vacant,
 * so no unmap takes it on the usual way. An unmap that finds no mapping comes here,
 * waits for the lock, and finds the record.
 */
#ifndef XSMMU_TEAR_H
#define XSMMU_TEAR_H

#include <xsmmu/engine.h>

/*
 * struct xs_torn - a torn mapping; guarded by the lock of struct xs_tears
 * @next:	in the list of the leaf of its first page
 * @next_done:	in the list of those that are done
 * @page, @pages: the mapping
 * @left:	pages that no unmap has named: the device reaches them, unless @gone
 * @removing:	calls that are removing pages of it
 * @gone:	no page of it is left that its driver takes for mapped, or it is removed
 * @meant:	an unmap began in it, so its driver takes it for unmapped
 * @done:	in that list
 * @removed:	the backend has removed all of it
 * @failed:	the backend could not remove some of it, so it is stuck (stuck.h)
 * @named:	a bit for each page that an unmap has named
 */
struct xs_torn {
	struct xs_torn *next;
	struct xs_torn *next_done;
	u64 page;
	u32 pages;
	u32 left;
	u32 removing;
	bool meant;
	bool done;
	bool gone;
	bool failed;
	bool removed;
	u64 named[];
};

/*
 * A mapping that was found.
 * @torn:	its record, NULL if it has none: then it may be gone by now
 */
struct xs_found {
	u64 page;
	u32 pages;
	struct xs_torn *torn;
};

/*
 * The first mapping that begins in @leaf and has pages of [@from, @end); one of more
 * than a block only if it begins at or after the block of @from. Of an engine at
 * rest, or with the lock of the records held.
 */
bool xs_leaf_mapping(struct xs_leaf *leaf, u64 from, u64 end,
		  struct xs_found *found);

/* Free the records of @leaf. */
void xs_leaf_free_torn(struct xs_tree *tree, struct xs_leaf *leaf);

/* Free the records that no leaf has, of an engine that is about to go. */
void xs_tears_free(struct xs_engine *engine);

/*
 * An unmap of @pages pages at @iova has found no mapping like that. When it returns,
 * the device reaches none of those pages that were mapped. True: they are one torn
 * mapping, or a mapping after all, so nothing was wrong with the unmap; else it is
 * counted and the backend is told. False also if the backend could not remove them. Any
 * context.
 */
bool xs_tear(struct xs_engine *engine, u64 iova, u32 pages);

#endif
