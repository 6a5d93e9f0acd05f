# SPDX-License-Identifier: GPL-2.0-only
"""The engine's unit tests (tests/unit): in userspace under sanitizers, inside a kernel, and against planted faults.

A failure prints the test and the seed that repeat it: run the program that it names with these words.
"""

from __future__ import annotations

import asyncio
import re
import shutil
from dataclasses import dataclass, replace
from pathlib import Path

import pytest
from rich.console import Console

from checks import pages
from xsmmu.lab import run as lab
from xsmmu.project import PROJECT
from xsmmu.setup import build, host, kernels, root
from xsmmu.vm.guest import Boot, Guest, Record

FLAGS = (
    *("-std=gnu11", "-g", "-Wall", "-Wextra", "-Werror", "-Wmissing-prototypes", "-Wstrict-prototypes", "-Wvla"),
    *("-Wno-unused-parameter", "-Wno-missing-field-initializers", "-Icore/include", "-Itests/unit", "-pthread"),
)
MODULE = "xsmmu_test.ko"


@pytest.fixture(scope="session")
def tools() -> root.Root:
    return root.ensure(host.cache_dir(), Console(stderr=True))


ENGINE = "tests/unit/path.c"
"""The engine, in one unit."""


def sources(source_dir: Path = PROJECT) -> list[str]:
    return [str(file.relative_to(source_dir)) for file in sorted((source_dir / "tests/unit").glob("*.c"))]


def compiled(tools: root.Root, *flags: str, source_dir: Path = PROJECT) -> Path:
    """The tests as a program."""
    return build.userspace(tools, "unit", sources(source_dir), (*FLAGS, *flags), source_dir=source_dir)


def compiled_with(tools: root.Root, fault: Fault, source_dir: Path) -> Path:
    """The same of a copy with a fault: where that is in no header, what is beside the engine is compiled but once."""
    flags = ("-O1", "-g0", "-Wno-error", *pages.FLAGS[fault.page])
    if fault.file.endswith(".h"):
        return compiled(tools, *flags, source_dir=source_dir)
    rest = [file for file in sources() if file != ENGINE]
    tests = build.userspace(tools, "tests.o", rest, (*FLAGS, *flags, "-r", "-nostdlib"), runs=False)
    files = [ENGINE, f"/{tests.relative_to(tools.path)}"]
    return build.userspace(tools, "unit", files, (*FLAGS, *flags), source_dir=source_dir)


def run(program: Path, *words: str) -> None:
    status, output = build.run_userspace(program, words, timeout=1500)
    if status != 0 or "# 0 passed" in output or " 0 failed" not in output:
        pytest.fail(f"{program} {' '.join(words)}\nended with {status}:\n{output[-6000:]}")


def test_under_address_and_undefined_behaviour_sanitizers(tools: root.Root) -> None:
    run(compiled(tools, "-O1", "-fsanitize=address,undefined", "-fno-sanitize-recover=all"))


def test_under_thread_sanitizer(tools: root.Root) -> None:
    run(compiled(tools, "-O1", "-fsanitize=thread"), "threads=1", "percent=25")


THREADS = re.compile(r'\{ "(\w+)", \w+, \.threads = true \}')


def test_those_with_threads_alone(tools: root.Root) -> None:
    """What ThreadSanitizer runs is what says that it has threads."""
    texts = [(PROJECT / file).read_text() for file in sources()]
    marked = [name for text in texts for name in THREADS.findall(text)]
    status, output = build.run_userspace(compiled(tools, "-O2"), ("threads=1", "percent=1"), timeout=300)
    assert status == 0, output
    assert sorted(re.findall(r"^ok \d+ - (\w+)$", output, re.MULTILINE)) == sorted(marked)


def test_who_has_threads_says_so(tools: root.Root, tmp_path: Path) -> None:
    """And fails else, so that none is forgotten."""
    for part in ("core", "tests/unit"):
        shutil.copytree(PROJECT / part, tmp_path / part)
    file = tmp_path / "tests/unit/test_slot.c"
    text = file.read_text()
    assert len(THREADS.findall(text)) == 1
    file.write_text(text.replace(", .threads = true", ""))
    status, output = build.run_userspace(compiled(tools, "-O1", source_dir=tmp_path), ("only=slot_races",), timeout=300)
    assert status == 1
    assert "test_has_threads()" in output


def test_optimized_as_the_module_is(tools: root.Root) -> None:
    run(compiled(tools, "-O2"))


@pytest.mark.parametrize("page", pages.LARGER)
def test_larger_pages(tools: root.Root, page: str) -> None:
    run(compiled(tools, "-O1", *pages.FLAGS[page]), "percent=5")


@pytest.mark.parametrize("kernel", kernels.stock_names())
def test_builds_for_a_kernel_without_a_warning(tools: root.Root, kernel: str) -> None:
    strict = ("W=1", "KCFLAGS=-Werror -Wframe-larger-than=1024")
    build.module(tools, kernels.ensure(tools, kernel), make_dir="tests/kmod", outputs=(MODULE,), extra_make_args=strict)


@pytest.mark.guest
def test_inside_a_kernel(tools: root.Root, tmp_path: Path) -> None:
    kernel = kernels.ensure(tools, None)
    module = build.module(tools, kernel, make_dir="tests/kmod", outputs=(MODULE,))
    script = 'emit "{\\"event\\":\\"unit\\",\\"result\\":\\"$(cat /sys/module/xsmmu_test/parameters/result)\\"}"\n'
    records: list[Record] = []

    async def keep(_guest: Guest, record: Record) -> None:
        records.append(record)

    settings = Boot(kernel.vmlinuz, lab.image(tools, kernel, (), module, script), "free", quiet_s=300)
    asyncio.run(Guest("unit", tools.qemu_command(), settings, tmp_path, keep).run())
    results = [record["result"] for record in records if record["event"] == "unit"]
    assert len(results) == 1
    assert results[0].endswith(" passed, 0 failed")


@dataclass(frozen=True)
class Fault:
    """A change to the engine that some test must see."""

    name: str
    file: str
    good: str
    bad: str
    words: tuple[str, ...] = ("limit=20",)
    page: str = pages.USUAL
    """If it is not that, it shows with pages of this size only."""


