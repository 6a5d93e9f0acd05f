# SPDX-License-Identifier: GPL-2.0-only
"""The operator's commands on a made-up sysfs tree."""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
import sys
from datetime import datetime
from pathlib import Path

import pytest
from click.testing import CliRunner, Result
from tests.python.sysfs import IGB, NVME0, NVME1, STATS, USED, load_anew, make_device, used_text

from xsmmu import machine, module, output, status
from xsmmu.cli import app
from xsmmu.errors import UserError
from xsmmu.machine import Device
from xsmmu.module import Sample
from xsmmu.watch import Window


@pytest.fixture
def sysfs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A NIC under fused; two controllers in a group under xsmmu."""
    monkeypatch.setenv("XSMMU_SYSFS", str(tmp_path))
    monkeypatch.setenv("XSMMU_MODPROBE_CONF", str(tmp_path / "modprobe.conf"))
    make_device(tmp_path, IGB, 11, "fused", "igb", interface="eth1")
    make_device(tmp_path, NVME0, 13, "xsmmu", "nvme", disk="nvme0n1")
    make_device(tmp_path, NVME1, 13, "xsmmu", "nvme")
    return tmp_path


def xsmmu(*arguments: str) -> Result:
    return CliRunner().invoke(app, arguments)


def document(*arguments: str) -> dict[str, list[dict[str, object]]]:
    found: dict[str, list[dict[str, object]]] = json.loads(xsmmu(*arguments).output)
    return found


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


def test_rates_are_of_a_second() -> None:
    figures = window().as_dict()
    assert figures["seconds"] == 10
    assert figures["invalidations_per_s"] == pytest.approx(63_699.8)
    assert figures["unmapped_pages_per_s"] == pytest.approx(835_544.3)
    assert figures["domain_invalidations_per_page"] == pytest.approx(636_129 / 8_355_443)


def test_ratios_without_pages_are_not_zero() -> None:
    sample = Sample(0, (IGB,), "fused", "held", "idle", STATS)
    still = Window(sample, Sample(1_000_000_000, (IGB,), "fused", "held", "idle", STATS))
    assert still.as_dict()["invalidations_per_page"] is None
    assert "inv/page -" in still.lines()[1]


@pytest.mark.usefixtures("sysfs")
def test_a_group_is_watched_once() -> None:
    assert list(module.groups()) == [Device(IGB), Device(NVME0)]
    assert module.read(Device(NVME1)).devices == (NVME0, NVME1)
    assert list(module.groups((Device(NVME1), Device(NVME0)))) == [Device(NVME1)]


@pytest.mark.usefixtures("sysfs")
def test_watch_prints_a_line_for_each_group() -> None:
    result = xsmmu("watch", "--interval", "0.01", "--count", "2")
    assert result.exit_code == 0, result.output
    lines = result.output.splitlines()
    assert len(lines) == 2 * 2
    first, second = (line.split(" ", 1) for line in lines[:2])
    assert abs((datetime.now().astimezone() - datetime.fromisoformat(first[0])).total_seconds()) < 100
    assert first[1] == (
        "eth1 fused held  pages 0/s  inv 0/s (page 0/s domain 0/s global 0/s)  inv/page -  at once -  p99 -  max -  "
        "bound 1.00ms"
    )
    assert second[1].startswith("nvme0n1 xsmmu held  ")


def works(monkeypatch: pytest.MonkeyPatch, exposure: str, device: str = IGB, **more: int) -> None:
    """Count this while the tool sleeps."""

    def work(_: float) -> None:
        folder = Device(device).folder / "xsmmu"
        for name, count in more.items():
            file = folder / "stats" / name
            file.write_text(f"{int(file.read_text()) + count}\n")
        (folder / "exposure_ns").write_text(exposure)

    monkeypatch.setattr("time.sleep", work)


@pytest.mark.usefixtures("sysfs")
def test_watch_has_the_exposure_beside_its_bound(monkeypatch: pytest.MonkeyPatch) -> None:
    works(monkeypatch, "1024 10\n2048 3\n999999 5\nmax 918000\n", unmapped_pages=100, deferred_pages=75, inv_page=25)
    (row,) = document("watch", "eth1", "--count", "1", "-o", "json")["windows"]
    assert [row[name] for name in ("names", "path", "level", "deferred_pages")] == [["eth1"], "fused", "held", 75]
    assert [row[f"exposure_{name}_ns"] for name in ("p99", "max", "bound")] == [918_000, 918_000, 1_000_000]
    works(monkeypatch, "1024 10\n2048 3\n999999 5\n7340031 2\nmax 6290000\n", unmapped_pages=100, deferred_pages=75)
    said = xsmmu("watch", "eth1", "--count", "1").output
    assert said.endswith("at once 25.0%  p99 6.29ms  max 6.29ms  bound 1.00ms EXCEEDED\n")


@pytest.mark.usefixtures("sysfs")
def test_watch_has_the_level_of_the_path() -> None:
    """Not the level of a policy that is chosen and not in force."""
    (Device(IGB).folder / "xsmmu/state").write_text("idle\n")
    (row,) = document("watch", "eth1", "--count", "1", "--interval", "0.01", "-o", "json")["windows"]
    assert (row["policy"], row["path"], row["level"]) == ("fused", "kernel-lazy", "lazy")


@pytest.mark.usefixtures("sysfs")
def test_a_bucket_that_begins_within_the_bound_does_not_exceed_it(monkeypatch: pytest.MonkeyPatch) -> None:
    """The largest exposure may belong to an earlier interval."""
    works(monkeypatch, "1024 10\n2048 3\n1048575 5\nmax 6290000\n", unmapped_pages=100)
    assert "EXCEEDED" not in xsmmu("watch", "eth1", "--count", "1").output


@pytest.mark.usefixtures("sysfs")
def test_watch_as_json() -> None:
    lines = xsmmu("watch", "eth1", "--interval", "0.01", "--count", "2", "-o", "jsonl").output.splitlines()
    assert len(lines) == 2
    figures = json.loads(lines[0])
    assert figures["schema"] == "xsmmu.watch/1"
    assert figures["devices"] == [IGB]
    assert figures["invalidations"] == {"page": 0, "domain": 0, "global": 0}


@pytest.mark.usefixtures("sysfs")
def test_one_document_has_an_end() -> None:
    error = xsmmu("watch", "eth1", "--interval", "0.01", "-o", "json").exception
    assert isinstance(error, UserError)
    assert (error.status, error.code, error.message[:48]) == (
        2,
        "usage",
        "-o json without --count has no end: add --count,",
    )
    assert len(document("watch", "eth1", "--interval", "0.01", "--count", "2", "-o", "json")["windows"]) == 2


@pytest.mark.usefixtures("sysfs")
def test_lines_need_no_end(monkeypatch: pytest.MonkeyPatch) -> None:
    """A reader gets each line at once."""
    left = [1, 2, 3]
    monkeypatch.setattr("time.sleep", lambda _: left.pop())
    result = xsmmu("watch", "eth1", "-o", "jsonl")
    assert isinstance(result.exception, IndexError)
    assert len(result.output.splitlines()) == 3


@pytest.mark.usefixtures("sysfs")
@pytest.mark.parametrize("words", [("watch", "--interval"), ("top", "--interval"), ("doctor", "--sample")])
@pytest.mark.parametrize("value", ["nan", "inf", "-1", "x"])
def test_a_time_that_is_none(words: tuple[str, ...], value: str) -> None:
    result = xsmmu(*words, value)
    assert result.exit_code == 2
    assert f"Invalid value for '{words[1]}'" in result.output


@pytest.mark.usefixtures("sysfs")
def test_each_window_begins_where_the_last_one_ended(monkeypatch: pytest.MonkeyPatch) -> None:
    file = Device(IGB).folder / "xsmmu/stats/unmapped_pages"
    monkeypatch.setattr("time.sleep", lambda _: file.write_text(f"{int(file.read_text()) + 7}\n"))
    lines = xsmmu("watch", "eth1", "--count", "3", "-o", "jsonl").output.splitlines()
    assert [json.loads(line)["unmapped_pages"] for line in lines] == [7, 7, 7]


def test_nothing_to_watch_says_what_to_do(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XSMMU_SYSFS", str(tmp_path))
    with pytest.raises(UserError, match="modprobe xsmmu"):
        module.groups()
    make_device(tmp_path, IGB, 11, "none")
    with pytest.raises(UserError, match="no device has a policy: choose a policy with xsmmu set"):
        module.groups()


@pytest.mark.usefixtures("sysfs")
@pytest.mark.parametrize(
    ("name", "address"),
    [
        ("0000:01:00.0", IGB),
        ("01:00.0", IGB),
        ("eth1", IGB),
        ("nvme0n1", NVME0),
        ("nvme0", NVME0),
        ("0000:06:00.0", NVME1),
    ],
)
def test_a_device_has_many_names(name: str, address: str) -> None:
    assert machine.find(name).address == address


def test_an_address_may_be_in_capitals(sysfs: Path) -> None:
    make_device(sysfs, "0000:0a:00.0", 20, "none")
    for name in ("0000:0A:00.0", "0A:00.0"):
        assert machine.find(name) == Device("0000:0a:00.0")


@pytest.mark.parametrize(
    "name",
    [
        "wan+1",
        "wan,1",
        "eth0:1",
        "100%",
        "-n",
        "#lan",
        "lan$HOME",
        "übertragung",
        "a b",
        "[x]",
        "*",
        "~",
        "veth.1@2",
        "'q'",
    ],
)
def test_an_interface_may_have_any_name(sysfs: Path, name: str) -> None:
    make_device(sysfs, "0000:0a:00.0", 20, "none", "e1000e", interface=name)
    assert machine.find(name) == Device("0000:0a:00.0")


def test_names_are_of_the_nearest_device(sysfs: Path) -> None:
    """A virtio card, a partition, and a multipath disk."""
    below = sysfs / "bus/pci/devices" / NVME1 / "virtio0/net/ens9"
    below.mkdir(parents=True)
    (sysfs / "class/net/ens9").symlink_to(below)
    part = sysfs / "bus/pci/devices" / NVME0 / "nvme/nvme0/nvme0n1/nvme0n1p1"
    part.mkdir()
    (part / "partition").write_text("1\n")
    (sysfs / "class/block/nvme0n1p1").symlink_to(part)
    head = sysfs / "devices/virtual/nvme-subsystem/nvme-subsys0/nvme0n2"
    head.mkdir(parents=True)
    (sysfs / "class/block/nvme0n2").symlink_to(head)
    assert Device(NVME1).names == ("ens9",)
    assert Device(NVME0).names == ("nvme0n1", "nvme0n2")
    assert machine.find("nvme0n1p1") == Device(NVME0)
    assert machine.find("nvme0n2") == Device(NVME0)


@pytest.mark.usefixtures("sysfs")
def test_a_disk_by_its_file() -> None:
    """By links of udev, too."""
    assert machine.find("/dev/nvme0n1") == Device(NVME0)
    assert machine.find("/dev/nvme0") == Device(NVME0)
    assert machine.find("/dev/../dev/nvme0n1") == Device(NVME0)


@pytest.mark.usefixtures("sysfs")
def test_a_group_is_warned_of_once() -> None:
    """Its devices share the counts."""
    for address in (NVME0, NVME1):
        (Device(address).folder / "xsmmu/exposure_ns").write_text("1024 10\nmax 25700000\n")
    assert xsmmu("status").output.count("beyond the bound") == 1


@pytest.mark.parametrize(
    ("kind", "name", "below", "said"),
    [
        ("net", "bond0", ("lower_eth1", "lower_eth2"), "eth1, eth2"),
        ("net", "eth1.100", ("lower_eth1",), "eth1"),
        ("net", "br\x1b", ("lower_eth1",), "eth1"),
        ("block", "dm-0", ("slaves/nvme0n1p3",), "nvme0n1p3"),
        ("block", "md127", ("slaves/sda1", "slaves/sdb1"), "sda1, sdb1"),
    ],
)
def test_what_software_makes_is_on_no_device(
    sysfs: Path, kind: str, name: str, below: tuple[str, ...], said: str
) -> None:
    folder = sysfs / "devices/virtual" / kind / name
    for each in below:
        (folder / each).mkdir(parents=True)
    (sysfs / "class" / kind / name).symlink_to(folder)
    for word in (name, f"/dev/{name}"):
        with pytest.raises(UserError, match=f"name a lower device: {said}$") as error:
            machine.find(word)
        assert error.value.code == "unknown-device"


@pytest.mark.usefixtures("sysfs")
@pytest.mark.parametrize("name", ["0000:00:00.0", "eth2", "", "..", "/etc/passwd", "net/eth1", ".", "e" * 256, "*"])
def test_an_unknown_device_is_named(name: str) -> None:
    with pytest.raises(UserError, match=f"no device '{name}'") as error:
        machine.find(name)
    assert error.value.code == "unknown-device"


def test_status(sysfs: Path) -> None:
    make_device(sysfs, "0000:09:00.0", 20, "none", "e1000e", kind="DMA", state="off")
    make_device(sysfs, "0000:0a:00.0", 21, "strict", "e1000e", kind="DMA", state="failed")
    make_device(sysfs, "0000:0b:00.0", 22, None, kind="identity")
    make_device(sysfs, "0000:0c:00.0", None, None)
    rows = {row["device"]: row for row in document("status", "-o", "json")["devices"]}
    assert [rows[IGB][name] for name in ("names", "group", "driver", "path", "level", "state")] == [
        ["eth1"],
        11,
        "igb",
        "fused",
        "held",
        "active",
    ]
    assert rows[IGB]["invalidations_per_page"] == 0.05
    assert rows[IGB]["exposure_max_ns"] == 1999
    assert rows[NVME0]["names"] == ["nvme0n1"]
    # The kernel's own path gives some protection.
    assert [rows["0000:09:00.0"][name] for name in ("path", "level")] == ["kernel-strict", "strict"]
    # A chosen policy that is not in force does not count.
    assert [rows["0000:0a:00.0"][name] for name in ("path", "level", "policy")] == ["kernel-strict", "strict", "strict"]
    assert [rows["0000:0b:00.0"][name] for name in ("path", "level", "policy")] == ["passthrough", "none", None]
    assert "0000:0c:00.0" not in rows
    lines = xsmmu("status", "--all").output.splitlines()
    assert len(lines) == 1 + 7
    assert lines[1].split()[:6] == [IGB, "eth1", "11", "igb", "fused", "held"]
    assert "strict chosen, failed" in lines[5]


@pytest.mark.usefixtures("sysfs")
@pytest.mark.parametrize(
    ("state", "path"),
    [
        *((state, "fused") for state in ("attached", "active", "torn", "orphaned", "stuck")),
        *((state, "kernel-lazy") for state in ("idle", "failed")),
    ],
)
def test_a_policy_is_in_use_when_the_group_was_attached(state: str, path: str) -> None:
    (Device(IGB).folder / "xsmmu/state").write_text(f"{state}\n")
    (row,) = document("status", "eth1", "-o", "json")["devices"]
    assert (row["path"], row["level"]) == (path, "held" if path == "fused" else "lazy")
    assert ("fused chosen" in xsmmu("status", "eth1").output) == (path != "fused")


@pytest.mark.parametrize(
    ("name", "shown"),
    [("[red]a", "[red]a"), ("\x1b[31ma", r"\x1b[31ma"), (os.fsdecode(b"a\xff"), r"a\udcff")],
)
def test_an_interface_may_be_called_anything(sysfs: Path, name: str, shown: str) -> None:
    """A container may have renamed the interface; the name puts no controls on a terminal, and no markup."""
    link = sysfs / "class/net" / name
    link.parent.mkdir(parents=True, exist_ok=True)
    link.symlink_to(sysfs / "bus/pci/devices" / IGB)
    assert shown in xsmmu("status", IGB).output
    assert shown in Device(IGB).label


def test_a_device_that_goes_meanwhile_is_left_out(sysfs: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    choice = module.choice

    def goes(device: Device) -> module.Choice:
        if device.address == NVME0:
            shutil.rmtree(sysfs / "bus/pci/devices" / NVME0)
        return choice(device)

    monkeypatch.setattr(module, "choice", goes)
    assert [each["device"] for each in document("status", "-o", "json")["devices"]] == [IGB, NVME1]


def test_a_device_that_goes_before_its_row_is_left_out(sysfs: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Without its files a device looks as if it had no IOMMU."""
    choice = module.choice

    def goes(device: Device) -> module.Choice:
        if device.address == IGB:
            shutil.rmtree(sysfs / "bus/pci/devices" / NVME0, ignore_errors=True)
        return choice(device)

    monkeypatch.setattr(module, "choice", goes)
    assert [each["device"] for each in document("status", "-o", "json")["devices"]] == [IGB, NVME1]


