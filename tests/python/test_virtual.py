# SPDX-License-Identifier: GPL-2.0-only
"""Protocols of virtual IOMMUs: counts by hand, counts of the lab's guests, published counts, and tables with faults."""

from __future__ import annotations

import tomllib
from collections import Counter
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner
from tests.python import documents

from xsmmu import virtual
from xsmmu.cli import app
from xsmmu.errors import UserError
from xsmmu_lab.project import PROJECT

FOLDER = PROJECT / "model/virtual"
PROTOCOLS = virtual.protocols(FOLDER / "protocols.toml")
MACHINES = sorted((FOLDER / "machines").glob("*.toml"))
RECORDED: dict[str, Any] = tomllib.loads((FOLDER / "recorded.toml").read_text())


def counts(name: str, mode: str = "strict", ring: int = 256, static: int = 0) -> Mapping[str, float]:
    return virtual.traffic(PROTOCOLS[name], mode, ring, static)


# -- counts ----------------------------------------------------------------------------------------


def test_map_dma_unmap_costs_three_switches_and_dma_inval_two() -> None:
    """As published (CLAIMS C); no table says three or two."""
    assert counts("virtio-map-software")["exit"] == 3
    assert counts("virtio-shared-software")["exit"] == 2


@pytest.mark.parametrize("run", RECORDED["run"], ids=lambda run: f"{run['protocol']}-{run['policy']}")
def test_counts_are_those_of_guests(run: dict[str, Any]) -> None:
    """Exactly, but for the kernel's timer."""
    found = virtual.micro(PROTOCOLS[run["protocol"]], run["mode"], RECORDED["ring"], RECORDED["rounds"])
    assert found["kick"] == run["kick"] - run.get("timer", 0)
    if "unmap" in run:
        assert found["request"] == run["map"] + run["unmap"]
    elif "map" in run:
        assert found["request"] == run["map"] + RECORDED["rounds"]


def test_a_full_queue_is_kicked() -> None:
    """docs/figures.md: 0.005 kicks a page for a batch-aware driver: 1,024 requests are four queues, and an unmap."""
    found = virtual.micro(PROTOCOLS["virtio-range-unmap"], "aware", 1024, 1)
    assert (found["kick"], found["request"]) == (5, 1025)


def test_a_posted_map_has_no_kick() -> None:
    posted, plain = counts("virtio-posted"), counts("virtio-map-software")
    assert (plain["kick"], posted["kick"]) == (2, 1)
    assert posted["request"] == plain["request"] == 2


def test_a_miss_fetches_all_posted_maps() -> None:
    """The other pages are known then: used without a fetch, or unmapped by a request."""
    world = virtual.World(PROTOCOLS["virtio-posted"])
    for page in range(3):
        world.do("map", [page])
        world.do("sync", [page])
    assert world.waiting == 3
    world.do("dma", [0])
    assert (world.waiting, world.states) == (0, {0: "cached", 1: "known", 2: "known"})
    before = Counter(world.counts)
    world.do("dma", [1])
    assert more(world.counts, before) == {"device": 1, "exit": 1, "copy": 1}
    before = Counter(world.counts)
    world.do("unmap", [2])
    assert more(world.counts, before) == {"request": 1}
    assert world.states == {0: "cached", 1: "cached", 2: "stale"}


def test_a_range_has_a_request() -> None:
    assert counts("virtio-map-kernel", "aware")["request"] == 2
    assert counts("virtio-ranges", "aware")["request"] == 2 / virtual.POLL


def test_a_request_for_both_tlbs_halves_the_kicks() -> None:
    assert (counts("virtio-shared-ats")["kick"], counts("virtio-both-tlbs")["kick"]) == (2, 1)
    assert counts("virtio-shared-ats")["command"] == counts("virtio-both-tlbs")["command"] == 2


def test_a_domain_flush_of_a_shadow_visits_all_entries() -> None:
    found = counts("vtd-caching", "lazy", ring=300, static=1000)
    # The ring and the static pages are mapped at each flush; the stale pages are not.
    assert found["scan"] * virtual.LAZY == 1300


def test_a_shared_address_space_defers_nothing() -> None:
    with pytest.raises(UserError, match="a page is stale, where there is no flush"):
        counts("shared-address-space", "lazy")
    assert counts("shared-address-space")["fault"] == 1


