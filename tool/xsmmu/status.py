# SPDX-License-Identifier: GPL-2.0-only
"""`xsmmu status`: devices behind an IOMMU with the path of their DMA, the level, and statistics."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import asdict
from typing import Any, Final

import click

from xsmmu import complete, exposure, machine, module, next_boot, output, use
from xsmmu.digits import duration
from xsmmu.errors import UserError
from xsmmu.machine import Device
from xsmmu.rules import Rule

_COUNTS: Final = ("unmapped_pages", "invalidations_per_page", "exposure_max_ns", "bad_unmaps")

COLUMNS = (
    *("device", "names", "group", "driver", "path", "level", "state", "next boot"),
    *("unmapped", "inv/page", "max/bound", "bad unmaps"),
)


def row(device: Device, at_boot: Sequence[Rule] | None = ()) -> dict[str, Any]:
    """Facts about a device; without the next boot if `at_boot` is None.

    While the group is not attached, the path is the kernel's own path.
    """
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
        "declined": None,
        "tables": None,
        "no_direct": None,
        "batch_aware": None,
        "blocked": None,
        "tunables": None,
        "used": None,
        "in_use": None,
        "not_used": None,
        "next_boot": None,
        "next_boot_differs": None,
        "counting": None,
        "mapped_pages": None,
        "unmapped_pages": None,
        "deferred_pages": None,
        "invalidations": None,
        "invalidations_per_page": None,
        "exposure_max_ns": None,
        "exposure_bound_ns": None,
        "bad_unmaps": None,
    }
    now = module.choice(device) if device.module_folder else None
    boot = next_boot.of(device, now, at_boot) if group and at_boot is not None else None
    found |= {"next_boot": boot.choice, "next_boot_differs": boot.differs} if boot else {}
    if not now:
        return found
    found |= {"policy": now.policy, "auto": asdict(now.auto) if now.auto else None}
    found |= {"state": now.state, "tables": now.tables, "tunables": now.tunables}
    found |= {"declined": module.declined(device), "blocked": module.blocked(device)}
    in_use = use.of(device, now)
    if in_use:
        found |= {"no_direct": in_use.no_direct, "batch_aware": in_use.batch_aware}
        found |= {"used": in_use.counts or None, "in_use": in_use.shares()}
        found["not_used"] = [each.reason for each in use.findings(in_use, device.address) if each.level == "risk"]
    path, level = module.path(device, now)
    found |= {"path": path, "level": level, "exposure_bound_ns": now.bound_ns, "counting": now.state in module.TAKEN}
    return found | _counted(device)


def _counted(device: Device) -> dict[str, Any]:
    """Statistics since the module was loaded; empty without DMA under the module, or without permission."""
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
        "deferred_pages": stats.get("deferred_pages"),
        "invalidations": kinds,
        "invalidations_per_page": sum(kinds.values()) / pages if pages else None,
        "exposure_max_ns": module.exposure_max_ns(device),
        "bad_unmaps": stats["bad_unmaps"],
    }


def rows(names: tuple[str, ...], everything: bool) -> list[dict[str, Any]]:
    """Rows of the named devices, or of all devices behind an IOMMU but bridges; all PCI devices with `everything`."""
    at_boot = _rules_of_boot()
    if names:
        return [row(machine.find(name), at_boot) for name in names]
    found = [each for each in machine.devices() if everything or (each.group and not each.is_bridge)]
    return [each for device in found if (each := _row_unless_gone(device, at_boot))]


def _rules_of_boot() -> list[Rule] | None:
    try:
        return next_boot.read()
    except UserError as error:
        click.echo(f"the choices for the next boot are unknown: {error.message}", err=True)
        return None


def _row_unless_gone(device: Device, at_boot: Sequence[Rule] | None) -> dict[str, Any] | None:
    """Row of a device that the user has not named."""

    def look(at: Device) -> dict[str, Any]:
        return row(at, at_boot)

    # The module's files may disappear alone, so try again without them.
    found = module.unless_gone(look, device) or module.unless_gone(look, device)
    # A device that disappears seems to have no IOMMU.
    return found if device.folder.exists() else None


def cells(found: dict[str, Any]) -> list[object]:
    """Cells of a table row."""
    state = "declined" if found["declined"] else "blocked" if found["blocked"] else found["state"]
    if found["policy"] not in (None, "none") and found["path"] != found["policy"]:
        state = f"{found['policy']} chosen{' by auto' if found['auto'] else ''}, {state}"
    shares = [f"{word} {int(100 * share)}%" for word, share in (found["in_use"] or {}).items()]
    # Counts of a detached group are old.
    counts = {name: found[name] if found["counting"] else None for name in _COUNTS}
    # A group always has a choice at the next boot, possibly none.
    is_unknown = found["group"] is not None and found["next_boot"] is None
    pages, ratio, longest = counts["unmapped_pages"], counts["invalidations_per_page"], counts["exposure_max_ns"]
    return [
        found["device"],
        " ".join(found["names"]),
        found["group"],
        found["driver"],
        f"{found['path']} (auto)" if found["auto"] and found["path"] == found["policy"] else found["path"],
        found["level"],
        ", ".join([state, *shares]) if state else None,
        "?" if is_unknown else found["next_boot"] if found["next_boot_differs"] else None,
        None if pages is None else f"{pages:,}",
        None if ratio is None else f"{ratio:.4f}",
        None if longest is None else exposure.beside(longest, found["exposure_bound_ns"]),
        counts["bad_unmaps"],
    ]


def notes(found: dict[str, Any]) -> Iterator[str]:
    """Why the module declines the row's group, choices that are not used, and explanations of unusual figures."""
    name = " ".join(found["names"]) or found["device"]
    if found["declined"]:
        yield f"{name}: the module declines its IOMMU group: {found['declined']}"
    if not found["counting"]:
        return
    yield from (f"{name}: {reason}: xsmmu doctor {found['device']} has a remedy" for reason in found["not_used"] or ())
    share = exposure.share_at_once(found["unmapped_pages"], found["deferred_pages"])
    said = exposure.at_once(found["path"], found["level"], share, found["invalidations_per_page"])
    if said:
        yield f"{name}: inv/page: {said}"
    longest, bound = found["exposure_max_ns"], found["exposure_bound_ns"]
    if exposure.is_late(longest, bound):
        yield (
            f"{name}: max/bound: since the module was loaded, a page stayed reachable for {duration(longest)}, "
            f"beyond the bound: xsmmu doctor {found['device']} lists likely causes"
        )


