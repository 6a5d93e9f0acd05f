# SPDX-License-Identifier: GPL-2.0-only
"""The output for Prometheus, parsed by Prometheus's own parser."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest
from click.testing import CliRunner
from prometheus_client import Metric
from prometheus_client.parser import text_string_to_metric_families
from tests.python.sysfs import IGB, NVME0, NVME1, STATS, make_device

from xsmmu import metrics, module
from xsmmu.cli import app
from xsmmu.errors import UserError
from xsmmu.machine import Device


@pytest.fixture
def sysfs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A NIC under fused; two controllers in a group under xsmmu; a device on the kernel's own path."""
    monkeypatch.setenv("XSMMU_SYSFS", str(tmp_path))
    make_device(tmp_path, IGB, 11, "fused", "igb", interface="eth1")
    make_device(tmp_path, NVME0, 13, "xsmmu", "nvme", disk="nvme0n1")
    make_device(tmp_path, NVME1, 13, "xsmmu", "nvme")
    folder = make_device(tmp_path, "0000:09:00.0", 20, "none", "e1000e", state="off")
    (folder / "stats/mapped_pages").write_text("0\n")
    return tmp_path


def families(*arguments: str) -> dict[str, Metric]:
    result = CliRunner().invoke(app, ["metrics", *arguments], catch_exceptions=False)
    assert result.exit_code == 0, result.output
    return {family.name: family for family in text_string_to_metric_families(result.output)}


def values(family: Metric, device: str, label: str | None = None) -> dict[str, float]:
    return {
        sample.labels.get(label or "", ""): sample.value
        for sample in family.samples
        if sample.labels["device"] == device
    }


def info(policy: str, path: str, level: str, state: str) -> dict[str, str]:
    return {"policy": policy, "path": path, "level": level, "state": state}


@pytest.mark.usefixtures("sysfs")
def test_metrics() -> None:
    found = families()
    assert all(family.documentation for family in found.values())
    assert found["xsmmu_module_loaded"].samples[0].value == 1
    assert found["xsmmu_module_info"].samples[0].labels == {"version": "0.1.0"}
    pages = found["xsmmu_mapped_pages"]
    assert pages.type == "counter"
    assert [sample.labels for sample in pages.samples] == [
        {"device": IGB, "group": "11"},
        {"device": f"{NVME0},{NVME1}", "group": "13"},
    ]
    assert [sample.labels for sample in found["xsmmu_group_info"].samples] == [
        {"device": IGB, "group": "11", "names": "eth1", **info("fused", "fused", "held", "active")},
        {
            "device": f"{NVME0},{NVME1}",
            "group": "13",
            "names": "nvme0n1",
            **info("xsmmu", "xsmmu", "held", "active"),
        },
    ]
    assert values(found["xsmmu_deferred_pages"], IGB) == {"": 2300}
    assert values(found["xsmmu_exposure_max_seconds"], IGB) == {"": 1.999e-06}
    assert values(found["xsmmu_exposure_bound_seconds"], IGB) == {"": 0.001}
    assert values(found["xsmmu_invalidations"], IGB, "kind") == {"page": 100, "domain": 20, "global": 0}
    assert values(found["xsmmu_flushes"], IGB, "cause") == {"unmap": 100, "poll": 20}
    assert values(found["xsmmu_protection_level"], IGB) == {"": 3}
    assert values(found["xsmmu_attached"], IGB) == {"": 1}
    assert found["xsmmu_held_pages"].type == "gauge"


@pytest.mark.usefixtures("sysfs")
@pytest.mark.parametrize(
    ("level", "number"), [("none", 0), ("lazy", 1), ("bounded", 2), ("held", 3), ("strict", 4), ("sealed", 0), ("", 0)]
)
def test_the_number_of_a_level(level: str, number: int) -> None:
    """A level that only a newer module has is unknown."""
    (Device(IGB).folder / "xsmmu/level").write_text(f"{level}\n")
    assert values(families()["xsmmu_protection_level"], IGB) == {"": number}


