# SPDX-License-Identifier: GPL-2.0-only
"""`xsmmu status`: devices behind an IOMMU, whose path their DMA takes, what that guarantees, and what was counted."""

from __future__ import annotations

from dataclasses import asdict
from typing import Any

import click

from xsmmu.operator import complete, machine, module, output
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
        "auto": None,
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
    now = module.choice(device)
    found |= {"policy": now.policy, "auto": asdict(now.auto) if now.auto else None}
    found |= {"state": now.state, "tables": now.tables, "tunables": now.tunables}
    if now.state in module.TAKEN:
        found |= {"path": now.policy, "level": now.level}
    return found | _counted(device)


def _counted(device: Device) -> dict[str, Any]:
    """What was counted since the module was loaded; nothing where nothing was, or root only may know."""
    if not module.counts_are_readable(device):
        return {}
    stats = module.read(device).stats
    pages = stats["unmapped_pages"]
    if not stats["mapped_pages"] and not pages:
        return {}
    kinds = {kind: stats[f"inv_{kind}"] for kind in module.KINDS}
    return {
        "mapped_pages": stats["mapped_pages"],
        "unmapped_pages": pages,
        "invalidations": kinds,
        "invalidations_per_page": sum(kinds.values()) / pages if pages else None,
        "exposure_max_ns": module.exposure_max_ns(device),
        "strays": stats["strays"],
    }


def rows(names: tuple[str, ...], everything: bool) -> list[dict[str, Any]]:
    """The devices that are named, or all behind an IOMMU but bridges; all PCI devices with `everything`."""
    if names:
        return [row(machine.find(name)) for name in names]
    found = [each for each in machine.devices() if everything or (each.group and not each.is_bridge)]
    return [each for each in map(_row_unless_gone, found) if each]


def _row_unless_gone(device: Device) -> dict[str, Any] | None:
    """Nobody has asked for this one."""
    # The second time without the module's files, which may have gone alone.
    found = module.unless_gone(row, device) or module.unless_gone(row, device)
    # What goes while it is read looks as if it was behind no IOMMU.
    return found if device.folder.exists() else None


def cells(found: dict[str, Any]) -> list[object]:
    """A row of the table."""
    state = found["state"]
    if found["policy"] not in (None, "none") and found["path"] != found["policy"]:
        state = f"{found['policy']} chosen{' by auto' if found['auto'] else ''}, {state}"
    ratio = found["invalidations_per_page"]
    return [
        found["device"],
        " ".join(found["names"]),
        found["group"],
        found["driver"],
        f"{found['path']} (auto)" if found["auto"] and found["path"] == found["policy"] else found["path"],
        found["level"],
        state,
        None if found["unmapped_pages"] is None else f"{found['unmapped_pages']:,}",
        None if ratio is None else f"{ratio:.4f}",
        found["strays"],
    ]


@click.command()
@click.argument("device", nargs=-1, shell_complete=complete.devices)
@click.option("--all", "everything", is_flag=True, help="Bridges too, and devices that are behind no IOMMU.")
@output.option
def status(device: tuple[str, ...], everything: bool, form: str) -> None:
    """Show devices behind an IOMMU: whose path their DMA takes, the level that it gives, and what was counted.

    `path` is kernel-strict, kernel-lazy or passthrough while the kernel's own path is in use, else the module's
    policy, with (auto) behind it if the module chose that. A policy that is chosen and not in use yet stands under
    `state`.

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
    taken = [Device(row["device"]) for row in found if row["state"] in module.TAKEN]
    if any(module.unless_gone(module.counts_are_readable, each) is False for each in taken):
        click.echo("what was counted is for root: sudo xsmmu status", err=True)
