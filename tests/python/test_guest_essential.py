# SPDX-License-Identifier: GPL-2.0-only
"""Refusals of `xsmmu set --rebind` in a guest: a real kernel looks up routes and claims of disks."""

from __future__ import annotations

from tests.python import guests, operator_tool

from xsmmu_lab.runs.experiment import Needs

NETWORK = Needs(
    ("virtio_net", "e1000e", "igb", "vrf", "crc32c_generic", "openvswitch", "tcp_diag", "vfio_pci", "uio_pci_generic"),
    ("usr/bin/ip",),
    "net_init",
)
DISK = Needs(("nvme", "ext4"), ())
SCRIPT = "essential_network.py"
MACHINE = guests.Machine(
    ("essential",),
    mode="free",
    needs=(NETWORK, DISK),
    files=lambda _source: {**operator_tool.files(), f"opt/{SCRIPT}": (guests.SCRIPTS / SCRIPT).read_bytes()},
    timeout_s=900,
)
test_essential = guests.each_case({"essential": MACHINE}, ("essential",))
