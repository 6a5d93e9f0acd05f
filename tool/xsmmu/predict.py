# SPDX-License-Identifier: GPL-2.0-only
"""`xsmmu predict`: what a policy would do on a machine that is described in a file.

The program xsmmu-model simulates a point: a machine, a workload, a policy and a seed. A unit of work (units.py) is a
policy at a place of the sweep: the point with several seeds, with each set of parameters that is also possible
(model_files.sets), with single parameters changed, which shows how a limit could be lifted, and for a longer time,
which shows whether the traffic has settled.
"""

from __future__ import annotations

import itertools
import json
import math
import os
import re
import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import Final

import click

from xsmmu import (
    cluster,
    guide,
    model_files,
    output,
    predict_export,
    predict_page,
    predicted,
    programs,
    recorded,
    units,
    virtual,
)
from xsmmu.errors import UserError, unknown_name
from xsmmu.model_files import Scene, Value
from xsmmu.predicted import OFF
from xsmmu.replayed import KERNEL
from xsmmu.units import Cache, Result

PROGRAM: Final = "xsmmu-model"
USAGE: Final = 2
"""Exit status of the program for an input that it refuses."""
POLICIES: Final = (OFF, *KERNEL, *(name for name in guide.POLICIES if name not in guide.RESEARCH))
DIRECT: Final = "-direct"
"""Behind the name of a policy of the module: direct tables."""
AWARE: Final = "-aware"
"""The same: a batch-aware driver."""
DEFAULT: Final = ",".join([*POLICIES, "fused-aware", "fused-direct-aware"])
SEEDS: Final = 3
TIME_MS: Final = 40
"""Seeds and time of a point by default: those of `make validate`, whose errors are so those of a prediction."""
LONGER: Final = 4
"""A point that is no part of a sweep is also run for so many times as long."""
LONGER_FROM_MS: Final = 400
"""No longer than so many times this: the program ends runs of too many events."""
MANY: Final = 50
"""From this number of units on, the time of all is estimated first."""
MOST_VALUES: Final = 1_000_000
"""Of a parameter, in a range of a sweep."""
LONGEST_S: Final = 3600
"""A longer sweep needs --long."""


# -- what is simulated -----------------------------------------------------------------------------


@dataclass(frozen=True, eq=False)
class Plan:
    """What all units share."""

    scene: Scene
    sets: Sequence[Mapping[str, Value]]
    seeds: int
    time_ms: int
    explores: bool
    """Whether lifts and a longer time are tried."""
    best: Mapping[str, Value] = field(default_factory=dict)
    """Values of the fit, in the place of the files'."""
    words: Sequence[str] = ()
    """Words of a command for these files and numbers."""

    @cached_property
    def values(self) -> dict[str, Value]:
        """The parameters, before a unit changes some."""
        return {**self.scene.values(), **self.best}


@dataclass(frozen=True)
class Lift:
    """A change of a parameter that might lift a limit."""

    parameter: str
    value: int
    words: str
    also: Mapping[str, int] = field(default_factory=dict)
    """Parameters that change with it."""

    @property
    def changes(self) -> dict[str, Value]:
        """All parameters that change."""
        return {self.parameter: self.value, **self.also}


@dataclass(frozen=True)
class Unit:
    """A policy at a place of the sweep."""

    plan: Plan
    policy: str
    at: tuple[tuple[str, Value], ...]

    @property
    def name(self) -> str:
        """For people."""
        return " ".join([self.policy, *(f"{name}={value}" for name, value in self.at)])

    def values(self) -> dict[str, Value]:
        """The parameters of the unit."""
        return {**self.plan.values, **dict(self.at)}

    def lifts(self) -> list[Lift]:
        """Changes that are tried."""
        return [*_lifts(self.values(), self.plan.scene)] if self.plan.explores else []

    def longer_ms(self) -> int | None:
        """The longer time that is tried; None if none is."""
        plan = self.plan
        return LONGER * plan.time_ms if plan.explores and plan.time_ms <= LONGER_FROM_MS else None

    def inputs(self) -> list[str]:
        """The input of each run: with each seed; with each set; with each lift; for a longer time."""
        values, fixed = self.values(), dict(self.at)
        made = [self._input(values, seed) for seed in range(1, self.plan.seeds + 1)]
        for number, changed in enumerate(self.plan.sets):
            made.append(self._input({**values, **changed, **fixed}, number % self.plan.seeds + 1))
        made += [self._input({**values, **lift.changes}, 1) for lift in self.lifts()]
        if longer := self.longer_ms():
            made.append(self._input(values, 1, longer))
        return made

    def _input(self, values: Mapping[str, Value], seed: int, time_ms: int | None = None) -> str:
        given = {**values, "policy": self.policy, "seed": seed, "time_ms": time_ms or self.plan.time_ms}
        return "".join(f"{name} {value}\n" for name, value in given.items())


