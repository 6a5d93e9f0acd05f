# SPDX-License-Identifier: GPL-2.0-only
"""Costs of maps and unmaps on this machine under each policy, as saved by `xsmmu bench --save`."""

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
HINT: Final = "this machine is not calibrated: run xsmmu bench DEVICE --save for estimates of costs"


def file() -> Path:
    """Path of the calibration."""
    return root("state") / "calibration.json"


def bench_file() -> Path:
    """Path of the bench document that the calibration was computed from."""
    return root("state") / "bench.json"


@dataclass(frozen=True)
class Cost:
    """Cost of a map and of an unmap, in nanoseconds."""

    map_ns: float
    unmap_ns: float

    def share(self, maps_per_s: float, unmaps_per_s: float) -> float:
        """Share of a CPU for the given rates; 1 is a whole CPU."""
        return (maps_per_s * self.map_ns + unmaps_per_s * self.unmap_ns) / 1e9


@dataclass(frozen=True)
class Calibration:
    """Costs by policy, and the kernel of the measurement."""

    kernel: str
    policies: Mapping[str, Cost]
    hypervisor: bool = False
    """Whether the measurement ran in a virtual machine."""

    @property
    def where(self) -> str:
        """Kernel and kind of machine, for people."""
        return f"{self.kernel}{', in a virtual machine' if self.hypervisor else ''}"


def read() -> Calibration | None:
    """The machine's calibration; None without a saved calibration."""
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
            raise _wrong(f"the schema is {document['schema']}, not {SCHEMA}")
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
    """Replace the saved costs and the bench document."""
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
    remedy = "remove the file, then run xsmmu bench DEVICE --save"
    return UserError(f"{file()} is no calibration ({why}): {remedy}", code="calibration")
