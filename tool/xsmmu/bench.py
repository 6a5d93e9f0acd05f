# SPDX-License-Identifier: GPL-2.0-only
"""`xsmmu bench`: measures the cost of a map and an unmap of a page under each policy, in nanoseconds.

Each round runs all policies, so a drift of temperature or clock affects all policies alike. The first round warms up
and is not counted.
"""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any, Final

import click

from xsmmu import (
    activity,
    binding,
    calibration,
    choose,
    complete,
    interfaces,
    kernel,
    machine,
    machine_file,
    modes,
    module,
    output,
    steps,
    workload,
)
from xsmmu.activity import Activity
from xsmmu.digits import precise, ratio
from xsmmu.errors import UserError, unknown_name
from xsmmu.machine import Device
from xsmmu.modes import Mover
from xsmmu.spread import SOUND, column, disturbed, few, spread
from xsmmu.steps import Step

RINGS: Final = ("64", "256", "1024")
PAGE_BYTES: Final = 4096
SHOWN: Final = ("map_ns", "unmap_ns", "both_ns")
QUANTITIES: Final = (*SHOWN, "flush_ns", "invalidations_per_page", "disturbed_rounds")
NOT_HERE: Final = ("declined", "refused", "type-failed", "attach-failed")
"""Error codes that mean: the device cannot use this policy."""
VIRTUAL: Final = (
    "this is a virtual machine: bench measured its emulated IOMMU, and the hypervisor affects CPU and clock, so the "
    "figures are not those of hardware"
)

Row = dict[str, float | None]


@dataclass
class Setup:
    """Parameters of a measurement, and the machine."""

    device: str
    members: list[str]
    drivers: list[str]
    policies: list[str]
    ring: int
    bytes: int
    rounds: int
    pages: int
    kernel: str
    processor: str | None
    cpus: int
    module: str | None
    hypervisor: bool
    left_out: dict[str, str] = field(default_factory=dict)
    """Policies that the device cannot use, with the reason."""


