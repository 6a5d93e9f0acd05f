# SPDX-License-Identifier: GPL-2.0-only
"""The machine's IOMMU units, as sysfs shows them."""

from __future__ import annotations

from pathlib import Path
from typing import Final

from xsmmu.operator import kernel
from xsmmu.operator.machine import sysfs, text

ACCEPTED: Final = "Intel VT-d"
"""The one kind that the module takes."""

_CACHING_MODE: Final = 1 << 7
_SCALABLE: Final = 1 << 43
"""Bits of VT-d's capability register, and of its extended one."""


def units() -> list[Path]:
    """Their folders."""
    folder = sysfs() / "class/iommu"
    return sorted(folder.iterdir()) if folder.is_dir() else []


def has_groups() -> bool:
    """Whether any device is behind one."""
    folder = sysfs() / "kernel/iommu_groups"
    return folder.is_dir() and any(folder.iterdir())


def kind(unit: Path) -> str:
    """Whose it is."""
    for folder, name in (("intel-iommu", ACCEPTED), ("amd-iommu", "AMD-Vi")):
        if (unit / folder).is_dir():
            return name
    return {"smmu3": "Arm SMMUv3", "virti": "virtio-iommu"}.get(unit.name[:5], "of an unknown kind")


def _register(unit: Path, name: str) -> int:
    try:
        return int(text(unit / "intel-iommu" / name) or "0", 16)
    except ValueError:
        return 0


def caches_absent_entries(unit: Path) -> bool:
    """VT-d's caching mode."""
    return bool(_register(unit, "cap") & _CACHING_MODE)


def is_scalable(unit: Path) -> bool:
    """Whether it has VT-d's scalable mode and the kernel uses it, decided by what the module decides by."""
    chosen = [value for value in kernel.words("intel_iommu") if value in ("sm_on", "sm_off")]
    configured = (kernel.config() or {}).get("CONFIG_INTEL_IOMMU_SCALABLE_MODE_DEFAULT_ON") == "y"
    return bool(_register(unit, "ecap") & _SCALABLE) and (chosen[-1] == "sm_on" if chosen else configured)
