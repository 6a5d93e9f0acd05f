# SPDX-License-Identifier: GPL-2.0-only
"""The machine as sysfs shows it: PCI devices, what people call them, their IOMMU groups, and whose path they use.

All the tool knows of a device comes from here; what the module shows of one is in module.py, and what the kernel says
of itself in kernel.py. Another tree can be named for each of ROOTS, by XSMMU_SYSFS and so on, which is what tests do.
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
"""What a group's type says of the kernel's own path: its name, and the level that it gives."""

_BUS_BRIDGES = (0x0604, 0x0607, 0x0609)
"""Classes of bridges to another bus; the module means the same by the type of their header."""


ROOTS: Final = {
    "sysfs": "/sys",
    "proc": "/proc",
    "boot": "/boot",
    "modules": "/lib/modules",
    "state": "/var/lib/xsmmu",
}
"""Where the tool looks, and what XSMMU_<name> may replace: the kernel's two trees, the configuration of kernels, their
modules, and what the tool itself keeps."""


def root(name: str) -> Path:
    """One of ROOTS."""
    return Path(os.environ.get(f"XSMMU_{name.upper()}") or ROOTS[name])


def sysfs() -> Path:
    """The sysfs tree in use."""
    return root("sysfs")


SBIN = "/usr/sbin:/sbin"
"""Where programs of the administrator's are; `su` without `-` leaves that out of PATH."""


def path() -> str:
    """PATH with them, and without what stands for the folder that the tool was started in, which may be anybody's."""
    folders = f"{os.environ.get('PATH', '')}:{SBIN}".split(":")
    return ":".join(folder for folder in folders if folder.startswith("/"))


def program(name: str) -> str | None:
    """The file of such a program."""
    return shutil.which(name, path=path())


def put(file: Path, value: str) -> None:
    """Write a word to a file of sysfs; OSError is the kernel's answer."""
    # It must be there: to make a file is refused by sysfs with a word about permission.
    handle = os.open(file, os.O_WRONLY | os.O_TRUNC)
    try:
        os.write(handle, value.encode())
    finally:
        os.close(handle)


def is_address(name: str) -> bool:
    """Whether a name of sysfs is a PCI device's."""
    return _ADDRESS.fullmatch(name) is not None


def within(path: Path) -> list[str]:
    """The addresses of the PCI devices that a path of sysfs leads through, outermost first."""
    return [part for part in path.resolve().parts if is_address(part)]


@dataclass(frozen=True)
class Group:
    """An IOMMU group: what is translated alike, and changes hands together."""

    number: int

    @property
    def folder(self) -> Path:
        """Its folder in sysfs."""
        return sysfs() / "kernel/iommu_groups" / str(self.number)

    @property
    def is_of_iommu(self) -> bool:
        """Whether there is an IOMMU: VFIO makes groups without one (vfio_noiommu_group_alloc())."""
        return text(self.folder / "name") != "vfio-noiommu"

    @property
    def type(self) -> str:
        """DMA, DMA-FQ, identity, or what else the kernel says; `unknown` where it says nothing."""
        return text(self.folder / "type") or "unknown"

    @property
    def kernel_path(self) -> tuple[str, str]:
        """The kernel's own path for this type, and its level."""
        return MODES.get(self.type, ("unknown", "none"))

    @property
    def entries(self) -> list[str]:
        """What sysfs calls its devices, of whatever bus, in order; nothing of a group that has gone."""
        try:
            return sorted(path.name for path in (self.folder / "devices").iterdir())
        except FileNotFoundError:
            return []

    @property
    def members(self) -> list[Device]:
        """All of its PCI devices, in order."""
        return [Device(name) for name in self.entries if (sysfs() / "bus/pci/devices" / name).exists()]


@dataclass(frozen=True)
class Device:
    """A PCI device, by its full address."""

    address: str

    @property
    def folder(self) -> Path:
        """Its folder in sysfs."""
        return sysfs() / "bus/pci/devices" / self.address

    @property
    def module_folder(self) -> Path | None:
        """The folder of the module's files, if it offers policies for this device."""
        folder = self.folder / "xsmmu"
        return folder if folder.is_dir() else None

    @property
    def driver(self) -> str | None:
        """The driver that is bound."""
        return name_at(self.folder / "driver")

    @property
    def is_bridge(self) -> bool:
        """A bridge has no DMA of its own."""
        return self.number("class") >> 16 == 0x06

    @property
    def may_stay_bound(self) -> bool:
        """Whether its driver is no hindrance when its group changes hands: it is a bridge between buses."""
        return self.number("class") >> 8 in _BUS_BRIDGES

    @property
    def is_storage(self) -> bool:
        """A controller of disks."""
        return self.number("class") >> 16 == 0x01

    @property
    def group(self) -> Group | None:
        """Its IOMMU group, if it is behind an IOMMU."""
        name = name_at(self.folder / "iommu_group")
        found = Group(int(name)) if name and name.isdecimal() else None
        return found if found and found.is_of_iommu else None

    def number(self, name: str) -> int:
        """What a file of a hexadecimal number says: class, vendor, device; 0 where there is none."""
        word = text(self.folder / name) or ""
        return int(word, 16) if re.fullmatch(r"(?:0x)?[0-9a-f]+", word, re.IGNORECASE) else 0

    @property
    def links(self) -> list[Path]:
        """Where sysfs has its interfaces and whole disks, in order."""
        return sorted(link for link in _named() if _owner(link) == self.address)

    @cached_property
    def names(self) -> tuple[str, ...]:
        """What people call it: interfaces and whole disks."""
        return tuple(sorted({shown(link.name) for link in self.links}))

    @property
    def label(self) -> str:
        """The address, and the names behind it."""
        return f"{self.address} ({', '.join(self.names)})" if self.names else self.address


