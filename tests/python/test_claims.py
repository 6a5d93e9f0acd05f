# SPDX-License-Identifier: GPL-2.0-only
"""Claims: reading, refusals, comparison and display; the figures decide whether a claim holds."""

from __future__ import annotations

import copy
import io
from pathlib import Path
from typing import Any

import pytest
from rich.console import Console
from tests.python.pages import Page

from xsmmu.errors import UserError
from xsmmu_lab.report import page as report
from xsmmu_lab.report import table, view
from xsmmu_lab.runs import claims, experiment, results

Json = dict[str, Any]

RUNS = {"ring/rx": ["fands", "xsmmu", "kernel-strict"], "ring/tx": ["fused"]}

CLAIM: Json = {
    "title": "a claim made up for this test",
    "source": "a made-up paper",
    "conditions": "On a made-up machine.",
    "differs": ["Everything."],
    "figure": [
        {"name": "inv/page", "measured": "invalidations_per_page"},
        {"name": "pages", "measured": "pages_unmapped", "per": "bytes", "relative_to": "xSMMU"},
        {"name": "cost", "measured": "cost.value", "commands": "invalidations_per_unit"},
        {"name": "Gb/s"},
        {"name": "added", "measured": "cost.value", "above": "xSMMU", "commands": "invalidations_per_unit"},
    ],
    "system": [
        {"name": "strict", "here": "kernel-strict@ring/rx", "published": {"inv/page": 1.0, "Gb/s": 30}},
        {"name": "FANDS", "here": "fands@ring/rx", "published": {"inv/page": 0.047, "pages": [37, 43, 44]}},
        {"name": "xSMMU", "here": "xsmmu@ring/rx", "published": {"inv/page": [0.076, 0.073, 0.075], "pages": 20}},
        {"name": "nobody"},
    ],
    "statement": [
        {"says": "FANDS wins one and loses one", "checks": ["inv/page: FANDS < xSMMU", "cost: xSMMU < FANDS < strict"]},
        {"says": "twice the pages", "checks": ["pages: FANDS >= 2 * xSMMU"]},
        {"says": "below a bound", "checks": ["inv/page: FANDS <= 0.0167"]},
        {"says": "of one who was not there", "checks": ["cost: nobody < strict"]},
        {"says": "said, and left at that"},
    ],
}


def entry(inv_per_page: float, pages: int, cost: float) -> Json:
    return {
        "invalidations_per_page": inv_per_page,
        "pages_unmapped": pages,
        "bytes": 1000,
        "cost": {"value": cost, "unit": "instructions/KiB"},
    }


ENTRIES = {
    ("ring/rx", "kernel-strict"): entry(1.0, 60, 900.0),
    ("ring/rx", "fands"): entry(0.016, 50, 500.0),
    ("ring/rx", "xsmmu"): entry(0.07, 20, 400.0),
}


def compared(entries: dict[tuple[str, str], Json], claim: Json = CLAIM) -> Json:
    (result,) = claims.compare(claims.parse([claim], RUNS), entries)
    return result


def verdicts(result: Json) -> list[bool | None]:
    return [statement["holds"] for statement in result["statements"]]


def test_published_stands_beside_measured() -> None:
    result = compared(ENTRIES)
    fands = next(each for each in result["systems"] if each["name"] == "FANDS")
    assert fands["here"] == {"workload": "ring/rx", "policy": "fands"}
    assert fands["published"] == {"inv/page": 0.047, "pages": 43 / 20, "cost": None, "Gb/s": None, "added": None}
    assert fands["measured"] == {"inv/page": 0.016, "pages": 2.5, "cost": 500.0, "Gb/s": None, "added": 100.0}
    assert [each["comparable"] for each in result["figures"]] == [True, True, True, False, True]


def test_statements_are_decided_by_the_figures() -> None:
    assert verdicts(compared(ENTRIES)) == [True, True, True, None, None]
    turned = {**ENTRIES, ("ring/rx", "fands"): entry(0.08, 39, 399.0)}
    result = compared(turned)
    assert verdicts(result) == [False, False, False, None, None]
    assert [check["holds"] for check in result["statements"][0]["checks"]] == [False, False]
    assert result["statements"][0]["checks"][0]["published_holds"] is True
    assert result["statements"][2]["checks"][0]["published_holds"] is False


def test_less_than_the_base_is_negative() -> None:
    result = compared({**ENTRIES, ("ring/rx", "fands"): entry(0.016, 50, 350.0)})
    assert [each["measured"]["added"] for each in result["systems"]] == [500.0, -50.0, 0.0, None]


