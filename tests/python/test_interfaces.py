# SPDX-License-Identifier: GPL-2.0-only
"""A rebind's losses of interfaces are named before: addresses, routes, VLANs, a place in a bond."""

from __future__ import annotations

import json
import os
import socket
import struct
import subprocess
from collections.abc import Iterator
from ipaddress import ip_address
from pathlib import Path

import pytest
from tests.python import fake_kernel
from tests.python.fake_kernel import Kernel, run
from tests.python.sysfs import IGB, make_device

from xsmmu import interfaces, netlink
from xsmmu.machine import Device, shown

V4, V6 = socket.AF_INET, socket.AF_INET6
ADD = "unless this machine restores the settings by itself, add --after"
LEFT = "--after does not restore"
MTU = struct.pack("=I", 1400)


def packed(**words: bytes | int | str) -> bytes:
    """Attributes by their names in interfaces.py; an address is text."""
    text = b""
    for name, value in words.items():
        if isinstance(value, str):
            value = ip_address(value).packed
        elif isinstance(value, int):
            value = struct.pack("=I", value)
        text += struct.pack("=HH", 4 + len(value), getattr(interfaces, f"_{name}")) + value
        text += bytes(-len(text) % 4)
    return text


def address(index: int, text: str, length: int, flags: int = 0x80, **words: int | str) -> bytes:
    """A row of RTM_NEWADDR."""
    family = V6 if ":" in text else V4
    own: dict[str, int | str] = {"ADDRESS": text} if family == V6 else {"ADDRESS": text, "LOCAL": text}
    return struct.pack("=BBBBI", family, length, 0, 0, index) + packed(**{**own, "FLAGS": flags, **words})


def route(
    family: int,
    length: int,
    protocol: int = 3,
    kind: int = 1,
    flags: int = 0,
    tos: int = 0,
    **words: bytes | int | str,
) -> bytes:
    """A row of RTM_NEWROUTE."""
    return struct.pack("=BBBBBBBBI", family, length, 0, tos, 254, protocol, 0, kind, flags) + packed(**words)


class Wires:
    """The netlink answers of a machine whose eth1 belongs to IGB."""

    def __init__(self, kernel: Kernel, monkeypatch: pytest.MonkeyPatch) -> None:
        self.kernel = kernel
        self.addresses: list[bytes] = []
        self.routes: list[bytes] = []
        self.link("eth1", 2)
        monkeypatch.setattr(netlink, "dump", lambda _, kind, __: self.addresses if kind == 22 else self.routes)

    def link(
        self, name: str, index: int, flags: int = 0x1003, above: str | None = None, is_master: bool = False
    ) -> None:
        """An interface; `above`: the interface below a VLAN, or a master's port."""
        folder = self.kernel.sysfs / "class/net" / name
        folder.mkdir(parents=True, exist_ok=True)
        (folder / "ifindex").write_text(f"{index}\n")
        (folder / "flags").write_text(f"{flags:#x}\n")
        if above:
            (self.kernel.sysfs / "class/net" / above / f"upper_{name}").symlink_to(folder)
        if above and is_master:
            (self.kernel.sysfs / "class/net" / above / "master").symlink_to(folder)

    @staticmethod
    def notes(has_after: bool = True) -> list[str]:
        return interfaces.notes([Device(IGB)], has_after)


@pytest.fixture
def wires(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Wires]:
    with fake_kernel.booted(tmp_path, monkeypatch) as kernel:
        yield Wires(kernel, monkeypatch)


