# SPDX-License-Identifier: GPL-2.0-only
"""A module that miscounts its invalidations must make the lab fail."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import pytest
from rich.console import Console

from xsmmu import build, lab
from xsmmu.errors import LabError
from xsmmu.kernels import Kernel
from xsmmu.root import Root

WORLD = "kmod/world.c"


def broken_sources(folder: Path, old: str, new: str) -> Path:
    """The module's sources with one line of one file changed."""
    files = build.sources(build.PROJECT, build.MODULE_PARTS)
    assert files[WORLD].count(old.encode()) >= 1
    files[WORLD] = files[WORLD].replace(old.encode(), new.encode())
    for name, content in files.items():
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_bytes(content)
    return folder


def run_broken(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, old: str, new: str, options: lab.Options) -> None:
    """A run of the lab whose module has one line of world.c changed."""
    sources = broken_sources(tmp_path / "sources", old, new)
    real = lab.modules

    def broken(root: Root, kernel: Kernel, policies: Sequence[str]) -> list[Path]:
        made = [path for path in real(root, kernel, policies) if path.name != "xsmmu.ko"]
        return [*build.module(root, kernel, sources), *made]

    monkeypatch.setattr(lab, "modules", broken)
    lab.run(options, Console(stderr=True))


@pytest.mark.guest
@pytest.mark.parametrize(
    ("policy", "old", "new", "kind"),
    [
        # One command in 64 is not counted.
        ("strict", "sent->page++;", "sent->page += range->page % 64 != 0;", "page"),
        ("xsmmu", "sent->domain++;", ";", "domain"),
    ],
)
def test_a_skipped_counter_is_noticed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, policy: str, old: str, new: str, kind: str
) -> None:
    options = lab.Options(policies=(policy,), workloads=("micro/64",), output=tmp_path / "results")
    message = rf"micro/64 under {policy}: the module's .*differ.* \({kind}: module \d+, QEMU \d+\)"
    with pytest.raises(LabError, match=message):
        run_broken(tmp_path, monkeypatch, old, new, options)


@pytest.mark.guest
@pytest.mark.parametrize(
    ("old", "new", "message"),
    [
        # Counted and not sent.
        (
            "xs_domain_sync_map(group->domain, iova,\n\t\t\t\t       (size_t)pages << PAGE_SHIFT)",
            "0",
            r"differ.* \(page: module \d+, QEMU \d+\)",
        ),
        # Neither sent nor counted.
        (
            "needs_sync = VTD_CAP_RWBF(cap) || VTD_CAP_CM(cap)",
            "needs_sync = VTD_CAP_RWBF(cap)",
            r"\d+ maps had 0 map-side",
        ),
    ],
)
def test_a_skipped_map_side_sync_is_noticed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, old: str, new: str, message: str
) -> None:
    workloads = ("micro/1024-cached",)
    options = lab.Options(
        experiment="claim-d-mapsync", policies=("fused",), workloads=workloads, output=tmp_path / "results"
    )
    with pytest.raises(LabError, match=message):
        run_broken(tmp_path, monkeypatch, old, new, options)
