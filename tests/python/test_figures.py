# SPDX-License-Identifier: GPL-2.0-only
"""Figures and checks of single runs, on records as a guest sends them."""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import msgspec
import pytest

from xsmmu.errors import GuestError, UserError
from xsmmu_lab import policies
from xsmmu_lab.runs import experiment, figures
from xsmmu_lab.runs.experiment import Run
from xsmmu_lab.runs.figures import Measured
from xsmmu_lab.vm.oracle import Counts, Requests

STATISTICS = (
    *("maps", "unmaps", "mapped_pages", "unmapped_pages", "live_pages", "deferred_pages", "flushed_pages"),
    *("held_pages", "map_flushes", "inv_page", "inv_domain", "inv_global"),
    *("copied_maps", "copied_unmaps", "copied_bytes", "copy_misses", "identity_writes", "identity_misses"),
    *(f"flush_{cause}" for cause in figures.FLUSH_CAUSES),
)


def snapshot(exposure: list[list[Any]] | None = None, **stats: int) -> dict[str, Any]:
    """A device's statistics as the guest sends them."""
    return {
        "now_ns": 1,
        "policy": "none [fused]",
        "tables": "[kernel] direct",
        "level": "held",
        "state": "active",
        "stats": {**dict.fromkeys(STATISTICS, 0), **stats},
        "exposure_ns": exposure or [["max", 0]],
    }


def measured(
    workload: str, policy: str, output: dict[str, Any], counts: Counts | None = None, **record: Any
) -> Measured:
    """A run as received."""
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
    """A good run of the module, with changes to its last snapshot's statistics."""
    after = snapshot(**{**DONE, **changes})
    return measured("micro/1024", "fused", MICRO, Counts(2, 1, 0), before=snapshot(), after=after)


def test_a_good_run_passes() -> None:
    figures.check(ours())


@pytest.mark.parametrize("counter", ["inv_page", "inv_domain", "inv_global"])
@pytest.mark.parametrize("wrong", [-1, 1])
def test_a_skipped_or_extra_count_fails_the_lab(counter: str, wrong: int) -> None:
    base = DONE.get(counter, 0)
    with pytest.raises(UserError, match=r"micro/1024 under fused: the module's invalidation counters differ"):
        figures.check(ours(**{counter: base + wrong}))


def test_a_policy_that_was_not_used_fails() -> None:
    with pytest.raises(UserError, match="not in use"):
        figures.check(ours(maps=0))
    run = ours()
    run.record["after"]["state"] = "attached"
    with pytest.raises(UserError, match="'attached'"):
        figures.check(run)


@pytest.mark.parametrize(("policy", "tables"), [("fused", "kernel [direct]"), ("fused-direct", "[kernel] direct")])
def test_other_tables_than_asked_for_fail(policy: str, tables: str) -> None:
    right = "kernel [direct]" if policy.endswith("direct") else "[kernel] direct"

    def run(found: str) -> Measured:
        after = {**snapshot(None, **DONE), "tables": found}
        return measured("micro/1024", policy, MICRO, Counts(2, 1, 0), before=snapshot(), after=after)

    figures.check(run(right))
    with pytest.raises(UserError, match=re.escape(f"the module's tables are '{tables}'")):
        figures.check(run(tables))


def test_work_that_is_never_flushed_fails() -> None:
    with pytest.raises(UserError, match="3 unmapped pages were still waiting"):
        figures.check(ours(deferred_pages=5, flushed_pages=2))


def test_each_map_is_flushed_where_the_iommu_needs_it_and_only_there() -> None:
    def cached(flushes: int) -> Measured:
        after = snapshot(None, **{**DONE, "map_flushes": flushes})
        return measured("micro/1024-cached", "fused", MICRO, Counts(2, 1, 0), before=snapshot(), after=after)

    figures.check(cached(100))
    with pytest.raises(UserError, match="100 maps had 99 map-side flushes"):
        figures.check(cached(99))
    with pytest.raises(UserError, match="1 map-side flushes, which this IOMMU does not need"):
        figures.check(ours(map_flushes=1))


