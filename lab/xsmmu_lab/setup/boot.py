# SPDX-License-Identifier: GPL-2.0-only
"""Boot as a Debian machine does: an initramfs by Debian's tools, with xsmmu installed from tool/boot, and a disk.

The tools run in a separate root, which holds the kernel's modules as a machine would. Results are cached by a hash of
the inputs.
"""

from __future__ import annotations

import hashlib
import re
import shutil
from pathlib import Path

from rich.console import Console

from xsmmu.errors import UserError
from xsmmu_lab.project import PROJECT
from xsmmu_lab.setup import host
from xsmmu_lab.setup.kernels import Kernel
from xsmmu_lab.setup.root import BOOT, Root, ensure

INSTALLED = {
    "tool/boot/modprobe.conf": "etc/modprobe.d/xsmmu.conf",
    "tool/boot/dracut.conf": "etc/dracut.conf.d/xsmmu.conf",
}
"""The files that a user copies, and their targets."""

TOOLS = {
    "initramfs-tools": ("mkinitramfs", "-o"),
    # The initramfs contains a NIC driver on request, or if the root file system is on the network.
    "dracut": ("dracut", "--add-drivers", "e1000e", "--force"),
}
"""Commands that make an initramfs, without the image's name and the kernel's release; the configuration is Debian's."""

DISK_LABEL = "xsmmu-boot"
_DISK_MIB = 64
_IMAGES = "var/lib/xsmmu/images"
_KEPT = 4


def initramfs(tools: Root, kernel: Kernel, xsmmu: Path, tool: str, console: Console) -> Path:
    """The image that `tool` makes of a kernel with the module `xsmmu` installed as DKMS does."""
    root = ensure(tools.cache, console, BOOT)
    files = {target: (PROJECT / source).read_bytes() for source, target in INSTALLED.items()}
    files[f"usr/lib/modules/{kernel.release}/updates/dkms/xsmmu.ko"] = xsmmu.read_bytes()
    identity = hashlib.sha256(repr((kernel.release, kernel.version, TOOLS[tool], sorted(files.items()))).encode())
    image = root.path / _IMAGES / f"{tool}-{identity.hexdigest()[:16]}"
    with host.locked(root.cache / "boot.lock", console, "making an initramfs"):
        if not image.exists():
            _link_modules(root, tools, kernel)
            for name, content in files.items():
                (root.path / name).parent.mkdir(parents=True, exist_ok=True)
                (root.path / name).write_bytes(content)
            _make(root, kernel, tool, image, console)
        image.touch()
        for old in sorted(image.parent.iterdir(), key=lambda file: file.stat().st_mtime)[:-_KEPT]:
            old.unlink()
    return image


def _link_modules(root: Root, tools: Root, kernel: Kernel) -> None:
    """Link the kernel's modules, and its configuration, which lists the compressions of its initramfs."""
    place = root.path / "usr/lib/modules" / kernel.release
    host.remove_tree(place)
    place.mkdir(parents=True)
    for part in (*kernel.modules_dir.glob("modules.builtin*"), kernel.modules_dir / "modules.order"):
        if part.suffix != ".bin":
            shutil.copy(part, place)
    copied = host.run(["cp", "-a", "--link", f"{kernel.modules_dir}/kernel", str(place)], env=host.system_env())
    if copied.returncode != 0:
        raise UserError("cannot link the kernel's modules", copied.stderr.splitlines())
    shutil.copy(tools.path / "boot" / f"config-{kernel.release}", root.path / "boot")


def _make(root: Root, kernel: Kernel, tool: str, image: Path, console: Console) -> None:
    part = image.with_suffix(".tmp")
    part.parent.mkdir(parents=True, exist_ok=True)
    # Does the work of the maintainer scripts of libc-bin and of the kernel's packages.
    commands = [["ldconfig"], ["depmod", kernel.release], [*TOOLS[tool], root.inside(part), kernel.release]]
    with console.status(f"{tool}: initramfs of {kernel.release}"):
        for command in commands:
            result = root.run(command, proc=True)
            if result.returncode != 0 or (command[0] == TOOLS[tool][0] and not part.exists()):
                raise UserError(f"{command[0]} failed", (result.stdout + result.stderr).splitlines()[-30:])
    part.chmod(0o644)
    part.rename(image)


def program(tools: Root, name: str, console: Console) -> dict[str, bytes]:
    """A program of the root that makes initramfs, with its libraries, by their paths on a disk."""
    root = ensure(tools.cache, console, BOOT)
    listed = root.run(["ldd", f"/{name}"], proc=True)
    libraries = re.findall(r"(/\S+) \(0x", listed.stdout)
    if listed.returncode != 0 or not libraries:
        raise UserError(f"ldd {name} failed", (listed.stdout + listed.stderr).splitlines())
    files = {name: (root.path / name).read_bytes()}
    for library in libraries:
        # The folders are links in the root, with absolute targets that are right only inside.
        content = (root.path / "usr" / library.removeprefix("/usr").removeprefix("/")).read_bytes()
        files["lib64/ld-linux-x86-64.so.2" if "/ld-linux" in library else f"lib/{Path(library).name}"] = content
    return files


def read_file(tools: Root, disk: Path, name: str, target: Path, console: Console) -> bytes:
    """Read a file of a disk image by way of `target`. The contents of the journal are ignored."""
    root = ensure(tools.cache, console, BOOT)
    debugfs = [*root.loader_command(), str(root.path / "usr/sbin/debugfs")]
    copied = host.run([*debugfs, "-R", f"dump /{name} {target}", str(disk)], env=host.system_env())
    if copied.returncode != 0 or not target.exists():
        raise UserError(f"debugfs cannot read {name}", copied.stderr.splitlines())
    return target.read_bytes()


def disk(tools: Root, files: dict[str, bytes], target: Path, console: Console, mib: int = _DISK_MIB) -> None:
    """Make `target` a disk image with an ext4 file system, found by DISK_LABEL, of executable files."""
    root = ensure(tools.cache, console, BOOT)
    with host.locked(root.cache / "boot.lock", console, "making an initramfs"):
        tree = root.path / "var/lib/xsmmu/tree"
        host.remove_tree(tree)
        for name in ("dev", "proc", "run", "sys", "tmp"):
            (tree / name).mkdir(parents=True)
        for name, content in files.items():
            (tree / name).parent.mkdir(parents=True, exist_ok=True)
            (tree / name).write_bytes(content)
            (tree / name).chmod(0o755)
        image = tree.with_name("disk")
        image.unlink(missing_ok=True)
        make = ["mke2fs", "-q", "-F", "-t", "ext4", "-L", DISK_LABEL, "-d", root.inside(tree), root.inside(image)]
        result = root.run([*make, f"{mib}M"])
        if result.returncode != 0:
            raise UserError("mke2fs failed", result.stderr.splitlines())
        shutil.move(image, target)
