# SPDX-License-Identifier: GPL-2.0-only
"""Replays: exact figures of recordings made by hand, bad recordings, planted bugs, and the command."""

from __future__ import annotations

import errno
import json
import os
import resource
import subprocess
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, Final

import pytest
from click.testing import CliRunner
from tests.python.recordings import (
    FAILED,
    FROM_DEVICE,
    HEADER,
    MMIO,
    PAGE,
    SKIP_SYNC,
    TO_DEVICE,
    UNHELD,
    Player,
    Recording,
    anything,
    place,
    polls,
    written,
)

from checks.mutants import Mutant, Mutants
from xsmmu import guide
from xsmmu import replay as command
from xsmmu.cli import app
from xsmmu.errors import UserError
from xsmmu.programs import FOLDER_VARIABLE
from xsmmu.replayed import KERNEL
from xsmmu_lab import policies
from xsmmu_lab.project import PROJECT
from xsmmu_lab.setup import replay

pytestmark = pytest.mark.early

MUTANTS: Final = Mutants("tests/trace/mutants.toml", replay.PARTS)
ALL: Final = command.POLICIES
NOTHING: Final[dict[str, int]] = dict.fromkeys(("unmap", "block", "poll", "full", "time", "explicit", "drain"), 0)
TIMER_NS: Final = 875_000
"""A window of 1 ms, less an eighth for a late timer."""

RECORDINGS: Final = PROJECT / "tests/trace/recordings"
GUESTS: Final = (
    *("e1000e-receive-lazy", "igb-ping_both-lazy", "nvme-read_and_write-lazy"),
    *("e1000e-ping-kernel", "igb-iperf3-kernel", "nvme-fio-kernel"),
)

Result = dict[str, Any]
Replayed = Callable[..., Result]
"""Replays a recording: (recording, policy, further words)."""


@pytest.fixture(scope="session")
def player() -> Player:
    return Player(replay.compiled())


@pytest.fixture
def replayed(player: Player, tmp_path: Path) -> Replayed:
    def run(made: Recording, policy: str, *words: str, **header: Any) -> Result:
        file = tmp_path / f"{len(list(tmp_path.iterdir()))}.dma"
        return player(made.write(file, HEADER | header), policy, *words)

    return run


def flushes(**wanted: int) -> dict[str, int]:
    return NOTHING | wanted


def left(found: Result) -> dict[str, int]:
    """Counts of what was not replayed."""
    return {kind: each["count"] for kind, each in found["not_replayed"].items()}


# -- 1,000 pages in polls of 64 --------------------------------------------------------------------

POLLS: Final[Mapping[str, tuple[int, int, dict[str, int]]]] = {
    # 15 polls of 64 and one of 40.
    "kernel-strict": (1000, 0, flushes(unmap=1000)),
    # A queue of 256 is full with 255: unmaps 256, 511 and 766. Then the timer.
    "kernel-lazy": (0, 4, flushes(full=3, time=1)),
    "strict": (1000, 0, flushes(unmap=1000)),
    "copy": (1000, 0, flushes(unmap=1000)),
    "strict-identity": (1000, 0, flushes(unmap=1000)),
    "lazy": (0, 4, flushes(full=3, time=1)),
    "xsmmu": (0, 16, flushes(poll=16)),
    "fused": (16, 0, flushes(poll=16)),
    # A block of 64 at a time; the last 40 pages wait for the timer.
    "fands": (16, 0, flushes(block=15, time=1)),
    "fused-identity": (16, 0, flushes(poll=16)),
}


@pytest.mark.parametrize("policy", POLLS)
def test_polls_of_64(replayed: Replayed, policy: str) -> None:
    found = replayed(polls(1000, 64), policy)
    page, domain, causes = POLLS[policy]
    assert (found["commands"], found["flushes"]) == ({"page": page, "domain": domain}, causes)
    assert found["commands_per_page_unmapped"] == pytest.approx((page + domain) / 1000)
    assert (found["maps"], found["unmaps"], found["pages_mapped"], found["pages_unmapped"]) == (1000,) * 4
    assert (found["exposure_ns"]["pages"], found["pages_still_mapped"], found["not_replayed"]) == (1000, 0, {})
    assert (found["iova_mapped_pages"]["max"], found["iova_held_pages"]["end"]) == (64, 0)


def test_all_policies_are_tested() -> None:
    assert {*POLLS} == {*ALL}
    assert {*policies.names()} == {*guide.POLICIES} == {*ALL} - {*KERNEL}
    assert {*policies.waiting()} == {*command.WAITING}


@pytest.mark.parametrize(("policy", "page", "domain"), [("fused", 16, 0), ("xsmmu", 0, 16), ("fands", 16, 0)])
def test_a_batch_aware_driver_flushes_at_the_end_of_its_poll(
    replayed: Replayed, policy: str, page: int, domain: int
) -> None:
    found = replayed(polls(1000, 64), policy, "--aware")
    assert (found["level"], found["commands"]) == ("strict", {"page": page, "domain": domain})
    assert sum(found["flushes"].values()) == 16
    assert found["memory_held_pages"]["max"] == 0


def test_small_buffers_are_copied(replayed: Replayed) -> None:
    found = replayed(polls(1000, 64, step=1_000_000, size=1500, flags=TO_DEVICE), "copy")
    # The first buffer is mapped, as the pool has no memory yet.
    assert (found["copied_maps"], found["commands"]["page"]) == (999, 1)
    assert found["copied_bytes"] == 999 * 1500
    whole = replayed(polls(64, 64, step=1_000_000, flags=FROM_DEVICE | SKIP_SYNC), "copy")
    assert whole["copied_maps"] == 63


@pytest.mark.parametrize(("copy_bytes", "copied"), [(3000, 8), (2999, 0)])
def test_a_list_is_copied_if_small_as_a_whole(replayed: Replayed, copy_bytes: int, copied: int) -> None:
    """Both entries of the four lists after the first, or none."""
    assert replayed(small_lists((1500, 1500)), "copy", "--copy-bytes", str(copy_bytes))["copied_maps"] == copied


def test_a_page_of_a_list_that_may_be_shared_is_not_copied(replayed: Replayed) -> None:
    made = small_lists((PAGE,), flags=FROM_DEVICE | SKIP_SYNC)
    assert replayed(made, "copy", "--copy-bytes", str(PAGE))["copied_maps"] == 0


def small_lists(sizes: Sequence[int], **fields: int) -> Recording:
    """Five lists, one after the other."""
    made = Recording(step=1_000_000)
    for number in range(1, 6):
        made.map_list(number, sizes, **fields).unmap_list(number, sizes, **fields)
    return made


@pytest.mark.parametrize(
    ("frees", "ranges", "page", "domain"),
    [
        (False, (), 0, 1),
        (False, ("5+1",), 1, 0),
        (False, ("5+1", "128+64"), 2, 0),
        (False, (f"0+{2**18}", f"{2**18}+{2**18 + 1}"), 1, 1),
        # The driver frees tables with a range's command, and several ranges do not cover what led to the tables.
        (True, (), 1, 1),
        (True, ("512+512",), 1, 0),
        (True, ("512+512", "5+1"), 1, 1),
    ],
)
def test_commands_are_counted_as_the_module_counts_them(
    frees: bool, ranges: tuple[str, ...], page: int, domain: int
) -> None:
    """As backend_invalidate() in kmod/domain/invalidate.c."""
    done = subprocess.run([replay.commands(), str(int(frees)), *ranges], capture_output=True, text=True, check=True)
    assert done.stdout.split() == [str(page), str(domain)]


