# SPDX-License-Identifier: GPL-2.0-only
"""Completion in shells: in bash as typed, and the questions of zsh and fish."""

from __future__ import annotations

import os
import pty
import re
import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
from tests.python.fake_kernel import end, program
from tests.python.sysfs import IGB, MENU, NVME0, NVME1, make_device

from xsmmu import machine
from xsmmu.errors import UserError
from xsmmu_lab.project import PYTHONPATH

ELSEWHERE = "0001:06:00.1"
NAMES = ["eth1", "nvme0n1", IGB, NVME0, NVME1, ELSEWHERE]
POLICIES = list(MENU[1:])
MODES = ["kernel-strict", "kernel-lazy", "passthrough", *(name for name in POLICIES if name != "auto")]


@pytest.fixture(autouse=True)
def sysfs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A NIC and three disks, a bridge, and a device without an IOMMU; and a command that prints its arguments."""
    for name, value in {
        "XSMMU_SYSFS": str(tmp_path / "sys"),
        "PYTHONPATH": PYTHONPATH,
        "PATH": f"{tmp_path}/bin:{os.environ['PATH']}",
        "TERM": "dumb",
    }.items():
        monkeypatch.setenv(name, value)
    make_device(tmp_path / "sys", IGB, 11, "none", "igb", interface="eth1", state="off")
    make_device(tmp_path / "sys", NVME0, 13, "xsmmu", "nvme", disk="nvme0n1")
    make_device(tmp_path / "sys", NVME1, 13, "xsmmu", "nvme")
    make_device(tmp_path / "sys", ELSEWHERE, 14, "none")
    bridge = make_device(tmp_path / "sys", "0000:08:00.0", 15, "none")
    (bridge.parent / "class").write_text("0x060400\n")
    make_device(tmp_path / "sys", "0000:09:00.0", None, None, interface="eth9")
    script = f'[ -z "$_XSMMU_COMPLETE" ] || exec {sys.executable} -m xsmmu\necho "ran <$*>"'
    program(tmp_path / "bin/xsmmu", script)
    return tmp_path / "sys"


Asked = Callable[[str, str], list[str]]


@pytest.fixture(name="asked")
def _asked(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Asked:
    """The tool's answer to a shell's question about a line."""

    def ask(shell: str, line: str) -> list[str]:
        words = line.split(" ")
        monkeypatch.setenv("_XSMMU_COMPLETE", f"{shell}_complete")
        monkeypatch.setenv("COMP_WORDS", line)
        monkeypatch.setenv("COMP_CWORD", words[-1] if shell == "fish" else str(len(words) - 1))
        _, said, error = end(monkeypatch, capsys)
        assert error == ""
        # For zsh three lines: the kind, the word, and its description.
        return said.split()[1::3] if shell == "zsh" else [each.partition(",")[2] for each in said.split()]

    return ask


@pytest.mark.parametrize("shell", ["bash", "zsh", "fish"])
@pytest.mark.parametrize(
    ("line", "words"),
    [
        *((f"{command} ", NAMES) for command in ("set", "unset", "bench", "compare", "status", "doctor", "top eth1")),
        ("watch e", ["eth1"]),
        ("set 0000:0", [IGB, NVME0, NVME1]),
        ("set 0001:", [ELSEWHERE]),
        ("set 05:", [NVME0.removeprefix("0000:")]),
        ("set eth1 ", POLICIES),
        ("set eth1 f", ["fands", "fused"]),
        ("bench eth1 --policies ", MODES),
        ("compare eth1 --policies fused,kernel-l", ["fused,kernel-lazy"]),
        ("compare eth1 --policies copy,fused,f", ["copy,fused,fands"]),
        # There is no policy with a part of a name.
        ("compare eth1 --policies kernel-strict,strict", ["kernel-strict,strict"]),
        ("compare eth1 --baseline kernel-", ["kernel-strict", "kernel-lazy"]),
    ],
)
def test_what_is_offered(asked: Asked, shell: str, line: str, words: list[str]) -> None:
    assert asked(shell, f"xsmmu {line}") == words


def test_nothing_is_said_where_nothing_is_known(asked: Asked, sysfs: Path) -> None:
    """Without the module; and for a device that goes meanwhile."""
    for folder in sysfs.glob("bus/pci/devices/*/xsmmu"):
        shutil.rmtree(folder)
    assert asked("bash", "xsmmu set eth1 ") == []
    (sysfs / "bus/pci/devices" / IGB / "xsmmu").mkdir()
    assert asked("bash", "xsmmu set eth1 ") == []


def test_what_is_wrong_is_not_said_in_the_line_that_is_typed(asked: Asked, monkeypatch: pytest.MonkeyPatch) -> None:
    def gone() -> list[str]:
        raise UserError("0000:01:00.0 has gone", code="device-gone")

    monkeypatch.setattr(machine, "words", gone)
    assert asked("bash", "xsmmu set ") == []


def test_as_it_is_typed(tmp_path: Path) -> None:
    """bash treats a colon as the end of a word."""
    source = subprocess.run(
        ["xsmmu"], env={**os.environ, "_XSMMU_COMPLETE": "bash_source"}, capture_output=True, check=True
    )
    (tmp_path / "completion").write_bytes(source.stdout)
    process, terminal = pty.fork()
    if not process:
        os.chdir(tmp_path)
        os.execvp("bash", ["bash", "--norc", "--noprofile", "-i"])
    said = b""

    def type_until(text: str, wanted: str) -> str:
        nonlocal said
        os.write(terminal, text.encode())
        while not (found := re.search(wanted.encode(), said)):
            said += os.read(terminal, 1000)
        said = said[found.end() :]
        return found[1].decode()

    type_until(f". {tmp_path}/completion; echo rea''dy\r", "(ready)")
    for typed, ran in {
        "set 0000:01\t\r": f"set {IGB}",
        "set 0000:05:\tfu\t\r": f"set {NVME0} fused",
        # Ctrl-B moves the cursor before existing words.
        "set 0000:01 fused\x02\x02\x02\x02\x02\x02\t\r": f"set {IGB} fused",
        "report --bundle --output-file completi\t\r": "report --bundle --output-file completion",
        "set 06:\t\r": f"set {NVME1.removeprefix('0000:')}",
        "compare nvme\t--after 'a b' --policies=fused,co\t\r": "compare nvme0n1 --after a b --policies=fused,copy",
    }.items():
        assert type_until(f"xsmmu {typed}", "ran <(.*?)>").split() == ran.split()
    os.close(terminal)
    os.waitpid(process, 0)


def test_a_name_that_bash_would_run(asked: Asked, sysfs: Path) -> None:
    """bash inserts completions into the line unquoted, and interfaces may have nearly any name."""
    for name in ("$(reboot)", "`id`", "a;b", "*"):
        (sysfs / "class/net" / name).symlink_to(sysfs / "bus/pci/devices" / IGB)
    assert asked("bash", "xsmmu status ") == NAMES