def test_a_run_that_was_left_out_is_null_and_decides_nothing() -> None:
    result = compared({("ring/rx", "fands"): ENTRIES[("ring/rx", "fands")]})
    assert verdicts(result) == [None, None, True, None, None]
    xsmmu = next(each for each in result["systems"] if each["name"] == "xSMMU")
    assert set(xsmmu["measured"].values()) == {None}
    assert result["statements"][1]["checks"][0]["measured"] == [None, None]


def test_a_figure_of_zero_is_a_figure() -> None:
    free = {**ENTRIES, ("ring/rx", "xsmmu"): entry(0.0, 20, 400.0)}
    result = compared(free)
    assert result["systems"][2]["measured"]["inv/page"] == 0.0
    assert result["statements"][0]["checks"][0]["holds"] is False


def broken(change: str, value: Any) -> Json:
    claim = copy.deepcopy(CLAIM)
    *path, last = change.split(".")
    at: Any = claim
    for part in path:
        at = at[int(part)] if part.isdecimal() else at[part]
    at[last] = value
    return claim


@pytest.mark.parametrize(
    ("change", "value", "message"),
    [
        ("differs", [], r"claim\[0\]\.differs: .*"),
        ("source", 5, r"claim\[0\]\.source: Expected `str`, got `int`"),
        ("system.1.published", {"inv/page": 0}, r"claim\[0\]\.system\[1\]\.published.*"),
        ("system.1.published", {"inv": 1}, r"claim\[0\]\.system\[1\]: unknown figure 'inv': choose from inv/page, .*"),
        ("system.1.here", "fands@ring/xr", r"claim\[0\]\.system\[1\]: unknown workload 'ring/xr'.*ring/rx, ring/tx"),
        ("system.1.here", "fused@ring/rx", r"system\[1\]: unknown policy of ring/rx 'fused': choose from fands, .*"),
        ("system.1.name", "xSMMU", r"claim\[0\]: two systems have the same name"),
        ("figure.0.measured", "inv_per_page", r"figure 'inv/page': a run has no 'inv_per_page'"),
        ("figure.2.measured", "cost.values", r"figure 'cost': a run has no 'cost\.values'"),
        ("figure.1.relative_to", "xsmmu", r"figure 'pages': unknown system 'xsmmu': choose from strict, .*"),
        ("figure.4.above", "off", r"figure 'added': unknown system 'off': choose from strict, .*"),
        ("figure.0.commands", "invalidations_per_unit", r"figure 'inv/page': 'commands' are added to a cost"),
        ("figure.2.commands", "commands", r"figure 'cost': a run has no 'commands'"),
        ("figure.3.per", "bytes", r"figure 'Gb/s': 'per' needs 'measured'"),
        ("statement.0.checks", ["FANDS < xSMMU"], r"statement\[0\]: 'FANDS < xSMMU' must begin with a figure"),
        ("statement.0.checks", ["cost: FANDS"], r"statement\[0\]: 'cost: FANDS' compares nothing"),
        ("statement.0.checks", ["cost: FANDS < fused"], r"statement\[0\]: unknown system 'fused': choose from .*"),
        ("statement.0.checks", ["price: FANDS < xSMMU"], r"statement\[0\]: unknown figure 'price': choose from .*"),
        ("statement.0.holds", True, r"statement\[0\]: Object contains unknown field `holds`"),
    ],
)
def test_what_is_wrong_is_named(change: str, value: Any, message: str) -> None:
    with pytest.raises(UserError, match=message):
        claims.parse([broken(change, value)], RUNS)


def test_a_wrong_claim_names_its_file(tmp_path: Path) -> None:
    text = (experiment.FOLDER / "compare.toml").read_text()
    (tmp_path / "wrong.toml").write_text(f'{text}\n[[claim]]\ntitle = "nothing else"\n')
    with pytest.raises(UserError, match=r"wrong\.toml: claim\[0\]: .*required"):
        experiment.load("wrong", tmp_path)


# -- the hardware's wait ----------------------------------------------------------------------------------------------


