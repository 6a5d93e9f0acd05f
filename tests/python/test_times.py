# SPDX-License-Identifier: GPL-2.0-only
"""Times of guests: the longest begins first, measured times are kept; a disk that is too small is reported early."""

from __future__ import annotations

import io
import json
import shutil
from pathlib import Path
from types import SimpleNamespace

import pytest
from rich.console import Console

from xsmmu.errors import UserError
from xsmmu_lab.runs import experiment, run, times
from xsmmu_lab.runs.experiment import Plan


@pytest.fixture(scope="module")
def plans() -> list[Plan]:
    """All guests of the comparison."""
    chosen = experiment.load("compare")
    return experiment.plans(*experiment.choose(chosen, (), (), False, "6.12"))


def test_both_cpus_work_to_the_end(plans: list[Plan]) -> None:
    ordered = times.longest_first(plans, {})
    each = [times.expected(plan, {}) for plan in ordered]
    assert each == sorted(each, reverse=True)
    assert times.all_of(ordered, {}, 2) < 1.08 * sum(each) / 2
    assert times.all_of(ordered, {}, 1) == pytest.approx(sum(each))
    assert times.all_of(ordered, {}, 99) == pytest.approx(max(each))


def test_what_was_measured_decides_the_order(plans: list[Plan]) -> None:
    known = {"ring/rx": 1000.0}
    assert times.longest_first(plans, known)[0].guest == "ring"
    assert times.longest_first(plans, {})[0].guest != "ring"


def test_what_was_measured_is_kept_by_mode(tmp_path: Path) -> None:
    assert times.load(tmp_path, "cost") == {}
    times.keep(tmp_path, "cost", [("micro/64", 1.0), ("micro/64", 2.0), (times.BOOT, 3.0)])
    times.keep(tmp_path, "cost", [("ring/rx", 4.0)])
    times.keep(tmp_path, "free", [("micro/64", 9.0)])
    assert times.load(tmp_path, "cost") == {"micro/64": 1.5, "boot": 3.0, "ring/rx": 4.0}
    assert times.load(tmp_path, "free") == {"micro/64": 9.0}
    assert [path.name for path in tmp_path.iterdir()] == ["lab-times.json"]


@pytest.mark.parametrize("text", ["", "[]", '{"cost": 1}', '{"cost": {"micro/64": "x"}}'])
def test_a_broken_file_is_no_knowledge(text: str, tmp_path: Path) -> None:
    (tmp_path / "lab-times.json").write_text(text)
    assert times.load(tmp_path, "cost") == {}
    times.keep(tmp_path, "cost", [("micro/64", 1.0)])
    assert json.loads((tmp_path / "lab-times.json").read_text())["cost"] == {"micro/64": 1.0}


@pytest.mark.parametrize(
    ("seconds", "words"), [(3, "10 s"), (34, "30 s"), (89, "90 s"), (100, "2 min"), (813, "14 min")]
)
def test_in_words(seconds: float, words: str) -> None:
    assert times.in_words(seconds) == words


QUICK = {f"micro/{name}": 0.5 for name in (64, 256, 1024, "1024-aware")}


@pytest.mark.parametrize(("known", "source"), [({}, "on two idle CPUs; downloads"), (QUICK, "by the last run here")])
def test_it_is_said_before_anything_is_done(
    known: dict[str, float], source: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("XSMMU_CACHE", str(tmp_path))
    times.keep(tmp_path, "cost", known.items())
    monkeypatch.setattr("xsmmu_lab.setup.root.ensure", lambda *_: pytest.fail("begun"))
    console = Console(file=io.StringIO(), width=80)
    with pytest.raises(pytest.fail.Exception, match="begun"):
        run.run(run.Options(quick=True), console)
    assert isinstance(console.file, io.StringIO)
    said = console.file.getvalue()
    assert "compare: 70 runs, 1 guest at a time, about 40 s" in said
    assert source in said


def test_a_disk_that_is_too_small_is_said_before_anything_is_done(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("XSMMU_CACHE", str(tmp_path))
    monkeypatch.setattr("xsmmu_lab.setup.root.ensure", lambda *_: pytest.fail("begun"))
    monkeypatch.setattr(shutil, "disk_usage", lambda _: SimpleNamespace(free=4 << 30))
    with pytest.raises(UserError, match=rf"this run of the lab needs 4272 MiB in {tmp_path}, which has 4096 MiB free"):
        run.run(run.Options(quick=True), Console(file=io.StringIO()))
    assert list(tmp_path.iterdir()) == []
