# SPDX-License-Identifier: GPL-2.0-only
"""Counts the words of comments and documents that make a reader look back: "what", "who", and pronouns.

Comments of C sources, comments and docstrings of the tool's Python, and text of Markdown files count; code, quoted text
and licences do not.
"""

from __future__ import annotations

import ast
import io
import re
import subprocess
import sys
import tokenize
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path

from xsmmu_lab.project import PROJECT

FOLDERS = ("core", "kmod", "include", "tool", "sim", "lab", "tests", "drivers", "docs")
PARTS = (*FOLDERS, "README.md", "DESIGN.md", "CONTRIBUTING.md")
WHO = frozenset(("who", "whom", "whose"))
PRONOUNS = frozenset(
    "it its itself they them their themselves this that these those one ones which".split(" ")  # noqa: SIM905
)
WHAT_MOST = 3.0
WHO_MOST = 0.5
PRONOUNS_MOST = 60.0

_COMMENT = re.compile(r'"(?:\\.|[^"\\\n])*"|/\*(.*?)\*/|//([^\n]*)', re.DOTALL)
_CODE = re.compile(r"```.*?```|`[^`\n]*`", re.DOTALL)
_WORD = re.compile(r"[a-z][a-z']*")
_PYTHON = re.compile(r"tool/.*\.py$")


@dataclass(frozen=True)
class Count:
    """Words of a part, and how many per 1,000 are of each kind."""

    part: str
    words: int
    what: float
    who: float
    pronouns: float

    def is_plain(self) -> bool:
        """Whether no kind is too frequent."""
        return self.what <= WHAT_MOST and self.who <= WHO_MOST and self.pronouns <= PRONOUNS_MOST


def prose(name: str, text: str) -> str:
    """The comments of a C source, comments and docstrings of a Python source, or the text of a Markdown file."""
    if name.endswith(".md"):
        return _CODE.sub(" ", text)
    if name.endswith(".py"):
        return _CODE.sub(" ", "\n".join((*_docstrings(text), *_python_comments(text))))
    return "\n".join(block or line or "" for block, line in _COMMENT.findall(text))


def count(part: str, texts: Iterable[tuple[str, str]]) -> Count:
    """Count files, given by name and content."""
    words = [word for name, text in texts for word in _WORD.findall(_without_licence(prose(name, text)).lower())]

    def share(kind: frozenset[str]) -> float:
        return round(1000 * sum(word in kind for word in words) / max(len(words), 1), 1)

    return Count(part, len(words), share(frozenset(("what",))), share(WHO), share(PRONOUNS))


def counts(folder: Path = PROJECT) -> list[Count]:
    """Count all parts of a checkout, without patches and results."""
    listed = subprocess.run(["git", "ls-files", *PARTS], cwd=folder, capture_output=True, text=True, check=True)
    names = [name for name in listed.stdout.splitlines() if name.endswith((".c", ".h", ".md")) or _PYTHON.match(name)]
    found = []
    for part in PARTS:
        mine = [name for name in names if name == part or name.startswith(f"{part}/")]
        if mine:
            found.append(count(part, ((name, (folder / name).read_text()) for name in mine)))
    return found


def _docstrings(text: str) -> Iterator[str]:
    """Docstrings, and strings below the constants and fields that they explain."""
    for node in ast.walk(ast.parse(text)):
        if isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant) and isinstance(node.value.value, str):
            yield node.value.value


def _python_comments(text: str) -> Iterator[str]:
    for token in tokenize.generate_tokens(io.StringIO(text).readline):
        if token.type == tokenize.COMMENT:
            yield token.string


def _without_licence(text: str) -> str:
    return re.sub(r"SPDX-License-Identifier[^\n]*", "", text)


def main() -> int:
    """Print the table; returns 1 if a part has too many words of a kind."""
    found = counts()
    print(f"{'of 1,000 words':<18}{'words':>8}{'what':>7}{'who':>6}{'pronouns':>10}")
    for each in (*found, Count("at most", 0, WHAT_MOST, WHO_MOST, PRONOUNS_MOST)):
        print(f"{each.part:<18}{each.words or '':>8}{each.what:>7}{each.who:>6}{each.pronouns:>10}")
    return 0 if all(each.is_plain() for each in found) else 1


if __name__ == "__main__":
    sys.exit(main())
