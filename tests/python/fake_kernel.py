# SPDX-License-Identifier: GPL-2.0-only
"""A kernel for a made-up sysfs, which binds, unbinds and refuses like a real one; and commands run on it."""

from __future__ import annotations

import errno
import json
import os
import shutil
import signal
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from click.testing import CliRunner
from tests.python.sysfs import IGB, MENU, NVME0, NVME1, defaults_of, make_device

from xsmmu import __version__, cli, machine, module
from xsmmu.errors import UserError
from xsmmu.machine import Device

COSTS = {
    "DMA": (800.0, 1700.0, 0.1),
    "DMA-FQ": (800.0, 1200.0, 0.1),
    "identity": (90.0, 70.0, 0.1),
    "copy": (700.0, 1650.0, 0.1),
    "strict": (600.0, 1600.0, 0.1),
    "lazy": (700.0, 900.0, 0.1),
    "fands": (480.0, 260.0, 0.1),
    "xsmmu": (560.0, 550.0, 40.0),
    "fused": (440.5, 140.2, 30.0),
}
"""Made-up nanoseconds of a map and of an unmap, and the share at a poll's end."""
MODPROBE = f"""
mkdir -p $XSMMU_SYSFS/module/$1 $XSMMU_SYSFS/bus/pci/drivers/$1
echo ${{VERSION:-{__version__}}} >$XSMMU_SYSFS/module/$1/version
touch $XSMMU_SYSFS/bus/pci/drivers/$1/bind $XSMMU_SYSFS/bus/pci/drivers/$1/unbind
"""
RMMOD = """
for link in $XSMMU_SYSFS/bus/pci/devices/*/driver; do
    case $(readlink $link) in */$1) rm -r $link ${link%/*}/$1 ;; esac
done
rm -r $XSMMU_SYSFS/module/$1 $XSMMU_SYSFS/bus/pci/drivers/$1
"""


def ignore(_write: str) -> None:
    """Do nothing beside a write."""


class Kernel:
    """Answers to writes: by drivers, for a group's type, and by the module."""

    def __init__(self, sysfs: Path) -> None:
        self.sysfs = sysfs
        self.writes: list[str] = []
        self.before: Callable[[str], None] = ignore
        self.after: Callable[[str], None] = ignore
        """Called before or after each write, as `file value`; may raise."""

    def put(self, file: Path, value: str) -> None:
        write = f"{file.relative_to(self.sysfs)} {value}"
        self.writes.append(write)
        self.before(write)
        self.answer(file, value)
        self.after(write)

    def answer(self, file: Path, value: str) -> None:
        if not file.exists():
            raise FileNotFoundError(errno.ENOENT, "No such file or directory")
        if file.name in ("bind", "unbind"):
            self.bind(file.parent, value, file.name == "bind")
        elif file.name == "driver_override":
            file.write_text(value if value.strip() else "(null)\n")
        elif file.parent.name == "xsmmu_bench":
            self.work(Device(file.parent.parent.name), file, value)
        elif file.parent.name == "xsmmu":
            self.choose(Device(file.parent.parent.name), file.name, value)
        else:
            group = machine.Group(int(file.parent.name))
            if any(self.is_used(each) for each in group.members) and (group.type, value) != ("DMA", "DMA-FQ"):
                raise PermissionError(errno.EPERM, "Operation not permitted")
            file.write_text(value)

    def bind(self, driver: Path, address: str, bind: bool) -> None:
        device = Device(address)
        kept = (machine.text(device.folder / "driver_override") or "(null)").strip()
        if not device.folder.exists() or (device.driver is not None) == bind or kept not in ("(null)", driver.name):
            raise OSError(errno.ENODEV, "No such device")
        link = device.folder / "driver"
        if bind:
            link.symlink_to(driver)
        else:
            link.unlink()
        policy = module.choice(device).policy
        bound = any(each.driver for each in self.members(device))
        failed = device.group and device.group.type == "identity"
        state = "off" if policy == "none" else "idle" if not bound else "failed" if failed else "attached"
        self.show(device, "state", state)
        begins = bind and [each.driver for each in self.members(device) if each.driver] == [driver.name]
        copies = begins and policy != "none" and module.choice(device).tunables["copy_bytes"]
        if begins or not bound:
            self.show(device, "can_copy", "1" if copies or policy == "none" or not bound else "0")
        if driver.name == "xsmmu_bench":
            self.give(device, bind)

    @staticmethod
    def give(device: Device, bind: bool) -> None:
        """Add or remove the workload's file of a device."""
        folder = device.folder / "xsmmu_bench"
        if bind:
            folder.mkdir()
            (folder / "micro").touch()
        else:
            shutil.rmtree(folder)

    def work(self, device: Device, file: Path, value: str) -> None:
        """Measure; each policy has its own cost."""
        policy = module.choice(device).policy
        kind = device.group.type if device.group else ""
        times = COSTS[policy if policy != "none" else kind]
        translated = policy != "none" or kind != "identity"
        found = {f"{name}_ns_per_page": time for name, time in zip(("map", "unmap", "flush"), times, strict=True)}
        file.write_text(json.dumps({**found, "disturbed_rounds": 1, "translated": translated, "asked": value}) + "\n")
        if policy != "none":
            self.show(device, "state", "active")
            for name, count in {"unmapped_pages": 1000, "inv_page": 500}.items():
                count += int((device.folder / "xsmmu/stats" / name).read_text())
                self.show(device, f"stats/{name}", str(count))

    def choose(self, device: Device, name: str, value: str) -> None:
        now = module.choice(device)
        bound = any(self.is_used(each) for each in self.members(device))
        can_copy = module.can_copy(device)
        if name == "policy":
            if bound and ((value == "none") != (now.policy == "none") or (value == "copy" and not can_copy)):
                raise OSError(errno.EBUSY, "Device or resource busy")
            self.show(device, "policy", " ".join(f"[{each}]" if each == value else each for each in MENU))
            for tunable, default in defaults_of(value).items():
                self.show(device, tunable, default)
            self.show(device, "level", "none" if value == "none" else "held")
            self.show(device, "state", "off" if value == "none" else "attached" if bound else "idle")
        elif now.policy == "none" or (now.auto and name != "tables"):
            raise OSError(errno.ENODATA, "No data available")
        elif name == "copy_bytes" and value != "0" and not can_copy:
            raise OSError(errno.EBUSY, "Device or resource busy")
        else:
            self.show(device, name, "kernel [direct]" if value == "direct" else value)

    @staticmethod
    def is_used(device: Device) -> bool:
        """Whether the device's driver does DMA."""
        return device.driver is not None and device.number("class") >> 8 != 0x0604

    @staticmethod
    def members(device: Device) -> list[Device]:
        return device.group.members if device.group else [device]

    def show(self, device: Device, name: str, value: str) -> None:
        for each in self.members(device):
            (each.folder / "xsmmu" / name).write_text(value + "\n")


