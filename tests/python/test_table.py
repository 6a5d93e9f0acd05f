# SPDX-License-Identifier: GPL-2.0-only
"""The terminal table, and reading of summaries: golden text, narrow terminals, bad input."""

from __future__ import annotations

import io
import re
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner
from rich.console import Console

from xsmmu.cli import app
from xsmmu_lab.report import table, view
from xsmmu_lab.report.view import SummaryError
from xsmmu_lab.runs import results

Summary = dict[str, Any]


def rendered(summary: Summary, width: int = 80, **options: Any) -> str:
    file = io.StringIO()
    table.render(summary, Console(file=file, width=width, legacy_windows=False, **options))
    return file.getvalue()


def only(summary: Summary, *workloads: str) -> Summary:
    """The summary without other workloads, and of micro only the largest ring."""
    runs = [run for run in summary["runs"] if run["workload"] in workloads and run.get("ring") != 64]
    return {**summary, "runs": runs}


def lines_of(text: str, policy: str) -> list[list[str]]:
    return [line.split() for line in text.splitlines() if line.startswith(f"{policy} ")]


GOLDEN = """\
kernel 0.0-synthetic, IOMMU synthetic IOMMU, QEMU 0.0, accelerator icount,
commit synthetic
All workloads at one look
ns/page: map + unmap with a wait of 1 us for each invalidation, estimated;
instructions: the same without the wait; exp.: exposure that a device saw; x:
cost relative to passthrough, with the same wait
                      micro-1024 instructions    inv/   exp. micro- net-rx
policy        level      ns/page        /page    page max us   1024 e1000e
──────────────────────────────────────────────────────────────────────────
kernel-strict strict       1,125        2,500   1.000      0 140.6x 1.917x
strict        strict       1,118        2,350   1.000      0 139.7x 1.867x
xsmmu         held          56.5        1,110 0.00098    550   7.1x 1.100x
fused         held          44.6          581 0.01560    230   5.6x 1.046x
fands         bounded       52.6          740 0.01560  1,900   6.6x 1.127x
kernel-lazy   lazy           104        2,000 0.00400 11,000  13.0x 1.302x
lazy          lazy          83.9        1,600 0.00390  9,800  10.5x 1.282x
passthrough   none          8.00          160       - always   1.0x 1.000x

micro-1024
cost in instructions per page
                      ns at                   x pass x kernel    inv/   exp.
policy        level    1 us  map unmap   sum through   strict    page p99 us
────────────────────────────────────────────────────────────────────────────
kernel-strict strict  1,125  800 1,700 2,500  15.62x   1.000x   1.000      -
strict        strict  1,118  700 1,650 2,350  14.69x   0.940x   1.000      0
xsmmu         held     56.5  560   550 1,110   6.94x   0.444x 0.00098    480
fused         held     44.6  440   140   581   3.63x   0.232x 0.01560    200
fands         bounded  52.6  480   260   740   4.62x   0.296x 0.01560    900
kernel-lazy   lazy      104  800 1,200 2,000  12.50x   0.800x 0.00400      -
lazy          lazy     83.9  700   900 1,600  10.00x   0.640x 0.00390  9,900
passthrough   none     8.00 90.0  70.0   160   1.00x   0.064x       - always

micro-1024
continued
                        exp.
policy        level   max us
────────────────────────────
kernel-strict strict       -
strict        strict       0
xsmmu         held       600
fused         held       240
fands         bounded  2,100
kernel-lazy   lazy         -
lazy          lazy    10,050
passthrough   none    always

net-rx e1000e
cost in instructions per KiB
                      ns at         x pass x kernel    inv/   exp.   exp.
policy        level    1 us   cost through   strict    page p99 us max us
─────────────────────────────────────────────────────────────────────────
kernel-strict strict  1,150 18,000  1.500x   1.000x   1.000      -      -
strict        strict  1,120 17,400  1.450x   0.967x   1.000      0      0
xsmmu         held      660 13,200  1.100x   0.733x 0.00098    480    600
fused         held      628 12,480  1.040x   0.693x 0.01560    200    240
fands         bounded   676 13,440  1.120x   0.747x 0.01560    900  2,100
kernel-lazy   lazy      781 15,600  1.300x   0.867x 0.00400      -      -
lazy          lazy      769 15,360  1.280x   0.853x 0.00390  9,900 10,050
passthrough   none      600 12,000  1.000x   0.667x       - always always

net-rx e1000e
continued
                      throughput
policy        level       Mbit/s
────────────────────────────────
kernel-strict strict         667
strict        strict         690
xsmmu         held           909
fused         held           962
fands         bounded        893
kernel-lazy   lazy           769
lazy          lazy           781
passthrough   none         1,000

attack
                         inv/   exp.   exp.    writes  writes   given  landed
policy        level      page p99 us max us     tried  landed    back last us
─────────────────────────────────────────────────────────────────────────────
kernel-strict strict    1.000      -      - 2,000,000       0       0       0
strict        strict    1.000      0      0 2,000,000       0       0       0
xsmmu         held    0.00098    480    600 2,000,000   2,750       0     550
fused         held    0.01560    200    240 2,000,000   1,150       0     230
fands         bounded 0.01560    900  2,100 2,000,000   9,500   9,500   1,900
kernel-lazy   lazy    0.00400      -      - 2,000,000  55,000  55,000  11,000
lazy          lazy    0.00390  9,900 10,050 2,000,000  49,000  49,000   9,800
passthrough   none          - always always 2,000,000 100,000 100,000  always

strict:  no stale translation exists when the unmap, or the driver's
         explicit flush, returns
held:    as bounded, and the page is not given back to the allocator
         before the flush
bounded: ends by the next flush point or the bound, whichever is first;
         the page may be in use again
lazy:    a stale translation may outlive the reuse of the page
none:    no protection: the device reaches all memory at all times

Cost is guest instructions (-icount: one instruction is one nanosecond of guest
time). Throughput and exposure are in guest time. Emulated invalidations
complete at once: instructions are software cost. On hardware a CPU waits for
each invalidation, 0.9 to 2 us by published figures.
Costs at a wait of 1 us are estimates: instructions at 20 instructions a ns (the
median over the policies, 16 to 36.5: instructions of micro on Linux 7.2,
divided by the nanoseconds of make native on a made-up CPU, Linux 0.0;
xsmmu/native.json), and 1,000 ns for each invalidation. The code of drivers and
of the network and block stacks was not timed: if it executes fewer instructions
a ns than micro, then waits are a smaller part of its cost than shown.
The costs of micro and ring are the same on any host. Those of the others depend
on when the host runs QEMU's devices. Relative to passthrough, their
instructions differed between three runs by up to 0.042x (net-rx e1000e):
smaller differences say nothing.
Exposure (exp.) of a workload: the module's histogram, from unmap until no stale
translation can exist.
Exposure (exp.) of the overview, and last landed: what a device saw that kept
writing to an unmapped address (0: no write landed; ">": until the attack
ended). Of the writes that landed, those given back hit pages that nobody had a
reference of any more, or that someone else had by then; those before flush
could still land, as a batch-aware driver had not flushed yet.
"x": cost relative to passthrough (1x: as cheap) or to kernel-strict.
"-": does not apply or was not measured.
Invalidations: in all 15 runs that have both, the module's count and the
hardware model's are equal, kind by kind.
Made by: make synthetic
"""


