# SPDX-License-Identifier: GPL-2.0-only
"""Uses of devices that a rebind would interrupt: file systems, swap, routes, sessions, consoles, open files.

The kernel is asked where possible (disks.py, routing.py); an unknown use counts as a use, and the reason says so.

Not found: unmounted network storage on unusual ports or without TCP; sessions by other means than SSH, vsock and local
consoles; uses of an interface in another network namespace if the device has an interface here too; IPsec without an
interface; virtiofs and 9P of other mount namespaces.
"""

from __future__ import annotations

import errno
import re
import sys
from collections.abc import Iterator, Sequence
from functools import cached_property
from ipaddress import ip_address
from itertools import product
from typing import Final, NamedTuple

from xsmmu import binding, carriers, disks, machine, opened, proc
from xsmmu.machine import Device
from xsmmu.routing import Address, Connection, Link, Packet, View, Way, plain

_ESTABLISHED = 0x1
_SSH: Final = 22
_MAIN: Final = (253, 254)
"""Routing tables for all packets: default and main."""
_OF_IP: Final = {4: "", 6: "IPv6 "}
_PUBLIC: Final = {
    4: ("1.1.1.1", "9.9.9.9", "77.88.8.8", "193.0.14.129", "199.7.83.42"),
    6: ("2001:500:2f::f", "2001:7fd::1", "2606:4700:4700::1111", "2a02:6b8::feed:ff"),
}
"""Name servers in several parts of the Internet, for route lookups; nothing is sent."""
_MULTIPLEXERS: Final = ("TMUX", "STY", "ZELLIJ")
"""Environment variables of tmux, screen and zellij."""
_STORAGE: Final = {
    445: "SMB",
    564: "9P",
    988: "Lustre",
    2049: "NFS",
    3260: "iSCSI",
    3300: "Ceph",
    4420: "NVMe over TCP",
    6789: "Ceph",
    7788: "DRBD",
    7789: "DRBD",
    10809: "nbd",
    24007: "GlusterFS",
}
"""Network storage by TCP port."""
_PORTS: Final = {kind: port for port, kind in _STORAGE.items()}
_MOUNTED: Final = {"nfs": "NFS", "nfs4": "NFS", "cifs": "SMB", "smb3": "SMB", "ceph": "Ceph"}
"""File systems with the server's address in their mount options."""
_VSOCK: Final = "vmw_vsock_virtio_transport"
"""The virtio driver for vsock connections between guest and host."""
_OF_USERS: Final = ("class/vfio-dev", "class/uio", "bus/vdpa/devices")
"""Objects of drivers that give a device to programs: VFIO variants, UIO, and vDPA."""


def reasons(devices: Sequence[Device]) -> list[str]:
    """Reasons not to unbind the drivers of these devices, a line each; empty if no use is known."""
    devices = [*devices, *(each for each in machine.devices() if each not in devices and _goes_with(each, devices))]
    taken = {device.address for device in devices}
    found = [*disks.reasons(taken), *opened.Table().reasons(taken), *_of_host(taken)]
    if carriers.is_of_network(taken):
        try:
            found += _Network(View(), taken).reasons()
        except OSError as error:
            found.append(
                f"the network may use the device: the kernel does not list its routes ({error.strerror or error})"
            )
    for device in devices:
        if _has_interface_elsewhere(device):
            found.append(f"{device.label} has an interface in another network namespace, where its use is not visible")
        functions = machine.text(device.folder / "sriov_numvfs") or "0"
        if int(functions):
            found.append(f"{device.label} has {functions} virtual functions, which disappear with its driver")
    return found + [said for place in _OF_USERS for said in _of_users(place, taken)]


def _goes_with(device: Device, devices: Sequence[Device]) -> bool:
    above = {each.address for each in binding.above(device)}
    return any(each.address in above for each in devices)


