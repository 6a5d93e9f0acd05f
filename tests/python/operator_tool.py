# SPDX-License-Identifier: GPL-2.0-only
"""The operator's tool for a guest: with Debian's packages of Python, click and rich."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

from tests.python import booted

from xsmmu_lab.arch import AMD64
from xsmmu_lab.project import PROJECT
from xsmmu_lab.setup import host, initramfs, root

PACKAGES = ("click", "rich", "markdown_it", "mdurl", "pygments")


def _tree(place: Path, target: str) -> Iterator[tuple[str, Path]]:
    """The Python modules below a folder, with their names in the guest."""
    for file in place.rglob("*"):
        parts = {*file.relative_to(place).parts}
        if file.suffix in (".py", ".so") and file.is_file() and not {"test", "tests"} & parts:
            yield f"{target}/{file.relative_to(place)}", file


def files() -> dict[str, bytes]:
    """Python as /bin/python3, and the tool and its packages in /opt, by path in the guest."""
    debian = root.ensure(host.cache_dir(), booted.QUIET, root.PACKAGING).path
    program = (debian / "usr/bin/python3").resolve()
    found = {"bin/python3": program, AMD64.loader: (debian / AMD64.loader).resolve()}
    found |= _tree(debian / "usr/lib" / program.name, f"usr/lib/{program.name}")
    for package in PACKAGES:
        found |= _tree(debian / "usr/lib/python3/dist-packages" / package, f"opt/{package}")
    found |= _tree(PROJECT / "tool/xsmmu", "opt/xsmmu")
    for binary in [file for file in found.values() if file == program or file.suffix == ".so"]:
        libraries = initramfs.libraries_of(debian, binary)
        found |= {f"{AMD64.libraries}/{name}": library for name, library in libraries.items()}
    return {name: file.read_bytes() for name, file in found.items()}
