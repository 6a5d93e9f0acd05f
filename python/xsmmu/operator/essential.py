# SPDX-License-Identifier: GPL-2.0-only
"""What the machine, or who sits at it, needs of devices: file systems, swap, the way to the network.

All is read from /proc (or what XSMMU_PROC names) and sysfs. Not seen: the disks of a ZFS pool, what programs use
without mounting it, and network storage that is not mounted and uses other ports than its own or no TCP, or a tunnel.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterator, Sequence
from ipaddress import IPv4Network, IPv6Network, ip_address, ip_network
from pathlib import Path
from typing import Final, NamedTuple

from xsmmu.operator import machine
from xsmmu.operator.machine import Device

_UP, _REJECT = 0x1, 0x200
_ESTABLISHED = 0x1
_STORAGE: Final = {445: "SMB", 2049: "NFS", 3260: "iSCSI", 4420: "NVMe over TCP", 10809: "nbd"}
"""What the kernel, or a program, has connected to at such a port."""
_MOUNTED: Final = {"nfs": "NFS", "nfs4": "NFS", "cifs": "SMB", "smb3": "SMB"}
"""File systems with the address of their server among the options."""


def reasons(devices: Sequence[Device]) -> list[str]:
    """Why these devices, all at once, should not lose their drivers; a line each, none if nothing is known."""
    taken = {device.address for device in devices}
    found = [f"{disk} is {use}" for disk, use in _disks() if _pci_of_disk(disk) & taken]
    found += _routes_through(taken)
    for device in devices:
        functions = (device.folder / "sriov_numvfs").read_text() if (device.folder / "sriov_numvfs").exists() else "0"
        if int(functions):
            found.append(f"{device.label} has {functions.strip()} virtual functions, which go with its driver")
        if device.driver == "vfio-pci":
            found.append(f"{device.label} is bound to vfio-pci: if a program has it open, unbinding waits for it")
    return found


# ---- disks ----


def _disks() -> Iterator[tuple[str, str]]:
    """Names of block devices in use, as sysfs has them, and what for."""
    for line in _lines("self/mountinfo"):
        mount, _, source = line.partition(" - ")
        words, names = mount.split(" "), source.split(" ")
        if len(words) > 4 and len(names) > 1:
            for name in _block_names(words[2], names[0], names[1]):
                yield name, f"mounted on {_unescaped(words[4])}"
    for line in _lines("swaps")[1:]:
        if line.startswith("/dev/"):
            yield Path(_unescaped(_words(line)[0])).resolve().name, "used as swap"


def _block_names(number: str, kind: str, source: str) -> list[str]:
    link = machine.sysfs() / "dev/block" / number
    if link.exists():
        return [link.resolve().name]
    name = Path(_unescaped(source)).resolve().name
    if not source.startswith("/dev/"):
        return []
    if kind == "btrfs":
        for pool in machine.sysfs().glob("fs/btrfs/*/devices"):
            if (pool / name).exists():
                return [disk.name for disk in pool.iterdir()]
    return [name]


def _pci_of_disk(name: str) -> set[str]:
    """The PCI devices that a disk, a partition, or a device made of such is on."""
    link = machine.sysfs() / "class/block" / name
    if not link.exists():
        return set()
    folder = link.resolve()
    whole = folder.parent if (folder / "partition").exists() else folder
    found = set(machine.within(folder))
    for lower in whole.glob("slaves/*"):
        found |= _pci_of_disk(lower.name)
    # A disk of NVMe multipath is its subsystem's, which has the controllers.
    if whole.parent.name.startswith("nvme-subsys"):
        for controller in whole.parent.glob("nvme*"):
            found |= set(machine.within(controller))
    return found


# ---- network ----


class Route(NamedTuple):
    """A row of a routing table."""

    network: IPv4Network | IPv6Network
    metric: int
    interface: str


def _routes_through(taken: set[str]) -> list[str]:
    table = [*_routes4(), *_routes6()]
    found = []
    ways = {row.interface for row in table if row.network.prefixlen == 0}
    if ways and all(_goes(interface, taken) for interface in ways):
        found.append(f"the only default route is by {', '.join(sorted(ways))}")
    client = _ssh_client()
    way = _way_to(client, table) if client else None
    if way and _goes(way, taken):
        found.append(f"this SSH session, from {client}, is by {way}")
    for host, storage in dict.fromkeys([*_mounted(), *_connected()]):
        way = None if ip_address(host).is_loopback else _way_to(host, table)
        if way and _goes(way, taken):
            found.append(f"{storage} at {host} is by {way}")
    return found


def _mounted() -> Iterator[tuple[str, str]]:
    """Servers of what is mounted, and the kind of that; one that nobody uses for a while may have no connection."""
    for line in _lines("self/mountinfo"):
        words = line.partition(" - ")[2].split(" ")
        server = re.search(r"(?:^|,)addr=([^,]+)", words[-1]) if words[0] in _MOUNTED else None
        host = _host(server[1]) if server else None
        if host:
            yield host, _MOUNTED[words[0]]


def _connected() -> Iterator[tuple[str, str]]:
    """Servers that this machine has a connection to for storage, and the kind of that."""
    for line in _lines("net/tcp")[1:] + _lines("net/tcp6")[1:]:
        words = line.split()
        if len(words) < 4 or int(words[3], 16) != _ESTABLISHED:
            continue
        own, (address, port) = words[1].split(":")[0], words[2].split(":")
        # From an address to itself it is this machine's own server.
        if int(port, 16) in _STORAGE and address != own:
            # Each word of an address stands in the order of the CPU.
            parts = [bytes.fromhex(address[at : at + 8])[::-1] for at in range(0, len(address), 8)]
            host = ip_address(b"".join(parts))
            yield str(getattr(host, "ipv4_mapped", None) or host), _STORAGE[int(port, 16)]


def _routes4() -> Iterator[Route]:
    for line in _lines("net/route")[1:]:
        words = _words(line)
        if len(words) > 7 and int(words[3], 16) & _UP and not int(words[3], 16) & _REJECT:
            address, mask = (int.from_bytes(bytes.fromhex(words[at]), "little") for at in (1, 7))
            yield Route(IPv4Network((address, mask.bit_count())), int(words[6]), words[0])


def _routes6() -> Iterator[Route]:
    for line in _lines("net/ipv6_route"):
        words = _words(line)
        if len(words) > 9 and int(words[8], 16) & _UP and not int(words[8], 16) & _REJECT and words[9] != "lo":
            yield Route(IPv6Network((int(words[0], 16), int(words[1], 16))), int(words[5], 16), words[9])


def _way_to(address: str, table: Sequence[Route]) -> str | None:
    """The interface by which packets to an address leave."""
    host = ip_network(address)
    ways = [row for row in table if row.network.version == host.version and host.subnet_of(row.network)]  # type: ignore[arg-type]
    ways.sort(key=lambda row: (-row.network.prefixlen, row.metric))
    return ways[0].interface if ways else None


def _goes(interface: str, taken: set[str]) -> bool:
    """Whether an interface is on these PCI devices only."""
    under = _pci_of_interface(interface)
    return bool(under) and under <= taken


def _pci_of_interface(name: str) -> set[str]:
    link = machine.sysfs() / "class/net" / name
    if not link.exists():
        return set()
    found = set(machine.within(link)[-1:])
    for lower in link.glob("lower_*"):
        found |= _pci_of_interface(lower.name.removeprefix("lower_"))
    return found


def _ssh_client() -> str | None:
    """Who this session comes from; sudo leaves that word out of the environment, its parents have it."""
    connection = os.environ.get("SSH_CONNECTION") or _of_parents("SSH_CONNECTION")
    if not connection:
        return None
    return _host(connection.split()[0])


def _host(address: str) -> str | None:
    """An address as tables of routes have it; None if it is none."""
    try:
        found = ip_address(address.partition("%")[0])
    except ValueError:
        return None
    return str(getattr(found, "ipv4_mapped", None) or found)


def _of_parents(name: str) -> str | None:
    process = os.getppid()
    while process > 1:
        try:
            environment = (machine.root("proc") / str(process) / "environ").read_bytes().split(b"\0")
            status = (machine.root("proc") / str(process) / "status").read_text()
        except OSError:
            return None
        for word in environment:
            if word.startswith(f"{name}=".encode()):
                return word.partition(b"=")[2].decode(errors="replace")
        parent = re.search(r"^PPid:\s*(\d+)", status, re.MULTILINE)
        process = int(parent[1]) if parent else 0
    return None


# ---- text ----


def _lines(name: str) -> list[str]:
    try:
        # Names of folders and interfaces are bytes, as in paths below sysfs; of a folder's only blank, tab, newline and
        # \ are written otherwise.
        return os.fsdecode((machine.root("proc") / name).read_bytes()).split("\n")
    except OSError:
        return []


def _words(line: str) -> list[str]:
    """A row's; what else Python calls blank may be part of a name."""
    return re.split("[ \t]+", line)


_OCTAL: Final = re.compile(r"\\([0-7]{3})")


def _unescaped(text: str) -> str:
    return _OCTAL.sub(lambda found: chr(int(found[1], 8)), text)
