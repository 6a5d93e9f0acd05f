# SPDX-License-Identifier: GPL-2.0-only
"""`xsmmu top`: figures from readings, and the screen in a pseudo-terminal on a changing made-up sysfs."""

from __future__ import annotations

import fcntl
import json
import os
import pty
import re
import select
import shutil
import signal
import struct
import subprocess
import sys
import termios
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path

import pyte
import pytest
from click.testing import CliRunner
from tests.python.sysfs import IGB, NVME0, NVME1, load_anew, make_device

from xsmmu import activity, digits, kernel, module, native, top
from xsmmu.activity import Activity, Reading
from xsmmu.calibration import Calibration, Cost
from xsmmu.cli import app
from xsmmu.errors import UserError
from xsmmu.machine import Device
from xsmmu.module import Sample
from xsmmu.terminal import keys
from xsmmu.top import Screen, Watching
from xsmmu_lab.project import PROJECT, PYTHONPATH

MLX = "0000:09:00.0"
COSTS = Calibration("6.12", {"fused": Cost(100, 300)})


def reading(seconds: float, exposure: dict[int, int] | None = None, **stats: int) -> Reading:
    zero = dict.fromkeys(("maps", "unmaps", "unmapped_pages", "inv_page", "inv_domain", "inv_global"), 0)
    sample = Sample(int(seconds * 1e9), (IGB,), "fused", "held", "active", zero | stats)
    return Reading(sample, exposure or {}, 5_000)


def between(first: Reading, last: Reading, calibration: Calibration | None = COSTS) -> Activity:
    return Activity(Device(IGB), first, last, calibration)


def test_rates_are_of_one_interval() -> None:
    row = between(
        reading(10, maps=100, unmaps=50, unmapped_pages=1000, inv_page=7),
        reading(12, maps=2_100, unmaps=1_050, unmapped_pages=5000, inv_page=17, inv_domain=30, held_pages=9),
    )
    assert (row.per_s("maps"), row.per_s("unmaps"), row.per_s("unmapped_pages")) == (1000, 500, 2000)
    assert (row.invalidations_per_s, row.invalidations_per_page, row.now("held_pages")) == (20, 0.01, 9)
    assert row.cpu_share == pytest.approx(1000 * 100e-9 + 500 * 300e-9)
    assert between(row.first, row.last, None).cpu_share is None
    still = between(row.last, row.last)
    assert (still.per_s("maps"), still.invalidations_per_s, still.cpu_share) == (None, None, None)


def test_exposure_is_what_the_interval_added() -> None:
    row = between(reading(0, {1023: 1_000_000, 2047: 5}), reading(1, {1023: 1_000_990, 2047: 14, 8191: 1}))
    assert row.exposure == {1023: 990, 2047: 9, 8191: 1}
    assert row.exposure_p99_ns == 1023
    # A bucket's bound may exceed the longest exposure.
    assert row.exposure_max_ns == 5_000
    assert between(row.last, row.last).exposure_p99_ns is None
    assert between(row.last, row.last).exposure_max_ns is None


@pytest.mark.parametrize(
    ("pages", "part", "bound"),
    [
        ({}, 0.99, None),
        ({10: 1}, 0.99, 10),
        ({10: 99, 20: 1}, 0.99, 10),
        ({10: 98, 20: 2}, 0.99, 20),
        ({1: 1, 9: 0}, 1, 1),
    ],
)
def test_a_quantile_is_a_bucket(pages: dict[int, int], part: float, bound: int | None) -> None:
    assert activity.quantile(pages, part) == bound


@pytest.mark.parametrize(
    ("value", "text"),
    [
        (None, "-"),
        (0, "0"),
        (0.25, "0.25"),
        (9.994, "9.99"),
        (9.996, "10"),
        (999.6, "1,000"),
        (9_999.4, "9,999"),
        (9_999.6, "10.0k"),
        (99_960, "100k"),
        (999_400, "999k"),
        (999_600, "1.00M"),
        (12_345_678, "12.3M"),
        (999_600_000, "1.00G"),
        (5e15, "5000T"),
    ],
)
def test_numbers_have_five_characters(value: float | None, text: str) -> None:
    assert digits.short(value) == text
    assert len(text) <= 5


@pytest.mark.parametrize(
    ("ns", "text"),
    [(None, "-"), (0, "0"), (999, "999ns"), (1_000, "1.00us"), (12_345, "12.3us"), (999_600, "1.00ms"), (2e9, "2.00s")],
)
def test_times_have_six_characters(ns: float | None, text: str) -> None:
    assert digits.duration(ns) == text
    assert len(text) <= 6


