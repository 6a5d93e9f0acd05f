# SPDX-License-Identifier: GPL-2.0-only
"""Units of work: long lists of runs of a program, here and on other machines.

A unit is one command with one output file, which is named by a hash of the unit's inputs and has a checksum. So a run
that was killed goes on where it ended, the same question is answered at once, and units may run anywhere.
"""

from __future__ import annotations

import contextlib
import hashlib
import json
import os
import re
import shlex
import subprocess
import tempfile
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import FIRST_COMPLETED, Future, ThreadPoolExecutor, wait
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Final, Generic, Protocol, TypeVar

from xsmmu.digits import short
from xsmmu.errors import UserError

PRINTED: Final = {"parallel": (), "slurm": ("sbatch", "--job-name=xsmmu", "--cpus-per-task=1", "--wrap")}
"""Forms of printed commands, with the words before a command; sbatch wants the command as one word."""

Result = dict[str, Any]
Progress = Callable[[int], None]
"""Gets the number of events of a unit so far."""


class Unit(Protocol):
    """A command; equal units are the same work."""

    @property
    def name(self) -> str:
        """For people."""


U = TypeVar("U", bound=Unit)
U_contra = TypeVar("U_contra", bound=Unit, contravariant=True)


class Worker(Protocol[U_contra]):
    """Does units, several at the same time."""

    def run(self, unit: U_contra, progress: Progress) -> Result:
        """Do a unit."""

    def stop(self) -> None:
        """End what runs; nothing new starts."""


# -- the cache -------------------------------------------------------------------------------------


def digest(file: Path, wanted: str) -> str:
    """Hash of a file's content; an error that asks for `wanted` if the file cannot be read."""
    try:
        with file.open("rb") as stream:
            return hashlib.file_digest(stream, "sha256").hexdigest()
    except FileNotFoundError:
        raise UserError(f"{file} does not exist: name {wanted}", code="no-file") from None
    except OSError as error:
        raise UserError(f"cannot read {file} ({error.strerror}): name a readable file", code="no-file") from None


def stamp(file: Path) -> tuple[int, ...]:
    """Changes with the file's content; the same, empty one for files that cannot be read."""
    try:
        found = file.stat()
    except OSError:
        return ()
    return found.st_dev, found.st_ino, found.st_size, found.st_mtime_ns


def hash_of(*words: str) -> str:
    """Hash of words."""
    return hashlib.sha256("\0".join(words).encode()).hexdigest()


def folder_of(name: str) -> Path:
    """The folder of results of a command if the user names none."""
    return Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "xsmmu" / name