def test_golden(synthetic: Summary) -> None:
    assert rendered(only(synthetic, "micro", "net-rx", "attack")) == GOLDEN


@pytest.mark.parametrize("width", [60, 80, 100, 132, 200])
def test_no_line_is_wider_than_the_terminal(synthetic: Summary, width: int) -> None:
    assert max(map(len, rendered(synthetic, width).splitlines())) <= width


@pytest.mark.parametrize(
    ("columns", "environment", "whole"),
    [
        (None, {}, True),
        (None, {"FORCE_COLOR": "1"}, True),
        (None, {"FORCE_COLOR": "1", "TERM": "dumb"}, True),
        (None, {"TERM": "dumb"}, True),
        ("60", {}, False),
    ],
)
def test_a_pipe_has_room_for_each_table(
    synthetic: Summary,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    columns: str | None,
    environment: dict[str, str],
    whole: bool,
) -> None:
    """As many columns as the table has; text is still wrapped."""
    monkeypatch.delenv("COLUMNS", raising=False)
    if columns:
        monkeypatch.setenv("COLUMNS", columns)
    for name, value in environment.items():
        monkeypatch.setenv(name, value)
    monkeypatch.setattr(results, "load", lambda _folder: synthetic)
    said = CliRunner().invoke(app, ["lab", "show", str(tmp_path)], catch_exceptions=False).output
    lines = re.sub(r"\x1b\[[0-9;]*m", "", said).splitlines()
    assert ("continued" not in lines) == whole
    if whole:
        head = next(line for line in lines if line.startswith("policy"))
        assert len(head) > 80
        notes = [line for line in lines if line.startswith(("Cost is", "Exposure"))]
        assert notes and all(len(line) <= 120 for line in notes)


