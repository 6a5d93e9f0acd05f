# SPDX-License-Identifier: GPL-2.0-only
"""The operator's commands that write, in a guest: a real kernel binds and refuses."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from tests.python import booted, guests, operator_tool
from tests.python.booted import Booted

from xsmmu_lab.setup import boot, build, kernels

DISK_MIB = 256


@pytest.mark.guest
def test_what_the_tool_writes(tmp_path: Path) -> None:
    kernel = kernels.ensure(guests.tools())
    [xsmmu] = build.module(guests.tools(), kernel)
    image = boot.initramfs(guests.tools(), kernel, xsmmu, "initramfs-tools", booted.QUIET)
    words = ("xsmmu.rules=", "xsmmu.min_level=held", "ipv6.disable=1")
    files = {**operator_tool.files(), "etc/modprobe.d/.keep": b""}
    machine = Booted(booted.run(tmp_path, kernel, image, "tool.sh", words, files, DISK_MIB))
    machine.check_end()
    said = machine.said

    def tried(name: str) -> tuple[str, str]:
        return said[f"{name}-status"], said[f"{name}-nic"].strip()

    own_path = "e1000e none off"
    assert tried("bound") == ("1", f"{own_path} DMA-FQ")
    assert "--rebind" in said["bound-says"]
    assert tried("root") == ("1", f"{own_path} DMA-FQ")
    for name in ("root", "root-bound"):
        assert tried(name) == ("1", f"{own_path} DMA-FQ")
        assert "nvme0n1 is mounted on /" in said[f"{name}-says"]
        assert "--persist" in said[f"{name}-says"] and "--force" not in said[f"{name}-says"]
    assert tried("floor")[0] == "1"
    assert re.search("the module refused policy lazy.*: see the kernel log", said["floor-says"])
    assert tried("root-persist")[0] == "0"
    assert said["root-persist-says"].endswith("strict from the next boot on, state now off")
    assert said["root-disk"].startswith("[none]")
    assert re.fullmatch("0000:00:03.0/[0-9a-f:]{9}=strict", said["root-conf"])
    assert "unchanged: strict from the next boot on" in said["root-again-says"]
    assert said["root-unset-status"] == "0"
    # A configuration system repeats the commands: interface, carrier, address and files stay.
    for name in ("root", "chosen", "applied", "auto", "copied", "copies", "unset"):
        again = name if name == "applied" else f"{name}-again"
        assert said[f"{again}-status"] == "0"
        assert said[f"{again}-link-before"] == said[f"{again}-link-after"]
        assert name == "copies" or re.search("unchanged|up to date", said[f"{again}-says"])
    assert said["lost"] == "# eth0 is left down, loses its addresses 10.0.2.15/24"
    assert said["gives"].startswith("ip link set eth0 up && ip addr replace 10.0.2.15/24")
    assert said["address"] == "10.0.2.15/24 1"
    # Half-way: the module refuses when the drivers are unbound and the type is changed.
    assert tried("refused") == ("1", f"{own_path} identity")
    assert re.search("refused policy lazy.*; everything was restored", said["refused-says"])
    assert tried("chosen") == ("0", "e1000e fused attached DMA-FQ")
    assert said["window"] == "500"
    assert said["conf"] == "0000:00:02.0/8086:10d3=fused,max_window_us:500"
    assert said["softdep"] == "softdep e1000e pre: xsmmu"
    assert said["pinged-nic"].strip() == "e1000e fused active DMA-FQ"
    assert tried("copy") == ("1", "e1000e fused active DMA-FQ")
    assert "--rebind" in said["copy-says"]
    assert tried("strict") == ("0", "e1000e strict active DMA-FQ")
    assert tried("auto") == ("0", "e1000e auto active DMA-FQ")
    why = "an Ethernet NIC: its polls flush deferred unmaps"
    assert said["auto-says"].endswith(f"(eth0): fused, level held, state active; auto: {why}")
    assert re.search(r" e1000e +fused \(auto\) +held +active ", said["shown"])
    assert said["explained"].strip() == f"auto has chosen fused, level held: {why}"
    assert said["conf-auto"] == "0000:00:02.0/8086:10d3=auto"
    assert tried("copied")[0] == "0"
    assert tried("copies") == ("0", "e1000e fused active DMA-FQ")
    # Drivers that were bound with copies can have copies again.
    assert tried("copies-again") == ("0", "e1000e copy active DMA-FQ")
    assert tried("unbindable") == ("1", "copy idle DMA-FQ")
    assert "; not restored: e1000e cannot be bound" in said["unbindable-says"]
    assert said["metrics-status"] == "0"
    assert said["metrics-says"].startswith("xsmmu_exposure_seconds_count{")
    assert tried("unset") == ("0", f"{own_path} DMA-FQ")
    assert said["forgotten"] == ""
    assert said["ping"] == "3"
    assert [line for line in machine.xsmmu_lines() if line.startswith("[") and "refused" not in line] == []
