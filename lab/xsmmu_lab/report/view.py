# SPDX-License-Identifier: GPL-2.0-only
"""A summary, parsed and typed once for the table, the plots and the report.

The input is the content of ``summary.json``. A missing field counts as null, and a null figure stays ``None`` to the
end: it is shown as "-", never as 0. Content that cannot be shown truthfully (no level, an unknown level, a number of
the wrong type) raises `SummaryError`.

Words. A *workload* here is the content of one table: the workload's name, with the ring, device, variant and unusual
IOMMU where the runs name them ("micro-1024", "net-rx e1000e", "nvme 4k vtd-cm"). A *cost* is map + unmap per page, or
the run's own ``cost`` for a workload with another unit (a KiB, a packet, an I/O). *Seen* exposure was measured by the
attacking device; other exposures come from the module's histogram.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Final

from xsmmu.errors import UserError
from xsmmu.native import HARDWARE_WAIT_NS
from xsmmu_lab import policies
from xsmmu_lab.report import nanoseconds
from xsmmu_lab.vm.iommu import DEFAULT_IOMMU

SCHEMA: Final = 1

LEVELS: Final[dict[str, str]] = {
    "strict": "no stale translation exists when the unmap, or the driver's explicit flush, returns",
    "held": "as bounded, and the page is not given back to the allocator before the flush",
    "bounded": "ends by the next flush point or the bound, whichever is first; the page may be in use again",
    "lazy": "a stale translation may outlive the reuse of the page",
    "none": "no protection: the device reaches all memory at all times",
}
"""Protection levels, strictest first, with the promise of each level."""

PASSTHROUGH: Final = "passthrough"
KERNEL_STRICT: Final = "kernel-strict"
BASELINES: Final = (KERNEL_STRICT, "kernel-lazy", *policies.UNCONFINED)
"""The kernel's own modes, and static 1:1 tables."""
AWARE: Final = "batch-aware"
"""The kind of batch-aware drivers; other drivers are unmodified."""

_POLICY_ORDER: Final = (*BASELINES, *policies.names())

SPREADS: Final = (
    ("net-rx", "", 0.042),
    ("net-tx", "", 0.023),
    ("net-pps", "", 0.023),
    ("nvme", " 4k-batch", 0.023),
    ("nvme", " 4k", 0.08),
    ("nvme", " 128k", 0.08),
)
"""Largest spread in three runs (docs/figures.md): a workload's kind, the end of its name, the spread.

Spreads are of costs relative to passthrough. The host's timing affects neither micro nor ring.
"""

_KINDS: Final = ("page", "domain", "global")
_NANOSECOND_ACCELS: Final = ("kvm", "bare-metal")
_AT_WINDOW_END: Final = 0.95


class SummaryError(UserError):
    """The summary cannot be shown; the text names the place, the content found and the content expected."""


def named(policy: str, driver: str) -> str:
    """A policy, with the kind of driver if not the usual kind."""
    return f"{policy} (aware)" if driver == AWARE else policy


@dataclass(frozen=True)
class Exposure:
    """Microseconds from the unmap until no stale translation can exist (module's histogram)."""

    p50_us: float | None = None
    p99_us: float | None = None
    max_us: float | None = None


@dataclass(frozen=True)
class Attack:
    """The results of a device that kept writing to a stale IOVA."""

    attempts: int | None
    landed: int | None
    given_back: int | None
    """Landed writes in pages without any reference, or with a new owner."""
    later: int | None
    """Writes that landed later still, where the IOVA was not reused; not counted in `landed`."""
    before_flush: int | None
    """Writes that landed before a batch-aware driver's flush; not counted in `landed`."""
    p50_us: float | None
    max_us: float | None
    """Time from the unmap to the last landed write; 0 if no write landed."""
    open_ended: bool
    """Writes landed until the end of the attack: max_us is a lower bound."""