def test_dry_run_and_run_name_the_same_before(wires: Wires) -> None:
    wires.addresses = [address(2, "10.0.0.2", 24, BROADCAST="10.0.0.255"), address(3, "10.0.1.2", 24)]
    wires.routes = [route(V4, 0, GATEWAY="10.0.0.1", OIF=2), route(V4, 16, DST="10.9.0.0", OIF=3)]
    words = ("set", "eth1", "fused", "--rebind")
    dry = run(*words, "--dry-run").splitlines()
    assert dry[0] == "# eth1 is left down, loses its addresses 10.0.0.2/24 and its routes default via 10.0.0.1"
    command = " && ".join(
        [
            "ip link set eth1 up",
            "ip addr replace 10.0.0.2/24 brd + dev eth1",
            "ip route replace default via 10.0.0.1 dev eth1",
        ]
    )
    assert dry[1] == f"# unless this machine restores the settings by itself, add --after '{command}'"
    assert json.loads(run(*words, "--dry-run", "-o", "json"))["changes"][0]["notes"] == [line[2:] for line in dry[:2]]
    assert run(*words).splitlines()[:2] == [line[2:] for line in dry[:2]]
    # Repeating the current state takes nothing away, nor does another policy.
    for other in (words, ("set", "eth1", "strict", "--rebind")):
        assert "loses" not in run(*other)
    assert run("unset", "eth1", "--rebind", "--after", "true").splitlines()[0] == dry[0][2:]


def test_what_else_unbinds_names_it_too(wires: Wires, tmp_path: Path) -> None:
    wires.addresses = [address(2, "10.0.0.2", 24)]
    lost = "eth1 is left down, loses its addresses 10.0.0.2/24"
    assert f"# {lost}" in run("bench", "eth1", "--rebind", "--dry-run").splitlines()
    words = ("compare", "eth1", "--output-folder", str(tmp_path / "out"), "--dry-run")
    assert lost in run(*words, "--", "true").splitlines()
    run("set", "eth1", "fused", "--rebind")
    assert lost not in run(*words, "--policies", "strict,fused", "--", "true")
    # Copying begins with a rebind.
    assert lost in run(*words, "--policies", "strict,copy", "--", "true")


@pytest.mark.parametrize(
    ("row", "text", "command"),
    [
        (address(2, "10.0.0.2", 24), "10.0.0.2/24", "10.0.0.2/24 dev eth1"),
        (address(2, "10.0.0.2", 24, 0x280), "10.0.0.2/24", "10.0.0.2/24 noprefixroute dev eth1"),
        (
            struct.pack("=BBBBI", V4, 24, 0, 253, 2)
            + packed(LOCAL="10.0.0.2", FLAGS=0x80, LABEL=b"eth1:7\0", METRIC=50),
            "10.0.0.2/24",
            "10.0.0.2/24 scope 253 label eth1:7 metric 50 dev eth1",
        ),
        (address(2, "2001:db8::2", 64, 0x82), "2001:db8::2/64", "2001:db8::2/64 nodad dev eth1"),
        (
            address(2, "10.0.0.2", 32, ADDRESS="10.0.0.3"),
            "10.0.0.2 peer 10.0.0.3/32",
            "10.0.0.2 peer 10.0.0.3/32 dev eth1",
        ),
        (address(2, "169.254.7.7", 16), "169.254.7.7/16", "169.254.7.7/16 dev eth1"),
        (address(2, "2001:db8::2", 64), "2001:db8::2/64", "2001:db8::2/64 dev eth1"),
        # Of the link itself, as the kernel makes them, but set by a user.
        (address(2, "fe80::1", 64), "fe80::1/64", "fe80::1/64 dev eth1"),
        (address(2, "fe80::1", 64, 0x82, MADE_BY=0), "fe80::1/64", "fe80::1/64 nodad dev eth1"),
        # By DHCP, by a router, a temporary address: these return by themselves.
        (address(2, "2001:db8::2", 64, MADE_BY=2), "2001:db8::2/64", None),
        (address(2, "10.0.0.2", 24, 0), "10.0.0.2/24", None),
        (address(2, "2001:db8::2", 64, 0x101), "2001:db8::2/64", None),
        # The kernel's own, and another interface's.
        (address(2, "fe80::2", 64, MADE_BY=3), None, None),
        (address(3, "10.0.0.2", 24), None, None),
    ],
)
def test_an_address(wires: Wires, row: bytes, text: str | None, command: str | None) -> None:
    wires.link("eth1", 2, 0x1002)
    wires.addresses = [row]
    found = [f"eth1 loses its addresses {text}"] if text else []
    assert wires.notes() == found
    assert [line.partition(" --after ")[2] for line in wires.notes(False)[len(found) :]] == (
        [f"'ip addr replace {command}'"] if command else []
    )


