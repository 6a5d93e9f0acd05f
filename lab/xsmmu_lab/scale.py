# SPDX-License-Identifier: GPL-2.0-only
"""Counts of the engine under traffic of many CPUs (sim/scale/): transfers of cache lines, locks, flushes, commands.

All figures are counts of a simulation that repeats bit for bit; nothing is measured by a clock.
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from xsmmu.errors import UserError
from xsmmu_lab.project import PROJECT
from xsmmu_lab.setup import build, host, root

CPUS_MAX: Final = 64
"""CPUs that sim/scale has."""

PARTS: Final = ("core", "sim/scale")
FLAGS = (
    *("-std=gnu11", "-g", "-O2", "-fno-pie", "-mpopcnt", "-Icore/include", "-Isim/scale"),
    '-DXS_PLATFORM="platform_scale.h"',
    *("-Wall", "-Wextra", "-Werror", "-Wmissing-prototypes", "-Wstrict-prototypes", "-Wvla", "-Wno-unused-parameter"),
)
_OBJECT = ("-r", "-nostdlib")
_IN_PLACE = ("-fno-toplevel-reorder", "-fno-reorder-functions", "-fno-reorder-blocks-and-partition")
"""The engine's code stays between the labels of path.c."""

_WARM_POLLS: Final = {"short": 40, "mixed": 300}
_POLLS: Final = 20
_TRANSFERS: Final = ("read_dirty", "read_clean", "fetch", "upgrade")
_TIMEOUT_S: Final = 3600


def compiled(tools: root.Root, hooked: bool = True) -> Path:
    """xsmmu-scale with the engine hooked at each access to memory, or optimised for speed."""
    files = sorted(str(file.relative_to(PROJECT)) for file in (PROJECT / "sim/scale").glob("*.c"))
    # The probes test the hooks.
    engine = ["sim/scale/path.c", *(["sim/scale/hook_test.c"] if hooked else [])]
    others = [file for file in files if file not in engine]
    flags = (*_OBJECT, *(build.HOOKED if hooked else _IN_PLACE))
    unit = build.userspace(tools, "path.o", engine, (*FLAGS, *flags), parts=PARTS, runs=False)
    libraries = (tools.inside(unit), "-lm")
    return build.userspace(tools, "xsmmu-scale", others, (*FLAGS, "-no-pie"), parts=PARTS, libraries=libraries)


def run(program: Path, *words: str) -> list[dict[str, Any]]:
    """The JSON lines that the program prints."""
    done = host.run([str(program), *words], env=host.system_env(), timeout=_TIMEOUT_S)
    if done.returncode != 0:
        raise UserError(f"xsmmu-scale {' '.join(words)} failed", (done.stdout + done.stderr).splitlines())
    return [json.loads(line) for line in done.stdout.splitlines()]


@dataclass(frozen=True)
class Config:
    """One run of `count`."""

    policy: str
    aware: bool
    cpus: int
    elsewhere: int
    life: str
    seed: int = 1
    warm: int | None = None
    polls: int = _POLLS

    def words(self) -> list[str]:
        """The arguments for the program."""
        warm = _WARM_POLLS[self.life] if self.warm is None else self.warm
        return [
            *("count", "--policy", self.policy, "--cpus", str(self.cpus), "--elsewhere", str(self.elsewhere)),
            *("--life", self.life, "--seed", str(self.seed)),
            *("--warm", str(warm), "--polls", str(self.polls)),
            *(["--aware"] if self.aware else []),
        ]


@dataclass(frozen=True)
class Count:
    """The counts of a run. Without `raw` the run failed, and `error` is the reason."""

    config: Config
    raw: dict[str, Any]
    error: str = ""

    @property
    def name(self) -> str:
        """The policy, and whether the driver is batch-aware."""
        return f"{self.config.policy} (aware)" if self.config.aware else self.config.policy

    def _per_page(self, count: int) -> float:
        return count / int(self.raw["unmaps"])

    def transfers(self, of: str = "engine") -> float:
        """Line transfers per page, for the engine's own lines or for a kind of the kernel's."""
        return self._per_page(sum(int(self.raw[of][kind]) for kind in _TRANSFERS))

    @property
    def accesses(self) -> float:
        """The engine's accesses to its memory, per page."""
        return self._per_page(self.raw["accesses"])

    @property
    def locks(self) -> float:
        """Lock acquisitions per page."""
        return self._per_page(self.raw["locks"]["taken"])

    @property
    def locks_fetched(self) -> float:
        """Lock acquisitions per page that fetched the lock's line from another CPU."""
        return self._per_page(self.raw["locks"]["fetched"])

    @property
    def lock_waits(self) -> float:
        """Lock acquisitions per page that waited for another CPU."""
        return self._per_page(self.raw["locks"]["waits"])

    @property
    def queue_waits(self) -> float:
        """Waits per page for the lock of the IOMMU's queue."""
        return self._per_page(self.raw["queue_lock"]["waits"])

    @property
    def flushes_per_poll(self) -> float:
        """Flushes per poll, of all causes."""
        return int(sum(self.raw["flushes"].values())) / int(self.raw["polls"])

    @property
    def commands(self) -> float:
        """Invalidation commands per page."""
        return self._per_page(self.raw["commands_page"] + self.raw["commands_domain"])

    @property
    def spread(self) -> float:
        """Pages of blocks with any mapping, per mapped page."""
        return 64 * int(self.raw["iova"]["blocks"]) / int(self.raw["iova"]["live_pages"])

    @property
    def taken(self) -> float:
        """Pages that the engine has taken from the space, per mapped page."""
        return int(self.raw["iova"]["taken_pages"]) / int(self.raw["iova"]["live_pages"])

    @property
    def kept(self) -> float:
        """Pages that the engine has taken beyond twice the mapped pages, per CPU."""
        iova = self.raw["iova"]
        return (int(iova["taken_pages"]) - 2 * int(iova["live_pages"])) / self.config.cpus

    def row(self) -> dict[str, Any]:
        """The row in a result."""
        if self.error:
            return {"name": self.name, "config": vars(self.config), "error": self.error}
        kernel = {f"{kind}_transfers_per_page": self.transfers(kind) for kind in ("table", "page", "queue")}
        names = ("accesses", "locks", "locks_fetched", "lock_waits", "queue_waits", "commands")
        return {
            "name": self.name,
            "config": vars(self.config),
            "transfers_per_page": self.transfers(),
            **kernel,
            **{f"{name}_per_page": getattr(self, name) for name in names},
            "flushes_per_poll": self.flushes_per_poll,
            "spread": self.spread,
            "taken": self.taken,
            "raw": self.raw,
        }


def counted(program: Path, config: Config, *words: str) -> Count:
    """Run one configuration. A space that is too small for the configuration is a result, too."""
    try:
        [raw] = run(program, *config.words(), *words)
    except UserError as error:
        if not error.lines or "no IOVA left" not in error.lines[-1]:
            raise
        return Count(config, {}, "no IOVA left")
    return Count(config, raw)
