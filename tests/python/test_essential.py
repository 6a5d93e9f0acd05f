# SPDX-License-Identifier: GPL-2.0-only
"""The needs of a machine are found through partitions, RAID, encryption, bonds, and sudo."""

from __future__ import annotations

import errno
import os
from collections.abc import Callable
from ipaddress import ip_address
from pathlib import Path

import pytest
from tests.python.fake_network import Network
from tests.python.sysfs import BELOW_VMD, IGB, NVME0, VMD, make_device, move

from xsmmu import disks, essential, netlink, opened
from xsmmu.machine import Device, shown
from xsmmu.routing import Connection, View


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
        """A block device, made of the devices in `on`."""
        (folder / "slaves").mkdir(parents=True)
        (self.sysfs / "class/block").mkdir(exist_ok=True)
        (self.sysfs / "class/block" / name).symlink_to(folder)
        for lower in on:
            (folder / "slaves" / lower).symlink_to(self.sysfs / "class/block" / lower)
        if number:
            (self.sysfs / "dev/block").mkdir(parents=True, exist_ok=True)
            (self.sysfs / "dev/block" / number).symlink_to(folder)

    def interface(self, name: str, on: tuple[str, ...] = ()) -> None:
        """An interface without a device, made of the interfaces in `on`."""
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


pytestmark = pytest.mark.usefixtures("machine")
CLAIM = disks.claim


@pytest.fixture
def claim() -> Callable[[Path, str], None]:
    """The real claim()."""
    return CLAIM


