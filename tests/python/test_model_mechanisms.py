# SPDX-License-Identifier: GPL-2.0-only
"""The machine model's mechanisms: figures that can be computed by hand, what is conserved, and planted bugs.

Each test takes the program, so that `make mutants` can run all with a planted bug.
"""

from __future__ import annotations

import inspect
import subprocess
import sys
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any, Final

import pytest
from tests.python import test_model
from tests.python.test_model import described, fitted, result, sending, stored

from checks.mutants import Mutant, Mutants
from xsmmu_lab.setup import model

pytestmark = pytest.mark.early

MUTANTS: Final = Mutants("tests/model/mutants.toml", (*model.PARTS, "tests/model"))
DATA: Final = 4096 - 52
"""Bytes of data in a packet: without the headers of IP and TCP."""


@pytest.fixture(scope="session")
def program() -> Path:
    return model.compiled()


def counted(found: Mapping[str, Any], name: str) -> float:
    """A count of the whole run, of a counter that is given for each page."""
    return float(found["counters"][f"{name}_per_page"] * found["counters"]["pages"])


def measured_ns(point: Mapping[str, str | int]) -> float:
    """The time that counts."""
    return float(point["time_ms"]) * 750_000


# -- rates -----------------------------------------------------------------------------------------


def test_a_link_carries_its_rate_less_headers(program: Path) -> None:
    found = result(program, fitted(policy="kernel-off", off_mbps=0))
    assert found["throughput_gbps"] == pytest.approx(100 * DATA / (4096 + 38), rel=0.003)
    assert found["limits"]["link"] > 0.8


def test_pcie_carries_its_rate(program: Path) -> None:
    """A packet is its frame and a completion; ACKs and interrupts have entries in rings, too."""
    found = result(program, fitted(policy="kernel-off", flows=1, pcie_mbps=10_000, time_ms=40))
    entries = 1 + (counted(found, "acks") + counted(found, "interrupts")) / found["counters"]["packets"]
    assert found["throughput_gbps"] == pytest.approx(10 * DATA / (4096 + 14 + 64 * entries), rel=0.003)


def test_credits_are_given_back_after_the_latency(program: Path) -> None:
    """Little's law: bytes under way are throughput times latency."""
    found = result(program, fitted(policy="kernel-off", pcie_latency_ns=10_000, time_ms=40))
    most = 12_600 * 8 / 10_000 * DATA / (4096 + 14 + 64)
    assert 0.9 * most < found["throughput_gbps"] <= 1.001 * most


def test_a_walker_walks_all_the_time(program: Path) -> None:
    """Reads of tables, each after the other in a walker, fill the time, and not more than the time."""
    for walkers in (1, 2):
        point = fitted(driver="none", off_mbps=0, table_read_ns=1000, command_stall_ns=0, walkers=walkers, time_ms=40)
        point["serial_table"] = 0
        found = result(program, point)
        share = counted(found, "reads") * 1000 / walkers / measured_ns(point)
        assert 0.85 < share < 1.01


def test_a_window_takes_a_round_trip(program: Path) -> None:
    """24 packets, which are no whole number of segments that GRO joins."""
    window = 24
    point = fitted(policy="kernel-off", flows=1, window_bytes=window * DATA, base_rtt_ns=200_000, time_ms=40)
    for moderation in (0, 100_000):
        found = result(program, point | {"moderation_ns": moderation})
        rate = window * DATA * 8 / (200_000 + moderation)
        assert 0.75 * rate < found["throughput_gbps"] < 1.02 * rate


def test_a_long_round_trip_is_no_loss(program: Path) -> None:
    """A timeout is longer than a round trip: windows of 4 MiB carry 1 Gb/s over 10 ms."""
    far = fitted(policy="kernel-off", off_mbps=1000, window_bytes=4_194_304, base_rtt_ns=10_000_000, time_ms=400)
    found = result(program, far)
    assert found["throughput_gbps"] == pytest.approx(1, rel=0.02)
    assert not found["counters"]["resent_share"]