def test_octaves_have_no_gaps_and_fit() -> None:
    pages = {1279: 3, 1535: 4, 2047: 1, 10239: 5}
    assert top.octaves(pages, 10) == {2047: 8, 4095: 0, 8191: 0, 16383: 5}
    assert top.octaves(pages, 2) == {8191: 8, 16383: 5}
    assert top.octaves(pages, 0) == {16383: 13}
    assert top.octaves({}, 5) == {}


def test_keys_of_what_is_typed() -> None:
    assert keys("jk\x1b[A\x1bOB\x1b[6~\x1b[1;5C \r\nq\x1b") == [
        *"jk",
        "up",
        "down",
        "space",
        "enter",
        "enter",
        "q",
        "escape",
    ]


def rows_of(*figures: tuple[str, int, str]) -> list[Activity]:
    """Rows of device, pages unmapped in a second, and policy."""
    found = []
    for device, pages, policy in figures:
        pair = [reading(at, unmapped_pages=at * pages) for at in (0, 1)]
        first, last = (replace(each, sample=replace(each.sample, devices=(device,), policy=policy)) for each in pair)
        found.append(Activity(Device(device), first, last))
    return found


@pytest.mark.usefixtures("sysfs")
def test_sorting_and_selecting() -> None:
    screen = Screen(1, rows=rows_of((IGB, 10, "xsmmu"), (NVME0, 30, "fused"), (MLX, 20, "strict")))

    def order() -> list[str]:
        return [row.key[0] for row in screen.ordered()]

    assert order() == [NVME0, MLX, IGB]
    screen.press("r")
    assert order() == [IGB, MLX, NVME0]
    screen.press("r")
    # The selection belongs to a group, not to a line.
    screen.press("down")
    assert screen.chosen == (MLX,)
    for key in ("up", "up", "k"):
        screen.press(key)
    assert screen.chosen == (NVME0,)
    for key in ("j", "j", "j"):
        screen.press(key)
    assert screen.chosen == (IGB,)
    while screen.sort != 0:
        screen.press("s")
    assert order() == [IGB, NVME0, MLX]
    screen.press("s")
    assert screen.sort == 1
    assert order() == [NVME0, MLX, IGB]
    screen.press("r")
    assert order() == [IGB, MLX, NVME0]
    # Unknown values stand last, in both directions.
    screen.sort = [column.title for column in top.COLUMNS].index("inv/page") + 1
    screen.rows += rows_of((NVME1, 0, "fused"))
    assert order()[-1] == NVME1
    screen.press("r")
    assert order()[-1] == NVME1
    assert screen.press("enter") and screen.is_open
    assert screen.press("escape") and not screen.is_open
    # A shown group that has gone is on no page to return from.
    screen.press("enter")
    screen.rows = [row for row in screen.rows if row.key != screen.chosen]
    assert not screen.press("escape")
    assert not screen.press("q")


@pytest.mark.usefixtures("sysfs")
@pytest.mark.parametrize("opened", [False, True])
@pytest.mark.parametrize(("width", "height"), [(20, 5), (40, 10), (79, 24), (80, 24), (100, 30), (132, 50), (200, 60)])
def test_each_size_is_filled_and_no_more(width: int, height: int, opened: bool) -> None:
    screen = Screen(1, rows=rows_of(*((f"0000:{number:02x}:00.0", number, "fused") for number in range(20, 60))))
    screen.chosen, screen.is_open = screen.rows[0].key, opened
    lines = screen.lines(width, height)
    assert len(lines) == height
    assert max(line.cell_len for line in lines) <= width
    # The selected row, the last, is visible.
    assert any(screen.rows[0].key[0] in line.plain or width < 40 for line in lines)


@pytest.mark.parametrize("width", [40, 60, 80, 120])
@pytest.mark.parametrize(
    "name", ["\u7f51\u5361\u7f51\u5361\u7f51", "\u65e5\u672c\u8a9eLAN", "\uff41\uff42\uff43", "wan\u0301x"]
)
def test_figures_stand_below_their_titles(sysfs: Path, name: str, width: int) -> None:
    """Some characters of names are two columns wide, or none."""
    make_device(sysfs, "0000:0a:00.0", 21, "fused", "e1000e", interface=name)
    screen = Screen(1, rows=rows_of(("0000:0a:00.0", 7, "fused"), (NVME0, 3, "fused")))
    head, *lines = screen.lines(width, 10)[1:4]
    assert [line.cell_len for line in lines] == [head.cell_len] * 2


