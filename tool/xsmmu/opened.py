# SPDX-License-Identifier: GPL-2.0-only
"""Files of /dev on given PCI devices, the programs that have a file open, and consoles.

stat() of a file on a server that does not answer (NFS, FUSE) may block forever. Therefore the mount of an open file is
looked up first, and stat() is called only for file systems that keep inodes in memory.
"""

from __future__ import annotations

import os
import re
import stat
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Final

from xsmmu import machine, proc

Number = tuple[str, str]
"""Kind and number of a device: block or char, and MAJOR:MINOR."""

_IN_MEMORY: Final = {"devtmpfs", "tmpfs", "ramfs", "rootfs", "ext2", "ext3", "ext4", "xfs", "btrfs"}
"""File systems that answer stat() without I/O to a server."""


@dataclass(frozen=True)
class Table:
    """Open files of the machine, read once because the search takes a while."""

    @cached_property
    def nodes(self) -> dict[Number, tuple[str, set[str]]]:
        """Name and PCI devices of each device file; without PTP clocks, since an open clock outlives its driver."""
        found = {}
        for kind in ("block", "char"):
            for link in (machine.sysfs() / "dev" / kind).glob("*"):
                folder = link.resolve()
                # A volume has claimed its lower disks exclusively.
                if folder.parent.name != "ptp" and not any(folder.glob("slaves/*")) and (devices := pci_of(folder)):
                    found[kind, link.name] = (folder.name, devices)
        return found

    def reasons(self, taken: set[str]) -> list[str]:
        """Uses of device files on these PCI devices."""
        names = {number: name for number, (name, devices) in self.nodes.items() if devices & taken}
        found = [f"{names[number]} is a console of the kernel" for number in _consoles() if number in names]
        if names:
            found += [f"{names[number]} is open in {program}" for number, program in self.programs if number in names]
        return [*dict.fromkeys([*found, *_screens(taken)])]

    @cached_property
    def programs(self) -> list[tuple[Number, str]]:
        """Open device files, with the programs."""
        kinds: dict[str, str] = {}
        seen: set[tuple[str, str] | None] = set()
        found = []
        for process in machine.root("proc").glob("[0-9]*"):
            # Mount IDs are unique across namespaces.
            if (place := _place(process)) not in seen or place is None:
                seen.add(place)
                kinds |= _kinds(process)
            for number in _of(process, kinds):
                if number in self.nodes:
                    found.append((number, f"{machine.text(process / 'comm')} ({process.name})"))
        return found


def pci_of(folder: Path) -> set[str]:
    """PCI devices below a device's folder in sysfs."""
    disk = folder.parent if (folder / "partition").exists() else folder
    found = {*machine.within(disk)}
    # A multipath NVMe disk belongs to a subsystem with several controllers.
    for above in disk.parents[:2]:
        if above.name.startswith("nvme-subsys"):
            for controller in above.glob("nvme*"):
                found |= {*machine.within(controller)}
    return found


def _place(process: Path) -> tuple[str, str] | None:
    """Mount namespace and root of a process; `mountinfo` lists the mounts below the root."""
    try:
        return str((process / "ns/mnt").readlink()), str((process / "root").readlink())
    except OSError:
        return None


def _kinds(process: Path) -> dict[str, str]:
    """File system type of each mount, by mount ID."""
    found = {}
    for line in proc.lines(f"{process.name}/mountinfo"):
        mount, _, source = line.partition(" - ")
        found[mount.partition(" ")[0]] = source.partition(" ")[0]
    return found


def _of(process: Path, kinds: dict[str, str]) -> Iterator[Number]:
    """Device numbers that a process has open; none if the process has ended."""
    try:
        files = [*(process / "fd").iterdir()]
    except OSError:
        return
    for file in files:
        if _is_asked(process, file, kinds) and (number := number_of(file)):
            yield number


def _is_asked(process: Path, file: Path, kinds: dict[str, str]) -> bool:
    try:
        name = os.fsdecode(file.readlink())
    except OSError:
        return False
    if not name.startswith("/"):
        return False
    about = machine.text(process / "fdinfo" / file.name) or ""
    mount = re.search(r"^mnt_id:\s*(\d+)", about, re.MULTILINE)
    kind = kinds.get(mount[1]) if mount else None
    return kind in _IN_MEMORY if kind else name.startswith("/dev/")


def number_of(file: Path) -> Number | None:
    """Device number of an open file; None for other files."""
    try:
        return number(file.stat())
    except OSError:
        return None


def number(found: os.stat_result) -> Number | None:
    """Device number in a stat result; None for other files."""
    kind = "block" if stat.S_ISBLK(found.st_mode) else "char" if stat.S_ISCHR(found.st_mode) else None
    return (kind, f"{os.major(found.st_rdev)}:{os.minor(found.st_rdev)}") if kind else None


def _consoles() -> Iterator[Number]:
    for line in proc.lines("consoles"):
        if words := line.split():
            yield "char", words[-1]


def _screens(taken: set[str]) -> Iterator[str]:
    """Consoles with a device file on no PCI device: the screen (tty0) and virtio consoles."""
    names = [line.partition(" ")[0] for line in proc.lines("consoles")]
    if "tty0" in names:
        for link in sorted((machine.sysfs() / "class/graphics").glob("fb*")):
            if {*machine.within(link)} & taken:
                yield f"{link.name} shows a console of the kernel (tty0)"
    if any(name.startswith("hvc") for name in names):
        yield from (f"{each} may have a console of the kernel (hvc)" for each in virtio("virtio_console", taken))


def virtio(driver: str, taken: set[str]) -> list[str]:
    """Virtio devices bound to `driver` on these PCI devices; all virtio devices if none is known to be bound."""
    links = [*(machine.sysfs() / "bus/virtio/devices").glob("*")]
    links += [link for each in taken for link in machine.Device(each).folder.glob("virtio[0-9]*")]
    known = [link for link in links if machine.name_at(link / "driver") == driver]
    return sorted({link.name for link in known or links if {*machine.within(link)} & taken})
