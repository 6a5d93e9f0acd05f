# SPDX-License-Identifier: GPL-2.0-only
"""Recordings of files of trace-cmd, and the writer in Python, against both readers."""

from __future__ import annotations

import os
import random
import shutil
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Final

import numpy as np
import pytest
from click.testing import CliRunner
from tests.python import trace_dat, trace_traffic
from tests.python.test_trace import drawn, read_c, read_python
from tests.python.trace_dat import Traced
from tests.python.trace_traffic import ENTRY, LOST, MAP, MAP_LIST, UNMAP, Event

from checks import trace as checks
from xsmmu import trace, trace_import, trace_write
from xsmmu.cli import app
from xsmmu.errors import UserError

pytestmark = pytest.mark.early

NIC: Final = "0000:01:00.0"
DISK: Final = "0000:02:00.0"
ALLOC, FREE, SYNC_CPU = 6, 7, 8
FRAME: Final = 1 << 21


@pytest.fixture(scope="session")
def program() -> Path:
    return checks.through()


# -- the writer ------------------------------------------------------------------------------------


def wrote(file: Path, events: Sequence[Event]) -> None:
    with trace_write.created(file) as writer:
        writer.header({"devices": []})
        for event in events:
            writer.add(tuple(event))
        writer.summary({})


def test_both_readers_read_what_is_written(program: Path, tmp_path: Path) -> None:
    cases = [drawn(random.Random(seed), 200) for seed in range(20)]
    cases += [trace_traffic.traffic(name, "lazy", 2000) for name in trace_traffic.NAMES]
    cases += [[], [Event(n, n, kind=MAP) for n in range(65536 + 3)]]
    for number, events in enumerate(cases):
        file = tmp_path / f"{number}"
        wrote(file, events)
        assert read_python(file) == read_c(program, file) == (events, "blocks 0 bytes 0 cut 0"), number


def test_a_header_that_no_reader_takes_is_not_written(tmp_path: Path) -> None:
    with pytest.raises(UserError, match="of more than 8 MiB"), trace_write.created(tmp_path / "a") as writer:
        writer.header({"devices": "x" * trace.PLAIN_MAX})
    assert not [*tmp_path.iterdir()]


def test_contents_are_those_of_the_specification() -> None:
    made = np.array([(5, 0x1000, 3, 9, 0, 0, 0, 0, 0, 1, 2)], list(trace.FIELDS))
    assert trace_write.encoded(made) == bytes((1, 1, 2, 0, 0, 0, 0, 5, 2, 0, 9, 0, 0, 3))


# -- trace.dat -------------------------------------------------------------------------------------


@pytest.fixture
def trace_cmd(monkeypatch: pytest.MonkeyPatch) -> None:
    """The program, which Debian has; XSMMU_TRACE_CMD names another folder."""
    if folder := os.environ.get("XSMMU_TRACE_CMD"):
        monkeypatch.setenv("PATH", f"{folder}:{os.environ['PATH']}")
    if not shutil.which("trace-cmd"):
        pytest.skip("trace-cmd is not installed")


def mapped(ns: int, phys: int, iova: int, size: int = 4096, device: str = NIC, **more: Any) -> Traced:
    values = {"device": device, "phys_addr": phys, "dma_addr": iova, "size": size, "dir": 2, **more.pop("values", {})}
    return Traced(ns, "dma/dma_map_page", values, **more)


def unmapped(ns: int, iova: int, size: int = 4096, device: str = NIC, **more: Any) -> Traced:
    return Traced(ns, "dma/dma_unmap_page", {"device": device, "addr": iova, "size": size, "dir": 2}, **more)


def imported(folder: Path, events: Sequence[Traced], **words: Any) -> tuple[list[Event], trace.Recording, str]:
    """The recording of a file with these events, and what the command says."""
    file = trace_dat.write(folder / "trace.dat", events, **words)
    done = CliRunner().invoke(app, ["trace", "import", str(file), "-O", str(folder / "a")], catch_exceptions=False)
    assert done.exit_code == 0, done.output
    with trace.Recording(folder / "a") as recording:
        found = [Event(*each) for part in recording.events() for each in part.tolist()]
    assert recording.damage == trace.Damage()
    return found, recording, done.output


