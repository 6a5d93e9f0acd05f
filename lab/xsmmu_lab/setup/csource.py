# SPDX-License-Identifier: GPL-2.0-only
"""C sources as text: which characters are code, and where functions are."""

from __future__ import annotations

import re
from collections.abc import Iterator

NOT_CODE = re.compile(r"""/\*.*?\*/ | //[^\n]* | "(?:\\.|[^"\\\n])*" | '(?:\\.|[^'\\\n])+'""", re.DOTALL | re.VERBOSE)


def code_only(text: str) -> str:
    """The text with comments and the insides of strings blanked; lines and columns stay."""

    def blank(match: re.Match[str]) -> str:
        whole = match[0]
        if whole[0] in "\"'":
            return whole[0] + "x" * (len(whole) - 2) + whole[0]
        return re.sub(r"[^\n]", " ", whole)

    return NOT_CODE.sub(blank, text)


_FUNCTION = re.compile(r"^\{\n(?P<body>.*?)^\}", re.DOTALL | re.MULTILINE)
_BRACED_DATA = re.compile(r"=\s*$|^\s*(?:struct|union|enum)\b[^()]*$")


def functions(text: str) -> Iterator[tuple[int, str, int]]:
    """First line, name and length in lines of each function, from the signature to the closing brace."""
    code = code_only(text)
    for match in _FUNCTION.finditer(code):
        above = code[: match.start()].rstrip("\n").split("\n")
        start = len(above)
        while start > 1 and above[start - 2].strip() and not re.match(r"[}#]|.*;\s*$", above[start - 2]):
            start -= 1
        signature = " ".join(above[start - 1 :])
        name = re.search(r"(\w+)\s*\(", signature)
        if name and not _BRACED_DATA.search(signature):
            last = code.count("\n", 0, match.end()) + 1
            yield start, name[1], last - start + 1
