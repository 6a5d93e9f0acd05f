# SPDX-License-Identifier: GPL-2.0-only
"""Effects of many CPUs and long lives (sim/scale/): line transfers between CPUs, locks, and the ageing of IOVAs.

`make scale` and `make ageing` call `python -m checks.scale count|ageing`. All figures are counts of a simulation that
repeats bit for bit; nothing is measured by a clock.
"""

from __future__ import annotations

import itertools
import json
import os
import re
import sys
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Final

import click
from rich import box
from rich.console import Console
from rich.table import Table

from checks import command
from xsmmu_lab import policies
from xsmmu_lab.project import RESULTS
from xsmmu_lab.scale import Config, Count, compiled, counted, run
from xsmmu_lab.setup import host, root

CPUS: Final = (1, 2, 4, 8, 16, 32, 64)
ELSEWHERE: Final = (0, 10, 33)
LIVES: Final = ("short", "mixed")
POLICIES: Final = policies.names()
AWARE: Final = policies.waiting()
"""Policies that wait for a batch-aware driver's flush."""
QUICK_CPUS: Final = (1, 8, 64)
AGEING_CPUS: Final = 4
AGEING_ELSEWHERE: Final = 10

# -- configurations --------------------------------------------------------------------------------


def matrix(
    policies: Iterable[str], cpus: Sequence[int], elsewhere: Sequence[int], lives: Iterable[str]
) -> list[Config]:
    """All configurations. With one CPU the shares of other CPUs make no difference."""
    found = []
    for life, share, policy in itertools.product(lives, elsewhere, policies):
        for aware in (False, True) if policy in AWARE else (False,):
            found += [Config(policy, aware, n, share, life) for n in cpus]
    return found


# -- tables ----------------------------------------------------------------------------------------


def _groups(counts: Sequence[Count]) -> list[tuple[str, list[Count]]]:
    """Grouped by lifetime and share, with a title."""
    groups: dict[str, list[Count]] = {}
    for count in counts:
        groups.setdefault(_workload(count.config), []).append(count)
    return list(groups.items())


def _workload(config: Config) -> str:
    return f"{config.life} lifetimes, {config.elsewhere} % of pages unmapped elsewhere"


def _table(title: str, first: str) -> Table:
    table = Table(title=title, title_justify="left", title_style="bold", box=box.SIMPLE_HEAD, pad_edge=False)
    # A title is not folded to the width of its table.
    table.min_width = len(title)
    table.add_column(first, no_wrap=True)
    return table


def _cpus(number: int) -> str:
    return f"{number} CPU{'s' if number > 1 else ''}"


def transfers_table(title: str, counts: Sequence[Count]) -> Table:
    """The engine's transfers per page, by policy and number of CPUs."""
    cpus = sorted({count.config.cpus for count in counts})
    table = _table(f"Transfers per page: {title}", "policy")
    for n in cpus:
        table.add_column(_cpus(n), justify="right")
    for name in dict.fromkeys(count.name for count in counts):
        mine = {count.config.cpus: count for count in counts if count.name == name}
        table.add_row(name, *(_cell(mine.get(n), lambda count: f"{count.transfers():.3f}") for n in cpus))
    return table


def _cell(count: Count | None, show: Callable[[Count], str]) -> str:
    if count is None:
        return "-"
    return count.error or show(count)


_DETAILS: Final[tuple[tuple[str, Callable[[Count], str]], ...]] = (
    ("transfers\n/page", lambda count: f"{count.transfers():.3f}"),
    ("accesses\n/page", lambda count: f"{count.accesses:.1f}"),
    ("locks\n/page", lambda count: f"{count.locks:.3f}"),
    ("of another\nCPU", lambda count: f"{count.locks_fetched:.4f}"),
    ("waits", lambda count: f"{count.lock_waits:.4f}"),
    ("flushes\n/poll", lambda count: f"{count.flushes_per_poll:.2f}"),
    ("commands\n/page", lambda count: f"{count.commands:.5f}"),
    ("IOVA\nspread", lambda count: f"{count.spread:.2f}"),
    ("taken\n/live", lambda count: f"{count.taken:.2f}"),
    ("kernel's:\ntable", lambda count: f"{count.transfers('table'):.3f}"),
    ("\npage", lambda count: f"{count.transfers('page'):.3f}"),
    ("\nqueue", lambda count: f"{count.transfers('queue'):.4f}"),
    ("queue\nwaits", lambda count: f"{count.queue_waits:.4f}"),
)


