# SPDX-License-Identifier: GPL-2.0-only
"""The packages on an installed Debian machine: install, choose for good, reboot, try, reboot, remove, reboot; and
record and replay without the module."""

from __future__ import annotations

import re
import shutil
from collections.abc import Sequence
from pathlib import Path

import pytest
from tests.python import booted, guests
from tests.python.booted import Booted

from xsmmu_lab.setup import boot, installed, packages

NICS = tuple(
    word
    for index in (0, 1)
    for word in (
        *("-netdev", f"user,id=wire{index},restrict=on,net=10.0.{2 + index}.0/24"),
        *("-device", f"pcie-root-port,id=port{index},bus=pcie.0,addr={8 + index},chassis={1 + index}"),
        *("-device", f"igb,bus=port{index},netdev=wire{index},romfile="),
    )
)
"""eth0 and eth1, in this order because one driver binds both; the peers answer pings."""
E1000E = (
    *("-netdev", "user,id=wire2,restrict=on,net=10.0.4.0/24"),
    *("-device", "e1000e,bus=pcie.0,addr=2,netdev=wire2,romfile="),
)
SCRIPT = guests.SCRIPTS / "packages.sh"
COLOURS = re.compile(r"\x1b\[[\d;?]*[a-zA-Z]")
KEPT = ("again", "root-again", "unset-again", "apply-again")
"""Repeated commands, which change nothing."""
REFUSED = {
    "bound": "add --persist to change the policy at the next boot",
    "essential": "use --persist without --rebind to change the policy at the next boot only",
    "mounted": "use --persist without --rebind to change the policy at the next boot only",
    "way-out": "the only default route uses eth0",
    "no-policy": "choose from auto, copy, strict",
    "no-device": "xsmmu status lists the devices",
    "no-rebind": "add --rebind",
    "class": "2, 4 or 6",
}
"""Refused commands, with words of the remedy."""
SAID = {
    "again": "unchanged",
    "strict": "level strict",
    "differs": "next boot",
    "help": "MEMORY IS IN THE DEVICE'S REACH UNTIL",
    "announced": "# eth1 is left down, loses its addresses 10.0.3.15/24",
    "copy": "add --after 'ip link set eth1 up",
    "unset-again": "unchanged",
    "root": "before the reboot: xsmmu apply --initramfs",
    "root-again": "unchanged: strict from the next boot on",
    "watch": "eth1 fused held pages",
    "top": "fused held",
    "compare": "held",
    "metrics": 'policy="fused"',
}


def run_stage(
    folder: Path, machine: installed.Installed, stage: str, words: Sequence[str] = (), nics: Sequence[str] = NICS
) -> Booted:
    """Boot the machine's disk in `folder`, and run a part of packages.sh there."""
    debs = {f"./{deb.name}": deb.read_bytes() for deb in packages.ensure(booted.QUIET)}
    payload, console = folder / "payload", folder / f"console-{stage}"
    boot.disk(guests.tools(), {"script": SCRIPT.read_bytes(), **debs}, payload, booted.QUIET)
    lines = booted.run_disks(
        machine.vmlinuz,
        machine.initrd,
        (folder / "disk", payload),
        console,
        (f"root=LABEL={installed.LABEL}", f"stage={stage}", "systemd.firstboot=off", *words),
        memory_mib=2048,
        nics=nics,
        timeout_s=3000,
    )
    print("\n".join(lines))
    return Booted(lines)


def blocking(machine: Booted) -> list[str]:
    """The checks that `xsmmu doctor` reports as blocking."""
    lines = [COLOURS.sub("", line).split() for line in machine.console]
    return [words[2] for words in lines if words[:1] == ["blocks"]]


def printed(machine: Booted, step: str) -> str:
    """The output of a step of packages.sh, without colours and line breaks."""
    lines = [COLOURS.sub("", line) for line in machine.console]
    end = next(at for at, line in enumerate(lines) if line.startswith(f"boot: {step}-status "))
    typed = ("# apt ", "# ls ", "# xsmmu ", "# script ")
    begin = max(at for at, line in enumerate(lines[:end]) if line.startswith(typed))
    return " ".join(" ".join(lines[begin + 1 : end]).split())


