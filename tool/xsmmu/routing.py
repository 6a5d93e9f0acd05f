# SPDX-License-Identifier: GPL-2.0-only
"""The kernel's answers about its network: routes of packets, interfaces, connections, addresses.

A lookup (RTM_GETROUTE) goes through policy rules, VRF tables and scopes as a packet does. A View asks for each table
once, in the network namespace of this process.
"""

from __future__ import annotations

import errno
import socket
import struct
from collections.abc import Iterator
from dataclasses import dataclass, field
from functools import cached_property
from ipaddress import IPv4Address, IPv6Address, ip_address
from typing import Final, NamedTuple

from xsmmu import netlink

Address = IPv4Address | IPv6Address

_FAMILIES: Final = {4: socket.AF_INET, 6: socket.AF_INET6}
_GET_LINK, _GET_ADDRESS, _GET_ROUTE, _GET_RULE = 18, 22, 26, 34
_BY_FAMILY: Final = 20
_ESTABLISHED: Final = 1
_REFUSING: Final = (6, 7, 8)
"""Route types that drop packets: blackhole, unreachable, prohibit."""
_LOCAL: Final = 2
_DEAD: Final = 0x01 | 0x10
"""RTNH_F_DEAD and RTNH_F_LINKDOWN."""
_CLONED: Final = 0x200
_LOWER_UP: Final = 0x10000


class Link(NamedTuple):
    """An interface, by its index."""

    number: int
    name: str
    kind: str = ""
    """IFLA_INFO_KIND: bond, vrf, openvswitch; empty for an interface of a NIC."""
    is_up: bool = True
    table: int = 0
    """Routing table of a VRF."""
    ends: tuple[Address, ...] = ()
    """Remote ends of a tunnel."""
    mark: int = 0
    """Mark of a tunnel's outer packets."""


class Default(NamedTuple):
    """A default route."""

    table: int
    interface: str
    version: int = 4
    """IP version."""


class Connection(NamedTuple):
    """An established TCP connection."""

    local: Address | None
    local_port: int
    remote: Address
    remote_port: int
    interface: int | None = 0
    """Index of the interface that the socket is bound to, 0 for none; None if unknown."""
    mark: int = 0


class Packet(NamedTuple):
    """Properties of an outgoing packet that routes and rules may select by."""

    to: Address
    source: Address | None = None
    interface: int = 0
    """Index of the interface or VRF that the socket is bound to."""
    mark: int = 0
    ports: tuple[int, int] = (0, 0)
    """Local and remote TCP port; 0 if unknown."""
    service: int = 0
    """Type of service (IPv4) or traffic class (IPv6)."""


@dataclass(frozen=True)
class Way:
    """Route of packets to an address."""

    interface: str
    is_local: bool = False


