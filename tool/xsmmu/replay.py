# SPDX-License-Identifier: GPL-2.0-only
"""`xsmmu replay`: what recorded DMA traffic would cost under each policy, and what it would expose.

The program xsmmu-replay runs the module's engine on a recording; no device and no module is needed. A file and a
policy are a unit of work, with one output file in the cache folder, named by a hash of its inputs: the recording, the
program and the options. So a run that was killed goes on where it ended, and the same question is answered at once.
"""

from __future__ import annotations

import hashlib
import json
import os
import re
import shlex
import subprocess
import tempfile
import threading
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import FIRST_COMPLETED, Future, ThreadPoolExecutor, wait
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import click

from xsmmu import guide, output, programs, replay_page, replayed
from xsmmu.digits import short
from xsmmu.errors import UserError, unknown_name
from xsmmu.replayed import KERNEL

POLICIES: Final = (*KERNEL, *guide.POLICIES)
DEFAULT: Final = ",".join(name for name in POLICIES if name not in guide.RESEARCH)
WAITING: Final = ("xsmmu", "fused", "fused-identity", "fands")
"""Policies that wait for the flush of a batch-aware driver."""
AWARE: Final = "+aware"
"""Behind the name of such a policy in --policy: only as if the driver were batch-aware."""
PRINTED: Final = {"parallel": (), "slurm": ("sbatch", "--job-name=xsmmu-replay", "--cpus-per-task=1", "--wrap")}
"""Forms of printed commands, with the words before a command; sbatch wants the command as one word."""
PROGRAM: Final = "xsmmu-replay"
BROKEN, USAGE, FILE = 1, 2, 3
"""Exit statuses of the program."""

Result = dict[str, Any]


@dataclass(frozen=True)
class Unit:
    """A recording under a policy."""

    file: Path
    policy: str
    aware: bool

    @property
    def name(self) -> str:
        """The policy, for people."""
        return f"{self.policy} (aware)" if self.aware else self.policy

    @property
    def word(self) -> str:
        """The policy as in --policy."""
        return self.policy + AWARE * self.aware

    def words(self) -> list[str]:
        """Arguments of the program besides the file."""
        return ["--policy", self.policy, *(["--aware"] if self.aware else [])]


# -- the cache -------------------------------------------------------------------------------------


def digest(file: Path) -> str:
    """Hash of a file's content; an error if the file cannot be read."""
    try:
        with file.open("rb") as stream:
            return hashlib.file_digest(stream, "sha256").hexdigest()
    except FileNotFoundError:
        raise UserError(f"{file} does not exist: name a recording of xsmmu record", code="no-file") from None
    except OSError as error:
        raise UserError(f"cannot read {file} ({error.strerror}): name a readable recording", code="no-file") from None


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
            return json.loads(text) if kept["sha256"] == _hash(text) else None
        except (OSError, ValueError, KeyError, TypeError):
            return None

    def put(self, key: str, result: Result) -> None:
        """Keep a result; readers see a whole file or none."""
        text = json.dumps(result)
        handle, name = tempfile.mkstemp(dir=self.folder, prefix=f".{key}.")
        try:
            with os.fdopen(handle, "w") as stream:
                json.dump({"sha256": _hash(text), "result": text}, stream)
                stream.flush()
                os.fsync(stream.fileno())
            Path(name).replace(self._file(key))
        except BaseException:
            Path(name).unlink(missing_ok=True)
            raise


def _hash(text: str) -> str:
    return hashlib.sha256(text.encode()).hexdigest()


def key_of(unit: Unit, recording: str, tool: str) -> str:
    """Name of the unit's output file; `recording` and `tool` are hashes of the file and of the program."""
    return _hash("\0".join([recording, tool, *unit.words()]))


# -- runs ------------------------------------------------------------------------------------------


