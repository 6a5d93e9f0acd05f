# SPDX-License-Identifier: GPL-2.0-only
"""Tests inside a guest: shell functions of tests/guest, with a result each.

A topic is a script of tests/guest; its cases are the functions named `case_*`, in the script's order. Several topics
can share a boot. The boot happens once, when its first result is needed.
"""

from __future__ import annotations

import asyncio
import re
import tempfile
from collections.abc import Callable, Container, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path

import pytest
from rich.console import Console

from xsmmu.errors import UserError
from xsmmu_lab.arch import AMD64, Arch
from xsmmu_lab.project import PROJECT
from xsmmu_lab.runs import run as lab
from xsmmu_lab.runs.experiment import Needs
from xsmmu_lab.setup import build, drivers, host, kernels, root
from xsmmu_lab.setup.kernels import Kernel
from xsmmu_lab.vm import machine, oracle
from xsmmu_lab.vm.guest import Boot, Guest, Record
from xsmmu_lab.vm.iommu import DEFAULT_IOMMU, IOMMUS
from xsmmu_lab.vm.oracle import Counts

SCRIPTS = Path(__file__).resolve().parents[1] / "guest"
DRIVER = "tests/guest/driver"

DEVICES = (
    Needs(("virtio_net", "e1000e", "igb"), ("usr/bin/ip",), "net_init"),
    Needs(("nvme",), ("usr/bin/setpriv",)),
)
LOADS = Needs((), ("usr/bin/iperf3", "usr/bin/fio", "usr/bin/nice"))
"""Needs of the topic `load`. fio brings fifty megabytes of libraries, which the kernel unpacks at each boot."""

_CASE = re.compile(r"^case_(\w+)\(\)", re.MULTILINE)
LAST_LINES = 40


@dataclass(frozen=True)
class Machine:
    """The machine to boot for some topics."""

    topics: tuple[str, ...]
    pattern: str = ""
    """A regular expression for the names of the cases."""
    mode: machine.Mode = "cost"
    cpus: int = machine.FREE_CPUS
    """vCPUs, if the machine runs freely."""
    kernel: str | None = None
    iommu: str = DEFAULT_IOMMU
    words: tuple[str, ...] = ()
    aware: bool = False
    """Whether the batch-aware driver is included."""
    make_args: tuple[str, ...] = ()
    """More arguments for the build of xsmmu.ko."""
    source: Path = PROJECT
    """The sources of xsmmu.ko and patched drivers."""
    built_in: str = ""
    """A folder for the build of xsmmu.ko from successive versions of `source`; by default each version has its own."""
    needs: tuple[Needs, ...] = DEVICES
    """Stock modules and programs in the guest; a topic adds its own."""
    qemu_options: Callable[[Path], list[str]] = lambda _folder: []
    """More options for QEMU; may name files that the function makes in the given folder."""
    settings: dict[str, str | int] = field(default_factory=dict)
    """Variables for the scripts."""
    patched: tuple[str, ...] = ()
    """Drivers of drivers/drivers.toml that the scripts load."""
    files: Callable[[Path], Mapping[str, bytes]] = lambda _source: {}
    """More programs and their dependencies, by path; the argument is `source`."""
    hears: Callable[[Record], list[str]] = lambda _record: []
    """Checks what a script emits as an event `heard`, on the host; returns failures of the running case."""
    timeout_s: float = 420
    quiet_s: float = 180
    """A guest that is silent for so many seconds hangs."""

    @property
    def its_root(self) -> root.Root:
        """The root with the guest's kernel and programs."""
        return tools(IOMMUS[self.iommu].arch)

    def its_kernel(self) -> Kernel:
        """The kernel to boot."""
        return kernels.ensure(self.its_root, self.kernel)

    def script(self, names: Sequence[str]) -> str:
        """The guest's plan."""
        kind = IOMMUS[self.iommu]
        known = {"FLUSHES_MAPS": int(kind.flushes_maps), "MAPS_ARE_SEEN": int(kind.traces_maps)}
        parts = [f"{name}='{value}'" for name, value in {**known, **self.settings}.items()]
        parts += [(SCRIPTS / f"{name}.sh").read_text() for name in ("lib", *self.topics)]
        parts += [need.start for need in self.all_needs() if need.start]
        parts += ["all_grouped"] if kind.groups_late else []
        return "\n".join([*parts, *(f"run_case {name}" for name in names), ""])

    def all_needs(self) -> tuple[Needs, ...]:
        """The needs, including those of the topics."""
        return (*self.needs, LOADS) if "load" in self.topics else self.needs

    def cases(self) -> list[str]:
        """The names of all cases, in order."""
        return [name for topic in self.topics for name in cases(topic) if re.search(self.pattern, name)]


@dataclass
class Outcome:
    """The outcome of a boot."""

    failures: dict[str, list[str]]
    error: UserError | None
    console: dict[str, list[str]]
    running: str = "booting"

    def check(self, case: str) -> None:
        """Fail the calling test unless the guest reported the case, without a failed expectation."""
        if case in self.failures:
            if self.failures[case]:
                pytest.fail("\n".join([*self.failures[case], "", "the guest's last lines:", *self.console[case]]))
            return
        if self.error is None:
            pytest.fail("the guest never reported this case")
        if case != self.running:
            pytest.fail(f"not run: the guest ended in '{self.running}' ({self.error})")
        pytest.fail("\n".join([str(self.error), *self.error.lines[-LAST_LINES:]]))