class Bench:
    """Runs the rounds and collects the results."""

    def __init__(self, setup: Setup, device: Device, may_leave_out: bool):
        self.setup, self.device, self.may_leave_out = setup, device, may_leave_out
        self.rows: dict[str, list[Row]] = {policy: [] for policy in setup.policies}
        self.levels: dict[str, str] = {}
        self.copies: dict[str, int] = {}
        """Largest size of a copied buffer, in bytes, by policy."""
        self.tables: dict[str, str] = {}
        """Writer of the page tables, by policy: kernel, direct, or none in passthrough."""

    def run(self, mover: Mover) -> None:
        """Run all rounds; the workload must be bound to the device."""
        from rich.console import Console
        from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn

        console = Console(stderr=True)
        columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeRemainingColumn())
        # A drawing thread would disturb the measurement.
        with Progress(*columns, console=console, auto_refresh=False, disable=not console.is_terminal) as progress:
            task = progress.add_task("", total=(self.setup.rounds + 1) * len(self.rows))
            for number in range(self.setup.rounds + 1):
                for policy in self.setup.policies:
                    count = f"round {number}" if number else "warm-up"
                    progress.update(task, description=f"{count}: {policy}", refresh=True)
                    row = self._measure(mover, policy, is_first=not number)
                    if row and number:
                        self.rows[policy].append(row)
                    progress.update(task, advance=1, refresh=True)
        if not any(self.rows.values()):
            raise UserError(
                f"{self.device.label} can use none of these policies ({'; '.join(self.setup.left_out.values())}): "
                "choose other policies with --policies, or another device",
                code="refused",
            )

    def _measure(self, mover: Mover, policy: str, is_first: bool) -> Row | None:
        if policy in self.setup.left_out:
            return None
        try:
            mover.move(policy)
        except UserError as error:
            if not (is_first and self.may_leave_out and error.code in NOT_HERE):
                raise
            self.setup.left_out[policy] = error.message
            return None
        # A refused move may have left the device unbound.
        binding.bind(self.device, workload.NAME).do()
        ours = policy not in modes.KERNEL
        before = activity.read(self.device) if ours else None
        found = workload.run(self.device, self.setup.ring, self.setup.bytes)
        now = module.choice(self.device)
        if ours and now.state != "active":
            raise UserError(
                f"{self.device.label} was not attached under {policy}: see the kernel log (dmesg)",
                code="attach-failed",
            )
        if not ours and found["translated"] == (modes.KERNEL[policy] == "identity"):
            raise UserError(
                f"{self.device.label} did not change to {policy}: see xsmmu doctor {self.device.address}",
                code="type-failed",
            )
        self.levels[policy] = modes.level(self.device)
        self.copies[policy] = now.tunables.get("copy_bytes", 0) if ours else 0
        direct = ours and now.tables == "direct" and not module.no_direct(self.device)
        self.tables[policy] = "direct" if direct else "none" if policy == "passthrough" else "kernel"
        counted = Activity(self.device, before, activity.read(self.device)) if before else None
        return {
            "map_ns": found["map_ns"],
            "unmap_ns": found["unmap_ns"],
            "both_ns": found["map_ns"] + found["unmap_ns"],
            "flush_ns": found["flush_ns"],
            "invalidations_per_page": counted.invalidations_per_page if counted else None,
            "disturbed_rounds": found["disturbed"],
        }

    def ranking(self) -> list[dict[str, Any]]:
        """A row for each measured policy, the cheapest first."""
        measured = [policy for policy in self.setup.policies if self.rows[policy]]
        base = self.rows[measured[0]]
        found = [
            {
                "policy": policy,
                "level": self.levels[policy],
                "copy_bytes": self.copies[policy],
                **{name: spread(column(self.rows[policy], name), column(base, name)) for name in QUANTITIES},
            }
            for policy in measured
        ]
        return sorted(found, key=lambda row: row["both_ns"]["median"])

    def native_rows(self, ranking: Sequence[Mapping[str, Any]]) -> list[dict[str, Any]]:
        """The ranking in the form of `make native`, for `xsmmu lab compare`."""
        return [
            {
                "policy": f"{row['policy']}{'-direct' if self.tables[row['policy']] == 'direct' else ''}",
                "driver": "none" if row["policy"] == "passthrough" else "unmodified",
                "tables": self.tables[row["policy"]],
                "bytes": self.setup.bytes,
                "pages": 1,
                "ring": self.setup.ring,
                "list": 0,
                "walk_mib": 0,
                "cpus": 1,
                "wait_ns": None,
                "ns_per_page": row["both_ns"]["median"],
                "low": row["both_ns"]["min"],
                "high": row["both_ns"]["max"],
                "map_ns": row["map_ns"]["median"],
                "unmap_ns": row["unmap_ns"]["median"],
                "inv_per_page": (row["invalidations_per_page"] or {}).get("median"),
            }
            for row in ranking
        ]

    def warnings(self) -> list[str]:
        """Reasons to doubt the figures."""
        found = [*few(self.setup.rounds, "--rounds")]
        for policy, rows in self.rows.items():
            found += disturbed(policy, "both_ns", column(rows, "both_ns"))
        return found


# ---- for people ----


def _print(setup: Setup, ranking: Sequence[dict[str, Any]]) -> None:
    rows = []
    for row in ranking:
        cells: list[object] = [row["policy"], row["level"]]
        cells += [f"{precise(row[name]['median'])} ±{precise(row[name]['mad'], 2)}" for name in SHOWN]
        both, per_page = row["both_ns"], row["invalidations_per_page"] or {}
        cells += [f"{precise(both['min'])}..{precise(both['max'])}", f"{both['relative']:.3f}"]
        rows.append([*cells, ratio(per_page.get("median"))])
    output.table(["policy", "level", "map ns", "unmap ns", "both ns", "range", "x", "inv/page"], rows)
    first = next(policy for policy in setup.policies if policy not in setup.left_out)
    click.echo(
        f"buffers of {setup.bytes} bytes, {setup.ring} at a time; medians of {setup.rounds} rounds, ± median "
        f"deviation; x: relative to {first}"
    )
    for policy, reason in setup.left_out.items():
        click.echo(f"left out: {policy}: {reason}")
    copying = [row["policy"] for row in ranking if row["copy_bytes"]]
    if copying and setup.bytes == PAGE_BYTES:
        click.echo(f"note: {', '.join(copying)} maps whole pages; --bytes 256 measures the copies")
    if setup.hypervisor:
        click.echo(f"note: {VIRTUAL}")


