# SPDX-License-Identifier: GPL-2.0-only
"""Which PCI devices carry the packets of an interface: what stands below it is followed down to devices.

`stops()` has three answers, as the kernel does not say of each interface where its packets leave: those of a tunnel
that a program runs, or of one end of a pair whose other end is in another network namespace.
"""

from __future__ import annotations

from xsmmu import machine
from xsmmu.routing import Packet, View

_REDUNDANT = ("bond", "team")
"""Kinds of interfaces that work as long as one of those below does."""
_SWITCH = "openvswitch"
"""The kind of a datapath of Open vSwitch, and of its ports of the machine's own. Only flows say which port is used."""


def stops(view: View, name: str, taken: set[str], seen: tuple[str, ...] = ()) -> bool | None:
    """Whether an interface stops to work without these PCI devices; None if the kernel does not say."""
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
        # What has no device, as a guest's port of a bridge, does not keep it.
        return (all(known) if kind in _REDUNDANT else any(known)) if known else None
    if (folder / "device").exists() or machine.within(folder):
        return bool({*machine.within(folder)} & taken)
    return _through_tunnel(view, name, taken, seen)


def _is_up(view: View, leg: str) -> bool:
    """Whether a leg has a carrier, and its bond uses it: a bond may watch more than that (ARP), or use other legs."""
    folder = machine.sysfs() / "class/net" / leg
    group = machine.text(folder / "bonding_slave/ad_aggregator_id")
    used = machine.text(folder / "master/bonding/ad_aggregator")
    is_chosen = not used or group == used
    has_carrier = leg not in view.by_name or view.by_name[leg].is_up
    return has_carrier and is_chosen and machine.text(folder / "bonding_slave/mii_status") in (None, "up")


def _below(name: str) -> list[str]:
    return [lower.name.removeprefix("lower_") for lower in (machine.sysfs() / "class/net" / name).glob("lower_*")]


def _through_tunnel(view: View, name: str, taken: set[str], seen: tuple[str, ...]) -> bool | None:
    """The packets that carry those of a tunnel have ways of their own."""
    link = view.by_name.get(name)
    ends, mark = view.ends(link) if link else ((), 0)
    ways = [view.way(Packet(end, mark=mark)) for end in ends]
    legs = [stops(view, way.interface, taken, seen) if way else None for way in ways]
    return True if True in legs else None if None in legs or not legs else False


def is_of_network(devices: set[str]) -> bool:
    """Whether one of these PCI devices is a network's, also where its interface is in another namespace."""
    kinds = {machine.Device(each).number("class") >> 8 for each in devices}
    if any(kind >> 8 == _NETWORK or kind == _INFINIBAND for kind in kinds):
        return True
    return any({*machine.within(link)} & devices for link in (machine.sysfs() / "class/net").glob("*"))


_NETWORK, _INFINIBAND = 0x02, 0x0C06
