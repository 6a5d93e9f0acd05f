# SPDX-License-Identifier: GPL-2.0-only
"""Measures how the C files of a folder depend on each other: circles of files, and moves between parts in a walk.

Circles. A unit is a .c file with the header of the same stem. A header that declares names of another .c file is a
unit by itself. A unit uses another unit if it names a function, variable, macro, type or tag that the other unit
defines; a prototype is no definition. A file that declares a tag without a body does not use the tag's definition. A
static name is known to the files that are compiled together with its file; if several of these files define the name,
the name is local to each file. A header that is a unit uses no .c file: the names in its macros and inline functions
count for the files that name the macro or function. A circle is a set of units that use each other, directly or by way
of other units of the set.

Moves. The walk goes through the calls of a function depth-first in the order of the text, and enters each function
once, at the first call. To pass a function's name is to call the function. Only functions of the folder count:
functions of the kernel and of the engine are leaves, and macros and inline functions of headers are text of their
caller. A folder below kmod/ is one part, and so is each other file. Each change of the part is a move: into a function
of another part, and back. The walk does not follow data, so it does not follow calls by way of a table of operations
either. xs_device_bind of f476217 has 60 moves in this count, and had 68 in the review of issue 38, whose tool is not
in the tree.
"""

from __future__ import annotations

import json
import posixpath
import sys
from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import asdict, dataclass
from pathlib import Path, PurePosixPath

import click

from checks import cnames, command
from xsmmu.errors import UserError
from xsmmu_lab.project import PROJECT

FOLDERS = ("kmod", "core")
CHECKED = "kmod"
MOVES_MOST = {"xs_device_bind": 30, "xs_group_choose": 19}
"""The functions that are walked, and half of their moves in f476217."""


@dataclass(frozen=True)
class Name:
    """A name and the file that defines it."""

    file: str
    name: str


@dataclass(frozen=True)
class Use:
    """The names that a unit uses of another unit."""

    user: str
    used: str
    names: list[str]


@dataclass(frozen=True)
class Circle:
    """Units that use each other."""

    units: list[str]
    uses: list[Use]


@dataclass(frozen=True)
class Walk:
    """The moves of a walk, and how many of them lead into each file."""

    function: str
    file: str
    moves: int
    entries: dict[str, int]


class Code:
    """The C files of a folder."""

    def __init__(self, texts: Mapping[str, str]) -> None:
        self.files = {file: cnames.read(text) for file, text in sorted(texts.items())}
        compiled = [self._with_included(file, set()) for file in self.files]
        self._together = {file: set().union(*(each for each in compiled if file in each)) for file in self.files}
        self._definers: defaultdict[str, list[str]] = defaultdict(list)
        for file, source in self.files.items():
            for name in source.defines:
                self._definers[name].append(file)
        self.units = {file: self._unit(file) for file in self.files}

    @classmethod
    def of(cls, tree: Path, folder: str) -> Code:
        """The C files of a folder of a checkout."""
        files = [file for file in (tree / folder).rglob("*.[ch]") if not file.name.endswith(".mod.c")]
        if not files:
            raise UserError(f"{tree / folder}: no C files there; name a checkout of the project")
        return cls({str(file.relative_to(tree)): file.read_text() for file in files})

    def _with_included(self, file: str, found: set[str]) -> set[str]:
        """Those found, the file, and the files that it includes."""
        if file not in found:
            found.add(file)
            for name in self.files[file].includes:
                beside = posixpath.normpath(posixpath.join(posixpath.dirname(file), name))
                below = [other for other in self.files if other.endswith(f"/{name}")]
                for included in [beside] if beside in self.files else below:
                    self._with_included(included, found)
        return found

    def _unit(self, file: str) -> str:
        path = PurePosixPath(file)
        same = [other for other in self.files if PurePosixPath(other).name == f"{path.stem}.c"]
        beside = [other for other in same if PurePosixPath(other).parent == path.parent] or same
        meant = [self._meant(file, name) for name in self.files[file].declares]
        definers = {each.file for each in meant if each and not _is_header(each.file)}
        return beside[0] if _is_header(file) and len(beside) == 1 and definers <= {beside[0]} else file

    def _meant(self, file: str, name: str) -> Name | None:
        """The definition that a file means by a name; None if no file or more than one may be meant."""
        source = self.files[file]
        if name in source.defines:
            return Name(file, name)
        definers = [] if name.startswith("struct ") and name in source.declares else self._definers[name]
        near = [other for other in definers if other in self._together[file]]
        headers = [other for other in near if _is_header(other)]
        anywhere = [other for other in definers if self.files[other].defines[name].is_global]
        return next((Name(found[0], name) for found in (headers, near, anywhere) if len(found) == 1), None)

    def _definition(self, name: Name) -> cnames.Definition:
        return self.files[name.file].defines[name.name]

    def _named(
        self, file: str, names: Iterable[str], is_text: Callable[[Name], bool], seen: frozenset[Name] = frozenset()
    ) -> Iterator[Name]:
        """The definitions that a file means by names; what a definition that is text names follows the definition."""
        for name in names:
            meant = self._meant(file, name)
            if meant and meant not in seen:
                yield meant
                if is_text(meant):
                    yield from self._named(meant.file, self._definition(meant).uses, is_text, seen | {meant})

    def _is_text_of_header(self, name: Name) -> bool:
        made = self._definition(name)
        return _is_header(self.units[name.file]) and (made.is_macro or made.is_function)

    def _is_text_of_caller(self, name: Name) -> bool:
        made = self._definition(name)
        return made.is_macro or (made.is_function and _is_header(name.file))

    def uses(self) -> dict[tuple[str, str], set[str]]:
        """The names that each unit uses of each other unit; `a by b` if b is text of a header that names a."""
        found: defaultdict[tuple[str, str], set[str]] = defaultdict(set)
        for file, source in self.files.items():
            unit = self.units[file]
            for written in set(source.all_uses()):
                for name in self._named(file, [written], self._is_text_of_header):
                    used = self.units[name.file]
                    if used != unit and (not _is_header(unit) or _is_header(name.file)):
                        found[unit, used].add(name.name + (f" by {written}" if written != name.name else ""))
        return found

    def circles(self) -> list[Circle]:
        """All circles."""
        uses = self.uses()
        reached = _reached(uses)
        circles = {tuple(other for other in sorted(reached[unit]) if unit in reached[other]) for unit in reached}
        return [
            Circle(list(units), [Use(*pair, sorted(uses[pair])) for pair in sorted(uses) if set(pair) <= set(units)])
            for units in sorted(circles - {()})
        ]

    def walk(self, function: str, file: str | None = None) -> Walk:
        """The walk from a function; the file is needed if several files define the function."""
        starts = [Name(other, function) for other in self._definers[function] if file in (None, other)]
        starts = [start for start in starts if self._definition(start).is_function]
        if len(starts) != 1:
            which = " and ".join(start.file for start in starts) or "no file"
            raise UserError(f"{function}: defined in {which}; name a function as FILE:FUNCTION")
        entries: Counter[str] = Counter()
        self._enter(starts[0], set(), entries)
        return Walk(function, starts[0].file, entries.total(), dict(entries.most_common()))

    def _enter(self, function: Name, entered: set[Name], entries: Counter[str]) -> None:
        entered.add(function)
        for called in self._named(function.file, self._definition(function).uses, self._is_text_of_caller):
            is_call = self._definition(called).is_function and not self._is_text_of_caller(called)
            if is_call and called not in entered:
                here, there = _part(function.file), _part(called.file)
                self._enter(called, entered, entries)
                entries.update({here, there} if here != there else ())


