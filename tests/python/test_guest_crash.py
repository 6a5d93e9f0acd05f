# SPDX-License-Identifier: GPL-2.0-only
"""A crash kernel: devices that were attached at the crash keep the kernel's own path there.

The crash kernel and its initramfs are those of the machine, so xsmmu and its rules are in the initramfs.
"""

from __future__ import annotations

import hashlib
from pathlib import Path

import pytest
from tests.python import booted, guests
from tests.python.booted import Booted

from xsmmu_lab.project import PROJECT
from xsmmu_lab.setup import boot, build, kernels

MEMORY_MIB, DISK_MIB = 1536, 192
CRASH_KERNEL = "crashkernel=512M"
STARTS = "Linux version "
PANIC = "Kernel panic - not syncing: sysrq triggered crash"

REFUSED = "xsmmu: refused: this is a crash kernel, whose devices keep the kernel's own path"
NOT_ATTACHED = (
    "xsmmu: not attached, the device stays on the kernel's own path: it still uses the page tables of an earlier kernel"
)


def crash(folder: Path, sources: Path = PROJECT) -> Booted:
    """Crash a working machine with xsmmu of these sources; returns the crash kernel's boot, after the dump."""
    tools = guests.tools()
    kernel = kernels.ensure(tools)
    [xsmmu] = build.module(tools, kernel, sources)
    image = boot.initramfs(tools, kernel, xsmmu, "initramfs-tools", booted.QUIET)
    files = {"boot/vmlinuz": kernel.vmlinuz.read_bytes(), "boot/initrd.img": image.read_bytes()}
    files |= boot.program(tools, "usr/sbin/kexec", booted.QUIET)
    lines = booted.run(folder, kernel, image, "crash.sh", (CRASH_KERNEL,), files, DISK_MIB, MEMORY_MIB)
    starts = [number for number, line in enumerate(lines) if STARTS in line] or [len(lines)]

    before = Booted([line for line in lines[: starts[0]] if PANIC not in line])
    before.check_end("crashing")
    before.check_works()
    before.check_attached()
    assert before.said["loaded"] == "1"
    assert int(before.said["meanwhile"]) > 0

    after = Booted(lines[starts[0] :])
    after.check_end()
    assert len(starts) == 1
    assert int(after.said["copied"]) == 1
    dump = boot.read_file(tools, folder / "disk", "dump", folder / "dump", booted.QUIET)
    assert hashlib.sha256(dump).hexdigest() == after.said["written"].split()[0]
    assert dump.startswith(b"\x7fELF")
    assert b"OSRELEASE=%s\n" % kernel.release.encode() in dump
    assert b"\nCRASHTIME=" in dump
    return after


@pytest.mark.guest
@pytest.mark.long
def test_a_crash_kernel_refuses_the_module(tmp_path: Path) -> None:
    after = crash(tmp_path)
    after.check_kernels_own_path("absent")
    # The refusal appears at each load, which each driver of the initramfs requests.
    assert {line.partition("] ")[2] for line in after.xsmmu_lines()} == {REFUSED}


@pytest.mark.guest
@pytest.mark.long
def test_what_another_kernel_has_attached_is_not_attached(tmp_path: Path) -> None:
    """Without the refusal of the crash kernel: the refusal of each device."""
    sources = guests.broken_sources(tmp_path / "sources", "kmod/main.c", {"if (is_kdump_kernel())": "if (false)"})
    after = crash(tmp_path, sources)
    after.check_kernels_own_path("failed")
    assert sorted(line.partition("] ")[2] for line in after.xsmmu_lines()) == [
        f"e1000e 0000:00:02.0: {NOT_ATTACHED}",
        f"nvme 0000:00:03.0: {NOT_ATTACHED}",
    ]