def test_commands_bound_the_unmaps(program: Path) -> None:
    """The queue takes a command each command_busy_ns."""
    point = fitted(driver="none", off_mbps=0, command_busy_ns=3000, command_stall_ns=0)
    found = result(program, point)
    assert 0.9 < found["counters"]["pages_unmapped"] * 3000 / measured_ns(point) < 1.01


# -- CPU time --------------------------------------------------------------------------------------


def spent(point: Mapping[str, str | int], found: Mapping[str, Any], side: str) -> float:
    """The CPU time of all operations that were counted, as a share."""
    cost = {name: int(value) for name, value in point.items() if name.endswith("_ns")}
    counters = found["counters"]
    acks, total = counted(found, "acks"), measured_ns(point)
    ns = counted(found, "polls") * cost["poll_ns"] + counters["packets"] * cost["packet_ns"]
    ns += counted(found, "merged") * cost["gro_ns"] + counters["pages"] * cost["copy_page_ns"] + acks * cost["ack_ns"]
    ns += counters["pages_mapped"] * cost.get(f"{side}_map_ns", 0)
    ns += counters["pages_unmapped"] * cost.get(f"{side}_unmap_ns", 0)
    return float(ns / total / int(point["cores"]) + found["lock_share"])


def test_cpu_time_is_that_of_what_was_done(program: Path) -> None:
    """Nothing is charged twice, or forgotten. A read's time has no counter, a flush's none of its own."""
    for policy, side in (
        ("kernel-off", ""),
        ("kernel-strict", "kernel"),
        ("fused", "engine"),
        ("fused-direct", "direct"),
    ):
        point = fitted(policy=policy, driver="none", app_read_ns=0, page_ns=0, flush_ns=0, copy_page_ns=1000)
        found = result(program, point)
        assert found["cpu_share"] == pytest.approx(spent(point, found, side), rel=0.01), policy


def test_a_core_works_for_all_its_time_and_no_longer(program: Path) -> None:
    point = fitted(
        policy="kernel-off", off_mbps=0, cores=1, queues=1, app_read_ns=0, page_ns=0, gro_ns=20_000, time_ms=40
    )
    found = result(program, point)
    assert 0.97 < found["cpu_share"] < 1.001
    assert max(found["limits"], key=lambda name: float(found["limits"][name])) == "cpu"


def test_who_has_the_core(program: Path) -> None:
    """Polls empty the NIC's buffer first. If they wait for applications, the NIC drops, and the longer the later."""
    busy = fitted(policy="kernel-off", off_mbps=0, cores=1, queues=1, packet_ns=4000, copy_page_ns=4000, flows=40)
    polls, turns, longer = (
        result(program, busy | {"softirq_us": softirq, "app_slice_us": slice_us, "time_ms": 100})
        for softirq, slice_us in ((2000, 3000), (10, 1), (10, 10_000))
    )
    assert polls["drops_share"] == 0
    assert turns["drops_share"] > 0.02
    assert turns["counters"] != longer["counters"]


def test_a_poll_has_a_budget(program: Path) -> None:
    found = result(program, fitted(policy="kernel-off", budget=4))
    assert found["counters"]["packets"] <= 4 * counted(found, "polls")


# -- what is conserved -----------------------------------------------------------------------------


def test_packets_are_conserved(program: Path) -> None:
    """What has arrived was dropped, is on its way, or was read once; what was dropped is sent again."""
    point = fitted(flows=10, off_mbps=91_500, time_ms=60)
    found = result(program, point)
    packets, drops = found["counters"]["packets"], found["drops_share"]
    under_way = 10 * 260
    read = found["counters"]["pages"] * 4096 / DATA
    assert drops > 0.005
    repeated = found["counters"]["resent_share"] - drops
    assert abs(repeated) < 0.1 * drops
    assert read == pytest.approx(packets, abs=under_way / 4)