@pytest.fixture
def machine(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Machine:
    monkeypatch.setenv("XSMMU_SYSFS", str(tmp_path / "sys"))
    monkeypatch.setenv("XSMMU_PROC", str(tmp_path / "proc"))
    found = Machine(tmp_path)
    # Another NIC, which stays.
    make_device(found.sysfs, "0000:03:00.0", 12, None, "iwlwifi", interface="wlan0")
    return found


def of_disk() -> list[str]:
    return essential.reasons([Device(NVME0)])


@pytest.mark.parametrize("name", [b"a\xff", b"a\x0cb", b"a\rb", b"a\xc2\x85b", b"a\xe2\x80\xa8b"])
def test_a_folder_may_be_called_anything(machine: Machine, name: bytes) -> None:
    """A mount there is a line of mountinfo, whatever other characters end lines of text."""
    machine.has("self/mountinfo", "")
    row = b"22 1 259:2 / /media/%b rw - ext4 /dev/nvme0n1p2 rw\n" % name
    (machine.proc / "self/mountinfo").write_bytes(row)
    assert [each.partition("/")[0] for each in of_disk()] == ["nvme0n1p2 is mounted on "]


def of_card() -> list[str]:
    return essential.reasons([Device(IGB)])


@pytest.mark.parametrize("name", [b"a\xff", b"a\xe2\x80\x83b", b"\xe2\x80\x83a", b"a\xc2\x85"])
def test_an_interface_may_be_called_anything(machine: Machine, network: Network, name: bytes) -> None:
    """The kernel refuses only its own blank characters, byte by byte."""
    called = os.fsdecode(name)
    (machine.sysfs / "class/net/eth1").rename(machine.sysfs / "class/net" / called)
    network.route(called)
    assert of_card() == [f"the only default route uses {shown(called)}"]


UNKNOWN = "(the kernel does not show on which device)"
TCP = "  sl  local_address rem_address   st\n"
V6_MAPPED = "0000000000000000FFFF0000"


@pytest.mark.parametrize(
    ("file", "row", "said"),
    [
        ("tcp", "0200A8C0:0379 0700A8C0:0801 01", ["NFS at 192.168.0.7 uses eth1"]),
        ("tcp", "0200A8C0:0379 0700A8C0:0CBC 01", ["iSCSI at 192.168.0.7 uses eth1"]),
        ("tcp", "0200A8C0:0379 0700A8C0:1144 01", ["NVMe over TCP at 192.168.0.7 uses eth1"]),
        ("tcp", "0200A8C0:0379 0700A8C0:2A39 01", ["nbd at 192.168.0.7 uses eth1"]),
        # A disk of RBD is no mount; nor is a pair of DRBD.
        ("tcp", "0200A8C0:0379 0700A8C0:0CE4 01", ["Ceph at 192.168.0.7 uses eth1"]),
        ("tcp", "0200A8C0:0379 0700A8C0:1A85 01", ["Ceph at 192.168.0.7 uses eth1"]),
        ("tcp", "0200A8C0:0379 0700A8C0:1E6C 01", ["DRBD at 192.168.0.7 uses eth1"]),
        ("tcp", "0200A8C0:0379 0700A8C0:1E6D 01", ["DRBD at 192.168.0.7 uses eth1"]),
        ("tcp", "0200A8C0:0379 0700A8C0:0234 01", ["9P at 192.168.0.7 uses eth1"]),
        ("tcp", "0200A8C0:0379 0700A8C0:03DC 01", ["Lustre at 192.168.0.7 uses eth1"]),
        ("tcp", "0200A8C0:0379 0700A8C0:5DC7 01", ["GlusterFS at 192.168.0.7 uses eth1"]),
        ("tcp6", f"{V6_MAPPED}0200A8C0:0379 {V6_MAPPED}0700A8C0:01BD 01", ["SMB at 192.168.0.7 uses eth1"]),
        # A closed connection, a port of another service, a server on this machine, and a server elsewhere.
        ("tcp", "0200A8C0:0379 0700A8C0:0801 06", []),
        ("tcp", "0200A8C0:0379 0700A8C0:01BB 01", []),
        ("tcp", "0200A8C0:0801 0700A8C0:0379 01", []),
        ("tcp", "0200A8C0:0379 070010AC:0801 01", []),
    ],
)
def test_network_storage(machine: Machine, network: Network, file: str, row: str, said: list[str]) -> None:
    """Of a kernel without more details."""
    network.connected = None
    network.route("wlan0")
    network.route("eth1", "192.168.0.0/24")
    machine.has(f"net/{file}", f"{TCP}   0: {row} 0:0\n   1: {row} 0:0\n")
    assert of_card() == said
    assert of_disk() == []


def test_storage_of_the_machine_itself(machine: Machine, network: Network) -> None:
    """No route of the tables leads to the machine's own addresses, except that the default route covers all."""
    network.route("eth1")
    network.route("wlan0", metric=600)
    network.route("eth1", "::/0")
    network.route("wlan0", "::/0", metric=600)
    network.connect("192.168.0.2", 889, "192.168.0.2", 2049)
    network.connect("127.0.0.1", 889, "127.0.0.2", 10809)
    network.connect("::1", 889, "::1", 3260)
    machine.has("self/mountinfo", "22 1 0:50 / /mnt rw - nfs4 localhost:/ rw,addr=127.0.0.1\n")
    assert of_card() == []


@pytest.mark.parametrize(
    ("mount", "said"),
    [
        ("nfs files:/srv rw,vers=3,addr=192.168.0.7", ["NFS at 192.168.0.7 uses eth1"]),
        ("nfs4 files:/srv rw,clientaddr=192.168.0.2,addr=192.168.0.7", ["NFS at 192.168.0.7 uses eth1"]),
        ("cifs //files/srv rw,addr=192.168.0.7,uid=0", ["SMB at 192.168.0.7 uses eth1"]),
        ("smb3 //files/srv addr=192.168.0.7", ["SMB at 192.168.0.7 uses eth1"]),
        ("nfs4 files:/srv rw,mountaddr=192.168.0.7,addr=172.16.0.7", []),
        ("nfs4 files:/srv rw,addr=fe80::7%eth1", ["NFS at fe80::7 uses eth1"]),
        ("nfs4 files:/srv rw,addr=fe80::7%wlan0", []),
        ("nfs4 files:/srv rw,addr=fe80::7%eth9", [f"NFS at fe80::7 uses eth9 {UNKNOWN}"]),
        ("ceph 10.0.0.7:6789,192.168.0.7:6789:/ /mnt rw", ["Ceph at 192.168.0.7 uses eth1"]),
        ("ceph a@1.fs=/ rw,mon_addr=10.0.0.7:3300/192.168.0.7:3300", ["Ceph at 192.168.0.7 uses eth1"]),
        ("nfs4 files:/srv rw", []),
        ("nfs4 files:/srv rw,addr=files", []),
        ("fuse.x files:/srv rw,addr=192.168.0.7", []),
    ],
)
def test_storage_that_is_mounted(machine: Machine, network: Network, mount: str, said: list[str]) -> None:
    """NFS of version 3 ends a connection after five idle minutes."""
    network.route("wlan0")
    network.route("eth1", "192.168.0.0/24")
    machine.has("self/mountinfo", f"22 1 0:50 / /mnt rw,relatime shared:1 - {mount}\n")
    assert of_card() == said


def test_nothing_in_use(machine: Machine) -> None:
    machine.mounts("0:22 /sys sysfs sysfs")
    machine.has("swaps", "Filename Type Size Used Priority\n")
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


@pytest.mark.parametrize(("name", "shown"), [("a b", "a\\040b"), ("a\\b", "a\\134b")])
def test_swap_with_an_escaped_name(machine: Machine, name: str, shown: str) -> None:
    """The kernel escapes blanks and backslashes in /proc/swaps."""
    machine.block(name, machine.sysfs / "devices/virtual/block" / name, on=("nvme0n1p2",))
    machine.has("swaps", f"Filename Type Size Used Priority\n/dev/{shown} partition 1 0 -2\n")
    assert of_disk() == [f"{name} is used as swap"]


def test_swap_on_what_may_be_called_anything(machine: Machine) -> None:
    name = "a\N{EM SPACE}b"
    machine.block(name, machine.sysfs / "devices/virtual/block" / name, on=("nvme0n1p2",))
    machine.has("swaps", f"Filename Type Size Used Priority\n/dev/{name} partition 1 0 -2\n")
    assert of_disk() == [f"{name} is used as swap"]


# ---- routes of the network ----


def test_the_only_default_route(network: Network) -> None:
    network.route("eth1")
    network.route("eth1", "192.168.0.0/24")
    assert of_card() == ["the only default route uses eth1"]
    network.route("wlan0", metric=600)
    assert of_card() == []


def test_the_only_default_route_of_ipv6(network: Network) -> None:
    network.route("eth1", "::/0")
    only = ["the only IPv6 default route uses eth1"]
    assert of_card() == only
    # No packet of IPv6 leaves by a route of IPv4.
    network.route("wlan0", metric=600)
    assert of_card() == only
    network.route("wlan0", "::/0", metric=600)
    assert of_card() == []


def test_default_routes_of_vrfs_and_rules(network: Network) -> None:
    """A VRF has no other default route; packets that a rule diverts have the machine's."""
    network.interface("mgmt", "vrf", table=10)
    network.route("wlan0")
    network.route("eth1", table=100)
    assert of_card() == []
    network.route("eth1", table=10)
    assert of_card() == ["the only default route of VRF mgmt uses eth1"]
    network.table = [row for row in network.table if row.table == 100]
    assert of_card() == ["the only default route of table 100 uses eth1"]
    network.route("wlan0", "::/0")
    network.route("wlan0", table=101)
    assert of_card() == ["the only default route of table 100 uses eth1"]


def test_a_default_route_of_a_rule_replaces_none(network: Network) -> None:
    """Packets of addresses outside the rule do not use the rule's route."""
    network.route("eth1")
    network.route("wlan0", table=100)
    assert of_card() == ["the only default route uses eth1"]
    network.route("wlan0", table=253)
    assert of_card() == []


HALVES = ("0.0.0.0/1", "128.0.0.0/1"), ("::/1", "8000::/1"), ("2000::/3",), ("0.0.0.0/2", "64.0.0.0/2", "128.0.0.0/1")


@pytest.mark.parametrize("halves", HALVES)
@pytest.mark.parametrize("vrf", ["", " of VRF mgmt"])
def test_a_default_route_in_parts(machine: Machine, network: Network, halves: tuple[str, ...], vrf: str) -> None:
    table = 10 if vrf else 254
    network.interface("mgmt", "vrf", table=10)
    for network_of in halves:
        network.route("eth1", network_of, table=table)
    if vrf:
        assert of_card() == []
        (machine.sysfs / "class/net/eth1/master").symlink_to("../mgmt")
    [said] = of_card()
    assert said.startswith(f"the route{vrf} to public addresses, such as ")
    assert said.endswith(", uses eth1")
    assert of_disk() == []
    # The rest of the machine's tables takes the packets then.
    network.route("wlan0", "::/0" if ":" in halves[0] else "0.0.0.0/0", metric=600, table=table)
    assert of_card() == []


def test_a_session_by_rules_of_ports(network: Network, monkeypatch: pytest.MonkeyPatch) -> None:
    network.route("wlan0")
    network.route("eth1", table=100)
    monkeypatch.setenv("SSH_CONNECTION", "10.0.0.1 50000 192.168.0.1 22")
    for port, said in ((22, [by("eth1", "10.0.0.1")]), (50000, [by("eth1", "10.0.0.1")]), (23, [])):
        network.by_port = {port: 100}
        assert of_card() == said


def test_a_session_by_rules_of_services(network: Network, monkeypatch: pytest.MonkeyPatch) -> None:
    """The answer to a lookup does not depend on SSH's settings."""
    network.route("wlan0")
    network.route("eth1", table=100)
    monkeypatch.setenv("SSH_CONNECTION", "10.0.0.1 50000 192.168.0.1 22")
    network.by_service = {0x10: 100}
    assert of_card() == [by("eth1", "10.0.0.1", "may use")]


def test_storage_by_rules_of_ports(machine: Machine, network: Network) -> None:
    network.route("wlan0")
    network.route("eth1", table=100)
    machine.has("self/mountinfo", "22 1 0:50 / /mnt rw - nfs4 files:/srv rw,addr=10.0.0.7\n")
    assert of_card() == []
    network.by_port = {2049: 100}
    assert of_card() == ["NFS at 10.0.0.7 uses eth1"]


@pytest.mark.parametrize(
    ("kind", "lower", "count"),
    [
        ("bond", ("eth1",), 1),
        ("bond", ("eth1", "wlan0"), 0),
        ("team", ("eth1", "wlan0"), 0),
        # A port that is down, or without a device, does not hold the bond.
        ("bond", ("eth1", "down0"), 1),
        ("bond", ("eth1", "tap0"), 1),
        # No port is up: any port may be, later.
        ("bond", ("down0",), 0),
        # The wanted host may be behind either port.
        ("bridge", ("eth1", "wlan0"), 1),
        ("bridge", ("wlan0", "tap0"), 0),
        ("batadv", ("eth1", "wlan0"), 1),
    ],
)
def test_what_stands_on_several(
    machine: Machine, network: Network, kind: str, lower: tuple[str, ...], count: int
) -> None:
    make_device(machine.sysfs, "0000:02:00.0", 15, None, interface="down0")
    network.interface("down0", is_up=False)
    machine.interface("tap0")
    machine.interface("upper0", lower)
    machine.interface("vlan7", ("upper0",))
    network.interface("upper0", kind)
    network.route("vlan7")
    assert len(of_card()) == count


@pytest.mark.parametrize(
    ("status", "group", "used", "count"),
    [
        ("up", "N/A", "", 0),
        ("up", "1", "1", 0),
        # The port has a carrier, but its ARP target does not answer, or the bond has just begun to trust the port.
        ("down", "N/A", "", 1),
        ("going down", "N/A", "", 1),
        ("going back", "N/A", "", 1),
        # The switch has grouped the port differently from the other port, or not at all.
        ("up", "2", "1", 1),
    ],
)
def test_a_leg_that_its_bond_does_not_use(
    machine: Machine, network: Network, status: str, group: str, used: str, count: int
) -> None:
    machine.interface("bond0", ("eth1", "wlan0"))
    network.interface("bond0", "bond")
    network.route("bond0")
    (machine.sysfs / "class/net/bond0/bonding").mkdir()
    (machine.sysfs / "class/net/bond0/bonding/ad_aggregator").write_text(f"{used}\n")
    for name, words in (("eth1", ("up", "1" if used else "N/A")), ("wlan0", (status, group))):
        leg = machine.sysfs / "class/net" / name
        (leg / "master").symlink_to(machine.sysfs / "class/net/bond0")
        (leg / "bonding_slave").mkdir()
        (leg / "bonding_slave/mii_status").write_text(f"{words[0]}\n")
        (leg / "bonding_slave/ad_aggregator_id").write_text(f"{words[1]}\n")
    assert of_card() == ["the only default route uses bond0"] * count


@pytest.mark.parametrize("ports", [("eth1",), ("eth1", "wlan0"), ("bond0",)])
def test_open_vswitch(machine: Machine, network: Network, ports: tuple[str, ...]) -> None:
    """The datapath has the ports; the interface with the address is internal, without ports below."""
    machine.interface("bond0", ("eth1", "wlan0"))
    machine.interface("ovs-system", ports)
    machine.interface("br-ex")
    network.interface("br-ex", "openvswitch")
    network.interface("ovs-system", "openvswitch")
    network.route("br-ex")
    assert of_card() == ["the only default route uses br-ex"]


@pytest.mark.parametrize("kind", ["veth", "tun", "ppp", "macvlan", "dummy", "wireguard", "netkit", "vxlan"])
def test_what_cannot_be_followed_counts(machine: Machine, network: Network, kind: str) -> None:
    machine.interface("up0")
    network.interface("up0", kind)
    network.route("up0")
    assert of_card() == [f"the only default route uses up0 {UNKNOWN}"]
    assert of_disk() == []


@pytest.mark.parametrize(
    ("ends", "said"),
    [
        (("192.168.0.7",), ["the only default route uses up0"]),
        (("172.16.0.7", "192.168.0.7"), ["the only default route uses up0"]),
        (("172.16.0.7",), []),
        # The tunnel would carry its own packets; its route is no route to its ends.
        (("10.0.0.7",), [f"the only default route uses up0 {UNKNOWN}"]),
        (("2001:db8::7",), [f"the only default route uses up0 {UNKNOWN}"]),
    ],
)
def test_a_tunnel(machine: Machine, network: Network, ends: tuple[str, ...], said: list[str]) -> None:
    machine.interface("up0")
    network.interface("up0", "ipip", ends=tuple(map(ip_address, ends)))
    network.route("up0")
    network.route("eth1", "192.168.0.0/24")
    network.route("wlan0", "172.16.0.0/16")
    assert of_card() == said


def test_a_tunnel_whose_packets_are_marked(machine: Machine, network: Network) -> None:
    """Routing rules divert marked packets to the same address."""
    machine.interface("up0")
    network.interface("up0", "gre", ends=(ip_address("192.168.0.7"),), mark=5)
    network.route("up0")
    network.route("wlan0", "192.168.0.0/24")
    network.route("eth1", "192.168.0.0/24", table=100)
    assert of_card() == []
    network.rules = {5: 100}
    assert of_card() == ["the only default route uses up0"]


def test_an_interface_on_no_pci_device(machine: Machine, network: Network) -> None:
    machine.interface("usb0")
    (machine.sysfs / "devices/virtual/net/usb0/device").mkdir()
    network.route("usb0")
    assert of_card() == []


def by(name: str, client: str = "192.168.0.7", how: str = "uses") -> str:
    return f"this SSH session, from {client}, {how} {name}"


@pytest.mark.parametrize("client", ["192.168.0.7", "::ffff:192.168.0.7"])
def test_the_way_of_this_session(network: Network, monkeypatch: pytest.MonkeyPatch, client: str) -> None:
    network.route("wlan0")
    network.route("eth1", "192.168.0.0/24")
    network.route("wlan0", "192.168.0.0/16")
    assert of_card() == []
    monkeypatch.setenv("SSH_CONNECTION", f"{client} 50000 192.168.0.1 22")
    assert of_card() == [by("eth1")]
    assert of_disk() == []
    monkeypatch.setenv("SSH_CONNECTION", "10.0.0.1 50000 192.168.0.1 22")
    assert of_card() == []


def test_the_way_with_the_least_metric(network: Network, monkeypatch: pytest.MonkeyPatch) -> None:
    network.route("wlan0", metric=600)
    network.route("eth1", metric=100)
    monkeypatch.setenv("SSH_CONNECTION", "10.0.0.1 50000 192.168.0.1 22")
    assert of_card() == [by("eth1", "10.0.0.1")]


@pytest.mark.parametrize(
    ("scope", "said"),
    [
        ("eth1", [by("eth1", "fe80::7")]),
        ("vlan7", [by("vlan7", "fe80::7")]),
        ("2", [by("eth1", "fe80::7")]),
        ("wlan0", []),
        ("gone0", [by(f"gone0 {UNKNOWN}", "fe80::7")]),
    ],
)
def test_a_session_of_the_link(
    machine: Machine, network: Network, monkeypatch: pytest.MonkeyPatch, scope: str, said: list[str]
) -> None:
    """The address names the interface; the first matching route belongs to another interface."""
    network.interface("eth1")
    machine.interface("vlan7", ("eth1",))
    network.route("wlan0" if scope != "wlan0" else "eth1", "fe80::/64")
    monkeypatch.setenv("SSH_CONNECTION", f"fe80::7%{scope} 50000 fe80::1%{scope} 22")
    assert of_card() == said


def test_a_session_of_the_link_that_names_none(network: Network, monkeypatch: pytest.MonkeyPatch) -> None:
    network.route("wlan0", "fe80::/64")
    network.route("eth1", "fe80::/64", metric=256)
    monkeypatch.setenv("SSH_CONNECTION", "fe80::7 50000 fe80::1 22")
    assert of_card() == [by("eth1", "fe80::7", "may use")]
    network.connect("fe80::1", 22, "fe80::7", 50000, network.interface("wlan0"))
    assert of_card() == []


@pytest.mark.parametrize(("bound", "said"), [("mgmt", [by("eth1")]), (None, [])])
def test_a_session_of_a_vrf(
    network: Network, monkeypatch: pytest.MonkeyPatch, bound: str | None, said: list[str]
) -> None:
    """The socket names the VRF."""
    vrf = network.interface("mgmt", "vrf", table=10)
    network.route("wlan0")
    network.route("eth1", "192.168.0.0/24", table=10)
    network.connect("192.168.0.1", 22, "192.168.0.7", 50000, vrf if bound else None)
    network.connect("192.168.0.1", 22, "192.168.0.7", 50001, None if bound else vrf)
    monkeypatch.setenv("SSH_CONNECTION", "192.168.0.7 50000 192.168.0.1 22")
    assert of_card() == said
    network.connected = None
    assert of_card() == [by("eth1", how="may use")]


def test_a_session_that_a_rule_sends_elsewhere(network: Network, monkeypatch: pytest.MonkeyPatch) -> None:
    """A firewall marks connections from outside, which no socket shows."""
    network.route("wlan0")
    network.route("eth1", table=100)
    monkeypatch.setenv("SSH_CONNECTION", "10.0.0.1 50000 192.168.0.1 22")
    assert of_card() == []
    network.rules = {5: 100}
    assert of_card() == [by("eth1", "10.0.0.1", "may use")]


def test_a_session_whose_socket_is_marked(network: Network, monkeypatch: pytest.MonkeyPatch) -> None:
    """Then the answer is certain."""
    network.route("wlan0")
    network.route("eth1", table=100)
    network.rules = {5: 100}
    network.connected = [Connection(ip_address("192.168.0.1"), 22, ip_address("10.0.0.1"), 50000, 0, 5)]
    monkeypatch.setenv("SSH_CONNECTION", "10.0.0.1 50000 192.168.0.1 22")
    assert of_card() == [by("eth1", "10.0.0.1")]


def test_a_session_to_an_address_of_the_interface(network: Network, monkeypatch: pytest.MonkeyPatch) -> None:
    """Its packets leave by another interface, but the address disappears with this interface."""
    network.route("wlan0")
    network.addresses = {"wlan0": ["192.168.0.2"], "eth1": ["192.168.0.1"]}
    monkeypatch.setenv("SSH_CONNECTION", "10.0.0.1 50000 192.168.0.1 22")
    assert of_card() == [by("eth1", "10.0.0.1", "may use")]
    monkeypatch.setenv("SSH_CONNECTION", "10.0.0.1 50000 192.168.0.2 22")
    assert of_card() == []


ITSELF = "this SSH session comes from this machine itself (a tunnel?), and xsmmu cannot find its route"


@pytest.mark.parametrize(
    ("words", "said"),
    [
        ("UNKNOWN 65535 UNKNOWN 65535", "this session may use the device: SSH names UNKNOWN as client"),
        ("10.0.0.1 50000 192.168.0.1 22", "from 10.0.0.1, may use the device: the kernel has no route to the client"),
        ("1.2.3.4 x 5.6.7.8 22", "this session may use the device: SSH names 1.2.3.4 as client"),
        ("1.2.3.4 50000 5.6.7.8 ssh", "this session may use the device: SSH names 1.2.3.4 as client"),
        ("1.2.3.4 -1 5.6.7.8 22", "this session may use the device: SSH names 1.2.3.4 as client"),
        ("1.2.3.4 65536 5.6.7.8 22", "this session may use the device: SSH names 1.2.3.4 as client"),
        ("1.2.3.4", "this session may use the device: SSH names 1.2.3.4 as client"),
        ("127.0.0.1 50000 127.0.0.1 22", ITSELF),
        ("::1 50000 ::1 22", ITSELF),
        ("::ffff:127.0.0.1 50000 ::ffff:127.0.0.1 22", ITSELF),
        ("192.168.0.1 50000 192.168.0.1 22", ITSELF),
        # Its other address.
        ("192.168.0.2 50000 192.168.0.1 22", ITSELF),
    ],
)
def test_a_session_of_which_nothing_is_known(
    network: Network, monkeypatch: pytest.MonkeyPatch, words: str, said: str
) -> None:
    network.route("lo", "127.0.0.0/8")
    network.route("lo", "::1/128")
    network.addresses = {"wlan0": ["192.168.0.2"]}
    monkeypatch.setenv("SSH_CONNECTION", words)
    [reason] = of_card()
    assert said in reason
    assert of_disk() == []


def test_a_session_of_another_network_namespace(
    machine: Machine, network: Network, monkeypatch: pytest.MonkeyPatch
) -> None:
    network.route("wlan0")
    monkeypatch.setenv("SSH_CONNECTION", "10.0.0.1 50000 192.168.0.1 22")
    machine.has(f"{os.getppid()}/comm", "sshd\n")
    for process, namespace in (("self", "net:[1]"), (str(os.getppid()), "net:[2]")):
        (machine.proc / process / "ns").mkdir(parents=True, exist_ok=True)
        (machine.proc / process / "ns/net").symlink_to(namespace)
    assert f"sshd ({os.getppid()}) is in another network namespace" in of_card()[0]


@pytest.mark.parametrize("variable", ["TMUX", "STY", "ZELLIJ"])
def test_a_session_in_tmux(network: Network, monkeypatch: pytest.MonkeyPatch, variable: str) -> None:
    """A session that has ended may have started it."""
    network.route("wlan0")
    network.route("eth1", "192.168.0.0/24")
    network.connect("192.168.0.1", 22, "192.168.0.7", 50000)
    network.connect("192.168.0.1", 443, "192.168.0.8", 50000)
    assert of_card() == []
    monkeypatch.setenv(variable, "/tmp/tmux-0/default,1,0")
    other = by("eth1").replace("this", "an")
    assert of_card() == [other]
    monkeypatch.setenv("SSH_CONNECTION", "10.0.0.1 50000 192.168.0.1 22")
    assert of_card() == [other]


def test_a_session_whose_connection_is_over(network: Network, monkeypatch: pytest.MonkeyPatch) -> None:
    """As in mosh and dtach, which leave no trace: the user may have come by another connection."""
    network.route("wlan0")
    network.route("eth1", "192.168.0.0/24")
    network.connect("192.168.0.1", 22, "192.168.0.7", 50000)
    monkeypatch.setenv("SSH_CONNECTION", "10.0.0.1 50000 192.168.0.1 22")
    assert of_card() == [by("eth1").replace("this", "an")]
    network.connect("192.168.0.1", 22, "10.0.0.1", 50000)
    assert of_card() == []


def test_a_server_of_ssh_at_another_port(machine: Machine, network: Network, monkeypatch: pytest.MonkeyPatch) -> None:
    """For a tmux started at a console, only other users' processes show the port."""
    network.route("wlan0")
    network.route("eth1", "192.168.0.0/24")
    network.connect("192.168.0.1", 2222, "192.168.0.7", 50000)
    monkeypatch.setenv("TMUX", "/tmp/tmux-0/default,1,0")
    machine.has("77/environ", "A=b\0SSH_CONNECTION=192.168.0.7 50000 192.168.0.1 port\0")
    machine.has("78/environ", "A=b\0")
    (machine.proc / "79").mkdir()
    assert of_card() == []
    machine.has("78/environ", "A=b\0SSH_CONNECTION=192.168.0.7 50000 192.168.0.1 2222\0")
    assert of_card() == [by("eth1").replace("this", "an")]


def test_the_session_below_sudo(machine: Machine, network: Network) -> None:
    network.route("wlan0")
    network.route("eth1", "192.168.0.0/24")
    parent = os.getppid()
    machine.has(f"{parent}/environ", "PATH=/bin\0")
    machine.has(f"{parent}/status", "Name:\tsudo\nPPid:\t77\n")
    machine.has("77/environ", "A=b\0SSH_CONNECTION=192.168.0.7 50000 192.168.0.1 22\0")
    machine.has("77/status", "Name:\tbash\nPPid:\t1\n")
    assert of_card() == [by("eth1")]


def test_storage_of_vrfs_and_other_ports(machine: Machine, network: Network) -> None:
    vrf = network.interface("storage", "vrf", table=10)
    network.route("wlan0")
    network.route("eth1", "192.168.0.0/24", table=10)
    network.connect("192.168.0.1", 40000, "192.168.0.7", 3260, vrf)
    assert of_card() == ["iSCSI at 192.168.0.7 uses eth1"]
    network.connected = []
    assert of_card() == []
    network.route("eth1", "192.168.1.0/24")
    for name, transport, address in (("nvme7", "rdma", "192.168.1.7"), ("nvme8", "fc", "nn-0x1:pn-0x2")):
        folder = machine.sysfs / "class/nvme" / name
        folder.mkdir()
        (folder / "transport").write_text(f"{transport}\n")
        (folder / "address").write_text(f"traddr={address},trsvcid=4420\n")
    iscsi = machine.sysfs / "class/iscsi_connection/connection1:0"
    iscsi.mkdir(parents=True)
    (iscsi / "address").write_text("192.168.1.8\n")
    assert of_card() == ["NVMe over RDMA at 192.168.1.7 uses eth1", "iSCSI at 192.168.1.8 uses eth1"]


def test_storage_of_a_socket_that_is_bound(machine: Machine, network: Network) -> None:
    """NVMe with host_iface, at an unusual port: the routing tables name another interface."""
    network.route("wlan0")
    bound = network.interface("eth1")
    folder = machine.sysfs / "class/nvme/nvme7"
    folder.mkdir()
    (folder / "transport").write_text("tcp\n")
    (folder / "address").write_text("traddr=192.168.0.7,trsvcid=8009,host_iface=eth1\n")
    assert of_card() == []
    network.route("eth1", "192.168.0.0/24", metric=600)
    network.route("wlan0", "192.168.0.0/24")
    network.connect("192.168.0.1", 40000, "192.168.0.7", 8009, bound)
    assert of_card() == ["NVMe over TCP at 192.168.0.7 uses eth1"]


@pytest.mark.parametrize("place", ["net", "virtio3/net"])
def test_an_interface_in_another_network_namespace(machine: Machine, place: str) -> None:
    """sysfs has a folder for interfaces, and shows those of a single namespace."""
    make_device(machine.sysfs, "0000:07:00.0", 14, "none", "virtio-pci")
    card = Device("0000:07:00.0")
    (card.folder / place).mkdir(parents=True)
    said = "0000:07:00.0 has an interface in another network namespace, where its use is not visible"
    assert essential.reasons([card]) == [said]
    (card.folder / place / "eth7").mkdir()
    assert essential.reasons([card]) == []


def test_connections_of_the_host(machine: Machine) -> None:
    """A session by vsock has no address: SSH_CONNECTION=UNKNOWN 65535 UNKNOWN 65535, or none with `incus exec`."""
    make_device(machine.sysfs, "0000:07:00.0", 14, "none", "virtio-pci")
    made = Device("0000:07:00.0").folder / "virtio3"
    made.mkdir()
    (machine.sysfs / "bus/virtio/devices").mkdir(parents=True)
    (machine.sysfs / "bus/virtio/devices/virtio3").symlink_to(made)
    assert essential.reasons([Device("0000:07:00.0")]) == []
    (made / "driver").symlink_to("../../bus/virtio/drivers/vmw_vsock_virtio_transport")
    said = "virtio3 carries vsock connections, possibly of this session"
    assert essential.reasons([Device("0000:07:00.0")]) == [said]
    assert of_card() == []


def test_a_network_that_cannot_be_asked(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*_: object) -> bytes:
        raise PermissionError(errno.EPERM, "Operation not permitted")

    monkeypatch.setattr(essential, "View", View)
    monkeypatch.setattr(netlink, "dump", refuse)
    assert of_card() == [
        "the network may use the device: the kernel does not list its routes (Operation not permitted)"
    ]


# ---- disks in use as only the kernel knows ----


CLAIMED = "nvme0n1 is in use: the kernel refuses an exclusive open of /dev/nvme0n1"


def test_what_only_the_kernel_knows(machine: Machine, network: Network) -> None:
    """A mount in another mount namespace, a pool, a target."""
    network.claimed["/dev/nvme0n1"] = errno.EBUSY
    assert of_disk() == [f"{CLAIMED} (possibly by a mount in another namespace, a pool or a target)"]
    assert of_card() == []
    machine.block("dm-0", machine.sysfs / "devices/virtual/block/dm-0", on=("nvme0n1p2",))
    holders = machine.sysfs / "class/block/nvme0n1p2/holders"
    holders.mkdir()
    (holders / "dm-0").symlink_to(machine.sysfs / "class/block/dm-0")
    assert of_disk() == [f"{CLAIMED} (held by dm-0)"]
    # A known use is reported once.
    machine.mounts("259:2 / ext4 /dev/nvme0n1p2")
    assert of_disk() == ["nvme0n1p2 is mounted on /"]


def test_btrfs_by_a_name_of_no_device(machine: Machine, network: Network) -> None:
    """The kernel mounts the root by a unique name, and the number is no device's."""
    pool = machine.sysfs / "fs/btrfs/6e1c/devices"
    pool.mkdir(parents=True)
    (pool / "nvme0n1p2").symlink_to(machine.sysfs / "class/block/nvme0n1p2")
    machine.mounts("0:35 / btrfs /dev/root")
    network.claimed["/dev/nvme0n1"] = errno.EBUSY
    [said] = of_disk()
    assert said.startswith(CLAIMED)


@pytest.mark.parametrize(
    ("code", "said"),
    [
        (errno.EACCES, "cannot be opened (Permission denied; run this as root)"),
        (errno.EPERM, "cannot be opened (Operation not permitted; run this as root)"),
        (errno.ENOENT, "cannot be opened (No such file or directory)"),
        (errno.EIO, "cannot be opened (Input/output error)"),
        (errno.ENOMEDIUM, None),
        (errno.ENXIO, None),
    ],
)
def test_a_disk_that_cannot_be_asked_about(network: Network, code: int, said: str | None) -> None:
    network.claimed["/dev/nvme0n1"] = code
    assert of_disk() == ([f"nvme0n1 may be in use: /dev/nvme0n1 {said}"] if said else [])


def test_names_of_disks_in_dev(machine: Machine, network: Network) -> None:
    for name, node in (("cciss!c0d0", "cciss/c0d0"), ("a0", "b/c")):
        machine.block(name, Device(NVME0).folder / name)
        network.claimed[f"/dev/{node}"] = errno.EBUSY
    (Device(NVME0).folder / "a0/uevent").write_text("MAJOR=8\nDEVNAME=b/c\nDEVTYPE=disk\n")
    assert [said.partition(" ")[0] for said in of_disk()] == ["a0", "cciss!c0d0"]


def test_paths_of_nvme_multipath_are_no_disks(machine: Machine, network: Network) -> None:
    subsystem = machine.sysfs / "devices/virtual/nvme-subsystem/nvme-subsys0"
    machine.block("nvme4n1", subsystem / "nvme4n1", "259:9")
    (subsystem / "nvme0").symlink_to(Device(NVME0).folder / "nvme/nvme0")
    machine.block("nvme4c0n1", Device(NVME0).folder / "nvme/nvme0/nvme4c0n1")
    (machine.sysfs / "class/block/nvme4c0n1/hidden").write_text("1\n")
    network.claimed = {"/dev/nvme4n1": errno.EBUSY, "/dev/nvme4c0n1": errno.ENOENT}
    assert [said.partition(" ")[0] for said in of_disk()] == ["nvme4n1"]


def test_an_exclusive_open(tmp_path: Path, claim: Callable[[Path, str], None]) -> None:
    """If sysfs has another device under that number, nothing is known."""
    file = tmp_path / "disk"
    file.touch()
    with pytest.raises(OSError, match="another device"):
        claim(file, "259:0")
    with pytest.raises(FileNotFoundError):
        claim(tmp_path / "none", "259:0")


def test_only_an_exclusive_open_is_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, claim: Callable[[Path, str], None]
) -> None:
    """The kernel permits any other open; and the open is for reading, and does not wait for a disk in a drive."""
    flags_of: list[int] = []
    really = os.open

    def record(file: Path, flags: int) -> int:
        flags_of.append(flags)
        return really(file, os.O_RDONLY | os.O_CLOEXEC)

    (tmp_path / "disk").touch()
    monkeypatch.setattr(os, "open", record)
    with pytest.raises(OSError, match="another device"):
        claim(tmp_path / "disk", "259:0")
    assert flags_of == [os.O_RDONLY | os.O_EXCL | os.O_NONBLOCK | os.O_CLOEXEC]


