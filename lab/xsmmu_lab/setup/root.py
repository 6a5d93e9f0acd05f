# SPDX-License-Identifier: GPL-2.0-only
"""The private root: a folder of unpacked Debian packages that holds every tool of the lab. There may be several.

mmdebstrap downloads and unpacks; no maintainer script ever runs, so an ordinary user can build a root, every file
belongs to that user, and nothing needs a mount. Commands run inside the root by chroot (root) or in a user namespace
that ends with them (ordinary user); QEMU and the unit tests run outside, through the root's own libraries.

A root is built under a temporary name and renamed when complete, so an existing name is a complete root. Versions come
from the suites at build time and are recorded, never pinned.
"""

from __future__ import annotations

import hashlib
import json
import os
import platform
import re
import shlex
import shutil
import stat
import subprocess
import tempfile
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from urllib.parse import unquote

from rich.console import Console

from xsmmu.errors import UserError
from xsmmu_lab.arch import AMD64, ARM64, Arch
from xsmmu_lab.setup import host

LIBRARY_DIR = AMD64.libraries
LOADER = f"usr/{AMD64.loader}"

_FORMAT = 1
"""Increased when roots change by other means than the lists below."""

_KERNEL_BUILD = (
    # a shell and the programs that kernel builds call
    *("base-files", "bash", "bc", "coreutils", "dash", "diffutils", "findutils", "gawk", "grep", "gzip"),
    *("make", "perl", "sed", "tar", "util-linux", "xz-utils"),
)

_PACKAGES = (
    *_KERNEL_BUILD,
    # compilers: 12 for bookworm's kernels, 14 for the others; sanitizers are included
    *("binutils", "gcc-12", "gcc-14", "libc6-dev", "libelf-dev"),
    # further tools to build a kernel
    *("bison", "flex"),
    # the fuzzer and branch coverage, which only clang has
    *("clang-19", "libclang-rt-19-dev", "llvm-19"),
    # semantic patches of drivers
    "coccinelle",
    # checks
    "shellcheck",
    # guests: the emulator, and the contents of an initramfs
    *("qemu-system-x86", "busybox-static", "fio", "iperf3", "iproute2", "kmod"),
)

_ARM64_PACKAGES = (*_KERNEL_BUILD, "gcc-14-aarch64-linux-gnu", "coccinelle", "qemu-system-arm", "kmod")

# Packages of a guest's programs, for guests that cannot run the programs above.
_PROGRAMS_PACKAGES = ("busybox-static", "coreutils", "fio", "iperf3", "iproute2", "util-linux")

_STABLE_SUITES = (("trixie", ""), ("trixie", "-updates"), ("trixie", "-security"))
_SUITES = (*_STABLE_SUITES, ("trixie", "-backports"))
_KERNEL_SUITES = (("bookworm", ""), ("bookworm", "-security"))

_PREFERENCES = """\
# QEMU, and what it needs, come from backports; bookworm is here for its kernel only.
Package: *
Pin: release n=trixie-backports
Pin-Priority: 500

Package: *
Pin: release n=bookworm*
Pin-Priority: 90
"""

_BOOT_PACKAGES = (
    *("base-files", "bash", "coreutils", "dash", "dpkg", "findutils", "gawk", "grep", "gzip", "libc-bin", "sed", "tar"),
    *("busybox", "e2fsprogs", "kmod", "linux-base", "mount", "systemd", "systemd-sysv", "udev", "util-linux", "zstd"),
    # Not `dracut`, which conflicts with the other and adds hooks to the installation of kernels.
    *("dracut-core", "initramfs-tools-core"),
    # Loads a crash kernel in the booted machine.
    "kexec-tools",
)

_PACKAGING_PACKAGES = (
    *("base-files", "bash", "coreutils", "dash", "findutils", "gawk", "grep", "gzip", "libc-bin", "sed", "tar"),
    "xz-utils",
    # the build dependencies of tool/debian/control, and tools to inspect the result
    *("debhelper", "dh-dkms", "dh-python", "dpkg-dev", "make", "python3-click", "python3-rich"),
    *("lintian", "mandoc"),
    # disk images from archives
    *("e2fsprogs", "libarchive13t64"),
)

_TRACE_PACKAGES = (
    *("base-files", "bash", "coreutils", "dash", "diffutils", "findutils", "gawk", "grep", "gzip", "make", "sed"),
    *("binutils", "gcc-14", "libc6-dev"),
    # BPF programs, their skeletons and types; the fuzzer of the reader
    *("bpftool", "clang-19", "libclang-rt-19-dev", "llvm-19"),
    *("libbpf-dev", "libelf-dev", "libzstd-dev", "zlib1g-dev"),
)

