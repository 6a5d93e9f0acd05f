# SPDX-License-Identifier: GPL-2.0-only
"""Exposure of unmapped pages beside its bound, and explanations of unusual figures."""

from __future__ import annotations

from typing import Final

from xsmmu import kernel
from xsmmu.digits import duration

MANY: Final = 0.5
"""From this number of commands per page on, a deferring policy sends many commands."""


def beside(longest_ns: int | None, bound_ns: int | None) -> str:
    """Exposure and bound, for people."""
    return f"{duration(longest_ns)}/{duration(bound_ns)}"


def is_late(longest_ns: int | None, bound_ns: int | None, exact: bool = True) -> bool:
    """Whether the exposure exceeds its bound; without `exact`, by a whole bucket, since buckets are a quarter wide."""
    if longest_ns is None or bound_ns is None:
        return False
    return longest_ns > bound_ns * (1 if exact else 1.25)


def causes() -> str:
    """Likely causes of an exposure beyond the bound."""
    found = ["a CPU disabled interrupts and delayed the flush timer"]
    if kernel.is_virtual():
        found.insert(0, "the hypervisor did not run a virtual CPU for a while (steal time: st of vmstat)")
    found.append("another policy or max_window_us was in force earlier, since the module counts from its load")
    return "; or ".join(found)


def share_at_once(unmapped_pages: int | None, deferred_pages: int | None) -> float | None:
    """Share of the unmapped pages that were flushed inside the unmap."""
    if not unmapped_pages or deferred_pages is None:
        return None
    return max(1 - deferred_pages / unmapped_pages, 0.0)


def at_once(policy: str, level: str, share: float | None, per_page: float | None) -> str | None:
    """Explanation of many commands per page under a deferring policy; None without many commands."""
    if not share or share < MANY or (per_page or 0) < MANY or level in ("none", "strict"):
        return None
    kinds = "mappings of more than 64 pages"
    if level == "held":
        copies = f"; to copy small buffers instead: xsmmu set DEVICE {policy} copy_bytes=256 --rebind"
        kinds = f"slab memory (kmalloc, such as packet heads) and {kinds}{copies}"
    return f"{100 * share:.0f} % of the pages were flushed inside their unmap: {policy} does not defer {kinds}"