# -- times -----------------------------------------------------------------------------------------


def test_exposure_ends_with_the_poll(replayed: Replayed) -> None:
    made = Recording()
    for number in (1, 2, 3):
        made.map(number)
    made.unmap(1, ns=1000).unmap(2, ns=2000).unmap(3, ns=3000).poll(ns=5000)
    found = replayed(made, "fused")
    assert found["exposure_ns"]["max"] == 4000
    assert 3000 <= found["exposure_ns"]["p50"] <= 3000 * 65 / 64
    assert found["exposure_ns"]["p99"] == 4000
    # 1, 2 and 3 pages for 1, 1 and 2 us, of 5 us.
    assert found["memory_held_pages"] == {"max": 3, "mean": pytest.approx(9 / 5), "end": 0}
    assert found["iova_held_pages"] == found["memory_held_pages"]
    assert found["iova_mapped_pages"]["max"] == 3


@pytest.mark.parametrize(("policy", "window_us"), [("fused", 1000), ("xsmmu", 200), ("lazy", 10_000), ("fands", 8)])
def test_without_a_poll_the_timer_flushes(replayed: Replayed, policy: str, window_us: int) -> None:
    made = Recording().map(1, ns=0).unmap(1, ns=5_000)
    found = replayed(made, policy, "--window-us", str(window_us))
    assert found["flushes"] == flushes(time=1)
    assert found["exposure_ns"]["max"] == window_us * 1000 * 7 // 8


def test_a_poll_of_another_cpu_flushes_nothing(replayed: Replayed) -> None:
    made = Recording().map(1).unmap(1, ns=1000, cpu=1).poll(ns=2000, cpu=0)
    assert replayed(made, "fused")["exposure_ns"]["max"] == TIMER_NS
    assert replayed(made.poll(ns=3000, cpu=1), "fused")["exposure_ns"]["max"] == 2000


def test_a_poll_flushes_all_devices(replayed: Replayed) -> None:
    made = Recording().map(1, device=0).map(1, device=7).unmap(1, device=0).unmap(1, device=7).poll(ns=2000)
    found = replayed(made, "fused")
    assert (found["flushes"], found["commands"]["page"]) == (flushes(poll=2), 2)


def test_devices_of_a_group_share_an_engine(replayed: Replayed) -> None:
    made = Recording().map(1, device=0).map(2, device=1).unmap(1, device=0).unmap(2, device=1).poll()
    for groups, count in (((3, 4), 2), ((3, 3), 1), ((-1, -1), 2)):
        found = replayed(made, "fused", devices=[{"address": "x", "group": each} for each in groups])
        assert found["flushes"] == flushes(poll=count)


# The timer's ticks are rounded up twice: 3 ticks of 4 ms, 10 of 1 ms, 1 of 10 ms.
@pytest.mark.parametrize(("hz", "at_ms"), [(250, 16), (1000, 12), (100, 20)])
def test_the_kernels_timer_counts_ticks(replayed: Replayed, hz: int, at_ms: int) -> None:
    made = Recording().map(1, ns=0).unmap(1, ns=1_500_000)
    assert replayed(made, "kernel-lazy", "--hz", str(hz))["exposure_ns"]["max"] == at_ms * 1_000_000 - 1_500_000
    assert replayed(made, "kernel-lazy", hz=hz)["exposure_ns"]["max"] == at_ms * 1_000_000 - 1_500_000


def test_a_full_queue_of_the_kernel_covers_all_queues(replayed: Replayed) -> None:
    made = Recording(step=0)
    for number in range(1, 258):
        made.map(number)
    made.unmap(257, ns=1000, cpu=1)
    for number in range(1, 257):
        made.unmap(number, ns=2000)
    found = replayed(made, "kernel-lazy")
    # The last unmap of CPU 0 flushes everything, itself included; the timer finds nothing left.
    assert (found["flushes"], found["exposure_ns"]["max"]) == (flushes(full=1, time=1), 1000)


def test_a_pause_ends_a_batch_without_a_poll(replayed: Replayed) -> None:
    made = Recording().map(1).map(2).map(3)
    made.unmap(1, ns=10_000).unmap(2, ns=25_000).unmap(3, ns=100_000)
    found = replayed(made, "fused", "--aware")
    # Unmapped 15 us apart, and 20 us after the second; then the third.
    assert (found["flushes"], found["exposure_ns"]["max"]) == (flushes(explicit=2), 35_000)
    assert replayed(made, "fused", "--aware", "--gap-us", "5")["flushes"] == flushes(explicit=3)


def test_each_cpu_has_a_batch_of_its_own(replayed: Replayed) -> None:
    found = replayed(two_batches(), "fused", "--aware")
    assert (found["flushes"], found["exposure_ns"]["max"]) == (flushes(explicit=2), 20_000)


def two_batches() -> Recording:
    """CPU 1 unmaps before the batch of CPU 0 ends."""
    return Recording().map(1).map(2).unmap(1, ns=10_000).unmap(2, ns=25_000, cpu=1)


def test_half_of_the_pages_are_exposed_no_longer_than_p50(replayed: Replayed) -> None:
    made = Recording().map(1).map(2).unmap(1, ns=1000).unmap(2, ns=4000).poll(ns=5000)
    found = replayed(made, "fused")["exposure_ns"]
    assert 1000 <= found["p50"] <= 1000 * 65 / 64
    assert (found["p99"], found["max"]) == (4000, 4000)


# -- lists, coherent memory, ranges ----------------------------------------------------------------


@pytest.mark.parametrize("policy", ALL)
def test_a_list_is_one_call(replayed: Replayed, policy: str) -> None:
    sizes = (PAGE, 100, 2 * PAGE, 512)
    found = replayed(Recording().map_list(1, sizes).unmap_list(1, sizes).poll(), policy, "--copy-bytes", "0")
    assert (found["maps"], found["unmaps"], found["pages_mapped"], found["pages_unmapped"]) == (1, 1, 5, 5)
    assert sum(found["flushes"].values()) == 1
    assert sum(found["commands"].values()) == 1


def test_lists_of_two_cpus_may_alternate(replayed: Replayed) -> None:
    made = Recording()
    for cpu in (0, 1):
        made.add("map_list", cpu=cpu, iova=place(cpu), bytes=2 * PAGE, span=2)
    for at in (0, 1):
        for cpu in (1, 0):
            made.add("entry", cpu=cpu, iova=place(cpu), page=1 + cpu * 10 + at, bytes=PAGE, span=PAGE)
    made.unmap_list(0, (PAGE, PAGE)).unmap_list(1, (PAGE, PAGE))
    found = replayed(made, "strict")
    assert (found["pages_mapped"], found["pages_unmapped"], found["not_replayed"]) == (4, 4, {})