def test_columns_go_by_weight() -> None:
    def titles(width: int, calibrated: bool) -> list[str]:
        return [column.title for column in top.columns(width, calibrated)]

    everything = [column.title for column in top.COLUMNS]
    assert titles(200, False) == everything
    left_out = ("unmap/s", "live", "at once", "held")
    assert titles(80, False) == [each for each in everything if each not in (*left_out, "cpu%")]
    assert titles(80, True) == [each for each in everything if each not in (*left_out, "maps/s")]
    assert "inv/page" in titles(30, False)


def shown(screen: Screen, width: int = 200, height: int = 40) -> str:
    return "\n".join(line.plain.rstrip() for line in screen.lines(width, height))


def seen_by(*devices: str, screen: Screen | None = None) -> Screen:
    """A screen after two readings with equal counts."""
    screen = screen or Screen(1)
    watching = Watching(screen, tuple(map(Device, devices)))
    watching.step()
    watching.step()
    return screen


@pytest.mark.parametrize(
    ("kind", "path", "level"),
    [("DMA-FQ", "kernel-lazy", "lazy"), ("DMA", "kernel-strict", "strict"), ("identity", "passthrough", "none")],
)
def test_a_group_without_a_policy_has_the_kernels_level(sysfs: Path, kind: str, path: str, level: str) -> None:
    """As in status; `none` would mean that the device reaches all memory."""
    make_device(sysfs, MLX, 14, "none", "mlx5_core", interface="eth9", kind=kind, state="off")
    screen = seen_by(MLX, IGB)
    [line] = [line for line in shown(screen).splitlines() if line.startswith("eth9")]
    assert line.removeprefix(f"eth9 {MLX}").split()[:2] == [path, level]
    assert f" {path} " in shown(screen, 80)
    screen.press("enter")
    screen.chosen = (MLX,)
    assert f"{path}  level {level}  state off" in shown(screen)
    assert f"unknown under {path}" in shown(screen) or "not calibrated" in shown(screen)


@pytest.mark.parametrize("state", ["idle", "failed"])
def test_a_policy_that_is_not_in_use_is_not_what_there_is(sysfs: Path, state: str) -> None:
    (sysfs / "bus/pci/devices" / IGB / "xsmmu/state").write_text(f"{state}\n")
    screen = seen_by(IGB)
    assert "kernel-lazy lazy" in shown(screen)
    screen.press("enter")
    assert f"kernel-lazy  level lazy  fused chosen  state {state}" in shown(screen)


def calibrated(sysfs: Path, *policies: str) -> None:
    costs = {policy: {"map_ns": 100, "unmap_ns": 300} for policy in policies}
    document = {"schema": "xsmmu.calibration/1", "kernel": "6.12", "policies": costs}
    (sysfs.parent / "state").mkdir(exist_ok=True)
    (sysfs.parent / "state/calibration.json").write_text(json.dumps(document))


def test_a_calibration_that_is_made_meanwhile_is_seen(sysfs: Path) -> None:
    screen = seen_by(IGB)
    said = " ".join(shown(screen).split())
    assert "~cpu%" in said and " cpu%" not in said
    screen.press("enter")
    assert "0.0 % of one, estimated; 0 bad unmaps" in shown(screen)
    cpu = (native.of_cpu(kernel.model()) or native.accepted()[0]).cpu
    assert f"CPU: estimated by make native's figures of {cpu} at a wait of 1 us for each invalidation; " in shown(
        screen
    )
    assert "xsmmu bench DEVICE --save measures this machine" in shown(screen)
    calibrated(sysfs, "strict", "kernel-lazy")
    assert "not calibrated for fused" in shown(seen_by(IGB, screen=screen))
    calibrated(sysfs, "fused")
    said = shown(seen_by(IGB, screen=screen))
    assert "0.0 % of one, estimated" in said and "make native" not in said
    screen.press("escape")
    assert "~cpu%" not in shown(screen)


def test_right_after_the_start_there_is_a_calibration(sysfs: Path) -> None:
    """But no rate yet."""
    calibrated(sysfs, "fused")
    screen = Screen(1)
    Watching(screen, (Device(IGB),)).step()
    screen.press("enter")
    assert "not calibrated" not in shown(screen)
    assert "- % of one, estimated" in shown(screen)