@contextmanager
def booted(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Kernel]:
    """A NIC on the kernel's own path; two controllers in a group under xsmmu; nothing mounted, no route."""
    for name, place in {
        "SYSFS": "sys",
        "PROC": "proc",
        "CONF": "etc/xsmmu.conf",
        "STATE": "state",
        "MODPROBE_CONF": "etc/modprobe.conf",
    }.items():
        monkeypatch.setenv(f"XSMMU_{name}", str(tmp_path / place))
    monkeypatch.delenv("SSH_CONNECTION", raising=False)
    monkeypatch.setenv("PATH", f"{tmp_path}/bin:{os.environ['PATH']}")
    monkeypatch.setattr(machine, "SBIN", str(tmp_path / "sbin"))
    program(tmp_path / "bin/modprobe", MODPROBE)
    program(tmp_path / "bin/rmmod", RMMOD)
    (tmp_path / "etc").mkdir()
    sysfs = tmp_path / "sys"
    make_device(sysfs, IGB, 11, "none", "igb", interface="eth1", state="off")
    make_device(sysfs, NVME0, 13, "xsmmu", "nvme", disk="nvme0n1", state="attached")
    make_device(sysfs, NVME1, 13, "xsmmu", "nvme", state="attached")
    made = Kernel(sysfs)
    monkeypatch.setattr(machine, "put", made.put)
    # As in main(); a shell's background job ignores Ctrl-C.
    answers = {number: lambda *_: sys.exit(130) for number in (signal.SIGTERM, signal.SIGHUP)}
    answers[signal.SIGINT] = signal.default_int_handler
    before = {number: signal.signal(number, answer) for number, answer in answers.items()}
    yield made
    for number, answer in before.items():
        signal.signal(number, answer)


def run(*arguments: str) -> str:
    """The output of a command; raises its error."""
    result = CliRunner().invoke(cli.app, arguments, catch_exceptions=False)
    assert result.exit_code == 0, result.output
    return result.output


def fails(*arguments: str) -> UserError:
    with pytest.raises(UserError) as error:
        run(*arguments)
    return error.value


def everything(kernel: Kernel) -> dict[str, object]:
    """All state that a command may change."""
    devices = {each.address: (each.driver, module.choice(each)) for each in machine.devices() if each.module_folder}
    types = {path.parent.name: path.read_text().strip() for path in kernel.sysfs.glob("kernel/iommu_groups/*/type")}
    files = {path.name: path.read_text() for path in (kernel.sysfs.parent / "etc").iterdir()}
    kept = {path.parent.name: path.read_text() for path in kernel.sysfs.glob("bus/pci/devices/*/driver_override")}
    loaded = sorted(path.name for path in (kernel.sysfs / "module").iterdir())
    return {"devices": devices, "types": types, "files": files, "kept": kept, "loaded": loaded}


def put_back(kernel: Kernel, *arguments: str) -> UserError:
    """The error of a command that leaves everything as before."""
    before = everything(kernel)
    error = fails(*arguments)
    assert everything(kernel) == before
    return error


def end(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], *arguments: str) -> tuple[int, str, str]:
    """A whole command: status, standard output and standard error."""
    monkeypatch.setattr(sys, "argv", ["xsmmu", *arguments])
    before = signal.getsignal(signal.SIGTERM)
    try:
        with pytest.raises(SystemExit) as ended:
            cli.main()
    finally:
        signal.signal(signal.SIGTERM, before)
    said = capsys.readouterr()
    return int(ended.value.code or 0), said.out, said.err


Refuses = Callable[[list[str], tuple[int, str, str]], None]
"""Checks that a whole command line is refused with this status, code and text."""


def program(file: Path, script: str) -> None:
    """A test's program in place of the machine's."""
    file.parent.mkdir(exist_ok=True)
    file.write_text(f"#!/bin/sh\n{script}\n")
    file.chmod(0o755)
