# SPDX-License-Identifier: GPL-2.0-only
"""`xsmmu driver`: builds batch-aware drivers for the kernel of a machine."""

from __future__ import annotations

import shutil
from pathlib import Path

import click

from xsmmu import __version__
from xsmmu.output import Commands

_USE = """\
The driver fits kernel {release} and the module xsmmu {version}, and needs both. To use the driver, on a machine that
can do without the driver's devices meanwhile:

  modprobe xsmmu
  rmmod {module}
  insmod {file}
  xsmmu set DEVICE fused --rebind

{file} finds xsmmu only if xsmmu is loaded first, and keeps xsmmu loaded. `rmmod {module}` and `modprobe {module}`
bring the stock driver back."""


@click.group(cls=Commands)
def driver() -> None:
    """Build batch-aware drivers: drivers of a stock kernel, patched to flush their unmaps themselves."""


@driver.command()
@click.argument("name")
@click.option(
    "--kernel",
    help="A release (`uname -r`), a name in lab/kernels.toml, or the folder of a kernel that you have built.",
)
@click.option(
    "--output", type=click.Path(path_type=Path, file_okay=False), help="A folder; default: results/drivers/RELEASE."
)
def build(name: str, kernel: str | None, output: Path | None) -> None:
    """Build the batch-aware driver NAME of drivers/drivers.toml for a kernel, and print how to load the driver.

    The source is the distribution's, of the kernel's version; drivers/README.md lists the changes.

    \b
    Examples:
      xsmmu driver build igb
      xsmmu driver build nvme --kernel 6.12.118+deb13-amd64
      xsmmu driver build mlx5 --kernel 6.12 --output /tmp
    """
    from rich.console import Console

    from xsmmu_lab.project import PROJECT
    from xsmmu_lab.setup import drivers, host, kernels, root

    host.interrupt_on_sigterm()
    console = Console(stderr=True)
    drivers.named(name)
    kernels.named(kernel)
    the_root = root.ensure(host.cache_dir(), console)
    chosen = kernels.ensure(the_root, kernel, console)
    module = drivers.module(the_root, chosen, name)
    folder = output or PROJECT / "results" / "drivers" / chosen.release
    folder.mkdir(parents=True, exist_ok=True)
    click.echo(shutil.copy(module, folder))
    loaded = module.stem.replace("-", "_")
    click.echo(_USE.format(release=chosen.release, version=__version__, module=loaded, file=module.name), err=True)