class Files:
    """Device files of a made-up machine, and the programs with open files."""

    def __init__(self, machine: Machine, monkeypatch: pytest.MonkeyPatch) -> None:
        self.machine = machine
        self.numbers: dict[Path, tuple[str, str]] = {}
        self.asked: list[Path] = []
        monkeypatch.setattr(opened, "number_of", self.number_of)

    def number_of(self, file: Path) -> tuple[str, str] | None:
        """Stands in for opened.number_of()."""
        self.asked.append(file)
        return self.numbers.get(file)

    def node(self, device: str, place: str, number: str, kind: str = "char") -> None:
        """Add a file of /dev for a device with a folder below a PCI device's."""
        folder = Device(device).folder / place
        folder.mkdir(parents=True, exist_ok=True)
        (self.machine.sysfs / "dev" / kind).mkdir(parents=True, exist_ok=True)
        (self.machine.sysfs / "dev" / kind / number).symlink_to(folder)

    def program(self, process: int, name: str, number: str, kind: str = "char", mount: int = 22) -> Path:
        """Add a program with an open device file, named through a mount."""
        file = self.machine.proc / f"{process}/fd/3"
        self.machine.has(f"{process}/comm", "a program\n")
        self.machine.has(f"{process}/fdinfo/3", f"pos:\t0\nflags:\t02\nmnt_id:\t{mount}\nino:\t7\n")
        file.parent.mkdir()
        file.symlink_to(name)
        self.numbers[file] = (kind, number)
        return file


