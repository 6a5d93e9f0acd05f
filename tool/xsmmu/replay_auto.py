# SPDX-License-Identifier: GPL-2.0-only
"""What `auto` would choose for recorded devices: the table of kmod/policy/auto.c, with the facts of a recording.

A recording does not say whether min_level is set, whether drivers are batch-aware, and whether the IOMMU needs a
command for each map. The first two are named beside the choice; the third changes only its reason.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from typing import Any, Final

LINES: Final = (
    (("STORAGE",), "strict", "storage: a disk could change data after the data was verified"),
    (
        ("OTHER",),
        "strict",
        "a device that is neither storage nor an Ethernet NIC: such devices were never tested",
    ),
    (("ETHERNET", "IOMMU_UNKNOWN"), "strict", "the group does not translate, or the IOMMU is not known"),
    (("ETHERNET", "KERNEL_STRICT"), "strict", "the kernel's own path is strict (type DMA)"),
    (("ETHERNET",), "fused", "an Ethernet NIC: its polls flush deferred unmaps"),
    ((), "strict", "no device that does DMA"),
)
"""The table without the lines that need facts a recording does not have."""

UNKNOWN: Final = (
    "unless min_level is strict (then strict), or all drivers are batch-aware (then fused, at level strict)"
)


def _facts(devices: list[Mapping[str, Any]]) -> set[str]:
    """The facts of a group."""
    facts: set[str] = set()
    for device in devices:
        kind = str(device.get("class", "")).removeprefix("0x")
        facts.add("STORAGE" if kind.startswith("01") else "ETHERNET" if kind.startswith("0200") else "OTHER")
        if device.get("type") not in ("DMA", "DMA-FQ"):
            facts.add("IOMMU_UNKNOWN")
        if device.get("type") == "DMA":
            facts.add("KERNEL_STRICT")
    return facts


def choices(header: str) -> Iterator[str]:
    """A line for each IOMMU group of recorded devices; none if the header does not describe devices."""
    try:
        devices = json.loads(header)["devices"]
        groups: dict[object, list[Mapping[str, Any]]] = {}
        for number, device in enumerate(devices):
            group = device.get("group", -1)
            groups.setdefault(group if group != -1 else ("alone", number), []).append(device)
    except (ValueError, KeyError, TypeError, AttributeError, RecursionError):
        return
    for members in groups.values():
        if not all("class" in device for device in members):
            continue
        facts = _facts(members)
        names = ", ".join(f"{device.get('name', '?')} ({device.get('driver') or 'no driver'})" for device in members)
        policy, why = next((policy, why) for needs, policy, why in LINES if {*needs} <= facts)
        yield f"{names}: {policy}, because: {why}; {UNKNOWN}"
