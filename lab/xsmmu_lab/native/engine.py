# SPDX-License-Identifier: GPL-2.0-only
"""`make native-engine`: nanoseconds of the engine alone, in a program, on pinned threads of this machine.

The program (lab/native/engine/) makes one run and prints a line of JSON. Cases take turns (A B C, A B C, ...), so a
machine that changes meanwhile changes the figures of all cases.
"""

from __future__ import annotations

import itertools
import json
import os
import re
import subprocess
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Final

import jsonschema
from rich.console import Console

from xsmmu import kernel
from xsmmu.errors import UserError, unknown_name
from xsmmu_lab import policies, scale
from xsmmu_lab.native import statistics
from xsmmu_lab.native.plan import AWARE, PAGE, RING, UNMODIFIED
from xsmmu_lab.native.summary import write
from xsmmu_lab.project import LAB, PROJECT, RESULTS, commit
from xsmmu_lab.setup import build, host, root

Json = dict[str, Any]

CPUS: Final = (1, 2, 4, 8, 16)
ELSEWHERE: Final = (0, 10, 33)
"""Percentages of pages that another CPU unmaps."""
COPIED_BYTES: Final = (256, 1514, 4096)
ROUNDS: Final = 15
MEASURE_MS: Final = 20
FOLDER: Final = RESULTS / "native-engine"
SCHEMA_PATH: Final = LAB / "native-engine.schema.json"

_PROGRAM: Final = "xsmmu-native-engine"
_SOURCE: Final = "lab/native/engine"
_PARTS: Final = ("core", "sim/scale", _SOURCE)
FLAGS: Final = (
    *("-std=gnu11", "-g", "-O2", "-pthread", "-static", "-fno-pie", "-Icore/include", f"-I{_SOURCE}"),
    # The kernel's choices that change the code of the hot path.
    *("-mpopcnt", "-mno-red-zone", "-fno-strict-aliasing", "-fno-delete-null-pointer-checks"),
    *("-fno-jump-tables", "-fno-asynchronous-unwind-tables", "-fstack-protector-strong"),
    '-DXS_PLATFORM="platform_native.h"',
    *("-Wall", "-Wextra", "-Werror", "-Wmissing-prototypes", "-Wstrict-prototypes", "-Wvla", "-Wno-unused-parameter"),
)
_TIMEOUT_S: Final = 60
_RUNNING_MIN: Final = 0.95
"""Part of the time for which each thread must run; less means that another program has run on the thread's CPU."""
_HANDED_APART: Final = 2
"""Percentage points by which the share of pages unmapped elsewhere may differ from the case's share."""


@dataclass(frozen=True)
class Case:
    """The subject of a row."""

    policy: str
    driver: str = UNMODIFIED
    cpus: int = 1
    elsewhere: int = 0
    copied_bytes: int = 0
    """Size of the buffers that are copied; 0 for pages that are mapped."""

    def __str__(self) -> str:
        bytes_ = f", {self.copied_bytes} bytes" if self.copied_bytes else ""
        share = f", {self.elsewhere} % elsewhere" if self.elsewhere else ""
        return f"{self.policy} ({self.driver}{bytes_}{share}) on {self.cpus} CPU{'s' if self.cpus > 1 else ''}"


@dataclass(frozen=True)
class Options:
    """The options of a measurement."""

    cpus: Sequence[int] | None = None
    """Numbers of CPUs; None for those of CPUS that the machine has."""
    policies: Sequence[str] = ()
    elsewhere: Sequence[int] = ELSEWHERE
    wait_ns: int = 0
    rounds: int = ROUNDS
    ms: int = MEASURE_MS
    output: Path = FOLDER


@dataclass(frozen=True)
class Run:
    """A run of a case: the program's line."""

    case: Case
    raw: Json

    @property
    def ns(self) -> float:
        """Time to map and unmap a page: the median over the polls of all CPUs."""
        return float(self.raw["page_ps"]) / 1000

    def calibration(self) -> dict[tuple[int, int, str], float]:
        """Time of a locked compare and swap, by the number of running CPUs, the CPU, and before or after the run."""
        return {
            (self.case.cpus, cpu, key): value
            for key in ("cmpxchg_before_ps", "cmpxchg_after_ps")
            for cpu, value in zip(self.raw["cpus"], self.raw[key], strict=True)
        }

    def is_disturbed(self) -> bool:
        """Whether another program has run on one of the CPUs."""
        handed = 100 * int(self.raw["handed"]) / int(self.raw["maps"])
        wanted = self.case.elsewhere if self.case.cpus > 1 else 0
        return min(self.raw["running_permille"]) < 1000 * _RUNNING_MIN or abs(handed - wanted) > _HANDED_APART


# -- cases -----------------------------------------------------------------------------------------