@pytest.fixture
def files(machine: Machine, monkeypatch: pytest.MonkeyPatch) -> Files:
    return Files(machine, monkeypatch)


@pytest.mark.parametrize(
    ("kind", "place", "number"),
    [
        ("block", "nvme/nvme0/nvme0n1/nvme0n1p2", "259:2"),
        ("char", "nvme/nvme0/ng0n1", "240:0"),
        ("char", "nvme/nvme0", "239:0"),
    ],
)
def test_a_disk_that_a_program_has_open(files: Files, kind: str, place: str, number: str) -> None:
    """Not every program claims a disk: QEMU does not."""
    files.node(NVME0, place, number, kind)
    name = Path(place).name
    files.program(77, f"/dev/{name}", number, kind)
    files.program(78, f"/dev/{name}", number, "char" if kind == "block" else "block")
    assert of_disk() == [f"{name} is open in a program (77)"]
    assert of_card() == []


@pytest.mark.parametrize(
    ("place", "in_use"),
    [
        ("host7/target7:0:0/7:0:0:0/scsi_tape/nst0", True),
        ("drm/card0", True),
        ("sound/card1/controlC1", True),
        ("usb1/1-1/input/input3/event3", True),
        ("0000:01:00.0:0/0000:01:00.0:0.0/tty/ttyS4", True),
        ("watchdog/watchdog0", True),
        ("infiniband_verbs/uverbs0", True),
        # A clock survives while its file is open.
        ("ptp/ptp0", False),
    ],
)
def test_what_a_program_has_open(files: Files, place: str, in_use: bool) -> None:
    """Not only files of disks."""
    files.node(IGB, place, "9:128")
    assert of_card() == []
    files.program(77, "/dev/something", "9:128")
    assert of_card() == ([f"{Path(place).name} is open in a program (77)"] if in_use else [])
    assert of_disk() == []


