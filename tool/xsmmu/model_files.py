# SPDX-License-Identifier: GPL-2.0-only
"""Files of the machine model: the list of parameters, machines, drivers, workloads, and sets of parameters that fit.

A file of a machine, a driver or a workload has a kind, a title, and its parameters:

    kind = "machine"
    title = "A server"
    driver = "mlx5-6.0"
    [parameters]
    table_read_ns = { value = 235, unit = "ns", lowest = 90, highest = 330, how = "fitted", source = "CLAIMS E" }

The unit is that of parameters.toml, so that a number in another unit is refused; `how` says where the value is from;
lowest and highest bound the values that are as likely. A machine names its driver, which is a file of the model or a
path. Machines and workloads may give parameters of the driver, such as its ring, other values than the driver's file.
A workload names its device, `nic` (as if it named none) or `drives`; files need no parameters of the other. An error
names the file, the line and the parameter.
"""

from __future__ import annotations

import dataclasses
import difflib
import math
import os
import re
import tomllib
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from xsmmu import programs
from xsmmu.errors import UserError

FOLDER_VARIABLE: Final = "XSMMU_MODEL"
"""Variable with another folder of the model's files."""
PARTS: Final = ("machine", "driver", "workload")
NIC: Final = "nic"
DEVICES: Final = (NIC, "drives")
"""What a workload may use."""
HOW: Final = ("measured", "fitted", "published", "assumed")
Value = int | str

_KEYS: Final = ("value", "unit", "lowest", "highest", "how", "source")
_HEADS: Final = ("kind", "title", "device", "driver", "parameters")
_MOST_BYTES: Final = 1 << 20
"""Of a file."""
_ABOVE: Final = Path(__file__).resolve().parents


def folder() -> Path:
    """The folder of the model's files: of this checkout, or of the package."""
    named = os.environ.get(FOLDER_VARIABLE)
    if named:
        return Path(named)
    checkout = _ABOVE[min(2, len(_ABOVE) - 1)] / "model"
    installed = (prefix / "share/xsmmu/model" for prefix in (programs.PREFIX, programs.DEBIAN))
    for each in (checkout, *installed):
        if (each / "parameters.toml").is_file():
            return each
    raise UserError(
        f"the files of the machine model are not installed: install the package {programs.PACKAGE}",
        code="not-installed",
    )


# -- the list of parameters ------------------------------------------------------------------------


@dataclass(frozen=True)
class Parameter:
    """A parameter of the model: one of `words`, or without words a whole number from `lowest` to `highest`."""

    name: str
    part: str
    unit: str
    lowest: int
    highest: int
    words: tuple[str, ...]
    what: str
    device: str | None = None
    """The device that needs it; None: all. A file for another device may leave the parameter out."""
    default: Value | None = None
    """What holds where no file has it; None: a file for the device must have it."""

    @property
    def absent(self) -> Value:
        """What the program is told where no file has it."""
        return self.default if self.default is not None else self.words[0] if self.words else self.lowest

    def fault(self, value: Any) -> str | None:
        """Why a value is impossible; None if it is possible."""
        if self.words:
            return None if value in self.words else f"{value!r} is none of {', '.join(self.words)}"
        if isinstance(value, bool) or not isinstance(value, int | float) or not math.isfinite(value):
            return f"{value!r} is no number"
        if value != int(value):
            return f"{value:,} {self.unit} is no whole number, which the model needs"
        if not self.lowest <= value <= self.highest:
            return f"{value:,} {self.unit} is impossible: from {self.lowest:,} to {self.highest:,}"
        return None

    def read(self, text: str) -> Value:
        """A value of a command line."""
        if self.words:
            return text
        try:
            return int(text)
        except ValueError:
            raise UserError(f"{self.name}: {text!r} is no whole number", code="usage") from None


Parameters = Mapping[str, Parameter]


def parameters(file: Path | None = None) -> Parameters:
    """All parameters that stand in files, by name, in the order of the list."""
    file = file or folder() / "parameters.toml"
    made: dict[str, Parameter] = {}
    for name, row in _toml(file, "the list of parameters").items():
        try:
            if row["part"] in PARTS:
                made[name] = _parameter(name, row)
        except (KeyError, TypeError, ValueError) as error:
            raise UserError(f"{file}: {name}: {error}: take the file of this version", code="bad-model") from None
    return made


