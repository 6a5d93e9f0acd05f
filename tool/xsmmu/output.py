# SPDX-License-Identifier: GPL-2.0-only
"""Output of commands: a table, a JSON document, or JSON lines; errors in the same form.

A document is {"schema": "xsmmu.<command>/1", "<command's rows>": [...]}; a line is a row with its "schema". Within a
schema number, fields are neither renamed nor redefined. `schemas/<command>-1.json` describes the fields; tests compare
all output with the schemas.
"""

from __future__ import annotations

import contextlib
import itertools
import json
import math
import re
import sys
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Final, TypeVar

import click

from xsmmu.errors import UserError
from xsmmu.machine import shown

if TYPE_CHECKING:
    from rich.console import Console

FORMATS: Final = ("table", "json", "jsonl")

F = TypeVar("F", bound=Callable[..., Any])


class Seconds(click.FloatRange):
    """A number of seconds within bounds; refuses `nan`, which is neither below nor above a bound."""

    name = "number of seconds"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> float:
        """Convert an argument."""
        found = float(super().convert(value, param, ctx))
        if math.isnan(found):
            self.fail(f"{value} is no number of seconds", param, ctx)
        return found


class Commands(click.Group):
    """A group of commands; help shows the whole first sentence of each command."""

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """Write the list of commands."""
        commands = {name: self.get_command(ctx, name) for name in self.list_commands(ctx)}
        with formatter.section("Commands"):
            formatter.write_dl([(name, each.get_short_help_str(500)) for name, each in commands.items() if each])


def option(command: F) -> F:
    """Add option -o to a command."""
    return click.option(
        "-o",
        "--output",
        "form",
        type=click.Choice(FORMATS),
        default="table",
        show_default=True,
        help="Output format.",
    )(command)


def asked(words: Sequence[str]) -> str:
    """Output form of a command line that may be invalid."""
    # Words after -- belong to a user's command.
    ours = itertools.takewhile(lambda word: word != "--", words)
    found = re.search(r"(?:^| )(?:-o|--output)[ =]?(jsonl?)(?: |$)", " ".join(ours))
    return found[1] if found else "table"


def document(name: str, /, **fields: Any) -> dict[str, Any]:
    """A JSON object of schema `schemas/<name>-1.json`; all JSON output is made here."""
    return {"schema": f"xsmmu.{name}/1", **fields}


def emit(form: str, command: str, rows_name: str, rows: Iterable[Mapping[str, Any]], /, **more: Any) -> None:
    """Print rows as JSON."""
    if form == "json":
        sys.stdout.write(json.dumps(document(command, **more, **{rows_name: list(rows)}), indent=1) + "\n")
        return
    for row in rows:
        emit_one(command, row)


def emit_one(name: str, fields: Mapping[str, Any]) -> None:
    """Print a document in a single line, valid in both JSON forms."""
    sys.stdout.write(json.dumps(document(name, **fields)) + "\n")
    sys.stdout.flush()


def console() -> Console:
    """Standard output; a closed pipe is left to main(), because rich would exit with status 1."""
    from rich.console import Console

    class Pipe(Console):
        def on_broken_pipe(self) -> None:
            raise

    return Pipe(highlight=False)


def table(columns: Sequence[str], rows: Iterable[Sequence[object]]) -> None:
    """Print a table for people; `-` means unknown or not applicable. Columns of numbers are right-aligned.

    On a narrow terminal the table is split into several tables with the first column repeated; cells are not cut.
    """
    from rich.cells import cell_len

    cells = [["-" if cell is None or cell == "" else shown(str(cell)) for cell in row] for row in rows]
    widths = [max(map(cell_len, column)) for column in zip(columns, *cells, strict=True)]
    # isatty() decides; rich would treat a pipe as a terminal if FORCE_COLOR is set.
    room = console().width if sys.stdout.isatty() else sum(widths) + _GAP * len(widths)
    for number, part in enumerate(_parts(widths, room)):
        if number:
            click.echo()
        _print_table([columns[at] for at in part], [[row[at] for at in part] for row in cells])


_GAP: Final = 2
"""Blanks between columns."""


def _parts(widths: Sequence[int], room: int) -> list[list[int]]:
    """Column indices of each partial table."""
    parts = [[0]]
    for at in range(1, len(widths)):
        if len(parts[-1]) > 1 and sum(widths[each] + _GAP for each in parts[-1]) + widths[at] > room:
            parts.append([0])
        parts[-1].append(at)
    return parts


def _print_table(columns: Sequence[str], cells: Sequence[Sequence[str]]) -> None:
    from rich.table import Table
    from rich.text import Text

    made = Table(box=None, pad_edge=False, header_style="bold", padding=(0, _GAP // 2))
    for index, name in enumerate(columns):
        numbers = all(row[index] == "-" or row[index].replace(",", "").replace(".", "").isdigit() for row in cells)
        made.add_column(name, justify="right" if numbers and cells else "left", no_wrap=True)
    for row in cells:
        # rich would interpret a str as markup.
        made.add_row(*map(Text, row))
    to = console()
    # For a dumb terminal rich ignores the width unless the height is set.
    to.width, to.height = 1000, 1000
    to.print(made, soft_wrap=True)


def progress(text: str) -> None:
    """Print a progress line if standard error is a terminal; errors of a hung-up terminal are ignored."""
    with contextlib.suppress(OSError):
        if sys.stderr.isatty():
            sys.stderr.write(f"{text}\n")
            sys.stderr.flush()


def complain(error: UserError, form: str) -> None:
    """Print an error to standard error, in the requested form."""
    if form in ("json", "jsonl"):
        found = document("error", code=error.code, message=error.message, lines=[*error.lines])
        sys.stderr.write(json.dumps(found) + "\n")
        return
    for line in error.lines:
        sys.stderr.write(f"  | {shown(line.expandtabs())}\n")
    message = "\n".join(map(shown, error.message.split("\n")))
    sys.stderr.write(f"xsmmu: {message}\n")
