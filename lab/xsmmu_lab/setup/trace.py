# SPDX-License-Identifier: GPL-2.0-only
"""Builds programs of trace/ in their own private root."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Final

from rich.console import Console

from xsmmu_lab.arch import AMD64, Arch
from xsmmu_lab.project import PROJECT
from xsmmu_lab.setup import build, host, root

PARTS: Final = ("trace",)
FLAGS: Final = (
    *("-std=gnu11", "-g", "-Itrace/format", "-Itrace/engine", "-D_GNU_SOURCE"),
    *("-Wall", "-Wextra", "-Werror", "-Wmissing-prototypes", "-Wstrict-prototypes", "-Wvla"),
)
LIBRARIES: Final = ("-lzstd", "-lz")
FORMAT: Final = "trace/format"
RECORD: Final = "trace/record"
ENGINE: Final = "trace/engine"
"""Parts that several programs have."""
JSON: Final = f"{ENGINE}/json.c"


def tools(arch: Arch = AMD64) -> root.Root:
    """The root with the compilers and libraries of trace/, for programs of an architecture."""
    contents = root.TRACE if arch == AMD64 else root.TRACE_ARM64
    return root.ensure(host.cache_dir(), Console(stderr=True), contents)


def reader_and_writer(source_dir: Path = PROJECT) -> list[str]:
    """The C files of the file format, relative to the source folder."""
    names = ("block.c", "code.c", "read.c", "write.c")
    return [f"{FORMAT}/{name}" for name in names if (source_dir / FORMAT / name).exists()]


def packaged(folder: str, program: str, parts: Sequence[str], arch: Arch, source_dir: Path = PROJECT) -> Path:
    """A static program of a folder with a Makefile, as the package for an architecture has it."""
    arguments = ("CLANG=clang-19", "BPFTOOL=/usr/sbin/bpftool", f"CC={arch.cross}gcc-14", "CFLAGS=-O2 -s")
    return build.by_make(tools(arch), folder, program, parts, arguments, source_dir)


def recorder(source_dir: Path = PROJECT, arch: Arch = AMD64) -> Path:
    """xsmmu-record, as the package has it."""
    return packaged(RECORD, "xsmmu-record", (RECORD, FORMAT, ENGINE), arch, source_dir)


def compiled(
    name: str,
    c_files: Sequence[str],
    flags: Sequence[str] = ("-O2",),
    parts: Sequence[str] = PARTS,
    source_dir: Path = PROJECT,
    compiler: str = "gcc-14",
    libraries: Sequence[str] = (),
) -> Path:
    """A program of these C files with the file format, cached by content; it runs on the host directly.

    `parts` are the files and folders that the build sees.
    """
    files = [*c_files, *reader_and_writer(source_dir)]
    libraries = (*libraries, *LIBRARIES)
    return build.userspace(
        tools(), name, files, (*FLAGS, *flags), source_dir, parts=parts, compiler=compiler, libraries=libraries
    )