@pytest.mark.parametrize(
    ("row", "text", "command"),
    [
        (route(V4, 16, DST="10.9.0.0", OIF=2), "10.9.0.0/16", "ip route replace 10.9.0.0/16 dev eth1"),
        (
            route(V4, 0, GATEWAY="10.0.0.1", OIF=2, TABLE=7, PRIORITY=5, SOURCE="10.0.0.2"),
            "default via 10.0.0.1 table 7",
            "ip route replace default via 10.0.0.1 table 7 dev eth1 metric 5 src 10.0.0.2",
        ),
        (
            route(V4, 8, 4, tos=16, DST="10.0.0.0", OIF=2, METRICS=netlink.attribute(2, MTU)),
            "10.0.0.0/8",
            "ip route replace 10.0.0.0/8 dev eth1 proto static tos 0x10 mtu 1400",
        ),
        # Routes that an older `ip` cannot express or the kernel would refuse are not restored.
        (route(V4, 8, DST="10.0.0.0", OIF=2, METRICS=netlink.attribute(1, MTU)), "10.0.0.0/8", None),
        (route(V4, 8, DST="10.0.0.0", OIF=2) + netlink.attribute(22, MTU), "10.0.0.0/8", None),
        (route(V6, 0, OIF=2, PREFERENCE=b"\3"), "default", None),
        (route(V6, 0, OIF=2, PREFERENCE=b"\0"), "default", "ip -6 route replace default dev eth1"),
        (route(V6, 0, OIF=2, SOURCE="2001:db8::2"), "default", None),
        (route(V4, 0, OIF=2, GATEWAY="10.7.0.1"), "default via 10.7.0.1", None),
        # By DHCP, bird, zebra, kubelet's redirects.
        *[
            (route(V4, 0, by, OIF=2, GATEWAY="10.0.0.1"), "default via 10.0.0.1", None)
            for by in (1, 8, 11, 12, 16, 186, 196)
        ],
        (
            route(V4, 0, flags=4, GATEWAY="172.16.0.1", OIF=2),
            "default via 172.16.0.1",
            "ip route replace default via 172.16.0.1 dev eth1 onlink",
        ),
        (
            route(V6, 0, GATEWAY="fe80::1", OIF=2),
            "default via fe80::1",
            "ip -6 route replace default via fe80::1 dev eth1",
        ),
        (
            route(V4, 0, OIF=2, VIA=struct.pack("=H", V6) + ip_address("fe80::1").packed),
            "default via inet6 fe80::1",
            "ip route replace default via inet6 fe80::1 dev eth1",
        ),
        # A multipath route, and a route announced by a router.
        (
            route(V4, 8, DST="10.0.0.0", MULTIPATH=struct.pack("=HBBi", 16, 0, 0, 2) + packed(GATEWAY="10.0.0.7")),
            "10.0.0.0/8 via 10.0.0.7",
            None,
        ),
        (route(V6, 0, 9, GATEWAY="fe80::1", OIF=2), "default via fe80::1", None),
        # The kernel makes this route with an address; local, blackhole, cached, another interface's, a multicast route
        # of ipmr.
        (route(V4, 24, 2, DST="10.0.0.0", OIF=2), None, None),
        (route(V4, 32, kind=2, DST="10.0.0.2", OIF=2, TABLE=255), None, None),
        (route(V4, 32, kind=6, DST="10.7.0.0"), None, None),
        (route(V6, 128, flags=0x200, DST="2001:db8::7", OIF=2), None, None),
        (route(V4, 0, GATEWAY="10.0.0.1", OIF=3), None, None),
        (route(128, 0, OIF=2), None, None),
    ],
)
def test_a_route(wires: Wires, row: bytes, text: str | None, command: str | None) -> None:
    wires.link("eth1", 2, 0x1002)
    wires.routes = [row]
    wires.addresses = [address(2, "10.0.0.2", 24)]
    lost = f" and its routes {text}" if text else ""
    given = "ip addr replace 10.0.0.2/24 dev eth1" + (f" && {command}" if command else "")
    assert wires.notes(False) == [
        f"eth1 loses its addresses 10.0.0.2/24{lost}",
        f"{ADD} '{given}'",
        *([f"{LEFT} {text} of eth1"] if text and not command else []),
    ]


