# SPDX-License-Identifier: GPL-2.0-only
"""Which disks on some PCI devices are in use, and what for.

The kernel itself is asked: it refuses an exclusive open of a disk while anything in any namespace has claimed the disk
or one of its partitions: a file system, swap, RAID, a volume, a pool. The open is for reading, and ends at once.
Programs, loop devices and targets of NVMe open a disk without a claim; /proc and sysfs name those.
"""

from __future__ import annotations

import errno
import os
import stat
from collections.abc import Iterator
from pathlib import Path
from typing import Final

from xsmmu.operator import machine, proc

_EMPTY: Final = (errno.ENOMEDIUM, errno.ENXIO, errno.ENODEV)
"""What a drive without a disk answers, and one that is gone."""
_NODES: Final = ("block", "nvme", "nvme-generic", "scsi_generic")
"""Classes of what a program reads and writes disks by."""


def reasons(taken: set[str]) -> list[str]:
    """What the disks on these PCI devices are used for; a line each."""
    disks = [disk for disk in _all() if pci_of(disk) & taken]
    named = [(name, use) for name, use in (*_mounted(), *_swaps()) if {*_bottom(name)} & {*disks}]
    found = [f"{name} is {use}" for name, use in named]
    covered = {disk for name, _ in named for disk in _bottom(name)}
    found += [said for disk in disks if disk not in covered and (said := _claim(disk))]
    return [*found, *_opened(taken), *_exported({*disks})]


def _all() -> list[str]:
    """Whole disks that are not made of others. A hidden one is a path to another."""
    links = sorted((machine.sysfs() / "class/block").glob("*"))
    return [
        link.name
        for link in links
        if not (link / "partition").exists() and not any(link.glob("slaves/*")) and machine.text(link / "hidden") != "1"
    ]


def pci_of(disk: str) -> set[str]:
    """The PCI devices that a whole disk is on."""
    folder = (machine.sysfs() / "class/block" / disk).resolve()
    found = {*machine.within(folder)}
    # A disk of NVMe multipath is its subsystem's, which has the controllers.
    if folder.parent.name.startswith("nvme-subsys"):
        for controller in folder.parent.glob("nvme*"):
            found |= {*machine.within(controller)}
    return found


def _bottom(name: str) -> list[str]:
    """The whole disks that a disk, a partition, or a device made of such is on."""
    link = machine.sysfs() / "class/block" / name
    if not link.exists():
        return []
    folder = link.resolve()
    whole = folder.parent if (folder / "partition").exists() else folder
    below = [lower.name for lower in whole.glob("slaves/*")]
    backing = machine.text(whole / "loop/backing_file")
    if backing and backing.startswith("/dev/"):
        below.append(Path(backing).resolve().name)
    return [disk for each in below for disk in _bottom(each)] or [whole.name]


# ---- what /proc names ----


def _mounted() -> Iterator[tuple[str, str]]:
    for line in proc.lines("self/mountinfo"):
        mount, _, source = line.partition(" - ")
        words, names = mount.split(" "), source.split(" ")
        if len(words) > 4 and len(names) > 1:
            for name in _block_names(words[2], names[0], names[1]):
                yield name, f"mounted on {proc.unescaped(words[4])}"


def _swaps() -> Iterator[tuple[str, str]]:
    for line in proc.lines("swaps")[1:]:
        if line.startswith("/dev/"):
            yield Path(proc.unescaped(proc.words(line)[0])).resolve().name, "used as swap"


def _block_names(number: str, kind: str, source: str) -> list[str]:
    link = machine.sysfs() / "dev/block" / number
    if link.exists():
        return [link.resolve().name]
    name = Path(proc.unescaped(source)).resolve().name
    if not source.startswith("/dev/"):
        return []
    if kind == "btrfs":
        for pool in machine.sysfs().glob("fs/btrfs/*/devices"):
            if (pool / name).exists():
                return [disk.name for disk in pool.iterdir()]
    return [name]


# ---- what the kernel answers ----


