# SPDX-License-Identifier: GPL-2.0-only
"""A pytest plugin (`-p tests.python.resume`): a run that was interrupted goes on where it was.

What has passed is written down at once, by the sources' digest; a later run of the same sources leaves it out. A change
of any file of the project begins anew, and so does a run in which everything has passed.
"""

from __future__ import annotations

import hashlib
import json
import subprocess
from pathlib import Path

import pytest

from xsmmu_lab.project import PROJECT
from xsmmu_lab.setup import host


def digest(folder: Path = PROJECT) -> str:
    """Of the files in a checkout that git knows or would add, by name and content."""
    command = ["git", "-C", str(folder), "ls-files", "-z", "--cached", "--others", "--exclude-standard"]
    names = subprocess.run(command, capture_output=True, check=True).stdout.split(b"\0")
    whole = hashlib.sha256()
    for name in sorted(filter(None, names)):
        path = folder / name.decode()
        if path.is_file():
            whole.update(name + b"\0" + hashlib.sha256(path.read_bytes()).digest())
    return whole.hexdigest()[:16]


class Passed:
    """The tests that have passed, in a file."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.names: set[str] = set(json.loads(path.read_text())) if path.exists() else set()

    def add(self, name: str) -> None:
        """Write one more down."""
        self.names.add(name)
        part = self.path.with_suffix(".tmp")
        part.write_text(json.dumps(sorted(self.names), indent=1) + "\n")
        part.rename(self.path)

    def forget(self) -> None:
        """Begin anew."""
        self.path.unlink(missing_ok=True)

    def pytest_collection_modifyitems(self, config: pytest.Config, items: list[pytest.Item]) -> None:
        """Leave out what has passed, after all else was selected."""
        done = [item for item in items if item.nodeid in self.names]
        if done:
            config.hook.pytest_deselected(items=done)
            items[:] = [item for item in items if item.nodeid not in self.names]

    def pytest_report_collectionfinish(self) -> str | None:
        """Say so."""
        return f"resumed: {len(self.names)} passed before ({self.path})" if self.names else None

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        """One has ended."""
        if report.when == "call" and report.passed:
            self.add(report.nodeid)

    def pytest_sessionfinish(self, session: pytest.Session, exitstatus: int) -> None:
        """All have passed, now or before: the next run is a new one."""
        if exitstatus in (pytest.ExitCode.OK, pytest.ExitCode.NO_TESTS_COLLECTED) and not session.testsfailed:
            self.forget()


def pytest_configure(config: pytest.Config) -> None:
    """Register with the file of these sources."""
    folder = host.cache_dir()
    folder.mkdir(parents=True, exist_ok=True)
    config.pluginmanager.register(Passed(folder / f"test-long-{digest()}.json"))
