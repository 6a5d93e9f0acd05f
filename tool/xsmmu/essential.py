# SPDX-License-Identifier: GPL-2.0-only
"""What the machine, or a person at it, needs of devices: file systems, swap, routes, consoles, what programs have open.

The kernel is asked where it answers (disks.py, routing.py), and what it does not say counts as needed: the reason says
so. Not seen: network storage that is not mounted and uses other ports than its own or no TCP, a session that comes by
none of SSH, vsock and a console of this machine, what is by an interface of another network namespace if the device has
one here too, packets of IPsec without an interface of its own, and virtiofs or 9P of other mount namespaces.
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
"""Tables that all packets have: default and main."""
_OF_IP: Final = {4: "", 6: "IPv6 "}
_PUBLIC: Final = {
    4: ("1.1.1.1", "9.9.9.9", "77.88.8.8", "193.0.14.129", "199.7.83.42"),
    6: ("2001:500:2f::f", "2001:7fd::1", "2606:4700:4700::1111", "2a02:6b8::feed:ff"),
}
"""Servers of names in several parts of the Internet; routes to them are looked up, and nothing is sent."""
_MULTIPLEXERS: Final = ("TMUX", "STY", "ZELLIJ")
"""Variables of what runs below tmux, screen and zellij."""
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
"""What the kernel, or a program, has connected to at such a port."""
_PORTS: Final = {kind: port for port, kind in _STORAGE.items()}
_MOUNTED: Final = {"nfs": "NFS", "nfs4": "NFS", "cifs": "SMB", "smb3": "SMB", "ceph": "Ceph"}
"""File systems with the address of their server among the options."""
_VSOCK: Final = "vmw_vsock_virtio_transport"
"""The driver of virtio by which a guest and its host have connections."""
_OF_USERS: Final = ("class/vfio-dev", "class/uio", "bus/vdpa/devices")
"""What a driver makes of a device that it gives to programs: VFIO's of any maker, UIO's, and vDPA's."""


def reasons(devices: Sequence[Device]) -> list[str]:
    """Why these devices, all at once, should not lose their drivers; a line each, none if nothing is known."""
    devices = [*devices, *(each for each in machine.devices() if each not in devices and _goes_with(each, devices))]
    taken = {device.address for device in devices}
    found = [*disks.reasons(taken), *opened.Table().reasons(taken), *_of_host(taken)]
    if carriers.is_of_network(taken):
        try:
            found += _Network(View(), taken).reasons()
        except OSError as error:
            found.append(f"the network may be by it: the kernel says nothing of its routes ({error.strerror or error})")
    for device in devices:
        if _has_interface_elsewhere(device):
            found.append(
                f"{device.label} has an interface in another network namespace, and xsmmu does not see what is by it"
            )
        functions = machine.text(device.folder / "sriov_numvfs") or "0"
        if int(functions):
            found.append(f"{device.label} has {functions} virtual functions, which go with its driver")
    return found + [said for place in _OF_USERS for said in _of_users(place, taken)]


def _goes_with(device: Device, devices: Sequence[Device]) -> bool:
    above = {each.address for each in binding.above(device)}
    return any(each.address in above for each in devices)


def _of_host(taken: set[str]) -> Iterator[str]:
    """A device for connections to the host, by which a session comes that has no address (SSH by vsock, incus exec)."""
    for link in sorted((machine.sysfs() / "bus/virtio/devices").glob("*")):
        if machine.name_at(link / "driver") == _VSOCK and {*machine.within(link)} & taken:
            yield f"{link.name} has the connections of vsock, and a session may come by one of them"


def _has_interface_elsewhere(device: Device) -> bool:
    """Whether the folder for interfaces is there and none is seen in it: sysfs has those of one namespace."""
    return any(folder.is_dir() and not any(folder.iterdir()) for folder in device.folder.resolve().rglob("net"))


def _of_users(place: str, taken: set[str]) -> Iterator[str]:
    for link in sorted((machine.sysfs() / place).glob("*")):
        for address in {*machine.within(link)} & taken:
            device = Device(address)
            yield (
                f"{device.label} is bound to {device.driver}, which gives it to programs ({link.name}): if one has it "
                "open, unbinding waits for that, or takes it away"
            )


# ---- network ----


class _Way(NamedTuple):
    """An interface by which packets leave, or by which they may: of that one, what cannot be followed says nothing."""

    interface: str
    is_sure: bool = True


