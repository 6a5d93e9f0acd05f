# SPDX-License-Identifier: GPL-2.0-only
"""`make native-engine`: cases, refusals, and real runs with the counts and layouts of the module."""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from rich.console import Console
from tests.python import stopped

from xsmmu.errors import UserError
from xsmmu_lab import policies, scale
from xsmmu_lab.native import engine, statistics, table
from xsmmu_lab.native.plan import AWARE, UNMODIFIED
from xsmmu_lab.project import PYTHONPATH
from xsmmu_lab.runs import commands
from xsmmu_lab.setup import build, host, kernels, root

pytestmark = pytest.mark.early

CASE = engine.Case("fused")
CPU = min(os.sched_getaffinity(0))
OPTIONS = engine.Options(rounds=1, ms=5)


@pytest.fixture(scope="session")
def tools() -> root.Root:
    return root.ensure(host.cache_dir(), Console(stderr=True))


@pytest.fixture(scope="session")
def program(tools: root.Root) -> Path:
    return engine.compiled(tools)


def made(case: engine.Case = CASE, ns: float = 50, **changes: Any) -> engine.Run:
    """A run as the program would print it."""
    commands = {"page": 0, "domain": 128, "global": 0}
    raw = {
        "policy": case.policy,
        "aware": case.driver == AWARE,
        "ring": 1024,
        "wait_ns": 0,
        "cpus": [*range(case.cpus)],
        "map_ps": 20_000,
        "unmap_ps": 30_000,
        "page_ps": round(1000 * ns),
        "page_mean_ps": 51_000,
        "maps": 131_072,
        "handed": 1311 * case.elsewhere,
        "sent": commands,
        "counted": commands,
        "polls": [100] * case.cpus,
        "recorded_commands": [100] * case.cpus,
        "recorded_copies": [0] * case.cpus,
        "recorded_unmaps": [102_400] * case.cpus,
        "running_permille": [999] * case.cpus,
        "cmpxchg_before_ps": [10_700] * case.cpus,
        "cmpxchg_after_ps": [10_710] * case.cpus,
        "clock_ps": [22_000] * case.cpus,
        **changes,
    }
    return engine.checked(case, raw)


# -- cases -----------------------------------------------------------------------------------------


def test_a_single_cpu_has_no_other_cpu() -> None:
    found = engine.cases((1, 2), (0, 33), policies.names())
    assert len(found) == len(set(found))
    assert {case.elsewhere for case in found if case.cpus == 1} == {0}
    assert {case.elsewhere for case in found if case.cpus == 2} == {0, 33}
    alone = [case for case in found if case.cpus == 1]
    assert {case.policy for case in alone if case.driver == UNMODIFIED} == {*policies.names()}
    assert {case.policy for case in alone if case.driver == AWARE} == {*policies.waiting()}
    assert {case.copied_bytes for case in alone if case.policy == "copy"} == {*engine.COPIED_BYTES}


def test_cpus_of_different_cores_come_first() -> None:
    assert engine.chosen_cpus([3, 0, 1, 2, 7], lambda cpu: str(cpu % 2)) == [0, 1, 2, 3, 7]


def test_numbers_of_cpus_are_read() -> None:
    assert engine.numbers_of("4, 1,2 1") == [1, 2, 4]
    for text in ("", "0", "1,x", "-1", "1.5", "1;2", "99999"):
        with pytest.raises(UserError, match=r"is no list of numbers of CPUs: give numbers from 1 on, such as 1,2,4"):
            engine.numbers_of(text)


def test_the_default_are_cpus_that_the_machine_has() -> None:
    assert engine._numbers_of_cpus(None, 6) == [1, 2, 4]
    assert engine._numbers_of_cpus([1, 3], 3) == [1, 3]


def test_the_help_has_the_default_number_of_runs() -> None:
    [rounds] = [each for each in commands.lab.commands["native-engine"].params if each.name == "rounds"]
    assert rounds.default == engine.ROUNDS


# -- refusals --------------------------------------------------------------------------------------


def lab(*words: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "xsmmu", "lab", "native-engine", *words]
    environment = {**os.environ, "PYTHONPATH": PYTHONPATH}
    return subprocess.run(command, capture_output=True, text=True, env=environment, check=False, timeout=60)


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (
            ("--cpus", "1,4096"),
            r"4096 CPUs are asked for, but this process may run on \d+: ask for 1, or take a machine",
        ),
        (("--cpus", "two"), "'two' is no list of numbers of CPUs: give numbers"),
        (("--policy", "fuse"), "unknown policy 'fuse': choose from copy,"),
    ],
)
def test_bad_input_is_one_line(words: tuple[str, ...], message: str) -> None:
    result = lab(*words)
    assert (result.returncode, result.stdout, result.stderr.count("\n")) == (1, "", 1)
    assert re.match(f"xsmmu: {message}", result.stderr), result.stderr


def test_counts_must_agree() -> None:
    with pytest.raises(UserError, match=r"fused .* the engine counts .* but the backend saw"):
        made(sent={"page": 0, "domain": 127, "global": 0})
    with pytest.raises(UserError, match="the program ran lazy"):
        made(policy="lazy")


