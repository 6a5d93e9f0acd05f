# SPDX-License-Identifier: GPL-2.0-only
"""A run of a user's command and its costs: time, CPU time, and the module's counters."""

from __future__ import annotations

import json
import math
import os
import re
import resource
import select
import signal
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from xsmmu import activity, machine, process
from xsmmu.activity import Activity
from xsmmu.errors import UserError
from xsmmu.machine import Device
from xsmmu.module import KINDS

LOOK_S: Final = 0.2
LAST_LINES: Final = 20
TICKS_PER_S: Final = os.sysconf("SC_CLK_TCK")

COUNTERS: Final = (
    "mapped_pages",
    "unmapped_pages",
    "deferred_pages",
    *(f"inv_{kind}" for kind in KINDS),
    "copied_maps",
)
MODULES: Final = (*COUNTERS, "invalidations_per_page", "exposure_p99_ns", "exposure_max_ns")
"""Quantities from the module, for runs under a policy of the module."""
QUANTITIES: Final = ("wall_s", "cpu_s", "command_cpu_s", "figure", *MODULES)
"""All quantities of a run."""

Row = dict[str, float | None]

_THOUSANDS: Final = re.compile(r"[+-]?[0-9]{1,3}(,[0-9]{3})+(\.[0-9]*)?")


@dataclass(frozen=True)
class Figure:
    """Finds a figure in the output of a command, by a regular expression or a path in JSON."""

    pattern: re.Pattern[str] | None = None
    path: str | None = None

    def of(self, text: str) -> float:
        """The figure: the first group of the last match, or the value at END.KEY.0 (keys and list indices)."""
        found = self._in_json(text) if self.path else self._matched(text)
        said = str(found).strip()
        # In other positions a comma may be a decimal point.
        said = said.replace(",", "") if _THOUSANDS.fullmatch(said) else said
        try:
            if not isinstance(found, bool) and math.isfinite(number := float(said)):
                return number
        except ValueError:
            pass
        raise UserError(f"printed no number at {self}: run the command alone to see its output", code="no-figure")

    def __str__(self) -> str:
        return self.path or (f"'{self.pattern.pattern}'" if self.pattern else "")

    def _matched(self, text: str) -> object:
        matches = list(self.pattern.finditer(text)) if self.pattern else []
        return matches[-1][1 if matches[-1].re.groups else 0] if matches else None

    def _in_json(self, text: str) -> object:
        try:
            found: object = json.loads(text)
        except ValueError as error:
            raise UserError(
                f"printed no JSON ({error}): add the command's option for JSON, or use --metric", code="no-figure"
            ) from None
        for key in (self.path or "").split("."):
            if isinstance(found, list) and key.isdigit() and int(key) < len(found):
                found = found[int(key)]
            else:
                found = found.get(key) if isinstance(found, dict) else None
        return found


def busy_ticks() -> int:
    """CPU time of the whole machine since boot, in ticks; without idle, iowait and steal time."""
    first = (machine.text(machine.root("proc") / "stat") or "").partition("\n")[0].split()
    if len(first) < 8 or first[0] != "cpu":
        raise UserError(f"{machine.root('proc') / 'stat'} has no CPU times: mount /proc")
    user, nice, system, _idle, _iowait, irq, softirq = (int(word) for word in first[1:8])
    return user + nice + system + irq + softirq


def run(command: Sequence[str], device: Device, figure: Figure | None, said: Path, ours: bool) -> Row:
    """Run a command and return its costs; output goes to `said`.out and .err. UserError if the command fails.

    `ours`: the module serves the device. Both files must be new, because root would write through a symbolic link.
    """
    out, err = said.with_suffix(".out"), said.with_suffix(".err")
    first, busy = activity.read(device) if ours else None, busy_ticks()
    begun = time.monotonic()
    status, usage = _wait(command, out, err)
    wall = time.monotonic() - begun
    # Subtracted in ticks: differences of large floating-point seconds would be inexact.
    busy = busy_ticks() - busy
    row: Row = dict.fromkeys(QUANTITIES)
    row |= {"wall_s": wall, "cpu_s": busy / TICKS_PER_S, "command_cpu_s": usage.ru_utime + usage.ru_stime}
    if status:
        how = f"was ended by {signal.Signals(-status).name}" if status < 0 else f"ended with status {status}"
        raise UserError(how, _last_lines(out, err), code="command-failed")
    if figure:
        try:
            row["figure"] = figure.of(out.read_text(errors="replace"))
        except UserError as error:
            raise UserError(error.message, _last_lines(out, err), code=error.code) from None
    if first:
        row |= _of_module(Activity(device, first, activity.read(device)))
    return row


def _of_module(now: Activity) -> Row:
    return {
        **{name: now.moved(name) for name in COUNTERS},
        "invalidations_per_page": now.invalidations_per_page,
        "exposure_p99_ns": now.exposure_p99_ns,
        "exposure_max_ns": now.exposure_max_ns,
    }


def _wait(command: Sequence[str], out: Path, err: Path) -> tuple[int, resource.struct_rusage]:
    """Exit status (negative for a signal) and resource usage; Ctrl-C ends the command and its children."""
    with out.open("xb") as stdout, err.open("xb") as stderr, process.started(command, stdout, stderr) as begun:
        _until_ended(begun.pid)
        _, status, usage = os.wait4(begun.pid, 0)
        begun.returncode = os.waitstatus_to_exitcode(status)
    return begun.returncode, usage


def _until_ended(number: int) -> None:
    """Wait with a timeout: a signal may be delivered to another thread, and does not wake this thread then."""
    handle = os.pidfd_open(number)
    try:
        while not select.select([handle], [], [], LOOK_S)[0]:
            pass
    finally:
        os.close(handle)


def _last_lines(*files: Path) -> list[str]:
    lines = [line for file in files for line in file.read_text(errors="replace").splitlines()]
    return lines[-LAST_LINES:]