@dataclass(frozen=True)
class Run:
    """A policy under a workload."""

    policy: str
    driver: str
    level: str
    map_cost: float | None
    unmap_cost: float | None
    cost: float | None
    cost_unit: str | None
    given_relative: float | None
    pages_mapped: int | None
    pages_unmapped: int | None
    inv_per_page: float | None
    commands: float | None
    """Invalidation commands per unit of `cost`; hardware's wait is multiplied by this number."""
    invalidations: Mapping[str, int] | None
    oracle: Mapping[str, int] | None
    exposure: Exposure
    throughput: float | None
    throughput_unit: str | None
    attack: Attack | None
    repeats: int = 1
    """Number of repetitions; the figures are those of the median repetition."""
    cost_range: tuple[float, float] | None = None
    relative_range: tuple[float, float] | None = None
    """Minimum and maximum over the repetitions; the latter range is relative to passthrough."""

    @property
    def row(self) -> tuple[str, str]:
        """The key of a row of the overview: a policy at a level."""
        return (self.name, self.level)

    @property
    def copies(self) -> bool:
        """Whether small buffers are copied instead of mapped."""
        return "copy" in self.policy.split("-")

    @property
    def name(self) -> str:
        """The policy, with the kind of driver if not the usual kind."""
        return named(self.policy, self.driver)

    @property
    def ours(self) -> bool:
        """Whether the policy is the module's, not a baseline."""
        return self.policy not in BASELINES

    @property
    def aware(self) -> bool:
        """Whether the driver is batch-aware."""
        return self.driver == AWARE

    @property
    def page_sum(self) -> float | None:
        """Cost of map + unmap per page."""
        if self.map_cost is None or self.unmap_cost is None:
            return None
        return self.map_cost + self.unmap_cost

    def ns_at(self, wait_ns: float) -> float | None:
        """Nanoseconds per unit of `cost`, with a wait for each invalidation; None unless instructions were counted."""
        if self.cost is None or self.commands is None or not (self.cost_unit or "").startswith("instructions/"):
            return None
        return nanoseconds.rate().ns(self.cost, self.commands, wait_ns)


@dataclass(frozen=True)
class Workload:
    """Runs that may be compared with each other, strictest level first."""

    name: str
    kind: str
    ring: int | None
    runs: tuple[Run, ...]

    @property
    def spread(self) -> float | None:
        """Spread of `relative` between runs of the same sources; None if unknown."""
        fitting = (spread for kind, end, spread in SPREADS if self.kind == kind and self.name.endswith(end))
        return next(fitting, None)

    def baseline(self, policy: str) -> Run | None:
        """The run of a kernel mode; None if there is none."""
        return next((run for run in self.runs if run.policy == policy), None)

    def relative(self, run: Run, policy: str) -> float | None:
        """The cost of `run` in units of the cost of `policy`; None if either cost is unknown."""
        base = self.baseline(policy)
        if base is None:
            return run.given_relative if policy == PASSTHROUGH else None
        if run is base:
            return 1.0 if base.cost is not None or base.given_relative is not None else None
        if run.cost is not None and base.cost and run.cost_unit == base.cost_unit:
            return run.cost / base.cost
        if run.given_relative is None:
            return None
        if policy == PASSTHROUGH:
            return run.given_relative
        return run.given_relative / base.given_relative if base.given_relative else None

    def relative_at(self, run: Run, policy: str, wait_ns: float) -> float | None:
        """The cost of `run` in units of the cost of `policy`, both with a wait for each invalidation."""
        base = self.baseline(policy)
        cost, unit = run.ns_at(wait_ns), base.ns_at(wait_ns) if base else None
        same = base is not None and base.cost_unit == run.cost_unit
        return cost / unit if cost is not None and unit and same else None

    @property
    def cost_unit(self) -> str | None:
        """The unit shared by the runs' costs."""
        return next((run.cost_unit for run in self.runs if run.cost_unit), None)


@dataclass(frozen=True)
class Mismatch:
    """A run whose invalidation count differs from the hardware model's."""

    workload: str
    policy: str
    kind: str
    counted: int
    oracle: int


@dataclass(frozen=True)
class Beside:
    """A system of a claim: published figures, and figures measured in the run beside the system, by name.

    `here` names that run by policy and variant of the workload.
    """

    name: str
    here: str | None
    published: Mapping[str, float | None]
    measured: Mapping[str, float | None]


@dataclass(frozen=True)
class Wait:
    """The waits for an invalidation at which a statement holds, in the cost's unit; without an end, `most` is None."""

    never: bool
    least: float
    most: float | None


@dataclass(frozen=True)
class Check:
    """A comparison that decides a statement: alternating terms and operators, and each term's value here."""

    figure: str
    terms: tuple[str, ...]
    operators: tuple[str, ...]
    measured: tuple[float | None, ...]
    holds: bool | None
    published_holds: bool | None
    wait: Wait | None


