# SPDX-License-Identifier: GPL-2.0-only
"""`xsmmu compare`: runs a user's command under each policy in turn, repeatedly, and compares the costs.

Each round runs all policies in the given order, so a drift (temperature, neighbours, fill of a disk) affects all
policies alike. The first rounds warm up and are not counted.
"""

from __future__ import annotations

import json
import os
import re
import shlex
import shutil
import statistics
import sys
import tempfile
import time
from collections.abc import Iterator
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, Final

import click

from xsmmu import binding, complete, exposure, kernel, machine, measure, modes, module, output, steps
from xsmmu.digits import duration, precise, ratio
from xsmmu.errors import UserError, unknown_name
from xsmmu.machine import Device
from xsmmu.measure import Figure, Row
from xsmmu.modes import Mover
from xsmmu.spread import SOUND, column, disturbed, few, spread
from xsmmu.steps import Step

POLICIES: Final = "kernel-strict,kernel-lazy,fused,copy"
RANKS: Final = {"wall": "wall_s", "cpu": "cpu_s", "highest": "figure", "lowest": "figure"}
"""Quantity for each kind of ranking; smaller is better except for `highest`."""
MODULES: Final = ("invalidations_per_page", "exposure_p99_ns", "exposure_max_ns")
"""Counters of the module in the table."""
WIDE: Final = 120
"""Width in columns of a terminal with room for all columns of the table."""
RUNS_FILE: Final = "runs.jsonl"
RESULT_FILE: Final = "result.json"


@dataclass(frozen=True)
class Setup:
    """Parameters of a comparison, and the machine."""

    device: str
    members: list[str]
    drivers: list[str]
    command: list[str]
    policies: list[str]
    runs: int
    warmup: int
    baseline: str
    rank: str
    figure: str | None
    kernel: str
    cpus: int
    module: str | None


class Comparison:
    """Runs the rounds and collects the results."""

    def __init__(self, setup: Setup, device: Device, figure: Figure | None, folder: Path):
        self.setup, self.device, self.figure, self.folder = setup, device, figure, folder
        self.rows: dict[str, list[Row]] = {policy: [] for policy in setup.policies}
        """Results by policy, without warm-up."""
        self.levels: dict[str, str] = {}
        self.bounds: dict[str, int | None] = {}
        """Bound of the exposure by policy."""

    def run(self, mover: Mover) -> None:
        """Try each policy without COMMAND, then run all rounds; each result is written at once."""
        from rich.console import Console
        from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn

        total = (self.setup.warmup + self.setup.runs) * len(self.setup.policies)
        console = Console(stderr=True)
        columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeRemainingColumn())
        # Without a drawing thread: a signal that is blocked in this thread would be delivered to another thread.
        with (
            (self.folder / RUNS_FILE).open("xb") as stream,
            Progress(*columns, console=console, auto_refresh=False, disable=not console.is_terminal) as progress,
        ):
            _write(stream.fileno(), output.document("compare-setup", **asdict(self.setup)))
            task = progress.add_task("", total=total)
            # A policy that the device cannot use is refused before COMMAND runs.
            for policy in self.setup.policies:
                progress.update(task, description=f"trying {policy}", refresh=True)
                mover.move(policy)
            for number in range(total):
                at, place = divmod(number, len(self.setup.policies))
                policy, a_warmup = self.setup.policies[place], at < self.setup.warmup
                count = f"warm-up {at + 1}" if a_warmup else f"round {at - self.setup.warmup + 1}"
                progress.update(task, description=f"{count}: {policy}", refresh=True)
                mover.move(policy)
                row = self._measure(policy, number, count)
                self.levels[policy] = modes.level(self.device)
                self.bounds[policy] = module.choice(self.device).bound_ns
                about = {"policy": policy, "round": at, "warmup": a_warmup}
                _write(stream.fileno(), output.document("compare-run", **about, **row))
                if not a_warmup:
                    self.rows[policy].append(row)
                progress.update(task, advance=1, refresh=True)

    def _measure(self, policy: str, number: int, count: str) -> Row:
        command = self.setup.command
        said = self.folder / f"{number + 1:03}-{policy}"
        try:
            return measure.run(command, self.device, self.figure, said, policy not in modes.KERNEL)
        except UserError as error:
            where = f"{policy}, {count}: '{shlex.join(command)}'"
            raise UserError(f"{where} {error}", error.lines, code=error.code) from None
        except FileExistsError as error:
            raise UserError(
                f"{error.filename} was created by another program: name an --output-folder that nobody else uses",
                code="not-empty",
            ) from None
        except OSError as error:
            raise UserError(
                f"cannot run '{command[0]}': {error.strerror}: COMMAND must be a program, or sh -c '...'",
                code="command-failed",
            ) from None

    def ranking(self) -> list[dict[str, Any]]:
        """A row for each policy, the best first."""
        base = self.rows[self.setup.baseline]
        quantity, sign = RANKS[self.setup.rank], -1 if self.setup.rank == "highest" else 1
        best_first = sorted(self.rows, key=lambda policy: sign * statistics.median(column(self.rows[policy], quantity)))
        return [
            {
                "rank": rank,
                "policy": policy,
                "level": self.levels[policy],
                "exposure_bound_ns": self.bounds[policy],
                **{name: spread(column(self.rows[policy], name), column(base, name)) for name in measure.QUANTITIES},
            }
            for rank, policy in enumerate(best_first, 1)
        ]

    def warnings(self) -> list[str]:
        """Reasons to doubt the ranking."""
        quantity = RANKS[self.setup.rank]
        found = [*few(self.setup.runs, "--runs")]
        for policy, rows in self.rows.items():
            # A difference of a single tick is no difference.
            resolution = 1.5 / measure.TICKS_PER_S if quantity == "cpu_s" else 0.0
            found += disturbed(policy, quantity, column(rows, quantity), resolution)
        return found