def waiting(check: str, **costs: tuple[float, float]) -> tuple[Json, Json | None]:
    """The waits of a statement with one check, and of its check. Costs are (cost, commands) by policy."""
    claim = {**CLAIM, "statement": [{"says": "this", "checks": [check]}]}
    names = {"strict": "kernel-strict", "fands": "fands", "xsmmu": "xsmmu"}
    entries = {
        ("ring/rx", names[name]): {**entry(1, 1, cost), "invalidations_per_unit": commands}
        for name, (cost, commands) in costs.items()
    }
    statement = compared(entries, claim)["statements"][0]
    return statement["wait"], statement["checks"][0]["wait"]


@pytest.mark.parametrize(
    ("check", "least", "most"),
    [
        ("cost: FANDS < strict", 700.0, None),  # 70 instructions more, 0.1 commands fewer
        ("cost: strict < FANDS", 0.0, 700.0),
        ("cost: FANDS > strict", 0.0, 700.0),
        ("cost: FANDS <= 2 * strict", 0.0, None),
        ("cost: xSMMU < FANDS < strict", 700.0, None),
        ("cost: FANDS < strict < 1400", 700.0, 2000.0),
        ("added: FANDS < strict", 700.0, None),
    ],
)
def test_from_which_wait_on_a_check_holds(check: str, least: float, most: float | None) -> None:
    wait, own = waiting(check, strict=(1200, 0.1), fands=(1270, 0.0), xsmmu=(1000, 0.0))
    assert wait == own
    assert wait["never"] is False and wait["most"] == (None if most is None else pytest.approx(most))
    assert wait["least"] == pytest.approx(least)


def test_no_wait_helps() -> None:
    wait, _ = waiting("cost: FANDS < strict", strict=(1200, 0.1), fands=(1270, 0.1))
    assert wait == {"never": True, "least": None, "most": None}
    wait, _ = waiting("cost: FANDS < strict < xSMMU", strict=(1200, 0.1), fands=(1270, 0.0), xsmmu=(1210, 0.0))
    assert wait == {"never": True, "least": None, "most": None}  # from 700 on, and up to 100


def test_a_ratio_is_turned_by_waits_too() -> None:
    claim = copy.deepcopy(CLAIM)
    claim["figure"][2]["relative_to"] = "xSMMU"
    claim["statement"] = [{"says": "this", "checks": ["cost: strict >= 1.25"]}]
    entries = {
        ("ring/rx", "kernel-strict"): {**entry(1, 1, 1200), "invalidations_per_unit": 0.25},
        ("ring/rx", "xsmmu"): {**entry(1, 1, 1000), "invalidations_per_unit": 0.0},
    }
    (statement,) = compared(entries, claim)["statements"]
    assert statement["holds"] is False
    assert statement["wait"] == {"never": False, "least": pytest.approx(200), "most": None}


def test_without_counts_nothing_is_said_of_waits() -> None:
    result = compared(ENTRIES)
    assert [statement["wait"] for statement in result["statements"]] == [None] * 5
    assert result["statements"][0]["checks"][0]["wait"] is None  # of a figure that is no cost


def test_waits_do_not_mend_what_does_not_depend_on_them() -> None:
    claim = {**CLAIM, "statement": [{"says": "this", "checks": ["inv/page: strict < FANDS", "cost: FANDS < strict"]}]}
    known = {place: {**each, "invalidations_per_unit": 0.5} for place, each in ENTRIES.items()}
    (statement,) = compared(known, claim)["statements"]
    assert statement["wait"] is None and statement["checks"][1]["wait"] is not None


def test_a_wait_is_said_in_time(synthetic: Json) -> None:
    counts = {"kernel-strict": 0.1, "fands": 0.0, "xsmmu": 0.0}
    costs = {"kernel-strict": 1200.0, "fands": 1270.0, "xsmmu": 1000.0}
    entries = {
        place: {
            **entry(each["invalidations_per_page"], each["pages_unmapped"], costs[place[1]]),
            "invalidations_per_unit": counts[place[1]],
        }
        for place, each in ENTRIES.items()
    }
    text = " ".join(rendered(claimed(synthetic, entries), 200).split())
    said = (
        "it holds where the wait for an invalidation is more than 35.0 ns (700 instructions, at 20 instructions a ns)"
    )
    assert f'"FANDS wins one and loses one": does not hold here; {said}' in text
    assert f"cost: xSMMU (1,000) < FANDS (1,270) < strict (1,200): false; {said}" in text
    text = rendered(claimed({**synthetic, "accel": "kvm"}, entries), 200)
    assert "is more than 700 ns" in text


# -- shown ------------------------------------------------------------------------------------------------------------


def claimed(summary: Json, entries: dict[tuple[str, str], Json] = ENTRIES) -> Json:
    return {**summary, "claims": [compared(entries)]}


