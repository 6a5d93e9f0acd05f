# SPDX-License-Identifier: GPL-2.0-only
"""Experiments: workloads by policies, read from lab/experiments/*.toml and laid out as plans for guests.

A plan is a shell script of a few words (session_open, warm, run, session_close; see lab/guest/lib.sh). A session is one
policy on one set of devices; no other device has a driver meanwhile, so every invalidation that the IOMMU model counts
belongs to the session.
"""

from __future__ import annotations

import re
import tomllib
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, cast, get_args

import msgspec

from xsmmu.errors import UserError, unknown_name
from xsmmu_lab import policies as own_policies
from xsmmu_lab.arch import AMD64, Arch
from xsmmu_lab.project import LAB
from xsmmu_lab.runs import claims, words
from xsmmu_lab.runs.claims import Claim
from xsmmu_lab.setup import kernels
from xsmmu_lab.vm.iommu import DEFAULT_IOMMU, IOMMUS
from xsmmu_lab.vm.machine import DEVICES, Mode

FOLDER = LAB / "experiments"
CLAIMS = "claims"
"""Decided by experiments and other evidence (scripts/checks/claims.py)."""

BASELINES = ("passthrough", "kernel-strict", "kernel-lazy")
"""The kernel's own modes."""

OURS = own_policies.names()
"""The module's policies."""

SETS = {
    "kernel": BASELINES,
    "identity": own_policies.IDENTITY,
    "module": OURS,
    "mapping": own_policies.mapping(),
    "waiting": own_policies.waiting(),
}
"""Words that stand for several policies in experiments.

The kernel's own modes; static 1:1 tables; all policies of the module; the module's policies that copy nothing; the
policies under which a batch-aware driver's unmaps wait for the driver's flush.
"""

_COPY = "-copy"
_DIRECT = "-direct"

_CHOICES = (*OURS, "fused" + _COPY)
POLICIES = (*BASELINES, *own_policies.IDENTITY, *_CHOICES, *(choice + _DIRECT for choice in _CHOICES))
"""Names of configurations.

A kernel mode, a static 1:1 table, or a policy of the module, then `-copy` if buffers of up to 256 bytes are copied
(`copy_bytes`), and `-direct` if `tables` are written in place.
"""

DRIVERS = ("unmodified", "batch-aware")
"""Kinds of drivers; a batch-aware one flushes its unmaps itself (include/xsmmu/dma.h)."""

Argument = str | int

_FUNCTION = re.compile(r"^(\w+)\(\) \{", re.MULTILINE)


def own_policy(policy: str) -> str | None:
    """The module's policy in a configuration; None for a kernel mode and for a static 1:1 table."""
    name = policy.removesuffix(_DIRECT).removesuffix(_COPY)
    return name if name in OURS else None