_LIFTS: Final = (
    ("walkers", 2, 1, "twice the walkers"),
    ("iotlb_entries", 4, 1, "4 x the IOTLB"),
    ("pcie_credit_bytes", 2, 1, "twice the PCIe credits"),
    ("cores", 2, 1, "twice the cores, with as many queues"),
    ("ring", 1, 2, "half the ring"),
    ("flows", 2, 1, "twice the flows"),
    ("command_wait_ns", 1, 4, "a quarter of a command's wait (a queue without exits)"),
    ("lock_hold_ns", 1, 4, "a quarter of the lock's hold"),
)
"""Parameter, a factor above and below the line, and words."""


def _lifts(values: Mapping[str, Value], scene: Scene) -> Iterator[Lift]:
    for name, above, below, words in _LIFTS:
        value = values.get(name)
        if not isinstance(value, int):
            continue
        changed = value * above // below
        if scene.known[name].fault(changed) is None and changed != value:
            yield Lift(name, changed, words, _queues(values, changed) if name == "cores" else {})


def _queues(values: Mapping[str, Value], cores: int) -> dict[str, int]:
    """A core polls one queue, so more cores help by more queues only."""
    queues = values.get("queues")
    return {"queues": cores} if isinstance(queues, int) and queues < cores else {}


class Runner(units.Runner):
    """Runs the program."""

    def run(self, unit: Unit, progress: units.Progress) -> Result:
        """The figures of all runs of a unit, by column: the table of a long sweep must fit the memory."""
        runs = [self._of(unit, number, given, progress) for number, given in enumerate(unit.inputs())]
        return {"columns": predicted.columns_of(runs)}

    def _of(self, unit: Unit, number: int, given: str, progress: units.Progress) -> Result:
        try:
            return self.one(unit, given, progress)
        except UserError as error:
            if unit.plan.seeds <= number and error.code == "bad-model":
                error.message += ", with values of the files' ranges: narrow the ranges, or measure"
            raise

    def one(self, unit: Unit, given: str, progress: units.Progress) -> Result:
        """The result of a run."""
        status, text, lines = self._processes.run([str(self.tool)], progress, given)
        if status:
            raise _failed(unit, status, lines)
        found: Result = json.loads(text)
        return found


def _failed(unit: Unit, status: int, lines: Sequence[str]) -> UserError:
    said = lines[-1].removeprefix(f"{PROGRAM}: ") if lines else ""
    if status != USAGE or not said:
        return UserError(f"{unit.name}: {units.ended(PROGRAM, status)}", lines, code="failed")
    scene, named = unit.plan.scene, re.match(r"\w+", said)
    if not named or named[0] not in scene.known:
        return UserError(f"{unit.name}: {said}", code="bad-model")
    name = named[0]
    place = f"--sweep {name}={dict(unit.at)[name]}: {name}" if name in dict(unit.at) else scene.place(name)
    return UserError(f"{place}{said.removeprefix(name)}", code="bad-model")


def keys_of(wanted: Sequence[Unit], tool: Path) -> dict[Unit, str]:
    """The name of each unit's output file."""
    program = units.digest(tool, "a program")
    return {unit: units.hash_of(program, *unit.inputs()) for unit in wanted}