@pytest.mark.parametrize("policy", ["fused-identity", "strict-identity-direct"])
def test_a_map_that_writes_no_entry_needs_no_flush(policy: str) -> None:
    def cached(flushes: int) -> Measured:
        after = snapshot(None, **{**DONE, "map_flushes": flushes, "identity_writes": 30, "identity_misses": 10})
        after["tables"] = "kernel [direct]" if policy.endswith("-direct") else "[kernel] direct"
        return measured("micro/1024-cached", policy, MICRO, Counts(2, 1, 0), before=snapshot(), after=after)

    figures.check(cached(40))
    with pytest.raises(UserError, match="40 maps had 39 map-side flushes"):
        figures.check(cached(39))


def test_maps_of_a_batch_aware_driver_are_flushed_together() -> None:
    def cached(flushes: int, maps: int = 100) -> Measured:
        after = snapshot(None, **{**DONE, "maps": maps, "map_flushes": flushes})
        run = measured("micro/1024-cached", "fused", MICRO, Counts(2, 1, 0), before=snapshot(), after=after)
        return replace(
            run, run=replace(run.run, workload=msgspec.structs.replace(run.run.workload, driver="batch-aware"))
        )

    figures.check(cached(1))
    with pytest.raises(UserError, match="100 maps had 0 map-side flushes"):
        figures.check(cached(0))


