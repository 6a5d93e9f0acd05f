# SPDX-License-Identifier: GPL-2.0-only
"""Man pages: manpages.py FOLDER CONF.5 writes FOLDER/man1, a page per command from --help, and FOLDER/man5."""

from __future__ import annotations

import inspect
import os
import re
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import click

from xsmmu import __version__, guide
from xsmmu.cli import app

_ENDS = {
    "EXIT STATUS": """\
.IP 0
Success.
.IP 1
Error; the message names the remedy. For
.BR xsmmu-doctor (1):
a finding blocks the module.
.IP 2
Wrong command line.
.IP 130
Interrupted; unfinished work was ended and removed.
""",
    "FILES": """\
.TP
.I /etc/xsmmu.conf
Rules for boot; see
.BR xsmmu.conf (5).
.TP
.I /etc/modprobe.d/xsmmu.conf
The rules as options for
.BR modprobe (8),
written by
.BR xsmmu-apply (1).
""",
}


def roff(text: str) -> str:
    """Plain text, escaped so that roff finds no request and no escape."""
    text = text.replace("\\", "\\e").replace("-", "\\-")
    return re.sub(r"^(?=[.'])", r"\\&", text, flags=re.MULTILINE)


def commands(command: click.Command, context: click.Context) -> Iterator[tuple[click.Command, click.Context]]:
    """A command and its subcommands, each with its context, which has the full name."""
    yield command, context
    if isinstance(command, click.Group):
        for name in command.list_commands(context):
            below = command.get_command(context, name)
            if below and not below.hidden:
                yield from commands(below, click.Context(below, info_name=name, parent=context))


def sections(command: click.Command, context: click.Context) -> Iterator[tuple[str, str]]:
    """Headings and roff texts of a page's sections."""
    yield "NAME", f"{page(context)} \\- {roff(command.get_short_help_str(limit=200).rstrip('.'))}\n"
    usage = " ".join(command.collect_usage_pieces(context))
    yield "SYNOPSIS", f".B {roff(context.command_path)}\n{roff(usage)}\n"
    examples, description = "", []
    for paragraph in inspect.cleandoc(command.help or "").split("\n\n"):
        if paragraph.startswith("\b\nExamples:"):
            lines = inspect.cleandoc(paragraph.removeprefix("\b\nExamples:\n"))
            examples = f".nf\n{roff(lines)}\n.fi\n"
        elif paragraph.startswith("\b\n"):
            description.append(f".nf\n{roff(paragraph[2:])}\n.fi\n")
        else:
            description.append(f"{roff(paragraph)}\n")
    yield "DESCRIPTION", ".PP\n".join(description)
    records = (parameter.get_help_record(context) for parameter in command.get_params(context))
    options = [f".TP\n.B {roff(record[0])}\n{roff(record[1])}\n" for record in records if record and record[1]]
    yield "OPTIONS", "".join(options)
    if isinstance(command, click.Group):
        rows = (below for below in commands(command, context) if below[1].parent is context)
        shown = [f".TP\n.BR {page(below)} (1)\n{roff(each.get_short_help_str(limit=200))}\n" for each, below in rows]
        yield "COMMANDS", "".join(shown)
    if command.epilog:
        yield "POLICIES AND LEVELS", table()
    if examples:
        yield "EXAMPLES", examples
    yield from _ENDS.items()


def table() -> str:
    """The tables of policies and levels."""
    lines = "\n".join(guide.lines())
    return f".nf\n{roff(lines)}\n.fi\n"


def page(context: click.Context) -> str:
    """Name of a command's page."""
    return context.command_path.replace(" ", "-")


def main(folder: Path, conf: Path) -> None:
    """Write the pages, dated by SOURCE_DATE_EPOCH for reproducible builds."""
    date = time.strftime("%Y-%m-%d", time.gmtime(int(os.environ.get("SOURCE_DATE_EPOCH", time.time()))))
    for command, context in commands(app, click.Context(app, info_name="xsmmu", **app.context_settings)):
        name = page(context)
        # No hyphenation: people copy options and tunables.
        text = f'.TH {roff(name.upper())} 1 {date} "xsmmu {__version__}" "xsmmu"\n.nh\n'
        text += "".join(f".SH {heading}\n{body}" for heading, body in sections(command, context))
        others = "xsmmu.conf (5)" if name == "xsmmu" else "xsmmu (1)"
        _write(folder / f"man1/{name}.1", f"{text}.SH SEE ALSO\n.BR {others}\n")
    _write(folder / "man5/xsmmu.conf.5", conf.read_text().replace("@GUIDE@\n", table()))


def _write(file: Path, text: str) -> None:
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_text(text)


if __name__ == "__main__":
    main(*map(Path, sys.argv[1:]))
