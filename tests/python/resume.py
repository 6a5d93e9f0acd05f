# SPDX-License-Identifier: GPL-2.0-only
"""A pytest plugin (`-p tests.python.resume`): an interrupted run continues where it stopped.

Passed tests are recorded at once, under the digest of the sources; a later run of the same sources skips them. A change
of any file of the project starts from scratch, as does the run after everything has passed.
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
    """A digest of the names and contents of the files that git knows or would add."""
    command = ["git", "-C", str(folder), "ls-files", "-z", "--cached", "--others", "--exclude-standard"]
    names = subprocess.run(command, capture_output=True, check=True).stdout.split(b"\0")
    whole = hashlib.sha256()
    for name in sorted(filter(None, names)):
        path = folder / name.decode()
        if path.is_file():
            whole.update(name + b"\0" + hashlib.sha256(path.read_bytes()).digest())
    return whole.hexdigest()[:16]


class Passed:
    """The passed tests, in a file."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.names: set[str] = set(json.loads(path.read_text())) if path.exists() else set()

    def add(self, name: str) -> None:
        """Record a test."""
        self.names.add(name)
        part = self.path.with_suffix(".tmp")
        part.write_text(json.dumps(sorted(self.names), indent=1) + "\n")
        part.rename(self.path)

    def forget(self) -> None:
        """Forget all passed tests."""
        self.path.unlink(missing_ok=True)

    def pytest_collection_modifyitems(self, config: pytest.Config, items: list[pytest.Item]) -> None:
        """Skip passed tests, after all other selections."""
        done = [item for item in items if item.nodeid in self.names]
        if done:
            config.hook.pytest_deselected(items=done)
            items[:] = [item for item in items if item.nodeid not in self.names]

    def pytest_report_collectionfinish(self) -> str | None:
        """Report the number of skipped tests."""
        return f"resumed: {len(self.names)} passed before ({self.path})" if self.names else None

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        """Called at the end of each test."""
        if report.when == "call" and report.passed:
            self.add(report.nodeid)

    def pytest_sessionfinish(self, session: pytest.Session, exitstatus: int) -> None:
        """All tests have passed, now or earlier: the next run starts from scratch."""
        if exitstatus in (pytest.ExitCode.OK, pytest.ExitCode.NO_TESTS_COLLECTED) and not session.testsfailed:
            self.forget()


def pytest_configure(config: pytest.Config) -> None:
    """Register with the file of these sources."""
    folder = host.cache_dir()
    folder.mkdir(parents=True, exist_ok=True)
    config.pluginmanager.register(Passed(folder / f"test-long-{digest()}.json"))