class Cache:
    """Results by the hash of their inputs."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        try:
            folder.mkdir(parents=True, exist_ok=True)
        except OSError as error:
            raise UserError(
                f"cannot make {folder} ({error.strerror}): choose a folder with --cache", code="no-file"
            ) from None

    def _file(self, key: str) -> Path:
        return self.folder / f"{key}.json"

    def get(self, key: str) -> Result | None:
        """A result; None if there is none, or if its file is damaged."""
        try:
            kept = json.loads(self._file(key).read_text())
            text = kept["result"]
            return json.loads(text) if kept["sha256"] == hash_of(text) else None
        except (OSError, ValueError, KeyError, TypeError):
            return None

    def put(self, key: str, result: Result) -> None:
        """Keep a result; readers see a whole file or none."""
        text = json.dumps(result)
        try:
            self._write(key, text)
        except OSError as error:
            raise UserError(
                f"cannot write a result in {self.folder} ({error.strerror}): make room, or choose a folder with "
                "--cache; results that are there stay",
                code="no-file",
            ) from None

    def _write(self, key: str, text: str) -> None:
        handle, name = tempfile.mkstemp(dir=self.folder, prefix=f".{key}.")
        try:
            with os.fdopen(handle, "w") as stream:
                json.dump({"sha256": hash_of(text), "result": text}, stream)
                stream.flush()
                os.fsync(stream.fileno())
            Path(name).replace(self._file(key))
        except BaseException:
            Path(name).unlink(missing_ok=True)
            raise


# -- processes -------------------------------------------------------------------------------------


class Processes:
    """Processes of a program; `stop` ends all of them."""

    def __init__(self) -> None:
        self._running: set[subprocess.Popen[str]] = set()
        self._lock = threading.Lock()
        self._stopped = False

    def run(self, argv: Sequence[str], progress: Progress, given: str = "") -> tuple[int, str, list[str]]:
        """Status, output, and lines of errors but for the numbers of events, which go to `progress`."""
        lines: list[str] = []
        with self._started(argv) as process:
            reader = threading.Thread(target=_read_errors, args=(process, progress, lines))
            reader.start()
            if process.stdin:
                # A program that refuses its first line does not read the others.
                with contextlib.suppress(BrokenPipeError), process.stdin as stream:
                    stream.write(given)
            text = process.stdout.read() if process.stdout else ""
            status = process.wait()
            reader.join()
        return status, text, lines

    @contextmanager
    def _started(self, argv: Sequence[str]) -> Iterator[subprocess.Popen[str]]:
        with self._lock:
            if self._stopped:
                raise UserError("stopped", code="stopped")
            # A name of a file, and the header of a recording, may be no UTF-8.
            process = subprocess.Popen(
                argv,
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=subprocess.PIPE,
                encoding="utf-8",
                errors="replace",
            )
            self._running.add(process)
        try:
            yield process
        finally:
            process.kill()
            process.wait()
            with self._lock:
                self._running.discard(process)

    def stop(self) -> None:
        """End all processes; no new one starts."""
        with self._lock:
            self._stopped = True
            for process in self._running:
                process.kill()


class Runner:
    """A program that does units; `stop` ends all of its processes."""

    def __init__(self, tool: Path) -> None:
        self.tool = tool
        self._processes = Processes()

    def stop(self) -> None:
        """End all processes; no new one starts."""
        self._processes.stop()


def _read_errors(process: subprocess.Popen[str], progress: Progress, lines: list[str]) -> None:
    for line in process.stderr or ():
        if match := re.fullmatch(r"events (\d+)\n", line):
            progress(int(match[1]))
        else:
            lines.append(line.rstrip("\n"))


def ended(program: str, status: int) -> str:
    """How a program has ended, for people."""
    return f"{program} ended with status {status}" if status > 0 else f"{program} was killed by signal {-status}"


# -- all units -------------------------------------------------------------------------------------


def run_all(keys: Mapping[U, str], cache: Cache, jobs: int, worker: Worker[U], doing: str) -> dict[U, Result]:
    """The results of all units, from the cache or by work; results stay in the cache if another unit fails.

    `keys` has the name of each unit's file; `doing` is the word before the bar.
    """
    found = {unit: result for unit, key in keys.items() if (result := cache.get(key)) is not None}

    def run(unit: U, progress: Progress) -> Result:
        result = worker.run(unit, progress)
        cache.put(keys[unit], result)
        return result

    missing = [unit for unit in keys if unit not in found]
    with _shown(doing, len(keys), len(found)) as show, ThreadPoolExecutor(jobs) as pool:
        futures = {pool.submit(run, unit, show.of(unit)): unit for unit in missing}
        try:
            _collect(futures, found, show)
        except BaseException:
            worker.stop()
            pool.shutdown(cancel_futures=True)
            raise
    return {unit: found[unit] for unit in keys}


def _collect(futures: Mapping[Future[Result], U], found: dict[U, Result], show: _Show[U]) -> None:
    waiting = set(futures)
    while waiting:
        done, waiting = wait(waiting, return_when=FIRST_COMPLETED)
        for future in done:
            found[futures[future]] = future.result()
            show.done(futures[future])


def wrapped(words: Sequence[str], form: str) -> str:
    """A printed command line for another machine, in one of the forms of PRINTED."""
    line = shlex.join(words)
    return shlex.join([*PRINTED[form], line]) if PRINTED[form] else line


# -- progress --------------------------------------------------------------------------------------


class _Show(Generic[U]):
    """A bar of units on standard error, with the events of running units."""

    def __init__(self, doing: str, total: int, done: int) -> None:
        from rich.console import Console
        from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn

        console = Console(stderr=True)
        columns = (TextColumn(doing), BarColumn(), MofNCompleteColumn(), TimeElapsedColumn())
        self.progress = Progress(
            *columns, TextColumn("{task.description}"), console=console, disable=not console.is_terminal
        )
        self._task = self.progress.add_task("", total=total, completed=done)
        self._events: dict[U, int] = {}

    def of(self, unit: U) -> Progress:
        """A function that gets the unit's number of events."""

        def events(count: int) -> None:
            self._events[unit] = count
            self._describe()

        return events

    def done(self, unit: U) -> None:
        """A unit has ended."""
        self._events.pop(unit, None)
        self.progress.advance(self._task)
        self._describe()

    def _describe(self) -> None:
        running = [f"{unit.name}: {short(count)} events" for unit, count in [*self._events.items()]]
        self.progress.update(self._task, description=", ".join(running))


@contextmanager
def _shown(doing: str, total: int, done: int) -> Iterator[_Show[Any]]:
    show: _Show[Any] = _Show(doing, total, done)
    with show.progress:
        yield show
