# SPDX-License-Identifier: GPL-2.0-only
"""Results: complete or absent, and valid."""

from __future__ import annotations

import json
import os
import subprocess
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from rich.console import Console
from tests.python.test_claims import ENTRIES, compared

from xsmmu.errors import GuestError, UserError
from xsmmu_lab import project
from xsmmu_lab.arch import AMD64
from xsmmu_lab.report import view
from xsmmu_lab.runs import experiment, results, run
from xsmmu_lab.vm.guest import Boot


def summary() -> dict[str, Any]:
    """A small valid summary, with made-up figures."""
    run = {
        "workload": "micro",
        "policy": "fused",
        "ring": 64,
        "driver": "unmodified",
        "level": "held",
        "pages_mapped": 1,
        "pages_unmapped": 1,
        "map_instructions_per_page": 1.0,
        "unmap_instructions_per_page": 1.0,
        "invalidations": {"page": 1, "domain": 0, "global": 0},
        "oracle_invalidations": {"page": 1, "domain": 0, "global": 0},
        "invalidations_per_page": 1.0,
        "exposure_us": None,
        "throughput": None,
        "relative_to_passthrough": None,
    }
    return {
        "schema": 1,
        "time": "2026-01-01T00:00:00+00:00",
        "commit": "made-up",
        "kernel": "0.0",
        "iommu": "made-up",
        "qemu": "0.0",
        "accel": "tcg-icount",
        "experiment": "compare",
        "command": "xsmmu lab run",
        "versions": {},
        "runs": [run],
    }


def test_finished_results_are_the_latest(tmp_path: Path) -> None:
    for _ in range(2):
        with results.Results(tmp_path) as folder:
            (folder.folder / "net.jsonl").write_text("{}\n")
            folder.write(summary())
            final = folder.finish()
        assert (tmp_path / "latest").resolve() == final
        assert results.load(tmp_path / "latest") == summary()
        assert (final / "net.jsonl").exists()
    assert len([path for path in tmp_path.iterdir() if not path.is_symlink()]) == 2


@pytest.mark.parametrize("error", [UserError("stopped by SIGTERM"), KeyboardInterrupt()])
def test_a_failed_run_leaves_nothing(tmp_path: Path, error: BaseException) -> None:
    with pytest.raises(type(error)), results.Results(tmp_path) as folder:
        (folder.folder / "net.jsonl").write_text("{}\n")
        raise error
    assert list(tmp_path.iterdir()) == []


def test_the_logs_of_the_last_failed_guest_are_kept(tmp_path: Path) -> None:
    for text in ("first", "second"):
        with (
            pytest.raises(GuestError, match=r"hangs; its files are in .*failed"),
            results.Results(tmp_path) as folder,
        ):
            (folder.folder / "net.console.log").write_text(text)
            raise GuestError("guest net: hangs")
    assert [path.name for path in tmp_path.iterdir()] == ["failed"]
    assert (tmp_path / "failed/net.console.log").read_text() == "second"


def test_an_invalid_summary_is_no_result_and_is_kept(tmp_path: Path) -> None:
    broken = summary()
    broken["runs"][0]["level"] = "safe"
    with pytest.raises(UserError, match=r"\$\.runs\[0\]\.level"), results.Results(tmp_path) as folder:
        folder.write(broken)
    assert [path.name for path in tmp_path.iterdir()] == ["failed"]
    assert json.loads((tmp_path / "failed/summary.json").read_text()) == broken


def test_what_a_killed_run_left_is_removed_and_a_living_run_is_not(tmp_path: Path) -> None:
    abandoned = tmp_path / ".partial-2026-01-01T00-00-00Z-1"
    abandoned.mkdir()
    with results.Results(tmp_path) as living:
        assert not abandoned.exists()
        pid = os.fork()
        if pid == 0:
            results._remove_abandoned(tmp_path)
            os._exit(0)
        os.waitpid(pid, 0)
        assert living.folder.exists()


def test_missing_or_broken_results_are_explained(tmp_path: Path) -> None:
    with pytest.raises(UserError, match=r"does not exist.*xsmmu lab run"):
        results.load(tmp_path)
    (tmp_path / "summary.json").write_text("{")
    with pytest.raises(UserError, match="is no summary"):
        results.load(tmp_path)
    (tmp_path / "summary.json").write_text(json.dumps({"schema": 2}))
    with pytest.raises(UserError, match=r"does not fit results\.schema\.json"):
        results.load(tmp_path)


class Read(dict[str, Any]):
    """An object of a summary that records accesses to its fields."""

    def __init__(self, data: dict[str, Any], path: str, asked: set[str]) -> None:
        def noting(value: Any, place: str) -> Any:
            if isinstance(value, list):
                return [noting(each, place) for each in value]
            return Read(value, place, asked) if isinstance(value, dict) else value

        super().__init__({key: noting(value, f"{path}{key}.") for key, value in data.items()})
        self.path, self.asked = path, asked

    def get(self, key: str, default: Any = None) -> Any:
        self.asked.add(f"{self.path}{key}")
        return super().get(key, default)


