# SPDX-License-Identifier: GPL-2.0-only
"""Decisions (kmod/policy) and choices (kmod/attach/choice.c) in userspace, with sanitizers and planted bugs."""

from __future__ import annotations

from pathlib import Path

import pytest
from rich.console import Console

from checks.mutants import Mutant, Mutants
from xsmmu_lab.project import PROJECT
from xsmmu_lab.setup import build, host, root

PARTS = ("core", "kmod", "tests/policy", "tests/unit")
MUTANTS = Mutants("tests/policy/mutants.toml", PARTS)
FLAGS = (
    *("-std=gnu11", "-O1", "-g", "-Wall", "-Wextra", "-Werror", "-Wno-unused-parameter"),
    *("-Wno-missing-field-initializers", "-Itests/policy/include", "-Icore/include", "-Itests/unit", "-pthread"),
    *('-DXS_PLATFORM="platform_unit.h"', "-D__init=", "-DGFP_KERNEL=0"),
)
SANITIZERS = ("-fsanitize=address,undefined", "-fno-sanitize-recover=all")


@pytest.fixture(scope="session")
def tools() -> root.Root:
    return root.ensure(host.cache_dir(), Console(stderr=True))


def outcome(tools: root.Root, program: str, *more: str, source_dir: Path = PROJECT) -> tuple[int, str]:
    flags = (*FLAGS, *SANITIZERS, *more)
    built = build.userspace(tools, program, [f"tests/policy/test_{program}.c"], flags, source_dir, PARTS)
    return build.run_userspace(built, timeout=60)


@pytest.mark.parametrize("program", ["decide", "choice"])
def test_decisions(tools: root.Root, program: str) -> None:
    status, output = outcome(tools, program)
    assert status == 0, output


@pytest.mark.planted
@pytest.mark.parametrize("mutant", MUTANTS.named(), ids=lambda mutant: mutant.name)
def test_a_planted_bug_is_found(tools: root.Root, mutant: Mutant) -> None:
    [program] = mutant.programs or ("decide",)
    with MUTANTS.planted(mutant) as source_dir:
        status, output = outcome(tools, program, "-Wno-error", source_dir=source_dir)
    assert status != 0, output
