# SPDX-License-Identifier: GPL-2.0-only
"""Boot a machine as a user's machine boots: from its own disk, by an initramfs of Debian's own tool.

The initramfs contains the files of tool/boot/, and only the initramfs loads modules.
"""

from __future__ import annotations

import re
import subprocess
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import pytest
from rich.console import Console
from tests.python import guests

from xsmmu_lab.arch import AMD64
from xsmmu_lab.setup import boot, host
from xsmmu_lab.setup.kernels import Kernel
from xsmmu_lab.vm import machine
from xsmmu_lab.vm.guest import FATAL
from xsmmu_lab.vm.iommu import DEFAULT_IOMMU, IOMMUS

TIMEOUT_S = 600
LAST_LINES = 60
QUIET = Console(stderr=True)

TAINTS = re.compile(r"xsmmu: (loading out-of-tree module|module verification failed)")
ATTACHED = {
    "policy": "none auto copy strict lazy fands xsmmu [fused] strict-identity fused-identity",
    "level": "held",
    "state": "active",
}
DISK_ATTACHED = {
    "policy": "none auto copy [strict] lazy fands xsmmu fused strict-identity fused-identity",
    "level": "strict",
    "state": "active",
}
NICS = ("-netdev", "user,id=wire,restrict=on", "-device", "e1000e,bus=pcie.0,addr=2,netdev=wire,romfile=")
"""A NIC with a peer that answers pings."""
DEVICES = {"disk": "nvme", "nic": "e1000e"}

_LIBRARY = guests.SCRIPTS / "boot_lib.sh"
_SAID = re.compile(r"^boot: (\S+(?: (?:driver|policy|level|state|stats/maps))?) (.*)$")


@dataclass(frozen=True)
class Booted:
    """The console output of a kernel."""

    console: list[str]

    @property
    def said(self) -> dict[str, str]:
        """The findings of the scripts of boot_lib.sh, by name."""
        return {found[1]: found[2] for line in self.console if (found := _SAID.match(line))}

    def xsmmu_lines(self) -> list[str]:
        """The module's log lines, without the taint messages of any out-of-tree module."""
        return [line for line in self.console if "xsmmu: " in line and not TAINTS.search(line)]

    def check_end(self, last: str = "end") -> None:
        """Fail on a line about a kernel problem or an IOMMU fault, or without the `last` word."""
        bad = [line for line in self.console if FATAL.search(line) or IOMMUS[DEFAULT_IOMMU].faults.search(line)]
        if bad or last not in self.said:
            pytest.fail("\n".join([*bad, "", "the last lines:", *self.console[-LAST_LINES:]]))

    def check_works(self) -> None:
        """The root is the disk, disk and NIC work, and their drivers came from the initramfs."""
        assert self.said["root"] == "/dev/nvme0n1"
        assert self.said["read"] == self.said["written"] != ""
        assert self.said["ping"] == "3"
        for device, driver in DEVICES.items():
            assert self.said[f"{device} driver"] == driver

    def check_attached(self) -> None:
        """Disk and NIC are attached, by the rules in the initramfs."""
        for device, wanted in {"disk": DISK_ATTACHED, "nic": ATTACHED}.items():
            assert {file: self.said[f"{device} {file}"] for file in wanted} == wanted
            assert int(self.said[f"{device} stats/maps"]) > 0
        assert self.xsmmu_lines() == []

    def check_kernels_own_path(self, state: str) -> None:
        """Disk and NIC have `state` and are not attached, and the machine works."""
        self.check_works()
        assert {self.said[f"{device} state"] for device in DEVICES} == {state}


def run(
    folder: Path,
    kernel: Kernel,
    image: Path,
    init: str,
    words: Sequence[str] = (),
    files: Mapping[str, bytes] | None = None,
    disk_mib: int = 64,
    memory_mib: int = 1024,
) -> list[str]:
    """Boot by the initramfs `image` until power-off; returns the console's lines.

    The disk is `disk` in `folder`, with a script of tests/guest as its init and more `files`. `words` are more words on
    the kernel's command line.
    """
    disk, console = folder / "disk", folder / "console"
    busybox = (guests.tools().path / "usr/bin/busybox").read_bytes()
    content = {
        "bin/busybox": busybox,
        "bin/sh": busybox,
        "etc/os-release": b"ID=xsmmu\n",
        "sbin/init": (guests.SCRIPTS / init).read_bytes(),
        f"sbin/{_LIBRARY.name}": _LIBRARY.read_bytes(),
        **(files or {}),
    }
    boot.disk(guests.tools(), content, disk, QUIET, disk_mib)
    words = (f"root=LABEL={boot.DISK_LABEL}", *words)
    return run_disks(kernel.vmlinuz, image, (disk,), console, words, memory_mib)


def run_disks(
    vmlinuz: Path,
    initrd: Path,
    disks: Sequence[Path],
    console: Path,
    words: Sequence[str],
    memory_mib: int,
    nics: Sequence[str] = NICS,
    timeout_s: float = TIMEOUT_S,
) -> list[str]:
    """Boot with these disks and NICs until power-off; returns the lines of the console, a file."""
    # This machine has no -icount, so its kernel measures the clock.
    words = ("tsc_early_khz=0", "systemd.show_status=0", *words)
    kernel_arguments = machine.boot_arguments(vmlinuz, initrd, DEFAULT_IOMMU, words)
    qemu = [*guests.tools().qemu_command(), *_machine_arguments(disks, console, memory_mib), *nics]
    try:
        ended = host.run([*qemu, *kernel_arguments], timeout=timeout_s)
    except subprocess.TimeoutExpired:
        pytest.fail("\n".join(["it does not power off:", *_lines(console)[-LAST_LINES:]]))
    if ended.returncode != 0:
        said = [*_lines(console)[-LAST_LINES:], *ended.stderr.splitlines()[-LAST_LINES:]]
        pytest.fail("\n".join([f"QEMU ended with {ended.returncode}:", *said]))
    return _lines(console)


def _lines(console: Path) -> list[str]:
    return [line.rstrip("\r") for line in console.read_text(errors="replace").split("\n")]


def _machine_arguments(disks: Sequence[Path], console: Path, memory_mib: int) -> list[str]:
    """A small PC with an IOMMU and disks."""
    arguments = [
        *("-nodefaults", "-no-user-config", "-display", "none", "-no-reboot", "-m", f"{memory_mib}M", "-smp", "2"),
        *("-machine", "q35,sata=off,smbus=off,accel=tcg,kernel-irqchip=off", "-cpu", AMD64.cpu),
        *("-device", IOMMUS[DEFAULT_IOMMU].device),
        *("-chardev", f"file,id=console,path={console}", "-serial", "chardev:console"),
    ]
    for index, disk in enumerate(disks):
        arguments += ["-blockdev", f"driver=file,node-name=disk{index},filename={disk},cache.no-flush=on"]
        arguments += ["-device", f"nvme,bus=pcie.0,addr={3 + index},serial=disk{index},drive=disk{index}"]
    return arguments
