# SPDX-License-Identifier: GPL-2.0-only
"""`xsmmu bench` in a guest: a real kernel unbinds the device and binds it again, and costs are positive."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from tests.python import booted, guests, operator_tool
from tests.python.booted import Booted
from tests.python.test_guest_tool import DISK_MIB

from xsmmu_lab.setup import boot, build, kernels

OWN = "e1000e none off DMA-FQ (null)"
CHOSEN = "e1000e fused attached DMA-FQ (null)"


@pytest.mark.guest
def test_what_is_measured_and_put_back(tmp_path: Path) -> None:
    kernel = kernels.ensure(guests.tools())
    xsmmu, bench = build.module(guests.tools(), kernel, outputs=("xsmmu.ko", "xsmmu_bench.ko"))
    image = boot.initramfs(guests.tools(), kernel, xsmmu, "initramfs-tools", booted.QUIET)
    place = f"lib/modules/{kernel.release}"
    files = {
        **operator_tool.files(),
        f"{place}/modules.dep": f"{bench.name}:\n".encode(),
        f"{place}/{bench.name}": bench.read_bytes(),
    }
    words = ("xsmmu.rules=", "ipv6.disable=1")
    machine = Booted(booted.run(tmp_path, kernel, image, "bench.sh", words, files, DISK_MIB))
    machine.check_end()
    said = machine.said

    def tried(name: str) -> tuple[str, str]:
        return said[f"{name}-status"], said[f"{name}-nic"].strip()

    assert tried("bound") == ("1", OWN)
    assert "add --rebind" in said["bound-says"]
    assert tried("root") == ("1", OWN)
    assert "nvme0n1 is mounted on /" in said["root-says"]
    assert tried("measured") == ("0", OWN), said["measured-says"]
    assert (said["left-out"], said["hypervisor"]) == ("{}", "True")
    modes = ("kernel-strict", "kernel-lazy", "passthrough", "strict", "fused", "copy")
    costs = {mode: said[f"cost-{mode}"].split() for mode in modes}
    for mode, (map_ns, unmap_ns, _) in costs.items():
        assert float(map_ns) > 0 and float(unmap_ns) > 0, mode
    # On any machine: each unmap's invalidations (whole pages are not copied), and that less work costs less.
    assert [costs[mode][2] for mode in ("kernel-strict", "strict", "copy")] == ["None", "1.0", "1.0"]
    assert 0 < float(costs["fused"][2]) < 0.1
    both = {mode: float(map_ns) + float(unmap_ns) for mode, (map_ns, unmap_ns, _) in costs.items()}
    assert both["passthrough"] < both["fused"] < both["kernel-strict"]

    assert tried("small") == ("0", OWN), said["small-says"]
    [small] = json.loads(said["small"])["ranking"]
    assert (small["copy_bytes"], small["invalidations_per_page"]) == (4096, None)
    assert small["both_ns"]["median"] < both["copy"]

    assert tried("chosen") == ("0", CHOSEN)
    assert tried("saved") == ("0", CHOSEN)
    assert said["window"] == "500"
    calibration = json.loads(said["calibration"])
    assert ({*calibration["policies"]}, calibration["hypervisor"]) == ({"strict", "kernel-lazy"}, True)
    assert said["table"] == "saved: /var/lib/xsmmu/calibration.json"

    assert tried("stopped") == ("130", CHOSEN)
    assert said["stopped-says"] == "xsmmu: stopped; everything was restored"
    assert said["ping"] == "3"
    # Only a refused request shows that copying begins without a driver.
    known = ("xsmmu_bench", "refused: copying can begin only")
    ours = [line for line in machine.xsmmu_lines() if line.startswith("[")]
    assert [line for line in ours if not any(word in line for word in known)] == []
