# SPDX-License-Identifier: GPL-2.0-only
"""A run of the lab: kernel, modules, guests side by side, checks as results arrive, one summary at the end."""

from __future__ import annotations

import asyncio
import contextlib
import json
import re
import shlex
import signal
import sys
import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from types import MappingProxyType
from typing import Any

from rich.console import Console
from rich.progress import Progress, SpinnerColumn, TextColumn, TimeElapsedColumn

from xsmmu.errors import UserError, unknown_name
from xsmmu_lab.arch import AMD64, Arch
from xsmmu_lab.project import DIRTY, LAB, RESULTS, commit, is_named
from xsmmu_lab.report import page as report
from xsmmu_lab.runs import claims, experiment, figures, results, times
from xsmmu_lab.runs.experiment import OURS, Plan, Run, own_policy
from xsmmu_lab.runs.figures import Measured
from xsmmu_lab.setup import build, drivers, host, initramfs, kernels, root
from xsmmu_lab.setup.kernels import Kernel
from xsmmu_lab.setup.root import Root
from xsmmu_lab.vm.guest import Boot, Guest, Record, first_error, kvm_works
from xsmmu_lab.vm.iommu import DEFAULT_IOMMU, IOMMUS
from xsmmu_lab.vm.machine import DEVICES, Accel, Mode

GUEST_FOLDER = LAB / "guest"

BASE_MODULES = ("virtio_pci", "virtio_console")
"""Modules that a guest needs to send results, unless built into the kernel."""

LAB_MODULE = ("lab/module", "xsmmu_lab.ko")
_BUILD_BYTES = 128 << 20
_IMAGE_BYTES = 48 << 20
"""Size in the cache of the built modules and of each guest's initramfs."""
_RECORDED_PACKAGES = ("busybox-static", "iproute2", "iperf3", "fio")


@dataclass(frozen=True)
class Options:
    """The options of a run."""

    kernel: str | None = None
    iommu: str = DEFAULT_IOMMU
    experiment: str = "compare"
    policies: tuple[str, ...] = ()
    workloads: tuple[str, ...] = ()
    quick: bool = False
    accel: str = "auto"
    """auto: instructions on TCG where costs are measured; else KVM if KVM boots this kernel, or TCG."""
    output: Path = RESULTS
    jobs: int = 2
    """Guests at the same time."""
    repeat: int = 1
    """Number of measurements of each run."""


def run(options: Options, console: Console) -> Path:
    """Run an experiment; returns the results folder. Raises UserError, and then leaves nothing behind."""
    began_at = commit()
    chosen = experiment.load(options.experiment, iommu=options.iommu)
    for workload in chosen.workloads:
        if workload.measure not in figures.MEASURES:
            raise unknown_name("measure", workload.measure, figures.MEASURES)
    arch = IOMMUS[options.iommu].arch
    named = kernels.named(options.kernel, arch)
    policies, workloads = experiment.choose(chosen, options.policies, options.workloads, options.quick, named, arch)
    plans = [plan for plan in experiment.plans(policies, workloads, options.repeat) if plan.runs]
    if not plans:
        raise UserError(
            f"{chosen.name} has nothing to run for this choice: "
            "leave out --quick, or choose other workloads, policies or another kernel"
        )
    cache = host.cache_dir()
    contents = root.OF_GUESTS[arch.name]
    _need_space(cache, contents, named, len(plans))
    known = times.load(cache, chosen.mode)
    plans = times.longest_first(plans, known)
    _announce(chosen.name, plans, known, options.jobs, console)
    the_root = root.ensure(cache, console, contents)
    kernel = kernels.ensure(the_root, options.kernel, console)
    ours = modules(the_root, kernel, policies)
    with results.Results(options.output) as folder:
        boots = {plan.guest: _boot(the_root, kernel, plan, ours, chosen.mode) for plan in plans}
        accel = _accel(the_root, boots, options.accel, chosen.mode, folder.folder)
        limit_s = Boot.timeout_s * options.repeat
        boots = {name: replace(boot, accel=accel, timeout_s=limit_s) for name, boot in boots.items()}
        started = time.monotonic()
        collectors = asyncio.run(_run_guests(the_root, plans, boots, folder.folder, options.jobs, console))
        times.keep(cache, chosen.mode, (each for collector in collectors for each in collector.spent))
        measured = [each for collector in collectors for each in collector.measured]
        release = collectors[0].release
        tables = _identities(collectors, _cost_word(accel, chosen.mode))
        summary = _summary(accel, chosen, the_root, kernel, release, folder, measured, began_at)
        summary |= {"identity": tables} if tables else {}
        summary["seconds"] = round(time.monotonic() - started, 1)
        folder.write(summary)
        report.write(summary, folder.folder)
        versions = dict(sorted(the_root.versions.items()))
        (folder.folder / "packages.json").write_text(json.dumps(versions, indent=1) + "\n")
        return folder.finish()


