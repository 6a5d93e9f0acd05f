# SPDX-License-Identifier: GPL-2.0-only
"""`make allocators` (xsmmu_lab/allocators, lab/native/allocators)."""

from __future__ import annotations

import itertools
import json
import os
import re
import signal
import subprocess
import sys
from contextlib import nullcontext
from pathlib import Path
from typing import Any

import pytest
from rich.console import Console
from tests.python import stopped

from checks.mutants import Mutant, Mutants
from xsmmu.errors import UserError
from xsmmu_lab.allocators import build, cases, claims, page, run, table
from xsmmu_lab.project import PROJECT
from xsmmu_lab.setup import host, kernels, root

MUTANTS = Mutants("tests/native/allocators.toml", build.PARTS)
PYTHONPATH = os.pathsep.join(str(PROJECT / name) for name in ("tool", "lab"))
CONSOLE = Console(stderr=True)
CPU = min(os.sched_getaffinity(0))
RING_33 = cases.WORKLOADS["ring-33"]
SEEDS = ("1", "2")


@pytest.fixture(scope="session")
def tools() -> root.Root:
    return root.ensure(host.cache_dir(), CONSOLE)


@pytest.fixture(scope="session")
def made(tools: root.Root) -> build.Programs:
    return build.programs(tools, CONSOLE)


# -- the allocators ----------------------------------------------------------------------------------------------------


def checked(program: Path, allocator: str) -> str:
    """The broken promises of an allocator."""
    found = []
    for seed in SEEDS:
        words = [str(program), "--allocator", allocator, "--check", seed]
        try:
            done = subprocess.run(words, capture_output=True, text=True, check=False, timeout=60)
        except subprocess.TimeoutExpired:
            return "no end"
        found.append(done.stderr or (f"status {done.returncode}" if done.returncode else ""))
    return "".join(found)


@pytest.mark.parametrize("allocator", cases.ALLOCATORS)
def test_promises_are_kept(made: build.Programs, allocator: str) -> None:
    assert checked(made.step, allocator) == ""


def test_planted_bugs_fit() -> None:
    for mutant in MUTANTS.named():
        assert MUTANTS.changed(mutant)


@pytest.mark.planted
@pytest.mark.parametrize("mutant", MUTANTS.named(), ids=lambda mutant: mutant.name)
def test_a_planted_bug_is_found(tools: root.Root, mutant: Mutant) -> None:
    with MUTANTS.planted(mutant) as source_dir:
        program = build.checker(tools, CONSOLE, source_dir)
    assert any(checked(program, allocator) for allocator in cases.ALLOCATORS)


def test_counts_repeat_and_are_plausible(made: build.Programs) -> None:
    found = {name: run.counted(made.count, name, RING_33, 2) for name in cases.ALLOCATORS}
    assert run.counted(made.count, "blocks", RING_33, 2) == found["blocks"]
    identity = found.pop("identity")
    assert identity["accesses_per_pair"] == identity["locks_per_pair"] == 0
    assert identity["rest"] is None
    for name, counts in found.items():
        assert counts["accesses_per_pair"] > 1
        assert counts["live_pages"] > cases.KEPT
        # 2 MiB of IOVA are 512 pages.
        assert cases.KEPT / 512 <= counts["regions"] < 500, name
    assert found["tree"]["rest"] == found["cached"]["rest"]
    assert found["tree"]["rest"]["nodes"] == cases.KEPT + 1
    assert found["merged"]["rest"]["nodes"] == 2
    assert found["merged"]["load"]["nodes"] < found["maple"]["load"]["nodes"] < found["tree"]["load"]["nodes"]
    assert found["tree"]["locks_per_pair"] == 2
    assert found["tree"]["contended_per_pair"] > 10 * found["cached"]["contended_per_pair"]


def test_instructions_are_counted(made: build.Programs) -> None:
    ring = cases.WORKLOADS["ring"]
    identity, cached = (run.instructions(made.step, name, ring) for name in ("identity", "cached"))
    assert 5 < identity < 30
    assert 2 * identity < cached < 500


@pytest.mark.parametrize("allocator", cases.ALLOCATORS)
def test_a_timed_run(made: build.Programs, allocator: str) -> None:
    raw = run.timed(made.time, allocator, cases.WORKLOADS["mixed"], [CPU])
    assert (raw["allocator"], raw["threads"], raw["shared"]) == (allocator, 1, False)
    assert raw["pair_ps"] > 100
    assert raw["waits"] == raw["handed"] == 0


def test_threads_may_share_a_cpu(made: build.Programs) -> None:
    raw = run.timed(made.time, "tree", RING_33, cases.threads_on(3, [CPU]))
    assert (raw["threads"], raw["shared"]) == (3, True)
    assert raw["handed"] > 0


