# SPDX-License-Identifier: GPL-2.0-only
"""`xsmmu lab shell`: an interactive guest of the lab, with the module loaded and its console on the terminal."""

from __future__ import annotations

import contextlib
import json
import os
import socket
import subprocess
import sys
import tempfile
import termios
from collections.abc import Iterator, Sequence
from pathlib import Path

from rich.console import Console

from xsmmu.errors import GuestError, UserError, unknown_name
from xsmmu_lab.runs import run as lab
from xsmmu_lab.runs.experiment import Needs
from xsmmu_lab.setup import host, kernels, root
from xsmmu_lab.setup.kernels import Kernel
from xsmmu_lab.vm import machine
from xsmmu_lab.vm.guest import dies_with_us
from xsmmu_lab.vm.iommu import IOMMUS
from xsmmu_lab.vm.machine import DEVICES

DRIVERS = tuple(dict.fromkeys(device.driver for device in DEVICES.values() if device.driver != "xsmmu_lab"))
"""Stock drivers that can be bound to the guest's devices."""

_PROGRAMS = ("usr/bin/ip", "usr/bin/fio", "usr/bin/iperf3")
_MEMORY_MIB = 1024
_RESULT_BYTES = 1 << 16


def run(kernel: str | None, iommu: str, drivers: Sequence[str], console: Console) -> int:
    """Boot a guest with its console on this terminal; returns QEMU's status when the guest is off."""
    if iommu not in IOMMUS:
        raise unknown_name("IOMMU", iommu, IOMMUS)
    for driver in drivers:
        if driver not in DRIVERS:
            raise unknown_name("driver", driver, DRIVERS)
    arch = IOMMUS[iommu].arch
    kernels.named(kernel, arch)
    if not (sys.stdin.isatty() and sys.stdout.isatty()):
        raise UserError(
            "a shell needs a terminal, and standard input or output is none: run it in one, without a pipe",
            code="no-terminal",
        )
    the_root = root.ensure(host.cache_dir(), console, root.OF_GUESTS[arch.name])
    chosen = kernels.ensure(the_root, kernel, console)
    needs = Needs(modules=("virtio_net", *drivers), programs=_PROGRAMS)
    image = lab.image(the_root, chosen, (needs,), lab.modules(the_root, chosen), script(drivers), iommu=iommu)
    console.print(
        f"a guest with kernel {chosen.release} boots; `exit` or `poweroff` ends it, Ctrl-A X ends it at once",
        markup=False,
    )
    with tempfile.TemporaryDirectory(prefix="xsmmu-shell-") as folder:
        return _boot(the_root.qemu_command(), chosen, image, iommu, Path(folder))


def script(drivers: Sequence[str]) -> str:
    """The guest's script: bind devices, list them, become a shell."""
    bound = [device for device in DEVICES.values() if device.driver in drivers]
    lines = [f"device_bind {device.bdf} {device.driver}" for device in bound]
    listed = [f"  {device.bdf}  {device.name}" for device in bound or DEVICES.values()]
    text = "\n".join(
        [
            "A guest of the lab; `exit` or `poweroff` ends it, Ctrl-C is its own. Devices:",
            *listed,
            "A policy: echo fused >/sys/bus/pci/devices/BDF/xsmmu/policy, while no driver of its group is bound",
            "(echo BDF >/sys/bus/pci/drivers/DRIVER/unbind, and bind).",
        ]
    )
    return "\n".join(
        [
            *lines,
            f"cat >$console <<'END'\n{text}\nEND",
            # A serial port does not know the terminal's size; the kernel's command line does.
            'stty -F $console rows "$LINES" cols "$COLUMNS"',
            # The shell's parent is the guest's first process, which does not obey poweroff requests as an init would.
            'for word in poweroff halt reboot; do echo "$word() { busybox poweroff -f; }"; done >/tmp/.shrc',
            "export HOME=/tmp ENV=/tmp/.shrc TERM=linux PS1='xsmmu-lab# '",
            "cd /tmp",
            "setsid cttyhack sh <$console >$console 2>&1 3>&-",
            "",
        ]
    )


def _boot(qemu: Sequence[str], kernel: Kernel, image: Path, iommu: str, folder: Path) -> int:
    disk, log = folder / "disk", folder / "log"
    with disk.open("wb") as file:
        file.truncate(len(machine.DATA_DISKS) * machine.DATA_DISK_BYTES)
    size = os.get_terminal_size(sys.stdin.fileno())
    with contextlib.ExitStack() as stack:
        # Nothing reads the trace or speaks QMP; the near ends only have to be open.
        result, result_far = map(stack.enter_context, socket.socketpair())
        _qmp, qmp_far = map(stack.enter_context, socket.socketpair())
        trace = stack.enter_context(Path(os.devnull).open("wb")).fileno()
        ends = machine.Endpoints(None, result_far.fileno(), qmp_far.fileno(), trace, disk)
        arguments = machine.qemu_arguments("free", "tcg", iommu, _MEMORY_MIB, (), ends)
        words = (f"LINES={size.lines}", f"COLUMNS={size.columns}")
        arguments += machine.boot_arguments(kernel.vmlinuz, image, iommu, words)
        stack.enter_context(_terminal_kept())
        errors = stack.enter_context(log.open("wb"))
        fds = (result_far.fileno(), qmp_far.fileno(), trace)
        process = subprocess.Popen([*dies_with_us(), *qemu, *arguments], pass_fds=fds, stderr=errors)
        try:
            status = process.wait()
        finally:
            if process.poll() is None:
                process.kill()
                process.wait()
        if status != 0:
            raise GuestError(f"QEMU ended with status {status}", log.read_text(errors="replace").splitlines()[-20:])
        _check(result)
    return status


@contextlib.contextmanager
def _terminal_kept() -> Iterator[None]:
    """Restore the terminal: a killed QEMU would leave it raw and non-blocking."""
    before, blocking = termios.tcgetattr(sys.stdin), os.get_blocking(sys.stdin.fileno())
    try:
        yield
    finally:
        os.set_blocking(sys.stdin.fileno(), blocking)
        termios.tcsetattr(sys.stdin, termios.TCSADRAIN, before)


def _check(result: socket.socket) -> None:
    """Raise the error with which the guest failed before the shell started, if any."""
    result.setblocking(False)
    with contextlib.suppress(BlockingIOError):
        for line in result.recv(_RESULT_BYTES).splitlines():
            record = json.loads(line)
            if record["event"] == "error":
                raise GuestError(f"the guest had no shell: {record['message']}")
