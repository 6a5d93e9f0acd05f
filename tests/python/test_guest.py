# SPDX-License-Identifier: GPL-2.0-only
"""Guests that misbehave end with one clear message, and no process stays behind."""

from __future__ import annotations

import asyncio
import contextlib
import fcntl
import os
import selectors
import signal
import subprocess
import sys
import time
from collections.abc import AsyncIterator
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace

import pytest
from rich.console import Console
from rich.progress import Progress

from xsmmu.errors import UserError
from xsmmu_lab.project import PYTHONPATH
from xsmmu_lab.runs import experiment, run
from xsmmu_lab.runs.run import Collector
from xsmmu_lab.vm import cpus, machine
from xsmmu_lab.vm.guest import TRACE_PAUSE_S, Boot, Guest, Record, RecordHandler, _chunks
from xsmmu_lab.vm.iommu import IOMMUS
from xsmmu_lab.vm.oracle import Counts

PAGE = os.sysconf("SC_PAGE_SIZE")
FAKE = Path(__file__).with_name("fake_qemu.py")


def make(
    tmp_path: Path,
    behaviour: str,
    records: list[Record],
    timeout_s: float = 30,
    quiet_s: float = 30,
    on_record: RecordHandler | None = None,
) -> Guest:
    """A guest with the fake QEMU."""

    async def keep(guest: Guest, record: Record) -> None:
        if "markers" in record:
            await guest.wait_for_marker(record["markers"][1])
            record["counts"] = guest.oracle.window(*record["markers"])
        records.append(record)

    boot = Boot(Path("kernel"), Path("initramfs"), timeout_s=timeout_s, quiet_s=quiet_s)
    return Guest("net", [sys.executable, str(FAKE), behaviour], boot, tmp_path / "results", on_record or keep)


def processes(tmp_path: Path) -> list[str]:
    """Command lines of living processes that mention the test's folder."""
    found = []
    for path in Path("/proc").glob("[0-9]*/cmdline"):
        try:
            line = path.read_bytes().replace(b"\0", b" ").decode(errors="replace")
        except OSError:
            continue
        if str(tmp_path) in line and str(FAKE) in line:
            found.append(line)
    return found


def test_a_device_is_plugged_in_again_once_it_is_gone(tmp_path: Path) -> None:
    records: list[Record] = []
    asyncio.run(make(tmp_path, "replug", records).run())
    [heard] = [record["what"] for record in records if record["event"] == "heard"]
    assert heard == ["qmp_capabilities", "device_del", "DEVICE_DELETED", "device_add"]


def test_what_qemu_refuses_is_said(tmp_path: Path) -> None:
    with pytest.raises(UserError, match="QEMU refused a command: none is not a device"):
        asyncio.run(make(tmp_path, "refused", []).run())


def test_waiting_for_its_turn_is_no_hang(tmp_path: Path) -> None:
    guest = make(tmp_path, "quiet", [], quiet_s=3)
    time.sleep(2.5)
    asyncio.run(guest.run())


@pytest.mark.parametrize(("mode", "accel"), [("cost", "tcg"), ("cost", "kvm"), ("free", "tcg")])
def test_one_whose_threads_take_turns_has_one_cpu(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, mode: machine.Mode, accel: machine.Accel
) -> None:
    all_of_them = os.sched_getaffinity(0)
    host_of(tmp_path, monkeypatch, *all_of_them)
    seen: list[set[int]] = []
    left: set[int | None] = set()

    async def look(guest: Guest, record: Record) -> None:
        # At the last record the guest may have ended.
        if record["event"] != "boot":
            return
        assert guest._process
        threads = Path(f"/proc/{guest._process.pid}/task").iterdir()
        seen.extend(os.sched_getaffinity(int(thread.name)) for thread in threads)
        with contextlib.ExitStack() as all_that_is_left:
            while (cpu := all_that_is_left.enter_context(cpus.own())) is not None:
                left.add(cpu)

    boot = Boot(Path("kernel"), Path("initramfs"), mode, accel)
    asyncio.run(Guest("net", [sys.executable, str(FAKE), "good"], boot, tmp_path / "results", look).run())
    has_turns = (mode, accel) == ("cost", "tcg")
    assert seen and {len(each) for each in seen} == {1 if has_turns else len(all_of_them)}
    assert len({*map(frozenset, seen)}) == 1
    # The CPU is held while the guest runs.
    assert left == all_of_them - (seen[0] if has_turns else set())
    assert os.sched_getaffinity(0) == all_of_them