def check_trial(trial: Booted) -> None:
    """Repeated commands change nothing, refusals name a remedy, and a rebind's losses are named before."""
    for step in ("bench", "overview", "differs", "doctor-nic", *SAID, "apply", "back", "unset", "status"):
        assert trial.said[f"{step}-status"] == "0", step
    for step, words in SAID.items():
        assert words in printed(trial, step), step
    for step, words in REFUSED.items():
        assert trial.said[f"{step}-status"] == "1", step
        assert words in printed(trial, step), step
    for step in (*KEPT, *REFUSED, "announced", "strict"):
        assert trial.said[f"{step}-changed"] == "0", step
    assert (trial.said["strict-level"], trial.said["copy-address"]) == ("strict", "")
    assert trial.said["back-address"].startswith("10.0.3.15/24 10.9.0.0/16 via 10.0.3.2")


def next_boot(folder: Path, machine: installed.Installed, release: str) -> installed.Installed:
    """The machine with the initramfs that is on its disk now."""
    initrd = folder / "initrd"
    initrd.unlink(missing_ok=True)
    boot.read_file(guests.tools(), folder / "disk", f"boot/initrd.img-{release}", initrd, booted.QUIET)
    return installed.Installed(folder / "disk", machine.vmlinuz, initrd)


@pytest.mark.guest
@pytest.mark.long
@pytest.mark.parametrize("suite", (*installed.SUITES, installed.WITH_BACKPORTS))
def test_install_record_replay(tmp_path: Path, suite: str) -> None:
    """The five commands of docs/record.md for igb, then e1000e and nvme, on a machine without the module."""
    machine = installed.machine(suite, booted.QUIET)
    shutil.copy(machine.disk, tmp_path / "disk")
    found = run_stage(tmp_path, machine, "record", ("modprobe.blacklist=e1000e",), (*NICS, *E1000E))
    found.check_end()
    for step in ("install", "record", "info", "replay", "page", "second", "second-replay", "disk", "disk-replay"):
        assert found.said[f"{step}-status"] == "0", step
    assert (found.said["nic driver"], found.said["second-driver"], found.said["loaded"]) == ("igb", "e1000e", "0")
    for step in ("record", "second", "disk"):
        # The kernel skips a call in an interrupt inside of the same call, and counts it.
        assert re.search(r"lost: (nothing|([\d,]+) events \(\2 inside of other calls\))", printed(found, step))
        assert "events: none" not in printed(found, step)
    for step in ("replay", "second-replay", "disk-replay"):
        assert " fused " in printed(found, step)


@pytest.mark.guest
@pytest.mark.long
@pytest.mark.parametrize("suite", installed.SUITES)
def test_install_choose_reboot_remove(tmp_path: Path, suite: str) -> None:
    machine = installed.machine(suite, booted.QUIET)
    shutil.copy(machine.disk, tmp_path / "disk")

    first = run_stage(tmp_path, machine, "install")
    first.check_end()
    for step in ("install", "version", "modprobe", "healthy", "set", "apply"):
        assert first.said[f"{step}-status"] == "0", step
    assert first.said["doctor-status"] == "1"
    assert blocking(first) == ["module-not-loaded"]
    assert (first.said["nic policy"], first.said["nic state"]) == (booted.ATTACHED["policy"], "active")

    machine = next_boot(tmp_path, machine, first.said["release"])
    trial = run_stage(tmp_path, machine, "trial")
    trial.check_end()
    check_trial(trial)

    machine = next_boot(tmp_path, machine, first.said["release"])
    second = run_stage(tmp_path, machine, "use")
    second.check_end()
    assert {file: second.said[f"nic {file}"] for file in booted.ATTACHED} == booted.ATTACHED
    assert second.said["root-policy"] == booted.DISK_ATTACHED["policy"]
    for step in ("status", "service", "report", "metrics", "remove"):
        assert second.said[f"{step}-status"] == "0", step
    assert (second.said["counted"], second.said["left"]) == ("1", "")

    third = run_stage(tmp_path, next_boot(tmp_path, machine, first.said["release"]), "removed")
    third.check_end()
    assert third.said["loaded"] == "0"
    assert third.said["nic state"] == "absent"
    assert {each.said["answers"] for each in (first, trial, second, third)} == {"10"}
    assert {each.said["nic driver"] for each in (first, trial, second, third)} == {"igb"}