def test_pages_are_conserved(program: Path) -> None:
    """What is mapped is unmapped, but for what drivers keep in rings and caches."""
    for driver, policy in (("none", "kernel-strict"), ("none", "fused"), ("mlx5_cache", "kernel-lazy")):
        found = result(program, fitted(driver=driver, policy=policy, flows=20, off_mbps=87_600, time_ms=40))["counters"]
        assert found["pages_unmapped"] > 3000
        assert found["pages_mapped"] == pytest.approx(found["pages_unmapped"], abs=5 * 255 + 200), (driver, policy)
    for policy in ("kernel-strict", "fused"):
        blocks = result(program, fitted(time_ms=60) | described("drivers/fands-6.0") | {"policy": policy})["counters"]
        assert blocks["pages_mapped"] == pytest.approx(blocks["pages_unmapped"], abs=5 * 64 + 200), policy
    aware = result(program, fitted(driver="none", policy="fused-aware"))["counters"]
    assert aware["pages_mapped"] == pytest.approx(aware["pages_unmapped"], abs=5 * 64 + 200)


def test_packets_take_whole_strides(program: Path) -> None:
    """A descriptor of 256 KiB has 60 packets of 17 strides of 256 bytes; without gaps it would have 63."""
    for driver in ("mlx5_cache", "none"):
        found = result(program, fitted(driver=driver, time_ms=40))
        counters = found["counters"]
        pages = counters["pages_mapped"] - counted(found, "acks") + counters["pages_recycled"]
        assert pages / counters["packets"] == pytest.approx(64 / 60, rel=0.01)
    odd = result(program, fitted(policy="kernel-strict", driver="none", stride_bytes=1024, time_ms=40))
    pages = odd["counters"]["pages_mapped"] - counted(odd, "acks")
    assert pages / odd["counters"]["packets"] == pytest.approx(64 / 51, rel=0.01)


def test_a_ring_takes_packets_while_the_core_is_busy(program: Path) -> None:
    """8 descriptors have room for 480 packets; then the NIC drops."""
    busy = fitted(policy="kernel-off", cores=1, queues=1, flows=1, window_bytes=340 * DATA, moderation_ns=1_000_000)
    full, half = (result(program, busy | {"ring": ring}) for ring in (256, 128))
    assert full["drops_share"] == 0
    assert half["drops_share"] > 0


# -- recycling -------------------------------------------------------------------------------------


def slow(**others: str | int) -> dict[str, str | int]:
    """Applications that read slowly: sockets keep more pages than drivers' caches have."""
    return fitted(flows=20, off_mbps=0, copy_page_ns=8000, window_bytes=4_194_304, time_ms=60) | others


def test_a_busy_page_is_not_recycled(program: Path) -> None:
    """Sockets keep 4 x 1,000 packets a queue, a cache 255 pages: its first page is busy. A pool waits for the page."""
    cache = result(program, slow())["counters"]
    assert cache["pages_recycled"] < 0.15 * cache["packets"]
    pool = result(program, slow(driver="page_pool", cache_pages=4096))["counters"]
    # What has come back is posted again, and no more than that.
    assert 0.5 * pool["packets"] < pool["pages_recycled"] < 1.2 * pool["pages"]


def test_a_pool_keeps_no_more_than_its_pages(program: Path) -> None:
    """A pool without room is no pool; the same with a cache."""
    for driver in ("page_pool", "mlx5_cache"):
        found = result(program, fitted(driver=driver, cache_pages=0))["counters"]
        assert not found["pages_recycled"]
        assert found["pages_unmapped"] > found["packets"]


def test_halves_are_used_again_only_if_the_other_is_free(program: Path) -> None:
    halves: dict[str, str | int] = {
        "driver": "half_pages",
        "descriptor_pages": 1,
        "descriptor_packets": 1,
        "stride_bytes": 4096,
    }
    quick = result(program, fitted(mtu_bytes=1500, flows=1, off_mbps=5000, **halves))["counters"]
    held = result(program, slow(mtu_bytes=1500, **halves))["counters"]
    assert quick["pages_recycled"] > 0.9 * quick["packets"]
    assert held["pages_recycled"] < 0.7 * held["packets"]


# -- translation -----------------------------------------------------------------------------------


