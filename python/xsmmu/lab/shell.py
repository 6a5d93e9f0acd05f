# SPDX-License-Identifier: GPL-2.0-only
"""`xsmmu lab shell`: a guest of the lab to look around in, with the module loaded and its console on the terminal."""

from __future__ import annotations

import contextlib
import os
import socket
import subprocess
import sys
import tempfile
import termios
from collections.abc import Sequence
from pathlib import Path

from rich.console import Console

from xsmmu.errors import UserError, unknown_name
from xsmmu.lab import run as lab
from xsmmu.lab.experiment import Needs
from xsmmu.setup import host, kernels, root
from xsmmu.vm import machine
from xsmmu.vm.guest import dies_with_us
from xsmmu.vm.machine import DEVICES, IOMMUS

DRIVERS = tuple(dict.fromkeys(device.driver for device in DEVICES.values() if device.driver != "xsmmu_lab"))
"""Stock drivers that can be bound to the guest's devices."""

_PROGRAMS = ("usr/bin/ip", "usr/bin/fio", "usr/bin/iperf3")
_MEMORY_MIB = 1024


def run(kernel: str | None, iommu: str, drivers: Sequence[str], console: Console) -> int:
    """Boot a guest, give its console to this terminal, return when its shell has ended and it is off: QEMU's status."""
    if iommu not in IOMMUS:
        raise unknown_name("IOMMU", iommu, IOMMUS)
    for driver in drivers:
        if driver not in DRIVERS:
            raise unknown_name("driver", driver, DRIVERS)
    if not (sys.stdin.isatty() and sys.stdout.isatty()):
        raise UserError(
            "a shell needs a terminal, and standard input or output is none: run it in one, without a pipe",
            code="no-terminal",
        )
    the_root = root.ensure(host.cache_dir(), console)
    chosen = kernels.ensure(the_root, kernel, console)
    needs = Needs(modules=("virtio_net", *drivers), programs=_PROGRAMS)
    image = lab.image(the_root, chosen, (needs,), lab.modules(the_root, chosen), script(drivers))
    with tempfile.TemporaryDirectory(prefix="xsmmu-shell-") as folder:
        return _boot(the_root.qemu_command(), chosen.vmlinuz, image, iommu, Path(folder))


def script(drivers: Sequence[str]) -> str:
    """What the guest does: bind devices, say what there is, become a shell."""
    bound = [device for device in DEVICES.values() if device.driver in drivers]
    lines = [f"device_bind {device.bdf} {device.driver}" for device in bound]
    listed = [f"  {device.bdf}  {device.name}" for device in bound or DEVICES.values()]
    text = "\n".join(
        [
            "A guest of the lab; `exit` ends it, Ctrl-C is its own. Devices:",
            *listed,
            "A policy: echo fused >/sys/bus/pci/devices/BDF/xsmmu/policy, while no driver of its group is bound",
            "(echo BDF >/sys/bus/pci/drivers/DRIVER/unbind, and bind).",
        ]
    )
    return "\n".join(
        [
            *lines,
            f"cat >/dev/ttyS0 <<'END'\n{text}\nEND",
            "export HOME=/tmp TERM=linux PS1='xsmmu-lab# '",
            "cd /tmp",
            "setsid cttyhack sh </dev/ttyS0 >/dev/ttyS0 2>&1",
            "",
        ]
    )


def _boot(qemu: Sequence[str], vmlinuz: Path, image: Path, iommu: str, folder: Path) -> int:
    disk = folder / "disk"
    with disk.open("wb") as file:
        file.truncate(len(machine.DATA_DISKS) * machine.DATA_DISK_BYTES)
    with contextlib.ExitStack() as stack:
        # Nobody reads results or trace; the near ends only have to be open.
        _result, result_far = map(stack.enter_context, socket.socketpair())
        _qmp, qmp_far = map(stack.enter_context, socket.socketpair())
        trace = stack.enter_context(Path(os.devnull).open("wb")).fileno()
        ends = machine.Endpoints(None, result_far.fileno(), qmp_far.fileno(), trace, disk)
        arguments = machine.qemu_arguments("free", "tcg", iommu, _MEMORY_MIB, (), ends)
        arguments += machine.boot_arguments(vmlinuz, image)
        before = termios.tcgetattr(sys.stdin)
        # Of a QEMU that was killed the terminal would stay raw.
        stack.callback(termios.tcsetattr, sys.stdin, termios.TCSADRAIN, before)
        fds = (result_far.fileno(), qmp_far.fileno(), trace)
        process = subprocess.Popen([*dies_with_us(), *qemu, *arguments], pass_fds=fds)
        try:
            return process.wait()
        finally:
            if process.poll() is None:
                process.kill()
                process.wait()