# The same for programs of arm64 guests.
_TRACE_ARM64_PACKAGES = (
    *("base-files", "bash", "coreutils", "dash", "diffutils", "findutils", "gawk", "grep", "gzip", "make", "sed"),
    *("binutils", "bpftool", "clang-19", "gcc-14-aarch64-linux-gnu"),
    *("libbpf-dev:arm64", "libc6-dev:arm64", "libelf-dev:arm64", "libzstd-dev:arm64", "zlib1g-dev:arm64"),
)


@dataclass(frozen=True)
class Contents:
    """The contents of a root."""

    name: str
    """Name of its folder, before a hash of the other fields."""
    packages: tuple[str, ...]
    suites: tuple[tuple[str, str], ...]
    check: str
    """A shell command that succeeds if programs run; empty if programs do not run here."""
    debs: str = ""
    """The subfolder of its packages."""
    arch: Arch = AMD64
    """The architecture of its kernels."""
    runs_on: Arch = AMD64
    """The architecture of its programs."""
    programs: Contents | None = None
    """The root with the programs for guests, if another."""

    @property
    def building(self) -> str:
        """The text of messages during the build."""
        others = "" if self.arch == AMD64 else f" for {self.arch.name} guests ({AMD64.name} ones do without it)"
        return f"building the private root{others}"

    @property
    def architectures(self) -> list[str]:
        """Debian's names of all architectures of its packages, the programs' own first."""
        return list(dict.fromkeys((self.runs_on.name, self.arch.name)))


_CLEAN = {"PATH": host.SYSTEM_PATH, "HOME": "/tmp", "LC_ALL": "C.UTF-8"}
_RECORD = ".xsmmu.json"
_DEVICES = {"null": (1, 3), "zero": (1, 5), "full": (1, 7), "random": (1, 8), "urandom": (1, 9)}
_MAPS = "7ffffffde000-7ffffffff000 rw-p 00000000 00:00 0 [stack]\n"
_ROOT_BYTES = 3 << 30
_ARCHIVES = "var/cache/apt/archives"

TOOLS = Contents(
    "root", _PACKAGES, (*_SUITES, *_KERNEL_SUITES), "gcc-14 --version >/dev/null && awk 'BEGIN { exit 0 }'"
)
TOOLS_ARM64 = Contents(
    *("root-arm64", _ARM64_PACKAGES, _SUITES, f"{ARM64.cross}gcc-14 --version >/dev/null && awk 'BEGIN {{ exit 0 }}'"),
    debs="arm64",
    arch=ARM64,
    programs=Contents(
        *("root-arm64-programs", _PROGRAMS_PACKAGES, _STABLE_SUITES, ""),
        debs="arm64-programs",
        arch=ARM64,
        runs_on=ARM64,
    ),
)
"""The tools for arm64 guests."""
BOOT = Contents("root-boot", _BOOT_PACKAGES, _STABLE_SUITES, "awk 'BEGIN { exit 0 }'", debs="boot")
"""The tools that make an initramfs."""
OF_GUESTS = {each.arch.name: each for each in (TOOLS, TOOLS_ARM64)}
"""By architecture of the guests."""
PACKAGING = Contents("root-packaging", _PACKAGING_PACKAGES, _STABLE_SUITES, "python3 -c 'import rich'", "packaging")
"""The tools that build the project's own packages."""
TRACE = Contents(
    *("root-trace", _TRACE_PACKAGES, _STABLE_SUITES, "gcc-14 --version >/dev/null && clang-19 --version >/dev/null"),
    debs="trace",
)
"""The tools that build the programs of trace/."""
TRACE_ARM64 = Contents(
    *("root-trace-arm64", _TRACE_ARM64_PACKAGES, _STABLE_SUITES),
    check=f"{ARM64.cross}gcc-14 --version >/dev/null && clang-19 --version >/dev/null",
    debs="trace-arm64",
    arch=ARM64,
)
"""The tools that build the recorder for arm64 guests."""