class Needs(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Requirements of a kind of workload on its guest."""

    modules: tuple[str, ...] = ()
    programs: tuple[str, ...] = ()
    start: str = ""


class _Work(msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """The fields that all variants of a workload share."""

    name: str
    guest: str
    function: str
    measure: str
    baseline: dict[str, Argument] = {}
    driver: str = DRIVERS[0]
    faults: bool = False
    quick: bool = False
    ours_only: bool = False
    """The workload does not apply to the kernel's own modes."""
    policies: tuple[str, ...] = ()
    """The only policies, if any are named."""
    kernels: tuple[str, ...] = ()
    """The only kernels, if any are named."""


class WorkloadTable(_Work, frozen=True, kw_only=True):
    """A `[[workload]]` of a file."""

    needs: str
    variants: dict[str, dict[str, Any]]
    """Each value is a `Variant`; other keys are arguments."""


class Variant(msgspec.Struct, frozen=True):
    """A run of a workload: its labels in results, and arguments for some policies only."""

    devices: tuple[str, ...]
    labels: dict[str, Argument]
    by_policy: dict[str, dict[str, Argument]] = {}


class Workload(_Work, frozen=True, kw_only=True):
    """A workload with all its arguments; its full name is `name/variant`."""

    variant: str
    needs: Needs
    devices: tuple[str, ...]
    labels: dict[str, Argument]
    arguments: dict[str, Argument]
    by_policy: dict[str, dict[str, Argument]]
    iommu: str
    """The IOMMU of the workload's guest."""

    def names(self, policy: str) -> bool:
        """Whether the workload is for `policy`, on some IOMMU; for a static 1:1 table only if `policies` names it."""
        if policy in own_policies.IDENTITY:
            return policy in self.policies
        own = own_policy(policy)
        return (own is not None or not self.ours_only) and (own or policy) in (self.policies or POLICIES)

    def has(self, policy: str) -> bool:
        """Whether the workload is run under `policy`."""
        iommu = IOMMUS[self.iommu]
        if (policy.endswith(_DIRECT) and not iommu.direct) or (policy in own_policies.IDENTITY and iommu.has_queue):
            return False
        return self.names(policy)

    @property
    def full_name(self) -> str:
        """The name on the command line."""
        return f"{self.name}/{self.variant}"

    def arguments_under(self, policy: str) -> dict[str, Argument]:
        """All arguments of a run under `policy`."""
        return {**self.arguments, **self.by_policy.get(own_policy(policy) or policy, {})}


class GuestTable(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """A `[guest.NAME]` of a file."""

    iommu: str


class File(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """A file; variants and claims are parsed separately."""

    name: str
    description: str
    policies: list[str]
    needs: dict[str, Needs]
    workload: list[WorkloadTable]
    mode: str = "cost"
    guest: dict[str, GuestTable] = {}
    claim: list[Any] = []


@dataclass(frozen=True)
class Experiment:
    """A file of lab/experiments."""

    name: str
    description: str
    mode: Mode
    policies: tuple[str, ...]
    workloads: tuple[Workload, ...]
    claims: tuple[Claim, ...] = ()
    """Published figures to compare with the runs."""


@dataclass(frozen=True)
class Run:
    """A measured run of a plan; `id` is its place in the whole experiment."""

    id: int
    workload: Workload
    policy: str
    is_baseline: bool = False
    """True for the smaller run; its work is subtracted from the run before."""
    repetition: int = 1
    """Counts the guest's passes through its plan, from 1."""

    @property
    def name(self) -> str:
        """The name in messages."""
        return f"{self.workload.full_name} under {self.policy}"

    @property
    def ours(self) -> bool:
        """Whether the module's counters must agree with the oracle."""
        return own_policy(self.policy) is not None

    @property
    def direct(self) -> bool:
        """Whether page tables must have been written in place to the end."""
        return self.policy.endswith(_DIRECT)


@dataclass(frozen=True)
class Plan:
    """The work of one guest."""

    guest: str
    iommu: str
    runs: tuple[Run, ...]
    script: str
    needs: tuple[Needs, ...]


def names(folder: Path = FOLDER) -> list[str]:
    """The names of all experiments."""
    return sorted(path.stem for path in folder.glob("*.toml"))


def load(name: str, folder: Path = FOLDER, iommu: str = DEFAULT_IOMMU) -> Experiment:
    """Read an experiment by name. Guests without an IOMMU in the file get `iommu`."""
    if iommu not in IOMMUS:
        raise unknown_name("IOMMU", iommu, IOMMUS)
    if name == CLAIMS:
        raise UserError("claims is no experiment of guests alone: use make lab EXPERIMENT=claims", code="usage")
    if name not in names(folder):
        raise unknown_name("experiment", name, names(folder))
    path = folder / f"{name}.toml"
    try:
        return _parse(words.read(File, tomllib.loads(path.read_text())), iommu)
    except tomllib.TOMLDecodeError as error:
        raise UserError(f"{path}: {error}") from None
    except UserError as error:
        raise UserError(f"{path}: {error.message}") from None


def _parse(file: File, default_iommu: str) -> Experiment:
    _check_names(file)
    iommus = {name: guest.iommu for name, guest in file.guest.items()}
    for iommu in iommus.values():
        if iommu not in IOMMUS:
            raise unknown_name("IOMMU", iommu, IOMMUS)
    workloads = [
        workload
        for row in file.workload
        for workload in _variants(row, file.needs, iommus.get(row.guest, default_iommu))
    ]
    for guest in iommus:
        if guest not in {each.guest for each in workloads}:
            raise unknown_name("guest", guest, sorted({each.guest for each in workloads}))
    policies = _policies(file.policies)
    if file.mode not in get_args(Mode):
        raise unknown_name("mode", file.mode, get_args(Mode))
    runs = {each.full_name: [policy for policy in policies if each.names(policy)] for each in workloads}
    found = claims.parse(file.claim, runs)
    return Experiment(file.name, file.description, cast(Mode, file.mode), policies, tuple(workloads), found)


def _check_names(file: File) -> None:
    """Check, before a guest boots, that all names used by workloads exist."""
    functions = _FUNCTION.findall("".join(path.read_text() for path in sorted((LAB / "guest").rglob("*.sh"))))
    known_kernels = kernels.names()
    for row in file.workload:
        for kind, known, given in (
            ("needs", file.needs, [row.needs]),
            ("function", functions, [row.function]),
            ("kernel", known_kernels, row.kernels),
            ("driver", DRIVERS, [row.driver]),
        ):
            for word in given:
                if word not in known:
                    raise unknown_name(kind, word, known)
    for needs in file.needs.values():
        if needs.start and needs.start not in functions:
            raise unknown_name("function", needs.start, functions)


def _policies(listed: Iterable[str]) -> tuple[str, ...]:
    """The policies of a list, with the names of sets expanded."""
    found = [policy for each in listed for policy in SETS.get(each, (each,))]
    for policy in found:
        if policy not in POLICIES:
            raise unknown_name("policy", policy, (*SETS, *POLICIES))
    return tuple(dict.fromkeys(found))


def _variants(row: WorkloadTable, needs: dict[str, Needs], iommu: str) -> Iterable[Workload]:
    common = {name: getattr(row, name) for name in _Work.__struct_fields__} | {"policies": _policies(row.policies)}
    for name, values in row.variants.items():
        where = f"{row.name}/{name}"
        variant = words.read(Variant, values, where)
        own = {key: value for key, value in values.items() if key not in Variant.__struct_fields__}
        for policy in variant.by_policy:
            if policy not in POLICIES:
                raise unknown_name("policy", policy, POLICIES)
        for device in variant.devices:
            if device not in DEVICES:
                raise unknown_name("device", device, DEVICES)
        yield Workload(
            **common,
            variant=name,
            needs=needs[row.needs],
            devices=variant.devices,
            labels=variant.labels,
            arguments=words.read(dict[str, Argument], own, where),
            by_policy=variant.by_policy,
            iommu=iommu,
        )


def choose(
    experiment: Experiment,
    policies: Sequence[str],
    workloads: Sequence[str],
    quick: bool,
    kernel: str,
    arch: Arch = AMD64,
) -> tuple[tuple[str, ...], tuple[Workload, ...]]:
    """The requested policies and workloads; without a request, all that the kernel supports.

    Guests whose IOMMU in the experiment belongs to another architecture are left out.
    """
    for policy in policies:
        if policy not in experiment.policies:
            raise unknown_name("policy", policy, experiment.policies)
    short = list(dict.fromkeys(each.name for each in experiment.workloads))
    full = [each.full_name for each in experiment.workloads]
    for name in workloads:
        if name not in short and name not in full:
            raise unknown_name("workload", name, [*short, *full])
    chosen = [
        each
        for each in experiment.workloads
        if kernel in (each.kernels or (kernel,))
        and IOMMUS[each.iommu].arch == arch
        and ((not workloads and (each.quick or not quick)) or each.name in workloads or each.full_name in workloads)
    ]
    return tuple(each for each in experiment.policies if not policies or each in policies), tuple(chosen)


def plans(policies: Sequence[str], workloads: Sequence[Workload], repeat: int = 1) -> list[Plan]:
    """One plan per guest: session by session, device by device, policy by policy; the whole sequence `repeat` times.

    Repetitions of a run thus lie far apart, with all other runs between.
    """
    result: list[Plan] = []
    next_id = 1
    for guest in dict.fromkeys(each.guest for each in workloads):
        mine = [each for each in workloads if each.guest == guest]
        runs: list[Run] = []
        needs = list(dict.fromkeys(each.needs for each in mine))
        script = [each.start for each in needs if each.start]
        sessions = [(number, each) for number in range(1, repeat + 1) for each in _sessions(policies, mine)]
        if IOMMUS[mine[0].iommu].passthrough_last:
            sessions.sort(key=lambda each: each[1][0] == "passthrough")
        warmed: set[tuple[tuple[str, ...], str]] = set()
        for repetition, (policy, devices, session_workloads) in sessions:
            place = devices, session_workloads[0].driver
            session, script_part = _session(
                next_id, policy, devices, session_workloads, repetition, warm=place not in warmed
            )
            warmed.add(place)
            next_id += len(session)
            runs += session
            script += script_part
        result.append(Plan(guest, mine[0].iommu, tuple(runs), "\n".join(script) + "\n", tuple(needs)))
    return result


def _sessions(
    policies: Sequence[str], workloads: Sequence[Workload]
) -> Iterator[tuple[str, tuple[str, ...], list[Workload]]]:
    """The sessions of a guest: policy, devices and workloads."""
    for devices, driver in dict.fromkeys((each.devices, each.driver) for each in workloads):
        mine = [each for each in workloads if (each.devices, each.driver) == (devices, driver)]
        for policy in policies:
            if any(work.has(policy) for work in mine):
                yield policy, devices, mine


def _session(
    first_id: int, policy: str, devices: Sequence[str], workloads: Sequence[Workload], repetition: int, warm: bool
) -> tuple[list[Run], list[str]]:
    runs: list[Run] = []
    rows = [DEVICES[device] for device in devices]
    names = " ".join(row.bdf for row in rows)
    script = [f"session_open {policy} {rows[0].driver} {workloads[0].driver} {names}"]
    for workload in workloads:
        if not workload.has(policy):
            continue
        arguments = workload.arguments_under(policy)
        run = Run(first_id + len(runs), workload, policy, repetition=repetition)
        if workload.faults:
            script.append("faults_are expected")
        if warm:
            # The first run of a program includes reading the program from disk.
            script.append(f"warm {run.id} {workload.function} {_words({**arguments, **workload.baseline})}")
        runs.append(run)
        script.append(f"run {run.id} {workload.function} {_words(arguments)}")
        if workload.baseline:
            run = Run(first_id + len(runs), workload, policy, is_baseline=True, repetition=repetition)
            runs.append(run)
            script.append(f"run {run.id} {workload.function} {_words({**arguments, **workload.baseline})}")
        if workload.faults:
            script.append("faults_are unexpected")
    return runs, [*script, "session_close"]


def _words(arguments: dict[str, Argument]) -> str:
    return " ".join(f"{key}={value}" for key, value in arguments.items())
