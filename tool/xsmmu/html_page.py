# SPDX-License-Identifier: GPL-2.0-only
"""Pages of the tool: one file, which loads nothing, for light and dark screens and for paper."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from html import escape
from pathlib import Path
from typing import Final

from xsmmu import __version__, colours, guide
from xsmmu.errors import UserError

STYLE: Final = f"""
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
svg .area {{ stroke: none; opacity: .7; }}
.axis {{ stroke: var(--muted); }}
.grid {{ stroke: var(--grid); }}
.gap {{ stroke: var(--muted); stroke-dasharray: 1 4; }}
.lead {{ stroke: var(--muted); stroke-width: .7; }}
{" ".join(f".{level} {{ color: var(--{level}); }}" for level in guide.LEVELS)}
@media print {{ body {{ font-size: 10pt; }} figure, tr {{ break-inside: avoid; }} .scroll {{ overflow: visible; }} }}
"""


@dataclass(frozen=True)
class Kind:
    """The pages of a command."""

    command: str
    title: str
    heading: str

    @property
    def _begin(self) -> str:
        """A file with another begin is no page of the command, and is not replaced."""
        return f"<!doctype html>\n<!-- {self.command} -->\n"

    def check(self, page: Path, inputs: Iterable[Path]) -> None:
        """Refuse a place where no page can be written, before the work begins."""
        folder = page.absolute().parent
        if not folder.is_dir():
            raise UserError(f"there is no folder {folder}: make it, or name another page", code="bad-value")
        if page.resolve() in {file.resolve() for file in inputs} or (page.exists() and not self._is_page(page)):
            raise UserError(f"{page} exists and is no page of {self.command}: name another file", code="file-exists")

    def _is_page(self, file: Path) -> bool:
        begin = self._begin.encode()
        try:
            with file.open("rb") as stream:
                return stream.read(len(begin)) == begin
        except OSError:
            return False

    def html(self, content: Iterable[str]) -> str:
        """A whole page."""
        return self._begin + "\n".join([*self._head(), *content, "</main>", "</body>", "</html>", ""])

    def _head(self) -> Iterator[str]:
        yield '<html lang="en">'
        yield "<head>"
        yield '<meta charset="utf-8">'
        # A browser refuses to load anything, whatever a file's name contains.
        yield "<meta http-equiv=\"Content-Security-Policy\" content=\"default-src 'none'; style-src 'unsafe-inline'\">"
        yield '<meta name="viewport" content="width=device-width, initial-scale=1">'
        yield '<meta name="color-scheme" content="light dark">'
        yield f"<title>{escape(self.title)}</title>"
        yield f"<style>{STYLE}</style>"
        yield "</head>"
        yield "<body>"
        yield "<main>"
        yield f"<h1>{escape(self.heading)}</h1>"
        yield f'<p class="sub">xsmmu {__version__}: <code>{escape(self.command)}</code></p>'