@pytest.mark.parametrize("words", ["", "--allocator trie", "--allocator tree --cpus 0", "--allocator tree --cpus 65"])
def test_the_program_that_counts_refuses(made: build.Programs, words: str) -> None:
    done = subprocess.run([made.count, *words.split()], capture_output=True, text=True, check=False, timeout=60)
    assert (done.returncode, done.stdout) == (2, "")
    assert done.stderr.startswith("usage:")


@pytest.mark.parametrize(
    ("words", "status", "message"),
    [
        ("--allocator trie", 2, "usage:"),
        ("--allocator tree --cpus 0,", 2, "usage:"),
        ("--allocator tree --ring 0", 2, "usage:"),
        ("--allocator tree --cpus 4095", 1, "xsmmu-allocators-time: this process may not run on CPU 4095"),
    ],
)
def test_the_program_that_times_refuses(made: build.Programs, words: str, status: int, message: str) -> None:
    done = subprocess.run([made.time, *words.split()], capture_output=True, text=True, check=False, timeout=60)
    assert (done.returncode, done.stdout) == (status, "")
    assert done.stderr.startswith(message)


# -- the kernel's source -----------------------------------------------------------------------------------------------


def texts(orders: str = "6") -> dict[str, str]:
    includes = "#include <linux/iova.h>\n#include <linux/slab.h>\n"
    return {
        "iova.c": f"{includes}#define IOVA_RANGE_CACHE_MAX_SIZE {orders}\t/* log */\n",
        "linux/iova.h": "#include <linux/types.h>\n",
    }


def test_a_header_that_is_not_taken_is_the_labs_own() -> None:
    files = build.kernel_files(texts())
    assert {name for name in files if name.startswith("shim/")} == {"shim/linux/slab.h", "shim/linux/types.h"}
    assert b"MAX_SIZE 10\t" in files["kernel/iova_2m.c"]
    assert b"MAX_SIZE 6\t" in files["kernel/iova.c"]


def test_a_kernel_with_other_orders_is_refused() -> None:
    with pytest.raises(UserError, match=r"iova.c of this kernel has no line '#define IOVA_RANGE_CACHE_MAX_SIZE 6'"):
        build.kernel_files(texts("8"))


def test_a_kernel_without_its_source_is_told(tools: root.Root, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    def refuse(*_: Any) -> None:
        raise UserError("the source lacks lib/rbtree.c")

    monkeypatch.setattr(kernels, "source", refuse)
    monkeypatch.setattr(root, "ensure", lambda *_: tools)
    with pytest.raises(UserError, match="the source lacks lib"):
        run.run(run.Options(output=tmp_path / "out"), CONSOLE)
    assert not (tmp_path / "out").exists()


def test_a_missing_compiler_is_told(tools: root.Root, monkeypatch: pytest.MonkeyPatch) -> None:
    def fails(*_: Any, **__: Any) -> subprocess.CompletedProcess[str]:
        return subprocess.CompletedProcess([], 127, "sh: gcc-14: not found\n", "")

    monkeypatch.setattr(type(tools), "run", fails)
    # The files are of no other build.
    monkeypatch.setattr(host, "locked", lambda *_: nullcontext())
    with pytest.raises(UserError, match=r"allocators\.o does not build") as error:
        build.counting(tools, {"kernel/none.c": os.urandom(8)}, PROJECT, hooked=False)
    assert list(error.value.lines) == ["sh: gcc-14: not found"]


# -- the command -------------------------------------------------------------------------------------------------------


def lab(*words: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "xsmmu", "lab", "allocators", *words]
    environment = {**os.environ, "PYTHONPATH": PYTHONPATH}
    return subprocess.run(command, capture_output=True, text=True, env=environment, check=False, timeout=60)


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (("--allocator", "trie"), "unknown allocator 'trie': choose from tree, merged,"),
        (("--workload", "rings"), "unknown workload 'rings': choose from ring,"),
        (("--threads", "two"), "'two' is no list of numbers of CPUs: give numbers"),
    ],
)
def test_bad_input_is_one_line(words: tuple[str, ...], message: str) -> None:
    result = lab(*words)
    assert (result.returncode, result.stdout, result.stderr.count("\n")) == (1, "", 1)
    assert re.match(f"xsmmu: {message}", result.stderr), result.stderr


def test_a_failed_run_is_told(made: build.Programs) -> None:
    with pytest.raises(UserError, match=r"xsmmu-allocators-time .* failed: .*may not run on CPU 4095"):
        run.timed(made.time, "tree", cases.WORKLOADS["ring"], [4095])


