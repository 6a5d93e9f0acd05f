# SPDX-License-Identifier: GPL-2.0-only
"""Settings that interfaces lose in a rebind: addresses, routes, MTU, VLANs, and membership in a bond or bridge.

Read by netlink (rtnetlink(7)) in the tool's network namespace.
"""

from __future__ import annotations

import shlex
import socket
import struct
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from ipaddress import IPv4Network, IPv6Network, ip_address, ip_network
from pathlib import Path
from typing import Final, NamedTuple

from xsmmu import machine, netlink
from xsmmu.machine import Device, shown

_GET_ADDRESSES, _GET_ROUTES = 22, 26
_FAMILIES: Final = {socket.AF_INET, socket.AF_INET6}

_ADDRESS, _LOCAL, _LABEL, _BROADCAST, _FLAGS, _METRIC, _MADE_BY = 1, 2, 3, 4, 8, 9, 11
_OF_ROUTER, _OF_LINK = 2, 3
"""Addresses made by the kernel: from router advertisements (IFAPROT_KERNEL_RA), or link-local (IFAPROT_KERNEL_LL)."""
_NO_DAD, _PERMANENT, _NO_PREFIX_ROUTE = 0x02, 0x80, 0x200

_DST, _OIF, _GATEWAY, _PRIORITY, _SOURCE, _METRICS, _MULTIPATH, _CACHE, _TABLE, _VIA, _PREFERENCE = (
    *(1, 4, 5, 6, 7, 8, 9, 12, 15),
    *(18, 20),
)
_RESTORED: Final = {_DST, _OIF, _GATEWAY, _PRIORITY, _SOURCE, _METRICS, _CACHE, _TABLE, _VIA, _PREFERENCE}
"""Attributes that `ip route replace` can restore; _CACHE is no property of the route."""
_METRIC_WORDS: Final = {2: "mtu", 3: "window", 8: "advmss", 11: "initcwnd", 14: "initrwnd"}
_UNICAST, _BY_KERNEL, _STATIC, _CLONED, _ON_LINK = 1, 2, 4, 0x200, 4
_BY_HAND: Final = {_BY_KERNEL: " proto kernel", 3: "", _STATIC: " proto static"}
"""Protocols of routes that people, scripts or configuration set; for kernel see _add_route()."""
_MAIN: Final = 254

_UP: Final = 1
_ETHERNET, _MTU = "1", "1500"
_SET: Final = "3"
"""Value of addr_assign_type for an address set by a user (NET_ADDR_SET)."""
_SWITCH: Final = "ovs-system"
"""Master of all Open vSwitch ports; only Open vSwitch's own tools add ports."""
_NAMED: Final = 10
"""Largest number of addresses, and of routes, per interface that are named and restored."""


class Route(NamedTuple):
    """A route, or a next hop of a multipath route."""

    body: bytes
    words: Mapping[int, bytes]
    way: str

    @property
    def table(self) -> int:
        """Number of the routing table."""
        return netlink.number(self.words.get(_TABLE)) or self.body[4]

    @property
    def by_hand(self) -> bool:
        """Whether the route's protocol is restored."""
        return self.body[5] in _BY_HAND

    @property
    def key(self) -> tuple[object, ...]:
        """Attributes that identify a route for `ip route replace`."""
        family, length, _, tos = self.body[:4]
        return (family, length, tos, self.table, self.words.get(_DST), self.words.get(_PRIORITY))

    @property
    def network(self) -> IPv4Network | IPv6Network | None:
        """Destination network; None for a default route."""
        return ip_network((self.words[_DST], self.body[1])) if _DST in self.words else None

    @property
    def to(self) -> str:
        """Destination as text."""
        return f"{ip_address(self.words[_DST])}/{self.body[1]}" if _DST in self.words else "default"

    @property
    def text(self) -> str:
        """The route as text."""
        return f"{self.to}{self.way}" + (f" table {self.table}" if self.table != _MAIN else "")


@dataclass
class Loss:
    """Settings that an interface has, and loses when its driver is unbound."""

    name: str
    number: int
    is_up: bool
    under: str | None = None
    """Lower interface for an interface on top, such as a VLAN; None for an interface of a driver."""
    master: str | None = None
    mtu: str | None = None
    """MTU unless it is Ethernet's default."""
    mac: str | None = None
    """MAC address set by a user; None for ports of a bond, which sets the address."""
    addresses: list[str] = field(default_factory=list)
    routes: list[Route] = field(default_factory=list)
    """Routes; routes set by people or configuration come first."""
    commands: list[str] = field(default_factory=list)
    """Commands that restore settings of people or configuration, in order."""
    left: list[str] = field(default_factory=list)
    """Settings that the commands do not restore."""
    near: list[IPv4Network | IPv6Network] = field(default_factory=list)
    """Networks reachable without a gateway after the commands."""
    own: set[IPv4Network | IPv6Network] = field(default_factory=set)
    """Networks with kernel routes for the interface's addresses."""
    leased: set[bytes] = field(default_factory=set)
    """Addresses that the commands do not restore."""

    @property
    def text(self) -> str | None:
        """Description of the losses; None without losses."""
        parts = [f"addresses {_few(self.addresses)}"] if self.addresses else []
        routes = [route.text for route in self.routes[:_NAMED]]
        parts += [f"routes {_few(routes, len(self.routes) - len(routes))}"] if routes else []
        parts += [f"MTU {self.mtu}"] if self.mtu and not self.under else []
        parts += [f"MAC address {self.mac}"] if self.mac and not self.under else []
        said = [f"disappears with {shown(self.under)}"] if self.under else ["is left down"] if self.is_up else []
        said += [f"leaves {shown(self.master)}"] if self.master else []
        said += [f"loses its {' and its '.join(parts)}"] if parts else []
        return f"{shown(self.name)} {', '.join(said)}" if said else None


