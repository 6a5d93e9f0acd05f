# SPDX-License-Identifier: GPL-2.0-only
"""Uses of the disks on given PCI devices.

The kernel decides: an exclusive open fails while a file system, swap, RAID, volume or pool in any namespace has claimed
the disk or a partition. The disk is opened for reading and closed at once. Loop devices and NVMe targets open a disk
without a claim and are found in sysfs; programs are found by opened.py.
"""

from __future__ import annotations

import errno
import os
from collections.abc import Iterator
from pathlib import Path
from typing import Final

from xsmmu import machine, opened, proc

_EMPTY: Final = (errno.ENOMEDIUM, errno.ENXIO, errno.ENODEV)
"""Errors of a drive without a medium, and of a removed drive."""
_OF_HOSTS: Final = {"virtiofs": "virtiofs", "9p": "9pnet_virtio"}
"""File systems that a host shares with a guest, and their virtio drivers."""


def reasons(taken: set[str]) -> list[str]:
    """Uses of the disks on these PCI devices, a line each."""
    disks = [disk for disk in _all() if pci_of(disk) & taken]
    named = [(name, use) for name, use in (*_mounted(), *_swaps()) if {*_bottom(name)} & {*disks}]
    found = [f"{name} is {use}" for name, use in named]
    covered = {disk for name, _ in named for disk in _bottom(name)}
    found += [said for disk in disks if disk not in covered and (said := _claim(disk))]
    return [*found, *_of_hosts(taken), *_exported({*disks}), *_passed_on(taken)]


def _all() -> list[str]:
    """Physical disks. A hidden disk is a path of a multipath disk."""
    links = sorted((machine.sysfs() / "class/block").glob("*"))
    return [
        link.name
        for link in links
        if not (link / "partition").exists() and not any(link.glob("slaves/*")) and machine.text(link / "hidden") != "1"
    ]


def pci_of(disk: str) -> set[str]:
    """PCI devices below a whole disk."""
    return opened.pci_of((machine.sysfs() / "class/block" / disk).resolve())


def _bottom(name: str) -> list[str]:
    """Whole physical disks below a disk, a partition, or a stacked device."""
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


# ---- uses in /proc ----


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


def _of_hosts(taken: set[str]) -> Iterator[str]:
    """File systems that a host shares by virtio; the mount does not name the device."""
    for line in proc.lines("self/mountinfo"):
        mount, _, source = line.partition(" - ")
        words, names = mount.split(" "), source.split(" ")
        # An older kernel does not show the transport of 9P.
        other = names[0] == "9p" and "trans=" in names[-1] and "trans=virtio" not in names[-1].split(",")
        if names[0] in _OF_HOSTS and len(words) > 4 and len(names) > 1 and not other:
            for name in opened.virtio(_OF_HOSTS[names[0]], taken):
                where = proc.unescaped(words[4])
                yield f"{proc.unescaped(names[1])} ({names[0]}) is mounted on {where}, possibly by {name}"


def _block_names(number: str, kind: str, source: str) -> list[str]:
    link = machine.sysfs() / "dev/block" / number
    if link.exists():
        return [link.resolve().name]
    if not source.startswith("/dev/"):
        return []
    name = Path(proc.unescaped(source)).resolve().name
    if kind == "btrfs":
        for pool in machine.sysfs().glob("fs/btrfs/*/devices"):
            if (pool / name).exists():
                return [disk.name for disk in pool.iterdir()]
    return [name]


# ---- exclusive opens ----


def _claim(disk: str) -> str | None:
    """The use of a claimed disk, or the reason why the kernel cannot be asked."""
    node = _node(disk)
    try:
        claim(node, machine.text(machine.sysfs() / "class/block" / disk / "dev") or "")
    except OSError as error:
        if error.errno in _EMPTY:
            return None
        if error.errno == errno.EBUSY:
            return f"{disk} is in use: the kernel refuses an exclusive open of {node} ({_holders(disk)})"
        hint = "; run this as root" if isinstance(error, PermissionError) else ""
        return f"{disk} may be in use: {node} cannot be opened ({error.strerror}{hint})"
    return None


def claim(node: Path, number: str) -> None:
    """Open a disk exclusively and close it; OSError if the disk is in use, or if `node` is another device."""
    handle = os.open(node, os.O_RDONLY | os.O_EXCL | os.O_NONBLOCK | os.O_CLOEXEC)
    try:
        if opened.number(os.fstat(handle)) != ("block", number):
            raise OSError(errno.ENODATA, "another device")
    finally:
        os.close(handle)


def _node(disk: str) -> Path:
    """Path of a disk in /dev, by the kernel's name."""
    lines = (machine.text(machine.sysfs() / "class/block" / disk / "uevent") or "").split("\n")
    names = [line.removeprefix("DEVNAME=") for line in lines if line.startswith("DEVNAME=")]
    return Path("/dev") / (names[0] if names else disk.replace("!", "/"))


def _holders(disk: str) -> str:
    folder = machine.sysfs() / "class/block" / disk
    names = sorted({link.name for link in (*folder.glob("holders/*"), *folder.glob("*/holders/*"))})
    return f"held by {', '.join(names)}" if names else "possibly by a mount in another namespace, a pool or a target"


# ---- use without a claim ----


def _exported(disks: set[str]) -> Iterator[str]:
    """Loop devices and NVMe targets on a disk."""
    for file in sorted((machine.sysfs() / "class/block").glob("loop*/loop/backing_file")):
        yield from (
            f"{disk} is the backing disk of {file.parts[-3]}" for disk in _bottom(file.parts[-3]) if disk in disks
        )
    for file in sorted((machine.sysfs() / "kernel/config/nvmet/subsystems").glob("*/namespaces/*/device_path")):
        path = machine.text(file) or ""
        # A path outside /dev may be on a server that does not answer.
        name = Path(path).resolve().name if path.startswith("/dev/") else ""
        if name and machine.text(file.with_name("enable")) == "1":
            yield from (f"{disk} is exported by {file.parts[-4]}" for disk in _bottom(name) if disk in disks)


def _passed_on(taken: set[str]) -> Iterator[str]:
    """Controllers that an NVMe target exports as a whole."""
    for file in sorted((machine.sysfs() / "kernel/config/nvmet/subsystems").glob("*/passthru/device_path")):
        name = Path(machine.text(file) or "").name
        is_on = machine.text(file.with_name("enable")) == "1"
        if name and is_on and {*machine.within(machine.sysfs() / "class/nvme" / name)} & taken:
            yield f"{name} is exported by {file.parts[-3]}"