def _parameter(name: str, row: Mapping[str, Any]) -> Parameter:
    words = tuple(map(str, row.get("words", ())))
    lowest, highest = (0, 0) if words else (int(row["lowest"]), int(row["highest"]))
    made = Parameter(name, str(row["part"]), str(row["unit"]), lowest, highest, words, str(row["text"]))
    return dataclasses.replace(made, device=row.get("device"), default=row.get("default"))


# -- machines, drivers, workloads ------------------------------------------------------------------


@dataclass(frozen=True)
class Given:
    """A parameter's value in a file."""

    value: Value
    how: str
    source: str
    range: tuple[int, int] | None


def ranged(given: Mapping[str, Given]) -> dict[str, tuple[int, int]]:
    """Parameters that could have other values, with the ends of their ranges."""
    return {name: each.range for name, each in given.items() if each.range and each.range[0] < each.range[1]}


@dataclass(frozen=True)
class Described:
    """A machine, a driver or a workload."""

    file: Path
    part: str
    title: str
    driver: str | None
    """The driver that a machine names."""
    given: Mapping[str, Given]
    lines: Mapping[str, int]
    """Line of each parameter, for messages."""
    device: str = "nic"

    def place(self, name: str) -> str:
        """Where a parameter stands."""
        return f"{self.file}:{self.lines[name]}: {name}" if name in self.lines else f"{self.file}: {name}"


def described(file: Path, part: str, known: Parameters, device: str | None = None, whole: bool = True) -> Described:
    """Read a machine, a driver or a workload; without `device`, for the one that the file names.

    With `whole`, a parameter that is missing is an error.
    """
    found = _toml(file, f"a {part} (docs/model.md)")
    if found.get("kind") != part:
        raise _bad(f"{file}: kind", f'is {found.get("kind")!r}: a {part} is needed here, with kind = "{part}"')
    if found.get("device", NIC) not in DEVICES:
        raise _bad(f"{file}: device", f"is {found['device']!r}: choose from {', '.join(DEVICES)}")
    for name in found:
        if name not in _HEADS:
            raise _bad(
                f"{file}: {name if name.isprintable() else repr(name)}",
                f"unknown: choose from {', '.join(_HEADS)}; parameters stand in [parameters]",
            )
    for name in ("title", "driver"):
        if not isinstance(found.get(name, ""), str) or not str(found.get(name, "")).isprintable():
            raise _bad(f"{file}: {name}", "is no line of text")
    rows = found.get("parameters", {})
    if not isinstance(rows, dict):
        raise _bad(f"{file}: parameters", "is no table: write [parameters], and a line for each")
    for name in rows:
        if not name.isprintable():
            raise _bad(f"{file}: {name!r}", "no such parameter, see model/parameters.toml")
    lines = dict(_lines(file.read_text(), rows))
    empty = Described(file, part, found.get("title", file.stem), found.get("driver"), {}, lines)
    given = {name: _given(empty.place(name), name, row, part, known) for name, row in rows.items()}
    device = device or str(found.get("device", NIC))
    mine = [each for each in known.values() if each.part == part and each.device in (None, device)]
    missing = [each for each in mine if each.default is None and each.name not in given]
    if missing and whole:
        raise UserError(
            f"{file} lacks {_named(missing)}: add each with value, unit, how and source",
            [f"{each.name} ({each.unit}): {each.what}" for each in missing],
            code="bad-model",
        )
    return Described(file, part, empty.title, empty.driver, given, lines, device)


def _named(missing: list[Parameter]) -> str:
    names = [each.name for each in missing]
    return f"parameter {names[0]}" if len(names) == 1 else f"{len(names)} parameters of the {missing[0].part}"