@pytest.mark.usefixtures("sysfs")
@pytest.mark.parametrize(
    ("state", "taken"),
    [
        ("off", 0),
        ("idle", 0),
        ("failed", 0),
        ("attached", 1),
        ("active", 1),
        ("torn", 1),
        ("orphaned", 1),
        ("stuck", 1),
    ],
)
def test_what_is_chosen_is_not_attached_yet(state: str, taken: int) -> None:
    (Device(IGB).folder / "xsmmu/state").write_text(f"{state}\n")
    assert values(families()["xsmmu_attached"], IGB) == {"": taken}


@pytest.mark.usefixtures("sysfs")
def test_what_was_given_back_keeps_its_counters() -> None:
    """The counters run from the module's load on."""
    for name, word in {"policy": "[none] strict fused", "level": "none", "state": "off"}.items():
        (Device(IGB).folder / "xsmmu" / name).write_text(f"{word}\n")
    found = families()
    group = {"device": IGB, "group": "11"}
    assert found["xsmmu_mapped_pages"].samples[0].labels == group
    assert found["xsmmu_mapped_pages"].samples[0].value == 2400
    [about] = [each.labels for each in found["xsmmu_group_info"].samples if each.labels["group"] == "11"]
    assert about == {**group, "names": "eth1", **info("none", "kernel-lazy", "lazy", "off")}
    # 0 would mean that the device reaches all memory.
    assert values(found["xsmmu_protection_level"], IGB) == {"": 1}
    assert values(found["xsmmu_exposure_bound_seconds"], IGB) == {}


@pytest.mark.usefixtures("sysfs")
@pytest.mark.parametrize(("policy", "level"), [("strict", "strict"), ("lazy", "lazy"), ("none", "none")])
def test_a_change_of_policy_ends_no_series(policy: str, level: str) -> None:
    """Except the series of the information."""

    def series() -> set[tuple[str, frozenset[tuple[str, str]]]]:
        samples = [sample for family in families().values() for sample in family.samples]
        kept = [each for each in samples if each.name not in ("xsmmu_group_info", "xsmmu_exposure_bound_seconds")]
        return {(each.name, frozenset(each.labels.items())) for each in kept}

    before = series()
    (Device(IGB).folder / "xsmmu/policy").write_text(f"none [{policy}] fused\n")
    (Device(IGB).folder / "xsmmu/level").write_text(f"{level}\n")
    assert series() == before


@pytest.mark.parametrize("name", ['a"b', "a\\b", "a b", "\x1bm"])
def test_a_name_of_any_characters(sysfs: Path, name: str) -> None:
    make_device(sysfs, "0000:0a:00.0", 21, "fused", "e1000e", interface=name)
    [about] = [each.labels for each in families()["xsmmu_group_info"].samples if each.labels["group"] == "21"]
    assert about["names"] == Device("0000:0a:00.0").names[0]


@pytest.mark.usefixtures("sysfs")
def test_a_device_that_goes_meanwhile_is_left_out(monkeypatch: pytest.MonkeyPatch) -> None:
    real = module.read

    def read(device: Device) -> module.Sample:
        if device == Device(IGB):
            raise module.gone(device)
        return real(device)

    monkeypatch.setattr(module, "read", read)
    assert [each.labels["group"] for each in families()["xsmmu_mapped_pages"].samples] == ["13"]


@pytest.mark.usefixtures("sysfs")
def test_a_group_is_there_as_long_as_one_of_its_devices(monkeypatch: pytest.MonkeyPatch) -> None:
    real = module.exposure_ns

    def read(device: Device) -> list[tuple[int, int]]:
        if device == Device(NVME0):
            raise module.gone(device)
        return real(device)

    monkeypatch.setattr(module, "exposure_ns", read)
    assert [each.labels["group"] for each in families()["xsmmu_mapped_pages"].samples] == ["11", "13"]


