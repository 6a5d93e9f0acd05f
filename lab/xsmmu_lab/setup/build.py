# SPDX-License-Identifier: GPL-2.0-only
"""Builds in the private root: kernel modules by Kbuild, userspace tests by gcc.

A build is a folder of the root, named by a hash of all inputs, so the same sources are built once and no change is
missed.
"""

from __future__ import annotations

import hashlib
import os
import shutil
from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from rich.console import Console

from xsmmu.errors import UserError
from xsmmu_lab.arch import AMD64, Arch
from xsmmu_lab.project import PROJECT
from xsmmu_lab.setup import host
from xsmmu_lab.setup.kernels import Kernel
from xsmmu_lab.setup.root import LIBRARY_DIR, LOADER, Root

MODULE_PARTS = ("Kbuild", "core", "include", "kmod")
"""The sources of xsmmu.ko and xsmmu_bench.ko."""

HOOKED = ("-fsanitize=thread", "-fno-tree-loop-distribute-patterns")
"""Of programs: a call at each access to memory; loops are not replaced by memset(), which would have no such calls."""

_ALSO_NEEDED = {"docs/upstream": ("lab/module",), "tests/kmod": ("tests/unit",)}
"""Further folders that a module's folder needs, beside MODULE_PARTS."""

_SOURCE_SUFFIXES = (".c", ".h", ".S", ".lds", ".inc", ".def", ".mk")
_SOURCE_NAMES = ("Kbuild", "Makefile", "Kconfig", "xsmmu.symvers")
_BUILDS = "build"
_DONE = ".done"
_LOG = "build.log"
_KEPT = 100
"""Number of cached builds; the least recently used go first."""


@dataclass(frozen=True)
class _Build:
    folder: Path
    inside: str
    """The folder's path inside the root."""


def sources(source_dir: Path, parts: Sequence[str]) -> dict[str, bytes]:
    """The files of `parts`, and the C and Kbuild files below its folders, by name; both relative to `source_dir`."""
    found: dict[str, bytes] = {}
    for part in parts:
        start = source_dir / part
        if not start.exists():
            raise UserError(f"{start} does not exist, and a build needs it")
        for file in [start] if start.is_file() else sorted(start.rglob("*")):
            wanted = file == start or file.suffix in _SOURCE_SUFFIXES or file.name in _SOURCE_NAMES
            if wanted and file.is_file() and not file.name.endswith(".mod.c"):
                found[str(file.relative_to(source_dir))] = file.read_bytes()
    return found


def _digest(files: dict[str, bytes], *others: str) -> str:
    digest = hashlib.sha256("\0".join(others).encode())
    for name, content in sorted(files.items()):
        digest.update(f"\0{name}\0{len(content)}\0".encode() + content)
    return digest.hexdigest()[:16]


def _build(
    root: Root,
    files: dict[str, bytes],
    identity: Sequence[str],
    what: str,
    script: str,
    on_host: bool = False,
    again_in: str = "",
) -> _Build:
    """The build of `files` by a shell script that runs in their folder; reused if cached.

    The script runs in the root, or with the host's tools. `again_in` names a folder for successive versions of the
    same files: make then builds only the objects whose files differ.
    """
    digest = _digest(files, script, *identity)
    name = again_in or digest
    build = _Build(root.path / _BUILDS / name, f"/{_BUILDS}/{name}")
    done = build.folder / _DONE
    console = Console(stderr=True)
    if _is_finished(done, digest):
        return build
    with host.locked(_lock_of(root.cache, build.folder), console, f"building {what}"):
        if _is_finished(done, digest):
            return build
        if again_in:
            done.unlink(missing_ok=True)
        else:
            host.remove_tree(build.folder)
        for relative, content in files.items():
            target = build.folder / relative
            if not target.exists() or target.read_bytes() != content:
                target.parent.mkdir(parents=True, exist_ok=True)
                target.write_bytes(content)
        with console.status(f"building {what}"):
            argv = ["sh", "-ec", f"exec 2>&1; {script}"]
            if on_host:
                result = host.run(argv, cwd=build.folder, env=_own_env())
            else:
                result = root.run(argv, cwd_in_root=build.inside)
        (build.folder / _LOG).write_text(result.stdout)
        if result.returncode != 0:
            log = [
                line.replace(f"{build.folder if on_host else build.inside}/", "")
                for line in (result.stdout + result.stderr).splitlines()
            ]
            host.remove_tree(build.folder)
            raise UserError(f"{what} does not build", log)
        done.write_text(digest)
    _drop_old(build.folder.parent, root.cache)
    return build