@dataclass(frozen=True)
class Statement:
    """A claimed statement, and whether the statement holds here; None if unknown."""

    says: str
    holds: bool | None
    wait: Wait | None
    checks: tuple[Check, ...]


@dataclass(frozen=True)
class ClaimFigure:
    """A column of a claim: `comparable` if a measured figure stands beside the published figure."""

    name: str
    comparable: bool
    above: str | None
    relative_to: str | None


@dataclass(frozen=True)
class Claim:
    """The figures and statements of a source, beside measured figures."""

    title: str
    source: str
    conditions: str
    differs: tuple[str, ...]
    figures: tuple[ClaimFigure, ...]
    systems: tuple[Beside, ...]
    statements: tuple[Statement, ...]


@dataclass(frozen=True)
class Identity:
    """A static 1:1 table: its size, and the cost of setting it up."""

    policy: str
    iommu: str
    devices: str
    leaves: Mapping[str, int]
    mapped_bytes: int | None
    table_pages: int | None
    by_kernel: int | None
    set_up: float | None
    set_up_unit: str | None


@dataclass(frozen=True)
class View:
    """A whole summary."""

    commit: str | None
    kernel: str | None
    iommu: str | None
    qemu: str | None
    accel: str | None
    command: str | None
    time: str | None
    versions: tuple[tuple[str, str], ...]
    cost_word: str | None
    """"instructions" or "ns"; None if this accelerator's figures are not costs."""
    workloads: tuple[Workload, ...]
    claims: tuple[Claim, ...]
    identities: tuple[Identity, ...]

    @property
    def waits(self) -> bool:
        """Whether the hardware's wait can be added to any cost."""
        return any(run.commands and run.ns_at(0) is not None for w in self.workloads for run in w.runs)

    def relative(self, workload: Workload, run: Run) -> float | None:
        """The cost relative to passthrough: instructions with the wait, nanoseconds as measured."""
        if self.waits:
            return workload.relative_at(run, PASSTHROUGH, HARDWARE_WAIT_NS)
        return workload.relative(run, PASSTHROUGH)

    @property
    def main_micro(self) -> Workload | None:
        """The micro workload with the largest ring, which the overview quotes."""
        rings = [w for w in self.workloads if w.kind == "micro"]
        return max(rings, key=lambda w: w.ring or 0, default=None)

    @property
    def attacks(self) -> tuple[Workload, ...]:
        """The workloads with an attacking device."""
        return tuple(w for w in self.workloads if any(run.attack for run in w.runs))

    def rows(self) -> tuple[tuple[str, str], ...]:
        """Every policy at every level at which the policy was run, strictest first."""
        runs = {run.row: run for w in self.workloads for run in w.runs}
        return tuple(run.row for run in sorted(runs.values(), key=_order))

    def seen(self, row: tuple[str, str]) -> Attack | None:
        """The longest exposure that a device saw under a policy at a level."""
        found = [
            run.attack
            for w in self.attacks
            for run in w.runs
            if run.row == row and run.attack and run.attack.max_us is not None
        ]
        return max(found, key=lambda a: a.max_us or 0.0, default=None)

    def oracle_agreement(self) -> tuple[int, int, tuple[Mismatch, ...]]:
        """Counts runs with both counts, runs of the module without both, and lists the runs where the counts differ."""
        compared = lacking = 0
        wrong: list[Mismatch] = []
        for workload in self.workloads:
            for run in workload.runs:
                if run.invalidations is None or run.oracle is None:
                    lacking += run.ours
                    continue
                compared += 1
                wrong += [
                    Mismatch(workload.name, run.name, kind, run.invalidations[kind], oracle)
                    for kind, oracle in run.oracle.items()
                    if kind in run.invalidations and run.invalidations[kind] != oracle
                ]
        return compared, lacking, tuple(wrong)


def _order(run: Run) -> tuple[int, int, str, str]:
    known = _POLICY_ORDER.index(run.policy) if run.policy in _POLICY_ORDER else len(_POLICY_ORDER)
    return (list(LEVELS).index(run.level), known, run.policy, run.driver)


# -- reading ---------------------------------------------------------------------------------------