def _write(descriptor: int, row: dict[str, Any]) -> None:
    os.write(descriptor, f"{json.dumps(row)}\n".encode())
    os.fsync(descriptor)


# ---- for people ----


def _print(setup: Setup, ranking: list[dict[str, Any]]) -> None:
    """Print a table; narrow terminals get only the ranking quantity and CPU time."""
    quantity = RANKS[setup.rank]
    shown = {"wall s": "wall_s", "cpu s": "cpu_s", **({"figure": "figure"} if setup.figure else {})}
    is_wide = not sys.stdout.isatty() or shutil.get_terminal_size().columns >= WIDE
    if not is_wide:
        shown = {head: name for head, name in shown.items() if name in (quantity, "cpu_s")}
    rows = []
    for row in ranking:
        cells: list[object] = [row["policy"], row["level"]]
        for name in shown.values():
            cells.append(f"{precise(row[name]['median'])} ±{precise(row[name]['mad'], 2)}")
            cells.append(None if row[name]["relative"] is None else f"{row[name]['relative']:.3f}")
        if is_wide:
            cells.append(f"{precise(row[quantity]['min'])}..{precise(row[quantity]['max'])}")
        per_page, p99, longest = (row[name] or {} for name in MODULES)
        cells += [ratio(per_page.get("median")), duration(p99.get("median"))]
        cells += [exposure.beside(longest.get("max"), row["exposure_bound_ns"])] if is_wide else []
        rows.append(cells)
    ranked = next(head for head, name in shown.items() if name == quantity)
    heads = ["policy", "level", *(word for head in shown for word in (head, "x"))]
    more = [f"{ranked}: range", "inv/page", "p99", "max/bound"] if is_wide else ["inv/page", "p99"]
    output.table([*heads, *more], rows)
    click.echo(
        f"medians of {setup.runs} runs, ± median deviation; x: relative to {setup.baseline}; best first by {ranked}"
    )
    for row in ranking:
        for note in _notes(row):
            click.echo(f"note: {row['policy']}: {note}")


def _notes(row: dict[str, Any]) -> Iterator[str]:
    """Explanations of unusual figures."""
    per_page, longest = row["invalidations_per_page"], row["exposure_max_ns"]
    if per_page and row["unmapped_pages"] and row["deferred_pages"]:
        share = exposure.share_at_once(*(row[f"{name}_pages"]["median"] for name in ("unmapped", "deferred")))
        said = exposure.at_once(row["policy"], row["level"], share, per_page["median"])
        yield from [f"inv/page: {said}"] if said else []
    if longest and exposure.is_late(longest["max"], row["exposure_bound_ns"], exact=False):
        beyond = f"a page stayed reachable for {duration(longest['max'])}, beyond {duration(row['exposure_bound_ns'])}"
        yield f"max/bound: {beyond}: xsmmu doctor lists likely causes"