def _given(place: str, name: str, row: Any, part: str, known: Parameters) -> Given:
    if name not in known:
        near = difflib.get_close_matches(name, known, 1)
        raise _bad(place, f"no such parameter{f': is it {near[0]}?' if near else ', see model/parameters.toml'}")
    parameter = known[name]
    if parameter.part not in (part, "driver"):
        raise _bad(place, f"belongs into the file of a {parameter.part}")
    if not isinstance(row, dict):
        raise _bad(place, f'is no table: write {{ value = {row}, unit = "{parameter.unit}", how = ..., source = ... }}')
    for key in row:
        if key not in _KEYS:
            raise _bad(place, f"unknown '{key}': choose from {', '.join(_KEYS)}")
    if "value" not in row:
        raise _bad(place, "has no value")
    if row.get("unit") != parameter.unit:
        unit = f"unit '{row['unit']}'" if "unit" in row else "no unit"
        raise _bad(place, f'has {unit}: give the value in {parameter.unit}, with unit = "{parameter.unit}"')
    if row.get("how") not in HOW:
        raise _bad(place, f"how = {row.get('how')!r} is none of {', '.join(HOW)}")
    if not isinstance(row.get("source"), str) or not row["source"].strip():
        raise _bad(place, "has no source: name a publication, a command, or the reason of an assumption")
    if fault := parameter.fault(row["value"]):
        raise _bad(place, fault)
    value = row["value"] if parameter.words else int(row["value"])
    return Given(value, row["how"], row["source"], _range(place, parameter, row))


def _range(place: str, parameter: Parameter, row: Mapping[str, Any]) -> tuple[int, int] | None:
    ends = [row[name] for name in ("lowest", "highest") if name in row]
    if not ends:
        if row["how"] == "fitted" and not parameter.words:
            raise _bad(place, "is fitted and has no range: add lowest and highest")
        return None
    if parameter.words or len(ends) != 2:
        raise _bad(place, "a range is two numbers: give lowest and highest")
    for end in ends:
        if fault := parameter.fault(end):
            raise _bad(place, f"range: {fault}")
    if not ends[0] <= row["value"] <= ends[1]:
        raise _bad(place, f"value {row['value']:,} is not in its range, {ends[0]:,} to {ends[1]:,}")
    return int(ends[0]), int(ends[1])


def _lines(text: str, names: Iterable[str]) -> Iterator[tuple[str, int]]:
    heads = {name: re.compile(rf'\s*\[?\s*"?{re.escape(name)}"?\s*[\].=]') for name in names}
    for number, line in enumerate(text.splitlines(), 1):
        for name, head in heads.items():
            if head.match(line):
                yield name, number


def _bad(place: str, why: str) -> UserError:
    return UserError(f"{place}: {why}", code="bad-model")


def _toml(file: Path, wanted: str) -> dict[str, Any]:
    try:
        with file.open("rb") as stream:
            text = stream.read(_MOST_BYTES + 1)
        if len(text) > _MOST_BYTES:
            raise UserError(f"{file} has more than {_MOST_BYTES:,} bytes: name {wanted}", code="bad-model")
        return tomllib.loads(text.decode())
    except FileNotFoundError:
        raise UserError(f"{file} does not exist: name {wanted}", code="no-file") from None
    except (OSError, UnicodeDecodeError) as error:
        raise UserError(f"cannot read {file} ({error}): name {wanted}", code="no-file") from None
    except tomllib.TOMLDecodeError as error:
        raise UserError(f"{file}: no TOML: {error}", code="bad-model") from None
    except RecursionError:
        raise UserError(f"{file}: no TOML: brackets are too deep", code="bad-model") from None


# -- together --------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Scene:
    """A machine and its driver with a workload: all parameters."""

    machine: Described
    driver: Described
    workload: Described
    known: Parameters

    @property
    def parts(self) -> tuple[Described, Described, Described]:
        """The files; of a parameter in several, the first has the value."""
        return (self.workload, self.machine, self.driver)

    def given(self) -> dict[str, Given]:
        """All parameters, in the order of parameters.toml."""
        all_ = {**self.driver.given, **self.machine.given, **self.workload.given}
        return {name: all_[name] for name in self.known if name in all_}

    def values(self) -> dict[str, Value]:
        """All values, in the order of parameters.toml."""
        given = self.given()
        return {name: given[name].value if name in given else each.absent for name, each in self.known.items()}

    def place(self, name: str) -> str:
        """Where a parameter stands."""
        return next((part for part in self.parts if name in part.given), self.workload).place(name)

    def ranged(self) -> dict[str, tuple[int, int]]:
        """Parameters that could have other values."""
        return ranged(self.given())


def scene(
    machine: Path, workload: Path | Described, driver: Path | None = None, known: Parameters | None = None
) -> Scene:
    """Read a machine, its driver, or another driver if one is named, and a workload if it was not read."""
    known = known if known is not None else parameters()
    work = workload if isinstance(workload, Described) else described(workload, "workload", known)
    found = described(machine, "machine", known, work.device)
    driver = driver or _driver(found)
    return Scene(found, described(driver, "driver", known, work.device), work, known)


