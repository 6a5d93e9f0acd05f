# SPDX-License-Identifier: GPL-2.0-only
"""Texts that quote accepted figures of `make native` agree with tool/xsmmu/native.json.

A failure prints the figure as it must be quoted; a new machine or a better run changes the texts with the file.
"""

from __future__ import annotations

import math
import re
from collections.abc import Iterator

import pytest

from xsmmu import native
from xsmmu.native import HARDWARE_WAIT_NS
from xsmmu_lab.project import PROJECT
from xsmmu_lab.report import nanoseconds, table

MACHINE = native.accepted()[0]
RATE = nanoseconds.rate_of(MACHINE)
README = (PROJECT / "README.md").read_text()
FIGURES = (PROJECT / "docs/figures.md").read_text()


def case(label: str) -> tuple[str, str]:
    """The policy and the driver of a label in a text."""
    name, *words = [word.strip(" `") for word in label.split(",")]
    driver = "none" if name == "passthrough" else "batch-aware" if "batch-aware" in words else "unmodified"
    return f"{name}-direct" if "direct tables" in words else name, driver


def ns(label: str) -> float:
    found = MACHINE.ns_at(HARDWARE_WAIT_NS, *case(label))
    assert found is not None, label
    return found


def show_ns(value: float) -> str:
    return f"{value:.1f}" if value < 10 else f"{value:,.0f}"


def show_ratio(value: float) -> str:
    return f"{value:.1f}" if value >= 0.995 else f"{value:.2f}"


def section(text: str, title: str) -> str:
    return text.partition(f"# {title}\n")[2].partition("\n#")[0]


def cells(line: str) -> list[str]:
    return [cell.strip() for cell in line.strip("|").split("|")]


def quoted() -> Iterator[tuple[str, str, str]]:
    """Each label with its ns and ratio, of the table of README and of the first table of docs/figures.md."""
    rows = [cells(line) for line in section(README, "Results").splitlines() if line.startswith("|")]
    by_name = {row[0]: row[1:] for row in rows}
    labels = rows[0][1:]
    yield from zip(labels, by_name["ns at 1 us"], by_name["x kernel-lazy"], strict=True)
    lines = section(FIGURES, "The hardware's wait").partition("| | ns at 1 us | x kernel-lazy |\n")[2].splitlines()
    for line in lines[1:]:
        if not line:
            return
        label, shown, ratio = cells(line)
        yield label, shown, ratio


@pytest.mark.parametrize(("label", "shown", "ratio"), list(quoted()))
def test_a_quoted_figure_is_the_accepted_one(label: str, shown: str, ratio: str) -> None:
    assert (shown, ratio) == (show_ns(ns(label)), show_ratio(ns(label) / ns("kernel-lazy")))


def test_all_tables_are_found() -> None:
    assert [label for label, _, _ in quoted()].count("`fused`, batch-aware, direct tables") == 2


@pytest.mark.parametrize("text", [README, FIGURES])
def test_the_machine_is_named(text: str) -> None:
    assert MACHINE.cpu in text


def test_waits_of_claims_are_those_of_the_figures() -> None:
    """The waits and batches at which `fused` begins to cost more than the kernel's lazy mode."""
    [lazy] = MACHINE.plain("kernel-lazy")[:1]
    pages, most_us = 0, math.inf
    for policy, driver in (("fused", "unmodified"), ("fused", "batch-aware"), ("fused-direct", "unmodified")):
        [row] = MACHINE.plain(policy, driver)[:1]
        software = row.ns_per_page - row.inv_per_page * row.wait_ns
        assert software < lazy.ns_per_page - lazy.inv_per_page * lazy.wait_ns
        assert row.inv_per_page <= lazy.inv_per_page  # any wait
        pages = max(pages, math.ceil(HARDWARE_WAIT_NS / (ns("kernel-lazy") - software)))
        spare = lazy.ns_per_page - lazy.inv_per_page * lazy.wait_ns - software
        most_us = min(most_us, spare / (1 / 64 - lazy.inv_per_page) / 1000)
    assert f"up to {math.floor(most_us)} us" in README and f"| up to {math.floor(most_us)} us |" in FIGURES
    assert f"the same in batches of {pages} pages | up to 1 us" in FIGURES
    assert f"from {pages} pages a batch on" in " ".join(README.split())
    strict = 1 - ns("`strict`") / ns("kernel-strict")
    assert 0 < strict < 0.05 and "a few percent at 1 us" in FIGURES
    assert ns("`strict`, direct tables") > ns("kernel-lazy")


def test_the_rate_and_its_range_are_quoted() -> None:
    text = " ".join(section(FIGURES, "Instructions in nanoseconds").split())
    assert f"is {RATE.short}, and the policies differ from {RATE.least:.3g}" in text
    assert f"to {RATE.most:.3g}" in text
    wrong = max(RATE.most / RATE.per_ns, RATE.per_ns / RATE.least)
    assert f"a factor of {wrong:.1f}" in text


def test_the_printed_claim_has_the_rate(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(nanoseconds, "rate", lambda: RATE)
    assert f"for an invalidation is more than {table._wait(859, 'instructions')}\n" in FIGURES


def test_the_picture_of_the_readme_has_its_words() -> None:
    """The alternative text has figures of the picture, and the caption the picture's commit."""
    svg = (PROJECT / "docs/cost-exposure.svg").read_text()
    description = svg.partition("<desc>")[2].partition("</desc>")[0]
    alt, _, rest = README.partition("![")[2].partition("](docs/cost-exposure.svg)")
    assert "at a wait of 1 us for each invalidation" in alt and "at a wait of 1 µs" in description
    found = re.findall(r"costs ([\d.,]+) \(", description)
    figures = re.findall(r"(?<= )\d[\d.,]*\d(?=[,.;:]|$)", alt.partition("policy.")[2])
    costs = [figure for figure in figures if figure not in ("0.9",)]
    assert len(costs) >= 8
    assert {*costs} <= {*found}
    commit = re.search(r"at commit (\w+)", rest.partition("\n## ")[0])
    assert commit and f"commit {commit[1]}" in svg