@dataclass(frozen=True)
class Root:
    """A complete private root."""

    path: Path
    cache: Path
    """The cache folder that contains the root."""
    versions: Mapping[str, str]
    """Debian versions of its packages (without kernels), by package name."""
    arch: Arch
    """The architecture of its kernels."""
    programs: Path
    """The root with the programs for guests."""

    def run(
        self,
        argv: Sequence[str],
        cwd_in_root: str = "/",
        env: Mapping[str, str] | None = None,
        timeout: float | None = None,
        proc: bool = False,
    ) -> subprocess.CompletedProcess[str]:
        """Run a command in the root, without input, in a clean environment plus `env`; with /proc if `proc`.

        `cwd_in_root` and the paths in `argv` are as seen inside. The caller checks the status.
        """
        return host.run(self._command(argv, cwd_in_root, proc), env={**_CLEAN, **(env or {})}, timeout=timeout)

    def run_lines(
        self, argv: Sequence[str], on_line: Callable[[str], None], cwd_in_root: str = "/"
    ) -> tuple[int, list[str]]:
        """As `run`, for a long command: each line of output also goes to `on_line`; returns status and lines."""
        return host.run_lines(self._command(argv, cwd_in_root), on_line, env=_CLEAN)

    def _command(self, argv: Sequence[str], cwd_in_root: str, proc: bool = False) -> list[str]:
        return [*self._entry(proc), "/usr/bin/env", f"--chdir={cwd_in_root}", *argv]

    def _entry(self, proc: bool) -> list[str]:
        """The command prefix that enters the root and leaves nothing behind."""
        if os.geteuid() == 0 and _make_devices(self.path / "dev") and not proc:
            return ["chroot", str(self.path)]
        proc_mount = 'mount --rbind /proc "$0/proc" || exit 125;' if proc else ""
        script = (
            'for name in $1; do : >>"$0/dev/$name" && mount --bind "/dev/$name" "$0/dev/$name" || exit 125; done;'
            f' {proc_mount} shift; exec chroot "$0" "$@"'
        )
        return [*_namespace(), "sh", "-c", script, str(self.path), " ".join(_DEVICES)]

    def inside(self, path: Path) -> str:
        """The path of a file inside the root."""
        return f"/{path.relative_to(self.path)}"

    def loader_command(self) -> list[str]:
        """The prefix that runs a program of the root outside the root, with the root's loader and libraries."""
        folders = [self.path / LIBRARY_DIR, self.path / LIBRARY_DIR / "pulseaudio"]
        return [str(self.path / LOADER), "--library-path", ":".join(str(folder) for folder in folders)]

    def qemu_command(self) -> list[str]:
        """The prefix of a QEMU command line. QEMU runs as an ordinary process, and the process's pid is QEMU's."""
        return [
            "/usr/bin/env",
            f"QEMU_MODULE_DIR={self.path / LIBRARY_DIR / 'qemu'}",
            *self.loader_command(),
            str(self.path / "usr/bin" / self.arch.qemu),
            "-L",
            str(self.path / "usr/share/qemu"),
            "-L",
            str(self.path / "usr/share/seabios"),
        ]

    @contextmanager
    def apt(self) -> Iterator[dict[str, str]]:
        """An environment in which the host's apt tools work on this root's package lists only."""
        with _apt_environment(self.path, [AMD64.name, self.arch.name]) as env:
            yield env


def _namespace() -> list[str]:
    user = [] if os.geteuid() == 0 else ["--user", "--map-root-user"]
    return ["unshare", *user, "--mount"]


def _make_devices(folder: Path) -> bool:
    """Make the device nodes that compilers need; returns false if the kernel refuses (some containers)."""
    try:
        for name, (major, minor) in _DEVICES.items():
            node = folder / name
            if node.is_char_device():
                continue
            node.unlink(missing_ok=True)
            os.mknod(node, 0o666 | stat.S_IFCHR, os.makedev(major, minor))
            node.chmod(0o666)
        with (folder / "null").open("w"):
            return True
    except OSError:
        return False


def _check_host() -> None:
    if platform.machine() != "x86_64":
        raise UserError(f"the lab needs an x86-64 host, this one is {platform.machine()}")
    for tool in ("mmdebstrap", "apt-get", "dpkg-deb", "unshare", "chroot"):
        if not shutil.which(tool, path=host.SYSTEM_PATH):
            raise UserError(f"'{tool}' is not installed: run `make lab`, which sets up the host")
    if os.geteuid() == 0:
        return
    probe = host.run([*_namespace(), "true"], env=host.system_env())
    if probe.returncode != 0:
        raise UserError(
            "an ordinary user needs user namespaces, which this host refuses"
            f" ({probe.stderr.strip()}): allow them (sysctl kernel.unprivileged_userns_clone=1 and"
            " kernel.apparmor_restrict_unprivileged_userns=0, where those exist), or run the same command as root"
        )


