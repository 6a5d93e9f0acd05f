/* SPDX-License-Identifier: GPL-2.0 OR MIT */
/*
 * Unmaps that match no mapping: unmaps of a wrong size, from the middle of a mapping, or of
 * several mappings.
 *
 * The driver takes the named pages for unmapped, so the device must not reach the pages when
 * the call returns. Each mapping with a named page is torn: the call claims the mapping as the
 * right unmap would, keeps a record of the mapping, and then removes and invalidates the named
 * pages at once, under every policy. The device keeps the other pages of the mapping.
 *
 * The IOVAs of a torn mapping stay in use until the driver has named all pages, in a single
 * call or in several calls, or has unmapped the mapping in the right way. Then the record is
 * done, and xs_engine_mend() gives the IOVAs back. xs_engine_mend() first waits for all running
 * calls: a call may still be mapping the pages, since a driver can unmap pages that another
 * driver is about to map. After the wait xs_engine_mend() removes all pages again.
 *
 * A mapping becomes stuck at once (stuck.h) if the backend could not remove its pages. A
 * mapping without memory for a record becomes stuck too, although it is removed:
 * xs_engine_retry() also waits for all calls.
 *
 * The claim decides between calls: the slots of a torn mapping are vacant, so no unmap takes
 * the mapping on the usual path. An unmap that finds no mapping comes here, waits for the lock,
 * and finds the record.
 */
#ifndef XSMMU_TEAR_H
#define XSMMU_TEAR_H

#include <xsmmu/engine.h>

/**
 * struct xs_torn - record of a torn mapping
 * @next: in the list of the leaf of the first page
 * @next_done: in the list of done records
 * @page: first page of the mapping
 * @pages: size of the mapping
 * @unnamed: pages that no unmap has named; the device reaches the pages unless @gone
 * @removing: calls that are removing pages of the mapping
 * @meant: an unmap began in the mapping, or continued from the mapping just before: the driver
 *   takes the mapping for unmapped
 * @done: the record is in the list of done records
 * @gone: all of the mapping is removed, or no page is left that the driver takes for mapped
 * @failed: the backend could not remove some pages, so the mapping is stuck (stuck.h)
 * @removed: the backend has removed the whole mapping
 * @named: a bit for each page that an unmap has named
 *
 * The lock of struct xs_tears guards all members.
 */
struct xs_torn {
	struct xs_torn *next;
	struct xs_torn *next_done;
	u64 page;
	u32 pages;
	u32 unnamed;
	u32 removing;
	bool meant;
	bool done;
	bool gone;
	bool failed;
	bool removed;
	u64 named[];
};

/**
 * struct xs_found - a mapping that a search has found
 * @page: first page
 * @pages: size of the mapping
 * @torn: record of the mapping; NULL without a record: another call may have unmapped the
 *   mapping since
 */
struct xs_found {
	u64 page;
	u32 pages;
	struct xs_torn *torn;
};

/**
 * xs_leaf_mapping - find the first mapping of a leaf that has pages of a range
 * @leaf: leaf
 * @from: first page of the range
 * @end: end of the range, in pages
 * @found: result
 *
 * Finds a mapping larger than a block only if the mapping begins at or after the block of
 * @from.
 *
 * Context: lock of struct xs_tears, or engine at rest.
 * Return: false if there is no such mapping.
 */
bool xs_leaf_mapping(struct xs_leaf *leaf, u64 from, u64 end,
		  struct xs_found *found);

/**
 * xs_leaf_free_torn - free the records of a leaf
 * @tree: tree
 * @leaf: detached leaf
 *
 * Context: any that the backend's free() allows.
 */
void xs_leaf_free_torn(struct xs_tree *tree, struct xs_leaf *leaf);

/**
 * xs_tears_free - free the records that are in no leaf's list
 * @engine: engine that is about to be destroyed
 *
 * Context: no other call runs.
 */
void xs_tears_free(struct xs_engine *engine);

/**
 * xs_tear - unmap pages for which no matching mapping was found
 * @engine: engine
 * @iova: start in bytes
 * @pages: number of pages
 *
 * On return the device reaches none of the named pages that were mapped, but those of the identity
 * window that have other mappings. A bad unmap is counted, and the backend is told. If some named
 * pages are not mapped, the batches of all CPUs are flushed, because an earlier unmap of those
 * pages may be deferred; the time grows with the number of CPUs.
 *
 * Context: any.
 * Return: true if the pages are a torn mapping, or a mapping after all, so that the unmap was
 *   right. False for a bad unmap, and if the backend could not remove the pages.
 */
bool xs_tear(struct xs_engine *engine, u64 iova, u32 pages);

#endif
