# SPDX-License-Identifier: GPL-2.0-only
"""The pictures: which are drawn, that they can be read, and that they agree with the summary."""

from __future__ import annotations

import re
import struct
import xml.etree.ElementTree as ET
from typing import Any

import pytest
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.text import Annotation, Text

from xsmmu_lab.report import plots, view

Summary = dict[str, Any]
ALL = ["cost-exposure", "map-unmap", "relative-cost", "invalidations"]


def drawn(summary: Summary) -> dict[str, plots.Plot]:
    return {plot.name: plot for plot in plots.plots(view.read(summary))}


def without(summary: Summary, *workloads: str) -> Summary:
    return {**summary, "runs": [run for run in summary["runs"] if run["workload"] not in workloads]}


def crowd(summary: Summary) -> Summary:
    """All costs nearly equal, and all exposures."""
    for number, run in enumerate(summary["runs"]):
        if run["workload"] == "micro":
            run["unmap_instructions_per_page"] = 1000 - run["map_instructions_per_page"] + number % 7
        if run["workload"] == "attack":
            run["attack"].update(landed=20, last_landed_ns={"p50": 1, "max": 100_000 + number})
    return summary


def test_all_pictures(synthetic: Summary) -> None:
    assert list(drawn(synthetic)) == ALL


def test_png(synthetic: Summary) -> None:
    for plot in drawn(synthetic).values():
        png = plot.png()
        assert png.startswith(b"\x89PNG\r\n\x1a\n")
        width, height = struct.unpack(">II", png[16:24])
        assert 600 <= width <= 2000 and 400 <= height <= 2000


def test_svg_is_one_element_in_the_colours_of_the_page(synthetic: Summary) -> None:
    for plot in drawn(synthetic).values():
        svg = plot.svg()
        root = ET.fromstring(svg)
        assert root.tag.endswith("svg") and "width" not in root.attrib and "viewBox" in root.attrib
        assert "var(--ink)" in svg
        assert not any(colour in svg for colour in plots.CSS_NAMES)
        words = "".join(element.text or "" for element in root.iter() if element.tag.endswith("text"))
        assert "fused" in words  # text is text


def test_svg_file_has_colours_for_light_and_dark_pages(synthetic: Summary) -> None:
    synthetic["kernel"] = "6.12.118-synthetic"
    svg = drawn(synthetic)["cost-exposure"].svg_file()
    root = ET.fromstring(svg)
    assert [element.tag.rpartition("}")[2] for element in root][:3] == ["style", "title", "desc"]
    style = root[0].text or ""
    light, dark = style.split("@media (prefers-color-scheme: dark)")
    used = set(re.findall(r"var\((--\w+)\)", svg))
    assert used and all(f"{name}:" in part for name in used for part in (light, dark))
    colours = {name: colour for colour, name in plots.CSS_NAMES.items()}
    for element in root.iter():
        for word, name in re.findall(r"(fill|stroke): var\((--\w+)\)", element.get("style", "")):
            assert element.get(word) == colours[name]
    assert "Linux 6.12.118-synthetic, commit synthetic, icount" in svg
    assert len(svg) < 44_000


def test_every_png_says_what_it_shows(synthetic: Summary) -> None:
    for plot in drawn(synthetic).values():
        fig = plot.draw(f"{plot.title}. {plot.heading}")
        heading = fig.legends[0].get_title().get_text()
        assert heading == f"{plot.title}. Linux 0.0-synthetic, commit synthetic, icount"


def test_a_panel_has_its_own_scale_and_marks_1x(synthetic: Summary) -> None:
    for run in synthetic["runs"]:
        if run["workload"] == "net-tx":
            run["cost"]["value"] **= 1.2
    panels = drawn(synthetic)["relative-cost"].draw("").axes
    assert len({ax.get_xlim() for ax in panels}) == len(panels) == 2
    for ax in panels:
        assert 1.0 in ax.get_xticks() and ax.get_xlim()[0] < 1.0


def batch_aware(summary: Summary) -> Summary:
    """With a batch-aware run of fused at its place."""
    for run in [run for run in summary["runs"] if run["policy"] == "fused" and run["workload"] in ("micro", "attack")]:
        aware = {**run, "driver": "batch-aware", "level": "strict"}
        if "attack" in run:
            aware["attack"] = {**run["attack"], "landed": 0}
        summary["runs"].append(aware)
    return summary


def test_a_batch_aware_driver_has_its_own_mark_and_frontier(synthetic: Summary) -> None:
    assert "dot: batch-aware driver" not in keys(synthetic)
    assert {"frontier", "frontier, batch-aware", "dot: batch-aware driver"} <= keys(batch_aware(synthetic))


def keys(summary: Summary) -> set[str]:
    fig = drawn(summary)["cost-exposure"].draw("")
    return {text.get_text() for text in fig.legends[0].get_texts()}


def test_the_frontier_has_nothing_below_and_left_of_it() -> None:
    points = [(0.0, 9.0), (0.0, 8.0), (1.0, 8.5), (2.0, 3.0), (3.0, 3.0), (4.0, 1.0)]
    assert plots._frontier(points) == [(0, 8), (2, 8), (2, 3), (4, 3), (4, 1)]


