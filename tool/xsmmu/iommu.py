# SPDX-License-Identifier: GPL-2.0-only
"""IOMMU units of the machine, from sysfs."""

from __future__ import annotations

from pathlib import Path
from typing import Final

from xsmmu import machine
from xsmmu.machine import sysfs, text

ACCEPTED: Final = ("Intel VT-d", "AMD-Vi", "Arm SMMUv3", "virtio-iommu")
"""Kinds of IOMMU that the module supports."""

_CACHING_MODE: Final = 1 << 7
"""Bit of VT-d's capability register."""

_NPCACHE: Final = 1 << 26
"""Bit of AMD-Vi's capability register."""


def units() -> list[Path]:
    """Folders of the units."""
    folder = sysfs() / "class/iommu"
    return sorted(folder.iterdir()) if folder.is_dir() else []


def has_groups() -> bool:
    """Whether a device is behind an IOMMU."""
    return bool(machine.groups())


def kind(unit: Path) -> str:
    """Kind of a unit."""
    for folder, name in (("intel-iommu", "Intel VT-d"), ("amd-iommu", "AMD-Vi")):
        if (unit / folder).is_dir():
            return name
    kinds = {"smmu3": "Arm SMMUv3", "smmu.": "Arm SMMUv2", "virti": "virtio-iommu"}
    return kinds.get(unit.name[:5], "of an unknown kind")


def caches_absent_entries(unit: Path) -> bool:
    """Whether VT-d's caching mode is on."""
    return bool((_capabilities(unit / "intel-iommu") or 0) & _CACHING_MODE)


def is_bare_amd(unit: Path) -> bool:
    """Whether AMD-Vi runs in the mode of real machines, without NpCache."""
    found = _capabilities(unit / "amd-iommu")
    return found is not None and not found & _NPCACHE


def _capabilities(folder: Path) -> int | None:
    """The capability register; None if it cannot be read."""
    try:
        return int(text(folder / "cap") or "", 16)
    except ValueError:
        return None