def test_kicks_are_those_of_flushes_and_of_a_full_queue() -> None:
    def queued(maps: int, kicks: int) -> Measured:
        after = snapshot(None, **{**DONE, "map_flushes": 100, "flush_poll": 3, "inv_page": 156, "inv_domain": 0})
        run = measured("micro/1024-cached", "fused", MICRO, Counts(156), before=snapshot(), after=after)
        return replace(run, requests=Requests(maps, kicks))

    figures.check(queued(100, 103 + (100 + 156) // 128 + 4))
    with pytest.raises(UserError, match="110 kicks; the module counted 103 flushes, and the queue was full 2 times"):
        figures.check(queued(100, 110))
    with pytest.raises(UserError, match="99 requests that map; the module counted 100 maps"):
        figures.check(queued(99, 100))


def test_counts_are_compared_as_the_guests_iommu_tells_them_apart() -> None:
    after = snapshot(None, **{**DONE, "map_flushes": 100})
    run = measured("micro/1024", "fused", MICRO, Counts(3, 0, 0), before=snapshot(), after=after)
    amd = replace(run, run=replace(run.run, workload=msgspec.structs.replace(run.run.workload, iommu="amd")))
    figures.check(amd)
    with pytest.raises(UserError, match="the module's invalidation counters differ"):
        figures.check(run)


def test_baselines_need_no_module() -> None:
    figures.check(measured("micro/1024", "kernel-strict", MICRO, Counts(4096, 0, 0)))


@pytest.mark.parametrize("name", ["live_pages", "held_pages"])
def test_what_is_left_after_unbinding_fails(name: str) -> None:
    figures.check_closed("fused", snapshot(), None)
    figures.check_closed("kernel-lazy", None, 0)
    with pytest.raises(UserError, match=f"{name} is 7, not 0"):
        figures.check_closed("fused", snapshot(None, **{name: 7}), None)
    with pytest.raises(UserError, match=f"{name} is 7, not 0"):
        figures.check_closed("fused", snapshot(None, **{name: 7}), 0)


@pytest.mark.parametrize("left", [None, snapshot()])
def test_what_is_left_in_the_device_after_unbinding_fails(left: figures.Json | None) -> None:
    with pytest.raises(UserError, match="under fused: 79 pages are still mapped in the IOMMU"):
        figures.check_closed("fused", left, 79)


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
    for baseline in (few, many):
        with pytest.raises(GuestError, match="64 were done, no more than the baseline's"):
            figures.entry(few, baseline)


@pytest.mark.parametrize(
    ("workload", "output", "message"),
    [
        ("net-rx/igb", lambda done: {"end": {"sum_received": {"bytes": done}}}, "no bytes were received in the whole"),
        ("net-pps/igb-tx", lambda done: {"packets": done}, "no packets arrived in the whole run"),
        ("nvme/4k", lambda done: {"jobs": [{"error": 0, "read": {"total_ios": done}}]}, "no IOs were done in the"),
    ],
)
def test_a_run_without_work_fails_as_it_arrives(workload: str, output: Callable[[int], Any], message: str) -> None:
    figures.check(measured(workload, "kernel-lazy", output(1)))
    for done in (0, -1):
        nothing = measured(workload, "kernel-lazy", output(done))
        with pytest.raises(GuestError, match=f"{workload} under kernel-lazy: {message}"):
            figures.check(nothing)
        # A baseline, which measures the start only, may do nothing.
        figures.check(replace(nothing, run=replace(nothing.run, is_baseline=True)))


def test_the_ios_of_all_jobs_are_the_work() -> None:
    jobs = [{"jobname": "a", "error": 0, "read": {"total_ios": ios, "iops": 1}} for ios in (0, 5)]
    run = measured("nvme/4k", "kernel-lazy", {"jobs": jobs})
    figures.check(run)
    assert figures.entry(run, None)["ios"] == 5


def test_a_failed_job_is_told_as_it_arrives() -> None:
    jobs = [{"jobname": name, "error": error, "read": {"total_ios": 5}} for name, error in (("a", 0), ("b", 84))]
    with pytest.raises(GuestError, match=r"nvme/4k under kernel-lazy: fio job b failed with error 84"):
        figures.check(measured("nvme/4k", "kernel-lazy", {"jobs": jobs}))


def test_commands_are_counted_by_what_the_cost_is_of() -> None:
    few = measured("net-pps/igb-tx", "kernel-strict", {"packets": 64, "sent_us": 500}, Counts(30, 2, 0))
    many = measured("net-pps/igb-tx", "kernel-strict", {"packets": 1000, "sent_us": 5000}, Counts(2030, 2, 0))
    assert figures.entry(many, few)["invalidations_per_unit"] == 2.0  # a packet; those of the start do not count
    fewer = measured("net-pps/igb-tx", "kernel-strict", {"packets": 1000, "sent_us": 5000}, Counts(10, 2, 0))
    assert figures.entry(fewer, few)["invalidations_per_unit"] == 0
    output = {"end": {"sum_received": {"bits_per_second": 8e6, "bytes": 1 << 20}}}
    iperf = measured("net-rx/igb", "kernel-strict", output, Counts(256, 0, 0))
    assert figures.entry(iperf, None)["invalidations_per_unit"] == 0.25  # a KiB
    job = {"jobname": "a", "error": 0, "read": {"total_ios": 50, "iops": 5}}
    fio = measured("nvme/4k", "kernel-strict", {"jobs": [job]}, Counts(100, 50, 0))
    assert figures.entry(fio, None)["invalidations_per_unit"] == 3.0  # an IO
    assert figures.entry(fio, None, cost=None)["invalidations_per_unit"] is None
    assert (
        figures.entry(measured("micro/64", "fused", MICRO, before=snapshot(), after=snapshot()), None)[
            "invalidations_per_unit"
        ]
        is None
    )


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
    assert entry["verified_bytes"] == 4096 and entry["busy_ns"] is None
    job["read"] = {"io_bytes": 0}
    with pytest.raises(UserError, match="4096 bytes were written and 0 verified"):
        figures.entry(measured("nvme-verify/16k", "passthrough", {"jobs": [job]}), None)
    job["error"] = 84
    with pytest.raises(UserError, match="error 84"):
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


def test_the_run_in_the_middle_stands_for_its_repetitions() -> None:
    def entry(unmap: float, inv: int) -> dict[str, Any]:
        output = {**MICRO, "unmap_instructions_per_page": unmap}
        after = snapshot(None, **{**DONE, "inv_page": inv})
        return figures.entry(
            measured("micro/1024", "fused", output, Counts(inv, 1, 0), before=snapshot(), after=after), None
        )

    entries = [entry(120, 5), entry(100, 2), entry(110, 3), entry(115, 4)]
    chosen = figures.middle(entries)
    assert chosen["unmap_instructions_per_page"] == 110
    assert chosen["invalidations"]["page"] == 3
    assert chosen["repeats"] == {
        "runs": 4,
        "cost": [600.5, 620.5],
        "relative_to_passthrough": None,
        "invalidations_per_page": [0.03, 0.06],
        "exposure_max_us": None,
        "throughput": None,
    }
    assert figures.middle(entries[:1]) is entries[0]


def test_an_attack_counts_by_its_worst_repetition() -> None:
    entries = [figures.entry(attacked("fused", landed_ns=each), None) for each in (100_000, 900_000, 300_000)]
    assert figures.middle(entries)["attack"]["last_landed_ns"]["max"] == 900_000


def ring(policy: str, counts: Counts, unmapped: int, **part: int | None) -> Measured:
    """A run of the ring workload that received a GiB, of which `part` was measured."""
    content: dict[str, Any] = {"packets": 1 << 18, "bytes": 1 << 30, "pages_mapped": 1000, "pages_unmapped": 1000}
    content |= {"allocated_pages": 2000, "freed_pages": 2000, "instructions": 250 << 20, "ns": None, **part}
    output = {"pages_mapped": unmapped, "pages_unmapped": unmapped, "measured": content}
    chosen = next(each for each in experiment.load("claim-a-rx").workloads if each.full_name == "ring/rx")
    stats = snapshot(None, **{**DONE, "unmapped_pages": unmapped, "inv_page": counts.page})
    mine = {"before": snapshot(), "after": stats} if policy in experiment.OURS else {"before": None, "after": None}
    return Measured(Run(1, chosen, policy), {"elapsed_ns": 1, "idle_ns": 0, "output": output, **mine}, counts)


def test_what_is_copied_counts_as_a_page() -> None:
    after = snapshot(copied_maps=300, copied_unmaps=200, copied_bytes=4000, copy_misses=7)
    run = measured("micro/1024-256", "copy", MICRO, Counts(), before=snapshot(), after=after)
    figures.check(run)
    entry = figures.entry(run, None)
    assert (entry["pages_mapped"], entry["pages_unmapped"], entry["invalidations_per_page"]) == (300, 200, 0)
    assert entry["copies"] == {"maps": 300, "misses": 7, "bytes": 4000, "bytes_per_s": 2e9}
    assert figures.entry(ours(), None)["copies"] is None
    assert figures.entry(measured("micro/1024", "kernel-lazy", MICRO), None)["copies"] is None


def test_ring_costs_by_the_stretch_that_was_measured() -> None:
    entry = figures.entry(ring("fused", Counts(400, 0, 0), 1400), ring("fused", Counts(390, 0, 0), 400))
    assert entry["cost"] == {"value": 250.0, "unit": "instructions/KiB"}
    assert entry["invalidations_per_unit"] == 10 / (1 << 20)
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


ATTACK = {
    "attempts": 1000,
    "landed": 0,
    "landed_held": 0,
    "landed_freed": 0,
    "landed_reused": 0,
    "astray": 0,
    "copied": 0,
    "syncs": 1,
    "list": 0,
    "attempts_padding": None,
    "landed_padding_mapped": None,
    "landed_padding": None,
    "reached": None,
    "last_landed_ns": {"p50": 0, "p99": 0, "max": 0},
    "cpus": 1,
}


def attacked(policy: str, level: str = "held", longest_ns: int = 900_000, **changes: Any) -> Measured:
    """A run of the attack, by default without a landed write."""
    before, after = snapshot(), snapshot([["1000000", 100], ["max", longest_ns]], **DONE)
    after |= {"level": level, "max_window_us": "1000"}
    landed_ns = changes.pop("landed_ns", 0)
    output = {**ATTACK, **changes, "last_landed_ns": {"p50": landed_ns, "p99": landed_ns, "max": landed_ns}}
    return measured("attack/burst", policy, output, Counts(2, 1, 0), before=before, after=after)


def reaching(landed: int, pages: int | None = 64) -> dict[str, Any]:
    """An attack of a device that reaches all memory."""
    return {"landed": landed, "landed_reused": landed, "landed_ns": 20_000_000, "reached": pages}


def padded(mapped: int = 0, unmapped: int = 0, attempts: int | None = 90) -> dict[str, Any]:
    """Writes that landed in the padding of lists."""
    counts = {"attempts_padding": attempts, "landed_padding_mapped": mapped, "landed_padding": unmapped}
    return {"list": 1, "syncs": 0, **counts}


@pytest.mark.parametrize(
    "run",
    [
        attacked("fused", **padded()),
        attacked("kernel-strict", **padded(mapped=3)),
        attacked("kernel-lazy", **padded(mapped=3, unmapped=5)),
        attacked("passthrough", **padded(attempts=None), **reaching(1000)),
        attacked("fused", landed=10, landed_held=10, landed_ns=870_000),
        attacked("strict", "strict"),
        attacked("copy", "strict", copied=20),
        attacked("copy", "strict", syncs=0),
        attacked("fands", "bounded", landed=10, landed_freed=1, landed_reused=9, landed_ns=870_000),
        attacked("kernel-lazy", landed=10, landed_freed=1, landed_reused=9, landed_ns=15_000_000),
        attacked("kernel-strict"),
        attacked("passthrough", **reaching(1000)),
        *(attacked(policy, **reaching(1000)) for policy in policies.IDENTITY),
    ],
    ids=lambda run: str(run.run.policy),
)
def test_an_attack_that_agrees_with_the_level_passes(run: Measured) -> None:
    figures.check(run)
    assert figures.entry(run, None)["attack"] == run.output


@pytest.mark.parametrize(
    ("run", "message"),
    [
        (attacked("strict", "strict", landed=1, landed_held=1, landed_ns=1), "level strict: 1 of 1000 writes landed"),
        (attacked("fused", "strict", landed=1, landed_held=1, landed_ns=1), "level strict: 1 of 1000 writes landed"),
        (attacked("kernel-strict", landed=1, landed_held=1, landed_ns=1), "level strict: 1 of 1000 writes landed"),
        (attacked("fused", landed=2, landed_held=1, landed_freed=1, landed_ns=1), "level held: 1 writes landed in"),
        (attacked("xsmmu", landed=2, landed_held=1, landed_reused=1, landed_ns=1), "level held: 1 writes landed in"),
        (
            attacked("fused", longest_ns=2_000_000, landed=1, landed_held=1, landed_ns=1_100_000),
            "landed 1100 us after its unmap, and max_window_us is 1000",
        ),
        (
            attacked("fands", "bounded", longest_ns=800_000, landed=1, landed_freed=1, landed_ns=850_000),
            "landed 850.000 us after its unmap; the module counted 800.000 us at most",
        ),
        (attacked("copy", "strict"), "0 pages were copied, so the attack was on other memory"),
        (attacked("copy", "strict", syncs=0, copied=1), "1 pages were copied, so the attack was on other memory"),
        (attacked("fused", **padded(mapped=1)), "1 writes landed in the padding of a mapped list"),
        (attacked("lazy", "lazy", **padded(unmapped=2)), "2 writes landed in the padding of lists"),
        (attacked("kernel-strict", **padded(unmapped=2)), "2 writes landed in the padding of lists"),
        (attacked("fused", **padded(attempts=0)), "the padding of lists was not attacked"),
        (attacked("fused", astray=3), "3 writes went through to memory that was never aimed at"),
        (attacked("passthrough", **reaching(999)), "999 of 1000 writes landed at level none"),
        (attacked("identity-4k", **reaching(999)), "999 of 1000 writes landed at level none"),
        (attacked("identity-4k", **reaching(1000, pages=None)), "None writes landed in pages that were never mapped"),
        (attacked("kernel-strict", reached=64), "64 writes landed in pages that were never mapped"),
    ],
)
def test_an_attack_that_disproves_the_level_fails(run: Measured, message: str) -> None:
    with pytest.raises(UserError, match=message):
        figures.check(run)


def made_table(**changes: Any) -> dict[str, Any]:
    """A guest's report of a static 1:1 table."""
    leaves = {"1g": 0, "2m": 0, "4k": 512}
    table = {"leaves": leaves, "mapped_bytes": 2 << 20, "table_pages": 3, "set_up_ns": 1000}
    record = {"policy": "identity-4k", "devices": "0000:00:03.0", "table": table, "table_pages_by_kernel": 3}
    return record | changes


def test_a_static_table_is_reported_with_its_size_and_set_up() -> None:
    entry = figures.identity(made_table(), "vtd", "instructions")
    assert entry == {
        "policy": "identity-4k",
        "iommu": "vtd",
        "devices": "0000:00:03.0",
        "leaves": {"1g": 0, "2m": 0, "4k": 512},
        "mapped_bytes": 2 << 20,
        "table_pages": 3,
        "table_pages_by_kernel": 3,
        "set_up": {"value": 1000, "unit": "instructions"},
    }
    assert figures.identity(made_table(table_pages_by_kernel=None), "vtd", None)["set_up"] is None


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"policy": "identity-2m"}, "the table has the leaves .*'2m': 0"),
        ({"table_pages_by_kernel": 4}, "3 pages of tables, and 4 by the kernel"),
    ],
)
def test_a_static_table_that_is_not_as_asked_for_fails(changes: dict[str, Any], message: str) -> None:
    with pytest.raises(UserError, match=message):
        figures.identity(made_table(**changes), "vtd", "instructions")


