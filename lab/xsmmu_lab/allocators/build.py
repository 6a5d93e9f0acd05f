# SPDX-License-Identifier: GPL-2.0-only
"""Builds the programs of lab/native/allocators, with parts of the kernel's own source.

The kernel's files are unpacked from Debian's package of the source, and compiled unchanged, but for the copy of iova.c
with more orders. A header that they include, and that is not taken, becomes lab/native/allocators/shim.h.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from rich.console import Console

from xsmmu.errors import UserError
from xsmmu_lab import scale
from xsmmu_lab.native import engine
from xsmmu_lab.native.build import STOCK
from xsmmu_lab.project import PROJECT
from xsmmu_lab.setup import build, kernels
from xsmmu_lab.setup.root import Root

SOURCE: Final = "lab/native/allocators"
_ENGINE: Final = "lab/native/engine"
PARTS: Final = ("core", "sim/scale", _ENGINE, SOURCE)

_TAKEN: Final = {
    "lib/rbtree.c": "rbtree.c",
    "lib/maple_tree.c": "maple_tree.c",
    "drivers/iommu/iova.c": "iova.c",
    **{
        f"include/linux/{name}.h": f"linux/{name}.h"
        for name in ("iova", "maple_tree", "rbtree", "rbtree_augmented", "rbtree_types", "xarray")
    },
}
"""Files of the kernel, and their places in the folder `kernel` of a build."""
_ORDERS: Final = "#define IOVA_RANGE_CACHE_MAX_SIZE 6\t"
_MORE_ORDERS: Final = "#define IOVA_RANGE_CACHE_MAX_SIZE 10\t"
"""Orders 0 to 9: up to 2 MiB."""
_SHIM: Final = b"#include <shim.h>\n"

_INCLUDE: Final = re.compile(r"^#include <((?:linux|asm|trace)/[^>]+)>", re.MULTILINE)
_FOLDERS: Final = (f"-I{SOURCE}", "-Ishim", "-isystem", "kernel")
"""The kernel's files are included, as of a system: our warnings are not the kernel's."""
_UNITS: Final = ("slab", "tree", "tree_2m", "merged", "maple", "ours", "identity")
_OBJECT: Final = ("-r", "-nostdlib")


def kernel_files(texts: Mapping[str, str]) -> dict[str, bytes]:
    """The files for a build, of the texts of _TAKEN by their places: with a header for each that they lack."""
    iova = texts["iova.c"]
    if iova.count(_ORDERS) != 1:
        raise UserError(
            f"drivers/iommu/iova.c of this kernel has no line '{_ORDERS.strip()}', so cached-2m cannot be made of it:"
            " adapt lab/xsmmu_lab/allocators/build.py"
        )
    files = {f"kernel/{place}": text for place, text in texts.items()}
    files["kernel/iova_2m.c"] = iova.replace(_ORDERS, _MORE_ORDERS)
    wanted = {name for text in texts.values() for name in _INCLUDE.findall(text)}
    found = {name: text.encode() for name, text in files.items()}
    return found | {f"shim/{name}": _SHIM for name in sorted(wanted) if name not in texts}


def _taken(tools: Root, console: Console) -> dict[str, bytes]:
    kernel = kernels.ensure(tools, STOCK, console)
    place = kernels.source(tools, kernel, tuple(_TAKEN), console)
    return kernel_files({name: (place / file).read_text() for file, name in _TAKEN.items()})


@dataclass(frozen=True)
class Programs:
    """The programs."""

    count: Path
    """Counts accesses, transfers and locks of modelled CPUs, and checks."""
    step: Path
    """The same without hooks, for instructions."""
    time: Path
    """Times threads."""


def programs(tools: Root, console: Console, source_dir: Path = PROJECT) -> Programs:
    """Build what is missing."""
    files = _taken(tools, console)
    return Programs(
        counting(tools, files, source_dir, hooked=True),
        counting(tools, files, source_dir, hooked=False),
        _timing(tools, files, source_dir),
    )


def checker(tools: Root, console: Console, source_dir: Path) -> Path:
    """The program that checks, of a copy of the project's sources."""
    return counting(tools, _taken(tools, console), source_dir, hooked=False)


def _unit(tools: Root, files: Mapping[str, bytes], source_dir: Path, flags: tuple[str, ...]) -> str:
    """An object of all allocators, as seen in the root."""
    sources = [f"{SOURCE}/{unit}.c" for unit in _UNITS]
    flags = (*flags, *_FOLDERS, *_OBJECT)
    return tools.inside(
        build.userspace(tools, "allocators.o", sources, flags, source_dir, PARTS, runs=False, more=files)
    )


def counting(tools: Root, files: Mapping[str, bytes], source_dir: Path, *, hooked: bool) -> Path:
    """The program that counts; its allocators call a hook at each access to memory, or are compiled for speed."""
    flags = (*scale.FLAGS, "-DTRAFFIC_RING=1024")
    unit = _unit(tools, files, source_dir, (*flags, *(build.HOOKED if hooked else ())))
    world = [
        f"sim/scale/{name}.c"
        for name in (
            *("allocator", "arena", "draw", "hash_map", "heap", "hooks", "line"),
            *("scale_world", "spread", "step", "tally", "tell", "traffic"),
        )
    ]
    sources = [f"{SOURCE}/{name}.c" for name in ("counted", "check", "find")]
    return build.userspace(
        *(tools, "xsmmu-allocators-count", [*sources, *world], (*flags, f"-I{SOURCE}", "-no-pie", "-static")),
        *(source_dir, PARTS),
        libraries=(unit, "-lm"),
        runs=False,
    )


def _timing(tools: Root, files: Mapping[str, bytes], source_dir: Path) -> Path:
    unit = _unit(tools, files, source_dir, engine.FLAGS)
    sources = [f"{SOURCE}/{name}.c" for name in ("timed", "poller", "find")]
    platform = [f"{_ENGINE}/{name}.c" for name in ("backend", "lock", "platform")]
    return build.userspace(
        *(tools, "xsmmu-allocators-time", [*sources, *platform]),
        *((*engine.FLAGS, f"-I{SOURCE}", "-Wl,--wrap=native_lock_wait"), source_dir, PARTS),
        libraries=(unit,),
        runs=False,
    )
