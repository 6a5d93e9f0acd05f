# SPDX-License-Identifier: GPL-2.0-only
"""`make native` without User-Mode Linux: cases, figures, and refusals."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from rich.console import Console
from tests.python import guests

from xsmmu.errors import UserError
from xsmmu_lab.native import accepted, build, figures, machine, plan, rounds, run, statistics
from xsmmu_lab.native.build import Machine
from xsmmu_lab.native.rounds import Rounds, TooNoisyError
from xsmmu_lab.setup.initramfs import Image

_FUSED = plan.Case("fused", wait_ns=1000)
_PASSED = plan.Case("passthrough")


def _event(case: plan.Case = _FUSED, **changes: Any) -> dict[str, Any]:
    micro = {
        "map_ns_per_page": 20.0,
        "unmap_ns_per_page": 30.5,
        "pages_unmapped": 2048,
        "translated": case.policy != "passthrough",
    }
    return {
        "event": "run",
        "policy": case.policy,
        "driver": case.driver,
        "level": "held",
        "wait_ns": case.wait_ns,
        "cpus": case.cpus,
        "calibration": [{"cmpxchg_ps": [10700, 10710], "work_ps": [361, 362], "clock_khz": 2300000}] * case.cpus,
        "waited": 0.0,
        "sent": [32, 0, 0],
        "counted": [32, 0, 0],
        "used": [{}, {"direct_pages": 2000, "deferred_pages": 2048}],
        "micro": [micro] * case.cpus,
        **changes,
    }


def _run(case: plan.Case = _FUSED, swap: float = 10700, work: float = 361, waited: float = 0.0) -> figures.Run:
    calibrations = {
        (1, 0, f"{kind} {when}"): 360.0 for kind in ("cmpxchg_ps", "work_ps") for when in ("before", "after")
    }
    calibrations |= {(1, 0, "cmpxchg_ps after"): swap, (1, 0, "work_ps before"): work}
    return figures.Run(case, "held", 20.0, 30.0, calibrations, waited, 1024, (1, 0, 0), (1, 0, 0))


class _Clock:
    """A clock that advances by a step whenever it is read."""

    def __init__(self, step: float = 0.0) -> None:
        self.at, self.step = 0.0, step

    def __call__(self) -> float:
        self.at += self.step
        return self.at


def _made(
    cases: list[plan.Case], wanted: int, run: Callable[[plan.Case, int], figures.Run], step: float = 0.0
) -> Rounds:
    """Rounds whose n-th run is invented."""
    made = Rounds(cases, wanted, _Clock(step))
    for cases_of_round in made.rounds():
        for case in cases_of_round:
            made.runs.append(run(case, len(made.runs)))
    return made


def test_cases_are_interleaved() -> None:
    cases = plan.in_order_of_runs(plan.cases((0, 1000), quick=True))
    assert sorted(map(str, cases)) == sorted(map(str, plan.cases((0, 1000), quick=True)))
    made = _made(cases, 3, lambda case, _: _run(case))
    assert [run.case for run in made.runs] == cases * 3
    lines = {case.line() for case in cases}
    assert len(lines) == len(cases)
    assert "measure fused-direct batch-aware 1000 1 ring=1024 rounds=64" in lines
    assert {case.policy for case in cases} >= {"passthrough", "kernel-strict", "kernel-lazy", "copy", "strict-direct"}


def test_the_driver_is_bound_once_for_all_cases_of_a_policy() -> None:
    kinds = [(case.policy, case.driver) for case in plan.in_order_of_runs(plan.cases())]
    changes = [kind for at, kind in enumerate(kinds) if at == 0 or kind != kinds[at - 1]]
    assert len(changes) == len(set(kinds))


def test_fewer_polls_where_each_unmap_waits() -> None:
    assert plan.Case("strict-direct", wait_ns=300).line().endswith("rounds=16")
    assert plan.Case("kernel-strict", wait_ns=300, ring=64).line().endswith("ring=64 rounds=256")
    assert plan.Case("strict").line().endswith("rounds=64")
    assert plan.Case("lazy", wait_ns=300).line().endswith("rounds=64")


def test_a_run_is_read() -> None:
    run = figures.run_of(_event(waited=0.04), _FUSED)
    assert (run.ns, run.cmpxchg_ns, run.sent, run.waited) == (50.5, 10.705, (32, 0, 0), 0.04)
    assert run.calibrations[1, 0, "work_ps after"] == 362
    [row] = figures.rows([run], [_FUSED])
    assert row["ns_per_page"] == 50.5
    assert row["inv_per_page"] == 0.0156
    assert (row["driver"], row["tables"], row["wait_ns"]) == ("unmodified", "kernel", 1000)


def test_a_row_has_medians_and_their_interval() -> None:
    runs = [replace(_run(), map_ns=20.0 + at, unmap_ns=30.0 + 2 * at, sent=(at, 10, 90)) for at in range(3)]
    [row] = figures.rows(runs, [_FUSED])
    assert row["inv_per_page"] == round(303 / 3072, 4)
    assert [row[key] for key in ("low", "ns_per_page", "high", "map_ns", "unmap_ns")] == [50, 53, 56, 21, 32]


def test_counts_must_agree() -> None:
    with pytest.raises(UserError, match="counts"):
        figures.run_of(_event(sent=[33, 0, 0]), _FUSED)
    figures.run_of(_event(plan.Case("kernel-strict"), counted=None), plan.Case("kernel-strict"))
    with pytest.raises(UserError, match="counts"):
        figures.run_of(_event(counted=None), _FUSED)


def test_another_case_than_planned_is_refused() -> None:
    with pytest.raises(UserError, match="where kernel-lazy was next"):
        figures.run_of(_event(), plan.Case("kernel-lazy", wait_ns=1000))
    event = _event(_PASSED, counted=None)
    event["micro"][0]["translated"] = True
    with pytest.raises(UserError, match="translates"):
        figures.run_of(event, _PASSED)


@pytest.mark.parametrize(
    ("case", "name", "message"),
    [
        (plan.Case("fused-direct"), "direct_pages", "direct tables: direct_pages stayed 7"),
        (plan.Case("copy", bytes=256), "copied_maps", "copying: copied_maps stayed 7"),
        (plan.Case("xsmmu", "batch-aware"), "deferred_pages", "deferred unmaps of its driver: deferred_pages stayed 7"),
    ],
)
def test_a_run_that_did_not_use_its_choice_is_refused(case: plan.Case, name: str, message: str) -> None:
    with pytest.raises(UserError, match=message):
        figures.run_of(_event(case, used=[{name: 7}, {name: 7}]), case)
    with pytest.raises(UserError, match="did not use"):
        figures.run_of(_event(case, used=[{}, {}]), case)
    figures.run_of(_event(case, used=[{name: 7}, {name: 8}]), case)
    whole = plan.Case("copy")
    figures.run_of(_event(whole, used=[{}, {}]), whole)


def test_init_tells_the_use(tmp_path: Path) -> None:
    (tmp_path / "xsmmu").mkdir()
    function = (build.NATIVE / "init").read_text().partition("used_all() {")[2].partition("\n}\n")[0]
    for text, told in (("", {}), ("mapped_pages 12\ndirect_pages 9\n", {"mapped_pages": 12, "direct_pages": 9})):
        (tmp_path / "xsmmu/used").write_text(text)
        script = f'device={tmp_path}\nused_all() {{{function}\n}}\nused_all\nprintf "%s" "$used"'
        done = subprocess.run(["sh", "-c", script], capture_output=True, text=True, check=True)
        assert json.loads(done.stdout) == told


def test_one_cpu_of_each_core_is_used(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(os, "sched_getaffinity", lambda _: {0, 1, 2, 3, 4, 5})
    assert run._cpus((), str) == [4, 5]
    assert run._cpus((), lambda cpu: str(cpu // 2)) == [3, 5]
    assert run._cpus((), lambda _: "0-5") == [5]
    assert run._cpus((1, 0)) == [1, 0]
    for asked in ((1, 1), (0, 1, 2)):
        with pytest.raises(UserError, match="CPUs are asked for"):
            run._cpus(asked)
    with pytest.raises(UserError, match="may not run on CPU 9"):
        run._cpus((9,))


def test_several_cpus_are_averaged() -> None:
    case = plan.Case("fused", wait_ns=1000, cpus=2)
    event = _event(case)
    event["micro"][1] = {**event["micro"][1], "map_ns_per_page": 40.0}
    run = figures.run_of(event, case)
    assert (run.map_ns, run.unmap_ns, run.pages) == (30.0, 30.5, 4096)
    for part in ("micro", "calibration"):
        with pytest.raises(UserError, match="was next"):
            figures.run_of({**event, part: event[part][:1]}, case)
    event["micro"][1]["translated"] = False
    with pytest.raises(UserError, match="translates"):
        figures.run_of(event, case)
    cases = plan.on_cpus(2, (0, 1000))
    assert {case.cpus for case in cases} == {1, 2}
    assert {case.wait_ns for case in cases} == {0}


def test_shapes_have_lines() -> None:
    lines = [case.line() for case in plan.cases()]
    assert len(set(lines)) == len(lines)
    assert "measure copy unmodified 2000 1 ring=1024 rounds=16 bytes=1514" in lines
    assert "measure fused unmodified 0 1 ring=1024 rounds=64 list=32" in lines
    assert "measure fused batch-aware 0 1 ring=1024 rounds=64 walk=16" in lines
    assert "measure kernel-lazy unmodified 2000 1 ring=64 rounds=1024" in lines
    assert {case.wait_ns for case in plan.cases() if case.ring == 64} == {0, 2000}, "the first and the last wait"


@pytest.mark.parametrize("disturbed", [{"swap": 14000}, {"work": 600}, {"waited": 0.1}])
def test_a_disturbed_run_is_repeated(disturbed: dict[str, float]) -> None:
    """By each of the calibrations before and after, or by the time that another program had the CPU."""
    strict = plan.Case("strict")
    made = _made([_FUSED, strict], 3, lambda case, at: _run(case, **(disturbed if at == 2 else {})))
    assert [run.case for run in made.runs] == [_FUSED, strict] * 3 + [_FUSED]
    assert made.quiet() == [run for at, run in enumerate(made.runs) if at != 2]
    assert made.progress() == "6 of 6 quiet runs, 7 runs made"


def test_the_usual_calibration_is_a_low_one() -> None:
    """A neighbour slows most of the runs, from the first on."""
    made = _made([_FUSED], 7, lambda case, at: _run(case, work=361 if at % 3 == 2 else 600))
    assert len(made.runs) == 21
    assert [run.calibrations[1, 0, "work_ps before"] for run in made.quiet()] == [361] * 7


def _crowded_in_passthrough(case: plan.Case, _: int) -> figures.Run:
    return _run(case, waited=0.5 if case == _PASSED else 0.0)


def test_a_machine_that_is_never_quiet_is_refused() -> None:
    """After ten minutes. The other case has no more runs than it needs."""
    needed = (
        "2 of 10 runs were quiet, and 2 of the 4 that are needed; other programs had the CPU in 8 runs, and the CPU was"
    )
    with pytest.raises(TooNoisyError, match=f"too noisy: {needed} slow in 0 others: end other programs"):
        _made([_FUSED, _PASSED], 2, _crowded_in_passthrough, step=60)


def test_a_hopeless_machine_is_refused_early() -> None:
    """Fewer than one run in four of the first rounds is quiet."""
    cases = [_FUSED, _PASSED, plan.Case("strict"), plan.Case("lazy")]
    needed = "4 of 28 runs were quiet, and 4 of the 28 that are needed; other programs had the CPU in 0 runs"
    with pytest.raises(TooNoisyError, match=f"{needed}, and the CPU was slow in 24 others"):
        _made(cases, 7, lambda case, at: _run(case, work=600 if at % 7 else 361))
    made = _made([_FUSED], 8, lambda case, at: _run(case, work=600 if at % 4 else 361))
    assert len(made.runs) == 29


def test_ten_minutes_are_enough() -> None:
    with pytest.raises(TooNoisyError, match=r"too noisy: 10 of 24 runs were quiet, and 10 of the 20 "):
        _made([_FUSED, _PASSED], 10, _crowded_in_passthrough, step=24.5)


def _pretended(folder: Path, body: str) -> Machine:
    """A program in the place of User-Mode Linux."""
    program = folder / "linux"
    program.write_text(f"#!/bin/sh\n{body}\n")
    program.chmod(0o755)
    return Machine(program, "7.2", Image())


def _boot(made: Machine, *lines: str) -> list[dict[str, Any]]:
    events: list[dict[str, Any]] = []
    machine.boot(made, iter(lines), sorted(os.sched_getaffinity(0))[:1], events.append)
    return events


_ANSWERING = """trap '' TERM; echo 'Linux version'; echo '@{"event":"boot"}'
while read -r line; do echo "@{\\"event\\":\\"$line\\"}"; done; sleep 1000"""


def test_an_event_is_answered_by_the_next_line(tmp_path: Path) -> None:
    events = _boot(_pretended(tmp_path, _ANSWERING), "one", "two")
    assert [event["event"] for event in events] == ["boot", "one", "two"]
    assert all(0 <= event["waited"] <= 1 for event in events)


def test_user_mode_linux_is_pinned(tmp_path: Path) -> None:
    body = """cpus=$(sed -n 's/^Cpus_allowed_list:\\t//p' /proc/self/status)
