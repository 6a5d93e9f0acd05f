# SPDX-License-Identifier: GPL-2.0-only
"""The host: cache folders, running and stopping commands, and the origin of Debian packages.

Each child dies with the command that started the child: a child leads its own process group, which is ended on any
exception (Ctrl-C and SIGTERM included), and gets a signal from the kernel when its parent is killed.
"""

from __future__ import annotations

import fcntl
import os
import platform
import re
import shutil
import signal
import subprocess
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from types import FrameType

from rich.console import Console

from xsmmu.errors import UserError

SYSTEM_PATH = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"
"""For commands of the host's system: an ordinary user's PATH often lacks the sbin folders."""

_STOP_SECONDS = 5.0


def cache_dir() -> Path:
    """The cache folder: XSMMU_CACHE, else ~/.cache/xsmmu. Created when missing."""
    path = Path(os.environ.get("XSMMU_CACHE") or Path.home() / ".cache" / "xsmmu").absolute()
    try:
        path.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise UserError(
            f"cannot create the cache folder {path}: {error.strerror}; name another one in XSMMU_CACHE"
        ) from error
    return path


def interrupt_on_sigterm() -> None:
    """Make SIGTERM clean up as Ctrl-C does. Call once, in the main thread, at a command's start."""

    def interrupt(_signal: int, _frame: FrameType | None) -> None:
        raise KeyboardInterrupt

    signal.signal(signal.SIGTERM, interrupt)


@contextmanager
def locked(path: Path, console: Console, doing: str) -> Iterator[None]:
    """Hold the lock file `path`, waiting for another run with the same `doing`. A killed run releases the lock."""
    path.parent.mkdir(parents=True, exist_ok=True)
    with path.open("w") as file:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            console.print(f"waiting: another run is {doing}")
            fcntl.flock(file, fcntl.LOCK_EX)
        yield


@contextmanager
def locked_at_once(path: Path) -> Iterator[bool]:
    """Hold the lock file `path`, or give False if another run holds it."""
    with path.open("w") as file:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            yield False
        else:
            yield True


def need_space(path: Path, need_bytes: int, purpose: str) -> None:
    """Fail unless the file system of `path` has `need_bytes` free."""
    free_bytes = shutil.disk_usage(path).free
    if free_bytes < need_bytes:
        raise UserError(
            f"{purpose} needs {need_bytes >> 20} MiB in {path}, which has {free_bytes >> 20} MiB free:"
            " free some space, or name another folder in XSMMU_CACHE"
        )


def system_env(extra: Mapping[str, str] | None = None) -> dict[str, str]:
    """The caller's environment with a system PATH and untranslated messages."""
    return {**os.environ, "PATH": SYSTEM_PATH, "LC_ALL": "C.UTF-8", **(extra or {})}


@contextmanager
def _running(argv: Sequence[str], **options: object) -> Iterator[subprocess.Popen[str]]:
    process = subprocess.Popen(  # type: ignore[call-overload]
        ["setpriv", "--pdeathsig", "TERM", *argv],
        text=True,
        errors="replace",
        start_new_session=True,
        **options,
    )
    try:
        yield process
    except BaseException:
        stop_group(process)
        raise
    finally:
        for stream in (process.stdin, process.stdout, process.stderr):
            if stream:
                stream.close()


def stop_group(process: subprocess.Popen[str]) -> None:
    """End a process group and its leader: asked first, then killed."""
    for stop in (signal.SIGTERM, signal.SIGKILL):
        try:
            os.killpg(process.pid, stop)
            process.wait(_STOP_SECONDS)
        except ProcessLookupError:
            break
        except subprocess.TimeoutExpired:
            continue
    process.wait()


def run(
    argv: Sequence[str],
    *,
    cwd: Path | None = None,
    env: Mapping[str, str] | None = None,
    timeout: float | None = None,
) -> subprocess.CompletedProcess[str]:
    """Run a command to its end, without input; the output is captured, and the caller checks the status.

    Raises subprocess.TimeoutExpired after `timeout` seconds, with the whole group ended.
    """
    with _running(
        argv,
        cwd=cwd,
        env=None if env is None else dict(env),
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
    ) as process:
        stdout, stderr = process.communicate(timeout=timeout)
        return subprocess.CompletedProcess(list(argv), process.returncode, stdout, stderr)


def run_lines(
    argv: Sequence[str], on_line: Callable[[str], None], env: Mapping[str, str] | None = None
) -> tuple[int, list[str]]:
    """Run a command, hand each line of its output (both streams) to `on_line`; returns status and lines."""
    lines: list[str] = []
    with _running(
        argv,
        env=None if env is None else dict(env),
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
    ) as process:
        assert process.stdout is not None
        for line in process.stdout:
            lines.append(line.rstrip("\n"))
            on_line(lines[-1])
        process.wait()
        return process.returncode, lines


def remove_tree(path: Path) -> None:
    """Remove a tree of packages' files, in which folders may be read-only; missing is fine."""
    if not path.exists():
        return
    for folder, _, _ in os.walk(path):
        if not os.access(folder, os.W_OK):
            Path(folder).chmod(0o700)
    shutil.rmtree(path)


# Where Debian packages come from

_RELEASE_URI = re.compile(r"^'(?P<base>[^']+?)/*/dists/(?P<suite>[^/']+(?:/updates)?)/InRelease'", re.MULTILINE)


