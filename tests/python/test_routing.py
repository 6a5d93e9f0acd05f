# SPDX-License-Identifier: GPL-2.0-only
"""The answers of a real kernel, as far as any machine gives them, and others in the kernel's format.

test_guest_essential.py has the rest.
"""

from __future__ import annotations

import errno
import os
import socket
import struct
from ipaddress import ip_address
from typing import Self

import pytest

from xsmmu import carriers, netlink, routing
from xsmmu.routing import Connection, Default, Link, Packet, View, Way

HERE = Way("lo", is_local=True)


def test_the_loopback_interface() -> None:
    view = View()
    assert view.by_name["lo"].number == 1
    assert view.holders(ip_address("127.0.0.1")) == ["lo"]
    assert view.holders(None) == []
    assert view.way(Packet(ip_address("127.0.0.7"))) == HERE
    # No machine has a documentation address.
    assert view.way(Packet(ip_address("127.0.0.7"), ip_address("203.0.113.1"), ports=(22, 50000))) == HERE
    assert carriers.stops(view, "lo", {"0000:01:00.0"}) is None
    assert isinstance(view.marks, list)
    assert isinstance(view.services, list)
    assert "lo" not in {route.interface for route in view.defaults}


def test_a_connection() -> None:
    with socket.create_server(("127.0.0.1", 0)) as server, socket.create_connection(server.getsockname()) as client:
        own, other = client.getsockname()[1], server.getsockname()[1]
        try:
            found = View().connections
        except FileNotFoundError:
            pytest.skip("this kernel lacks CONFIG_INET_DIAG")
    address = ip_address("127.0.0.1")
    assert {(each.local_port, each.remote_port) for each in found if each.local == address} >= {
        (own, other),
        (other, own),
    }


def test_what_the_kernel_does_not_understand() -> None:
    with pytest.raises(OSError, match="not supported"):
        netlink.ask(netlink.ROUTE, 0xFFF, bytes(16))
    assert routing.View().way(Packet(ip_address("127.0.0.1"), interface=1 << 30)) is None


def test_what_a_lookup_says(monkeypatch: pytest.MonkeyPatch) -> None:
    """Rules may ask for ports, in network byte order; an older kernel refuses ports."""
    asked: list[tuple[int, dict[int, bytes]]] = []
    known, refusal = {1, 2, 4, 16, 27, 28, 29}, errno.EINVAL

    def answer(_family: int, _kind: int, body: bytes) -> bytes:
        asked.append((body[3], netlink.attributes(body[12:])))
        if not asked[-1][1].keys() <= known:
            raise OSError(refusal, "no")
        return bytes([2, 32, 0, 0, 254, 0, 0, 1, *bytes(4)]) + netlink.attribute(4, struct.pack("=I", 1))

    monkeypatch.setattr(netlink, "ask", answer)
    packet = Packet(ip_address("10.0.0.1"), ip_address("10.0.0.2"), 3, 5, (22, 50000), 0x10)
    assert View().way(packet) == routing.Way("lo")
    whole = {1: b"\x0a\0\0\1", 2: b"\x0a\0\0\2", 4: struct.pack("=I", 3), 16: struct.pack("=I", 5)}
    with_ports = whole | {27: b"\6", 28: b"\0\x16", 29: b"\xc3\x50"}
    assert asked == [(0x10, with_ports)]
    for refusal_of_ports in (errno.EINVAL, errno.ERANGE):
        refusal = refusal_of_ports
        known = {1, 2, 4, 16}
        assert View().way(packet) == routing.Way("lo")
        assert asked[-1] == (0x10, whole)
    # An address that this machine no longer has is left out, and the ports are not.
    known = {1, 4, 16, 27, 28, 29}
    assert View().way(packet) == routing.Way("lo")
    assert asked[-1][1].keys() == known
    known, refusal = set(), errno.ENETUNREACH
    asked.clear()
    assert View().way(packet) is None
    assert [27 in each for _, each in asked] == [True, True]


def test_services_of_rules_and_routes(monkeypatch: pytest.MonkeyPatch) -> None:
    rows = {
        34: [bytes(12) + netlink.attribute(25, b"\x2e"), bytes([2, 0, 0, 0x10, *bytes(8)]), bytes(12)],
        26: [bytes([2, 0, 0, 0x08, *bytes(8)])],
    }
    monkeypatch.setattr(netlink, "dump", lambda _family, kind, _body: rows[kind])
    assert View().services == [0x08, 0x10, 0xB8]