@pytest.mark.usefixtures("sysfs")
def test_what_looks_wrong_has_its_cause_beside_it() -> None:
    def screen(last: Reading) -> Screen:
        return Screen(1, rows=[between(reading(0, unmapped_pages=0, deferred_pages=0), last)])

    late = reading(1, {7_340_031: 3}, unmapped_pages=100, deferred_pages=3, inv_page=97)
    late = replace(late, exposure_max_ns=6_290_000)
    late = replace(late, sample=replace(late.sample, tunables={"max_window_us": 1000}))
    for opened in (False, True):
        made = screen(late)
        made.chosen, made.is_open = (IGB,), opened
        said = " ".join(shown(made).split())
        assert "eth1: inv/page: 97 % of the pages were flushed inside their unmap: fused does not defer slab" in said
        beyond = "a page stayed reachable for 6.29ms, beyond 1.00ms"
        assert f"eth1: {beyond}: xsmmu doctor {IGB} lists likely causes" in said
    usual = reading(1, {900_000: 3}, unmapped_pages=100, deferred_pages=90)
    usual = replace(usual, sample=replace(usual.sample, tunables={"max_window_us": 1000}))
    assert "eth1: " not in shown(screen(usual))


# ---- in a terminal ----


@pytest.fixture
def sysfs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A NIC under fused; two disks in a group under xsmmu."""
    folder = tmp_path / "sysfs"
    monkeypatch.setenv("XSMMU_SYSFS", str(folder))
    monkeypatch.setenv("XSMMU_STATE", str(tmp_path / "state"))
    make_device(folder, IGB, 11, "fused", "igb", interface="eth1")
    make_device(folder, NVME0, 13, "xsmmu", "nvme", disk="nvme0n1")
    make_device(folder, NVME1, 13, "xsmmu", "nvme")
    return folder


class Work:
    """The devices' work: counters that grow with time, 1,000 maps of 2 pages a second and a tenth of that."""

    def __init__(self, sysfs: Path) -> None:
        folder = sysfs / "bus/pci/devices"
        self.folders = {folder / device / "xsmmu": rate for device, rate in ((IGB, 1000), (NVME0, 100))}
        self.start = time.monotonic()
        self.end = threading.Event()
        self.write()
        self.thread = threading.Thread(target=self.run)

    def __enter__(self) -> Work:
        self.thread.start()
        return self

    def __exit__(self, *_error: object) -> None:
        self.end.set()
        self.thread.join()

    def run(self) -> None:
        while not self.end.wait(0.1):
            self.write()

    def write(self) -> None:
        for folder, rate in self.folders.items():
            maps = 20 * int((time.monotonic() - self.start) * rate / 20)
            values = {"maps": maps, "unmaps": maps, "mapped_pages": 2 * maps, "unmapped_pages": 2 * maps}
            values |= {
                "deferred_pages": 2 * maps,
                "inv_page": 0,
                "inv_domain": maps // 20,
                "held_pages": 512,
                "live_pages": 4096,
                "flush_poll": maps,
            }
            for name, value in values.items():
                put(folder / "stats" / name, f"{value}\n")
            put(folder / "exposure_ns", f"1023 {maps}\n1048575 {maps}\nmax 874000\n")


def put(file: Path, content: str) -> None:
    """Readers see the old or the new content."""
    new = file.parents[1] / f".{file.name}"
    new.write_text(content)
    new.replace(file)


HANGS_S = 120.0
"""An event that takes so long never comes."""