def rendered(summary: Json, width: int = 100) -> str:
    file = io.StringIO()
    table.render(summary, Console(file=file, width=width, legacy_windows=False))
    text = file.getvalue()
    return text[text.index("a claim made up") : text.index("Made by")]


GOLDEN = """\
a claim made up for this test
                                                pages, x of  pages, x of                   added, above
                            inv/page  inv/page        xSMMU        xSMMU  cost       Gb/s         xSMMU
system  here               published      here    published         here  here  published          here
───────────────────────────────────────────────────────────────────────────────────────────────────────
strict  kernel-strict, rx      1.000     1.000            -         3.00   900       30.0           500
FANDS   fands, rx            0.04700   0.01600         2.15         2.50   500          -           100
xSMMU   xsmmu, rx            0.07500   0.07000         1.00         1.00   400          -             0
nobody  -                          -         -            -            -     -          -             -

Published: a made-up paper. On a made-up machine.
Differs: Everything.
"FANDS wins one and loses one": holds here
  inv/page: FANDS (0.01600) < xSMMU (0.07000): true; as published
  cost: xSMMU (400) < FANDS (500) < strict (900): true
"twice the pages": holds here
  pages: FANDS (2.50) >= 2 * xSMMU (2.00): true; as published
"below a bound": holds here
  inv/page: FANDS (0.01600) <= 0.0167: true; not so by the published figures
"of one who was not there": not measured here
  cost: nobody (-) < strict (900): not measured
"said, and left at that": cannot be said here
"""


def test_golden(synthetic: Json) -> None:
    assert rendered(claimed(synthetic), 110) == GOLDEN


def test_a_wrong_direction_does_not_hold(synthetic: Json) -> None:
    turned = {**ENTRIES, ("ring/rx", "xsmmu"): entry(0.07, 20, 600.0)}
    text = rendered(claimed(synthetic, turned))
    assert '"FANDS wins one and loses one": does not hold here' in text
    assert "cost: xSMMU (600) < FANDS (500) < strict (900): false" in text


@pytest.mark.parametrize("width", [60, 80, 132])
def test_no_line_is_wider_than_the_terminal(synthetic: Json, width: int) -> None:
    assert max(map(len, rendered(claimed(synthetic), width).splitlines())) <= width


def test_the_report_has_it_all(synthetic: Json, tmp_path: Path) -> None:
    turned = {**ENTRIES, ("ring/rx", "fands"): entry(0.08, 50, 500.0)}
    html = report.write(claimed(synthetic, turned), tmp_path).read_text()
    Page(html)
    assert "Published and measured: a claim made up for this test" in html
    assert 'class="statement wrong">&ldquo;FANDS wins one and loses one&rdquo;: does not hold here' in html
    assert 'class="statement right">&ldquo;twice the pages&rdquo;: holds here' in html
    assert "inv/page: FANDS (0.08000) &lt; xSMMU (0.07000): false; as published" in html
    assert "On a made-up machine." in html and "Everything." in html


def test_a_summary_without_claims_has_none(synthetic: Json, tmp_path: Path) -> None:
    assert view.read(synthetic).claims == ()
    assert "Published and measured" not in report.write(synthetic, tmp_path).read_text()


def test_the_schema_knows_claims() -> None:
    nulls = "pages_mapped pages_unmapped map_instructions_per_page unmap_instructions_per_page invalidations"
    nulls += " oracle_invalidations invalidations_per_page exposure_us throughput relative_to_passthrough"
    run: Json = dict.fromkeys(nulls.split())
    summary: Json = dict.fromkeys(("time", "commit", "kernel", "iommu", "qemu", "experiment", "command"), "x")
    summary |= {"schema": 1, "accel": "tcg-icount", "versions": {}, "claims": [compared(ENTRIES)]}
    summary["runs"] = [{"workload": "micro", "policy": "fused", "driver": "unmodified", "level": "held", **run}]
    results.validate(summary)
    summary["claims"][0]["statements"][0]["holds"] = "yes"
    with pytest.raises(UserError, match="holds"):
        results.validate(summary)


def test_a_check_without_its_values_is_refused(synthetic: Json) -> None:
    summary = claimed(synthetic)
    del summary["claims"][0]["statements"][0]["checks"][0]["measured"][0]
    with pytest.raises(view.SummaryError, match=r"statements\[0\]\.checks\[0\] must have a value for each term"):
        view.read(summary)
