# SPDX-License-Identifier: GPL-2.0-only
"""Reads from the text of a C file which names the file defines and declares, and which names each definition uses.

The text of all branches of #if counts. A tag is a name of the form `struct tag`, also for unions and enums. Members,
parameters and local variables are not names.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from itertools import pairwise

from checks import csource

_DIRECTIVE = re.compile(r"^[ \t]*#[ \t]*(\w+)[ \t]*((?:[^\n]*\\\n)*[^\n]*)$", re.MULTILINE)
_COMMENT = re.compile(r'("(?:\\.|[^"\\\n])*"|\'(?:\\.|[^\'\\\n])+\')|/\*.*?\*/|//[^\n]*', re.DOTALL)
_MACRO = re.compile(r"(\w+)(\([^)]*\))?(.*)", re.DOTALL)
_WORD = re.compile(r"[A-Za-z_]\w*")
_TAGS = ("struct", "union", "enum")
_TYPE = re.compile(r"void|bool|char|short|int|long|unsigned|signed|[su]\d+|\w+_t")
_NO_TYPE = (*_TAGS, "return", "else", "case", "goto", "sizeof", "do", "typeof")
_ATTRIBUTE = re.compile(r"__(?:attribute__|printf|aligned|section|must_hold|acquires|releases)")
_DEFINES = re.compile(r"DEFINE_\w+|DECLARE_(?:\w+_)?WORK|LIST_HEAD")
_DECLARES = re.compile(r"DECLARE_(?:STATIC_KEY|PER_CPU)\w*")


@dataclass
class Definition:
    """A definition of a name, and the names that the definition uses, in the order of the text."""

    name: str
    is_function: bool = False
    is_macro: bool = False
    is_global: bool = False
    """Known to every file; else to the files that are compiled together with this file."""
    uses: list[str] = field(default_factory=list)


@dataclass
class Source:
    """A C file; `declares` has tags without a body, prototypes and extern variables."""

    includes: list[str] = field(default_factory=list)
    defines: dict[str, Definition] = field(default_factory=dict)
    declares: set[str] = field(default_factory=set)
    uses: list[str] = field(default_factory=list)
    """Names that the file uses outside definitions."""

    def define(self, made: Definition) -> None:
        """Add a definition; definitions of the same name, in branches of #if, become one definition."""
        there = self.defines.setdefault(made.name, made)
        if there is not made:
            there.uses += made.uses

    def all_uses(self) -> list[str]:
        """Names that the file uses anywhere."""
        return [*self.uses, *(name for made in self.defines.values() for name in made.uses)]


def read(text: str) -> Source:
    """Read the text of a file."""
    source = Source()
    text = _COMMENT.sub(lambda found: found[1] or " ", text)
    for directive, rest in _DIRECTIVE.findall(text):
        macro = _MACRO.match(rest)
        if directive == "include":
            source.includes.append(rest.strip().strip('<>"'))
        elif directive == "define" and macro:
            parameters = set(_WORD.findall(macro[2] or ""))
            source.define(Definition(macro[1], is_macro=True, uses=_uses(_tokens(macro[3]), parameters)))
    for item in _items(_tokens(_DIRECTIVE.sub("", text))):
        _read_item(source, item)
    return source


def _tokens(text: str) -> list[str]:
    return [token.text for token in csource.tokens(text)]


def _items(tokens: Sequence[str]) -> Iterator[list[str]]:
    """The definitions and declarations of a file."""
    item: list[str] = []
    depth = 0
    for token in tokens:
        item.append(token)
        depth += (token in ("(", "[", "{")) - (token in (")", "]", "}"))
        if depth == 0 and (token == ";" or (token == "}" and _is_function(item))):
            yield item
            item = []


def _head(item: Sequence[str]) -> list[str]:
    """An item up to the first brace, = or semicolon."""
    ends = [at for at, token in enumerate(item) if token in ("{", "=", ";")]
    return list(item[: ends[0]])


def _is_function(item: Sequence[str]) -> bool:
    head = _head(item)
    return item[len(head)] == "{" and "(" in head


def _read_item(source: Source, item: list[str]) -> None:
    head = _head(item)
    uses = _uses(item, set(_locals(item)))
    is_global = "static" not in head
    after_static = head[not is_global :]
    if len(head) == 2 and head[0] in _TAGS and item[2] == ";":
        source.declares.add(f"struct {head[1]}")
    elif item[len(head)] == "{" and not _is_function(item):
        _read_type(source, item, uses)
    elif after_static[1:2] == ["("]:
        _read_macro_call(source, item, uses, is_global)
    elif _is_function(item):
        source.define(Definition(_called(head), is_function=True, is_global=is_global, uses=uses))
    else:
        _read_declaration(source, head, uses, is_global)


