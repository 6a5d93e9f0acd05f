# SPDX-License-Identifier: GPL-2.0-only
"""The run's entry in summary.json from a guest's records, and the checks that every run must pass.

A figure that does not apply is None, never 0. Costs are work (guest time during which the CPU was not idle) per unit.
Where the experiment has a baseline (the same program doing almost nothing), the baseline's work is subtracted.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from itertools import pairwise
from typing import Any, NoReturn

from xsmmu import module, watch
from xsmmu.errors import GuestError
from xsmmu_lab.policies import IDENTITY, UNCONFINED, by_page
from xsmmu_lab.runs.experiment import Run, own_policy
from xsmmu_lab.vm import oracle
from xsmmu_lab.vm.iommu import IOMMUS
from xsmmu_lab.vm.machine import DEVICES
from xsmmu_lab.vm.oracle import Counts, Requests

Json = dict[str, Any]

BASELINE_LEVELS = {
    "passthrough": "none",
    "kernel-strict": "strict",
    "kernel-lazy": "lazy",
    **dict.fromkeys(IDENTITY, "none"),
}
FLUSH_CAUSES = ("unmap", "block", "poll", "full", "time", "explicit", "drain")
NS_PER_S = 1e9
GIB = 1 << 30


@dataclass(frozen=True)
class Measured:
    """A run with the guest's report and the oracle's count."""

    run: Run
    record: Json
    counts: Counts
    requests: Requests | None = None
    """Counted by the oracle, for an IOMMU with a request queue."""

    @property
    def busy_ns(self) -> int:
        """Guest time spent working; under icount, instructions."""
        return int(self.record["elapsed_ns"]) - int(self.record["idle_ns"])

    @property
    def output(self) -> Json:
        """The output of the workload."""
        output: Json = self.record["output"]
        return output

    @property
    def attack(self) -> Json:
        """The output of the attacker, alone or beside a working driver."""
        attack: Json = self.output.get("attack", self.output)
        return attack

    @property
    def beside(self) -> Counts:
        """The module's counts for another group, whose device worked meanwhile."""
        return Counts.from_mapping(self.output.get("beside", Counts().as_dict()))

    @property
    def name(self) -> str:
        """The run's name in messages."""
        return self.run.name

    @property
    def level(self) -> str:
        """The policy's guarantee: as the module reports; for a baseline, from a table."""
        return str(self.record["after"]["level"]) if self.run.ours else BASELINE_LEVELS[self.run.policy]

    def moved(self, statistic: str) -> int:
        """The growth of a counter of the module."""
        return int(self.record["after"]["stats"][statistic]) - int(self.record["before"]["stats"][statistic])


def check(measured: Measured) -> None:
    """Check a run of the module, or the results of an attack under any policy.

    In a run of the module calls were counted, accounts balance, and the hardware model counted the same.
    """
    if measured.run.ours:
        _check_ours(measured)
    if measured.run.workload.measure in _CHECKS and not measured.run.is_baseline:
        _CHECKS[measured.run.workload.measure](measured)


def _check_ours(measured: Measured) -> None:
    if not measured.record["after"]:
        raise GuestError(f"{measured.name}: the module has no statistics for the device")
    # A driver that recycles buffers may map nothing in a run, but must have mapped before.
    stats = measured.record["after"]["stats"]
    state, maps = measured.record["after"]["state"], stats["maps"] + stats["copied_maps"]
    if state != "active" or maps == 0:
        raise GuestError(f"{measured.name}: the module says '{state}' after {maps} maps, so the policy was not in use")
    wanted = "kernel [direct]" if measured.run.direct else "[kernel] direct"
    if measured.record["after"]["tables"] != wanted:
        raise GuestError(f"{measured.name}: the module's tables are '{measured.record['after']['tables']}'")
    ours = Counts(measured.moved("inv_page"), measured.moved("inv_domain"), measured.moved("inv_global"))
    oracle.compare(measured.name, IOMMUS[measured.run.workload.iommu], ours + measured.beside, measured.counts)
    _check_map_side(measured)
    after = measured.record["after"]["stats"]
    if after["deferred_pages"] != after["flushed_pages"]:
        waiting = after["deferred_pages"] - after["flushed_pages"]
        raise GuestError(f"{measured.name}: {waiting} unmapped pages were still waiting for a flush long after the run")