# ---- command ----


def _policies(device: Device, words: str, baseline: str | None) -> list[str]:
    policies = words.split(",")
    offered = modes.offered(device)
    for policy in (*policies, *([baseline] if baseline else [])):
        if policy not in offered:
            raise unknown_name("policy", policy, offered)
    if len({*policies}) < len(policies):
        raise UserError(f"--policies {words} has a policy twice: name each policy once", code="usage")
    if baseline and baseline not in policies:
        raise UserError(
            f"--baseline {baseline} is not among --policies {words}: add the policy there, or choose a listed policy",
            code="usage",
        )
    return policies


def _figure(pattern: str | None, path: str | None) -> Figure | None:
    if pattern and path:
        raise UserError("--metric and --json-path exclude each other: leave one out", code="usage")
    try:
        return Figure(re.compile(pattern, re.MULTILINE) if pattern else None, path) if pattern or path else None
    except re.error as error:
        raise UserError(
            f"--metric '{pattern}' is no regular expression ({error}): write a pattern such as '([0-9.]+) req/s'",
            code="bad-value",
        ) from None


def _rank(wish: str | None, figure: Figure | None) -> str:
    if wish and RANKS[wish] == "figure" and not figure:
        raise UserError(f"--rank {wish} needs a figure: add --metric or --json-path", code="usage")
    return wish or ("highest" if figure else "wall")


def _folder(wish: Path | None) -> Path:
    """Folder for the runs; an existing or unwritable folder is refused before anything changes."""
    folder = wish or Path(time.strftime("xsmmu-compare-%Y-%m-%dT%H-%M-%S"))
    try:
        if folder.exists() and any(folder.iterdir()):
            raise UserError(f"{folder} is not empty: name another --output-folder", code="not-empty")
        nearest = next(each for each in (folder, *folder.absolute().parents) if each.exists())
        tempfile.TemporaryDirectory(dir=nearest).cleanup()
    except OSError as error:
        raise UserError(
            f"cannot write to {folder}: {error.strerror}: name another --output-folder", code="cannot-write"
        ) from None
    return folder


def _print_setup(setup: Setup, label: str, folder: Path) -> None:
    """Print the plan of a dry run."""
    click.echo(f"{label}: {', '.join(setup.policies)} in turn, once without COMMAND, then in each round")
    click.echo(f"rounds: {setup.warmup} to warm up, {setup.runs} counted")
    click.echo(f"COMMAND: {shlex.join(setup.command)}")
    click.echo(f"drivers to unbind and bind if a policy needs it: {', '.join(setup.drivers) or 'no driver'}")
    click.echo(f"all runs: {folder}")


