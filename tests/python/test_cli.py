# SPDX-License-Identifier: GPL-2.0-only
"""The command as a process: messages, statuses, bad input."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

PYTHON = Path(__file__).resolve().parents[2] / "python"


def xsmmu(*arguments: str) -> subprocess.CompletedProcess[str]:
    """Run the command line."""
    environment = {**os.environ, "PYTHONPATH": str(PYTHON)}
    command = [sys.executable, "-m", "xsmmu", *arguments]
    return subprocess.run(command, capture_output=True, text=True, env=environment, check=False, timeout=60)


@pytest.mark.parametrize("arguments", [(), ("lab", "run"), ("lab", "watch"), ("attach",)])
def test_help(arguments: tuple[str, ...]) -> None:
    result = xsmmu(*arguments, "--help")
    assert result.returncode == 0
    assert "Usage: xsmmu" in result.stdout
    assert "Options:" in result.stdout


@pytest.mark.parametrize(
    "arguments",
    [("--experiment", "claim-a-rx", "--quick"), ("--workload", "window", "--policy", "passthrough")],
)
def test_nothing_to_run_is_said(arguments: tuple[str, ...]) -> None:
    result = xsmmu("lab", "run", *arguments)
    assert result.returncode == 1
    assert result.stderr.startswith("xsmmu: ")
    assert "has nothing to run for this choice: leave out --quick" in result.stderr


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("--policy", "fuse"), "unknown policy 'fuse': choose from passthrough,"),
        (("--workload", "net"), "unknown workload 'net': choose from micro,"),
        (("--experiment", "x"), "unknown experiment 'x': choose from attack, claim-a-norecycle,"),
        (("--accel", "hvf"), "unknown accelerator 'hvf': choose from auto, tcg, kvm"),
    ],
)
def test_unknown_names_are_one_line(arguments: tuple[str, ...], message: str) -> None:
    result = xsmmu("lab", "run", *arguments)
    assert result.returncode == 1
    assert result.stdout == ""
    assert result.stderr.startswith(f"xsmmu: {message}")
    assert result.stderr.count("\n") == 1


def test_an_unknown_option_is_explained() -> None:
    result = xsmmu("lab", "run", "--polcy", "fused")
    assert result.returncode == 2
    assert "--policy" in result.stderr


def test_missing_results_are_explained(tmp_path: Path) -> None:
    result = xsmmu("lab", "show", str(tmp_path / "none"))
    assert (result.returncode, result.stderr.count("\n")) == (1, 1)


def test_ctrl_c_is_one_line(tmp_path: Path) -> None:
    stats = tmp_path / "bus/pci/devices/0000:01:00.0/xsmmu/stats"
    stats.mkdir(parents=True)
    for name, text in {"policy": "none [fused]", "level": "held", "state": "active"}.items():
        (stats.parent / name).write_text(text)
    for name in ("inv_page", "inv_domain", "inv_global", "unmapped_pages"):
        (stats / name).write_text("1")
    command = [sys.executable, "-m", "xsmmu", "lab", "watch", "--interval", "0.1", "--sysfs", str(tmp_path)]
    environment = {**os.environ, "PYTHONPATH": str(PYTHON)}
    process = subprocess.Popen(
        command,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        env=environment,
        start_new_session=True,
        # A test run in the background of a shell inherits an ignored SIGINT.
        preexec_fn=lambda: signal.signal(signal.SIGINT, signal.SIG_DFL),
    )
    assert process.stdout
    assert process.stdout.readline()
    time.sleep(0.2)
    process.send_signal(signal.SIGINT)
    _, stderr = process.communicate(timeout=20)
    assert process.returncode == 130
    assert stderr == "xsmmu: stopped; what had begun was ended and removed\n"
