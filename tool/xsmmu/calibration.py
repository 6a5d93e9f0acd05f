# SPDX-License-Identifier: GPL-2.0-only
"""Costs of maps and unmaps under each policy: of this machine by `xsmmu bench --save`, or else an estimate."""

from __future__ import annotations

import json
import math
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from xsmmu import files, native, output
from xsmmu.errors import UserError
from xsmmu.kernel import model
from xsmmu.machine import root
from xsmmu.native import HARDWARE_WAIT_NS

SCHEMA: Final = "xsmmu.calibration/1"
MEASURE: Final = "xsmmu bench DEVICE --save measures this machine"


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
    cpu: str | None = None
    """The CPU of an estimate by `make native`; None for a measurement of this machine."""

    @property
    def is_measured(self) -> bool:
        """Whether this machine was measured."""
        return self.cpu is None

    @property
    def origin(self) -> str:
        """The origin of the costs, for people."""
        if not self.is_measured:
            wait = f"a wait of {HARDWARE_WAIT_NS / 1000:g} us for each invalidation"
            return f"make native's figures of {self.cpu} at {wait}; {MEASURE}"
        emulated = ", in a virtual machine: its emulated IOMMU was measured, not hardware" if self.hypervisor else ""
        return f"costs that xsmmu bench measured on {self.kernel}{emulated}"

    def as_dict(self) -> dict[str, Any]:
        """The origin as JSON fields; `wait_ns` is null where the waits of this machine's IOMMU were measured."""
        source, wait_ns = ("bench", None) if self.is_measured else ("native", HARDWARE_WAIT_NS)
        return {"source": source, "kernel": self.kernel, "cpu": self.cpu, "wait_ns": wait_ns}


def costs() -> Calibration:
    """The machine's calibration; without one, an estimate."""
    return read() or estimate()


def estimate() -> Calibration:
    """Costs by accepted figures of `make native`, of this model of CPU if there are any."""
    found = native.of_cpu(model()) or native.accepted()[0]
    rows = [row for row in found.rows if row.is_plain() and row.wait_ns == HARDWARE_WAIT_NS]
    policies = {
        row.policy: Cost(row.map_ns, row.unmap_ns)
        for row in rows
        if (row.driver, row.tables) == ("unmodified", "kernel")
    }
    return Calibration(found.kernel, policies, cpu=found.cpu)


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
