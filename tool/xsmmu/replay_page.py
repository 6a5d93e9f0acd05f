# SPDX-License-Identifier: GPL-2.0-only
"""The page of `xsmmu replay --html`: one file, which loads nothing, for light and dark screens and for paper."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from html import escape
from pathlib import Path
from typing import Final

from xsmmu import __version__, colours, files, guide, replay_plot, replayed
from xsmmu.errors import UserError
from xsmmu.replayed import KERNEL, Result

_BEGIN: Final = "<!doctype html>\n<!-- xsmmu replay -->\n"
"""A file with another begin is no such page, and is not replaced."""

_STYLE: Final = f"""
:root {{ {colours.css(colours.LIGHT)} }}
@media screen and (prefers-color-scheme: dark) {{ :root {{ {colours.css(colours.DARK)} }} }}
body {{ background: var(--paper); color: var(--ink); font: 16px/1.5 system-ui, sans-serif; margin: 0; }}
main {{ max-width: 78rem; margin: 0 auto; padding: 1.5rem 1rem 4rem; }}
h1 {{ font-size: 1.6rem; line-height: 1.2; margin: 0 0 .25rem; }}
h2 {{ font-size: 1.2rem; margin: 2.5rem 0 .25rem; overflow-wrap: anywhere; }}
h3 {{ font-size: 1rem; margin: 1.5rem 0 .25rem; }}
p, ul, dl, figure {{ max-width: 60rem; }}
figure {{ margin: .5rem 0; overflow-x: auto; }}
.sub {{ color: var(--muted); margin: 0 0 1rem; }}
.scroll {{ overflow-x: auto; }}
table {{ border-collapse: separate; border-spacing: 0; font-size: .875rem; font-variant-numeric: tabular-nums; }}
caption {{ text-align: left; color: var(--muted); }}
th, td {{ padding: .2rem .6rem; text-align: right; white-space: nowrap; font-weight: 400; }}
thead th {{ color: var(--muted); vertical-align: bottom; }}
.key, tbody th {{ text-align: left; }}
tbody th {{ font-weight: 600; position: sticky; left: 0; background: var(--paper); }}
tbody tr:first-child > * {{ border-top: 1px solid var(--grid); }}
dl {{ display: grid; grid-template-columns: max-content 1fr; gap: .15rem 1rem; }}
dt {{ font-weight: 600; }}
dd {{ margin: 0; }}
svg {{ display: block; width: 100%; min-width: 34rem; height: auto; }}
svg text {{ fill: var(--ink); font: 12px system-ui, sans-serif; }}
svg .name {{ paint-order: stroke; stroke: var(--paper); stroke-width: 3px; }}
svg g {{ fill: currentcolor; stroke: currentcolor; stroke-width: 1.5; }}
svg .kernel, svg .dot {{ fill: var(--paper); }}
svg .dot {{ stroke: none; }}
.axis {{ stroke: var(--muted); }}
.grid {{ stroke: var(--grid); }}
.gap {{ stroke: var(--muted); stroke-dasharray: 1 4; }}
.lead {{ stroke: var(--muted); stroke-width: .7; }}
{" ".join(f".{level} {{ color: var(--{level}); }}" for level in guide.LEVELS)}
@media print {{ body {{ font-size: 10pt; }} figure, tr {{ break-inside: avoid; }} .scroll {{ overflow: visible; }} }}
"""


def check(page: Path, recordings: Iterable[Path]) -> None:
    """Refuse a place where no page can be written, before the work begins."""
    if not page.absolute().parent.is_dir():
        raise UserError(f"there is no folder {page.absolute().parent}: make it, or name another page", code="bad-value")
    if page.resolve() in {file.resolve() for file in recordings} or (page.exists() and not _is_page(page)):
        raise UserError(f"{page} exists and is no page of xsmmu replay: name another file", code="file-exists")


def _is_page(file: Path) -> bool:
    try:
        with file.open("rb") as stream:
            return stream.read(len(_BEGIN)) == _BEGIN.encode()
    except OSError:
        return False


def write(page: Path, results: Sequence[Result]) -> None:
    """Write the page atomically."""
    files.replace(page, html(results))


def html(results: Sequence[Result]) -> str:
    """The content of the page."""
    return _BEGIN + "\n".join(
        [*_head(), *_recordings(results), *_reading(results), "</main>", "</body>", "</html>", ""]
    )


def _head() -> Iterator[str]:
    yield '<html lang="en">'
    yield "<head>"
    yield '<meta charset="utf-8">'
    # A browser refuses to load anything, whatever a recording's name contains.
    yield "<meta http-equiv=\"Content-Security-Policy\" content=\"default-src 'none'; style-src 'unsafe-inline'\">"
    yield '<meta name="viewport" content="width=device-width, initial-scale=1">'
    yield '<meta name="color-scheme" content="light dark">'
    yield "<title>xsmmu: replayed recordings</title>"
    yield f"<style>{_STYLE}</style>"
    yield "</head>"
    yield "<body>"
    yield "<main>"
    yield "<h1>Cost and exposure of recorded DMA traffic</h1>"
    yield f'<p class="sub">xsmmu {__version__}: <code>xsmmu replay</code></p>'


def _recordings(results: Sequence[Result]) -> Iterator[str]:
    for number, (file, mine) in enumerate(replayed.by_file(results), 1):
        yield f"<h2>{escape(file)}</h2>"
        yield f'<p class="sub">{escape(replayed.traffic(mine[0]))}</p>'
        yield f"<figure>\n{replay_plot.svg(mine, number)}\n</figure>"
        yield from _table(file, mine)
        yield "<h3>Notes</h3>"
        found = [f"<li>{escape(note)}</li>" for note in replayed.notes(mine)]
        yield "\n".join(["<ul>", *found, "</ul>"]) if found else "<p>Nothing: all events of the recording.</p>"


def _table(file: str, results: Sequence[Result]) -> Iterator[str]:
    yield f'<div class="scroll" role="region" tabindex="0" aria-label="All replays of {escape(file)}">'
    yield "<table>"
    yield "<caption>All replays</caption>"
    heads = ["policy", "level", "commands a page", "exposed p50", "exposed p99", "exposed max"]
    heads += ["most held pages", "most table pages", "regions a 1,000 maps"]
    cells = [f'<th scope="col"{_key(at)}>{head}</th>' for at, head in enumerate(heads)]
    yield f"<thead><tr>{''.join(cells)}</tr></thead>"
    yield "<tbody>"
    for result in results:
        first, *others = map(escape, replayed.row(result))
        cells = [f"<td{_key(at)}>{cell}</td>" for at, cell in enumerate(others, 1)]
        yield f'<tr><th scope="row">{first}</th>{"".join(cells)}</tr>'
    yield "</tbody>"
    yield "</table>"
    yield "</div>"


def _key(column: int) -> str:
    return ' class="key"' if column < 2 else ""


def _reading(results: Sequence[Result]) -> Iterator[str]:
    yield "<h2>How to read the figures</h2>"
    yield (
        "<p>Commands a page: invalidation commands for each page unmapped, which cost a wait each. Exposure: time from "
        "the unmap to the flush that covers the page; p99: 99 % of the pages are exposed no longer. Quantiles are at "
        "most 1/64 too large. A flush takes no time in a replay, and timers are never late.</p>"
    )
    if any(result["aware"] for result in results):
        yield "<p>(aware): as if the driver were batch-aware; the driver keeps the memory until its flush.</p>"
    if any(result["policy"] in KERNEL for result in results):
        yield (
            "<p>kernel-strict and kernel-lazy are models of the kernel's own modes: their table pages and regions are "
            "estimates; commands and exposure are not.</p>"
        )
    yield "<p>Levels, strictest first. Memory that a driver has unmapped from its device</p>"
    yield "<dl>"
    there = {result["level"] for result in results}
    for level, meaning in guide.LEVELS.items():
        if level in there:
            yield f"<dt>{level}</dt><dd>{escape(meaning)}</dd>"
    yield "</dl>"
