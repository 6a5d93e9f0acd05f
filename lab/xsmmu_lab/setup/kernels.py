# SPDX-License-Identifier: GPL-2.0-only
"""Kernels: stock kernels are downloaded and unpacked into the private root, each when a run first asks.

A kernel in its own build tree can be used, too (tree.py). No kernel is installed: no initramfs is made and no script
runs. lab/kernels.toml names the stock kernels; the package is looked up in the archive's lists, and recorded. Some
kernels are built here, from a stock kernel's source.
"""

from __future__ import annotations

import hashlib
import json
import os
import re
import tempfile
import tomllib
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import cmp_to_key
from pathlib import Path

from rich.console import Console
from rich.status import Status

from xsmmu.errors import UserError, unknown_name
from xsmmu_lab.arch import AMD64, Arch
from xsmmu_lab.project import LAB
from xsmmu_lab.setup import host, tree
from xsmmu_lab.setup.root import Root

TABLE = LAB / "kernels.toml"

_KERNEL_BYTES = 1 << 30
_SOURCE_BYTES = 1 << 29
_BUILD_BYTES = 6 << 30
_RECORDS = "var/lib/xsmmu/kernels"


@dataclass(frozen=True)
class Wanted:
    """A kernel of lab/kernels.toml."""

    name: str
    suite: str
    release: str
    """A pattern without the architecture."""
    gcc: str
    arch: Sequence[str]
    flavour: str = ""
    """Debian's name of an unusual flavour of the architecture's kernel."""

    def pattern(self, arch: Arch) -> str:
        """The pattern for the whole release."""
        return f"{self.release}-{arch.name}" + (f"-{self.flavour}" if self.flavour else "")


@dataclass(frozen=True)
class Own:
    """A kernel of lab/kernels.toml that is built here: a stock kernel's source with another configuration."""

    name: str
    source: str
    config: str
    """A file beside the table; options outside the file are off."""


@dataclass(frozen=True)
class Kernel:
    """A kernel that can be booted and has the files for building modules."""

    name: str
    release: str
    """The output of `uname -r`."""
    version: str
    """The Debian version of the image package; for a build tree, the build's identification."""
    gcc: str
    headers: str
    """The folder for `make -C`, as seen where modules are built."""
    vmlinuz: Path
    modules_dir: Path
    source: Path | None = None
    """The folder of the complete source, if available; else the source comes from the distribution's package."""
    make: tuple[str, ...] = ()
    """More arguments for make."""
    on_host: bool = False
    """Whether modules are built by the host's make and compiler, as the kernel was, not by the private root's."""


def table(path: Path = TABLE) -> tuple[str, dict[str, Wanted]]:
    """The default kernel's name, and all stock kernels by name."""
    data = tomllib.loads(path.read_text())
    return data["default"], {name: Wanted(name=name, **row) for name, row in data["kernel"].items()}


def names(path: Path = TABLE) -> tuple[str, ...]:
    """The names of all kernels."""
    return (*table(path)[1], *own(path))


def own(path: Path = TABLE) -> dict[str, Own]:
    """The kernels that are built here, by name."""
    return {name: Own(name=name, **row) for name, row in tomllib.loads(path.read_text())["own"].items()}


def stock_names(arch: Arch = AMD64, path: Path = TABLE) -> tuple[str, ...]:
    """The stock kernels for guests of an architecture."""
    return tuple(name for name, wanted in table(path)[1].items() if arch.name in wanted.arch)


def of(arch: Arch, path: Path = TABLE) -> tuple[str, ...]:
    """All kernels for guests of an architecture."""
    return (*stock_names(arch, path), *(own(path) if arch == AMD64 else ()))


def named(asked: str | None, arch: Arch = AMD64) -> str:
    """The kernel's name, given a name, a stock kernel's release, a folder, or None for the default kernel."""
    default, wanted = table()
    name = asked or default
    for kernel in wanted.values():
        if re.fullmatch(kernel.pattern(arch), name):
            name = kernel.name
    if name in of(arch):
        return name
    if name in names():
        raise UserError(f"kernel {name} is not for {arch.name} guests; they can have: {', '.join(of(arch))}")
    if "/" in name or Path(name).is_dir():
        built = tree.read(Path(name).resolve())
        if arch != AMD64:
            raise UserError(f"{built.path} is a kernel for {AMD64.name}, and the guest is {arch.name}")
        return str(built.path)
    raise unknown_name("kernel", name, (*of(arch), "a folder that a kernel was built in"))


