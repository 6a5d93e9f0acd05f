# SPDX-License-Identifier: GPL-2.0-only
"""What a command prints: a table for people, one JSON document, or a JSON object a line; and errors in the same way.

A document is {"schema": "xsmmu.<command>/1", "<command's rows>": [...]}; a line is a row with its "schema". Fields are
never renamed or given another meaning under the same number. What is in each is in `schemas/<command>-1.json`, beside
this file; tests compare all that `document` makes with that.
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
    """A time within bounds; `nan`, which is neither below nor above any, is not."""

    name = "number of seconds"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> float:
        """The number."""
        found = float(super().convert(value, param, ctx))
        if math.isnan(found):
            self.fail(f"{value} is no time", param, ctx)
        return found


class Commands(click.Group):
    """A group whose list has the first sentence of each command whole, in as many lines as the terminal needs."""

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """The list."""
        commands = {name: self.get_command(ctx, name) for name in self.list_commands(ctx)}
        with formatter.section("Commands"):
            formatter.write_dl([(name, each.get_short_help_str(500)) for name, each in commands.items() if each])


def option(command: F) -> F:
    """The option -o of a command."""
    return click.option(
        "-o", "--output", "form", type=click.Choice(FORMATS), default="table", show_default=True, help="What to print."
    )(command)


def asked(words: Sequence[str]) -> str:
    """The form that a command line asks for, be it wrong otherwise."""
    # What follows -- is a command of the user's.
    ours = itertools.takewhile(lambda word: word != "--", words)
    found = re.search(r"(?:^| )(?:-o|--output)[ =]?(jsonl?)(?: |$)", " ".join(ours))
    return found[1] if found else "table"


def document(name: str, /, **fields: Any) -> dict[str, Any]:
    """An object of the schema `schemas/<name>-1.json`; all that is written as JSON is made here."""
    return {"schema": f"xsmmu.{name}/1", **fields}


def emit(form: str, command: str, rows_name: str, rows: Iterable[Mapping[str, Any]], /, **more: Any) -> None:
    """Print rows as JSON."""
    if form == "json":
        sys.stdout.write(json.dumps(document(command, **more, **{rows_name: list(rows)}), indent=1) + "\n")
        return
    for row in rows:
        emit_one(command, row)


def emit_one(name: str, fields: Mapping[str, Any]) -> None:
    """Print one document in one line, as which it is JSON in either form."""
    sys.stdout.write(json.dumps(document(name, **fields)) + "\n")
    sys.stdout.flush()


def console() -> Console:
    """Standard output; it leaves it to main() what a closed pipe means, where rich's own ends with status 1."""
    from rich.console import Console

    class Pipe(Console):
        def on_broken_pipe(self) -> None:
            raise

    return Pipe(highlight=False)


def table(columns: Sequence[str], rows: Iterable[Sequence[object]]) -> None:
    """Print rows for people; `-` is what is not known or does not apply. Columns that are all numbers stand right.

    In a terminal that is narrower there are several tables, each with the first column; no cell is cut.
    """
    from rich.cells import cell_len

    cells = [["-" if cell is None or cell == "" else shown(str(cell)) for cell in row] for row in rows]
    widths = [max(map(cell_len, column)) for column in zip(columns, *cells, strict=True)]
    # Not rich's word, by which a pipe may be a terminal (FORCE_COLOR).
    room = console().width if sys.stdout.isatty() else sum(widths) + _GAP * len(widths)
    for number, part in enumerate(_parts(widths, room)):
        if number:
            click.echo()
        _print_table([columns[at] for at in part], [[row[at] for at in part] for row in cells])


_GAP: Final = 2
"""Blanks between columns."""


def _parts(widths: Sequence[int], room: int) -> list[list[int]]:
    """The columns of each table."""
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
        # A str would be read as markup.
        made.add_row(*map(Text, row))
    to = console()
    # A dumb terminal has the width that is given only with a height.
    to.width, to.height = 1000, 1000
    to.print(made, soft_wrap=True)


def progress(text: str) -> None:
    """Say what is being done, where somebody sits at a terminal; one that has hung up stops nothing."""
    with contextlib.suppress(OSError):
        if sys.stderr.isatty():
            sys.stderr.write(f"{text}\n")
            sys.stderr.flush()


def complain(error: UserError, form: str) -> None:
    """Print an error to standard error, in the form that the command was asked for."""
    if form in ("json", "jsonl"):
        found = document("error", code=error.code, message=error.message, lines=[*error.lines])
        sys.stderr.write(json.dumps(found) + "\n")
        return
    for line in error.lines:
        sys.stderr.write(f"  | {shown(line.expandtabs())}\n")
    message = "\n".join(map(shown, error.message.split("\n")))
    sys.stderr.write(f"xsmmu: {message}\n")
