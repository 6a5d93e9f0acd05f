# SPDX-License-Identifier: GPL-2.0-only
"""Stands in for QEMU: uses the same descriptors, and misbehaves as the first argument says."""

from __future__ import annotations

import json
import os
import re
import socket
import sys
import time

arguments = " ".join(sys.argv[2:])


def descriptor(pattern: str) -> int:
    """A descriptor named on the command line."""
    found = re.search(pattern, arguments)
    assert found, pattern
    return int(found[1])


console = descriptor(r"id=console,path=/proc/self/fd/(\d+)")
result = descriptor(r"id=result,fd=(\d+)")
trace = descriptor(r"-D /proc/self/fd/(\d+)")


def say(line: str) -> None:
    """A console line."""
    os.write(console, line.encode() + b"\r\n")


def send(line: str) -> None:
    """A result."""
    os.write(result, line.encode() + b"\n")


def good() -> None:
    """A well-behaved guest; the result overtakes the trace."""
    send('{"event":"boot","release":"0.0"}')
    send('{"event":"run","id":1,"markers":[1,2]}')
    time.sleep(0.2)
    os.write(trace, b"serial_write [0x07] <- 0x01\nvtd_inv_desc_iotlb_global \nserial_write [0x07] <- 0x02\n")
    send('{"event":"done"}')


def busy() -> None:
    """A guest with a trace line every millisecond."""
    send('{"event":"boot","release":"0.0"}')
    os.write(trace, b"serial_write [0x07] <- 0x01\n")
    for _ in range(500):
        os.write(trace, b"vtd_inv_desc_iotlb_global \n")
        time.sleep(0.001)
    os.write(trace, b"serial_write [0x07] <- 0x02\n")
    send('{"event":"done"}')


def cold() -> None:
    """A guest that fails before its measurement."""
    send('{"event":"boot","release":"0.0"}')
    send('{"event":"session","driver":"xsmmu_lab","policy":"fused"}')
    send('{"event":"warm","id":1}')
    send('{"event":"warm","id":2}')
    send('{"event":"error","message":"micro: no such device"}')
    time.sleep(60)


def refuses() -> None:
    """A guest that measures once, and then cannot set the next policy."""
    send('{"event":"boot","release":"0.0"}')
    send('{"event":"start","id":1}')
    send('{"event":"session","driver":"xsmmu_lab","policy":"fused"}')
    send('{"event":"error","message":"policy fused refused"}')
    time.sleep(60)


def oops() -> None:
    """A kernel that dies and continues."""
    say("[    1.0] BUG: kernel NULL pointer dereference, address: 0000000000000000")
    say("[    1.0] RIP: 0010:xs_batch_flush+0x1/0x2")
    send('{"event":"done"}')
    time.sleep(60)


def quiet() -> None:
    """A guest that is silent for two seconds."""
    time.sleep(2)
    send('{"event":"done"}')


def hang() -> None:
    """A guest that prints a line and then nothing."""
    say("the last words")
    time.sleep(60)


def chatter() -> None:
    """A guest that never ends, and prints more than is kept."""
    for _ in range(500):
        say("still here")
    while True:
        say("still here")
        time.sleep(0.1)


def noise() -> None:
    """A console with a disturbed line."""
    os.write(console, b"\xff\xfe[    1.0\x80\n")
    send('{"event":"done"}')


def leave() -> None:
    """A QEMU that cannot start."""
    sys.stderr.write("qemu: cannot set up guest memory\n")
    sys.exit(1)


def nonsense() -> None:
    """A guest with broken results."""
    send('{"event":')
    time.sleep(60)


def error() -> None:
    """A guest that reports an error."""
    send('{"event":"error","message":"igb: policy fused refused"}')
    time.sleep(60)


def fault(*lines: str) -> None:
    """A device that accesses forbidden memory, at second 9, between some lines."""
    for line in lines or ["<fault>"]:
        fault = "DMAR: [DMA Write NO_PASID] Request device [00:02.0] fault addr 0x0 [fault reason 0x05]"
        if line == "<end>":
            return
        say(line.replace("<fault>", f"[    9.000000] {fault}").replace("<DMAR>", fault))
    send('{"event":"done"}')


def refused() -> None:
    """A QEMU that refuses the guest's request."""
    send('{"event":"qmp","execute":"device_add","arguments":{"id":"x","driver":"none"}}')
    qmp = socket.socket(fileno=descriptor(r"id=qmp,fd=(\d+)"))
    qmp.sendall(b'{"error":{"class":"GenericError","desc":"none is not a device"}}\n')
    time.sleep(60)


def replug() -> None:
    """A guest that plugs a device in before QEMU has released it; prints the order of QEMU's commands."""
    send('{"event":"qmp","execute":"device_del","arguments":{"id":"x"}}')
    send('{"event":"qmp","execute":"device_add","arguments":{"id":"x","driver":"igb"}}')
    qmp = socket.socket(fileno=descriptor(r"id=qmp,fd=(\d+)"))
    lines = qmp.makefile()
    heard = [json.loads(lines.readline())["execute"] for _ in ("qmp_capabilities", "device_del")]
    time.sleep(0.5)
    qmp.sendall(b'{"event":"DEVICE_DELETED","data":{"path":"/x/pci"}}\n{"return":{}}\n')
    qmp.setblocking(False)
    try:
        heard.append(qmp.recv(100).decode())
    except BlockingIOError:
        heard.append("DEVICE_DELETED")
    qmp.setblocking(True)
    qmp.sendall(b'{"event":"DEVICE_DELETED","data":{"device":"x"}}\n')
    heard.append(json.loads(lines.readline())["execute"])
    send(json.dumps({"event": "heard", "what": heard}))
    send('{"event":"done"}')


def cut() -> None:
    """A kernel that dies, with its message in two parts."""
    os.write(console, b"[    1.0] BU")
    time.sleep(0.3)
    say("G: kernel NULL pointer dereference")
    send('{"event":"done"}')


def torn() -> None:
    """A guest whose results arrive in parts."""
    for part in (b'{"event":"bo', b'ot","release":"0.0"}\n{"event":"do', b'ne"}\n'):
        os.write(result, part)
        time.sleep(0.3)


def last() -> None:
    """A kernel that dies in the middle of its last line."""
    send('{"event":"done"}')
    os.write(console, b"[    1.0] Kernel panic - not syn")


def steady() -> None:
    """A guest with only a trace, for four seconds."""
    send('{"event":"boot","release":"0.0"}')
    for number in range(1, 9):
        os.write(trace, b"serial_write [0x07] <- 0x%02x\n" % number)
        time.sleep(0.5)
    send('{"event":"done"}')


def flood() -> None:
    """A guest that prints without pause."""
    while True:
        os.write(console, b"still here\n" * 1000)


behaviour, *words = sys.argv[1].split("|")
globals()[behaviour](*words)
