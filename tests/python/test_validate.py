# SPDX-License-Identifier: GPL-2.0-only
"""`make validate`: errors, verdicts, baselines, statements, and versions that cannot change unseen."""

from __future__ import annotations

import re
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from checks import comparison, guest_claims, published, validation_page, versions
from checks.comparison import SEEDS, Point, Row, point_of, points_of, rows_of, statements_of
from checks.versions import Version
from xsmmu import predict, predicted, virtual
from xsmmu.errors import UserError
from xsmmu_lab.project import PROJECT
from xsmmu_lab.setup import model

TABLES = published.tables()
FLOWS = TABLES["fs-flows"]


def run(gbps: float, misses: float = 1.0) -> dict[str, Any]:
    names = ("iotlb_misses_per_page", "l1_misses_per_page", "l2_misses_per_page", "l3_misses_per_page", "acks_per_page")
    return {"throughput_gbps": gbps, "drops_share": 0.01, "counters": dict.fromkeys(names, misses)}


def results(**gbps: float | list[float]) -> dict[Point, predicted.Columns]:
    """Results of the flow table: a throughput for each system, or one for each run."""
    found: dict[Point, predicted.Columns] = {}
    for cell in FLOWS.cells:
        point = point_of(FLOWS, cell)
        rates = gbps.get(cell.system.replace("&", ""), 50.0)
        assert point
        made = [run(rate) for rate in (rates if isinstance(rates, list) else [rates] * (SEEDS + 2))]
        found[point] = predicted.columns_of(made)
    return found


def rows(**gbps: float | list[float]) -> dict[str, Row]:
    return {f"{row.figure} {row.name}": row for row in rows_of(FLOWS, results(**gbps))}


# -- rows ------------------------------------------------------------------------------------------


def test_a_point_has_the_tables_inputs() -> None:
    """The throughput without an IOMMU is given; so is the number of flows."""
    (cell,) = (each for each in FLOWS.of("throughput") if each.name == "F&S@20")
    assert point_of(FLOWS, cell) == Point(
        "cascade-lake", "fands-iperf", "fands-6.0", "kernel-strict", (("off_mbps", 87600), ("flows", 20))
    )


def test_the_ablation_changes_the_hint() -> None:
    (cell,) = (each for each in TABLES["fs-ablation"].of("throughput") if each.system == "blocks")
    point = point_of(TABLES["fs-ablation"], cell)
    assert point and dict(point.changes)["hint"] == "dropped"


def test_a_table_without_a_machine_has_no_points() -> None:
    assert not any(point_of(TABLES["pcie-bench"], cell) for cell in TABLES["pcie-bench"].cells)


@pytest.mark.early
def test_the_program_accepts_every_point() -> None:
    """With the files' values, and with the last set."""
    points = comparison.Points(TABLES, model.compiled(), 1)
    runner = predict.Runner(points.program)
    wanted = {point for table in TABLES.values() for cell in table.cells for point in points_of(table, cell)}
    assert len(wanted) > 40
    for point in wanted:
        unit = points.unit(point, time_ms=1)
        assert unit, point
        for given in unit.inputs()[:: len(unit.inputs()) - 1]:
            assert "throughput_gbps" in runner.one(unit, given, lambda _: None)


@pytest.mark.parametrize(
    ("gbps", "verdict"),
    [
        (77.8, "fitted"),
        (70.5, "fitted"),  # 9.4 % too little
        (69.0, "miss"),
        ([77.0, 77.0, 77.0, 70.0, 84.0], "fitted"),
        ([77.0, 77.0, 77.0, 69.0, 77.0], "not determined"),
        ([77.0, 77.0, 77.0, 77.0, 85.0], "not determined"),
    ],
)
def test_verdicts(gbps: float | list[float], verdict: str) -> None:
    assert rows(strict=gbps)["throughput strict@5"].verdict == verdict


def test_only_the_fitted_row_is_called_fitted() -> None:
    found = rows(FS=97.0, off=97.6)
    assert found["throughput F&S@5"].verdict == "hit"
    assert found["throughput off@5"].verdict == "input"


def test_a_counter_may_be_15_percent_off() -> None:
    found = rows()
    # Published 1.30 and 0.90, computed 1.0; nothing is called not determined.
    assert (found["iotlb strict@5"].verdict, found["l3 strict@40"].verdict) == ("miss", "fitted")
    assert found["iotlb strict@5"].error == pytest.approx(1 / 1.3 - 1)
    # A published 0 has no error, and is missed by a computed 1.
    assert (found["l1 F&S@5"].error, found["l1 F&S@5"].verdict) == (None, "miss")


def test_without_a_result_nothing_is_computed() -> None:
    assert {row.verdict for row in rows_of(FLOWS, {})} == {"not computed", "input"}


def test_baselines() -> None:
    (cell,) = (each for each in FLOWS.of("throughput") if each.name == "strict@20")
    beside = comparison.baselines(FLOWS, cell)
    assert beside.same_as_off == pytest.approx(87.6 / 40.1 - 1)
    assert beside.of_misses == pytest.approx(32768 / (236 * (1.96 + 2 * 0.43 + 0.76)) / 40.1 - 1)
    assert abs(beside.of_misses or 1) < 0.035


# -- statements ------------------------------------------------------------------------------------


def said(**gbps: float | list[float]) -> dict[str, str]:
    return {each.says: each.words for each in statements_of(FLOWS, results(**gbps))}


