# SPDX-License-Identifier: GPL-2.0-only
"""The machine in sysfs: PCI devices, their names, IOMMU groups, and the kernel's own path of each group.

All facts about devices come from this file; module.py reads the module's files, and kernel.py the kernel's properties.
XSMMU_SYSFS and so on replace each folder of ROOTS, for tests.
"""

from __future__ import annotations

import os
import re
import shutil
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Final

from xsmmu.errors import UserError

_ADDRESS = re.compile(r"(?:([0-9a-f]{4,8}):)?([0-9a-f]{2}):([0-9a-f]{2})\.([0-7])", re.IGNORECASE)

MODES: Final = {
    "DMA": ("kernel-strict", "strict"),
    "DMA-FQ": ("kernel-lazy", "lazy"),
    "identity": ("passthrough", "none"),
}
"""Name and level of the kernel's own path, by group type."""

_BUS_BRIDGES = (0x0604, 0x0607, 0x0609)
"""Classes of bridges to another bus; the module tests the header type for the same purpose."""


ROOTS: Final = {
    "sysfs": "/sys",
    "proc": "/proc",
    "boot": "/boot",
    "modules": "/lib/modules",
    "state": "/var/lib/xsmmu",
}
"""Folders: the kernel's two trees, kernel configurations, modules, and the tool's own state.

XSMMU_<name> replaces a folder.
"""


def root(name: str) -> Path:
    """A folder of ROOTS."""
    return Path(os.environ.get(f"XSMMU_{name.upper()}") or ROOTS[name])


def sysfs() -> Path:
    """The sysfs tree."""
    return root("sysfs")


SBIN = "/usr/sbin:/sbin"
"""Folders of administration programs, which `su` without `-` leaves out of PATH."""


def path() -> str:
    """PATH with the administration folders and without relative folders, which any user may control."""
    folders = f"{os.environ.get('PATH', '')}:{SBIN}".split(":")
    return ":".join(folder for folder in folders if folder.startswith("/"))


def program(name: str) -> str | None:
    """Path of an administration program."""
    return shutil.which(name, path=path())


def put(file: Path, value: str) -> None:
    """Write a word to a file of sysfs; OSError is the kernel's answer."""
    # Without O_CREAT: for a missing file, sysfs would answer EACCES.
    handle = os.open(file, os.O_WRONLY | os.O_TRUNC)
    try:
        os.write(handle, value.encode())
    finally:
        os.close(handle)


def is_address(name: str) -> bool:
    """Whether a name in sysfs is a PCI address."""
    return _ADDRESS.fullmatch(name) is not None


def within(path: Path) -> list[str]:
    """Addresses of the PCI devices in a sysfs path, outermost first."""
    return [part for part in path.resolve().parts if is_address(part)]


@dataclass(frozen=True)
class Group:
    """An IOMMU group: devices that share a domain and a policy."""

    number: int

    @property
    def folder(self) -> Path:
        """Folder of the group in sysfs."""
        return sysfs() / "kernel/iommu_groups" / str(self.number)

    @property
    def is_of_iommu(self) -> bool:
        """Whether the group has an IOMMU; VFIO also makes groups without an IOMMU (vfio_noiommu_group_alloc())."""
        return text(self.folder / "name") != "vfio-noiommu"

    @property
    def type(self) -> str:
        """DMA, DMA-FQ, identity, or another type; `unknown` if not readable."""
        return text(self.folder / "type") or "unknown"

    @property
    def kernel_path(self) -> tuple[str, str]:
        """Name and level of the kernel's own path for the group's type."""
        return MODES.get(self.type, ("unknown", "none"))

    @property
    def entries(self) -> list[str]:
        """Names of the group's devices on all buses, in order; empty if the group has gone."""
        try:
            return sorted(path.name for path in (self.folder / "devices").iterdir())
        except FileNotFoundError:
            return []

    @property
    def members(self) -> list[Device]:
        """PCI devices of the group, in order."""
        return [Device(name) for name in self.entries if (sysfs() / "bus/pci/devices" / name).exists()]


@dataclass(frozen=True)
class Device:
    """A PCI device, by its full address."""

    address: str

    @property
    def folder(self) -> Path:
        """Folder of the device in sysfs."""
        return sysfs() / "bus/pci/devices" / self.address

    @property
    def module_folder(self) -> Path | None:
        """Folder of the module's files; None if the module offers no policy for the device."""
        folder = self.folder / "xsmmu"
        return folder if folder.is_dir() else None

    @property
    def driver(self) -> str | None:
        """Driver bound to the device."""
        return name_at(self.folder / "driver")

    @property
    def is_bridge(self) -> bool:
        """Whether the device is a bridge, without DMA of its own."""
        return self.number("class") >> 16 == 0x06

    @property
    def may_stay_bound(self) -> bool:
        """Whether the driver may stay bound during attach and detach: drivers of bridges between buses."""
        return self.number("class") >> 8 in _BUS_BRIDGES

    @property
    def is_storage(self) -> bool:
        """Whether the device is a storage controller."""
        return self.number("class") >> 16 == 0x01

    @property
    def group(self) -> Group | None:
        """IOMMU group of the device."""
        name = name_at(self.folder / "iommu_group")
        found = Group(int(name)) if name and name.isdecimal() else None
        return found if found and found.is_of_iommu else None

    def number(self, name: str) -> int:
        """Hexadecimal number in a file: class, vendor, device; 0 if missing."""
        word = text(self.folder / name) or ""
        return int(word, 16) if re.fullmatch(r"(?:0x)?[0-9a-f]+", word, re.IGNORECASE) else 0

    @property
    def links(self) -> list[Path]:
        """Folders of the device's interfaces and whole disks, in order."""
        return sorted(link for link in _named() if _owner(link) == self.address)

    @cached_property
    def names(self) -> tuple[str, ...]:
        """Names of the device's interfaces and whole disks."""
        return tuple(sorted({shown(link.name) for link in self.links}))

    @property
    def label(self) -> str:
        """Address and names of the device."""
        return f"{self.address} ({', '.join(self.names)})" if self.names else self.address


