# SPDX-License-Identifier: GPL-2.0-only
"""The guest's initramfs: programs with their libraries, kernel modules with their dependencies, scripts.

An image is a list of entries (path in the guest, content). Its name in the cache is a hash of all entries, so a changed
module or script makes another image and no cache entry becomes stale.
"""

from __future__ import annotations

import hashlib
import io
import lzma
import os
import re
import stat
import struct
import time
from collections.abc import Iterable, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path

from xsmmu.errors import UserError
from xsmmu_lab.arch import AMD64, Arch

KEEP_IMAGES = 12
"""Images kept in the cache; the least recently used go first."""

IN_USE_S = 3600
"""Another lab's guest may still boot an image that was stored or requested this recently."""

_DEPENDS = re.compile(rb"\0depends=([^\0]*)\0")


@dataclass
class Image:
    """Entries of a future archive; a later entry of the same path replaces the earlier entry."""

    files: dict[str, tuple[int, bytes]] = field(default_factory=dict)
    links: dict[str, str] = field(default_factory=dict)

    def add(self, path: str, content: bytes, mode: int = 0o644) -> None:
        """Put a regular file at `path` (no leading slash)."""
        self.files[path] = (stat.S_IFREG | mode, content)

    def add_link(self, path: str, target: str) -> None:
        """Put a symbolic link at `path`."""
        self.links[path] = target

    def digest(self) -> str:
        """A name for the content: equal images have equal names."""
        total = hashlib.sha256()
        for path, (mode, content) in sorted(self.files.items()):
            total.update(f"{path}\0{mode:o}\0{len(content)}\0".encode())
            total.update(content)
        for path, target in sorted(self.links.items()):
            total.update(f"{path}\0{target}\0".encode())
        return total.hexdigest()[:24]

    def archive(self) -> bytes:
        """The image as an uncompressed `newc` archive, as the kernel unpacks it."""
        out = io.BytesIO()
        entries: dict[str, tuple[int, bytes]] = dict(self.files)
        for path, target in self.links.items():
            entries[path] = (stat.S_IFLNK | 0o777, target.encode())
        folders = {str(parent) for path in entries for parent in Path(path).parents} - {"."}
        for folder in folders:
            entries.setdefault(folder, (stat.S_IFDIR | 0o755, b""))
        for inode, (path, (mode, content)) in enumerate(sorted(entries.items()), start=1):
            _write_entry(out, inode, mode, path, content)
        _write_entry(out, 0, 0, "TRAILER!!!", b"")
        return out.getvalue()


def _write_entry(out: io.BytesIO, inode: int, mode: int, path: str, content: bytes) -> None:
    name = path.encode() + b"\0"
    fields = (inode, mode, 0, 0, 1, 0, len(content), 0, 0, 0, 0, len(name), 0)
    out.write(b"070701" + b"".join(b"%08x" % value for value in fields) + name)
    out.write(b"\0" * (-out.tell() % 4))
    out.write(content)
    out.write(b"\0" * (-out.tell() % 4))


def _module_files(folder: Path) -> list[Path]:
    """All modules of an installed kernel; for a build tree the listed modules, because other files may be stale."""
    if not (folder / "Module.symvers").exists():
        return list(folder.rglob("*.ko*"))
    return [(folder / name).with_suffix(".ko") for name in (folder / "modules.order").read_text().splitlines()]


class Modules:
    """The stock modules of a kernel, found by name; dependencies are read from the modules themselves."""

    def __init__(self, modules_dir: Path) -> None:
        self._paths: dict[str, Path] = {}
        for path in _module_files(modules_dir):
            self._paths.setdefault(_module_name(path), path)
        if not self._paths:
            raise UserError(f"no kernel modules below {modules_dir}: remove the lab's cache and run again")
        builtin = modules_dir / "modules.builtin"
        text = builtin.read_text() if builtin.exists() else ""
        self._builtin = {_module_name(Path(line)) for line in text.splitlines()}

    def load_order(self, names: Iterable[str]) -> list[tuple[str, bytes]]:
        """Modules (name, content) in a valid loading order; built-in modules are left out."""
        order: dict[str, bytes] = {}
        for name in names:
            self._visit(name.replace("-", "_"), order)
        return list(order.items())

    def _visit(self, name: str, order: dict[str, bytes]) -> None:
        if name in order or name in self._builtin:
            return
        if name not in self._paths:
            raise UserError(f"the kernel has no module '{name}', neither built in nor as a file")
        content = _module_content(self._paths[name])
        for dependency in module_depends(content):
            self._visit(dependency, order)
        order[name] = content


def module_depends(content: bytes) -> list[str]:
    """The names that a module's own `depends=` record lists."""
    found = _DEPENDS.search(content)
    if not found or not found[1]:
        return []
    return [name.decode().replace("-", "_") for name in found[1].split(b",")]