def details_table(title: str, counts: Sequence[Count], cpus: int) -> Table:
    """All counts for this number of CPUs."""
    table = _table(f"{_cpus(cpus)}: {title}", "policy")
    for header, _ in _DETAILS:
        table.add_column(header, justify="right", no_wrap=True)
    for count in counts:
        if count.config.cpus == cpus:
            table.add_row(count.name, *(_cell(count, show) for _, show in _DETAILS))
    return table


def ageing_table(lines: Sequence[dict[str, Any]]) -> Table:
    """The ageing of each policy."""
    table = _table("After so many maps", "policy")
    headers = ("maps", "live\npages", "handed\nout", "taken", "taken\n/live", "tables", "engine's\nMiB")
    for header in (*headers, "instructions\n/map+unmap", "instructions\n/page"):
        table.add_column(header, justify="right", no_wrap=True)
    for line in lines:
        per_map, per_page = instructions(line)
        table.add_row(
            line["policy"] + (" (aware)" if line["aware"] else ""),
            f"{line['maps']:.3g}",
            *(f"{line[key]:,}" for key in ("live_pages", "given_pages", "taken_pages")),
            f"{line['taken_pages'] / line['live_pages']:.2f}",
            f"{line['tables']:,}",
            f"{line['memory_bytes'] / 2**20:.1f}",
            f"{per_map:.0f}",
            f"{per_page:.0f}",
        )
    return table


def instructions(line: dict[str, Any]) -> tuple[float, float]:
    """The engine's instructions per map and unmap, and per page of them."""
    window = line["window"]
    maps, pages = window["maps"] + window["unmaps"], window["mapped_pages"] + window["unmapped_pages"]
    return 2 * window["instructions"] / maps, 2 * window["instructions"] / pages


# -- where transfers come from ---------------------------------------------------------------------


def sites_table(tools: root.Root, program: Path, count: Count, most: int) -> Table:
    """The source places with the most transfers."""
    found = sorted(count.raw["sites"].items(), key=lambda site: -site[1])[:most]
    argv = ["addr2line", "-f", "-i", "-p", "-s", "-e", tools.inside(program), *(f"0x{pc}" for pc, _ in found)]
    text = tools.run(argv).stdout
    places = re.split(r"\n(?! \(inlined by\))", text.strip())
    title = f"What causes transfers: {count.name}, {_cpus(count.config.cpus)}, {_workload(count.config)}"
    table = _table(title, "transfers\n/page")
    table.add_column("where, and what it is inlined into")
    for (_, transfers), place in zip(found, places, strict=False):
        where = " < ".join(part.replace(" (inlined by)", "").strip() for part in place.split("\n"))
        table.add_row(f"{transfers / count.raw['unmaps']:.4f}", re.sub(r" \(discriminator \d+\)", "", where))
    return table


# -- results ---------------------------------------------------------------------------------------


def keep(parent: Path, name: str, result: dict[str, Any]) -> Path:
    """Write results/<name>-<UTC time>/ atomically."""
    time = datetime.now(UTC).strftime("%Y-%m-%dT%H-%M-%SZ")
    folder = parent / f".{name}-{time}-{os.getpid()}"
    folder.mkdir(parents=True)
    (folder / f"{name}.json").write_text(json.dumps({"time": time, **result}, indent=1) + "\n")
    target = parent / f"{name}-{time}"
    folder.rename(target)
    return target


# -- claims -----------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Claim:
    """A promise about the engine: a figure and its limit, in the configurations that `of` selects."""

    text: str
    of: Callable[[Config], bool]
    figure: Callable[[Count], float]
    limit: float


KEPT_PAGES: Final = 2048
"""IOVA pages that a CPU may keep beside twice the mapped pages: deferred, cached and current."""

CLAIMS: Final = (
    Claim(
        "a queue for each CPU: next to no transfers a page",
        lambda config: config.policy == "fused" and config.elsewhere == 0,
        Count.transfers,
        0.1,
    ),
    Claim(
        "a third of the pages elsewhere: transfers a page",
        lambda config: config.policy == "fused" and config.elsewhere == 33,
        Count.transfers,
        1.5,
    ),
    # F&S flushes when a block becomes empty: four times for 256 pages.
    Claim(
        "one flush a poll, wherever pages are unmapped",
        lambda config: config.policy in ("xsmmu", "fused"),
        lambda count: count.flushes_per_poll,
        1.1,
    ),
    Claim(
        "IOVAs stay together, whatever lives long: pages that a CPU keeps beyond twice those that are mapped",
        lambda config: config.policy in AWARE,
        lambda count: count.kept,
        KEPT_PAGES,
    ),
)


