# SPDX-License-Identifier: GPL-2.0-only
"""`make tidy`: style as a check. Each check yields findings; one finding fails the run.

Sources are read by cstyle; checks that need a compiler or a tool run in the private root. The last line has the form
that test runners use.
"""

from __future__ import annotations

import os
import re
import sys
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

from rich.console import Console

from checks import commits, cstyle, structure
from xsmmu.errors import UserError
from xsmmu_lab.project import PROJECT
from xsmmu_lab.setup import build, host, kernels, root

FRAME_BYTES = 1024

_SKIPPED = {".git", "results", "__pycache__", ".mypy_cache", ".pytest_cache", ".ruff_cache", "LICENSES"}
_MADE = re.compile(r"\.mod\.c$|\.egg-info/")

_LICENCES = (
    (re.compile(r"core/"), {"GPL-2.0 OR MIT"}),
    (re.compile(r"(?:kmod|lab/module|lab/native|tests/kmod)/"), {"GPL-2.0", "GPL-2.0-only"}),
    (re.compile(r"sim/"), {"GPL-2.0-only"}),
    (re.compile(""), {"GPL-2.0", "GPL-2.0-only", "GPL-2.0 OR MIT"}),
)
_SPDX = re.compile(r"SPDX-License-Identifier: ([\w.+() -]+?)\s*(?:\*/|--|#|$)")
_LICENSED_SUFFIXES = {".c", ".h", ".S", ".mk", ".py", ".sh", ".toml", ".cocci", ".fio", ".j2"}
_LICENSED_NAMES = {"Makefile", "Kbuild", "Kconfig", "dkms.conf"}

_KERNEL_C = (
    *("core", "kmod", "sim", "lab/module", "lab/native", "trace", "model"),
    *("tests/kmod", "tests/native", "tests/model"),
)

_ENGINE_FLAGS = (
    *("-std=c11", "-ffreestanding", "-nostdinc", "-mgeneral-regs-only", "-mpopcnt", "-O2", "-Wall", "-Wextra", "-Wvla"),
    *("-Wmissing-prototypes", "-Wstrict-prototypes", "-Wno-unused-parameter"),
    *(f"-Wstack-usage={FRAME_BYTES}", f"-Wframe-larger-than={FRAME_BYTES}", "-Werror"),
)
_SHELLCHECK = ("--format=gcc", "--external-sources", "--source-path=SCRIPTDIR", "--exclude=SC1091")
"""Directives name files that exist only in a guest, and such files are not followed (SC1091)."""
_COMPILER_CALLS = {"memcpy", "memmove", "memset", "memcmp"}
"""Functions that gcc may call by itself, so that every world has them."""


@dataclass(frozen=True)
class Tree:
    """A checkout."""

    path: Path

    def files(self) -> Iterator[Path]:
        """Source files, relative to the checkout, in order."""
        for file in sorted(self.path.rglob("*")):
            relative = file.relative_to(self.path)
            if _SKIPPED.isdisjoint(relative.parts) and file.is_file() and not _MADE.search(str(relative)):
                yield relative

    def c_files(self, *folders: str, suffixes: tuple[str, ...] = (".c", ".h")) -> Iterator[Path]:
        """C files below the given folders."""
        for file in self.files():
            if file.suffix in suffixes and any(file.is_relative_to(folder) for folder in folders):
                yield file

    def read(self, file: Path) -> str:
        """A file's text."""
        return (self.path / file).read_text(errors="replace")

    def is_script(self, file: Path) -> bool:
        """Whether a file is a shell script, by its name or its first line."""
        if file.suffix == ".sh":
            return True
        with (self.path / file).open("rb") as stream:
            return re.match(rb"#! ?/\S*\b(?:env )?(?:ba|da|busybox )?sh\b", stream.readline(80)) is not None


