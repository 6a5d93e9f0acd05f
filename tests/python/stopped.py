# SPDX-License-Identifier: GPL-2.0-only
"""A command of the lab that is stopped while a program of its own runs: nothing stays behind."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Sequence
from pathlib import Path

from xsmmu_lab.project import PYTHONPATH


def _processes(mark: str) -> list[str]:
    """Command lines of the processes with a mark in their environment."""
    found = []
    for entry in Path("/proc").glob("[0-9]*"):
        try:
            if mark.encode() in (entry / "environ").read_bytes():
                found.append((entry / "cmdline").read_bytes().replace(b"\0", b" ").decode())
        except OSError:
            continue
    return found


def check_leaves_nothing(words: Sequence[str], program: str, number: signal.Signals, tmp_path: Path) -> None:
    """Runs `xsmmu lab` with these words, sends a signal once the program runs, and looks for what is left."""
    mark = f"XSMMU_MARK={tmp_path}"
    process = subprocess.Popen(
        [sys.executable, "-m", "xsmmu", "lab", *words, "--output", str(tmp_path / "out")],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        env={**os.environ, "PYTHONPATH": PYTHONPATH, "XSMMU_MARK": str(tmp_path)},
        start_new_session=True,
        # A test run in the background of a shell inherits an ignored SIGINT.
        preexec_fn=lambda: signal.signal(signal.SIGINT, signal.SIG_DFL),
    )
    end = time.monotonic() + 300
    while not any(program in command for command in _processes(mark)):
        assert time.monotonic() < end
        assert process.poll() is None, process.communicate()
        time.sleep(0.01)
    process.send_signal(number)
    stdout, stderr = process.communicate(timeout=60)
    assert (process.returncode, stdout) == (130, "")
    assert stderr.endswith("xsmmu: stopped; unfinished work was ended and removed\n")
    assert _processes(mark) == []
    assert not (tmp_path / "out").exists()
