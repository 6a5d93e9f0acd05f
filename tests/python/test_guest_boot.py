# SPDX-License-Identifier: GPL-2.0-only
"""At boot: the disk of the root file system and the first NIC, taken over from Debian's own initramfs.

The machine is booted as a user's is: boot/'s files are installed, Debian's own tool makes the initramfs, and nothing
but it loads a module.
"""

from __future__ import annotations

import re
import subprocess
from dataclasses import dataclass
from pathlib import Path

import pytest
from rich.console import Console
from tests.python import guests

from xsmmu import boot, build, host, kernels, machine
from xsmmu.guest import FATAL, FAULT

INIT = guests.SCRIPTS / "boot.sh"
TIMEOUT_S = 600
LAST_LINES = 60

TAINTS = re.compile(r"xsmmu: (loading out-of-tree module|module verification failed)")
TAKEN_OVER = {"policy": "none strict lazy fands xsmmu [fused]", "level": "held", "state": "active"}
DEVICES = {"disk": "nvme", "nic": "e1000e"}


@dataclass(frozen=True)
class Booted:
    """What a machine said: each thing that boot.sh found, by its name, and all else."""

    said: dict[str, str]
    console: list[str]

    def xsmmu_lines(self) -> list[str]:
        """What the module said, but for the taints that any such module brings."""
        return [line for line in self.console if "xsmmu: " in line and not TAINTS.search(line)]


def boot_from_disk(folder: Path, tool: str, *words: str) -> Booted:
    """Boot a disk by an initramfs of `tool`, with more words on the kernel's command line."""
    tools = guests.tools()
    kernel = kernels.ensure(tools)
    [xsmmu] = build.module(tools, kernel)
    quiet = Console(stderr=True)
    image = boot.initramfs(tools, kernel, xsmmu, tool, quiet)
    disk, console = folder / "disk", folder / "console"
    busybox = (tools.path / "usr/bin/busybox").read_bytes()
    files = {"bin/busybox": busybox, "bin/sh": busybox, "sbin/init": INIT.read_bytes(), "etc/os-release": b"ID=xsmmu\n"}
    boot.disk(tools, files, disk, quiet)
    # This machine has no -icount, so its kernel measures its clock.
    words = ("tsc_early_khz=0", f"root=LABEL={boot.DISK_LABEL}", "systemd.show_status=0", *words)
    kernel_arguments = machine.boot_arguments(kernel.vmlinuz, image, words)
    try:
        host.run([*tools.qemu_command(), *machine_arguments(disk, console), *kernel_arguments], timeout=TIMEOUT_S)
    except subprocess.TimeoutExpired:
        pytest.fail("\n".join(["it does not power off:", *lines_of(console)[-LAST_LINES:]]))
    lines = lines_of(console)
    bad = [line for line in lines if FATAL.search(line) or FAULT.search(line)]
    said = dict(re.findall(r"^boot: (\S+(?: (?:driver|policy|level|state|stats/maps))?) (.*)$", "\n".join(lines), re.M))
    if bad or "end" not in said:
        pytest.fail("\n".join([*bad, "", "the last lines:", *lines[-LAST_LINES:]]))
    return Booted(said, lines)


def lines_of(console: Path) -> list[str]:
    """The console's lines so far."""
    return [line.rstrip("\r") for line in console.read_text(errors="replace").split("\n")]


def machine_arguments(disk: Path, console: Path) -> list[str]:
    """A small PC with an IOMMU, a disk and a NIC, whose other end answers pings."""
    return [
        *("-nodefaults", "-no-user-config", "-display", "none", "-no-reboot", "-m", "1024M", "-smp", "2"),
        *("-machine", "q35,sata=off,smbus=off,accel=tcg,kernel-irqchip=off", "-cpu", machine.EMULATED_CPU),
        *("-device", machine.IOMMUS[machine.DEFAULT_IOMMU].device),
        *("-chardev", f"file,id=console,path={console}", "-serial", "chardev:console"),
        *("-netdev", "user,id=wire,restrict=on", "-device", "e1000e,bus=pcie.0,addr=2,netdev=wire,romfile="),
        *("-blockdev", f"driver=file,node-name=disk,filename={disk},cache.no-flush=on"),
        *("-device", "nvme,bus=pcie.0,addr=3,serial=disk,drive=disk"),
    ]


def check_machine_works(booted: Booted) -> None:
    """It runs from its disk; disk and NIC work, and their drivers came from the initramfs."""
    assert booted.said["root"] == "/dev/nvme0n1"
    assert booted.said["read"] == booted.said["written"] != ""
    assert booted.said["ping"] == "3"
    for device, driver in DEVICES.items():
        assert booted.said[f"{device} driver"] == driver


def check_taken_over(booted: Booted) -> None:
    check_machine_works(booted)
    for device in DEVICES:
        assert {file: booted.said[f"{device} {file}"] for file in TAKEN_OVER} == TAKEN_OVER
        assert int(booted.said[f"{device} stats/maps"]) > 0
    assert booted.xsmmu_lines() == []


def check_kernels_own_path(booted: Booted, state: str) -> None:
    check_machine_works(booted)
    assert {booted.said[f"{device} state"] for device in DEVICES} == {state}


@pytest.mark.guest
def test_taken_over_from_the_initramfs(tmp_path: Path) -> None:
    check_taken_over(boot_from_disk(tmp_path, "initramfs-tools"))


@pytest.mark.guest
def test_a_word_on_the_command_line_keeps_it_out(tmp_path: Path) -> None:
    check_kernels_own_path(boot_from_disk(tmp_path, "initramfs-tools", "module_blacklist=xsmmu"), "absent")


@pytest.mark.guest
@pytest.mark.long
@pytest.mark.parametrize(("rules", "state"), [("", "off"), ("nonsense", "absent")])
def test_the_command_line_has_the_last_word_on_rules(tmp_path: Path, rules: str, state: str) -> None:
    check_kernels_own_path(boot_from_disk(tmp_path, "initramfs-tools", f"xsmmu.rules={rules}"), state)


@pytest.mark.guest
@pytest.mark.long
def test_taken_over_from_the_initramfs_of_dracut(tmp_path: Path) -> None:
    check_taken_over(boot_from_disk(tmp_path, "dracut"))


@pytest.mark.guest
@pytest.mark.long
def test_a_word_on_the_command_line_keeps_it_out_of_dracut(tmp_path: Path) -> None:
    check_kernels_own_path(boot_from_disk(tmp_path, "dracut", "module_blacklist=xsmmu"), "absent")