@pytest.mark.parametrize("jailed", [76, 78])
def test_a_process_with_a_root_of_its_own(machine: Machine, files: Files, jailed: int) -> None:
    """`mountinfo` of a jailed process lacks outside mounts, which other processes of the namespace see."""
    files.node(NVME0, "nvme/nvme0", "239:0")
    files.program(77, "/srv/nvme0", "239:0")
    machine.has("77/mountinfo", "22 1 8:1 / /srv rw - ext4 /dev/sda1 rw\n")
    machine.has(f"{jailed}/mountinfo", "")
    for process, root in ((77, "/"), (jailed, "/run/sshd")):
        (machine.proc / f"{process}/ns").mkdir()
        (machine.proc / f"{process}/ns/mnt").symlink_to("mnt:[7]")
        (machine.proc / f"{process}/root").symlink_to(root)
    assert of_disk() == ["nvme0 is open in a program (77)"]


def test_a_file_of_a_server_is_not_asked(machine: Machine, files: Files) -> None:
    """A dead server would never answer; a device file below a local mount is examined."""
    files.node(IGB, "drm/card0", "226:0")
    rows = ("5 /dev devtmpfs", "6 /mnt nfs4", "7 /home fuse.sshfs", "8 /srv ext4", "9 /dev/shm fuse.x")
    text = "".join(f"{row.split()[0]} 1 0:9 / {row.split()[1]} rw - {row.split()[2]} x rw\n" for row in rows)
    expected = []
    for process, (name, mount) in enumerate(
        [
            ("/dev/a", 5),
            ("/mnt/a", 6),
            ("/home/a", 7),
            ("/srv/dev/a", 8),
            ("/dev/shm/a", 9),
            ("/dev/a", 10),
            ("/a", 11),
        ],
        70,
    ):
        machine.has(f"{process}/mountinfo", text)
        file = files.program(process, name, "226:0", mount=mount)
        expected += [file] if mount in (5, 8, 10) else []
    for process, name in enumerate(("socket:[7]", "pipe:[8]", "anon_inode:[eventfd]"), 80):
        files.program(process, name, "226:0", mount=5)
    assert len(of_card()) == 3
    assert sorted(files.asked) == expected


