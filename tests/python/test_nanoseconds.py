# SPDX-License-Identifier: GPL-2.0-only
"""Instructions a nanosecond, by the accepted figures of `make native`."""

from __future__ import annotations

import re
from dataclasses import replace

import pytest

from xsmmu import native
from xsmmu_lab.project import PROJECT
from xsmmu_lab.report import nanoseconds
from xsmmu_lab.report.view import named

MACHINE = native.accepted()[0]


def row(policy: str, **changes: float) -> native.Row:
    """A row of the accepted figures, with changes."""
    return replace(MACHINE.plain(policy)[0], **changes)  # type: ignore[arg-type]


def machine(*rows: native.Row) -> native.Machine:
    return replace(MACHINE, cpu="a CPU", rows=rows)


def test_the_instructions_are_those_of_the_matrix() -> None:
    text = (PROJECT / "docs/matrix.md").read_text()
    head = re.search(r"^\| IOMMU \| kernel \|.*$", text, re.MULTILINE)
    line = re.search(rf"^\| vtd \| {re.escape(nanoseconds.KERNEL)} \|.*$", text, re.MULTILINE)
    assert head and line
    columns, cells = ([cell.strip() for cell in found[0].split("|")[3:-1]] for found in (head, line))
    printed = {name: int(cell.split()[0].replace(",", "")) for name, cell in zip(columns, cells, strict=True)}
    assert printed == {named(*case): count for case, count in nanoseconds.INSTRUCTIONS.items()}


def test_the_rate_is_a_median_with_its_range() -> None:
    found = nanoseconds.rate_of(
        machine(
            row("passthrough", wait_ns=0, ns_per_page=18.3, inv_per_page=0.0),
            row("fused", wait_ns=0, ns_per_page=117.8, inv_per_page=0.001),
            row("fused-direct", wait_ns=0, ns_per_page=19.8, inv_per_page=0.001),
        )
    )
    assert (found.per_ns, found.least, found.most) == pytest.approx((10, 10, 20))
    assert found.short == "10 instructions a ns"
    words = "10 to 20: instructions of micro on Linux 7.2, divided by the nanoseconds of make native on a CPU, Linux 7"
    assert words in found.words
    assert found.ns(100, 0.5, 1000) == 510


def test_waits_are_not_taken_for_instructions() -> None:
    """The waits of a batch are subtracted; a row that mostly waits is left out, unless it was run without a wait."""
    lazy = row("lazy", wait_ns=1000, ns_per_page=143.9, inv_per_page=0.004)
    strict = row("strict", wait_ns=1000, ns_per_page=1160.0, inv_per_page=1.0)
    found = nanoseconds.rate_of(machine(lazy, strict))
    assert (found.least, found.most) == pytest.approx((10, 10))
    without = replace(strict, wait_ns=0, ns_per_page=131.9)
    assert nanoseconds.rate_of(machine(lazy, strict, without)).most == pytest.approx(20)


def test_the_accepted_figures_give_a_rate() -> None:
    found = nanoseconds.rate_of(MACHINE)
    assert 0 < found.least <= found.per_ns <= found.most
    assert (found.cpu, found.kernel) == (MACHINE.cpu, MACHINE.kernel)
    assert found.kernel.startswith(nanoseconds.KERNEL)