def test_attributes() -> None:
    data = netlink.attribute(1, b"abc") + netlink.attribute(0x8002, b"\1\0\0\0") + struct.pack("=HH", 3, 1)
    assert netlink.attributes(data) == {1: b"abc", 2: b"\1\0\0\0"}
    assert netlink.word(b"eth0\0") == "eth0"
    assert netlink.number(None) == 0


def test_several_hops() -> None:
    hops = struct.pack("=HBBi", 16, 0, 0, 7) + netlink.attribute(5, bytes(4)) + struct.pack("=HBBi", 8, 1, 0, 8)
    assert [*routing._hops(hops)] == [(0, 7), (1, 8)]


# ---- rare configurations, in the kernel's format ----

LINK, ADDRESS, ROUTE, RULE, DIAG = 18, 22, 26, 34, 20
UNICAST, BLACKHOLE, UNREACHABLE, PROHIBIT = 1, 6, 7, 8
DEAD, LINKDOWN, CLONED = 0x01, 0x10, 0x200


def link(index: int, name: str, kind: str = "", data: bytes = b"", flags: int = 0x10000) -> bytes:
    """struct ifinfomsg, and its attributes."""
    info = netlink.attribute(1, kind.encode() + b"\0") + netlink.attribute(2, data)
    row = struct.pack("=BxHiII", 0, 1, index, flags, 0) + netlink.attribute(3, name.encode() + b"\0")
    return row + (netlink.attribute(18, info) if kind else b"")


def route(more: bytes, kind: int = UNICAST, flags: int = 0, table: int = 254, bits: int = 0) -> bytes:
    """struct rtmsg, and its attributes."""
    return struct.pack("=8BI", socket.AF_INET, bits, 0, 0, table, 0, 0, kind, flags) + more


def by(index: int) -> bytes:
    """A route's interface."""
    return netlink.attribute(4, struct.pack("=I", index))


def hops(*found: tuple[int, int]) -> bytes:
    """Flags and interface of each hop."""
    return netlink.attribute(9, b"".join(struct.pack("=HBBi", 8, flags, 0, index) for flags, index in found))


class Kernel:
    """Tables, the answer to a lookup, and the lookup's question."""

    def __init__(self) -> None:
        self.tables: dict[int, list[bytes]] = {LINK: [link(1, "lo"), link(2, "eth0"), link(3, "eth1")]}
        self.answer = route(by(3))
        self.asked: list[dict[int, bytes]] = []

    def dump(self, _family: int, kind: int, body: bytes) -> list[bytes]:
        """Stands in for netlink.dump()."""
        rows = self.tables.get(kind, [])
        return [row for row in rows if row[0] == body[0]] if kind == DIAG else rows

    def ask(self, _family: int, _kind: int, body: bytes) -> bytes:
        """Stands in for netlink.ask()."""
        self.asked.append(netlink.attributes(body[12:]))
        return self.answer


@pytest.fixture
def kernel(monkeypatch: pytest.MonkeyPatch) -> Kernel:
    made = Kernel()
    monkeypatch.setattr(netlink, "dump", made.dump)
    monkeypatch.setattr(netlink, "ask", made.ask)
    return made


ETH1 = [Default(254, "eth1")]
DEFAULTS: dict[str, tuple[bytes, list[Default]]] = {
    "one": (route(by(3)), ETH1),
    "of a VRF": (route(by(3), table=10), [Default(10, "eth1")]),
    # A table number of more than a byte has its own attribute.
    "of table 1000": (
        route(by(3) + netlink.attribute(15, struct.pack("=I", 1000)), table=252),
        [Default(1000, "eth1")],
    ),
    "two hops": (route(hops((0, 2), (0, 3))), [Default(254, "eth0"), *ETH1]),
    "two hops, one dead": (route(hops((DEAD | LINKDOWN, 2), (0, 3))), ETH1),
    "two dead hops": (route(hops((LINKDOWN, 2), (DEAD, 3))), []),
    "dead": (route(by(3), flags=DEAD | LINKDOWN), []),
    "without a link": (route(by(3), flags=LINKDOWN), []),
    "a copy": (route(by(3), flags=CLONED), []),
    "blackhole": (route(by(3), kind=BLACKHOLE), []),
    "unreachable": (route(by(3), kind=UNREACHABLE), []),
    "prohibit": (route(by(3), kind=PROHIBIT), []),
    "of a network": (route(by(3), bits=24), []),
    "by the loopback interface": (route(by(1)), []),
    # net.ipv4.nexthop_compat_mode=0: the kernel does not show the next hop's target.
    "by a next hop of its own": (route(netlink.attribute(30, struct.pack("=I", 7))), [Default(254, "a next hop")]),
}