@dataclass(frozen=True)
class _Node:
    """A JSON object with its path for error messages."""

    path: str
    data: Mapping[str, object]

    def _fail(self, key: str, wanted: str) -> SummaryError:
        where = f"{self.path}.{key}" if self.path else key
        found = f"found {self.data[key]!r}" if key in self.data else "it is missing"
        return SummaryError(f"summary: {where} must be {wanted}, but {found}")

    def text(self, key: str) -> str | None:
        value = self.data.get(key)
        if value is None or isinstance(value, str):
            return value
        raise self._fail(key, "text or null")

    def required(self, key: str, one_of: Iterable[str] = ()) -> str:
        value, choices = self.data.get(key), tuple(one_of)
        if isinstance(value, str) and value and (not choices or value in choices):
            return value
        raise self._fail(key, f"one of {', '.join(choices)}" if choices else "a name")

    def number(self, key: str, least: float = 0) -> float | None:
        value = self.data.get(key)
        if value is None:
            return None
        if isinstance(value, int | float) and not isinstance(value, bool):
            number = float(value)
            if math.isfinite(number) and number >= least:
                return number
        raise self._fail(key, f"a number of at least {least}, or null" if math.isfinite(least) else "a number or null")

    def count(self, key: str) -> int | None:
        value = self.number(key)
        if value is None or value.is_integer():
            return None if value is None else int(value)
        raise self._fail(key, "a whole number, or null")

    def node(self, key: str) -> _Node | None:
        value = self.data.get(key)
        if value is None:
            return None
        if isinstance(value, Mapping):
            return _Node(f"{self.path}.{key}" if self.path else key, value)
        raise self._fail(key, "an object or null")

    def truth(self, key: str) -> bool | None:
        value = self.data.get(key)
        if value is None or isinstance(value, bool):
            return value
        raise self._fail(key, "true, false or null")

    def _items(self, key: str) -> Sequence[object]:
        value = self.data.get(key)
        if not isinstance(value, Sequence) or isinstance(value, str):
            raise self._fail(key, "a list")
        return value

    def texts(self, key: str) -> tuple[str, ...]:
        texts = tuple(item for item in self._items(key) if isinstance(item, str))
        if len(texts) < len(self._items(key)):
            raise self._fail(key, "a list of texts")
        return texts

    def numbers(self, key: str) -> tuple[float | None, ...]:
        return tuple(_Node(f"{self.path}.{key}", {"": item}).number("", -math.inf) for item in self._items(key))

    def range(self, key: str) -> tuple[float, float] | None:
        if self.data.get(key) is None:
            return None
        numbers = [number for number in self.numbers(key) if number is not None]
        if len(numbers) != 2:
            raise self._fail(key, "two numbers or null")
        return numbers[0], numbers[1]

    def nodes(self, key: str) -> list[_Node]:
        path = f"{self.path}.{key}" if self.path else key
        nodes = []
        for index, item in enumerate(self._items(key)):
            if not isinstance(item, Mapping):
                raise SummaryError(f"summary: {path}[{index}] must be an object, found {item!r}")
            nodes.append(_Node(f"{path}[{index}]", item))
        return nodes


def _cost_word(accel: str | None) -> str | None:
    words = (accel or "").lower()
    if "icount" in words:
        return "instructions"
    return "ns" if any(name in words for name in _NANOSECOND_ACCELS) else None


def _counts(node: _Node | None) -> dict[str, int] | None:
    if node is None:
        return None
    counts = {kind: node.count(kind) for kind in _KINDS}
    known = {kind: value for kind, value in counts.items() if value is not None}
    return known or None


def _attack(node: _Node | None) -> Attack | None:
    if node is None:
        return None
    last = node.node("last_landed_ns")
    p50 = last.number("p50") if last else None
    longest = last.number("max") if last else None
    landed, window = node.count("landed"), node.number("window_us")
    freed, reused = node.count("landed_freed"), node.count("landed_reused")
    if landed == 0:
        p50 = longest = 0.0
    p50_us = None if p50 is None else p50 / 1000
    max_us = None if longest is None else longest / 1000
    return Attack(
        attempts=node.count("attempts"),
        landed=landed,
        given_back=None if freed is None or reused is None else freed + reused,
        later=node.count("landed_later"),
        before_flush=node.count("landed_before_flush"),
        p50_us=p50_us,
        max_us=max_us,
        open_ended=bool(window and max_us and max_us >= _AT_WINDOW_END * window),
    )


