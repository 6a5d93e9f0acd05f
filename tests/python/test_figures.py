# SPDX-License-Identifier: GPL-2.0-only
"""Figures and checks of single runs, on records such as a guest sends."""

from __future__ import annotations

from typing import Any

import pytest

from xsmmu import experiment, figures
from xsmmu.errors import LabError
from xsmmu.experiment import Run
from xsmmu.figures import Measured
from xsmmu.oracle import Counts

STATISTICS = (
    *("maps", "unmaps", "mapped_pages", "unmapped_pages", "live_pages", "deferred_pages", "synced_pages"),
    *("held_pages", "map_syncs", "inv_page", "inv_domain", "inv_global"),
    *(f"sync_{cause}" for cause in figures.SYNC_CAUSES),
)


def snapshot(exposure: list[list[Any]] | None = None, **stats: int) -> dict[str, Any]:
    """A device's statistics as the guest sends them."""
    return {
        "now_ns": 1,
        "policy": "none [fused]",
        "level": "held",
        "state": "active",
        "stats": {**dict.fromkeys(STATISTICS, 0), **stats},
        "exposure_ns": exposure or [["max", 0]],
    }


def measured(
    workload: str, policy: str, output: dict[str, Any], counts: Counts | None = None, **record: Any
) -> Measured:
    """A run as it arrives."""
    workloads = [each for name in ("compare", "claim-d-mapsync") for each in experiment.load(name).workloads]
    chosen = next(each for each in workloads if each.full_name == workload)
    content = {"elapsed_ns": 2000, "idle_ns": 1000, "before": None, "after": None, "output": output, **record}
    return Measured(Run(1, chosen, policy), content, counts or Counts())


MICRO = {
    "map_instructions_per_page": 500.5,
    "unmap_instructions_per_page": 100.25,
    "pages_mapped": 4096,
    "pages_unmapped": 4096,
}
DONE = {"maps": 100, "mapped_pages": 100, "unmapped_pages": 100, "inv_page": 2, "inv_domain": 1}


def ours(**changes: Any) -> Measured:
    """A good run of ours, with changes to its last snapshot's statistics."""
    after = snapshot(**{**DONE, **changes})
    return measured("micro/1024", "fused", MICRO, Counts(2, 1, 0), before=snapshot(), after=after)


def test_a_good_run_passes() -> None:
    figures.check(ours())


@pytest.mark.parametrize("counter", ["inv_page", "inv_domain", "inv_global"])
@pytest.mark.parametrize("wrong", [-1, 1])
def test_a_skipped_or_extra_count_fails_the_lab(counter: str, wrong: int) -> None:
    base = DONE.get(counter, 0)
    with pytest.raises(LabError, match=r"micro/1024 under fused: the module's invalidation counters differ"):
        figures.check(ours(**{counter: base + wrong}))


def test_a_policy_that_was_not_used_fails() -> None:
    with pytest.raises(LabError, match="not in use"):
        figures.check(ours(maps=0))
    run = ours()
    run.record["after"]["state"] = "attached"
    with pytest.raises(LabError, match="'attached'"):
        figures.check(run)


def test_work_that_is_never_synced_fails() -> None:
    with pytest.raises(LabError, match="3 unmapped pages were still waiting"):
        figures.check(ours(deferred_pages=5, synced_pages=2))


def test_each_map_is_synced_where_the_iommu_needs_it_and_only_there() -> None:
    def cached(syncs: int) -> Measured:
        after = snapshot(None, **{**DONE, "map_syncs": syncs})
        return measured("micro/1024-cached", "fused", MICRO, Counts(2, 1, 0), before=snapshot(), after=after)

    figures.check(cached(100))
    with pytest.raises(LabError, match="100 maps had 99 map-side syncs"):
        figures.check(cached(99))
    with pytest.raises(LabError, match="1 map-side syncs, which this IOMMU does not need"):
        figures.check(ours(map_syncs=1))