def _print_setup(setup: Setup, device: Device) -> None:
    """Print the steps of a dry run."""
    for note in _lost(device):
        click.echo(f"# {note}")
    for step in _taking(device):
        click.echo(step.shell)
    click.echo(f"# then {setup.rounds + 1} rounds of {setup.pages} pages under each of {', '.join(setup.policies)}")
    click.echo("# then policy, type and drivers are restored")


# ---- the command ----


def _policies(device: Device, words: str | None) -> list[str]:
    offered = modes.offered(device)
    if words is None:
        return [policy for policy in offered if policy != "passthrough"]
    policies = words.split(",")
    for policy in policies:
        if policy not in offered:
            raise unknown_name("policy", policy, offered)
    if len({*policies}) < len(policies):
        raise UserError(f"--policies {words} has a policy twice: name each policy once", code="usage")
    return policies


def _drivers(device: Device) -> list[tuple[Device, str]]:
    """Drivers that must be unbound, without a workload that a killed command has left."""
    return [each for each in binding.bound(device) if each[1] != workload.NAME]


def _lost(device: Device) -> list[str]:
    """Notes about the settings that interfaces lose; bench has no --after."""
    return interfaces.notes([each for each, _ in _drivers(device)], True)


def _refuse(device: Device, rebind: bool, force: bool) -> None:
    """Refuse a device in use before anything changes."""
    if device.is_bridge:
        raise UserError(f"{device.label} is a bridge without DMA of its own: choose another device", code="bad-value")
    drivers = _drivers(device)
    if drivers and not rebind:
        names = ", ".join(f"{each.label} to {driver}" for each, driver in drivers)
        raise UserError(
            f"drivers are bound in the IOMMU group of {device.address} ({names}), and bench needs the group "
            "without drivers: choose a device that is not in use, or add --rebind to unbind the drivers during the "
            "measurement",
            code="driver-bound",
        )
    if drivers and not force:
        choose.refuse_essential(device, choose.CHOOSE_ANOTHER)


def _taking(device: Device) -> list[Step]:
    """Steps that bind the workload to the device."""
    unbinding = [binding.unbind(*each) for each in reversed(_drivers(device))]
    # These steps have no undo: Mover.put_back() binds the drivers after policy and type are restored.
    return [workload.load(), *(Step(step.shell, step.do) for step in unbinding), *workload.take(device)]


def _measure(device: Device, bench: Bench, force: bool) -> list[dict[str, Any]]:
    """Bind the workload, measure, and restore everything."""
    outer = Mover(device, force=force)
    begun = [Step("", steps.nothing, outer.put_back)]
    with workload.one_cpu(device), steps.put_back_if_it_fails(begun):
        for step in _taking(device):
            output.progress(step.shell)
            begun.append(step)
            step.do()
        # This Mover starts from a group without drivers.
        bench.run(Mover(device, force=True))
        ranking = bench.ranking()
        left = steps.take_back(begun)
        if left:
            raise UserError("; ".join(left))
    return ranking


