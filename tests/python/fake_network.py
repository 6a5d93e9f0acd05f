# SPDX-License-Identifier: GPL-2.0-only
"""A made-up network with the kernel's answers; and disks that something has claimed."""

from __future__ import annotations

import errno
import os
from dataclasses import dataclass, field
from functools import cached_property
from ipaddress import IPv4Network, IPv6Network, ip_address, ip_network
from pathlib import Path
from typing import NamedTuple

from xsmmu.routing import Address, Connection, Default, Link, Packet, View, Way

MAIN = 254


class Route(NamedTuple):
    """A row of a routing table."""

    interface: str
    network: IPv4Network | IPv6Network
    metric: int
    table: int


@dataclass
class Network:
    """The kernel's state; `view()` is a view of it."""

    interfaces: list[Link] = field(default_factory=list)
    table: list[Route] = field(default_factory=list)
    rules: dict[int, int] = field(default_factory=dict)
    """Routing tables by the mark of packets."""
    by_port: dict[int, int] = field(default_factory=dict)
    """Routing tables by a port of packets."""
    by_service: dict[int, int] = field(default_factory=dict)
    """Routing tables by the type of service of packets."""
    addresses: dict[str, list[str]] = field(default_factory=dict)
    connected: list[Connection] | None = field(default_factory=list)
    """None if the kernel cannot be asked."""
    claimed: dict[str, int] = field(default_factory=dict)
    """The error of an exclusive open of a disk, by file."""

    def interface(self, name: str, kind: str = "", **more: object) -> Link:
        """Add an interface."""
        link = Link(len(self.interfaces) + 2, name, kind, **more)  # type: ignore[arg-type]
        self.interfaces.append(link)
        return link

    def route(self, interface: str, network: str = "0.0.0.0/0", metric: int = 0, table: int = MAIN) -> None:
        """Add a route."""
        self.table.append(Route(interface, ip_network(network), metric, table))

    def connect(self, local: str, port: int, remote: str, remote_port: int, bound: Link | None = None) -> None:
        """Add a connection."""
        assert self.connected is not None
        self.connected.append(
            Connection(ip_address(local), port, ip_address(remote), remote_port, bound.number if bound else 0)
        )

    def claim(self, node: Path, _number: str) -> None:
        """Stands in for disks.claim()."""
        if str(node) in self.claimed:
            raise OSError(self.claimed[str(node)], os.strerror(self.claimed[str(node)]))

    def view(self) -> View:
        """A view as the tool uses it."""
        return _Answers(self)


class _Answers(View):
    def __init__(self, network: Network) -> None:
        super().__init__()
        object.__setattr__(self, "network", network)
        self.network: Network

    @cached_property
    def links(self) -> dict[int, Link]:
        """All interfaces, including those that only a route names."""
        found = {link.name: link for link in self.network.interfaces}
        for number, name in enumerate({row.interface: None for row in self.network.table}, 1000):
            found.setdefault(name, Link(number, name))
        return {link.number: link for link in found.values()}

    @cached_property
    def marks(self) -> list[int]:
        """Marks in rules."""
        return sorted(self.network.rules)

    @cached_property
    def services(self) -> list[int]:
        """Types of service in rules."""
        return sorted(self.network.by_service)

    @cached_property
    def defaults(self) -> list[Default]:
        """Default routes of all tables."""
        rows = [row for row in self.network.table if not row.network.prefixlen]
        return [Default(row.table, row.interface, row.network.version) for row in rows]

    def holders(self, address: Address | None) -> list[str]:
        """The interfaces with an address."""
        return [name for name, all_of in self.network.addresses.items() if str(address) in all_of]

    def _asked(self, packet: Packet) -> Way | None:
        bound = self.links.get(packet.interface)
        host = ip_network(packet.to)
        table = (bound and bound.table) or self._table(packet)
        ways = [
            row
            for row in self.network.table
            if row.table == table
            and row.network.version == packet.to.version
            and host.subnet_of(row.network)  # type: ignore[arg-type]
            and (not bound or bound.table or bound.name == row.interface)
        ]
        ways.sort(key=lambda row: (-row.network.prefixlen, row.metric))
        return Way(ways[0].interface) if ways else None

    def _table(self, packet: Packet) -> int:
        ports = [self.network.by_port[port] for port in packet.ports if port in self.network.by_port]
        return next(iter(ports), self.network.by_service.get(packet.service, self.network.rules.get(packet.mark, MAIN)))

    @cached_property
    def connections(self) -> list[Connection]:
        """All connections."""
        if self.network.connected is None:
            raise OSError(errno.ENOENT, os.strerror(errno.ENOENT))
        return self.network.connected