def ensure(root: Root, asked: str | None = None, console: Console | None = None) -> Kernel:
    """The requested kernel (see `named`); downloaded and unpacked, or built, if missing."""
    console = console or Console(stderr=True)
    name = named(asked, root.arch)
    if name in own():
        return _ensure_own(root, own()[name], console)
    if name not in names():
        return _of_tree(root, tree.read(Path(name)))
    kernel = _ensure_stock(root, table()[1][name], console)
    if asked not in (None, name, kernel.release):
        raise UserError(
            f"there is no kernel {asked} here, but {kernel.release}, the archive's last one when it was fetched:"
            " bring the machine to that one, or run `make clean` to have the lab fetch again"
        )
    return kernel


def _of_tree(root: Root, built: tree.Tree) -> Kernel:
    """The kernel of a build tree. A tree inside the private root was built for paths inside the root."""
    inside = built.path.is_relative_to(root.path)
    return Kernel(
        name=str(built.path),
        release=built.release,
        version=built.build,
        gcc=built.compiler,
        headers=root.inside(built.path) if inside else str(built.path),
        vmlinuz=built.vmlinuz,
        modules_dir=built.path,
        source=built.source,
        make=built.make,
        on_host=not inside,
    )


def _ensure_stock(root: Root, wanted: Wanted, console: Console) -> Kernel:
    record = _record(root.path, wanted.name)
    if not record.exists():
        with host.locked(root.cache / "kernels.lock", console, "unpacking a kernel"):
            if not record.exists():
                _install(root, wanted, record, console)
    data = json.loads(record.read_text())
    return Kernel(
        **data,
        vmlinuz=_vmlinuz(root, data["release"]),
        modules_dir=root.path / "usr/lib/modules" / data["release"],
        make=root.arch.make,
    )


def _record(root: Path, name: str) -> Path:
    return root / _RECORDS / f"{name}.json"


def missing_bytes(root: Path, name: str) -> int:
    """Bytes that a kernel will take in the cache; 0 if the root has the kernel, or no such kernel exists."""
    if name in own():
        # Whether this kernel is built depends on its sources, which may have to be fetched first.
        return missing_bytes(root, own()[name].source)
    present = _record(root, name).exists()
    return 0 if present or name not in table()[1] else _KERNEL_BYTES


def _ensure_own(root: Root, wanted: Own, console: Console) -> Kernel:
    """Build the kernel once, in the private root; an interrupted build continues."""
    stock = ensure(root, wanted.source, console)
    config = (TABLE.parent / wanted.config).read_bytes()
    identity = f"{stock.version}\0{root.versions.get(stock.gcc, '')}\0".encode() + config
    place = root.path / "usr/src" / f"linux-{stock.version}-{wanted.name}-{hashlib.sha256(identity).hexdigest()[:8]}"
    release_file = place / "include/config/kernel.release"
    done = place / ".done"
    with host.locked(root.cache / f"kernel-{wanted.name}.lock", console, f"building kernel {wanted.name}"):
        if not done.exists():
            host.need_space(root.cache, _BUILD_BYTES, f"building kernel {wanted.name}")
            _build_own(root, wanted, stock, place, config, console)
            done.touch()
    release = release_file.read_text().strip()
    return Kernel(
        name=wanted.name,
        release=release,
        version=stock.version,
        gcc=stock.gcc,
        headers=root.inside(place),
        vmlinuz=place / "arch/x86/boot/bzImage",
        modules_dir=root.path / "usr/lib/modules" / release,
        source=place,
    )


def _build_own(root: Root, wanted: Own, stock: Kernel, place: Path, config: bytes, console: Console) -> None:
    if not place.exists():
        with host.locked(root.cache / "kernels.lock", console, "unpacking a kernel"):
            unpack_source(root, stock, place, (".",), console)
    (place / "own.config").write_bytes(config)
    console.print(f"kernel {wanted.name}: building, up to half an hour (a build that is stopped goes on later)")
    compile_source(
        *(root, stock, place, f"kernel {wanted.name}", wanted.config, f"LOCALVERSION=-{wanted.name}"),
        *(("bzImage modules", "INSTALL_MOD_PATH=/usr modules_install"), console),
    )


def compile_source(
    root: Root,
    stock: Kernel,
    place: Path,
    what: str,
    config: str,
    variables: str,
    targets: Sequence[str],
    console: Console,
) -> None:
    """Configure the source in `place` by its file own.config, and build targets with the compiler of a stock kernel.

    `what` names the kernel, and `config` the configuration, in messages. `variables` are make's.
    """
    make = f"make -j{os.cpu_count() or 1} CC={stock.gcc} HOSTCC={stock.gcc} {variables}"
    with console.status(what) as status:

        def show(line: str) -> None:
            status.update(f"{what}: {line.strip()[:60]}")

        def run(*scripts: str) -> None:
            code, lines = root.run_lines(["sh", "-ec", "; ".join(scripts)], show, cwd_in_root=root.inside(place))
            if code != 0:
                raise UserError(f"{what} does not build", lines[-30:])

        run(f"{make} KCONFIG_ALLCONFIG=own.config allnoconfig")
        missing = _not_set((place / "own.config").read_text(), (place / ".config").read_text())
        if missing:
            raise UserError(f"{config} sets options that this kernel does not have: {', '.join(missing)}")
        run(*(f"{make} {target}" for target in targets))


