# SPDX-License-Identifier: GPL-2.0-only
"""Branch coverage of core/: each missed branch is explained, and each explained branch is missed."""

from __future__ import annotations

from pathlib import Path

import pytest
from rich.console import Console

from checks import coverage
from checks.coverage import Branch, Explained
from xsmmu_lab.setup import host, root


@pytest.mark.long
def test_core_is_covered() -> None:
    console = Console(stderr=True)
    taken = coverage.measure(root.ensure(host.cache_dir(), console), console)
    missed = sorted(branch for branch, count in taken.items() if not count)
    assert len(taken) > 300
    assert not coverage.faults(missed, coverage.explained())
    assert 100 * (len(taken) - len(missed)) / len(taken) >= coverage.WANTED_PERCENT


@pytest.fixture
def sources(tmp_path: Path) -> Path:
    (tmp_path / "core").mkdir()
    (tmp_path / "core/a.c").write_text("int a(int b)\n{\n\treturn b ? 1 : 2;\n}\n")
    return tmp_path


MISSED = Branch("core/a.c", 3, 9, True)
WHY = Explained("core/a.c", "return b ? 1 : 2;", "b is 0")


def test_an_explained_branch_is_no_fault(sources: Path) -> None:
    assert coverage.faults([MISSED], [WHY], sources) == []


def test_a_branch_that_is_missed_without_a_reason_is_a_fault(sources: Path) -> None:
    assert coverage.faults([MISSED], [], sources) == ["core/a.c:3:9 is never true: return b ? 1 : 2;"]


def test_an_explanation_of_what_is_covered_is_a_fault(sources: Path) -> None:
    assert coverage.faults([], [WHY], sources) == [
        "core/a.c: return b ? 1 : 2; is explained in uncovered.toml, and is not missed"
    ]