def test_its_qemu_dies_with_us(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("xsmmu_lab.vm.guest.dies_with_us", lambda: ["env", "DIES_WITH_US=1"])
    seen: list[bool] = []

    async def look(guest: Guest, record: Record) -> None:
        if record["event"] == "boot":
            assert guest._process
            seen.append(b"DIES_WITH_US=1" in Path(f"/proc/{guest._process.pid}/environ").read_bytes())

    boot = Boot(Path("kernel"), Path("initramfs"))
    asyncio.run(Guest("net", [sys.executable, str(FAKE), "good"], boot, tmp_path / "results", look).run())
    assert seen == [True]


HOLDS = """
import os, pathlib, sys
from xsmmu_lab.vm import cpus
os.sched_getaffinity = lambda _: {3}
cpus.FOLDER = pathlib.Path(sys.argv[1])
with cpus.own() as cpu:
    print(cpu, flush=True)
    input()
"""


def host_of(folder: Path, monkeypatch: pytest.MonkeyPatch, *numbers: int) -> None:
    """A host with these CPUs, without guests of other tests."""
    for number in numbers:
        (folder / f"cpu{number}").mkdir()
    monkeypatch.setattr(cpus, "FOLDER", folder)


def test_no_two_guests_have_the_same_cpu(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    host_of(tmp_path, monkeypatch, 3, 5)
    # A CPU has gone since it was allowed.
    monkeypatch.setattr("os.sched_getaffinity", lambda _: {5, 4, 3})
    environment = {**os.environ, "PYTHONPATH": PYTHONPATH}
    with cpus.own() as first, cpus.own() as second, cpus.own() as third:
        assert ({first, second}, third) == ({3, 5}, None)
    with subprocess.Popen(
        [sys.executable, "-c", HOLDS, str(tmp_path)],
        env=environment,
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
    ) as other:
        assert other.stdout and other.stdout.readline() == b"3\n"
        with cpus.own() as mine:
            assert mine == 5
        other.kill()
    with cpus.own() as first, cpus.own() as second:
        assert {first, second} == {3, 5}
    monkeypatch.setattr("shutil.which", lambda name: f"/bin/{name}")
    assert cpus.stay_on(5) == ["/bin/taskset", "-c", "5"]
    # Not allowed, not chosen, no such program.
    assert cpus.stay_on(1) == cpus.stay_on(None) == []
    monkeypatch.setattr("shutil.which", lambda _: None)
    assert cpus.stay_on(5) == []


def test_a_cpu_is_taken_by_chance(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    host_of(tmp_path, monkeypatch, 3, 5)
    monkeypatch.setattr("os.sched_getaffinity", lambda _: {5, 3})
    seen = set()
    for _ in range(100):
        with cpus.own() as mine:
            seen.add(mine)
    assert seen == {3, 5}


def test_a_child_that_ignores_sigterm_dies_with_us() -> None:
    child = "import signal, time; signal.signal(15, signal.SIG_IGN); print(1, flush=True); time.sleep(60)"
    command = f"[*dies_with_us(), sys.executable, '-c', {child!r}]"
    ours = f"import subprocess, sys; from xsmmu_lab.vm.guest import dies_with_us; subprocess.run({command})"
    environment = {**os.environ, "PYTHONPATH": PYTHONPATH}
    with subprocess.Popen([sys.executable, "-c", ours], env=environment, stdout=subprocess.PIPE) as killed:
        assert killed.stdout and killed.stdout.readline() == b"1\n"
        killed.kill()
        began = time.monotonic()
        assert killed.stdout.read() == b""
        assert time.monotonic() - began < 30


def test_a_good_guest(tmp_path: Path) -> None:
    records: list[Record] = []
    asyncio.run(make(tmp_path, "good", records).run())
    assert [record["event"] for record in records] == ["boot", "run", "done"]
    assert records[1]["counts"] == Counts(0, 0, 1)
    assert {path.name for path in (tmp_path / "results").iterdir()} == {
        "net.console.log",
        "net.jsonl",
        "net.qemu.log",
    }


def test_a_line_that_comes_in_parts_is_one(tmp_path: Path) -> None:
    with pytest.raises(UserError, match=r"guest net failed \(booting\): .*BUG: kernel NULL pointer"):
        asyncio.run(make(tmp_path, "cut", []).run())


def test_a_last_line_without_an_end_is_one(tmp_path: Path) -> None:
    with pytest.raises(UserError, match="Kernel panic"):
        asyncio.run(make(tmp_path, "last", []).run())


def test_a_result_that_comes_in_parts_is_one(tmp_path: Path) -> None:
    records: list[Record] = []
    asyncio.run(make(tmp_path, "torn", records).run())
    assert [each["event"] for each in records] == ["boot", "done"]


def test_a_guest_whose_trace_goes_on_does_not_hang(tmp_path: Path) -> None:
    guest = make(tmp_path, "steady", [], quiet_s=2.5)
    asyncio.run(guest.run())
    assert guest.oracle.markers == 8


def test_one_that_never_stops_to_speak_is_stopped(tmp_path: Path) -> None:
    # In a separate process: a loop that never yields cannot be ended from within.
    code = f"""
import asyncio
from pathlib import Path
from tests.python import test_guest
asyncio.run(test_guest.make(Path({str(tmp_path)!r}), "flood", [], timeout_s=2).run())
"""
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)}
    done = subprocess.run([sys.executable, "-c", code], env=environment, capture_output=True, text=True, timeout=60)
    assert "not done after 2 s" in done.stderr
    # Tens of megabytes, and pytest keeps the folder.
    (tmp_path / "results/net.console.log").unlink()


def test_what_has_come_is_one_part() -> None:
    read, write = os.pipe()
    os.write(write, bytes(2_000))

    async def parts() -> list[int]:
        sizes = []
        async for each in _chunks(read, 0.01):
            sizes.append(len(each))
            # Both come within the pause after the first.
            asyncio.get_running_loop().call_soon(end)
        return sizes

    def end() -> None:
        if not ended:
            os.write(write, bytes(1_000))
            os.write(write, bytes(500))
            os.close(write)
        ended.append(True)

    ended: list[bool] = []
    assert asyncio.run(parts()) == [2_000, 1_500]
    # The descriptor is closed, too.
    with pytest.raises(OSError, match="Bad file descriptor"):
        os.fstat(read)


@pytest.mark.parametrize("deep", [True, False])
def test_a_trace_waits_only_where_there_is_room(deep: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    pauses: list[float] = []

    def chunks(fd: int, pause_s: float = 0.0) -> AsyncIterator[bytes]:
        pauses.append(pause_s)
        return _chunks(fd, pause_s)

    def shallow() -> tuple[int, int]:
        ends = os.pipe()
        fcntl.fcntl(ends[1], fcntl.F_SETPIPE_SZ, PAGE)
        return ends

    monkeypatch.setattr("xsmmu_lab.vm.guest._chunks", chunks)
    # Of one page, which any user may have.
    monkeypatch.setattr("xsmmu_lab.vm.guest.PIPE_BYTES", PAGE if deep else 2 * PAGE)
    if not deep:
        monkeypatch.setattr("xsmmu_lab.vm.guest._pipe", shallow)
    asyncio.run(make(tmp_path, "good", []).run())
    assert sorted(pauses) == [0.0, 0.0, TRACE_PAUSE_S if deep else 0.0]


def test_many_lines_of_a_trace_are_read_at_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("xsmmu_lab.vm.guest.PIPE_BYTES", PAGE)
    guest, parts = make(tmp_path, "busy", []), 0
    feed = guest.oracle.feed

    def count(data: bytes) -> None:
        nonlocal parts
        parts += 1
        feed(data)

    monkeypatch.setattr(guest.oracle, "feed", count)
    turns = 0
    select = selectors.EpollSelector.select

    def wait(self: selectors.EpollSelector, timeout: float | None = None) -> object:
        nonlocal turns
        turns += 1
        return select(self, timeout)

    monkeypatch.setattr(selectors.EpollSelector, "select", wait)
    asyncio.run(guest.run())
    assert guest.oracle.window(1, 2) == Counts(global_=500)
    # In several parts, not in one at the end.
    assert 3 <= parts < 100
    # Nor does waiting data keep the loop awake.
    assert turns < 400


@pytest.mark.parametrize(
    ("behaviour", "message", "line"),
    [
        ("oops", r"guest net failed \(booting\): .*BUG: kernel NULL pointer", "xs_batch_flush"),
        ("hang", r"guest net \(booting\): hangs: nothing happened for 2 s", "the last words"),
        ("chatter", r"guest net \(booting\): not done after 4 s", "still here"),
        (
            "leave",
            r"guest net \(booting\): stopped before it was done \(QEMU ended with 1\)",
            "cannot set up guest memory",
        ),
        ("nonsense", r"guest net \(booting\): sent a result that is no JSON", ""),
        ("error", r"guest net \(booting\): igb: policy fused refused", ""),
        ("fault", r"guest net failed \(booting\): .*DMAR", "DMAR"),
    ],
)
def test_a_bad_guest_ends_with_one_message(tmp_path: Path, behaviour: str, message: str, line: str) -> None:
    with pytest.raises(UserError, match=message) as caught:
        asyncio.run(make(tmp_path, behaviour, [], timeout_s=4, quiet_s=2).run())
    assert line in "\n".join(caught.value.lines)
    assert processes(tmp_path) == []
    assert not list((tmp_path / "results").glob(".*"))


@pytest.mark.parametrize(
    ("behaviour", "message"),
    [
        ("cold", r"guest net \(the warm-up of micro/256 under fused\): micro: no such device"),
        ("refuses", r"guest net \(giving xsmmu_lab its devices under fused\): policy fused refused"),
    ],
)
def test_what_fails_between_runs_is_blamed_on_what_it_was(tmp_path: Path, behaviour: str, message: str) -> None:
    chosen = experiment.load("compare")
    [plan] = experiment.plans(*experiment.choose(chosen, ("fused",), ("micro/64", "micro/256"), False, "6.12"))
    assert plan.script.index("warm 1 micro ring=64") < plan.script.index("warm 2 micro ring=256")
    collector = Collector(plan, Progress(disable=True))
    guest = make(tmp_path, behaviour, [], on_record=collector.on_record)
    with pytest.raises(UserError, match=message):
        asyncio.run(guest.run())


def statements(*said: str) -> str:
    """The fake's console lines: "+8.1" declares faults expected at that second, and "-8.1" unexpected."""
    words = {"+": "expected", "-": "unexpected"}
    lines = [
        f"[{float(each[1:]):12.6f}] xsmmu-lab: faults are {words[each[0]]}" if each[0] in words else each
        for each in said
    ]
    return "|".join(("fault", *lines))


@pytest.mark.parametrize(
    "said",
    [
        ("+8.9", "<fault>", "-9.1"),
        # A fault that is reported late happened earlier.
        ("+8.1", "-8.6", "<fault>"),
        ("+1", "-2", "+8", "<fault>", "-10"),
        # User space left its line open before a line of the kernel.
        ("+8", "<fault>", "ip: warning[    9.100000] xsmmu-lab: faults are unexpected"),
        # A kernel that prints the caller.
        ("[    8.000000][    T1] xsmmu-lab: faults are expected", "<fault>", "-9.1"),
        ("+8", "<fault>", "[    9.100000][   C12] xsmmu-lab: faults are unexpected"),
        ("+8", "<DMAR>", "ip: warning<fault>", "-9.1"),
        # After three hours.
        ("+12345", "<fault>", "-12346"),
    ],
)
def test_faults_may_be_expected(tmp_path: Path, said: tuple[str, ...]) -> None:
    guest = make(tmp_path, statements(*said), [])
    asyncio.run(guest.run())
    assert guest.statements == sum("<" not in each for each in said)


@pytest.mark.parametrize(
    ("said", "message"),
    [
        ((), ".*fault addr 0x0"),
        (("+8", "-8.5", "<fault>"), ".*fault addr 0x0"),
        (("+1", "-2", "+7", "-8.5", "<fault>"), ".*fault addr 0x0"),
        (("+8", "-8.9", "<DMAR>"), ".*fault addr 0x0"),
        # Nor a fault in an open line: its origin is uncertain.
        (("+8", "-8.9", "x[    1.000000] <DMAR>"), ".*fault addr 0x0"),
        (("+8", "say[    8.400000] xsmmu-lab: faults are unexpected", "<fault>"), ".*fault addr 0x0"),
        (("[    8.000000] xsmmu-lab: faults are expected, says the user", "<fault>"), ".*fault addr 0x0"),
        (("xsmmu-lab: faults are expected", "<fault>"), ".*fault addr 0x0"),
        (("[    8.000000] echo: xsmmu-lab: faults are expected", "<fault>"), ".*fault addr 0x0"),
        (("[8] xsmmu-lab: faults are expected", "<fault>"), ".*fault addr 0x0"),
        (("+8", "[    8.500000] BUG: bad page", "-9"), ".*BUG: bad page"),
        (("+8", "[    8.500000] BUG: <DMAR>", "-9"), ".*BUG: "),
        # Not a result of a device's access.
        (("+8", "-8.5", "[    8.600000] DMAR: VT-d detected Invalidation Time-out Error: SID 18"), ".*Time-out Error"),
        (("+8", "[    8.500000] DMAR: VT-d detected Invalidation Time-out Error: SID 18", "-9"), ".*Time-out Error"),
    ],
)
def test_other_faults_end_the_guest(tmp_path: Path, said: tuple[str, ...], message: str) -> None:
    with pytest.raises(UserError, match=rf"guest net failed \(booting\): {message}"):
        asyncio.run(make(tmp_path, statements(*said), []).run())


@pytest.mark.parametrize(
    ("said", "message"),
    [
        (("-8",), "said twice that faults are unexpected: a part of its kernel's log is lost"),
        (("+7", "-8", "-9"), "said twice that faults are unexpected: a part"),
        (("+7", "+8"), "said twice that faults are expected: a part"),
        (("+8", "<fault>"), "never said that faults are unexpected again: a part of its kernel's log is lost"),
        # A guest that ended during an attack has lost nothing.
        (("+8", "<end>"), "stopped before it was done"),
    ],
)
def test_what_is_lost_of_the_log_excuses_no_fault(tmp_path: Path, said: tuple[str, ...], message: str) -> None:
    with pytest.raises(UserError, match=rf"guest net \(booting\): {message}"):
        asyncio.run(make(tmp_path, statements(*said), []).run())


def test_a_plan_is_told_as_often_as_it_says_which_faults_are_expected() -> None:
    chosen = experiment.load("attack")
    [plan, *_] = experiment.plans(("fused",), [each for each in chosen.workloads if each.faults][:2])
    collector = Collector(replace(plan, runs=()), Progress(disable=True))
    collector.finish(4)
    for lost in (0, 2, 3, 5):
        with pytest.raises(UserError, match=rf"guest {plan.guest} said {lost} times, not 4, which faults are expected"):
            collector.finish(lost)


def test_each_kind_of_iommu_has_its_own_faults(tmp_path: Path) -> None:
    timeout = "[    8.500000] AMD-Vi: Completion-Wait loop timed out"
    for iommu, is_fault in (("amd", True), ("vtd", False)):
        boot = Boot(Path("kernel"), Path("initramfs"), iommu=iommu)
        qemu = [sys.executable, str(FAKE), statements("+8", timeout, "-9")]
        guest = Guest("net", qemu, boot, tmp_path / iommu, nothing)
        with pytest.raises(UserError, match="loop timed out") if is_fault else contextlib.nullcontext():
            asyncio.run(guest.run())


async def nothing(_guest: Guest, _record: Record) -> None:
    pass


class Silent:
    """A finished guest with a part of its log lost."""

    statements = 1

    def __init__(self, *_: object) -> None:
        pass

    async def run(self) -> None:
        pass


def test_what_a_guest_has_not_done_or_said_ends_the_lab(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    chosen = experiment.load("attack")
    [plan, *_] = experiment.plans(("fused",), [each for each in chosen.workloads if each.faults][:1])
    tools = SimpleNamespace(qemu_command=list)
    monkeypatch.setattr(run, "Guest", Silent)
    for runs, message in ((plan.runs[:1], "1 runs gave no result"), ((), "said 1 times, not 2")):
        told = replace(plan, runs=runs)
        with pytest.raises(UserError, match=message):
            boots = {plan.guest: Boot(Path("kernel"), Path("initramfs"))}
            asyncio.run(run._run_guests(tools, [told], boots, tmp_path, 1, Console(quiet=True)))  # type: ignore[arg-type]


def test_bytes_that_are_no_text_end_no_guest(tmp_path: Path) -> None:
    asyncio.run(make(tmp_path, "noise", []).run())


def test_a_dying_kernel_is_not_waited_for(tmp_path: Path) -> None:
    began = time.monotonic()
    with pytest.raises(UserError, match="BUG: kernel NULL pointer"):
        asyncio.run(make(tmp_path, "oops", []).run())
    assert time.monotonic() - began < 15


def test_the_console_has_what_guests_are_judged_by() -> None:
    for iommu in IOMMUS:
        line = machine.boot_arguments(Path("k"), Path("i"), iommu)[-1]
        words = dict(each.partition("=")[::2] for each in line.split())
        # Warnings and worse, each with a timestamp, and all messages of scripts.
        assert int(words["loglevel"]) >= (7 if iommu == "smmuv3" else 5)
        assert (words["printk.time"], words["printk.devkmsg"]) == ("1", "on")


SCRIPT = """
import asyncio, sys
from pathlib import Path
sys.path[:0] = [{tests!r}, *{python!r}.split(":")]
import test_guest
asyncio.run(test_guest.make(Path({folder!r}), "chatter", []).run())
"""


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGKILL])
def test_no_guest_outlives_its_driver(tmp_path: Path, number: signal.Signals) -> None:
    script = SCRIPT.format(tests=str(FAKE.parent), python=PYTHONPATH, folder=str(tmp_path))
    driver = subprocess.Popen(
        [sys.executable, "-c", script],
        stderr=subprocess.DEVNULL,
        # A test run in the background of a shell inherits an ignored SIGINT.
        preexec_fn=lambda: signal.signal(signal.SIGINT, signal.SIG_DFL),
    )
    log = tmp_path / "results/net.console.log"
    _wait(lambda: log.exists() and log.stat().st_size > 0)
    assert processes(tmp_path)
    os.kill(driver.pid, number)
    assert driver.wait(20) != 0
    _wait(lambda: not processes(tmp_path))


def _wait(condition: object) -> None:
    assert callable(condition)
    deadline = time.monotonic() + 20
    while not condition():
        assert time.monotonic() < deadline
        time.sleep(0.05)
