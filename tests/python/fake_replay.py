# SPDX-License-Identifier: GPL-2.0-only
"""A program in the place of xsmmu-replay, for tests that build nothing."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any, Final

import pytest

from xsmmu import programs, replay

_GAUGE: Final = {"max": 3, "mean": 1.5, "end": 0}
_FLUSHES: Final = dict.fromkeys(("unmap", "block", "full", "time", "explicit", "drain"), 0) | {"poll": 1}
RESULT: Final[dict[str, Any]] = {
    "policy": "fused",
    "aware": False,
    "level": "held",
    "tunables": {"window_us": 1000},
    "cpus": 4,
    "unheld_known": False,
    "events": 8,
    "recording_ns": 800,
    "maps": 3,
    "unmaps": 3,
    "pages_mapped": 3,
    "pages_unmapped": 3,
    "pages_still_mapped": 0,
    "pages_revived": 0,
    "copied_maps": 0,
    "copied_bytes": 0,
    "commands": {"page": 1, "domain": 0},
    "commands_per_page_unmapped": 0.333333,
    "flushes": _FLUSHES,
    "exposure_ns": {"p50": 200, "p99": 300, "max": 300, "pages": 3},
    **dict.fromkeys(("memory_held_pages", "iova_mapped_pages", "iova_held_pages", "table_pages"), _GAUGE),
    "iova_taken_pages": 64,
    "regions_per_1000_maps": 333.3,
    "engine_bytes": _GAUGE,
    "lifetime_ns": {"p50": 120, "p99": 300, "max": 310, "mappings": 3, "from_ns": [[64, 2], [256, 1]]},
    "timeline": {"step_ns": 1024, "maps": [3], "commands": [1], "mapped_pages": [2], "held_pages": [3]},
    "header": '{"cpus": 4}',
    "not_replayed": {
        "unmap_without_map": {"count": 1, "first": {"event": 2, "ns": 200, "cpu": 0, "device": 0, "iova": 4096}}
    },
    "damage": {"blocks": 0, "bytes": 0, "cut": False, "lost_events": 0},
    "rate": {"cpu_seconds": 0.001, "events_per_second": 8000},
}


def install(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Put the program in place, and keep results beside it."""
    folder.mkdir(exist_ok=True)
    program = folder / replay.PROGRAM
    program.write_text(f"#!/bin/sh\ncat <<'end'\n{json.dumps(RESULT)}\nend\n")
    program.chmod(0o755)
    monkeypatch.setenv(programs.FOLDER_VARIABLE, str(folder))
    monkeypatch.setenv("XDG_CACHE_HOME", str(folder / "cache"))
