# SPDX-License-Identifier: GPL-2.0-only
"""A kernel's build tree: a folder in which a user has built a kernel (`make O=... bzImage modules`).

The lab changes nothing in the tree. Requirements of the lab are checked before anything is built or booted.
"""

from __future__ import annotations

import hashlib
import re
import struct
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from xsmmu.errors import UserError

IMAGE = "arch/x86/boot/bzImage"
_RELEASE = "include/config/kernel.release"
_BUILT = (IMAGE, "Module.symvers", "modules.order", _RELEASE)

OPTIONS = {
    **dict.fromkeys(("MODULES", "BLK_DEV_INITRD", "BINFMT_ELF", "BINFMT_SCRIPT"), "y"),
    **dict.fromkeys(("DEVTMPFS", "PROC_FS", "SYSFS", "TMPFS", "DEBUG_FS", "DEVPORT"), "y"),
    **dict.fromkeys(("SMP", "ACPI", "PCI", "PCI_MSI", "INTEL_IOMMU", "SERIAL_8250_CONSOLE"), "y"),
    **dict.fromkeys(("NET", "BLOCK"), "y"),
    # CONFIG_VETH selects PAGE_POOL, as do many drivers.
    "PAGE_POOL": "y",
    **dict.fromkeys(("VIRTIO_PCI", "VIRTIO_CONSOLE"), "ym"),
    # Devices under test get their driver after a policy is chosen, so the driver must not be built in.
    **dict.fromkeys(("E1000E", "IGB", "BLK_DEV_NVME"), "mn"),
    # The module refuses PREEMPT_RT, and the lab's modules are not signed.
    **dict.fromkeys(("PREEMPT_RT", "MODULE_SIG_FORCE"), "n"),
}
"""Options that a guest of the lab needs, with their allowed values: y, m, or n if off or absent."""


@dataclass(frozen=True)
class Tree:
    """A build tree from which a guest can be booted."""

    path: Path
    release: str
    """The output of `uname -r`."""
    build: str
    """The build's identification."""
    compiler: str
    make: tuple[str, ...]
    """Arguments of make beside the compiler."""
    source: Path

    @property
    def vmlinuz(self) -> Path:
        """The kernel image."""
        return self.path / IMAGE


def read(path: Path) -> Tree:
    """Read a build tree; raises UserError if the folder is no build tree or lacks an option."""
    config = path / ".config"
    if not config.is_file():
        raise UserError(
            f"no kernel was built in {path}, {'which has no .config' if path.is_dir() else 'which is no folder'}:"
            " give the folder of `make O=FOLDER bzImage modules`",
            code="no-kernel",
        )
    text = config.read_text(errors="replace")
    options = dict(re.findall(r"^CONFIG_(\w+)=(.*)$", text, re.MULTILINE))
    if "X86_64" not in options:
        found = re.search(r"^# Linux/(\S+) ", text, re.MULTILINE)
        architecture = "32-bit x86" if "X86_32" in options else found[1] if found else "another architecture"
        raise UserError(f"{path} is a kernel for {architecture}, and the lab's guests are x86-64", code="no-kernel")
    faults = list(_faults(options))
    if faults:
        raise UserError(
            f"{path} is a kernel without options that the lab needs; build it again with these:",
            faults,
            code="no-kernel",
        )
    missing = [name for name in _BUILT if not (path / name).is_file()]
    if missing:
        raise UserError(
            f"{path} is no kernel that was built: it lacks {', '.join(missing)}, as headers do;"
            f" make -C {path} bzImage modules",
            code="no-kernel",
        )
    release = (path / _RELEASE).read_text().strip()
    image = (path / IMAGE).read_bytes()
    version = _version(image)
    if version.split(" ")[0] != release:
        raise UserError(
            f"{path}/{IMAGE} is of kernel {version.split(' ')[0] or 'nothing'}, and the rest is {release}:"
            f" make -C {path} bzImage modules",
            code="no-kernel",
        )
    digest = hashlib.sha256(image + text.encode() + (path / "Module.symvers").read_bytes()).hexdigest()[:12]
    build = f"own build {digest}{re.sub(r'^.*?(?= #)', '', version)}"
    source = path / "source" if (path / "source").is_dir() else path
    make = ("LLVM=1",) if "LD_IS_LLD" in options else ()
    return Tree(path, release, build, _compiler(options), make, source.resolve())


def _faults(options: dict[str, str]) -> Iterator[str]:
    """The necessary changes, each as a line of a configuration."""
    for name, allowed in OPTIONS.items():
        if options.get(name, "n") not in allowed:
            wanted = " or ".join(f"CONFIG_{name}={value}" for value in allowed if value != "n")
            yield wanted or f"CONFIG_{name} off"


def _version(image: bytes) -> str:
    """The version string of a bzImage, release first; empty for another file. Documentation/arch/x86/boot.rst."""
    if image[0x202:0x206] != b"HdrS":
        return ""
    [start] = struct.unpack_from("<H", image, 0x20E)
    return image[0x200 + start :].split(b"\0", 1)[0].decode(errors="replace")


def _compiler(options: dict[str, str]) -> str:
    """The compiler that built the kernel: gcc's version text begins with the name by which gcc was called."""
    words = options.get("CC_VERSION_TEXT", "gcc").strip('"').split(" ")
    return "clang" if "CC_IS_CLANG" in options else words[0]