@pytest.mark.parametrize(("row", "found"), DEFAULTS.values(), ids=DEFAULTS)
def test_default_routes_are_those_that_packets_can_take(kernel: Kernel, row: bytes, found: list[Default]) -> None:
    kernel.tables[ROUTE] = [row]
    assert View().defaults == found


def test_a_lookup_is_of_a_socket(kernel: Kernel) -> None:
    """Rules and VRFs depend on the socket's mark and bound interface."""
    to, own = ip_address("192.0.2.7"), ip_address("192.0.2.1")
    view = View()
    assert view.way(Packet(to, own, 7, 5)) == view.way(Packet(to)) == Way("eth1")
    assert kernel.asked == [
        {1: to.packed, 2: own.packed, 4: struct.pack("=I", 7), 16: struct.pack("=I", 5)},
        {1: to.packed},
    ]


@pytest.mark.parametrize("kind", [BLACKHOLE, UNREACHABLE, PROHIBIT])
def test_a_route_that_refuses_is_no_way(kernel: Kernel, kind: int) -> None:
    kernel.answer = route(by(3), kind)
    assert View().way(Packet(ip_address("192.0.2.7"))) is None


def test_interfaces(kernel: Kernel) -> None:
    end, other = ip_address("192.0.2.7"), ip_address("2001:db8::7")
    kernel.tables[LINK] = [
        link(2, "eth0", flags=0),
        link(3, "mgmt", "vrf", netlink.attribute(1, struct.pack("=I", 1000))),
        link(4, "vlan7", "vlan", netlink.attribute(1, struct.pack("=H", 7))),
        link(5, "vx0", "vxlan", netlink.attribute(1, struct.pack("=I", 9)) + netlink.attribute(2, end.packed)),
        link(6, "vx1", "vxlan", netlink.attribute(16, other.packed)),
        link(7, "gre1", "gre", netlink.attribute(7, end.packed) + netlink.attribute(20, struct.pack("=I", 5))),
        link(8, "gre0", "gre", netlink.attribute(7, bytes(4))),
    ]
    assert [*View().links.values()] == [
        Link(2, "eth0", is_up=False),
        Link(3, "mgmt", "vrf", table=1000),
        Link(4, "vlan7", "vlan"),
        Link(5, "vx0", "vxlan", ends=(end,)),
        Link(6, "vx1", "vxlan", ends=(other,)),
        Link(7, "gre1", "gre", ends=(end,), mark=5),
        Link(8, "gre0", "gre"),
    ]


def test_who_has_an_address(kernel: Kernel) -> None:
    """On a point-to-point link an address has the peer's address beside it."""
    own, end, six = map(ip_address, ("192.0.2.1", "192.0.2.7", "2001:db8::7"))
    both = netlink.attribute(1, end.packed) + netlink.attribute(2, own.packed)
    kernel.tables[ADDRESS] = [
        struct.pack("=4BI", socket.AF_INET, 32, 0, 0, 3) + both,
        struct.pack("=4BI", socket.AF_INET, 32, 0, 0, 99) + both,
        struct.pack("=4BI", socket.AF_INET6, 64, 0, 0, 2) + netlink.attribute(1, six.packed),
    ]
    view = View()
    assert [view.holders(each) for each in (own, end, six, None)] == [["eth1"], [], ["eth0"], []]


def test_marks_are_those_of_rules(kernel: Kernel) -> None:
    marks = [netlink.attribute(10, struct.pack("=I", mark)) for mark in (9, 5, 9)]
    kernel.tables[RULE] = [bytes(12) + more for more in (b"", *marks, netlink.attribute(16, b"\1\0\0\0"))]
    assert View().marks == [5, 9]