def test_a_cpu_with_another_program_disturbs_a_run() -> None:
    two = engine.Case("fused", cpus=2, elsewhere=10)
    assert not made(two).is_disturbed()
    assert made(two, running_permille=[999, 800]).is_disturbed()
    # A mailbox was full, because its CPU did not run.
    assert made(two, handed=1000).is_disturbed()
    assert {*made(two).calibration().values()} == {10_700, 10_710}


def test_a_cpu_is_compared_with_runs_of_as_many_cpus() -> None:
    """More running CPUs have a lower clock."""
    one, two = (made(engine.Case("fused", cpus=cpus)).calibration() for cpus in (1, 2))
    assert not {*one} & {*two}
    assert len(two) == 2 * len(one)


def test_a_case_that_lost_most_of_its_runs_is_refused() -> None:
    runs = [made(ns=50 + at) for at in range(9)]
    with pytest.raises(UserError, match=r"fused \(unmodified\) on 1 CPU: 4 of 9 runs are undisturbed: end other"):
        engine.row(CASE, runs, runs[:4], {})


# -- rows ------------------------------------------------------------------------------------------


def test_a_row() -> None:
    runs = [made(ns=50 + at) for at in range(10)]
    found = engine.row(CASE, runs, runs[:9], {"transfers_per_page": None})
    assert (found["ns_per_page"], found["low"], found["high"]) == (54, 51, 57)
    assert (found["map_ns"], found["unmap_ns"], found["mean_ns_per_page"]) == (20, 30, 51)
    assert (found["rounds"], found["dropped"]) == (9, 1)
    assert found["inv_per_page"] == round(1 / 1024, 5)
    copied = made(engine.Case("copy", copied_bytes=256), recorded_copies=[51_200])
    assert engine.row(copied.case, [copied], [copied], {})["copied_percent"] == 50


# -- real runs -------------------------------------------------------------------------------------


@pytest.mark.parametrize("case", engine.cases([1], [0], policies.names()), ids=str)
def test_a_run_is_plausible(program: Path, case: engine.Case) -> None:
    raw = engine.run_case(program, case, [CPU], OPTIONS).raw
    assert raw["sent"] == raw["counted"]
    assert raw["maps"] == raw["unmaps"] >= 1024 * (16 + 8)
    assert raw["cpus"] == [CPU]
    assert 1000 < raw["map_ps"] < raw["page_ps"] < 50_000_000
    assert 100 < raw["cmpxchg_before_ps"][0] < 1_000_000
    if case.policy == "strict":
        assert raw["sent"] == {"page": raw["maps"], "domain": 0, "global": 0}
    elif case.policy in ("xsmmu", "fused"):
        assert raw["sent"]["page"] + raw["sent"]["domain"] < raw["maps"] / 512
    if case.copied_bytes:
        assert raw["recorded_copies"] == [1024 * raw["polls"][0]]
        assert raw["recorded_commands"] == [0]


@pytest.mark.skipif(len(os.sched_getaffinity(0)) < 2, reason="needs two CPUs")
@pytest.mark.parametrize("policy", policies.names())
def test_another_cpu_unmaps_pages(program: Path, policy: str) -> None:
    both = sorted(os.sched_getaffinity(0))[:2]
    for case in engine.cases([2], [33], [policy]):
        raw = engine.run_case(program, case, both, OPTIONS).raw
        assert raw["sent"] == raw["counted"]
        assert raw["maps"] == raw["unmaps"]
        # While a CPU is busy with another program, its mailbox may be full.
        assert 0 < raw["handed"] / raw["maps"] < 0.36


def test_a_command_waits(program: Path) -> None:
    options = engine.Options(ms=5, wait_ns=1000)
    raw = engine.run_case(program, engine.Case("strict"), [CPU], options).raw
    assert raw["unmap_ps"] >= 1_000_000
    assert engine.run_case(program, CASE, [CPU], options).raw["unmap_ps"] < raw["unmap_ps"] / 2


@pytest.mark.parametrize(
    ("words", "status", "message"),
    [
        ("--policy fused --cpus 0,0", 2, "usage:"),
        ("--policy fused --cpus 0,", 2, "usage:"),
        ("--policy none", 2, "usage:"),
        ("--policy fused --elsewhere 101", 2, "usage:"),
        ("--policy fused --ring 0", 2, "usage:"),
        ("--policy fused --cpus 4095", 1, "xsmmu-native-engine: this process may not run on CPU 4095"),
    ],
)
def test_the_program_refuses(program: Path, words: str, status: int, message: str) -> None:
    done = subprocess.run([program, *words.split()], capture_output=True, text=True, check=False, timeout=60)
    assert (done.returncode, done.stdout) == (status, "")
    assert done.stderr.startswith(message)


def test_a_failed_run_is_told(program: Path) -> None:
    with pytest.raises(UserError, match=r"fused \(unmodified\) on 1 CPU: the run failed: .*may not run on CPU 4095"):
        engine.run_case(program, CASE, [4095], OPTIONS)


