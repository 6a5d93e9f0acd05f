# SPDX-License-Identifier: GPL-2.0-only
"""Fits the machine model to one published row: CLAIMS E, strict. `make fit` calls it, and writes model/fits.toml.

The search reads that row only: throughput at each number of flows, and IOTLB and walk-cache misses a page. It changes
only parameters for which the files of the fitted machine, its driver and its workload give a range. A set fits if the
throughput, averaged over seeds, is within 10 % at each number of flows. The same sources give the same file.
"""

from __future__ import annotations

import json
import os
import random
import subprocess
import sys
from collections.abc import Iterable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import click

from checks import command, published
from xsmmu import files, model_files
from xsmmu.errors import UserError
from xsmmu_lab.project import PROJECT
from xsmmu_lab.setup import model

MODEL: Final = PROJECT / "model"
FILE: Final = MODEL / "fits.toml"
TABLE: Final = "fs-flows"
POLICY: Final = "kernel-strict"
COUNTERS: Final = ("iotlb", "l1", "l3")
LIMIT: Final = 0.10
HOPELESS: Final = 0.30
"""A candidate whose first points are so far off is not run further."""
TIME_MS: Final = 40
SEEDS: Final = (1, 2, 3)
PARENTS: Final = 6
COUNTER_WEIGHT: Final = 0.25
START: Final = {
    "command_restarts": 1,
    "command_stall_ns": 1,
    "l3_entries": 10,
    "table_read_ns": 228,
    "pcie_credit_bytes": 12000,
    "nic_buffer_bytes": 670000,
    "copy_page_ns": 400,
}
"""Values near which the search begins, in the place of the files'. They were found by hand from the fitted row: walks
that begin again at a command give its IOTLB misses by the number of flows."""

Values = dict[str, int]


@dataclass(frozen=True)
class Candidate:
    """A set of parameters with its errors."""

    values: Values
    errors: tuple[float, ...]
    """Of the throughput, by number of flows."""
    counter_error: float
    """Mean of the counters' errors, without sign."""

    @property
    def worst(self) -> float:
        """The largest error of the throughput."""
        return max(map(abs, self.errors))

    @property
    def score(self) -> float:
        """What the search makes small."""
        return self.worst + COUNTER_WEIGHT * self.counter_error


class Search:
    """Runs candidates."""

    def __init__(self, program: Path, jobs: int) -> None:
        table = published.tables()[TABLE]
        assert table.machine and table.workload and table.axis
        known = model_files.parameters(MODEL / "parameters.toml")
        files_of = (MODEL / f"machines/{table.machine}.toml", MODEL / f"workloads/{table.workload}.toml")
        self.scene = model_files.scene(*files_of, None, known)
        self.ends = self.scene.ranged()
        self.program, self.jobs, self.flows = program, jobs, [int(each) for each in table.axis.values]
        rows = [cell for cell in table.cells if cell.policy == POLICY and not cell.driver]
        self.row = {(cell.figure, int(cell.at)): cell.value for cell in rows if cell.at is not None}
        off = [cell for cell in table.cells if cell.policy == "kernel-off" and cell.figure == "throughput"]
        self.off = {int(cell.at): round(cell.value * 1000) for cell in off if cell.at is not None}

    def run(self, values: Values, flows: int, seed: int) -> dict[str, Any]:
        """A point's result."""
        point: dict[str, int | str] = {**self.scene.values(), **values}
        point |= {"flows": flows, "off_mbps": self.off[flows], "policy": POLICY, "seed": seed, "time_ms": TIME_MS}
        text = "".join(f"{name} {value}\n" for name, value in point.items())
        done = subprocess.run([self.program], input=text, capture_output=True, text=True, check=False)
        if done.returncode:
            raise UserError(f"xsmmu-model: {done.stderr.strip()}")
        found: dict[str, Any] = json.loads(done.stdout)
        return found

    def tried(self, values: Values, seeds: Sequence[int]) -> Candidate | None:
        """A candidate; None if it is hopeless."""
        errors, counters = [], []
        for flows in self.flows:
            runs = [self.run(values, flows, seed) for seed in seeds]
            mean = sum(run["throughput_gbps"] for run in runs) / len(runs)
            errors.append(mean / self.row["throughput", flows] - 1)
            if abs(errors[-1]) > HOPELESS:
                return None
            for name in COUNTERS:
                count = sum(run["counters"][f"{name}_misses_per_page"] for run in runs) / len(runs)
                counters.append(abs(count / self.row[name, flows] - 1))
        return Candidate(values, tuple(errors), sum(counters) / len(counters))

    def all_tried(self, each: Iterable[Values], seeds: Sequence[int]) -> list[Candidate]:
        """Candidates that are not hopeless, in the order of `each`."""
        with ThreadPoolExecutor(self.jobs) as pool:
            return [found for found in pool.map(lambda values: self.tried(values, seeds), each) if found]

    def drawn(self, chance: random.Random) -> Values:
        """Any set."""
        return self.whole({name: _drawn(low, high, chance.random()) for name, (low, high) in self.ends.items()})

    def whole(self, values: Values) -> Values:
        """The set with an IOTLB that has whole sets of ways."""
        ways = int(self.scene.values()["iotlb_ways"])
        if "iotlb_entries" in values:
            values["iotlb_entries"] -= values["iotlb_entries"] % ways
        return values

    def changed(self, values: Mapping[str, int], chance: random.Random, width: float) -> Values:
        """A set near another."""
        found: Values = {}
        for name, (low, high) in self.ends.items():
            step = chance.gauss(0, width)
            found[name] = min(high, max(low, round(values[name] * (1 + step) + chance.choice((-1, 0, 1)))))
        return self.whole(found)