def _key(contents: Contents) -> str:
    parts = (_FORMAT, contents.packages, _SUITES, _KERNEL_SUITES, _PREFERENCES, _MAPS)
    return hashlib.sha256(repr(parts).encode()).hexdigest()[:12]


def place(cache: Path, contents: Contents = TOOLS) -> Path:
    """The path of a root, existing or not."""
    return cache / f"{contents.name}-{_key(contents)}"


def missing_bytes(cache: Path, contents: Contents = TOOLS) -> int:
    """Bytes that building a root will take in the cache; 0 if the root exists."""
    own = 0 if (place(cache, contents) / _RECORD).exists() else _ROOT_BYTES
    return own + (missing_bytes(cache, contents.programs) if contents.programs else 0)


def ensure(cache: Path, console: Console, contents: Contents = TOOLS) -> Root:
    """A private root below `cache`, built if missing. Concurrent callers wait for one build."""
    path = place(cache, contents)
    if not (path / _RECORD).exists():
        _check_host()
        with host.locked(cache / "root.lock", console, "building the private root"):
            if not (path / _RECORD).exists():
                _build(contents, path, cache, console)
    versions = json.loads((path / _RECORD).read_text())["packages"]
    if contents.programs is None:
        return Root(path, cache, versions, contents.arch, path)
    others = ensure(cache, console, contents.programs)
    return Root(path, cache, {**others.versions, **versions}, contents.arch, others.path)


def _build(contents: Contents, path: Path, cache: Path, console: Console) -> None:
    host.need_space(cache, _ROOT_BYTES, "the private root")
    for stale in (*cache.glob("root-*.tmp"), *cache.glob("setup-*")):
        host.remove_tree(stale)
    work = path.with_suffix(".tmp")
    debs = cache / "debs" / contents.debs
    debs.mkdir(parents=True, exist_ok=True)
    started = time.monotonic()
    try:
        _mmdebstrap(contents, work, cache, debs, console)
        packages = _record_packages(contents, work, debs)
        _finish(Root(work, cache, packages, contents.arch, work), contents)
        (work / _RECORD).write_text(json.dumps({"packages": packages}, indent=1, sort_keys=True) + "\n")
        work.rename(path)
    except OSError as error:
        raise host.download_error(contents.building, [str(error)]) from error
    finally:
        host.remove_tree(work)
    console.print(f"private root: {len(packages)} packages in {time.monotonic() - started:.0f} s")


def _sources(contents: Contents) -> str:
    main, security = host.debian_mirrors()
    lines = []
    for codename, pocket in contents.suites:
        base = security if pocket == "-security" else main
        lines.append(f"deb {base} {codename}{pocket} main\n")
    return "".join(lines)


_PHASES = {
    "running apt-get update": "reading package lists",
    "downloading packages": "downloading packages",
    "extracting archives": "unpacking packages",
}


def _mmdebstrap(contents: Contents, work: Path, cache: Path, debs: Path, console: Console) -> None:
    """Download and unpack into `work`. `debs` is the cache of packages."""
    with tempfile.TemporaryDirectory(prefix="setup-", dir=cache) as setup:
        files = Path(setup)
        (files / "sources.list").write_text(_sources(contents))
        (files / "preferences").write_text(_PREFERENCES)
        (files / "apt.conf").write_text(host.apt_acquire_options())
        hook = (
            f'mkdir -p "$1"/etc/apt/preferences.d "$1"/{_ARCHIVES}'
            f' && cp {shlex.quote(str(files / "preferences"))} "$1"/etc/apt/preferences.d/xsmmu'
            f' && find {shlex.quote(str(debs))} -maxdepth 1 -name "*.deb" -exec cp -l -t "$1"/{_ARCHIVES} {{}} +'
        )
        argv = [
            *("mmdebstrap", "--mode=chrootless", "--variant=extract", "--format=directory"),
            *("--skip=check/chrootless,cleanup/apt", f"--aptopt={files / 'apt.conf'}"),
            f"--architectures={','.join(contents.architectures)}",
            *(f"--setup-hook={hook}", f"--include={','.join(contents.packages)}"),
            *("trixie", str(work), str(files / "sources.list")),
        ]
        try:
            with _progress(console, work) as on_line:
                status, lines = host.run_lines(argv, on_line.line, env=host.system_env({"TMPDIR": setup}))
        finally:
            _keep_debs(work / _ARCHIVES, debs)
    if status != 0:
        raise host.download_error(contents.building, lines)