def test_a_summary_has_each_policy(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    # The machine of a test is never quiet.
    monkeypatch.setattr(statistics, "APART", float("inf"))
    monkeypatch.setattr(engine.Run, "is_disturbed", lambda _: False)
    options = engine.Options(cpus=[1], rounds=1, ms=5, output=tmp_path)
    summary = engine.run(options, Console(stderr=True))
    assert [file.name for file in tmp_path.iterdir()] == ["summary.json"]
    assert json.loads((tmp_path / "summary.json").read_text()) == summary
    rows = summary["rows"]
    assert {row["policy"] for row in rows} == {*policies.names()}
    assert {row["policy"] for row in rows if row["driver"] == AWARE} == {*policies.waiting()}
    for row in rows:
        assert 0 < row["low"] <= row["ns_per_page"] <= row["high"]
        # sim/scale copies nothing.
        assert (row["transfers_per_page"] is None) == (row["policy"] == "copy")
        assert row["transfers_per_page"] in (None, 0)
    table.show(summary)
    shown = capsys.readouterr().out
    for name in policies.names():
        assert re.search(rf"^{name} +unmodified +\d+ +[\d.]+ ", shown, re.MULTILINE)
    assert "smallest and largest run" in shown
    broken = {**summary, "rows": [{**rows[0], "extra": 1}]}
    with pytest.raises(UserError, match=r"does not fit native-engine.schema.json: \$.rows\[0\]"):
        engine.validate(broken)


def test_the_counters_are_those_of_make_scale(tools: root.Root) -> None:
    counting = scale.compiled(tools)
    case = engine.Case("lazy", cpus=4, elsewhere=33)
    count = scale.counted(counting, scale.Config("lazy", aware=False, cpus=4, elsewhere=33, life="short"))
    found = engine._counters(counting, case)
    assert found["transfers_per_page"] == round(count.transfers(), 4) > 0
    assert found["locks_per_page"] == round(count.locks, 4)
    many = engine._counters(counting, engine.Case("lazy", cpus=65))
    assert {*many.values()} == {None}
    assert {*many} == {*found}


@pytest.mark.usefixtures("program")
@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_a_stopped_run_leaves_nothing(tmp_path: Path, number: signal.Signals) -> None:
    words = ["native-engine", "--cpus", "1", "--policy", "strict", "--rounds", "1000"]
    stopped.check_leaves_nothing(words, "xsmmu-native-engine", number, tmp_path)


def test_no_two_cpus_have_a_lock(tools: root.Root) -> None:
    files, parts = ["tests/native/lock.c", "lab/native/engine/lock.c"], ("core", "lab/native/engine", "tests/native")
    locks = build.userspace(tools, "lock", files, engine.FLAGS, parts=parts)
    status, text = build.run_userspace(locks, ["500"], timeout=60)
    assert status == 0, text


# -- the real engine -------------------------------------------------------------------------------

_ENTRY = re.compile(r"\s*<\d+><\w+>: Abbrev Number: \d+(?: \((DW_TAG_\w+)\))?")
_ATTRIBUTE = re.compile(r"\s*<\w+>\s+DW_AT_(name|byte_size|data_member_location)\s*: (?:\(.*?\): )?(.*?)\s*$")


def layouts(tools: root.Root, file: Path) -> dict[str, dict[str, Any]]:
    """The engine's structures in a program or module: size, and offset of each member, from its debugging data."""
    found: dict[str, dict[str, Any]] = {}
    structure: dict[str, Any] = {}
    tag, member = "", ""
    for line in _debugging_data(tools, file):
        if entry := _ENTRY.match(line):
            tag = entry[1] or ""
            if tag == "DW_TAG_structure_type":
                structure = {"members": {}}
        elif attribute := _ATTRIBUTE.match(line):
            name, value = attribute.groups()
            if tag == "DW_TAG_structure_type":
                structure[name] = value
                if name == "name" and value.startswith("xs_"):
                    found[value] = structure
            elif tag == "DW_TAG_member" and name == "name":
                member = value
            elif tag == "DW_TAG_member" and name == "data_member_location":
                structure["members"][member] = value
    return {name: structure for name, structure in found.items() if "byte_size" in structure}


def _debugging_data(tools: root.Root, file: Path) -> list[str]:
    """readelf's text of the debugging data."""
    done = tools.run(["readelf", "--debug-dump=info", tools.inside(file)])
    assert done.returncode == 0
    return done.stdout.splitlines()


def test_structures_are_laid_out_as_in_the_module(tools: root.Root, program: Path) -> None:
    [module] = build.module(tools, kernels.ensure(tools))
    ours, its = layouts(tools, program), layouts(tools, module)
    shared = {*ours} & {*its}
    assert shared >= {
        "xs_engine",
        "xs_cpu",
        "xs_batch",
        "xs_block",
        "xs_record",
        "xs_counts",
        "xs_magazine",
        "xs_depot",
    }
    assert shared >= {"xs_space", "xs_tree", "xs_leaf", "xs_node", "xs_partial", "xs_pool", "xs_pool_cpu", "xs_chunk"}
    for name in sorted(shared):
        assert ours[name] == its[name], name