def broken_claims(counts: Iterable[Count], claims: Iterable[Claim] = CLAIMS) -> list[str]:
    """Each claim that a count breaks."""
    found = []
    for count, claim in itertools.product(counts, list(claims)):
        if not claim.of(count.config):
            continue
        value = float("inf") if count.error else claim.figure(count)
        if value > claim.limit:
            place = f"{count.name}, {count.config.cpus} CPUs, {count.config.elsewhere} %, {count.config.life}"
            found.append(f"{claim.text}: {value:.3f} > {claim.limit:g} ({place})")
    return found


# -- command ---------------------------------------------------------------------------------------


_policies = click.option(
    "--policies", type=command.some_of(POLICIES), metavar="NAMES", help=f"Of {' '.join(POLICIES)}."
)


def _console() -> Console:
    return Console(soft_wrap=True, highlight=False) if sys.stdout.isatty() else Console(width=160, highlight=False)


def _tools() -> root.Root:
    return root.ensure(host.cache_dir(), Console(stderr=True))


@click.group()
def scale() -> None:
    """Effects of many CPUs and long lives."""


@scale.command("count")
@click.option(
    "--cpus", type=command.ascending(1, CPUS[-1]), metavar="N,N", help=f"Default: {' '.join(map(str, CPUS))}."
)
@click.option("--sites", type=command.whole(0, 1000), metavar="N", default=0, help="Print so many causes of transfers.")
@click.option("--quick", is_flag=True, help="Fewer CPUs, and short lifetimes only.")
@_policies
def run_count(cpus: list[int] | None, sites: int, quick: bool, policies: list[str] | None) -> int:
    """Transfers of lines, locks, flushes and commands."""
    program, console = compiled(_tools()), _console()
    cpus = cpus or list(QUICK_CPUS if quick else CPUS)
    configs = matrix(policies or POLICIES, cpus, ELSEWHERE, LIVES[:1] if quick else LIVES)
    counts = []
    with Console(stderr=True).status("counting") as status:
        for done, config in enumerate(configs):
            status.update(f"counting: {done} of {len(configs)}, {config.policy} on {config.cpus} CPUs")
            counts.append(counted(program, config, *(["--sites"] if sites else [])))
    broken = broken_claims(counts)
    result = {"counts": [count.row() for count in counts], "broken_claims": broken}
    for title, group in _groups(counts):
        console.print(transfers_table(title, group))
    for title, group in _groups(counts):
        for n in [n for n in QUICK_CPUS if n in cpus] or cpus:
            # With one CPU there is no other: once is enough.
            if n > 1 or group[0].config.elsewhere == ELSEWHERE[0]:
                console.print(details_table(title, group, n))
    for count in counts:
        if sites and not count.error and count.config.cpus == max(cpus):
            console.print(sites_table(_tools(), program, count, sites))
    console.print(f"results: {keep(RESULTS, 'scale', result)}")
    for text in broken:
        console.print(f"not kept: {text}")
    return 1 if broken else 0


@scale.command("ageing")
@click.option(
    "--maps",
    type=command.ascending(1000, 10**12),
    metavar="N,N",
    default="1e6,1e7,1e8",
    show_default=True,
    help="Numbers of maps at which to count.",
)
@_policies
def run_ageing(maps: list[int], policies: list[str] | None) -> int:
    """The effects of a long life on IOVAs and instructions."""
    program, console = compiled(_tools(), hooked=False), _console()
    lines: list[dict[str, Any]] = []
    with Console(stderr=True).status("ageing") as status:
        for policy in policies or AWARE:
            status.update(f"ageing: {policy}")
            words = ["ageing", "--policy", policy, "--cpus", str(AGEING_CPUS), "--elsewhere", str(AGEING_ELSEWHERE)]
            words += ["--maps", ",".join(str(n) for n in maps)]
            lines += run(program, *words)
    console.print(ageing_table(lines))
    console.print(f"results: {keep(RESULTS, 'ageing', {'ageing': lines})}")
    return 0


if __name__ == "__main__":
    sys.exit(command.run(scale, "checks.scale"))
