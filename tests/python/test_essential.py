# SPDX-License-Identifier: GPL-2.0-only
"""What a machine needs is found through partitions, RAID, encryption, bonds, and sudo."""

from __future__ import annotations

import os
from pathlib import Path

import pytest
from tests.python.sysfs import IGB, NVME0, make_device

from xsmmu.operator import essential
from xsmmu.operator.machine import Device

ROUTES = "Iface\tDestination\tGateway\tFlags\tRefCnt\tUse\tMetric\tMask\tMTU\tWindow\tIRTT\n"


class Machine:
    """A made-up machine: a NIC eth1, a disk nvme0n1 with a partition, and the files of /proc."""

    def __init__(self, place: Path) -> None:
        self.sysfs, self.proc = place / "sys", place / "proc"
        make_device(self.sysfs, IGB, 11, "none", "igb", interface="eth1")
        make_device(self.sysfs, NVME0, 13, "none", "nvme", disk="nvme0n1")
        disk = Device(NVME0).folder / "nvme/nvme0/nvme0n1"
        self.block("nvme0n1p2", disk / "nvme0n1p2")
        (disk / "nvme0n1p2/partition").write_text("2\n")

    def block(self, name: str, folder: Path, number: str | None = None, on: tuple[str, ...] = ()) -> None:
        """A block device; `on`: what it is made of."""
        (folder / "slaves").mkdir(parents=True)
        (self.sysfs / "class/block").mkdir(exist_ok=True)
        (self.sysfs / "class/block" / name).symlink_to(folder)
        for lower in on:
            (folder / "slaves" / lower).symlink_to(self.sysfs / "class/block" / lower)
        if number:
            (self.sysfs / "dev/block").mkdir(parents=True, exist_ok=True)
            (self.sysfs / "dev/block" / number).symlink_to(folder)

    def interface(self, name: str, on: tuple[str, ...] = ()) -> None:
        """An interface that is no device's; `on`: what it is made of."""
        folder = self.sysfs / "devices/virtual/net" / name
        folder.mkdir(parents=True)
        (self.sysfs / "class/net" / name).symlink_to(folder)
        for lower in on:
            (folder / f"lower_{lower}").symlink_to(self.sysfs / "class/net" / lower)

    def has(self, name: str, text: str) -> None:
        """A file of /proc."""
        file = self.proc / name
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(text)

    def mounts(self, *lines: str) -> None:
        """Rows of mountinfo: number, place, kind and source."""
        rows = [line.split() for line in lines]
        text = (f"22 1 {row[0]} / {row[1]} rw,relatime shared:1 - {row[2]} {row[3]} rw\n" for row in rows)
        self.has("self/mountinfo", "".join(text))

    def routes(self, *lines: str) -> None:
        """Rows of the table of IPv4: interface, destination, mask, metric."""
        rows = [line.split() for line in lines]
        self.has(
            "net/route",
            ROUTES + "".join(f"{row[0]}\t{row[1]}\t0\t0003\t0\t0\t{row[3]}\t{row[2]}\t0\t0\t0\n" for row in rows),
        )


