# SPDX-License-Identifier: GPL-2.0-only
"""The command line. Each command imports what it needs, so `lab watch` and `attach` work where no lab is installed."""

from __future__ import annotations

import functools
import json
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Annotated, Any, ParamSpec

import typer

from xsmmu.errors import LabError, unknown_name

P = ParamSpec("P")

app = typer.Typer(
    help="Choose how IOMMU translations are invalidated, per device, and compare the choices in a lab.",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
    rich_markup_mode=None,
)
lab = typer.Typer(
    help="Compare all policies on stock kernels in virtual machines.", no_args_is_help=True, rich_markup_mode=None
)
app.add_typer(lab, name="lab")

_RUN_HELP = """Run an experiment: boot the guests, measure every policy, check every count, write results and a report.

\b
Examples:
  xsmmu lab run                                  everything, on the default kernel
  xsmmu lab run --quick                          map and unmap costs only
  xsmmu lab run --kernel 7.2 --quick
  xsmmu lab run --experiment claim-d-mapsync     what was published, beside what is measured here
  xsmmu lab run --workload net-rx --workload nvme/4k --policy kernel-strict --policy fused
"""

_WATCH_HELP = """Print, every interval, what the running module did: invalidations by kind, pages unmapped, and ratios.

\b
Examples:
  xsmmu lab watch
  xsmmu lab watch --device 0000:01:00.0 --interval 1
  xsmmu lab watch --json --count 6
"""

_PROFILE_HELP = """Step through one call in a guest and print how many instructions each function took.

The call happens in the lab module's micro workload (1,024 pages mapped, then unmapped, again and again).

\b
Examples:
  xsmmu lab profile
  xsmmu lab profile --function dma_unmap_page_attrs --kernel 7.2
  xsmmu lab profile --policy kernel-strict --json
  xsmmu lab profile --policy kernel-strict --iommu vtd-cm
"""

_ATTACH_HELP = """Choose a device's policy; all devices of its IOMMU group move together.

\b
To take a device over (or give it back with `none`), no driver may be bound in its group:
  echo 0000:01:00.0 > /sys/bus/pci/drivers/igb/unbind
  xsmmu attach 0000:01:00.0 fused
  echo 0000:01:00.0 > /sys/bus/pci/drivers/igb/bind
Between policies of the module, a change works on a live device.
"""


class _Stopped(BaseException):
    """Ctrl-C or SIGTERM, which typer would take for its own and end without a word."""


def _stoppable(command: Callable[P, None]) -> Callable[P, None]:
    @functools.wraps(command)
    def run(*arguments: P.args, **options: P.kwargs) -> None:
        try:
            command(*arguments, **options)
        except KeyboardInterrupt:
            raise _Stopped from None

    return run


def _print_json(value: Any) -> None:
    sys.stdout.write(json.dumps(value, indent=1) + "\n")


@lab.command("run", help=_RUN_HELP)
@_stoppable
def lab_run(
    kernel: Annotated[str | None, typer.Option(help="A kernel of lab/kernels.toml.")] = None,
    experiment: Annotated[str, typer.Option(help="An experiment of lab/experiments.")] = "compare",
    policy: Annotated[list[str] | None, typer.Option(help="Only this policy; may be repeated.")] = None,
    workload: Annotated[list[str] | None, typer.Option(help="Only this workload (name or name/variant).")] = None,
    quick: Annotated[bool, typer.Option("--quick", help="Only what takes little time.")] = False,
    accel: Annotated[
        str, typer.Option(help="auto, tcg (instructions, the same on any host) or kvm (nanoseconds).")
    ] = "auto",
    jobs: Annotated[int, typer.Option(min=1, help="Guests at the same time.")] = 2,
    output: Annotated[Path | None, typer.Option(help="Where results go; default: results/ of the checkout.")] = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print the summary instead of the table.")] = False,
) -> None:
    """Run an experiment."""
    from rich.console import Console

    from xsmmu.lab import results
    from xsmmu.lab import run as the_lab
    from xsmmu.setup import host

    host.interrupt_on_sigterm()
    if accel not in ("auto", "tcg", "kvm"):
        raise unknown_name("accelerator", accel, ("auto", "tcg", "kvm"))
    options = the_lab.Options(
        kernel=kernel,
        experiment=experiment,
        policies=tuple(policy or ()),
        workloads=tuple(workload or ()),
        quick=quick,
        accel=accel,
        output=output or the_lab.RESULTS,
        jobs=jobs,
    )
    folder = the_lab.run(options, Console(stderr=True))
    _show(results.load(folder), folder, as_json)


@lab.command("show")
@_stoppable
def lab_show(
    folder: Annotated[Path | None, typer.Argument(help="A results folder; default: the latest.")] = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print the summary instead of the table.")] = False,
) -> None:
    """Show the results of an earlier run."""
    from xsmmu.lab import results
    from xsmmu.lab import run as the_lab

    folder = folder or the_lab.RESULTS / results.LATEST
    _show(results.load(folder), folder, as_json)