def _cost(node: _Node, word: str | None, pages: float | None) -> tuple[float | None, str | None]:
    """The run's cost and unit; the unit depends on the accelerator."""
    own = node.node("cost")
    value = own.number("value") if own else None
    if word is None or (value is None and pages is None):
        return None, None
    if own is None or value is None:
        return pages, f"{word}/page"
    unit = own.required("unit")
    return value, f"{word}/{unit.rpartition('/')[2]}"


def _run(node: _Node, word: str | None) -> Run:
    def page_cost(which: str) -> float | None:
        if word is None:
            return None
        nanoseconds = node.number(f"{which}_ns_per_page") if word == "ns" else None
        return node.number(f"{which}_instructions_per_page") if nanoseconds is None else nanoseconds

    map_cost, unmap_cost = page_cost("map"), page_cost("unmap")
    both = None if map_cost is None or unmap_cost is None else map_cost + unmap_cost
    cost, unit = _cost(node, word, both)
    exposure, throughput = node.node("exposure_us"), node.node("throughput")
    repeats = node.node("repeats")
    return Run(
        policy=node.required("policy"),
        driver=node.text("driver") or "none",
        level=node.required("level", LEVELS),
        map_cost=map_cost,
        unmap_cost=unmap_cost,
        cost=cost,
        cost_unit=unit,
        given_relative=node.number("relative_to_passthrough") if word else None,
        pages_mapped=node.count("pages_mapped"),
        pages_unmapped=node.count("pages_unmapped"),
        inv_per_page=node.number("invalidations_per_page"),
        commands=_commands(node, own_cost=cost != both),
        invalidations=_counts(node.node("invalidations")),
        oracle=_counts(node.node("oracle_invalidations")),
        exposure=Exposure(*(exposure.number(key) for key in ("p50", "p99", "max"))) if exposure else Exposure(),
        throughput=throughput.number("value") if throughput and word else None,
        throughput_unit=throughput.text("unit") if throughput and word else None,
        attack=_attack(node.node("attack")),
        repeats=(repeats.count("runs") or 1) if repeats else 1,
        cost_range=repeats.range("cost") if repeats and word else None,
        relative_range=repeats.range("relative_to_passthrough") if repeats and word else None,
    )


def _commands(node: _Node, own_cost: bool) -> float | None:
    if node.text("policy") in policies.UNCONFINED:
        return 0.0
    return node.number("invalidations_per_unit" if own_cost else "invalidations_per_page")


def _identity(node: _Node) -> Identity:
    leaves, set_up = node.node("leaves"), node.node("set_up")
    return Identity(
        policy=node.required("policy"),
        iommu=node.required("iommu"),
        devices=node.required("devices"),
        leaves={size: leaves.count(size) or 0 for size in leaves.data} if leaves else {},
        mapped_bytes=node.count("mapped_bytes"),
        table_pages=node.count("table_pages"),
        by_kernel=node.count("table_pages_by_kernel"),
        set_up=set_up.number("value") if set_up else None,
        set_up_unit=set_up.text("unit") if set_up else None,
    )


def _claim(node: _Node) -> Claim:
    figures = tuple(
        ClaimFigure(
            each.required("name"), each.truth("comparable") is True, each.text("above"), each.text("relative_to")
        )
        for each in node.nodes("figures")
    )
    return Claim(
        title=node.required("title"),
        source=node.required("source"),
        conditions=node.required("conditions"),
        differs=node.texts("differs"),
        figures=figures,
        systems=tuple(_beside(each, [figure.name for figure in figures]) for each in node.nodes("systems")),
        statements=tuple(
            Statement(each.required("says"), each.truth("holds"), _wait(each), tuple(map(_check, each.nodes("checks"))))
            for each in node.nodes("statements")
        ),
    )


def _beside(node: _Node, figures: Sequence[str]) -> Beside:
    here, published, measured = node.node("here"), node.node("published"), node.node("measured")
    return Beside(
        node.required("name"),
        f"{here.required('policy')}, {here.required('workload').rpartition('/')[2]}" if here else None,
        {name: published.number(name, -math.inf) if published else None for name in figures},
        {name: measured.number(name, -math.inf) if measured else None for name in figures},
    )


def _wait(node: _Node) -> Wait | None:
    wait = node.node("wait")
    if wait is None:
        return None
    return Wait(wait.truth("never") is True, wait.number("least") or 0.0, wait.number("most"))


