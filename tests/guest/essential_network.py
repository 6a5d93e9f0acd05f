# SPDX-License-Identifier: GPL-2.0-only
"""Kernel objects for essential.sh that no program of the guest makes: connections, and Open vSwitch's datapath.

connected INTERFACE LOCAL PORT REMOTE PORT: an established TCP connection without packets, until the program ends
datapath NAME BRIDGE PORT: a datapath with a local port and a NIC
remove NAME: remove the datapath and its ports
"""

from __future__ import annotations

import socket
import struct
import sys
import time

from xsmmu import netlink

_REPAIR, _REPAIR_ON = 19, 1
_CONTROL, _GET_FAMILY, _FAMILY_ID, _FAMILY_NAME = 0x10, 3, 1, 2
_REQUEST_ACKNOWLEDGED = 0x5
_NEW, _REMOVE = 1, 2
_NIC, _INTERNAL = 1, 2


def connected(interface: str, local: str, port: str, remote: str, remote_port: str) -> None:
    """Hold a connection."""
    with socket.socket(socket.AF_INET) as made:
        made.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        if interface:
            made.setsockopt(socket.SOL_SOCKET, socket.SO_BINDTODEVICE, interface.encode())
        made.setsockopt(socket.IPPROTO_TCP, _REPAIR, _REPAIR_ON)
        made.bind((local, int(port)))
        made.connect((remote, int(remote_port)))
        print("connected", flush=True)
        time.sleep(3600)


def datapath(name: str, bridge: str, port: str) -> None:
    """Make a datapath."""
    own = struct.pack("=I", 0)
    _do("ovs_datapath", 2, _NEW, 0, (1, f"{name}\0".encode()), (2, own))
    for number, kind, each in ((1, _INTERNAL, bridge), (2, _NIC, port)):
        row = [(1, struct.pack("=I", number)), (2, struct.pack("=I", kind)), (3, f"{each}\0".encode()), (5, own)]
        _do("ovs_vport", 1, _NEW, socket.if_nametoindex(name), *row)


def remove(name: str) -> None:
    """Remove a datapath."""
    _do("ovs_datapath", 2, _REMOVE, 0, (1, f"{name}\0".encode()))


def _do(family: str, version: int, command: int, of: int, *content: tuple[int, bytes]) -> None:
    question = struct.pack("=BBxx", _GET_FAMILY, 1) + netlink.attribute(_FAMILY_NAME, f"{family}\0".encode())
    answer = netlink.ask(netlink.GENERIC, _CONTROL, question)
    number = netlink.number(netlink.attributes(answer[4:])[_FAMILY_ID])
    body = struct.pack("=BBxxi", command, version, of) + b"".join(netlink.attribute(*each) for each in content)
    with socket.socket(socket.AF_NETLINK, socket.SOCK_RAW, netlink.GENERIC) as link:
        link.send(struct.pack("=IHHII", 16 + len(body), number, _REQUEST_ACKNOWLEDGED, 1, 0) + body)
        _, _, _, _, _, code = struct.unpack_from("=IHHIIi", link.recv(1 << 16))
    if code:
        raise OSError(-code, f"{family} {content}")


if __name__ == "__main__":
    if sys.argv[1] == "connected":
        connected(*sys.argv[2:])
    elif sys.argv[1] == "datapath":
        datapath(*sys.argv[2:])
    else:
        remove(*sys.argv[2:])