def test_aged_iovas_have_no_neighbours(program: Path) -> None:
    """IOVAs in any order are in any of 50 leaf tables, of which the walk cache has 12."""
    point = fitted(driver="none", hint="kept", aged_pages=20_000)
    assert result(program, point)["counters"]["l3_misses_per_page"] > 0.7


def test_rings_press_on_the_iotlb(program: Path) -> None:
    """With as many entries as pages in use only rings that are larger make misses."""
    few, many = (result(program, fitted(control_pages=pages))["counters"]["iotlb_misses_per_page"] for pages in (1, 64))
    assert many > few + 0.03


def test_commands_restart_walks(program: Path) -> None:
    """With a walk always in progress each command costs about a miss."""
    points = [fitted(driver="none", off_mbps=0, command_restarts=restarts) for restarts in (0, 1)]
    without, restarted = (result(program, point)["counters"] for point in points)
    more = restarted["iotlb_misses_per_page"] - without["iotlb_misses_per_page"]
    assert 0.3 < more / restarted["unmapped_per_page"] < 1.3
    assert restarted["pages"] < 0.8 * without["pages"]


# -- exposure --------------------------------------------------------------------------------------


def test_a_lazy_page_is_exposed_until_some_cpu_has_255(program: Path) -> None:
    """A flush by any CPU is one of the domain; on average a page waits for half of the time between two."""
    point = fitted(policy="kernel-lazy", driver="none", time_ms=40)
    found = result(program, point)
    interval_us = measured_ns(point) / 1000 / found["counters"]["commands"]["domain"]
    exposed = found["exposure_us"]
    assert 0.3 * interval_us < exposed["p50"] < 0.8 * interval_us
    assert exposed["max"] < 2.5 * interval_us


def test_a_held_page_is_exposed_for_a_poll(program: Path) -> None:
    found = result(program, fitted(policy="fused", driver="none"))
    assert 0 < found["exposure_us"]["p50"] < 200


def test_lists_expose_nothing(program: Path) -> None:
    """A list of xSMMU's, and of a batch-aware driver, is flushed before its memory is let go."""
    for point in (
        fitted(cache_pages=0) | described("drivers/xsmmu-6.0"),
        fitted(policy="fused-aware", driver="none"),
        sending(policy="fused-aware"),
        sending(send_together=1),
        stored(policy="fused-aware", cores=1),
        stored(send_together=1, cores=1),
    ):
        found = result(program, point)
        assert found["exposure_us"]["max"] == 0
        assert found["counters"]["pages_unmapped"] > 0
        commands = found["counters"]["commands"]
        assert commands["domain"] + commands["page"] > 0


def test_a_full_list_is_flushed_within_a_poll(program: Path) -> None:
    """1,024 pages, which a poll of many packets exceeds."""
    point = fitted(cores=1, queues=1, flows=20, off_mbps=0, moderation_ns=1_000_000, walkers=8, window_bytes=4_194_304)
    point |= described("drivers/xsmmu-6.0") | {"queues": 1, "ring": 4096, "cache_pages": 0, "budget": 1024}
    found = result(program, point | {"nic_buffer_bytes": 4_000_000, "moderation_ns": 1_000_000, "time_ms": 60})
    assert found["counters"]["commands"]["domain"] > 1.1 * counted(found, "polls")


# -- the network -----------------------------------------------------------------------------------


def test_gro_joins_packets(program: Path) -> None:
    """65,536 bytes are 16 packets; polls of a few packets join fewer."""
    found = result(program, fitted(policy="kernel-off", flows=1, moderation_ns=64_000))
    merged = counted(found, "merged")
    assert found["counters"]["packets"] / 16 <= merged < found["counters"]["packets"] / 8


def test_a_loss_costs_the_window(program: Path) -> None:
    """The less is left of a window, the lower the throughput with random losses."""
    rates = [
        result(program, fitted(flows=40, off_mbps=0, loss_permille=left, time_ms=40))["drops_share"]
        for left in (300, 900)
    ]
    assert rates[0] < 0.8 * rates[1]