def test_baselines_need_no_module() -> None:
    figures.check(measured("micro/1024", "kernel-strict", MICRO, Counts(4096, 0, 0)))


@pytest.mark.parametrize("name", ["live_pages", "held_pages"])
def test_what_is_left_after_unbinding_fails(name: str) -> None:
    figures.check_closed("fused", snapshot())
    figures.check_closed("kernel-lazy", None)
    with pytest.raises(LabError, match=f"{name} is 7, not 0"):
        figures.check_closed("fused", snapshot(None, **{name: 7}))


def test_micro_of_ours() -> None:
    entry = figures.entry(ours(), None)
    assert (entry["workload"], entry["ring"], entry["policy"], entry["level"]) == ("micro", 1024, "fused", "held")
    assert entry["map_instructions_per_page"] == 500.5
    assert entry["invalidations"] == entry["oracle_invalidations"] == {"page": 2, "domain": 1, "global": 0}
    assert entry["invalidations_per_page"] == pytest.approx(0.03)
    assert entry["cost"] is None
    assert entry["busy_ns"] == 1000


def test_micro_of_a_baseline_has_nothing_of_ours() -> None:
    entry = figures.entry(measured("micro/1024", "kernel-strict", MICRO, Counts(4096, 0, 0)), None)
    assert entry["invalidations"] is None
    assert entry["exposure_us"] is None
    assert entry["invalidations_per_page"] == 1.0
    assert entry["level"] == "strict"


def test_exposure_is_what_the_histogram_grew_by() -> None:
    before = snapshot([["1000", 50], ["max", 900]])
    after = snapshot([["1000", 50], ["2000", 98], ["4000", 1], ["8000", 1], ["max", 7500]], **DONE)
    run = measured("micro/64", "fused", MICRO, before=before, after=after)
    assert figures.entry(run, None)["exposure_us"] == {"p50": 2.0, "p99": 4.0, "max": 7.5}


def test_the_longest_since_load_is_not_this_runs() -> None:
    before = snapshot([["1000", 50], ["max", 900_000]])
    after = snapshot([["1000", 60], ["max", 900_000]], **DONE)
    run = measured("micro/64", "fused", MICRO, before=before, after=after)
    assert figures.entry(run, None)["exposure_us"] == {"p50": 1.0, "p99": 1.0, "max": 1.0}


def test_no_unmap_has_no_exposure() -> None:
    run = measured("micro/64", "fused", MICRO, before=snapshot(), after=snapshot())
    assert figures.entry(run, None)["exposure_us"] is None


def test_packets_subtract_what_starting_costs() -> None:
    workload = "net-pps/igb-tx"
    few = measured(workload, "kernel-lazy", {"packets": 64, "sent_us": 500}, elapsed_ns=1_064_000, idle_ns=0)
    many = measured(workload, "kernel-lazy", {"packets": 50_064, "sent_us": 250_320}, elapsed_ns=301_064_000, idle_ns=0)
    entry = figures.entry(many, few)
    assert entry["cost"] == {"value": 6000.0, "unit": "instructions/packet"}
    assert entry["throughput"] == {"value": 200_000.0, "unit": "packets/s"}


def test_iperf_costs_by_its_own_time() -> None:
    output = {"end": {"sum_received": {"bits_per_second": 8 * 1024 * 1e5, "bytes": 1 << 30}}}
    entry = figures.entry(measured("net-rx/igb", "passthrough", output, elapsed_ns=1000, idle_ns=500), None)
    assert entry["cost"] == {"value": 5000.0, "unit": "instructions/KiB"}


def test_free_running_guests_have_no_costs() -> None:
    output = {"end": {"sum_received": {"bits_per_second": 8e6, "bytes": 1 << 30}}}
    entry = figures.entry(measured("net-rx/igb", "passthrough", output), None, cost=None)
    assert entry["cost"] is None
    assert entry["busy_ns"] is None