def _lock_of(cache: Path, folder: Path) -> Path:
    """The lock of a build's folder: one of a few, which never go, so that other builds rarely wait for it."""
    return cache / f"build-{hashlib.sha256(bytes(folder)).hexdigest()[0]}.lock"


def _is_finished(done: Path, digest: str) -> bool:
    """Whether a build is finished; if so, its age restarts. Nothing is written to a build that is being removed."""
    try:
        os.utime(done)
        return done.read_text() in (digest, "")
    except FileNotFoundError:
        return False


def _own_env() -> dict[str, str]:
    """The caller's environment, without the variables of a make above this process."""
    return {name: value for name, value in os.environ.items() if name not in ("MAKEFLAGS", "MAKELEVEL", "MFLAGS")}


def _drop_old(builds: Path, cache: Path) -> None:
    """Remove the least recently used builds, but for those that another run may be making anew."""
    used: list[tuple[float, Path]] = []
    for done in builds.glob(f"*/{_DONE}"):
        with suppress(FileNotFoundError):
            used.append((done.stat().st_mtime, done))
    for time, done in sorted(used, reverse=True)[_KEPT:]:
        with host.locked_at_once(_lock_of(cache, done.parent)) as locked, suppress(FileNotFoundError):
            if locked and done.stat().st_mtime == time:
                done.unlink()
                host.remove_tree(done.parent)


def _outputs(build: _Build, names: Iterable[str], what: str) -> list[Path]:
    files = [build.folder / name for name in names]
    missing = [str(file.relative_to(build.folder)) for file in files if not file.exists()]
    if missing:
        log = (build.folder / _LOG).read_text().splitlines()
        (build.folder / _DONE).unlink()
        raise UserError(f"building {what} did not make {', '.join(missing)}", log[-20:])
    return files


def module(
    root: Root,
    kernel: Kernel,
    source_dir: Path = PROJECT,
    make_dir: str = ".",
    outputs: Sequence[str] = ("xsmmu.ko",),
    extra_make_args: Sequence[str] = (),
    parts: Sequence[str] | None = None,
    calls_xsmmu: bool = False,
    target: str = "modules",
    again_in: str = "",
) -> list[Path]:
    """Build out-of-tree modules for a kernel and return their files, cached by content.

    `make_dir` is the folder with the Kbuild, relative to `source_dir`; `outputs` are relative to `make_dir`. `parts`
    are the files and folders of `source_dir` in the build: by default those of xsmmu.ko, `make_dir` and the folders
    that `make_dir` needs. Modules that call xsmmu.ko (`calls_xsmmu`) get the versions of its symbols. `target` is
    Kbuild's target: all modules of the folder, or one. `again_in` is a folder for successive versions of the sources.
    """
    if parts is None:
        parts = MODULE_PARTS if make_dir == "." else (*MODULE_PARTS, make_dir, *_ALSO_NEEDED.get(make_dir, ()))
    files = sources(source_dir, parts)
    what = f"{', '.join(outputs)} for {kernel.release}"
    # Type information for BPF (BTF) would need pahole and the kernel's own image; nothing in the lab reads BTF.
    if calls_xsmmu:
        [xsmmu] = module(root, kernel, source_dir)
        symbols = xsmmu.parent / "Module.symvers"
        called = str(symbols) if kernel.on_host else root.inside(symbols)
        extra_make_args = (*extra_make_args, f"KBUILD_EXTRA_SYMBOLS={called}")
    make = [
        "make",
        "-C",
        _quote(kernel.headers),
        f"CC={kernel.gcc}",
        *kernel.make,
        'M="$PWD"',
        f"-j{os.cpu_count() or 1}",
        "CONFIG_DEBUG_INFO_BTF_MODULES=",
    ]
    script = f"cd {make_dir}; " + " ".join([*make, *(_quote(argument) for argument in extra_make_args), target])
    identity = (kernel.release, kernel.version, root.versions.get(kernel.gcc, ""))
    folder = f"{again_in}-{kernel.release}" if again_in else ""
    build = _build(root, files, identity, what, script, kernel.on_host, folder)
    return _outputs(build, (f"{make_dir}/{name}" for name in outputs), what)