class Terminal:
    """A terminal with xsmmu."""

    def __init__(self, width: int, height: int, *arguments: str) -> None:
        self.screen = pyte.Screen(width, height)
        self.stream = pyte.ByteStream(self.screen)
        self.printed = b""
        self.master, slave = pty.openpty()
        self.resize(width, height)
        self.before = termios.tcgetattr(self.master)
        ours = {"TERM": "xterm-256color", "LC_ALL": "C.UTF-8", "PYTHONPATH": PYTHONPATH}
        environment = {**os.environ, **ours}
        for name in ("COLUMNS", "LINES"):
            environment.pop(name, None)
        # Its own controlling terminal, so that Ctrl-C is a signal; not an ignored signal, as in the background of a
        # script or of these tests.
        self.program = subprocess.Popen(
            ["setsid", "--ctty", "env", "--default-signal=INT", sys.executable, "-m", "xsmmu", *arguments],
            stdin=slave,
            stdout=slave,
            stderr=slave,
            env=environment,
        )
        self.slave = slave

    def resize(self, width: int, height: int) -> None:
        fcntl.ioctl(self.master, termios.TIOCSWINSZ, struct.pack("HHHH", height, width, 0, 0))
        self.screen.resize(height, width)

    def type(self, text: str) -> None:
        os.write(self.master, text.encode())

    def read(self, seconds: float) -> bool:
        """Read output; returns whether there was any."""
        ready, _, _ = select.select([self.master], [], [], seconds)
        if ready:
            content = os.read(self.master, 1 << 16)
            self.printed += content
            self.stream.feed(content)
        return bool(ready)

    def look(self, seconds: float) -> None:
        """Read all output of this time."""
        end = time.monotonic() + seconds
        while time.monotonic() < end:
            self.read(0.1)

    @property
    def lines(self) -> list[str]:
        return [line.rstrip() for line in self.screen.display]

    def line(self, start: str) -> str:
        """The line with this beginning."""
        return next((line for line in self.lines if line.startswith(start)), "")

    def wait(self, what: Callable[[], object]) -> None:
        """Wait for a condition of the screen; a busy machine may take long."""
        end = time.monotonic() + HANGS_S
        while not what():
            assert time.monotonic() < end, "\n".join(self.lines)
            self.read(0.05)
        # The rest of the picture.
        while self.read(0.05):
            pass

    def finish(self) -> int:
        """The status; the terminal must be restored."""
        end = time.monotonic() + HANGS_S
        while self.program.poll() is None:
            assert time.monotonic() < end, "it goes on"
            self.read(0.05)
        self.read(0.1)
        assert termios.tcgetattr(self.master) == self.before
        # Off the alternate screen, with a cursor.
        assert self.printed.rfind(b"\x1b[?1049l") > self.printed.rfind(b"\x1b[?1049h") >= 0
        assert self.printed.rfind(b"\x1b[?25h") > self.printed.rfind(b"\x1b[?25l")
        return self.program.returncode


@contextmanager
def terminal(*arguments: str, width: int = 80, height: int = 24) -> Iterator[Terminal]:
    made = Terminal(width, height, *arguments)
    try:
        yield made
    finally:
        made.program.kill()
        made.program.wait()
        os.close(made.master)
        os.close(made.slave)


def number(text: str) -> float:
    """The value of a printed figure."""
    return float(text.rstrip("k").replace(",", "")) * (1000 if text.endswith("k") else 1)


def is_near(text: str, expected: float) -> bool:
    """Near `expected`, as far as counters that are written now and then can be."""
    return re.fullmatch(r"[\d.,]+k?", text) is not None and number(text) == pytest.approx(expected, rel=0.5)


def is_row(line: str, name: str, policy: str, maps: int) -> bool:
    """A group's line in a picture; between its readings `maps` maps a second were counted."""
    words = line.removeprefix(name).split()
    if (
        not line.startswith(name)
        or words[:2] != [policy, "held"]
        or words[5:] != ["0.0250", "874us", "874us", "1.00ms"]
    ):
        return False
    return all(is_near(word, rate) for word, rate in zip(words[2:5], (maps, 2 * maps, maps / 20), strict=True))


def is_one_group(seen: Terminal) -> bool:
    """All of eth1 in one picture."""
    bars = [line for line in seen.lines if "█" in line]
    return (
        "0.0250 for each page" in seen.line("commands a second")
        and "level held  state active" in seen.line("fused")
        and seen.line("exposure").split()[1:] == ["p99", "874us,", "max", "874us,", "bound", "1.00ms"]
        and seen.line("since the start").split()[3:] == ["p99", "874us,", "max", "874us"]
        and any(line.split()[0] == "poll" for line in bars)
        and any("<= 1.02us" in line for line in bars)
        and any("<= 1.05ms" in line for line in bars)
    )


