# SPDX-License-Identifier: GPL-2.0-only
"""Short descriptions of policies and levels, for `set --help`, man pages and the choice at next boot.

Tests compare the tables with core/policy.c and with docs/levels.md.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Final


@dataclass(frozen=True)
class Policy:
    """A policy of the module."""

    level: str
    """Level with an unmodified driver."""
    ends: str
    """Event that ends the device's access to unmapped memory."""
    window_us: int
    batch_pages: int
    copy_bytes: int = 0
    """Default values of the tunables."""

    @property
    def tunables(self) -> dict[str, int]:
        """Tunables of the policy by default."""
        own = {"max_window_us": self.window_us, "batch_pages": self.batch_pages, "copy_bytes": self.copy_bytes}
        return {**own, "range_commands_max": 4, "pool_mib": 64}


POLICIES: Final[Mapping[str, Policy]] = {
    "copy": Policy("strict", "its unmap; up to 4,096 bytes are copied, so never", 1000, 1, 4096),
    "strict": Policy("strict", "its unmap", 1000, 1),
    "strict-identity": Policy("strict", "as strict", 1000, 1),
    "xsmmu": Policy("held", "the end of a NAPI poll, 1,024 pages or 1 ms", 1000, 1024),
    "fused": Policy("held", "the same; fewer commands by blocks of 64 pages", 1000, 1024),
    "fused-identity": Policy("held", "as fused", 1000, 1024),
    "fands": Policy("bounded", "a block of 64 is unmapped, 1,024 pages or 1 ms", 1000, 1024),
    "lazy": Policy("lazy", "256 pages or 10 ms", 10_000, 256),
}
"""Policies, the strongest level first."""

RESEARCH: Final = ("strict-identity", "fused-identity")
"""Policies that no server needs (docs/older.md); the table names them in one line."""

OTHERS: Final[Mapping[str, tuple[str, str]]] = {
    "auto": ("varies", "the module chooses strict, copy or fused, and says why"),
    "none": ("kernel's", "the kernel's own path, by the type of the group"),
}

LEVELS: Final[Mapping[str, str]] = {
    "strict": "is out of its reach when the unmap returns",
    "held": "is in reach until the flush; nobody else gets the page before",
    "bounded": "is in reach until the flush; the page may have a new owner",
    "lazy": "the same; only a full batch or the timer makes a flush",
    "none": "is in reach, and so is all other memory",
}
"""Descriptions of levels, the strongest first."""

KERNEL: Final = (
    "The kernel's own path has a level, too: kernel-strict has strict,",
    "kernel-lazy has lazy (a timer of 10 ms), passthrough has none.",
)


def rows() -> Iterator[tuple[str, str, str]]:
    """Name, level, and event that ends access to unmapped memory, for each choice but those for research."""
    yield from ((name, policy.level, policy.ends) for name, policy in POLICIES.items() if name not in RESEARCH)
    yield from ((name, *words) for name, words in OTHERS.items())


def lines() -> list[str]:
    """Lines of both tables."""
    named = [f"{name:<7} {level:<8} {ends}" for name, level, ends in rows()]
    levels = [f"{level:<7} {meaning}" for level, meaning in LEVELS.items()]
    return [
        f"{'POLICY':<7} {'LEVEL':<8} MEMORY IS IN THE DEVICE'S REACH UNTIL",
        *named,
        f"For research: {', '.join(f'{name} ({POLICIES[name].level})' for name in RESEARCH)}.",
        "",
        f"{'LEVEL':<7} MEMORY THAT A DRIVER HAS UNMAPPED FROM ITS DEVICE",
        *levels,
        "",
        *KERNEL,
    ]


def text() -> str:
    """Both tables for click; the mark keeps click from wrapping."""
    return "\n\n".join(f"\b\n{part}" for part in "\n".join(lines()).split("\n\n"))


def strongest(policies: Iterator[str] | list[str]) -> str:
    """The policy that counts in a group; `auto` is at least held, and `none` is the kernel's own path."""
    order = [*LEVELS]

    def place(name: str) -> int:
        found = POLICIES.get(name)
        return order.index(found.level) if found else order.index("held" if name == "auto" else "none")

    return min(policies, key=place)