def _read_type(source: Source, item: list[str], uses: list[str]) -> None:
    """A struct, union or enum with a body, maybe with a variable or a typedef after the body."""
    head = _head(item)
    end = _closing(item, len(head))
    after = [token for token in item[end + 1 :] if _WORD.fullmatch(token) and not token.startswith("__")]
    body = item[len(head) : end]
    constants = [name for before, name in pairwise(body) if before in ("{", ",")]
    if head[-2:-1] and head[-2] in _TAGS:
        source.define(Definition(f"struct {head[-1]}", uses=uses))
    if "enum" in head:
        for name in filter(_WORD.fullmatch, constants):
            source.define(Definition(name))
    if after:
        source.define(Definition(after[0], is_global=not {"static", "typedef"} & set(head), uses=uses))


def _read_macro_call(source: Source, item: list[str], uses: list[str], is_global: bool) -> None:
    start = item.index("(")
    macro, arguments = item[start - 1], item[start + 1 : _closing(item, start)]
    name = arguments[-1] if "PER_CPU" in macro else arguments[0]
    if _DEFINES.fullmatch(macro):
        source.define(Definition(name, is_global=is_global, uses=uses))
    elif _DECLARES.fullmatch(macro):
        source.declares.add(name)
    else:
        source.uses += uses


def _read_declaration(source: Source, head: list[str], uses: list[str], is_global: bool) -> None:
    """A prototype, a typedef or variables."""
    pointed = re.search(r"\( \* (\w+) \)", " ".join(head))
    if head[0] == "typedef":
        source.define(Definition(pointed[1] if pointed else head[-1], uses=uses))
    elif _called(head):
        source.declares.add(_called(head))
        source.uses += uses
    else:
        plain = [token for token in head if not token.startswith("__")]
        names = [pointed[1]] if pointed else list(_locals([*plain, ";"]))
        if head[0] == "extern":
            source.declares.update(names)
            source.uses += uses
        for name in names if head[0] != "extern" else ():
            source.define(Definition(name, is_global=is_global, uses=uses))


def _called(head: Sequence[str]) -> str:
    """The name before the first parenthesis that is neither in brackets nor of an attribute; empty if there is none."""
    depth = 0
    for at, token in enumerate(head):
        if token == "(" and depth == 0 and _WORD.fullmatch(head[at - 1]) and not _ATTRIBUTE.fullmatch(head[at - 1]):
            return head[at - 1]
        depth += (token in ("(", "[")) - (token in (")", "]"))
    return ""


def _closing(item: Sequence[str], start: int) -> int:
    """Where the bracket at `start` is closed."""
    depth = 0
    for at in range(start, len(item)):
        depth += (item[at] in ("(", "[", "{")) - (item[at] in (")", "]", "}"))
        if depth == 0:
            return at
    return len(item) - 1


def _opening(item: Sequence[str], end: int) -> int:
    """Where the bracket that `end` closes is opened."""
    turned = [{"(": ")", ")": "("}.get(token, token) for token in reversed(item[: end + 1])]
    return end - _closing(turned, 0)


def _locals(item: Sequence[str]) -> Iterator[str]:
    """Variables, parameters and members that an item declares: names after a type, and names after a comma there."""
    depth, declaring = 0, -1
    for at, token in enumerate(item[:-1]):
        depth += (token in ("(", "[", "{")) - (token in (")", "]", "}"))
        if token == ";":
            declaring = -1
        if not _WORD.fullmatch(token) or item[at + 1] not in (",", ";", "=", "[", ")", ":"):
            continue
        before = at - 1
        while before > 0 and item[before] == "*":
            before -= 1
        is_first = _is_type(item, before, before < at - 1)
        if is_first:
            declaring = depth
        is_next = depth == declaring and item[before] == ","
        is_pointed = list(item[at - 2 : at]) == ["(", "*"] and list(item[at + 1 : at + 3]) == [")", "("]
        if is_first or is_next or is_pointed:
            yield token


def _is_type(item: Sequence[str], end: int, has_star: bool) -> bool:
    """Whether a type ends there: a word before a name; before a * only a tag, the name of a basic type or a name_t."""
    if item[end] == ")":
        return item[_opening(item, end) - 1] == "typeof"
    if end < 0 or not _WORD.fullmatch(item[end]) or item[end] in _NO_TYPE:
        return False
    return not has_star or item[end - 1] in _TAGS or _TYPE.fullmatch(item[end]) is not None


def _uses(tokens: Sequence[str], own: set[str]) -> list[str]:
    """Names in the order of the text, without members and `own`."""
    found = []
    for before, token in pairwise(["", *tokens]):
        if before in _TAGS:
            found.append(f"struct {token}")
        elif _WORD.fullmatch(token) and before not in (".", "->") and token not in own:
            found.append(token)
    return found