def test_a_session(sysfs: Path) -> None:
    with Work(sysfs), terminal("top", "--interval", "0.4", height=30) as seen:
        # In one picture: before the next a counter may stand still for long.
        seen.wait(
            lambda: is_row(seen.lines[2], "eth1", "fused", 1000) and is_row(seen.lines[3], "nvme0n1 +1", "xsmmu", 100)
        )
        assert seen.lines[0] == "xsmmu top  2 groups, every 0.4 s, sorted by pages/s"
        titles = ("device", "policy", "level", "maps/s", "pages/s", "inv/s", "inv/page", "p99", "max", "bound")
        assert tuple(seen.lines[1].split()) == titles
        assert seen.lines[-1].startswith("s sort  r reverse")
        # In reverse order.
        seen.type("r")
        seen.wait(lambda: seen.lines[2].startswith("nvme0n1 +1") and "reversed" in seen.lines[0])
        seen.type("s")
        seen.wait(lambda: "sorted by inv/s, reversed" in seen.lines[0])
        # By devices: the second row is the second device, whatever was counted.
        seen.type("s" * (len(top.COLUMNS) - top.FIRST_SORT))
        seen.wait(lambda: "sorted by device, reversed" in seen.lines[0])
        # Nothing moves during a pause.
        seen.type(" ")
        seen.wait(lambda: seen.lines[0].endswith("PAUSED"))
        seen.look(1)
        before = seen.lines
        seen.look(1.2)
        assert seen.lines == before
        seen.type(" ")
        seen.wait(lambda: "PAUSED" not in seen.lines[0])
        # One group.
        seen.type("\x1b[B\r")
        seen.wait(lambda: seen.line("0000:01:00.0 (eth1) [igb]"))
        seen.wait(lambda: is_one_group(seen))
        seen.type("\x1b")
        seen.wait(lambda: seen.line("device"))
        seen.type("q")
        assert seen.finish() == 0


def test_a_wide_terminal_and_a_calibration(sysfs: Path, tmp_path: Path) -> None:
    (tmp_path / "state").mkdir()
    costs = {"fused": {"map_ns": 100_000, "unmap_ns": 150_000}}
    document = {"schema": "xsmmu.calibration/1", "kernel": "6.12", "policies": costs}
    (tmp_path / "state/calibration.json").write_text(json.dumps(document))
    with Work(sysfs), terminal("top", "eth1", "--interval", "0.4", width=200, height=30) as seen:
        # 1,000 maps of 100 us and as many unmaps of 150 us a second are a quarter of the time. A reader may come
        # between the writes of a moment, so no figure is exact.
        seen.wait(lambda: (row := seen.line("eth1 0000:01:00.0").split()) and is_near(row[-1], 25))
        seen.wait(lambda: (row := seen.line("eth1 0000:01:00.0").split()) and is_near(row[8], 0.025))
        heads = seen.lines[1].split()
        assert (heads[7], heads[-2:]) == ("inv/page", ["bound", "cpu%"])
        assert "nvme0n1" not in "".join(seen.lines)
        # The shell would be left on this screen.
        assert termios.tcgetattr(seen.master)[6][termios.VSUSP] == b"\0"
        seen.resize(80, 24)
        seen.wait(lambda: seen.lines[-1].startswith("s sort") and "live" not in seen.lines[1])
        # Users type this to leave.
        seen.type("\x03")
        assert seen.finish() == 0


def test_the_terminal_is_restored_when_it_is_ended(sysfs: Path) -> None:
    with Work(sysfs), terminal("top", "--interval", "0.4") as seen:
        seen.wait(lambda: seen.line("eth1"))
        seen.program.send_signal(signal.SIGTERM)
        assert seen.finish() == 130


def test_the_terminal_is_restored_after_an_error(sysfs: Path) -> None:
    with terminal("top", "eth1", "--interval", "0.4") as seen:
        seen.wait(lambda: seen.line("eth1"))
        (sysfs / "bus/pci/devices" / IGB / "xsmmu/stats/maps").write_text("what nobody expects\n")
        assert seen.finish() == 1


def test_a_module_that_goes_and_comes(sysfs: Path) -> None:
    with terminal("top", "--interval", "0.2") as seen:
        seen.wait(lambda: seen.line("eth1"))
        devices = (sysfs / "bus/pci/devices" / each / "xsmmu" for each in (IGB, NVME0, NVME1))
        folders = [sysfs / "module/xsmmu", *devices]
        for folder in reversed(folders):
            folder.rename(folder.with_name("gone"))
        seen.wait(lambda: seen.line("the module xsmmu is not loaded: run modprobe xsmmu"))
        assert seen.lines[0].startswith("xsmmu top  0 groups")
        for folder in folders:
            folder.with_name("gone").rename(folder)
        seen.wait(lambda: seen.line("eth1"))
        seen.type("q")
        assert seen.finish() == 0