def test_many_entries_are_flushed_at_once_under_held(replayed: Replayed) -> None:
    """More folios than an unmap can hold, or more pages than a block."""
    five, four, many = (PAGE,) * 5, (PAGE,) * 4, (PAGE,) * 65
    made = Recording().map_list(1, five).map_list(2, four).map_list(3, many)
    made.unmap_list(1, five).unmap_list(2, four).unmap_list(3, many).poll()
    found = replayed(made, "fused")
    assert found["flushes"] == flushes(unmap=2, poll=1)
    assert found["memory_held_pages"]["max"] == 4


@pytest.mark.parametrize(
    ("policy", "causes"),
    [("fused", flushes(unmap=1)), ("lazy", flushes(unmap=1)), ("kernel-lazy", flushes(time=1))],
)
def test_coherent_memory_is_flushed_by_its_free(replayed: Replayed, policy: str, causes: dict[str, int]) -> None:
    fields = {"iova": place(1), "page": 5, "bytes": 2 * PAGE}
    made = Recording().add("alloc", **fields).add("free", **fields).poll()
    found = replayed(made, policy)
    assert (found["flushes"], found["pages_unmapped"]) == (causes, 2)
    if policy == "fused":
        assert replayed(made, policy, "--aware")["flushes"] == causes


def a_range(links: int, ends: str = "iova_free") -> Recording:
    """A range of links of a page, as NVMe uses it."""
    made = Recording().add("iova_alloc", iova=place(1), bytes=links * PAGE)
    for at in range(links):
        made.add("iova_link", iova=place(1) + at * PAGE, page=100 + at, bytes=PAGE)
    made.add("iova_sync", iova=place(1), bytes=links * PAGE)
    return made.add(ends, iova=place(1), bytes=links * PAGE)


@pytest.mark.parametrize(
    ("policy", "maps", "unmaps", "commands"),
    [
        # The kernel unmaps the range as a whole. The module declines, and the driver maps each part.
        ("kernel-strict", 4, 1, {"page": 1, "domain": 0}),
        ("kernel-lazy", 4, 1, {"page": 0, "domain": 1}),
        ("strict", 4, 4, {"page": 4, "domain": 0}),
        ("fused", 4, 4, {"page": 1, "domain": 0}),
    ],
)
def test_two_step_calls(replayed: Replayed, policy: str, maps: int, unmaps: int, commands: dict[str, int]) -> None:
    found = replayed(a_range(4).poll(), policy)
    assert (found["maps"], found["unmaps"], found["commands"]) == (maps, unmaps, commands)
    assert (found["pages_mapped"], found["pages_unmapped"], found["not_replayed"]) == (4, 4, {})


def test_an_unlink_is_flushed_at_once_by_the_kernel(replayed: Replayed) -> None:
    made = a_range(3, "iova_unlink").add("iova_free", iova=place(1), bytes=3 * PAGE)
    found = replayed(made, "kernel-lazy")
    assert (found["flushes"], found["pages_unmapped"]) == (flushes(unmap=3), 3)
    assert replayed(made, "fused")["pages_unmapped"] == 3


def freed_twice(ends: str) -> Recording:
    """A range that is freed, and once more."""
    made = a_range(3, ends)
    for _ in range(1 + (ends == "iova_unlink")):
        made.add("iova_free", iova=place(1), bytes=3 * PAGE)
    return made


@pytest.mark.parametrize("ends", ["iova_free", "iova_unlink"])
def test_a_range_is_freed_once(replayed: Replayed, ends: str) -> None:
    for policy in ("kernel-strict", "kernel-lazy", "fused"):
        assert left(replayed(freed_twice(ends), policy)) == {"iova_free_without_alloc": 1}


def within_a_page() -> Recording:
    """A link that begins within a page, which the free of its range does not name."""
    made = Recording().add("iova_alloc", iova=place(1), bytes=PAGE)
    made.add("iova_link", iova=place(1) + 512, page=3, bytes=512).add("iova_free", iova=place(1), bytes=PAGE)
    return made.add("iova_unlink", iova=place(1) + 512, bytes=512)


def test_a_link_that_a_free_does_not_name_stays(replayed: Replayed) -> None:
    found = replayed(within_a_page(), "kernel-strict")
    assert (found["pages_unmapped"], found["pages_still_mapped"], found["not_replayed"]) == (1, 0, {})


def below_a_range() -> Recording:
    """A link at an address before the CPU's range."""
    return Recording().add("iova_alloc", iova=place(2), bytes=PAGE).add("iova_link", iova=place(1), page=3, bytes=PAGE)


def test_a_link_is_in_its_range(replayed: Replayed) -> None:
    assert left(replayed(below_a_range(), "kernel-strict")) == {"link_without_range": 1}


def across_a_page() -> Recording:
    """A small buffer that crosses a page's end."""
    return Recording().map(1, bytes=200, offset=4000).unmap(1, bytes=200)


def test_a_buffer_has_all_pages_that_it_touches(replayed: Replayed) -> None:
    for policy in ALL:
        found = replayed(across_a_page(), policy, "--copy-bytes", "0")
        assert (found["pages_mapped"], found["pages_unmapped"]) == (2, 2)


def test_registers_are_not_held(replayed: Replayed) -> None:
    found = replayed(Recording().map(1, flags=MMIO).unmap(1).poll(), "fused")
    assert (found["flushes"], found["memory_held_pages"]["max"]) == (flushes(poll=1), 0)


# -- page tables, IOVAs, identity ------------------------------------------------------------------


def test_page_tables_are_counted(replayed: Replayed) -> None:
    """The root, and a page of each of the three levels below; a large unmap frees tables of the last."""
    one = Recording().map(1).unmap(1)
    for policy in ALL:
        found = replayed(one, policy)["table_pages"]
        assert (found["max"], found["end"]) == (4, 4)
    large = replayed(Recording().map(1, pages=1024).unmap(1, pages=1024), "kernel-strict")
    assert (large["table_pages"]["max"], large["table_pages"]["end"]) == (5, 1)


def test_a_large_unmap_of_the_kernel_is_several_commands(replayed: Replayed) -> None:
    """iommu_pgsize() divides at 2 MiB. 600 pages begin at 1,024 aligned; 512 have one size."""
    found = replayed(Recording().map(1, pages=600).unmap(1, pages=600), "kernel-strict")
    assert (found["commands"], found["flushes"]) == ({"page": 2, "domain": 0}, flushes(unmap=1))
    found = replayed(Recording().map(1, pages=512).unmap(1, pages=512), "kernel-strict")
    assert found["commands"] == {"page": 1, "domain": 0}


@pytest.mark.parametrize("policy", ["kernel-strict", "strict", "fused"])
def test_freed_iovas_are_used_again(replayed: Replayed, policy: str) -> None:
    found = replayed(polls(20_000, 64), policy)
    assert found["iova_taken_pages"] <= 1024
    assert found["table_pages"]["max"] <= 6
    assert found["regions_per_1000_maps"] <= 2


@pytest.mark.parametrize(("pages", "taken"), [(1, 1), (2, 2), (3, 4), (4, 4), (5, 8), (33, 64)])
def test_the_kernel_rounds_sizes_up(replayed: Replayed, pages: int, taken: int) -> None:
    assert replayed(Recording().map(1, pages=pages), "kernel-strict")["iova_taken_pages"] == taken


