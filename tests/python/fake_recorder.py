# SPDX-License-Identifier: GPL-2.0-only
"""A program in the place of xsmmu-record, which needs root and a kernel with BTF."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from xsmmu import programs, record

SUMMARY: dict[str, Any] = {
    "events": 638,
    "by_kind": {"map": 295, "unmap": 295, "alloc": 2, "free": 2, "poll": 44},
    "lost": 0,
    "nested": 0,
    "late": 0,
    "lost_by_cpu": {},
    "seconds": 2.0,
    "covered_seconds": 2.0,
    "slices": 1,
    "first_slices_ns": [[0, 2000000000]],
    "overhead": {
        "events_per_s": 305,
        "recorder_s": 0.146,
        "busy_s": 0.19,
        "programs_s": 0.0,
        "ns_per_call": 226,
        "share": 0.3123,
    },
    "devices": [{"address": "0000:01:00.0", "events": 638, "removed": 0}],
    "check": {
        "by": "iommu:map and iommu:unmap",
        "note": "the tracepoints count all devices, and name none",
        "mapped_pages": [304, 304],
        "unmapped_pages": [304, 304],
        "iommu_maps": 297,
        "unmaps": [297, 297],
        "equal": True,
    },
}


def install(
    folder: Path, monkeypatch: pytest.MonkeyPatch, summary: dict[str, Any] | None = None, then: str = ""
) -> Path:
    """Put the program in place; returns the file with its words. `then` are shell commands before its end."""
    folder.mkdir()
    words, program = folder / "words", folder / record.PROGRAM
    end = json.dumps({"event": "end", "file": "", "summary": summary or SUMMARY})
    program.write_text(
        f"""#!/bin/sh
echo "$*" >{words}
trap stopped=1 INT
case $* in *--seconds*) stopped=1 ;; esac
echo '{{"event":"recording"}}'
# As the real program does, so that the tool, which waits for a line, soon handles a signal.
until
	echo '{{"event":"progress","seconds":1.0,"events":300,"lost":0}}'
	[ "$stopped" ]
do sleep 0.05; done
{then}
echo 1234 >"$2"
echo '{end}'
"""
    )
    program.chmod(0o755)
    monkeypatch.setenv(programs.FOLDER_VARIABLE, str(folder))
    return words