def _claim(disk: str) -> str | None:
    """What is to be said of a disk that something has claimed, or of which that cannot be asked."""
    node = _node(disk)
    try:
        claim(node, machine.text(machine.sysfs() / "class/block" / disk / "dev") or "")
    except OSError as error:
        if error.errno in _EMPTY:
            return None
        if error.errno == errno.EBUSY:
            return f"{disk} is in use: the kernel refuses an exclusive open of {node} ({_holders(disk)})"
        hint = "; run this as root" if isinstance(error, PermissionError) else ""
        return f"{disk} may be in use: {node} cannot be opened to ask ({error.strerror}{hint})"
    return None


def claim(node: Path, number: str) -> None:
    """Open a disk exclusively, and close it; OSError if anything has it or its partitions, or if it is another one."""
    handle = os.open(node, os.O_RDONLY | os.O_EXCL | os.O_NONBLOCK | os.O_CLOEXEC)
    try:
        if _number(os.fstat(handle)) != ("block", number):
            raise OSError(errno.ENODATA, "it is another device")
    finally:
        os.close(handle)


def _node(disk: str) -> Path:
    """The file of a disk in /dev, by the name that the kernel gives it there."""
    lines = (machine.text(machine.sysfs() / "class/block" / disk / "uevent") or "").split("\n")
    names = [line.removeprefix("DEVNAME=") for line in lines if line.startswith("DEVNAME=")]
    return Path("/dev") / (names[0] if names else disk.replace("!", "/"))


def _holders(disk: str) -> str:
    folder = machine.sysfs() / "class/block" / disk
    names = sorted({link.name for link in (*folder.glob("holders/*"), *folder.glob("*/holders/*"))})
    return f"held by {', '.join(names)}" if names else "a mount in another namespace, a pool, a target or the like"


# ---- what opens without a claim ----


def _opened(taken: set[str]) -> list[str]:
    """Programs that have a disk open."""
    names: dict[Number | None, str] = {_number_of(link): link.name for link in _nodes() if _is_on(link, taken)}
    if not names:
        return []
    found = []
    for process in machine.root("proc").glob("[0-9]*"):
        try:
            files = [*(process / "fd").iterdir()]
        except OSError:
            continue
        for file in files:
            number = number_of(file)
            if number in names:
                found.append(f"{names[number]} is open in {machine.text(process / 'comm')} ({process.name})")
    return [*dict.fromkeys(found)]


def _nodes() -> Iterator[Path]:
    for kind in _NODES:
        yield from sorted((machine.sysfs() / "class" / kind).glob("*"))


def _is_on(link: Path, taken: set[str]) -> bool:
    """Whether it is on these devices; a volume is not, as it has claimed what it is made of."""
    if any(link.glob("slaves/*")):
        return False
    folder = link.resolve()
    disk = folder.parent if (folder / "partition").exists() else folder
    return bool(({*machine.within(folder)} | pci_of(disk.name)) & taken)


Number = tuple[str, str]
"""A device's: of block or character devices, as sysfs writes it."""


def _number_of(link: Path) -> Number:
    kind = "block" if (machine.sysfs() / "class/block" / link.name).exists() else "char"
    return kind, machine.text(link / "dev") or ""


def number_of(file: Path) -> Number | None:
    """The number of the device that an open file is; None if it is none."""
    try:
        return _number(file.stat())
    except OSError:
        return None


def _number(found: os.stat_result) -> Number | None:
    kind = "block" if stat.S_ISBLK(found.st_mode) else "char" if stat.S_ISCHR(found.st_mode) else None
    return (kind, f"{os.major(found.st_rdev)}:{os.minor(found.st_rdev)}") if kind else None


def _exported(disks: set[str]) -> Iterator[str]:
    """Loop devices and targets of NVMe."""
    for file in sorted((machine.sysfs() / "class/block").glob("loop*/loop/backing_file")):
        yield from (f"{disk} is below {file.parts[-3]}" for disk in _bottom(file.parts[-3]) if disk in disks)
    for file in sorted((machine.sysfs() / "kernel/config/nvmet/subsystems").glob("*/namespaces/*/device_path")):
        name = Path(machine.text(file) or "").resolve().name
        if machine.text(file.with_name("enable")) == "1":
            yield from (f"{disk} is exported by {file.parts[-4]}" for disk in _bottom(name) if disk in disks)
