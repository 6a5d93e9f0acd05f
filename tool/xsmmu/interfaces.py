# SPDX-License-Identifier: GPL-2.0-only
"""What a rebind takes from network interfaces: addresses, routes, MTU, VLANs, a place in a bond or bridge.

The kernel says it by netlink (rtnetlink(7)), of the network namespace that the tool runs in.
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
"""The kernel has made an address of what a router told (IFAPROT_KERNEL_RA), or of the link (IFAPROT_KERNEL_LL)."""
_NO_DAD, _PERMANENT, _NO_PREFIX_ROUTE = 0x02, 0x80, 0x200

_DST, _OIF, _GATEWAY, _PRIORITY, _SOURCE, _METRICS, _MULTIPATH, _CACHE, _TABLE, _VIA, _PREFERENCE = (
    *(1, 4, 5, 6, 7, 8, 9, 12, 15),
    *(18, 20),
)
_RESTORED: Final = {_DST, _OIF, _GATEWAY, _PRIORITY, _SOURCE, _METRICS, _CACHE, _TABLE, _VIA, _PREFERENCE}
"""What a route may have and still be given back; _CACHE says nothing of the route itself."""
_METRIC_WORDS: Final = {2: "mtu", 3: "window", 8: "advmss", 11: "initcwnd", 14: "initrwnd"}
_UNICAST, _BY_KERNEL, _STATIC, _CLONED, _ON_LINK = 1, 2, 4, 0x200, 4
_BY_HAND: Final = {_BY_KERNEL: " proto kernel", 3: "", _STATIC: " proto static"}
"""The protocols boot and static: of routes that scripts, people and configuration set; and kernel, see _add_route()."""
_MAIN: Final = 254

_UP: Final = 1
_ETHERNET, _MTU = "1", "1500"
_SET: Final = "3"
"""An address that was set (NET_ADDR_SET), in addr_assign_type."""
_SWITCH: Final = "ovs-system"
"""The master of all ports of Open vSwitch, which only its own tools add a port to."""
_NAMED: Final = 10
"""How many addresses, and how many routes, of an interface are named and given back."""


class Route(NamedTuple):
    """A route, or one way of a route that has several."""

    body: bytes
    words: Mapping[int, bytes]
    way: str

    @property
    def table(self) -> int:
        """The number of its table."""
        return netlink.number(self.words.get(_TABLE)) or self.body[4]

    @property
    def by_hand(self) -> bool:
        """Whether it is of a protocol that is given back."""
        return self.body[5] in _BY_HAND

    @property
    def key(self) -> tuple[object, ...]:
        """What `ip route replace` looks a route up by."""
        family, length, _, tos = self.body[:4]
        return (family, length, tos, self.table, self.words.get(_DST), self.words.get(_PRIORITY))

    @property
    def network(self) -> IPv4Network | IPv6Network | None:
        """The addresses that it is for; None for all."""
        return ip_network((self.words[_DST], self.body[1])) if _DST in self.words else None

    @property
    def to(self) -> str:
        """The same as text."""
        return f"{ip_address(self.words[_DST])}/{self.body[1]}" if _DST in self.words else "default"

    @property
    def text(self) -> str:
        """As it is named."""
        return f"{self.to}{self.way}" + (f" table {self.table}" if self.table != _MAIN else "")


@dataclass
class Loss:
    """What one interface has, and will not have when its driver was unbound."""

    name: str
    number: int
    is_up: bool
    under: str | None = None
    """The interface that it goes with, as a VLAN does; None of one that the driver makes."""
    master: str | None = None
    mtu: str | None = None
    """If it is not the usual one of Ethernet, which a driver begins with."""
    mac: str | None = None
    """If somebody has set it, but for that of a bond, which gives it to all that the bond has."""
    addresses: list[str] = field(default_factory=list)
    routes: list[Route] = field(default_factory=list)
    """The first of them are those that people or configuration set."""
    commands: list[str] = field(default_factory=list)
    """What gives back, in order, what people or configuration set."""
    left: list[str] = field(default_factory=list)
    """What the commands do not give back."""
    near: list[IPv4Network | IPv6Network] = field(default_factory=list)
    """The addresses that are reached without a gateway after the commands."""
    own: set[IPv4Network | IPv6Network] = field(default_factory=set)
    """The addresses that the kernel has routes to because of the interface's own ones."""
    leased: set[bytes] = field(default_factory=set)
    """The addresses that the commands do not give back."""

    @property
    def text(self) -> str | None:
        """What is lost; None if nothing is."""
        parts = [f"addresses {_few(self.addresses)}"] if self.addresses else []
        routes = [route.text for route in self.routes[:_NAMED]]
        parts += [f"routes {_few(routes, len(self.routes) - len(routes))}"] if routes else []
        parts += [f"MTU {self.mtu}"] if self.mtu and not self.under else []
        parts += [f"MAC address {self.mac}"] if self.mac and not self.under else []
        said = [f"goes with {shown(self.under)}"] if self.under else ["is left down"] if self.is_up else []
        said += [f"leaves {shown(self.master)}"] if self.master else []
        said += [f"loses its {' and its '.join(parts)}"] if parts else []
        return f"{shown(self.name)} {', '.join(said)}" if said else None


