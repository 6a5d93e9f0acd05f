# SPDX-License-Identifier: GPL-2.0-only
"""A module that miscounts its invalidations, or breaks the promise of its level, must make the lab fail."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path

import pytest
from rich.console import Console
from tests.python import guests

from xsmmu.errors import UserError
from xsmmu_lab.project import PROJECT
from xsmmu_lab.runs import run as lab
from xsmmu_lab.setup import build
from xsmmu_lab.setup.kernels import Kernel
from xsmmu_lab.setup.root import Root

COUNTS = "kmod/iommu/iommu.h"
INVALIDATIONS = "kmod/domain/invalidate.c"
VTD = "kmod/iommu/vtd.c"

SKIPPED_COUNTERS = [
    # One command in 64 is not counted.
    ("strict", COUNTS, "sent->page++;", "sent->page += range->page % 64 != 0;", "page"),
    ("xsmmu", INVALIDATIONS, "sent->domain += !backend->domain.iommu.kicks;", ";", "domain"),
]
SKIPPED_FLUSHES = [
    # Counted and not sent.
    (
        INVALIDATIONS,
        "xs_domain_sync_map(domain, iova, pages << PAGE_SHIFT)",
        "0",
        r"differ.* \(page: module \d+, QEMU \d+\)",
    ),
    # Neither sent nor counted.
    (VTD, "u64 cap = CAP_RWBF | CAP_CM;", "u64 cap = 0;", r"\d+ maps had 0 map-side"),
]
BROKEN_LEVELS: list[tuple[str, str, dict[str, str], str]] = [
    # The driver's flush does nothing, so it is the timer that ends the exposure.
    (
        "attack/burst-aware",
        "kmod/dma/aware.c",
        {"xs_engine_flush_explicit(&backend->engine, all_cpus);": ";"},
        r"disproves the level strict: \d+ of \d+ writes landed",
    ),
    # Pages that are said to be held are not.
    (
        "attack/burst",
        "kmod/platform.h",
        {
            "return !xs_fake_heads() && atomic_inc_not_zero(&folio->_refcount);": "return folio;",
            "#define xs_ref_release(ref)\tfolio_put(ref)": "#define xs_ref_release(ref)\tdo { } while (0)",
        },
        r"disproves the level held: \d+ writes landed in pages that were given back",
    ),
    # The timer comes four windows late.
    (
        "attack/burst",
        "core/flush.c",
        {"return window_ns - window_ns / 8;": "return window_ns * 4;"},
        r"after its unmap, and max_window_us is 1000",
    ),
]


def run_broken(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    options: lab.Options,
    changes: Mapping[str, str],
    file: str,
) -> None:
    """A run of the lab with some lines of a file of the module changed."""
    sources = guests.broken_sources(tmp_path / "sources", file, changes)
    real = lab.modules

    def broken(root: Root, kernel: Kernel, policies: Sequence[str]) -> list[Path]:
        made = [path for path in real(root, kernel, policies) if path.name != "xsmmu.ko"]
        return [*build.module(root, kernel, sources), *made]

    monkeypatch.setattr(lab, "modules", broken)
    lab.run(options, Console(stderr=True))


def test_each_bug_that_is_planted_below_fits() -> None:
    """The planted bugs run on demand only; without this test, a renamed line would go unnoticed."""
    planted = [(file, old) for _, file, old, *_ in SKIPPED_COUNTERS]
    planted += [(file, old) for file, old, *_ in SKIPPED_FLUSHES]
    planted += [(file, old) for _, file, changes, _ in BROKEN_LEVELS for old in changes]
    assert [(file, old) for file, old in planted if old not in (PROJECT / file).read_text()] == []


@pytest.mark.guest
@pytest.mark.planted
@pytest.mark.parametrize(
    ("policy", "file", "old", "new", "kind"),
    SKIPPED_COUNTERS,
)
def test_a_skipped_counter_is_noticed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, policy: str, file: str, old: str, new: str, kind: str
) -> None:
    options = lab.Options(policies=(policy,), workloads=("micro/64",), output=tmp_path / "results")
    message = rf"micro/64 under {policy}: the module's .*differ.* \({kind}: module \d+, QEMU \d+\)"
    with pytest.raises(UserError, match=message):
        run_broken(tmp_path, monkeypatch, options, {old: new}, file)


@pytest.mark.guest
@pytest.mark.planted
@pytest.mark.parametrize(
    ("file", "old", "new", "message"),
    SKIPPED_FLUSHES,
)
def test_a_skipped_map_side_flush_is_noticed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, file: str, old: str, new: str, message: str
) -> None:
    workloads = ("micro/1024-cached",)
    options = lab.Options(
        experiment="claim-d-mapsync", policies=("fused",), workloads=workloads, output=tmp_path / "results"
    )
    with pytest.raises(UserError, match=message):
        run_broken(tmp_path, monkeypatch, options, {old: new}, file)


@pytest.mark.guest
@pytest.mark.planted
@pytest.mark.parametrize(
    ("workload", "file", "changes", "message"),
    BROKEN_LEVELS,
    ids=["flush", "hold", "window"],
)
def test_a_level_that_is_not_kept_is_noticed(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    workload: str,
    file: str,
    changes: Mapping[str, str],
    message: str,
) -> None:
    options = lab.Options(policies=("fused",), workloads=(workload,), output=tmp_path / "results")
    with pytest.raises(UserError, match=message):
        run_broken(tmp_path, monkeypatch, options, changes, file)