def test_a_device_whose_files_go_first_is_waited_for(sysfs: Path) -> None:
    screen = Screen(1)
    watching = Watching(screen, (Device(IGB),))
    folder = sysfs / "bus/pci/devices" / IGB / "xsmmu"
    folder.rename(folder.with_name("going"))
    watching.try_step()
    assert screen.message.startswith(f"the module offers no policy for {IGB}")
    folder.with_name("going").rename(folder)
    watching.try_step()
    assert [row.device.address for row in screen.rows] == [IGB]


@pytest.mark.usefixtures("sysfs")
def test_one_that_goes_takes_no_other_from_the_screen(monkeypatch: pytest.MonkeyPatch) -> None:
    read = activity.read

    def goes(device: Device, sample: Sample) -> Reading:
        if device == Device(IGB):
            shutil.rmtree(device.folder, ignore_errors=True)
        return read(device, sample)

    screen = Screen(1)
    watching = Watching(screen, ())
    watching.step()
    there = [row.device for row in screen.rows]
    began = dict(screen.began)
    monkeypatch.setattr(activity, "read", goes)
    watching.try_step()
    assert Device(IGB) in there and len(there) > 1
    assert [row.device for row in screen.rows] == [each for each in there if each != Device(IGB)]
    assert began == screen.began
    # A named device is waited for, whenever it goes.
    Watching(screen, (Device(IGB),)).try_step()
    assert screen.message.startswith(f"{IGB} has disappeared")

    def gone(device: Device, _: Sample) -> Reading:
        raise module.gone(device)

    monkeypatch.setattr(activity, "read", gone)
    Watching(screen, (Device(NVME0),)).try_step()
    assert screen.message.startswith(f"{NVME0} has disappeared")


def test_a_module_that_was_loaded_anew_counts_from_zero(sysfs: Path) -> None:
    screen = Screen(1)
    watching = Watching(screen, (Device(IGB),))
    folder = sysfs / "bus/pci/devices" / IGB / "xsmmu"
    put(folder / "stats/maps", "1000\n")
    watching.step()
    load_anew(folder)
    put(folder / "stats/maps", "2000\n")
    watching.step()
    assert screen.rows[0].per_s("maps") is None
    assert screen.began[(IGB,)].sample.stats["maps"] == 2000


def test_the_start_is_the_first_reading(sysfs: Path) -> None:
    screen = Screen(1)
    watching = Watching(screen, (Device(IGB),))
    for maps in ("1000", "2000", "3000"):
        put(sysfs / "bus/pci/devices" / IGB / "xsmmu/stats/maps", f"{maps}\n")
        watching.step()
    assert screen.began[(IGB,)].sample.stats["maps"] == 1000


def test_what_was_counted_before_may_stand_beside_new_files(sysfs: Path) -> None:
    put(sysfs / "bus/pci/devices" / IGB / "xsmmu/stats/maps", "1000\n")
    old = module.read(Device(IGB))
    assert not module.began_anew(old, old)
    for name in ("maps", "copied_maps"):
        assert module.began_anew(old, replace(old, stats={**old.stats, name: old.stats[name] - 1}))
    # The growth of other counters takes nothing from that.
    more = {**old.stats, "maps": old.stats["maps"] - 1, "copied_maps": old.stats["copied_maps"] + 5}
    assert module.began_anew(old, replace(old, stats=more))
    # Gauges may fall at any time, and values that the module does not count are no news.
    put(sysfs / "bus/pci/devices" / IGB / "xsmmu/stats/live_pages", "9\n")
    old = module.read(Device(IGB))
    assert not module.began_anew(old, replace(old, stats={**old.stats, "live_pages": 1}))
    without = replace(old, stats={name: count for name, count in old.stats.items() if name != "copied_maps"})
    assert not module.began_anew(without, without)


def test_a_group_whose_devices_come_anew_one_by_one_goes_on(sysfs: Path) -> None:
    screen = Screen(1)
    watching = Watching(screen, (Device(NVME0),))
    watching.step()
    began = dict(screen.began)
    assert [*began] == [(NVME0, NVME1)]
    for each in (NVME0, NVME1):
        load_anew(sysfs / "bus/pci/devices" / each / "xsmmu")
        watching.step()
        assert screen.began == began


