# SPDX-License-Identifier: GPL-2.0-only
"""`xsmmu replay --dask`: each replay is a command on a worker; with a stand-in for Dask, and with Dask if installed."""

from __future__ import annotations

import sys
import types
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner
from tests.python import fake_replay

from xsmmu import replay
from xsmmu.cli import app
from xsmmu.errors import UserError

POLICIES = ("kernel-lazy", "fused")


def run(*words: object) -> str:
    made = CliRunner().invoke(app, ["replay", *map(str, words)], catch_exceptions=False, standalone_mode=False)
    return made.stdout


class Future:
    def __init__(self, call: Callable[[], Any]) -> None:
        self.call = call

    def result(self) -> Any:
        return self.call()


class Client:
    """Runs a function when its result is wanted."""

    submitted: list[list[str]]
    cancelled: list[int]

    def __init__(self, address: str, **_: Any) -> None:
        if address != "tcp://head:8786":
            raise OSError("timed out")

    def __enter__(self) -> Client:
        return self

    def __exit__(self, *_: object) -> None:
        pass

    def submit(self, function: Callable[..., Any], words: list[str], **options: Any) -> Future:
        self.submitted.append(words)
        assert (options.pop("pure"), options.pop("retries")) == (False, 3)
        return Future(lambda: function(words, **options))

    def cancel(self, futures: list[Future]) -> None:
        self.cancelled.append(len(futures))


@pytest.fixture
def dask(monkeypatch: pytest.MonkeyPatch) -> type[Client]:
    fake = types.ModuleType("distributed")
    fake.Client = Client  # type: ignore[attr-defined]
    fake.as_completed = iter  # type: ignore[attr-defined]
    Client.submitted, Client.cancelled = [], []
    monkeypatch.setitem(sys.modules, "distributed", fake)
    return Client


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """The command xsmmu as a worker finds it, a recording, and a folder of results of all machines."""
    fake_replay.install(tmp_path / "programs", monkeypatch)
    worker = tmp_path / "bin" / "xsmmu"
    worker.parent.mkdir()
    worker.write_text(f'#!/bin/sh\nexec {sys.executable} -m xsmmu "$@"\n')
    worker.chmod(0o755)
    monkeypatch.setenv("PATH", f"{worker.parent}:/usr/bin:/bin")
    monkeypatch.setenv("PYTHONPATH", ":".join(sys.path))
    (tmp_path / "a.xsr").write_text("a recording")
    yield tmp_path


def words(folder: Path) -> list[object]:
    return [folder / "a.xsr", "--policy", ",".join(POLICIES), "--cache", folder / "shared", "--dask"]


def test_workers_make_all_results(folder: Path, dask: type[Client]) -> None:
    found = run(*words(folder), "tcp://head:8786")
    assert found.count("COMMANDS/PAGE") == 1
    assert len([*(folder / "shared").iterdir()]) == 2
    cache = ["--cache", str(folder / "shared"), "--jobs", "1"]
    assert [each[3:] for each in dask.submitted] == [["--policy", policy, *cache] for policy in POLICIES]
    # What is there is not done again.
    assert run(*words(folder), "tcp://head:8786") == found
    assert len(dask.submitted) == 2


def test_finished_results_stay_if_a_worker_fails(folder: Path, dask: type[Client]) -> None:
    program = folder / "programs" / replay.PROGRAM
    program.write_text(
        '#!/bin/sh\ncase "$*" in *fused*) echo "xsmmu-replay: it was so" >&2; exit 3;; esac\n'
        + "\n".join(program.read_text().splitlines()[1:])
    )
    with pytest.raises(UserError) as error:
        run(*words(folder), "tcp://head:8786")
    assert error.value.message.startswith("on a worker: ")
    assert "it was so" in "\n".join([error.value.message, *error.value.lines])
    assert dask.cancelled == [2]
    assert len([*(folder / "shared").iterdir()]) == 1


@pytest.mark.usefixtures("dask")
def test_errors_say_what_to_do(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(UserError, match="no Dask scheduler answers at tcp://nobody:1"):
        run(*words(folder), "tcp://nobody:1")
    (folder / "bin" / "xsmmu").unlink()
    with pytest.raises(UserError, match="install xsmmu and xsmmu-trace on all workers"):
        run(*words(folder), "tcp://head:8786")
    (folder / "bin" / "xsmmu").symlink_to("/bin/true")
    with pytest.raises(UserError, match="name a folder of a file system of all machines"):
        run(*words(folder), "tcp://head:8786")
    monkeypatch.setitem(sys.modules, "distributed", None)
    with pytest.raises(UserError, match="apt install python3-distributed"):
        run(*words(folder), "tcp://head:8786")


def test_real_dask(folder: Path) -> None:
    distributed = pytest.importorskip("distributed")
    with distributed.LocalCluster(
        n_workers=1, threads_per_worker=1, processes=False, dashboard_address=None, protocol="tcp"
    ) as cluster:
        assert run(*words(folder), cluster.scheduler_address).count("COMMANDS/PAGE") == 1
    assert len([*(folder / "shared").iterdir()]) == 2