def predict_all(wanted: Sequence[Unit], cache: Cache, jobs: int, tool: Path) -> dict[Unit, Result]:
    """The results of all units, from the cache or by runs."""
    return units.run_all(keys_of(wanted, tool), cache, jobs, Runner(tool), "predicting")


def predict_on(address: str, wanted: Sequence[Unit], cache: Cache, tool: Path) -> dict[Unit, Result]:
    """The same on a Dask cluster."""
    return cluster.run_all(address, keys_of(wanted, tool), cache, lambda unit: words_of(unit, cache.folder), PROGRAM)


# -- sweeps ----------------------------------------------------------------------------------------

Sweep = Mapping[str, Sequence[Value]]


def read_sweep(words: Iterable[str], scene: Scene) -> Sweep:
    """The values of each parameter that changes: `ring=256,512` or `flows=1..40`."""
    found: dict[str, Sequence[Value]] = {}
    for word in words:
        name, sign, text = word.partition("=")
        if not sign or not text:
            raise UserError(f"--sweep {word}: write NAME=VALUE,VALUE or NAME=FIRST..LAST", code="usage")
        if name not in scene.known:
            raise unknown_name("parameter", name, scene.known)
        if name in found:
            raise UserError(f"--sweep {name} is given twice: name all of its values at once", code="usage")
        found[name] = [*dict.fromkeys(_values(name, text, scene))]
    return found


def _values(name: str, text: str, scene: Scene) -> Iterator[Value]:
    parameter = scene.known[name]
    for part in text.split(","):
        first, dots, last = part.partition("..")
        ends = [parameter.read(end) for end in ([first, last] if dots and not parameter.words else [part])]
        for end in ends:
            if fault := parameter.fault(end):
                raise UserError(f"--sweep {name}: {fault}", code="usage")
        if isinstance(ends[0], int) and isinstance(ends[-1], int):
            if ends[0] > ends[-1]:
                raise UserError(f"--sweep {name}={part}: the first value is above the last", code="usage")
            if ends[-1] - ends[0] >= MOST_VALUES:
                raise UserError(f"--sweep {name}={part}: more than {MOST_VALUES:,} values: name fewer", code="usage")
            yield from range(ends[0], ends[-1] + 1)
        else:
            yield ends[0]


def size_of(sweep: Sweep) -> int:
    """The number of places."""
    return math.prod(len(values) for values in sweep.values())


def units_of(plan: Plan, policies: Sequence[str], sweep: Sweep) -> Iterator[Unit]:
    """All units, in the order of the table."""
    for place in itertools.product(*sweep.values()):
        for policy in policies:
            yield Unit(plan, policy, tuple(zip(sweep, place, strict=True)))


def read_policies(text: str) -> list[str]:
    """The policies of a list, each once."""
    names = [*dict.fromkeys(name for name in text.split(",") if name)]
    if not names:
        raise UserError("--policies names no policy: name at least one", code="usage")
    for name in names:
        base = name.removesuffix(AWARE).removesuffix(DIRECT)
        if base not in POLICIES or (base != name and base in (OFF, *KERNEL)):
            more = ", each policy of the module also with -direct, -aware or -direct-aware"
            raise UserError(unknown_name("policy", name, POLICIES).message + more, code="unknown-name")
    return names


def announce(first: Unit, count: int, jobs: int, tool: Path, long: bool) -> None:
    """Say how long a big sweep takes, by the time of a run; refuse more than an hour without `long`."""
    if count < MANY:
        return
    inputs = first.inputs()
    before = time.monotonic()
    Runner(tool).one(first, inputs[0], lambda _: None)
    seconds = (time.monotonic() - before) * len(inputs) * count / jobs
    said = f"{count:,} points take about {predicted.long(seconds)} with {jobs} {'job' if jobs == 1 else 'jobs'}"
    if seconds > LONGEST_S and not long:
        raise UserError(
            f"--sweep: {said}: add --long to run them all here, --print to run them elsewhere, or name fewer values",
            code="usage",
        )
    click.echo(f"{said}, less those already finished; the same command continues after a stop", err=True)


