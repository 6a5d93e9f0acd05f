# SPDX-License-Identifier: GPL-2.0-only
"""The engine's unit tests (tests/unit): in userspace under sanitizers, inside a kernel, and against planted bugs.

A failure prints the test and the seed that repeat it: run the named program with these words.
"""

from __future__ import annotations

import asyncio
import re
import shutil
from dataclasses import replace
from pathlib import Path

import pytest
from rich.console import Console

from checks import pages
from checks.mutants import Mutant, Mutants
from xsmmu_lab.project import PROJECT
from xsmmu_lab.runs import run as lab
from xsmmu_lab.setup import build, host, kernels, root
from xsmmu_lab.vm.guest import Boot, Guest, Record

FLAGS = (
    *("-std=gnu11", "-g", "-Wall", "-Wextra", "-Werror", "-Wmissing-prototypes", "-Wstrict-prototypes", "-Wvla"),
    *("-Wno-unused-parameter", "-Wno-missing-field-initializers", "-Icore/include", "-Itests/unit", "-pthread"),
    '-DXS_PLATFORM="platform_unit.h"',
)
MODULE = "xsmmu_test.ko"


@pytest.fixture(scope="session")
def tools() -> root.Root:
    return root.ensure(host.cache_dir(), Console(stderr=True))


MUTANTS = Mutants("tests/unit/mutants.toml", ("core", "tests/unit"))
ENGINE = "tests/unit/path.c"
"""The engine, in one unit."""
HANGS = "not ok - hangs: "
"""Of tests/unit/user.c: a test has reached its time limit."""


def sources(source_dir: Path = PROJECT) -> list[str]:
    return [str(file.relative_to(source_dir)) for file in sorted((source_dir / "tests/unit").glob("*.c"))]


def compiled(tools: root.Root, *flags: str, source_dir: Path = PROJECT) -> Path:
    """The tests as a program."""
    return build.userspace(tools, "unit", sources(source_dir), (*FLAGS, *flags), source_dir=source_dir)


def compiled_with(tools: root.Root, mutant: Mutant, source_dir: Path) -> Path:
    """The tests of a copy with a planted bug.

    Without the bug in a header, everything but the engine is compiled once.
    """
    flags = ("-O1", "-g0", "-Wno-error", *pages.FLAGS[mutant.page])
    if mutant.file.endswith(".h"):
        return compiled(tools, *flags, source_dir=source_dir)
    rest = [file for file in sources() if file != ENGINE]
    tests = build.userspace(tools, "tests.o", rest, (*FLAGS, *flags, "-r", "-nostdlib"), runs=False)
    files = [ENGINE, f"/{tests.relative_to(tools.path)}"]
    return build.userspace(tools, "unit", files, (*FLAGS, *flags), source_dir=source_dir)


def run(program: Path, *words: str) -> None:
    status, output = build.run_userspace(program, words, timeout=1500)
    if status != 0 or "# 0 passed" in output or " 0 failed" not in output:
        pytest.fail(f"{program} {' '.join(words)}\nended with {status}:\n{output[-6000:]}")


def test_under_address_and_undefined_behaviour_sanitizers(tools: root.Root) -> None:
    run(compiled(tools, "-O1", "-fsanitize=address,undefined", "-fno-sanitize-recover=all"))


def test_under_thread_sanitizer(tools: root.Root) -> None:
    run(compiled(tools, "-O1", "-fsanitize=thread"), "threads=1", "percent=25")


THREADS = re.compile(r'\{ "(\w+)", \w+, \.threads = true \}')


def test_those_with_threads_alone(tools: root.Root) -> None:
    """ThreadSanitizer runs exactly the tests that declare threads."""
    texts = [(PROJECT / file).read_text() for file in sources()]
    marked = [name for text in texts for name in THREADS.findall(text)]
    status, output = build.run_userspace(compiled(tools, "-O2"), ("threads=1", "percent=1"), timeout=300)
    assert status == 0, output
    assert sorted(re.findall(r"^ok \d+ - (\w+)$", output, re.MULTILINE)) == sorted(marked)


def test_who_has_threads_says_so(tools: root.Root, tmp_path: Path) -> None:
    """Others fail, so that no test is forgotten."""
    for part in ("core", "tests/unit"):
        shutil.copytree(PROJECT / part, tmp_path / part)
    file = tmp_path / "tests/unit/test_slot.c"
    text = file.read_text()
    assert len(THREADS.findall(text)) == 1
    file.write_text(text.replace(", .threads = true", ""))
    status, output = build.run_userspace(compiled(tools, "-O1", source_dir=tmp_path), ("only=slot_races",), timeout=300)
    assert status == 1
    assert "test_has_threads()" in output


def test_optimized_as_the_module_is(tools: root.Root) -> None:
    run(compiled(tools, "-O2"))


@pytest.mark.parametrize("page", pages.LARGER)
def test_larger_pages(tools: root.Root, page: str) -> None:
    run(compiled(tools, "-O1", *pages.FLAGS[page]), "percent=5")


@pytest.mark.parametrize("kernel", kernels.stock_names())
def test_builds_for_a_kernel_without_a_warning(tools: root.Root, kernel: str) -> None:
    strict = ("W=1", "KCFLAGS=-Werror -Wframe-larger-than=1024")
    build.module(tools, kernels.ensure(tools, kernel), make_dir="tests/kmod", outputs=(MODULE,), extra_make_args=strict)


@pytest.mark.guest
def test_inside_a_kernel(tools: root.Root, tmp_path: Path) -> None:
    kernel = kernels.ensure(tools, None)
    module = build.module(tools, kernel, make_dir="tests/kmod", outputs=(MODULE,))
    script = 'emit "{\\"event\\":\\"unit\\",\\"result\\":\\"$(cat /sys/module/xsmmu_test/parameters/result)\\"}"\n'
    records: list[Record] = []

    async def keep(_guest: Guest, record: Record) -> None:
        records.append(record)

    settings = Boot(kernel.vmlinuz, lab.image(tools, kernel, (), module, script), "free", quiet_s=300)
    asyncio.run(Guest("unit", tools.qemu_command(), settings, tmp_path, keep).run())
    results = [record["result"] for record in records if record["event"] == "unit"]
    assert len(results) == 1
    assert results[0].endswith(" passed, 0 failed")


@pytest.mark.planted
@pytest.mark.parametrize("mutant", MUTANTS.named(), ids=lambda mutant: mutant.name)
def test_a_planted_bug_is_found(tools: root.Root, mutant: Mutant) -> None:
    words = (*(f"only={name}" for name in mutant.programs), *mutant.words)
    with MUTANTS.planted(mutant) as source_dir:
        program = compiled_with(tools, mutant, source_dir)
        status, output = build.run_userspace(program, ("stop=1", *words), timeout=300)
        assert status != 0, output
        # A healthy test reaches the limit, too, if the machine is busy enough.
        assert (HANGS in output) == mutant.hangs, output
        if mutant.page != pages.USUAL:
            run(compiled_with(tools, replace(mutant, page=pages.USUAL), source_dir), *words)