def _few(texts: Sequence[str], more: int = 0) -> str:
    """The first of some texts, and how many more there are; `more` beside these."""
    more += max(len(texts) - _NAMED, 0)
    return ", ".join(texts[:_NAMED]) + (f" and {more} more" if more else "")


def notes(devices: Sequence[Device], has_after: bool) -> list[str]:
    """What is to be said before these devices are unbound, a line each."""
    try:
        found = losses(devices)
    except OSError as error:
        return [f"addresses and routes that go with it are not known: the kernel does not list them ({error.strerror})"]
    said = [loss.text for loss in found if loss.text]
    commands = [command for loss in found for command in loss.commands]
    if commands and not has_after:
        hook = shlex.quote(" && ".join(commands))
        if hook != shown(hook):
            return [*said, "no --after is printed, as a terminal cannot show one of these names: set that by hand"]
        said.append(f"if nothing on this machine sets that again by itself, add --after {hook}")
        left = [shown(text) for loss in found for text in loss.left]
        if left:
            more = sum(max(len(loss.routes) - _NAMED, 0) for loss in found if not loss.under)
            said.append(f"that --after does not give back {_few(left, more)}")
    return said


def losses(devices: Sequence[Device]) -> list[Loss]:
    """What the interfaces of these devices have, and those that go with them."""
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
    """An interface, and those above it that the kernel removes with it: all but its master."""
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
        loss.left.append(f"the place of {link.name} in Open vSwitch")
    elif master:
        loss.commands.append(f"ip link set {name} master {shlex.quote(master)}")
    if machine.text(link / "master/bridge/vlan_filtering") == "1" and not under:
        loss.left.append(f"the VLANs of {link.name} in {master} (bridge vlan show dev {name})")
    if loss.mac and not under:
        # Some drivers change it only while the interface is down.
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
        # The kernel gives it anew; people set others, as fe80::1 of a router.
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
    # NetworkManager makes the routes to the networks of its addresses itself, and says that the kernel did.
    if protocol == _BY_KERNEL and (family != socket.AF_INET or not loss or route.network in loss.own):
        return
    times[route.key] += 1
    for number, way in _ways(words.get(_MULTIPATH, b"")):
        if number in found:
            found[number].routes.append(route._replace(way=way))
    if loss:
        loss.routes.append(route._replace(way=_way(words)))


def _give_routes(loss: Loss, times: Counter[tuple[object, ...]]) -> None:
    """The commands for those that are named: the ones without a gateway first, since others may need them."""
    loss.routes.sort(key=lambda route: (not route.by_hand, route.body[1]))
    if loss.under:
        return
    named = loss.routes[:_NAMED]
    for route in sorted(named, key=lambda route: route.way != ""):
        # Of several that `ip route replace` cannot tell apart it may replace another one.
        command = _command(loss, route) if times[route.key] == 1 else None
        if command:
            loss.commands.append(command)
        else:
            loss.left.append(f"{route.text} of {loss.name}")


def _command(loss: Loss, route: Route) -> str | None:
    """What gives a route back; None if that would fail, or would not give all that the route has."""
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
    """Whether the kernel takes a route after the commands so far, by its gateway and its source."""
    source, gateway = words.get(_SOURCE, b""), words.get(_GATEWAY)
    # An IPv6 address is none to send from until the kernel has looked for another holder.
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
    """Each next hop of a route with several: its interface, and its gateway."""
    while len(text) >= 8:
        size, _, _, number = struct.unpack_from("=HBBi", text)
        yield number, _way(netlink.attributes(text[8:size]))
        text = text[max((size + 3) & ~3, 8) :]
