# SPDX-License-Identifier: GPL-2.0-only
"""The initramfs: archive format, module order, cache."""

from __future__ import annotations

import lzma
import os
import shutil
import subprocess
import time
from collections.abc import Iterable
from pathlib import Path

import pytest

from xsmmu.errors import UserError
from xsmmu_lab.setup.initramfs import IN_USE_S, KEEP_IMAGES, Image, Modules, module_depends, store


def module(depends: str) -> bytes:
    """The parts of a kernel module that are read here."""
    return b"\x7fELF\0license=GPL\0depends=" + depends.encode() + b"\0name=x\0"


def modules_dir(path: Path) -> Path:
    """A few modules, plain and compressed, one of them built in."""
    for name, depends in {"nvme": "nvme-core", "nvme-core": "nvme-auth,t10_pi", "nvme-auth": ""}.items():
        (path / f"{name}.ko").write_bytes(module(depends))
    (path / "igb.ko.xz").write_bytes(lzma.compress(module("dca,i2c-algo-bit")))
    (path / "dca.ko.xz").write_bytes(lzma.compress(module("")))
    (path / "i2c-algo-bit.ko").write_bytes(module(""))
    (path / "modules.builtin").write_text("kernel/block/t10-pi.ko\n")
    return path


def test_modules_come_after_what_they_need(tmp_path: Path) -> None:
    order = [name for name, _ in Modules(modules_dir(tmp_path)).load_order(["nvme", "igb", "nvme-core"])]
    assert order == ["nvme_auth", "nvme_core", "nvme", "dca", "i2c_algo_bit", "igb"]


def test_compressed_modules_arrive_unpacked(tmp_path: Path) -> None:
    assert dict(Modules(modules_dir(tmp_path)).load_order(["dca"])) == {"dca": module("")}


def test_an_unknown_module_is_named(tmp_path: Path) -> None:
    with pytest.raises(UserError, match="no module 'mlx5_core'"):
        Modules(modules_dir(tmp_path)).load_order(["mlx5_core"])


def test_depends_are_read() -> None:
    assert module_depends(module("a-b,c")) == ["a_b", "c"]
    assert module_depends(module("")) == []


def image() -> Image:
    """Files with odd lengths, a link, folders in folders."""
    made = Image()
    made.add("init", b"#!/bin/sh\n", 0o755)
    made.add("lab/parts/net.sh", b"x" * 7)
    made.add_link("lib", "usr/lib")
    return made


@pytest.mark.skipif(not shutil.which("cpio"), reason="no cpio on this host")
def test_the_archive_is_what_cpio_reads(tmp_path: Path) -> None:
    subprocess.run(["cpio", "-i", "--quiet"], input=image().archive(), cwd=tmp_path, check=True)
    assert (tmp_path / "lab/parts/net.sh").read_bytes() == b"x" * 7
    assert (tmp_path / "init").stat().st_mode & 0o777 == 0o755
    assert (tmp_path / "lib").readlink() == Path("usr/lib")


def test_equal_images_are_stored_once(tmp_path: Path) -> None:
    assert store(image(), tmp_path) == store(image(), tmp_path)
    changed = image()
    changed.add("init", b"#!/bin/sh\n", 0o700)
    assert store(changed, tmp_path) != store(image(), tmp_path)
    assert len(list((tmp_path / "initramfs").iterdir())) == 2


def test_the_cache_stays_small_and_keeps_what_another_lab_may_be_about_to_boot(tmp_path: Path) -> None:
    def fill(names: Iterable[int]) -> list[Path]:
        made = []
        for number in names:
            one = Image()
            one.add("init", str(number).encode())
            made.append(store(one, tmp_path))
        return made

    first = fill(range(KEEP_IMAGES + 5))
    assert all(path.exists() for path in first)
    # An image that another lab removes during the listing.
    (gone := tmp_path / "initramfs/gone.cpio").symlink_to("blocked")
    os.utime(first[0], times=(0, time.time() - IN_USE_S + 60))
    more = fill([KEEP_IMAGES + 5])
    assert first[0].exists()
    gone.unlink()
    more[0].unlink()
    long_ago = IN_USE_S + 60
    for age, path in enumerate(reversed(first), 1):
        os.utime(path, times=(0, time.time() - age * long_ago))
    # A requested image counts as new.
    assert fill([1]) == [first[1]]
    [newest] = fill([KEEP_IMAGES + 5])
    assert {*(tmp_path / "initramfs").iterdir()} == {
        first[1],
        *first[-(KEEP_IMAGES - 2) :],
        newest,
    }