def semantic_patch(root: Root, files: dict[str, bytes], patch: Path, patched: Sequence[str]) -> Path:
    """The folder of `files` after a semantic patch of the files in `patched`, cached by content."""
    script = " ".join(["spatch", "--very-quiet", "--in-place", "--sp-file", patch.name, *map(_quote, patched)])
    files = {**files, patch.name: patch.read_bytes()}
    return _build(root, files, (root.versions.get("coccinelle", ""),), patch.name, script).folder


def packages(root: Root, files: dict[str, bytes], epoch_s: int, arch: Arch = AMD64) -> list[Path]:
    """The Debian packages of a source tree with a folder debian/, cached by content.

    No file in the packages is younger than the epoch, so the same tree gives the same bytes. For another architecture
    than the host's only the packages that depend on it are built; the root has no tools to strip their programs.
    """
    tree = {f"source/{name}": content for name, content in files.items()}
    # Nothing is configured in a private root, so dpkg knows no installed package (-d).
    command = f"SOURCE_DATE_EPOCH={epoch_s} dpkg-buildpackage -d --no-sign"
    command += " -b" if arch == AMD64 else f" -B --host-arch={arch.name}"
    strip = "" if arch == AMD64 else "DEB_BUILD_OPTIONS='nostrip nocheck' "
    script = f"cd source; chmod +x debian/rules; {strip}{command}"
    build = _build(root, tree, (root.versions["debhelper"],), "the packages", script)
    return sorted(build.folder.glob("*.deb"))


def module_log(output: Path) -> str:
    """The output of a module's build (its warnings)."""
    folder = next(folder for folder in output.parents if (folder / _LOG).exists())
    return (folder / _LOG).read_text()


def userspace(
    root: Root,
    output: str,
    c_files: Sequence[str],
    flags: Sequence[str] = (),
    source_dir: Path = PROJECT,
    parts: Sequence[str] = ("core", "tests/unit"),
    compiler: str = "gcc-14",
    libraries: Sequence[str] = (),
    runs: bool = True,
    more: Mapping[str, bytes] | None = None,
) -> Path:
    """Compile C files of `source_dir` into one program, cached by content.

    The program runs on the host directly: it contains the paths of the root's loader and libraries. `flags` may name
    folders (-I) relative to `source_dir`. Run the program by `run_userspace`. With `runs` false the output is not a
    program and is linked as `flags` say. `more` are files from elsewhere, by name.
    """
    files = sources(source_dir, parts) | dict(more or {})
    link = [
        f"-Wl,--dynamic-linker={root.path / LOADER}",
        "-Wl,--disable-new-dtags",
        f"-Wl,-rpath,{root.path / LIBRARY_DIR}",
    ]
    argv = [compiler, *flags, "-o", output, *c_files, *(link if runs else ()), *libraries]
    script = " ".join(_quote(argument) for argument in argv)
    build = _build(root, files, (root.versions.get(compiler, ""),), output, script)
    return _outputs(build, (output,), output)[0]


def by_make(
    root: Root,
    make_dir: str,
    output: str,
    parts: Sequence[str],
    make_args: Sequence[str] = (),
    source_dir: Path = PROJECT,
) -> Path:
    """Build a program by the Makefile in a folder of `source_dir`, cached by content.

    `output` is relative to the folder. `parts` are the files and folders of the build.
    """
    argv = ["make", "-C", make_dir, *make_args, output]
    script = " ".join(_quote(argument) for argument in argv)
    built = _build(root, sources(source_dir, parts), sorted(root.versions.values()), output, script)
    return _outputs(built, (f"{make_dir}/{output}",), output)[0]


def run_userspace(program: Path, arguments: Sequence[str] = (), timeout: float | None = None) -> tuple[int, str]:
    """Run a program made by `userspace`; returns its status and output.

    Address space randomisation is off: ThreadSanitizer needs this, and failures repeat.
    """
    env = {
        **host.system_env(),
        "ASAN_OPTIONS": "abort_on_error=0:detect_leaks=1:detect_stack_use_after_return=1",
        "UBSAN_OPTIONS": "print_stacktrace=1:halt_on_error=1",
        "TSAN_OPTIONS": "halt_on_error=1:second_deadlock_stack=1",
    }
    no_randomisation = ["setarch", "x86_64", "-R"] if shutil.which("setarch", path=host.SYSTEM_PATH) else []
    result = host.run([*no_randomisation, str(program), *arguments], env=env, timeout=timeout)
    return result.returncode, result.stdout + result.stderr


def _quote(argument: str) -> str:
    return "'" + argument.replace("'", "'\\''") + "'"
