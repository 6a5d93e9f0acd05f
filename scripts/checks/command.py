# SPDX-License-Identifier: GPL-2.0-only
"""The command line of a check: a click command that returns the exit status, and types of its options."""

from __future__ import annotations

import re
import sys
from collections.abc import Callable, Sequence

import click

from xsmmu.errors import UserError
from xsmmu_lab.setup import host


def run(command: click.Command, name: str, interrupted: str = "interrupted") -> int:
    """Run a command; an error is printed, and Ctrl-C or SIGTERM as `interrupted`, with the usual exit status."""
    host.interrupt_on_sigterm()
    try:
        with command.make_context(f"python -m {name}", sys.argv[1:]) as context:
            return int(command.invoke(context) or 0)
    except click.exceptions.Exit as end:
        return end.exit_code
    except click.ClickException as error:
        error.show()
        return error.exit_code
    except UserError as error:
        print(*error.lines, f"error: {error.message}", sep="\n", file=sys.stderr)
        return 1
    except (KeyboardInterrupt, click.Abort):
        print(interrupted)
        return 130


def whole(first: int, last: int) -> Callable[[str | int], int]:
    """The type of an option for a whole number, also written as 1e6."""

    def parse(text: str | int) -> int:
        # Not through a float, which has 53 bits.
        if re.fullmatch(r"-?\d+", str(text)):
            value = int(text)
        else:
            try:
                number = float(text)
                value = int(number)
            except (ValueError, OverflowError):
                raise click.BadParameter(f"'{text}' is not a number") from None
            if number != value:
                value = first - 1
        if not first <= value <= last:
            raise click.BadParameter(f"'{text}' is not a whole number from {first} to {last}")
        return value

    return parse


def _words(text: str) -> list[str]:
    return re.split(r"[ ,]+", text.strip())


def ascending(first: int, last: int) -> Callable[[str], list[int]]:
    """The type of an option for some whole numbers in ascending order."""

    def parse(text: str) -> list[int]:
        values = [whole(first, last)(word) for word in _words(text)]
        if sorted(set(values)) != values:
            raise click.BadParameter(f"'{text}' is not in ascending order")
        return values

    return parse


def some_of(known: Sequence[str]) -> Callable[[str], list[str]]:
    """The type of an option for some of the known names."""

    def parse(text: str) -> list[str]:
        names = list(dict.fromkeys(_words(text)))
        for name in names:
            if name not in known:
                raise click.BadParameter(f"'{name}' is none of {' '.join(known)}")
        return names

    return parse
