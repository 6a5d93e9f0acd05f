# SPDX-License-Identifier: GPL-2.0-only
"""The same point has the same result to the last digit: by other compilers, and in a sweep that was killed."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
from tests.python import fake_model, test_model

from xsmmu import programs
from xsmmu_lab.project import PROJECT
from xsmmu_lab.setup import model

PYTHONPATH = os.pathsep.join(str(PROJECT / name) for name in ("tool", "lab"))

# -- other compilers -------------------------------------------------------------------------------

POINTS = {
    "strict": test_model.fitted(time_ms=5),
    "many flows": test_model.fitted(flows=40, policy="kernel-lazy", time_ms=5),
    "engine": test_model.fitted(policy="fused-direct-aware", driver="page_pool", seed=7, time_ms=5),
    "sending": test_model.sending(policy="lazy", time_ms=5),
    "drives": test_model.stored(policy="fused", time_ms=5),
}


@pytest.mark.early
@pytest.mark.parametrize(
    ("compiler", "flags"),
    [("gcc-14", ("-O0",)), ("gcc-14", ("-O3", "-ftrapv")), ("clang-19", ("-O2",))],
    ids=["gcc -O0", "gcc -O3", "clang -O2"],
)
def test_another_compile_gives_the_same_bytes(compiler: str, flags: tuple[str, ...]) -> None:
    usual, other = model.compiled(), model.compiled(flags, compiler=compiler)
    assert usual.read_bytes() != other.read_bytes()
    for name, point in POINTS.items():
        text = test_model.text_of(point)
        mine, theirs = test_model.called(usual, text), test_model.called(other, text)
        assert (theirs.returncode, theirs.stdout) == (0, mine.stdout), name


# -- a sweep that is killed ------------------------------------------------------------------------

SLOW = "#!/bin/sh\nsleep 0.05\nexec "
POINTS_OF_SWEEP = 24
JOBS = 2


@pytest.fixture
def words(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """A sweep of a small model that is slow enough to be killed within."""
    machine, workload = fake_model.install(tmp_path / "model", monkeypatch)
    program = machine.parent / "xsmmu-model"
    program.rename(machine.parent / "quick")
    program.write_text(f'{SLOW}"{machine.parent}/quick"\n')
    program.chmod(0o755)
    monkeypatch.setenv("FAKE_LOG", str(tmp_path / "log"))
    monkeypatch.setenv("PYTHONPATH", PYTHONPATH)
    monkeypatch.setenv(programs.FOLDER_VARIABLE, str(machine.parent))
    own = [sys.executable, "-m", "xsmmu", "predict", "--machine", str(machine), "--workload", str(workload)]
    own += ["--policies", "fused", "--sweep", f"flows=21..{20 + POINTS_OF_SWEEP}", "--seeds", "1"]
    return [*own, "--jobs", str(JOBS), "-o", "json"]


def points_in(folder: Path) -> int:
    return len([*folder.glob("[0-9a-f]*.json")]) if folder.exists() else 0


def killed(words: list[str], cache: Path, points: int) -> None:
    """Run a sweep and kill it, with its programs, after so many more points."""
    wanted = points_in(cache) + points
    with subprocess.Popen(words, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, start_new_session=True) as run:
        while points_in(cache) < wanted and run.poll() is None:
            time.sleep(0.01)
        os.killpg(run.pid, signal.SIGKILL)


def test_a_killed_sweep_goes_on(words: list[str], tmp_path: Path) -> None:
    cache = tmp_path / "cache"
    for _ in range(2):
        killed([*words, "--cache", str(cache)], cache, 4)
    done = points_in(cache)
    assert 8 <= done < POINTS_OF_SWEEP
    (cache / ".half").write_text("{")  # what a kill within a write leaves
    log = tmp_path / "log"
    before = len(log.read_text().splitlines())
    last = subprocess.run([*words, "--cache", str(cache)], capture_output=True, text=True, check=True)
    assert len(log.read_text().splitlines()) - before == POINTS_OF_SWEEP - done
    whole = subprocess.run([*words, "--cache", str(tmp_path / "other")], capture_output=True, text=True, check=True)
    assert last.stdout == whole.stdout
    assert len(json.loads(last.stdout)["predictions"]) == POINTS_OF_SWEEP


def test_a_damaged_point_is_run_again(words: list[str], tmp_path: Path) -> None:
    cache = tmp_path / "cache"
    command = [*words, "--cache", str(cache)]
    first = subprocess.run(command, capture_output=True, text=True, check=True)
    one, other, *_ = sorted(cache.glob("*.json"))
    one.write_text(one.read_text().replace("1", "2", 1))
    other.write_text(other.read_text()[:40])
    log = tmp_path / "log"
    before = len(log.read_text().splitlines())
    assert subprocess.run(command, capture_output=True, text=True, check=True).stdout == first.stdout
    assert len(log.read_text().splitlines()) - before == 2
