# SPDX-License-Identifier: GPL-2.0-only
"""What maps and unmaps cost on this machine under each policy, as `xsmmu bench --save` has measured and kept it."""

from __future__ import annotations

import json
import math
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from xsmmu import files, output
from xsmmu.errors import UserError
from xsmmu.machine import root

SCHEMA: Final = "xsmmu.calibration/1"
HINT: Final = "no calibration of this machine yet: xsmmu bench DEVICE --save makes one, then costs are estimated"


def file() -> Path:
    """Where it is kept."""
    return root("state") / "calibration.json"


def bench_file() -> Path:
    """Where all is that the bench said that it is from."""
    return root("state") / "bench.json"


@dataclass(frozen=True)
class Cost:
    """Of one map and one unmap, in nanoseconds."""

    map_ns: float
    unmap_ns: float

    def share(self, maps_per_s: float, unmaps_per_s: float) -> float:
        """The part of one CPU that so many take, 1 for all of it."""
        return (maps_per_s * self.map_ns + unmaps_per_s * self.unmap_ns) / 1e9


@dataclass(frozen=True)
class Calibration:
    """The costs, and the kernel they were measured on."""

    kernel: str
    policies: Mapping[str, Cost]
    hypervisor: bool = False
    """Whether a hypervisor was below."""

    @property
    def where(self) -> str:
        """On what it was measured, for people."""
        return f"{self.kernel}{', in a virtual machine' if self.hypervisor else ''}"


def read() -> Calibration | None:
    """The machine's calibration; None if there is none."""
    try:
        document = json.loads(file().read_text())
    except FileNotFoundError:
        return None
    except (OSError, ValueError) as error:
        raise _wrong(str(error)) from None
    return parse(document)


def parse(document: Any) -> Calibration:
    """A calibration from its JSON."""
    try:
        if document["schema"] != SCHEMA:
            raise _wrong(f"its schema is {document['schema']}, not {SCHEMA}")
        costs = {
            name: Cost(*(_number(cost[word]) for word in ("map_ns", "unmap_ns")))
            for name, cost in document["policies"].items()
        }
        return Calibration(str(document["kernel"]), costs, bool(document.get("hypervisor")))
    except (KeyError, TypeError, ValueError, AttributeError) as error:
        raise _wrong(f"{type(error).__name__} {error}") from None


def _number(found: Any) -> float:
    if not math.isfinite(float(found)):
        raise ValueError(f"{found} is no cost")
    return float(found)


def write(kernel: str, hypervisor: bool, costs: Mapping[str, Mapping[str, float]], bench: Mapping[str, Any]) -> None:
    """Keep costs in the place of those before, and the document of the bench that they are from."""
    document = output.document("calibration", kernel=kernel, hypervisor=hypervisor, policies=costs)
    try:
        file().parent.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise UserError(
            f"cannot make {file().parent}: {error.strerror}: name another folder in XSMMU_STATE", code="cannot-write"
        ) from None
    for place, content in ((bench_file(), bench), (file(), document)):
        files.replace(place, f"{json.dumps(content, indent=1)}\n")


def _wrong(why: str) -> UserError:
    remedy = "remove it; xsmmu bench --save makes another"
    return UserError(f"{file()} is no calibration ({why}): {remedy}", code="calibration")