def mapped_again(count: int, again: int, cpu: int) -> Recording:
    """CPU 0 maps buffers, another unmaps them, and CPU 0 maps more."""
    made = Recording()
    for number in range(count):
        made.map(1 + number)
    for number in range(count):
        made.unmap(1 + number, cpu=cpu)
    for number in range(again):
        made.map(1000 + number)
    return made


@pytest.mark.parametrize(
    ("cpu", "again", "taken"),
    [
        # Two magazines of 127 stay on CPU 1, and two go to the depot.
        (1, 254, 400),
        (1, 255, 401),
        (0, 400, 400),
        (0, 401, 401),
    ],
)
def test_the_kernel_takes_iovas_from_its_magazines_and_the_depot(
    replayed: Replayed, cpu: int, again: int, taken: int
) -> None:
    assert replayed(mapped_again(400, again, cpu), "kernel-strict")["iova_taken_pages"] == taken


def after_the_timer() -> Recording:
    """CPUs 0 and 1 unmap; after the timer, CPU 0 maps as many."""
    made = Recording().map(1, cpu=0).map(2, cpu=1).unmap(1, cpu=0).unmap(2, cpu=1)
    return made.map(3, ns=50_000_000).map(4)


def test_the_kernels_timer_frees_the_iovas_of_all_cpus(replayed: Replayed) -> None:
    assert replayed(after_the_timer(), "kernel-lazy")["iova_taken_pages"] == 2


def test_a_region_counts_once_in_1000_maps(replayed: Replayed) -> None:
    found = replayed(polls(3000, 10), "kernel-strict")
    assert found["regions_per_1000_maps"] == pytest.approx(1)


def test_identity_revives_a_page(replayed: Replayed) -> None:
    made = Recording().map(1, page=77).unmap(1).map(2, page=77).unmap(2).map(3, page=77).poll()
    found = replayed(made, "fused-identity", pages="raw")
    assert (found["pages_revived"], found["pages_still_mapped"], sum(found["commands"].values())) == (2, 1, 0)
    assert replayed(made, "fused-identity")["pages_revived"] == 2
    assert replayed(made, "fused")["pages_revived"] == 0


def test_pages_outside_of_memory_are_not_in_the_identity_window(replayed: Replayed) -> None:
    """A permuted identity says nothing about the place in memory."""
    made = Recording().map(1, page=5000).unmap(1).map(2, page=5000).unmap(2).poll()
    for pages, revived in (("raw", 0), ("permuted", 1)):
        assert replayed(made, "fused-identity", pages=pages, memory_pages=1000)["pages_revived"] == revived


def test_a_flush_inside_an_unmap_may_release_the_page(replayed: Replayed) -> None:
    """The driver has a reference of its own until the unmap returns, whose batch is full."""
    made = Recording()
    for number in range(1, 9):
        made.map(number, page=9).unmap(number)
    found = replayed(made.poll(), "fused", "--batch-pages", "5")
    assert found["flushes"] == flushes(full=1, poll=1)


def test_a_page_mapped_twice_is_held_for_both(replayed: Replayed) -> None:
    made = Recording().map(1, page=9).map(2, page=9).unmap(1, cpu=0, ns=1000).unmap(2, cpu=1, ns=1000)
    found = replayed(made.poll(cpu=0, ns=2000).poll(cpu=1, ns=3000), "fused")
    assert found["memory_held_pages"]["max"] == 1
    assert found["exposure_ns"]["max"] == 2000


@pytest.mark.parametrize("policy", ["fused", "xsmmu"])
def test_memory_that_cannot_be_held_is_flushed_at_once(replayed: Replayed, policy: str) -> None:
    """At level held. A list is flushed at once if one of its entries is such memory."""
    found = replayed(polls(128, 64, flags=UNHELD), policy)
    assert (found["commands"]["page"], found["flushes"]) == (128, flushes(unmap=128))
    assert found["memory_held_pages"]["max"] == 0
    mixed = Recording().map(1).map(2, flags=UNHELD).unmap(1).unmap(2).poll()
    assert replayed(mixed, policy)["flushes"] == flushes(unmap=1, poll=1)
    made = Recording().map_list(1, (PAGE, PAGE))
    made.events[-1]["flags"] = UNHELD
    assert replayed(made.unmap_list(1, (PAGE, PAGE)).poll(), policy)["flushes"] == flushes(unmap=1)
    # The same page, first of a slab, then not.
    again = Recording().map(1, page=9, flags=UNHELD).unmap(1).map(1, page=9).unmap(1).poll()
    assert replayed(again, policy)["flushes"] == flushes(unmap=1, poll=1)


@pytest.mark.parametrize("policy", ["kernel-strict", "kernel-lazy", "strict", "lazy", "fands", "copy"])
def test_other_levels_hold_nothing(replayed: Replayed, policy: str) -> None:
    assert replayed(polls(128, 64, flags=UNHELD), policy) == replayed(polls(128, 64), policy)


def test_the_same_address_twice(replayed: Replayed) -> None:
    """Without an IOMMU an address is physical: two buffers may have the same."""
    made = Recording().map(1, pages=2).map(1).map(1).unmap(1).unmap(1, pages=2).unmap(1)
    found = replayed(made, "strict")
    assert (found["pages_mapped"], found["pages_unmapped"], found["not_replayed"]) == (4, 4, {})


def after_a_gap() -> Recording:
    """Two buffers with the same address, both mapped after a gap."""
    return Recording().add("lost", bytes=1).map(1).map(1).unmap(1).unmap(1)


def test_the_same_address_twice_after_a_gap(replayed: Replayed) -> None:
    found = replayed(after_a_gap(), "strict")
    assert (left(found), found["pages_unmapped"]) == ({"gap": 1}, 2)


# -- what does not depend on the policy ------------------------------------------------------------


def test_totals_are_the_same_under_all_policies(player: Player, tmp_path: Path) -> None:
    file = written(tmp_path / "work.dma", 60_000)
    totals = ("events", "recording_ns", "maps", "unmaps", "pages_mapped", "pages_unmapped", "not_replayed")
    found = {policy: player(file, policy) for policy in ALL}
    assert len({json.dumps([each[name] for name in totals]) for each in found.values()}) == 1
    for policy, each in found.items():
        assert each["exposure_ns"]["pages"] + each["pages_revived"] <= each["pages_unmapped"], policy
        assert each["iova_held_pages"]["end"] == each["memory_held_pages"]["end"] == 0
    assert player(file, "fused") == found["fused"]


@pytest.mark.parametrize("policy", ALL)
@pytest.mark.parametrize("name", GUESTS)
def test_recordings_of_guests(player: Player, name: str, policy: str) -> None:
    """Made by `make recordings`, each from before the driver is bound until after it is unbound."""
    found = player(RECORDINGS / f"{name}.xsr", policy)
    assert found["not_replayed"] == {}
    assert not found["damage"]["cut"]
    assert found["pages_still_mapped"] == 0
    assert found["pages_mapped"] == found["pages_unmapped"] > 300