def _written_maps(measured: Measured) -> int:
    """Maps that wrote an entry, at least: under identity placement a page that is mapped, or revived, needs none."""
    if measured.run.policy.removesuffix("-direct") in by_page():
        return measured.moved("identity_writes") + measured.moved("identity_misses")
    return measured.moved("maps")


def _check_map_side(measured: Measured) -> None:
    """Each map is flushed if the IOMMU needs map-side flushes, else none; a batch-aware driver's maps share flushes."""
    maps, flushes = _written_maps(measured), measured.moved("map_flushes")
    least = 1 if maps and measured.run.workload.driver == "batch-aware" else maps
    if IOMMUS[measured.run.workload.iommu].flushes_maps:
        if flushes < least:
            raise GuestError(f"{measured.name}: {maps} maps had {flushes} map-side flushes, but each needs one here")
    elif flushes:
        raise GuestError(f"{measured.name}: {flushes} map-side flushes, which this IOMMU does not need")
    if measured.requests and not measured.beside.total:
        _check_requests(measured, measured.requests)


QUEUE_REQUESTS = 128
"""Requests that fit QEMU's virtio-iommu queue: 256 entries, two per request. The driver kicks when the queue is full.
"""
_KICKS_MORE = 4
"""Allowed kicks that the module does not count as flushes: memory for copies that comes and goes."""


def _check_requests(measured: Measured, requests: Requests) -> None:
    """Each map that writes is at least a request; each kick belongs to a flush or to a full queue."""
    maps, full = _written_maps(measured), (requests.maps + measured.counts.page) // QUEUE_REQUESTS
    if requests.maps < maps:
        raise GuestError(f"{measured.name}: QEMU saw {requests.maps} requests that map; the module counted {maps} maps")
    flushes = measured.moved("map_flushes") + sum(measured.moved(f"flush_{cause}") for cause in FLUSH_CAUSES)
    if requests.kicks > flushes + full + _KICKS_MORE:
        raise GuestError(
            f"{measured.name}: QEMU saw {requests.kicks} kicks; the module counted {flushes} flushes, "
            f"and the queue was full {full} times at most"
        )


def _refuse(measured: Measured, wrong: str) -> NoReturn:
    raise GuestError(f"{measured.name}: the attack disproves the level {measured.level}: {wrong}")


def _check_attack(measured: Measured) -> None:
    """The attacker's results must agree with the level, the window and the module's own histogram."""
    attack = measured.attack
    seen_us = attack["last_landed_ns"]["max"] / 1000
    given_back = attack["landed_freed"] + attack["landed_reused"]
    if attack["astray"]:
        raise GuestError(f"{measured.name}: {attack['astray']} writes went through to memory that was never aimed at")
    copies = own_policy(measured.run.policy) == "copy" and bool(attack["syncs"])
    if copies != bool(attack["copied"]):
        raise GuestError(f"{measured.name}: {attack['copied']} pages were copied, so the attack was on other memory")
    if measured.level == "strict" and attack["landed"]:
        _refuse(measured, f"{attack['landed']} of {attack['attempts']} writes landed")
    if measured.level == "held" and given_back:
        _refuse(measured, f"{given_back} writes landed in pages that were given back")
    _check_padding(measured)
    if measured.level == "none" and attack["landed"] != attack["attempts"]:
        raise GuestError(f"{measured.name}: {attack['landed']} of {attack['attempts']} writes landed at level none")
    if not measured.run.ours and (measured.level == "none") != bool(attack["reached"]):
        raise GuestError(f"{measured.name}: {attack['reached']} writes landed in pages that were never mapped")
    # With two free-running CPUs, a clock measures when the host scheduled them.
    if not measured.run.ours or attack["cpus"] > 1 or not attack["landed"]:
        return
    window_us = int(measured.record["after"]["max_window_us"])
    if seen_us > window_us:
        _refuse(measured, f"a write landed {seen_us:.0f} us after its unmap, and max_window_us is {window_us}")
    exposure = _exposure(measured.record["before"], measured.record["after"])
    if not exposure or seen_us > exposure["max"]:
        most = exposure["max"] if exposure else 0
        _refuse(measured, f"a write landed {seen_us:.3f} us after its unmap; the module counted {most:.3f} us at most")


