# SPDX-License-Identifier: GPL-2.0-only
"""Shared by all tests: the command line that repeats a failed test, and a summary.

The summary is SYNTHETIC: figures made up for tests only. No machine ever measured these.
"""

from __future__ import annotations

import json
import os
from collections.abc import Generator
from typing import Any

import pytest
from tests.python import documents as json_documents
from tests.python.fake_kernel import Kernel, Refuses, end, everything
from tests.python.fake_network import Network

from xsmmu import disks, essential, native, output
from xsmmu.errors import UserError
from xsmmu_lab.report import nanoseconds
from xsmmu_lab.setup import host

SETTINGS = ("SEED", "TORTURE_S", "CYCLES")
"""Variables that change a test's behaviour."""


def pytest_configure() -> None:
    """A killed run ends its guests and removes its folders, as an interrupted run does."""
    host.interrupt_on_sigterm()


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """The longest tests begin first; short tests then keep both workers busy to the end."""
    files = {item.path for item in items if item.get_closest_marker("guest") or item.get_closest_marker("early")}
    items.sort(key=lambda item: item.path not in files)


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(
    item: pytest.Item, call: pytest.CallInfo[Any]
) -> Generator[None, pytest.TestReport, pytest.TestReport]:
    """A failure prints the line that repeats the test, on any machine, and a program's last lines."""
    report = yield
    if report.failed:
        if call.excinfo is not None and isinstance(call.excinfo.value, UserError) and call.excinfo.value.lines:
            report.sections.append(("output", "\n".join(call.excinfo.value.lines)))
        words = [f"{name}={os.environ[name]}" for name in SETTINGS if name in os.environ]
        targets = {"planted": "mutants", "long": "test-long"}
        target = next((targets[mark.name] for mark in item.iter_markers() if mark.name in targets), "test")
        report.sections.append(("replay", " ".join([*words, f"make {target} TESTS='{item.nodeid}'"])))
    return report


@pytest.fixture(autouse=True)
def network(monkeypatch: pytest.MonkeyPatch) -> Network:
    """No test sees the network and the disks of its host."""
    made = Network()
    monkeypatch.setattr(essential, "View", made.view)
    monkeypatch.setattr(disks, "claim", made.claim)
    for name in ("SSH_CONNECTION", "TMUX", "STY", "ZELLIJ"):
        monkeypatch.delenv(name, raising=False)
    return made


@pytest.fixture(autouse=True)
def documents(monkeypatch: pytest.MonkeyPatch) -> Generator[list[json_documents.Document]]:
    """All JSON documents that the tool makes in a test; each must fit its schema."""
    made: list[json_documents.Document] = []
    make = output.document

    def record(name: str, /, **fields: Any) -> dict[str, Any]:
        made.append(make(name, **fields))
        return made[-1]

    monkeypatch.setattr(output, "document", record)
    yield made
    assert [fault for each in made if (fault := json_documents.fault(each))] == []


_LEVELS = {
    "passthrough": "none",
    "kernel-strict": "strict",
    "kernel-lazy": "lazy",
    "strict": "strict",
    "lazy": "lazy",
    "fands": "bounded",
    "xsmmu": "held",
    "fused": "held",
}

# policy: map, unmap, inv/page, exposure p50/p99/max us, last landed ns, relative cost
_FIGURES: dict[str, tuple[float, float, float | None, tuple[float, float, float] | None, int, float]] = {
    "passthrough": (90, 70, None, None, 20_000_000, 1.0),
    "kernel-strict": (800, 1700, 1.0, None, 0, 1.5),
    "kernel-lazy": (800, 1200, 0.0040, None, 11_000_000, 1.3),
    "strict": (700, 1650, 1.0, (0, 0, 0), 0, 1.45),
    "lazy": (700, 900, 0.0039, (4000, 9900, 10050), 9_800_000, 1.28),
    "fands": (480, 260, 0.0156, (14, 900, 2100), 1_900_000, 1.12),
    "xsmmu": (560, 550, 0.00098, (210, 480, 600), 550_000, 1.10),
    "fused": (440.5, 140.25, 0.0156, (95, 200, 240), 230_000, 1.04),
}


