# SPDX-License-Identifier: GPL-2.0-only
"""The table of `auto` (kmod/policy/auto.c) keeps its promises, docs/use.md has it, and its figures are of the pages."""

from __future__ import annotations

import re
from dataclasses import dataclass

import pytest

from xsmmu_lab import policies
from xsmmu_lab.project import PROJECT

SOURCE = (PROJECT / "kmod/policy/auto.c").read_text()
_LINE = re.compile(r'(?:/\*((?:(?!\*/).)*)\*/\s*)?([A-Z_]+(?: \| [A-Z_]+)*|0), "(\w+)",\n\t\t"([^"]+)"\n', re.DOTALL)
_FIGURE = re.compile(r"\b\d{1,3}(?:,\d{3})+\b|\b\d\.\d{2,3}\b")
_RUN = re.compile(r"`make [^`]+`|`xsmmu lab run [^`]+`|tests/guest/\w+\.sh")
# Lines without a run: the operator's floor, unknown devices and IOMMUs, and the fallback.
WITHOUT = ("XS_FACT_FLOOR_STRICT", "XS_FACT_OTHER", "XS_FACT_ETHERNET | XS_FACT_IOMMU_UNKNOWN", "0")


@dataclass(frozen=True)
class Line:
    evidence: str
    facts: str
    policy: str
    why: str


def lines() -> list[Line]:
    table = SOURCE.split("lines[] = {")[1].split("\n};")[0]
    return [Line(re.sub(r"\s*\n\s*\* ?", " ", note), *rest) for note, *rest in _LINE.findall(table)]


def test_the_table_is_read() -> None:
    assert len(lines()) == SOURCE.count('",\n\t\t"') > 8
    assert lines()[-1].facts == "0"


def test_it_chooses_policies_that_there_are_and_none_below_held() -> None:
    rows = {policy.name: policy for policy in policies.table()}
    for line in lines():
        assert line.policy in rows
        assert "unmap" in rows[line.policy].flushes or line.policy == "fused", line
        # Policies that defer are only for NICs and batch-aware drivers, and only where the kernel's own path defers,
        # too.
        if line.policy == "fused":
            assert line.facts == "XS_FACT_AWARE" or "ETHERNET" in line.facts
            assert "KERNEL_STRICT" not in line.facts


def test_each_fact_is_in_a_line() -> None:
    header = (PROJECT / "kmod/policy/auto.h").read_text()
    facts = re.findall(r"^#define ([A-Z_]+)\t+BIT", header, re.MULTILINE)
    used = {fact for line in lines() for fact in line.facts.split(" | ")}
    assert used - {"0"} == set(facts)


def test_the_page_has_the_table() -> None:
    page = (PROJECT / "docs/use.md").read_text().split("\n## Auto\n")[1].split("\n## ")[0]
    assert re.findall(r"^\| (.+) \| `(\w+)` \|$", page, re.MULTILINE) == [(line.why, line.policy) for line in lines()]


@pytest.mark.parametrize("line", lines(), ids=lambda line: str(line.facts))
def test_what_a_line_stands_on(line: Line) -> None:
    """A line names a run, and its figures are on the page that the line names."""
    if line.facts in WITHOUT:
        return
    assert _RUN.search(line.evidence) or "`make matrix`" in line.evidence, line
    pages = re.findall(r"docs/\w+\.md", line.evidence)
    texts = [(PROJECT / page).read_text() for page in pages]
    for figure in _FIGURE.findall(line.evidence):
        assert any(figure in text for text in texts), f"{line.facts}: {figure} is not in {', '.join(pages)}"
