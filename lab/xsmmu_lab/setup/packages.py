# SPDX-License-Identifier: GPL-2.0-only
"""`make packages`: the Debian packages of the checkout as it is, built in a private root of their own."""

from __future__ import annotations

import shutil
from pathlib import Path

from rich.console import Console

from xsmmu.errors import UserError
from xsmmu_lab.project import PROJECT
from xsmmu_lab.setup import build, host, root

_DOCS = ("docs/levels.md", "docs/tool.md", "docs/use.md")
PARTS = ("Kbuild", "LICENSES", "core", "dkms.conf", "include", "kmod", "tool", *_DOCS)
"""What packages are made of."""


def _tracked() -> list[str]:
    listed = host.run(["git", "ls-files", "-z", "--cached", "--others", "--exclude-standard", *PARTS], cwd=PROJECT)
    if listed.returncode != 0:
        raise UserError("packages are built from a git checkout", listed.stderr.splitlines())
    return [name for name in listed.stdout.split("\0") if name and (PROJECT / name).is_file()]


def epoch_s() -> int:
    """When the checkout's commit was made, so that the same commit makes the same packages."""
    return int(host.run(["git", "log", "-1", "--format=%ct"], cwd=PROJECT).stdout)


def files() -> dict[str, bytes]:
    """The source tree: the checkout's files, with what is not committed yet, and debian/ where Debian's tools look."""
    found = {name: (PROJECT / name).read_bytes() for name in _tracked()}
    debian = "tool/debian/"
    return found | {
        f"debian/{name.removeprefix(debian)}": text for name, text in found.items() if name.startswith(debian)
    }


def ensure(console: Console) -> list[Path]:
    """The packages of the checkout; built when they are missing."""
    return build.packages(root.ensure(host.cache_dir(), console, root.PACKAGING), files(), epoch_s())


def copy(console: Console) -> list[Path]:
    """The packages in a folder of the checkout, results/packages."""
    target = PROJECT / "results" / "packages"
    target.mkdir(parents=True, exist_ok=True)
    return [Path(shutil.copy(package, target)) for package in ensure(console)]