def text(file: Path) -> str | None:
    """Content of a file of the kernel; None if not readable."""
    try:
        return file.read_text(errors="replace").strip()
    except OSError:
        return None


def name_at(link: Path) -> str | None:
    """Name of a symbolic link's target; None without a link. A single call, because a link in sysfs may disappear."""
    try:
        return link.readlink().name
    except OSError:
        return None


def shown(word: str) -> str:
    """A word with control characters escaped for terminals; names of interfaces are arbitrary."""
    return "".join(each if each.isprintable() else each.encode("unicode_escape").decode() for each in word)


def devices() -> list[Device]:
    """All PCI devices, in order of address."""
    folder = sysfs() / "bus/pci/devices"
    return [Device(path.name) for path in sorted(folder.iterdir())] if folder.is_dir() else []


def groups() -> list[Group]:
    """All groups with an IOMMU, in order."""
    folder = sysfs() / "kernel/iommu_groups"
    names = [path.name for path in folder.iterdir()] if folder.is_dir() else []
    numbers = sorted(int(name) for name in names if name.isdecimal())
    return [found for found in map(Group, numbers) if found.is_of_iommu]


def words() -> list[str]:
    """Names of devices behind an IOMMU: interfaces and whole disks, then addresses."""
    found = {each.address for each in devices() if each.group and not each.is_bridge}
    return [*sorted({link.name for link in _named() if _owner(link) in found}), *sorted(found)]


def _named() -> list[Path]:
    """Folders of all interfaces and whole disks."""
    links = [*(sysfs() / "class/net").glob("*"), *(sysfs() / "class/block").glob("*")]
    return [link for link in links if not (link / "partition").exists()]


def find(name: str) -> Device:
    """Device by address with or without PCI domain, interface, disk, or controller (nvme0)."""
    if name.startswith("/dev/"):
        # A symbolic link, such as /dev/disk/by-label, leads to the kernel's name.
        return find(Path(os.path.realpath(name)).name)
    match = _ADDRESS.fullmatch(name)
    if match:
        address = f"{match[1] or '0000':0>4}:{match[2]}:{match[3]}.{match[4]}".lower()
        if (sysfs() / "bus/pci/devices" / address).exists():
            return Device(address)
        raise _unknown(name)
    for link in _links(name):
        owner = _owner(link)
        if owner:
            return Device(owner)
        below = sorted(shown(lower) for lower in _below(link))
        if below:
            raise UserError(
                f"{name} is a virtual device without a PCI device of its own: name a lower device: {', '.join(below)}",
                code="unknown-device",
            )
    raise _unknown(name)


def _below(link: Path) -> list[str]:
    """Lower interfaces or disks of a virtual interface or disk."""
    lower = [path.name.removeprefix("lower_") for path in link.glob("lower_*")]
    return lower or [path.name for path in link.glob("slaves/*")]


def _links(name: str) -> Iterator[Path]:
    """Possible folders of a name in sysfs."""
    # A word that cannot be a file name is no name in sysfs.
    if "/" in name or name in ("", ".", "..") or len(os.fsencode(name)) > 255:
        return
    for kind in ("net", "block", "nvme", "misc", "infiniband"):
        link = sysfs() / "class" / kind / name
        if link.exists():
            yield link


def _owner(link: Path) -> str | None:
    """Nearest PCI device above an object of a sysfs class."""
    for part in reversed(within(link)):
        if (sysfs() / "bus/pci/devices" / part).exists():
            return part
    # A multipath NVMe disk is not below a controller, but the disk's name begins with its first controller's name.
    controller = re.match(r"nvme\d+(?=n\d+)", link.name)
    return _owner(sysfs() / "class/nvme" / controller[0]) if controller else None


_MATCH: Final = re.compile(r"(?:class|driver):.*|[0-9a-f]{4}:[0-9a-f]{4}", re.IGNORECASE)
"""Matches of rules besides addresses."""


def _unknown(name: str) -> UserError:
    if _MATCH.fullmatch(name):
        return UserError(
            f"{name} is a match of a rule and no device: write {name}=POLICY in xsmmu.conf, then run xsmmu apply",
            code="unknown-device",
        )
    if not any(device.group for device in devices()):
        return UserError(
            f"no device '{name}', and no device of this machine is behind an IOMMU: see xsmmu doctor",
            code="unknown-device",
        )
    return UserError(f"no device '{name}': xsmmu status lists the devices", code="unknown-device")
