# SPDX-License-Identifier: GPL-2.0-only
"""The commands that write, on a made-up sysfs whose kernel binds, unbinds and refuses as the real one does."""

from __future__ import annotations

import errno
from collections.abc import Callable
from pathlib import Path

import pytest
from click.testing import CliRunner
from tests.python.sysfs import IGB, MENU, NVME0, NVME1, make_device

from xsmmu import cli
from xsmmu.errors import UserError
from xsmmu.operator import machine, module, rules
from xsmmu.operator.machine import Device

DEFAULTS = {"max_window_us": "1000", "batch_pages": "1024", "range_commands_max": "4", "copy_bytes": "0"}


class Kernel:
    """What answers to writes: of drivers, of a group's type, and of the module."""

    def __init__(self, sysfs: Path) -> None:
        self.sysfs = sysfs
        self.writes: list[str] = []
        self.before: Callable[[str], None] = lambda _: None
        """Called with each write, as `file value`, before it is done; may raise."""

    def put(self, file: Path, value: str) -> None:
        write = f"{file.relative_to(self.sysfs)} {value}"
        self.writes.append(write)
        self.before(write)
        if not file.exists():
            raise FileNotFoundError(errno.ENOENT, "No such file or directory")
        if file.name in ("bind", "unbind"):
            self.bind(file.parent, value, file.name == "bind")
        elif file.parent.name == "xsmmu":
            self.choose(Device(file.parent.parent.name), file.name, value)
        else:
            number = int(file.parent.name)
            if any(each.driver for each in machine.Group(number).members) and value == "identity":
                raise OSError(errno.EBUSY, "Device or resource busy")
            file.write_text(value)

    def bind(self, driver: Path, address: str, bind: bool) -> None:
        device = Device(address)
        if not device.folder.exists() or (device.driver is not None) == bind:
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

    def choose(self, device: Device, name: str, value: str) -> None:
        now = module.choice(device)
        bound = any(each.driver for each in self.members(device))
        if name == "policy":
            if bound and ((value == "none") != (now.policy == "none") or (value == "copy" and now.policy != "copy")):
                raise OSError(errno.EBUSY, "Device or resource busy")
            self.show(device, "policy", " ".join(f"[{each}]" if each == value else each for each in MENU))
            for tunable, default in DEFAULTS.items():
                self.show(device, tunable, default)
            self.show(device, "copy_bytes", "4096" if value == "copy" else "0")
            self.show(device, "state", "off" if value == "none" else "attached" if bound else "idle")
        elif now.policy == "none":
            raise OSError(errno.ENODATA, "No data available")
        else:
            self.show(device, name, "kernel [direct]" if value == "direct" else value)

    @staticmethod
    def members(device: Device) -> list[Device]:
        return device.group.members if device.group else [device]

    def show(self, device: Device, name: str, value: str) -> None:
        for each in self.members(device):
            (each.folder / "xsmmu" / name).write_text(value + "\n")


@pytest.fixture
def kernel(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Kernel:
    """A NIC on the kernel's own path; two controllers in one group under xsmmu; nothing mounted, no route."""
    for name, place in {
        "SYSFS": "sys",
        "PROC": "proc",
        "CONF": "etc/xsmmu.conf",
        "MODPROBE_CONF": "etc/modprobe.conf",
    }.items():
        monkeypatch.setenv(f"XSMMU_{name}", str(tmp_path / place))
    monkeypatch.delenv("SSH_CONNECTION", raising=False)
    (tmp_path / "etc").mkdir()
    sysfs = tmp_path / "sys"
    make_device(sysfs, IGB, 11, "none", "igb", interface="eth1", state="off")
    make_device(sysfs, NVME0, 13, "xsmmu", "nvme", disk="nvme0n1")
    make_device(sysfs, NVME1, 13, "xsmmu", "nvme")
    made = Kernel(sysfs)
    monkeypatch.setattr(machine, "put", made.put)
    return made


def run(*arguments: str) -> str:
    """What a command prints; its error is raised."""
    result = CliRunner().invoke(cli.app, arguments, catch_exceptions=False)
    assert result.exit_code == 0, result.output
    return result.output


def fails(*arguments: str) -> UserError:
    with pytest.raises(UserError) as error:
        run(*arguments)
    return error.value


def state_of_all(kernel: Kernel) -> dict[str, object]:
    """All that a command may change."""
    devices = {each.address: (each.driver, module.choice(each)) for each in machine.devices() if each.module_folder}
    types = {path.parent.name: path.read_text() for path in kernel.sysfs.glob("kernel/iommu_groups/*/type")}
    files = {path.name: path.read_text() for path in (kernel.sysfs.parent / "etc").iterdir()}
    return {"devices": devices, "types": types, "files": files}


def test_set_rebinds_and_keeps(kernel: Kernel) -> None:
    said = run("set", "eth1", "fused", "max_window_us=500", "--tables", "direct", "--rebind", "--persist")
    assert f"{IGB} (eth1): fused, level none, state attached" in said
    folder = f"bus/pci/devices/{IGB}/xsmmu"
    assert kernel.writes == [
        f"bus/pci/drivers/igb/unbind {IGB}",
        f"{folder}/policy fused",
        f"{folder}/tables direct",
        f"{folder}/max_window_us 500",
        f"bus/pci/drivers/igb/bind {IGB}",
    ]
    assert Device(IGB).driver == "igb"
    assert rules.conf().read_text() == f"{IGB}=fused,max_window_us:500,tables:direct\n"
    lines = (kernel.sysfs.parent / "etc/modprobe.conf").read_text().splitlines()
    assert lines[0].startswith("# made by xsmmu apply from")
    assert lines[1:] == [f'options xsmmu rules="{IGB}=fused,max_window_us:500,tables:direct"', "softdep igb pre: xsmmu"]


def test_unset_rebinds_the_whole_group_and_forgets(kernel: Kernel) -> None:
    run("set", "nvme0n1", "fused", "--persist")
    assert rules.conf().exists()
    kernel.writes.clear()
    run("unset", "nvme0n1", "--rebind", "--persist")
    assert [write.split("/")[-1] for write in kernel.writes] == [
        f"unbind {NVME1}",
        f"unbind {NVME0}",
        "policy none",
        f"bind {NVME0}",
        f"bind {NVME1}",
    ]
    assert rules.conf().read_text() == ""
    assert not (kernel.sysfs.parent / "etc/modprobe.conf").exists()