def test_points_do_not_cover_each_other(synthetic: Summary) -> None:
    fig = drawn(crowd(synthetic))["cost-exposure"].draw("")
    fig.draw_without_rendering()
    ax = fig.axes[0]
    markers: list[Any] = [
        line for line in ax.lines if line.get_markersize() == 8 and line.get_marker() not in ("None", "")
    ]
    places = [ax.transData.transform((line.get_xdata()[0], line.get_ydata()[0])) for line in markers]
    assert len(places) == 8
    apart = [abs(x - u) + abs(y - v) for n, (x, y) in enumerate(places) for u, v in places[:n]]
    assert min(apart) > 8 * fig.dpi / 72


def test_a_policy_that_copies_is_not_among_whole_pages(synthetic: Summary) -> None:
    for run in synthetic["runs"]:
        if run["policy"] == "strict":
            run["policy"] = "copy"
    assert "copy" not in drawn(synthetic)["cost-exposure"].alt


def test_nanoseconds_as_measured_have_no_wait_added(synthetic: Summary) -> None:
    found = drawn({**synthetic, "accel": "kvm"})
    assert "fused (held) costs 581, exposure 230 µs" in found["cost-exposure"].alt
    assert "nvme 4k: kernel-strict 1.500" in found["relative-cost"].alt


def test_svg_is_the_same_each_time(synthetic: Summary) -> None:
    first, second = drawn(synthetic), drawn(synthetic)
    for name in ALL:
        assert first[name].svg() == second[name].svg()


def test_alternative_text_has_the_figures(synthetic: Summary) -> None:
    found = drawn(synthetic)
    assert "ns per page at a wait of 1 µs" in found["cost-exposure"].alt
    assert "fused (held) costs 44.6 (581 instructions), exposure 230 µs" in found["cost-exposure"].alt
    assert "passthrough (none) costs 8.00 (160 instructions), exposure always" in found["cost-exposure"].alt
    assert "kernel-strict (strict) costs 1,125 (2,500 instructions), exposure 0 µs" in found["cost-exposure"].alt
    assert "fused 440 + 140" in found["map-unmap"].alt
    assert "net-rx e1000e: kernel-strict 1.917" in found["relative-cost"].alt
    assert "xsmmu 0.00098" in found["invalidations"].alt


@pytest.mark.parametrize("crowded", [False, True])
def test_labels_do_not_cover_each_other(synthetic: Summary, crowded: bool) -> None:
    plot = drawn(crowd(synthetic) if crowded else synthetic)["cost-exposure"]
    fig = plot.draw("a heading")
    canvas: Any = FigureCanvasAgg(fig)
    canvas.draw()
    notes = [child for child in fig.axes[0].get_children() if isinstance(child, Annotation)]
    # each label's own extent, without its line to the point
    texts = [Text.get_window_extent(note, canvas.get_renderer()).padded(-2) for note in notes]
    assert len(texts) == 8
    for number, box in enumerate(texts):
        assert not any(box.overlaps(other) for other in texts[number + 1 :])
        assert box.x1 <= fig.bbox.x1 and box.x0 >= fig.bbox.x0


def test_an_exposure_that_was_not_attacked_is_marked(synthetic: Summary) -> None:
    plot = drawn(without(synthetic, "attack"))["cost-exposure"]
    assert "not attacked" in plot.caption and "fused" in plot.caption
    assert "fused (held) costs 44.6 (581 instructions), exposure 240 µs" in plot.alt
    assert "kernel-lazy" not in plot.alt


def test_no_figure_no_picture(synthetic: Summary) -> None:
    assert "cost-exposure" not in drawn(without(synthetic, "micro"))
    assert list(drawn({**synthetic, "accel": "tcg"})) == ["invalidations"]
    only_micro = without(synthetic, "net-rx", "net-tx", "nvme", "attack")
    assert list(drawn(only_micro)) == ["cost-exposure", "map-unmap", "invalidations"]
    assert drawn({"schema": 1, "runs": []}) == {}


def test_no_passthrough(synthetic: Summary) -> None:
    synthetic["runs"] = [run for run in synthetic["runs"] if run["policy"] != "passthrough"]
    found = drawn(synthetic)
    assert "always" not in found["cost-exposure"].alt
    for plot in found.values():
        plot.png()


def test_null_figures(synthetic: Summary) -> None:
    for run in synthetic["runs"]:
        if run["policy"] in ("fused", "kernel-strict"):
            run.update(
                map_instructions_per_page=None,
                invalidations_per_page=None,
                relative_to_passthrough=None,
                cost=None,
                attack=None,
            )
    for plot in drawn(synthetic).values():
        assert "fused" not in plot.alt
        plot.png()


def test_zero_and_one_value_axes(synthetic: Summary) -> None:
    """All zeros have no decade to start an axis from."""
    for run in synthetic["runs"]:
        run["invalidations_per_page"] = 0
        if run["workload"] == "attack":
            run["attack"].update(landed=0)
    for plot in drawn(synthetic).values():
        plot.png()
