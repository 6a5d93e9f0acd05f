# SPDX-License-Identifier: GPL-2.0-only
"""The engine's unit tests (tests/unit): in userspace under sanitizers, inside a kernel, and against planted faults.

A failure prints the test and the seed that repeat it: run the program that it names with these words.
"""

from __future__ import annotations

import asyncio
import shutil
from dataclasses import dataclass
from pathlib import Path

import pytest
from rich.console import Console

from xsmmu import build, host, kernels, lab, root
from xsmmu.guest import Boot, Guest, Record

FLAGS = (
    *("-std=gnu11", "-g", "-Wall", "-Wextra", "-Werror", "-Wmissing-prototypes", "-Wstrict-prototypes", "-Wvla"),
    *("-Wno-unused-parameter", "-Icore/include", "-Itests/unit", "-pthread"),
)
MODULE = "xsmmu_test.ko"


@pytest.fixture(scope="session")
def tools() -> root.Root:
    return root.ensure(host.cache_dir(), Console(stderr=True))


def compiled(tools: root.Root, *flags: str, source_dir: Path = build.PROJECT) -> Path:
    """The tests as a program."""
    files = sorted(path.relative_to(source_dir) for path in (source_dir / "tests/unit").glob("*.c"))
    return build.userspace(tools, "unit", [str(file) for file in files], (*FLAGS, *flags), source_dir=source_dir)


def run(program: Path, *words: str) -> None:
    status, output = build.run_userspace(program, words, timeout=600)
    if status != 0 or "# 0 passed" in output or " 0 failed" not in output:
        pytest.fail(f"{program} {' '.join(words)}\nended with {status}:\n{output[-6000:]}")


def test_under_address_and_undefined_behaviour_sanitizers(tools: root.Root) -> None:
    run(compiled(tools, "-O1", "-fsanitize=address,undefined", "-fno-sanitize-recover=all"))


def test_under_thread_sanitizer(tools: root.Root) -> None:
    run(compiled(tools, "-O1", "-fsanitize=thread"), "percent=25")


def test_optimized_as_the_module_is(tools: root.Root) -> None:
    run(compiled(tools, "-O2"), "percent=400")


@pytest.mark.parametrize("kernel", list(kernels.table()[1]))
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