def test_requests_are_answered(program: Path) -> None:
    """Answers of a read go together, and are more than the ACKs of reads."""
    without, answered = (result(program, fitted(request_bytes=size)) for size in (0, 8192))
    assert answered["counters"]["acks_per_page"] > 2 * without["counters"]["acks_per_page"]


def test_seeds_change_what_is_drawn_alone(program: Path) -> None:
    found = [result(program, fitted(seed=seed, flows=10)) for seed in (1, 2)]
    for each in found:
        del each["seed"]
    assert found[0] != found[1]
    assert found[0]["throughput_gbps"] == pytest.approx(found[1]["throughput_gbps"], rel=0.15)


# -- drives ----------------------------------------------------------------------------------------

OFF: Final = {"policy": "kernel-off"}


def test_a_request_takes_its_service_time(program: Path) -> None:
    """Little's law: 64 requests under way, each for 50 us, two ways through PCIe and its CPU time."""
    point = stored(depth=16, drive_parallel=64, drive_mbps=1_000_000, time_ms=20, **OFF)
    found = result(program, point)
    assert found["kiops"] == pytest.approx(64 / (50 + 0.8 + 1) * 1000, rel=0.08)


def test_drives_links_and_their_bridge_bound_requests(program: Path) -> None:
    """Two drives that serve 4 at a time; links; the bridge."""
    assert result(program, stored(drive_parallel=4, **OFF))["kiops"] == pytest.approx(2 * 4 / 50 * 1000, rel=0.05)
    large: dict[str, str | int] = {"block_bytes": 131_072, "drive_service_ns": 10_000, "time_ms": 40, **OFF}
    for drives, bridge, most in ((1, 100_000, 8), (2, 100_000, 16), (4, 24_000, 24)):
        found = result(program, stored(drives=drives, drive_mbps=8000, pcie_mbps=bridge, **large))
        assert found["throughput_gbps"] == pytest.approx(most, rel=0.03)


def test_a_request_of_32_pages_is_a_range(program: Path) -> None:
    """A command for all; a translation for each, and some for rings; what is mapped is unmapped."""
    found = result(program, stored(block_bytes=131_072, time_ms=20))
    counters = found["counters"]
    assert counters["inv_per_page"] == pytest.approx(1 / 32, rel=0.01)
    assert counters["visits_per_page"] == pytest.approx(1 + 2 / 32, rel=0.01)
    assert counters["iotlb_misses_per_page"] > 0.95
    assert counters["pages_mapped"] == pytest.approx(counters["pages_unmapped"], abs=4 * 32 * 32)


def test_rings_of_drives_are_translated(program: Path) -> None:
    """A command and a completion for each request of a page."""
    assert result(program, stored())["counters"]["visits_per_page"] == pytest.approx(3, rel=0.02)


def test_cpu_time_of_requests(program: Path) -> None:
    for policy, map_ns, unmap_ns in (("kernel-off", 0, 0), ("kernel-strict", 414, 500), ("kernel-lazy", 414, 500)):
        point = stored(policy=policy, io_submit_ns=700, io_complete_ns=900)
        found = result(program, point)
        counters = found["counters"]
        ns = found["kiops"] * measured_ns(point) / 1e6 * 1600
        ns += counters["pages_mapped"] * map_ns + counters["pages_unmapped"] * unmap_ns
        share = ns / measured_ns(point) / int(point["cores"]) + found["lock_share"]
        assert found["cpu_share"] == pytest.approx(share, rel=0.02), policy


def test_interrupts_are_moderated(program: Path) -> None:
    """A job with a request at a time waits for each interrupt, unless it looks for the completion itself."""
    one = stored(jobs=1, depth=1, moderation_ns=50_000, time_ms=40, **OFF)
    polls, waits = (result(program, one | {"drive_polls": polls})["kiops"] for polls in (1, 0))
    assert 1 / waits - 1 / polls == pytest.approx(0.050, rel=0.05)


