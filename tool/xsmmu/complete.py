# SPDX-License-Identifier: GPL-2.0-only
"""What a shell completes: devices and policies that this machine has. Whether any fits is looked at where it is used.

Nothing is offered where nothing can be known, as of policies without the module.
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
    """For bash a colon ends a word, and an address has two: it gives the line, and takes what follows the last one."""

    source_template = _BASH

    def get_completion_args(self) -> tuple[list[str], str]:
        """The words that are complete, and the one that is not."""
        line = os.environ["COMP_WORDS"]
        words = split_arg_string(line)[1:]
        return (words, "") if not words or line[-1].isspace() else (words[:-1], words[-1])


def devices(_context: click.Context, _parameter: click.Parameter, begun: str) -> list[str]:
    """Names and addresses; without its domain an address that was begun so."""
    # An interface may be called anything, also $(reboot), which bash would have in the line as it is.
    words = [word for word in machine.words() if re.fullmatch(r"[\w.:@-]+", word)]
    return _begin(words, begun) or _begin([word.removeprefix("0000:") for word in words], begun)


def policies(_context: click.Context, _parameter: click.Parameter, begun: str) -> list[str]:
    """Those of the module."""
    return _begin(_policies(), begun)


def modes(_context: click.Context, _parameter: click.Parameter, begun: str) -> list[str]:
    """Those and the kernel's own, in a list with commas; auto is none, since it would be another one of them."""
    done, comma, word = begun.rpartition(",")
    names = [*(name for name, _ in machine.MODES.values()), *(name for name in _policies() if name != module.AUTO)]
    return [f"{done}{comma}{name}" for name in _begin(names, word) if name not in done.split(",")]


def _policies() -> list[str]:
    return [name for name in module.menu() or [] if name != "none"]


def _begin(words: list[str], begun: str) -> list[str]:
    return [word for word in words if word.startswith(begun)]
