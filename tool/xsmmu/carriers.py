# SPDX-License-Identifier: GPL-2.0-only
"""PCI devices that carry the packets of an interface, found by descent through the lower interfaces.

`stops()` has three answers because the kernel does not show the path of every interface: tunnels that a program runs,
or a veth whose peer is in another network namespace.
"""

from __future__ import annotations

from xsmmu import machine
from xsmmu.routing import Packet, View

_REDUNDANT = ("bond", "team")
"""Kinds of interfaces that work as long as a lower interface works."""
_SWITCH = "openvswitch"
"""Kind of an Open vSwitch datapath and its internal ports; only flows decide which port a packet takes."""


def stops(view: View, name: str, taken: set[str], seen: tuple[str, ...] = ()) -> bool | None:
    """Whether an interface stops working without the PCI devices in `taken`; None if the kernel does not say."""
    folder = machine.sysfs() / "class/net" / name
    if name in seen or not folder.exists():
        return None
    seen = (*seen, name)
    link = view.by_name.get(name)
    kind = link.kind if link else ""
    below = _below(name)
    if kind == _SWITCH:
        switches = [each.name for each in view.links.values() if each.kind == _SWITCH]
        below = [port for switch in switches for port in _below(switch)]
    if below:
        up = [each for each in below if _is_up(view, each)]
        legs = [stops(view, each, taken, seen) for each in (up if kind in _REDUNDANT and up else below)]
        known = [leg for leg in legs if leg is not None]
        # A port without a device, such as a guest's port of a bridge, does not keep the interface working.
        return (all(known) if kind in _REDUNDANT else any(known)) if known else None
    if (folder / "device").exists() or machine.within(folder):
        return bool({*machine.within(folder)} & taken)
    return _through_tunnel(view, name, taken, seen)


def _is_up(view: View, leg: str) -> bool:
    """Whether a leg has carrier and its bond uses the leg; a bond may monitor ARP, or prefer other legs."""
    folder = machine.sysfs() / "class/net" / leg
    group = machine.text(folder / "bonding_slave/ad_aggregator_id")
    used = machine.text(folder / "master/bonding/ad_aggregator")
    is_chosen = not used or group == used
    has_carrier = leg not in view.by_name or view.by_name[leg].is_up
    return has_carrier and is_chosen and machine.text(folder / "bonding_slave/mii_status") in (None, "up")


def _below(name: str) -> list[str]:
    return [lower.name.removeprefix("lower_") for lower in (machine.sysfs() / "class/net" / name).glob("lower_*")]


def _through_tunnel(view: View, name: str, taken: set[str], seen: tuple[str, ...]) -> bool | None:
    """As stops(), for a tunnel: the encapsulated packets have routes of their own."""
    link = view.by_name.get(name)
    ends, mark = view.ends(link) if link else ((), 0)
    ways = [view.way(Packet(end, mark=mark)) for end in ends]
    legs = [stops(view, way.interface, taken, seen) if way else None for way in ways]
    return True if True in legs else None if None in legs or not legs else False


def is_of_network(devices: set[str]) -> bool:
    """Whether a device is a network card; its interface may be in another network namespace."""
    kinds = {machine.Device(each).number("class") >> 8 for each in devices}
    if any(kind >> 8 == _NETWORK or kind == _INFINIBAND for kind in kinds):
        return True
    return any({*machine.within(link)} & devices for link in (machine.sysfs() / "class/net").glob("*"))


_NETWORK, _INFINIBAND = 0x02, 0x0C06