def licences(tree: Tree) -> Iterator[str]:
    """Each source file names a licence that its folder allows, in its first three lines."""
    for file in tree.files():
        if not (file.suffix in _LICENSED_SUFFIXES or file.name in _LICENSED_NAMES or tree.is_script(file)):
            continue
        head = "\n".join(tree.read(file).split("\n")[:3])
        found = re.search(_SPDX.pattern, head, re.MULTILINE)
        allowed = next(names for pattern, names in _LICENCES if pattern.match(str(file)))
        if not found:
            yield f"{file}:1: no SPDX-License-Identifier in the first three lines"
        elif found[1] not in allowed:
            yield f"{file}:1: licence '{found[1]}', here it is {' or '.join(sorted(allowed))}"


def _style(tree: Tree, check: cstyle.Check, *folders: str, but: str | None = None) -> Iterator[str]:
    for file in tree.c_files(*folders):
        if but is None or not file.is_relative_to(but):
            for finding in check(tree.read(file)):
                yield f"{file}:{finding.line}: {finding.rule}: {finding.text}"


def function_length(tree: Tree) -> Iterator[str]:
    """Functions fit a screen."""
    return _style(tree, cstyle.long_functions, *_KERNEL_C)


def kernel_style(tree: Tree) -> Iterator[str]:
    """The kernel's coding style."""
    return _style(tree, cstyle.kernel_style, *_KERNEL_C)


def engine_words(tree: Tree) -> Iterator[str]:
    """The engine contains no words of a world."""
    return _style(tree, cstyle.freestanding, "core")


def version_tests(tree: Tree) -> Iterator[str]:
    """The module probes for interfaces instead of testing versions."""
    return _style(tree, cstyle.version_tests, "kmod", "lab/module", "lab/native", but="kmod/compat")


def module_structure(tree: Tree) -> Iterator[str]:
    """No files of the module use each other in a circle, and a bind and a choice stay within few files."""
    return structure.findings(tree.path)


def engine_compiles(tree: Tree, tools: root.Root) -> Iterator[str]:
    """The engine compiles without a library, keeps its frames small, and calls only its world."""
    engine = [str(file) for file in tree.c_files("core", suffixes=(".c",))]
    include = host_text(tools, ["gcc-14", "-print-file-name=include"]).strip()
    folders = ["-isystem", include, "-Icore/include", "-Itests/freestanding"]
    flags = [*_ENGINE_FLAGS, *folders, '-DXS_PLATFORM="platform_bare.h"', "-r", "-nostdlib"]
    try:
        linked = build.userspace(
            tools, "engine.o", engine, flags, source_dir=tree.path, parts=("core", "tests/freestanding"), runs=False
        )
    except UserError as error:
        yield from error.lines or [error.message]
        return
    undefined = host_text(tools, ["nm", "--undefined-only", "--format=just-symbols", tools.inside(linked)]).split()
    for name in undefined:
        if not name.startswith("xs_") and name not in _COMPILER_CALLS:
            yield f"core: calls {name}(), which is not in its world"


def host_text(tools: root.Root, argv: list[str]) -> str:
    """The output of a command in the root."""
    result = tools.run(argv)
    if result.returncode != 0:
        raise UserError(f"{argv[0]} failed", result.stderr.splitlines())
    return result.stdout


def modules_compile(tree: Tree, tools: root.Root, console: Console) -> Iterator[str]:
    """Every module builds for every kernel without a warning, including extra warnings, and keeps its frames small."""
    strict = ("W=1", f"KCFLAGS=-Werror -Wframe-larger-than={FRAME_BYTES}", "KBUILD_MODPOST_WARN=")
    folders = [str(file.parent) for file in tree.files() if file.name == "Kbuild"]
    for name in kernels.stock_names():
        kernel = kernels.ensure(tools, name, console)
        for folder in folders:
            try:
                build.module(tools, kernel, tree.path, folder, outputs=(), extra_make_args=strict)
            except UserError as error:
                telling = [line for line in error.lines if re.search(r"error|warning|undefined", line)]
                yield f"{folder}: does not build for {kernel.release}"
                yield from (f"  {line}" for line in telling or error.lines[-10:] or [error.message])


