# SPDX-License-Identifier: GPL-2.0-only
"""`xsmmu lab`: the commands of the lab."""

from __future__ import annotations

import dataclasses
import json
import os
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import click

from xsmmu.errors import unknown_name
from xsmmu.output import Commands
from xsmmu_lab.arch import AMD64, ARCHES
from xsmmu_lab.project import RESULTS
from xsmmu_lab.vm.iommu import DEFAULT_IOMMU, IOMMUS

if TYPE_CHECKING:
    from rich.console import Console

_PIPE_COLUMNS: Final = 1000

_kernel = click.option("--kernel", help="A kernel of lab/kernels.toml, or the folder of a kernel that you have built.")
_iommu = click.option(
    "--iommu", default=DEFAULT_IOMMU, show_default=True, help=f"IOMMU of the guest: {', '.join(IOMMUS)}."
)
_json = click.option("--json", "as_json", is_flag=True, help="Print JSON instead of tables.")


@click.group(cls=Commands)
def lab() -> None:
    """Compare all policies on stock kernels in virtual machines."""


@lab.command()
@_kernel
@_iommu
@click.option("--experiment", default="compare", show_default=True, help="An experiment of lab/experiments.")
@click.option("--policy", multiple=True, help="Only this policy; may be repeated.")
@click.option("--workload", multiple=True, help="Only this workload (name or name/variant); may be repeated.")
@click.option("--quick", is_flag=True, help="Only workloads that take little time.")
@click.option("--accel", default="auto", show_default=True, help="auto, tcg (instructions) or kvm (nanoseconds).")
@click.option("--jobs", type=click.IntRange(1), default=2, show_default=True, help="Guests at the same time.")
@click.option("--repeat", type=click.IntRange(1, 100), default=1, show_default=True, help="Measurements of each run.")
@click.option(
    "--output", type=click.Path(path_type=Path), help="Folder for results; default: results/ of the checkout."
)
@_json
def run(
    kernel: str | None,
    iommu: str,
    experiment: str,
    policy: tuple[str, ...],
    workload: tuple[str, ...],
    quick: bool,
    accel: str,
    jobs: int,
    repeat: int,
    output: Path | None,
    as_json: bool,
) -> None:
    """Run an experiment: boot the guests, measure every policy, check every count, write results and a report.

    \b
    Examples:
      xsmmu lab run                                everything, default kernel
      xsmmu lab run --quick                        map and unmap costs only
      xsmmu lab run --kernel 7.2 --quick
      xsmmu lab run --iommu virtio --quick         on another IOMMU
      xsmmu lab run --kernel ~/linux/build         `make bzImage modules` there
      xsmmu lab run --experiment claim-d-mapsync   published figures beside ours
      xsmmu lab run --workload nvme/4k --repeat 5  median of five, and spread
      xsmmu lab run --workload net-rx --workload nvme/4k \\
        --policy kernel-strict --policy fused
    """
    from rich.console import Console

    from xsmmu_lab.runs import results
    from xsmmu_lab.runs import run as the_run
    from xsmmu_lab.setup import host

    host.interrupt_on_sigterm()
    if accel not in ("auto", "tcg", "kvm"):
        raise unknown_name("accelerator", accel, ("auto", "tcg", "kvm"))
    options = the_run.Options(
        kernel=kernel,
        iommu=iommu,
        experiment=experiment,
        policies=policy,
        workloads=workload,
        quick=quick,
        accel=accel,
        output=output or RESULTS,
        jobs=jobs,
        repeat=repeat,
    )
    folder = the_run.run(options, Console(stderr=True))
    _show(results.load(folder), folder, as_json)


@lab.command()
@click.option("--kernel", multiple=True, help="Only this stock kernel of lab/kernels.toml; may be repeated.")
@click.option("--iommu", multiple=True, help=f"Only this IOMMU ({', '.join(IOMMUS)}); may be repeated.")
@click.option("--quick", is_flag=True, help="Only the cost per page.")
@click.option("--jobs", type=click.IntRange(1), default=2, show_default=True, help="Cells at the same time.")
@click.option("--output", type=click.Path(path_type=Path), help="Folder for results; default: results/matrix.")
@_json
def matrix(
    kernel: tuple[str, ...], iommu: tuple[str, ...], quick: bool, jobs: int, output: Path | None, as_json: bool
) -> None:
    """Run every policy on every IOMMU and kernel: cost, attack, a disk and a NIC; write a page of all results.

    Cells with results of this commit are not run again, so an interrupted matrix continues.

    \b
    Examples:
      xsmmu lab matrix
      xsmmu lab matrix --iommu virtio --iommu amd --kernel 7.2
      xsmmu lab matrix --quick --json
    """
    from rich.console import Console

    from xsmmu_lab.report import matrix as page
    from xsmmu_lab.runs import matrix as the_matrix
    from xsmmu_lab.setup import host

    host.interrupt_on_sigterm()
    folder = output or RESULTS / the_matrix.EXPERIMENT
    wanted = the_matrix.cells(kernel, iommu)
    outcomes = the_matrix.run(wanted, folder, jobs, quick, Console(stderr=True))
    columns = the_matrix.policies()
    made = the_matrix.store(outcomes, folder)
    page.write(made["cells"], columns, folder)
    if as_json:
        sys.stdout.write(json.dumps(made, indent=1) + "\n")
    else:
        page.render(made["cells"], columns, _console())
        sys.stdout.write(f"\n{folder / page.PAGE}\n")
    if any(each.failed for each in outcomes):
        sys.exit(1)