class _Network:
    """What is by the network, and stops without some PCI devices."""

    def __init__(self, view: View, taken: set[str]) -> None:
        self.view, self.taken = view, taken

    def reasons(self) -> list[str]:
        """A line for each thing that stops."""
        return [*self._default_routes(), *self._session(), *self._storage()]

    def _lost(self, way: _Way) -> str | None:
        """What to call an interface that stops, or of which the kernel does not say whether it does."""
        stops = carriers.stops(self.view, way.interface, self.taken)
        name = machine.shown(way.interface)
        if stops is None and way.is_sure:
            return f"{name}, of which the kernel does not say on which device it is"
        return name if stops else None

    def _default_routes(self) -> Iterator[str]:
        """A route replaces only routes of its own family and table."""
        vrfs = {link.table: f" of VRF {machine.shown(link.name)}" for link in self.view.links.values() if link.table}
        routes: dict[tuple[str, int], set[str]] = {}
        for table, interface, version in self.view.defaults:
            whose = "" if table in _MAIN else vrfs.get(table) or f" of table {table}"
            routes.setdefault((whose, version), set()).add(interface)
        for (whose, version), interfaces in sorted(routes.items()):
            # Rules send some packets to a table of their own, and may send all there if the machine's has no default.
            if whose and whose not in vrfs.values() and ("", version) in routes:
                continue
            lost = [self._lost(_Way(interface)) for interface in sorted(interfaces)]
            if all(lost):
                yield f"the only {_OF_IP[version]}default route{whose} is by {', '.join(filter(None, lost))}"
        for vrf in (None, *(link for link in self.view.links.values() if link.table)):
            for version in _PUBLIC:
                if (vrfs[vrf.table] if vrf else "", version) not in routes:
                    yield from self._public(version, vrf)

    def _public(self, version: int, vrf: Link | None) -> Iterator[str]:
        """Several routes may lead to all addresses together, where none of them does."""
        for address in map(ip_address, _PUBLIC[version]):
            way = self.view.way(Packet(address, interface=vrf.number if vrf else 0))
            if not way or way.interface == "lo" or (vrf and not _is_of(way, vrf)):
                continue
            if lost := self._lost(_Way(way.interface)):
                whose = f" of VRF {machine.shown(vrf.name)}" if vrf else ""
                yield f"the route{whose} to public addresses, as {address}, is by {lost}"
                return

    def _session(self) -> Iterator[str]:
        """How this session comes."""
        said, shared = proc.variable("SSH_CONNECTION"), any(map(proc.variable, _MULTIPLEXERS))
        words = (said or "").split()
        if not words and not shared:
            return
        other = proc.elsewhere()
        client, server = (_host(words[at]) if len(words) > 3 else None for at in (0, 2))
        if words and not (client and server and all(map(_is_port, words[1:4:2]))):
            client = server = None
        if other or (words and not client):
            why = f"{other} is in another network namespace" if other else f"SSH says that it is from {words[0]}"
            yield f"this session may be by it: {why}, and xsmmu does not know the way there"
            return
        ports = (int(words[1]), int(words[3])) if words else (0, _SSH)
        found = [each for each in self._connections if (each.remote, each.remote_port) == (client, ports[0])]
        # Of mosh, dtach and the like, which have no variable of their own.
        is_over = not found
        if is_over and client and server:
            found = [Connection(server, ports[1], client, ports[0], None)]
        if shared or is_over:
            # Whatever started a terminal multiplexer may have ended, and anybody may use it now.
            servers = {ports[1], *_ports_of_ssh()}
            found += [each for each in self._connections if each.local_port in servers and each not in found]
        for each in found:
            whose = f"{'this' if each.remote == client else 'an'} SSH session"
            if each.remote.is_loopback or each.remote == each.local or self.view.holders(each.remote):
                yield f"{whose} comes from this machine itself (a tunnel?), and xsmmu does not know the way"
                continue
            whose += f", from {each.remote},"
            scope = words[0].partition("%")[2] if each.remote == client else ""
            guesses = [] if scope and each.remote.is_link_local else self._guesses(each)
            ways = [*self._ways(each, scope), *guesses]
            if not ways:
                yield f"{whose} may be by it: the kernel has no route there"
            yield from self._said(whose, ways)

    def _said(self, subject: str, ways: Sequence[_Way]) -> Iterator[str]:
        """One line for each interface that stops, of whichever is sure first."""
        told = set()
        for way in ways:
            lost = self._lost(way)
            if lost and way.interface not in told:
                told.add(way.interface)
                yield f"{subject} {'is' if way.is_sure else 'may be'} by {lost}"

    def _ways(self, connection: Connection, scope: str = "") -> Iterator[_Way]:
        """The kernel's answer for a connection."""
        bound = self.view.links.get(connection.interface or 0)
        if connection.remote.is_link_local and (scope or bound):
            # It is of that link, and no table has a word in it.
            yield _Way(self._called(scope) if scope else bound.name if bound else "")
            return
        way = self.view.way(_packet(connection))
        if way:
            yield _Way(way.interface)

    def _called(self, scope: str) -> str:
        """The interface of a scope, which may be a number."""
        link = self.view.links.get(int(scope)) if scope.isdecimal() else None
        return link.name if link else scope

    def _guesses(self, connection: Connection) -> Iterator[_Way]:
        """By which interfaces it may leave or come as well: those of its own address, of rules, of other domains."""
        for holder in self.view.holders(connection.local):
            yield _Way(holder, is_sure=False)
        domains = [connection.interface or 0]
        if connection.interface is None:
            links = self.view.links.values()
            domains += [link.number for link in links if link.table or connection.remote.is_link_local]
        for domain in domains:
            # A firewall may mark what leaves, a program sets the type of service, and rules of routing ask for either.
            packet = _packet(connection)._replace(interface=domain)
            for mark, service in product((packet.mark, *self.view.marks), (0, *self.view.services)):
                way = self.view.way(packet._replace(mark=mark, service=service))
                if way and not way.is_local:
                    yield _Way(way.interface, is_sure=False)

    def _storage(self) -> list[str]:
        """Servers of what is mounted or connected."""
        found: list[str] = []
        for address, kind in [*_mounted(), *_fabrics(), *_sessions()]:
            name, _, scope = address.partition("%")
            host = _host(name)
            if host and not host.is_loopback:
                # It may use another port than its usual one.
                usual, other = (Connection(None, 0, host, port) for port in (_PORTS.get(kind, 0), 0))
                guesses = (way._replace(is_sure=False) for way in self._out(other, scope))
                ways = [way for each in self._connections if each.remote == host for way in self._out(each)]
                found += self._said(f"{kind} at {host}", [*self._out(usual, scope), *ways, *guesses])
        for each in self._connections:
            # From an address to itself it is this machine's own server.
            if each.remote_port in _STORAGE and each.remote != each.local and not each.remote.is_loopback:
                found += self._said(f"{_STORAGE[each.remote_port]} at {each.remote}", self._out(each))
        return [*dict.fromkeys(found)]

    def _out(self, connection: Connection, scope: str = "") -> list[_Way]:
        """The same without a server of the machine's own."""
        return [way for way in self._ways(connection, scope) if way.interface != "lo"]

    @cached_property
    def _connections(self) -> list[Connection]:
        try:
            return self.view.connections
        except OSError as error:
            # A kernel may lack this question (CONFIG_INET_DIAG).
            if error.errno not in (errno.ENOENT, errno.EPROTONOSUPPORT, errno.EINVAL):
                raise
            return [*_listed()]


