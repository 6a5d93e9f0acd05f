# SPDX-License-Identifier: GPL-2.0-only
"""What was run on what: the table in docs/use.md is that of docs/ran.json, and says what was run and nothing else."""

from __future__ import annotations

import json
import re
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from tests.python import ran as noted

from checks import ran
from checks.ran import Entry
from xsmmu.errors import UserError
from xsmmu_lab.project import PROJECT
from xsmmu_lab.runs import matrix
from xsmmu_lab.vm.iommu import IOMMUS

COMMIT = "0123456789abcdef"
TORTURE = Entry("torture", "6.12", "vtd", COMMIT, "make test-long", "120 s")


def cell(kernel: str, iommu: str, *runs: tuple[str, int], aware: tuple[str, ...] = ()) -> dict[str, Any]:
    """The first run of each workload in `aware` is one with a batch-aware driver."""
    made: list[dict[str, Any]] = []
    for workload, attempts in runs:
        first = workload not in [each["workload"] for each in made]
        driver = "batch-aware" if first and workload in aware else "unmodified"
        made.append({"workload": workload, "driver": driver, "attack": {"attempts": attempts}})
    summary = {"commit": COMMIT, "runs": made}
    return {"kernel": kernel, "iommu": iommu, "summary": summary}


WHOLE = (("micro", 0), ("attack", 9), ("attack-list", 0), ("nvme-verify", 0), ("net-rx", 0))


def whole_matrix() -> list[dict[str, Any]]:
    """As a real one, where some cells cannot be."""
    return [
        {"kernel": each.kernel, "iommu": each.iommu, "summary": None}
        if each.excluded
        else cell(each.kernel, each.iommu, *WHOLE)
        for each in matrix.cells((), ())
    ]


def test_the_page_is_in_step() -> None:
    """If it is not: python -m checks.ran."""
    text = ran.PAGE.read_text()
    assert text == ran.page(text, ran.load(ran.KEPT))


def test_the_matrix_of_the_docs_is_in_it() -> None:
    """Each row of docs/matrix.md, at one of its commits: a kernel may have been added later."""
    text = (PROJECT / "docs" / "matrix.md").read_text()
    [made] = [line for line in text.splitlines() if line.startswith("Made by")]
    commits = set(re.findall("commit ([0-9a-f]{12})", made))
    rows = [line.split(" | ")[:2] for line in text.partition("## Counts")[2].splitlines() if line.startswith("| ")]
    there = {(each.iommu, each.kernel) for each in ran.load(ran.KEPT) if each.what == "attack"}
    assert {(iommu.strip("| "), kernel) for iommu, kernel in rows[1:]} == there
    assert {each.commit[:12] for each in ran.load(ran.KEPT) if each.what == "attack"} == commits


def test_what_is_kept_names_what_there_is() -> None:
    for each in ran.load(ran.KEPT):
        assert each.iommu in IOMMUS
        assert each.what in ran.WHATS
        assert len(each.commit) == 40


def test_of_a_matrix() -> None:
    runs = [("micro", 0)] * 3
    runs += [("attack", 120_000), ("attack", 100_003), ("attack-list", 5), ("net-rx", 0)]
    done = cell("6.12", "vtd", *runs, aware=("micro",))
    found = list(ran.of_matrix([done, {"kernel": "6.1", "iommu": "amd", "summary": None}]))
    assert [(each.what, each.result) for each in found] == [
        ("micro", "2 policies, 1 batch-aware"),
        ("attack", "2 policies, 100,003 times"),
        ("NIC", "1 policies"),
    ]
    assert found[0].place == ("vtd", "6.12", "micro") and found[0].commit == COMMIT


def test_what_is_newer_replaces() -> None:
    other = replace(TORTURE, kernel="7.2")
    merged = ran.merge([other, TORTURE], [replace(TORTURE, result="240 s"), replace(TORTURE, what="rude")])
    assert [(each.kernel, each.what, each.result) for each in merged] == [
        ("7.2", "torture", "120 s"),
        ("6.12", "rude", "120 s"),
        ("6.12", "torture", "240 s"),
    ]


def test_a_result_of_no_commit_is_refused() -> None:
    for commit in ("abc-dirty", "unknown"):
        with pytest.raises(UserError, match=f"torture on vtd: run at {commit}"):
            ran.merge([], [replace(TORTURE, commit=commit)])


def test_a_result_that_has_no_column_is_refused() -> None:
    with pytest.raises(UserError, match="torments on vtd: the table has no such column, but micro, attack"):
        ran.merge([TORTURE], [replace(TORTURE, what="torments")])