def _module_name(path: Path) -> str:
    return path.name.split(".ko")[0].replace("-", "_")


def _module_content(path: Path) -> bytes:
    data = path.read_bytes()
    if path.name.endswith(".ko"):
        return data
    if path.name.endswith(".ko.xz"):
        return lzma.decompress(data)
    raise UserError(f"{path}: only .ko and .ko.xz modules can be read")


def add_programs(image: Image, root: Path, programs: Sequence[str], arch: Arch = AMD64) -> None:
    """Put programs of the private root into the image, with the loader and every needed library."""
    libraries: dict[str, Path] = {}
    for program in programs:
        source = root / program
        if not source.exists():
            raise UserError(f"{source} is missing: remove the lab's cache and run again")
        image.add(f"usr/bin/{source.name}", source.read_bytes(), 0o755)
        libraries |= libraries_of(root, source, arch)
    if libraries:
        # Loaded by name at runtime, not linked: thread cancellation needs this library.
        libraries["libgcc_s.so.1"] = (root / arch.libraries / "libgcc_s.so.1").resolve()
        image.add(arch.loader, (root / "usr" / arch.loader).resolve().read_bytes(), 0o755)
    for name, path in libraries.items():
        image.add(f"{arch.libraries}/{name}", path.read_bytes(), 0o755)


def libraries_of(root: Path, program: Path, arch: Arch = AMD64) -> dict[str, Path]:
    """The libraries that a program of the private root is linked with, by name. The program need not run here."""
    base = root / arch.libraries
    # Some libraries (ceph's, which fio links) live in a subfolder and are found by an absolute RUNPATH, which is wrong
    # in a private root.
    folders = [base, *sorted({path.parent for path in base.glob("*/*.so*")})]
    loader = Path(arch.loader).name
    found: dict[str, Path] = {}
    todo = [program]
    while todo:
        for name in needed(todo.pop().read_bytes()):
            if name in found or name == loader:
                continue
            path = next((folder / name for folder in folders if (folder / name).exists()), None)
            if path is None:
                raise UserError(f"cannot resolve the libraries of {program}: there is no {name} below {base}")
            found[name] = path.resolve()
            todo.append(found[name])
    return found


_LOADED, _DYNAMIC = 1, 2
_NEEDED, _STRINGS = 1, 5


def needed(elf: bytes) -> list[str]:
    """The libraries that a 64-bit program or library itself names; for any other file, none."""
    if elf[:6] != b"\x7fELF\x02\x01":
        return []
    [start] = struct.unpack_from("<Q", elf, 0x20)
    size, count = struct.unpack_from("<HH", elf, 0x36)
    # Fields: kind, flags, offset in the file, address, physical address, bytes in the file.
    headers = [struct.unpack_from("<IIQQQQ", elf, start + index * size) for index in range(count)]
    dynamic = next((each for each in headers if each[0] == _DYNAMIC), None)
    if dynamic is None:
        return []
    entries = list(struct.iter_unpack("<qQ", elf[dynamic[2] : dynamic[2] + dynamic[5]]))
    [strings] = [value for tag, value in entries if tag == _STRINGS]
    [offset] = [each[2] - each[3] for each in headers if each[0] == _LOADED and 0 <= strings - each[3] < each[5]]
    names = [strings + offset + value for tag, value in entries if tag == _NEEDED]
    return [elf[name : elf.index(b"\0", name)].decode() for name in names]


def store(image: Image, cache: Path) -> Path:
    """Write the image into the cache unless present; returns its path."""
    folder = cache / "initramfs"
    folder.mkdir(parents=True, exist_ok=True)
    path = folder / f"{image.digest()}.cpio"
    if path.exists():
        os.utime(path)
        return path
    partial = folder / f".{path.name}.{os.getpid()}"
    try:
        partial.write_bytes(image.archive())
        partial.replace(path)
    finally:
        partial.unlink(missing_ok=True)
    _forget_old(folder)
    return path


def _forget_old(folder: Path) -> None:
    # Other labs store and remove images concurrently, so a listed image may be gone.
    used = {}
    for image in folder.glob("*.cpio"):
        with suppress(FileNotFoundError):
            used[image] = image.stat().st_mtime
    for image in sorted(used, key=used.__getitem__)[:-KEEP_IMAGES]:
        if time.time() - used[image] > IN_USE_S:
            image.unlink(missing_ok=True)


def busybox(root: Path) -> bytes:
    """The static busybox of the private root."""
    path = root / "usr/bin/busybox"
    if not path.exists():
        raise UserError(f"{path} is missing: remove the lab's cache and run again")
    return path.read_bytes()