def _check_padding(measured: Measured) -> None:
    """The padding is not mapped: it is unreachable before and after the unmap, at every level.

    The kernel's own path maps the memory behind a segment there, until the unmap.
    """
    attack = measured.attack
    if not attack["list"] or measured.level == "none":
        return
    if not attack["attempts_padding"]:
        raise GuestError(f"{measured.name}: the padding of lists was not attacked")
    if measured.run.ours and attack["landed_padding_mapped"]:
        _refuse(measured, f"{attack['landed_padding_mapped']} writes landed in the padding of a mapped list")
    if (measured.run.ours or measured.level == "strict") and attack["landed_padding"]:
        _refuse(measured, f"{attack['landed_padding']} writes landed in the padding of lists")


def _check_neighbour(measured: Measured) -> None:
    """The controls show that the attack works; at level strict no other write may land."""
    attack = measured.attack
    if not attack["attempts"] or not attack["landed_control"] or attack["landed_control"] != attack["attempts_control"]:
        raise GuestError(
            f"{measured.name}: {attack['landed_control']} of {attack['attempts_control']} writes to mapped memory "
            f"landed, and {attack['attempts']} to unmapped memory were tried: the attack does not work"
        )
    if measured.run.workload.driver == "batch-aware" and not attack["landed_before_flush"]:
        raise GuestError(f"{measured.name}: no write landed before the driver's flush, so those after it prove nothing")
    if attack["astray"]:
        raise GuestError(f"{measured.name}: {attack['astray']} writes went through to memory that was never aimed at")
    landed = attack["landed"] + (attack["landed_later"] or 0)
    if measured.level == "strict" and landed:
        _refuse(measured, f"{landed} writes landed")


def _check_work(units: str, done: Callable[[Measured], int]) -> Callable[[Measured], None]:
    def at_all(measured: Measured) -> None:
        if done(measured) <= 0:
            raise GuestError(f"{measured.name}: no {units} in the whole run")

    return at_all


_CHECKS: dict[str, Callable[[Measured], None]] = {
    "attack": _check_attack,
    "neighbour": _check_neighbour,
    "iperf": _check_work("bytes were received", lambda measured: measured.output["end"]["sum_received"]["bytes"]),
    "packets": _check_work("packets arrived", lambda measured: measured.output["packets"]),
    "fio": _check_work("IOs were done", lambda measured: _ios(measured)),
}
"""Checks by measure; all runs must pass `check`, too."""


def check_closed(policy: str, left: Json | None, mapped_pages: int | None) -> None:
    """After the drivers have gone nothing may be mapped or held, by the module or in the device."""
    if mapped_pages:
        raise GuestError(f"after unbinding under {policy}: {mapped_pages} pages are still mapped in the IOMMU")
    if not left:
        return
    for name in ("live_pages", "held_pages"):
        if left["stats"][name] != 0:
            raise GuestError(f"after unbinding under {policy}: {name} is {left['stats'][name]}, not 0")


def identity(record: Json, iommu: str, cost: str | None) -> Json:
    """The entry of a static 1:1 table in summary.json, from the guest's record.

    `cost` is the unit of guest time, as in `entry`. Raises GuestError if the table has no leaves of the wanted size, or
    if the kernel has counted other page-table pages.
    """
    table, policy = record["table"], record["policy"]
    if not table["leaves"][policy.rpartition("-")[2]]:
        raise GuestError(f"{policy} on {record['devices']}: the table has the leaves {table['leaves']}")
    counted, by_kernel = table["table_pages"], record["table_pages_by_kernel"]
    if by_kernel not in (None, counted):
        raise GuestError(f"{policy} on {record['devices']}: {counted} pages of tables, and {by_kernel} by the kernel")
    return {
        "policy": policy,
        "iommu": iommu,
        "devices": record["devices"],
        "leaves": table["leaves"],
        "mapped_bytes": table["mapped_bytes"],
        "table_pages": counted,
        "table_pages_by_kernel": by_kernel,
        "set_up": {"value": table["set_up_ns"], "unit": cost} if cost else None,
    }


