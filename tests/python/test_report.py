# SPDX-License-Identifier: GPL-2.0-only
"""The HTML report: whole, self-contained, and honest about its figures."""

from __future__ import annotations

import re
from collections import Counter
from pathlib import Path
from typing import Any

import pytest
from tests.python.pages import Page

from xsmmu_lab.report import page as report
from xsmmu_lab.report import plots, view
from xsmmu_lab.report.view import BASELINES, SummaryError

Summary = dict[str, Any]


@pytest.fixture(scope="module")
def path(pristine: Summary, tmp_path_factory: pytest.TempPathFactory) -> Path:
    return report.write(pristine, tmp_path_factory.mktemp("report") / "results")


@pytest.fixture(scope="module")
def html(path: Path) -> str:
    return path.read_text()


def written(summary: Summary) -> str:
    """The page alone, without the pictures' files."""
    read = view.read(summary)
    return report.html(read, plots.plots(read))


def test_files(path: Path) -> None:
    assert path.name == "report.html"
    assert sorted(p.name for p in path.parent.iterdir()) == [
        "cost-exposure.png",
        "cost-exposure.svg",
        "invalidations.png",
        "map-unmap.png",
        "relative-cost.png",
        "report.html",
    ]


def test_page_is_well_formed_and_self_contained(path: Path, html: str) -> None:
    page = Page(html)
    ids = Counter(attrs["id"] for _, attrs in page.attributes if "id" in attrs)
    assert ids and max(ids.values()) == 1
    for tag, attrs in page.attributes:
        assert tag not in ("link", "img", "iframe")
        assert tag != "script" or not attrs  # nothing is loaded
        target = attrs.get("href") or attrs.get("xlink:href")
        if target and target.startswith("#"):
            assert target[1:] in ids
        elif target:
            assert (path.parent / target).is_file()
    assert not re.search(r"url\((?!#)|@import", html)


def test_each_picture_has_words_and_its_command(html: str) -> None:
    pictures = [attrs for _, attrs in Page(html).attributes if attrs.get("role") == "img"]
    assert len(pictures) == 2
    assert all(len(attrs["aria-label"] or "") > 100 for attrs in pictures)
    captions = re.findall(r"<figcaption>(.*?)</figcaption>", html, re.DOTALL)
    assert len(captions) == 2
    for caption in captions:
        assert "Made by <code>make synthetic</code>" in caption
    assert "with 1,000 ns for each invalidation, and its instructions in ns at 20 instructions a ns" in captions[0]
    assert "guest instructions under -icount; emulated invalidations complete at once" in captions[1]


def test_words(html: str) -> None:
    words = " ".join(Page(html).words.split())
    for text in ("0.0-synthetic", "synthetic IOMMU", "QEMU 0.0", "synthetic-fio 0", "micro-1024", "nvme 4k"):
        assert text in words
    for text in ("in all 30 runs", "a stale translation may outlive the reuse of the page", "11,000"):
        assert text in words


def test_rows_are_cut_by_level(html: str) -> None:
    heat = html[html.index('id="overhead-table"') :].split("</table>")[0]
    bodies = [re.findall(r'<th scope="row">(.*?)</th>', body) for body in heat.split("<tbody>")[1:]]
    assert bodies == [
        ["kernel-strict", "strict"],
        ["xsmmu", "fused"],
        ["fands"],
        ["kernel-lazy", "lazy"],
        ["passthrough"],
    ]


def test_light_dark_and_print(html: str) -> None:
    light, dark = re.findall(r":root \{(.*?)\}", html, re.DOTALL)
    used = set(re.findall(r"var\((--\w+)\)", html))
    for scheme in (light, dark):
        assert used <= set(re.findall(r"(--\w+):", scheme))
    assert "@media print" in html


def test_the_same_summary_gives_the_same_page(synthetic: Summary, html: str) -> None:
    assert written(synthetic) == html


def test_names_are_escaped(synthetic: Summary) -> None:
    synthetic["command"] = "<script>alert(1)</script>"
    for run in synthetic["runs"]:
        if run["policy"] == "fands":
            run["policy"] = '<b>"$x--_</b>'
    html = written(synthetic)
    assert "<script>alert" not in html and "<b>" not in html
    assert "&lt;script&gt;" in html
    Page(html)