def _ports_of_ssh() -> set[int]:
    """This machine's ports of all sessions by SSH that a process says it is in."""
    said = (each.split() for each in proc.variables("SSH_CONNECTION"))
    return {int(words[3]) for words in said if len(words) > 3 and _is_port(words[3])}


def _is_port(word: str) -> bool:
    return word.isdecimal() and int(word) < 1 << 16


def _packet(connection: Connection) -> Packet:
    """What it sends."""
    ports = (connection.local_port, connection.remote_port)
    return Packet(connection.remote, connection.local, connection.interface or 0, connection.mark, ports)


def _is_of(way: Way, vrf: Link) -> bool:
    """Whether packets leave by a VRF; those that have no route in it may have one of the machine's."""
    return machine.name_at(machine.sysfs() / "class/net" / way.interface / "master") == vrf.name


def _mounted() -> Iterator[tuple[str, str]]:
    """Servers of what is mounted, and the kind of that; one that nobody uses for a while may have no connection."""
    for line in proc.lines("self/mountinfo"):
        words = line.partition(" - ")[2].split(" ")
        if words[0] not in _MOUNTED:
            continue
        options = re.findall(r"(?:^|,)(?:addr|mon_addr)=([^,]+)", words[-1])
        # Ceph has several servers, each with a port, as options or as the source.
        for server in re.split("[,/]", "/".join([*options, words[1] if words[0] == "ceph" else ""])):
            with_port = re.fullmatch(r"\[?(.*?)\]?:\d+:?", server)
            yield with_port[1] if with_port and words[0] == "ceph" else server, _MOUNTED[words[0]]


def _fabrics() -> Iterator[tuple[str, str]]:
    """Servers of NVMe, which may listen on any port, and be reached without TCP."""
    for link in sorted((machine.sysfs() / "class/nvme").glob("*")):
        address = re.search(r"(?:^|,)traddr=([^,]+)", machine.text(link / "address") or "")
        transport = (machine.text(link / "transport") or "").upper()
        if address and transport in ("TCP", "RDMA"):
            yield address[1], f"NVMe over {transport}"


def _sessions() -> Iterator[tuple[str, str]]:
    """Servers of iSCSI, too."""
    for link in sorted((machine.sysfs() / "class/iscsi_connection").glob("*")):
        yield machine.text(link / "address") or "", "iSCSI"


def _listed() -> Iterator[Connection]:
    """The connections that /proc has; it does not say which interface one is bound to."""
    for line in proc.lines("net/tcp")[1:] + proc.lines("net/tcp6")[1:]:
        words = line.split()
        if len(words) > 3 and int(words[3], 16) == _ESTABLISHED:
            (own, port), (remote, remote_port) = (word.split(":") for word in words[1:3])
            yield Connection(_unpacked(own), int(port, 16), _unpacked(remote), int(remote_port, 16), None)


def _unpacked(digits: str) -> Address:
    """An address as /proc has it: each word in the order of the CPU."""
    parts = [int(digits[at : at + 8], 16).to_bytes(4, sys.byteorder) for at in range(0, len(digits), 8)]
    return plain(ip_address(b"".join(parts)))


def _host(word: str) -> Address | None:
    """An address as tables of routes have it; None if it is none."""
    try:
        return plain(ip_address(word.partition("%")[0]))
    except ValueError:
        return None