FAULTS = (
    Fault(
        "nothing is invalidated",
        "engine.c",
        "ops(engine)->invalidate(xs_world(engine), gather, ranges, found, sent);",
        "ops(engine)->gather_init(gather); sent->domain++;",
    ),
    Fault(
        "held pages are released before the invalidation",
        "engine.c",
        "	ranges = invalidate_entries(engine, entries, count, &gather, &sent);\n",
        "	for (u32 i = 0; i < count; i++)\n"
        "		release_entry(engine, cpu, &entries[i]);\n"
        "	ranges = invalidate_entries(engine, entries, count, &gather, &sent);\n"
        "	for (u32 i = 0; i < count; i++)\n"
        "		entries[i].mask = 0;\n",
    ),
    Fault(
        "a driver's sync forgets what joined another CPU's batch",
        "engine.c",
        "	else if (promised)\n		cpu->elsewhere++;\n",
        "",
    ),
    Fault(
        "a driver's page that joins a listed block is not promised",
        "engine.c",
        "	else if (xs_unlikely(!xs_load(&cpu->promised)))\n		xs_store(&cpu->promised, true);\n",
        "",
    ),
    Fault(
        "a driver's page joins another CPU's batch and is promised in its own",
        "engine.c",
        "		if (xs_unlikely(xs_listing_cpu(listing) != cpu->id + 1 ||\n				!old)) {",
        "		if (xs_unlikely(!listing || !old)) {",
    ),
    Fault(
        "a block's listing is not read again",
        "engine.c",
        "	if (xs_unlikely(xs_a64_read(&block->listing) != listing))\n		promise_elsewhere(engine);\n	else if",
        "	if",
        ("only=threads_emptying_blocks", "percent=500"),
    ),
    Fault(
        "a driver's sync leaves other CPUs' batches alone",
        "engine.c",
        "	xs_engine_sync(engine, XS_SYNC_EXPLICIT);\n	flags = xs_lock",
        "	flags = xs_lock",
    ),
    Fault("ranges are a block too short", "batch.c", "range.pages *= 2;", "range.pages += XS_BLOCK_PAGES - 1;"),
    Fault("runs are a page too short", "engine.c", "end = start + run;", "end = start + run - (run > 1);"),
    Fault(
        "the mask of a mapping is wrong",
        "engine.c",
        "return (XS_BLOCK_ALL >> (XS_BLOCK_PAGES - pages)) << first;",
        "return (XS_BLOCK_ALL >> (XS_BLOCK_PAGES - pages)) << (first & ~1u);",
    ),
    Fault(
        "a retired CPU's batch is lost",
        "engine.c",
        "	drain(engine, cpu, XS_SYNC_DRAIN);\n	flush_pieces",
        "	cpu->batch.count = 0;\n	flush_pieces",
    ),
    Fault(
        "an IOVA is free as soon as it is unmapped",
        "engine.c",
        "	u64 old = xs_a64_or(&block->dead, mask);\n",
        "	u64 old = xs_a64_or(&block->dead, mask);\n\n	pages_back(engine, cpu, at, mask);\n",
    ),
    Fault(
        "memory is not held",
        "engine.c",
        "	return pages;\n}\n\nstatic void unhold",
        "	return 0;\n}\n\nstatic void unhold",
    ),
    Fault(
        "what could not be mapped is lost",
        "engine.c",
        "	cpu->ledger.map_failures++;\n	range_back(engine, cpu, iova >> XS_PAGE_LG2, pages);\n",
        "	cpu->ledger.map_failures++;\n",
        ("only=engine_each_failure",),
    ),
    Fault(
        "a block without memory for its references is taken all the same",
        "space.c",
        "	if (block != XS_NO_BLOCK && !add_refs(space, block, count))\n		block = XS_NO_BLOCK;\n",
        "	if (block != XS_NO_BLOCK)\n		add_refs(space, block, count);\n",
        ("only=engine_each_failure",),
    ),
    Fault("a stale timer counts as armed", "engine.c", "		cpu->armed = false;\n", ""),
    Fault("a window is doubled", "engine.c", "oldest_ns + window_ns - window_ns / 8", "oldest_ns + 2 * window_ns"),
    Fault(
        "expiry forgets the next deadline",
        "engine.c",
        "	cpu->armed = deadline;",
        "	deadline = 0;\n	cpu->armed = true;",
    ),
    Fault("a full batch overflows into the next entry", "engine.c", "cpu->batch.count == XS_BATCH_ENTRIES", "false"),
    Fault(
        "an open block is taken without comparing",
        "engine.c",
        "	} while (xs_unlikely(!xs_a64_try(&cpu->open, &open,\n					 open + XS_OPEN_STEP)));",
        "	} while (0);\n	xs_a64_set(&cpu->open, open + XS_OPEN_STEP);",
    ),
    Fault(
        "dead pages are added without comparing",
        "engine.c",
        "	} while (xs_unlikely(!xs_a64_try(&block->dead, &old, old | mask)));\n	if",
        "	} while (0);\n	xs_a64_or(&block->dead, mask);\n	if",
    ),
    Fault(
        "an explicit sync skips the last CPU",
        "engine.c",
        "		drain(engine, cpu, cause);",
        "		if (i + 1 < engine->cpu_count)\n			drain(engine, cpu, cause);",
    ),
    Fault(
        "dead pages are taken by who has not batched them",
        "engine.c",
        "	sync_block(engine, cpu, (u32)(page >> XS_BLOCK_LG2));\n	xs_unlock(&cpu->lock, flags);",
        "	xs_unlock(&cpu->lock, flags);\n	cpu = engine->cpus[test_cpu()];\n	flags = xs_lock(&cpu->lock);\n"
        "	struct xs_entry entry = { .block = (u32)(page >> XS_BLOCK_LG2) };\n"
        "	sync_entries(engine, cpu, &entry, 1, XS_SYNC_BLOCK);\n	xs_unlock(&cpu->lock, flags);",
        ("only=threads_emptying_blocks", "percent=500"),
    ),
    Fault("a piece above the limit is handed out", "engine.c", "(page >> XS_BLOCK_LG2) < limit_block", "true"),
    Fault(
        "a bucket is too low",
        "ledger.c",
        "shift = xs_log2(ns) - XS_EXPOSURE_SUB_LG2;",
        "shift = xs_log2(ns) - XS_EXPOSURE_SUB_LG2 + 1;",
    ),
    Fault(
        "a level is rounded up",
        "policy.c",
        "	if (!(policy->syncs & XS_SYNC_BIT(XS_SYNC_TIME)))\n		return XS_LEVEL_LAZY;\n",
        "",
    ),
    Fault(
        "the lowest free block is forgotten",
        "space.c",
        "	if (block < space->hint)\n		space->hint = block;\n",
        "",
    ),
    Fault("a magazine is lost on its way to the depot", "magazine.c", "push(&depot->full, cache->loaded);", ""),
)


@pytest.mark.parametrize("fault", FAULTS, ids=lambda fault: fault.name)
def test_a_planted_fault_is_seen(tools: root.Root, tmp_path: Path, fault: Fault) -> None:
    for part in ("core", "tests/unit"):
        shutil.copytree(build.PROJECT / part, tmp_path / part)
    file = tmp_path / "core" / fault.file
    text = file.read_text()
    assert text.count(fault.good) == 1, f"the fault '{fault.name}' does not fit core/{fault.file} any more"
    file.write_text(text.replace(fault.good, fault.bad))
    program = compiled(tools, "-O1", "-g0", "-Wno-error", source_dir=tmp_path)
    status, output = build.run_userspace(program, ("stop=1", *fault.words), timeout=300)
    assert status != 0, output