def test_a_static_table_has_no_invalidations_per_page() -> None:
    run = measured("micro/1024", "identity-2m", MICRO, Counts(3, 0, 0))
    figures.check(run)
    entry = figures.entry(run, None)
    assert (entry["level"], entry["invalidations_per_page"]) == ("none", None)


def test_what_works_beside_an_attack_is_counted_too() -> None:
    run = attacked("fused")
    run.record["output"] = {"attack": run.output, "beside": {"page": 3, "domain": 2, "global": 0}}
    with pytest.raises(UserError, match=r"counters differ .*\(page: module 5, QEMU 2; domain: module 3, QEMU 1\)"):
        figures.check(run)
    figures.check(replace(run, counts=Counts(5, 3, 0)))


def test_clocks_of_free_running_guests_prove_nothing() -> None:
    figures.check(attacked("fused", cpus=2, landed=1, landed_held=1, landed_ns=1_100_000))


NEIGHBOUR = {
    "attempts_control": 8,
    "landed_control": 8,
    "attempts_before_flush": 8,
    "landed_before_flush": 8,
    "attempts": 8,
    "landed": 0,
    "attempts_later": 4,
    "landed_later": 0,
    "astray": 0,
}
JOB = {"jobname": "a", "error": 0, "read": {"io_bytes": 4096}, "write": {"io_bytes": 4096}}