@pytest.mark.parametrize("accel", ["tcg", None])
def test_an_emulated_clock_measures_no_cost(synthetic: Summary, accel: str | None) -> None:
    words = Page(written({**synthetic, "accel": accel})).words
    assert "costs and throughput are omitted" in words
    assert "instruction" not in words
    assert "cost-exposure" not in words


def test_a_real_clock_measures_nanoseconds(synthetic: Summary) -> None:
    html = written({**synthetic, "accel": "kvm"})
    assert "Cost: nanoseconds on this machine." in html
    assert "instructions per" not in html


def test_little_input() -> None:
    html = written({"schema": 1, "runs": []})
    assert "no runs" in html
    html = written({"schema": 1, "runs": [{"workload": "micro", "policy": "fused", "level": "held"}]})
    assert "command that made it is not recorded" in html
    Page(html)


def test_bad_input_writes_nothing(synthetic: Summary, tmp_path: Path) -> None:
    synthetic["runs"][0]["level"] = "quite"
    with pytest.raises(SummaryError):
        report.write(synthetic, tmp_path / "results")
    assert not (tmp_path / "results").exists()


def test_a_write_that_fails_leaves_the_old_report(
    synthetic: Summary, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    before = "the report of an earlier run"
    (tmp_path / "report.html").write_text(before)
    real = Path.write_bytes

    def full_disk(path: Path, data: bytes) -> int:
        real(path, data[: len(data) // 2])
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(Path, "write_bytes", full_disk)
    with pytest.raises(OSError, match="No space left"):
        report.write(synthetic, tmp_path)
    with pytest.raises(OSError, match="No space left"):
        report.replace(tmp_path / "report.html", b"the report of this one")
    assert (tmp_path / "report.html").read_text() == before
    assert not list(tmp_path.glob(".*"))


# -- the first statements
# ------------------------------------------------------------------------------------------------


def test_the_verdict_comes_before_everything(html: str) -> None:
    box = html[html.index('class="verdict"') : html.index("<nav")]
    words = " ".join(Page(f"<p>{box.partition('>')[2].rpartition('</section>')[0]}</p>").words.split())
    assert "in all 30 runs that have both, the module's count and the hardware model's are equal" in words
    assert (
        "Levels: not disproved by 16,000,000 writes to unmapped memory in 8 runs: none landed at level strict" in words
    )
    assert 'class="finding wrong"' not in box
    assert "The cheapest policy of each level, with a wait of 1 us for each invalidation" in words
    # level, cheapest for a page with its cost at the wait and without it, over all traffic and its mean at the wait
    assert "strict strict 1,118 2,350 strict 1.968x held fused 44.6 581 fused 1.048x bounded fands 52.6 740" in words
    assert "cost, x passthrough: geometric mean" in words
    # The module's own policy: a kernel mode is no choice of the module, even if as cheap.
    assert "lazy lazy 83.9 1,600 lazy 1.282x" in words


def test_the_cheapest_policy_is_the_cheapest_with_the_wait(synthetic: Summary) -> None:
    """Fewer instructions do not help a policy that waits more often."""
    for run in synthetic["runs"]:
        if run["policy"] == "xsmmu" and run["workload"] == "micro":
            run |= {"map_instructions_per_page": 1, "invalidations_per_page": 0.5}
    box = written(synthetic).partition("<nav")[0]
    assert "<td>fused</td>" in box.replace(' class="key"', "") and "<td>xsmmu</td>" not in box


@pytest.mark.parametrize("baseline", ["kernel-lazy", "kernel-strict", "passthrough"])
def test_the_kernels_own_path_is_no_cheapest_policy(synthetic: Summary, baseline: str) -> None:
    for run in synthetic["runs"]:
        if run["policy"] == baseline and run.get("map_instructions_per_page"):
            run["map_instructions_per_page"] = run["unmap_instructions_per_page"] = 1
    html = written(synthetic)
    box = html[html.index('class="verdict"') : html.index("<nav")]
    assert baseline not in box.replace("x passthrough", "")


def test_batch_aware_drivers_count_only_in_their_own_column(synthetic: Summary) -> None:
    """A cheaper run with a batch-aware driver changes neither the page's nor the traffic's cheapest policy."""
    cheaper = {"map_instructions_per_page": 1, "unmap_instructions_per_page": 2, "relative_to_passthrough": 1.001}
    for run in [run for run in synthetic["runs"] if run["policy"] == "fused" and run["workload"] != "attack"]:
        aware = {**run, "driver": "batch-aware", **{name: cost for name, cost in cheaper.items() if run[name]}}
        if "cost" in run:
            aware["cost"] = {**run["cost"], "value": 1.0}
            aware["invalidations_per_unit"] = 0.0
        synthetic["runs"].append(aware)
    html = written(synthetic)
    box = html[html.index('class="verdict"') : html.index("<nav")]
    words = " ".join(Page(f"<p>{box.partition('>')[2].rpartition('</section>')[0]}</p>").words.split())
    assert "held fused 44.6 581 fused 15.8 3.00 fused 1.048x" in words


@pytest.mark.parametrize(
    ("policy", "landed", "wrong"),
    [
        ("strict", {"landed": 1}, True),
        ("strict", {"landed_later": 1}, True),
        ("fused", {"landed_freed": 1}, True),
        ("lazy", {}, False),
    ],
)
def test_a_disproved_level_is_said(synthetic: Summary, policy: str, landed: dict[str, int], wrong: bool) -> None:
    for run in synthetic["runs"]:
        if run["workload"] == "attack" and run["policy"] == policy:
            run["attack"].update(landed)
    html = written(synthetic)
    assert (f"Levels DISPROVED by an attack: {policy} under attack." in html) == wrong
    assert ('class="finding wrong"' in html) == wrong


def test_counts_that_differ_are_said_first(synthetic: Summary) -> None:
    run = synthetic["runs"][-1]
    run["oracle_invalidations"] = {**run["oracle_invalidations"], "page": 1}
    html = written(synthetic)
    assert html.index("DISAGREE") < html.index("<nav")


@pytest.mark.parametrize("lacking", [1, None])
def test_counts_that_nothing_was_compared_with_are_not_called_right(synthetic: Summary, lacking: int | None) -> None:
    """Whether one of the module's runs, or all runs."""
    ours = [run for run in synthetic["runs"] if run["policy"] == "fused"]
    for run in ours[:lacking] if lacking else synthetic["runs"]:
        run["oracle_invalidations"] = None
    html = written(synthetic)
    assert [html.count(f'class="finding {state}"') for state in ("right", "wrong", "open")] == [1, 0, 1]


def test_contents_lead_to_every_heading(html: str) -> None:
    contents = set(re.findall(r'href="#([^"]*)"', html[html.index("<nav") : html.index("</nav>")]))
    assert contents == set(re.findall(r'<h2 id="([^"]*)"', html))


# -- colours and the hardware's wait ----------------------------------------------------------------------------------


def heat_cells(html: str, policy: str) -> list[tuple[str, str]]:
    row = html[html.index('id="overhead-table"') :].split(f'<th scope="row">{policy}</th>')[1].split("</tr>")[0]
    return re.findall(r'<td class="(h\d(?: unknown)?)"[^>]*>([\d.]+)</td>', row)


def test_overhead_is_a_table_with_colours_and_numbers_at_the_wait(html: str) -> None:
    """nvme has no count of commands, so its ratio is without a wait, and pale."""
    assert heat_cells(html, "passthrough") == [("h0", "1.000")] * 3 + [("h0 unknown", "1.000")]
    strict = [("h9", "140.62"), ("h6", "1.917"), ("h7", "2.12"), ("h6 unknown", "1.500")]
    assert heat_cells(html, "kernel-strict") == strict
    fused = [("h8", "5.58"), ("h2", "1.046"), ("h2", "1.050"), ("h2 unknown", "1.040")]
    assert heat_cells(html, "fused") == fused


def test_a_page_without_javascript_shows_and_names_a_wait_of_1_us(html: str) -> None:
    words = " ".join(Page(html).words.split())
    assert "With a wait of 1 µs for each invalidation. ns/page is map + unmap with this wait" in words
    assert 'class="ns" data-c="2500" data-i="1">1,125</td><td>2,500</td>' in html  # kernel-strict
    assert 'min="0" max="3000" step="50" value="1000"' in html
    assert "at 20 instructions a ns (the median over the policies, 16 to 36.5: " in words
    assert "perNs = 20;" in html


def test_a_wait_needs_costs_and_commands(synthetic: Summary) -> None:
    for run in synthetic["runs"]:
        run.update(invalidations_per_unit=0.25 if run["workload"] == "net-rx" else None)
    html = written(synthetic)
    assert 'data-c="18000" data-i="0.25"' in html  # kernel-strict, net-rx
    assert 'data-c="580.75" data-i="0.0156"' in html  # fused, micro: by the page
    assert 'data-c="12000" data-i="0"' in html  # passthrough waits for nothing
    assert 'id="wait" hidden' in html  # without JavaScript there is no slider
    for run in synthetic["runs"]:
        run.update(invalidations_per_unit=None, invalidations_per_page=None)
    html = written(synthetic)
    assert "<script" not in html and "a wait of" not in html
    assert heat_cells(html, "fused") == [("h7", "3.63"), ("h2", "1.040"), ("h2", "1.040"), ("h2", "1.040")]


def test_a_page_without_a_cost_has_no_figure(synthetic: Summary) -> None:
    for run in synthetic["runs"]:
        if run["policy"] == "fused" and run["workload"] == "micro":
            run["map_instructions_per_page"] = None
    row = written(synthetic).partition('id="overhead-table"')[2].partition('<th scope="row">fused</th>')[2]
    assert row.startswith('<td class="key">held</td><td>-</td><td>-</td><td>0.01560</td>')


def test_measured_nanoseconds_have_their_own_waits(synthetic: Summary) -> None:
    html = written({**synthetic, "accel": "kvm"})
    assert "<script" not in html and "data-c" not in html
    assert heat_cells(html, "kernel-strict")[0] == ("h9", "15.62")


def test_spread_stands_with_what_the_host_decides(synthetic: Summary, html: str) -> None:
    heads = html[html.index('id="overhead-table"') :].split("</thead>")[0]
    spreads = re.findall(r"<div>([^<]*?) ?(?:<small>(.*?)</small>)?</div>", heads)[4:]
    assert spreads == [("micro-1024", ""), ("net-rx e1000e", "±0.042"), ("net-tx igb", "±0.023"), ("nvme 4k", "±0.08")]
    assert "The costs of micro and ring are the same on any host. Those of the others depend" in html
    assert "±" not in written({**synthetic, "accel": "kvm"})


# -- a page that can be sent ------------------------------------------------------------------------------------------


def test_a_full_summary_is_below_300_kb(synthetic: Summary) -> None:
    """As many policies and workloads as `make lab` has: 25 rows, 30 workloads."""
    some = {run["workload"]: run for run in synthetic["runs"] if run["policy"] == "fused"}
    for run in [run for run in synthetic["runs"] if run["workload"] in some]:
        for number in range(2):
            copies = [{**run, "policy": f"{run['policy']}-{number}"}] if number else []
            synthetic["runs"] += [{**run, "driver": "batch-aware"}, *copies] if run["policy"] not in BASELINES else []
    for run in [run for run in synthetic["runs"] if run["workload"] not in ("micro", "attack")]:
        synthetic["runs"] += [{**run, "variant": f"{run.get('variant', '')} {number}"} for number in range(8)]
    read = view.read({**synthetic, "runs": unique(synthetic["runs"])})
    assert len(read.rows()) >= 18 and len(read.workloads) >= 30
    html = written({**synthetic, "runs": unique(synthetic["runs"])})
    Page(html)
    assert len(html.encode()) < 300_000


def unique(runs: list[dict[str, Any]]) -> list[dict[str, Any]]:
    keys = ("workload", "policy", "ring", "device", "variant", "driver")
    return list({tuple(run.get(key) for key in keys): run for run in runs}.values())