def _few(texts: Sequence[str], more: int = 0) -> str:
    """The first texts, and the number of further texts; `more` is added to the number."""
    more += max(len(texts) - _NAMED, 0)
    return ", ".join(texts[:_NAMED]) + (f" and {more} more" if more else "")


def notes(devices: Sequence[Device], has_after: bool) -> list[str]:
    """Notes about losses before these devices are unbound, a line each."""
    try:
        found = losses(devices)
    except OSError as error:
        return [f"addresses and routes that disappear are unknown: the kernel does not list them ({error.strerror})"]
    said = [loss.text for loss in found if loss.text]
    commands = [command for loss in found for command in loss.commands]
    if commands and not has_after:
        hook = shlex.quote(" && ".join(commands))
        if hook != shown(hook):
            return [
                *said,
                "no --after is suggested, because a terminal cannot show a name in it: restore the settings by hand",
            ]
        said.append(f"unless this machine restores the settings by itself, add --after {hook}")
        left = [shown(text) for loss in found for text in loss.left]
        if left:
            more = sum(max(len(loss.routes) - _NAMED, 0) for loss in found if not loss.under)
            said.append(f"--after does not restore {_few(left, more)}")
    return said


def losses(devices: Sequence[Device]) -> list[Loss]:
    """Losses of the devices' interfaces, and of interfaces on top."""
    links = [link for device in devices for link in device.links if link.parent.name == "net"]
    found = {loss.number: loss for link in links for loss in _with_uppers(link, None)}
    if not found:
        return []
    for body in netlink.dump(netlink.ROUTE, _GET_ADDRESSES, bytes(8)):
        _add_address(found, body)
    times: Counter[tuple[object, ...]] = Counter()
    for body in netlink.dump(netlink.ROUTE, _GET_ROUTES, bytes(12)):
        _add_route(found, times, body)
    for loss in found.values():
        _give_routes(loss, times)
    return list(found.values())


def _with_uppers(link: Path, under: str | None) -> Iterator[Loss]:
    """An interface, and the upper interfaces that the kernel removes with it; a master stays."""
    number = machine.text(link / "ifindex")
    if not number:
        return
    master = machine.name_at(link / "master")
    is_up = bool(int(machine.text(link / "flags") or "0", 16) & _UP)
    mtu = machine.text(link / "mtu") if machine.text(link / "type") == _ETHERNET else None
    is_set = machine.text(link / "addr_assign_type") == _SET and not (link / "bonding_slave").exists()
    mac = machine.text(link / "address") if is_set else None
    loss = Loss(link.name, int(number), is_up, under, master, mtu if mtu != _MTU else None, mac)
    name = shlex.quote(link.name)
    if under:
        loss.left.append(link.name)
    elif master == _SWITCH:
        loss.left.append(f"the port {link.name} of Open vSwitch")
    elif master:
        loss.commands.append(f"ip link set {name} master {shlex.quote(master)}")
    if machine.text(link / "master/bridge/vlan_filtering") == "1" and not under:
        loss.left.append(f"the VLANs of {link.name} in {master} (bridge vlan show dev {name})")
    if loss.mac and not under:
        # Some drivers accept a new MAC address only while the interface is down.
        loss.left.append(f"the MAC address of {link.name}")
    if not under and loss.mtu:
        loss.commands.append(f"ip link set {name} mtu {loss.mtu}")
    if not under and is_up:
        loss.commands.append(f"ip link set {name} up")
    yield loss
    for upper in sorted(link.glob("upper_*")):
        called = upper.name.removeprefix("upper_")
        if called != master:
            yield from _with_uppers(machine.sysfs() / "class/net" / called, link.name)


# ---- addresses and routes ----