def test_a_route_by_a_gateway_comes_after_the_one_to_it(wires: Wires) -> None:
    wires.routes = [route(V4, 0, GATEWAY="10.0.0.1", OIF=2), route(V4, 32, DST="10.0.0.1", OIF=2)]
    after = wires.notes(False)[-1]
    assert after.index("10.0.0.1/32") < after.index("default")


def test_routes_that_network_manager_makes_in_the_kernels_name(wires: Wires) -> None:
    wires.addresses = [address(2, "10.0.0.2", 24, 0x280), address(2, "10.7.0.2", 24), address(2, "10.8.0.2", 24, 0x200)]
    wires.routes = [
        route(V4, 0, 4, GATEWAY="10.0.0.1", OIF=2, PRIORITY=100),
        route(V4, 24, 2, DST="10.0.0.0", OIF=2, PRIORITY=100, SOURCE="10.0.0.2"),
        route(V4, 24, 2, DST="10.7.0.0", OIF=2, SOURCE="10.7.0.2"),
        route(V4, 24, 2, DST="10.8.0.0", OIF=2, SOURCE="10.8.0.2"),
    ]
    lost, after, left = wires.notes(False)
    assert lost.endswith(" and its routes default via 10.0.0.1, 10.0.0.0/24, 10.8.0.0/24")
    assert after.endswith(
        " && ip route replace 10.0.0.0/24 dev eth1 proto kernel metric 100 src 10.0.0.2"
        " && ip route replace default via 10.0.0.1 dev eth1 proto static metric 100'"
    )
    # By DHCP.
    assert left == f"{LEFT} 10.8.0.2/24 of eth1, 10.8.0.0/24 of eth1"


def test_a_route_that_the_kernel_would_refuse_is_left(wires: Wires) -> None:
    """As with dhclient, whose routes look like a user's: the kernel has no route to the gateway, and no source."""
    wires.addresses = [address(2, "10.0.0.2", 24, 0), address(2, "10.1.0.2", 24, 0x280)]
    sources = route(V4, 8, DST="11.0.0.0", OIF=2, SOURCE="10.0.0.2")
    wires.routes = [route(V4, 0, GATEWAY="10.0.0.1", OIF=2), sources, route(V4, 8, DST="12.0.0.0", OIF=2)]
    wires.routes.append(route(V4, 9, DST="13.0.0.0", OIF=2, GATEWAY="10.1.0.1"))
    assert wires.notes(False)[1:] == [
        f"{ADD} 'ip link set eth1 up && ip addr replace 10.1.0.2/24 noprefixroute dev eth1 && ip route replace "
        "12.0.0.0/8 dev eth1'",
        f"{LEFT} 10.0.0.2/24 of eth1, 11.0.0.0/8 of eth1, default via 10.0.0.1 of eth1, 13.0.0.0/9 via 10.1.0.1 of "
        "eth1",
    ]


def test_no_route_of_another_interface_is_replaced(wires: Wires) -> None:
    """`ip route append` makes two routes that differ only in the interface: replacing takes the first."""
    wires.routes = [route(V4, 8, DST="10.0.0.0", OIF=2), route(V4, 8, 16, DST="10.0.0.0", OIF=3)]
    wires.routes.append(route(V4, 8, DST="10.0.0.0", OIF=2, PRIORITY=7))
    assert wires.notes(False)[1:] == [
        f"{ADD} 'ip link set eth1 up && ip route replace 10.0.0.0/8 dev eth1 metric 7'",
        f"{LEFT} 10.0.0.0/8 of eth1",
    ]


