# SPDX-License-Identifier: GPL-2.0-only
"""Builds xsmmu-model (model/): the engine in a timed model of a machine."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Final

from xsmmu_lab.arch import AMD64, Arch
from xsmmu_lab.project import PROJECT
from xsmmu_lab.setup import build, replay, trace

MODEL: Final = "model"
PARTS: Final = ("core", replay.ENGINE, MODEL)
"""The folders with the sources."""
FLAGS: Final = (
    *("-std=gnu11", "-g", "-D_GNU_SOURCE", "-mpopcnt"),
    *("-Icore/include", "-Imodel", "-Itrace/engine", '-DXS_PLATFORM="platform_turns.h"'),
    *("-Wall", "-Wextra", "-Werror", "-Wmissing-prototypes", "-Wstrict-prototypes", "-Wvla"),
    "-Wno-unused-parameter",
)


def compiled(
    flags: Sequence[str] = replay.FAST,
    source_dir: Path = PROJECT,
    more: Sequence[str] = (),
    name: str = "xsmmu-model",
    compiler: str = "gcc-14",
) -> Path:
    """xsmmu-model as a program that runs on the host; another program, if C files of `more` stand for main.c."""
    found = (file for folder in (MODEL, replay.ENGINE) for file in (source_dir / folder).glob("*.c"))
    files = sorted(str(file.relative_to(source_dir)) for file in found if not more or file.name != "main.c")
    parts = (*PARTS, *more)
    return build.userspace(
        trace.tools(), name, [*files, *more], (*FLAGS, *flags), source_dir, parts=parts, compiler=compiler
    )


def packaged(arch: Arch = AMD64) -> Path:
    """xsmmu-model, as the package has it."""
    return trace.packaged(MODEL, "xsmmu-model", PARTS, arch)
