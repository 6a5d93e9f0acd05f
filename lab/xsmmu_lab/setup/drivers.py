# SPDX-License-Identifier: GPL-2.0-only
"""Batch-aware drivers: the kernel's own source, a semantic patch, a check of the patch's effect, a module.

drivers/drivers.toml names the drivers and the words that each function must have gained. The modules replace the stock
drivers of the same kernel: their symbol versions are the kernel's, and they find xsmmu.ko if loaded before them.
"""

from __future__ import annotations

import re
import tomllib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from xsmmu.errors import UserError, unknown_name
from xsmmu_lab.project import PROJECT
from xsmmu_lab.setup import build, csource, kernels
from xsmmu_lab.setup.kernels import Kernel
from xsmmu_lab.setup.root import Root

FOLDER = PROJECT / "drivers"
_TABLE = "drivers.toml"
_HEADER = "include/xsmmu/dma.h"
_SYMVERS = "xsmmu.symvers"


@dataclass(frozen=True)
class Driver:
    """A driver of drivers/drivers.toml."""

    name: str
    patch: Path
    """The driver's semantic patch."""
    folder: str
    module: str
    words: Mapping[str, Mapping[str, Sequence[str]]]
    also: Sequence[str] = field(default=())


def table(patches: Path = FOLDER) -> dict[str, Driver]:
    """All drivers of a folder of semantic patches, by name."""
    rows = tomllib.loads((patches / _TABLE).read_text())["driver"]
    return {name: Driver(name=name, patch=patches / f"{name}.cocci", **row) for name, row in rows.items()}


def named(name: str, patches: Path = FOLDER) -> Driver:
    """A driver of the table, by name."""
    drivers = table(patches)
    if name not in drivers:
        raise unknown_name("driver", name, drivers)
    return drivers[name]


def module(root: Root, kernel: Kernel, name: str, patches: Path = FOLDER) -> Path:
    """The batch-aware module of a driver for a kernel, cached by content."""
    driver = named(name, patches)
    source = kernels.source(root, kernel, (driver.folder, *driver.also))
    folder = patched(root, driver, source, {_SYMVERS: _symvers(root, kernel)})
    return build.module(
        root,
        kernel,
        source_dir=folder,
        make_dir=driver.folder,
        outputs=(driver.module,),
        extra_make_args=("KCFLAGS=-I$(M)/include", f"KBUILD_EXTRA_SYMBOLS=$(M)/{_SYMVERS}"),
        parts=(driver.folder, *driver.also),
        target=driver.module,
    )[0]


def _symvers(root: Root, kernel: Kernel) -> bytes:
    """The versions of xsmmu.ko's symbols, without the build's name: a driver is rebuilt when a version changes."""
    xsmmu = build.module(root, kernel)[0]
    return re.sub(rb"\t\S*/xsmmu\t", rb"\txsmmu\t", (xsmmu.parent / "Module.symvers").read_bytes())


def patched(root: Root, driver: Driver, source: Path, more: Mapping[str, bytes] | None = None) -> Path:
    """A copy of the driver's folders in a kernel's source, patched and checked; cached by content.

    `more` are files beside the driver's own.
    """
    stock = build.sources(source, (driver.folder, *driver.also))
    beside = {**build.sources(PROJECT, (_HEADER,)), **(more or {})}
    names = [f"{driver.folder}/{file}" for file in driver.words]
    files = {**stock, **{f"{driver.folder}/{name}": content for name, content in beside.items()}}
    folder = build.semantic_patch(root, files, driver.patch, names)
    for file, name in zip(driver.words, names, strict=True):
        _check(driver, file, stock[name].decode(), (folder / name).read_text())
    return folder


def _check(driver: Driver, file: str, before: str, after: str) -> None:
    """Fail, naming functions, unless each function of the stock file gained exactly the words of the table."""
    wanted = driver.words[file]
    pattern = re.compile(rf"\b(?:{'|'.join(sorted({word for words in wanted.values() for word in words}))})\b")
    stock = {name for _, name, _ in csource.functions(before)}
    found = _words(after, pattern)
    faults = [f"{file} has no function {name}()" for name in wanted if name not in stock]
    for name in sorted(stock):
        has, should = found.get(name, []), list(wanted.get(name, ()))
        if has != should:
            faults.append(f"{name}() in {file} has {' '.join(has) or 'none'}, not {' '.join(should) or 'none'}")
    if faults:
        raise UserError(f"{driver.patch.name} does not fit this kernel: {faults[0]}", faults)


def _words(text: str, pattern: re.Pattern[str]) -> dict[str, list[str]]:
    """The words that match in each function of a file, in order."""
    lines = csource.code_only(text).split("\n")
    return {
        name: pattern.findall("\n".join(lines[start : start - 1 + length]))
        for start, name, length in csource.functions(text)
    }
