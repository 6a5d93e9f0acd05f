# SPDX-License-Identifier: GPL-2.0-only
"""What is compared: allocators, and the traffic that drives them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

from xsmmu.errors import UserError, unknown_name

ALLOCATORS: Final[dict[str, str]] = {
    "tree": "red-black tree under one lock (Linux before 2015)",
    "merged": "the same, with neighbouring ranges in one node",
    "cached": "tree, magazines of each CPU and depot, up to 128 KiB (Linux today)",
    "cached-2m": "the same, up to 2 MiB (proposed in 2026)",
    "maple": "maple tree under one lock (proposed in 2026)",
    "magazines": "placement `page` of xsmmu",
    "blocks": "placement `block` of xsmmu",
    "identity": "none: the IOVA is the physical address",
}
"""All allocators of lab/native/allocators, in the order of tables, with their meaning."""

KEPT: Final = 30_000
"""Mappings that are made first and stay, as those of two common NIC drivers."""


@dataclass(frozen=True)
class Workload:
    """A kind of traffic: each CPU maps and unmaps a ring of 1,024 buffers."""

    name: str
    says: str
    elsewhere: int = 0
    """Percentage of buffers that another CPU frees."""
    shape: tuple[str, ...] = ()
    """Words of both programs for sizes and lifetimes."""
    warm_polls: int = 6
    """Polls of 256 buffers before a count, on few CPUs."""

    def warm_polls_on(self, cpus: int) -> int:
        """The polls before a count: fewer on many CPUs, which fill the space sooner, but each CPU fills its ring."""
        return max(6, min(self.warm_polls, 320 // cpus))

    def words(self) -> list[str]:
        """Arguments for both programs."""
        return ["--kept", str(KEPT), "--elsewhere", str(self.elsewhere), *self.shape]


_SIZES: Final = ("--sizes",)
_MIXED: Final = ("--sizes", "--mixed")
LARGE_PAGES: Final = 128
"""The size of `large`: order 7, which Linux does not cache today."""

WORKLOADS: Final[dict[str, Workload]] = {
    each.name: each
    for each in (
        Workload("ring", "pages, freed in order"),
        Workload("ring-33", "pages, a third freed on another CPU", 33),
        Workload("sizes", "one buffer in 16 of 2 to 64 pages", 0, _SIZES),
        Workload("sizes-33", "the same, a third freed on another CPU", 33, _SIZES),
        Workload("mixed", "sizes, and one buffer in ten lives 100 rings", 0, _MIXED, 40),
        Workload("mixed-33", "the same, a third freed on another CPU", 33, _MIXED, 40),
        Workload("large-33", "buffers of 512 KiB, a third freed on another CPU", 33, ("--pages", str(LARGE_PAGES))),
    )
}

QUICK: Final = ("ring", "sizes-33")

COUNTED_CPUS: Final = (1, 8, 32)
"""CPUs of the model."""
THREADS: Final = (1, 2, 4, 8, 16)


def chosen(kind: str, names: Sequence[str], known: Sequence[str]) -> list[str]:
    """The named ones of the known, in their order; all if none is named."""
    for name in names:
        if name not in known:
            raise unknown_name(kind, name, known)
    return [name for name in known if not names or name in names]


def threads_on(threads: int, cpus: Sequence[int]) -> list[int]:
    """The CPU for each thread; with fewer CPUs than threads, threads share CPUs."""
    if not cpus:
        raise UserError("this process may run on no CPU: give it one (taskset)")
    return [cpus[at % len(cpus)] for at in range(threads)]