class Runner:
    """Runs the program; `stop` ends all of its processes."""

    def __init__(self, tool: Path) -> None:
        self.tool = tool
        self._running: set[subprocess.Popen[str]] = set()
        self._lock = threading.Lock()
        self._stopped = False

    def run(self, unit: Unit, progress: Callable[[int], None]) -> Result:
        """The figures of a unit; `progress` gets the number of events so far."""
        lines: list[str] = []
        with self._started(unit) as process:
            reader = threading.Thread(target=_read_errors, args=(process, progress, lines))
            reader.start()
            text = process.stdout.read() if process.stdout else ""
            status = process.wait()
            reader.join()
        if status:
            raise _failed(unit, status, lines)
        found: Result = json.loads(text)
        return found

    @contextmanager
    def _started(self, unit: Unit) -> Iterator[subprocess.Popen[str]]:
        argv = [str(self.tool), str(unit.file), *unit.words(), "--progress"]
        with self._lock:
            if self._stopped:
                raise UserError("stopped", code="stopped")
            process = subprocess.Popen(
                argv, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
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


def _read_errors(process: subprocess.Popen[str], progress: Callable[[int], None], lines: list[str]) -> None:
    for line in process.stderr or ():
        if match := re.fullmatch(r"events (\d+)\n", line):
            progress(int(match[1]))
        else:
            lines.append(line.rstrip("\n"))


def _failed(unit: Unit, status: int, lines: Sequence[str]) -> UserError:
    said = lines[-1].removeprefix(f"{PROGRAM}: ") if lines else ""
    if status == FILE:
        return UserError(said or f"{unit.file} cannot be replayed", code="bad-recording")
    if status == BROKEN:
        return UserError(
            f"{unit.name}: {said}. This is a fault of xsmmu: please report it with the recording", code="broken"
        )
    how = f"ended with status {status}" if status > 0 else f"was killed by signal {-status}"
    return UserError(f"{unit.name}: {PROGRAM} {how}", lines, code="failed")


def replay_all(units: Sequence[Unit], cache: Cache, jobs: int, tool: Path) -> dict[Unit, Result]:
    """The results of all units, from the cache or by runs; results stay in the cache if another unit fails."""
    hashes = {file: digest(file) for file in dict.fromkeys(unit.file for unit in units)}
    keys = {unit: key_of(unit, hashes[unit.file], digest(tool)) for unit in units}
    found = {unit: result for unit in units if (result := cache.get(keys[unit])) is not None}
    runner = Runner(tool)

    def run(unit: Unit, progress: Callable[[int], None]) -> Result:
        result = runner.run(unit, progress)
        cache.put(keys[unit], result)
        return result

    missing = [unit for unit in units if unit not in found]
    with _shown(len(units), len(found)) as show, ThreadPoolExecutor(jobs) as pool:
        futures = {pool.submit(run, unit, show.of(unit)): unit for unit in missing}
        try:
            _collect(futures, found, show)
        except BaseException:
            runner.stop()
            pool.shutdown(cancel_futures=True)
            raise
    return {unit: found[unit] for unit in units}


def _collect(futures: Mapping[Future[Result], Unit], found: dict[Unit, Result], show: _Show) -> None:
    waiting = set(futures)
    while waiting:
        done, waiting = wait(waiting, return_when=FIRST_COMPLETED)
        for future in done:
            found[futures[future]] = future.result()
            show.done(futures[future])


# -- progress --------------------------------------------------------------------------------------


class _Show:
    """A bar of units on standard error, with the events of running units."""

    def __init__(self, total: int, done: int) -> None:
        from rich.console import Console
        from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn

        console = Console(stderr=True)
        columns = (TextColumn("replaying"), BarColumn(), MofNCompleteColumn(), TimeElapsedColumn())
        self.progress = Progress(
            *columns, TextColumn("{task.description}"), console=console, disable=not console.is_terminal
        )
        self._task = self.progress.add_task("", total=total, completed=done)
        self._events: dict[Unit, int] = {}

    def of(self, unit: Unit) -> Callable[[int], None]:
        """A function that gets the unit's number of events."""

        def events(count: int) -> None:
            self._events[unit] = count
            self._describe()

        return events

    def done(self, unit: Unit) -> None:
        """A unit has ended."""
        self._events.pop(unit, None)
        self.progress.advance(self._task)
        self._describe()

    def _describe(self) -> None:
        running = [f"{unit.name}: {short(count)} events" for unit, count in [*self._events.items()]]
        self.progress.update(self._task, description=", ".join(running))


@contextmanager
def _shown(total: int, done: int) -> Iterator[_Show]:
    show = _Show(total, done)
    with show.progress:
        yield show


# -- the command -----------------------------------------------------------------------------------


def units_of(recordings: Iterable[Path], names: Sequence[str], aware: bool) -> list[Unit]:
    """All units, in the order of the table."""
    wanted: list[tuple[str, bool]] = []
    for name in names:
        policy = name.removesuffix(AWARE)
        if policy not in POLICIES:
            raise unknown_name("policy", name, POLICIES)
        if name != policy and policy not in WAITING:
            raise UserError(f"{policy} is the same with batch-aware drivers: leave out {AWARE}", code="usage")
        wanted.append((policy, name != policy))
        if aware and policy in WAITING:
            wanted.append((policy, True))
    return [Unit(file, *each) for file in recordings for each in dict.fromkeys(wanted)]


def commands(units: Iterable[Unit], cache: Path, form: str) -> Iterator[str]:
    """A command line for each unit, which fills the cache from any folder."""
    for unit in dict.fromkeys(units):
        words = ["xsmmu", "replay", str(unit.file.absolute()), "--policy", unit.word]
        line = shlex.join([*words, "--cache", str(cache.absolute()), "--jobs", "1"])
        yield shlex.join([*PRINTED[form], line]) if PRINTED[form] else line


def cache_folder() -> Path:
    """The folder of results if the user names none."""
    return Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "xsmmu/replay"


@click.command()
@click.argument("recordings", metavar="FILE...", nargs=-1, required=True, type=click.Path(path_type=Path))
@click.option("--policy", "policies", metavar="LIST", default=DEFAULT, show_default=True, help="Policies and modes.")
@click.option("--aware", is_flag=True, help="Also replay as if the drivers were batch-aware, where it matters.")
@click.option("--jobs", type=click.IntRange(1, 1024), metavar="N", help="Replays at the same time; default: CPUs.")
@click.option("--cache", "folder", type=click.Path(path_type=Path), help="Folder of results; default: ~/.cache/xsmmu.")
@click.option("--html", "page", type=click.Path(path_type=Path), help="Also write a page: a picture, table and notes.")
@click.option(
    "--print", "printed", type=click.Choice([*PRINTED]), help="Print a command for each replay, for a cluster."
)
@output.option
def replay(
    recordings: tuple[Path, ...],
    policies: str,
    aware: bool,
    jobs: int | None,
    folder: Path | None,
    page: Path | None,
    printed: str | None,
    form: str,
) -> None:
    """Replay recorded DMA traffic under each policy.

    FILE is a recording of `xsmmu record`, from any machine. The module's engine runs here in the recording's time, and
    the kernel's two modes by a model; neither the module nor a device is used. Finished results are kept: the same
    command continues after a stop.

    POLICY+aware in --policy replays only as if the drivers were batch-aware. --print makes commands that fill the
    folder of --cache; afterwards the same command without --print shows all results.

    \b
    Examples:
      xsmmu replay eth1.xsr
      xsmmu replay eth1.xsr --policy kernel-lazy,fused --aware
      xsmmu replay eth1.xsr --aware --html eth1.html
      xsmmu replay *.xsr --jobs 8 -o json > results.json
      xsmmu replay *.xsr --print parallel | parallel -j 8
      xsmmu replay *.xsr --cache /shared/replays --print slurm | sh
    """
    units = units_of(recordings, [name for name in policies.split(",") if name], aware)
    if not units:
        raise UserError("--policy names no policy: name at least one", code="usage")
    if printed:
        if page or form != "table":
            raise UserError("--print excludes --html and -o: run the same command without --print later", code="usage")
        for line in commands(units, folder or cache_folder(), printed):
            click.echo(line)
        return
    if page:
        replay_page.check(page, recordings)
    found = replay_all(units, Cache(folder or cache_folder()), jobs or os.cpu_count() or 1, programs.find(PROGRAM))
    results = [{"file": str(unit.file), **result} for unit, result in found.items()]
    if page:
        replay_page.write(page, results)
    if form == "table":
        replayed.print_tables(results)
    else:
        output.emit(form, "replay", "replays", results)