def _add_address(found: Mapping[int, Loss], body: bytes) -> None:
    family, length, flags, scope, number = struct.unpack_from("=BBBBI", body)
    loss = found.get(number)
    if not loss or family not in _FAMILIES:
        return
    words = netlink.attributes(body[8:])
    own = ip_address(words.get(_LOCAL) or words[_ADDRESS])
    made_by = netlink.number(words.get(_MADE_BY))
    if made_by == _OF_LINK:
        # The kernel makes its link-local address again. Other link-local addresses, such as fe80::1 of a router, are
        # kept.
        return
    flags = netlink.number(words.get(_FLAGS)) or flags
    other = ip_address(words.get(_ADDRESS, own.packed))
    text = f"{own}/{length}" if other == own else f"{own} peer {other}/{length}"
    loss.addresses.append(text)
    network = ip_network((other, length), strict=False)
    if not flags & _NO_PREFIX_ROUTE:
        loss.own.add(network)
    if loss.under:
        return
    if not flags & _PERMANENT or made_by == _OF_ROUTER or len(loss.addresses) > _NAMED:
        loss.leased.add(own.packed)
        loss.left.append(f"{text} of {loss.name}")
        return
    if not flags & _NO_PREFIX_ROUTE:
        loss.near.append(network)
    more = " brd +" if _BROADCAST in words else ""
    more += f" scope {scope}" if scope and own.version == 4 else ""
    label = netlink.word(words.get(_LABEL))
    more += f" label {shlex.quote(label)}" if label not in ("", loss.name) else ""
    more += f" metric {netlink.number(words[_METRIC])}" if _METRIC in words else ""
    more += " nodad" if flags & _NO_DAD else ""
    more += " noprefixroute" if flags & _NO_PREFIX_ROUTE else ""
    loss.commands.append(f"ip addr replace {text}{more} dev {shlex.quote(loss.name)}")


def _add_route(found: Mapping[int, Loss], times: Counter[tuple[object, ...]], body: bytes) -> None:
    family, _, _, _, _, protocol, _, kind, flags = struct.unpack_from("=BBBBBBBBI", body)
    if family not in _FAMILIES or kind != _UNICAST or flags & _CLONED:
        return
    words = netlink.attributes(body[12:])
    route = Route(body, words, "")
    loss = found.get(netlink.number(words.get(_OIF)))
    # NetworkManager makes routes for its addresses and labels them proto kernel.
    if protocol == _BY_KERNEL and (family != socket.AF_INET or not loss or route.network in loss.own):
        return
    times[route.key] += 1
    for number, way in _ways(words.get(_MULTIPATH, b"")):
        if number in found:
            found[number].routes.append(route._replace(way=way))
    if loss:
        loss.routes.append(route._replace(way=_way(words)))


def _give_routes(loss: Loss, times: Counter[tuple[object, ...]]) -> None:
    """Commands for the named routes: routes without a gateway first, because other routes may depend on them."""
    loss.routes.sort(key=lambda route: (not route.by_hand, route.body[1]))
    if loss.under:
        return
    named = loss.routes[:_NAMED]
    for route in sorted(named, key=lambda route: route.way != ""):
        # `ip route replace` may replace the wrong route if several have the same key.
        command = _command(loss, route) if times[route.key] == 1 else None
        if command:
            loss.commands.append(command)
        else:
            loss.left.append(f"{route.text} of {loss.name}")


def _command(loss: Loss, route: Route) -> str | None:
    """Command that restores a route; None if the command would fail or lose attributes."""
    words, flags = route.words, netlink.number(route.body[8:12])
    metrics = netlink.attributes(words.get(_METRICS, b""))
    is_known = words.keys() <= _RESTORED and metrics.keys() <= _METRIC_WORDS.keys() and not route.body[2]
    if not route.by_hand or not is_known or any(words.get(_PREFERENCE, b"")) or not _works(loss, words, flags):
        return None
    if not route.way and _DST in words:
        loss.near.append(ip_network((words[_DST], route.body[1])))
    more = _BY_HAND[route.body[5]]
    more += f" tos {route.body[3]:#x}" if route.body[3] else ""
    more += f" metric {netlink.number(words[_PRIORITY])}" if _PRIORITY in words else ""
    more += f" src {ip_address(words[_SOURCE])}" if _SOURCE in words else ""
    more += "".join(f" {_METRIC_WORDS[kind]} {netlink.number(value)}" for kind, value in metrics.items())
    more += " onlink" if flags & _ON_LINK else ""
    version = " -6" if route.body[0] == socket.AF_INET6 else ""
    return f"ip{version} route replace {route.text} dev {shlex.quote(loss.name)}{more}"


def _works(loss: Loss, words: Mapping[int, bytes], flags: int) -> bool:
    """Whether the kernel accepts the route's gateway and source after the commands so far."""
    source, gateway = words.get(_SOURCE, b""), words.get(_GATEWAY)
    # An IPv6 address is unusable as source until duplicate address detection ends.
    if source in loss.leased or len(source) == 16:
        return False
    if not gateway or flags & _ON_LINK:
        return True
    to = ip_address(gateway)
    return (to.version == 6 and to.is_link_local) or any(to in each for each in loss.near)


def _way(words: Mapping[int, bytes]) -> str:
    if _GATEWAY in words:
        return f" via {ip_address(words[_GATEWAY])}"
    return f" via inet6 {ip_address(words[_VIA][2:])}" if _VIA in words else ""


def _ways(text: bytes) -> Iterator[tuple[int, str]]:
    """Interface and gateway of each next hop of a multipath route."""
    while len(text) >= 8:
        size, _, _, number = struct.unpack_from("=HBBi", text)
        yield number, _way(netlink.attributes(text[8:size]))
        text = text[max((size + 3) & ~3, 8) :]