@pytest.mark.parametrize("count", [500, 50_000])
def test_of_many_routes_the_first_are_named(wires: Wires, count: int) -> None:
    """bird's routes come before a user's, and are not restored."""
    bird = [route(V4, 32, 12, DST=str(ip_address(0x0B000000 + n)), OIF=2) for n in range(count)]
    wires.routes = [*bird, route(V4, 0, OIF=2)]
    lost, after, left = wires.notes(False)
    assert lost.startswith("eth1 is left down, loses its routes default, 11.0.0.0/32, 11.0.0.1/32, ")
    assert lost.endswith(f", 11.0.0.8/32 and {count - 9} more")
    assert after == f"{ADD} 'ip link set eth1 up && ip route replace default dev eth1'"
    assert left.startswith(f"{LEFT} 11.0.0.0/32 of eth1, ")
    assert left.endswith(f" 11.0.0.8/32 of eth1 and {count - 9} more")


def test_of_many_addresses_and_routes_of_people_the_first_are_given(wires: Wires) -> None:
    wires.addresses = [address(2, f"10.0.0.{n}", 32) for n in range(1, 13)]
    wires.routes = [route(V4, 32, DST=f"11.0.0.{n}", OIF=2) for n in range(12)]
    lost, after, left = wires.notes(False)
    assert ", 10.0.0.10/32 and 2 more and its routes 11.0.0.0/32, " in lost
    assert lost.endswith(", 11.0.0.9/32 and 2 more")
    assert (after.count("addr replace"), after.count("route replace")) == (10, 10)
    assert left == f"{LEFT} 10.0.0.11/32 of eth1, 10.0.0.12/32 of eth1 and 2 more"


def test_a_port_of_open_vswitch(wires: Wires) -> None:
    wires.link("ovs-system", 7, above="eth1", is_master=True)
    assert wires.notes(False)[1:] == [f"{ADD} 'ip link set eth1 up'", f"{LEFT} the port eth1 of Open vSwitch"]


@pytest.mark.parametrize(
    ("mtu", "kind", "is_lost"), [("9000", "1", True), ("1280", "1", True), ("1500", "1", False), ("2044", "32", False)]
)
def test_an_mtu_that_somebody_has_set(wires: Wires, mtu: str, kind: str, is_lost: bool) -> None:
    folder = wires.kernel.sysfs / "class/net/eth1"
    (folder / "mtu").write_text(f"{mtu}\n")
    (folder / "type").write_text(f"{kind}\n")
    wires.addresses = [address(2, "10.0.0.2", 24)]
    lost = f" and its MTU {mtu}" if is_lost else ""
    command = f"ip link set eth1 mtu {mtu} && " if is_lost else ""
    assert wires.notes(False) == [
        f"eth1 is left down, loses its addresses 10.0.0.2/24{lost}",
        f"{ADD} '{command}ip link set eth1 up && ip addr replace 10.0.0.2/24 dev eth1'",
    ]


def test_vlans_go_with_it_and_a_bond_stays(wires: Wires) -> None:
    wires.link("vlan7", 5, above="eth1")
    wires.link("mac0", 6, above="vlan7")
    wires.link("bond0", 7, above="eth1", is_master=True)
    wires.addresses = [address(5, "10.7.0.2", 24), address(7, "10.1.0.2", 24)]
    assert wires.notes(False) == [
        "eth1 is left down, leaves bond0",
        "vlan7 disappears with eth1, loses its addresses 10.7.0.2/24",
        "mac0 disappears with vlan7",
        f"{ADD} 'ip link set eth1 master bond0 && ip link set eth1 up'",
        f"{LEFT} vlan7, mac0",
    ]