@pytest.mark.usefixtures("trace_cmd")
def test_buffers(tmp_path: Path) -> None:
    registers: dict[str, Any] = {"device": DISK, "phys_addr": 1 << 46}
    coherent: dict[str, Any] = {"device": DISK, "dma_addr": 0x9000, "size": 8192, "dir": 0}
    events = [
        mapped(1_000_000_123, 3 * FRAME + 0x5040, 0xFFFFF040, 2048),
        unmapped(1_000_000_500, 0xFFFFF040, 2048, cpu=1),
        mapped(1_000_000_600, 3 * FRAME + 0x6000, (1 << 64) - 1, values={"dir": 1, "attrs": 1 << 5}),
        Traced(1_000_000_700, "dma/dma_map_resource", {**registers, "dma_addr": 0x2000, "size": 8}),
        Traced(1_000_000_800, "dma/dma_alloc", {**coherent, "virt_addr": 9}),
        Traced(1_000_000_810, "dma/dma_alloc", {**coherent, "virt_addr": 0, "dma_addr": 0}),
        Traced(1_000_000_900, "dma/dma_free", {**coherent, "virt_addr": 9}),
        Traced(1_000_001_000, "dma/dma_sync_single_for_cpu", {"device": NIC, "dma_addr": 0x7000, "size": 64, "dir": 2}),
    ]
    found, recording, said = imported(tmp_path, events)
    pages = [event.page for event in found]
    assert [event._replace(page=0) for event in found] == [
        Event(0, 0xFFFFF040, 0, 2048, offset=0x40, kind=MAP, flags=2),
        Event(377, 0xFFFFF040, 0, 2048, cpu=1, kind=UNMAP, flags=2),
        Event(477, 0, 0, 4096, kind=MAP, flags=1 | 4 | 8),
        Event(577, 0x2000, 0, 8, device=1, kind=MAP, flags=0x10),
        Event(677, 0x9000, 0, 8192, device=1, kind=ALLOC),
        Event(687, 0, 0, 8192, device=1, kind=ALLOC, flags=4),
        Event(777, 0x9000, 0, 8192, device=1, kind=FREE),
        Event(877, 0x7000, 0, 64, kind=SYNC_CPU, flags=2),
    ]
    # The page within its frame stays, frames of memory change places among themselves, registers are no memory.
    assert [page & 511 for page in pages] == [5, 0, 6, 0, 0, 0, 0, 0]
    assert pages[0] >> 9 == pages[2] >> 9 <= 4 < pages[3] >> 9 != (1 << 46) >> 21
    assert [each["name"] for each in recording.header["devices"]] == [NIC, DISK]
    assert (recording.header["cpus"], recording.header["memory_pages"]) == (2, 5 * 512)
    assert "polls" in recording.header["missing"] and "not in the file: polls" in said
    assert recording.summary and recording.summary["by_kind"]["map"] == 3


@pytest.mark.usefixtures("trace_cmd")
def test_lists(tmp_path: Path) -> None:
    """Entries as far as the kernel tells, and lost events for what it does not."""
    whole = {"phys_addrs": [FRAME + 0x10, 0x3031323334353000], "dma_addrs": [0x9010, 0xA000], "lengths": [4080, 512]}
    merged = {"phys_addrs": [FRAME, FRAME + 4096], "dma_addrs": [0xB000], "lengths": [8192]}
    events = [
        Traced(10, "dma/dma_map_sg", {"device": NIC, **whole, "full_nents": 300, "full_ents": 300, "dir": 1}),
        Traced(20, "dma/dma_map_sg", {"device": NIC, **merged, "full_nents": 2, "full_ents": 1, "dir": 1}),
        Traced(30, "dma/dma_unmap_sg", {"device": NIC, "addrs": [FRAME], "dir": 1}),
    ]
    found, recording, said = imported(tmp_path, events)
    assert [event._replace(page=0) for event in found] == [
        Event(0, 0x9010, 0, 4592, 2, kind=MAP_LIST, flags=1),
        Event(0, 0x9010, 0, 4080, 4080, offset=0x10, kind=ENTRY, flags=1),
        Event(0, 0xA000, 0, 512, 512, kind=ENTRY, flags=1),
        Event(0, 0, 0, 298, kind=LOST),
        Event(10, 0xB000, 0, 8192, 2, kind=MAP_LIST, flags=1),
        Event(10, 0xB000, 0, 8192, 8192, kind=ENTRY, flags=1),
        Event(10, kind=ENTRY, flags=1),
        Event(20, 0, 0, 1, kind=LOST),
    ]
    assert recording.summary and recording.summary["lost"] == 299
    assert "2 gaps, of 299 events as far as known" in said


