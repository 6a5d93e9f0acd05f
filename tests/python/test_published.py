# SPDX-License-Identifier: GPL-2.0-only
"""Published tables: the files are whole, agree with each other, and errors name the place."""

from __future__ import annotations

from pathlib import Path

import pytest

from checks import published
from xsmmu.errors import UserError

TABLES = published.tables()


def values(table: str, figure: str, system: str) -> list[float]:
    return [cell.value for cell in TABLES[table].of(figure) if cell.system == system]


@pytest.mark.parametrize("name", TABLES)
def test_each_published_statement_holds_of_the_published_values(name: str) -> None:
    """So a check that fails of computed values fails because of the model."""
    table = TABLES[name]
    for statement in table.statements:
        for check in statement.checks:
            assert check.holds(table.values(check.figure)) in (True, None), check.text


def test_all_sections_have_tables() -> None:
    sections = " ".join(table.section for table in TABLES.values())
    for each in ("CLAIMS.md A", "CLAIMS.md C", "CLAIMS.md D", "CLAIMS.md E", "CLAIMS.md F", "MODEL.md"):
        assert each in sections


def test_only_one_row_is_fitted() -> None:
    fitted = {(table.name, c.figure, c.system) for table in TABLES.values() for c in table.cells if c.use == "fit"}
    assert {(table, system) for table, _, system in fitted} == {("fs-flows", "strict")}
    assert {figure for _, figure, _ in fitted} == {"throughput", "iotlb", "l1", "l2", "l3"}


def test_two_sources_of_a_point_agree() -> None:
    """Five flows with a ring of 256 are in two tables."""
    for figure in ("throughput", "drops", "iotlb", "l1", "l3", "acks"):
        first = values("fs-flows", figure, "strict")[0]
        other = values("fs-rings", figure, "strict")[0]
        assert first == pytest.approx(other, abs=2 * TABLES["fs-flows"].figures[figure].error)


def test_the_printed_ratio_is_that_of_the_counters() -> None:
    for system in ("strict", "FANDS", "xSMMU"):
        counters = zip(
            *(values("fands-xsmmu", figure, system) for figure in ("invalidations", "pages", "inv_per_page")),
            strict=True,
        )
        for invalidations, pages, ratio in counters:
            assert invalidations / pages == pytest.approx(ratio, abs=0.0013)


def test_a_range_and_a_missing_value() -> None:
    (doorbell,) = TABLES["guests"].of("doorbell")
    assert (doorbell.low, doorbell.high, doorbell.value, doorbell.name) == (6, 7, 6.5, "nested VT-d")
    assert len(values("nested-vtd", "throughput", "no exit")) == 3


GOOD = """
title = "a"
source = "b"
section = "c"
conditions = "d"
[axis]
unit = "flows"
values = [1, 2]
[figure.rate]
unit = "Gb/s"
error = 0.1
[[series]]
system = "x"
figure = "rate"
values = [3, 4]
"""


@pytest.mark.parametrize(
    ("old", "new", "said"),
    [
        ("", "", None),
        ('unit = "Gb/s"\n', "", "figure[...]: Object missing required field `unit`"),
        ("error = 0.1", "error = -1", "figure[...].error: Expected `float` >= 0"),
        ('figure = "rate"', 'figure = "rat"', "series[0]: unknown figure 'rat': choose from rate"),
        ("[3, 4]", "[3]", "series[0]: 1 values, but the axis has 2: give one for each"),
        ("[3, 4]", "[3, [5, 4]]", "series[0]: range [5, 4] ends before it begins"),
        ('title = "a"', 'title = "a"\nshade = 1', "unknown field `shade`"),
        ('title = "a"', "title = ", "Invalid value"),
    ],
)
def test_an_error_names_the_place(tmp_path: Path, old: str, new: str, said: str | None) -> None:
    file = tmp_path / "table.toml"
    file.write_text(GOOD.replace(old, new, 1) if old else GOOD)
    if said is None:
        assert [cell.name for cell in published.read(file).cells] == ["x@1", "x@2"]
        return
    with pytest.raises(UserError) as error:
        published.read(file)
    assert str(file) in error.value.message
    assert said in error.value.message


def test_checks_name_systems_of_the_table(tmp_path: Path) -> None:
    file = tmp_path / "table.toml"
    file.write_text(GOOD + '[[statement]]\nsays = "grows"\nchecks = ["rate: x@1 < x@2"]\n')
    table = published.read(file)
    assert table.statements[0].checks[0].holds(table.values("rate"))
    file.write_text(GOOD + '[[statement]]\nsays = "grows"\nchecks = ["rate: x@1 < x@3"]\n')
    with pytest.raises(UserError, match="unknown system 'x@3'"):
        published.read(file)