def check(data: Mapping[str, object]) -> Check:
    """A check of a statement, as in a summary."""
    return _check(_Node("check", data))


def _check(node: _Node) -> Check:
    check = Check(
        node.required("figure"),
        node.texts("terms"),
        node.texts("operators"),
        node.numbers("measured"),
        node.truth("holds"),
        node.truth("published_holds"),
        _wait(node),
    )
    if not len(check.terms) == len(check.measured) == len(check.operators) + 1:
        raise SummaryError(f"summary: {node.path} must have a value for each term, and an operator between two")
    return check


def _workload_of(node: _Node) -> tuple[str, str, int | None]:
    """The name under which a run is compared, its kind and ring."""
    name, ring = node.required("workload"), node.count("ring")
    kind, _, tail = name.rpartition("-")
    if ring is None and kind == "micro" and tail.isdecimal():
        return name, kind, int(tail)
    iommu = node.text("iommu")
    parts = (
        f"{name}-{ring}" if ring else name,
        node.text("device"),
        node.text("variant"),
        None if iommu == DEFAULT_IOMMU else iommu,
    )
    return " ".join(part for part in parts if part), name, ring


def read(summary: Mapping[str, object]) -> View:
    """Read a summary. Raises SummaryError if the summary cannot be shown truthfully."""
    top = _Node("", summary)
    if summary.get("schema") != SCHEMA:
        raise SummaryError(f"summary: schema must be {SCHEMA}, found {summary.get('schema')!r}")
    word = _cost_word(top.text("accel"))
    runs: dict[tuple[str, str, int | None], list[Run]] = {}
    for node in top.nodes("runs"):
        run, key = _run(node, word), _workload_of(node)
        same = runs.setdefault(key, [])
        if any(other.row == run.row for other in same):
            raise SummaryError(
                f"summary: {node.path} is a second run of {run.name} ({run.level}) under {key[0]}; "
                "runs that differ need different `device`, `variant`, `ring` or `iommu`"
            )
        same.append(run)
    versions = top.node("versions")
    return View(
        commit=top.text("commit"),
        kernel=top.text("kernel"),
        iommu=top.text("iommu"),
        qemu=top.text("qemu"),
        accel=top.text("accel"),
        command=top.text("command"),
        time=top.text("time"),
        versions=tuple((key, str(value)) for key, value in sorted(versions.data.items())) if versions else (),
        cost_word=word,
        workloads=tuple(
            Workload(name, kind, ring, tuple(sorted(found, key=_order))) for (name, kind, ring), found in runs.items()
        ),
        claims=tuple(map(_claim, top.nodes("claims"))) if "claims" in summary else (),
        identities=tuple(map(_identity, top.nodes("identity"))) if "identity" in summary else (),
    )


# -- showing ---------------------------------------------------------------------------------------

NULL: Final = "-"
ALWAYS: Final = "always"
"""The exposure of a device that reaches all memory, and never needs a stale translation."""


def show(value: float | None) -> str:
    """A cost, time or throughput with at least three digits; a count with all digits."""
    if value is None:
        return NULL
    if isinstance(value, int) or value == 0 or value >= 99.95:
        return f"{value:,.0f}"
    return f"{value:.1f}" if value >= 9.995 else f"{value:.2f}"


def show_inv(value: float | None) -> str:
    """Invalidations per page, from above 1 down to one per thousands of pages."""
    if value is None:
        return NULL
    if value == 0:
        return "0"
    return f"{value:.3f}" if value >= 0.1 else f"{value:.5f}" if value >= 1e-4 else f"{value:.0e}"


def show_seen(run_level: str, attack: Attack | None) -> str:
    """The longest exposure that a device saw, in microseconds."""
    if run_level == "none":
        return ALWAYS
    if attack is None or attack.max_us is None:
        return NULL
    return f">{show(attack.max_us)}" if attack.open_ended else show(attack.max_us)


def show_ratios(values: Sequence[float | None]) -> tuple[str, ...]:
    """Ratios with a common number of decimals, so that readers can compare a column."""
    largest = max((value for value in values if value is not None), default=0.0)
    decimals = 3 if largest < 2 else 2 if largest < 100 else 1
    return tuple(NULL if value is None else f"{value:,.{decimals}f}x" for value in values)
