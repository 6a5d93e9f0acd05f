# SPDX-License-Identifier: GPL-2.0-only
"""The counts of sim/scale/: the model of lines by accesses of known number, small runs, and repeatability."""

from __future__ import annotations

import io
import json
from pathlib import Path
from typing import Any

import pytest
from rich.console import Console

from checks import scale, sim
from xsmmu.errors import UserError
from xsmmu_lab import scale as counts
from xsmmu_lab.project import PROJECT
from xsmmu_lab.setup import host, root

pytestmark = pytest.mark.early


@pytest.fixture(scope="session")
def tools() -> root.Root:
    return root.ensure(host.cache_dir(), Console(stderr=True))


@pytest.fixture(scope="session")
def program(tools: root.Root) -> Path:
    return counts.compiled(tools)


@pytest.fixture(scope="session")
def native(tools: root.Root) -> Path:
    return counts.compiled(tools, hooked=False)


def lines(program: Path, words: str) -> dict[str, int]:
    """The model's counts for these accesses, without zeros."""
    [events] = counts.run(program, "lines", *words.split())
    return {name: count for name, count in events.items() if count and name != "accesses"}


def tiny(policy: str, aware: bool = False, cpus: int = 4, elsewhere: int = 10, seed: int = 1) -> counts.Config:
    return counts.Config(policy, aware, cpus, elsewhere, "short", seed, warm=6, polls=4)


# An access of the model each: a CPU, r or w, a line.
@pytest.mark.parametrize(
    ("words", "wanted"),
    [
        ("0w0 0w0 0r0", {"cold": 1, "hit": 2}),
        ("0w0 1w0 0w0 1w0 0w0", {"cold": 1, "fetch": 4}),
        ("0w0 1r0 0r0 1r0", {"cold": 1, "read_dirty": 1, "hit": 2}),
        ("0r0 1r0 2r0 0r0", {"cold": 1, "read_clean": 2, "hit": 1}),
        ("0r0 1r0 0w0 1r0 1w0", {"cold": 1, "read_clean": 1, "upgrade": 2, "read_dirty": 1}),
        ("0w0 1w1 0w0 1w1", {"cold": 2, "hit": 2}),
        ("63w0 0w0 63r0", {"cold": 1, "fetch": 1, "read_dirty": 1}),
    ],
)
def test_a_line_that_goes_to_and_fro(program: Path, words: str, wanted: dict[str, int]) -> None:
    assert lines(program, words) == wanted


# The same by code into which the compiler has put the calls.
@pytest.mark.parametrize(
    ("words", "wanted"),
    [
        # A load and a store.
        ("0s0 1l0 0l0 1s0", {"cold": 1, "read_dirty": 1, "hit": 1, "upgrade": 1}),
        # word++ is one instruction: it requests the line once, and is two accesses.
        ("0b0 1b0 0b0 1b0", {"cold": 1, "read_dirty": 3, "hit": 4}),
        # A failed compare-and-swap requests the line like a successful one.
        ("0x0 1x0 0x0", {"cold": 1, "fetch": 2}),
        # A load before is a separate request.
        ("0x0 1l0 1x0", {"cold": 1, "read_dirty": 1, "upgrade": 1}),
        # Two lines copied to two others.
        ("0c0 0c0", {"cold": 4, "hit": 4}),
        ("0c0 1c0", {"cold": 4, "read_clean": 2, "fetch": 2}),
    ],
)
def test_the_compiler_calls_for_each_access(program: Path, words: str, wanted: dict[str, int]) -> None:
    assert lines(program, words) == wanted


@pytest.mark.parametrize("policy", sim.POLICIES)
def test_one_cpu_transfers_nothing(program: Path, policy: str) -> None:
    count = counts.counted(program, tiny(policy, cpus=1))
    assert count.accesses > 5
    # Identity placement has no lock, and strict no batch.
    assert (count.locks > 0) == (policy != "strict-identity")
    kinds = ("engine", "table", "page", "queue", "driver")
    assert [count.transfers(of) for of in kinds] == [0.0] * len(kinds)
    assert count.locks_fetched == count.lock_waits == count.queue_waits == 0


@pytest.mark.parametrize("policy", sim.POLICIES)
def test_same_seed_same_counts(program: Path, policy: str) -> None:
    first, second = (counts.counted(program, tiny(policy)).raw for _ in range(2))
    assert first == second
    assert counts.counted(program, tiny(policy, seed=2)).raw != first


def test_pages_go_elsewhere_as_often_as_asked(program: Path) -> None:
    for share in (0, 10, 33):
        raw = counts.counted(program, tiny("fused", elsewhere=share)).raw
        assert raw["handed"] / raw["completed"] == pytest.approx(share / 100, abs=0.03)
        # An unmap on another CPU brings the page's memory there, whichever access comes first.
        driver = sum(raw["page"][kind] + raw["driver"][kind] for kind in ("read_dirty", "fetch"))
        assert (driver > 0) == (share > 0)