def entry(measured: Measured, baseline: Measured | None, cost: str | None = "instructions") -> Json:
    """The run's entry in summary.json. `cost` is the unit of busy time: instructions, ns, or None for no unit."""
    run, counts = measured.run, measured.counts
    mine = run.ours
    pages = _pages(measured)
    result: Json = {
        "workload": run.workload.name,
        "policy": run.policy,
        **run.workload.labels,
        "iommu": run.workload.iommu,
        "driver": run.workload.driver,
        "level": measured.level,
        "pages_mapped": pages[0],
        "pages_unmapped": pages[1],
        "map_instructions_per_page": None,
        "unmap_instructions_per_page": None,
        "invalidations": counts.as_dict() if mine else None,
        "oracle_invalidations": counts.as_dict(),
        "invalidations_per_page": counts.total / pages[1] if pages[1] and run.policy not in UNCONFINED else None,
        "exposure_us": _exposure(measured.record["before"], measured.record["after"]) if mine else None,
        "throughput": None,
        "relative_to_passthrough": None,
        "cost": None,
        "invalidations_per_unit": None,
        "busy_ns": measured.busy_ns,
        "elapsed_ns": measured.record["elapsed_ns"],
        "flushes": {cause: measured.moved(f"flush_{cause}") for cause in FLUSH_CAUSES} if mine else None,
        "maps": measured.moved("maps") if mine else None,
        "map_flushes": measured.moved("map_flushes") if mine else None,
        "map_requests": measured.requests.maps if measured.requests else None,
        "kicks": measured.requests.kicks if measured.requests else None,
        "copies": _copies(measured) if mine else None,
    }
    result |= MEASURES[run.workload.measure](measured, baseline)
    if cost is None:
        result |= {"cost": None, "busy_ns": None, "exposure_us": None}
    elif result["cost"]:
        result["invalidations_per_unit"] = _commands(measured, baseline, result)
        result["cost"]["unit"] = f"{cost}/{result['cost']['unit']}"
    return result


def _commands(measured: Measured, baseline: Measured | None, result: Json) -> float | None:
    """Invalidation commands per unit of the run's cost; hardware makes the CPU wait for each command.

    Commands are counted for whole runs, so the baseline's (setup and teardown) are subtracted where there is a
    baseline: the baseline does almost none of the work.
    """
    per = {"KiB": "bytes", "packet": "packets", "IO": "ios"}[result["cost"]["unit"]]
    units = result[per] / 1024 if per == "bytes" else result[per]
    commands = measured.counts.total - (baseline.counts.total if baseline else 0)
    return max(0, commands) / units if units else None


def _copies(measured: Measured) -> Json | None:
    """Buffers that were copied instead of mapped; beside instructions, copies cost memory bandwidth."""
    maps, copied_bytes = measured.moved("copied_maps"), measured.moved("copied_bytes")
    if not maps:
        return None
    per_s = copied_bytes * NS_PER_S / measured.record["elapsed_ns"]
    return {"maps": maps, "misses": measured.moved("copy_misses"), "bytes": copied_bytes, "bytes_per_s": per_s}


def _pages(measured: Measured) -> tuple[int | None, int | None]:
    """Mapped and unmapped pages; a copied buffer counts as a page."""
    if measured.run.ours:
        mapped = measured.moved("mapped_pages") + measured.moved("copied_maps")
        return mapped, measured.moved("unmapped_pages") + measured.moved("copied_unmaps")
    return measured.output.get("pages_mapped"), measured.output.get("pages_unmapped")


def relate(entries: Sequence[Json]) -> None:
    """Fill in `relative_to_passthrough`: the cost over the same workload's cost under passthrough."""
    base: dict[tuple[Any, ...], float] = {}
    for each in entries:
        cost = cost_of(each)
        if each["policy"] == "passthrough" and cost:
            base[_place(each)] = cost
    for each in entries:
        cost, reference = cost_of(each), base.get(_place(each))
        each["relative_to_passthrough"] = cost / reference if cost is not None and reference else None


def cost_of(each: Json) -> float | None:
    """An entry's cost per unit of work; for `micro`, map and unmap together."""
    if each["cost"]:
        return float(each["cost"]["value"])
    if each["map_instructions_per_page"] is None:
        return None
    return float(each["map_instructions_per_page"] + each["unmap_instructions_per_page"])


_SPREAD: dict[str, Callable[[Json], float | None]] = {
    "cost": cost_of,
    "relative_to_passthrough": lambda each: each["relative_to_passthrough"],
    "invalidations_per_page": lambda each: each["invalidations_per_page"],
    "exposure_max_us": lambda each: each["exposure_us"]["max"] if each["exposure_us"] else None,
    "throughput": lambda each: each["throughput"]["value"] if each["throughput"] else None,
}


