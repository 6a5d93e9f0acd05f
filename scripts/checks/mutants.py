# SPDX-License-Identifier: GPL-2.0-only
"""Mutants: small changes of the sources that a check must catch, listed in a TOML file beside the check."""

from __future__ import annotations

import tempfile
import tomllib
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from checks import csource, pages
from xsmmu.errors import UserError
from xsmmu_lab.project import PROJECT
from xsmmu_lab.setup import build


@dataclass(frozen=True)
class Mutant:
    """`good` occurs once in `file` and becomes `bad`; one of `programs` must catch the change, if a check has several.

    In C sources, tokens are compared: white space, comments and names of local variables may change (csource.find()).

    Some mutants show only with larger CPU pages: `page` is the size (checks/pages.py).
    """

    name: str
    why: str
    file: str
    good: str
    bad: str
    programs: tuple[str, ...] = ()
    words: tuple[str, ...] = ()
    """More words for a program of unit tests."""
    hangs: bool = False
    """A unit test does not end with the mutant: the test's time limit catches the change."""
    page: str = pages.USUAL


@dataclass(frozen=True)
class Mutants:
    """A list of mutants in a file of the project, and the parts of a checkout in which the mutants are planted."""

    file: str
    parts: Sequence[str]

    def named(self, *names: str) -> list[Mutant]:
        """The mutants with these names; all if none is given."""
        entries = tomllib.loads((PROJECT / self.file).read_text())["mutant"]
        unknown = sorted(set(names) - {entry["name"] for entry in entries})
        if unknown:
            raise UserError(f"no mutant is called {', '.join(unknown)}: {self.file} has their names")
        wanted = [entry for entry in entries if not names or entry["name"] in names]
        lists = ("programs", "words")
        return [Mutant(**entry | {each: tuple(entry.get(each, ())) for each in lists}) for entry in wanted]

    def changed(self, mutant: Mutant) -> str:
        """The file's text with the mutant; UserError if `good` was not found once."""
        text = (PROJECT / mutant.file).read_text()
        places = csource.find(text, mutant.good) if mutant.file.endswith((".c", ".h")) else _find(text, mutant.good)
        if len(places) != 1:
            raise UserError(f"the mutant '{mutant.name}' does not fit {mutant.file} any more: adapt {self.file}")
        [place] = places
        return text[: place.start] + place.renamed(mutant.bad) + text[place.end :]

    @contextmanager
    def planted(self, mutant: Mutant) -> Iterator[Path]:
        """A copy of the parts, with the mutant."""
        with tempfile.TemporaryDirectory(prefix="xsmmu-mutant-") as folder:
            for name, content in build.sources(PROJECT, self.parts).items():
                target = Path(folder) / name
                target.parent.mkdir(parents=True, exist_ok=True)
                target.write_bytes(content)
            (Path(folder) / mutant.file).write_text(self.changed(mutant))
            yield Path(folder)


def _find(text: str, part: str) -> list[csource.Place]:
    """The exact occurrences of the part."""
    return [csource.Place(at, at + len(part)) for at in range(len(text)) if text.startswith(part, at)]