@pytest.mark.parametrize("name", PROTOCOLS)
def test_deferring_never_costs_more_kicks(name: str) -> None:
    if PROTOCOLS[name].allows("flush"):
        strict, lazy, aware = (counts(name, mode)["kick"] for mode in virtual.MODES)
        assert strict > lazy
        assert aware <= strict / virtual.POLL + lazy


def test_all_requests_are_handled() -> None:
    for protocol in PROTOCOLS.values():
        world = virtual.World(protocol)
        for page in range(10):
            for event in ("map", "sync", "dma", "unmap", "invalidate"):
                world.do(event, [page])
        assert (world.states, world.reached, world.waiting) == ({}, set(), 0)
        assert world.counts["handled"] == world.counts["request"]


def cost(name: str, *events: str) -> Counter[str]:
    """Counts of a page's events."""
    world = virtual.World(PROTOCOLS[name])
    for event in events:
        world.do(event, [0])
    return world.counts


def more(counted: Counter[str], other: Counter[str]) -> dict[str, int]:
    """What is counted more, or less, than in the other."""
    return {name: counted[name] - other[name] for name in {*counted, *other} if counted[name] != other[name]}


@pytest.mark.parametrize("name", PROTOCOLS)
def test_a_page_is_used_again_without_a_request(name: str) -> None:
    """Only a software device is told."""
    told = {"hardware": {}, "kernel": {"device": 1, "exit": 1}, "user": {"device": 1, "exit": 1, "user": 1}}
    again = more(*(cost(name, "map", "sync", *["dma"] * uses, "unmap", "invalidate") for uses in (3, 2)))
    assert again == told[PROTOCOLS[name].device]


@pytest.mark.parametrize("name", PROTOCOLS)
def test_a_page_that_is_not_used_costs_the_rest(name: str) -> None:
    """What a page's use costs is all that a page without a use saves; requests are handled now or later."""
    used = more(cost(name, "map", "sync", "dma"), cost(name, "map", "sync"))
    events = ("unmap", "invalidate")
    saved = more(cost(name, "map", "sync", "dma", *events), cost(name, "map", "sync", *events))
    for each in (used, saved):
        each.pop("handled", None)
    assert saved == used


@pytest.mark.parametrize("name", [name for name in PROTOCOLS if PROTOCOLS[name].allows("flush")])
def test_flushed_pages_are_free(name: str) -> None:
    """Used or not, and nothing waits in the queue."""
    world = virtual.World(PROTOCOLS[name])
    for page in range(4):
        for event in ("map", "sync", *["dma"] * (page % 2), "unmap"):
            world.do(event, [page])
    world.do("flush", range(4))
    assert (world.states, world.reached, world.waiting) == ({}, set(), 0)


# -- wrong tables ----------------------------------------------------------------------------------


def changed(name: str, key: tuple[str, str], row: tuple[tuple[str, ...], str]) -> virtual.Protocol:
    return replace(PROTOCOLS[name], rows={**PROTOCOLS[name].rows, key: row})


def test_a_lost_invalidation_is_found() -> None:
    wrong = changed("vtd-first-stage", ("stale", "invalidate"), (("request", "kick"), "free"))
    with pytest.raises(UserError, match="1 pages are free, and the device reaches them"):
        virtual.traffic(wrong, "strict", 8)


def test_dma_before_the_map_is_visible_is_found() -> None:
    wrong = changed("vtd-caching", ("written", "sync"), ((), "written"))
    with pytest.raises(UserError, match="a page is written, where there is no dma"):
        virtual.traffic(wrong, "strict", 8)


TABLE = """
[p]
title = "a"
backend = "user"
device = "user"
queue = 4
rows = [["free", "map", [], "written"]]
"""


@pytest.mark.parametrize(
    ("old", "new", "said"),
    [
        ('"free"', '"fre"', "p: unknown state 'fre': choose from free, written"),
        ('"map"', '"mapp"', "p: unknown event 'mapp'"),
        ("[]", '["exit"]', "p: unknown action 'exit'"),
        ('"written"]', '"written"], ["free", "map", [], "known"]', "p: two rows of map in free"),
        ('backend = "user"', 'backend = "moon"', "p: unknown backend 'moon'"),
        ("queue = 4\n", "", "p: 'queue'"),
        ("[p]", "[p", "take the file of this version"),
    ],
)
def test_a_bad_table_is_refused(tmp_path: Path, old: str, new: str, said: str) -> None:
    file = tmp_path / "p.toml"
    file.write_text(TABLE)
    assert virtual.protocols(file)["p"].queue == 4
    file.write_text(TABLE.replace(old, new, 1))
    with pytest.raises(UserError) as error:
        virtual.protocols(file)
    assert said in error.value.message