@pytest.mark.parametrize("wanted", [(), (Device(IGB),)])
@pytest.mark.parametrize("maps", [10, 999_999])
def test_what_came_anew_while_it_was_away_counts_from_then(maps: int, wanted: tuple[Device, ...], sysfs: Path) -> None:
    """Whether the device is one of several or the only one, and has counted fewer or more than before."""
    screen = Screen(1)
    watching = Watching(screen, wanted)
    watching.try_step()
    folder = sysfs / "bus/pci/devices" / IGB / "xsmmu"
    load_anew(folder)
    away = folder.rename(folder.with_name("away"))
    watching.try_step()
    away.rename(folder)
    put(folder / "stats/maps", f"{maps}\n")
    watching.try_step()
    assert screen.began[(IGB,)].sample.stats["maps"] == maps
    [row] = [row for row in screen.rows if row.device == Device(IGB)]
    assert row.per_s("maps") is None


def test_a_pause_is_no_interval(sysfs: Path) -> None:
    screen = Screen(1)
    watching = Watching(screen, (Device(IGB),))
    folder = sysfs / "bus/pci/devices" / IGB / "xsmmu"
    seen = []
    for maps, screen.paused in (("1000", False), ("2000", True), ("3000", True), ("4000", False)):
        put(folder / "stats/maps", f"{maps}\n")
        watching.step()
        row = screen.rows[0]
        seen.append([reading.sample.stats["maps"] for reading in (row.first, row.last)])
    # The drawn part stays, and then covers only the last interval.
    assert seen == [[1000, 1000], [1000, 1000], [1000, 1000], [3000, 4000]]
    assert screen.began[(IGB,)].sample.stats["maps"] == 1000


def test_one_that_came_anew_in_a_pause_counts_from_then(sysfs: Path) -> None:
    screen = Screen(1)
    watching = Watching(screen, (Device(IGB),))
    folder = sysfs / "bus/pci/devices" / IGB / "xsmmu"
    for maps, screen.paused in (("1000", False), ("2000", True), ("3000", False)):
        if screen.paused:
            load_anew(folder)
        put(folder / "stats/maps", f"{maps}\n")
        watching.step()
    assert screen.began[(IGB,)].sample.stats["maps"] == 2000


def test_what_was_away_goes_on_where_it_was(sysfs: Path) -> None:
    """Whether the device was the only one or one of several."""
    for wanted in ((), (Device(IGB),)):
        screen = Screen(1)
        watching = Watching(screen, wanted)
        watching.try_step()
        began = dict(screen.began)
        folder = sysfs / "bus/pci/devices" / IGB / "xsmmu"
        away = folder.rename(folder.with_name("away"))
        watching.try_step()
        assert IGB not in [row.device.address for row in screen.rows]
        away.rename(folder)
        watching.try_step()
        assert screen.began == began and (IGB,) in began


def test_in_a_pause_all_is_shown_that_was(sysfs: Path) -> None:
    screen = Screen(1)
    watching = Watching(screen, (Device(IGB),))
    watching.try_step()
    rows, screen.paused = screen.rows, True
    folder = sysfs / "bus/pci/devices" / IGB / "xsmmu"
    folder.rename(folder.with_name("away"))
    watching.try_step()
    assert screen.rows == rows and rows


@pytest.mark.usefixtures("sysfs")
def test_without_a_terminal() -> None:
    with pytest.raises(UserError, match="xsmmu watch") as error:
        CliRunner().invoke(app, ["top"], standalone_mode=False, catch_exceptions=False)
    assert error.value.code == "no-terminal"


def test_statistics_are_those_of_the_module() -> None:
    text = (PROJECT / "core/include/xsmmu/policy.h").read_text()
    causes = re.findall(r"^\tXS_FLUSH_(\w+),", text, re.MULTILINE)
    assert tuple(each.lower() for each in causes if each != "COUNT") == activity.CAUSES
    names = set(re.findall(r"^XS_STAT\((\w+),", (PROJECT / "kmod/sysfs.c").read_text(), re.MULTILINE))
    shown = {"maps", "unmaps", "mapped_pages", "unmapped_pages", "held_pages", "live_pages", "bad_unmaps"}
    assert shown | {f"flush_{cause}" for cause in activity.CAUSES} | {f"inv_{kind}" for kind in module.KINDS} <= names


@pytest.mark.parametrize(
    ("value", "text"), [(0, "0"), (0.01254, "0.01254"), (9412.4, "9412"), (12346, "12.35k"), (9.4124e9, "9412M")]
)
def test_a_number_in_four_digits(value: float, text: str) -> None:
    assert digits.precise(value) == text
    assert digits.precise(0.0012345, 2) == "0.0012"
    assert digits.precise(9876, 2) == "9876"
