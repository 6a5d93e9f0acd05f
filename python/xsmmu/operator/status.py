# SPDX-License-Identifier: GPL-2.0-only
"""`xsmmu status`: devices behind an IOMMU, whose path their DMA takes, what that guarantees, and what was counted."""

from __future__ import annotations

from typing import Any

import click

from xsmmu.operator import machine, module, output
from xsmmu.operator.machine import Device

COLUMNS = ("device", "names", "group", "driver", "path", "level", "state", "unmapped pages", "inv/page", "strays")


def row(device: Device) -> dict[str, Any]:
    """What is known of a device. The path is the kernel's own until the module has taken the group over."""
    group = device.group
    path, level = group.kernel_path if group else ("none", "none")
    found: dict[str, Any] = {
        "device": device.address,
        "names": list(device.names),
        "group": group.number if group else None,
        "driver": device.driver,
        "path": path,
        "level": level,
        "policy": None,
        "state": None,
        "tables": None,
        "tunables": None,
        "mapped_pages": None,
        "unmapped_pages": None,
        "invalidations": None,
        "invalidations_per_page": None,
        "exposure_max_ns": None,
        "strays": None,
    }
    if not device.module_folder:
        return found
    sample = module.read(device)
    taken = sample.state in module.TAKEN
    found |= {"policy": sample.policy, "state": sample.state, "tables": sample.tables, "tunables": sample.tunables}
    if taken:
        found |= {"path": sample.policy, "level": sample.level}
    pages = sample.stats["unmapped_pages"]
    total = sum(sample.stats[f"inv_{kind}"] for kind in module.KINDS)
    if sample.stats.get("mapped_pages") or pages:
        found |= {
            "mapped_pages": sample.stats.get("mapped_pages"),
            "unmapped_pages": pages,
            "invalidations": {kind: sample.stats[f"inv_{kind}"] for kind in module.KINDS},
            "invalidations_per_page": total / pages if pages else None,
            "exposure_max_ns": module.exposure_max_ns(device),
            "strays": sample.stats.get("strays"),
        }
    return found


def rows(names: tuple[str, ...], everything: bool) -> list[dict[str, Any]]:
    """The devices that are named, or all behind an IOMMU but bridges; all PCI devices with `everything`."""
    if names:
        return [row(machine.find(name)) for name in names]
    return [row(each) for each in machine.devices() if everything or (each.group and not each.is_bridge)]


def cells(found: dict[str, Any]) -> list[object]:
    """A row of the table."""
    state = found["state"]
    if found["policy"] not in (None, "none") and found["path"] != found["policy"]:
        state = f"{found['policy']} chosen, {state}"
    ratio = found["invalidations_per_page"]
    return [
        found["device"],
        " ".join(found["names"]),
        found["group"],
        found["driver"],
        found["path"],
        found["level"],
        state,
        None if found["unmapped_pages"] is None else f"{found['unmapped_pages']:,}",
        None if ratio is None else f"{ratio:.4f}",
        found["strays"],
    ]


@click.command()
@click.argument("device", nargs=-1)
@click.option("--all", "everything", is_flag=True, help="Bridges too, and devices that are behind no IOMMU.")
@output.option
def status(device: tuple[str, ...], everything: bool, form: str) -> None:
    """Show devices behind an IOMMU: whose path their DMA takes, the level that it gives, and what was counted.

    `path` is kernel-strict, kernel-lazy or passthrough while the kernel's own path is in use, else the module's
    policy. A policy that is chosen and not in use yet stands under `state`.

    \b
    Examples:
      xsmmu status
      xsmmu status eth1 nvme0n1
      xsmmu status -o json | jq '.devices[] | select(.level == "none") | .device'
    """
    found = rows(device, everything)
    if form != "table":
        output.emit(form, "status", "devices", found, module=module.version() if module.is_loaded() else None)
        return
    if not found:
        click.echo("no device is behind an IOMMU: xsmmu doctor says why", err=True)
        return
    output.table(COLUMNS, [cells(each) for each in found])
