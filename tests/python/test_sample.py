# SPDX-License-Identifier: GPL-2.0-only
"""Sampling of maps and unmaps: traces as kernels print them, and a made-up tracing folder that must be left clean."""

from __future__ import annotations

import json
import os
import shutil
from collections import Counter
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest
from click.testing import CliRunner
from tests.python.sysfs import IGB, NVME0, Machine, make_device

from xsmmu import calibration, native, sample
from xsmmu.cli import app
from xsmmu.errors import UserError
from xsmmu.machine import Device

HISTOGRAM = """# event histogram
#
# trigger info: hist:keys=device:vals=hitcount:sort=hitcount:size=2048 [active]
#

{ device: 0000:05:00.0                                                                                                  } hitcount:         17
{ device: 0000:01:00.0                                                                                                  } hitcount:      41203

Totals:
    Hits: 41220
    Entries: 2
    Dropped: 0
"""  # noqa: E501
SIZES = """# event histogram
#
# trigger info: hist:keys=size:vals=hitcount:sort=hitcount:size=2048 [active]
#

{ size:      12288 } hitcount:          5
{ size:       4096 } hitcount:        995

Totals:
    Hits: 1000
    Entries: 2
    Dropped: 0
"""
PIPE = """\
          <idle>-0       [001] ..s1.   812.123456: dma_map_phys: 0000:01:00.0 dir=FROM_DEVICE dma_addr=fffff000 size=2048 phys_addr=1052f0000 attrs=SKIP_CPU_SYNC
          <idle>-0       [001] ..s1.   812.123460: dma_unmap_phys: 0000:01:00.0 dir=FROM_DEVICE dma_addr=ffffe000 size=2048 attrs=SKIP_CPU_SYNC
             fio-842     [000] .....   812.123470: dma_map_sg: 0000:05:00.0 dir=TO_DEVICE nents=2/2 ents=1/1 dma_addrs={0xffffa000} sizes={0x2000} phys_addrs={0x105000000,0x105001000} attrs=
             fio-842     [000] .....   812.123471: dma_alloc: 0000:05:00.0 dir=BIDIRECTIONAL dma_addr=ffff0000 size=4096 virt_addr=00000000 flags=GFP_KERNEL attrs=
             fio-842     [000] .....   812.123472: dma_sync_sg_for_cpu: 0000:05:00.0 dir=TO_DEVICE dma_addrs={} sizes={}
CPU:1 [LOST 1234 EVENTS]
 dma_map_page: fake-9 [000] d.h1.   812.123480: dma_unmap_sg: 0000:05:00.0 dir=TO_DEVICE phys_addrs={0x105000000,0x105001000} attrs=
             fio-842     [000] .....   812.123481: dma_map_sg_err: 0000:05:00.0 dir=TO_DEVICE dma_addrs={0x1} err=-5 attrs=
          <idle>-0       [001] ..s1.   812.123490: dma_map_resource: 0000:01:00.0 dir=FROM_DEVICE dma_addr=fffff000 size=64 phys_addr=fe000000 attrs=
"""  # noqa: E501
CHANGES = """\
          <idle>-0       [001] ..s1.    92.1: map: IOMMU: iova=0x00000000fffff000 - 0x0000000100000000 paddr=0x1052f0000 size=4096
          <idle>-0       [001] ..s1.    92.2: unmap: IOMMU: iova=0x00000000fffff000 - 0x0000000100000000 size=4096 unmapped_size=4096
          <idle>-0       [001] ..s1.    92.3: map: IOMMU: iova=0x00000000fffff000 - 0x0000000100000000 paddr=0x1052f0000 size=4096
"""  # noqa: E501
COSTS = {
    "schema": "xsmmu.calibration/1",
    "kernel": "6.12.9-amd64",
    "policies": {"kernel-strict": {"map_ns": 400, "unmap_ns": 1600}, "fused": {"map_ns": 150.5, "unmap_ns": 99.5}},
}