def test_verify_must_read_what_it_wrote() -> None:
    job = {"jobname": "a", "error": 0, "read": {"io_bytes": 4096}, "write": {"io_bytes": 4096}}
    entry = figures.entry(measured("nvme-verify/16k", "passthrough", {"jobs": [job]}), None)
    assert entry["verified_bytes"] == 4096
    job["read"] = {"io_bytes": 0}
    with pytest.raises(LabError, match="4096 bytes were written and 0 verified"):
        figures.entry(measured("nvme-verify/16k", "passthrough", {"jobs": [job]}), None)
    job["error"] = 84
    with pytest.raises(LabError, match="error 84"):
        figures.entry(measured("nvme-verify/16k", "passthrough", {"jobs": [job]}), None)


def test_costs_are_related_to_passthrough() -> None:
    entries = [
        figures.entry(measured("micro/64", policy, {**MICRO, "map_instructions_per_page": cost}), None)
        for policy, cost in (("kernel-strict", 1899.75), ("passthrough", 899.75))
    ]
    figures.relate(entries)
    assert [each["relative_to_passthrough"] for each in entries] == [2.0, 1.0]
    entries = entries[:1]
    figures.relate(entries)
    assert entries[0]["relative_to_passthrough"] is None


def ring(policy: str, counts: Counts, unmapped: int, **part: int | None) -> Measured:
    """A run of the ring workload that received a GiB, of which `part` was measured."""
    content: dict[str, Any] = {"packets": 1 << 18, "bytes": 1 << 30, "pages_mapped": 1000, "pages_unmapped": 1000}
    content |= {"allocated_pages": 2000, "freed_pages": 2000, "instructions": 250 << 20, "ns": None, **part}
    output = {"pages_mapped": unmapped, "pages_unmapped": unmapped, "measured": content}
    chosen = next(each for each in experiment.load("claim-a-rx").workloads if each.full_name == "ring/rx")
    stats = snapshot(None, **{**DONE, "unmapped_pages": unmapped, "inv_page": counts.page})
    mine = {"before": snapshot(), "after": stats} if policy in experiment.OURS else {"before": None, "after": None}
    return Measured(Run(1, chosen, policy), {"elapsed_ns": 1, "idle_ns": 0, "output": output, **mine}, counts)


def test_ring_costs_by_the_stretch_that_was_measured() -> None:
    entry = figures.entry(ring("fused", Counts(400, 0, 0), 1400), ring("fused", Counts(390, 0, 0), 400))
    assert entry["cost"] == {"value": 250.0, "unit": "instructions/KiB"}
    assert entry["unmapped_pages_per_gib"] == 1000
    assert entry["allocator_pages_per_gib"] == 2000
    assert (entry["bytes"], entry["packets"], entry["pages_unmapped"]) == (1 << 30, 1 << 18, 1400)


def test_ring_leaves_the_invalidations_of_its_ends_to_the_baseline() -> None:
    many, few = ring("fused", Counts(400, 0, 0), 1400), ring("fused", Counts(390, 0, 0), 400)
    assert figures.entry(many, few)["invalidations_per_page"] == pytest.approx(0.01)
    assert figures.entry(many, None)["invalidations_per_page"] == pytest.approx(400 / 1400)
    assert figures.entry(few, few)["invalidations_per_page"] is None


def test_ring_in_passthrough_unmaps_nothing() -> None:
    entry = figures.entry(ring("passthrough", Counts(), 1400), ring("passthrough", Counts(), 400))
    assert (entry["invalidations_per_page"], entry["unmapped_pages_per_gib"]) == (None, None)


def test_ring_without_instructions_costs_time() -> None:
    run = ring("kernel-strict", Counts(400, 0, 0), 1400, instructions=None, ns=1 << 20)
    assert figures.entry(run, None, cost="ns")["cost"] == {"value": 1.0, "unit": "ns/KiB"}
