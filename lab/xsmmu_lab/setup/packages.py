# SPDX-License-Identifier: GPL-2.0-only
"""`make packages`: the Debian packages of the checkout, built in a separate private root."""

from __future__ import annotations

import shutil
from pathlib import Path

from rich.console import Console

from xsmmu.errors import UserError
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


def files() -> dict[str, bytes]:
    """The source tree: the checkout's files, with uncommitted changes, and debian/ where Debian's tools look.

    The programs of trace/ are built before, in their own root: the root for packages has no compilers.
    """
    found = {name: (PROJECT / name).read_bytes() for name in _tracked()}
    found["trace/record/xsmmu-record"] = trace.recorder().read_bytes()
    found["trace/replay/xsmmu-replay"] = replay.packaged().read_bytes()
    found["trace/replay/xsmmu-replay-lines"] = replay.packaged_counting().read_bytes()
    found["model/xsmmu-model"] = model.packaged().read_bytes()
    debian = "tool/debian/"
    return found | {
        f"debian/{name.removeprefix(debian)}": text for name, text in found.items() if name.startswith(debian)
    }


def ensure(console: Console) -> list[Path]:
    """The packages of the checkout; built if missing."""
    return build.packages(root.ensure(host.cache_dir(), console, root.PACKAGING), files(), epoch_s())


def copy(console: Console) -> list[Path]:
    """Copy the packages into results/packages of the checkout."""
    target = PROJECT / "results" / "packages"
    target.mkdir(parents=True, exist_ok=True)
    return [Path(shutil.copy(package, target)) for package in ensure(console)]