@click.command()
@click.argument("device", nargs=-1, shell_complete=complete.devices)
@click.option("--all", "everything", is_flag=True, help="Include bridges, and devices behind no IOMMU.")
@output.option
def status(device: tuple[str, ...], everything: bool, form: str) -> None:
    """Show devices behind an IOMMU with the path of their DMA, the level, and statistics.

    `path` is kernel-strict, kernel-lazy or passthrough on the kernel's own path, else the policy, with (auto) if the
    module chose the policy. `state` also shows a policy that is chosen but not in use, and the share of pages or
    buffers for which direct tables, copying and deferred unmaps of batch-aware drivers were used since the attach, if
    chosen. `next boot` shows the choice of the rules if the present choice differs. Statistics count from the module's
    load, and are shown while the module serves the group. `max/bound` is the longest exposure of an unmapped page
    beside the policy's bound; level strict has no bound.

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
        click.echo("no device is behind an IOMMU: see xsmmu doctor", err=True)
        return
    output.table(COLUMNS, [cells(each) for each in found])
    groups = {each["group"]: each for each in reversed(found)}
    for each in reversed(groups.values()):
        for note in notes(each):
            click.echo(note, err=True)
    taken = [Device(row["device"]) for row in found if row["state"] in module.TAKEN]
    if any(module.unless_gone(module.counts_are_readable, each) is False for each in taken):
        click.echo("statistics are readable for root only: sudo xsmmu status", err=True)
