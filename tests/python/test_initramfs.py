# SPDX-License-Identifier: GPL-2.0-only
"""The initramfs: archive format, module order, cache."""

from __future__ import annotations

import lzma
import shutil
import subprocess
from pathlib import Path

import pytest

from xsmmu.errors import UserError
from xsmmu.setup.initramfs import KEEP_IMAGES, Image, Modules, store


def modules_dir(path: Path) -> Path:
    """A few modules, plain and compressed, one of them built in, and depmod's index of them."""
    needs = {
        "nvme.ko": "nvme-core.ko nvme-auth.ko",
        "nvme-core.ko": "nvme-auth.ko",
        "nvme-auth.ko": "",
        "igb.ko.xz": "dca.ko.xz i2c-algo-bit.ko",
        "dca.ko.xz": "",
        "i2c-algo-bit.ko": "",
    }
    for name in needs:
        content = name.encode()
        (path / name).write_bytes(lzma.compress(content) if name.endswith(".xz") else content)
    (path / "modules.dep").write_text("".join(f"{name}: {needed}\n" for name, needed in needs.items()))
    (path / "modules.builtin").write_text("kernel/block/t10-pi.ko\n")
    return path


def test_modules_come_after_what_they_need(tmp_path: Path) -> None:
    order = [name for name, _ in Modules(modules_dir(tmp_path)).load_order(["t10-pi", "nvme", "igb", "nvme-core"])]
    assert order == ["nvme_auth", "nvme_core", "nvme", "i2c_algo_bit", "dca", "igb"]


def test_compressed_modules_arrive_unpacked(tmp_path: Path) -> None:
    assert dict(Modules(modules_dir(tmp_path)).load_order(["dca"])) == {"dca": b"dca.ko.xz"}


def test_an_unknown_module_is_named(tmp_path: Path) -> None:
    with pytest.raises(UserError, match="no module 'mlx5_core'"):
        Modules(modules_dir(tmp_path)).load_order(["mlx5_core"])


def test_modules_without_an_index_are_explained(tmp_path: Path) -> None:
    with pytest.raises(UserError, match=r"modules\.dep is missing"):
        Modules(tmp_path)


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


def test_the_cache_stays_small(tmp_path: Path) -> None:
    for number in range(KEEP_IMAGES + 5):
        made = Image()
        made.add("init", str(number).encode())
        newest = store(made, tmp_path)
    assert newest.exists()
    assert len(list((tmp_path / "initramfs").iterdir())) == KEEP_IMAGES