def beside(workload: str, policy: str, level: str, **changes: Any) -> Measured:
    """A real driver under attack."""
    before, after = snapshot(), snapshot(None, **DONE)
    after["level"] = level
    output = {"attack": {**NEIGHBOUR, **changes}, "traffic": {"jobs": [JOB]}}
    return measured(workload, policy, output, Counts(2, 1, 0), before=before, after=after)


def test_a_real_driver_under_attack() -> None:
    run = beside("attack/nvme-aware", "fused", "strict")
    figures.check(run)
    entry = figures.entry(run, None)
    assert entry["attack"]["landed_before_flush"] == 8
    assert entry["verified_bytes"] == 4096
    figures.check(beside("attack/nvme", "fused", "held", landed=8, landed_before_flush=None, landed_later=None))


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"landed": 1}, "disproves the level strict: 1 writes landed"),
        ({"landed_later": 2}, "disproves the level strict: 2 writes landed"),
        ({"landed_before_flush": 0}, "no write landed before the driver's flush"),
        ({"landed_control": 7}, "7 of 8 writes to mapped memory landed"),
        ({"landed_control": 0, "attempts_control": 0}, "the attack does not work"),
        ({"attempts": 0}, "the attack does not work"),
        ({"astray": 1}, "never aimed at"),
    ],
)
def test_a_neighbour_that_proves_nothing_or_too_much_fails(changes: dict[str, int], message: str) -> None:
    with pytest.raises(UserError, match=message):
        figures.check(beside("attack/nvme-aware", "fused", "strict", **changes))


def test_data_under_attack_must_read_back() -> None:
    run = beside("attack/nvme-aware", "fused", "strict")
    run.output["traffic"]["jobs"][0] = {**JOB, "read": {"io_bytes": 0}}
    with pytest.raises(UserError, match="4096 bytes were written and 0 verified"):
        figures.entry(run, None)