def shell_scripts(tree: Tree, tools: root.Root) -> Iterator[str]:
    """shellcheck on each shell script."""
    scripts = [str(file) for file in tree.files() if tree.is_script(file)]
    checker = [*tools.loader_command(), str(tools.path / "usr/bin/shellcheck")]
    result = host.run([*checker, *_SHELLCHECK, *scripts], cwd=tree.path, env=host.system_env())
    yield from (result.stdout + result.stderr).splitlines()


def _python_tool(tree: Tree, *argv: str) -> Iterator[str]:
    result = host.run([sys.executable, "-m", *argv], cwd=tree.path)
    if result.returncode != 0:
        yield from (result.stdout + result.stderr).splitlines()


def ruff(tree: Tree) -> Iterator[str]:
    """ruff on all Python."""
    return _python_tool(tree, "ruff", "check", "--quiet", "--output-format=concise", ".")


def mypy(tree: Tree) -> Iterator[str]:
    """mypy --strict on all Python."""
    return _python_tool(tree, "mypy")


def floors(tree: Tree) -> Iterator[str]:
    """import-linter: each floor imports from those below it only (pyproject.toml has the contracts)."""
    linter = Path(sys.executable).with_name("lint-imports")
    env = {**os.environ, "PYTHONPATH": os.pathsep.join(str(tree.path / name) for name in ("tool", "lab", "scripts"))}
    result = host.run([str(linter), "--no-cache"], cwd=tree.path, env=env)
    if result.returncode != 0:
        yield from _broken_contracts(result.stdout + result.stderr)


def _broken_contracts(text: str) -> list[str]:
    """import-linter's output below its heading of broken contracts; the whole output without that heading."""
    _, heading, rest = text.partition("Broken contracts")
    lines = [line.strip() for line in (rest if heading else text).splitlines()]
    return [line for line in lines if line.strip("-")]


def checks(tree: Tree, console: Console) -> dict[str, Callable[[], Iterator[str]]]:
    """All checks by name, in their order of execution: checks without a root first."""
    made: list[root.Root] = []

    def tools() -> root.Root:
        if not made:
            made.append(root.ensure(host.cache_dir(), console))
        return made[0]

    return {
        "commits": lambda: commits.findings(tree.path),
        "licences": lambda: licences(tree),
        "function length": lambda: function_length(tree),
        "kernel style": lambda: kernel_style(tree),
        "engine's words": lambda: engine_words(tree),
        "version tests": lambda: version_tests(tree),
        "structure": lambda: module_structure(tree),
        "ruff": lambda: ruff(tree),
        "mypy": lambda: mypy(tree),
        "floors": lambda: floors(tree),
        "shell scripts": lambda: shell_scripts(tree, tools()),
        "engine compiles": lambda: engine_compiles(tree, tools()),
        "modules compile": lambda: modules_compile(tree, tools(), console),
    }


def main() -> int:
    """Run all checks; returns the exit status."""
    host.interrupt_on_sigterm()
    console = Console(highlight=False, soft_wrap=True)
    failed = 0
    run = checks(Tree(PROJECT), console)
    try:
        for name, check in run.items():
            findings = list(check())
            console.print(f"{'FAIL' if findings else 'ok  '} {name}", markup=False)
            for finding in findings:
                console.print(f"     {finding}", markup=False)
            failed += bool(findings)
    except UserError as error:
        for line in error.lines:
            console.print(line, markup=False)
        console.print(f"error: {error.message}", markup=False)
        return 1
    except KeyboardInterrupt:
        console.print("interrupted")
        return 130
    console.print(f"{len(run) - failed} passed, {failed} failed", markup=False)
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