def levels(found: Result) -> tuple[str, str]:
    """The level of the policy, of which a device can tell only whether it is strict or held, and the level it saw."""
    promised = "bounded" if found["level"] == "lazy" else str(found["level"])
    return promised, str(found["checked"]["observed_level"])


@pytest.mark.parametrize("policy", guide.POLICIES)
@pytest.mark.parametrize("name", GUESTS)
def test_the_checkers_of_sim_find_nothing(player: Player, name: str, policy: str) -> None:
    for words in ((), ("--aware",), ("--repeat", "3"), ("--batch-pages", "5", "--window-us", "50")):
        file = RECORDINGS / f"{name}.xsr"
        found = player(file, policy, "--check", "0", *words)
        unchecked = player(file, policy, *words)
        checked = found["checked"]
        assert checked["events"] > found["events"]
        assert checked["accesses"] >= found["maps"] - found["copied_maps"]
        # The checks change nothing.
        assert {**found, "checked": 0} == {**unchecked, "checked": 0}
        if "--batch-pages" not in words:
            assert len({*levels(found)}) == 1


def test_the_checkers_know_only_small_worlds(player: Player, tmp_path: Path) -> None:
    made = Recording()
    for number in range(1200):
        made.map(number, pages=64)
    status, text = player.try_(made.write(tmp_path / "many.dma"), "fused", "--check", "0")
    assert (status, "too many for the checkers: replay without --check" in text) == (3, True)
    status, text = player.try_(tmp_path / "many.dma", "kernel-lazy", "--check", "0")
    assert (status, "--check is for policies" in text) == (2, True)


@pytest.mark.parametrize("policy", ALL)
def test_a_recording_can_be_repeated(player: Player, policy: str) -> None:
    """Each pass begins with nothing mapped, at other addresses, as those of the recording end."""
    file = RECORDINGS / "nvme-read_and_write-lazy.xsr"
    once, thrice = player(file, policy), player(file, policy, "--repeat", "3")
    for total in ("events", "maps", "unmaps", "pages_mapped", "pages_unmapped"):
        assert thrice[total] == 3 * once[total]
    assert (thrice["repeat"], thrice["not_replayed"], thrice["pages_still_mapped"]) == (3, {}, 0)
    assert thrice["iova_mapped_pages"]["max"] == once["iova_mapped_pages"]["max"]


def test_a_repeated_recording_that_has_no_end(replayed: Replayed) -> None:
    made = Recording().map(1).map_list(2, (PAGE, 100)).add("alloc", iova=place(3), page=9, bytes=PAGE)
    made.add("iova_alloc", iova=place(4), bytes=2 * PAGE).add("iova_link", iova=place(4), page=7, bytes=PAGE)
    for policy in ALL:
        found = replayed(made, policy, "--repeat", "1000", "--copy-bytes", "0")
        assert (found["pages_still_mapped"], found["pages_unmapped"]) == (5, 999 * 5)
        assert found["iova_taken_pages"] <= 2048
        assert found["not_replayed"] == {}


def test_timelines_and_lifetimes(replayed: Replayed) -> None:
    made = Recording().map(1, ns=1_000).map(2, ns=1_000).unmap(1, ns=3_000).unmap(2, ns=9_000).poll(ns=10_000)
    found = replayed(made, "fused")
    line = found["timeline"]
    assert line["step_ns"] == 1024
    assert line["maps"] == [2, 0, 0, 0, 0, 0, 0, 0, 0, 0]
    assert line["mapped_pages"] == [2, 2, 2, 1, 1, 1, 1, 1, 1, 0]
    assert line["held_pages"] == [0, 0, 1, 1, 1, 1, 1, 1, 2, 2]
    assert line["commands"] == [0] * 9 + [1]
    life = found["lifetime_ns"]
    assert (life["mappings"], life["max"], life["from_ns"]) == (2, 8000, [[1024, 1], [4096, 1]])
    for count in (300, 5000):
        long = replayed(polls(count, 10, step=100_000), "fused")
        assert 128 <= len(long["timeline"]["maps"]) <= 256
        assert sum(long["timeline"]["maps"]) == count
        assert sum(long["timeline"]["commands"]) == sum(long["commands"].values())
        assert max(long["timeline"]["mapped_pages"]) == 10


def test_sanitizers_find_nothing(tmp_path: Path) -> None:
    player = Player(replay.compiled(replay.SANITIZED))
    file = written(tmp_path / "work.dma", 30_000)
    for policy in ALL:
        player(file, policy)
    for policy in command.WAITING:
        player(file, policy, "--aware", "--copy-bytes", "256")


def test_memory_does_not_grow_with_the_length(player: Player, tmp_path: Path) -> None:
    def most_kib(count: int, policy: str) -> int:
        file = written(tmp_path / f"{count}-{policy}.dma", count)
        with (tmp_path / "out").open("wb") as out:
            child = os.posix_spawn(
                player.program,
                [str(player.program), str(file), "--policy", policy],
                os.environ,
                file_actions=[(os.POSIX_SPAWN_DUP2, out.fileno(), 1)],
            )
        _, status, usage = os.wait4(child, 0)
        assert status == 0
        return usage.ru_maxrss

    for policy in ("fused", "kernel-lazy"):
        assert most_kib(2_000_000, policy) < most_kib(200_000, policy) * 1.2


# -- bad recordings --------------------------------------------------------------------------------


def test_unmaps_without_a_map_are_counted(replayed: Replayed) -> None:
    made = Recording().map(1).unmap(5, ns=700, cpu=2).unmap(6, device=3).unmap(1).unmap(1)
    made.unmap_list(7, (PAGE,)).add("free", iova=1, bytes=PAGE).add("iova_unlink", iova=2, bytes=PAGE)
    made.add("iova_free", iova=3, bytes=PAGE)
    for policy in ALL:
        found = replayed(made, policy)
        assert left(found) == {
            "unmap_without_map": 3,
            "unmap_list_without_map": 1,
            "free_without_alloc": 1,
            "unlink_without_link": 1,
            "iova_free_without_alloc": 1,
        }
        first = found["not_replayed"]["unmap_without_map"]["first"]
        assert first == {"event": 2, "ns": 700, "cpu": 2, "device": 0, "iova": place(5)}
        assert (found["pages_unmapped"], found["pages_still_mapped"]) == (1, 0)


def test_other_bad_events_are_counted(replayed: Replayed) -> None:
    made = Recording().map(1, pages=2).unmap(1)  # another size
    made.map(2, flags=FAILED).map(3, bytes=0).map(4, cpu=9)
    made.add("entry", iova=1, page=1, bytes=1, span=1).add("iova_link", iova=place(8), page=3, bytes=PAGE)
    made.add("map_list", iova=place(5), bytes=3 * PAGE, span=3).add("entry", iova=place(5), page=8, bytes=PAGE, span=1)
    for policy in ("fused", "kernel-strict"):
        found = replayed(made, policy)
        assert left(found) == dict.fromkeys(
            (
                *("unmap_of_other_size", "failed_call", "size_out_of_range", "unknown_cpu"),
                *("entry_without_list", "link_without_range", "list_cut"),
            ),
            1,
        )
        # The whole mapping goes; the link, and the entry that is known, stay.
        assert (found["pages_unmapped"], found["pages_still_mapped"]) == (2, 2)