@lab.command()
@click.argument("folder", type=click.Path(path_type=Path), required=False)
@_json
def show(folder: Path | None, as_json: bool) -> None:
    """Show the results of an earlier run; FOLDER is a results folder, the latest by default.

    \b
    Examples:
      xsmmu lab show
      xsmmu lab show results/2026-11-24T10-00-00Z --json
    """
    from xsmmu_lab.runs import results

    folder = folder or RESULTS / results.LATEST
    _show(results.load(folder), folder, as_json)


@lab.command()
@_kernel
@_iommu
@click.option("--driver", multiple=True, help="Bind this stock driver (igb, e1000e, nvme); may be repeated.")
def shell(kernel: str | None, iommu: str, driver: tuple[str, ...]) -> None:
    """Boot a guest with the module loaded, and a shell on its console.

    `exit` or `poweroff` ends the guest, and Ctrl-A X kills the guest; Ctrl-C goes to the guest. The guest's clock
    runs freely on two CPUs: nothing is measured.

    \b
    Examples:
      xsmmu lab shell
      xsmmu lab shell --driver igb
      xsmmu lab shell --kernel 7.2 --iommu vtd-cm --driver nvme --driver e1000e
    """
    from rich.console import Console

    from xsmmu_lab.runs import shell as the_shell

    sys.exit(the_shell.run(kernel, iommu, driver, Console(stderr=True)))


@lab.command()
@click.argument("files", type=click.Path(path_type=Path), nargs=-1, required=True)
@click.option("--changed", is_flag=True, help="Of two results of make lab: only runs beyond the usual spread.")
@click.option(
    "--wait",
    type=click.IntRange(0, 100_000),
    help="Of nanoseconds: the wait for an invalidation in ns; default: a file's only wait, or 1000.",
)
@_json
def compare(files: tuple[Path, ...], changed: bool, wait: int | None, as_json: bool) -> None:
    """Compare results: two of make lab, or nanoseconds in one table with a column for each file.

    Two results of make lab: the cost of each run, and the changes beyond the usual spread. Otherwise each of FILES is a
    summary of make native, make native-engine or make lab (its micro, estimated in ns), output of xsmmu bench -o json,
    or tool/xsmmu/native.json. Each figure stands beside its ratio to kernel-lazy of the same file (to passthrough, or
    to the policy lazy, in a file without kernel-lazy). A folder stands for its summary.json.

    \b
    Examples:
      xsmmu lab compare results/2026-11-24T10-00-00Z results/latest
      xsmmu lab compare old new --changed
      xsmmu lab compare old new --json
      xsmmu lab compare bench.json results/native tool/xsmmu/native.json
      xsmmu lab compare results/native --wait 300
    """
    from xsmmu_lab.native import beside
    from xsmmu_lab.runs import compare as the_comparison
    from xsmmu_lab.runs import results

    documents = [beside.load(file) for file in files]
    if all(map(beside.is_lab, documents)) and len(files) == 2:
        if wait is not None:
            raise click.UsageError("--wait needs nanoseconds, and two results of make lab have none: leave out --wait")
        found = the_comparison.compare(*map(results.load, files))
        if as_json:
            sys.stdout.write(json.dumps(found.as_dict(), indent=1) + "\n")
        else:
            the_comparison.render(found, _console(), changed)
        return
    if changed:
        raise click.UsageError("--changed needs two results of make lab: leave out --changed, or the other files")
    columns = [
        column for file, each in zip(files, documents, strict=True) for column in beside.columns(file, each, wait)
    ]
    if as_json:
        sys.stdout.write(json.dumps(beside.as_dict(columns), indent=1) + "\n")
    else:
        beside.show(columns)


def _console() -> Console:
    """Standard output; a pipe or a file is wide enough for each table, unless COLUMNS limits the width."""
    from rich.console import Console

    # rich may take a pipe for a terminal (FORCE_COLOR), so isatty() decides; a dumb terminal needs a height, too.
    has_width = sys.stdout.isatty() or "COLUMNS" in os.environ
    return Console() if has_width else Console(width=_PIPE_COLUMNS, height=_PIPE_COLUMNS)


