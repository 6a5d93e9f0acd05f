# SPDX-License-Identifier: GPL-2.0-only
"""`xsmmu replay`: what recorded DMA traffic would cost under each policy, and what it would expose.

The program xsmmu-replay runs the module's engine on a recording; no device and no module is needed. A file and a
policy are a unit of work (units.py); its inputs are the recording, the program and the options.
"""

from __future__ import annotations

import functools
import json
import os
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final

import click

from xsmmu import cluster, guide, output, programs, replay_page, replayed, units
from xsmmu.errors import UserError, unknown_name
from xsmmu.replayed import KERNEL
from xsmmu.units import Cache, Result

POLICIES: Final = (*KERNEL, *guide.POLICIES)
DEFAULT: Final = ",".join(name for name in POLICIES if name not in guide.RESEARCH)
WAITING: Final = ("xsmmu", "fused", "fused-identity", "fands")
"""Policies that wait for the flush of a batch-aware driver."""
AWARE: Final = "+aware"
"""Behind the name of such a policy in --policy: only as if the driver were batch-aware."""
PROGRAM: Final = "xsmmu-replay"
COUNTING: Final = "xsmmu-replay-lines"
"""The program that counts transfers of lines."""
COUNTED: Final = 1_000_000
"""Events of which it counts, the first of a recording."""
BROKEN, USAGE, FILE = 1, 2, 3
"""Exit statuses of the program."""


@dataclass(frozen=True)
class Unit:
    """A recording under a policy."""

    file: Path
    policy: str
    aware: bool
    check: bool = False
    counts: bool = False
    """Also count transfers of lines, which the kernel's modes do not have."""

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
        checks = ["--check", "0"] if self.check and self.policy not in KERNEL else []
        return ["--policy", self.policy, *(["--aware"] if self.aware else []), *checks]

    @property
    def is_counted(self) -> bool:
        """Whether transfers of lines are counted."""
        return self.counts and self.policy not in KERNEL


def key_of(unit: Unit, recording: str, tool: str, counting: str = "") -> str:
    """Name of the unit's output file; of hashes of the file, of the program, and of the one that counts."""
    counts = [counting, str(COUNTED)] if unit.is_counted else []
    return units.hash_of(recording, tool, *unit.words(), *counts)


class Runner(units.Runner):
    """Runs the program; `stamps` are those of the files when they were hashed."""

    def __init__(self, tool: Path, stamps: Mapping[Path, tuple[int, ...]]) -> None:
        super().__init__(tool)
        self._stamps = stamps

    def run(self, unit: Unit, progress: units.Progress) -> Result:
        """The figures of a unit; `progress` gets the number of events so far."""
        found = self._figures(unit, self.tool, ("--progress",), progress)
        if unit.is_counted:
            counted = self._figures(unit, counting_tool(self.tool), ("--counts", str(COUNTED)), progress)
            found["lines"] = counted["lines"]
        return found

    def _figures(self, unit: Unit, tool: Path, words: Sequence[str], progress: units.Progress) -> Result:
        status, text, lines = self._processes.run([str(tool), str(unit.file), *unit.words(), *words], progress)
        # The result would be kept under the hash of another content.
        if units.stamp(unit.file) != self._stamps[unit.file]:
            raise UserError(f"{unit.file} changed while it was replayed: replay it when it is complete", code="no-file")
        if status:
            raise _failed(unit, status, lines)
        return _figures(text)


def counting_tool(tool: Path) -> Path:
    """The program that counts, which is beside the other."""
    return tool.with_name(COUNTING)


_SAME_VERSION: Final = f"install xsmmu and {programs.PACKAGE} of the same version"


@functools.cache
def _fields() -> frozenset[str]:
    """The figures that the program of this version prints."""
    schema = json.loads((Path(__file__).parent / "schemas/replay-1.json").read_text())
    return frozenset(schema["$defs"]["replay"]["required"]) - {"file"}


def _figures(text: str) -> Result:
    """What the program has printed; an error if it is of an older version than this tool."""
    try:
        found: Result = json.loads(text)
        missing = sorted(_fields() - found.keys())
    except (ValueError, AttributeError):
        missing = ["figures"]
    if missing:
        raise UserError(f"this {PROGRAM} has no {missing[0]}: {_SAME_VERSION}", code="not-installed")
    return found


def _failed(unit: Unit, status: int, lines: Sequence[str]) -> UserError:
    said = lines[-1].removeprefix(f"{PROGRAM}: ") if lines else ""
    if status == FILE:
        return UserError(said or f"{unit.file} cannot be replayed", code="bad-recording")
    if status == BROKEN:
        return UserError(
            f"{unit.name}: {said}. This is a fault of xsmmu: please report it with the recording", code="broken"
        )
    if status == USAGE:
        return UserError(f"this {PROGRAM} does not know the options: {_SAME_VERSION}", lines, code="not-installed")
    return UserError(f"{unit.name}: {units.ended(PROGRAM, status)}", lines, code="failed")


def keys_of(wanted: Sequence[Unit], tool: Path) -> dict[Unit, str]:
    """The name of each unit's output file."""
    files = dict.fromkeys(unit.file for unit in wanted)
    hashes = {file: units.digest(file, "a recording of xsmmu record") for file in files}
    program = units.digest(tool, "a program")
    # Beside a program of an older version there is none.
    counting = ""
    if any(unit.is_counted for unit in wanted):
        counting = units.digest(counting_tool(tool), f"{PROGRAM} and {COUNTING} of {programs.PACKAGE}")
    return {unit: key_of(unit, hashes[unit.file], program, counting) for unit in wanted}


