# SPDX-License-Identifier: GPL-2.0-only
"""The module's counts in a guest, and those of a replay of what the guest has recorded meanwhile.

The guest has the programs of the package xsmmu-trace.

Each comparison prints a row of the table in docs/replay.md.
"""

from __future__ import annotations

import base64
import os
import tempfile
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final

from tests.python import guests
from tests.python.recordings import Player

from xsmmu_lab.setup import kernels, packages, replay
from xsmmu_lab.vm.guest import Record
from xsmmu_lab.vm.iommu import DEFAULT_IOMMU, IOMMUS

DEFAULT, OTHERS = kernels.table()[0], ("6.1", "7.2")
FIXED: Final = {
    "maps": "maps",
    "unmaps": "unmaps",
    "mapped_pages": "pages_mapped",
    "unmapped_pages": "pages_unmapped",
}
"""Counts that do not depend on time: the module's name, and the replay's."""
CAUSES: Final = ("unmap", "block", "poll", "full", "time", "explicit", "drain")
SCOPES: Final = ("page", "domain")
SHARE: Final = 0.02
"""Counts that depend on time, on polls, or on the place of pages may differ by this share."""
LATE: Final = 2
"""Flushes of timers, and their commands, that may differ where the share is less: in a guest an interrupt that unmaps
delays the timer, so one flush covers what a replay flushes by two."""
PLACED: Final = 4
"""Commands for pages that may differ where the share is less: ranges at other IOVAs need one command or two."""
FOLDER: Final = "KEEP_RECORDINGS"
"""Environment variable: a folder for the recordings."""

Counts = dict[str, int]


def replayed(record: Record) -> dict[str, Any]:
    """The figures of a replay of a record's recording under the guest's policy."""
    with tempfile.TemporaryDirectory() as temporary:
        folder = Path(os.environ.get(FOLDER, temporary))
        file = folder / f"{record['driver']}-{record['work']}-{record['policy']}.xsr"
        file.write_bytes(base64.b64decode(record["recording"]))
        found = Player(replay.compiled())(file, record["policy"])
    assert not found["not_replayed"], found["not_replayed"]
    return found


def counted(found: Mapping[str, Any]) -> Counts:
    """The module's counts, by its names, of a replay."""
    counts = {name: found[theirs] for name, theirs in FIXED.items()}
    counts |= {f"flush_{cause}": found["flushes"][cause] for cause in CAUSES}
    return counts | {f"inv_{scope}": found["commands"][scope] for scope in SCOPES}


def row(record: Record, guest: Counts, replay_: Counts) -> str:
    """A row of the table."""

    def pair(name: str, text: str) -> str:
        ours, theirs = guest[name], replay_[name]
        return "" if not ours and not theirs else f"{text} {ours}" if ours == theirs else f"{text} {ours} / {theirs}"

    cells = [
        f"{record['driver']}, {record['work'].replace('_', ' ')}",
        record["policy"],
        pair("unmaps", "").strip(),
        pair("unmapped_pages", "").strip(),
        ", ".join(filter(None, (pair(f"flush_{cause}", cause) for cause in CAUSES))),
        ", ".join(filter(None, (pair(f"inv_{scope}", scope) for scope in SCOPES))),
    ]
    return f"| {' | '.join(cells)} |"


def tolerance(policy: str, name: str, count: int) -> float:
    """The difference that is allowed."""
    if name in FIXED or policy == "strict":
        return 0
    least = {"flush_time": LATE, "inv_domain": LATE, "inv_page": PLACED}
    return max(SHARE * count, least.get(name, 0))


def hears(record: Record) -> list[str]:
    """Compare the counts of the guest with a replay."""
    before, after = (record[name]["stats"] for name in ("before", "after"))
    found = replayed(record)
    theirs = counted(found)
    ours = {name: after[name] - before[name] for name in theirs}
    print(f"\n{row(record, ours, theirs)}", flush=True)
    # A replay does not detach the device; the timer flushes what the detach drains.
    for counts in (ours, theirs):
        counts["flush_time"] += counts.pop("flush_drain")
    here = {name: value for name, value in record["replayed"].items() if name != "rate"}
    wrong = [] if here == found else [f"the replay in the guest has {here}, the one on the host {found}"]
    for name, count in ours.items():
        if abs(count - theirs[name]) > tolerance(record["policy"], name, count):
            wrong.append(f"{name} is {count} in the guest, {theirs[name]} in the replay")
    return [f"{record['driver']}, {record['work']}, {record['policy']}: {text}" for text in wrong]


def machine(pattern: str, kernel: str, iommu: str = DEFAULT_IOMMU, timeout_s: float = 2400) -> guests.Machine:
    def files(_source: Path) -> Mapping[str, bytes]:
        return packages.programs(IOMMUS[iommu].arch, "xsmmu-record", "xsmmu-replay")

    topics = ("record", "replay")  # The first provides functions.
    return guests.Machine(topics, pattern, kernel=kernel, iommu=iommu, files=files, hears=hears, timeout_s=timeout_s)


SHORT = {f"replay {DEFAULT}": machine("^replay_of_a_nic$", DEFAULT)}
LONG = {f"more {DEFAULT}": machine("^replay_of_(?!a_nic$)", DEFAULT)}
LONG |= {f"replay {name}": machine("^replay_of_(?!a_nic$)", name) for name in OTHERS}
LONG["replay arm64"] = machine("^replay_of_(e1000e|igb|a_disk)$", DEFAULT, "smmuv3")
test_replay = guests.each_case({**SHORT, **LONG}, SHORT)
