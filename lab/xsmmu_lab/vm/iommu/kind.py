# SPDX-License-Identifier: GPL-2.0-only
"""The properties of an IOMMU kind that the lab needs."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Literal

from xsmmu_lab.arch import AMD64, Arch

Command = Literal["page", "domain", "global"]


@dataclass(frozen=True)
class Iommu:
    """An IOMMU model: QEMU's device for a guest, and the patterns that show the device's work."""

    words: str
    """A description."""
    device: str
    """QEMU's device."""
    kernel_words: tuple[str, ...]
    """Words for the guest's command line."""
    faults: re.Pattern[str]
    """Lines of the guest's log that report a refused access, or an IOMMU in trouble."""
    refusals: re.Pattern[str]
    """The subset of `faults` that reports only refused accesses, or that more of them occurred."""
    commands: Mapping[re.Pattern[bytes], Command]
    """Patterns for the beginnings of QEMU's trace lines that are invalidation commands, by kind of command."""
    events: tuple[str, ...]
    """Trace events of `commands`."""
    flushes_maps: bool
    """Each map needs a flush, too."""
    arch: Arch = AMD64
    """The architecture of its guests."""
    device_commands: re.Pattern[bytes] | None = None
    """Pattern of trace lines that are invalidation commands for a device TLB (ATS)."""
    device_event: str = ""
    """Trace event of `device_commands`. Traced for guests with such a device; none of the lab's own devices has a TLB.
    """
    one_kind: bool = False
    """The trace does not distinguish kinds of commands: only their sum can be compared."""
    direct: bool = False
    """The module knows the page table format and can write entries in place."""
    lacking: Mapping[str, str] = field(default_factory=dict)
    """Kernels of lab/kernels.toml that cannot use this IOMMU, with the reason."""
    no_suspend: str = ""
    """Why a guest cannot be suspended, even on the kernel's own path; empty if suspend works."""
    module: str | None = None
    """Its driver, unless built into the kernel."""
    groups_late: bool = False
    """The kernel may find out only at a device's first driver that the device is behind this IOMMU."""
    passthrough_last: bool = False
    """QEMU never translates a device again after passthrough."""
    traces_maps: bool = False
    """The trace has each map and unmap, so the mapped pages are known."""
    has_queue: bool = False
    """Maps and unmaps are requests in a virtio queue, and the trace has each notification of any virtio queue."""
