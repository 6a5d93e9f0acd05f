# SPDX-License-Identifier: GPL-2.0-only
"""The module xsmmu_bench: a driver that times maps and unmaps.

The driver starts no DMA. kmod/bench/main.c implements its file, kmod/bench/micro.c the measurement.
"""

from __future__ import annotations

import errno
import fcntl
import json
import os
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, Final

from xsmmu import __version__, binding, machine, module, steps
from xsmmu.errors import UserError
from xsmmu.machine import Device
from xsmmu.steps import Step

NAME: Final = "xsmmu_bench"
"""Name of the module, of its driver, and of its folder of a device."""
PAGES: Final = 65_536
"""Pages that a run maps and unmaps, without warm-up."""
QUANTITIES: Final = ("map", "unmap", "flush")
"""Timed parts: a map; an unmap, including work deferred to the end of a poll; and the deferred part alone."""


def load() -> Step:
    """Step that loads the module in the tool's version; undo unloads the module unless it was loaded before."""
    before = _is_loaded()

    def do() -> None:
        if not _is_loaded():
            _run("modprobe", "is missing or cannot be loaded: install xsmmu-dkms, which builds it with xsmmu.ko")
        version = machine.text(machine.sysfs() / "module" / NAME / "version")
        if version != __version__:
            raise UserError(
                f"the module {NAME} has version {version or 'unknown'}, but this tool has version {__version__}: "
                f"install both in the same version, then run rmmod {NAME}",
                code="module-version",
            )

    def undo() -> None:
        if _is_loaded():
            # modprobe -r would unload xsmmu, too.
            _run("rmmod", "cannot be unloaded")

    return Step(f"modprobe {NAME}", do, steps.nothing if before else undo)


def _is_loaded() -> bool:
    return (machine.sysfs() / "module" / NAME).is_dir()


def _run(program: str, failure: str) -> None:
    found = machine.program(program)
    if not found:
        raise UserError(f"the module {NAME} {failure}: program {program} is missing", code="no-module")
    # A session of its own, so that Ctrl-C on the terminal does not interrupt the program.
    done = subprocess.run([found, NAME], capture_output=True, text=True, start_new_session=True, check=False)
    if done.returncode:
        raise UserError(f"the module {NAME} {failure}", done.stderr.splitlines(), code="no-module")


def take(device: Device) -> list[Step]:
    """Steps that bind the driver to an unbound device."""
    return [binding.claim(device, NAME), binding.bind(device, NAME)]


def release_left(device: Device) -> bool:
    """Unbind the driver from a device that a killed command has left bound; returns whether that was necessary."""
    if device.driver != NAME:
        return False
    left = steps.take_back([Step("", steps.nothing, step.undo) for step in take(device)])
    if left:
        raise UserError("; ".join(left), code="not-put-back")
    return True


@contextmanager
def one_at_a_time(device: Device) -> Iterator[None]:
    """Hold a lock of the device; the lock ends with the process."""
    file = device.folder / "driver_override"
    try:
        handle = os.open(file, os.O_WRONLY)
    except FileNotFoundError:
        raise module.gone(device) from None
    except OSError:
        raise UserError(f"only root may write {file}: try sudo", code="no-permission") from None
    try:
        fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
        yield
    except BlockingIOError:
        raise UserError(f"{device.label} is used by another bench: wait for its end", code="busy") from None
    finally:
        os.close(handle)


@contextmanager
def one_cpu(device: Device) -> Iterator[None]:
    """Run on a single CPU near the device."""
    before = os.sched_getaffinity(0)
    near = before & _cpus(machine.text(device.folder / "local_cpulist") or "")
    # The first CPUs handle more of the machine's interrupts.
    os.sched_setaffinity(0, {max(near or before)})
    try:
        yield
    finally:
        os.sched_setaffinity(0, before)


def _cpus(words: str) -> set[int]:
    """CPUs of a list such as 0-3,8."""
    found: set[int] = set()
    for word in words.split(","):
        first, _, last = word.partition("-")
        if first.strip().isdigit():
            found |= {*range(int(first), int(last or first) + 1)}
    return found


def run(device: Device, ring: int, size_bytes: int) -> dict[str, Any]:
    """Map and unmap `ring` buffers at a time, PAGES in all; returns nanoseconds and other figures of the module."""
    file = device.folder / NAME / "micro"
    try:
        machine.put(file, f"ring={ring} rounds={PAGES // ring} bytes={size_bytes} ns=1")
        found = json.loads(file.read_text())
        times = {f"{name}_ns": float(found[f"{name}_ns_per_page"]) for name in QUANTITIES}
        return {**times, "disturbed": found["disturbed_rounds"], "translated": found["translated"]}
    except OSError as error:
        if error.errno in (errno.ENODEV, errno.ENXIO, errno.ENOENT):
            raise module.gone(device) from None
        if error.errno == errno.EBUSY:
            raise UserError("another bench runs on this machine: wait for its end", code="busy") from None
        raise UserError(
            f"{device.label}: the run failed ({error.strerror}): see the kernel log (dmesg)", code="run-failed"
        ) from None
    except (ValueError, KeyError, TypeError) as error:
        raise UserError(
            f"{file} has an unknown format ({error}): install tool and module in the same version",
            code="module-version",
        ) from None