def archive_bases(print_uris: str) -> dict[str, list[str]]:
    """The archives of each suite, in order, in the output of `apt-get update --print-uris`.

    apt reads every form of source (one-line, deb822, mirror lists, auth) as the host is configured.
    """
    bases: dict[str, list[str]] = {}
    for match in _RELEASE_URI.finditer(print_uris):
        bases.setdefault(match["suite"], []).append(match["base"])
    return bases


def main_archive(bases: Mapping[str, Sequence[str]], codename: str) -> str | None:
    """The Debian archive among the host's archives: it has both a codename's own suite and the updates suite.

    Other archives use Debian's codenames too; only Debian has the updates suite. On a host without an updates suite the
    first archive is taken for Debian's.
    """
    candidates = bases.get(codename, [])
    with_updates = [base for base in candidates if base in bases.get(f"{codename}-updates", [])]
    chosen = [*with_updates, *candidates]
    return chosen[0] if chosen else None


def debian_codename() -> str:
    """The host's Debian codename; empty on another distribution, because the archive would be wrong."""
    try:
        release = platform.freedesktop_os_release()
    except OSError:
        return ""
    return release.get("VERSION_CODENAME", "") if release.get("ID") == "debian" else ""


def _default_sources(suite: str) -> str:
    """The sources that mmdebstrap would use for a suite, for a host without Debian in its apt sources."""
    show = "--setup-hook=sed 's/^/source:/' \"$1\"/etc/apt/sources.list; exit 1"
    target = Path("/tmp") / f"xsmmu-sources-{os.getpid()}"
    argv = ["mmdebstrap", "--mode=chrootless", "--skip=check/chrootless", "--variant=extract", show]
    try:
        result = run([*argv, suite, str(target)], env=system_env())
    finally:
        remove_tree(target)
    lines = re.findall(r"^source:(deb .*)$", result.stdout + result.stderr, re.MULTILINE)
    if not lines:
        raise UserError(
            "no Debian mirror is configured: name one in XSMMU_MIRROR, as in a sources.list line"
            " (and XSMMU_SECURITY_MIRROR for its security archive)"
        )
    return "\n".join(lines)


def debian_mirrors() -> tuple[str, str]:
    """The base URIs of the Debian archive and of its security archive.

    Taken from XSMMU_MIRROR and XSMMU_SECURITY_MIRROR, else from the host's apt, else from mmdebstrap's defaults.
    """
    main = os.environ.get("XSMMU_MIRROR")
    security = os.environ.get("XSMMU_SECURITY_MIRROR")
    if main and security:
        return main.rstrip("/"), security.rstrip("/")
    codename = debian_codename()
    listed = run(["apt-get", "update", "--print-uris"], env=system_env())
    bases = archive_bases(listed.stdout)
    main = main or main_archive(bases, codename)
    security = security or next(iter(bases.get(f"{codename}-security", [])), None)
    if not (main and security):
        suite = "trixie"
        sources = _default_sources(suite)
        main = main or re.findall(rf"(\S+) {suite} ", sources)[0]
        found = re.findall(rf"(\S+) {suite}-security ", sources)
        security = security or (found[0] if found else main)
    return main.rstrip("/"), security.rstrip("/")


_ACQUIRE_KEPT = re.compile(
    r"^Acquire::(?:http|https|ftp|Retries|ForceIPv[46]|Queue-Mode|Check-Valid-Until|Check-Date|proxy)\b.*;$",
    re.IGNORECASE | re.MULTILINE,
)


def apt_acquire_options() -> str:
    """The host's apt options for downloads (proxies, certificates, retries), as apt.conf lines."""
    dump = run(["apt-config", "dump"], env=system_env()).stdout
    return "\n".join(match[0] for match in _ACQUIRE_KEPT.finditer(dump)) + "\n"


_DOWNLOAD_FAULTS = (
    (
        re.compile(r"No space left on device|(?:not|n't) have enough free space", re.IGNORECASE),
        "the disk is full: free some space, or name another folder in XSMMU_CACHE",
    ),
    (
        re.compile(
            r"Temporary failure resolving|Could not resolve|Could not connect|Network is unreachable"
            r"|Connection timed out|connection timed out|No route to host|Cannot initiate the connection",
        ),
        "no network, or the Debian mirror does not answer: check the connection (and apt's proxy settings), then"
        " run the same command again; what was downloaded is kept",
    ),
    (
        re.compile(r"Hash Sum mismatch|unexpected size|File has unexpected|Mirror flush in progress", re.IGNORECASE),
        "a download arrived broken (a mirror being updated, or a faulty proxy): run the same command again",
    ),
    (
        re.compile(r"Unable to locate package|doesn't support architecture"),
        "the Debian mirror lacks packages: name one that has them in XSMMU_MIRROR",
    ),
    (
        re.compile(r"NO_PUBKEY|is not signed|couldn't be verified|could not be verified"),
        "the mirror's signature cannot be checked: bring the package debian-archive-keyring up to date",
    ),
)


def download_error(doing: str, lines: Sequence[str]) -> UserError:
    """The meaning of a failed package command in a message; the command's last lines stand below."""
    text = "\n".join(lines)
    for pattern, meaning in _DOWNLOAD_FAULTS:
        if pattern.search(text):
            telling = [line for line in lines if pattern.search(line)][:3]
            return UserError(f"{doing} failed: {meaning}", telling)
    return UserError(f"{doing} failed", list(lines)[-20:])