@pytest.mark.parametrize(("code", "refused"), [(errno.EOPNOTSUPP, False), (errno.EPERM, True)])
def test_a_kernel_without_rules(monkeypatch: pytest.MonkeyPatch, code: int, refused: bool) -> None:
    def refuse(*_: object) -> list[bytes]:
        raise OSError(code, os.strerror(code))

    monkeypatch.setattr(netlink, "dump", refuse)
    if not refused:
        assert View().marks == []
        return
    with pytest.raises(PermissionError):
        _ = View().marks


def test_what_a_socket_says(kernel: Kernel) -> None:
    def row(family: int, own: bytes, other: bytes, more: bytes = b"") -> bytes:
        ports = struct.pack("!HH", 22, 50000)
        addresses = own.ljust(16, b"\0") + other.ljust(16, b"\0")
        return struct.pack("=BBBB", family, 1, 0, 0) + ports + addresses + struct.pack("=I28x", 3) + more

    own, other = ip_address("192.0.2.1"), ip_address("192.0.2.7")
    mapped = bytes(10) + b"\xff\xff"
    kernel.tables[DIAG] = [
        row(socket.AF_INET, own.packed, other.packed, netlink.attribute(15, struct.pack("=I", 5))),
        row(socket.AF_INET6, mapped + own.packed, mapped + other.packed),
    ]
    assert View().connections == [Connection(own, 22, other, 50000, 3, 5), Connection(own, 22, other, 50000, 3)]


def test_the_peers_of_wireguard(kernel: Kernel) -> None:
    """The peers may come in several messages."""
    four, six = ip_address("192.0.2.7"), ip_address("2001:db8::7")
    ends = (
        struct.pack("=H", socket.AF_INET) + struct.pack("!H", 51820) + four.packed + bytes(8),
        struct.pack("=H", socket.AF_INET6) + struct.pack("!HI", 51820, 0) + six.packed + bytes(4),
    )
    peers = [netlink.attribute(8, netlink.attribute(0, netlink.attribute(4, end))) for end in ends]
    kernel.answer = bytes(4) + netlink.attribute(1, struct.pack("=H", 30))
    kernel.tables[30] = [bytes(4) + netlink.attribute(7, struct.pack("=I", 5)) + peers[0], bytes(4) + peers[1]]
    assert View().ends(Link(9, "wg0", "wireguard")) == ((four, six), 5)


class Socket:
    """Datagrams for successive tries; a socket is made for each try."""

    def __init__(self, *tries: bytes) -> None:
        self.tries = [*tries]

    def __call__(self, *_: object) -> Self:
        return self

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        pass

    def settimeout(self, _seconds: float) -> None:
        """Do not wait."""

    def setsockopt(self, *_: int) -> None:
        """Accept any option."""

    def send(self, _data: bytes) -> None:
        """Accept any question."""

    def recv(self, _size: int) -> bytes:
        """All datagrams of a try at once; a timeout if there are none."""
        if not (data := self.tries.pop(0)):
            raise TimeoutError("timed out")
        return data


def message(kind: int, body: bytes, flags: int = 0) -> bytes:
    return struct.pack("=IHHII", 16 + len(body), kind, flags, 1, 0) + body


def test_a_table_that_changes_while_it_is_read_is_read_again(monkeypatch: pytest.MonkeyPatch) -> None:
    torn = message(24, b"old.") + message(24, b"torn", 0x10) + message(3, bytes(4))
    whole = message(24, b"new.") + message(3, bytes(4))
    monkeypatch.setattr(socket, "socket", Socket(torn, torn, whole))
    assert netlink.dump(netlink.ROUTE, ROUTE, bytes(12)) == [b"new."]
    monkeypatch.setattr(socket, "socket", Socket(*[torn] * 5))
    with pytest.raises(BlockingIOError):
        netlink.dump(netlink.ROUTE, ROUTE, bytes(12))


@pytest.mark.parametrize(
    ("answer", "said"),
    [
        (b"", os.strerror(errno.ETIMEDOUT)),
        # A message of no length, and an acknowledgement where an answer is due.
        (bytes(32), os.strerror(errno.ENODATA)),
        (struct.pack("=IHHIIi", 20, 2, 0, 1, 0, 0), os.strerror(errno.ENODATA)),
    ],
)
def test_an_answer_that_does_not_come(monkeypatch: pytest.MonkeyPatch, answer: bytes, said: str) -> None:
    monkeypatch.setattr(socket, "socket", Socket(answer))
    with pytest.raises(OSError, match=said) as found:
        netlink.ask(netlink.ROUTE, 26, bytes(12))
    assert found.value.strerror == said
