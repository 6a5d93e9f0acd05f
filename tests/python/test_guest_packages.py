# SPDX-License-Identifier: GPL-2.0-only
"""The packages on an installed Debian machine: install, choose for good, reboot, remove, reboot."""

from __future__ import annotations

import re
import shutil
from pathlib import Path

import pytest
from tests.python import booted, guests
from tests.python.booted import Booted

from xsmmu.setup import boot, installed, packages

NICS = tuple(
    word
    for index in (0, 1)
    for word in (
        *("-netdev", f"user,id=wire{index},restrict=on,net=10.0.{2 + index}.0/24"),
        *("-device", f"pcie-root-port,id=port{index},bus=pcie.0,addr={8 + index},chassis={1 + index}"),
        *("-device", f"igb,bus=port{index},netdev=wire{index},romfile="),
    )
)
"""eth0 and eth1, in this order as one driver binds to both; the other ends answer pings."""
SCRIPT = guests.SCRIPTS / "packages.sh"
COLOURS = re.compile(r"\x1b\[[\d;]*m")


def run_stage(folder: Path, machine: installed.Installed, stage: str) -> Booted:
    """Boot the machine's disk in `folder`, and run a part of packages.sh there."""
    debs = {f"./{deb.name}": deb.read_bytes() for deb in packages.ensure(booted.QUIET)}
    payload, console = folder / "payload", folder / f"console-{stage}"
    boot.disk(guests.tools(), {"script": SCRIPT.read_bytes(), **debs}, payload, booted.QUIET)
    lines = booted.run_disks(
        machine.vmlinuz,
        machine.initrd,
        (folder / "disk", payload),
        console,
        (f"root=LABEL={installed.LABEL}", f"stage={stage}", "systemd.firstboot=off"),
        memory_mib=2048,
        nics=NICS,
        timeout_s=3000,
    )
    print("\n".join(lines))
    return Booted(lines)


def blocking(machine: Booted) -> list[str]:
    """The words of what `xsmmu doctor` says is in the way."""
    lines = [COLOURS.sub("", line).split() for line in machine.console]
    return [words[2] for words in lines if words[:1] == ["blocks"]]


def next_boot(folder: Path, machine: installed.Installed, release: str) -> installed.Installed:
    """The machine with the initramfs that its disk has now."""
    initrd = folder / "initrd"
    initrd.unlink(missing_ok=True)
    boot.read_file(guests.tools(), folder / "disk", f"boot/initrd.img-{release}", initrd, booted.QUIET)
    return installed.Installed(folder / "disk", machine.vmlinuz, initrd)


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
    assert (first.said["nic policy"], first.said["nic state"]) == (booted.TAKEN_OVER["policy"], "active")

    machine = next_boot(tmp_path, machine, first.said["release"])
    second = run_stage(tmp_path, machine, "use")
    second.check_end()
    assert {file: second.said[f"nic {file}"] for file in booted.TAKEN_OVER} == booted.TAKEN_OVER
    for step in ("status", "service", "bench", "report", "metrics", "remove"):
        assert second.said[f"{step}-status"] == "0", step
    assert (second.said["counted"], second.said["left"]) == ("1", "")

    third = run_stage(tmp_path, next_boot(tmp_path, machine, first.said["release"]), "removed")
    third.check_end()
    assert third.said["loaded"] == "0"
    assert third.said["nic state"] == "absent"
    assert {each.said["answers"] for each in (first, second, third)} == {"10"}
    assert {each.said["nic driver"] for each in (first, second, third)} == {"igb"}