@click.command()
@click.argument("device", shell_complete=complete.devices)
@click.argument("command", nargs=-1, required=True, type=click.UNPROCESSED)
@click.option(
    "--policies",
    default=POLICIES,
    show_default=True,
    shell_complete=complete.modes,
    help="Policies to compare, in this order.",
)
@click.option("--runs", type=click.IntRange(1), default=SOUND, show_default=True, help="Number of counted rounds.")
@click.option(
    "--warmup", type=click.IntRange(0), default=1, show_default=True, help="Number of uncounted rounds before."
)
@click.option("--baseline", shell_complete=complete.modes, help="Policy that x is relative to; by default the first.")
@click.option("--metric", metavar="REGEX", help="Figure in the output of COMMAND: first group of the last match.")
@click.option("--json-path", metavar="KEY.KEY", help="Figure in the JSON output of COMMAND.")
@click.option(
    "--rank", type=click.Choice([*RANKS]), help="Order of the ranking; by default highest with a figure, else wall."
)
@click.option("--before", metavar="SHELL", help="Command to run before drivers are unbound.")
@click.option("--after", metavar="SHELL", help="Command to run after drivers are bound.")
@click.option("--output-folder", type=click.Path(path_type=Path), help="New folder for all runs; by default here.")
@click.option("--dry-run", is_flag=True, help="Check everything and print the plan; change nothing.")
@click.option("--force", is_flag=True, help="Unbind even a disk in use or the network path to this machine.")
@output.option
def compare(
    device: str,
    command: tuple[str, ...],
    policies: str,
    runs: int,
    warmup: int,
    baseline: str | None,
    metric: str | None,
    json_path: str | None,
    rank: str | None,
    before: str | None,
    after: str | None,
    output_folder: Path | None,
    dry_run: bool,
    force: bool,
    form: str,
) -> None:
    """Run COMMAND under each policy of DEVICE in turn, repeatedly, and compare the costs.

    Costs are measured, with the waits for this machine's IOMMU; in a virtual machine the IOMMU is emulated.

    The policies kernel-strict, kernel-lazy and passthrough are the kernel's own path. Drivers of the group are unbound
    and bound if a change of policy needs a rebind, which removes addresses of interfaces: --after can restore them. At
    the end, at Ctrl-C and after an error, policy, type and drivers are restored.

    \b
    Examples:
      xsmmu compare eth1 \\
        --after 'ip a add 10.0.0.2/24 dev eth1 && ip l set eth1 up && sleep 3' \\
        --json-path end.sum_received.bits_per_second -- iperf3 -J -c 10.0.0.1
      xsmmu compare nvme0n1 --policies kernel-strict,xsmmu,fused --rank cpu -- \\
        dd if=/dev/nvme0n1 of=/dev/null bs=4k count=500k iflag=direct
      xsmmu compare eth1 --policies strict,fused --metric '([0-9.]+) req/s' -- \\
        sh -c './load | tail -1'
    """
    found = binding.chosen_by(machine.find(device))
    asked = _policies(found, policies, baseline)
    figure = _figure(metric, json_path)
    ranked_by = _rank(rank, figure)
    if not shutil.which(command[0]):
        raise UserError(f"program '{command[0]}' does not exist: write COMMAND after --", code="no-command")
    mover = Mover(found, before, after, force)
    mover.check(asked)
    folder = _folder(output_folder)
    setup = Setup(
        device=found.address,
        members=[each.address for each in mover.members],
        drivers=[driver for _, driver in mover.drivers],
        command=[*command],
        policies=asked,
        runs=runs,
        warmup=warmup,
        baseline=baseline or asked[0],
        rank=ranked_by,
        figure=str(figure) if figure else None,
        kernel=kernel.release(),
        cpus=os.cpu_count() or 0,
        module=module.version(),
    )
    if dry_run:
        if form == "table":
            _print_setup(setup, found.label, folder)
            for note in mover.notes(asked):
                click.echo(note)
        else:
            output.emit_one("compare-setup", asdict(setup))
        return
    if form == "table":
        for note in mover.notes(asked):
            click.echo(note, err=True)
    folder.mkdir(parents=True, exist_ok=True)
    comparison = Comparison(setup, found, figure, folder)
    try:
        with steps.put_back_if_it_fails([Step("", steps.nothing, mover.put_back)]):
            comparison.run(mover)
            ranking = comparison.ranking()
            about = {**asdict(setup), "folder": str(folder), "warnings": comparison.warnings()}
            result = output.document("compare", **about, ranking=ranking)
            with (folder / RESULT_FILE).open("x") as stream:
                stream.write(json.dumps(result, indent=1) + "\n")
            mover.put_back()
    except UserError as error:
        error.message += f"; the finished runs are in {folder}"
        raise
    if form != "table":
        output.emit(form, "compare", "ranking", ranking, **about)
        return
    _print(setup, ranking)
    click.echo(f"all runs: {folder}")
    for warning in about["warnings"]:
        click.echo(f"warning: {warning}", err=True)
    if not any(row[name] and row[name]["max"] for row in ranking for name in ("mapped_pages", "copied_maps")) and any(
        policy not in modes.KERNEL for policy in asked
    ):
        click.echo(f"note: the module mapped nothing during the runs: check that COMMAND uses {found.label}", err=True)
