# SPDX-License-Identifier: GPL-2.0-only
"""The answers of a real kernel, as far as any machine gives them; test_guest_essential.py has the rest."""

from __future__ import annotations

import socket
import struct
from ipaddress import ip_address

import pytest

from xsmmu.operator import carriers, netlink, routing
from xsmmu.operator.routing import View


def test_the_loopback_interface() -> None:
    view = View()
    assert view.by_name["lo"].number == 1
    assert view.holders(ip_address("127.0.0.1")) == ["lo"]
    assert view.holders(None) == []
    assert view.way(ip_address("127.0.0.7")) == routing.Way("lo", is_local=True)
    # No machine has an address for documentation.
    assert view.way(ip_address("127.0.0.7"), ip_address("203.0.113.1")) == routing.Way("lo", is_local=True)
    assert carriers.stops(view, "lo", {"0000:01:00.0"}) is None
    assert isinstance(view.marks, list)
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
    assert routing.View().way(ip_address("127.0.0.1"), interface=1 << 30) is None


def test_attributes() -> None:
    data = netlink.attribute(1, b"abc") + netlink.attribute(0x8002, b"\1\0\0\0") + struct.pack("=HH", 3, 1)
    assert netlink.attributes(data) == {1: b"abc", 2: b"\1\0\0\0"}
    assert netlink.word(b"eth0\0") == "eth0"
    assert netlink.number(None) == 0


def test_several_hops() -> None:
    hops = struct.pack("=HBBi", 16, 0, 0, 7) + netlink.attribute(5, bytes(4)) + struct.pack("=HBBi", 8, 1, 0, 8)
    assert [*routing._hops(hops)] == [(0, 7), (1, 8)]