@dataclass(frozen=True)
class View:
    """The kernel's answers; OSError if the kernel refuses a request."""

    _ways: dict[Packet, Way | None] = field(default_factory=dict)

    @cached_property
    def links(self) -> dict[int, Link]:
        """All interfaces, by index."""
        found = map(_link, netlink.dump(netlink.ROUTE, _GET_LINK, bytes(16)))
        return {link.number: link for link in found}

    @cached_property
    def by_name(self) -> dict[str, Link]:
        """All interfaces, by name."""
        return {link.name: link for link in self.links.values()}

    @cached_property
    def marks(self) -> list[int]:
        """Marks in policy rules; a firewall may set a mark on any packet."""
        return sorted({netlink.number(netlink.attributes(row[12:]).get(_RULE_MARK)) for row in self._rules} - {0})

    @cached_property
    def services(self) -> list[int]:
        """Types of service in policy rules and routes; a program may set any type of service."""
        codes = {netlink.number(netlink.attributes(row[12:]).get(_RULE_DSCP)) << 2 for row in self._rules}
        return sorted((codes | {row[3] for row in (*self._rules, *self._routes)}) - {0})

    @cached_property
    def _rules(self) -> list[bytes]:
        try:
            return netlink.dump(netlink.ROUTE, _GET_RULE, bytes(12))
        except OSError as error:
            # The kernel may lack CONFIG_IP_MULTIPLE_TABLES.
            if error.errno != errno.EOPNOTSUPP:
                raise
            return []

    @cached_property
    def _routes(self) -> list[bytes]:
        return netlink.dump(netlink.ROUTE, _GET_ROUTE, bytes(12))

    @cached_property
    def defaults(self) -> list[Default]:
        """Usable default routes of all tables."""
        return [found for row in self._routes if row[1] == 0 for found in self._default(row)]

    def _default(self, row: bytes) -> Iterator[Default]:
        family, kind, flags = row[0], row[7], netlink.number(row[8:12])
        if family not in _FAMILIES.values() or kind in _REFUSING or flags & _CLONED:
            return
        content = netlink.attributes(row[12:])
        table = netlink.number(content.get(_ROUTE_TABLE)) or row[4]
        hops = list(_hops(content.get(_ROUTE_MULTIPATH, b""))) or [
            (flags, netlink.number(content.get(_ROUTE_INTERFACE))),
        ]
        for marks, index in hops:
            # With net.ipv4.nexthop_compat_mode=0 the kernel may show only the ID of a nexthop object.
            name = self.links[index].name if index in self.links else "a next hop"
            if not marks & _DEAD and name != "lo":
                yield Default(table, name, 4 if family == socket.AF_INET else 6)

    def holders(self, address: Address | None) -> list[str]:
        """Interfaces that have an address."""
        found = []
        for row in netlink.dump(netlink.ROUTE, _GET_ADDRESS, bytes(8)):
            content, index = netlink.attributes(row[8:]), netlink.number(row[4:8])
            own = content.get(_ADDRESS_LOCAL) or content.get(_ADDRESS_ADDRESS) or b""
            if address and own == address.packed and index in self.links:
                found.append(self.links[index].name)
        return found

    def way(self, packet: Packet) -> Way | None:
        """Route of a packet; None without a route."""
        if packet not in self._ways:
            self._ways[packet] = self._asked(packet)
        return self._ways[packet]

    def _asked(self, packet: Packet) -> Way | None:
        # The lookup fails for a removed source address, so ask again without the source.
        questions = [packet, packet._replace(source=None)]
        # An older kernel refuses ports in a lookup.
        questions += [each._replace(ports=(0, 0)) for each in questions]
        code = None
        for each in dict.fromkeys(questions):
            if each.ports != packet.ports and code not in (errno.EINVAL, errno.ERANGE):
                return None
            try:
                return self._answered(netlink.ask(netlink.ROUTE, _GET_ROUTE, _lookup(each)))
            except OSError as error:
                code = error.errno
        return None

    def _answered(self, answer: bytes) -> Way | None:
        index = netlink.number(netlink.attributes(answer[12:]).get(_ROUTE_INTERFACE))
        if answer[7] in _REFUSING or index not in self.links:
            return None
        return Way(self.links[index].name, answer[7] == _LOCAL)

    def ends(self, link: Link) -> tuple[tuple[Address, ...], int]:
        """Remote ends of a tunnel, and the mark of its outer packets; empty if there is no tunnel or no answer."""
        if link.kind != "wireguard":
            return link.ends, link.mark
        try:
            return _wireguard(link.number)
        except OSError:
            return (), 0

    @cached_property
    def connections(self) -> list[Connection]:
        """All established TCP connections."""
        found: list[Connection] = []
        for family in _FAMILIES.values():
            body = struct.pack("=BBBxI48x", family, socket.IPPROTO_TCP, 0, 1 << _ESTABLISHED)
            found += map(_connection, netlink.dump(netlink.SOCK_DIAG, _BY_FAMILY, body))
        return found


_LINK_NAME, _LINK_INFO = 3, 18
_INFO_KIND, _INFO_DATA = 1, 2
_VRF_TABLE = 1
_ADDRESS_ADDRESS, _ADDRESS_LOCAL = 1, 2
_ROUTE_TO, _ROUTE_FROM, _ROUTE_INTERFACE, _ROUTE_MULTIPATH, _ROUTE_TABLE, _ROUTE_MARK = 1, 2, 4, 9, 15, 16
_ROUTE_PROTOCOL, _ROUTE_SPORT, _ROUTE_DPORT = 27, 28, 29
_RULE_MARK, _RULE_DSCP = 10, 25
_SOCKET_MARK = 15
_TUNNEL_ENDS: Final = {
    "gre": (7,),
    "gretap": (7,),
    "ip6gre": (7,),
    "ip6gretap": (7,),
    "ipip": (3,),
    "ip6tnl": (3,),
    "sit": (3,),
    "vxlan": (2, 16),
    "geneve": (2, 7),
}
"""Attributes of IFLA_INFO_DATA with the remote end of a tunnel."""
_TUNNEL_MARKS: Final = {"gre": 20, "gretap": 20, "ip6gre": 20, "ip6gretap": 20, "ipip": 20, "ip6tnl": 20, "sit": 20}
"""Attribute of IFLA_INFO_DATA with the mark."""


