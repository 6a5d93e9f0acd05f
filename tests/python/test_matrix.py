# SPDX-License-Identifier: GPL-2.0-only
"""The matrix: its cells, the skipping of finished cells, and a page without blanks."""

from __future__ import annotations

import html
import io
import json
import subprocess
import sys
import time
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest
from rich.console import Console
from tests.python.test_results import summary as whole_summary

from xsmmu.errors import UserError
from xsmmu_lab.project import PROJECT
from xsmmu_lab.report import matrix as page
from xsmmu_lab.runs import matrix, results
from xsmmu_lab.runs.matrix import Cell, Outcome
from xsmmu_lab.setup import root
from xsmmu_lab.vm.iommu import IOMMUS

Json = dict[str, Any]
POLICIES = ("passthrough", "kernel-strict", "kernel-lazy", "strict", "fused")
NO_DRIVER = IOMMUS["virtio"].lacking["6.1"]


def run(workload: str, policy: str, **more: object) -> Json:
    base: Json = {"workload": workload, "policy": policy, "level": "held", "cost": None, "invalidations": {"page": 1}}
    base["driver"] = "unmodified"
    return {**base, "map_instructions_per_page": None, "unmap_instructions_per_page": None, **more}


def micro(policy: str, cost: float) -> Json:
    return run("micro", policy, map_instructions_per_page=cost - 100, unmap_instructions_per_page=100.0)


def attack(policy: str, level: str, landed: int, last_us: float) -> Json:
    return run("attack", policy, level=level, attack={"landed": landed, "last_landed_ns": {"max": last_us * 1000}})


def summary(commit: str = "abc") -> Json:
    runs = [micro("kernel-strict", 2_000), micro("kernel-lazy", 1_000), micro("fused", 500)]
    runs += [
        attack("passthrough", "none", 9, 20_000),
        attack("strict", "strict", 0, 0),
        attack("fused", "held", 7, 875.4),
    ]
    runs += [run("nvme-verify", "fused"), run("nvme-verify", "strict"), run("net-rx", "fused")]
    # A batch-aware driver's results under a policy follow the policy's own, and are kept apart.
    aware = [micro("fused", 300), attack("fused", "strict", 0, 0)]
    runs += [{**each, "driver": "batch-aware"} for each in aware]
    return {"commit": commit, "runs": [*runs, run("micro", "passthrough", invalidations=None)]}


OUTCOMES = [
    Outcome(Cell("6.12", "vtd"), summary()),
    Outcome(Cell("6.12", "amd"), summary()),
    Outcome(Cell("6.1", "virtio"), None, NO_DRIVER),
    Outcome(Cell("7.2", "virtio"), None, "xsmmu: guest matrix: <b>bad</b>\n  more"),
]


CELLS = matrix.as_dict(OUTCOMES)["cells"]


def grid(title: str) -> list[dict[str, str]]:
    [found] = [each for each in page.grids(CELLS, POLICIES) if each.title == title]
    heads = [column.head for column in (*found.keys, *found.columns)]
    return [dict(zip(heads, row, strict=True)) for row in found.rows]


def test_every_iommu_with_every_stock_kernel_is_a_cell() -> None:
    all_of_them = matrix.cells((), ())
    assert {each.iommu for each in all_of_them} == {*IOMMUS}
    assert {each.kernel for each in all_of_them} == {"6.12", "7.2", "7.3", "6.1", "6.12-16k"}
    assert len(all_of_them) == 5 * len(IOMMUS)
    assert matrix.cells(("7.2",), ("amd",)) == [Cell("7.2", "amd")]
    # No cell twice: two runs of a cell would share a folder.
    assert matrix.cells(("7.2", "7.2"), ("amd", "amd")) == [Cell("7.2", "amd")]


@pytest.mark.parametrize(("kernels", "iommus", "said"), [(("8",), (), "kernel.*8"), ((), ("smmu",), "IOMMU.*smmu")])
def test_bad_input(kernels: tuple[str, ...], iommus: tuple[str, ...], said: str) -> None:
    with pytest.raises(UserError, match=said):
        matrix.cells(kernels, iommus)


def test_what_cannot_be_is_said_where_nothing_else_was_asked_for() -> None:
    with pytest.raises(UserError, match=r"6\.12-16k-vtd cannot be run: the lab has no kernel.*; 6\.12-16k-amd cannot"):
        matrix.cells(("6.12-16k",), ("vtd", "amd"))
    assert len(matrix.cells(("6.12-16k",), ("vtd", "smmuv3"))) == 2


