# SPDX-License-Identifier: GPL-2.0-only
"""Short recordings on the kernel's own path (`make recordings`): iperf3, small packets, fio."""

from __future__ import annotations

import base64
import os
from collections.abc import Mapping
from pathlib import Path
from typing import Final

from tests.python import guests

from xsmmu_lab.setup import kernels, trace
from xsmmu_lab.vm.guest import Record

FOLDER: Final = "KEEP_RECORDINGS"
"""Environment variable: a folder for the recordings. Without it they are only made."""
FILE_BYTES: Final = 200_000
"""Limit of a recording of the repository."""


def keeps(record: Record) -> list[str]:
    """Keep a recording."""
    data = base64.b64decode(record["recording"])
    print(f"{record['name']}.xsr: {len(data)} bytes", flush=True)
    if folder := os.environ.get(FOLDER):
        (Path(folder) / f"{record['name']}.xsr").write_bytes(data)
    return [] if len(data) < FILE_BYTES else [f"{record['name']} has {len(data)} bytes"]


def files(_source: Path) -> Mapping[str, bytes]:
    return {"bin/xsmmu-record": trace.recorder().read_bytes()}


RECORDINGS: Final = guests.Machine(
    # The other topic provides functions.
    ("record", "recordings"),
    "^recording_of_",
    kernel=kernels.table()[0],
    needs=(*guests.DEVICES, guests.LOADS),
    files=files,
    hears=keeps,
    timeout_s=1500,
    quiet_s=600,
)
test_recordings = guests.each_case({"recordings": RECORDINGS}, ())
