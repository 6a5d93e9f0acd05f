# SPDX-License-Identifier: GPL-2.0-only
"""Netlink requests with strict checking: the kernel refuses requests that it does not understand.

The library pyroute2 is not used: versions 0.7.2 (Debian 12) and 0.8.1 silently drop the ports of a route lookup
(RTA_SPORT, RTA_DPORT), do not know the type of service of rules (FRA_DSCP), and take 0.7 s or more to load.

A message is a header (struct nlmsghdr) and a body: a fixed structure, then attributes (struct nlattr). Numbers are in
CPU byte order.
"""

from __future__ import annotations

import errno
import os
import socket
import struct
import sys
from collections.abc import Iterator
from typing import Final

ROUTE: Final = 0
SOCK_DIAG: Final = 4
GENERIC: Final = 16
"""Netlink families (NETLINK_*)."""

_REQUEST, _DUMP, _INTERRUPTED = 0x01, 0x300, 0x10
_ERROR, _DONE = 2, 3
_HEADER: Final = struct.Struct("=IHHII")
_ATTRIBUTE: Final = struct.Struct("=HH")
_KIND: Final = 0x3FFF
"""Mask of an attribute's kind; higher bits describe the content."""
_TIMEOUT_S: Final = 10
_TRIES: Final = 5


def ask(family: int, kind: int, body: bytes) -> bytes:
    """Body of a single answer; OSError is the kernel's refusal."""
    if found := _asked(family, kind, body, 0):
        return found[0]
    raise OSError(errno.ENODATA, os.strerror(errno.ENODATA))


def dump(family: int, kind: int, body: bytes) -> list[bytes]:
    """Bodies of all answers of a dump without concurrent changes."""
    for _ in range(_TRIES):
        try:
            return _asked(family, kind, body, _DUMP)
        except InterruptedError:
            continue
    raise OSError(errno.EAGAIN, os.strerror(errno.EAGAIN))


def _asked(family: int, kind: int, body: bytes, flags: int) -> list[bytes]:
    found: list[bytes] = []
    with socket.socket(socket.AF_NETLINK, socket.SOCK_RAW, family) as link:
        link.settimeout(_TIMEOUT_S)
        link.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 1 << 20)
        link.send(_HEADER.pack(_HEADER.size + len(body), kind, _REQUEST | flags, 1, 0) + body)
        while True:
            try:
                data = link.recv(1 << 17)
            except TimeoutError as error:
                # The timeout of a socket has no error text.
                raise OSError(errno.ETIMEDOUT, os.strerror(errno.ETIMEDOUT)) from error
            for answer, marks, content in _messages(data):
                if marks & _INTERRUPTED:
                    raise InterruptedError
                if answer in (_ERROR, _DONE):
                    code = -int.from_bytes(content[:4], sys.byteorder, signed=True) if len(content) >= 4 else 0
                    if code:
                        raise OSError(code, os.strerror(code))
                    return found
                found.append(content)
            if not flags:
                return found


def _messages(data: bytes) -> Iterator[tuple[int, int, bytes]]:
    """Kind, flags and body of each message in a datagram."""
    while len(data) >= _HEADER.size:
        length, kind, flags, _, _ = _HEADER.unpack_from(data)
        if length < _HEADER.size:
            return
        yield kind, flags, data[_HEADER.size : length]
        data = data[_aligned(length) :]


def attribute(kind: int, content: bytes) -> bytes:
    """An attribute with padding."""
    length = _ATTRIBUTE.size + len(content)
    return _ATTRIBUTE.pack(length, kind) + content + bytes(_aligned(length) - length)


def each(data: bytes) -> Iterator[tuple[int, bytes]]:
    """Kind and content of each attribute; a list repeats a kind."""
    while len(data) >= _ATTRIBUTE.size:
        length, kind = _ATTRIBUTE.unpack_from(data)
        if length < _ATTRIBUTE.size:
            return
        yield kind & _KIND, data[_ATTRIBUTE.size : length]
        data = data[_aligned(length) :]


def attributes(data: bytes) -> dict[int, bytes]:
    """Content of attributes by kind."""
    return dict(each(data))


def number(content: bytes | None) -> int:
    """Number in an attribute; 0 without the attribute."""
    return int.from_bytes(content or b"", sys.byteorder)


def word(content: bytes | None) -> str:
    """Name in an attribute."""
    return os.fsdecode((content or b"").partition(b"\0")[0])


def _aligned(length: int) -> int:
    return (length + 3) & ~3