def mixed_entries() -> Recording:
    """An entry of another device among those of a list."""
    made = Recording().add("map_list", iova=place(1), bytes=2 * PAGE, span=2)
    for page, device in ((1, 0), (9, 1), (2, 0)):
        made.add("entry", iova=place(1), page=page, bytes=PAGE, span=PAGE, device=device)
    return made.unmap_list(1, (PAGE, PAGE))


def test_an_entry_of_another_device_is_left_out(replayed: Replayed) -> None:
    found = replayed(mixed_entries(), "strict")
    assert (left(found), found["pages_mapped"], found["pages_unmapped"]) == ({"entry_without_list": 1}, 2, 2)


def test_a_lost_unmap_is_replaced(replayed: Replayed) -> None:
    made = Recording().map(1).add("lost", bytes=10, span=50).map(1).unmap(1).poll()
    found = replayed(made, "fused")
    assert left(found) == {"gap": 1, "unmap_lost_before_map": 1}
    assert (found["damage"]["lost_events"], found["pages_still_mapped"]) == (10, 0)


def test_a_gap_of_all_cpus_names_none(replayed: Replayed) -> None:
    """The recorder writes such gaps between slices of --max-overhead, and for calls that the kernel skipped."""
    made = Recording().map(1).add("lost", bytes=10, span=50, cpu=0xFFFF).map(1).unmap(1).poll()
    found = replayed(made, "fused")
    assert left(found) == {"gap": 1, "unmap_lost_before_map": 1}
    assert (found["damage"]["lost_events"], found["pages_still_mapped"]) == (10, 0)


@pytest.mark.parametrize("policy", ["kernel-strict", "kernel-lazy", "copy", "fused"])
def test_no_number_holds_up_a_replay(replayed: Replayed, policy: str) -> None:
    last = (1 << 64) - 1
    made = Recording().map(1, bytes=100).map(2, bytes=100)
    made.add("iova_unlink", iova=place(3), bytes=1 << 63).add("iova_unlink", iova=last - 4095, bytes=4095)
    made.poll(ns=last - 1).unmap(1, ns=last, bytes=100)
    found = replayed(made, policy)
    assert left(found) == {"size_out_of_range": 1, "unlink_without_link": 1, "time_out_of_range": 2}
    assert found["pages_still_mapped"] == 2


def test_a_machine_of_too_much_memory_is_refused(player: Player, tmp_path: Path) -> None:
    for pages, status in ((1 << 34, 0), ((1 << 34) + 1, 3), (1 << 63, 3)):
        file = Recording().map(1).unmap(1).write(tmp_path / f"{pages}.dma", HEADER | {"memory_pages": pages})
        found, text = player.try_(file, "fused-identity")
        assert found == status, text
        assert not status or f"a machine with {pages} pages of memory, and at most 17179869184" in text


def test_a_recording_cannot_take_all_memory(player: Player, tmp_path: Path) -> None:
    """The limit is there before the file is opened; without memory the place in the file is named."""
    pipe = tmp_path / "pipe"
    os.mkfifo(pipe)
    argv = [str(player.program), str(pipe), "--policy", "fused"]
    with subprocess.Popen(argv, stderr=subprocess.DEVNULL) as process, pipe.open("wb"):
        limit, _ = resource.prlimit(process.pid, resource.RLIMIT_AS)
    assert process.returncode == 3
    assert 0 < limit <= os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE") // 2
    made = Recording()
    for number in range(20):
        made.map_list(number * 2000, (1 << 28,) * 64)
    file = made.write(tmp_path / "a.dma")
    argv = ["prlimit", f"--as={256 << 20}", str(player.program), str(file), "--policy", "fused"]
    done = subprocess.run(argv, capture_output=True, text=True, check=False)
    assert done.returncode == 3
    assert "no memory for the shadow page table, at event" in done.stderr


def test_a_text_of_the_header_is_no_field(player: Player, tmp_path: Path) -> None:
    """As the list of what an import could not know has "devices"."""
    names = ["cpus", "hz", "memory_pages", "page_bytes", "pages", "devices", "group"]
    header = {"missing": [each for name in names for each in (name, 7)], **HEADER, "cpus": 2}
    header |= {"devices": [{"group": 3}, {"group": 3}], "hz": 100}
    made = Recording().map(1).map(2, device=1).unmap(1).unmap(2, device=1).write(tmp_path / "a", header)
    found = player(made, "kernel-lazy")
    assert (found["cpus"], found["tunables"]["hz"]) == (2, 100)


@pytest.mark.parametrize("name", ["cpus", "hz"])
def test_numbers_of_a_header_are_not_cut(name: str, player: Player, tmp_path: Path) -> None:
    file = Recording().map(1).write(tmp_path / "a", HEADER | {name: (1 << 32) + 100})
    status, text = player.try_(file, "kernel-lazy")
    assert status == 3 and "4294967295" in text


def test_ticks_of_no_kernel_are_refused(player: Player, tmp_path: Path) -> None:
    """More than 10^9 were a division by zero."""
    file = Recording().map(1).unmap(1).write(tmp_path / "a.dma", HEADER | {"hz": 4_000_000_000})
    assert player.try_(file, "kernel-lazy")[0] == 3
    assert player.try_(file, "kernel-lazy", "--hz", "100")[0] == 0


@pytest.mark.parametrize("policy", KERNEL)
def test_a_list_larger_than_4_gib_has_iovas(replayed: Replayed, policy: str) -> None:
    entries = (1 << 28,) * 17
    found = replayed(Recording().map_list(1, entries).unmap_list(1, entries), policy)
    assert (found["pages_mapped"], found["pages_unmapped"]) == (17 << 16, 17 << 16)