def words_of(unit: Unit, cache: Path) -> list[str]:
    """The command of a unit, which fills the cache from any folder."""
    at = [word for name, value in unit.at for word in ("--sweep", f"{name}={value}")]
    own = ["xsmmu", "predict", *unit.plan.words, "--policies", unit.policy, *at]
    return [*own, "--cache", str(cache.absolute()), "--jobs", "1"]


def plan_words(
    machine: Path, workload: Path | None, recording: Path | None, driver: Path | None, seeds: int, time_ms: int
) -> tuple[str, ...]:
    """The words that the commands of all units have."""
    files = {"--machine": machine, "--workload": workload, "--trace": recording, "--driver": driver}
    made = [word for name, file in files.items() if file for word in (name, str(file.absolute()))]
    return (*made, "--seeds", str(seeds), "--ms", str(time_ms))


# -- the command -----------------------------------------------------------------------------------


@click.command()
@click.option("--machine", metavar="M.toml", type=click.Path(path_type=Path), help="The machine.")
@click.option("--workload", metavar="W.toml", type=click.Path(path_type=Path), help="The workload.")
@click.option(
    "--trace", "recording", metavar="FILE", type=click.Path(path_type=Path), help="A recording as the workload."
)
@click.option("--virtual", "of_guest", is_flag=True, help="Protocols of virtual IOMMUs instead; M.toml is a guest.")
@click.option("--driver", metavar="D.toml", type=click.Path(path_type=Path), help="Another driver than the machine's.")
@click.option("--policies", metavar="LIST", default=DEFAULT, show_default=True, help="Policies and modes.")
@click.option("--sweep", "swept", metavar="NAME=VALUES", multiple=True, help="Values of a parameter: 1,2,4 or 1..40.")
@click.option("--seeds", type=click.IntRange(1, 100), default=SEEDS, show_default=True, help="Seeds of each point.")
@click.option(
    "--ms",
    "time_ms",
    type=click.IntRange(1, 100_000),
    default=TIME_MS,
    show_default=True,
    help="Time that is simulated; its first quarter does not count.",
)
@click.option("--jobs", type=click.IntRange(1, 1024), metavar="N", help="Points at the same time; default: CPUs.")
@click.option("--cache", "kept", type=click.Path(path_type=Path), help="Folder of results; default: ~/.cache/xsmmu.")
@click.option("--long", is_flag=True, help="Begin a sweep that takes more than an hour.")
@click.option("--html", "page", type=click.Path(path_type=Path), help="Also write a page with plots.")
@click.option("--parquet", "columns", type=click.Path(path_type=Path), help="Also write a table for other programs.")
@click.option(
    "--print", "printed", type=click.Choice([*units.PRINTED]), help="Print a command for each point, for a cluster."
)
@click.option("--dask", "address", metavar="ADDRESS", help="Predict on the workers of this Dask scheduler.")
@output.option
def predict(
    machine: Path | None,
    workload: Path | None,
    recording: Path | None,
    of_guest: bool,
    driver: Path | None,
    policies: str,
    swept: tuple[str, ...],
    seeds: int,
    time_ms: int,
    jobs: int | None,
    kept: Path | None,
    long: bool,
    page: Path | None,
    columns: Path | None,
    printed: str | None,
    address: str | None,
    form: str,
) -> None:
    """Predict what each policy would do on a machine.

    The machine and the workload are files (docs/model.md); no such machine, no module and no device is needed. Each
    figure has the interval of all parameters that could be true; a throughput that is not known to 10 % is not
    determined. Finished points are kept: the same command continues after a stop.

    \b
    Examples:
      xsmmu predict --machine M.toml --workload W.toml
      xsmmu predict --machine M.toml --workload W.toml --policies fused,lazy
      xsmmu predict --machine M.toml --workload W.toml --sweep ring=256,512
      xsmmu predict --machine M.toml --workload W.toml --html page.html
      xsmmu predict --machine M.toml --trace eth1.xsr
      xsmmu predict --virtual
    """
    if of_guest:
        virtual.show(machine, form)
        return
    scene, shown = _scene(machine, workload, recording, driver)
    names, sweep = read_policies(policies), read_sweep(swept, scene)
    fits = model_files.fits(scene.known)
    sets, best = model_files.possible(scene, fits), model_files.best(scene, fits)
    words = plan_words(scene.machine.file, workload, recording, driver, seeds, time_ms)
    plan = Plan(scene, sets, seeds, time_ms, not sweep, best, words)
    folder, jobs = kept or units.folder_of("predict"), jobs or os.cpu_count() or 1
    if printed:
        if page or columns or address or form != "table":
            raise UserError(
                "--print excludes --html, --parquet, --dask and -o: run the same command without --print later",
                code="usage",
            )
        for unit in units_of(plan, names, sweep):
            click.echo(units.wrapped(words_of(unit, folder), printed))
        return
    if page:
        predict_page.PAGE.check(page, [part.file for part in scene.parts])
    if columns:
        predict_export.check(columns)
    tool = programs.find(PROGRAM)
    if address:
        found = predict_on(address, [*units_of(plan, names, sweep)], Cache(folder), tool)
    else:
        announce(next(units_of(plan, names, sweep)), size_of(sweep) * len(names), jobs, tool, long)
        found = predict_all([*units_of(plan, names, sweep)], Cache(folder), jobs, tool)
    results = [summary(unit, result) for unit, result in found.items()]
    if page:
        predict_page.write(page, scene, results)
    if columns:
        predict_export.parquet(results, columns)
    if form == "table":
        if shown:
            recorded.print_table(shown)
        predicted.print_table(scene, results)
    else:
        output.emit(form, "predict", "predictions", results, **({"recorded": shown.rows} if shown else {}))


