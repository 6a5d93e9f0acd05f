# SPDX-License-Identifier: GPL-2.0-only
"""The module's policies, read from their only list, the table of core/policy.c; and baselines of the lab."""

from __future__ import annotations

import functools
import re
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from xsmmu.errors import UserError
from xsmmu_lab.project import PROJECT

IDENTITY: Final = ("identity-4k", "identity-2m", "identity-1g")
"""Baselines: static 1:1 tables of the lab's own module, by the size of their leaves (lab/module/identity.h)."""

UNCONFINED: Final = ("passthrough", *IDENTITY)
"""Policies under which a device reaches all memory, and a map changes nothing for the IOMMU."""

SOURCE: Final = PROJECT / "core/policy.c"

_TABLE = re.compile(r"\bxs_policies\[\] = \{\n(.*?)^\};", re.DOTALL | re.MULTILINE)
_ROW = re.compile(r"\{(.*?)\}", re.DOTALL)
_FIELD = re.compile(r"\.(\w+)\s*=\s*([^,]+),")
_FLUSH = re.compile(r"\bXS_FLUSH_BIT\(XS_FLUSH_(\w+)\)")
_DEFINE = re.compile(r"^#define (\w+)[ \t]+(.+)$", re.MULTILINE)


@dataclass(frozen=True)
class Policy:
    """A row of the table: the fields that the lab needs."""

    name: str
    flushes: frozenset[str]
    """The flush points: `unmap`, `block`, `poll`, `full`, `time`, `explicit`."""
    copies: bool = False
    """Whether the policy copies small buffers by default."""
    by_page: bool = False
    """Whether the IOVA is the page's own (XS_PLACE_IDENTITY), so that a map of a mapped page writes no entry."""

    @property
    def waits(self) -> bool:
        """Whether a batch-aware driver's unmaps wait for the driver's own flush (xs_policy_waits())."""
        return "explicit" in self.flushes


@functools.cache
def table(source: Path = SOURCE) -> tuple[Policy, ...]:
    """All rows, in the table's order."""
    text = source.read_text()
    found = _TABLE.search(text)
    rows = [_row(match[1], dict(_DEFINE.findall(text)), source) for match in _ROW.finditer(found[1])] if found else []
    if not rows:
        raise UserError(f"{source} has no table xs_policies[] that can be read")
    return tuple(rows)


def _row(text: str, defines: dict[str, str], source: Path) -> Policy:
    fields = dict(_FIELD.findall(text))
    name = re.fullmatch(r'"([a-z][a-z0-9-]*)"', fields.get("name", ""))
    flushes = re.sub(r"\w+", lambda word: defines.get(word[0], word[0]), fields.get("flushes", ""))
    if not name or not _FLUSH.search(flushes):
        raise UserError(f"{source}: a row of xs_policies[] has no name or no flush point: {text.strip()}")
    copies = fields.get("copy_bytes", "0") != "0"
    by_page = fields.get("placement") == "XS_PLACE_IDENTITY"
    return Policy(name[1], frozenset(word.lower() for word in _FLUSH.findall(flushes)), copies, by_page)


def names(source: Path = SOURCE) -> tuple[str, ...]:
    """The names of all policies."""
    return tuple(policy.name for policy in table(source))


def mapping(source: Path = SOURCE) -> tuple[str, ...]:
    """Policies that copy nothing by default, so that an unmapped page was the driver's own memory."""
    return tuple(policy.name for policy in table(source) if not policy.copies)


def by_page(source: Path = SOURCE) -> tuple[str, ...]:
    """Policies whose IOVAs are the pages' own."""
    return tuple(policy.name for policy in table(source) if policy.by_page)


def waiting(source: Path = SOURCE) -> tuple[str, ...]:
    """Policies under which a batch-aware driver's unmaps wait for the driver's flush."""
    return tuple(policy.name for policy in table(source) if policy.waits)