def _show(summary: dict[str, Any], folder: Path, as_json: bool) -> None:
    if as_json:
        sys.stdout.write(json.dumps(summary, indent=1) + "\n")
        return
    from xsmmu_lab.report import page, table

    table.render(summary, _console())
    made = folder / page.NAME
    sys.stdout.write(f"\n{made if made.exists() else folder}\n")


@lab.command()
@_kernel
@click.option("--policy", default="fused", show_default=True, help="A policy of the comparison.")
@click.option(
    "--function", default="dma_map_page_attrs", show_default=True, help="A function of the kernel or a module."
)
@click.option("--calls", type=click.IntRange(1), default=4500, show_default=True, help="The call to step through.")
@_iommu
@_json
def profile(kernel: str | None, policy: str, function: str, calls: int, iommu: str, as_json: bool) -> None:
    """Step through one call in a guest and print how many instructions each function took.

    The call happens in the lab module's micro workload (1,024 pages mapped, then unmapped, repeatedly).

    \b
    Examples:
      xsmmu lab profile
      xsmmu lab profile --function dma_unmap_page_attrs --kernel 7.2
      xsmmu lab profile --policy kernel-strict --json
      xsmmu lab profile --policy kernel-strict --iommu vtd-cm
    """
    from rich.console import Console

    from xsmmu_lab.runs import profile as the_profile
    from xsmmu_lab.setup import host

    host.interrupt_on_sigterm()
    result = the_profile.run(kernel, policy, function, calls, Console(stderr=True), iommu)
    if as_json:
        sys.stdout.write(json.dumps(dataclasses.asdict(result), indent=1) + "\n")
    else:
        the_profile.render(result, _console())


def _profile_native(policy: str, wait: tuple[int, ...], cpu: tuple[int, ...], as_json: bool) -> None:
    from xsmmu_lab.native import perf

    found = perf.run(policy, max(wait, default=0), max(cpu or os.sched_getaffinity(0)), _console())
    if as_json:
        sys.stdout.write(json.dumps([dataclasses.asdict(each) for each in found], indent=1) + "\n")
    else:
        for each in found:
            perf.show(each, _console())


@lab.command("native-engine")
@click.option("--cpus", metavar="N,N", help="Numbers of CPUs; default: those of 1,2,4,8,16 that the machine has.")
@click.option("--policy", multiple=True, help="Only this policy; may be repeated.")
@click.option("--wait", type=click.IntRange(0, 100_000), default=0, show_default=True, help="Wait of a command, in ns.")
@click.option("--rounds", type=click.IntRange(1, 1000), default=15, show_default=True, help="Runs of each case.")
@click.option(
    "--output", type=click.Path(path_type=Path), help="Folder for the summary; default: results/native-engine."
)
@_json
def native_engine(
    cpus: str | None, policy: tuple[str, ...], wait: int, rounds: int, output: Path | None, as_json: bool
) -> None:
    """Time the engine alone on CPUs of this machine: nanoseconds to map and unmap a page, for each policy.

    Needs no guest, no KVM and no root. The engine runs in a program, on a pinned thread for each CPU; 0, 10 or 33 % of
    the pages are unmapped on another CPU. Only ratios of figures from the same call can be compared.

    \b
    Examples:
      xsmmu lab native-engine
      xsmmu lab native-engine --cpus 1,4 --policy fused --policy xsmmu
      xsmmu lab native-engine --wait 1000 --json
    """
    from rich.console import Console

    from xsmmu_lab.native import engine, table
    from xsmmu_lab.native.summary import SUMMARY
    from xsmmu_lab.setup import host

    host.interrupt_on_sigterm()
    options = engine.Options(
        cpus=engine.numbers_of(cpus) if cpus else None,
        policies=policy,
        wait_ns=wait,
        rounds=rounds,
        output=output or engine.FOLDER,
    )
    summary = engine.run(options, Console(stderr=True))
    if as_json:
        sys.stdout.write(json.dumps(summary, indent=1) + "\n")
    else:
        table.show(summary)
        sys.stdout.write(f"\n{options.output / SUMMARY}\n")


