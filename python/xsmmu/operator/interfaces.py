# SPDX-License-Identifier: GPL-2.0-only
"""What a rebind takes from network interfaces: addresses, routes, VLANs, a place in a bond or bridge.

The kernel says it by netlink (rtnetlink(7)), of the network namespace that the tool runs in.
"""

from __future__ import annotations

import shlex
import socket
import struct
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from ipaddress import ip_address
from pathlib import Path
from typing import Final

from xsmmu.operator import machine, netlink
from xsmmu.operator.machine import Device, shown

_GET_ADDRESSES, _GET_ROUTES = 22, 26
_FAMILIES: Final = {socket.AF_INET, socket.AF_INET6}

_ADDRESS, _LOCAL, _BROADCAST, _FLAGS = 1, 2, 4, 8
_PERMANENT, _NO_PREFIX_ROUTE = 0x80, 0x200

_DST, _OIF, _GATEWAY, _PRIORITY, _SOURCE, _MULTIPATH, _TABLE, _VIA = 1, 4, 5, 6, 7, 9, 15, 18
_UNICAST, _BY_KERNEL, _BY_ROUTER, _CLONED, _ON_LINK = 1, 2, 9, 0x200, 4
_MAIN: Final = 254

_UP: Final = 1


@dataclass
class Loss:
    """What one interface has, and will not have when its driver was unbound."""

    name: str
    number: int
    is_up: bool
    under: str | None = None
    """The interface that it goes with, as a VLAN does; None of one that the driver makes."""
    master: str | None = None
    addresses: list[str] = field(default_factory=list)
    routes: list[str] = field(default_factory=list)
    commands: list[str] = field(default_factory=list)
    """What gives them again, in order; nothing of what routers or DHCP give."""

    @property
    def text(self) -> str | None:
        """What is lost; None if nothing is."""
        parts = [f"addresses {', '.join(self.addresses)}"] if self.addresses else []
        parts += [f"routes {', '.join(self.routes)}"] if self.routes else []
        said = [f"goes with {shown(self.under)}"] if self.under else ["is left down"] if self.is_up else []
        said += [f"leaves {shown(self.master)}"] if self.master else []
        said += [f"loses its {' and its '.join(parts)}"] if parts else []
        return f"{shown(self.name)} {', '.join(said)}" if said else None


def notes(devices: Sequence[Device], has_after: bool) -> list[str]:
    """What is to be said before these devices are unbound, a line each."""
    try:
        found = losses(devices)
    except OSError as error:
        return [f"addresses and routes that go with it are not known: the kernel does not list them ({error.strerror})"]
    said = [loss.text for loss in found if loss.text]
    commands = [command for loss in found for command in loss.commands]
    if commands and not has_after:
        hook = shown(shlex.quote("; ".join(commands)))
        said.append(f"if nothing on this machine sets that again by itself, add --after {hook}")
    return said


def losses(devices: Sequence[Device]) -> list[Loss]:
    """What the interfaces of these devices have, and those that go with them."""
    links = [link for device in devices for link in device.links if link.parent.name == "net"]
    found = {loss.number: loss for link in links for loss in _with_uppers(link, None)}
    if not found:
        return []
    for body in netlink.dump(netlink.ROUTE, _GET_ADDRESSES, bytes(8)):
        _add_address(found, body)
    routes = netlink.dump(netlink.ROUTE, _GET_ROUTES, bytes(12))
    for body in sorted(routes, key=lambda body: _GATEWAY in netlink.attributes(body[12:])):
        _add_route(found, body)
    return list(found.values())


def _with_uppers(link: Path, under: str | None) -> Iterator[Loss]:
    """An interface, and those above it that the kernel removes with it: all but its master."""
    number = machine.text(link / "ifindex")
    if not number:
        return
    master = machine.name_at(link / "master")
    is_up = bool(int(machine.text(link / "flags") or "0", 16) & _UP)
    loss = Loss(link.name, int(number), is_up, under, master)
    name = shlex.quote(link.name)
    if not under and master:
        loss.commands.append(f"ip link set {name} master {shlex.quote(master)}")
    if not under and is_up:
        loss.commands.append(f"ip link set {name} up")
    yield loss
    for upper in sorted(link.glob("upper_*")):
        called = upper.name.removeprefix("upper_")
        if called != master:
            yield from _with_uppers(machine.sysfs() / "class/net" / called, link.name)


# ---- addresses and routes ----


def _add_address(found: Mapping[int, Loss], body: bytes) -> None:
    family, length, flags, _, number = struct.unpack_from("=BBBBI", body)
    loss = found.get(number)
    if not loss or family not in _FAMILIES:
        return
    words = netlink.attributes(body[8:])
    own = ip_address(words.get(_LOCAL) or words[_ADDRESS])
    if own.is_link_local and own.version == 6:
        # The kernel gives it anew.
        return
    flags = netlink.number(words.get(_FLAGS)) or flags
    other = ip_address(words.get(_ADDRESS, own.packed))
    text = f"{own}/{length}" if other == own else f"{own} peer {other}/{length}"
    loss.addresses.append(text)
    if flags & _PERMANENT and not loss.under:
        more = " brd +" if _BROADCAST in words else ""
        more += " noprefixroute" if flags & _NO_PREFIX_ROUTE else ""
        loss.commands.append(f"ip addr add {text}{more} dev {shlex.quote(loss.name)}")


def _add_route(found: Mapping[int, Loss], body: bytes) -> None:
    family, length, _, _, table, protocol, _, kind, flags = struct.unpack_from("=BBBBBBBBI", body)
    if family not in _FAMILIES or kind != _UNICAST or protocol == _BY_KERNEL or flags & _CLONED:
        return
    words = netlink.attributes(body[12:])
    table = netlink.number(words.get(_TABLE)) or table
    to = f"{ip_address(words[_DST])}/{length}" if _DST in words else "default"
    text = f"{to}{_way(words)}" + (f" table {table}" if table != _MAIN else "")
    if _MULTIPATH in words:
        for number, way in _ways(words[_MULTIPATH]):
            if number in found:
                found[number].routes.append(f"{text}{way}")
        return
    loss = found.get(netlink.number(words.get(_OIF)))
    if not loss:
        return
    loss.routes.append(text)
    if protocol != _BY_ROUTER and not loss.under:
        more = f" metric {netlink.number(words[_PRIORITY])}" if _PRIORITY in words else ""
        more += f" src {ip_address(words[_SOURCE])}" if _SOURCE in words else ""
        more += " onlink" if flags & _ON_LINK else ""
        version = " -6" if family == socket.AF_INET6 else ""
        loss.commands.append(f"ip{version} route add {text} dev {shlex.quote(loss.name)}{more}")


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