@pytest.mark.parametrize(
    ("consoles", "said"),
    [
        ("tty0                 -WU (EC p  )    4:1\n", "fb0 shows a console of the kernel (tty0)"),
        ("ttyS4                -W- (EC p a)    4:68\n", "ttyS4 is a console of the kernel"),
        ("hvc0                 -W- (EC p  )  229:0\n", "virtio3 may have a console of the kernel (hvc)"),
        ("ttyS0                -W- (EC p a)    4:64\n", None),
        ("netcon0              -W- (E     )\n", None),
    ],
)
def test_consoles(machine: Machine, files: Files, consoles: str, said: str | None) -> None:
    files.node(IGB, "tty/ttyS4", "4:68")
    (Device(IGB).folder / "virtio3").mkdir()
    screen = Device(IGB).folder / "graphics/fb0"
    screen.mkdir(parents=True)
    (machine.sysfs / "class/graphics").mkdir()
    (machine.sysfs / "class/graphics/fb0").symlink_to(screen)
    machine.has("consoles", consoles)
    assert of_card() == ([said] if said else [])
    assert of_disk() == []


@pytest.mark.parametrize(
    ("mount", "driver", "said"),
    [
        ("virtiofs myroot rw", "virtiofs", "myroot (virtiofs) is mounted on /a b, possibly by virtio3"),
        ("virtiofs myroot rw", None, "myroot (virtiofs) is mounted on /a b, possibly by virtio3"),
        ("9p share rw,trans=virtio,cache=5", "9pnet_virtio", "share (9p) is mounted on /a b, possibly by virtio3"),
        ("9p share rw", "9pnet_virtio", "share (9p) is mounted on /a b, possibly by virtio3"),
        ("9p share rw,trans=tcp,port=564", "9pnet_virtio", None),
        ("9p share rw,trans=virtio", "elsewhere", None),
        ("tmpfs share rw,trans=virtio", "9pnet_virtio", None),
    ],
)
def test_what_a_host_gives(machine: Machine, mount: str, driver: str | None, said: str | None) -> None:
    """A virtio device with the right driver only; any virtio device if none has that driver."""
    for device, name in ((IGB, "virtio3"), (NVME0, "virtio4")):
        folder = Device(device).folder / name
        folder.mkdir()
        (machine.sysfs / "bus/virtio/devices").mkdir(parents=True, exist_ok=True)
        (machine.sysfs / "bus/virtio/devices" / name).symlink_to(folder)
    if driver:
        place = NVME0 if driver == "elsewhere" else IGB
        name = "9pnet_virtio" if driver == "elsewhere" else driver
        (next(Device(place).folder.glob("virtio*")) / "driver").symlink_to(f"../{name}")
    machine.has("self/mountinfo", f"22 1 0:50 / /a\\040b rw - {mount}\n")
    assert of_card() == ([said] if said else [])