# -- times -----------------------------------------------------------------------------------------


def test_a_time_is_the_sum_of_prices() -> None:
    machine = virtual.machine(FOLDER / "machines/kvm-x86.toml")
    row = virtual.row(PROTOCOLS["virtio-shared-user"], "strict", machine)
    # An exit to user space, a request that is made and handled, a command.
    assert row["wait_ns"]["value"] == 1500 + 5000 + 150 + 200 + 1000
    assert row["throughput_gbps"]["value"] == pytest.approx(32_768 / (860 + 150 + 7850))


@pytest.mark.parametrize("file", MACHINES, ids=lambda file: file.stem)
def test_each_machine_has_all_rows(file: Path) -> None:
    rows = [*virtual.rows(virtual.machine(file))]
    assert {row["protocol"] for row in rows} == {*PROTOCOLS}
    for row in rows:
        assert row["wait_ns"]["low"] <= row["wait_ns"]["value"] <= row["wait_ns"]["high"]


def test_a_lock_limits_all_cores() -> None:
    machine = virtual.machine(FOLDER / "machines/kvm-x86.toml")
    protocol, found = PROTOCOLS["vtd-first-stage"], counts("vtd-first-stage")
    many = {**machine.values, "cores": 64}
    assert virtual.gbps(protocol, found, many) == pytest.approx(32_768 / 6500)
    assert virtual.gbps(protocol, found, many, queues=64) == 100


def in_docs(found: Mapping[str, Any]) -> list[str]:
    """A protocol's cells in the table of docs/model.md, for a mode."""
    counts_, wait = found["counts"], found["wait_ns"]
    copies = counts_.get("copy", 0) + counts_.get("erase", 0)
    exits = f"{counts_.get('exit', 0):.3f}".rstrip("0").rstrip(".")
    if found["mode"] == "strict":
        exits = " / ".join(
            f"{each:g}" for each in (counts_.get("request", 0), counts_.get("kick", 0), float(exits), copies)
        )
    return [exits, f"{wait['value']:,.0f} ({wait['low']:,.0f} to {wait['high']:,.0f})"]


@pytest.mark.parametrize("name", PROTOCOLS)
def test_the_table_of_the_documents_is_computed(name: str) -> None:
    """Each action of each protocol, and each price, has its part in a figure."""
    found = {
        row["mode"]: in_docs(row) for row in virtual.rows(virtual.machine(FOLDER / "machines/kvm-x86.toml"), [name])
    }
    cells = [name, PROTOCOLS[name].title, *(cell for mode in virtual.MODES for cell in found.get(mode, ["-", "-"]))]
    assert f"| `{cells[0]}` | {' | '.join(cells[1:])} |" in (PROJECT / "docs/model.md").read_text()


# -- the command -----------------------------------------------------------------------------------


def said(*words: object) -> str:
    made = CliRunner().invoke(app, ["predict", "--virtual", *map(str, words)], catch_exceptions=False)
    assert made.exit_code == 0, made.output
    return made.stdout


def test_the_table() -> None:
    lines = said().splitlines()
    assert lines[0].startswith("x86 guest under KVM")
    assert lines[1].split()[:4] == ["PROTOCOL", "MODE", "REQUESTS", "KICKS"]
    (row,) = (line.split() for line in lines if line.startswith("virtio-map-software ") and " strict " in line)
    assert row[2:6] == ["2.000", "2.000", "3.000", "0.000"]


def test_json_fits_its_schema() -> None:
    (document,) = documents.read(said("--machine", MACHINES[0], "-o", "json"))
    assert {row["protocol"] for row in document["protocols"]} == {*PROTOCOLS}
    assert len(documents.read(said("-o", "jsonl"))) == len(document["protocols"])


def test_a_machine_and_a_workload_are_needed() -> None:
    with pytest.raises(UserError, match="name a machine and a workload"):
        CliRunner().invoke(app, ["predict"], catch_exceptions=False, standalone_mode=False)