@lab.command()
@click.option("--threads", metavar="N,N", help="Numbers of threads to time; default: 1,2,4,8,16.")
@click.option("--allocator", multiple=True, help="Only this allocator; may be repeated.")
@click.option("--workload", multiple=True, help="Only this workload; may be repeated.")
@click.option("--quick", is_flag=True, help="Two workloads, on fewer modelled CPUs.")
@click.option("--rounds", type=click.IntRange(1, 1000), default=7, show_default=True, help="Timed runs of each case.")
@click.option("--output", type=click.Path(path_type=Path), help="Folder for the results; default: results/allocators.")
@_json
def allocators(
    threads: str | None,
    allocator: tuple[str, ...],
    workload: tuple[str, ...],
    quick: bool,
    rounds: int,
    output: Path | None,
    as_json: bool,
) -> None:
    """Compare allocators of IOVAs under the same traffic: the kernel's trees and caches, and xsmmu's placements.

    Needs no guest, no KVM and no root. Threads are timed on CPUs of this machine, where several may share a CPU; locks,
    cache lines, tree and spread are counted in a model of 1, 8 and 32 CPUs, and repeat bit for bit.

    \b
    Examples:
      xsmmu lab allocators
      xsmmu lab allocators --quick
      xsmmu lab allocators --allocator tree --allocator blocks --workload ring-33
      xsmmu lab allocators --threads 1,2 --rounds 15 --json
    """
    from rich.console import Console

    from xsmmu_lab.allocators import page, table
    from xsmmu_lab.allocators import run as the_run
    from xsmmu_lab.native import engine
    from xsmmu_lab.native.summary import SUMMARY
    from xsmmu_lab.setup import host

    host.interrupt_on_sigterm()
    options = the_run.Options(
        threads=engine.numbers_of(threads) if threads else None,
        allocators=allocator,
        workloads=workload,
        quick=quick,
        rounds=rounds,
        output=output or the_run.FOLDER,
    )
    summary = the_run.run(options, Console(stderr=True))
    pictures = page.write(summary, options.output)
    if as_json:
        sys.stdout.write(json.dumps(summary, indent=1) + "\n")
    else:
        table.show(summary)
        for path in (options.output / SUMMARY, *pictures):
            sys.stdout.write(f"{path}\n")


@lab.command()
@click.option("--arch", type=click.Choice(tuple(ARCHES)), default=AMD64.name, show_default=True)
def packages(arch: str) -> None:
    """Build the Debian packages xsmmu-dkms, xsmmu and xsmmu-trace from the checkout, in results/packages.

    Only xsmmu-trace depends on the architecture: for another one only it is built.

    \b
    Examples:
      xsmmu lab packages
      xsmmu lab packages --arch arm64
    """
    from rich.console import Console

    from xsmmu_lab.setup import host
    from xsmmu_lab.setup import packages as the_packages

    host.interrupt_on_sigterm()
    for path in the_packages.copy(Console(stderr=True), ARCHES[arch]):
        click.echo(path)


@lab.command()
@click.option("--wait", type=click.IntRange(0, 100_000), multiple=True, help="Wait of the IOMMU in ns; repeatable.")
@click.option("--rounds", type=click.IntRange(1, 100), default=7, show_default=True, help="Quiet runs of each case.")
@click.option("--quick", is_flag=True, help="Only single pages, on one CPU.")
@click.option(
    "--cpu", type=click.IntRange(0), multiple=True, help="CPU of this machine; once or twice; default: the last cores."
)
@click.option("--output", type=click.Path(path_type=Path), help="Folder for the results; default: results/native.")
@click.option("--perf", metavar="POLICY", help="Profile a policy by function and locked instruction instead.")
@click.option("--accept", is_flag=True, help="Write the rows into the tree, as this CPU's accepted figures.")
@_json
def native(
    wait: tuple[int, ...],
    rounds: int,
    quick: bool,
    cpu: tuple[int, ...],
    output: Path | None,
    perf: str | None,
    accept: bool,
    as_json: bool,
) -> None:
    """Measure all policies in nanoseconds on this CPU, in User-Mode Linux behind a fake IOMMU that makes callers wait.

    The first run builds that kernel, which takes some minutes. The machine must be quiet.

    \b
    Examples:
      xsmmu lab native
      xsmmu lab native --wait 1000 --quick
      xsmmu lab native --perf fused-direct
      xsmmu lab native --accept
    """
    from rich.console import Console

    from xsmmu_lab.native import plan
    from xsmmu_lab.native import run as the_run
    from xsmmu_lab.setup import host

    if accept and (wait or quick):
        raise click.UsageError("--accept needs all rows: leave out --wait and --quick")
    host.interrupt_on_sigterm()
    if perf:
        _profile_native(perf, wait, cpu, as_json)
        return
    options = the_run.Options(
        waits=wait or plan.WAITS_NS,
        rounds=rounds,
        quick=quick,
        cpus=cpu,
        output=output or the_run.FOLDER,
        accept=accept,
    )
    summary = the_run.run(options, Console(stderr=True))
    if as_json:
        sys.stdout.write(json.dumps(summary, indent=1) + "\n")
    else:
        the_run.show(summary)