@click.command()
@click.argument("device", shell_complete=complete.devices)
@click.option(
    "--policies",
    shell_complete=complete.modes,
    help="Policies to measure, in this order; by default all but passthrough.",
)
@click.option("--ring", type=click.Choice(RINGS), default="256", show_default=True, help="Buffers mapped at a time.")
@click.option(
    "--bytes",
    "size",
    type=click.IntRange(1, PAGE_BYTES),
    default=PAGE_BYTES,
    show_default=True,
    help="Size of a buffer.",
)
@click.option(
    "--rounds",
    type=click.IntRange(1, 1000),
    default=SOUND,
    show_default=True,
    help="Number of measurements of each policy.",
)
@click.option("--save", is_flag=True, help="Save the costs for the estimates of doctor --sample and top.")
@click.option(
    "--machine",
    "described",
    metavar="M.toml",
    type=click.Path(path_type=Path),
    help="Write the times into this machine's file, for xsmmu predict.",
)
@click.option("--rebind", is_flag=True, help="Unbind the drivers of the IOMMU group during the measurement.")
@click.option("--dry-run", is_flag=True, help="Check everything and print the steps; change nothing.")
@click.option("--force", is_flag=True, help="Unbind even a disk in use or the network path to this machine.")
@output.option
def bench(
    device: str,
    policies: str | None,
    ring: str,
    size: int,
    rounds: int,
    save: bool,
    described: Path | None,
    rebind: bool,
    dry_run: bool,
    force: bool,
    form: str,
) -> None:
    """Measure the cost of maps and unmaps on this machine under each policy, in nanoseconds per page.

    The module xsmmu_bench replaces DEVICE's driver, and maps and unmaps memory; the device does no DMA. Figures depend
    little on the device, so choose a device that is not in use. They include the waits for this machine's IOMMU; in a
    virtual machine the IOMMU is emulated. The policies kernel-strict, kernel-lazy and passthrough are the kernel's own
    path. Policies that DEVICE cannot use are left out, unless --policies names them.

    At the end, at Ctrl-C and after an error, policy, type and drivers are restored.

    \b
    Examples:
      xsmmu bench 0000:03:00.0 --save
      xsmmu bench eth1 --rebind --policies kernel-strict,strict,fused
      xsmmu bench eth1 --rebind --bytes 256 --policies strict,copy
      xsmmu bench 0000:03:00.0 --machine my-server.toml
      xsmmu bench eth1 --rebind --ring 1024 --rounds 20 -o json > bench.json
    """
    found = binding.chosen_by(machine.find(device))
    _check_outputs(save, described, size)
    with workload.one_at_a_time(found):
        asked = _policies(found, policies)
        if not dry_run and workload.release_left(found):
            click.echo(f"{found.label}: unbound from {workload.NAME}, which a killed command had left bound", err=True)
        _refuse(found, rebind, force)
        setup = Setup(
            device=found.address,
            members=[each.address for each in (found.group.members if found.group else [found])],
            drivers=[driver for _, driver in _drivers(found)],
            policies=asked,
            ring=int(ring),
            bytes=size,
            rounds=rounds,
            pages=workload.PAGES,
            kernel=kernel.release(),
            processor=kernel.model(),
            cpus=os.cpu_count() or 0,
            module=module.version(),
            hypervisor=kernel.is_virtual(),
        )
        if dry_run:
            if form == "table":
                _print_setup(setup, found)
            else:
                output.emit_one("bench-setup", asdict(setup))
            return
        if form == "table":
            for note in _lost(found):
                click.echo(note, err=True)
        measuring = Bench(setup, found, policies is None)
        ranking = _measure(found, measuring, force)
    about = {**asdict(setup), "warnings": measuring.warnings()}
    rows = measuring.native_rows(ranking)
    try:
        # Saving comes first: the reader of standard output may close the pipe.
        if save:
            _save(about, ranking, rows)
        if described:
            names = machine_file.fill(described, setup.cpus, ranking, found.address)
            click.echo(f"{described}: {', '.join(names)}", err=True)
    finally:
        if form == "table":
            _print(setup, ranking)
            for warning in about["warnings"]:
                click.echo(f"warning: {warning}", err=True)
        else:
            output.emit(form, "bench", "ranking", ranking, **about, rows=rows)
    if save and form == "table":
        click.echo(f"saved: {calibration.file()}")


def _check_outputs(save: bool, described: Path | None, size: int) -> None:
    """Before anything is measured."""
    if (save or described) and size != PAGE_BYTES:
        option = "--save" if save else "--machine"
        raise UserError(f"{option} needs the costs of whole pages: leave out --bytes", code="usage")
    if described:
        machine_file.check(described)


def _save(about: Mapping[str, Any], ranking: Sequence[dict[str, Any]], rows: Sequence[dict[str, Any]]) -> None:
    costs = {row["policy"]: {name: row[name]["median"] for name in ("map_ns", "unmap_ns")} for row in ranking}
    document = output.document("bench", **about, rows=rows, ranking=ranking)
    calibration.write(about["kernel"], about["hypervisor"], costs, document)
