# SPDX-License-Identifier: GPL-2.0-only
"""`make packages`: the Debian packages of the checkout, built in a separate private root."""

from __future__ import annotations

import shutil
import tempfile
from pathlib import Path

from rich.console import Console

from xsmmu.errors import UserError
from xsmmu_lab.arch import AMD64, Arch
from xsmmu_lab.project import PROJECT
from xsmmu_lab.setup import build, host, model, replay, root, trace

_DOCS = tuple(f"docs/{name}.md" for name in ("levels", "record", "replay", "tool", "trace", "use"))
PARTS = ("Kbuild", "LICENSES", "core", "dkms.conf", "include", "kmod", "model", "tool", "trace", *_DOCS)
"""The sources of the packages."""


def _tracked() -> list[str]:
    listed = host.run(["git", "ls-files", "-z", "--cached", "--others", "--exclude-standard", *PARTS], cwd=PROJECT)
    if listed.returncode != 0:
        raise UserError("packages are built from a git checkout", listed.stderr.splitlines())
    return [name for name in listed.stdout.split("\0") if name and (PROJECT / name).is_file()]


def epoch_s() -> int:
    """The time of the checkout's commit, so that the same commit makes the same packages."""
    return int(host.run(["git", "log", "-1", "--format=%ct"], cwd=PROJECT).stdout)


def files(arch: Arch = AMD64) -> dict[str, bytes]:
    """The source tree: the checkout's files, with uncommitted changes, and debian/ where Debian's tools look.

    The programs of xsmmu-trace are built before, in their own root: the root for packages has no compilers.
    """
    found = {name: (PROJECT / name).read_bytes() for name in _tracked()}
    found["trace/record/xsmmu-record"] = trace.recorder(arch=arch).read_bytes()
    found["trace/replay/xsmmu-replay"] = replay.packaged(arch).read_bytes()
    found["trace/replay/xsmmu-replay-lines"] = replay.packaged_counting(arch).read_bytes()
    found["model/xsmmu-model"] = model.packaged(arch).read_bytes()
    debian = "tool/debian/"
    return found | {
        f"debian/{name.removeprefix(debian)}": text for name, text in found.items() if name.startswith(debian)
    }


def ensure(console: Console, arch: Arch = AMD64) -> list[Path]:
    """The packages of the checkout; built if missing. Of another architecture only those that depend on it."""
    tools = root.ensure(host.cache_dir(), console, root.PACKAGING)
    return build.packages(tools, files(arch), epoch_s(), arch)


def programs(arch: Arch, *names: str) -> dict[str, bytes]:
    """Programs of the package xsmmu-trace, by their paths in a guest."""
    [package] = [deb for deb in ensure(Console(stderr=True), arch) if deb.name.startswith("xsmmu-trace_")]
    with tempfile.TemporaryDirectory(prefix="xsmmu-") as folder:
        unpacked = host.run(["dpkg-deb", "-x", str(package), folder], env=host.system_env())
        if unpacked.returncode != 0:
            raise UserError(f"{package.name} cannot be unpacked", unpacked.stderr.splitlines())
        return {f"bin/{name}": Path(folder, "usr/libexec/xsmmu", name).read_bytes() for name in names}


def copy(console: Console, arch: Arch = AMD64) -> list[Path]:
    """Copy the packages into results/packages of the checkout."""
    target = PROJECT / "results" / "packages"
    target.mkdir(parents=True, exist_ok=True)
    return [Path(shutil.copy(package, target)) for package in ensure(console, arch)]
