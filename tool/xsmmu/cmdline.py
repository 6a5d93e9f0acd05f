# SPDX-License-Identifier: GPL-2.0-only
"""Parser of the kernel's command line, as next_arg() and parse_args() (the same in Linux 6.1, 6.12, 7.2 and 7.3).

A word ends at a blank outside quotes, the word `--` ends the list, and `-` equals `_` in names. kmod/policy/boot.c
reads the line by the same rules; tests/python/cmdline.toml has test cases for both.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Final

from xsmmu.machine import root

_BLANK: Final = " \t\n\v\f\r\xa0"
"""Blanks by the kernel's isspace(), for Latin-1."""


@dataclass(frozen=True)
class Word:
    """A word: name, value without quotes (None without `=`), and original text."""

    name: str
    value: str | None
    text: str

    @property
    def parts(self) -> list[str]:
        """Parts of a list value: on and sm_off for intel_iommu=on,sm_off."""
        return (self.value or "").split(",")

    @property
    def plain(self) -> str:
        """The word without quotes."""
        return self.name if self.value is None else f"{self.name}={self.value}"


def parse(line: str) -> Iterator[Word]:
    """Words for the kernel; words after `--` are for init."""
    line = line.lstrip(_BLANK)
    while line:
        length = _length(line)
        text, line = line[:length], line[length + 1 :].lstrip(_BLANK)
        found = _word(text)
        if found.name == "--" and found.value is None:
            return
        yield found


def _length(line: str) -> int:
    """Number of characters before the blank that ends the first word."""
    quoted = False
    for at, character in enumerate(line):
        if character in _BLANK and not quoted:
            return at
        quoted ^= character == '"'
    return len(line)


def _word(text: str) -> Word:
    quoted, inner = text.startswith('"'), text.removeprefix('"')
    equals = inner.find("=", inner.startswith("="))
    if equals < 0:
        return Word(inner.removesuffix('"') if quoted else inner, None, text)
    name, value = inner[:equals], inner[equals + 1 :]
    opens = value.startswith('"')
    value = value.removeprefix('"')
    return Word(name, value.removesuffix('"') if quoted or opens else value, text)


def words() -> list[Word]:
    """Words of the running kernel's command line."""
    try:
        line = (root("proc") / "cmdline").read_bytes().decode("latin-1")
    except OSError:
        return []
    return list(parse(line.removesuffix("\n")))


def named(*options: str) -> Iterator[Word]:
    """Words with the given names, in order."""
    wanted = {option.replace("-", "_") for option in options}
    return (word for word in words() if word.name.replace("-", "_") in wanted)