def test_costs_are_relative_to_the_kernels_own() -> None:
    row = grid("Cost")[0]
    assert row["IOMMU"] == "vtd" and row["kernel"] == "6.12"
    assert (row["kernel-strict"], row["fused"]) == ("2,000 1.00 2.00", "500 0.25 0.50")
    assert row["fused (aware)"] == "300 0.15 0.30"
    # Nothing was measured under these.
    assert {*row} == {"IOMMU", "kernel", "kernel-strict", "kernel-lazy", "fused", "fused (aware)"}


def test_attack_says_the_level_and_how_long() -> None:
    row = grid("Attack")[0]
    assert (row["passthrough"], row["strict"], row["fused"]) == ("none always", "strict 0", "held 875 us")
    assert row["fused (aware)"] == "strict 0"


def test_no_run_hides_another() -> None:
    [cell, *_] = json.loads(json.dumps(CELLS))
    cell["summary"]["runs"].append(attack("fused", "strict", 0, 0))
    with pytest.raises(ValueError, match="two runs of attack under fused"):
        page.grids([cell], POLICIES)


def test_attack_says_what_landed_under_any_level() -> None:
    found = attack("strict", "strict", 3, 12)
    assert page.attack(found, {}) == "strict 12 us"


def test_all_commits_are_named() -> None:
    cells = matrix.as_dict([Outcome(Cell("6.12", name), summary(name * 2)) for name in ("vtd", "amd")])["cells"]
    assert "at commit amdamd, vtdvtd," in page.markdown(cells, POLICIES)


def test_a_tree_of_no_commit_is_seen_to_be_one() -> None:
    cells = matrix.as_dict([Outcome(Cell("6.12", "vtd"), summary(f"{'ab' * 20}-dirty"))])["cells"]
    assert "at commit abababababab-dirty, in" in page.markdown(cells, POLICIES)


def test_nothing_is_said_of_what_was_not_run() -> None:
    quick = {"commit": "abc", "runs": [micro("kernel-strict", 2_000)]}
    cells = matrix.as_dict([Outcome(Cell("6.12", "vtd"), quick)])["cells"]
    assert [note.split(":")[0] for note in page.notes(page.grids(cells, POLICIES))] == ["Cost", "Counts"]
    titles = [note.split(":")[0] for note in page.notes(page.grids(CELLS, POLICIES))]
    assert titles == ["(aware)", "Cost", "Attack", "Counts", "Work"]
    # In whichever grid.
    aware = {**attack("fused", "strict", 0, 0), "driver": "batch-aware"}
    attacked = matrix.as_dict([Outcome(Cell("6.12", "vtd"), {"commit": "abc", "runs": [micro("fused", 500), aware]})])
    assert page.notes(page.grids(attacked["cells"], POLICIES))[0].startswith("(aware)")
    text_of_page = html.unescape(page.html(CELLS, POLICIES))
    for note in page.notes(page.grids(CELLS, POLICIES)):
        assert text_of_page.count(f"<p>{note}</p>") == 1
    text = io.StringIO()
    page.render(cells, POLICIES, Console(file=text, width=100))
    for said in (text.getvalue(), page.markdown(cells, POLICIES), page.html(cells, POLICIES)):
        assert "Cost" in said and "disproved" not in said and "disk" not in said and "batch-aware" not in said


def test_work_and_counts() -> None:
    row = grid("Work")[0]
    assert (row["strict"], row["fused"]) == ("disk", "disk, NIC")
    assert [each["runs equal"] for each in grid("Counts")] == ["11 by kind", "11 in all"]


def test_a_cell_without_results_says_why(tmp_path: Path) -> None:
    assert [name for name, _ in page.reasons(CELLS)] == ["6.1-virtio", "7.2-virtio"]
    assert [each.failed for each in OUTCOMES] == [False, False, False, True]
    made = page.write(CELLS, POLICIES, tmp_path).read_text()
    assert "has no driver for virtio-iommu" in made and "&lt;b&gt;bad&lt;/b&gt;" in made
    assert "| vtd | 6.12 |" in (tmp_path / "matrix.md").read_text()
    text = io.StringIO()
    page.render(CELLS, POLICIES, Console(file=text, width=100))
    assert "7.2-virtio: xsmmu: guest matrix" in text.getvalue()
    assert matrix.store(OUTCOMES, tmp_path) == json.loads((tmp_path / "matrix.json").read_text())