def _lookup(packet: Packet) -> bytes:
    """struct rtmsg with the known properties of a packet."""
    bits, source = packet.to.max_prefixlen, packet.source
    body = struct.pack("=8BI", _FAMILIES[packet.to.version], bits, bits if source else 0, packet.service, *[0] * 5)
    body += netlink.attribute(_ROUTE_TO, packet.to.packed)
    if source:
        body += netlink.attribute(_ROUTE_FROM, source.packed)
    for kind, value in ((_ROUTE_INTERFACE, packet.interface), (_ROUTE_MARK, packet.mark)):
        if value:
            body += netlink.attribute(kind, struct.pack("=I", value))
    if any(packet.ports):
        body += netlink.attribute(_ROUTE_PROTOCOL, bytes([socket.IPPROTO_TCP]))
    for kind, port in zip((_ROUTE_SPORT, _ROUTE_DPORT), packet.ports, strict=True):
        if port:
            body += netlink.attribute(kind, struct.pack("!H", port))
    return body


def _link(row: bytes) -> Link:
    index, flags = struct.unpack_from("=iI", row, 4)
    content = netlink.attributes(row[16:])
    info = netlink.attributes(content.get(_LINK_INFO, b""))
    kind, data = netlink.word(info.get(_INFO_KIND)), netlink.attributes(info.get(_INFO_DATA, b""))
    ends = [data[each] for each in _TUNNEL_ENDS.get(kind, ()) if any(data.get(each, b""))]
    return Link(
        index,
        netlink.word(content.get(_LINK_NAME)),
        kind,
        bool(flags & _LOWER_UP),
        netlink.number(data.get(_VRF_TABLE)) if kind == "vrf" else 0,
        tuple(map(ip_address, ends)),
        netlink.number(data.get(_TUNNEL_MARKS.get(kind, -1))),
    )


def _hops(data: bytes) -> Iterator[tuple[int, int]]:
    """Flags and interface of each next hop (struct rtnexthop)."""
    while len(data) >= 8:
        length, flags, _, index = struct.unpack_from("=HBBi", data)
        if length < 8:
            return
        yield flags, index
        data = data[(length + 3) & ~3 :]


def _connection(row: bytes) -> Connection:
    """A connection from struct inet_diag_msg."""
    own, other = (int.from_bytes(row[at : at + 2], "big") for at in (4, 6))
    addresses = [plain(ip_address(row[at : at + (4 if row[0] == socket.AF_INET else 16)])) for at in (8, 24)]
    mark = netlink.number(netlink.attributes(row[72:]).get(_SOCKET_MARK))
    return Connection(addresses[0], own, addresses[1], other, netlink.number(row[40:44]), mark)


def plain(address: Address) -> Address:
    """An address without scope; an IPv4-mapped IPv6 address (::ffff:...) as IPv4."""
    if isinstance(address, IPv4Address):
        return address
    return address.ipv4_mapped or IPv6Address(address.packed)


_CONTROL, _GET_FAMILY, _FAMILY_ID, _FAMILY_NAME = 0x10, 3, 1, 2
_GET_DEVICE = 0
_DEVICE_INDEX, _DEVICE_MARK, _DEVICE_PEERS = 1, 7, 8
_PEER_ENDPOINT = 4


def _wireguard(index: int) -> tuple[tuple[Address, ...], int]:
    """Endpoints of a WireGuard interface's peers, and the mark."""
    name = netlink.attribute(_FAMILY_NAME, b"wireguard\0")
    control = netlink.ask(netlink.GENERIC, _CONTROL, struct.pack("=BBxx", _GET_FAMILY, 1) + name)
    family = netlink.number(netlink.attributes(control[4:]).get(_FAMILY_ID))
    ends, mark = [], 0
    question = struct.pack("=BBxx", _GET_DEVICE, 1) + netlink.attribute(_DEVICE_INDEX, struct.pack("=I", index))
    # The list of peers may span several messages.
    for row in netlink.dump(netlink.GENERIC, family, question):
        device = netlink.attributes(row[4:])
        mark = netlink.number(device.get(_DEVICE_MARK)) or mark
        for _, peer in netlink.each(device.get(_DEVICE_PEERS, b"")):
            end = netlink.attributes(peer).get(_PEER_ENDPOINT, b"")
            if len(end) >= 16:
                is_four = netlink.number(end[:2]) == socket.AF_INET
                ends.append(plain(ip_address(end[4:8] if is_four else end[8:24])))
    return tuple(ends), mark