def _scene(
    machine: Path | None, workload: Path | None, recording: Path | None, driver: Path | None
) -> tuple[Scene, recorded.Workload | None]:
    """The files of the command line; of a recording also what it shows."""
    if machine is None or (workload is None and recording is None):
        raise UserError("name a machine and a workload: --machine M.toml --workload W.toml", code="usage")
    known = model_files.parameters()
    if recording is None:
        assert workload
        return model_files.scene(machine, workload, driver, known), None
    # A workload's file may lack what the recording shows or an assumption replaces.
    own = model_files.described(workload, "workload", known, whole=False) if workload else None
    found = recorded.workload(recording, known, own)
    return model_files.scene(machine, found.described, driver, known), found


def delivered(unit: Unit, columns: predicted.Columns) -> predicted.Columns:
    """The figures, with the sent data as the throughput of a machine that only sends."""
    sends = unit.values().get("send_flows") and not unit.values().get("flows")
    return {**columns, "throughput_gbps": columns["transmit_gbps"]} if sends else columns


def summary(unit: Unit, result: Result) -> Result:
    """A prediction: the figures of a unit."""
    seeds = unit.plan.seeds
    runs = seeds + len(unit.plan.sets)
    columns = delivered(unit, result["columns"])
    more = columns["throughput_gbps"][runs:]
    longer_ms, tried = unit.longer_ms(), unit.lifts()
    lifts = [
        {"parameter": lift.parameter, "value": lift.value, "words": lift.words, "throughput_gbps": gbps}
        for lift, gbps in zip(tried, more[: len(tried)], strict=True)
    ]
    scene = unit.plan.scene
    return {
        "machine": str(scene.machine.file),
        "driver": str(scene.driver.file),
        "workload": str(scene.workload.file),
        "policy": unit.policy,
        "at": dict(unit.at),
        **predicted.figures({place: column[:runs] for place, column in columns.items()}, seeds),
        # Without an IOMMU a device reaches all memory, always: a time would be wrong.
        **({"exposure_us": {}} if unit.policy == OFF else {}),
        "time_ms": unit.plan.time_ms,
        **({"longer": {"time_ms": longer_ms, "throughput_gbps": more[-1]}} if longer_ms else {}),
        "lifts": lifts,
    }
