# SPDX-License-Identifier: GPL-2.0-only
"""Builds xsmmu-replay (trace/replay/): the engine in a world of recordings."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Final

from xsmmu_lab.arch import AMD64, Arch
from xsmmu_lab.project import PROJECT
from xsmmu_lab.setup import build, trace

REPLAY: Final = "trace/replay"
ENGINE: Final = "trace/engine"
"""The engine as one translation unit, and the kernel's model; xsmmu-model has both, too."""
PATH: Final = f"{ENGINE}/path.c"
COUNT: Final = "trace/count"
LINES: Final = "xsmmu-replay-lines"
"""The program that counts transfers of lines."""
CHECKS: Final = "sim/check"
SEEN: Final = (CHECKS, "sim/world/event.h", "sim/world/sim.h")
"""Of the simulated world, what a replay has."""
COUNTED: Final = tuple(
    f"sim/scale/{name}"
    for name in (
        *("arena.c", "arena.h", "hash_map.c", "hash_map.h", "hooks.c", "hooks.h", "line.c", "line.h"),
        *("platform_scale.h", "tally.c", "tally.h"),
    )
)
"""Of sim/scale, what trace/count has."""
PARTS: Final = ("core", "trace", *SEEN, "tests/trace")
FLAGS: Final = (
    *("-mpopcnt", "-Icore/include", "-Itrace/replay", "-Itrace/engine", '-DXS_PLATFORM="platform_turns.h"'),
    *("-include", "check_world.h"),
    "-Wno-unused-parameter",
)
FAST: Final = ("-O2", "-flto=1")
SANITIZED: Final = ("-O1", "-fsanitize=address,undefined", "-fno-sanitize-recover=all")


def compiled(flags: Sequence[str] = FAST, source_dir: Path = PROJECT) -> Path:
    """xsmmu-replay as a program that runs on the host."""
    found = (file for folder in (REPLAY, ENGINE, CHECKS) for file in (source_dir / folder).glob("*.c"))
    files = sorted(str(file.relative_to(source_dir)) for file in found)
    return trace.compiled("xsmmu-replay", files, (*FLAGS, *flags), parts=PARTS, source_dir=source_dir)


def counting(source_dir: Path = PROJECT) -> Path:
    """xsmmu-replay-lines: the engine is an object of its own, with a call at each access to memory."""
    flags = (*trace.FLAGS, *FLAGS, *build.HOOKED, "-O2", "-fno-pie", "-r", "-nostdlib")
    parts = (*PARTS, *COUNTED)
    unit = build.userspace(trace.tools(), "path.o", [PATH], flags, source_dir, parts=parts, runs=False)
    folders = (REPLAY, ENGINE, CHECKS, COUNT)
    found = (str(file.relative_to(source_dir)) for folder in folders for file in (source_dir / folder).glob("*.c"))
    files = sorted({*found} - {PATH, f"{REPLAY}/uncounted.c"})
    libraries = (trace.tools().inside(unit),)
    return trace.compiled(LINES, files, (*FLAGS, "-O2", "-no-pie"), parts, source_dir, libraries=libraries)


def commands(source_dir: Path = PROJECT) -> Path:
    """world-commands: the world of a replay without a recording (tests/trace/world_commands.c)."""
    found = (file for folder in (REPLAY, ENGINE, CHECKS) for file in (source_dir / folder).glob("*.c"))
    files = [str(file.relative_to(source_dir)) for file in found if file.name not in ("main.c", "world.c")]
    files = ["tests/trace/world_commands.c", *sorted(files)]
    return trace.compiled("world-commands", files, (*FLAGS, "-O1"), parts=PARTS, source_dir=source_dir)


def packaged(arch: Arch = AMD64) -> Path:
    """xsmmu-replay, as the package has it."""
    return trace.packaged(REPLAY, "xsmmu-replay", (REPLAY, ENGINE, trace.FORMAT, "core", *SEEN), arch)


def packaged_counting(arch: Arch = AMD64) -> Path:
    """xsmmu-replay-lines, as the package has it."""
    parts = (REPLAY, ENGINE, COUNT, trace.FORMAT, "core", *SEEN, *COUNTED)
    return trace.packaged(REPLAY, LINES, parts, arch)


def writer() -> Path:
    """write-events: makes recordings for tests (tests/trace/write_events.c)."""
    return trace.compiled("write-events", ["tests/trace/write_events.c"], parts=PARTS)