@pytest.mark.usefixtures("sysfs")
def test_a_device_whose_files_come_and_go_has_no_row(monkeypatch: pytest.MonkeyPatch) -> None:
    def gone(device: Device) -> module.Choice:
        raise module.gone(device)

    monkeypatch.setattr(module, "choice", gone)
    assert document("status", "-o", "json")["devices"] == []


@pytest.mark.parametrize("loaded", [True, False])
def test_a_device_whose_files_go_first_has_a_row(sysfs: Path, monkeypatch: pytest.MonkeyPatch, loaded: bool) -> None:
    """Files go before their device does; or the module goes, and the device stays."""
    choice = module.choice

    def goes(device: Device) -> module.Choice:
        if device.address == NVME0:
            shutil.rmtree(device.folder / "xsmmu")
            if not loaded:
                shutil.rmtree(sysfs / "module/xsmmu")
        return choice(device)

    monkeypatch.setattr(module, "choice", goes)
    found = {each["device"]: each["path"] for each in document("status", "-o", "json")["devices"]}
    assert found == {IGB: "fused", NVME0: "kernel-lazy", NVME1: "xsmmu"}


def test_a_device_that_goes_when_it_was_printed(sysfs: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("xsmmu.output.table", lambda *_: shutil.rmtree(sysfs / "bus/pci/devices" / IGB))
    result = xsmmu("status")
    assert (result.exit_code, result.output) == (0, "")


@pytest.mark.parametrize("link", ["driver", "iommu_group"])
def test_a_link_that_goes_while_it_is_read(sysfs: Path, monkeypatch: pytest.MonkeyPatch, link: str) -> None:
    exists = Path.exists

    def goes(path: Path) -> bool:
        found = exists(path)
        if path == sysfs / "bus/pci/devices" / IGB / link:
            path.unlink(missing_ok=True)
        return found

    monkeypatch.setattr(Path, "exists", goes)
    assert (Device(IGB).driver, Device(IGB).group) == ("igb", machine.Group(11))


def test_what_is_watched_goes_on_without_one_that_goes(sysfs: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    left = [NVME1, NVME0, IGB]
    monkeypatch.setattr("time.sleep", lambda _: shutil.rmtree(sysfs / "bus/pci/devices" / left.pop()))
    result = xsmmu("watch", "-o", "jsonl")
    # A group continues with its remaining devices.
    assert [json.loads(line)["devices"] for line in result.output.splitlines()] == [[NVME0, NVME1], [NVME1]]
    assert isinstance(result.exception, UserError)
    assert result.exception.code == "no-policy"


@pytest.mark.parametrize(("words", "code"), [((), "no-policy"), ((IGB,), "device-gone")])
def test_what_is_watched_and_all_goes(
    sysfs: Path, monkeypatch: pytest.MonkeyPatch, words: tuple[str, ...], code: str
) -> None:
    monkeypatch.setattr("time.sleep", lambda _: shutil.rmtree(sysfs / "bus/pci/devices"))
    result = xsmmu("watch", *words, "-o", "jsonl", "--count", "1")
    assert result.output == ""
    assert isinstance(result.exception, UserError)
    assert result.exception.code == code


@pytest.mark.usefixtures("sysfs")
def test_a_group_that_goes_when_it_was_found(monkeypatch: pytest.MonkeyPatch) -> None:
    read, seen = module.read, []

    def goes(device: Device) -> Sample:
        seen.append(device)
        if device == Device(IGB) and seen.count(device) == 2:
            raise module.gone(device)
        return read(device)

    monkeypatch.setattr(module, "read", goes)
    lines = xsmmu("watch", "-o", "jsonl", "--interval", "0.01", "--count", "1").output.splitlines()
    assert [json.loads(line)["devices"] for line in lines] == [[NVME0, NVME1]]


@pytest.mark.usefixtures("sysfs")
def test_counters_that_begin_anew_are_no_negative_figures(monkeypatch: pytest.MonkeyPatch) -> None:
    folder = Device(IGB).folder / "xsmmu"
    # More maps than in its life before, and fewer pages.
    left = [("2500", "10"), ("2600", "12")]

    def again(_: float) -> None:
        maps, pages = left.pop(0)
        if pages == "10":
            load_anew(folder)
        (folder / "stats/maps").write_text(maps)
        (folder / "stats/unmapped_pages").write_text(pages)

    monkeypatch.setattr("time.sleep", again)
    lines = xsmmu("watch", "eth1", "-o", "jsonl", "--count", "2").output.splitlines()
    assert [json.loads(line)["unmapped_pages"] for line in lines] == [2]


@pytest.mark.usefixtures("sysfs")
def test_no_more_of_a_group_is_read_than_is_needed(monkeypatch: pytest.MonkeyPatch) -> None:
    seen = []

    def look(device: Device) -> Device:
        seen.append(device)
        return device

    assert module.of_group(look, [Device(NVME0), Device(NVME1)]) == Device(NVME0)
    assert seen == [Device(NVME0)]
    iterdir = Path.iterdir
    monkeypatch.setattr(Path, "iterdir", lambda folder: iter(sorted(iterdir(folder), reverse=True)))
    assert [each.address for each in machine.Group(13).members] == [NVME0, NVME1]


def test_folders_that_go_between_two_looks(sysfs: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    gone, exists = sysfs / "bus/pci/devices" / NVME1 / "xsmmu", Path.exists
    shutil.rmtree(gone)
    monkeypatch.setattr(Path, "exists", lambda path: path == gone or exists(path))
    assert module.read(Device(NVME0)).devices == (NVME0,)


@pytest.mark.usefixtures("sysfs")
def test_one_whose_folder_goes_as_it_is_read_is_still_of_its_group(monkeypatch: pytest.MonkeyPatch) -> None:
    folders = module._folders

    def goes(device: Device) -> dict[str, int]:
        shutil.rmtree(device.folder / "xsmmu")
        return folders(device)

    monkeypatch.setattr(module, "_folders", goes)
    assert module.read(Device(IGB)).devices == (IGB,)


def test_files_that_go_while_they_are_read() -> None:
    def look(_: int) -> None:
        raise FileNotFoundError

    assert module.unless_gone(look, 0) is None


@pytest.mark.usefixtures("sysfs")
def test_a_group_is_that_of_a_named_device_whatever_its_policy() -> None:
    (Device(IGB).folder / "xsmmu/policy").write_text("[none] strict fused\n")
    assert list(module.groups((Device(IGB),))) == [Device(IGB)]
    assert list(module.groups()) == [Device(NVME0)]


@pytest.mark.usefixtures("sysfs")
def test_what_is_no_link_names_no_driver() -> None:
    """As on a kernel with a file of that name."""
    driver = Device(IGB).folder / "driver"
    driver.unlink()
    driver.write_text("")
    assert Device(IGB).driver is None


def test_a_group_that_goes_before_it_is_watched(sysfs: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    read = module.read

    def goes(device: Device) -> Sample:
        if device.address == IGB:
            shutil.rmtree(sysfs / "bus/pci/devices" / IGB, ignore_errors=True)
        return read(device)

    monkeypatch.setattr(module, "read", goes)
    assert list(module.groups()) == [Device(NVME0)]
    with pytest.raises(UserError, match="has disappeared"):
        module.groups((Device(IGB),))


@pytest.mark.usefixtures("sysfs")
def test_a_device_that_was_asked_for_and_goes_is_an_error(monkeypatch: pytest.MonkeyPatch) -> None:
    def gone(device: Device) -> module.Choice:
        raise module.gone(device)

    monkeypatch.setattr(module, "choice", gone)
    assert xsmmu("status", NVME0).exit_code == 1


@pytest.mark.parametrize(
    ("columns", "tables"), [(200, 1), (132, 1), (129, 1), (110, 2), (80, 2), (72, 2), (40, 5), (20, 11), (1, 11)]
)
def test_a_narrow_terminal_cuts_no_cell(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], columns: int, tables: int
) -> None:
    """An address without its end names no device."""
    row = (
        IGB,
        "enp1s0f0np0",
        11,
        "igb",
        "kernel-strict",
        "strict",
        "active",
        "none",
        "2,400",
        "0.05",
        "25.7ms/1.00ms",
        0,
    )
    monkeypatch.setenv("COLUMNS", str(columns))
    monkeypatch.setattr("sys.stdout.isatty", lambda: True)
    output.table(status.COLUMNS, [row])
    parts = re.sub(r"\x1b\[[0-9;]*m", "", capsys.readouterr().out).split("\n\n")
    assert len(parts) == tables
    said = [part.splitlines()[1].split() for part in parts]
    assert [words[0] for words in said] == [IGB] * tables
    assert [word for words in said for word in words[1:]] == [str(cell) for cell in row[1:]]
    assert columns < 40 or all(len(line) <= columns for part in parts for line in part.splitlines())


@pytest.mark.usefixtures("sysfs")
@pytest.mark.parametrize(
    "environment", [{}, {"FORCE_COLOR": "1"}, {"FORCE_COLOR": "1", "TERM": "dumb"}, {"TERM": "dumb"}]
)
def test_a_pipe_has_whole_lines(environment: dict[str, str]) -> None:
    words = [sys.executable, "-m", "xsmmu", "status"]
    env = {**os.environ, "COLUMNS": "40", **environment}
    said = subprocess.run(words, env=env, capture_output=True, text=True, check=True).stdout
    lines = [re.sub(r"\x1b\[[0-9;]*m", "", line) for line in said.splitlines()]
    assert len(lines) == 1 + 3
    assert lines[1].split()[:5] == [IGB, "eth1", "11", "igb", "fused"]
    assert "2.00us/1.00ms" in lines[1]


@pytest.mark.usefixtures("sysfs")
def test_the_longest_exposure_stands_beside_the_bound() -> None:
    folder = Device(IGB).folder / "xsmmu"
    (row,) = document("status", "eth1", "-o", "json")["devices"]
    assert (row["exposure_max_ns"], row["exposure_bound_ns"]) == (1999, 1_000_000)
    result = xsmmu("status", "eth1")
    assert "2.00us/1.00ms" in result.stdout
    assert result.stderr == ""
    (folder / "exposure_ns").write_text("1024 10\nmax 25700000\n")
    result = xsmmu("status", "eth1")
    assert "25.7ms/1.00ms" in result.stdout
    assert "eth1: max/bound: " in result.stderr and f"beyond the bound: xsmmu doctor {IGB}" in result.stderr
    # A timer of its own.
    (folder / "max_window_us").write_text("30000\n")
    assert "25.7ms/30.0ms" in xsmmu("status", "eth1").stdout
    # No timer: the unmap ends the exposure.
    (folder / "level").write_text("strict\n")
    result = xsmmu("status", "eth1")
    assert "25.7ms/-" in result.stdout
    assert result.stderr == ""


@pytest.mark.usefixtures("sysfs")
@pytest.mark.parametrize("state", ["off", "idle", "failed"])
def test_counts_of_a_group_that_was_given_back_are_not_those_of_now(state: str) -> None:
    folder = Device(IGB).folder / "xsmmu"
    (folder / "state").write_text(f"{state}\n")
    if state == "off":
        (folder / "policy").write_text("[none] strict fused\n")
    result = xsmmu("status", "eth1")
    assert result.stdout.splitlines()[1].split()[-4:] == ["-"] * 4
    assert result.stderr == ""
    (row,) = document("status", "eth1", "-o", "json")["devices"]
    assert (row["counting"], row["unmapped_pages"], row["exposure_bound_ns"]) == (False, 2400, None)


@pytest.mark.usefixtures("sysfs")
@pytest.mark.parametrize(
    ("level", "deferred", "kinds"),
    [
        ("held", 24, "slab memory (kmalloc, such as packet heads) and mappings of more than 64 pages"),
        ("lazy", 24, "mappings of more than 64 pages"),
        ("bounded", 0, "mappings of more than 64 pages"),
        ("held", 1300, None),
        ("strict", 0, None),
    ],
)
def test_many_commands_under_a_policy_that_defers_have_a_cause(level: str, deferred: int, kinds: str | None) -> None:
    folder = Device(IGB).folder / "xsmmu"
    (folder / "level").write_text(f"{level}\n")
    (folder / "stats/inv_page").write_text("2400\n")
    (folder / "stats/deferred_pages").write_text(f"{deferred}\n")
    said = xsmmu("status", "eth1").stderr
    assert ("fused does not defer" in said) == (kinds is not None)
    assert (kinds or "") in said
    assert ("fused copy_bytes=256 --rebind" in said) == (kinds is not None and level == "held")


def next_boot(monkeypatch: pytest.MonkeyPatch, folder: Path, rules: str, name: str = "eth1") -> object:
    """The next boot in `status` under these rules; None if unchanged."""
    file = folder / "modprobe.conf"
    file.write_text(f'options xsmmu rules="{rules}"\nsoftdep igb pre: xsmmu\n')
    monkeypatch.setenv("XSMMU_MODPROBE_CONF", str(file))
    (row,) = document("status", name, "-o", "json")["devices"]
    cell = xsmmu("status", name).output.splitlines()[1].split()[7]
    assert cell == (row["next_boot"] if row["next_boot_differs"] else "-")
    return row["next_boot"] if row["next_boot_differs"] else None


@pytest.mark.parametrize(
    ("rules", "seen"),
    [
        (f"{IGB}=fused", None),
        (f"{IGB}/8086:10c9=fused,max_window_us:1000", None),
        ("class:02=fused;*=strict", None),
        ("driver:igb=fused", None),
        ("8086:10c9=fused,tables:kernel", None),
        (f"{IGB}=strict", "strict"),
        (f"{IGB}=none;*=fused", "none"),
        (f"{IGB}/8086:1234=fused", "none"),
        ("driver:e1000e=fused", "none"),
        ("", "none"),
        ("*=auto", "auto"),
        (f"{IGB}=fused,max_window_us:500", "fused,max_window_us:500"),
        (f"{IGB}=fused,tables:direct", "fused,tables:direct"),
    ],
)
def test_the_next_boot_stands_where_it_differs(
    sysfs: Path, monkeypatch: pytest.MonkeyPatch, rules: str, seen: str | None
) -> None:
    assert next_boot(monkeypatch, sysfs, rules) == seen


def test_the_next_boot_of_tunables_and_groups(sysfs: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    folder = Device(IGB).folder / "xsmmu"
    (folder / "max_window_us").write_text("500\n")
    assert next_boot(monkeypatch, sysfs, f"{IGB}=fused") == "fused"
    # The strongest rule of a group counts.
    assert next_boot(monkeypatch, sysfs, f"{NVME0}=lazy;{NVME1}=xsmmu", "nvme0n1") is None
    assert next_boot(monkeypatch, sysfs, f"{NVME0}=xsmmu;{NVME1}=strict", "nvme0n1") == "strict"
    # A built-in driver binds before any module is loaded.
    shutil.rmtree(sysfs / "module/igb")
    assert next_boot(monkeypatch, sysfs, f"{IGB}=fused,max_window_us:500") == "none"


def test_the_next_boot_of_what_auto_has_chosen(sysfs: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Unchanged if auto chooses again, but not if a rule names auto's choice."""
    folder = Device(IGB).folder / "xsmmu"
    (folder / "policy").write_text("none [auto] strict fused\n")
    (folder / "auto_policy").write_text("fused held: for a reason\n")
    monkeypatch.setenv("XSMMU_MODPROBE_CONF", str(sysfs / "modprobe.conf"))
    for choice, differs in (("auto", False), ("fused", True)):
        (sysfs / "modprobe.conf").write_text(f"options xsmmu rules={IGB}={choice}\n")
        (row,) = document("status", "eth1", "-o", "json")["devices"]
        assert (row["next_boot"], row["next_boot_differs"]) == (choice, differs)


def test_the_next_boot_is_not_that_of_a_bridge(sysfs: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A bridge has no DMA of its own, whatever rule matches."""
    make_device(sysfs, "0000:00:01.0", 11, None, "pcieport")
    (Device("0000:00:01.0").folder / "class").write_text("0x060400\n")
    assert next_boot(monkeypatch, sysfs, f"{IGB}=fused;*=strict") is None


def test_the_next_boot_without_the_module(sysfs: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    shutil.rmtree(sysfs / "module/xsmmu")
    shutil.rmtree(Device(IGB).folder / "xsmmu")
    assert next_boot(monkeypatch, sysfs, "*=strict") == "strict"
    assert next_boot(monkeypatch, sysfs, f"{IGB}=none") is None


@pytest.mark.parametrize(
    "text",
    [
        None,
        "",
        "# nothing\n",
        "options xsmmu min_level=held\n",
        'options xsmmu debug=1 rules="*=fused"\n',
        "options\txsmmu   rules=*=fused\n",
        'options xsmmu \\\n  rules="*=fused"\n',
        'options xsmmu_bench rules="*=strict"\noptions xsmmu rules=" *=fused ; "\n',
        'options xsmmu rules="*=strict"\noptions xsmmu rules="*=fused"\n',
    ],
)
def test_rules_as_modprobe_reads_them(sysfs: Path, monkeypatch: pytest.MonkeyPatch, text: str | None) -> None:
    file = sysfs / "modprobe.conf"
    monkeypatch.setenv("XSMMU_MODPROBE_CONF", str(file))
    if text is not None:
        file.write_text(text)
    (row,) = document("status", "eth1", "-o", "json")["devices"]
    assert row["next_boot"] == ("fused" if "fused" in (text or "") else "none")


@pytest.mark.parametrize("kind", ["folder", "bytes", "loop"])
def test_rules_that_cannot_be_read(sysfs: Path, monkeypatch: pytest.MonkeyPatch, kind: str) -> None:
    """The rest of status is as usual."""
    file = sysfs / "modprobe.conf"
    monkeypatch.setenv("XSMMU_MODPROBE_CONF", str(file))
    if kind == "folder":
        file.mkdir()
    elif kind == "bytes":
        file.write_bytes(b"options xsmmu rules=*=strict # \xe9\n")
    else:
        file.symlink_to(file)
    result = xsmmu("status")
    assert result.exit_code == 0
    assert [line.split()[7] for line in result.stdout.splitlines()[1:]] == ["?"] * 3
    assert result.stderr.count("\n") == 1
    assert result.stderr.startswith(f"the choices for the next boot are unknown: cannot read {file} (")
    rows = json.loads(xsmmu("status", "-o", "json").stdout)["devices"]
    assert {(row["next_boot"], row["next_boot_differs"]) for row in rows} == {(None, None)}


@pytest.mark.parametrize("value", ["\u00b2", "\u0663", "9" * 20, "", "1e3", "-1"])
def test_a_rule_of_the_next_boot_whose_number_is_none(sysfs: Path, monkeypatch: pytest.MonkeyPatch, value: str) -> None:
    rule = f"fused,max_window_us:{value}"
    assert next_boot(monkeypatch, sysfs, f"{IGB}={rule}") == rule


@pytest.mark.usefixtures("sysfs")
def test_status_under_auto() -> None:
    """auto's policy and reason."""
    folder = Device(IGB).folder / "xsmmu"
    (folder / "policy").write_text("none [auto] copy strict lazy fands xsmmu fused\n")
    (row,) = document("status", "eth1", "-o", "json")["devices"]
    assert (row["path"], row["policy"], row["level"]) == ("fused", "fused", "held")
    assert row["auto"] == {
        "policy": "fused",
        "level": "held",
        "reason": "an Ethernet NIC: its polls flush deferred unmaps",
    }
    assert "fused (auto)" in xsmmu("status", "eth1").output
    (folder / "state").write_text("idle\n")
    assert "fused chosen by auto, idle" in xsmmu("status", "eth1").output
    assert "fused (auto)" not in xsmmu("status", "eth1").output


@pytest.mark.usefixtures("sysfs")
def test_status_of_a_group_that_the_module_declines() -> None:
    folder = Device(IGB).folder / "xsmmu"
    (row,) = document("status", "eth1", "-o", "json")["devices"]
    assert row["declined"] is None
    (folder / "policy").write_text("[none] auto copy strict lazy fands xsmmu fused\n")
    (folder / "state").write_text("off\n")
    why = f"{IGB}: untrusted (external-facing) device"
    (folder / "declined").write_text(f"{why}\n")
    (row,) = document("status", "eth1", "-o", "json")["devices"]
    assert (row["declined"], row["state"], row["path"]) == (why, "off", "kernel-lazy")
    output = xsmmu("status", "eth1").output
    assert " declined " in output
    assert f"eth1: the module declines its IOMMU group: {why}" in output


@pytest.mark.usefixtures("sysfs")
def test_status_has_the_use_of_choices() -> None:
    """Direct tables, copying and deferred unmaps: the share if chosen, and a line if chosen and not used."""
    folder = Device(IGB).folder / "xsmmu"
    (row,) = document("status", "eth1", "-o", "json")["devices"]
    names = ("used", "in_use", "not_used", "no_direct", "batch_aware", "blocked")
    assert [row[name] for name in names] == [USED, {}, [], None, False, False]
    assert " active " in xsmmu("status", "eth1").output
    counts = {"direct_pages": 1990, "direct_misses": 4, "direct_large": 6, "copied_maps": 600, "uncopied_maps": 1800}
    (folder / "used").write_text(used_text(**counts))
    (folder / "tables").write_text("kernel [direct]\n")
    (folder / "copy_bytes").write_text("256\n")
    (folder / "batch_aware").write_text("1\n")
    (folder / "level").write_text("strict\n")
    (row,) = document("status", "eth1", "-o", "json")["devices"]
    assert row["in_use"] == {"direct": 0.995, "copied": 0.25, "deferred": pytest.approx(2300 / 2400)}
    assert (row["batch_aware"], row["not_used"]) == (True, [])
    assert " active, direct 99%, copied 25%, deferred 95% " in xsmmu("status", "eth1").output
    (folder / "tables").write_text("[kernel] direct\n")
    (folder / "no_direct").write_text("an entry has unknown bits\n")
    (row,) = document("status", "eth1", "-o", "json")["devices"]
    assert (row["tables"], row["no_direct"]) == ("kernel", "an entry has unknown bits")
    assert row["in_use"]["direct"] == 0  # type: ignore[index]
    output = xsmmu("status", "eth1").output
    assert " active, direct 0%, copied 25%" in output
    assert "eth1: direct tables are chosen and off: an entry has unknown bits; the IOMMU's driver" in output
    assert f"writes all entries: xsmmu doctor {IGB} has a remedy" in output


@pytest.mark.usefixtures("sysfs")
def test_status_of_a_blocked_device_and_of_a_detached_group() -> None:
    folder = Device(IGB).folder / "xsmmu"
    (folder / "blocked").write_text("1\n")
    (row,) = document("status", "eth1", "-o", "json")["devices"]
    assert row["blocked"] is True
    assert " blocked " in xsmmu("status", "eth1").output
    (folder / "blocked").write_text("0\n")
    (folder / "state").write_text("idle\n")
    (folder / "tables").write_text("kernel [direct]\n")
    (folder / "used").write_text("")
    (row,) = document("status", "eth1", "-o", "json")["devices"]
    assert [row[name] for name in ("used", "in_use", "not_used", "batch_aware")] == [None, None, None, None]
    for name in ("used", "no_direct", "batch_aware", "blocked"):
        (folder / name).unlink()
    (folder / "state").write_text("active\n")
    (row,) = document("status", "eth1", "-o", "json")["devices"]
    assert [row[name] for name in ("used", "no_direct", "batch_aware", "blocked")] == [None, None, None, None]
    assert row["in_use"] == {}


@pytest.mark.usefixtures("sysfs")
def test_status_for_anybody(monkeypatch: pytest.MonkeyPatch) -> None:
    """Counts are for root; the path is public."""
    monkeypatch.setattr(module, "counts_are_readable", lambda _: False)
    (row,) = document("status", "eth1", "-o", "json")["devices"]
    assert (row["path"], row["level"], row["unmapped_pages"], row["bad_unmaps"]) == ("fused", "held", None, None)
    assert "statistics are readable for root only" in xsmmu("status").output


@pytest.mark.usefixtures("sysfs")
def test_set_writes_the_policy_and_tunables() -> None:
    result = xsmmu("set", "eth1", "strict", "max_window_us=250", "copy_bytes=0")
    assert result.exit_code == 0
    folder = Device(IGB).folder / "xsmmu"
    assert (folder / "policy").read_text() == "strict"
    assert (folder / "max_window_us").read_text() == "250"