def _of_host(taken: set[str]) -> Iterator[str]:
    """Devices with vsock connections: sessions by vsock (SSH, incus exec) have no network address."""
    for link in sorted((machine.sysfs() / "bus/virtio/devices").glob("*")):
        if machine.name_at(link / "driver") == _VSOCK and {*machine.within(link)} & taken:
            yield f"{link.name} carries vsock connections, possibly of this session"


def _has_interface_elsewhere(device: Device) -> bool:
    """Whether the folder `net` is empty: sysfs shows only the interfaces of a single network namespace."""
    return any(folder.is_dir() and not any(folder.iterdir()) for folder in device.folder.resolve().rglob("net"))


def _of_users(place: str, taken: set[str]) -> Iterator[str]:
    for link in sorted((machine.sysfs() / place).glob("*")):
        for address in {*machine.within(link)} & taken:
            device = Device(address)
            yield (
                f"{device.label} is bound to {device.driver}, which gives the device to programs ({link.name}): "
                "unbinding waits for a program that has the device open, or takes the device away"
            )


# ---- network ----


class _Way(NamedTuple):
    """An interface for packets. If packets only may leave here, an unknown path below the interface is ignored."""

    interface: str
    is_sure: bool = True


class _Network:
    """Network connections that stop without some PCI devices."""

    def __init__(self, view: View, taken: set[str]) -> None:
        self.view, self.taken = view, taken

    def reasons(self) -> list[str]:
        """A line for each connection that stops."""
        return [*self._default_routes(), *self._session(), *self._storage()]

    def _lost(self, way: _Way) -> str | None:
        """Description of an interface if it stops or the kernel does not tell; None otherwise."""
        stops = carriers.stops(self.view, way.interface, self.taken)
        name = machine.shown(way.interface)
        if stops is None and way.is_sure:
            return f"{name} (the kernel does not show on which device)"
        return name if stops else None

    def _default_routes(self) -> Iterator[str]:
        """Default routes that stop; only routes of the same family and table replace each other."""
        vrfs = {link.table: f" of VRF {machine.shown(link.name)}" for link in self.view.links.values() if link.table}
        routes: dict[tuple[str, int], set[str]] = {}
        for table, interface, version in self.view.defaults:
            whose = "" if table in _MAIN else vrfs.get(table) or f" of table {table}"
            routes.setdefault((whose, version), set()).add(interface)
        for (whose, version), interfaces in sorted(routes.items()):
            # Rules may send all packets to another table only if the main table has no default route.
            if whose and whose not in vrfs.values() and ("", version) in routes:
                continue
            lost = [self._lost(_Way(interface)) for interface in sorted(interfaces)]
            if all(lost):
                yield f"the only {_OF_IP[version]}default route{whose} uses {', '.join(filter(None, lost))}"
        for vrf in (None, *(link for link in self.view.links.values() if link.table)):
            for version in _PUBLIC:
                if (vrfs[vrf.table] if vrf else "", version) not in routes:
                    yield from self._public(version, vrf)

    def _public(self, version: int, vrf: Link | None) -> Iterator[str]:
        """Routes to public addresses, for machines with several routes instead of a default route."""
        for address in map(ip_address, _PUBLIC[version]):
            way = self.view.way(Packet(address, interface=vrf.number if vrf else 0))
            if not way or way.interface == "lo" or (vrf and not _is_of(way, vrf)):
                continue
            if lost := self._lost(_Way(way.interface)):
                whose = f" of VRF {machine.shown(vrf.name)}" if vrf else ""
                yield f"the route{whose} to public addresses, such as {address}, uses {lost}"
                return

    def _session(self) -> Iterator[str]:
        """Whether the user's session stops."""
        said, shared = proc.variable("SSH_CONNECTION"), any(map(proc.variable, _MULTIPLEXERS))
        words = (said or "").split()
        if not words and not shared:
            return
        other = proc.elsewhere()
        client, server = (_host(words[at]) if len(words) > 3 else None for at in (0, 2))
        if words and not (client and server and all(map(_is_port, words[1:4:2]))):
            client = server = None
        if other or (words and not client):
            why = f"{other} is in another network namespace" if other else f"SSH names {words[0]} as client"
            yield f"this session may use the device: {why}, and xsmmu cannot find its route"
            return
        ports = (int(words[1]), int(words[3])) if words else (0, _SSH)
        found = [each for each in self._connections if (each.remote, each.remote_port) == (client, ports[0])]
        # Sessions such as mosh and dtach have no environment variable and may outlive their SSH connection.
        is_over = not found
        if is_over and client and server:
            found = [Connection(server, ports[1], client, ports[0], None)]
        if shared or is_over:
            # The starter of a terminal multiplexer may have ended, and another SSH session may use the multiplexer now.
            servers = {ports[1], *_ports_of_ssh()}
            found += [each for each in self._connections if each.local_port in servers and each not in found]
        for each in found:
            whose = f"{'this' if each.remote == client else 'an'} SSH session"
            if each.remote.is_loopback or each.remote == each.local or self.view.holders(each.remote):
                yield f"{whose} comes from this machine itself (a tunnel?), and xsmmu cannot find its route"
                continue
            whose += f", from {each.remote},"
            scope = words[0].partition("%")[2] if each.remote == client else ""
            guesses = [] if scope and each.remote.is_link_local else self._guesses(each)
            ways = [*self._ways(each, scope), *guesses]
            if not ways:
                yield f"{whose} may use the device: the kernel has no route to the client"
            yield from self._said(whose, ways)

    def _said(self, subject: str, ways: Sequence[_Way]) -> Iterator[str]:
        """A line for each interface that stops, certain ways first."""
        told = set()
        for way in ways:
            lost = self._lost(way)
            if lost and way.interface not in told:
                told.add(way.interface)
                yield f"{subject} {'uses' if way.is_sure else 'may use'} {lost}"

    def _ways(self, connection: Connection, scope: str = "") -> Iterator[_Way]:
        """The kernel's route for a connection."""
        bound = self.view.links.get(connection.interface or 0)
        if connection.remote.is_link_local and (scope or bound):
            # A link-local address belongs to the link; routing tables do not decide.
            yield _Way(self._called(scope) if scope else bound.name if bound else "")
            return
        way = self.view.way(_packet(connection))
        if way:
            yield _Way(way.interface)

    def _called(self, scope: str) -> str:
        """Name of a scope's interface; a scope may be a number."""
        link = self.view.links.get(int(scope)) if scope.isdecimal() else None
        return link.name if link else scope

    def _guesses(self, connection: Connection) -> Iterator[_Way]:
        """Other possible interfaces: holders of the local address, policy rules, and VRFs."""
        for holder in self.view.holders(connection.local):
            yield _Way(holder, is_sure=False)
        domains = [connection.interface or 0]
        if connection.interface is None:
            links = self.view.links.values()
            domains += [link.number for link in links if link.table or connection.remote.is_link_local]
        for domain in domains:
            # A firewall may mark packets, and a program may set the type of service; policy rules select by both.
            packet = _packet(connection)._replace(interface=domain)
            for mark, service in product((packet.mark, *self.view.marks), (0, *self.view.services)):
                way = self.view.way(packet._replace(mark=mark, service=service))
                if way and not way.is_local:
                    yield _Way(way.interface, is_sure=False)

    def _storage(self) -> list[str]:
        """Servers of mounted and connected storage."""
        found: list[str] = []
        for address, kind in [*_mounted(), *_fabrics(), *_sessions()]:
            name, _, scope = address.partition("%")
            host = _host(name)
            if host and not host.is_loopback:
                # The server may use an unusual port.
                usual, other = (Connection(None, 0, host, port) for port in (_PORTS.get(kind, 0), 0))
                guesses = (way._replace(is_sure=False) for way in self._out(other, scope))
                ways = [way for each in self._connections if each.remote == host for way in self._out(each)]
                found += self._said(f"{kind} at {host}", [*self._out(usual, scope), *ways, *guesses])
        for each in self._connections:
            # A connection from an address to itself reaches a server on this machine.
            if each.remote_port in _STORAGE and each.remote != each.local and not each.remote.is_loopback:
                found += self._said(f"{_STORAGE[each.remote_port]} at {each.remote}", self._out(each))
        return [*dict.fromkeys(found)]

    def _out(self, connection: Connection, scope: str = "") -> list[_Way]:
        """As _ways(), without servers on this machine."""
        return [way for way in self._ways(connection, scope) if way.interface != "lo"]

    @cached_property
    def _connections(self) -> list[Connection]:
        try:
            return self.view.connections
        except OSError as error:
            # The kernel may lack CONFIG_INET_DIAG.
            if error.errno not in (errno.ENOENT, errno.EPROTONOSUPPORT, errno.EINVAL):
                raise
            return [*_listed()]