def test_a_mac_address_that_somebody_has_set(wires: Wires) -> None:
    folder = wires.kernel.sysfs / "class/net/eth1"
    for name, text in (("addr_assign_type", "0"), ("address", "02:00:00:00:00:07")):
        (folder / name).write_text(f"{text}\n")
    assert wires.notes(False) == ["eth1 is left down", f"{ADD} 'ip link set eth1 up'"]
    (folder / "addr_assign_type").write_text("3\n")
    assert wires.notes(False) == [
        "eth1 is left down, loses its MAC address 02:00:00:00:00:07",
        f"{ADD} 'ip link set eth1 up'",
        f"{LEFT} the MAC address of eth1",
    ]
    # A bond gives its address to all its ports.
    (folder / "bonding_slave").mkdir()
    assert wires.notes() == ["eth1 is left down"]


@pytest.mark.parametrize("filtering", ["0", "1"])
def test_the_vlans_of_a_bridge(wires: Wires, filtering: str) -> None:
    """All ports of a VLAN-aware bridge have some VLANs."""
    wires.link("vmbr0", 7, above="eth1", is_master=True)
    (wires.kernel.sysfs / "class/net/vmbr0/bridge").mkdir()
    (wires.kernel.sysfs / "class/net/vmbr0/bridge/vlan_filtering").write_text(f"{filtering}\n")
    left = [f"{LEFT} the VLANs of eth1 in vmbr0 (bridge vlan show dev eth1)"]
    assert wires.notes(False)[2:] == (left if filtering == "1" else [])


def test_the_command_stops_at_the_first_failure(wires: Wires, tmp_path: Path) -> None:
    """A shell accepts the printed commands, whatever the interface's name."""
    name = "a;b'$(c)"
    (wires.kernel.sysfs / "class/net/eth1").rename(wires.kernel.sysfs / "class/net" / name)
    wires.addresses = [address(2, "10.0.0.2", 24), address(2, "10.0.1.2", 24)]
    after = wires.notes(False)[1].partition(" --after ")[2]
    said = subprocess.check_output(["bash", "-c", f"printf %s {after}"], text=True)
    ip = tmp_path / "ip"
    ip.write_text('#!/bin/sh\necho "$@"\n[ "$1" != addr ]\n')
    ip.chmod(0o755)
    path = f"{tmp_path}:{os.environ['PATH']}"
    found = subprocess.run(["sh", "-c", said], env={"PATH": path}, capture_output=True, text=True, check=False)
    assert found.returncode == 1
    assert found.stdout.splitlines() == [f"link set {name} up", f"addr replace 10.0.0.2/24 dev {name}"]


@pytest.mark.parametrize("name", [b"a;b\x1b'c", b"a\xff"])
def test_an_interface_may_be_called_anything(wires: Wires, name: bytes) -> None:
    """Text that a terminal cannot show cannot be copied from the terminal, either."""
    called = os.fsdecode(name)
    (wires.kernel.sysfs / "class/net/eth1").rename(wires.kernel.sysfs / "class/net" / called)
    wires.addresses = [address(2, "10.0.0.2", 24)]
    assert wires.notes(False) == [
        f"{shown(called)} is left down, loses its addresses 10.0.0.2/24",
        "no --after is suggested, because a terminal cannot show a name in it: restore the settings by hand",
    ]


@pytest.mark.parametrize("flags", [0x1002, 0x1003])
def test_nothing_to_lose(wires: Wires, flags: int) -> None:
    wires.link("eth1", 2, flags)
    assert wires.notes() == (["eth1 is left down"] if flags & 1 else [])
    assert interfaces.notes([Device("0000:05:00.0")], False) == []
    make_device(wires.kernel.sysfs, "0000:0a:00.0", 21, "none", interface="gone0")
    assert interfaces.notes([Device("0000:0a:00.0")], False) == []


def test_a_kernel_that_does_not_answer(wires: Wires, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*_: object) -> list[bytes]:
        raise PermissionError(1, "Operation not permitted")

    monkeypatch.setattr(netlink, "dump", refuse)
    assert "unknown: the kernel does not list them (Operation not permitted)" in wires.notes()[0]
