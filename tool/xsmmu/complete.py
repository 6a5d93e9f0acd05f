# SPDX-License-Identifier: GPL-2.0-only
"""Shell completion of devices and policies of this machine.

The commands check the words; without the module there are no policies to offer.
"""

from __future__ import annotations

import os
import re
from typing import Final

import click
from click.shell_completion import BashComplete, add_completion_class, split_arg_string

from xsmmu import machine, module

_BASH: Final = """\
%(complete_func)s() {
    local IFS=$'\\n' line=${COMP_LINE:0:COMP_POINT} word item
    word=${line##*[[:space:]]}
    COMPREPLY=()
    for item in $(COMP_WORDS=$line %(complete_var)s=bash_complete "$1"); do
        case $item in
        plain,*)
            item=${item#plain,}
            COMPREPLY+=("${item#"${word%%"${word##*:}"}"}")
            ;;
        dir,*) compopt -o dirnames ;;
        file,*) compopt -o default ;;
        esac
    done
}
complete -o nosort -F %(complete_func)s %(prog_name)s
"""


@add_completion_class
class Bash(BashComplete):
    """For bash: a colon ends a word, so bash passes the whole line and gets the part of an address after a colon."""

    source_template = _BASH

    def get_completion_args(self) -> tuple[list[str], str]:
        """Complete words, and the word to complete."""
        line = os.environ["COMP_WORDS"]
        words = split_arg_string(line)[1:]
        return (words, "") if not words or line[-1].isspace() else (words[:-1], words[-1])


def devices(_context: click.Context, _parameter: click.Parameter, begun: str) -> list[str]:
    """Names and addresses; without the PCI domain if the user left out the domain."""
    # An interface may have any name, for example $(reboot), and bash would insert the name unquoted.
    words = [word for word in machine.words() if re.fullmatch(r"[\w.:@-]+", word)]
    return _begin(words, begun) or _begin([word.removeprefix("0000:") for word in words], begun)


def policies(_context: click.Context, _parameter: click.Parameter, begun: str) -> list[str]:
    """Policies of the module."""
    return _begin(_policies(), begun)


def modes(_context: click.Context, _parameter: click.Parameter, begun: str) -> list[str]:
    """Comma-separated policies and kernel modes; without auto, which would select a listed policy again."""
    done, comma, word = begun.rpartition(",")
    names = [*(name for name, _ in machine.MODES.values()), *(name for name in _policies() if name != module.AUTO)]
    return [f"{done}{comma}{name}" for name in _begin(names, word) if name not in done.split(",")]


def _policies() -> list[str]:
    return [name for name in module.menu() or [] if name != "none"]


def _begin(words: list[str], begun: str) -> list[str]:
    return [word for word in words if word.startswith(begun)]