@pytest.mark.usefixtures("trace_cmd")
def test_physical_addresses_are_permuted(tmp_path: Path) -> None:
    """Of a device whose buffers all have their physical address; so unmaps find their maps."""
    places = [n * FRAME + 0x5000 for n in range(1, 200)]
    events = [mapped(n, place, place, device=DISK) for n, place in enumerate(places)]
    events += [unmapped(1000 + n, place, device=DISK) for n, place in enumerate(places)]
    events.append(mapped(2000, FRAME, 0x9000))
    found, recording, _ = imported(tmp_path, events)
    assert [each["physical"] for each in recording.header["devices"]] == [True, False]
    half = len(places)
    assert [event.iova for event in found[:half]] == [event.iova for event in found[half : 2 * half]]
    assert all(event.iova == event.page << 12 for event in found[:half])
    assert sum(event.iova == place for event, place in zip(found, places, strict=False)) < 20
    assert len({event.iova for event in found[:half]}) == half
    assert found[-1].iova == 0x9000


def test_identities_are_a_permutation() -> None:
    """Of the frames of memory among themselves; none is 0, which says that a page is not known."""
    for frames in (2, 8):
        made = trace_import.Identities(frames * FRAME)
        found = [made.address(frame * FRAME + 5) for frame in range(frames)]
        assert sorted(found) == [frame * FRAME + 5 for frame in range(1, frames + 1)]
        assert found == [made.address(frame * FRAME + 5) for frame in range(frames)]
        assert made.address(frames * FRAME) >= (frames + 1) * FRAME
        assert (made.pages, made.address(0)) == ((frames + 1) * 512, 0)
    assert trace_import.Identities(1 << 64).pages == ((1 << 40) + 1) * 512


@pytest.mark.usefixtures("trace_cmd")
def test_most_buffers_tell_whether_addresses_are_physical(tmp_path: Path) -> None:
    """A bounce buffer has another address than the buffer; of a device without buffers nothing is known."""
    places = [n * FRAME + 0x5000 for n in range(1, 200)]
    coherent: dict[str, Any] = {"device": NIC, "dma_addr": 77 * FRAME, "size": 4096, "virt_addr": 9}
    events = [mapped(n, place, place + 7 * FRAME * (n == 3), device=DISK) for n, place in enumerate(places)]
    found, recording, _ = imported(tmp_path, [*events, Traced(500, "dma/dma_alloc", coherent)])
    assert [each["physical"] for each in recording.header["devices"]] == [True, True]
    assert sum(event.iova >> 21 == n + 1 for n, event in enumerate(found[:-1])) < 20
    assert found[-1].iova & (FRAME - 1) == 0 and found[-1].iova != 77 * FRAME
    (tmp_path / "b").mkdir()
    # By chance an IOVA is the physical address.
    events = [mapped(n, place, 0x9000 if n else place) for n, place in enumerate(places)]
    found, recording, _ = imported(tmp_path / "b", events)
    assert not recording.header["devices"][0]["physical"]
    assert found[1].iova == 0x9000


@pytest.mark.usefixtures("trace_cmd")
@pytest.mark.parametrize("task", [": dma_map_page:", "-1 [0] 1.1: a: ", "a\nb", "é"])
def test_a_task_cannot_hide_events(task: str, tmp_path: Path) -> None:
    events = [mapped(10, FRAME, 0x9000), unmapped(20, 0x9000, task=task), mapped(30, FRAME, 0x9000)]
    found, _, _ = imported(tmp_path, events)
    assert [event.kind for event in found] == [MAP, UNMAP, MAP]


