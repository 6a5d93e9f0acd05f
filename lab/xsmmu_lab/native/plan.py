# SPDX-License-Identifier: GPL-2.0-only
"""The cases of `make native`, and the line that asks for a run of each."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Final

from xsmmu_lab import policies

WAITS_NS: Final = (0, 300, 1000, 2000)
ROUNDS: Final = 7
PASSTHROUGH: Final = "passthrough"
_KERNEL_STRICT: Final = "kernel-strict"
KERNEL: Final = (PASSTHROUGH, _KERNEL_STRICT, "kernel-lazy")
UNMODIFIED: Final = "unmodified"
AWARE: Final = "batch-aware"
CPUS_MAX: Final = 2
"""Of a run."""
RING: Final = 1024
PAGE: Final = 4096

_POLLS: Final = 64
"""Polls of a run with the large ring; other rings have as many pages."""
_POLLS_SLOW: Final = 16
"""The same where each unmap waits."""
_WALK_MIB: Final = 16
_DIRECT: Final = "-direct"


@dataclass(frozen=True)
class Case:
    """One row of the result."""

    policy: str
    driver: str = UNMODIFIED
    wait_ns: int = 0
    cpus: int = 1
    ring: int = RING
    pages: int = 1
    bytes: int = PAGE
    list: int = 0
    """Entries of each scatter list; 0: single mappings."""
    walk_mib: int = 0
    """Memory that is walked between two polls, so that caches are cold."""

    @property
    def tables(self) -> str:
        """Who writes page tables; nobody in passthrough."""
        if self.policy == PASSTHROUGH:
            return "none"
        return "direct" if self.policy.endswith(_DIRECT) else "kernel"

    @property
    def copies(self) -> bool:
        """Whether the buffers are small enough for a policy that copies; whole pages are mapped."""
        name = self.policy.removesuffix(_DIRECT)
        return self.bytes < PAGE and any(each.copies for each in policies.table() if each.name == name)

    def __str__(self) -> str:
        return f"{self.policy}, {self.driver}, wait {self.wait_ns} ns"

    def _waits_each_unmap(self) -> bool:
        name = self.policy.removesuffix(_DIRECT)
        return name == _KERNEL_STRICT or any(each.name == name and "unmap" in each.flushes for each in policies.table())

    def line(self, polls: int = 0) -> str:
        """The line that asks for a run, of as many polls as are usual for the case."""
        polls = polls or (_POLLS_SLOW if self.wait_ns and self._waits_each_unmap() else _POLLS)
        words = [f"ring={self.ring}", f"rounds={polls * RING // self.ring}"]
        words += [f"pages={self.pages}"] if self.pages > 1 else []
        words += [f"bytes={self.bytes}"] if self.bytes < PAGE else []
        words += [f"list={self.list}"] if self.list else []
        words += [f"walk={self.walk_mib}"] if self.walk_mib else []
        return f"measure {self.policy} {self.driver} {self.wait_ns} {self.cpus} {' '.join(words)}"


def cases(waits: Sequence[int] = WAITS_NS, quick: bool = False) -> list[Case]:
    """The cases of one CPU, in the order of the table."""
    found = [case for wait in waits for case in _pages(wait)]
    if not quick:
        found += [replace(case, walk_mib=_WALK_MIB) for case in _pages(waits[0])]
        for wait in waits[:: max(len(waits) - 1, 1)]:
            found += _shapes(wait)
    return found


def on_cpus(cpus: int, waits: Sequence[int] = WAITS_NS) -> list[Case]:
    """The cases of several CPUs, and the same on one CPU of the same boot, for the ratio."""
    return [replace(case, cpus=count) for wait in waits[:1] for case in _pages(wait) for count in (1, cpus)]


def in_order_of_runs(cases: Sequence[Case]) -> list[Case]:
    """The cases of a policy and kind of driver one after the other: the driver is bound anew where either changes."""
    kinds = list(dict.fromkeys((case.policy, case.driver) for case in cases))
    return sorted(cases, key=lambda case: kinds.index((case.policy, case.driver)))


def _pages(wait_ns: int) -> Iterator[Case]:
    """Single pages of a large ring under each mode and policy."""
    for name in KERNEL:
        yield Case(name, wait_ns=wait_ns)
    for policy in policies.table():
        for suffix in ("", _DIRECT):
            yield Case(policy.name + suffix, wait_ns=wait_ns)
            if policy.waits:
                yield Case(policy.name + suffix, AWARE, wait_ns)


def _shapes(wait_ns: int) -> Iterator[Case]:
    """Other buffers than single pages in a large ring."""
    for policy in (*KERNEL, "strict", "copy", "fused", "fused-direct"):
        yield Case(policy, wait_ns=wait_ns, ring=64)
        yield Case(policy, wait_ns=wait_ns, pages=32)
        yield Case(policy, wait_ns=wait_ns, list=32)
    for size in (256, 1514):
        for policy in (*KERNEL, "copy"):
            yield Case(policy, wait_ns=wait_ns, bytes=size)