def cases(cpus: Iterable[int], elsewhere: Iterable[int], names: Iterable[str]) -> list[Case]:
    """All cases, in the order of the table. A single CPU has no other CPU that could unmap pages."""
    found = []
    for count, share, name in itertools.product(cpus, elsewhere, names):
        [policy] = [each for each in policies.table() if each.name == name]
        at = count, share if count > 1 else 0
        if policy.copies:
            found += [Case(name, UNMODIFIED, *at, size) for size in COPIED_BYTES]
            continue
        found.append(Case(name, UNMODIFIED, *at))
        if policy.waits:
            found.append(Case(name, AWARE, *at))
    return list(dict.fromkeys(found))


def chosen_policies(names: Sequence[str]) -> list[str]:
    """The named policies, in the order of the table; all policies if none is named."""
    for name in names:
        if name not in policies.names():
            raise unknown_name("policy", name, policies.names())
    return [name for name in policies.names() if not names or name in names]


def numbers_of(text: str) -> list[int]:
    """Numbers of CPUs in a text such as 1,2,4."""
    words = re.split(r"[ ,]+", text.strip())
    if not all(re.fullmatch(r"[1-9]\d{0,3}", word) for word in words):
        raise UserError(f"'{text}' is no list of numbers of CPUs: give numbers from 1 on, such as 1,2,4")
    return sorted({int(word) for word in words})


def chosen_cpus(allowed: Iterable[int], siblings: Callable[[int], str]) -> list[int]:
    """The CPUs that this process may use: one of each core first, then the others.

    `siblings` names the core of a CPU.
    """
    first: list[int] = []
    others: list[int] = []
    cores: set[str] = set()
    for cpu in sorted(allowed):
        core = siblings(cpu)
        (others if core in cores else first).append(cpu)
        cores.add(core)
    return [*first, *others]


def siblings(cpu: int) -> str:
    """Name of the core of a CPU."""
    try:
        return Path(f"/sys/devices/system/cpu/cpu{cpu}/topology/thread_siblings_list").read_text().strip()
    except OSError:
        return str(cpu)


def _numbers_of_cpus(asked: Sequence[int] | None, there: int) -> list[int]:
    if asked is None:
        return [count for count in CPUS if count <= there]
    if max(asked) > there:
        fitting = ",".join(str(count) for count in asked if count <= there) or str(there)
        raise UserError(
            f"{max(asked)} CPUs are asked for, but this process may run on {there}: ask for {fitting},"
            " or take a machine with more CPUs"
        )
    return list(asked)


# -- runs ------------------------------------------------------------------------------------------


def compiled(tools: root.Root) -> Path:
    """The program."""
    files = sorted(str(file.relative_to(PROJECT)) for file in (PROJECT / _SOURCE).glob("*.c"))
    # A part of path.c.
    files.remove(f"{_SOURCE}/backend.c")
    return build.userspace(tools, _PROGRAM, files, FLAGS, parts=_PARTS)


def call(program: Path, words: Sequence[str], what: str, timeout_s: int, remedy: str) -> dict[str, Any]:
    """The line of JSON that a program prints, with its memory in huge pages, as a kernel's is."""
    env = host.system_env({"GLIBC_TUNABLES": "glibc.malloc.hugetlb=1"})
    try:
        done = host.run([str(program), *words], env=env, timeout=timeout_s)
    except subprocess.TimeoutExpired:
        raise UserError(f"{what}: no end after {timeout_s} s: {remedy}") from None
    if done.returncode != 0:
        raise UserError(f"{what}: the run failed: {done.stderr.strip() or f'status {done.returncode}'}")
    return dict(json.loads(done.stdout))


def run_case(program: Path, case: Case, cpus: Sequence[int], options: Options) -> Run:
    """Make one run of a case on the first of these CPUs. Raises UserError if any count is wrong."""
    words = [
        *("--policy", case.policy, "--cpus", ",".join(str(cpu) for cpu in cpus[: case.cpus])),
        *("--elsewhere", str(case.elsewhere), "--ring", str(RING), "--bytes", str(case.copied_bytes)),
        *("--wait", str(options.wait_ns), "--ms", str(options.ms)),
        *(["--aware"] if case.driver == AWARE else []),
    ]
    return checked(case, call(program, words, str(case), _TIMEOUT_S, statistics.REMEDY))


def checked(case: Case, raw: Json) -> Run:
    """A run whose counts are right."""
    if raw["sent"] != raw["counted"]:
        raise UserError(f"{case}: the engine counts {raw['counted']} commands, but the backend saw {raw['sent']}")
    if (raw["policy"], len(raw["cpus"])) != (case.policy, case.cpus):
        raise UserError(f"{case}: the program ran {raw['policy']} on {len(raw['cpus'])} CPUs")
    return Run(case, raw)


# -- rows ------------------------------------------------------------------------------------------

_COUNTERS: Final = (
    *("transfers", "table_transfers", "page_transfers", "accesses"),
    *("locks", "locks_fetched", "lock_waits"),
)
"""Counts of `make scale` in a row, without `_per_page`."""