@pytest.mark.usefixtures("trace_cmd")
def test_without_dma_events_those_of_the_iommu_are_read(tmp_path: Path) -> None:
    """An unmap of a list ends all of its maps; another system's event of the same name is none."""
    events = [
        Traced(10, "iommu/map", {"iova": 0x10000, "paddr": FRAME, "size": 4096}),
        Traced(11, "iommu/map", {"iova": 0x11000, "paddr": 2 * FRAME, "size": 8192}),
        Traced(12, "sched/map", {"iova": 0x99000}),
        Traced(20, "iommu/unmap", {"iova": 0x10000, "size": 0x4000, "unmapped_size": 0x4000}),
    ]
    found, recording, said = imported(tmp_path, events)
    assert [event._replace(page=0) for event in found] == [
        Event(0, 0x10000, 0, 4096, kind=MAP),
        Event(1, 0x11000, 0, 8192, kind=MAP),
        Event(10, 0x10000, 0, 4096, kind=UNMAP),
        Event(10, 0x11000, 0, 8192, kind=UNMAP),
        Event(10, 0x13000, 0, 4096, kind=UNMAP),
    ]
    assert recording.header["devices"][0]["name"] == trace_import.IOMMU
    assert "devices" in recording.header["missing"] and "directions" in said


@pytest.mark.usefixtures("trace_cmd")
def test_totals_are_compared(tmp_path: Path) -> None:
    both = [
        mapped(10, FRAME, 0x9F00, 512),
        Traced(11, "iommu/map", {"iova": 0x9000, "paddr": FRAME, "size": 8192}),
        unmapped(20, 0x9F00, 512),
        Traced(21, "iommu/unmap", {"iova": 0x9000, "size": 8192, "unmapped_size": 8192}),
    ]
    found, recording, said = imported(tmp_path, both)
    assert [event.kind for event in found] == [MAP, UNMAP]
    assert recording.summary and recording.summary["check"]["equal"] is True
    (tmp_path / "b").mkdir()
    other = Traced(30, "iommu/map", {"iova": 0, "paddr": 0, "size": 4096})
    _, recording, said = imported(tmp_path / "b", [*both, other])
    assert recording.summary and recording.summary["check"]["mapped_pages"] == [2, 3]
    assert "2 pages are mapped here, and 3 by iommu:map" in said


@pytest.mark.usefixtures("trace_cmd")
def test_dropped_events_are_a_gap(tmp_path: Path) -> None:
    events = [mapped(1000 + n, FRAME, 0x9000) for n in range(200)]
    found, _, said = imported(tmp_path, events, dropped=True)
    [gap] = [event for event in found if event.kind == LOST]
    assert (gap.bytes, gap.cpu, len(found)) == (0, 0xFFFF, 201)
    assert "no unmaps: record all events" in said and "warning: 1 gaps:" in said


@pytest.mark.usefixtures("trace_cmd")
def test_a_replay_takes_an_import(tmp_path: Path) -> None:
    from tests.python.recordings import Player

    from xsmmu_lab.setup import replay

    events = [each for n in range(100) for each in (mapped(n * 9, FRAME, 0x9000), unmapped(n * 9 + 5, 0x9000))]
    imported(tmp_path, events)
    found = Player(replay.compiled())(tmp_path / "a", "strict")
    assert (found["maps"], found["commands"]["page"], found["not_replayed"]) == (100, 100, {})


def refused(file: Path, out: Path) -> UserError:
    done = CliRunner().invoke(app, ["trace", "import", str(file), "-O", str(out)])
    assert isinstance(done.exception, UserError), done.output
    return done.exception