def test_a_narrow_terminal_shows_every_figure(synthetic: Summary) -> None:
    def words(width: int) -> list[str]:
        text = rendered(only(synthetic, "micro", "net-rx", "nvme"), width)
        keys = {"policy", "level", "continued", *view.LEVELS}
        return sorted(set(re.findall(r"[\w.,/]+", text)) - keys)

    assert words(50) == words(200)


def test_colour_says_nothing_of_its_own(synthetic: Summary) -> None:
    coloured = rendered(synthetic, force_terminal=True, color_system="truecolor")
    assert re.sub(r"\x1b\[[0-9;]*m", "", coloured) == rendered(synthetic)


def test_a_terminal_that_knows_only_ascii(synthetic: Summary) -> None:
    file = io.BytesIO()
    with io.TextIOWrapper(file, encoding="ascii") as text:
        table.render(synthetic, Console(file=text, width=80))
        text.flush()
        assert b"kernel-strict" in file.getvalue()


def test_markup_in_names_is_shown_as_it_is(synthetic: Summary) -> None:
    synthetic["command"] = "make lab [bold]X=1[/bold]"
    assert "make lab [bold]X=1[/bold]" in rendered(synthetic)


def test_strictest_level_first(synthetic: Summary) -> None:
    order = [level for _, level in view.read(synthetic).rows()]
    assert order == sorted(order, key=list(view.LEVELS).index)


def test_a_policy_at_two_levels_has_two_rows(synthetic: Summary) -> None:
    for run in synthetic["runs"]:
        if run["policy"] == "xsmmu" and run["workload"] == "nvme":
            run["level"] = "bounded"
    rows = view.read(synthetic).rows()
    assert ("xsmmu", "held") in rows and ("xsmmu", "bounded") in rows


def test_relative_costs(synthetic: Summary) -> None:
    net = next(w for w in view.read(synthetic).workloads if w.name == "net-rx e1000e")
    fused = next(run for run in net.runs if run.policy == "fused")
    assert net.relative(fused, "passthrough") == pytest.approx(1.04)
    assert net.relative(fused, "kernel-strict") == pytest.approx(1.04 / 1.5)


def test_a_given_ratio_stands_where_no_cost_does(synthetic: Summary) -> None:
    nvme = next(w for w in view.read(synthetic).workloads if w.name == "nvme 4k")
    fused = next(run for run in nvme.runs if run.policy == "fused")
    assert fused.cost is None
    assert nvme.relative(fused, "passthrough") == pytest.approx(1.04)
    assert nvme.relative(fused, "kernel-strict") == pytest.approx(1.04 / 1.5)


def test_repetitions_are_shown_by_their_range(synthetic: Summary) -> None:
    assert "least..most" not in rendered(synthetic)
    for run in synthetic["runs"]:
        spread = dict.fromkeys(("relative_to_passthrough", "invalidations_per_page", "exposure_max_us", "throughput"))
        run["repeats"] = {"runs": 5, "cost": [570.5, 590], **spread}
    text = rendered(synthetic)
    assert "570..590" in text or "571..590" in text
    assert "measured 5 times" in text


def test_no_passthrough(synthetic: Summary) -> None:
    synthetic["runs"] = [run for run in synthetic["runs"] if run["policy"] != "passthrough"]
    text = rendered(only(synthetic, "micro"))
    assert "x pass" not in text and "passthrough was not run" in text
    assert "0.232x" in text


def test_null_is_never_zero(synthetic: Summary) -> None:
    """Every figure of one run is null: its row is dashes, the others keep theirs."""
    for run in synthetic["runs"]:
        if run["policy"] == "fused":
            figures = set(run) - {"workload", "policy", "level", "driver", "ring", "device", "variant"}
            run.update(dict.fromkeys(figures))
    for row in lines_of(rendered(synthetic), "fused"):
        assert set(row[2:]) <= {"-", "-/-"}


def test_missing_is_null(synthetic: Summary) -> None:
    whole = only(synthetic, "micro")
    bare = {**whole, "runs": [{k: v for k, v in run.items() if v is not None} for run in whole["runs"]]}
    assert rendered(bare) == rendered(whole)