def _show(summary: dict[str, Any], folder: Path, as_json: bool) -> None:
    if as_json:
        _print_json(summary)
        return
    from rich.console import Console

    from xsmmu.report import page as report
    from xsmmu.report import table

    table.render(summary, Console())
    page = folder / report.NAME
    sys.stdout.write(f"\n{page if page.exists() else folder}\n")


@lab.command("watch", help=_WATCH_HELP)
@_stoppable
def lab_watch(
    device: Annotated[str | None, typer.Option(help="A PCI address; default: every device with a policy.")] = None,
    interval: Annotated[float, typer.Option(min=0.01, help="Seconds between two readings.")] = 10.0,
    count: Annotated[int | None, typer.Option(min=1, help="Stop after so many intervals.")] = None,
    as_json: Annotated[bool, typer.Option("--json", help="One JSON object a line.")] = False,
    sysfs: Annotated[Path, typer.Option(help="Another sysfs tree.", hidden=True)] = Path("/sys"),
) -> None:
    """Watch the running module."""
    from xsmmu.operator import watch

    for window in watch.windows(device, interval, count, sysfs):
        if as_json:
            sys.stdout.write(json.dumps(window.as_dict()) + "\n")
        else:
            first, second = window.lines()
            last = window.last
            sys.stdout.write(f"{' '.join(last.devices)} {last.policy} ({last.level}) {window.seconds:.1f} s\n")
            sys.stdout.write(f"  {first}\n  {second}\n")
        sys.stdout.flush()


@lab.command("profile", help=_PROFILE_HELP)
def lab_profile(
    kernel: Annotated[str | None, typer.Option(help="A kernel of lab/kernels.toml.")] = None,
    policy: Annotated[str, typer.Option(help="A policy of the comparison.")] = "fused",
    function: Annotated[str, typer.Option(help="A function of the kernel or a module.")] = "dma_map_page_attrs",
    calls: Annotated[int, typer.Option(min=1, help="Step through the call that makes it so many.")] = 4500,
    iommu: Annotated[str, typer.Option(help="vtd, or vtd-cm for caching mode.")] = "vtd",
    as_json: Annotated[bool, typer.Option("--json", help="Print JSON instead of the table.")] = False,
) -> None:
    """Profile one call."""
    import dataclasses

    from rich.console import Console

    from xsmmu.lab import profile
    from xsmmu.setup import host

    host.interrupt_on_sigterm()
    result = profile.run(kernel, policy, function, calls, Console(stderr=True), iommu)
    if as_json:
        _print_json(dataclasses.asdict(result))
    else:
        profile.render(result, Console())


@app.command("devices")
@_stoppable
def devices(
    as_json: Annotated[bool, typer.Option("--json", help="Print a JSON list.")] = False,
    sysfs: Annotated[Path, typer.Option(help="Another sysfs tree.", hidden=True)] = Path("/sys"),
) -> None:
    """List the devices behind an IOMMU, with driver, policy, level and state."""
    from xsmmu.operator import attach

    rows = attach.devices(sysfs)
    if as_json:
        _print_json(rows)
        return
    columns = ("device", "group", "driver", "policy", "level", "state")
    lines = [columns, *(tuple(str(row[name] or "-") for name in columns) for row in rows)]
    widths = [max(len(line[index]) for line in lines) for index in range(len(columns))]
    for line in lines:
        sys.stdout.write("  ".join(cell.ljust(width) for cell, width in zip(line, widths, strict=True)).rstrip() + "\n")


@app.command("attach", help=_ATTACH_HELP)
@_stoppable
def attach_device(
    device: Annotated[str, typer.Argument(help="A PCI address, such as 0000:01:00.0.")],
    policy: Annotated[str, typer.Argument(help="A policy that the module offers, or none.")],
    max_window_us: Annotated[int | None, typer.Option(help="The bound on how long work may be deferred.")] = None,
    sysfs: Annotated[Path, typer.Option(help="Another sysfs tree.", hidden=True)] = Path("/sys"),
) -> None:
    """Choose a device's policy."""
    from xsmmu.operator import attach

    row = attach.choose(device, policy, max_window_us, sysfs)
    sys.stdout.write(f"{device}: {row['policy']}, level {row['level']}, state {row['state']}\n")


def main() -> None:
    """Run; an error of ours is one message and its lines, and status 1."""
    try:
        app(prog_name="xsmmu")
    except LabError as error:
        _complain(error.message, error.lines)
    except _Stopped:
        _complain("stopped; what had begun was ended and removed", (), 130)
    except BrokenPipeError:
        sys.exit(0)
    except OSError as error:
        where = f" ({error.filename})" if error.filename else ""
        _complain(f"{error.strerror or error}{where}")


def _complain(message: str, lines: tuple[str, ...] = (), status: int = 1) -> None:
    for line in lines:
        sys.stderr.write(f"  | {line}\n")
    sys.stderr.write(f"xsmmu: {message}\n")
    sys.exit(status)