def test_commands_and_flushes_are_those_of_the_policy(program: Path) -> None:
    strict = counts.counted(program, tiny("strict"))
    assert strict.commands == 1
    assert strict.raw["immediate_pages"] == strict.raw["unmaps"]
    xsmmu = counts.counted(program, tiny("xsmmu"))
    assert xsmmu.flushes_per_poll == pytest.approx(1, abs=0.2)
    assert xsmmu.raw["commands_domain"] == sum(xsmmu.raw["flushes"].values())
    aware = counts.counted(program, tiny("xsmmu", aware=True))
    assert aware.raw["flushes"]["explicit"] > 0
    # Nothing is held for a batch-aware driver.
    assert aware.transfers("page") == 0 < xsmmu.transfers("page")


def test_a_space_that_is_too_small_is_a_result(program: Path) -> None:
    count = counts.counted(program, tiny("fused"), "--end", str(2 << 20))
    assert count.error == "no IOVA left"
    assert count.row()["error"] == count.error
    scale.transfers_table("", [count])
    with pytest.raises(UserError):
        counts.run(program, "count", "--policy", "none")


@pytest.mark.long
def test_ageing_says_the_same_twice(native: Path) -> None:
    words = ("ageing", "--policy", "fused", "--cpus", "1", "--maps", "5e3,2e4")
    first, second = (counts.run(native, *words) for _ in range(2))
    assert first == second
    assert len(first) == 2
    for line in first:
        assert line["taken_pages"] >= line["given_pages"] >= line["live_pages"] > 0
        per_map, per_page = scale.instructions(line)
        assert 20 < per_page < per_map < 5000


def test_tables_and_results(tools: root.Root, program: Path, native: Path, tmp_path: Path) -> None:
    configs = [tiny("fused", cpus=cpus, elsewhere=share) for cpus in (1, 2) for share in (0, 10)]
    found = [counts.counted(program, config, "--sites") for config in configs]
    console = Console(width=200, file=io.StringIO(), record=True)
    for title, group in scale._groups(found):
        console.print(scale.transfers_table(title, group))
        console.print(scale.details_table(title, group, 2))
    console.print(scale.sites_table(tools, program, found[-1], 3))
    aged = counts.run(native, "ageing", "--policy", "fused", "--cpus", "1", "--maps", "5e3")
    console.print(scale.ageing_table(aged))
    text = console.export_text()
    assert "path.c:" in text
    assert "fused" in text
    folder = scale.keep(tmp_path, "scale", {"counts": [count.row() for count in found]})
    assert [file.name for file in folder.iterdir()] == ["scale.json"]
    assert [file.name for file in tmp_path.iterdir()] == [folder.name]
    kept: dict[str, Any] = json.loads((folder / "scale.json").read_text())
    assert len(kept["counts"]) == len(configs)


def test_a_broken_claim_is_named() -> None:
    count = counts.Count(tiny("fused"), {}, "no IOVA left")
    claims = [scale.Claim("few transfers", lambda config: config.policy == "fused", counts.Count.transfers, 0.5)]
    [broken] = scale.broken_claims([count], claims)
    assert broken.startswith("few transfers: inf > 0.5 (fused, 4 CPUs")
    assert not scale.broken_claims([counts.Count(tiny("lazy"), {}, "no IOVA left")], claims)


@pytest.mark.parametrize(("life", "policies"), [("short", scale.AWARE), ("mixed", ("fused",))])
def test_what_is_claimed(program: Path, life: str, policies: tuple[str, ...]) -> None:
    configs = scale.matrix(policies, (64,), (0, 33), (life,))
    assert not scale.broken_claims(counts.counted(program, config) for config in configs)


# For 64 CPUs; one CPU or eight have about as much. A search may take the caches of eight CPUs.
STRETCHES = {
    "search": {"off": (1500, 1), "entered": (60_000, 9)},
    "reclaim": {"off": (8000, 1), "entered": (70_000, 9)},
    "drain": {"off": (3500, 1), "entered": (3500, 1)},
    "explicit": {"off": (2500, 1), "entered": (2500, 1)},
    "change": {"off": (7000, 1), "entered": (7000, 1)},
}


@pytest.mark.parametrize("policy", sim.POLICIES)
@pytest.mark.parametrize("cpus", [1, 8, 64])
def test_no_call_keeps_a_cpu_for_longer_where_there_are_many(program: Path, policy: str, cpus: int) -> None:
    [line] = counts.run(program, "stretch", "--policy", policy, "--cpus", str(cpus))
    for call, bounds in STRETCHES.items():
        for kind, (accesses, flushes) in bounds.items():
            stretch = line[call][kind]
            assert stretch["accesses"] <= accesses, f"{call}, {kind}: {stretch}"
            assert stretch["flushes"] <= flushes, f"{call}, {kind}: {stretch}"


def test_all_of_the_engine_is_counted() -> None:
    """Each file of core/ is part of the instrumented unit, and of the other units with the engine."""
    parts = (PROJECT / "core/parts.h").read_text()
    assert all(f'"{file.name}"' in parts for file in (PROJECT / "core").glob("*.c"))
