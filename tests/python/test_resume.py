# SPDX-License-Identifier: GPL-2.0-only
"""Interrupted long tests: passed tests are not run again, until all have passed or a source changes."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

from tests.python.resume import Passed, digest

TEST = """
from pathlib import Path
import pytest

@pytest.mark.parametrize("name", ["a", "b", "c"])
def test_it(name):
    with Path("ran").open("a") as ran:
        ran.write(name)
    assert name != "b" or not Path("broken").exists()
"""

CONFTEST = """
from pathlib import Path
from tests.python.resume import Passed

def pytest_configure(config):
    config.pluginmanager.register(Passed(Path("passed.json")))
"""


def run(folder: Path) -> tuple[int, str, str]:
    (folder / "ran").write_text("")
    result = subprocess.run(
        [sys.executable, "-m", "pytest", "-p", "no:cacheprovider", "-n0", "--rootdir=.", "-c", "empty.ini"],
        cwd=folder,
        capture_output=True,
        text=True,
        check=False,
        env={"PYTHONPATH": ":".join(sys.path), "PATH": "/usr/bin:/bin"},
    )
    return result.returncode, (folder / "ran").read_text(), result.stdout


def test_only_what_has_not_passed_runs_again(tmp_path: Path) -> None:
    (tmp_path / "test_three.py").write_text(TEST)
    (tmp_path / "conftest.py").write_text(CONFTEST)
    (tmp_path / "empty.ini").write_text("[pytest]\n")
    (tmp_path / "broken").touch()
    assert run(tmp_path)[:2] == (1, "abc")
    code, ran, said = run(tmp_path)
    assert (code, ran) == (1, "b")
    assert "resumed: 2 passed before" in said
    (tmp_path / "broken").unlink()
    assert run(tmp_path)[:2] == (0, "b")
    # All have passed: a new run.
    assert not (tmp_path / "passed.json").exists()
    assert run(tmp_path)[:2] == (0, "abc")


def test_what_passed_is_written_down_at_once(tmp_path: Path) -> None:
    Passed(tmp_path / "passed.json").add("one")
    assert Passed(tmp_path / "passed.json").names == {"one"}


def test_a_change_begins_anew(tmp_path: Path) -> None:
    subprocess.run(["git", "init", "-q", str(tmp_path)], check=True)
    before = digest(tmp_path)
    (tmp_path / "new").write_text("1")
    middle = digest(tmp_path)
    (tmp_path / "new").write_text("2")
    assert len({before, middle, digest(tmp_path)}) == 3