def _not_set(wanted: str, config: str) -> list[str]:
    """The requested lines of a configuration that the result lacks."""
    return sorted(set(re.findall(r"^CONFIG_.*$", wanted, re.MULTILINE)) - set(config.splitlines()))


def source(root: Root, kernel: Kernel, folders: Sequence[str], console: Console | None = None) -> Path:
    """The given folders of the kernel's source: of the build tree, or of the package of the same version.

    The package is unpacked if missing.
    """
    if kernel.source:
        return kernel.source
    console = console or Console(stderr=True)
    place = root.path / "usr/src" / f"linux-{kernel.version}"
    with host.locked(root.cache / "kernels.lock", console, "unpacking a kernel"):
        missing = [folder for folder in folders if not (place / folder).exists()]
        if missing:
            unpack_source(root, kernel, place, missing, console)
    return place


def unpack_source(root: Root, kernel: Kernel, place: Path, folders: Sequence[str], console: Console) -> None:
    """Unpack folders of a kernel's source (`.` is the whole source) that `place` lacks."""
    package = f"linux-source-{kernel.name}"
    archive = root.path / "usr/src" / f"{package}.tar.xz"
    part = place.with_name(f"{place.name}.tmp")
    host.need_space(root.cache, _SOURCE_BYTES, f"the source of kernel {kernel.name}")
    host.remove_tree(part)
    part.mkdir(parents=True)
    with console.status(f"source of {kernel.release}") as status:
        if not archive.exists():
            with root.apt() as env:
                _, debs = _fetch(root, env, lambda: {package: kernel.version}, f"source of {kernel.release}", status)
            _unpack(root, debs[0])
        status.update(f"source of {kernel.release}: unpacking")
        members = [f"{package}/{folder}".removesuffix("/.") for folder in folders]
        tar = ["tar", "-x", "--no-same-owner", "--strip-components=1", "-f", root.inside(archive)]
        result = root.run([*tar, "-C", root.inside(part), *members])
    if result.returncode != 0:
        raise UserError(f"{package} lacks {', '.join(folders)}", result.stderr.splitlines())
    for folder in folders:
        (place / folder).parent.mkdir(parents=True, exist_ok=True)
        (part / folder).rename(place / folder)
    host.remove_tree(part)


def _vmlinuz(root: Root, release: str) -> Path:
    """The image: Debian 7 and later keep the image with the modules, earlier ones in /boot."""
    beside_modules = root.path / "usr/lib/modules" / release / "vmlinuz"
    return beside_modules if beside_modules.exists() else root.path / "boot" / f"vmlinuz-{release}"


def _install(root: Root, wanted: Wanted, record: Path, console: Console) -> None:
    host.need_space(root.cache, _KERNEL_BYTES, f"kernel {wanted.name}")
    with console.status(f"kernel {wanted.name}: looking it up") as status, root.apt() as env:
        packages, debs = _fetch(root, env, lambda: _resolve(env, wanted, root.arch), f"kernel {wanted.name}", status)
        image = next(iter(packages))
        release = image.removeprefix("linux-image-")
        status.update(f"kernel {release}: unpacking")
        for deb in debs:
            _unpack(root, deb)
        status.update(f"kernel {release}: indexing modules")
        indexed = root.run(["depmod", release])
    if indexed.returncode != 0:
        raise UserError(f"depmod failed for kernel {release}", indexed.stderr.splitlines()[-20:])
    headers = f"/usr/src/linux-headers-{release}"
    index = root.path / "usr/lib/modules" / release / "modules.dep"
    for needed in (_vmlinuz(root, release), index, root.path / headers[1:] / "Makefile"):
        if not needed.exists():
            raise UserError(f"the packages of kernel {release} ({', '.join(packages)}) lack {root.inside(needed)}")
    kernel = {
        "name": wanted.name,
        "release": release,
        "version": packages[image],
        "gcc": f"{root.arch.cross}{wanted.gcc}",
        "headers": headers,
    }
    record.parent.mkdir(parents=True, exist_ok=True)
    part = record.with_suffix(".tmp")
    part.write_text(json.dumps(kernel, indent=1) + "\n")
    part.rename(record)
    console.print(f"kernel {release} ({wanted.suite})")


