# SPDX-License-Identifier: GPL-2.0-only
"""`xsmmu lab compare`: changes beyond the usual spread, and results that cannot be compared."""

from __future__ import annotations

import copy
import io
import json
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner
from rich.console import Console

from xsmmu.cli import app
from xsmmu.errors import UserError
from xsmmu_lab.runs import compare

Json = dict[str, Any]


@pytest.fixture
def before(synthetic: Json) -> Json:
    """A made-up result with all fields that the schema requires."""
    synthetic.pop("synthetic")
    for run in synthetic["runs"]:
        run.setdefault("cost", None)
    return {**synthetic, "accel": "tcg-icount", "time": "2026-01-01T00:00:00+00:00", "experiment": "compare"}


@pytest.fixture
def after(before: Json) -> Json:
    """A copy of the result that a test may change."""
    return copy.deepcopy(before)


def run_of(summary: Json, workload: str, policy: str) -> Json:
    found: Json = next(each for each in summary["runs"] if (each["workload"], each["policy"]) == (workload, policy))
    return found


def changed(before: Json, after: Json) -> list[tuple[str, str]]:
    return [(each.workload, each.policy) for each in compare.compare(before, after).runs if each.changed]


def test_the_same_has_not_changed(before: Json, after: Json) -> None:
    assert changed(before, after) == []
    assert all(each.changed is False and each.percent == 0 for each in compare.compare(before, after).runs)


def test_micro_is_exact(before: Json, after: Json) -> None:
    run_of(after, "micro", "fused")["unmap_instructions_per_page"] += 0.5
    assert changed(before, after) == [("micro 64", "fused")]


@pytest.mark.parametrize(("by", "is_more"), [(0.04, False), (-0.04, False), (0.045, True), (-0.045, True)])
def test_others_have_a_spread_in_units_of_passthrough(before: Json, after: Json, by: float, is_more: bool) -> None:
    for summary in (before, after):
        run_of(summary, "net-rx", "kernel-strict")["relative_to_passthrough"] = 1.5
    run_of(after, "net-rx", "kernel-strict")["cost"]["value"] += by * 12_000
    assert changed(before, after) == ([("net-rx e1000e", "kernel-strict")] if is_more else [])


@pytest.mark.parametrize(("variant", "is_more"), [("4k-batch", True), ("4k", False)])
def test_a_variant_may_have_a_spread_of_its_own(before: Json, after: Json, variant: str, is_more: bool) -> None:
    for summary in (before, after):
        run = run_of(summary, "nvme", "fused")
        run |= {"variant": variant, "relative_to_passthrough": 1.04, "cost": {"value": 1040, "unit": "instructions/op"}}
    run_of(after, "nvme", "fused")["cost"]["value"] += 50
    assert changed(before, after) == ([(f"nvme {variant}", "fused")] if is_more else [])


def test_of_some_it_is_not_known_how_far_they_differ(before: Json, after: Json) -> None:
    for summary in (before, after):
        run_of(summary, "net-rx", "fused")["workload"] = "new"
    run_of(after, "new", "fused")["cost"]["value"] *= 3
    [found] = [each for each in compare.compare(before, after).runs if each.workload.startswith("new")]
    assert found.changed is None
    text = io.StringIO()
    compare.render(compare.compare(before, after), Console(file=text, width=80))
    assert "not known" in text.getvalue()


def test_percent_is_of_what_was_before(before: Json, after: Json) -> None:
    run = run_of(after, "net-rx", "fused")
    run["cost"]["value"] *= 1.25
    [found] = [each for each in compare.compare(before, after).runs if each.changed]
    assert found.percent == pytest.approx(25)
    assert (found.before, found.after) == (12_480, 15_600)
    run["cost"]["value"] /= 2.5
    [found] = [each for each in compare.compare(before, after).runs if each.changed]
    assert found.percent == pytest.approx(-50)


def test_runs_on_two_iommus_are_two(before: Json, after: Json) -> None:
    for summary in (before, after):
        run = run_of(summary, "micro", "fused")
        summary["runs"] = [run, {**run, "iommu": "virtio"}]
    after["runs"][1]["unmap_instructions_per_page"] += 7
    assert changed(before, after) == [("micro 64 virtio", "fused")]


@pytest.mark.parametrize(("ranges", "is_more"), [(((10, 12), (11, 13)), False), (((10, 12), (13, 14)), True)])
def test_repeated_runs_bring_their_own(before: Json, after: Json, ranges: tuple[Any, Any], is_more: bool) -> None:
    for summary, ends in zip((before, after), ranges, strict=True):
        run_of(summary, "micro", "fused")["repeats"] = {"runs": 3, "cost": list(ends)}
    run_of(after, "micro", "fused")["unmap_instructions_per_page"] += 2
    assert changed(before, after) == ([("micro 64", "fused")] if is_more else [])


def test_what_only_one_has_is_named(before: Json, after: Json) -> None:
    after["runs"] = [each for each in after["runs"] if each["workload"] != "net-tx"]
    before["runs"] = [each for each in before["runs"] if each["policy"] != "fands"]
    found = compare.compare(before, after)
    assert "net-tx igb fused unmodified" in found.only_before
    assert "micro 64 fands unmodified" in found.only_after
    text = io.StringIO()
    compare.render(found, Console(file=text, width=80))
    assert "0 of 21 costs changed" in text.getvalue()
    assert "only before: net-tx igb passthrough" in text.getvalue()


def test_what_cannot_be_compared_is_said(before: Json, after: Json) -> None:
    with pytest.raises(UserError, match="no run with a cost in common"):
        compare.compare(before, {**after, "runs": []})
    with pytest.raises(UserError, match="costs by tcg-icount and by kvm cannot be compared"):
        compare.compare(before, {**after, "accel": "kvm"})


def test_command(before: Json, after: Json, tmp_path: Path) -> None:
    run_of(after, "micro", "fused")["unmap_instructions_per_page"] *= 1.5
    for name, summary in (("a", before), ("b", after)):
        (tmp_path / name).mkdir()
        (tmp_path / name / "summary.json").write_text(json.dumps(summary))
    words = ["lab", "compare", str(tmp_path / "a"), str(tmp_path / "b")]
    made = CliRunner().invoke(app, [*words, "--changed"])
    assert made.exit_code == 0, made.output
    assert "micro 64" in made.output
    assert "net-rx" not in made.output
    found = json.loads(CliRunner().invoke(app, [*words, "--json"]).output)
    assert found["schema"] == "xsmmu.lab-compare/1"
    [one] = [each for each in found["runs"] if each["changed"]]
    assert (one["workload"], one["policy"]) == ("micro 64", "fused")
    with pytest.raises(UserError, match="does not exist"):
        CliRunner().invoke(app, [*words[:-1], str(tmp_path / "c")], catch_exceptions=False)
