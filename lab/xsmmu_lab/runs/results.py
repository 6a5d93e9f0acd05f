# SPDX-License-Identifier: GPL-2.0-only
"""A results folder: written under a hidden name, renamed when complete and valid, and only then `latest`.

results/<UTC time>/ holds the guests' raw JSON lines, consoles and QEMU's own output, and summary.json. A killed run
leaves at most a hidden folder, which the next run removes.
"""

from __future__ import annotations

import fcntl
import json
import os
import shutil
from datetime import UTC, datetime
from pathlib import Path
from types import TracebackType
from typing import Any

import jsonschema

from xsmmu.errors import GuestError, UserError
from xsmmu_lab.project import LAB

SCHEMA_PATH = LAB / "results.schema.json"
SUMMARY = "summary.json"
LATEST = "latest"
FAILED = "failed"
_PARTIAL = ".partial-"


class Results:
    """The folder of one run, as a context manager: kept only if `finish` was called."""

    def __init__(self, parent: Path) -> None:
        self.parent = parent
        self.time = datetime.now(UTC)
        self._name = self.time.strftime("%Y-%m-%dT%H-%M-%SZ")
        self.folder = parent / f"{_PARTIAL}{self._name}-{os.getpid()}"
        self._lock: int | None = None

    def __enter__(self) -> Results:
        self.parent.mkdir(parents=True, exist_ok=True)
        _remove_abandoned(self.parent)
        self.folder.mkdir()
        self._lock = os.open(self.folder, os.O_RDONLY | os.O_DIRECTORY)
        fcntl.flock(self._lock, fcntl.LOCK_EX)
        return self

    def __exit__(
        self, _type: type[BaseException] | None, error: BaseException | None, _trace: TracebackType | None
    ) -> None:
        if self.folder.name.startswith(_PARTIAL):
            if isinstance(error, GuestError):
                self._keep_logs(error)
            shutil.rmtree(self.folder, ignore_errors=True)
        if self._lock is not None:
            os.close(self._lock)

    def write(self, summary: dict[str, Any]) -> None:
        """Write the summary and validate it; an invalid summary is kept with the logs of the run."""
        (self.folder / SUMMARY).write_text(json.dumps(summary, indent=1) + "\n")
        try:
            validate(summary)
        except UserError as error:
            raise GuestError(error.message, error.lines) from None

    def finish(self) -> Path:
        """Rename the folder and point `latest` to it; returns the folder."""
        target = self._free_name()
        self.folder.rename(target)
        self.folder = target
        link = self.parent / f".{LATEST}-{os.getpid()}"
        link.unlink(missing_ok=True)
        link.symlink_to(target.name)
        link.replace(self.parent / LATEST)
        return target

    def _keep_logs(self, error: GuestError) -> None:
        """Keep the logs of a failed guest, which are no results; only those of the last failure are kept."""
        failed = self.parent / FAILED
        shutil.rmtree(failed, ignore_errors=True)
        self.folder.rename(failed)
        error.message += f"; its files are in {failed}"

    def _free_name(self) -> Path:
        target, number = self.parent / self._name, 1
        while target.exists():
            number += 1
            target = self.parent / f"{self._name}.{number}"
        return target


def _remove_abandoned(parent: Path) -> None:
    """Remove the folders of killed runs; a live run holds its folder's lock."""
    for folder in parent.glob(f"{_PARTIAL}*"):
        try:
            lock = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
        except FileNotFoundError:
            continue
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
            shutil.rmtree(folder, ignore_errors=True)
        except BlockingIOError:
            pass
        finally:
            os.close(lock)


def validate(summary: Any) -> None:
    """Raise unless the summary fits lab/results.schema.json."""
    schema = json.loads(SCHEMA_PATH.read_text())
    error = jsonschema.exceptions.best_match(jsonschema.Draft202012Validator(schema).iter_errors(summary))
    if error is not None:
        raise UserError(f"the summary does not fit {SCHEMA_PATH.name}: {error.json_path}: {error.message}")


def load(folder: Path) -> dict[str, Any]:
    """Read the summary from a results folder or from the file itself."""
    path = folder / SUMMARY if folder.is_dir() else folder
    try:
        summary: dict[str, Any] = json.loads(path.read_text())
    except FileNotFoundError:
        raise UserError(f"{path} does not exist: name a folder that `xsmmu lab run` wrote, or run it first") from None
    except ValueError as error:
        raise UserError(f"{path} is no summary: {error}") from None
    try:
        validate(summary)
    except UserError as error:
        raise UserError(f"{path}: {error.message}: repeat the run with this version") from None
    return summary