def test_a_histogram_is_read_by_device() -> None:
    assert sample.parse_histogram(HISTOGRAM) == {"0000:05:00.0": 17, "0000:01:00.0": 41203}
    assert sample.parse_hits(HISTOGRAM) == 41220
    assert sample.parse_hits(SIZES) == 1000
    assert sample.parse_histogram("") == {}
    assert sample.parse_hits("") == 0


def test_lines_are_read_by_device() -> None:
    found, lost = sample.parse_events(PIPE)
    assert found == {
        (IGB, "map"): 2,
        (IGB, "unmap"): 1,
        (NVME0, "map"): 1,
        (NVME0, "unmap"): 1,
    }
    assert lost == 1234
    assert sample.parse_events(CHANGES) == (Counter({("all devices", "map"): 2, ("all devices", "unmap"): 1}), 0)


EVENTS = {
    "dma": ("dma_map_page", "dma_map_sg", "dma_unmap_page", "dma_unmap_sg", "dma_alloc"),
    "iommu": ("map", "unmap", "io_page_fault"),
}


class Tracing:
    """A tracing folder: a new instance has its events, and an unused instance can be removed."""

    def __init__(self, sysfs: Path) -> None:
        self.folder = sysfs / "kernel/tracing"
        (self.folder / "instances").mkdir(parents=True)
        self.events = dict(EVENTS)
        self.files = {"trigger": "# Available triggers:\n", "hist": HISTOGRAM, "enable": "0\n"}
        self.contents = {"iommu": SIZES}
        self.pipe = ""
        self.made: list[str] = []

    def make(self, folder: Path) -> None:
        folder.mkdir()
        self.made.append(folder.name)
        for system, names in self.events.items():
            for name in names:
                (folder / "events" / system / name).mkdir(parents=True)
                for file, content in self.files.items():
                    (folder / "events" / system / name / file).write_text(content)
                if system in self.contents and "hist" in self.files:
                    (folder / "events" / system / name / "hist").write_text(self.contents[system])
        (folder / "trace_pipe").write_text(self.pipe)

    def remove(self, folder: Path) -> None:
        for event in folder.glob("events/*/*"):
            triggers = (event / "trigger").read_text().splitlines()
            assert not triggers or not triggers[-1].startswith("hist:"), f"{event} has a histogram still"
            assert (event / "enable").read_text() == "0\n", f"{event} is on still"
        shutil.rmtree(folder)

    @property
    def left(self) -> list[str]:
        """The remaining instances."""
        return [path.name for path in (self.folder / "instances").iterdir()]


@pytest.fixture
def tracing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Tracing:
    Machine(tmp_path)
    for name in ("sysfs", "proc", "boot", "modules", "state"):
        monkeypatch.setenv(f"XSMMU_{name.upper()}", str(tmp_path / name))
    make_device(tmp_path / "sysfs", IGB, 11, None, "igb", interface="eth1")
    make_device(tmp_path / "sysfs", NVME0, 13, None, "nvme", disk="nvme0n1", kind="DMA")
    made = Tracing(tmp_path / "sysfs")
    monkeypatch.setattr(sample, "_make", made.make)
    monkeypatch.setattr(sample, "_remove", made.remove)
    return made


def counted(during: Callable[[Path], None] = lambda _folder: None) -> tuple[sample.Counts, sample.Counts, int]:
    """Counts before and after an action in the instance, and the number of lost events."""
    with sample.counting() as count:
        first = Counter(count.counts())
        during(sample._tracing() / "instances" / f"xsmmu-{os.getpid()}")
        count.step()
        return first, count.counts(), count.lost


