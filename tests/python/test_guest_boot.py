# SPDX-License-Identifier: GPL-2.0-only
"""At boot: the disk of the root file system and the first NIC, attached from Debian's own initramfs."""

from __future__ import annotations

from pathlib import Path

import pytest
from tests.python import booted, guests
from tests.python.booted import Booted

from xsmmu_lab.setup import boot, build, kernels


def boot_from_disk(folder: Path, tool: str, *words: str) -> Booted:
    """Boot a disk by an initramfs of `tool`, with more words on the kernel's command line."""
    kernel = kernels.ensure(guests.tools())
    [xsmmu] = build.module(guests.tools(), kernel)
    image = boot.initramfs(guests.tools(), kernel, xsmmu, tool, booted.QUIET)
    machine = Booted(booted.run(folder, kernel, image, "boot.sh", words))
    machine.check_end()
    return machine


def check_attached(machine: Booted) -> None:
    machine.check_works()
    machine.check_attached()


@pytest.mark.guest
def test_attached_from_the_initramfs(tmp_path: Path) -> None:
    check_attached(boot_from_disk(tmp_path, "initramfs-tools"))


@pytest.mark.guest
def test_a_word_on_the_command_line_keeps_it_out(tmp_path: Path) -> None:
    boot_from_disk(tmp_path, "initramfs-tools", "module_blacklist=xsmmu").check_kernels_own_path("absent")


@pytest.mark.guest
@pytest.mark.long
@pytest.mark.parametrize(("rules", "state"), [("", "off"), ("nonsense", "absent")])
def test_the_command_line_has_the_last_word_on_rules(tmp_path: Path, rules: str, state: str) -> None:
    boot_from_disk(tmp_path, "initramfs-tools", f"xsmmu.rules={rules}").check_kernels_own_path(state)


@pytest.mark.guest
@pytest.mark.long
def test_attached_from_the_initramfs_of_dracut(tmp_path: Path) -> None:
    check_attached(boot_from_disk(tmp_path, "dracut"))


@pytest.mark.guest
@pytest.mark.long
def test_a_word_on_the_command_line_keeps_it_out_of_dracut(tmp_path: Path) -> None:
    boot_from_disk(tmp_path, "dracut", "module_blacklist=xsmmu").check_kernels_own_path("absent")