def each_case(machines: Mapping[str, Machine], quick: Container[str]) -> Callable[[str, str], None]:
    """A test for each case of each machine. Cases of machines other than `quick` are long tests.

    A machine boots when the result of its first case is needed.
    """

    @cache
    def outcome(name: str) -> Outcome:
        return boot(machines[name])[0]

    @pytest.mark.guest
    @pytest.mark.parametrize(
        ("name", "case"),
        [
            pytest.param(name, case, marks=() if name in quick else pytest.mark.long)
            for name, what in machines.items()
            for case in what.cases()
        ],
    )
    def test(name: str, case: str) -> None:
        outcome(name).check(case)

    return test


def cases(topic: str) -> list[str]:
    """The names of a topic's cases."""
    return _CASE.findall((SCRIPTS / f"{topic}.sh").read_text())


@cache
def tools(arch: Arch = AMD64) -> root.Root:
    """The private root for guests of an architecture."""
    return root.ensure(host.cache_dir(), Console(stderr=True), root.OF_GUESTS[arch.name])


def modules(what: Machine) -> list[Path]:
    """The project's modules for a machine: xsmmu, the lab's, and the test drivers.

    The test drivers are for the DMA API, for bounce buffers and for deferred unmaps. Modules that call xsmmu.ko find
    its symbols if xsmmu.ko is loaded before them, and then keep it loaded.
    """
    its, kernel = what.its_root, what.its_kernel()
    xsmmu, lab_module = lab.modules(its, kernel)
    if what.make_args or what.source != PROJECT:
        [xsmmu] = build.module(its, kernel, what.source, extra_make_args=what.make_args, again_in=what.built_in)
    folder, name = lab.LAB_MODULE
    if (what.source / folder).exists() and build.sources(what.source, (folder,)) != build.sources(PROJECT, (folder,)):
        [lab_module] = build.module(its, kernel, what.source, folder, (name,), calls_xsmmu=True)
    outputs = ("xsmmu_dma_api_test.ko", "xsmmu_bounce_test.ko", "xsmmu_stuck.ko", "xsmmu_deferred_test.ko")
    parts = (DRIVER, "include")
    *plain, last = build.module(its, kernel, make_dir=DRIVER, outputs=outputs, parts=parts, calls_xsmmu=True)
    return [xsmmu, lab_module, *plain, last] if what.aware else [lab_module, *plain, xsmmu]


def broken_sources(folder: Path, file: str, changes: Mapping[str, str], source: Path = PROJECT) -> Path:
    """The module's sources with some lines of a file changed."""
    files = build.sources(source, build.MODULE_PARTS)
    for old, new in changes.items():
        assert files[file].count(old.encode()) >= 1
        files[file] = files[file].replace(old.encode(), new.encode())
    for name, content in files.items():
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_bytes(content)
    return folder


def patched(what: Machine) -> list[Path]:
    """A machine's patched drivers, by the patches in its source."""
    its, kernel = what.its_root, what.its_kernel()
    return [drivers.module(its, kernel, name, what.source / drivers.FOLDER.name) for name in what.patched]


def boot(*machines: Machine, only: Sequence[str] = ()) -> list[Outcome]:
    """Boot machines side by side, run all cases (or `only` some), and return the outcomes."""
    for what in machines:
        modules(what)
        patched(what)

    async def run_all() -> list[Outcome]:
        return await asyncio.gather(*(_run(what, only or what.cases()) for what in machines))

    return asyncio.run(run_all())


async def _run(what: Machine, names: Sequence[str]) -> Outcome:
    its, kernel = what.its_root, what.its_kernel()
    outcome = Outcome({}, None, {})
    wrong: list[str] = []

    async def on_record(guest: Guest, record: Record) -> None:
        if record["event"] == "begin":
            outcome.running = record["case"]
            print(f"{guest.name}: {outcome.running}", flush=True)
        elif record["event"] == "counted":
            await guest.wait_for_marker(record["markers"][1])
            ours, theirs = Counts.from_mapping(record["counts"]), guest.oracle.window(*record["markers"])
            try:
                oracle.compare(record["what"], IOMMUS[what.iommu], ours, theirs)
                oracle.compare_devices(record["what"], ours, theirs)
            except UserError as error:
                wrong.append(error.message)
        elif record["event"] == "heard":
            wrong.extend(what.hears(record))
        elif record["event"] == "case":
            if "marker" in record:
                await guest.wait_for_marker(record["marker"])
                left = guest.oracle.mapped_pages(record["marker"])
                wrong.extend([f"{left} pages are still mapped in the IOMMU"] if left else [])
            outcome.failures[record["case"]] = [*record["failures"], *wrong]
            wrong.clear()
            outcome.console[record["case"]] = guest.tail(LAST_LINES)

    with tempfile.TemporaryDirectory(prefix="xsmmu-test-") as folder:
        qemu = [*its.qemu_command(), *what.qemu_options(Path(folder))]
        ours = modules(what)
        script = what.script(names)
        files = what.files(what.source)
        image = lab.image(its, kernel, what.all_needs(), ours, script, patched(what), files, what.iommu)
        settings = Boot(
            kernel.vmlinuz,
            image,
            what.mode,
            cpus=what.cpus,
            iommu=what.iommu,
            timeout_s=what.timeout_s,
            quiet_s=what.quiet_s,
            words=what.words,
        )
        try:
            await Guest("-".join(what.topics), qemu, settings, Path(folder), on_record).run()
        except UserError as error:
            outcome.error = error
    return outcome
