# SPDX-License-Identifier: GPL-2.0-only
"""A crash kernel: devices that were taken over when the machine crashed keep the kernel's own path there.

The crash kernel and its initramfs are those of the machine, so xsmmu and its rules are in it.
"""

from __future__ import annotations

import hashlib
import os
from pathlib import Path

import pytest
from tests.python import booted, guests
from tests.python.booted import Booted

from xsmmu import boot, build, kernels
from xsmmu.build import PROJECT

REFUSED = "xsmmu: refused: this is a crash kernel, whose devices keep the kernel's own path"
STARTS = "Linux version "
PANIC = "Kernel panic - not syncing: sysrq triggered crash"
MEMORY_MIB, DISK_MIB = 1536, 192
CRASH_KERNEL = "crashkernel=512M"
FAULTS_MAX = 8


@pytest.mark.guest
def test_a_dump_is_written_on_the_kernels_own_path(tmp_path: Path) -> None:
    tools = guests.tools()
    kernel = kernels.ensure(tools)
    [xsmmu] = build.module(tools, kernel, Path(os.environ.get("KDUMP_SOURCES", PROJECT)))
    image = boot.initramfs(tools, kernel, xsmmu, "initramfs-tools", booted.QUIET)
    files = {"boot/vmlinuz": kernel.vmlinuz.read_bytes(), "boot/initrd.img": image.read_bytes()}
    files |= boot.program(tools, "usr/sbin/kexec", booted.QUIET)
    lines = booted.run(tmp_path, kernel, image, "crash.sh", (CRASH_KERNEL,), files, DISK_MIB, MEMORY_MIB)
    starts = [number for number, line in enumerate(lines) if STARTS in line] or [len(lines)]

    before = Booted([line for line in lines[: starts[0]] if PANIC not in line])
    before.check_end("crashing")
    before.check_works()
    before.check_taken_over()
    assert before.said["loaded"] == "1"
    assert int(before.said["meanwhile"]) > 0

    after = Booted(lines[starts[0] :])
    after.check_end(faults=FAULTS_MAX)
    assert len(starts) == 1
    assert int(after.said["copied"]) == 1
    # It says so whenever it is loaded, which each driver of the initramfs asks for.
    assert {line.partition("] ")[2] for line in after.xsmmu_lines()} == {REFUSED}
    after.check_kernels_own_path("absent")

    dump = boot.read_file(tools, tmp_path / "disk", "dump", tmp_path / "dump", booted.QUIET)
    assert hashlib.sha256(dump).hexdigest() == after.said["written"].split()[0]
    assert dump.startswith(b"\x7fELF")
    assert b"OSRELEASE=%s\n" % kernel.release.encode() in dump
    assert b"\nCRASHTIME=" in dump