def _drawn(low: int, high: int, place: float) -> int:
    """A value of a range; by ratio if the range is wide."""
    if low > 0 and high / low > 3:
        return int(low * (high / low) ** place)
    return round(low + (high - low) * place)


def searched(search: Search, first: int, rounds: int, children: int, checked: int) -> list[Candidate]:
    """Sets that fit with all seeds, best first."""
    chance = random.Random(1)
    start: Values = {name: START.get(name, int(search.scene.values()[name])) for name in search.ends}
    near = [search.changed(start, chance, 0.04) for _ in range(first - first // 3)]
    found = search.all_tried([start, *near, *(search.drawn(chance) for _ in range(first // 3))], SEEDS[:1])
    for number in range(rounds):
        found.sort(key=lambda each: each.score)
        best = found[:PARENTS]
        if not best:
            raise UserError("no set is near the fitted row: look at the ranges of the fitted machine")
        click.echo(f"round {number + 1}: {best[0].worst:.1%}, counters {best[0].counter_error:.0%}", err=True)
        width = 0.06 / (number + 1)
        made = [search.changed(best[i % len(best)].values, chance, width) for i in range(children)]
        found += search.all_tried(made, SEEDS[:1])
    found.sort(key=lambda each: each.worst)
    whole = search.all_tried([each.values for each in found[:checked]], SEEDS)
    return sorted((each for each in whole if each.worst <= LIMIT), key=lambda each: each.score)


def text_of(sets: Sequence[Candidate], flows: Sequence[int], words: str) -> str:
    """The file."""
    head = (
        "# SPDX-License-Identifier: GPL-2.0-only\n#\n"
        "# Sets of parameters with which the model is within 10 % of CLAIMS E, strict, at each number of flows, best\n"
        f"# first; made by python -m checks.fit {words}\n"
        f"# from seeds {', '.join(map(str, SEEDS))}. Errors are those of the throughput at "
        f"{', '.join(map(str, flows))} flows.\n"
    )
    rows = []
    for each in sets:
        errors = ", ".join(f"{error:+.3f}" for error in each.errors)
        lines = [f"{name} = {value}" for name, value in each.values.items()]
        rows.append("\n".join(["", "[[set]]", f"# errors {errors}; counters {each.counter_error:.2f}", *lines, ""]))
    return head + "".join(rows)


@click.command()
@click.option("--jobs", type=click.IntRange(1, 1024), default=os.cpu_count() or 1, help="Points at the same time.")
@click.option("--first", type=click.IntRange(2), default=40, help="Sets of the first round.")
@click.option("--rounds", type=click.IntRange(0), default=4, help="Rounds of sets near the best.")
@click.option("--children", type=click.IntRange(1), default=24, help="Sets of each round.")
@click.option("--checked", type=click.IntRange(1), default=32, help="Best sets that run with all seeds.")
def fit(jobs: int, first: int, rounds: int, children: int, checked: int) -> int:
    """Fit the machine model to CLAIMS E, strict."""
    search = Search(model.compiled(), jobs)
    sets = searched(search, first, rounds, children, checked)
    if not sets:
        raise UserError("no set fits within 10 % with all seeds; model/fits.toml is as it was")
    words = f"--first {first} --rounds {rounds} --children {children} --checked {checked}"
    files.replace(FILE, text_of(sets, search.flows, words))
    click.echo(f"{len(sets)} sets fit; the best: {', '.join(f'{error:+.1%}' for error in sets[0].errors)}")
    return 0


if __name__ == "__main__":
    sys.exit(command.run(fit, "checks.fit"))