def test_bare_runs_are_listed() -> None:
    text = rendered({"schema": 1, "runs": [{"workload": "micro", "policy": "fused", "level": "held"}]})
    assert lines_of(text, "fused") == [["fused", "held"]] * 2


def test_no_runs() -> None:
    assert "no runs" in rendered({"schema": 1, "runs": []})


@pytest.mark.parametrize("accel", ["tcg", "something new", None])
def test_an_emulated_clock_measures_no_cost(synthetic: Summary, accel: str | None) -> None:
    text = rendered({**synthetic, "accel": accel})
    assert "costs and throughput are omitted" in " ".join(text.split())
    assert not re.search(r"instruction|Mbit|IOPS|\dx", text)
    assert "0.00098" in text


@pytest.mark.parametrize("accel", ["kvm", "bare-metal"])
def test_a_real_clock_measures_nanoseconds(synthetic: Summary, accel: str) -> None:
    text = rendered({**synthetic, "accel": accel})
    assert "ns per page" in text and "ns per KiB" in text
    assert "instructions per" not in text


def test_a_strict_attack_that_failed_is_zero_and_an_endless_one_is_open(synthetic: Summary) -> None:
    for run in synthetic["runs"]:
        if run["policy"] == "lazy" and run["workload"] == "attack":
            run["attack"]["last_landed_ns"]["max"] = 19_999_000
    found = view.read(synthetic)
    assert view.show_seen("strict", found.seen(("strict", "strict"))) == "0"
    assert view.show_seen("lazy", found.seen(("lazy", "lazy"))) == ">19,999"
    assert view.show_seen("none", None) == "always"


def test_a_count_that_the_hardware_denies(synthetic: Summary) -> None:
    assert "all 30 runs" in table.oracle(view.read(synthetic))
    run = next(run for run in synthetic["runs"] if run["policy"] == "fused")
    counted = run["invalidations"]
    run["invalidations"] = None
    text = table.oracle(view.read(synthetic))
    assert "in all 29 runs" in text and "that lack one of the two: 1" in text
    run["invalidations"] = {**counted, "page": 7}
    assert "DISAGREE" in rendered(synthetic)
    assert "micro-64 fused: page 7 counted, 1,560 seen" in table.oracle(view.read(synthetic))


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"policy": None}, r"runs\[0\]\.policy must be a name, but found None"),
        ({"level": "quite"}, r"runs\[0\]\.level must be one of strict, held, bounded, lazy, none, but"),
        ({"map_instructions_per_page": "12"}, r"runs\[0\]\.map_instructions_per_page must be a number"),
        ({"map_instructions_per_page": float("nan")}, "at least 0, or null, but found nan"),
        ({"unmap_instructions_per_page": -1}, "at least 0, or null, but found -1"),
        ({"invalidations_per_page": True}, "at least 0, or null, but found True"),
        ({"pages_unmapped": 1.5}, "a whole number, or null, but found 1.5"),
        ({"exposure_us": [1, 2]}, r"runs\[0\]\.exposure_us must be an object or null"),
        ({"exposure_us": {"p99": "x"}}, r"runs\[0\]\.exposure_us\.p99 must be a number"),
        ({"cost": {"value": 3}}, r"runs\[0\]\.cost\.unit must be a name, but it is missing"),
    ],
)
def test_bad_runs_are_refused(synthetic: Summary, change: Summary, message: str) -> None:
    synthetic["runs"][0].update(change)
    with pytest.raises(SummaryError, match=message):
        rendered(synthetic)


@pytest.mark.parametrize(
    ("summary", "message"),
    [
        ({}, "schema must be 1, found None"),
        ({"schema": 2, "runs": []}, "schema must be 1, found 2"),
        ({"schema": 1}, "runs must be a list, but it is missing"),
        ({"schema": 1, "runs": "none"}, "runs must be a list, but found 'none'"),
        ({"schema": 1, "runs": [3]}, r"runs\[0\] must be an object, found 3"),
        ({"schema": 1, "runs": [], "kernel": 6.12}, "kernel must be text or null, but found 6.12"),
    ],
)
def test_bad_summaries_are_refused(summary: Summary, message: str) -> None:
    with pytest.raises(SummaryError, match=message):
        rendered(summary)


def test_a_second_run_of_the_same_is_refused(synthetic: Summary) -> None:
    synthetic["runs"].append(dict(synthetic["runs"][0]))
    with pytest.raises(SummaryError, match="second run of passthrough"):
        rendered(synthetic)