def _need_space(cache: Path, contents: root.Contents, kernel: str, guests: int) -> None:
    """Check, before any download, that all missing files fit."""
    tools, image = root.missing_bytes(cache, contents), kernels.missing_bytes(root.place(cache, contents), kernel)
    need = tools + image + _BUILD_BYTES + guests * _IMAGE_BYTES
    host.need_space(cache, need, "this run of the lab")


def _announce(name: str, plans: Sequence[Plan], known: times.Known, jobs: int, console: Console) -> None:
    """Print the number of runs and the expected time."""
    runs = sum(len(plan.runs) for plan in plans)
    took = times.in_words(times.all_of(plans, known, jobs))
    measured = all(run.workload.full_name in known for plan in plans for run in plan.runs)
    source = "by the last run here" if measured else "on two idle CPUs; downloads and builds take additional time"
    guests = ", ".join(f"{plan.guest} {times.in_words(times.expected(plan, known))}" for plan in plans)
    beside = min(jobs, len(plans))
    at_a_time = f"{beside} guest{'s' if beside > 1 else ''} at a time"
    text = f"{name}: {runs} runs, {at_a_time}, about {took} ({source}): {guests}"
    console.print(text, markup=False, highlight=False, soft_wrap=True)


def modules(the_root: Root, kernel: Kernel, policies: Sequence[str] = OURS) -> list[Path]:
    """The module files for the guest: xsmmu if one of its policies is asked for, then the lab's."""
    made = build.module(the_root, kernel) if any(own_policy(policy) for policy in policies) else []
    return [*made, *build.module(the_root, kernel, make_dir=LAB_MODULE[0], outputs=(LAB_MODULE[1],), calls_xsmmu=True)]


def image(
    the_root: Root,
    kernel: Kernel,
    needs: Sequence[experiment.Needs],
    ours: Sequence[Path],
    script: str,
    patched: Sequence[Path] = (),
    files: Mapping[str, bytes] = MappingProxyType({}),
    iommu: str = DEFAULT_IOMMU,
) -> Path:
    """The initramfs of a guest that follows `script`; cached by content.

    `patched` are drivers that the script loads from /modules/patched in place of stock drivers. `files` are more
    programs with their dependencies, by path; a file that replaces the loader brings the C library along.
    """
    made = initramfs.Image()
    made.add("bin/busybox", initramfs.busybox(the_root.programs), 0o755)
    made.add("init", (GUEST_FOLDER / "init").read_bytes(), 0o755)
    for path in sorted(GUEST_FOLDER.rglob("*.sh")):
        made.add(f"lab/{path.relative_to(GUEST_FOLDER)}", path.read_bytes())
    stock = initramfs.Modules(kernel.modules_dir)
    own = IOMMUS[iommu].module
    base = stock.load_order((own, *BASE_MODULES) if own else BASE_MODULES)
    wanted = stock.load_order(dict.fromkeys(name for need in needs for name in need.modules))
    mine = [(path.stem, path.read_bytes()) for path in ours]
    for name, content in (*base, *wanted, *mine):
        made.add(f"modules/{name}.ko", content)
    for path in patched:
        made.add(f"modules/patched/{path.name}", path.read_bytes())
    loaded = {name for name, _ in base}
    made.add("lab/base-modules", _lines(name for name, _ in base))
    made.add("lab/modules", _lines(name for name, _ in (*wanted, *mine) if name not in loaded))
    made.add("lab/plan", script.encode())
    made.add("lab/bytes", bytes(range(256)))
    made.add("lab/arch.sh", _arch_words(the_root.arch).encode())
    programs = list(dict.fromkeys(name for need in needs for name in need.programs))
    initramfs.add_programs(made, the_root.programs, programs, the_root.arch)
    for name, content in files.items():
        made.add(name, content, 0o755)
    return initramfs.store(made, the_root.cache)


def _lines(names: Iterable[str]) -> bytes:
    return "".join(f"{name}.ko\n" for name in names).encode()


def _arch_words(arch: Arch) -> str:
    """Variables of the architecture for guest scripts."""
    file, register = arch.marker
    return f"console=/dev/{arch.console}\nmarker_file={file}\nmarker_register={register}\n"


def _patched(the_root: Root, kernel: Kernel, plan: Plan) -> list[Path]:
    """The stock drivers that the plan needs in a batch-aware form."""
    aware = [run.workload for run in plan.runs if run.workload.driver == "batch-aware"]
    names = dict.fromkeys(DEVICES[device].driver for work in aware for device in work.devices)
    return [drivers.module(the_root, kernel, name) for name in names if name in drivers.table()]