def test_damage_is_counted(player: Player, tmp_path: Path) -> None:
    file = written(tmp_path / "work.dma", 200_000)
    whole = player(file, "fused")
    content = bytearray(file.read_bytes())
    content[len(content) // 2] ^= 1
    file.write_bytes(content)
    found = player(file, "fused")
    assert found["damage"]["blocks"] == 1
    assert found["events"] < whole["events"]
    assert left(found)["gap"] >= 1
    file.write_bytes(content[: len(content) * 3 // 4])
    assert player(file, "fused")["damage"]["cut"]


@pytest.mark.parametrize("seed", range(4))
def test_any_events_can_be_replayed(tmp_path: Path, seed: int) -> None:
    """No order of events breaks the world, and the same calls are replayed under all policies."""
    player = Player(replay.compiled(replay.SANITIZED))
    groups = [{"group": 1}, {"group": seed % 2}, {"group": 3}]
    file = anything(seed).write(
        tmp_path / "any.dma", {"cpus": 4, "pages": ("raw", "permuted")[seed % 2], "devices": groups}
    )
    found = [player(file, policy) for policy in ALL]
    for policy in guide.POLICIES:
        for device in range(3):
            words = (("--aware",), ("--copy-bytes", "256"), ("--repeat", "2"))[device]
            player(file, policy, "--check", str(device if groups[device] not in groups[:device] else 0), *words)
    found += [player(file, "fused", *words.split()) for words in ("--aware --copy-bytes 4096", "--window-us 3")]
    assert len({(each["maps"], each["pages_mapped"]) for each in found}) == 1
    assert len({each["pages_unmapped"] for each in found if each["policy"] not in KERNEL}) == 1


@pytest.mark.parametrize(
    ("words", "status", "said"),
    [
        (("--policy", "fuse"), 2, "unknown policy 'fuse'"),
        (("--policy", "fused", "--cpus", "0"), 2, "--cpus takes a number from 1 to 4096, not '0'"),
        (("--policy", "fused", "--window-us", "x"), 2, "--window-us takes a number"),
        (("--policy", "kernel-lazy", "--aware"), 2, "no batch-aware drivers"),
        ((), 2, "--policy is needed"),
    ],
)
def test_wrong_arguments(player: Player, tmp_path: Path, words: tuple[str, ...], status: int, said: str) -> None:
    from xsmmu_lab.setup import build

    file = Recording().write(tmp_path / "empty.dma")
    found, text = build.run_userspace(player.program, [str(file), *words])
    assert (found, said in text) == (status, True), text


def test_other_page_sizes_are_refused(player: Player, tmp_path: Path) -> None:
    file = Recording().write(tmp_path / "large.dma", {"cpus": 1, "page_bytes": 65536})
    status, text = player.try_(file, "fused")
    assert (status, "pages of 65536 bytes" in text) == (3, True)


# -- planted bugs ----------------------------------------------------------------------------------


def figures(player: Player, folder: Path) -> Any:
    """What the tests above know exactly, in short; a failure is its last line."""
    four = (PAGE,) * 4
    times = Recording().map(1, ns=0).map(2).unmap(1, ns=1_500_000).unmap(2, ns=1_600_000, cpu=1)
    made = {
        "polls": polls(1000, 64),
        "times": times.poll(ns=1_700_000),
        "lists": Recording().map_list(1, four).unmap_list(1, four).map_list(2, (100,)).unmap_list(2, (100,)),
        "ranges": a_range(4),
        "unlinks": a_range(3, "iova_unlink"),
        "large": Recording().map(1, pages=600).unmap(1, pages=600),
        "extents": Recording().map(1, pages=65).map(2, pages=65).unmap(2, pages=65).unmap(1, pages=65),
        "same": Recording().map(1, pages=2).map(1).unmap(1, pages=2).unmap(1),
        "lost": Recording().map(1).add("lost", bytes=1).map(1).unmap(1).unmap(9),
        "unheld": Recording().map(1, flags=UNHELD).map_list(2, four).unmap(1).unmap_list(2, four).poll(),
        "shared": Recording().map(1, page=9).map(2, page=9).unmap(1).unmap(2, cpu=1).poll().poll(cpu=1),
        "batches": two_batches(),
        "twice": freed_twice("iova_free"),
        "unlinked": freed_twice("iova_unlink"),
        "within": within_a_page(),
        "below": below_a_range(),
        "across": across_a_page(),
        "depot": mapped_again(400, 254, 1),
        "magazines": mapped_again(200, 200, 0),
        "four": Recording().map(1, pages=4),
        "timer": after_the_timer(),
        "gap": after_a_gap(),
        "mixed": mixed_entries(),
        "coherent": Recording().add("alloc", iova=place(1), page=5, bytes=PAGE).add("free", iova=place(1), bytes=PAGE),
        "small": small_lists((1500, 1500)),
        "listed": small_lists((PAGE,), flags=FROM_DEVICE | SKIP_SYNC),
    }
    found: dict[str, Any] = {}
    for name, each in made.items():
        file = each.write(folder / f"{name}.dma")
        for policy in ("kernel-strict", "kernel-lazy", "strict", "fused", "fused-identity"):
            found[f"{name}/{policy}"] = _outcome(player, file, policy)
        found[f"{name}/aware"] = _outcome(player, file, "fused", "--aware")
        found[f"{name}/copied"] = _outcome(player, file, "copy", "--copy-bytes", "2999")
        found[f"{name}/all copied"] = _outcome(player, file, "copy", "--copy-bytes", "4096")
    file = written(folder / "work.dma", 30_000)
    for policy in ("fused", "xsmmu", "kernel-lazy", "fused-identity"):
        found[f"work/{policy}"] = _outcome(player, file, policy)
    return found


def _outcome(player: Player, file: Path, *words: str) -> Any:
    status, text = player.try_(file, *words)
    if status:
        return text.splitlines()[-1] if text else status
    found = json.loads(text)
    del found["rate"]
    return found


def checked(player: Player, file: Path, words: Sequence[str]) -> list[str]:
    """Why replays with these words fail."""
    for_policies = (("fused", ()), ("fands", ()), ("lazy", ()), ("xsmmu", ("--batch-pages", "20")))
    made = [_outcome(player, file, policy, *words, *more) for policy, more in for_policies]
    return [each for each in made if isinstance(each, str)]


@pytest.fixture(scope="session")
def right(player: Player, tmp_path_factory: pytest.TempPathFactory) -> Any:
    return figures(player, tmp_path_factory.mktemp("right"))


def test_planted_bugs_fit() -> None:
    assert all(MUTANTS.changed(mutant) for mutant in MUTANTS.named())


@pytest.mark.planted
@pytest.mark.parametrize("mutant", MUTANTS.named(), ids=lambda mutant: mutant.name)
def test_a_planted_bug_is_found(mutant: Mutant, right: Any, tmp_path: Path) -> None:
    """In the engine: the world ends the run. In the world and the models: exact figures change."""
    with MUTANTS.planted(mutant) as source_dir:
        player = Player(replay.compiled(("-O1", "-Wno-error"), source_dir))
    if mutant.words:
        file = written(tmp_path / "work.dma", 30_000)
        assert not checked(player, file, ())
        assert any("checker " in each for each in checked(player, file, mutant.words))
        return
    found = figures(player, tmp_path)
    if mutant.file.startswith("core/"):
        assert any("invariant" in str(each) for each in found.values())
    else:
        assert found != right


# -- the command -----------------------------------------------------------------------------------


@pytest.fixture
def installed(player: Player, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A recording; the program is found, and results are kept in the folder `cache`."""
    folder = tmp_path / "programs"
    folder.mkdir()
    (folder / command.PROGRAM).symlink_to(player.program)
    monkeypatch.setenv(FOLDER_VARIABLE, str(folder))
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    return polls(1000, 64).write(tmp_path / "polls.dma")


def said(*words: object) -> str:
    result = CliRunner().invoke(app, ["replay", *map(str, words)], catch_exceptions=False)
    assert result.exit_code == 0, result.output
    return result.stdout


def refused(*words: object) -> UserError:
    with pytest.raises(UserError) as error:
        CliRunner().invoke(app, ["replay", *map(str, words)], catch_exceptions=False, standalone_mode=False)
    return error.value


def test_the_table(installed: Path) -> None:
    table = said(installed, "--policy", "kernel-strict,kernel-lazy,fused", "--aware").splitlines()
    assert table[0] == f"{installed}: 2,016 events in 0.000 s, 1,000 pages mapped, 1,000 unmapped"
    assert table[1].split()[:3] == ["POLICY", "LEVEL", "COMMANDS/PAGE"]
    assert table[-1].startswith("note: fused: too few commands if the driver maps slab memory")
    rows = [line.split()[:3] for line in table[2:-1]]
    assert rows == [
        ["kernel-strict", "strict", "1.0000"],
        ["kernel-lazy", "lazy", "0.0040"],
        ["fused", "held", "0.0160"],
        ["fused", "(aware)", "strict"],
    ]


def test_no_note_where_the_recording_names_such_memory(installed: Path) -> None:
    file = polls(64, 64).write(installed.parent / "names.dma", HEADER | {"unheld_known": True})
    assert "note:" not in said(file, "--policy", "fused")


def test_a_note_where_pages_have_no_identity(installed: Path) -> None:
    header = HEADER | {"unheld_known": True, "pages_known": False, "pages_unknown": "no symbol"}
    file = polls(64, 64).write(installed.parent / "pages.dma", header)
    note = "note: pages have no identity, so that memory is used again does not show: no symbol"
    assert said(file, "--policy", "fused,strict").splitlines()[-1] == note


def test_a_note_of_what_the_recorder_did_not_see(installed: Path) -> None:
    """Without polls, policies that flush at their end flush by time."""
    header = HEADER | {"unheld_known": True, "missing": ["polls", "two\x1b"]}
    file = polls(64, 64).write(installed.parent / "tracepoints.dma", header)
    note = r"note: the recorder did not see, and the replay does not have: polls, two\x1b"
    assert said(file, "--policy", "fused").splitlines()[-1] == note
    file = polls(64, 64).write(installed.parent / "odd.dma", HEADER | {"unheld_known": True, "missing": 5})
    assert "note:" not in said(file, "--policy", "fused")


def test_notes_name_what_was_not_replayed(installed: Path) -> None:
    file = Recording().map(1).unmap(2, ns=1500).write(installed.parent / "other.dma")
    assert said(file, "--policy", "fused").splitlines()[-1] == (
        f"note: 1 x unmap without map, first at event 2 (0.000002 s, CPU 0, device 0, address {place(2):#x})"
    )


def test_json_fits_its_schema(installed: Path) -> None:
    found = json.loads(said(installed, "-o", "json"))
    assert found["schema"] == "xsmmu.replay/1"
    assert [each["policy"] for each in found["replays"]] == command.DEFAULT.split(",")


def test_finished_work_is_kept(installed: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    ran: list[str] = []
    run = command.Runner.run

    def seen(self: command.Runner, unit: command.Unit, progress: Callable[[int], None]) -> Result:
        ran.append(unit.policy)
        return run(self, unit, progress)

    monkeypatch.setattr(command.Runner, "run", seen)
    first = said(installed, "--policy", "strict,fused", "-o", "json")
    assert sorted(ran) == ["fused", "strict"]
    assert said(installed, "--policy", "strict,fused", "-o", "json") == first
    assert len(ran) == 2
    said(installed, "--policy", "strict,lazy")
    assert ran[2:] == ["lazy"]
    # A damaged result is not used, and neither is one of another recording.
    for file in command.cache_folder().iterdir():
        file.write_text(file.read_text().replace("2016", "2017"))
    said(installed, "--policy", "strict")
    polls(10, 5).write(installed.parent / "new.dma").replace(installed)
    said(installed, "--policy", "strict")
    assert ran[3:] == ["strict", "strict"]


def test_other_work_is_kept_if_one_fails(installed: Path, tmp_path: Path) -> None:
    bad = tmp_path / "bad.dma"
    bad.write_bytes(b"not a recording")
    assert refused(installed, bad, "--policy", "fused", "--jobs", "1").code == "bad-recording"
    assert len([*command.cache_folder().iterdir()]) == 1


def test_a_full_disk_is_told(installed: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def full(*_: object, **__: object) -> None:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    monkeypatch.setattr("xsmmu.units.os.fsync", full)
    error = refused(installed, "--policy", "fused", "--jobs", "1")
    assert "(No space left on device): make room, or choose a folder with --cache" in error.message
    assert [*command.cache_folder().iterdir()] == []


def test_a_recording_without_events(installed: Path) -> None:
    whole = installed.read_bytes()
    installed.write_bytes(whole[:-20])
    lines = said(installed, "--policy", "strict").splitlines()
    assert "note: the recording is cut: its end is missing" in "\n".join(lines)
    header = whole.index(b"XSMMU", 8) - 1
    installed.write_bytes(whole[:header])
    assert "note: the recording has no events: nothing was replayed" in said(installed, "--policy", "strict")


def test_errors_say_what_to_do(installed: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    assert "unknown policy 'fuse': choose from kernel-strict" in refused(installed, "--policy", "fuse").message
    assert "names no policy" in refused(installed, "--policy", ",").message
    assert "does not exist: name a recording" in refused(tmp_path / "none.dma").message
    assert refused(tmp_path).code == "no-file"
    (tmp_path / "empty").touch()
    assert refused(tmp_path / "empty", "--policy", "fused").code == "bad-recording"
    monkeypatch.setenv(FOLDER_VARIABLE, str(tmp_path))
    assert "correct XSMMU_PROGRAMS" in refused(installed).message


@pytest.mark.parametrize(
    ("script", "message"),
    [
        ('echo "{}"', "this xsmmu-replay has no aware"),
        ('echo "[]"', "this xsmmu-replay has no figures"),
        ("echo figures", "this xsmmu-replay has no figures"),
        ("echo 'unrecognized option' >&2; exit 2", "this xsmmu-replay does not know the options"),
    ],
)
def test_a_program_of_another_version_is_told(
    installed: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, script: str, message: str
) -> None:
    fake_program(tmp_path / "fake", monkeypatch, script)
    error = refused(installed, "--policy", "fused")
    assert (error.message, error.code) == (
        f"{message}: install xsmmu and xsmmu-trace of the same version",
        "not-installed",
    )


def test_a_file_that_grows_is_not_kept(installed: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Its result would be kept under the hash of its begin."""
    fake_program(tmp_path / "fake", monkeypatch, f"echo more >>{installed}")
    assert "changed while it was replayed: replay it when it is complete" in refused(installed).message
    assert not [*command.cache_folder().iterdir()]


def fake_program(folder: Path, monkeypatch: pytest.MonkeyPatch, script: str) -> None:
    """A program in the place of xsmmu-replay."""
    folder.mkdir()
    (folder / command.PROGRAM).write_text(f"#!/bin/sh\n{script}\n")
    (folder / command.PROGRAM).chmod(0o755)
    monkeypatch.setenv(FOLDER_VARIABLE, str(folder))


@pytest.mark.parametrize(("status", "code"), [(1, "broken"), (3, "bad-recording"), (9, "failed")])
def test_a_failure_of_the_program_is_told(
    installed: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, status: int, code: str
) -> None:
    fake_program(tmp_path / "fake", monkeypatch, f"echo 'xsmmu-replay: it was so' >&2; exit {status}")
    error = refused(installed, "--policy", "fused")
    assert error.code == code
    assert "it was so" in "\n".join([error.message, *error.lines])