def test_the_kernel_counts_by_histograms(tracing: Tracing) -> None:
    def during(folder: Path) -> None:
        for name in ("dma_map_page", "dma_map_sg", "dma_unmap_page", "dma_unmap_sg"):
            assert (folder / f"events/dma/{name}/trigger").read_text().endswith("\nhist:keys=device\n")
        assert "hist:" not in (folder / "events/dma/dma_alloc/trigger").read_text()
        (folder / "events/dma/dma_map_sg/hist").write_text(HISTOGRAM.replace("  17", "1017"))

    first, last, lost = counted(during)
    assert first[NVME0, "map"] == 34
    assert last[NVME0, "map"] - first[NVME0, "map"] == 1000
    assert last[IGB, "unmap"] == first[IGB, "unmap"]
    assert lost == 0
    assert tracing.made == [f"xsmmu-{os.getpid()}"]
    assert tracing.left == []


def test_lines_are_read_where_there_are_no_histograms(tracing: Tracing) -> None:
    del tracing.files["hist"]
    tracing.pipe = PIPE
    line = PIPE.splitlines()[0]
    with sample.counting() as count:
        folder = sample._tracing() / "instances" / f"xsmmu-{os.getpid()}"
        assert (folder / "events/dma/dma_map_page/enable").read_text() == "1\n"
        count.step()
        assert count.counts()[IGB, "map"] == 2
        # A line may come in two parts.
        for part, seen in ((line[:90], 2), (line[90:] + "\n", 3)):
            with (folder / "trace_pipe").open("a") as pipe:
                pipe.write(part)
            count.step()
            assert count.counts()[IGB, "map"] == seen
        # Events in the buffer at the end count.
        with (folder / "trace_pipe").open("a") as pipe:
            pipe.write(line + "\n")
        count.stop()
        assert (folder / "events/dma/dma_map_page/enable").read_text() == "0\n"
        assert count.counts()[IGB, "map"] == 4
        assert count.lost == 1234
    assert tracing.left == []


def test_events_that_never_end_do_not_hold_it_up(tracing: Tracing) -> None:
    del tracing.files["hist"]
    with sample.counting() as count:
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(os, "read", lambda _pipe, _bytes: PIPE.encode())
            count.step()
        assert count.counts()[IGB, "map"] >= 2
    assert tracing.left == []


def test_kernels_before_6_12_have_one_sum(tracing: Tracing) -> None:
    del tracing.events["dma"]
    first, _, _ = counted()
    assert first == {("all devices", "map"): 1000, ("all devices", "unmap"): 1000}
    assert tracing.left == []
    result = CliRunner().invoke(app, ["doctor", "--sample", "0.1"])
    assert "all devices" in result.output
    assert "the sum of all" in result.output


def test_what_is_made_is_removed_whatever_happens(tracing: Tracing, monkeypatch: pytest.MonkeyPatch) -> None:
    class Stopped(BaseException):
        pass

    def stop(_folder: Path) -> None:
        raise Stopped

    for files in ({"trigger": "", "hist": HISTOGRAM, "enable": "0\n"}, {"trigger": "", "enable": "0\n"}):
        tracing.files = files
        with pytest.raises(Stopped):
            counted(stop)
        assert tracing.left == []
    # The third trigger is refused.
    tracing.files = {"trigger": "", "hist": HISTOGRAM, "enable": "0\n"}
    real = sample._trigger
    written: list[str] = []

    def refuse(event: Path, word: str) -> None:
        written.append(word)
        if len(written) == 3:
            raise OSError(16, "Device or resource busy", str(event))
        real(event, word)

    monkeypatch.setattr(sample, "_trigger", refuse)
    with pytest.raises(OSError, match="busy"):
        counted()
    assert tracing.left == []
    assert written[3:] == ["!hist:keys=device"] * 2