def text(file: Path) -> str | None:
    """What is in a file of the kernel's; None if it cannot be read."""
    try:
        return file.read_text(errors="replace").strip()
    except OSError:
        return None


def name_at(link: Path) -> str | None:
    """What a link of sysfs leads to; None without one. It may go at any time, so it is read at once."""
    try:
        return link.readlink().name
    except OSError:
        return None


def shown(word: str) -> str:
    """As a terminal may have it: an interface may be called anything, and controls of a terminal are characters."""
    return "".join(each if each.isprintable() else each.encode("unicode_escape").decode() for each in word)


def devices() -> list[Device]:
    """All PCI devices, in order of their addresses."""
    folder = sysfs() / "bus/pci/devices"
    return [Device(path.name) for path in sorted(folder.iterdir())] if folder.is_dir() else []


def groups() -> list[Group]:
    """All groups behind an IOMMU, in order."""
    folder = sysfs() / "kernel/iommu_groups"
    names = [path.name for path in folder.iterdir()] if folder.is_dir() else []
    numbers = sorted(int(name) for name in names if name.isdecimal())
    return [found for found in map(Group, numbers) if found.is_of_iommu]


def words() -> list[str]:
    """What devices behind an IOMMU are called: interfaces and whole disks, then addresses."""
    found = {each.address for each in devices() if each.group and not each.is_bridge}
    return [*sorted({link.name for link in _named() if _owner(link) in found}), *sorted(found)]


def _named() -> list[Path]:
    """Where sysfs has interfaces and whole disks."""
    links = [*(sysfs() / "class/net").glob("*"), *(sysfs() / "class/block").glob("*")]
    return [link for link in links if not (link / "partition").exists()]


def find(name: str) -> Device:
    """The device that is called so: an address with or without domain, an interface, a disk, a controller (nvme0)."""
    if name.startswith("/dev/"):
        # A link there, as by a disk's label or a volume's name, leads to the kernel's name.
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
                f"{name} is made by software, and on no PCI device itself: name what it stands on: {', '.join(below)}",
                code="unknown-device",
            )
    raise _unknown(name)


def _below(link: Path) -> list[str]:
    """The interfaces or disks that one of software stands on."""
    lower = [path.name.removeprefix("lower_") for path in link.glob("lower_*")]
    return lower or [path.name for path in link.glob("slaves/*")]


def _links(name: str) -> Iterator[Path]:
    """Where sysfs may have something of this name."""
    # What can be no file's name is no name of sysfs.
    if "/" in name or name in ("", ".", "..") or len(os.fsencode(name)) > 255:
        return
    for kind in ("net", "block", "nvme", "misc", "infiniband"):
        link = sysfs() / "class" / kind / name
        if link.exists():
            yield link


def _owner(link: Path) -> str | None:
    """The PCI device nearest above what a class of sysfs shows."""
    for part in reversed(within(link)):
        if (sysfs() / "bus/pci/devices" / part).exists():
            return part
    # A disk of several paths stands below no controller; its name begins with that of its first one.
    controller = re.match(r"nvme\d+(?=n\d+)", link.name)
    return _owner(sysfs() / "class/nvme" / controller[0]) if controller else None


_MATCH: Final = re.compile(r"(?:class|driver):.*|[0-9a-f]{4}:[0-9a-f]{4}", re.IGNORECASE)
"""What a rule may match, beside an address."""


def _unknown(name: str) -> UserError:
    if _MATCH.fullmatch(name):
        return UserError(
            f"{name} is what a rule may match, and no device: write {name}=POLICY in xsmmu.conf, and run xsmmu apply",
            code="unknown-device",
        )
    if not any(device.group for device in devices()):
        return UserError(
            f"no device '{name}', and no device of this machine is behind an IOMMU: xsmmu doctor says why",
            code="unknown-device",
        )
    return UserError(f"no device '{name}': xsmmu status lists what there is", code="unknown-device")