def described(place: str) -> bool:
    """Whether the schema has this field of a summary, or leaves the content open."""
    schema = json.loads(results.SCHEMA_PATH.read_text())
    at = schema
    for part in place.split("."):
        at = at.get("items", at)
        at = schema["$defs"][at["$ref"].rpartition("/")[2]] if "$ref" in at else at
        if "properties" not in at:
            return "object" in at["type"]
        if part not in at["properties"]:
            return False
        at = at["properties"][part]
    return True


def test_what_is_shown_is_in_the_schema(synthetic: dict[str, Any]) -> None:
    """Other readers use the schema; the report has its own reader, which also accepts partial summaries."""
    asked: set[str] = set()
    synthetic["runs"][0]["repeats"] = {"runs": 3, "cost": [1.0, 2.0], "relative_to_passthrough": [1.0, 2.0]}
    synthetic["claims"] = [compared(ENTRIES)]
    view.read(Read(synthetic, "", asked))
    assert asked >= {"accel", "runs.cost.value", "runs.attack.last_landed_ns", "runs.repeats.cost"}
    assert asked >= {"claims.systems.published", "claims.statements.checks.terms"}
    assert {place for place in asked if not described(place)} == set()
    assert not described("runs.price")
    assert not described("claims.statements.says.so")


def test_a_tree_that_changes_meanwhile_is_of_no_commit(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Else results of the tree before the change would count for the tree after, and not be run again."""
    versions = dict.fromkeys([AMD64.qemu_package], "1:11.0.0-1")
    fields: tuple[Any, ...] = (
        SimpleNamespace(arch=AMD64, versions=versions),
        SimpleNamespace(version="6.12.1-1"),
        "6.12.1-amd64",
    )

    made_by: Any = run._summary

    def of(began_at: str, now: str) -> str:
        monkeypatch.setattr(run, "commit", lambda: now)
        made = made_by("tcg", experiment.load("matrix"), *fields, results.Results(tmp_path), [], began_at)
        return str(made["commit"])

    assert of("abc", "abc") == "abc"
    assert of("abc", "def") == of("abc", "abc-dirty") == "abc-dirty"
    assert of("abc-dirty", "def") == "abc-dirty" and of("unknown", "def") == "unknown"
    assert [project.is_named(each) for each in ("abc", "abc-dirty", "unknown")] == [True, False, False]


def test_the_commit_is_that_before_anything_is_built(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    tree = ["abc"]
    given: list[object] = []

    def build(*_: object) -> list[Path]:
        tree[0] = "def"
        return []

    async def run_guests(*_: object) -> list[object]:
        return [SimpleNamespace(spent=[], measured=[], identities=[], release="6.12")]

    def make(*arguments: object) -> None:
        given.extend(arguments)
        raise UserError("enough")

    for name, instead in {
        "commit": lambda: tree[0],
        "modules": build,
        "_need_space": lambda *_: None,
        "_accel": lambda *_: "tcg",
        "_boot": lambda *_: Boot(tmp_path, tmp_path),
        "_run_guests": run_guests,
        "_summary": make,
    }.items():
        monkeypatch.setattr(run, name, instead)
    monkeypatch.setattr("xsmmu_lab.setup.root.ensure", lambda *_: None)
    monkeypatch.setattr("xsmmu_lab.setup.kernels.ensure", lambda *_: None)
    monkeypatch.setenv("XSMMU_CACHE", str(tmp_path / "cache"))
    with pytest.raises(UserError, match="enough"):
        run.run(run.Options(quick=True, output=tmp_path), Console(quiet=True))
    assert given[-1] == "abc"


def test_the_commit_of_a_checkout(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(project, "PROJECT", tmp_path)
    monkeypatch.setenv("GIT_CEILING_DIRECTORIES", str(tmp_path.parent))
    assert project.commit() == "unknown"

    def git(*words: str) -> None:
        command = ["git", "-C", str(tmp_path), "-c", "user.name=a", "-c", "user.email=a@example", *words]
        subprocess.run(command, check=True, capture_output=True)

    git("init")
    assert project.commit() == "unknown"
    (tmp_path / "file").write_text("1")
    git("add", "file")
    git("commit", "-m", "x")
    head = project.commit()
    assert len(head) == 40
    (tmp_path / "untracked").write_text("")
    assert project.commit() == head
    (tmp_path / "file").write_text("2")
    assert project.commit() == f"{head}-dirty"
    git("checkout", "file")
    assert project.commit() == head
    # git cannot tell the differences.
    (tmp_path / ".git" / "index").write_text("junk")
    assert project.commit() == f"{head}-dirty"
    monkeypatch.setenv("PATH", str(tmp_path))
    assert project.commit() == "unknown"
