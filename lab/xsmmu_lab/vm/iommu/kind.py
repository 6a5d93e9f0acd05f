# SPDX-License-Identifier: GPL-2.0-only
"""What a kind of IOMMU is to the lab."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Literal

from xsmmu_lab.arch import AMD64, Arch

Command = Literal["page", "domain", "global"]


@dataclass(frozen=True)
class Iommu:
    """An IOMMU model: how a guest gets it, and how what it did is seen."""

    words: str
    """What it is."""
    device: str
    """QEMU's device."""
    kernel_words: tuple[str, ...]
    """Of the guest's command line."""
    faults: re.Pattern[str]
    """Lines of the guest's log that tell of a refused access, or of an IOMMU in trouble."""
    refusals: re.Pattern[str]
    """Those of them that tell of a refused access, or that there were more of them, and of nothing else."""
    commands: Mapping[re.Pattern[bytes], Command]
    """Lines of QEMU's trace, from their beginning, that are an invalidation command of a kind each."""
    events: tuple[str, ...]
    """Trace events that those lines are of."""
    flushes_maps: bool
    """Each map needs a flush, too."""
    arch: Arch = AMD64
    """Of the guests that have it."""
    device_commands: re.Pattern[bytes] | None = None
    """Lines of the trace that are an invalidation command for the TLB of a device (ATS)."""
    device_event: str = ""
    """What those lines are of. Traced where a guest has such a device; none of the lab's own is one."""
    one_kind: bool = False
    """The trace does not tell kinds of commands apart: only their sum can be compared."""
    direct: bool = False
    """The module knows its page tables, and can write in place."""
    lacking: Mapping[str, str] = field(default_factory=dict)
    """Kernels of lab/kernels.toml that cannot use it, and why."""
    no_suspend: str = ""
    """Why a guest with it cannot be suspended, on the kernel's own path either; empty: it can."""
    module: str | None = None
    """Its driver, where the kernel has not built that in."""
    groups_late: bool = False
    """Devices may be found to be behind it when their first driver comes."""
    passthrough_last: bool = False
    """QEMU leaves a device that was passed through untranslated for ever."""
    traces_maps: bool = False
    """The trace has each map and unmap, so what stays mapped in the device is known."""
    has_queue: bool = False
    """Those are requests in a queue of a virtio device, and the trace has each notification of any such queue."""