FAULTS = (
    # maps without their sync
    Fault(
        "runs of maps grow beyond what they can count",
        "map.c",
        "	if (unsynced->pages + pages > 0xffff)\n		return false;\n",
        "",
        ("only=engine_maps_too_many",),
    ),
    # pages that are larger
    Fault(
        "what is below 4 GiB is what the lowest node has",
        "include/xsmmu/tree.h",
        "#define XS_LOW_LG2	(32 - XS_PAGE_LG2)",
        "#define XS_LOW_LG2	XS_NEAR_LG2",
        ("only=space_low_is_kept",),
        "16K",
    ),
    Fault(
        "all of the lowest node is counted as below 4 GiB",
        "tree.c",
        "	for (u32 i = 0; i < XS_LOW_LEAVES; i++) {\n",
        "	for (u32 i = 0; i < XS_NODE_CHILDREN; i++) {\n",
        ("only=space_low_is_half",),
        "64K",
    ),
    Fault(
        "a cell's word has no room for a high address",
        "pool.c",
        "	return phys << XS_CELL_MAX_LG2 | (bytes - 1);\n",
        "	return phys << XS_PAGE_LG2 >> (XS_PAGE_LG2 - XS_CELL_MAX_LG2) |\n	       (bytes - 1);\n",
        ("only=pool_copies",),
        "16K",
    ),
    Fault(
        "only a cell of a page keeps where a buffer begins",
        "pool.c",
        "	if (lg2 != XS_CELL_MAX_LG2 ||",
        "	if (lg2 != XS_PAGE_LG2 ||",
        ("only=pool_offsets",),
        "16K",
    ),
    Fault(
        "a removal ends where a page table of small pages would",
        "sync.c",
        "#define XS_TABLE_PAGES	((u32)(XS_PAGE_BYTES / sizeof(u64)))",
        "#define XS_TABLE_PAGES	512u",
        ("only=engine_one_removal",),
        "16K",
    ),
    # pages that cannot be removed
    Fault(
        "a mapping that is claimed counts as mapped",
        "tear.c",
        "	return joined & 1 ? 1 + xs_mask_run(joined) : 0;\n",
        "	return 1 + (joined & 1 ? xs_mask_run(joined) : 0);\n",
        ("only=stuck_claimed_is_no_mapping",),
    ),
    Fault(
        "a page that cannot be removed is not marked as stuck",
        "stuck.c",
        "		xs_a64_or(&xs_space_block(&engine->space, page)->stuck,\n"
        "			  xs_block_mask(page, (u32)(stop - page)));\n",
        "",
        ("only=stuck_each_removal",),
    ),
    Fault(
        "a sync lets go of the memory of stuck pages",
        "sync.c",
        "		else\n			xs_stuck_keep(engine, page, xs_key_pages(key),\n",
        "		else if (xs_ref_can_be_held(record->ref))\n			xs_ref_release(record->ref);\n"
        "		if (record->ref != XS_REF_UNHELD)\n			xs_stuck_keep(engine, page, xs_key_pages(key),\n",
        ("only=stuck_each_removal",),
    ),
    Fault(
        "a sync lets go of stuck pages as of others",
        "sync.c",
        "	if (xs_stuck_has(engine, page)) {\n",
        "	if (false) {\n",
        ("only=stuck_each_removal",),
    ),
    Fault(
        "a sync gives the IOVAs of stuck pages back",
        "sync.c",
        "			if (xs_unlikely(taken->stuck))\n				mask &= ~xs_a64_read(&block->stuck);\n",
        "",
        ("only=stuck_each_removal",),
    ),
    Fault(
        "a sync does not count all that is stuck of it",
        "sync.c",
        "	taken->stuck += pages;\n",
        "	taken->stuck = 1;\n",
        ("only=stuck_each_removal",),
    ),
    Fault(
        "stuck pages are counted as synced",
        "sync.c",
        "	cpu->ledger.synced_pages += taken->pages - taken->stuck;\n",
        "	cpu->ledger.synced_pages += taken->pages;\n",
        ("only=stuck_each_removal",),
    ),
    Fault(
        "the memory of a page that an unmap could not remove is not held",
        "unmap.c",
        "	if (held == XS_HELD_NOT && xs_claim_hold(claim, &count))\n",
        "	if (false && xs_claim_hold(claim, &count))\n",
        ("only=stuck_each_removal",),
    ),
    Fault(
        "only the first part of a stuck mapping is kept",
        "unmap.c",
        "			      held == XS_HELD ? ref : XS_REF_NONE);\n",
        "			      held == XS_HELD && !at ? ref : XS_REF_NONE);\n",
        ("only=stuck_each_removal",),
    ),
    Fault(
        "an unmap that could not remove its page counts it as synced",
        "unmap.c",
        "	xs_count(engine->counts, direct_pages, -(u64)claim->pages);\n	xs_stuck_mark(",
        "	xs_stuck_mark(",
        ("only=stuck_each_removal",),
    ),
    Fault(
        "an unmap that could not remove its pages says that they are unmapped",
        "unmap.c",
        "		xs_claim_stick(engine, claim, held);\n		return false;\n",
        "		xs_claim_stick(engine, claim, held);\n		return true;\n",
        ("only=stuck_is_no_mapping",),
    ),
    Fault(
        "a run that cannot be removed is given back",
        "sync.c",
        "	if (xs_likely(removed)) {\n		xs_space_give_run",
        "	if (true) {\n		xs_space_give_run",
        ("only=stuck_each_removal",),
    ),
    Fault(
        "a run that is stuck is a mapping still",
        "stuck.c",
        "	xs_a64_set_release(&block->run_pages, XS_RUN_STUCK | pages);\n",
        "	xs_a64_set_release(&block->run_pages, pages);\n",
        ("only=stuck_is_no_mapping",),
    ),
    Fault(
        "a page that is stuck is a mapping still",
        "stuck.c",
        "			   xs_slot_many(i ? XS_REF_NONE : ref, 1));\n",
        "			   xs_slot_one(i ? XS_REF_NONE : ref));\n",
        ("only=stuck_is_no_mapping",),
    ),
    Fault(
        "each page of a stuck part lets its memory go",
        "stuck.c",
        "			   xs_slot_many(i ? XS_REF_NONE : ref, 1));\n",
        "			   xs_slot_many(ref, 1));\n",
        ("only=stuck_each_removal",),
    ),
    Fault(
        "the memory of what was stuck is held for ever",
        "stuck.c",
        "		if (xs_ref_can_be_held(ref))\n			xs_ref_release(ref);\n",
        "",
        ("only=stuck_each_removal",),
    ),
    Fault(
        "what is stuck is let go before it is removed",
        "stuck.c",
        "	} else if (gone) {\n		xs_stuck_release",
        "	} else {\n		xs_stuck_release",
        ("only=stuck_each_removal",),
    ),
    Fault(
        "a stuck run is given back before it is removed",
        "stuck.c",
        "	if (gone && is_run) {\n		xs_a64_set(&block->run_pages, 0);",
        "	if (is_run) {\n		xs_a64_set(&block->run_pages, 0);",
        ("only=stuck_each_removal",),
    ),
    Fault(
        "what is removed at last is not counted as synced",
        "stuck.c",
        "	cpu->ledger.synced_pages += pages;\n",
        "",
        ("only=stuck_each_removal",),
    ),
    Fault(
        "what is left of a map that has failed is not unmapped",
        "map.c",
        "	if (error != XS_MAP_LEFT) {\n		xs_unplace",
        "	error = -XS_ENOMEM;\n	if (error != XS_MAP_LEFT) {\n		xs_unplace",
        ("only=stuck_failed_maps",),
    ),
    Fault(
        "a list does not say that a part of it is left",
        "map.c",
        "	if (xs_unlikely(error == XS_MAP_LEFT))\n		*left = run;\n",
        "",
        ("only=stuck_failed_maps",),
    ),
    Fault(
        "it is not written down how memory can be held where removals fail",
        "map.c",
        "	return xs_load(&engine->mode) & XS_MODE_HOLDS;\n",
        "	return xs_policy_of(engine)->hold == XS_HOLD_PAGES;\n",
        ("only=stuck_each_removal",),
    ),
    Fault(
        "it is not written down on the common way, either",
        "engine.c",
        "	if (holds || engine->remembers)\n",
        "	if (holds)\n",
        ("only=stuck_each_removal",),
    ),
    Fault(
        "a chunk that is stuck has cells",
        "pool.c",
        "	else\n		xs_store_release(xs_pool_place(pool, chunk), chunk);\n	return dropped;\n",
        "	else {\n		chunk->next = pool->idle[chunk->kind];\n		pool->idle[chunk->kind] = chunk;\n"
        "		xs_store_release(xs_pool_place(pool, chunk), chunk);\n	}\n	return dropped;\n",
        ("only=pool_stuck_chunks",),
    ),
    Fault(
        "another chunk comes where one is stuck",
        "pool.c",
        "	else\n		xs_store_release(xs_pool_place(pool, chunk), chunk);\n	return dropped;\n",
        "	return dropped;\n",
        ("only=pool_stuck_chunks",),
    ),
    Fault(
        "a chunk that is stuck does not count for the limit",
        "pool.c",
        "	pool->count += stuck ? 1 : -1;\n",
        "",
        ("only=pool_stuck_chunks",),
    ),
    Fault(
        "a chunk that the world could not remove is freed",
        "pool.c",
        "	if (dropped)\n		xs_chunk_free(pool, chunk);\n	else\n",
        "	xs_chunk_free(pool, chunk);\n	if (!dropped)\n",
        ("only=pool_stuck_chunks",),
    ),
    Fault(
        "a try for stuck pages leaves stuck chunks out",
        "stuck.c",
        "	xs_pool_retry(&engine->pool);\n",
        "",
        ("only=pool_stuck_in_engine",),
    ),
    Fault(
        "the pages that are left of a driver's block are not unmapped",
        "map.c",
        "	for (u32 i = 0; i < left; i++) {\n",
        "	for (u32 i = 0; false; i++) {\n",
        ("only=stuck_failed_in_block",),
    ),
    Fault(
        "the pages that are left of a driver's block are the driver's again",
        "map.c",
        "	if (left < pages)\n		xs_a64_or(&block->own, xs_block_mask(page + left, pages - left));\n",
        "	xs_a64_or(&block->own, xs_block_mask(page, pages));\n",
        ("only=stuck_failed_in_block",),
    ),
    Fault(
        "the pages that are left of a driver's block have no slots",
        "map.c",
        "	for (u32 i = 0; i < done + left; i++)\n",
        "	for (u32 i = 0; i < done; i++)\n",
        ("only=stuck_failed_in_block",),
    ),
    Fault(
        "a page that is stuck is found as a mapping of its group",
        "tear.c",
        "(joined | xs_a64_read(&block->stuck)) >> at & 1",
        "joined >> at & 1",
        ("only=stuck_is_no_mapping",),
    ),
    Fault(
        "a run that is stuck is found as a mapping of its group",
        "tear.c",
        "		return run & XS_RUN_STUCK ? 0 : (u32)run;",
        "		return (u32)run;",
        ("only=stuck_is_no_mapping",),
    ),
    Fault(
        "a batch-aware driver's page that gets stuck in its unmap is not held",
        "unmap.c",
        "	if (held == XS_HELD_LATER)\n		xs_stuck_hold(engine, claim->page, claim->pages);\n",
        "",
        ("only=stuck_aware_no_batch",),
    ),
    Fault(
        "the same of a page that counts as held, as it cannot be deferred",
        "unmap.c",
        "	enum xs_held held = promise ? XS_HELD_LATER : XS_HELD;",
        "	enum xs_held held = XS_HELD;",
        ("only=stuck_aware_no_batch",),
    ),
    Fault(
        "pages of a driver's block that get stuck in their unmap are not held",
        "unmap.c",
        "			xs_claim_now(engine, policy, &claim, XS_HELD_LATER);\n	}\n",
        "			xs_claim_now(engine, policy, &claim, XS_HELD_NOT);\n	}\n",
        ("only=stuck_in_block",),
    ),
    Fault(
        "what a large map has left is removed as if all of it were mapped",
        "unmap.c",
        "	return xs_sync_run(engine, iova, pages, how == XS_UNMAP_LEFT);",
        "	return xs_sync_run(engine, iova, pages, false);",
        ("only=stuck_failed_maps",),
    ),
    Fault(
        "a torn mapping of all of a block gets stuck as a run does",
        "tear.c",
        "	xs_claim_count(engine, pages);\n	if (pages > XS_BLOCK_PAGES) {\n		xs_stuck_mark_run",
        "	xs_claim_count(engine, pages);\n	if (pages >= XS_BLOCK_PAGES) {\n		xs_stuck_mark_run",
        ("only=stray_failing",),
    ),
    Fault(
        "memory that is free when a tear fails is let go later",
        "stuck.c",
        "		if (ref != XS_REF_NONE && !xs_ref_hold(ref))\n			ref = XS_REF_NONE;\n",
        "		if (ref != XS_REF_NONE)\n			(void)!xs_ref_hold(ref);\n",
        ("only=stray_failing",),
    ),
    Fault(
        "memory is held that its driver may have freed",
        "tear.c",
        "			xs_torn_stick(engine, torn->page, torn->pages, false);",
        "			xs_torn_stick(engine, torn->page, torn->pages, true);",
        ("only=stray_failing",),
    ),
    Fault(
        "the right unmap of a torn mapping that cannot be removed says that it is removed",
        "tear.c",
        "			return removed >= 0;",
        "			return true;",
        ("only=stray_failing",),
    ),
    Fault(
        "a mapping that is removed without a record is told as removed, whether it is or not",
        "unmap.c",
        "	return removed ? XS_REMOVED_ALL : -XS_ENOMEM;",
        "	return XS_REMOVED_ALL;",
        ("only=stray_no_memory",),
    ),
    Fault(
        "two tears of one mapping that both fail make it stuck twice",
        "tear.c",
        "	bool first = !torn->failed;\n",
        "	bool first = true;\n",
        ("only=stray_failing_at_once",),
    ),
    Fault(
        "records of tears that have failed are lost with their engine",
        "engine.c",
        "	xs_tears_free(engine);\n",
        "",
        ("only=stray_failing",),
    ),
    Fault(
        "nothing is said of a chunk that stays mapped when its pool goes",
        "pool.c",
        "		if (!xs_chunk_unmap(pool, chunk))\n			xs_chunk_tell_stuck(pool, chunk);\n",
        "		(void)xs_chunk_unmap(pool, chunk);\n",
        ("only=pool_lost_chunks",),
    ),
    # a sync
    Fault(
        "nothing is invalidated",
        "sync.c",
        "	xs_ops(engine)->invalidate(xs_world(engine), gather, ranges, found,\n				   &taken->sent);\n",
        "	xs_ops(engine)->gather_init(gather);\n	taken->sent.domain++;\n",
    ),
    Fault(
        "held pages are released before the invalidation",
        "sync.c",
        "		ranges = xs_sync_invalidate(engine, batch->runs, &taken, &gather);\n"
        "		now = xs_ops(engine)->clock(xs_world(engine));\n"
        "		xs_sync_release(engine, cpu, &taken, now);\n",
        "		now = xs_ops(engine)->clock(xs_world(engine));\n"
        "		xs_sync_release(engine, cpu, &taken, now);\n"
        "		ranges = xs_sync_invalidate(engine, batch->runs, &taken, &gather);\n",
    ),
    Fault(
        "what is held is let go before its own sync if it cannot be deferred",
        "unmap.c",
        "	if (xs_unlikely(!xs_sync_now(engine, claim->page, claim->pages))) {\n"
        "		xs_claim_stick(engine, claim, held);\n		return false;\n	}\n"
        "	xs_claim_let_go(engine, policy, claim, held);\n",
        "	if (held)\n		xs_claim_release(claim, claim->pages);\n"
        "	xs_sync_now(engine, claim->page, claim->pages);\n"
        "	xs_claim_let_go(engine, policy, claim, false);\n",
        ("only=engine_no_batch",),
    ),
    Fault(
        "IOVAs are free before the invalidation",
        "sync.c",
        "		xs_sync_remove(engine, batch->runs, &taken, &gather);\n",
        "		xs_sync_remove(engine, batch->runs, &taken, &gather);\n"
        "		if (taken.policy->placement == XS_PLACE_BLOCK)\n"
        "			xs_sync_back(engine, cpu, &taken);\n"
        "		taken.policy = &xs_policies[0];\n",
    ),
    Fault(
        "ranges become a domain command where the policy wants ranges",
        "sync.c",
        "	if (scope == XS_SCOPE_RANGE)\n		max = XS_RANGES_MAX;\n",
        "",
        ("only=engine_scattered",),
    ),
    Fault(
        "all pages of a page table are removed at once",
        "sync.c",
        "			if (stop - page == XS_TABLE_PAGES)\n				stop -= XS_TABLE_PAGES / 2;\n",
        "",
        ("only=engine_whole_table",),
    ),
    Fault(
        "a record that is not written yet is forgotten",
        "sync.c",
        "	xs_store_release(&batch->tail, taken->kept);\n",
        "	xs_store_release(&batch->tail, taken->end);\n",
    ),
    Fault(
        "no timer is armed for what a sync has to leave",
        "sync.c",
        "	xs_ops(engine)->deferred(xs_world(engine), cpu->id, true,\n"
        "				 xs_ops(engine)->clock(xs_world(engine)) +\n"
        "				 xs_sync_wait_ns(engine));\n	batch->armed = true;\n",
        "",
        ("only=batch_kept",),
    ),
    Fault(
        "the sync of a block forgets how many pages the others have",
        "sync.c",
        "	batch->more_pages -= taken->pages - taken->records;\n",
        "	batch->more_pages = 0;\n",
        ("only=engine_most",),
    ),
    Fault("a window is doubled", "sync.c", "	return window_ns - window_ns / 8;\n", "	return 2 * window_ns;\n"),
    # the log
    Fault(
        "a record is appended without comparing",
        "include/xsmmu/batch.h",
        "	} while (xs_unlikely(!xs_a64_try_relaxed(&batch->head, &head, head + 1)));\n",
        "	} while (0);\n	xs_a64_set(&batch->head, head + 1);\n",
    ),
    Fault(
        "a record is valid before its reference is there",
        "include/xsmmu/batch.h",
        "	xs_store(&record->ref, ref);\n	xs_store_release(&record->key, key);\n",
        "	xs_store_release(&record->key, key);\n	xs_store(&record->ref, ref);\n",
    ),
    Fault(
        "the unmap that fills a batch does not see it",
        "batch.c",
        "	u64 full = batch->tail + limit_pages - 1;\n",
        "	u64 full = batch->tail + limit_pages;\n",
        ("only=batch_limit",),
    ),
    Fault("ranges are a block too short", "batch.c", "range.pages *= 2;", "range.pages += XS_BLOCK_PAGES - 1;"),
    Fault(
        "joined runs are a page too short",
        "batch.c",
        "			runs[last] += new_end - end;\n",
        "			runs[last] += new_end - end - 1;\n",
        ("only=batch_joins",),
    ),
    Fault(
        "marks of dead pages outlive their policy",
        "engine.c",
        "		xs_space_unmark(&engine->space);\n",
        "		;\n",
        ("only=engine_marks_left",),
    ),
    Fault(
        "the run that begins last is taken for the one that ends last",
        "batch.c",
        "		if (xs_run_page(runs[i]) > end)\n",
        "		if (xs_run_page(runs[i]) != end)\n",
        ("only=engine_maps_nested",),
    ),
    # sync points and changes
    Fault(
        "a retired CPU's batch is left",
        "engine.c",
        "	xs_sync_batch(engine, cpu, XS_SYNC_DRAIN);\n	cpu->batch.armed = false;\n",
        "	cpu->batch.armed = false;\n",
        ("only=engine_retire",),
    ),
    Fault(
        "a stale timer counts as armed",
        "engine.c",
        "		if (cause == XS_SYNC_DRAIN)\n			cpu->batch.armed = false;\n",
        "",
    ),
    Fault(
        "expiry forgets the next deadline",
        "engine.c",
        "		} else {\n			batch->armed = true;\n",
        "		} else {\n			deadline = 0;\n			batch->armed = true;\n",
    ),
    Fault(
        "an explicit sync skips the last CPU",
        "engine.c",
        "		xs_sync_batch(engine, cpu, cause);\n",
        "		if (i + 1 < engine->cpu_count)\n			xs_sync_batch(engine, cpu, cause);\n",
    ),
    Fault(
        "a driver's sync leaves other CPUs' batches alone",
        "engine.c",
        "	for (u32 i = 0; everywhere && i < engine->cpu_count; i++) {\n",
        "	for (u32 i = 0; everywhere && i < 1; i++) {\n",
    ),
    Fault(
        "a policy is stored after the drain",
        "engine.c",
        "	xs_store_release(&engine->policy,\n"
        "			 xs_engine_row(engine, policy, tuning));\n"
        "	xs_store(&engine->mode, xs_mode_of(engine, engine->policy));\n"
        "	xs_engine_settle(engine);\n",
        "	xs_engine_settle(engine);\n"
        "	xs_store_release(&engine->policy,\n"
        "			 xs_engine_row(engine, policy, tuning));\n"
        "	xs_store(&engine->mode, xs_mode_of(engine, engine->policy));\n",
        ("only=threads_changing", "percent=400"),
    ),
    Fault(
        "a change of policy does not wait for the calls of before",
        "engine.c",
        "	xs_ops(engine)->quiesce(xs_world(engine));\n	xs_engine_sync(engine, XS_SYNC_DRAIN);\n",
        "	xs_engine_sync(engine, XS_SYNC_DRAIN);\n",
        ("only=threads_changing", "percent=400"),
    ),
    Fault(
        "the fast way does not learn of a smaller batch",
        "engine.c",
        "		xs_store(&cpu->batch.limit, 0);\n",
        "",
    ),
    Fault(
        "the short way does not learn of a new policy",
        "engine.c",
        "	xs_store(&engine->mode, xs_mode_of(engine, engine->policy));\n	xs_engine_settle",
        "	xs_engine_settle",
    ),
    Fault(
        "ordinary unmaps of a batch-aware group are deferred",
        "engine.c",
        "	if (tuning->batch_aware && xs_policy_waits(policy))\n",
        "	if (false)\n",
        ("only=engine_all_aware",),
    ),
    Fault(
        "a new size of batches is stored after they were closed",
        "engine.c",
        "	xs_store(&engine->tuning.batch_pages, tuning->batch_pages);\n	xs_engine_limit(engine);\n",
        "	xs_engine_limit(engine);\n	xs_store(&engine->tuning.batch_pages, tuning->batch_pages);\n",
        ("only=batch_smaller_interrupted",),
    ),
    Fault(
        "a poll tells what was left before its sync",
        "engine.c",
        "	if (xs_syncs_on(xs_policy_of(engine), XS_SYNC_POLL))\n"
        "		xs_sync_batch(engine, cpu, XS_SYNC_POLL);\n"
        "	empty = xs_batch_is_empty(&cpu->batch);\n",
        "	empty = xs_batch_is_empty(&cpu->batch);\n"
        "	if (xs_syncs_on(xs_policy_of(engine), XS_SYNC_POLL))\n"
        "		xs_sync_batch(engine, cpu, XS_SYNC_POLL);\n",
        ("only=engine_poll_says",),
    ),
    # unmaps
    Fault(
        "two unmaps get the same mapping",
        "include/xsmmu/slot.h",
        "	return xs_a64_try_acquire(slot, found, XS_SLOT_VACANT);\n",
        "	xs_a64_set(slot, XS_SLOT_VACANT);\n	return true;\n",
        ("only=stray_twice_at_once",),
    ),
    Fault(
        "a mapping is unmapped in parts",
        "unmap.c",
        "	return (joined & inner) == inner && !(joined & edges);\n",
        "	return (joined & inner) == inner;\n",
        ("only=stray_wrong_size",),
    ),
    Fault(
        "a large mapping of any size is claimed",
        "space.c",
        "	       xs_a64_try_acquire(&block->run_pages, &old, 0);\n",
        "	       (old = xs_a64_swap(&block->run_pages, 0));\n",
        ("only=stray_wrong_size",),
    ),
    Fault(
        "a stray is not counted",
        "engine.c",
        "	xs_count(engine->counts, strays, 1);\n",
        "",
        ("only=stray_wild",),
    ),
    Fault(
        "an unmap of what is not mapped says that it was",
        "unmap.c",
        "		unmapped = xs_tear(engine, iova, pages);\n",
        "		unmapped = xs_tear(engine, iova, pages) || true;\n",
        ("only=stray_wild",),
    ),
    Fault(
        "an unmap of a large mapping that is none says that it was",
        "unmap.c",
        "		return xs_tear(engine, iova, pages);\n",
        "		return xs_tear(engine, iova, pages) || true;\n",
        ("only=stray_wild",),
    ),
    Fault(
        "what a map writes behind its unmap stays",
        "tear.c",
        "		else if (xs_sync_part(engine, &whole, &whole) >= 0)\n",
        "		else if (whole.pages)\n",
        ("only=stray_meanwhile",),
    ),
    Fault(
        "a map that fails gives an IOVA back that its unmap has",
        "map.c",
        "		xs_count_map(engine, 1);\n		return;\n",
        "",
        ("only=stray_meanwhile",),
    ),
    Fault(
        "what is unmapped twice waits for its sync",
        "tear.c",
        "	if (met < pages)\n		xs_engine_sync(engine, XS_SYNC_EXPLICIT);\n",
        "",
        ("only=stray_twice",),
    ),
    Fault(
        "a removal that fails counts as done",
        "tear.c",
        "			xs_torn_stick(engine, torn->page, torn->pages, false);\n",
        "			xs_mend_back(engine, torn->page, torn->pages);\n",
        ("only=stray_failing",),
    ),
    Fault(
        "a tear that fails is torn and not stuck",
        "tear.c",
        "		xs_tear_failed(engine, found->torn);\n",
        "		(void)xs_tear_failed;\n",
        ("only=stray_failing",),
    ),
    Fault(
        "the IOVAs of a tear that has failed are given back",
        "tear.c",
        "		if (torn->failed)\n			;\n		else if",
        "		if",
        ("only=stray_failing",),
    ),
    Fault(
        "a tear that fails stays among those that unmaps find",
        "tear.c",
        "	torn->failed = true;\n	xs_torn_done(engine, torn);\n	xs_torn_take(engine, torn);\n",
        "	torn->failed = true;\n	xs_torn_done(engine, torn);\n",
        ("only=stray_failing",),
    ),
    Fault(
        "the memory of a tear that fails is not held",
        "tear.c",
        "	if (returns)\n		xs_stuck_hold",
        "	if (false)\n		xs_stuck_hold",
        ("only=stray_failing",),
    ),
    Fault(
        "pages of a torn mapping that is removed count as within reach",
        "tear.c",
        "		torn->removed = true;\n		xs_torn_gone(engine, torn);\n",
        "		torn->removed = true;\n",
        ("only=stray_wrong_size_exact",),
    ),
    Fault(
        "a torn mapping counts as removed beside a removal of it that fails",
        "tear.c",
        "	known = !engine->remembers || torn->removed ||\n		(!torn->failed && !torn->removing);\n",
        "	known = true;\n",
        ("only=stray_failing",),
    ),
    Fault(
        "an unmap does not say that it has removed more than it names",
        "tear.c",
        "		stray.mapped_pages = found.pages;\n		stray.removed = removed;\n",
        "		stray.mapped_pages = found.pages;\n",
        ("only=stray_wrong_size_exact",),
    ),
    Fault(
        "without a record a torn mapping's IOVAs are free while it may be mapped",
        "unmap.c",
        "	} else {\n		xs_claim_stick(engine, claim, XS_HELD_NOT);\n	}\n	return removed ?",
        "	} else if (!removed) {\n		xs_claim_stick(engine, claim, XS_HELD_NOT);\n	} else {\n"
        "		xs_claim_let_go(engine, xs_policy_of(engine), claim, XS_HELD_NOT);\n	}\n	return removed ?",
        ("only=stray_no_memory",),
    ),
    Fault(
        "what another mapping's unmap reached into goes with the driver",
        "tear.c",
        "			if (torn->meant)\n",
        "			if (torn)\n",
        ("only=stray_neighbours",),
    ),
    Fault(
        "stuck pages are let go while the sync that could not remove them goes on",
        "stuck.c",
        "			xs_ops(engine)->quiesce(xs_world(engine));\n",
        "",
        ("only=stuck_at_once",),
    ),
    Fault(
        "what gets stuck during the wait for all calls is let go, too",
        "stuck.c",
        "			xs_leaf_retry(engine, leaf, page, &stuck);\n",
        "			xs_stuck_look(leaf, &stuck);\n			xs_leaf_retry(engine, leaf, page, &stuck);\n",
        ("only=stuck_at_once",),
    ),
    Fault(
        "stuck pages are removed inside a call of the engine",
        "stuck.c",
        "	bool gone = xs_sync_again(engine, page, pages, &sent);\n\n",
        "	bool gone;\n\n	xs_enter();\n	gone = xs_sync_again(engine, page, pages, &sent);\n	xs_exit();\n",
        ("only=stuck_each_removal",),
    ),
    Fault(
        "a batch-aware driver's page that gets stuck is not held",
        "sync.c",
        "		if (record->ref == XS_REF_UNHELD)\n",
        "		if (false)\n",
        ("only=stuck_aware",),
    ),
    Fault(
        "pages of a batch-aware driver's block that get stuck are not held",
        "unmap.c",
        "	} while (!xs_slot_claim_left(slot, &found));\n",
        "	} while (!xs_slot_claim(slot, &found));\n",
        ("only=stuck_in_block",),
    ),
    Fault(
        "pages stay joined after their mapping",
        "unmap.c",
        "				     joined & ~xs_block_mask(claim->page,\n"
        "							     claim->pages)));\n",
        "				     joined));\n",
    ),
    Fault(
        "memory is not held",
        "unmap.c",
        "			       (xs_ref_hold_fast(ref) || xs_ref_hold(ref));\n		if (!held) {",
        "			       (xs_ref_hold_fast(ref) || xs_ref_hold(ref));\n"
        "		if (held)\n			xs_ref_release(ref);\n		if (!held) {",
    ),
    Fault(
        "what cannot be held is deferred",
        "unmap.c",
        "		if (!held) {\n			xs_claim_release(claim, at);\n			return false;\n		}\n",
        "",
    ),
    Fault(
        "what was held of a mapping that cannot be is held for ever",
        "unmap.c",
        "			xs_claim_release(claim, at);\n			return false;\n",
        "			return false;\n",
    ),
    # maps
    Fault(
        "a reservation has no slots",
        "map.c",
        "	if (iova && pages <= XS_BLOCK_PAGES) {\n		xs_slot_t *slot",
        "	if (iova && pages > XS_BLOCK_PAGES) {\n		xs_slot_t *slot",
        ("only=engine_filled",),
    ),
    Fault(
        "a reservation of all of a block has no slots",
        "map.c",
        "	if (iova && pages <= XS_BLOCK_PAGES) {\n		xs_slot_t *slot",
        "	if (iova && pages < XS_BLOCK_PAGES) {\n		xs_slot_t *slot",
        ("only=engine_filled",),
    ),
    Fault(
        "a map of several pages is in no section when it is made",
        "map.c",
        "	if (large)\n		xs_exit();\n	if (iova)\n		error = xs_ops",
        "	xs_exit();\n	large = true;\n	if (iova)\n		error = xs_ops",
        ("only=engine_sizes",),
    ),
    Fault(
        "a map of several pages is counted behind its section",
        "map.c",
        "		xs_count_map(engine, pages);\n	}\n	xs_exit();\n	return iova;\n}\n\n/* ---- in parts",
        "	}\n	xs_exit();\n	if (iova)\n		xs_count_map(engine, pages);\n	return iova;\n}\n\n/* ---- in parts",
        ("only=threads_living",),
    ),
    Fault(
        "a map of a page is counted behind its section",
        "map.c",
        "		return xs_map_one_refused(engine, iova, error);\n	xs_count_map(engine, 1);\n	xs_exit();\n",
        "		return xs_map_one_refused(engine, iova, error);\n	xs_exit();\n	xs_count_map(engine, 1);\n",
        ("only=threads_living",),
    ),
    Fault(
        "what is reserved twice counts as a leaf that is empty",
        "tree.c",
        "			if (!rest ||\n			    xs_bit(node->full, xs_child_at(edges[i], level)))\n",
        "			if (!rest)\n",
        ("only=space_reserved_twice",),
    ),
    Fault(
        "what is filled of a whole block is not held",
        "map.c",
        "	if (!holds) {\n		xs_a64_set(slots, pages > 1 ?",
        "	if (!holds || pages == XS_BLOCK_PAGES) {\n		xs_a64_set(slots, pages > 1 ?",
        ("only=engine_filled",),
    ),
    Fault(
        "what is left out of a list is mapped",
        "map.c",
        "		if (phys[done] != XS_PHYS_NONE)\n			error = xs_ops",
        "		error = xs_ops",
        ("only=engine_apart",),
    ),
    Fault(
        "a list goes on behind a part that could not be mapped",
        "map.c",
        "		if (xs_unlikely(error))\n			break;\n",
        "		if (xs_unlikely(error))\n			continue;\n",
        ("only=engine_apart_refused",),
    ),
    Fault(
        "a list that could be held is not looked at",
        "map.c",
        "	return runs > XS_HOLDS_MAX;",
        "	return runs > 1;",
        ("only=engine_apart",),
    ),
    Fault(
        "one failed part of a large range is not counted",
        "map.c",
        "		xs_engine_map_failed(engine);\n		xs_exit();\n",
        "		xs_exit();\n",
    ),
    Fault(
        "what is learned of a block that nobody has stays",
        "space.c",
        "	xs_store(&block->entries, (void *)0);\n	return block;\n",
        "	return block;\n",
        ("only=place_entries_late",),
    ),
    Fault(
        "of what is left out only the first page is marked",
        "map.c",
        "			xs_slots_fill_none(slots + at, run);\n",
        "			xs_slots_fill_none(slots + at, 1);\n",
        ("only=engine_parts",),
    ),
    Fault(
        "a page that cannot be held decides for itself only",
        "slot.c",
        "		if (ref == XS_REF_UNHELD)\n			span = pages;\n",
        "		if (false)\n			span = pages;\n",
        ("only=slot_fill",),
    ),
    Fault(
        "a page of an open block is taken without comparing",
        "map.c",
        "	} while (xs_unlikely(!xs_a64_try_acquire(&block->free, &free,\n					 free & (free - 1))));\n",
        "	} while (0);\n	xs_a64_set(&block->free, free & (free - 1));\n",
    ),
    Fault(
        "what could not be mapped is lost",
        "map.c",
        "	xs_place_back(engine, policy, page, pages);\n",
        "",
        ("only=engine_each_failure",),
    ),
    # placement
    Fault(
        "a block that is closed is forgotten",
        "include/xsmmu/block.h",
        "	return xs_block_settle(block, xs_a64_read(&block->free));\n",
        "	return false;\n",
        ("only=block_together",),
    ),
    Fault(
        "pages of a block are taken without comparing",
        "include/xsmmu/block.h",
        "	} while (xs_unlikely(!xs_a64_try_acquire(&block->free, &free, free & ~mask)));\n",
        "	} while (0);\n	xs_a64_set(&block->free, free & ~mask);\n",
        ("only=block_together",),
    ),
    Fault(
        "a claimed block stays listed",
        "shelf.c",
        "	if (xs_a64_read(&block->listed))\n		xs_shelf_unlink(shelf, block);\n",
        "",
        ("only=block_against_model",),
    ),
    Fault(
        "holes are not used again",
        "place.c",
        "	bool look = search->opens-- > 0;\n",
        "	bool look = search->opens-- > 99;\n",
        ("only=place_footprint",),
    ),
    Fault(
        "each map that fails has all CPUs synced",
        "place.c",
        "	return (!last || now - last >= XS_RECLAIM_NS) &&\n",
        "	return\n",
        ("only=place_starved",),
    ),
    Fault(
        "a map looks at whatever is listed, without an end",
        "place.c",
        "	return search->opens > -(s64)XS_PLACE_OPENS ?\n",
        "	return search->opens > -1000000 ?\n",
        ("only=place_claimed",),
    ),
    Fault(
        "a piece above the limit is handed out",
        "place.c",
        "		if (xs_unlikely(iova + (XS_PAGE_BYTES << lg2) - 1 > last)) {\n",
        "		if (false) {\n",
    ),
    Fault(
        "a driver's pages that it does not use are never free again",
        "place.c",
        "		xs_a64_set(&block->withheld, rest);\n",
        "		(void)rest;\n",
        ("only=engine_own_block",),
    ),
    Fault(
        "a trim leaves a CPU with a block that is gone",
        "engine.c",
        "	xs_engine_forget(engine);\n",
        "",
        ("only=place_trim_open",),
    ),
    Fault(
        "a trim leaves a CPU with blocks for larger mappings that are gone",
        "engine.c",
        "		for (u32 lg2 = 0; lg2 < XS_SIZES; lg2++) {\n			struct xs_block *open",
        "		for (u32 lg2 = 0; lg2 < 1; lg2++) {\n			struct xs_block *open",
        ("only=place_trim_open",),
    ),
    Fault(
        "no CPU's shelf but the first one is looked at",
        "place.c",
        "	if (!block)\n		xs_probe_next(engine, cpu);\n",
        "	if (!block && other != cpu)\n		xs_probe_next(engine, cpu);\n",
        ("only=place_moves_back",),
    ),
    Fault(
        "each time another CPU's shelf is looked at",
        "place.c",
        "	if (!block)\n		xs_probe_next(engine, cpu);\n",
        "	xs_probe_next(engine, cpu);\n",
        ("only=place_moves_back",),
    ),
    Fault(
        "a CPU that maps on loses what it has listed",
        "place.c",
        "xs_search_list(search, other, false, XS_SHELF_HALF);\n",
        "xs_search_list(search, other, false, XS_SHELF_ANY);\n",
        ("only=place_left_alone",),
    ),
    # the space
    Fault(
        "the pages of a kept block are anybody's once it is open",
        "space.c",
        "	block->kept = at < XS_LOW_BLOCKS && space->low_free < space->low_kept;\n",
        "	block->kept = false;\n",
        ("only=place_low_stays",),
    ),
    Fault(
        "a block of what is kept is anybody's when it was free",
        "place.c",
        "	if (xs_unlikely(block->kept)) {\n		xs_shelf_leave(block);\n",
        "	if (false) {\n		xs_shelf_leave(block);\n",
        ("only=place_low_stays",),
    ),
    Fault(
        "pieces of a kept block are cached",
        "place.c",
        "	return block->kept || xs_a64_read(&block->withheld);\n",
        "	return xs_a64_read(&block->withheld);\n",
        ("only=place_low_stays",),
    ),
    Fault(
        "a kept block is opened for others",
        "place.c",
        "		if (iova && !low && !block->kept) {\n",
        "		if (iova && !low) {\n",
        ("only=place_low_closed",),
    ),
    Fault(
        "a kept block is counted among the others",
        "shelf.c",
        "	u32 at = xs_shelf_list_of(lg2, block->kept);\n",
        "	u32 at = xs_shelf_list_of(lg2, false);\n",
        ("only=place_low_closed",),
    ),
    Fault(
        "a kept block stays on its shelf when it is free",
        "place.c",
        "	if (xs_unlikely(block->kept)) {\n		xs_shelf_leave(block);\n",
        "	if (xs_unlikely(block->kept)) {\n",
        ("only=place_low_closed",),
    ),
    Fault(
        "pages of a driver's own block of what is kept are cached",
        "place.c",
        "			block = xs_place_fresh(engine, last);\n		if (block) {\n			xs_shelf_put",
        "			block = xs_space_take(&engine->space, last);\n		if (block) {\n			xs_shelf_put",
        ("only=place_low_own",),
    ),
    Fault(
        "of other CPUs' blocks the kept ones are used first",
        "place.c",
        " kept, XS_SHELF_ANY);\n			if (block)\n",
        " !kept, XS_SHELF_ANY);\n			if (block)\n",
        ("only=place_low_last",),
    ),
    Fault(
        "a block that was kept is so for ever",
        "space.c",
        "	block->kept = at < XS_LOW_BLOCKS && space->low_free < space->low_kept;\n",
        "	block->kept |= at < XS_LOW_BLOCKS && space->low_free < space->low_kept;\n",
        ("only=place_low_once",),
    ),
    Fault(
        "other CPUs' shelves are not looked at",
        "place.c",
        "	if (other != cpu)\n",
        "	if (false)\n",
        ("only=place_moves",),
    ),
    Fault(
        "a trim looks at all leaves at once",
        "space.c",
        "		if (!looks--)\n",
        "		if (false)\n",
        ("only=space_emptied_behind",),
    ),
    Fault(
        "a trim does not see what becomes empty behind it",
        "space.c",
        "	again = found && xs_space_has_surplus(space);\n",
        "	again = false;\n",
        ("only=space_emptied_behind",),
    ),
    Fault(
        "a trim goes on where the last one ended",
        "engine.c",
        "	do {\n		u64 from = 0;\n\n",
        "	u64 from = 0;\n\n	do {\n",
        ("only=place_trim_passed",),
    ),
    Fault(
        "a trim ends at the first leaves that are all used",
        "engine.c",
        "			if (!count)\n				continue;\n",
        "			if (!count)\n				break;\n",
        ("only=place_trim_behind",),
    ),
    Fault(
        "a trim that has found nothing does not end",
        "engine.c",
        "	} while (xs_space_end_trim(&engine->space, found));\n",
        "	} while (found && xs_space_end_trim(&engine->space, found));\n",
        ("only=place_trim_late",),
    ),
    Fault(
        "a trim that has found nothing takes a surplus for told",
        "space.c",
        "	again = found && xs_space_has_surplus(space);\n",
        "	again = xs_space_has_surplus(space) && found;\n",
        ("only=place_trim_inside",),
    ),
    Fault(
        "the world is told of empty leaves while most are used",
        "space.c",
        "	    space->tree.empty <= space->tree.leaves / 2)\n",
        "	    false)\n",
        ("only=place_trim_half",),
    ),
    Fault(
        "page-table pages are freed when their IOVAs are handed out again",
        "engine.c",
        "	for (u32 i = 0; i < count && xs_ops(engine)->prune; i++)\n"
        "		xs_ops(engine)->prune(xs_world(engine),\n"
        "				      detached[i].block * XS_BLOCK_BYTES,\n"
        "				      XS_LEAF_PAGES);\n"
        "	xs_engine_forget(engine);\n"
        "	xs_ops(engine)->quiesce(xs_world(engine));\n"
        "	xs_space_free(&engine->space, detached, count);\n",
        "	xs_engine_forget(engine);\n"
        "	xs_ops(engine)->quiesce(xs_world(engine));\n"
        "	xs_space_free(&engine->space, detached, count);\n"
        "	for (u32 i = 0; i < count && xs_ops(engine)->prune; i++)\n"
        "		xs_ops(engine)->prune(xs_world(engine),\n"
        "				      detached[i].block * XS_BLOCK_BYTES,\n"
        "				      XS_LEAF_PAGES);\n",
        ("only=place_trim",),
    ),
    Fault(
        "an engine begins with the defaults",
        "engine.c",
        "	engine->tuning = config->tuning ? *config->tuning :\n",
        "	engine->tuning = false ? *config->tuning :\n",
        ("only=engine_tuned",),
    ),
    Fault(
        "nothing below 4 GiB is kept",
        "space.c",
        "	if (keep)\n		found = xs_tree_find(&space->tree, count, XS_LOW_BLOCKS, end);\n",
        "	if (false)\n		found = xs_tree_find(&space->tree, count, XS_LOW_BLOCKS, end);\n",
        ("only=place_low_limit",),
    ),
    Fault(
        "a trim takes what is used as a whole for empty",
        "tree.c",
        "		if (xs_bit(node->full, *at))\n			return 0;\n",
        "",
        ("only=space_against_model",),
    ),
    Fault(
        "what is withheld twice is handed out",
        "tree.c",
        "	if (take && xs_bit(node->full, at))\n		return;\n",
        "",
        ("only=space_against_model",),
    ),
    Fault(
        "a block without memory for its slots is taken all the same",
        "space.c",
        "	if (leaf && !xs_leaf_add_slots(&space->tree, leaf))\n		leaf = 0;\n",
        "	if (leaf)\n		xs_leaf_add_slots(&space->tree, leaf);\n",
        ("only=engine_each_failure",),
    ),
    # pools
    Fault(
        "chunks go while somebody may know them",
        "pool.c",
        "	pool->ops->quiesce(pool->world);\n	while",
        "	while",
        ("only=pool_copies",),
    ),
    Fault(
        "a CPU keeps a tray open whose chunk goes",
        "pool.c",
        "	for (u32 kind = 0; kind < XS_CELL_KINDS; kind++)\n		xs_pool_close(pool, kind);\n	pool->ops",
        "	pool->ops",
        ("only=pool_shared",),
    ),
    Fault(
        "a copy is unmapped twice",
        "pool.c",
        "!xs_a64_try_acquire(&chunk->words[at], &word, 0)",
        "(xs_a64_set(&chunk->words[at], 0), false)",
        ("only=pool_by_turns_rude",),
    ),
    Fault(
        "an empty tray stays on its shelf",
        "pool.c",
        "	xs_shelf_leave(tray);\n	chunk",
        "	chunk",
        ("only=pool_trims",),
    ),
    Fault(
        "a tray that is empty when it is closed is lost",
        "pool.c",
        "	if (tray != &pool->none && xs_block_close(tray))\n		xs_tray_put(pool, tray);",
        "	if (tray != &pool->none)\n		xs_block_close(tray);",
        ("only=pool_copies",),
    ),
    Fault(
        "a CPU takes idle trays beside another's holes",
        "pool.c",
        "		tray = xs_tray_probe(pool, cpu, kind);",
        "		tray = 0;",
        ("only=pool_holes",),
    ),
    Fault(
        "a pool grows over its limit",
        "pool.c",
        "	*full = pool->wanted && pool->count >= pool->limit;",
        "	*full = false;",
        ("only=pool_grows",),
    ),
    Fault(
        "a chunk that could not be had counts",
        "pool.c",
        "xs_pool_pause(pool, 1)",
        "xs_pool_pause(pool, 0)",
        ("only=pool_pauses",),
    ),
    Fault(
        "what is empty makes no room for other cells",
        "pool.c",
        "			xs_pool_trim(pool, 0);\n		} else",
        "		} else",
        ("only=pool_grows",),
    ),
    Fault(
        "at the limit what has come back goes for what comes back",
        "pool.c",
        "		if (pool->idle[i])\n			pool->wanted &= ~(1u << i);",
        "		;",
        ("only=pool_once",),
    ),
    Fault(
        "what has come back is taken for enough",
        "pool.c",
        "i < XS_CELL_KINDS && pool->count >= pool->limit; i++)",
        "i < XS_CELL_KINDS; i++)",
        ("only=pool_once",),
    ),
    Fault(
        "a chunk is added for who has missed the one before",
        "pool.c",
        "	pool->wanted &= ~(1u << kind);\n	xs_unlock",
        "	xs_unlock",
        ("only=pool_once",),
    ),
    Fault(
        "a buffer is not copied",
        "pool.c",
        "	if (copies || xs_way_writes(way))\n		xs_pool_copy_in(pool, memory, phys, bytes);\n",
        "",
        ("only=pool_copies",),
    ),
    Fault(
        "what a device writes begins with another buffer's bytes",
        "pool.c",
        "	if (copies || xs_way_writes(way))\n		xs_pool_copy_in",
        "	if (copies)\n		xs_pool_copy_in",
        ("only=pool_copies",),
    ),
    Fault(
        "a buffer of no bytes is mapped",
        "pool.c",
        "bytes - 1 >= XS_CELL_MAX_BYTES",
        "bytes > XS_CELL_MAX_BYTES",
        ("only=pool_sizes",),
    ),
    Fault(
        "a sync copies to what a device can only write",
        "pool.c",
        "if (to_device && xs_way_reads(xs_chunk_way(chunk)))",
        "if (to_device)",
        ("only=pool_syncs",),
    ),
    Fault(
        "a sync copies back what a device could not write",
        "pool.c",
        "else if (!to_device && xs_way_writes(xs_chunk_way(chunk)))",
        "else if (!to_device)",
        ("only=pool_syncs",),
    ),
    Fault(
        "a chunk goes with cells that are used",
        "pool.c",
        "chunk->idle_trays == chunk->trays && !kept--",
        "!kept--",
        ("only=pool_trims",),
    ),
    Fault(
        "a buffer goes over the end of its cell",
        "pool.c",
        "	if (lg2 != XS_CELL_MAX_LG2 || offset + bytes > XS_CELL_MAX_BYTES)\n",
        "	if (lg2 != XS_CELL_MAX_LG2)\n",
        ("only=pool_sizes",),
    ),
    Fault(
        "a cell is not aligned as its buffer",
        "pool.c",
        "	if (lg2 < align)\n		lg2 = align;\n",
        "",
        ("only=pool_sizes",),
    ),
    Fault(
        "a sync copies beyond the buffer",
        "pool.c",
        "	if (bytes > origin.bytes - start)\n		bytes = origin.bytes - start;\n",
        "",
        ("only=pool_syncs",),
    ),
    Fault(
        "an address outside of the pool is looked up",
        "pool.c",
        "	if (xs_unlikely(!xs_pool_has(pool, iova)))\n		return 0;\n",
        "",
        ("only=pool_syncs",),
    ),
    Fault(
        "a tray that is opened anew is closed",
        "pool.c",
        "		if (tray != open)\n			xs_tray_shut(pool, open);",
        "		xs_tray_shut(pool, open);",
        ("only=pool_reopened", "limit=10"),
    ),
    Fault(
        "memory above 4 GiB is taken for what is below",
        "pool.c",
        "		.phys = word >> XS_CELL_MAX_LG2,",
        "		.phys = (u32)(word >> XS_CELL_MAX_LG2),",
        ("only=pool_copies",),
    ),
    Fault(
        "a buffer that fills a cell gets one of the next size",
        "pool.c",
        "	u32 lg2 = xs_lg2_ceil(bytes);\n",
        "	u32 lg2 = xs_lg2_ceil(bytes + (bytes < XS_CELL_MAX_BYTES));\n",
        ("only=pool_sizes",),
    ),
    Fault(
        "what is aligned to a page gets a cell of a page, however small it is",
        "include/xsmmu/pool.h",
        "#define XS_CELL_ALIGN_LG2	11",
        "#define XS_CELL_ALIGN_LG2	12",
        ("only=pool_sizes",),
    ),
    Fault(
        "a buffer that is outstanding is named by where its cell begins",
        "pool.c",
        "	*iova = chunk->iova + ((u64)at << chunk->lg2) +\n"
        "		xs_offset_in_cell(origin.phys, origin.bytes, chunk->lg2);\n"
        "	return word",
        "	*iova = chunk->iova + ((u64)at << chunk->lg2);\n	return word",
        ("only=pool_offsets",),
    ),
    Fault(
        "a CPU takes the only tray that another one has listed, and maps on with",
        "pool.c",
        "	if (xs_load(&shelf->listed[0]) > 1)\n",
        "	if (xs_load(&shelf->listed[0]))\n",
        ("only=pool_left_alone",),
    ),
    Fault(
        "a CPU that found no cell of a kind looks for none of any kind",
        "pool.c",
        "	if (now < xs_load(&cpu->dry_ns[kind]))\n"
        "		return 0;\n"
        "	flags = xs_lock(&cpu->lock);\n"
        "	open = cpu->open[kind];\n"
        "	tray = xs_tray_get(pool, cpu, kind, now);\n"
        "	if (!tray)\n"
        "		xs_store(&cpu->dry_ns[kind], now + XS_POOL_DRY_NS);\n",
        "	if (now < xs_load(&cpu->dry_ns[0]))\n"
        "		return 0;\n"
        "	flags = xs_lock(&cpu->lock);\n"
        "	open = cpu->open[kind];\n"
        "	tray = xs_tray_get(pool, cpu, kind, now);\n"
        "	if (!tray)\n"
        "		xs_store(&cpu->dry_ns[0], now + XS_POOL_DRY_NS);\n",
        ("only=pool_dry",),
    ),
    Fault(
        "what CPU 0 has listed is not found by others that are short",
        "pool.c",
        "	for (u32 i = 0; i < pool->cpu_count && i < XS_TRAY_LOOKS; i++) {\n",
        "	for (u32 i = 1; i < pool->cpu_count && i < XS_TRAY_LOOKS; i++) {\n",
        ("only=pool_moves",),
    ),
    Fault(
        "what a sync copies is not counted",
        "pool.c",
        "		xs_pool_copy_in(pool, cell, origin.phys + start, bytes);\n"
        "	else if (!to_device && xs_way_writes(xs_chunk_way(chunk)))\n"
        "		xs_pool_copy_out(pool, origin.phys + start, cell, bytes);\n",
        "		xs_copy_in(cell, origin.phys + start, bytes);\n"
        "	else if (!to_device && xs_way_writes(xs_chunk_way(chunk)))\n"
        "		xs_copy_out(origin.phys + start, cell, bytes);\n",
        ("only=pool_lives",),
    ),
    Fault(
        "a chunk that is partly used counts as the one that is kept",
        "pool.c",
        "		if (chunk->idle_trays == chunk->trays && !kept--) {\n"
        "			spare = chunk;\n"
        "			break;\n"
        "		}\n",
        "		if (kept) {\n"
        "			kept--;\n"
        "		} else if (chunk->idle_trays == chunk->trays) {\n"
        "			spare = chunk;\n"
        "			break;\n"
        "		}\n",
        ("only=pool_trims",),
    ),
    Fault(
        "a chunk whose last idle tray goes takes the others of its kind off the list",
        "pool.c",
        "		pool->idle[kind] = chunk->next;\n	return &chunk->tray",
        "		pool->idle[kind] = 0;\n	return &chunk->tray",
        ("only=pool_once",),
    ),
    Fault(
        "a tray that a CPU opens anew is on no shelf: its holes are never found",
        "pool.c",
        "	xs_shelf_put(&cpu->shelves[kind], tray, 0);\n	xs_block_open(tray);\n",
        "	xs_block_open(tray);\n",
        ("only=pool_moves",),
    ),
    Fault(
        "CPUs close what they share after those who know it were waited for",
        "pool.c",
        "	for (u32 kind = 0; kind < XS_CELL_KINDS; kind++)\n"
        "		xs_pool_close(pool, kind);\n"
        "	pool->ops->quiesce(pool->world);\n",
        "	pool->ops->quiesce(pool->world);\n"
        "	for (u32 kind = 0; kind < XS_CELL_KINDS; kind++)\n"
        "		xs_pool_close(pool, kind);\n",
        ("only=pool_shared",),
    ),
    Fault(
        "a chunk that has gone counts for the limit",
        "pool.c",
        "	xs_store(xs_pool_place(pool, chunk), (struct xs_chunk *)0);\n	pool->count--;\n",
        "	xs_store(xs_pool_place(pool, chunk), (struct xs_chunk *)0);\n",
        ("only=pool_grows",),
    ),
    Fault(
        "at the limit the world is told with each miss",
        "pool.c",
        "			if (full)\n				xs_pool_pause(pool, 0);\n			return;\n",
        "			return;\n",
        ("only=pool_grows",),
    ),
    Fault(
        "after there was no memory the pool never asks again",
        "pool.c",
        "	pool->count -= count;\n	pool->wanted = 0;\n",
        "	pool->count -= count;\n	pool->wanted &= pool->wanted - 1;\n",
        ("only=pool_asks_again",),
    ),
    Fault(
        "a cell says whose it is before it has the bytes",
        "pool.c",
        "	if (copies || xs_way_writes(way))\n"
        "		xs_pool_copy_in(pool, memory, phys, bytes);\n"
        "	xs_a64_set_release(&chunk->words[at >> lg2], xs_word_of(phys, bytes));\n",
        "	xs_a64_set_release(&chunk->words[at >> lg2], xs_word_of(phys, bytes));\n"
        "	if (copies || xs_way_writes(way))\n"
        "		xs_pool_copy_in(pool, memory, phys, bytes);\n",
        ("only=pool_strays",),
    ),
    Fault(
        "an address that a device has not is given if the cell begins where it has",
        "pool.c",
        "			pool->start + XS_POOL_BYTES - 1 > last))",
        "			pool->start > last))",
        ("only=pool_offsets",),
    ),
    Fault(
        "a sync of a part copies the buffer's first bytes",
        "pool.c",
        "		xs_pool_copy_out(pool, origin.phys + start, cell, bytes);\n	return true;",
        "		xs_pool_copy_out(pool, origin.phys, cell, bytes);\n	return true;",
        ("only=pool_syncs",),
    ),
    Fault(
        "a copy is aligned to two bytes",
        "pool.c",
        "	u32 offset = phys & (XS_CELL_MAX_BYTES - 1) & ~3u;\n",
        "	u32 offset = phys & (XS_CELL_MAX_BYTES - 1) & ~1u;\n",
        ("only=pool_offsets",),
    ),
    Fault(
        "what has to keep an offset that is not aligned loses it",
        "pool.c",
        "	       start == (phys & (XS_CELL_MAX_BYTES - 1));\n",
        "	       start == (phys & (XS_CELL_MAX_BYTES - 4));\n",
        ("only=pool_offsets",),
    ),
    Fault(
        "more of an offset has to be kept than a cell can",
        "pool.c",
        "	return keep < XS_CELL_MAX_BYTES &&\n	       start ==",
        "	return start ==",
        ("only=pool_offsets",),
    ),
    Fault(
        "a sync takes a copy for aligned as its buffer is",
        "pool.c",
        "		xs_offset_in_cell(origin.phys, origin.bytes, chunk->lg2);\n	if (start",
        "		(xs_offset_in_cell(origin.phys, origin.bytes, chunk->lg2) |\n"
        "		 (chunk->lg2 == XS_PAGE_LG2 ? origin.phys & 3 : 0));\n	if (start",
        ("only=pool_offsets",),
    ),
    Fault(
        "a sync copies what is before a buffer that is not aligned",
        "pool.c",
        "		xs_pool_copy_in(pool, cell, origin.phys + start, bytes);\n",
        "		xs_pool_copy_in(pool, cell, (origin.phys & ~3ULL) + start, bytes);\n",
        ("only=pool_offsets",),
    ),
    Fault(
        "an unmap takes a copy for aligned as its buffer is",
        "pool.c",
        "					 xs_offset_in_cell(origin.phys,\n"
        "							   origin.bytes,\n"
        "							   chunk->lg2),\n",
        "					 (xs_offset_in_cell(origin.phys, origin.bytes, chunk->lg2) |\n"
        "					  (chunk->lg2 == XS_PAGE_LG2 ? origin.phys & 3 : 0)),\n",
        ("only=pool_offsets",),
    ),
    Fault(
        "a list of as many runs as can be held is not held",
        "map.c",
        "	return runs > XS_HOLDS_MAX;",
        "	return runs >= XS_HOLDS_MAX;",
        ("only=engine_apart",),
    ),
    Fault(
        "memory that cannot be held counts as what is held of a list",
        "map.c",
        "			runs += xs_ref_can_be_held(xs_ref_of(phys[at]));\n",
        "			runs++;\n",
        ("only=engine_apart",),
    ),
    Fault(
        "a list of one page is written as a part of one of many",
        "map.c",
        "		if (pages == 1)\n"
        "			xs_a64_set(slots, xs_slot_one(xs_ref_of(phys[0])));\n"
        "		else if (phys[at]",
        "		if (phys[at]",
        ("only=engine_parts",),
    ),
    Fault(
        "a group with copies seems to have less than nothing mapped for a moment",
        "audit.c",
        "		live -= xs_load_acquire(&counts->copied_unmaps);\n"
        "	}\n"
        "	for (u32 i = 0; i < engine->cpu_count; i++) {\n"
        "		struct xs_counts *counts = xs_counts_of(engine->counts, i);\n"
        "\n"
        "		live += xs_load_acquire(&counts->maps);\n"
        "		live += xs_load_acquire(&counts->map_extra_pages);\n"
        "		live += xs_load_acquire(&counts->copied_maps);\n",
        "		live += xs_load_acquire(&counts->copied_maps);\n"
        "	}\n"
        "	for (u32 i = 0; i < engine->cpu_count; i++) {\n"
        "		struct xs_counts *counts = xs_counts_of(engine->counts, i);\n"
        "\n"
        "		live += xs_load_acquire(&counts->maps);\n"
        "		live += xs_load_acquire(&counts->map_extra_pages);\n"
        "		live -= xs_load_acquire(&counts->copied_unmaps);\n",
        ("only=pool_lives_meanwhile",),
    ),
    # magazines
    Fault(
        "a magazine is lost on its way to the depot",
        "magazine.c",
        "		xs_magazine_push(&depot->full, cache->loaded);\n",
        "",
    ),
    Fault(
        "a depot counts magazines that it has not any more",
        "magazine.c",
        "		depot->full_count--;\n		if (cache->loaded)",
        "		if (cache->loaded)",
        ("only=magazine_full_depot",),
    ),
    Fault(
        "a depot of large pieces keeps as many magazines as one of pages",
        "engine.c",
        "	return XS_DEPOT_PAGES / (xs_depot_items(lg2) << lg2);\n",
        "	return 64;\n",
        ("only=place_depots",),
    ),
    Fault(
        "what CPUs keep of one placement they keep under the other",
        "engine.c",
        "	if (moves)\n		xs_engine_flush(engine);\n",
        "",
        ("only=place_changed",),
    ),
    Fault(
        "what depots keep of one placement they keep under the other",
        "engine.c",
        "		xs_cpu_leave(cpu, flags);\n	}\n	xs_place_flush_depots(engine);\n}\n",
        "		xs_cpu_leave(cpu, flags);\n	}\n}\n",
        ("only=place_changed",),
    ),
    Fault(
        "each shelf is looked at as if it were the first",
        "shelf.c",
        "		--*looks;\n",
        "",
        ("only=block_few_looks",),
    ),
    Fault(
        "one map takes from all CPUs what they keep, however many those are",
        "place.c",
        "	if (end > engine->cpu_count)\n",
        "	end = engine->cpu_count;\n	if (end > engine->cpu_count)\n",
        ("only=place_reclaims_in_turn",),
    ),
    Fault(
        "a round of maps that find no IOVA ends before the last CPU",
        "place.c",
        "			end < engine->cpu_count ? end : 0))\n",
        "			0))\n",
        ("only=place_reclaims_in_turn",),
    ),
    Fault(
        "a timer is started for each batch",
        "sync.c",
        "					 !batch->armed,\n",
        "					 true,\n",
        ("only=engine_timers",),
    ),
    # accounts
    Fault(
        "unmaps that sync count as drains",
        "ledger.c",
        "	into->syncs[XS_SYNC_UNMAP] += counts->direct;\n",
        "	into->syncs[XS_SYNC_DRAIN] += counts->direct;\n",
        ("only=engine_causes",),
    ),
    Fault(
        "a bucket is too low",
        "ledger.c",
        "shift = xs_log2(ns) - XS_EXPOSURE_SUB_LG2;",
        "shift = xs_log2(ns) - XS_EXPOSURE_SUB_LG2 + 1;",
    ),
    Fault(
        "what is live is negative for a moment",
        "audit.c",
        "		live -= xs_load_acquire(&counts->unmaps);\n"
        "		live -= xs_load_acquire(&counts->unmap_extra_pages);\n"
        "		live -= xs_load_acquire(&counts->copied_unmaps);\n	}\n"
        "	for (u32 i = 0; i < engine->cpu_count; i++) {\n"
        "		struct xs_counts *counts = xs_counts_of(engine->counts, i);\n\n"
        "		live += xs_load_acquire(&counts->maps);\n"
        "		live += xs_load_acquire(&counts->map_extra_pages);\n",
        "		live += xs_load_acquire(&counts->maps);\n"
        "		live += xs_load_acquire(&counts->map_extra_pages);\n	}\n"
        "	for (u32 i = 0; i < engine->cpu_count; i++) {\n"
        "		struct xs_counts *counts = xs_counts_of(engine->counts, i);\n\n"
        "		live -= xs_load_acquire(&counts->unmaps);\n"
        "		live -= xs_load_acquire(&counts->unmap_extra_pages);\n",
        ("only=threads_counting",),
    ),
    Fault(
        "a sum has more synced than unmapped",
        "audit.c",
        "	*sum = zero;\n",
        "	*sum = zero;\n	for (u32 i = 0; i < engine->cpu_count; i++)\n"
        "		xs_counts_add(&sum->counts, xs_counts_of(engine->counts, i));\n"
        "	for (u32 i = 0; i < engine->cpu_count; i++) {\n"
        "		xs_flags_t flags = xs_lock(&engine->cpus[i]->lock);\n\n"
        "		xs_ledger_add(sum, &engine->cpus[i]->ledger);\n"
        "		xs_unlock(&engine->cpus[i]->lock, flags);\n	}\n"
        "	xs_ledger_add_direct(sum, &sum->counts);\n	return;\n",
        ("only=threads_counting",),
    ),
    Fault(
        "a clock that goes back makes an exposure of centuries",
        "sync.c",
        "	return now_ns > began_ns ? now_ns - began_ns : 0;\n",
        "	return now_ns - began_ns;\n",
        ("only=engine_clock_back",),
    ),
    # promises that only the tests' own numbers tell
    Fault(
        "the age of what a sync has left is overwritten",
        "include/xsmmu/batch.h",
        "	u64 first = batch->tail & ~(u64)(XS_BATCH_GROUP - 1);\n",
        "	u64 first = batch->tail;\n",
        ("only=batch_kept_full",),
    ),
    Fault(
        "a window never becomes longer",
        "engine.c",
        "		xs_engine_flush(engine);\n	xs_store(&engine->tuning.window_us, tuning->window_us);\n",
        "		xs_engine_flush(engine);\n",
        ("only=engine_longer_window",),
    ),
    Fault(
        "a drain leaves blocks open",
        "engine.c",
        "		if (cause == XS_SYNC_DRAIN)\n			xs_place_close(engine, cpu);\n",
        "",
        ("only=engine_drain",),
    ),
    Fault(
        "a page without a reference is synced at once",
        "map.c",
        "			xs_a64_set(slot, xs_slot_one(XS_REF_NONE));\n",
        "			xs_a64_set(slot, xs_slot_one(XS_REF_UNHELD));\n",
        ("only=engine_filled",),
    ),
    Fault(
        "a part of a block is never empty",
        "unmap.c",
        "	if ((dead | free | xs_a64_read(&block->withheld)) != XS_BLOCK_ALL ||",
        "	if ((dead | free) != XS_BLOCK_ALL ||",
        ("only=engine_block_part",),
    ),
    Fault(
        "blocks are opened in any order",
        "place.c",
        "		if (cpu->stash[i]->iova < cpu->stash[lowest]->iova)",
        "		if (cpu->stash[i]->iova > cpu->stash[lowest]->iova)",
        ("only=place_in_order",),
    ),
    Fault(
        "a map does not try again after its own sync",
        "place.c",
        "		xs_sync_batch(engine, cpu, XS_SYNC_FULL);\n"
        "		iova = xs_place_locked(engine, cpu, policy, pages, last);",
        "		xs_sync_batch(engine, cpu, XS_SYNC_FULL);",
        ("only=place_own_batch",),
    ),
    Fault(
        "pieces of a block with withheld pages stay in magazines",
        "place.c",
        "		xs_a64_set(&block->withheld, rest);\n		xs_store(&engine->withholds, true);\n",
        "		xs_a64_set(&block->withheld, rest);\n",
        ("only=place_withheld",),
    ),
    Fault(
        "holes are used when half of the blocks have them",
        "include/xsmmu/shelf.h",
        "	XS_SHELF_THIRD,		/* of this one */\n",
        "	XS_SHELF_THIRD = 2,	/* of this one */\n",
        ("only=place_worst",),
    ),
    Fault(
        "blocks with fewer than half of their pages free are not listed",
        "include/xsmmu/tree.h",
        "#define XS_BLOCK_MUCH	16u",
        "#define XS_BLOCK_MUCH	32u",
        ("only=place_worst",),
    ),
    Fault(
        "a trim keeps nothing",
        "space.c",
        "		if (space->tree.empty <= space->empty_kept ||\n",
        "		if (space->tree.empty <= 0 ||\n",
        ("only=place_trim_many",),
    ),
    Fault(
        "what is dead stays so under another policy",
        "sync.c",
        "		if (cause == XS_SYNC_DRAIN)\n			xs_sync_bury(engine, batch->runs, taken.runs);\n",
        "",
        ("only=engine_block_after_change",),
    ),
    Fault(
        "what is dead and cannot be deferred stays so",
        "unmap.c",
        "	if (xs_unlikely(!room))\n		xs_unmark_dead(engine, policy, claim);\n	else if (empty)\n",
        "	if (room && empty)\n",
        ("only=engine_no_batch_dead",),
    ),
    Fault(
        "of a row over blocks what is dead in the second one stays so",
        "sync.c",
        "				      xs_block_mask(page, (u32)(stop - page)));\n			page = stop;\n",
        "				      xs_block_mask(page, (u32)(stop - page)));\n			page = end;\n",
        ("only=engine_blocks_after_change",),
    ),
    Fault(
        "a full ring is written all the same",
        "sync.c",
        "	if (!xs_batch_has_room(batch, count))\n		return false;\n	first",
        "	first",
        ("only=batch_kept_full",),
    ),
    Fault(
        "the world is told of empty leaves once only",
        "space.c",
        "	space->surplus = false;\n",
        "",
        ("only=place_trim",),
    ),
    Fault(
        "a trim leaves every second page-table page",
        "engine.c",
        "				      XS_LEAF_PAGES);",
        "				      XS_LEAF_PAGES / 2);",
        ("only=place_trim",),
    ),
    Fault(
        "the last block of a reserved range is handed out",
        "space.c",
        "	u64 end = last / XS_BLOCK_BYTES + 1;\n",
        "	u64 end = (last + 1) / XS_BLOCK_BYTES;\n",
        ("only=space_reserved",),
    ),
    Fault(
        "a pool has as many chunks as it may have megabytes",
        "engine.c",
        "			      engine->tuning.pool_mib >> (XS_CHUNK_LG2 - 20));\n",
        "			      engine->tuning.pool_mib);\n",
        ("only=pool_lives",),
    ),
    Fault(
        "what is copied is not what was set last",
        "engine.c",
        "	xs_store(&engine->tuning.copy_bytes, tuning->copy_bytes);\n",
        "",
        ("only=pool_lives",),
    ),
    Fault(
        "the addresses of a pool are handed out",
        "space.c",
        "	if (at == XS_NO_BLOCK || xs_space_withhold(space, at, at + count))\n		return 0;\n	return at",
        "	if (at == XS_NO_BLOCK)\n		return 0;\n	return at",
        ("only=pool_apart",),
    ),
    Fault(
        "devices that know 32 bits have no pool",
        "engine.c",
        "					 XS_LOW_LAST);\n",
        "					 XS_BLOCK_BYTES);\n",
        ("only=pool_apart",),
    ),
    Fault(
        "where there is no room below 4 GiB there is no pool",
        "engine.c",
        "	if (!start)\n		start = xs_space_reserve_any(&engine->space, XS_POOL_BYTES,\n"
        "					     ~0ULL);\n",
        "",
        ("only=pool_apart",),
    ),
    Fault(
        "a pool that could not be made has addresses",
        "pool.c",
        "	pool->start = XS_POOL_NOWHERE;\n",
        "",
        ("only=pool_no_memory",),
    ),
    Fault(
        "nobody knows that there was no cell",
        "pool.c",
        "	xs_count(pool->counts, copy_misses, 1);\n",
        "",
        ("only=pool_lives",),
    ),
    Fault(
        "what is copied back is not counted",
        "pool.c",
        "	xs_copy_out(phys, cell, bytes);\n	xs_count(pool->counts, copied_bytes, bytes);\n",
        "	xs_copy_out(phys, cell, bytes);\n",
        ("only=pool_lives",),
    ),
    Fault(
        "copies are live for ever",
        "audit.c",
        "		live -= xs_load_acquire(&counts->copied_unmaps);\n",
        "",
        ("only=pool_lives",),
    ),
    Fault(
        "the first of all copies is not found",
        "pool.c",
        "		if (*bytes && first >= at) {\n",
        "		if (*bytes && first > at) {\n",
        ("only=pool_lives",),
    ),
    Fault(
        "an audit does not look at cells",
        "audit.c",
        "	broken |= xs_warn_once(xs_count_copied(engine) != (u64)copied,\n"
        '			       "cells and ledger disagree");\n',
        "",
        ("only=pool_lives",),
    ),
    Fault(
        "an audit does not look at blocks",
        "audit.c",
        "	broken |= xs_warn_once(xs_count_given(engine) !=\n"
        "				       (u64)(live + deferred - copied),\n"
        '			       "blocks and ledger disagree");\n',
        "",
        ("only=engine_audit",),
    ),
    Fault(
        "a level is rounded up",
        "policy.c",
        "	if (!(policy->syncs & XS_SYNC_BIT(XS_SYNC_TIME)))\n		return XS_LEVEL_LAZY;\n",
        "",
    ),
)


@pytest.mark.planted
@pytest.mark.parametrize("fault", FAULTS, ids=lambda fault: fault.name)
def test_a_planted_fault_is_seen(tools: root.Root, tmp_path: Path, fault: Fault) -> None:
    for part in ("core", "tests/unit"):
        shutil.copytree(PROJECT / part, tmp_path / part)
    file = tmp_path / "core" / fault.file
    text = file.read_text()
    assert text.count(fault.good) == 1, f"the fault '{fault.name}' does not fit core/{fault.file} any more"
    file.write_text(text.replace(fault.good, fault.bad))
    program = compiled_with(tools, fault, tmp_path)
    status, output = build.run_userspace(program, ("stop=1", *fault.words), timeout=300)
    assert status != 0, output
    if fault.page != pages.USUAL:
        run(compiled_with(tools, replace(fault, page=pages.USUAL), tmp_path), *fault.words)