def test_batches_of_requests_are_flushed(program: Path) -> None:
    """By the engine's own flush, or in the kernel's modes by a command for the domain."""
    for change in ({"policy": "fused-aware"}, {"send_together": 1}):
        found = result(program, stored(cores=1, **change))["counters"]
        commands = found["commands"]
        assert 0 < commands["page"] + commands["domain"] < found["pages_unmapped"] / 2, change
    assert commands["domain"] > 100


# -- sent data -------------------------------------------------------------------------------------


def test_a_link_sends_its_rate_less_headers(program: Path) -> None:
    found = result(program, sending(**OFF))
    assert found["transmit_gbps"] == pytest.approx(100 * DATA / (4096 + 38), rel=0.003)


def test_pcie_reads_its_rate(program: Path) -> None:
    """A segment is 64 KiB and its head."""
    found = result(program, sending(pcie_mbps=10_000, time_ms=40, **OFF))
    assert found["transmit_gbps"] == pytest.approx(10 * 65_536 / (65_536 + 128), rel=0.01)


def test_reads_under_way_are_bounded(program: Path) -> None:
    """Little's law; heads are read, too."""
    found = result(program, sending(pcie_latency_ns=10_000, pcie_read_bytes=16_384, time_ms=40, **OFF))
    most = 16_384 * 8 / 10_000
    assert 0.8 * most < found["transmit_gbps"] <= 1.001 * most


def test_a_sent_window_takes_a_round_trip(program: Path) -> None:
    found = result(program, sending(send_flows=1, window_bytes=4 * 65_536, base_rtt_ns=400_000, time_ms=40, **OFF))
    rate = 4 * 65_536 * 8 / 400_000
    assert 0.8 * rate < found["transmit_gbps"] < 1.01 * rate


def test_sent_pages_are_conserved_and_copied(program: Path) -> None:
    """17 pages a segment, with its head; the copy of its 64 KiB takes a core's time."""
    for policy in ("kernel-strict", "fused-aware"):
        counters = result(program, sending(policy=policy, time_ms=40))["counters"]
        assert counters["pages_mapped"] == pytest.approx(counters["pages_unmapped"], abs=5 * 17 * 17)
    point = sending(cores=1, queues=1, copy_page_ns=4000, app_read_ns=0, **OFF)
    found = result(program, point)
    assert 0.9 < found["transmit_gbps"] / (4096 * 8 / 4000) < 1


# -- planted bugs ----------------------------------------------------------------------------------


def checks() -> Iterator[Callable[[Path], None]]:
    """All tests of this file and of test_model.py that need the program alone."""
    for module in (test_model, sys.modules[__name__]):
        for name, check in vars(module).items():
            if (
                name.startswith("test_")
                and inspect.isfunction(check)
                and [*inspect.signature(check).parameters] == ["program"]
            ):
                yield check


CHECKS: Final = (*checks(),)


def test_planted_bugs_fit() -> None:
    named = MUTANTS.named()
    assert len({mutant.name for mutant in named}) == len(named)
    assert all(MUTANTS.changed(mutant) for mutant in named)


BY_HAND: Final = ("cache", "dma", "heap", "link", "queue", "walk")
"""Parts with cases in tests/model/test_parts.c."""


def finder(mutant: Mutant) -> str | None:
    """The first check that finds a planted bug."""
    flags = ("-O1", "-Wno-error")
    with MUTANTS.planted(mutant) as source_dir:
        if Path(mutant.file).stem in BY_HAND:
            parts = model.compiled(flags, source_dir, ("tests/model/test_parts.c",), "test-parts")
            if subprocess.run([parts], capture_output=True, check=False, timeout=60).returncode:
                return "test_parts.c"
        planted = model.compiled(flags, source_dir)
    for check in CHECKS:
        try:
            check(planted)
        except (AssertionError, ZeroDivisionError, subprocess.TimeoutExpired):
            return check.__name__
    return None


@pytest.mark.planted
@pytest.mark.parametrize("mutant", MUTANTS.named(), ids=lambda mutant: mutant.name)
def test_a_planted_bug_is_found(mutant: Mutant) -> None:
    found = finder(mutant)
    print(f"{mutant.name}: found by {found or 'nothing'}")
    assert found