@pytest.mark.usefixtures("trace_cmd")
def test_bad_files(tmp_path: Path) -> None:
    file, out = trace_dat.write(tmp_path / "a", [mapped(1, FRAME, 0x9000)]), tmp_path / "out"
    data = file.read_bytes()
    for size in (0, 5, 12):
        file.write_bytes(data[:size])
        assert "is no file of trace-cmd" in refused(file, out).message
    for size in (60, 500, 2000, len(data) - 5000):
        file.write_bytes(data[:size])
        assert refused(file, out).code in ("no-file", "failed"), size
    file.write_bytes(data.replace((4096).to_bytes(4, "little"), (16384).to_bytes(4, "little"), 1))
    assert "pages of 16384 bytes" in refused(file, out).message
    assert "no event of dma or iommu" in refused(trace_dat.write(file, [Traced(1, "sched/map", {})]), out).message
    assert [each.name for each in tmp_path.iterdir()] == ["a"]
    file = trace_dat.write(file, [mapped(1, FRAME, 0x9000)])
    for folder in (Path(), Path("/")):
        assert "is a folder: name a new file in it" in refused(file, folder).message
    out.write_text("mine")
    assert "exists" in refused(trace_dat.write(file, [mapped(1, FRAME, 0x9000)]), out).message
    assert out.read_text() == "mine"