def _counters(program: Path, case: Case) -> dict[str, float | None]:
    """The counts of `make scale` for a case; None where sim/scale has no such case."""
    names = [f"{name}_per_page" for name in _COUNTERS]
    if case.copied_bytes or case.cpus > scale.CPUS_MAX:
        return dict.fromkeys(names)
    count = scale.counted(
        program, scale.Config(case.policy, case.driver == AWARE, case.cpus, case.elsewhere, life="short")
    )
    if count.error:
        return dict.fromkeys(names)
    return {name: round(count.row()[name], 4) for name in names}


def row(case: Case, runs: Sequence[Run], kept: Sequence[Run], counters: dict[str, float | None]) -> Json:
    """The row of a case, of all its runs and those that are not dropped."""
    if 2 * len(kept) < len(runs):
        raise UserError(
            f"this machine is too noisy: {case}: {len(kept)} of {len(runs)} runs are undisturbed: {statistics.REMEDY}"
        )
    median, low, high = statistics.middle([run.ns for run in kept])

    def ns(key: str) -> float:
        return round(statistics.middle([run.raw[key] / 1000 for run in kept])[0], 2)

    def share(of: str, pages: Callable[[Json], int]) -> float:
        return statistics.middle([sum(run.raw[of]) / pages(run.raw) for run in kept])[0]

    return {
        "policy": case.policy,
        "driver": case.driver,
        "bytes": case.copied_bytes or PAGE,
        "ring": RING,
        "cpus": case.cpus,
        "elsewhere_percent": case.elsewhere,
        "wait_ns": kept[0].raw["wait_ns"],
        "ns_per_page": round(median, 2),
        "low": round(low, 2),
        "high": round(high, 2),
        "map_ns": ns("map_ps"),
        "unmap_ns": ns("unmap_ps"),
        "mean_ns_per_page": ns("page_mean_ps"),
        "rounds": len(kept),
        "dropped": len(runs) - len(kept),
        "inv_per_page": round(share("recorded_commands", lambda raw: sum(raw["recorded_unmaps"])), 5),
        "copied_percent": round(100 * share("recorded_copies", lambda raw: raw["ring"] * sum(raw["polls"])), 1),
        **counters,
    }


@dataclass
class _Measurement:
    """A measurement under way."""

    options: Options
    cpus: list[int]
    cases: list[Case]
    runs: list[Run] = field(default_factory=list)

    def run(self, program: Path, console: Console) -> None:
        """Make all runs."""
        total = len(self.cases) * self.options.rounds
        with console.status("measuring") as status:
            for done, case in enumerate(self.cases * self.options.rounds):
                status.update(f"measuring: {done} of {total}, {case}")
                self.runs.append(run_case(program, case, self.cpus, self.options))

    def rows(self, counting: Path, console: Console) -> list[Json]:
        """A row for each case, with the counts of `make scale`."""
        kept = statistics.undisturbed(self.runs, Run.calibration, Run.is_disturbed)
        statistics.check_most(len(kept), len(self.runs))
        found = []
        with console.status("counting") as status:
            for done, case in enumerate(self.cases):
                status.update(f"counting: {done} of {len(self.cases)}, {case}")
                mine, undisturbed = ([run for run in runs if run.case == case] for runs in (self.runs, kept))
                found.append(row(case, mine, undisturbed, _counters(counting, case)))
        return found


def run(options: Options, console: Console) -> Json:
    """Measure, and write the summary. Raises UserError if the machine is too noisy."""
    began_at, time = commit(), datetime.now(UTC)
    names = chosen_policies(options.policies)
    cpus = chosen_cpus(os.sched_getaffinity(0), siblings)
    numbers = _numbers_of_cpus(options.cpus, len(cpus))
    tools = root.ensure(host.cache_dir(), console)
    program, counting = compiled(tools), scale.compiled(tools)
    measurement = _Measurement(options, cpus, cases(numbers, options.elsewhere, names))
    measurement.run(program, console)
    rows = measurement.rows(counting, console)
    summary = {
        "schema": 1,
        "time": time.strftime("%Y-%m-%dT%H-%M-%SZ"),
        "cpu": kernel.model() or "unknown",
        "cpu_numbers": cpus[: max(numbers)],
        "commit": began_at,
        "cmpxchg_ns": _calibrated(measurement.runs, "cmpxchg_before_ps"),
        "clock_ns": _calibrated(measurement.runs, "clock_ps"),
        "rows": rows,
    }
    validate(summary)
    write(summary, options.output)
    return summary


def _calibrated(runs: Iterable[Run], key: str) -> float:
    return round(statistics.middle([value / 1000 for run in runs for value in run.raw[key]])[0], 2)


def validate(summary: Any) -> None:
    """Raise unless the summary fits lab/native-engine.schema.json."""
    validator = jsonschema.Draft202012Validator(json.loads(SCHEMA_PATH.read_text()))
    error = jsonschema.exceptions.best_match(validator.iter_errors(summary))
    if error is not None:
        raise UserError(f"the summary does not fit {SCHEMA_PATH.name}: {error.json_path}: {error.message}")