def test_loop_devices_and_targets_of_nvme(machine: Machine) -> None:
    machine.block("loop0", machine.sysfs / "devices/virtual/block/loop0", "7:0")
    loop = machine.sysfs / "devices/virtual/block/loop0/loop"
    loop.mkdir()
    (loop / "backing_file").write_text("/srv/image\n")
    name = machine.sysfs / "kernel/config/nvmet/subsystems/nqn.a/namespaces/1"
    name.mkdir(parents=True)
    (name / "device_path").write_text("/dev/nvme0n1p2\n")
    (name / "enable").write_text("0\n")
    assert of_disk() == []
    (name / "enable").write_text("1\n")
    (loop / "backing_file").write_text("/dev/nvme0n1p2\n")
    assert of_disk() == ["nvme0n1 is the backing disk of loop0", "nvme0n1 is exported by nqn.a"]
    machine.mounts("7:0 /mnt ext4 /dev/loop0")
    assert of_disk()[0] == "loop0 is mounted on /mnt"


def test_a_controller_that_a_target_passes_on(machine: Machine) -> None:
    target = machine.sysfs / "kernel/config/nvmet/subsystems/nqn.a/passthru"
    target.mkdir(parents=True)
    (target / "device_path").write_text("/dev/nvme0\n")
    (target / "enable").write_text("0\n")
    assert of_disk() == []
    (target / "enable").write_text("1\n")
    assert of_disk() == ["nvme0 is exported by nqn.a"]
    (target / "device_path").write_text("(null)\n")
    assert of_disk() == []