def test_a_statement_must_hold_for_all_sets() -> None:
    fast = "F&S is as fast as no IOMMU"
    assert said(FS=50.0, off=50.0)[fast] == "holds"
    assert said(FS=40.0, off=50.0)[fast] == "does not hold"
    assert said(FS=[50.0] * 4 + [40.0], off=50.0)[fast] == "not determined: holds for 80 % of the sets"
    assert {each.words for each in statements_of(TABLES["reported"], {})} == {"cannot be said here"}


def test_all_statements_about_guests_are_decided() -> None:
    found = {each.says: each for each in guest_claims.decide()}
    assert len(found) >= 17
    words = " ".join(found)
    for part in (
        "caching mode",
        "51 Gb/s",
        "static maps",
        "kernel-owned",
        "over-commit",
        "fault reporting",
        "1.8",
        "5.5",
    ):
        assert part in words, part
    for part in (
        "several queues",
        "both TLBs",
        "ranges",
        "posted MAP",
        "three switches",
        "6 to 7 us",
        "one queue lock",
    ):
        assert part in words, part
    assert all(each.figures and each.why for each in found.values())


def test_a_wrong_protocol_changes_a_decision(monkeypatch: pytest.MonkeyPatch) -> None:
    right = virtual.protocols

    def wrong(file: Path | None = None) -> dict[str, virtual.Protocol]:
        found = right(file)
        plain = found["virtio-posted"]
        posted = {**plain.rows, ("written", "sync"): (("kick",), "written")}
        return {**found, "virtio-posted": replace(plain, rows=posted)}

    monkeypatch.setattr(virtual, "protocols", wrong)
    assert {each.says: each.holds for each in guest_claims.decide()}["idea: posted MAP"] is False


# -- versions --------------------------------------------------------------------------------------

FIRST = Version(1, 'the "first"', "abc", "def", {"model/a.c": "1", "model/b.c": "2"}, {"t/f/x@1": [1.0, 0.5, 2.0]})


def test_versions_are_read_back(tmp_path: Path) -> None:
    file = tmp_path / "validation.toml"
    assert versions.versions(file) == []
    second = replace_version(FIRST, number=2, files={})
    file.write_text(versions.text_of([FIRST, second]))
    assert versions.versions(file) == [FIRST, second]
    file.write_text("[[version]]\nnumber = 1\n")
    with pytest.raises(UserError, match="restore the file by git"):
        versions.versions(file)


def replace_version(version: Version, **fields: Any) -> Version:
    return Version(**{name: fields.get(name, getattr(version, name)) for name in version.__struct_fields__})


@pytest.mark.parametrize(
    ("now", "said"),
    [
        ({"model/a.c": "1", "model/b.c": "3"}, "model/b.c changed since version 1"),
        ({"model/a.c": "1"}, "model/b.c changed"),
        ({**FIRST.files, "model/c.c": "1"}, "model/c.c changed"),
        ({}, "model/a.c and 1 more files changed"),
    ],
)
def test_a_change_needs_a_version(now: dict[str, str], said: str) -> None:
    versions.check_unchanged(FIRST, FIRST.files)
    with pytest.raises(UserError) as error:
        versions.check_unchanged(FIRST, now)
    assert error.value.message.startswith(said)
    assert "make validate ACCEPT='REASON', which keeps the old errors" in error.value.message


def test_a_model_that_was_never_compared_is_refused() -> None:
    with pytest.raises(UserError, match="was never compared"):
        versions.check_unchanged(None, {})


def test_another_figure_is_named() -> None:
    assert versions.differences(FIRST, {"t/f/x@1": [1.0, 0.5, 2.0]}) == []
    assert versions.differences(FIRST, {"t/f/x@1": [1.0, 0.5, 2.1]}) == [
        "t/f/x@1: [1.0, 0.5, 2.0] is [1.0, 0.5, 2.1] here"
    ]
    assert len(versions.differences(FIRST, {})) == 1


def test_hashes_cover_what_decides() -> None:
    names = {*versions.inputs()}
    for each in ("model/params.c", "model/parameters.toml", "model/machines/cascade-lake.toml", "core/policy.c"):
        assert each in names
    assert "model/validation.toml" not in names


# -- the page --------------------------------------------------------------------------------------


def test_the_page_keeps_old_errors() -> None:
    found = [*rows_of(FLOWS, results(strict=70.0))]
    old = replace_version(FIRST, figures={"fs-flows/throughput/strict@5": [70.02, 60.0, 80.0]})
    text = validation_page.page({"fs-flows": FLOWS}, found, [], [old, replace_version(FIRST, number=2)], 2)
    (line,) = (line for line in text.splitlines() if line.startswith("| throughput, strict@5,"))
    assert "| 77.8 | 70.0 | 70.0 to 70.0 | -10.0 % |" in line
    assert line.endswith("| -10.0 % |")
    assert "error of version 1" in text


def test_the_page_is_that_of_the_last_version() -> None:
    page, all_ = PROJECT / "docs/validation.md", versions.versions()
    if not all_:
        pytest.skip("the model was never compared")
    text = page.read_text()
    assert f"Version {all_[-1].number}: {all_[-1].reason}." in text
    for name, figures in all_[-1].figures.items():
        _, figure, system = name.split("/")
        title = TABLES[name.split("/")[0]].figures[figure].title or figure
        assert re.search(rf"\| {re.escape(title)}, {re.escape(system)}, ", text), name
        assert len(figures) == 3
