# SPDX-License-Identifier: GPL-2.0-only
"""Watching and attaching on a made-up sysfs tree."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from typer.testing import CliRunner

from xsmmu.cli import app
from xsmmu.errors import LabError
from xsmmu.operator import attach, watch
from xsmmu.operator.watch import Sample, Window

IGB, NVME0, NVME1 = "0000:01:00.0", "0000:05:00.0", "0000:06:00.0"
STATS = {"inv_page": 100, "inv_domain": 20, "inv_global": 0, "unmapped_pages": 2400}


def make_device(sysfs: Path, device: str, group: int, policy: str, driver: str | None = None) -> Path:
    """A device as the module shows it."""
    base = sysfs / "bus/pci/devices" / device
    folder = base / "xsmmu"
    (folder / "stats").mkdir(parents=True)
    menu = ["none", "strict", "lazy", "fands", "xsmmu", "fused"]
    text = " ".join(f"[{name}]" if name == policy else name for name in menu)
    for name, content in {"policy": text, "level": "held", "state": "active", "max_window_us": "1000"}.items():
        (folder / name).write_text(content + "\n")
    for name, value in STATS.items():
        (folder / "stats" / name).write_text(f"{value}\n")
    members = sysfs / f"kernel/iommu_groups/{group}/devices"
    members.mkdir(parents=True, exist_ok=True)
    (members / device).symlink_to(base)
    (base / "iommu_group").symlink_to(members.parent)
    if driver:
        (sysfs / "bus/pci/drivers" / driver).mkdir(parents=True, exist_ok=True)
        (base / "driver").symlink_to(sysfs / "bus/pci/drivers" / driver)
    return folder


@pytest.fixture
def sysfs(tmp_path: Path) -> Path:
    """A NIC under fused; two controllers in one group under xsmmu."""
    make_device(tmp_path, IGB, 11, "fused", "igb")
    make_device(tmp_path, NVME0, 13, "xsmmu", "nvme")
    make_device(tmp_path, NVME1, 13, "xsmmu", "nvme")
    return tmp_path


def window() -> Window:
    """Ten seconds with the figures of the research tree's own example."""
    first = Sample(0, (IGB,), "xsmmu", "held", "active", dict.fromkeys(STATS, 0))
    stats = {"inv_page": 869, "inv_domain": 636_129, "inv_global": 0, "unmapped_pages": 8_355_443}
    return Window(first, Sample(10_000_000_000, (IGB,), "xsmmu", "held", "active", stats))


def test_the_line_pair() -> None:
    assert window().lines() == (
        "invalidations 636,998 (63,700/s)  page 869 (87/s)  domain 636,129 (63,613/s)  global 0 (0/s)",
        "IOVA pages unmapped 8,355,443 (835,544/s)  inv/page 0.0762  domain/page 0.0761",
    )


def test_ratios_without_pages_are_not_zero() -> None:
    sample = Sample(0, (IGB,), "fused", "held", "idle", STATS)
    still = Window(sample, Sample(1_000_000_000, (IGB,), "fused", "held", "idle", STATS))
    assert still.as_dict()["invalidations_per_page"] is None
    assert "inv/page -" in still.lines()[1]


def test_a_group_is_watched_once(sysfs: Path) -> None:
    assert watch.groups(None, sysfs) == [IGB, NVME0]
    assert watch.read(NVME1, sysfs).devices == (NVME0, NVME1)
    assert watch.groups(NVME1, sysfs) == [NVME1]


def test_watch_prints_two_lines_for_each_group(sysfs: Path) -> None:
    result = CliRunner().invoke(app, ["lab", "watch", "--interval", "0.01", "--count", "2", "--sysfs", str(sysfs)])
    assert result.exit_code == 0, result.output
    lines = result.output.splitlines()
    assert len(lines) == 2 * 2 * 3
    assert lines[0].startswith(f"{IGB} fused (held)")
    assert lines[3].startswith(f"{NVME0} {NVME1} xsmmu (held)")
    assert lines[1].startswith("  invalidations 0 (0/s)")


def test_watch_as_json(sysfs: Path) -> None:
    arguments = ["lab", "watch", "--interval", "0.01", "--count", "1", "--json", "--device", IGB, "--sysfs", str(sysfs)]
    figures = json.loads(CliRunner().invoke(app, arguments).output)
    assert figures["devices"] == [IGB]
    assert figures["invalidations"] == {"page": 0, "domain": 0, "global": 0}


def test_nothing_to_watch_says_what_to_do(tmp_path: Path) -> None:
    with pytest.raises(LabError, match="load the module"):
        watch.groups(None, tmp_path)
    make_device(tmp_path, IGB, 11, "none")
    with pytest.raises(LabError, match=f"choose one with `xsmmu attach` for one of {IGB}"):
        watch.groups(None, tmp_path)
    with pytest.raises(LabError, match=f"no device '0000:00:00.0' .* choose from {IGB}"):
        watch.groups("0000:00:00.0", tmp_path)


def test_devices_are_listed(sysfs: Path) -> None:
    result = CliRunner().invoke(app, ["devices", "--sysfs", str(sysfs)])
    assert result.output.splitlines()[1].split() == [IGB, "11", "igb", "fused", "held", "active"]
    rows = json.loads(CliRunner().invoke(app, ["devices", "--json", "--sysfs", str(sysfs)]).output)
    assert [row["policy"] for row in rows] == ["fused", "xsmmu", "xsmmu"]


def test_attach_writes_the_policy_and_the_bound(sysfs: Path) -> None:
    attach.choose(IGB, "strict", 250, sysfs)
    folder = sysfs / "bus/pci/devices" / IGB / "xsmmu"
    assert (folder / "policy").read_text() == "strict"
    assert (folder / "max_window_us").read_text() == "250"


def test_attach_refuses_unknown_policies_and_bound_drivers(sysfs: Path) -> None:
    with pytest.raises(LabError, match="unknown policy 'fuse': choose from none, strict"):
        attach.choose(IGB, "fuse", None, sysfs)
    with pytest.raises(LabError, match=f"{NVME0} is bound to nvme.*echo {NVME0} > .*nvme/unbind"):
        attach.choose(NVME1, "none", None, sysfs)
    folder = make_device(sysfs, "0000:09:00.0", 20, "none", "e1000e")
    with pytest.raises(LabError, match="bound to e1000e"):
        attach.choose("0000:09:00.0", "fused", None, sysfs)
    assert "[none]" in (folder / "policy").read_text()