def _driver(machine: Described) -> Path:
    """The driver's file: beside the machine's if the name is a path, else of the model."""
    files = {file.stem: file for file in sorted((folder() / "drivers").glob("*.toml"))}
    names = ", ".join(files)
    if machine.driver is None:
        raise _bad(f"{machine.file}", f'names no driver: add driver = "NAME", from {names}, or give --driver')
    if machine.driver.endswith(".toml"):
        return machine.file.parent / machine.driver
    if machine.driver not in files:
        raise _bad(
            f"{machine.file}: driver", f"no driver '{machine.driver}': choose from {names}, or give a .toml file"
        )
    return files[machine.driver]


# -- sets that fit ---------------------------------------------------------------------------------

Set = Mapping[str, Value]
FITTED: Final = "cascade-lake"
"""The machine of the fit."""
SAMPLES: Final = 16
"""Sets at least, where a fit does not give all parameters."""


def fits(known: Parameters, file: Path | None = None) -> list[dict[str, Value]]:
    """The sets of parameters that fit the fitted row within 10 %; none without the file."""
    file = file or folder() / "fits.toml"
    if not file.is_file():
        return []
    found: list[dict[str, Value]] = []
    for number, row in enumerate(_toml(file, "fits").get("set", ())):
        values = {name: value for name, value in row.items() if name in known}
        for name, value in values.items():
            if fault := known[name].fault(value):
                raise UserError(f"{file}: set {number + 1}: {name}: {fault}", code="bad-model")
        found.append(values)
    return found


def is_fitted(found: Scene) -> bool:
    """Whether the scene's machine is that of the fit. What was fitted to it says nothing about other machines."""
    return found.machine.file.resolve() == (folder() / f"machines/{FITTED}.toml").resolve()


def best(found: Scene, fitted: Sequence[Set]) -> dict[str, Value]:
    """The values of the fitted machine: those of the best fit, which is the first. Nothing for other machines."""
    if not fitted or not is_fitted(found):
        return {}
    ends = found.ranged()
    return {name: value for name, value in fitted[0].items() if name in ends and _within(value, ends[name])}


def possible(found: Scene, fitted: Sequence[Set]) -> list[dict[str, Value]]:
    """What the scene's parameters could be, beside their values: sets of the fit for the fitted machine alone."""
    return sets(found.ranged(), fitted if is_fitted(found) else ())


def sets(ends: Mapping[str, tuple[int, int]], fitted: Iterable[Set] = ()) -> list[dict[str, Value]]:
    """What parameters could be, beside their values: the sets of a fit, spread over all other ranges.

    A set changes only parameters with a range in their file that has the set's value. So nothing is changed that was
    measured, and without ranges there is nothing else that the parameters could be.
    """
    if not ends:
        return []
    fits_ = [
        {name: value for name, value in row.items() if name in ends and _within(value, ends[name])} for row in fitted
    ] or [{}]
    whole = all(len(row) == len(ends) for row in fits_)
    made: list[dict[str, Value]] = []
    for number in range(1, 1 + (len(fits_) if whole else max(len(fits_), SAMPLES))):
        chosen = dict(fits_[(number - 1) % len(fits_)])
        free = [name for name in ends if name not in chosen]
        for prime, name in zip(_primes(), free, strict=False):
            chosen[name] = _between(*ends[name], _spread(number, prime), powers=name.endswith("_entries"))
        made.append(chosen)
    return made


def _between(low: int, high: int, place: int, powers: bool) -> int:
    """The value at a place from 0 to 2^32; with `powers` a power of two times `low`, as sizes of caches are."""
    if powers:
        return low << ((high // low).bit_length() * place >> 32)
    return low + ((high - low + 1) * place >> 32)


def _within(value: Value, ends: tuple[int, int]) -> bool:
    return not isinstance(value, str) and ends[0] <= value <= ends[1]


def _primes() -> Iterator[int]:
    number = 2
    while True:
        if all(number % each for each in range(2, math.isqrt(number) + 1)):
            yield number
        number += 1


def _spread(number: int, prime: int) -> int:
    """The number's place in Richtmyer's sequence of a prime, which fills 0 to 2^32 evenly; in whole numbers."""
    return number * math.isqrt(prime << 64) % (1 << 32)