def _fetch(
    root: Root, env: Mapping[str, str], resolve: Callable[[], dict[str, str]], what: str, status: Status
) -> tuple[dict[str, str], list[Path]]:
    """Download the packages that `resolve` names. Outdated lists are read again, once."""
    for attempt in ("as listed", "with new lists"):
        packages = resolve()
        status.update(f"{what}: downloading {next(iter(packages))}")
        debs = root.cache / "debs" / "kernels"
        debs.mkdir(parents=True, exist_ok=True)
        argv = ["apt-get", "-q", "download", *(f"{name}={version}" for name, version in packages.items())]
        result = host.run(argv, cwd=debs, env=env)
        if result.returncode == 0:
            return packages, [_deb_file(debs, name, version) for name, version in packages.items()]
        if attempt == "as listed" and re.search(r"\b404\b|was not found", result.stderr):
            status.update("reading package lists")
            host.run(["apt-get", "-q", "update"], env=env)
            continue
        break
    raise host.download_error(f"downloading {what}", result.stderr.splitlines())


def _resolve(env: Mapping[str, str], wanted: Wanted, arch: Arch) -> dict[str, str]:
    """Versions by name of the packages that make up the newest matching kernel, the image first."""
    names = host.run(["apt-cache", "pkgnames", "linux-image-"], env=env).stdout.split()
    pattern = re.compile(f"linux-image-({wanted.pattern(arch)})")
    matching = {match[0]: _show(env, match[0]) for match in map(pattern.fullmatch, names) if match}
    matching = {name: fields for name, fields in matching.items() if fields}
    if not matching:
        raise UserError(
            f"the archive has no kernel {wanted.name}: nothing in {wanted.suite} matches {pattern.pattern}; see {TABLE}"
        )
    versions = [fields["Version"] for fields in matching.values()]
    newest = max(versions, key=cmp_to_key(_compare_versions))
    image = next(name for name, fields in matching.items() if fields["Version"] == newest)
    headers = image.replace("linux-image-", "linux-headers-")
    return _closure(env, [image, headers])


def _compare_versions(one: str, other: str) -> int:
    return -1 if host.run(["dpkg", "--compare-versions", one, "lt", other]).returncode == 0 else 1


def _show(env: Mapping[str, str], name: str) -> dict[str, str]:
    """The fields of a package's candidate; empty if there is none."""
    text = host.run(["apt-cache", "show", "--no-all-versions", name], env=env).stdout
    return dict(re.findall(r"^([A-Za-z-]+): (.*)$", text.split("\n\n")[0], re.MULTILINE))


_PART = re.compile(r"linux-(?:image|binary|modules|base|headers|kbuild)-\d")
"""Packages that carry a part of a kernel, however the suite divides the kernel."""


def _closure(env: Mapping[str, str], names: Sequence[str]) -> dict[str, str]:
    found: dict[str, str] = {}
    todo = list(names)
    while todo:
        name = todo.pop(0)
        if name in found:
            continue
        fields = _show(env, name)
        if not fields:
            raise UserError(f"the archive lacks the package {name}, which a kernel of the lab needs")
        found[name] = fields["Version"]
        needs = f"{fields.get('Pre-Depends', '')},{fields.get('Depends', '')}"
        todo += [need.split()[0] for need in needs.split(",") if _PART.match(need.strip())]
    return found


def _deb_file(debs: Path, name: str, version: str) -> Path:
    found = list(debs.glob(f"{name}_{version.replace(':', '%3a')}_*.deb"))
    if len(found) != 1:
        raise UserError(f"{debs} should hold one file of {name} {version}, and holds {len(found)}")
    return found[0]


def _unpack(root: Root, deb: Path) -> None:
    """Unpack a package into the root, where /lib is /usr/lib."""
    with tempfile.TemporaryDirectory(prefix="unpack-", dir=root.path / "var/lib") as work:
        result = host.run(["dpkg-deb", "-x", str(deb), work], env=host.system_env())
        if result.returncode != 0:
            deb.unlink()
            raise host.download_error(f"unpacking {deb.name}", result.stderr.splitlines())
        old = Path(work) / "lib"
        if old.is_dir() and not old.is_symlink():
            _merge(old, Path(work) / "usr/lib")
            host.remove_tree(old)
        _merge(Path(work), root.path)


def _merge(source: Path, target: Path) -> None:
    """Link a tree's files into another tree of the same file system, over leftovers of a killed run."""
    target.mkdir(parents=True, exist_ok=True)
    result = host.run(["cp", "-a", "--link", "--force", f"{source}/.", str(target)], env=host.system_env())
    if result.returncode != 0:
        raise host.download_error("unpacking a kernel", result.stderr.splitlines())