def _run(workload: str, policy: str, **extra: Any) -> dict[str, Any]:
    ours = policy in ("strict", "lazy", "fands", "xsmmu", "fused")
    inv, exposure = _FIGURES[policy][2:4]
    counts = None if inv is None else {"page": round(inv * 100_000), "domain": 0, "global": 0}
    return {
        "workload": workload,
        "policy": policy,
        "driver": "unmodified",
        "level": _LEVELS[policy],
        "pages_mapped": 100_000,
        "pages_unmapped": 100_000,
        "map_instructions_per_page": None,
        "unmap_instructions_per_page": None,
        "invalidations": counts if ours else None,
        "oracle_invalidations": counts,
        "invalidations_per_page": inv,
        "exposure_us": dict(zip(("p50", "p99", "max"), exposure, strict=True)) if exposure else None,
        "throughput": None,
        "relative_to_passthrough": None,
        **extra,
    }


@pytest.fixture(params=["table", "json"])
def refuses(
    kernel: Kernel, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], request: pytest.FixtureRequest
) -> Refuses:
    """Checks refusals as text and as JSON; nothing is changed."""

    def check(words: list[str], expected: tuple[int, str, str]) -> None:
        status, code, message = expected
        before = everything(kernel)
        form = ["-o", "json"] if request.param == "json" else []
        ended, _, said = end(monkeypatch, capsys, words[0], *form, *words[1:])
        assert ended == status
        if form:
            error = json.loads(said)
            assert error["schema"] == "xsmmu.error/1"
            assert error["code"] == code
            said = error["message"]
        assert message in said
        assert not kernel.writes
        assert everything(kernel) == before

    return check


RATE = nanoseconds.Rate(20.0, 16.0, 36.5, "a made-up CPU", "0.0")

LAZY = native.Row(
    policy="kernel-lazy",
    driver="unmodified",
    tables="kernel",
    bytes=4096,
    pages=1,
    ring=1024,
    list=0,
    walk_mib=0,
    cpus=1,
    wait_ns=1000,
    ns_per_page=100.0,
    low=99.0,
    high=101.0,
    map_ns=60.0,
    unmap_ns=40.0,
    inv_per_page=0.004,
)
"""A plain row of `make native`."""


@pytest.fixture(scope="session", autouse=True)
def rate() -> Generator[None]:
    """Instructions a nanosecond; texts that tests expect must not change with the accepted figures."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(nanoseconds, "rate", lambda: RATE)
        yield


@pytest.fixture
def synthetic() -> dict[str, Any]:
    """A summary that a test may change."""
    return summary()


@pytest.fixture(scope="session")
def pristine() -> dict[str, Any]:
    """The same summary for a module's tests, made once; not to be changed."""
    return summary()


def summary() -> dict[str, Any]:
    """Two rings, three I/O workloads and an attack under every policy."""
    runs = []
    for policy, (map_cost, unmap_cost, inv, _, landed_ns, relative) in _FIGURES.items():
        for ring, factor in ((64, 1.1), (1024, 1.0)):
            runs.append(
                _run(
                    "micro",
                    policy,
                    ring=ring,
                    map_instructions_per_page=map_cost * factor,
                    unmap_instructions_per_page=unmap_cost * factor,
                )
            )
        for workload, device, unit, base in (
            ("net-rx", "e1000e", "instructions/KiB", 12_000.0),
            ("net-tx", "igb", "instructions/KiB", 8_000.0),
        ):
            runs.append(
                _run(
                    workload,
                    policy,
                    device=device,
                    cost={"value": base * relative, "unit": unit},
                    invalidations_per_unit=None if inv is None else inv / 4,
                    throughput={"value": 1000 / relative, "unit": "Mbit/s"},
                )
            )
        runs.append(
            _run(
                "nvme",
                policy,
                variant="4k",
                relative_to_passthrough=relative,
                throughput={"value": 90_000 / relative, "unit": "IOPS"},
            )
        )
        landed = landed_ns // 200
        runs.append(
            _run(
                "attack",
                policy,
                attack={
                    "attempts": 2_000_000,
                    "landed": landed,
                    "landed_freed": 0 if policy in ("xsmmu", "fused") else landed // 10,
                    "landed_reused": 0 if policy in ("xsmmu", "fused") else landed - landed // 10,
                    "landed_before_flush": None,
                    "last_landed_ns": {"p50": landed_ns * 0.9, "max": landed_ns},
                    "window_us": 20_000,
                },
            )
        )
    return {
        "schema": 1,
        "synthetic": True,
        "commit": "synthetic",
        "kernel": "0.0-synthetic",
        "iommu": "synthetic IOMMU",
        "qemu": "0.0",
        "accel": "icount",
        "command": "make synthetic",
        "versions": {"synthetic-fio": "0"},
        "runs": runs,
    }