@pytest.mark.usefixtures("trace_cmd")
@pytest.mark.parametrize(
    ("good", "bad", "said"),
    [
        (
            b"signed:0",
            b"signed:1",
            "an event dma_map_page of CPU 1 at 0.000000002 s has size=-4096: the file is damaged",
        ),
        (b"u64 dma_addr;", b"u16 dma_addr[4];", "has dma_addr=ARRAY[00, 90, 00, 00, 00, 00, 00, 00]: the file is"),
        (b"u64 dma_addr;", b"u64 address;", "has no dma_addr: the file is damaged, or of a newer kernel: record again"),
        (b"u64[] phys_addrs;", b"u32 phys_addrs;", "an event dma_map_sg of CPU 0 at 0.000000001 s has phys_addrs="),
        (b" dma_addrs;", b" addresses;", "an event dma_map_sg of CPU 0 at 0.000000001 s has no dma_addrs: the file"),
    ],
)
def test_fields_as_no_kernel_writes_them(
    good: bytes, bad: bytes, said: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A file describes its own fields."""
    values: dict[str, Any] = {
        "device": NIC,
        "phys_addrs": [FRAME],
        "dma_addrs": [0x9000],
        "lengths": [512],
        "full_nents": 1,
        "dir": 1,
    }
    events = [Traced(1, "dma/dma_map_sg", values), mapped(2, FRAME, 0x9000, (1 << 64) - 4096, cpu=1)]
    right = trace_dat._format
    monkeypatch.setattr(trace_dat, "_format", lambda number, name: right(number, name).replace(good, bad))
    error = refused(trace_dat.write(tmp_path / "a", events), tmp_path / "b")
    assert said in error.message and error.code == "bad-recording"
    assert [each.name for each in tmp_path.iterdir()] == ["a"]


# -- lines of trace-cmd, which need no trace-cmd ---------------------------------------------------


def printed(folder: Path, monkeypatch: pytest.MonkeyPatch, *lines: str) -> Path:
    """A file of which a program in the place of trace-cmd prints these lines."""
    (folder / "lines").write_text("\n".join(["cpus=2", *lines, ""]))
    program = folder / "bin/trace-cmd"
    program.parent.mkdir()
    program.write_text(f"#!/bin/sh\ncat {folder}/lines\n")
    program.chmod(0o755)
    monkeypatch.setenv("PATH", f"{program.parent}:{os.environ['PATH']}")
    return trace_dat.write(folder / "trace.dat", [mapped(1, FRAME, 0x9000)])


def of_lines(folder: Path, monkeypatch: pytest.MonkeyPatch, *lines: str) -> tuple[list[Event], dict[str, Any]]:
    """The events of these lines, without their pages, and the summary."""
    summary = trace_import.import_file(printed(folder, monkeypatch, *lines), folder / "out")
    return [each._replace(page=0) for each in read_python(folder / "out")[0]], summary


def line(ns: int, name: str, fields: str, cpu: int = 0) -> str:
    return f"          iperf3-100   [{cpu:03}]     1.{ns:09}: {name}: {fields}"


_MAP = "phys_addr=0x200040 dma_addr=0x9040 size=24 dir=2"
_ONE = "dma_addr=0x9040 size=24 dir=2"
_TWO = "dma_addrs=ARRAY[40, 90, 00, 00, 00, 00, 00, 00, 00, b0, 00, 00, 00, 00, 00, 00] "
_TWO += "lengths=ARRAY[10, 00, 00, 00, 08, 00, 00, 00] dir=2"
_POINTS = {
    "dma_map_page": (f"{_MAP} attrs=0x20", MAP, 2 | 8),
    "dma_map_phys": (f"{_MAP} attrs=0x400", MAP, 2 | 0x10),
    "dma_map_resource": (f"{_MAP} attrs=0x0", MAP, 2 | 0x10),
    "dma_unmap_page": ("addr=0x9040 size=24 dir=2 attrs=0x0", UNMAP, 2),
    "dma_unmap_phys": ("addr=0x9040 size=24 dir=2 attrs=0x400", UNMAP, 2 | 0x10),
    "dma_unmap_resource": ("addr=0x9040 size=24 dir=2 attrs=0x0", UNMAP, 2 | 0x10),
    "dma_alloc": (f"virt_addr=0x1 {_ONE} attrs=0x0", ALLOC, 0),
    "dma_alloc_pages": (f"virt_addr=0x1 {_ONE} attrs=0x0", ALLOC, 0),
    "dma_alloc_sgt": (f"phys_addrs=ARRAY[00, 00, 20, 00, 00, 00, 00, 00] {_ONE} attrs=0x0", ALLOC, 0),
    "dma_free": (f"virt_addr=0x1 {_ONE} attrs=0x0", FREE, 0),
    "dma_free_pages": (f"virt_addr=0x1 {_ONE} attrs=0x0", FREE, 0),
    "dma_free_sgt": (f"phys_addrs=ARRAY[00, 00, 20, 00, 00, 00, 00, 00] {_ONE}", FREE, 0),
    "dma_sync_single_for_cpu": (_ONE, SYNC_CPU, 2),
    "dma_sync_single_for_device": (_ONE, SYNC_CPU + 1, 2),
    "dma_sync_sg_for_cpu": (_TWO, SYNC_CPU, 2),
    "dma_sync_sg_for_device": (_TWO, SYNC_CPU + 1, 2),
}
"""Fields of tracepoints of Linux 6.12 and 7.3, and what becomes of them."""


def test_more_devices_than_a_recording_has(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    lines = [line(at, "dma_unmap_page", f"device=d{at} addr=0 size=1 dir=0") for at in range(65537)]
    assert "more than 65,536 devices" in refused(printed(tmp_path, monkeypatch, *lines), tmp_path / "out").message


def test_a_big_endian_machine_is_refused(tmp_path: Path) -> None:
    """Arrays are printed as bytes in the machine's order."""
    (tmp_path / "a").write_bytes(b"\x17\x08\x44tracing6\0\1\x08" + (4096).to_bytes(4, "big"))
    assert "is of a big-endian machine" in refused(tmp_path / "a", tmp_path / "out").message


def test_each_tracepoint(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    lists = {"dma_map_sg", "dma_map_sg_err", "dma_unmap_sg"}
    assert {*_POINTS} | lists == {*trace_import._POINTS}
    lines = [line(at, name, f"device={NIC} {fields}") for at, (name, (fields, *_)) in enumerate(_POINTS.items())]
    failed = "phys_addrs=ARRAY[00, 00, 20, 00, 00, 00, 00, 00] err=-5 dir=1 attrs=0x0"
    found, summary = of_lines(tmp_path, monkeypatch, *lines, line(99, "dma_map_sg_err", f"device={NIC} {failed}"))
    offset = {MAP: 0x40}
    assert found == [
        *(Event(at, 0x9040, 0, 24, 0, 0, offset.get(kind, 0), 0, 0, kind, flags)
          for at, (_, kind, flags) in enumerate(_POINTS.values())),
        Event(99, 0, 0, 0, 1, kind=MAP_LIST, flags=1 | 4),
    ]  # fmt: skip
    assert (summary["events"], summary["lost"], summary["check"]["by"]) == (17, 0, "none")


def test_losses_name_their_cpu_and_time(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Clocks of CPUs may differ, and time does not go back."""
    events = [line(at, "dma_unmap_page", f"device={NIC} addr=0 size=1 dir=0", cpu) for at, cpu in ((10, 0), (50, 1))]
    late = [line(at, "dma_unmap_page", f"device={NIC} addr=0 size=1 dir=0", cpu) for at, cpu in ((40, 0), (70, 1))]
    dropped = ("CPU:0 [7 EVENTS DROPPED]", "CPU:1 [EVENTS DROPPED]")
    found, summary = of_lines(tmp_path, monkeypatch, *events, *dropped, *late)
    assert [(each.ns, each.cpu, each.bytes, each.span) for each in found if each.kind == LOST] == [
        (40, 0, 7, 40),
        (40, 0xFFFF, 0, 0),
    ]
    assert [each.ns for each in found] == [0, 40, 40, 40, 40, 60]
    assert summary["lost"] == 7


def test_pages_of_the_iommu(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Of an unmap those that were unmapped; of a list those of its entries."""
    array = "ARRAY[00, 08, 20, 00, 00, 00, 00, 00]"
    fields = f"full_nents=1 phys_addrs={array} dma_addrs={array.replace('08, 20', '00, 30')} "
    fields += "lengths=ARRAY[00, 10, 00, 00] dir=1"
    _, summary = of_lines(
        tmp_path, monkeypatch,
        line(1, "dma_map_sg", f"device={NIC} {fields}"),
        line(2, "map", "iova=0x300000 paddr=0x200000 size=8192"),
        line(3, "unmap", "iova=0x300000 size=8192 unmapped_size=4096"),
    )  # fmt: skip
    assert summary["check"]["mapped_pages"] == [2, 2]
    assert summary["check"]["unmapped_pages"] == [0, 1]


def test_an_unmap_of_a_part(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Also of nothing, which ends."""
    found, _ = of_lines(
        tmp_path, monkeypatch,
        line(1, "map", "iova=0x1000 paddr=0x3ff000 size=8192"),
        line(2, "unmap", "iova=0x1000 size=4096 unmapped_size=4096"),
        line(3, "map", "iova=0x9000 paddr=0x200000 size=0"),
        line(4, "unmap", "iova=0x9000 size=4096 unmapped_size=0"),
    )  # fmt: skip
    assert [(each.kind, each.iova, each.bytes) for each in found] == [
        (MAP, 0x1000, 8192), (UNMAP, 0x1000, 4096), (MAP, 0x9000, 0), (UNMAP, 0x9000, 0),
    ]  # fmt: skip
    with trace.Recording(tmp_path / "out") as recording:
        assert recording.header["memory_pages"] == 5 * 512


@pytest.mark.parametrize(
    ("line", "said"),
    [
        ("CPU:65535 [7 EVENTS DROPPED]", "an event of CPU 65535 at 0 ns, which no kernel writes"),
        ("  a-1   [99999]  1.000000000: map:  iova=0 paddr=0 size=1", "an event of CPU 99999 at 1000000000 ns"),
        ("  a-1   [000]  99999999999.000000000: map:  iova=0 paddr=0 size=1", "of CPU 0 at 99999999999000000000 ns"),
        (f"CPU:1 [{1 << 64} EVENTS DROPPED]", "an event of CPU 1 at 0 ns"),
    ],
)
def test_numbers_that_do_not_fit(line: str, said: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """As of a program that prints what no kernel has written."""
    error = refused(printed(tmp_path, monkeypatch, line), tmp_path / "b")
    assert said in error.message and error.code == "bad-recording"


@pytest.mark.parametrize("flags", ["", "-0x0", " d..1.", "-.....  d..1."])
def test_lines_of_each_version(flags: str) -> None:
    """trace-cmd 3.1.6 prints no flags, 3.3.1 behind the CPU, and both the latency flags if asked."""
    line = f"          iperf3-100   [003]{flags}     1.000000123: dma_map_page:          device=0000:01:00.0 size=8"
    found = trace_import._LINE.match(line)
    assert found and found.groups() == ("003", "1", "000000123", "dma_map_page", "device=0000:01:00.0 size=8")


def test_without_the_program(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    file = trace_dat.write(tmp_path / "a", [mapped(1, FRAME, 0x9000)])
    monkeypatch.setenv("PATH", "")
    assert "apt install trace-cmd" in refused(file, tmp_path / "b").message
