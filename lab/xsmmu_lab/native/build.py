# SPDX-License-Identifier: GPL-2.0-only
"""Builds User-Mode Linux from Debian's source with the fake IOMMU, the modules, and the image to boot."""

from __future__ import annotations

import hashlib
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from rich.console import Console

from xsmmu.errors import UserError
from xsmmu_lab.project import LAB
from xsmmu_lab.setup import build, host, kernels
from xsmmu_lab.setup.initramfs import Image
from xsmmu_lab.setup.root import Root

NATIVE: Final = LAB / "native"
STOCK: Final = "7.2"
"""The kernel whose source and compiler are used."""

_FILES: Final = {"uml.config": "own.config", "uml.patch": "own.patch", "fake_iommu.c": "arch/um/drivers/fake_iommu.c"}
"""Files of lab/native, and their places in the kernel's source."""
_DONE: Final = ".done"
_BUILD_BYTES: Final = 4 << 30
_MODULE_FOLDER: Final = "lab/native/module"


@dataclass(frozen=True)
class Machine:
    """The kernel, which is a program, and an image without the plan."""

    program: Path
    release: str
    image: Image
    modules: tuple[Path, ...] = ()


def _place(root: Root, stock: kernels.Kernel) -> Path:
    """The kernel's folder, whose name depends on all of its sources."""
    identity = f"{stock.version}\0{root.versions.get(stock.gcc, '')}\0".encode() + b"\0".join(_ours().values())
    return root.path / "usr/src" / f"linux-{stock.version}-native-{hashlib.sha256(identity).hexdigest()[:8]}"


def _ours() -> dict[str, bytes]:
    return {place: (NATIVE / name).read_bytes() for name, place in _FILES.items()}


def is_built(root: Root, console: Console) -> bool:
    """Whether the kernel of these sources is built."""
    return (_place(root, kernels.ensure(root, STOCK, console)) / _DONE).exists()


def machine(root: Root, console: Console) -> Machine:
    """Build what is missing. An interrupted build of the kernel goes on where it was."""
    stock = kernels.ensure(root, STOCK, console)
    place, ours = _place(root, stock), _ours()
    with host.locked(root.cache / "kernel-native.lock", console, "building User-Mode Linux"):
        if not (place / _DONE).exists():
            host.need_space(root.cache, _BUILD_BYTES, "building User-Mode Linux")
            _build_kernel(root, stock, place, ours, console)
            (place / _DONE).touch()
    kernel = kernels.Kernel(
        name="native",
        release=(place / "include/config/kernel.release").read_text().strip(),
        version=place.name,
        gcc=stock.gcc,
        headers=root.inside(place),
        vmlinuz=place / "vmlinux",
        modules_dir=place,
        source=place,
        make=("ARCH=um",),
    )
    image = Image()
    modules = (
        *build.module(root, kernel),
        *build.module(root, kernel, make_dir=_MODULE_FOLDER, outputs=("xsmmu_native.ko",)),
    )
    for module in modules:
        image.add(f"modules/{module.name}", module.read_bytes())
    image.add("init", (NATIVE / "init").read_bytes(), 0o755)
    image.add("bin/busybox", (root.programs / "usr/bin/busybox").read_bytes(), 0o755)
    return Machine(kernel.vmlinuz, kernel.release, image, modules)


def _build_kernel(root: Root, stock: kernels.Kernel, place: Path, ours: dict[str, bytes], console: Console) -> None:
    if not (place / "own.patch").exists():
        host.remove_tree(place)
        with host.locked(root.cache / "kernels.lock", console, "unpacking a kernel"):
            kernels.unpack_source(root, stock, place, (".",), console)
        (place / _FILES["fake_iommu.c"]).write_bytes(ours[_FILES["fake_iommu.c"]])
        (place / "own.config").write_bytes(ours["own.config"])
        (place / "own.part").write_bytes(ours["own.patch"])
        patched = root.run(["busybox", "patch", "-p1", "-i", "own.part"], cwd_in_root=root.inside(place))
        if patched.returncode != 0:
            host.remove_tree(place)
            raise UserError("lab/native/uml.patch does not fit this kernel", patched.stdout.splitlines())
        (place / "own.part").rename(place / "own.patch")
    console.print("User-Mode Linux: building, some minutes (a build that is stopped goes on later)")
    kernels.compile_source(
        root, stock, place, "User-Mode Linux", "lab/native/uml.config", "ARCH=um", ("vmlinux modules",), console
    )
