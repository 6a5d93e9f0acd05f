# SPDX-License-Identifier: GPL-2.0-only
"""A reader of HTML pages, for tests."""

from __future__ import annotations

from html.parser import HTMLParser
from typing import Final

VOID: Final = ("meta", "br", "link", "img", "hr", "input")
"""Elements without an end tag."""


class Page(HTMLParser):
    """Checks that tags are balanced, and collects data for the tests."""

    def __init__(self, html: str) -> None:
        super().__init__()
        self.open: list[str] = []
        self.attributes: list[tuple[str, dict[str, str | None]]] = []
        self.words = ""
        self.feed(html)
        self.close()
        assert self.open == []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.attributes.append((tag, dict(attrs)))
        if tag not in VOID:
            self.open.append(tag)

    def handle_startendtag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.attributes.append((tag, dict(attrs)))

    def handle_endtag(self, tag: str) -> None:
        assert self.open.pop() == tag

    def handle_data(self, data: str) -> None:
        if "style" not in self.open and "script" not in self.open:
            self.words += f" {data}"