def test_the_table() -> None:
    made = ran.table([replace(TORTURE, what="rude", commit="fedcba9876543210"), TORTURE]).splitlines()
    assert made[0].startswith("| IOMMU | kernel | micro |")
    assert made[2] == "| vtd | 6.12 | - | - | - | - | 120 s | 120 s | - | - |"
    assert made[4:] == ["- torture: `make test-long` at 0123456789ab", "- rude: `make test-long` at fedcba987654"]


def test_a_page_without_a_place_is_refused() -> None:
    with pytest.raises(UserError, match="has no place for the table"):
        ran.page("text", [TORTURE])


def test_a_test_notes_what_it_ran(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ran, "NOTED", tmp_path / "results" / "ran.json")
    monkeypatch.setattr(noted, "BEGAN_AT", COMMIT)
    monkeypatch.setattr("xsmmu_lab.runs.run.commit", lambda: COMMIT)
    for result in ("1 case", "2 cases"):
        noted.note("tests/x.py", "rude", "6.12", "amd", result)
    noted.note("tests/x.py", "torture", "6.12", "amd", "120 s")
    rude, torture = ran.load(ran.NOTED)
    assert rude == Entry("rude", "6.12", "amd", COMMIT, "make test-long TESTS=tests/x.py", "2 cases")
    assert torture.what == "torture"
    # What was committed while it ran is not what was run.
    monkeypatch.setattr("xsmmu_lab.runs.run.commit", lambda: COMMIT[::-1])
    noted.note("tests/x.py", "rude", "6.12", "amd", "3 cases")
    assert ran.load(ran.NOTED)[-1].commit == f"{COMMIT}-dirty"


def test_a_matrix_is_whole_if_every_cell_that_can_be_has_all_workloads() -> None:
    first, *others = whole_matrix()
    assert ran.lacks([first, *others]) == []
    assert ran.lacks(others) == ran.lacks([{**first, "summary": None}, *others]) == ["6.12-vtd"]
    for lacking in ("micro", "attack", "nvme-verify", "net-rx"):
        part = cell("6.12", "vtd", *(each for each in WHOLE if each[0] != lacking))
        assert ran.lacks([part, *others]) == ["6.12-vtd"]
    failed = [{**each, "summary": None} for each in whole_matrix()]
    assert len(ran.lacks(failed)) == len([each for each in matrix.cells((), ()) if not each.excluded])


def test_all_files_are_written(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    for name, content in (("KEPT", "[]"), ("PAGE", f"before\n{ran.FIRST}old\n{ran.LAST}after\n")):
        (tmp_path / name).write_text(content)
        monkeypatch.setattr(ran, name, tmp_path / name)
    for name in ("MATRIX", "NOTED", "MATRIX_PAGE"):
        monkeypatch.setattr(ran, name, tmp_path / name)
    # Where none was made nothing is said of it.
    ran.update()
    assert capsys.readouterr().err == ""
    first, *others = whole_matrix()
    (tmp_path / "matrix.md").write_text("the matrix")
    (tmp_path / "MATRIX").write_text(json.dumps({"cells": others}))
    (tmp_path / "NOTED").write_text(json.dumps([TORTURE.as_dict()]))
    ran.update()
    # A part of a matrix is not attached, nor what is quick.
    (tmp_path / "MATRIX").write_text(json.dumps({"cells": [cell("6.12", "vtd", ("micro", 0)), *others]}))
    ran.update()
    left_out = f"{tmp_path}/MATRIX is left out, as it is not whole: 6.12-vtd\n"
    assert capsys.readouterr().err == left_out * 2
    assert [each.what for each in ran.load(tmp_path / "KEPT")] == ["torture"]
    assert not (tmp_path / "MATRIX_PAGE").exists()
    (tmp_path / "MATRIX").write_text(json.dumps({"cells": [first, *others]}))
    ran.update()
    assert capsys.readouterr().err == ""
    assert (tmp_path / "MATRIX_PAGE").read_text() == "the matrix"
    made = [each.what for each in ran.load(tmp_path / "KEPT")]
    there = len([each for each in (first, *others) if each["summary"]])
    assert (made.count("micro"), made.count("torture"), len(made)) == (there, 1, 4 * there + 1)
    page = (tmp_path / "PAGE").read_text()
    assert page.startswith("before\n") and page.endswith("after\n") and "120 s" in page and "old" not in page
