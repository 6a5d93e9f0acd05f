# SPDX-License-Identifier: GPL-2.0-only
"""What recording adds to iperf3 and fio, in guests that count instructions.

Each comparison prints a row of the table in docs/record.md.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Final

from tests.python import guests

from xsmmu_lab.setup import kernels, trace
from xsmmu_lab.vm.guest import Record

KERNELS: Final = (kernels.table()[0], "6.1", "7.2")
EVENT_BYTES: Final = 6
SHARES: Final = {"iperf3": 0.10, "fio": 0.13}
"""The most that recording may add. The goal of 10 % is missed with fio, see docs/record.md."""


def compares(record: Record) -> list[str]:
    """Compare a workload's instructions, for the same work, without and with a recording."""
    without, with_ = (record[name][0] / record[name][1] for name in ("without", "with"))
    share, size = with_ / without - 1, record["bytes"] / record["events"]
    each = (with_ - without) * record["with"][1] / record["events"]
    events, instructions = f"{record['events']:,}", f"{record['with'][0] / 1e6:,.0f}"
    cells = (record["cost"], instructions, events, f"{each:,.0f}", f"{100 * share:.1f} %", f"{size:.2f}")
    print(f"\n| {' | '.join(cells)} |", flush=True)
    wrong = [] if share <= SHARES[record["cost"].partition(",")[0]] else [f"recording adds {100 * share:.1f} %"]
    wrong += [] if size <= EVENT_BYTES else [f"an event takes {size:.2f} bytes"]
    return [f"{record['cost']}: {text}" for text in wrong]


def files(_source: Path) -> Mapping[str, bytes]:
    return {"bin/xsmmu-record": trace.recorder().read_bytes()}


def machine(kernel: str) -> guests.Machine:
    # The other topics provide functions.
    return guests.Machine(
        *(("record", "recordings", "record_cost"), "^cost_of_"),
        kernel=kernel,
        needs=(*guests.DEVICES, guests.LOADS),
        files=files,
        hears=compares,
        timeout_s=1500,
        quiet_s=600,
    )


MACHINES: Final = {f"cost {name}": machine(name) for name in KERNELS}
test_cost = guests.each_case(MACHINES, ())