@pytest.fixture
def machine(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Machine:
    monkeypatch.setenv("XSMMU_SYSFS", str(tmp_path / "sys"))
    monkeypatch.setenv("XSMMU_PROC", str(tmp_path / "proc"))
    monkeypatch.delenv("SSH_CONNECTION", raising=False)
    return Machine(tmp_path)


def of_disk() -> list[str]:
    return essential.reasons([Device(NVME0)])


@pytest.mark.parametrize("name", [b"a\xff", b"a\x0cb", b"a\rb", b"a\xc2\x85b", b"a\xe2\x80\xa8b"])
def test_a_folder_may_be_called_anything(machine: Machine, name: bytes) -> None:
    """A mount there is one line of mountinfo, whatever else ends a line of text."""
    machine.has("self/mountinfo", "")
    row = b"22 1 259:2 / /media/%b rw - ext4 /dev/nvme0n1p2 rw\n" % name
    (machine.proc / "self/mountinfo").write_bytes(row)
    assert [each.partition("/")[0] for each in of_disk()] == ["nvme0n1p2 is mounted on "]


def of_card() -> list[str]:
    return essential.reasons([Device(IGB)])


@pytest.mark.parametrize("version", [4, 6])
@pytest.mark.parametrize("name", [b"a\xff", b"a\xe2\x80\x83b", b"\xe2\x80\x83a", b"a\xc2\x85"])
def test_an_interface_may_be_called_anything(machine: Machine, name: bytes, version: int) -> None:
    """The kernel refuses only what it calls blank itself, byte by byte."""
    called = os.fsdecode(name)
    (machine.sysfs / "class/net/eth1").rename(machine.sysfs / "class/net" / called)
    if version == 4:
        machine.routes("NAME 00000000 00000000 0")
    else:
        row = f"{'0' * 32} 00 {'0' * 32} 00 {'0' * 32} 00000400 1 0 00000003     NAME\n"
        machine.has("net/ipv6_route", row)
    file = machine.proc / ("net/route" if version == 4 else "net/ipv6_route")
    file.write_bytes(file.read_bytes().replace(b"NAME", name))
    assert of_card() == [f"the only default route is by {called}"]


TCP = "  sl  local_address rem_address   st\n"
V6_MAPPED = "0000000000000000FFFF0000"


@pytest.mark.parametrize(
    ("file", "row", "said"),
    [
        ("tcp", "0200A8C0:0379 0700A8C0:0801 01", ["NFS at 192.168.0.7 is by eth1"]),
        ("tcp", "0200A8C0:0379 0700A8C0:0CBC 01", ["iSCSI at 192.168.0.7 is by eth1"]),
        ("tcp", "0200A8C0:0379 0700A8C0:1144 01", ["NVMe over TCP at 192.168.0.7 is by eth1"]),
        ("tcp", "0200A8C0:0379 0700A8C0:2A39 01", ["nbd at 192.168.0.7 is by eth1"]),
        ("tcp6", f"{V6_MAPPED}0200A8C0:0379 {V6_MAPPED}0700A8C0:01BD 01", ["SMB at 192.168.0.7 is by eth1"]),
        # Closed already, a port of something else, a server of our own, and one that is elsewhere.
        ("tcp", "0200A8C0:0379 0700A8C0:0801 06", []),
        ("tcp", "0200A8C0:0379 0700A8C0:01BB 01", []),
        ("tcp", "0200A8C0:0801 0700A8C0:0379 01", []),
        ("tcp", "0200A8C0:0379 070010AC:0801 01", []),
    ],
)
def test_network_storage(machine: Machine, file: str, row: str, said: list[str]) -> None:
    machine.interface("wlan0")
    machine.routes("wlan0 00000000 00000000 600", "eth1 0000A8C0 00FFFFFF 0")
    machine.has(f"net/{file}", f"{TCP}   0: {row} 0:0\n   1: {row} 0:0\n")
    assert of_card() == said
    assert of_disk() == []


def test_storage_of_the_machine_itself(machine: Machine) -> None:
    """No route of its tables is that of an address of its own, but the default one has all addresses."""
    machine.interface("wlan0")
    machine.routes("eth1 00000000 00000000 0", "wlan0 00000000 00000000 600")
    machine.has("net/tcp", f"{TCP}   0: 0200A8C0:0379 0200A8C0:0801 01 0:0\n   1: 0100007F:0379 0200007F:2A39 01 0:0\n")
    six = "00000000000000000000000001000000"
    machine.has("net/tcp6", f"{TCP}   0: {six}:0379 {six}:0CBC 01 0:0\n")
    machine.has("net/ipv6_route", f"{'0' * 32} 00 {'0' * 32} 00 {'0' * 32} 00000400 1 0 00000003 eth1\n")
    machine.has("self/mountinfo", "22 1 0:50 / /mnt rw - nfs4 localhost:/ rw,addr=127.0.0.1\n")
    assert of_card() == []


@pytest.mark.parametrize(
    ("mount", "said"),
    [
        ("nfs files:/srv rw,vers=3,addr=192.168.0.7", ["NFS at 192.168.0.7 is by eth1"]),
        ("nfs4 files:/srv rw,clientaddr=192.168.0.2,addr=192.168.0.7", ["NFS at 192.168.0.7 is by eth1"]),
        ("cifs //files/srv rw,addr=192.168.0.7,uid=0", ["SMB at 192.168.0.7 is by eth1"]),
        ("smb3 //files/srv addr=192.168.0.7", ["SMB at 192.168.0.7 is by eth1"]),
        ("nfs4 files:/srv rw,mountaddr=192.168.0.7,addr=172.16.0.7", []),
        ("nfs4 files:/srv rw,addr=fe80::7%eth9", []),
        ("nfs4 files:/srv rw", []),
        ("nfs4 files:/srv rw,addr=files", []),
        ("fuse.x files:/srv rw,addr=192.168.0.7", []),
    ],
)
def test_storage_that_is_mounted(machine: Machine, mount: str, said: list[str]) -> None:
    """NFS of version 3 ends a connection that was not used for five minutes."""
    machine.interface("wlan0")
    machine.routes("wlan0 00000000 00000000 600", "eth1 0000A8C0 00FFFFFF 0")
    machine.has("self/mountinfo", f"22 1 0:50 / /mnt rw,relatime shared:1 - {mount}\n")
    assert of_card() == said


def test_nothing_in_use(machine: Machine) -> None:
    machine.mounts("0:22 /sys sysfs sysfs")
    machine.has("swaps", "Filename Type Size Used Priority\n")
    machine.routes()
    assert of_disk() == of_card() == []


def test_a_partition(machine: Machine) -> None:
    machine.mounts("259:2 / ext4 /dev/nvme0n1p2", "259:2 /a\\040b ext4 /dev/nvme0n1p2")
    assert of_disk() == ["nvme0n1p2 is mounted on /", "nvme0n1p2 is mounted on /a b"]
    assert of_card() == []


@pytest.mark.parametrize("mount", ["253:1 / ext4 /dev/mapper/root", "253:1 /boot ext4 /dev/root"])
def test_volumes_and_raid(machine: Machine, mount: str) -> None:
    virtual = machine.sysfs / "devices/virtual/block"
    machine.block("md0", virtual / "md0", on=("nvme0n1p2",))
    machine.block("dm-0", virtual / "dm-0", "253:0", on=("md0",))
    machine.block("dm-1", virtual / "dm-1", "253:1", on=("dm-0",))
    machine.mounts(mount)
    assert of_disk() == [f"dm-1 is mounted on {mount.split()[1]}"]


def test_btrfs_on_many_disks(machine: Machine) -> None:
    machine.block("sda", machine.sysfs / "devices/virtual/block/sda")
    pool = machine.sysfs / "fs/btrfs/6e1c/devices"
    pool.mkdir(parents=True)
    for name in ("sda", "nvme0n1p2"):
        (pool / name).symlink_to(machine.sysfs / "class/block" / name)
    machine.mounts("0:35 / btrfs /dev/sda")
    assert of_disk() == ["nvme0n1p2 is mounted on /"]


def test_a_disk_of_nvme_multipath(machine: Machine) -> None:
    subsystem = machine.sysfs / "devices/virtual/nvme-subsystem/nvme-subsys0"
    machine.block("nvme4n1", subsystem / "nvme4n1", "259:9")
    (subsystem / "nvme0").symlink_to(Device(NVME0).folder / "nvme/nvme0")
    machine.mounts("259:9 / ext4 /dev/nvme4n1")
    assert of_disk() == ["nvme4n1 is mounted on /"]


def test_swap(machine: Machine) -> None:
    machine.has("swaps", "Filename Type Size Used Priority\n/dev/nvme0n1p2 partition 1 0 -2\n")
    assert of_disk() == ["nvme0n1p2 is used as swap"]


def test_swap_on_what_may_be_called_anything(machine: Machine) -> None:
    name = "a\N{EM SPACE}b"
    machine.block(name, machine.sysfs / "devices/virtual/block" / name, on=("nvme0n1p2",))
    machine.has("swaps", f"Filename Type Size Used Priority\n/dev/{name} partition 1 0 -2\n")
    assert of_disk() == [f"{name} is used as swap"]


def test_the_only_default_route(machine: Machine) -> None:
    machine.routes("eth1 00000000 00000000 0", "eth1 0000A8C0 00FFFFFF 0")
    assert of_card() == ["the only default route is by eth1"]
    machine.interface("wlan0")
    machine.routes("eth1 00000000 00000000 0", "wlan0 00000000 00000000 600")
    assert of_card() == []


def test_the_only_default_route_of_ipv6(machine: Machine) -> None:
    zeros = "0" * 32
    machine.has(
        "net/ipv6_route",
        f"{zeros} 00 {zeros} 00 {'fe80' + '0' * 27 + '1'} 00000400 00000001 00000000 00000003     eth1\n"
        f"{zeros} 00 {zeros} 00 {zeros} ffffffff 00000001 00000000 00200200       lo\n",
    )
    assert of_card() == ["the only default route is by eth1"]
    # By either the machine can be reached.
    machine.interface("wlan0")
    machine.routes("wlan0 00000000 00000000 600")
    assert of_card() == []


@pytest.mark.parametrize(("lower", "count"), [(("eth1",), 1), (("eth1", "eth2"), 0), (("eth1", "tap0"), 1)])
def test_a_bond_or_bridge(machine: Machine, lower: tuple[str, ...], count: int) -> None:
    """It goes with the last device below it; what is no device's does not keep it."""
    make_device(machine.sysfs, "0000:02:00.0", 12, None, interface="eth2")
    machine.interface("tap0")
    machine.interface("bond0", lower)
    machine.interface("vlan7", ("bond0",))
    machine.routes("vlan7 00000000 00000000 0")
    assert len(of_card()) == count


@pytest.mark.parametrize("client", ["192.168.0.7", "::ffff:192.168.0.7"])
def test_the_way_of_this_session(machine: Machine, monkeypatch: pytest.MonkeyPatch, client: str) -> None:
    machine.interface("wlan0")
    machine.routes("wlan0 00000000 00000000 0", "eth1 0000A8C0 00FFFFFF 0", "wlan0 0000A8C0 0000FFFF 0")
    assert of_card() == []
    monkeypatch.setenv("SSH_CONNECTION", f"{client} 50000 192.168.0.1 22")
    assert of_card() == ["this SSH session, from 192.168.0.7, is by eth1"]
    monkeypatch.setenv("SSH_CONNECTION", "10.0.0.1 50000 192.168.0.1 22")
    assert of_card() == []


def test_the_way_with_the_least_metric(machine: Machine, monkeypatch: pytest.MonkeyPatch) -> None:
    machine.interface("wlan0")
    machine.routes("wlan0 00000000 00000000 600", "eth1 00000000 00000000 100")
    monkeypatch.setenv("SSH_CONNECTION", "10.0.0.1 50000 192.168.0.1 22")
    assert of_card() == ["this SSH session, from 10.0.0.1, is by eth1"]


def test_a_route_that_refuses_is_no_way(machine: Machine) -> None:
    """`ip route add unreachable default metric 999`"""
    machine.routes("eth1 00000000 00000000 0")
    table = (machine.proc / "net/route").read_text()
    machine.has("net/route", f"{table}*\t00000000\t00000000\t0201\t0\t0\t999\t00000000\t0\t0\t0\n")
    assert of_card() == ["the only default route is by eth1"]


def test_a_session_of_the_link(machine: Machine, monkeypatch: pytest.MonkeyPatch) -> None:
    """Its address names the interface."""
    zeros, link = "0" * 32, "fe80" + "0" * 28
    machine.has("net/ipv6_route", f"{link} 40 {zeros} 00 {zeros} 00000100 00000001 00000000 00000001     eth1\n")
    monkeypatch.setenv("SSH_CONNECTION", "fe80::7%eth1 50000 fe80::1%eth1 22")
    assert of_card() == ["this SSH session, from fe80::7, is by eth1"]


def test_the_session_below_sudo(machine: Machine) -> None:
    machine.interface("wlan0")
    machine.routes("wlan0 00000000 00000000 0", "eth1 0000A8C0 00FFFFFF 0")
    parent = os.getppid()
    machine.has(f"{parent}/environ", "PATH=/bin\0")
    machine.has(f"{parent}/status", "Name:\tsudo\nPPid:\t77\n")
    machine.has("77/environ", "A=b\0SSH_CONNECTION=192.168.0.7 50000 192.168.0.1 22\0")
    machine.has("77/status", "Name:\tbash\nPPid:\t1\n")
    assert of_card() == ["this SSH session, from 192.168.0.7, is by eth1"]


def test_virtual_functions_and_guests(machine: Machine) -> None:
    (Device(IGB).folder / "sriov_numvfs").write_text("4\n")
    assert of_card() == [f"{IGB} (eth1) has 4 virtual functions, which go with its driver"]
    make_device(machine.sysfs, "0000:07:00.0", 14, "none", "vfio-pci")
    assert "vfio-pci" in essential.reasons([Device("0000:07:00.0")])[0]
