# SPDX-License-Identifier: GPL-2.0-only
"""`make native` without User-Mode Linux: cases, figures, and refusals."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import pytest
from rich.console import Console
from tests.python import guests

from xsmmu.errors import UserError
from xsmmu_lab.native import build, figures, machine, plan, run
from xsmmu_lab.native.build import Machine
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
        "wait_ns": case.wait_ns,
        "cpus": case.cpus,
        "calibration": {"least_ps": 10690, "median_ps": 10700, "clock_khz": 2300000},
        "sent": [32, 0, 0],
        "counted": [32, 0, 0],
        "micro": [micro] * case.cpus,
        **changes,
    }


def _runs(cmpxchg: list[float], case: plan.Case = _FUSED, ns: float = 25.0) -> list[figures.Run]:
    return [figures.Run(case, ns, ns + at, value, 1024, (1, 0, 0), (1, 0, 0)) for at, value in enumerate(cmpxchg)]


def test_cases_are_interleaved() -> None:
    cases = plan.cases((0, 1000), quick=True)
    lines = plan.script(cases, 3).splitlines()
    assert lines == lines[: len(cases)] * 3
    assert len(set(lines)) == len(cases)
    assert "measure fused-direct batch-aware 1000 1 ring=1024 rounds=64" in lines
    assert {case.policy for case in cases} >= {"passthrough", "kernel-strict", "kernel-lazy", "copy", "strict-direct"}


def test_a_run_is_read() -> None:
    run = figures.run_of(_event(), _FUSED)
    assert (run.ns, run.cmpxchg_ns, run.sent) == (50.5, 10.7, (32, 0, 0))
    [row] = figures.rows([run], [_FUSED])
    assert row["ns_per_page"] == 50.5
    assert row["inv_per_page"] == 0.0156
    assert (row["driver"], row["tables"], row["wait_ns"]) == ("unmodified", "kernel", 1000)


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


def test_several_cpus_are_averaged() -> None:
    case = plan.Case("fused", wait_ns=1000, cpus=2)
    event = _event(case)
    event["micro"][1] = {**event["micro"][1], "map_ns_per_page": 40.0}
    run = figures.run_of(event, case)
    assert (run.map_ns, run.unmap_ns, run.pages) == (30.0, 30.5, 4096)
    with pytest.raises(UserError, match="was next"):
        figures.run_of({**event, "micro": event["micro"][:1]}, case)
    cases = plan.on_cpus(2, (0, 1000))
    assert {case.cpus for case in cases} == {1, 2}
    assert {case.wait_ns for case in cases} == {0}


def test_shapes_have_lines() -> None:
    lines = plan.script(plan.cases(), 1).splitlines()
    assert len(set(lines)) == len(lines)
    assert "measure copy unmodified 2000 1 ring=1024 rounds=64 bytes=1514" in lines
    assert "measure fused unmodified 0 1 ring=1024 rounds=64 list=32" in lines
    assert "measure fused batch-aware 0 1 ring=1024 rounds=64 walk=16" in lines
    assert "measure kernel-lazy unmodified 2000 1 ring=64 rounds=1024" in lines


def test_disturbed_runs_are_dropped() -> None:
    runs = _runs([10.7] * 9 + [14.0])
    assert figures.quiet(runs) == runs[:9]


def test_a_noisy_machine_is_refused() -> None:
    with pytest.raises(UserError, match="too noisy: 3 of 9 runs"):
        figures.quiet(_runs([10.7] * 6 + [14.0] * 3))
    passed = [figures.Run(_PASSED, 5.0, 4.0, 10.7, 1024, (0, 0, 0), None)] * 7
    outlier = figures.Run(_PASSED, 5.0, 14.0, 10.7, 1024, (0, 0, 0), None)
    assert figures.quiet([*passed, outlier, outlier]) == [*passed, outlier, outlier]
    passed += [outlier] * 3
    with pytest.raises(UserError, match="passthrough takes"):
        figures.quiet(passed)


def _pretended(folder: Path, body: str) -> Machine:
    """A program in the place of User-Mode Linux."""
    program = folder / "linux"
    program.write_text(f"#!/bin/sh\n{body}\n")
    program.chmod(0o755)
    return Machine(program, "7.2", Image())


def _boot(made: Machine) -> list[dict[str, Any]]:
    events: list[dict[str, Any]] = []
    machine.boot(made, "", sorted(os.sched_getaffinity(0))[:1], events.append)
    return events


def test_events_are_handed_over_until_it_is_done(tmp_path: Path) -> None:
    body = """echo 'Linux version'; echo '@{"event":"boot"}'; echo '@{"event":"done"}'; trap '' TERM; sleep 1000"""
    assert _boot(_pretended(tmp_path, body)) == [{"event": "boot"}]


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


@pytest.mark.guest
@pytest.mark.long
def test_every_policy_runs_in_user_mode_linux(tmp_path: Path) -> None:
    """All kernel modes and policies, with both kinds of tables; each run checks its counts of commands."""
    options = run.Options(waits=(0, 1000), rounds=1, quick=True, output=tmp_path)
    cases = plan.cases(options.waits, options.quick)
    console = Console(stderr=True)
    made = build.machine(guests.tools(), console)
    runs = run.measure(made, cases, options.rounds, sorted(os.sched_getaffinity(0))[-1:], console)
    assert [each.case for each in runs] == cases
    strict = {each.case.wait_ns: each for each in runs if each.case.policy == "strict"}
    assert strict[0].sent[0] == strict[0].pages
    assert strict[1000].ns > strict[0].ns + 900, "each strict unmap waits once"