echo "@{\\"event\\":\\"boot\\",\\"cpus\\":\\"$cpus\\"}"; sleep 1000"""
    [event] = _boot(_pretended(tmp_path, body))
    assert event["cpus"] == str(min(os.sched_getaffinity(0)))


def test_the_wait_is_that_of_all_threads(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """By the second number of schedstat."""
    for name, text in (("7", "500 30 9\n"), ("8", "600 4 9\n"), ("9", "")):
        (tmp_path / name).mkdir()
        (tmp_path / name / "schedstat").write_text(text)
    asked: list[str] = []

    def folder(place: str) -> Path:
        asked.append(place)
        return tmp_path

    monkeypatch.setattr(machine, "Path", folder)
    assert machine._waited_ns(7) == 34
    assert asked == ["/proc/7/task"]


def test_a_clock_of_constant_rate_is_needed(tmp_path: Path) -> None:
    file = tmp_path / "cpuinfo"
    file.write_text("flags\t\t: fpu constant_tsc sse\n")
    run._check_clock(file)
    for text in ("flags\t\t: fpu tsc nonconstant_tsc\n", "Features\t: fp\n"):
        file.write_text(text)
        with pytest.raises(UserError, match=r"no clock of constant rate \(constant_tsc\)"):
            run._check_clock(file)


@pytest.mark.parametrize("accept", [False, True])
@pytest.mark.parametrize("quick", [False, True])
def test_a_summary_is_of_quiet_runs(quick: bool, accept: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """One CPU, then several, whose rows a quick measurement leaves out. Rows are accepted only if asked for."""
    asked: list[list[int]] = []
    taken: list[dict[str, Any]] = []

    def measure(_made: Machine, cases: list[plan.Case], wanted: int, cpus: list[int], _console: Console) -> Rounds:
        asked.append(cpus)
        crowded = replace(_run(cases[0], waited=0.5), map_ns=9000.0)
        return Rounds(cases, wanted, runs=[crowded, *(_run(case) for case in cases)])

    monkeypatch.setattr(run, "commit", lambda: "c94207afc830a577d289e2e030b72573a353b5c1")
    monkeypatch.setattr(run, "_check_clock", lambda: None)
    monkeypatch.setattr(run, "_cpus", lambda _: [2, 3])
    monkeypatch.setattr(run, "ensure", lambda *_: None)
    monkeypatch.setattr(build, "machine", lambda *_: Machine(Path("linux"), "7.2", Image()))
    monkeypatch.setattr(run, "measure", measure)
    monkeypatch.setattr(accepted, "accept", taken.append)
    summary = run.run(run.Options((0,), 1, quick, output=tmp_path, accept=accept), Console())
    assert asked == [[3]] if quick else [[3], [2, 3]]
    assert ("several_cpus" in summary) is not quick
    cases = len(plan.cases((0,), quick))
    assert (summary["runs"], summary["dropped"], len(summary["rows"])) == (cases + 1, 1, cases)
    assert {row["ns_per_page"] for row in summary["rows"]} == {50}
    assert json.loads((tmp_path / "summary.json").read_text()) == summary
    assert (tmp_path / "report.html").exists()
    assert taken == [summary] * accept


def test_several_cpus_may_have_no_rows(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    """On one CPU, and where only several CPUs are too noisy."""

    def measure(*_: Any) -> Rounds:
        raise TooNoisyError("this machine is too noisy")

    monkeypatch.setattr(run, "measure", measure)
    made = Machine(Path("linux"), "7.2", Image())
    found = run._on_several(made, run.Options(), [3], Console())
    assert found == {"rows": [], "why_none": "one CPU was asked for, or this process may use one core only"}
    found = run._on_several(made, run.Options(), [2, 3], Console())
    assert found == {"rows": [], "why_none": "this machine is too noisy"}
    run._show_several(found)
    assert "No rows of several CPUs: this machine is too noisy." in capsys.readouterr().out


def test_several_cpus_are_compared_with_one(capsys: pytest.CaptureFixture[str]) -> None:
    cases = [plan.Case("fused", cpus=cpus) for cpus in (1, 2)]
    runs = [replace(_run(case), map_ns=25.0 * case.cpus, unmap_ns=25.0) for case in cases]
    run._show_several({"rows": figures.rows(runs, cases)})
    shown = capsys.readouterr().out.split("\n")
    assert [line.split() for line in shown if line.startswith("fused")] == [
        ["fused", "unmodified", "2", "0", "50.0", "75.0", "1.50"]
    ]


def test_each_boot_has_another_layout_and_the_same_in_the_next_measurement() -> None:
    made = Machine(Path("linux"), "7.2", Image())
    archives = []
    for boots in (*range(20), 0):
        machine.pad(made, boots)
        archives.append(made.image.archive())
    assert len(set(archives)) == 20
    assert archives[-1] == archives[0]


@pytest.mark.parametrize("error", [KeyboardInterrupt, TooNoisyError("too noisy")])
def test_nothing_is_left_running(error: Exception, tmp_path: Path) -> None:
    """After Ctrl-C, and on a machine that is never quiet: the lines end by an error."""

    def lines() -> Iterator[str]:
        yield "one"
        raise error

    made = _pretended(tmp_path, f"echo $$ >{tmp_path}/pid\n{_ANSWERING}")
    with pytest.raises(BaseException) as raised:
        machine.boot(made, lines(), sorted(os.sched_getaffinity(0))[:1], lambda _: None)
    assert isinstance(raised.value, KeyboardInterrupt | TooNoisyError)
    assert not Path(f"/proc/{(tmp_path / 'pid').read_text().strip()}").exists()


@pytest.mark.parametrize(
    ("body", "message"),
    [
        ("""echo '@{"event":"error","message":"policy x is refused"}'; sleep 1000""", "policy x is refused"),
        ("echo panic; exit 1", "ended early"),
        ("echo '@{nothing'; sleep 1000", "no event"),
        ("while :; do echo spinning and spinning and spinning; done", "floods"),
    ],
)
def test_a_failing_boot_is_ended_with_its_reason(body: str, message: str, tmp_path: Path, monkeypatch: Any) -> None:
    monkeypatch.setattr(machine, "_OUTPUT_MAX_BYTES", 1 << 16)
    with pytest.raises(UserError, match=message):
        _boot(_pretended(tmp_path, body))


def test_a_silent_boot_is_ended(tmp_path: Path, monkeypatch: Any) -> None:
    monkeypatch.setattr(machine, "_SILENT_S", 1)
    with pytest.raises(UserError, match="silent"):
        _boot(_pretended(tmp_path, "sleep 1000"))


def test_a_boot_that_only_warns_is_ended(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(machine, "_SILENT_S", 1)
    with pytest.raises(UserError, match="silent"):
        _boot(_pretended(tmp_path, "for at in 1 2 3 4 5; do echo stalled; sleep 0.5; done"))


def _eventually(value: Callable[[], str]) -> str:
    for _ in range(200):
        found = value().strip()
        if found:
            return found
        time.sleep(0.05)
    raise AssertionError("it did not happen")


def test_nothing_is_left_running_after_sigkill(tmp_path: Path) -> None:
    """Which lets the lab clean up nothing."""
    made, pid_file = _pretended(tmp_path, f"echo $$ >{tmp_path}/pid; exec sleep 20"), tmp_path / "pid"
    (tmp_path / "lab.py").write_text(
        "from pathlib import Path\nfrom xsmmu_lab.native import build, machine\n"
        f"from xsmmu_lab.setup.initramfs import Image\nmachine.memory_folder = lambda: {str(tmp_path)!r}\n"
        f"made = build.Machine(Path({str(made.program)!r}), '7.2', Image())\n"
        f"machine.boot(made, iter(()), {sorted(os.sched_getaffinity(0))[:1]!r}, print)\n"
    )
    env = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)}
    with subprocess.Popen([sys.executable, str(tmp_path / "lab.py")], env=env) as lab:
        pid = _eventually(lambda: pid_file.read_text() if pid_file.exists() else "")
        lab.kill()
    _eventually(lambda: "" if Path(f"/proc/{pid}").exists() else "gone")


def test_memory_needs_room_and_execution(monkeypatch: pytest.MonkeyPatch) -> None:
    room = 1 << 20

    def pretend(flag: int, blocks: int) -> None:
        found = os.statvfs_result((4096, 4096, blocks, blocks, blocks, 0, 0, 0, flag, 255))
        good = os.statvfs_result((4096, 4096, room, room, room, 0, 0, 0, 0, 255))
        monkeypatch.setattr(os, "statvfs", lambda place: found if place == "/dev/shm" else good)

    for flag, blocks in ((os.ST_NOEXEC, room), (0, 1 << 10)):
        pretend(flag, blocks)
        assert machine.memory_folder(("/dev/shm", "/var")) == "/var"
        with pytest.raises(UserError, match=r"no folder .* MiB free, without noexec, in /dev/shm: "):
            machine.memory_folder(("/dev/shm",))
    pretend(0, room)
    assert machine.memory_folder(("/dev/shm", "/var")) == "/dev/shm"


@pytest.mark.guest
@pytest.mark.long
def test_every_policy_runs_in_user_mode_linux(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """All kernel modes and policies, with both kinds of tables; each run checks its counts of commands.

    Each run counts as quiet, because other tests run at the same time.
    """
    options = run.Options(waits=(0, 1000), rounds=1, quick=True, output=tmp_path)
    cases = plan.cases(options.waits, options.quick)
    console = Console(stderr=True)
    made = build.machine(guests.tools(), console)
    monkeypatch.setattr(rounds, "WAITED_MAX", 1.0)
    monkeypatch.setattr(statistics, "APART", 100.0)
    runs = run.measure(made, cases, options.rounds, sorted(os.sched_getaffinity(0))[-1:], console).runs
    assert {each.case for each in runs} == {*cases}
    strict = {each.case.wait_ns: each for each in runs if each.case.policy == "strict"}
    assert strict[0].sent[0] == strict[0].pages
    assert strict[1000].ns > strict[0].ns + 900, "each strict unmap waits once"
