# SPDX-License-Identifier: GPL-2.0-only
"""The page of `make native`, from an invented summary."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest

from xsmmu_lab.native import page


def _row(policy: str, level: str, ns: float, **changes: Any) -> dict[str, Any]:
    row = {
        "policy": policy,
        "driver": "unmodified",
        "level": level,
        "tables": "kernel",
        "bytes": 4096,
        "pages": 1,
        "ring": 1024,
        "list": 0,
        "walk_mib": 0,
        "cpus": 1,
        "wait_ns": 0,
        "ns_per_page": ns,
        "low": ns,
        "high": ns,
        "map_ns": ns / 2,
        "unmap_ns": ns / 2,
        "inv_per_page": 0.0,
    }
    return {**row, **changes}


def _summary(**changes: Any) -> dict[str, Any]:
    strict = {"inv_per_page": 1.0}
    rows = [
        _row("passthrough", "none", 8.4, driver="none", tables="none"),
        _row("kernel-lazy", "lazy", 120.0, inv_per_page=0.004),
        _row("kernel-lazy", "lazy", 126.0, inv_per_page=0.004, wait_ns=2000),
        _row("strict", "strict", 130.0, **strict),
        _row("strict", "strict", 1150.0, wait_ns=1000, **strict),
        _row("fused", "held", 50.0),
        _row("fused", "strict", 36.0, driver="batch-aware"),
        _row("copy", "strict", 40.0, bytes=256),
        _row("fused", "held", 90.0, walk_mib=16),
    ]
    head = {
        "cpu": "A <CPU>",
        "kernel": "7.2.12",
        "commit": "c94207afc830a577",
        "cmpxchg_ns": 2.6,
        "runs": 80,
        "dropped": 17,
    }
    return {**head, "rows": rows, **changes}


def _cells(html: str, table: str) -> list[list[str]]:
    """The text of a table's body, row by row."""
    body = html[html.index(table) :]
    body = body[body.index("</thead>") : body.index("</table>")]
    return [
        [re.sub(r"<[^>]*>", "", cell) for cell in re.findall(r"<t[hd][^>]*>(.*?)</t[hd]>", row)]
        for row in re.findall(r"<tr[^>]*>(.*?)</tr>", body, re.DOTALL)
    ]


def test_costs_stand_by_level_at_a_typical_wait_without_javascript() -> None:
    """Linear between two waits, and by the number of commands beyond the last."""
    found = _cells(page.html(_summary()), 'id="costs"')
    assert [row[:5] for row in found] == [
        ["strict", "fused (aware)", "36.0", "0.29", "0.0000"],
        ["strict", "strict", "1,150.0", "9.35", "1.0000"],
        ["held", "fused", "50.0", "0.41", "0.0000"],
        ["lazy", "kernel-lazy", "123.0", "1.00", "0.0040"],
        ["none", "passthrough", "8.4", "0.07", "0.0000"],
    ]


def test_the_axis_has_room_for_all_costs_at_all_waits() -> None:
    lines = page.lines(_summary())
    axis = page.Axis.of(lines)
    places = [axis.place(line.ns(wait)) for line in lines for wait in (0, 3000)]
    assert 0 < min(places) < 3
    assert 97 < max(places) < 100
    assert axis.place(10) - axis.place(1) == pytest.approx(axis.place(1000) - axis.place(100), abs=0.1)
    assert axis.ticks() == [10, 30, 100, 300, 1000, 3000]


def test_one_measured_wait_is_enough() -> None:
    rows = [row for row in _summary()["rows"] if not row["wait_ns"]]
    found = {row[1]: row[2] for row in _cells(page.html(_summary(rows=rows)), 'id="costs"')}
    assert (found["strict"], found["kernel-lazy"], found["fused"]) == ("1,130.0", "124.0", "50.0")


def test_the_slider_begins_at_a_typical_wait_and_has_the_points_of_the_table() -> None:
    html = page.html(_summary())
    assert 'type="range" id="wait-ns" min="0" max="3000" step="50" value="1000"' in html
    assert 'data-rows="0 130.0,1000 1150.0" data-inv="1.0"' in html
    assert 'data-rows="0 120.0,2000 126.0" data-inv="0.004" data-lazy' in html


def test_all_rows_are_in_the_second_table() -> None:
    found = _cells(page.html(_summary()), 'aria-label="All rows"')
    assert ["copy", "1024", "1", "256", "0", "0", "40.0", "", ""] in found
    assert ["fused", "1024", "1", "4096", "0", "16", "90.0", "", ""] in found
    assert len(found) == 7


def test_several_cpus() -> None:
    rows = [_row("fused", "held", 50.0), _row("fused", "held", 55.0, cpus=2)]
    html = page.html(_summary(several_cpus={"rows": rows}))
    assert _cells(html, 'aria-label="Several CPUs"') == [["fused", "2", "50.0", "55.0", "1.10"]]
    html = page.html(_summary(several_cpus={"rows": [], "why_none": "the machine has one CPU"}))
    assert "There are no rows: the machine has one CPU." in html
    assert "Several CPUs" not in page.html(_summary())


@pytest.mark.parametrize("forbidden", ["http:", "https:", "src=", "<link", "@import"])
def test_the_page_needs_no_other_file(forbidden: str, tmp_path: Path) -> None:
    html = page.write(_summary(), tmp_path).read_text()
    assert forbidden not in html
    assert "A &lt;CPU&gt;" in html
    assert [file.name for file in tmp_path.iterdir()] == ["report.html"]
