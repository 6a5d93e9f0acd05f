# SPDX-License-Identifier: GPL-2.0-only
"""Whether the choices for a group are used: direct tables, copying, and the deferred unmaps of batch-aware drivers.

The module's file `used` counts since the group was attached.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Final

from xsmmu import guide, module
from xsmmu.finding import Finding
from xsmmu.machine import Device
from xsmmu.module import Choice

ENOUGH: Final = 1000
"""Fewer pages or buffers than this show nothing about the use of a choice."""


@dataclass(frozen=True)
class Use:
    """Choices for an attached group, and their use since the attach."""

    device: Device
    """A device of the group."""
    now: Choice
    no_direct: str | None
    """Reason why direct tables are chosen and off."""
    batch_aware: bool | None
    """None for an older module."""
    counts: Mapping[str, int]
    """Lines of the file `used`; empty without permission."""

    @property
    def directs(self) -> bool:
        """Whether direct tables are on."""
        return self.now.tables == "direct"

    @property
    def copies(self) -> bool:
        """Whether buffers are to be copied."""
        return self.now.tunables.get("copy_bytes", 0) > 0

    @property
    def waits(self) -> bool:
        """Whether the policy defers the unmaps of a batch-aware driver, and only those."""
        known = guide.POLICIES.get(self.now.policy)
        return bool(self.batch_aware and self.now.level == "strict" and known and known.level != "strict")

    def count(self, *names: str) -> int:
        """Sum of counts."""
        return sum(self.counts.get(name, 0) for name in names)

    def shares(self) -> dict[str, float]:
        """Share of pages, or of buffers, for which each choice was used, by a word for the choice."""
        kinds = (
            (self.directs, "direct", "direct_pages", ("direct_misses", "direct_large")),
            (self.copies, "copied", "copied_maps", ("uncopied_maps",)),
            (self.waits, "deferred", "deferred_pages", ("immediate_pages",)),
        )
        found = {"direct": 0.0} if self.no_direct else {}
        for is_chosen, word, name, others in kinds:
            total = self.count(name, *others)
            if is_chosen and total:
                found[word] = self.count(name) / total
        return found


def of(device: Device, now: Choice) -> Use | None:
    """Use of the choices for the device's group; None if the group is not attached."""
    if now.state not in module.TAKEN:
        return None
    return Use(device, now, module.no_direct(device), module.batch_aware(device), module.used(device) or {})


def findings(use: Use, subject: str) -> Iterator[Finding]:
    """Choices that are not used, each with a remedy."""
    yield from _direct(use, subject)
    if use.copies:
        yield from _copies(use, subject)
    immediate = use.count("immediate_pages")
    if use.waits and immediate >= ENOUGH and not use.count("deferred_pages"):
        by = "auto has chosen" if use.now.auto else "the choice is"
        reason = (
            f"{by} {use.now.policy}, which is strict for batch-aware drivers, and the group's drivers declare "
            f"themselves batch-aware, but no unmap was deferred: each of {immediate:,} pages was flushed inside its "
            "unmap, at the cost of strict"
        )
        remedy = (
            "use a driver that defers its unmaps (xsmmu driver build), or choose the same cost by name: "
            f"xsmmu set {use.device.address} strict"
        )
        yield Finding("risk", "batch-aware", subject, reason, remedy)


def _tuned(use: Use) -> str:
    """Words that keep the group's tunables, which a choice resets to the policy's defaults; auto has none."""
    default = module.defaults(use.device).get(use.now.policy)
    if use.now.auto or default is None:
        return ""
    return "".join(f" {name}={value}" for name, value in use.now.tunables.items() if default.get(name) != value)


def _direct(use: Use, subject: str) -> Iterator[Finding]:
    change = f"xsmmu set {use.device.address} {use.now.asked}{_tuned(use)} --tables"
    in_place, misses, large = (use.count(f"direct_{name}") for name in ("pages", "misses", "large"))
    if use.no_direct:
        reason = f"direct tables are chosen and off: {use.no_direct}; the IOMMU's driver writes all entries"
        remedy = f"to try again: {change} direct; if they end again: {change} kernel, and report dmesg | grep xsmmu"
        yield Finding("risk", "direct-tables", subject, reason, remedy)
    if not use.directs:
        return
    if misses > in_place and misses + in_place >= ENOUGH:
        reason = (
            f"direct tables are chosen, but the IOMMU's driver mapped {misses:,} of {misses + in_place:,} pages that "
            "the module could map in place"
        )
        remedy = f"{change} kernel, which costs less than unused direct tables, and report the kernel's version"
        yield Finding("risk", "direct-tables", subject, reason, remedy)
    elif large > misses + in_place and large >= ENOUGH:
        reason = (
            f"direct tables are chosen, but the IOMMU's driver mapped {large:,} of {large + misses + in_place:,} "
            "pages: mappings of more than 64 pages, coherent memory and device registers are never mapped in place"
        )
        yield Finding("note", "direct-tables", subject, reason, f"if this is the device's usual work: {change} kernel")


def _copies(use: Use, subject: str) -> Iterator[Finding]:
    copied, uncopied, misses = (use.count(name) for name in ("copied_maps", "uncopied_maps", "copy_misses"))
    most = use.now.tunables["copy_bytes"]
    if misses > copied and misses >= ENOUGH:
        reason = (
            f"copying of buffers up to {most:,} bytes is chosen, but {misses:,} buffers found no room in the pool, and "
            f"{copied:,} were copied"
        )
        remedy = (
            f"raise pool_mib ({use.now.tunables.get('pool_mib')}), or free memory: the pool needs contiguous pieces of "
            "2 MiB"
        )
    elif not copied and uncopied >= ENOUGH:
        policy = "strict" if use.now.policy == "copy" else use.now.policy
        reason = (
            f"copying of buffers up to {most:,} bytes is chosen, but none of {uncopied:,} buffers was copied: the "
            "driver maps larger buffers or whole pages"
        )
        remedy = f"choose {policy} without copies, which has the same effect: xsmmu set {use.device.address} {policy}"
    else:
        return
    yield Finding("risk", "copying", subject, reason, remedy)