class _Phase:
    """The current phase of mmdebstrap, from its output."""

    def __init__(self, console: Console) -> None:
        self.name = "starting"
        self._console = console

    def line(self, line: str) -> None:
        for start, name in _PHASES.items():
            if start in line:
                self.name = name
                if not self._console.is_terminal:
                    self._console.print(f"private root: {name}")


@contextmanager
def _progress(console: Console, work: Path) -> Iterator[_Phase]:
    """Show the phase, the time and the downloaded bytes, once a second."""
    phase, done, started = _Phase(console), threading.Event(), time.monotonic()
    with console.status("private root") as status:

        def show() -> None:
            while not done.wait(1.0):
                got_bytes = _folder_bytes(work / _ARCHIVES)
                status.update(
                    f"private root: {phase.name}, {got_bytes >> 20} MiB of packages, {time.monotonic() - started:.0f} s"
                )

        thread = threading.Thread(target=show, daemon=True)
        thread.start()
        try:
            yield phase
        finally:
            done.set()
            thread.join()


def _folder_bytes(folder: Path) -> int:
    total = 0
    for place in (folder, folder / "partial"):
        try:
            with os.scandir(place) as entries:
                total += sum(entry.stat().st_size for entry in entries if entry.name.endswith(".deb"))
        except OSError:
            continue
    return total


def _keep_debs(archives: Path, debs: Path) -> None:
    """Keep complete downloads for the next build, whether this build succeeds or not."""
    for deb in archives.glob("*.deb"):
        if not (debs / deb.name).exists():
            deb.rename(debs / deb.name)
        else:
            deb.unlink()


@contextmanager
def _apt_environment(root: Path, architectures: Sequence[str]) -> Iterator[dict[str, str]]:
    listed = " ".join(f'"{name}";' for name in dict.fromkeys(architectures))
    with tempfile.NamedTemporaryFile("w", suffix=".conf", prefix="xsmmu-apt-") as file:
        file.write(
            f'Dir "{root}/";\n'
            'Dir::Bin::dpkg "/usr/bin/dpkg";\n'
            'Dir::Etc::Trusted "/etc/apt/trusted.gpg";\n'
            'Dir::Etc::TrustedParts "/etc/apt/trusted.gpg.d/";\n'
            'Dir::State::status "/dev/null";\n'
            f'APT::Architecture "{architectures[0]}";\n'
            f"APT::Architectures {{ {listed} }};\n"
            'APT::Sandbox::User "root";\n'
            'APT::Install-Recommends "false";\n' + host.apt_acquire_options()
        )
        file.flush()
        yield host.system_env({"APT_CONFIG": file.name})


def _record_packages(contents: Contents, work: Path, debs: Path) -> dict[str, str]:
    """Versions of the unpacked packages, as apt chooses from the same lists; older downloads are removed."""
    with _apt_environment(work, contents.architectures) as env, tempfile.TemporaryDirectory(prefix="xsmmu-") as empty:
        (Path(empty) / "partial").mkdir()
        argv = ["apt-get", "-qq", "--print-uris", "-o", f"Dir::Cache::archives={empty}", "install"]
        result = host.run([*argv, *contents.packages], env=env)
    names = re.findall(r"^'[^']*' (\S+\.deb) ", result.stdout, re.MULTILINE)
    if result.returncode != 0 or not names:
        raise host.download_error("reading the private root's versions", result.stderr.splitlines())
    for deb in debs.glob("*.deb"):
        if deb.name not in names:
            deb.unlink()
    fields = [name.removesuffix(".deb").split("_") for name in names]
    return {name: unquote(version) for name, version, _ in fields}


def _finish(root: Root, contents: Contents) -> None:
    """Do the necessary work of maintainer scripts; then check that programs run."""
    etc = root.path / "etc"
    (etc / "passwd").write_text("root:x:0:0:root:/root:/bin/sh\n")
    (etc / "group").write_text("root:x:0:\n")
    awk = root.path / "usr/bin/awk"
    if not awk.is_symlink():
        awk.symlink_to("gawk")
    # No /proc is mounted. objtool (7.x) looks up its stack there, only for a report of its own crashes, and refuses to
    # work without an answer.
    maps = root.path / "proc/self/maps"
    maps.parent.mkdir(parents=True)
    maps.write_text(_MAPS)
    check = root.run(["sh", "-c", contents.check]) if contents.check else None
    if check and check.returncode != 0:
        raise UserError(
            "the private root was unpacked but its programs do not run: its folder may be mounted noexec or nodev;"
            " name another folder in XSMMU_CACHE",
            check.stderr.splitlines(),
        )
