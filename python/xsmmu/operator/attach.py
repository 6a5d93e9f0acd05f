# SPDX-License-Identifier: GPL-2.0-only
"""Choose a device's policy through the module's sysfs, and say clearly why when that cannot be."""

from __future__ import annotations

import errno
import re
from pathlib import Path
from typing import Any

from xsmmu.errors import LabError, unknown_name
from xsmmu.operator import watch


def devices(sysfs: Path = watch.SYSFS) -> list[dict[str, Any]]:
    """What is known of each device that the module offers policies for."""
    return [_row(device, sysfs) for device in watch.devices(sysfs)]


def _row(device: str, sysfs: Path) -> dict[str, Any]:
    folder = watch.folder_of(device, sysfs)
    base = folder.parent
    text = {name: (folder / name).read_text().strip() for name in ("policy", "level", "state")}
    return {
        "device": device,
        "group": _link_name(base / "iommu_group"),
        "driver": _link_name(base / "driver"),
        "policy": watch.chosen_policy(text["policy"]),
        "level": text["level"],
        "state": text["state"],
    }


def _link_name(link: Path) -> str | None:
    return link.resolve().name if link.exists() else None


def choose(device: str, policy: str, max_window_us: int | None, sysfs: Path = watch.SYSFS) -> dict[str, Any]:
    """Set a policy, and the bound if one is given; return what the device then says."""
    folder = watch.folder_of(device, sysfs)
    menu = (folder / "policy").read_text()
    offered = re.findall(r"[\w-]+", menu)
    if policy not in offered:
        raise unknown_name("policy", policy, offered)
    if "none" in (policy, watch.chosen_policy(menu)) and policy != watch.chosen_policy(menu):
        _refuse_bound(device, sysfs)
    _write(device, folder / "policy", policy)
    if max_window_us is not None:
        _write(device, folder / "max_window_us", str(max_window_us))
    return _row(device, sysfs)


def _refuse_bound(device: str, sysfs: Path) -> None:
    for member in watch.group(device, sysfs):
        driver = _link_name(sysfs / "bus/pci/devices" / member / "driver")
        if driver and driver != "pcieport":
            raise LabError(
                f"{member} is bound to {driver}, and a device is taken over or given back only without a driver: "
                f"echo {member} > /sys/bus/pci/drivers/{driver}/unbind, then try again"
            )


def _write(device: str, file: Path, value: str) -> None:
    try:
        file.write_text(value)
    except OSError as error:
        if error.errno in (errno.EACCES, errno.EPERM):
            raise LabError(f"{device}: {file.name} {value} was not permitted: root may do that") from None
        raise LabError(
            f"{device}: the module refused {file.name} {value} ({error.strerror}); the kernel log says why (dmesg)"
        ) from None