def _ports_of_ssh() -> set[int]:
    """Local ports of all SSH sessions that processes belong to."""
    said = (each.split() for each in proc.variables("SSH_CONNECTION"))
    return {int(words[3]) for words in said if len(words) > 3 and _is_port(words[3])}


def _is_port(word: str) -> bool:
    return word.isdecimal() and int(word) < 1 << 16


def _packet(connection: Connection) -> Packet:
    """A packet of a connection."""
    ports = (connection.local_port, connection.remote_port)
    return Packet(connection.remote, connection.local, connection.interface or 0, connection.mark, ports)


def _is_of(way: Way, vrf: Link) -> bool:
    """Whether packets leave by the VRF; packets without a route in the VRF may use the main table."""
    return machine.name_at(machine.sysfs() / "class/net" / way.interface / "master") == vrf.name


def _mounted() -> Iterator[tuple[str, str]]:
    """Servers of mounted file systems with the kind of storage; an idle mount may have no connection."""
    for line in proc.lines("self/mountinfo"):
        words = line.partition(" - ")[2].split(" ")
        if words[0] not in _MOUNTED:
            continue
        options = re.findall(r"(?:^|,)(?:addr|mon_addr)=([^,]+)", words[-1])
        # Ceph has several servers, each with a port, in the options or in the source.
        for server in re.split("[,/]", "/".join([*options, words[1] if words[0] == "ceph" else ""])):
            with_port = re.fullmatch(r"\[?(.*?)\]?:\d+:?", server)
            yield with_port[1] if with_port and words[0] == "ceph" else server, _MOUNTED[words[0]]