def _boot(the_root: Root, kernel: Kernel, plan: Plan, modules: Sequence[Path], mode: Mode) -> Boot:
    patched = _patched(the_root, kernel, plan)
    archive = image(the_root, kernel, plan.needs, modules, plan.script, patched, iommu=plan.iommu)
    return Boot(kernel.vmlinuz, archive, mode, iommu=plan.iommu)


def _accel(the_root: Root, boots: Mapping[str, Boot], wanted: str, mode: Mode, folder: Path) -> Accel:
    """The accelerator for guests; a /dev/kvm that cannot boot this kernel counts as absent."""
    if wanted == "tcg" or (wanted == "auto" and (mode == "cost" or the_root.arch != AMD64)):
        return "tcg"
    if the_root.arch == AMD64 and asyncio.run(kvm_works(the_root.qemu_command(), next(iter(boots.values())), folder)):
        return "kvm"
    if wanted == "kvm":
        raise UserError("KVM is not usable here, or does not boot this kernel: leave out --accel kvm")
    return "tcg"


class Collector:
    """Receives a guest's records: checks each run on arrival and keeps the parts for the summary."""

    def __init__(self, plan: Plan, progress: Progress) -> None:
        self._runs: dict[int, Run] = {run.id: run for run in plan.runs}
        self._guest, self.iommu = plan.guest, plan.iommu
        self._statements = plan.script.count("faults_are ")
        self._progress = progress
        self._task = progress.add_task(f"{plan.guest}: booting", total=len(plan.runs))
        self.measured: list[Measured] = []
        self.identities: list[Record] = []
        """Reports of static 1:1 tables."""
        self.spent: list[tuple[str, float]] = []
        """Real seconds by workload or booting; time between runs counts towards the next run."""
        self.release = ""
        self._since = 0.0

    async def on_record(self, guest: Guest, record: Record) -> None:
        event = record["event"]
        if event == "boot":
            self.release = record["release"]
            self._spent(times.BOOT, guest.began)
        elif event == "session":
            self._now(guest, f"giving {record['driver']} its devices under {record['policy']}")
        elif event == "identity":
            self.identities.append(record)
        elif event in ("warm", "start"):
            run = self._runs[record["id"]]
            self._now(guest, f"{'the warm-up of ' if event == 'warm' else ''}{run.name}")
        elif event == "run":
            await self._measured(guest, self._runs[record["id"]], record)
        elif event == "closed":
            await guest.wait_for_marker(record["marker"])
            figures.check_closed(record["policy"], record["left"], guest.oracle.mapped_pages(record["marker"]))

    def _spent(self, name: str, since: float) -> None:
        self._since = time.monotonic()
        self.spent.append((name, self._since - since))

    def _now(self, guest: Guest, doing: str) -> None:
        guest.doing = doing
        self._progress.update(self._task, description=f"{guest.name}: {doing}")

    async def _measured(self, guest: Guest, run: Run, record: Record) -> None:
        first, last = record["markers"]
        await guest.wait_for_marker(last)
        measured = Measured(run, record, guest.oracle.window(first, last), guest.oracle.requests(first, last))
        figures.check(measured)
        self.measured.append(measured)
        self._spent(run.workload.full_name, self._since)
        self._progress.advance(self._task)
        # Without a terminal, print a line instead of a progress bar.
        if self._progress.disable:
            done = f"{len(self.measured)}/{len(self._runs)}"
            self._progress.console.print(
                f"{guest.name}: {done} {run.name}", markup=False, highlight=False, soft_wrap=True
            )

    def finish(self, statements: int) -> None:
        """Check that every run of the plan has arrived, and all fault messages of the guest."""
        missing = set(self._runs) - {each.run.id for each in self.measured}
        if missing:
            run = self._runs[min(missing)]
            raise UserError(f"{len(missing)} runs gave no result, the first is {run.name}")
        if statements != self._statements:
            raise UserError(
                f"guest {self._guest} said {statements} times, not {self._statements}, which faults are expected: "
                "a part of its kernel's log is lost"
            )


async def _run_guests(
    the_root: Root, plans: Sequence[Plan], boots: dict[str, Boot], folder: Path, jobs: int, console: Console
) -> list[Collector]:
    qemu = the_root.qemu_command()
    limit = asyncio.Semaphore(max(1, jobs))
    columns = (SpinnerColumn(), TextColumn("{task.description}"), TextColumn("{task.completed}/{task.total}"))
    with Progress(*columns, TimeElapsedColumn(), console=console, disable=not console.is_terminal) as progress:
        collectors = {plan.guest: Collector(plan, progress) for plan in plans}
        guests = {
            plan.guest: Guest(plan.guest, qemu, boots[plan.guest], folder, collectors[plan.guest].on_record)
            for plan in plans
        }

        async def one(name: str) -> None:
            async with limit:
                await guests[name].run()
                collectors[name].finish(guests[name].statements)

        with interruptible(guests):
            try:
                async with asyncio.TaskGroup() as group:
                    for name in guests:
                        group.create_task(one(name))
            except BaseExceptionGroup as error:
                raise first_error(error) from None
    return list(collectors.values())