def _part(file: str) -> str:
    """A folder below kmod/, or a file of kmod/ itself."""
    return "/".join(PurePosixPath(file).parts[:2])


def _is_header(file: str) -> bool:
    return file.endswith(".h")


def _reached(uses: Iterable[tuple[str, str]]) -> dict[str, set[str]]:
    """All units that each unit uses, directly or by way of others."""
    pairs = set(uses)
    reached = {unit: {used for user, used in pairs if user == unit} for pair in pairs for unit in pair}
    for between in reached:
        for found in reached.values():
            if between in found:
                found |= reached[between]
    return reached


def findings(tree: Path) -> Iterator[str]:
    """Circles of kmod/, and walks of kmod/ with too many moves."""
    code = Code.of(tree, CHECKED)
    for circle in code.circles():
        yield f"{', '.join(circle.units)}: use each other; python -m checks.structure lists the names"
    for function, most in MOVES_MOST.items():
        try:
            walk = code.walk(function)
        except UserError as error:
            yield f"{CHECKED}: {error.message}; checks.structure.MOVES_MOST has the functions"
            continue
        if walk.moves > most:
            yield f"{walk.file}: {function}() moves between parts {walk.moves} times, the limit is {most}"


def _print(circles: Mapping[str, list[Circle]], walks: Iterable[Walk]) -> None:
    for folder, found in circles.items():
        print(f"{folder}: {len(found)} circles")
        for circle in found:
            print(f"  {', '.join(circle.units)}")
            for use in circle.uses:
                print(f"    {use.user} uses {use.used}: {', '.join(use.names)}")
    for walk in walks:
        print(f"{walk.file}:{walk.function}: {walk.moves} moves")
        for file, count in walk.entries.items():
            print(f"  {count:>3} {file}")


def _walks(code: Code, starts: Iterable[str]) -> list[Walk]:
    parts = [start.rpartition(":") for start in starts]
    return [code.walk(function, file or None) for file, _, function in parts]


@click.command()
@click.option("--from", "starts", multiple=True, metavar="FILE:FUNCTION", help="Walk from there; FILE may be left out.")
@click.option("--tree", type=click.Path(path_type=Path), default=PROJECT, help="Another checkout.")
@click.option("--json", "as_json", is_flag=True, help="Print JSON.")
def report(starts: tuple[str, ...], tree: Path, as_json: bool) -> None:
    """Print circles of kmod/ and core/, and moves between parts of kmod/."""
    circles = {folder: Code.of(tree, folder).circles() for folder in FOLDERS}
    walks = _walks(Code.of(tree, CHECKED), starts or MOVES_MOST)
    if as_json:
        found = {folder: [asdict(circle) for circle in each] for folder, each in circles.items()}
        print(json.dumps({"circles": found, "walks": [asdict(walk) for walk in walks]}, indent=1))
    else:
        _print(circles, walks)


if __name__ == "__main__":
    sys.exit(command.run(report, "checks.structure"))