def _fabrics() -> Iterator[tuple[str, str]]:
    """NVMe servers, which may listen on any port or use another transport than TCP."""
    for link in sorted((machine.sysfs() / "class/nvme").glob("*")):
        address = re.search(r"(?:^|,)traddr=([^,]+)", machine.text(link / "address") or "")
        transport = (machine.text(link / "transport") or "").upper()
        if address and transport in ("TCP", "RDMA"):
            yield address[1], f"NVMe over {transport}"


def _sessions() -> Iterator[tuple[str, str]]:
    """iSCSI servers."""
    for link in sorted((machine.sysfs() / "class/iscsi_connection").glob("*")):
        yield machine.text(link / "address") or "", "iSCSI"


def _listed() -> Iterator[Connection]:
    """Connections in /proc, which does not show the interface of a bound socket."""
    for line in proc.lines("net/tcp")[1:] + proc.lines("net/tcp6")[1:]:
        words = line.split()
        if len(words) > 3 and int(words[3], 16) == _ESTABLISHED:
            (own, port), (remote, remote_port) = (word.split(":") for word in words[1:3])
            yield Connection(_unpacked(own), int(port, 16), _unpacked(remote), int(remote_port, 16), None)


def _unpacked(digits: str) -> Address:
    """An address in the format of /proc: words in CPU byte order."""
    parts = [int(digits[at : at + 8], 16).to_bytes(4, sys.byteorder) for at in range(0, len(digits), 8)]
    return plain(ip_address(b"".join(parts)))


def _host(word: str) -> Address | None:
    """An address; None if the word is no address."""
    try:
        return plain(ip_address(word.partition("%")[0]))
    except ValueError:
        return None
