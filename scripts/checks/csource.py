# SPDX-License-Identifier: GPL-2.0-only
"""Finds a piece of C in a source by its tokens."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field

_TOKEN = re.compile(
    r"""
    (?P<comment> //[^\n]* | /\*.*?\*/ )
    | (?P<token>
        "(?:\\.|[^"\\])*" | '(?:\\.|[^'\\])*'
        | \w+ | -> | <<=? | >>=? | [-+*/%&|^<>=!]= | && | \|\| | \+\+ | -- | \S
    )
    """,
    re.VERBOSE | re.DOTALL,
)
_LOCAL = re.compile(r"[a-z][a-z0-9_]*")
_NOT_LOCAL = frozenset(
    (
        "bool",
        "break",
        "case",
        "char",
        "const",
        "continue",
        "default",
        "do",
        "else",
        "enum",
        "extern",
        "false",
        "for",
        "goto",
        "if",
        "inline",
        "int",
        "long",
        "return",
        "short",
        "signed",
        "sizeof",
        "static",
        "struct",
        "switch",
        "true",
        "typeof",
        "u8",
        "u16",
        "u32",
        "u64",
        "s64",
        "size_t",
        "union",
        "unsigned",
        "void",
        "volatile",
        "while",
    )
)


@dataclass(frozen=True)
class Token:
    """A token of C and its position."""

    text: str
    start: int
    end: int


@dataclass(frozen=True)
class Place:
    """The position of a piece in a text, and the names of the piece's local variables there."""

    start: int
    end: int
    names: dict[str, str] = field(default_factory=dict)

    def renamed(self, piece: str) -> str:
        """The piece, with the names of this place."""
        if not self.names:
            return piece
        return re.sub(r"(?<![\w.])(?<!->)[a-z]\w*", lambda name: self.names.get(name[0], name[0]), piece)


def tokens(text: str) -> list[Token]:
    """The tokens of a piece of C without its comments."""
    found = _TOKEN.finditer(text)
    return [Token(each[0], each.start(), each.end()) for each in found if each["token"]]


def find(text: str, piece: str) -> list[Place]:
    """All places in the text with the tokens of the piece.

    If there are none: the places that differ only in the names of local variables, each name replaced consistently.
    """
    there, wanted = tokens(text), tokens(piece)
    if not wanted:
        return []
    words = [token.text for token in wanted]
    exact = [Place(run[0].start, run[-1].end) for run in _runs(there, wanted) if [each.text for each in run] == words]
    if exact:
        return exact
    found = [(run, _names(wanted, run)) for run in _runs(there, wanted)]
    return [Place(run[0].start, run[-1].end, names) for run, names in found if names is not None]


def _runs(there: Sequence[Token], wanted: Sequence[Token]) -> Iterator[Sequence[Token]]:
    """All sequences of as many tokens as `wanted` has."""
    count = len(wanted)
    for at in range(len(there) - count + 1):
        yield there[at : at + count]


def _names(wanted: Sequence[Token], run: Sequence[Token]) -> dict[str, str] | None:
    """The names of the wanted tokens' local variables in the run; None if anything else differs."""
    names: dict[str, str] = {}
    for at, (token, other) in enumerate(zip(wanted, run, strict=True)):
        if _is_local(wanted, at) and _is_local(run, at):
            if names.setdefault(token.text, other.text) != other.text:
                return None
        elif token.text != other.text:
            return None
    return names if len(set(names.values())) == len(names) else None


def _is_local(run: Sequence[Token], at: int) -> bool:
    """Whether the token may be a local variable's name: no keyword, type, call, member or xs_ name."""
    text = run[at].text
    if not _LOCAL.fullmatch(text) or text in _NOT_LOCAL or text.startswith("xs_"):
        return False
    before = run[at - 1].text if at else ""
    after = run[at + 1].text if at + 1 < len(run) else ""
    return before not in (".", "->", "struct", "enum", "goto") and after != "("
