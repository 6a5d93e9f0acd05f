# SPDX-License-Identifier: GPL-2.0-only
"""The page of `xsmmu predict --html`."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from html import escape
from pathlib import Path
from typing import Final

from xsmmu import files, html_page, predict_plot, predicted
from xsmmu.model_files import Described, Scene
from xsmmu.predicted import Result

PAGE: Final = html_page.Kind("xsmmu predict", "xsmmu: predictions", "Predicted throughput and exposure")
PLOTS: Final = 24
"""Most plots in a page."""


def write(page: Path, scene: Scene, results: Sequence[Result]) -> None:
    """Write the page atomically."""
    files.replace(page, html(scene, results))


def html(scene: Scene, results: Sequence[Result]) -> str:
    """The content of the page."""
    return PAGE.html(
        [*_plots(scene, results), *_table(results), *_notes(results), *_reading(results[0]), *_given(scene)]
    )


def _plots(scene: Scene, results: Sequence[Result]) -> Iterator[str]:
    yield f"<h2>{escape(scene.machine.title)}</h2>"
    yield f'<p class="sub">{escape(scene.workload.title)}</p>'
    swept = [*results[0]["at"]]
    if not swept:
        yield f"<figure>\n{predict_plot.rows(results, 1)}\n</figure>"
        return
    parameter = swept[-1]
    found = predict_plot.groups(parameter, results)
    for number, (others, mine) in enumerate([*found.items()][:PLOTS], 1):
        if others:
            yield f"<h3>{escape(', '.join(f'{name}={value}' for name, value in others))}</h3>"
        unit = scene.known[parameter].unit
        yield f"<figure>\n{predict_plot.lines(parameter, unit, mine, number)}\n</figure>"
    if len(found) > PLOTS:
        yield f"<p>{len(found) - PLOTS} more plots are left out; the table has all points.</p>"


def _table(results: Sequence[Result]) -> Iterator[str]:
    yield '<div class="scroll" role="region" tabindex="0" aria-label="All predictions">'
    yield "<table>"
    yield "<caption>All predictions</caption>"
    heads = [escape(head) for head in predicted.columns(results)]
    yield f"<thead><tr>{_cells('th scope=col', heads)}</tr></thead>"
    yield "<tbody>"
    for row in predicted.rows(results):
        first, *others = map(escape, row)
        yield f'<tr><th scope="row">{first}</th>{_cells("td", others)}</tr>'
    yield "</tbody>"
    yield "</table>"
    yield "</div>"


def _cells(tag: str, cells: Iterable[str]) -> str:
    return "".join(f"<{tag}>{cell}</{tag.split()[0]}>" for cell in cells)


def _notes(results: Sequence[Result]) -> Iterator[str]:
    yield "<h3>Notes</h3>"
    yield "\n".join(["<ul>", *(f"<li>{escape(note)}</li>" for note in predicted.notes(results)), "</ul>"])


def _reading(result: Result) -> Iterator[str]:
    yield "<h2>How to read the figures</h2>"
    yield (
        f"<p>A value is the median of {result['seeds']} seeds, each of {result['time_ms']} ms. Its interval is that of "
        "all runs: of all seeds, and of all sets of parameters that are as likely. A throughput is not determined if "
        "the interval is wider than 10 % of the value on a side (hollow markers). Limit: what the traffic waited for "
        "most, with its share of the time.</p>"
    )


def _given(scene: Scene) -> Iterator[str]:
    for described in (scene.machine, scene.driver, scene.workload):
        yield f"<h2>{escape(described.part.capitalize())}</h2>"
        yield f'<p class="sub"><code>{escape(str(described.file))}</code></p>'
        yield from _parameters(scene, described)


def _parameters(scene: Scene, described: Described) -> Iterator[str]:
    yield f'<div class="scroll" role="region" tabindex="0" aria-label="Parameters of the {described.part}">'
    yield "<table>"
    yield f"<caption>Parameters of the {described.part}</caption>"
    heads = ("parameter", "value", "unit", "range", "", "source")
    yield f"<thead><tr>{_cells('th scope=col', heads)}</tr></thead>"
    yield "<tbody>"
    for name, given in described.given.items():
        ends = f"{given.range[0]} to {given.range[1]}" if given.range else ""
        cells = [str(given.value), scene.known[name].unit, ends, given.how, given.source]
        yield f'<tr><th scope="row">{escape(name)}</th>{_cells("td", map(escape, cells))}</tr>'
    yield "</tbody>"
    yield "</table>"
    yield "</div>"