def test_what_a_killed_one_has_left_is_removed(tracing: Tracing) -> None:
    for name in ("xsmmu-1", "xsmmu-99999", "other-99999"):
        tracing.make(tracing.folder / "instances" / name)
    trigger = tracing.folder / "instances/xsmmu-99999/events/dma/dma_map_sg/trigger"
    trigger.write_text("hist:keys=device:vals=hitcount:sort=hitcount:size=2048 [active]\n")
    (Path(os.environ["XSMMU_PROC"]) / "1").mkdir()
    counted()
    assert sorted(tracing.left) == ["other-99999", "xsmmu-1"]


def test_rates_are_of_the_time_between(tracing: Tracing) -> None:
    first = {(IGB, "map"): 100, (IGB, "unmap"): 50, (NVME0, "map"): 5}
    last = {(IGB, "map"): 1100, (IGB, "unmap"): 250, (NVME0, "map"): 5, ("serial8250", "map"): 9}
    found = sample.rates(first, last, 2.0, [])
    assert [(rate.device, rate.names, rate.path) for rate in found] == [
        (IGB, ("eth1",), "kernel-lazy"),
        (NVME0, ("nvme0n1",), "kernel-strict"),
    ]
    assert [(rate.maps_per_s, rate.unmaps_per_s) for rate in found] == [(500, 100), (0, 0)]
    # A requested device without events is listed.
    assert [rate.device for rate in sample.rates({}, {(IGB, "map"): 1}, 1.0, [Device(NVME0)])] == [NVME0]
    assert tracing.left == []


def test_costs_come_from_the_calibration(tracing: Tracing, tmp_path: Path) -> None:
    (tmp_path / "state").mkdir()
    (tmp_path / "state/calibration.json").write_text(json.dumps(COSTS))
    costs = calibration.read()
    assert costs
    rate = sample.Rate(IGB, (), None, 100_000, 50_000)
    assert sample.Taken(1.0, (rate,), 0, costs).shares(rate) == pytest.approx(
        {"kernel-strict": 0.12, "fused": 0.020025}
    )
    output = CliRunner().invoke(app, ["doctor", "eth1", "--sample", "0.1"]).output
    assert "kernel-strict %" in output
    assert "measured on 6.12.9-amd64" in output
    document = json.loads(CliRunner().invoke(app, ["doctor", "eth1", "--sample", "0.1", "-o", "json"]).output)
    assert document["sample"]["calibrated_on"] == "6.12.9-amd64"
    here = {"source": "bench", "kernel": "6.12.9-amd64", "cpu": None, "wait_ns": None}
    assert document["sample"]["costs_from"] == here
    assert document["sample"]["rates"][0]["cpu_share"].keys() == {"kernel-strict", "fused"}
    lines = CliRunner().invoke(app, ["doctor", "eth1", "--sample", "0.1", "-o", "jsonl"]).output.splitlines()
    assert json.loads(lines[-1])["schema"] == "xsmmu.doctor-sample/1"
    assert tracing.left == []


def test_costs_are_estimated_without_a_calibration(tracing: Tracing, tmp_path: Path) -> None:
    """By accepted figures of make native at a wait of 1 us; of the machine's own model of CPU if there are any."""
    result = CliRunner().invoke(app, ["doctor", "eth1", "--sample", "0.1"])
    machine = native.accepted()[0]
    said = (
        f"%: of a CPU, estimated by make native's figures of {machine.cpu} at a wait of 1 us for each invalidation; "
        "xsmmu bench DEVICE --save measures this machine\n"
    )
    assert said in result.output and "virtual machine" not in result.output
    assert [line.split()[:3] for line in result.output.splitlines() if line.startswith(IGB)] == [
        [IGB, "eth1", "kernel-lazy"]
    ]
    assert "strict %" in result.output and "passthrough %" not in result.output and "-direct" not in result.output
    document = json.loads(CliRunner().invoke(app, ["doctor", "eth1", "--sample", "0.1", "-o", "json"]).output)["sample"]
    assert document["calibrated_on"] is None
    assert document["costs_from"] == {
        "source": "native",
        "kernel": machine.kernel,
        "cpu": machine.cpu,
        "wait_ns": native.HARDWARE_WAIT_NS,
    }
    strict = next(row for row in machine.plain("strict") if row.wait_ns == native.HARDWARE_WAIT_NS)
    assert calibration.estimate().policies["strict"] == calibration.Cost(strict.map_ns, strict.unmap_ns)
    assert {*document["rates"][0]["cpu_share"]} == {*calibration.estimate().policies}
    (tmp_path / "proc/cpuinfo").write_text("model name\t: Another\nflags\t\t: fpu hypervisor\n")
    assert (
        "emulated IOMMU may take much longer than this wait"
        in CliRunner().invoke(app, ["doctor", "eth1", "--sample", "0.1"]).output
    )
    assert tracing.left == []