@pytest.mark.usefixtures("made")
def test_a_summary(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    monkeypatch.setattr(run, "QUICK_CPUS", (1, 2))
    names = ("cached", "blocks", "identity")
    options = run.Options(
        threads=[1, 2], allocators=names, workloads=["ring", "sizes-33"], quick=True, rounds=1, output=tmp_path
    )
    summary = run.run(options, CONSOLE)
    assert json.loads((tmp_path / "summary.json").read_text()) == summary
    assert [(row["allocator"], row["workload"]) for row in summary["rows"]] == list(
        itertools.product(names, ("ring", "sizes-33"))
    )
    assert [len(row["counted"]) for row in summary["rows"][:2]] == [2, 1]
    assert [[times["threads"] for times in row["timed"]] for row in summary["rows"][:2]] == [[1, 2], [2]]
    table.show(summary)
    shown = capsys.readouterr().out
    assert re.search(r"^blocks +[\d,]+ +~?[\d.]+ +~?[\d.]+\*? +[\d.]+", shown, re.MULTILINE)
    assert re.search(r"^cannot be said here: Merging gives a third", shown, re.MULTILINE)
    assert [path.name for path in page.write(summary, tmp_path)] == ["allocators.png", "allocators.svg"]
    assert "<desc>Dot plot of allocators. cached: 2 CPUs" in (tmp_path / "allocators.svg").read_text()
    broken = {**summary, "rows": [{**summary["rows"][0], "extra": 1}]}
    with pytest.raises(UserError, match=r"does not fit allocators.schema.json: \$.rows\[0\]"):
        run.validate(broken)


def test_a_picture_needs_its_workload() -> None:
    assert page.plot({"rows": [], "commit": "x"}) is None


@pytest.mark.usefixtures("made")
def test_a_stopped_run_leaves_nothing(tmp_path: Path) -> None:
    words = ["allocators", "--rounds", "1000"]
    stopped.check_leaves_nothing(words, "xsmmu-allocators-time", signal.SIGINT, tmp_path)


# -- claims ------------------------------------------------------------------------------------------------------------


def row(allocator: str, workload: str, cpus: int, levels: float, contended: float) -> dict[str, Any]:
    """Made up: no machine ever counted these."""
    shape = {"nodes": 30_000, "levels": levels, "deepest": 20}
    counts = {
        "cpus": cpus,
        "accesses_per_pair": 100,
        "contended_per_pair": contended,
        "longest_wait_us": 50.0,
        "rest": shape,
        "load": shape,
    }
    return {"allocator": allocator, "workload": workload, "counted": [counts]}


def verdicts(*rows: dict[str, Any]) -> dict[str, bool | None]:
    return {each["says"][:20]: each["holds"] for each in claims.decide(rows)}


def test_claims_are_computed() -> None:
    levels, contentions = "Tens of thousands of", "A cached order has a"
    assert {*verdicts().values()} == {None}
    assert verdicts(row("tree", "ring-33", 8, 14.5, 0))[levels] is True
    assert verdicts(row("tree", "ring-33", 8, 17, 0))[levels] is False
    assert verdicts(row("tree", "ring-33", 1, 17, 0))[levels] is None
    both = (row("cached", "large-33", 32, 15, 1.8), row("cached-2m", "large-33", 32, 15, 0.001))
    [contended, longest] = [each for each in claims.decide(both) if each["says"].startswith(contentions)]
    assert (contended["holds"], longest["holds"]) == (True, False)
    assert contended["figures"] == {"contended": {**dict.fromkeys(cases.ALLOCATORS), "cached": 1.8, "cached-2m": 0.001}}


def test_threads_share_cpus_in_turn() -> None:
    assert cases.threads_on(5, [3, 1]) == [3, 1, 3, 1, 3]
    with pytest.raises(UserError, match="may run on no CPU"):
        cases.threads_on(1, [])


def test_quiet_runs_make_the_time() -> None:
    runs: list[dict[str, Any]] = [
        {
            "threads": 1,
            "shared": False,
            "pair_ps": ps,
            "maps": 10,
            "unmaps": 10,
            "waits": 1,
            "longest_ns": 2000,
            "running_permille": running,
        }
        for ps, running in ((10_000, 999), (12_000, 999), (90_000, 300))
    ]
    found = run.times_of(runs)
    assert (found["ns_per_pair"], found["quiet"], found["runs"]) == (11, 2, 3)
    assert run.times_of(runs[2:])["ns_per_pair"] == 90
    assert (found["contended_per_pair"], found["longest_wait_us"]) == (0.1, 2)
