# SPDX-License-Identifier: GPL-2.0-only
"""Published statements with their verdicts: the output of `make lab EXPERIMENT=claims`, and docs/claims.md."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Final

from rich.console import Console
from rich.text import Text

Json = Mapping[str, Any]

NAME: Final = "claims.md"
VERDICTS: Final = {True: "holds", False: "does not hold", None: "cannot be said here"}
_MANY: Final = {True: "hold", False: "do not hold", None: "cannot be said here"}
_WIDTH: Final = 100


def _sections(summary: Json) -> Iterator[tuple[Json, Sequence[Json]]]:
    for section in summary["sections"]:
        yield section, [each for each in summary["statements"] if each["section"] == section["name"]]


def counts(summary: Json) -> str:
    """How many statements have which verdict."""
    found = Counter(each["holds"] for each in summary["statements"])
    said = ", ".join(f"{found[holds]} {words}" for holds, words in _MANY.items())
    return f"{len(summary['statements'])} statements: {said}"


def short(commit: str) -> str:
    """A commit's short name, which says whether the tree had changes."""
    name, dash, changed = commit.partition("-")
    return f"{name[:8]}{dash}{changed}"


def render(summary: Json, console: Console) -> None:
    """Print each statement with its verdict, the figures and the reason."""
    width = min(console.width, _WIDTH)
    for section, statements in _sections(summary):
        console.print(Text(f"{section['name']}. {section['title']}", style="bold"), soft_wrap=True)
        _wrapped(console, f"{section['source']}; {section['conditions']}", 0, width)
        for each in statements:
            _wrapped(console, f"{VERDICTS[each['holds']]}: {each['says']}", 2, width)
            parts = [f"by {each['by']}", each["figures"], each["why"]]
            _wrapped(console, ": ".join(part for part in parts if part), 6, width)
        console.print()
    _wrapped(console, f"{counts(summary)}. Made by: {summary['command']}, commit {summary['commit']}", 0, width)


def _wrapped(console: Console, text: str, indent: int, width: int) -> None:
    for line in Text(text).wrap(console, width - indent):
        line.rstrip()
        console.print(Text(" " * indent) + line, soft_wrap=True)


def markdown(summary: Json) -> str:
    """docs/claims.md."""
    lines = [
        "# Published statements",
        "",
        "Made by `make lab EXPERIMENT=claims`: what others have published about IOMMUs and their systems, and whether"
        " it holds here. The list is [lab/claims.toml](../lab/claims.toml), which has no verdicts.",
        "",
        f"{counts(summary)}. Commit {short(summary['commit'])}; evidence of another commit names it.",
        "",
        "**by**: *lab* counts instructions on one emulated CPU, so it decides about work, with published waits for an"
        " invalidation (0.9 to 2 us) where a statement depends on them. *Model* is the [machine model](model.md),"
        " whose errors are in [validation.md](validation.md): a statement holds if it holds for all sets of"
        " parameters, a row of figures if all errors are within the goal. *Protocols* are those of"
        " [virtual IOMMUs](model.md#virtual-iommus), *allocators* is `make allocators`.",
        "",
        "*Does not hold*: the figures here disagree. Where the model decides about a measurement of others, that is an"
        " error of the model. A single number in brackets is the value of the whole term before it, as in"
        " 2 * xSMMU (2.00).",
        "",
    ]
    for section, statements in _sections(summary):
        lines += [f"## {section['name']}. {section['title']}", "", f"{section['source']}; {section['conditions']}.", ""]
        lines += ["| statement | | by | figures | reason |", "|---|---|---|---|---|"]
        for each in statements:
            cells = [each["says"], f"**{VERDICTS[each['holds']]}**", each["by"], each["figures"], each["why"]]
            lines.append(f"| {' | '.join(cell.replace('|', '/') for cell in cells)} |")
        lines.append("")
    return "\n".join(lines).rstrip() + "\n"