def test_an_estimate_is_of_the_machines_own_cpu(
    tracing: Tracing, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    [first, *_] = native.accepted()
    mine = replace(first, cpu="My CPU")
    monkeypatch.setattr(native, "accepted", lambda: (first, mine))
    (tmp_path / "proc/cpuinfo").write_text("model name\t: My CPU\n")
    assert calibration.estimate().cpu == "My CPU"
    (tmp_path / "proc/cpuinfo").write_text("model name\t: Another\n")
    assert calibration.estimate().cpu == first.cpu
    assert tracing.made == []


def test_what_people_see(capsys: pytest.CaptureFixture[str]) -> None:
    """Percent of a CPU; missing parts; and that a sum belongs to no device."""
    costs = calibration.parse(COSTS)
    rates = tuple(sample.Rate(name, (), None, 100_000, 50_000) for name in (IGB, sample.EVERYONE))
    taken = sample.Taken(2.0, rates, 1234, costs)
    sample.show(taken)
    said = capsys.readouterr().out
    assert [line.split() for line in said.splitlines() if line.startswith(IGB)] == [
        [IGB, "-", "-", "100,000", "50,000", "12.00", "2.00"]
    ]
    assert "1,234 events were lost, because they came faster than the tool reads: the true rates are higher" in said
    assert [row["device"] for row in taken.as_dict()["rates"]] == [IGB, None]
    assert taken.as_dict()["lost_events"] == 1234
    sample.show(sample.Taken(2.0, rates[:1], 0, costs))
    assert "were lost" not in capsys.readouterr().out


NO_CALIBRATIONS: tuple[dict[str, object], ...] = (
    {"schema": "x/1"},
    {"policies": {"fused": {}}},
    {"policies": {"fused": {"map_ns": float("inf"), "unmap_ns": 1}}},
    {"policies": []},
)


@pytest.mark.parametrize("content", ["", "{}", "[]", *(json.dumps({**COSTS, **each}) for each in NO_CALIBRATIONS)])
def test_a_calibration_that_is_none(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, content: str) -> None:
    monkeypatch.setenv("XSMMU_STATE", str(tmp_path))
    assert calibration.read() is None
    (tmp_path / "calibration.json").write_text(content)
    with pytest.raises(UserError, match="is no calibration") as error:
        calibration.read()
    assert error.value.code == "calibration"


def test_a_machine_without_tracing(tracing: Tracing, tmp_path: Path) -> None:
    (tmp_path / "sysfs/kernel/security/lockdown").write_text("none integrity [confidentiality]\n")
    with pytest.raises(UserError, match="locked down"):
        counted()
    (tmp_path / "sysfs/kernel/security/lockdown").unlink()
    shutil.rmtree(tracing.folder)
    with pytest.raises(UserError, match="mount -t tracefs") as error:
        counted()
    assert error.value.code == "no-tracing"
    tracing.folder.mkdir()
    (tracing.folder / "instances").mkdir()
    tracing.events = {"sched": ("sched_switch",)}
    with pytest.raises(UserError, match="traces neither dma: nor iommu:"):
        counted()
    assert tracing.left == []