def test_the_page_of_docs_is_one_of_theirs() -> None:
    """With a heading of its own, and no cell missing: a cell without results has a reason."""
    kept = (PROJECT / "docs/matrix.md").read_text()
    assert kept.splitlines()[:2] == page.markdown(CELLS, POLICIES).splitlines()[:2] == ["# Every IOMMU and kernel", ""]
    for cell in matrix.cells((), ()):
        rows = f"| {cell.iommu} | {cell.kernel} |" in kept
        reason = cell.excluded
        assert rows or f"- {cell.name}: {reason or ''}" in kept, cell
        assert not (rows and reason), cell


def test_a_page_of_nothing(tmp_path: Path) -> None:
    assert page.grids(CELLS[2:], POLICIES) == []
    page.write(CELLS[2:], POLICIES, tmp_path)


SCRIPT = """#!/bin/sh
echo run >>{log}
[ ! -e {fails} ] || {{ echo 'noise' >&2; echo 'xsmmu: it broke' >&2; exit 1; }}
"""


def stand_in(folder: Path, monkeypatch: pytest.MonkeyPatch, script: str) -> Path:
    """A script in place of the lab; nothing is set up. Returns the results folder."""
    python = folder / "python"
    python.write_text(f"#!/bin/sh\n{script}\n")
    python.chmod(0o755)
    monkeypatch.setattr(sys, "executable", str(python))
    monkeypatch.setattr("xsmmu_lab.setup.root.ensure", lambda *_: None)
    monkeypatch.setattr("xsmmu_lab.setup.kernels.ensure", lambda *_: None)
    return folder / "matrix"


@pytest.mark.parametrize("quick", [False, True])
def test_a_cell_is_run_on_its_own(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, quick: bool) -> None:
    folder = stand_in(tmp_path, monkeypatch, f'echo "$@" >{tmp_path}/asked')
    monkeypatch.setattr(matrix, "commit", lambda: "abc")
    monkeypatch.chdir(tmp_path)
    matrix.run([Cell("7.2", "amd")], Path(folder.name), 1, quick, Console(file=io.StringIO()))
    asked = (tmp_path / "asked").read_text().split()
    assert asked[:6] == ["-m", "xsmmu", "lab", "run", "--experiment", "matrix"]
    assert ("--quick" in asked) == quick
    options = dict(pairwise(asked))
    assert (options["--kernel"], options["--iommu"], options["--output"]) == ("7.2", "amd", f"{folder}/7.2-amd")


@pytest.mark.parametrize(("end", "status"), [("exit 3", 3), ("kill -9 $$", -9)])
def test_a_cell_that_says_nothing_has_failed_too(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, end: str, status: int
) -> None:
    folder = stand_in(tmp_path, monkeypatch, end)
    monkeypatch.setattr(matrix, "commit", lambda: "abc-dirty")
    # Earlier results are not the current ones.
    monkeypatch.setattr("xsmmu_lab.runs.results.load", lambda _folder: summary("abc-dirty"))
    [outcome] = matrix.run([Cell("7.2", "amd")], folder, 1, True, Console(file=io.StringIO()))
    assert outcome.failed and outcome.reason == f"ended with status {status}"


@pytest.mark.parametrize("name", ["abc-dirty", "unknown"])
def test_a_tree_that_no_commit_names_is_run_each_time(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str
) -> None:
    folder = stand_in(tmp_path, monkeypatch, f"echo run >>{tmp_path}/log")
    monkeypatch.setattr(matrix, "commit", lambda: name)
    monkeypatch.setattr("xsmmu_lab.runs.results.load", lambda _folder: summary(name))
    for runs in (1, 2):
        [outcome] = matrix.run([Cell("7.2", "amd")], folder, 1, False, Console(file=io.StringIO()))
        assert outcome.summary == summary(name) and not outcome.failed
        assert (tmp_path / "log").read_text() == "run\n" * runs