def middle(entries: Sequence[Json]) -> Json:
    """One entry for a run's repetitions, with the minimum and maximum of some figures.

    The result is the whole entry with the median cost (the lower of two), so that all figures belong to one run. For an
    attack, the entry with the longest reach into memory is taken.
    """
    if len(entries) == 1:
        return entries[0]
    if "attack" in entries[0]:
        chosen = max(entries, key=lambda each: each["attack"]["last_landed_ns"]["max"])
    else:
        chosen = sorted(entries, key=lambda each: cost_of(each) or 0)[(len(entries) - 1) // 2]
    spread: Json = {"runs": len(entries)}
    for name, figure in _SPREAD.items():
        values = [value for each in entries if (value := figure(each)) is not None]
        spread[name] = [min(values), max(values)] if values else None
    return {**chosen, "repeats": spread}


def _place(each: Json) -> tuple[Any, ...]:
    return tuple(each.get(key) for key in ("workload", "ring", "device", "variant", "iommu"))


def _exposure(before: Json, after: Json) -> dict[str, float] | None:
    """Percentiles of the histogram's growth, in microseconds: the upper bound of the bucket that holds each."""
    old, new = _buckets(before["exposure_ns"]), _buckets(after["exposure_ns"])
    grown = {bound: count - old.get(bound, 0) for bound, count in new.items() if count > old.get(bound, 0)}
    total = sum(grown.values())
    if not total:
        return None
    bounds = sorted(grown)
    longest, before_longest = _longest(after["exposure_ns"]), _longest(before["exposure_ns"])
    # The module keeps the longest exposure since load; if unchanged, the last bucket's bound is the best estimate.
    most = longest if longest > before_longest else min(bounds[-1], longest)

    def percentile(share: float) -> float:
        seen = 0
        for bound in bounds:
            seen += grown[bound]
            if seen >= share * total:
                return min(bound, most) / 1000
        return most / 1000

    return {"p50": percentile(0.5), "p99": percentile(0.99), "max": most / 1000}


def _buckets(lines: Sequence[Sequence[Any]]) -> dict[int, int]:
    return {int(bound): int(count) for bound, count in lines if bound != "max"}


def _longest(lines: Sequence[Sequence[Any]]) -> int:
    return next((int(value) for name, value in lines if name == "max"), 0)


def _work_per_unit(measured: Measured, baseline: Measured | None, units: float, baseline_units: float) -> float:
    if units <= baseline_units:
        raise GuestError(f"{measured.name}: {units:.0f} were done, no more than the baseline's {baseline_units:.0f}")
    return (measured.busy_ns - (baseline.busy_ns if baseline else 0)) / (units - baseline_units)


def _micro(measured: Measured, _baseline: Measured | None) -> Json:
    output = measured.output
    extra = {key: value for key, value in output.items() if key not in ("pages_mapped", "pages_unmapped", "ring")}
    return {
        "map_instructions_per_page": output["map_instructions_per_page"],
        "unmap_instructions_per_page": output["unmap_instructions_per_page"],
        "map_ns_per_page": output.get("map_ns_per_page"),
        "unmap_ns_per_page": output.get("unmap_ns_per_page"),
        "micro": extra,
    }


def _iperf(measured: Measured, _baseline: Measured | None) -> Json:
    """Cost by rates within the test's own time, so that start and end of iperf3 do not count."""
    received = measured.output["end"]["sum_received"]
    bytes_per_s = received["bits_per_second"] / 8
    share = measured.busy_ns / measured.record["elapsed_ns"]
    unmapped = measured.moved("unmapped_pages") if measured.run.ours else None
    return {
        "throughput": {"value": received["bits_per_second"] / 1e6, "unit": "Mbit/s"},
        "cost": {"value": share * NS_PER_S / (bytes_per_s / 1024), "unit": "KiB"},
        "bytes": received["bytes"],
        "unmapped_pages_per_gib": None if unmapped is None else unmapped / (received["bytes"] / GIB),
    }


def _packets(measured: Measured, baseline: Measured | None) -> Json:
    packets = measured.output["packets"]
    # Dropped packets cost work too, and their number depends on timing; the entry therefore shows the number.
    lost = max(0, int(measured.run.workload.arguments["packets"]) - packets)
    few = baseline.output["packets"] if baseline else 0
    return {
        "throughput": {"value": packets / measured.output["sent_us"] * 1e6, "unit": "packets/s"},
        "cost": {"value": _work_per_unit(measured, baseline, packets, few), "unit": "packet"},
        "packets": packets,
        "packets_lost": lost,
    }


def _ios(measured: Measured) -> int:
    """The number of I/Os; raises `GuestError` if any failed."""
    _fio_errors(measured)
    return sum(int(job["read"]["total_ios"]) for job in measured.output["jobs"])


def _fio(measured: Measured, baseline: Measured | None) -> Json:
    ios = _ios(measured)
    few = _ios(baseline) if baseline else 0
    iops = sum(float(job["read"]["iops"]) for job in measured.output["jobs"])
    return {
        "throughput": {"value": iops, "unit": "IOPS"},
        "cost": {"value": _work_per_unit(measured, baseline, ios, few), "unit": "IO"},
        "ios": ios,
    }


def _verify(measured: Measured, _baseline: Measured | None) -> Json:
    _fio_errors(measured)
    written = sum(int(job["write"]["io_bytes"]) for job in measured.output["jobs"])
    read = sum(int(job["read"]["io_bytes"]) for job in measured.output["jobs"])
    if not written or read != written:
        raise GuestError(f"{measured.name}: {written} bytes were written and {read} verified")
    # The workload mostly waits for a disk, and 7.2 counts part of the wait in ticks: idle time may exceed elapsed time.
    return {"verified_bytes": read, "busy_ns": None}


def _fio_errors(measured: Measured) -> None:
    for job in measured.output["jobs"]:
        if job["error"]:
            raise GuestError(f"{measured.name}: fio job {job['jobname']} failed with error {job['error']}")


def _attack(measured: Measured, baseline: Measured | None) -> Json:
    """The attacker's results. If a driver worked meanwhile, the data on its disk must read back correctly."""
    traffic = replace(measured, record={**measured.record, "output": measured.output.get("traffic", {})})
    extra: Json = {}
    if "jobs" in traffic.output:
        extra = _verify(traffic, baseline)
    elif traffic.output:
        extra = {"bytes": _iperf(traffic, baseline)["bytes"]}
    return {"attack": measured.attack, **extra}


def _ring(measured: Measured, baseline: Measured | None) -> Json:
    """Cost and work of the section that the module measured.

    Invalidations are counted for whole runs. The baseline contains those of setup and teardown, too.
    """
    part: Json = measured.output["measured"]
    work = part["instructions"] if part["instructions"] is not None else part["ns"]
    invalidations, unmapped = measured.counts.total, _pages(measured)[1] or 0
    if baseline:
        invalidations -= baseline.counts.total
        unmapped -= _pages(baseline)[1] or 0
    confined = measured.run.policy not in UNCONFINED
    return {
        "cost": {"value": work / (part["bytes"] / 1024), "unit": "KiB"},
        "invalidations_per_page": invalidations / unmapped if confined and unmapped > 0 else None,
        "unmapped_pages_per_gib": part["pages_unmapped"] / (part["bytes"] / GIB) if confined else None,
        "allocator_pages_per_gib": part["allocated_pages"] / (part["bytes"] / GIB),
        "bytes": part["bytes"],
        "packets": part["packets"],
        "ring_parts": part,
    }


def _window(measured: Measured, _baseline: Measured | None) -> Json:
    """The line pairs of the research trees, from the guest's samples."""
    devices = [DEVICES[name].bdf for name in measured.run.workload.devices]
    samples = [module.from_record(each, tuple(devices)) for each in measured.output["samples"]]
    windows = [watch.Window(first, last) for first, last in pairwise(samples)]
    return {"window": [{**each.as_dict(), "lines": list(each.lines())} for each in windows]}


MEASURES: dict[str, Callable[[Measured, Measured | None], Json]] = {
    "micro": _micro,
    "iperf": _iperf,
    "packets": _packets,
    "fio": _fio,
    "verify": _verify,
    "attack": _attack,
    "neighbour": _attack,
    "ring": _ring,
    "latency": lambda measured, _baseline: {"latency": measured.output},
    "window": _window,
}