@pytest.mark.usefixtures("sysfs")
def test_a_group_whose_pages_were_all_reachable_for_no_time() -> None:
    """Nothing was unmapped yet."""
    (Device(IGB).folder / "xsmmu/exposure_ns").write_text("max 0\n")
    assert [each.labels["group"] for each in families()["xsmmu_mapped_pages"].samples] == ["11", "13"]


@pytest.mark.usefixtures("sysfs")
def test_each_statistic_has_a_metric() -> None:
    rows = {row.statistic for row in metrics.ROWS}
    # The other metrics count the same pages in another unit.
    assert {name for name in STATS if not any(name.startswith(row) for row in rows)} == {"maps", "unmaps"}


@pytest.mark.usefixtures("sysfs")
def test_the_histogram() -> None:
    (Device(IGB).folder / "xsmmu/exposure_ns").write_text("255 5\n1023 10\n1279 1\n2047 3\nmax 1999\n")
    family = families()["xsmmu_exposure_seconds"]
    assert family.type == "histogram"
    buckets = values(family, IGB, "le")
    assert [buckets[end] for end in ("2.56e-07", "5.12e-07", "1.024e-06", "2.048e-06", "+Inf")] == [5, 5, 15, 19, 19]
    counts = [sample.value for sample in family.samples if sample.name.endswith("_count")]
    assert counts == [19, 13]
    # The same buckets whatever the counts: a bucket that appears later has no rate.
    names = {
        sample.labels["le"]
        for sample in family.samples
        if sample.labels["device"] == f"{NVME0},{NVME1}" and "le" in sample.labels
    }
    assert names == {name for name in buckets if name}


def test_the_file_is_written_as_a_whole(sysfs: Path) -> None:
    file = sysfs / "xsmmu.prom"
    assert families("--output-file", str(file)) == {}
    assert "xsmmu_bad_unmaps_total{" in file.read_text()
    assert file.stat().st_mode & 0o777 == 0o644
    assert [path.name for path in sysfs.glob("*xsmmu.prom*")] == ["xsmmu.prom"]


@pytest.mark.usefixtures("sysfs")
def test_a_folder_that_is_not_there() -> None:
    with pytest.raises(UserError, match="folder /no/folder does not exist: create the folder"):
        families("--output-file", "/no/folder/xsmmu.prom")


def test_without_the_module(sysfs: Path) -> None:
    shutil.rmtree(sysfs / "module/xsmmu")
    for device in (IGB, NVME0, NVME1, "0000:09:00.0"):
        shutil.rmtree(Device(device).folder / "xsmmu")
    found = families()
    assert list(found) == ["xsmmu_module_loaded"]
    assert found["xsmmu_module_loaded"].samples[0].value == 0


@pytest.mark.parametrize("target", ["precious", "/proc/self/fd/1", "/dev/null", "nothing", "xsmmu.prom"])
def test_a_link_in_place_of_the_file_is_neither_followed_nor_replaced(sysfs: Path, target: str) -> None:
    """The folder's owner must not make root write elsewhere; and /dev/stdout must survive."""
    precious = sysfs / "precious"
    precious.write_text("precious\n")
    link = sysfs / "xsmmu.prom"
    link.symlink_to(target)
    with pytest.raises(UserError, match="a symbolic link is not followed") as error:
        families("--output-file", str(link))
    assert error.value.code == "cannot-write"
    assert str(link.readlink()) == target
    assert precious.read_text() == "precious\n"
    assert not (sysfs / "nothing").exists()


def test_the_file_keeps_its_mode(sysfs: Path) -> None:
    file = sysfs / "xsmmu.prom"
    # But not the set-user-ID bit.
    for before, after in ((None, 0o644), (0o600, 0o600), (0o4640, 0o640)):
        if before:
            file.chmod(before)
        families("--output-file", str(file))
        assert file.stat().st_mode & 0o7777 == after