def test_ctrl_c_ends_those_at_work_and_begins_no_other(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    log = tmp_path / "log"
    script = f"""echo "$@" >>{log}
case "$*" in *6.12*) until grep -q 7.2 {log}; do sleep 0.1; done; exit ;; esac
trap 'echo cleaned up >>{log}; exit 1' TERM
sleep 60 >/dev/null 2>&1 & wait"""
    folder = stand_in(tmp_path, monkeypatch, script)
    monkeypatch.setattr(matrix, "commit", lambda: "abc")

    class Interrupted(Console):
        def print(self, *objects: object, **_more: object) -> None:
            if str(objects[0]).startswith("1/"):
                raise KeyboardInterrupt

    cells = [Cell("6.12", "amd"), Cell("7.2", "amd"), Cell("7.2", "vtd"), Cell("6.1", "vtd")]
    start = time.monotonic()
    with pytest.raises(KeyboardInterrupt):
        matrix.run(cells, folder, 2, True, Interrupted(file=io.StringIO()))
    assert time.monotonic() - start < 30
    said = log.read_text()
    assert "cleaned up" in said
    # Another cell may have taken the first cell's place; it was ended, too.
    assert "--kernel 6.1 " not in said


def test_what_was_stopped_or_failed_takes_away_no_results(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Quick results of this commit, or results of a commit that is checked out again."""
    folder = stand_in(tmp_path, monkeypatch, "echo 'xsmmu: stopped by SIGTERM' >&2; exit 1")
    monkeypatch.setattr(matrix, "commit", lambda: "abc")
    monkeypatch.setattr("xsmmu_lab.runs.results.load", lambda _folder: {"commit": "abc", "runs": [micro("fused", 1)]})
    cells = [Cell("7.2", "amd")]
    [outcome] = matrix.run(cells, folder, 1, False, Console(file=io.StringIO()))
    assert outcome.failed and outcome.reason == "xsmmu: stopped by SIGTERM"
    said = io.StringIO()
    [outcome] = matrix.run(cells, folder, 1, True, Console(file=said))
    assert not outcome.failed and outcome.reason == "" and outcome.summary
    assert "0 to run" in said.getvalue()


def test_there_is_a_folder_where_nothing_was_run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def ensure(*_: object) -> None:
        raise UserError("no network")

    folder = stand_in(tmp_path, monkeypatch, "true") / "7.2"
    monkeypatch.setattr("xsmmu_lab.setup.root.ensure", ensure)
    matrix.store(matrix.run([Cell("7.2", "amd")], folder, 1, True, Console(file=io.StringIO())), folder)
    assert "no network" in (folder / "matrix.json").read_text()


KILLED = """
import io, sys
from pathlib import Path
from rich.console import Console
from xsmmu_lab.runs import matrix
from xsmmu_lab.setup import kernels, root
root.ensure = kernels.ensure = lambda *_: None
sys.executable, folder = sys.argv[1:]
matrix.run([matrix.Cell("7.2", "amd")], Path(folder), 1, True, Console(file=io.StringIO()))
"""


def test_nothing_of_a_matrix_that_is_killed_goes_on(tmp_path: Path) -> None:
    log, script = tmp_path / "log", tmp_path / "python"
    waits = f"trap 'echo ended >>{log}; exit' TERM; echo began >>{log}; for _ in $(seq 600); do sleep 0.1; done"
    script.write_text(f"#!/bin/sh\n{waits}\n")
    script.chmod(0o755)
    command = [sys.executable, "-c", KILLED, str(script), str(tmp_path / "matrix")]
    process = subprocess.Popen(command, start_new_session=True)
    try:
        wait_for(log, "began")
    finally:
        process.kill()
        process.wait()
    wait_for(log, "ended")


def wait_for(log: Path, word: str) -> None:
    end = time.monotonic() + 30
    while not (log.exists() and word in log.read_text()):
        assert time.monotonic() < end, f"nothing has {word}"
        time.sleep(0.05)


def test_a_cell_that_leaves_nothing_ends_no_other(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    folder = stand_in(tmp_path, monkeypatch, "true")
    monkeypatch.setattr(matrix, "commit", lambda: "abc-dirty")
    said = io.StringIO()
    [outcome] = matrix.run([Cell("7.2", "amd")], folder, 1, True, Console(file=said))
    assert outcome.failed and outcome.reason == "has no results of this commit"
    assert "1/1 7.2-amd: has no results of this commit\n" in said.getvalue()


def test_a_cell_that_says_no_text_ends_no_other(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    folder = stand_in(tmp_path, monkeypatch, "printf 'xsmmu: disk \\377\\n' >&2; exit 1")
    [outcome] = matrix.run([Cell("7.2", "amd")], folder, 1, True, Console(file=io.StringIO()))
    assert outcome.reason == "xsmmu: disk \N{REPLACEMENT CHARACTER}"


def test_results_are_found_where_a_run_leaves_them(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    folder = stand_in(tmp_path, monkeypatch, "true")
    monkeypatch.setattr(matrix, "commit", lambda: "abc")
    with results.Results(folder / "7.2-amd") as made:
        made.write({**whole_summary(), "commit": "abc"})
        made.finish()
    said = io.StringIO()
    [outcome] = matrix.run([Cell("7.2", "amd")], folder, 1, True, Console(file=said))
    assert outcome.summary and "0 to run" in said.getvalue()


def test_what_cannot_be_read_is_no_result(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    folder = stand_in(tmp_path, monkeypatch, "true")
    monkeypatch.setattr(matrix, "commit", lambda: "abc")
    # Even root cannot read a folder as a file.
    (folder / "7.2-amd" / results.LATEST / "summary.json").mkdir(parents=True)
    [outcome] = matrix.run([Cell("7.2", "amd")], folder, 1, True, Console(file=io.StringIO()))
    assert outcome.reason == "has no results of this commit"


def test_what_is_done_is_not_run_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    log, fails, script = tmp_path / "log", tmp_path / "fails", tmp_path / "python"
    script.write_text(SCRIPT.format(log=log, fails=fails))
    script.chmod(0o755)
    done: dict[str, Json] = {}

    def load(folder: Path) -> Json:
        if folder.parent.name not in done:
            raise UserError("no results")
        return done[folder.parent.name]

    monkeypatch.setattr(sys, "executable", str(script))
    monkeypatch.setattr(matrix, "commit", lambda: "abc")
    monkeypatch.setattr("xsmmu_lab.setup.root.ensure", lambda *_: None)
    monkeypatch.setattr("xsmmu_lab.setup.kernels.ensure", lambda *_: None)
    monkeypatch.setattr("xsmmu_lab.runs.results.load", load)
    cells = [Cell("6.12", "vtd"), Cell("6.12", "amd"), Cell("6.1", "virtio")]

    def once() -> list[Outcome]:
        log.write_text("")
        return matrix.run(cells, tmp_path, 2, False, Console(file=io.StringIO()))

    fails.touch()
    done["6.12-vtd"] = summary()
    assert [(each.summary is None, each.reason) for each in once()] == [
        (False, ""),
        (True, "xsmmu: it broke"),
        (True, NO_DRIVER),
    ]
    assert log.read_text() == "run\n"
    fails.unlink()
    for lacking in (summary("older"), {**summary(), "runs": [micro("fused", 1)]}):
        done["6.12-amd"] = lacking
        assert once()[1].reason == "has no results of this commit"
    done["6.12-amd"] = summary()
    assert once()[1].summary is not None
    assert log.read_text() == ""


def test_what_one_architecture_lacks_ends_no_other(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def ensure(_cache: Path, _console: Console, contents: root.Contents) -> None:
        if contents.arch.name == "arm64":
            raise UserError("the mirror lacks packages")

    script = tmp_path / "python"
    script.write_text("#!/bin/sh\n")
    script.chmod(0o755)
    monkeypatch.setattr(sys, "executable", str(script))
    monkeypatch.setattr(matrix, "commit", lambda: "abc")
    monkeypatch.setattr("xsmmu_lab.setup.root.ensure", ensure)
    monkeypatch.setattr("xsmmu_lab.setup.kernels.ensure", lambda *_: None)
    said = io.StringIO()
    cells = [Cell(kernel, iommu) for iommu in ("smmuv3", "amd") for kernel in ("6.12", "6.1")]
    outcomes = matrix.run(cells, tmp_path, 1, True, Console(file=said))
    assert [each.reason for each in outcomes] == [
        "the mirror lacks packages",
        "the lab has no kernel 6.1 for arm64",
        "has no results of this commit",
        "kernel 6.1 stalls while it logs the attack's faults, on its own path",
    ]
    assert said.getvalue().count("6.12 for arm64: the mirror lacks packages") == 1
    assert "1/1 6.12-amd: has no results of this commit" in said.getvalue()