# ---- drivers that pass a device on, or make other devices ----


def test_virtual_functions() -> None:
    (Device(IGB).folder / "sriov_numvfs").write_text("4\n")
    assert of_card() == [f"{IGB} (eth1) has 4 virtual functions, which disappear with its driver"]


@pytest.mark.parametrize(
    ("driver", "place", "name"),
    [
        ("vfio-pci", "class/vfio-dev", "vfio0"),
        ("mlx5_vfio_pci", "class/vfio-dev", "vfio0"),
        ("nvgrace_gpu_vfio_pci", "class/vfio-dev", "vfio0"),
        ("hisi-acc-vfio-pci", "class/vfio-dev", "vfio0"),
        ("pds_vfio_pci", "class/vfio-dev", "vfio0"),
        ("virtio_vfio_pci", "class/vfio-dev", "vfio0"),
        ("qat_vfio_pci", "class/vfio-dev", "vfio0"),
        ("xe-vfio-pci", "class/vfio-dev", "vfio0"),
        ("a-driver-of-tomorrow", "class/vfio-dev", "vfio0"),
        ("uio_pci_generic", "class/uio", "uio0"),
        ("igb_uio", "class/uio", "uio0"),
        ("mlx5_core", "bus/vdpa/devices", "vdpa0"),
    ],
)
def test_drivers_of_programs(machine: Machine, driver: str, place: str, name: str) -> None:
    """The driver's additions to the device decide, not the driver's name."""
    make_device(machine.sysfs, "0000:07:00.0", 14, "none", driver)
    folder = Device("0000:07:00.0").folder / Path(place).name / name
    folder.mkdir(parents=True)
    (machine.sysfs / place).mkdir(parents=True)
    (machine.sysfs / place / name).symlink_to(folder)
    [said] = essential.reasons([Device("0000:07:00.0")])
    assert said.startswith(f"0000:07:00.0 is bound to {driver}, which gives the device to programs ({name})")
    assert of_card() == []


def test_disks_and_interfaces_below_vmd(
    machine: Machine,
) -> None:
    """They are in a domain made by the controller's driver."""
    make_device(machine.sysfs, VMD, 20, "none", "vmd")
    move(machine.sysfs, NVME0, BELOW_VMD)
    machine.mounts("259:2 / ext4 /dev/nvme0n1p2")
    assert essential.reasons([Device(VMD)]) == ["nvme0n1p2 is mounted on /"]


def test_an_interface_of_a_virtual_function(machine: Machine, network: Network) -> None:
    make_device(machine.sysfs, "0000:01:10.0", 30, None, "igbvf", interface="vf0")
    (Device("0000:01:10.0").folder / "physfn").symlink_to(Device(IGB).folder)
    network.route("vf0")
    assert of_card() == ["the only default route uses vf0"]