@contextlib.contextmanager
def interruptible(guests: dict[str, Guest]) -> Iterator[None]:
    """Turn Ctrl-C and SIGTERM into the end of all guests and a message with their last lines."""
    loop, task = asyncio.get_running_loop(), asyncio.current_task()
    assert task
    received: list[signal.Signals] = []

    def stop(number: signal.Signals) -> None:
        received.append(number)
        task.cancel()

    previous = {number: signal.getsignal(number) for number in (signal.SIGINT, signal.SIGTERM)}
    for number in previous:
        loop.add_signal_handler(number, stop, number)
    try:
        yield
    except asyncio.CancelledError:
        if not received:
            raise
        doing = ", ".join(f"{name} at {guest.doing}" for name, guest in guests.items())
        lines = [f"{name}: {line}" for name, guest in guests.items() for line in guest.tail(8)]
        raise UserError(f"stopped by {received[0].name}; the guests were ended ({doing})", lines) from None
    finally:
        for number, handler in previous.items():
            loop.remove_signal_handler(number)
            signal.signal(number, handler)


def _summary(
    accel: Accel,
    chosen: experiment.Experiment,
    the_root: Root,
    kernel: Kernel,
    release: str,
    folder: results.Results,
    measured: Sequence[Measured],
    began_at: str,
) -> dict[str, Any]:
    recorded = (the_root.arch.qemu_package, *_RECORDED_PACKAGES)
    versions = {each: the_root.versions[each] for each in recorded if each in the_root.versions}
    qemu = re.sub(r"^\d+:|[+-].*$", "", versions[the_root.arch.qemu_package])
    return {
        "schema": 1,
        "time": folder.time.isoformat(timespec="seconds"),
        "commit": unchanged(began_at),
        "kernel": release,
        "iommu": "; ".join(dict.fromkeys(IOMMUS[each.run.workload.iommu].words for each in measured)),
        "qemu": qemu,
        "accel": "tcg-icount" if (accel, chosen.mode) == ("tcg", "cost") else accel,
        "experiment": chosen.name,
        "command": shlex.join(["xsmmu", *sys.argv[1:]]),
        "versions": {"linux-image": kernel.version, **versions},
        **_runs(chosen, measured, _cost_word(accel, chosen.mode)),
    }


def _cost_word(accel: Accel, mode: Mode) -> str | None:
    """The meaning of a nanosecond of guest time: an instruction, a nanosecond, or, emulated and free-running, none."""
    if mode == "free":
        return None
    return "instructions" if accel == "tcg" else "ns"


def _runs(chosen: experiment.Experiment, measured: Sequence[Measured], cost: str | None) -> figures.Json:
    """The runs' entries, and the experiment's claims beside them."""
    baselines = {_place(each.run): each for each in measured if each.run.is_baseline}
    repeated: dict[tuple[str, str], dict[int, figures.Json]] = {}
    for each in measured:
        if not each.run.is_baseline:
            *place, repetition = _place(each.run)
            one = figures.entry(each, baselines.get(_place(each.run)), cost)
            repeated.setdefault((place[0], place[1]), {})[repetition] = one
    for repetition in sorted({each.run.repetition for each in measured}):
        figures.relate([each[repetition] for each in repeated.values()])
    entries = {place: figures.middle(list(each.values())) for place, each in repeated.items()}
    figures.relate(list(entries.values()))
    compared = claims.compare(chosen.claims, entries)
    return {"runs": list(entries.values()), **({"claims": compared} if compared else {})}


def _identities(collectors: Sequence[Collector], cost: str | None) -> list[figures.Json]:
    """The entries of static 1:1 tables: the first of each policy, IOMMU and devices."""
    found: dict[tuple[str, str, str], figures.Json] = {}
    for collector in collectors:
        for record in collector.identities:
            one = figures.identity(record, collector.iommu, cost)
            found.setdefault((one["policy"], one["iommu"], one["devices"]), one)
    return list(found.values())


def _place(run: Run) -> tuple[str, str, int]:
    return run.workload.full_name, run.policy, run.repetition


def unchanged(began_at: str) -> str:
    """`began_at`, with `-dirty` if the tree has changed since: built and read files may belong to either tree."""
    return began_at if not is_named(began_at) or commit() == began_at else f"{began_at}{DIRTY}"