def replay_all(wanted: Sequence[Unit], cache: Cache, jobs: int, tool: Path) -> dict[Unit, Result]:
    """The results of all units, from the cache or by runs; results stay in the cache if another unit fails."""
    runner = Runner(tool, {unit.file: units.stamp(unit.file) for unit in wanted})
    return units.run_all(keys_of(wanted, tool), cache, jobs, runner, "replaying")


def replay_on(address: str, wanted: Sequence[Unit], cache: Cache, tool: Path) -> dict[Unit, Result]:
    """The same on a Dask cluster."""
    keys = keys_of(wanted, tool)
    return cluster.run_all(address, keys, cache, lambda unit: words_of(unit, cache.folder), PROGRAM)


# -- the command -----------------------------------------------------------------------------------


def units_of(
    recordings: Iterable[Path], names: Sequence[str], aware: bool, check: bool = False, counts: bool = False
) -> list[Unit]:
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
    return [Unit(file, *each, check, counts) for file in recordings for each in dict.fromkeys(wanted)]


def words_of(unit: Unit, cache: Path) -> list[str]:
    """The command of a unit, which fills the cache from any folder."""
    words = ["xsmmu", "replay", str(unit.file.absolute()), "--policy", unit.word]
    words += [*["--check"] * unit.check, *["--counts"] * unit.counts]
    return [*words, "--cache", str(cache.absolute()), "--jobs", "1"]


def commands(wanted: Iterable[Unit], cache: Path, form: str) -> Iterator[str]:
    """A command line for each unit."""
    for unit in dict.fromkeys(wanted):
        yield units.wrapped(words_of(unit, cache), form)


def cache_folder() -> Path:
    """The folder of results if the user names none."""
    return units.folder_of("replay")


@click.command()
@click.argument("recordings", metavar="FILE...", nargs=-1, required=True, type=click.Path(path_type=Path))
@click.option("--policy", "policies", metavar="LIST", default=DEFAULT, show_default=True, help="Policies and modes.")
@click.option("--aware", is_flag=True, help="Also replay as if the drivers were batch-aware, where it matters.")
@click.option("--check", is_flag=True, help="Have the module's own checkers watch the first device; half as fast.")
@click.option("--counts", is_flag=True, help="Count transfers of lines between CPUs, in the first million events.")
@click.option("--jobs", type=click.IntRange(1, 1024), metavar="N", help="Replays at the same time; default: CPUs.")
@click.option("--cache", "folder", type=click.Path(path_type=Path), help="Folder of results; default: ~/.cache/xsmmu.")
@click.option("--html", "page", type=click.Path(path_type=Path), help="Also write a page: a picture, table and notes.")
@click.option(
    "--print", "printed", type=click.Choice([*units.PRINTED]), help="Print a command for each replay, for a cluster."
)
@click.option("--dask", "address", metavar="ADDRESS", help="Replay on the workers of this Dask scheduler.")
@output.option
def replay(
    recordings: tuple[Path, ...],
    policies: str,
    aware: bool,
    check: bool,
    counts: bool,
    jobs: int | None,
    folder: Path | None,
    page: Path | None,
    printed: str | None,
    address: str | None,
    form: str,
) -> None:
    """Replay recorded DMA traffic under each policy.

    FILE is a recording of `xsmmu record`, from any machine. The module's engine runs here in the recording's time, and
    the kernel's two modes by a model; neither the module nor a device is used. Finished results are kept: the same
    command continues after a stop.

    POLICY+aware in --policy replays only as if the drivers were batch-aware. --print makes commands that fill the
    folder of --cache; afterwards the same command without --print shows all results. --dask has a Dask cluster run
    these commands (dask-jobqueue makes one of Slurm); its machines share the recordings and the folder of --cache.

    \b
    Examples:
      xsmmu replay eth1.xsr
      xsmmu replay eth1.xsr --policy kernel-lazy,fused --aware
      xsmmu replay eth1.xsr --aware --html eth1.html
      xsmmu replay *.xsr --jobs 8 -o json > results.json
      xsmmu replay *.xsr --print parallel | parallel -j 8
      xsmmu replay *.xsr --cache /shared/replays --print slurm | sh
      xsmmu replay *.xsr --cache /shared/replays --dask tcp://head:8786
    """
    wanted = units_of(recordings, [name for name in policies.split(",") if name], aware, check, counts)
    if not wanted:
        raise UserError("--policy names no policy: name at least one", code="usage")
    if printed:
        if page or address or form != "table":
            raise UserError(
                "--print excludes --html, --dask and -o: run the same command without --print later", code="usage"
            )
        for line in commands(wanted, folder or cache_folder(), printed):
            click.echo(line)
        return
    if page:
        replay_page.PAGE.check(page, recordings)
    cache, tool = Cache(folder or cache_folder()), programs.find(PROGRAM)
    if address:
        found = replay_on(address, wanted, cache, tool)
    else:
        found = replay_all(wanted, cache, jobs or os.cpu_count() or 1, tool)
    results = [{"file": str(unit.file), **result} for unit, result in found.items()]
    if page:
        replay_page.write(page, results)
    if form == "table":
        replayed.print_tables(results)
    else:
        output.emit(form, "replay", "replays", results)
