# SPDX-License-Identifier: GPL-2.0-only
"""The operator's commands that write, in a guest with the host's Python: a real kernel binds and refuses."""

from __future__ import annotations

import re
import sys
import sysconfig
from collections.abc import Iterator
from pathlib import Path

import pytest
from tests.python import booted, guests
from tests.python.booted import Booted

from xsmmu.project import PROJECT
from xsmmu.setup import boot, build, host, kernels

PACKAGES = ("click", "rich", "markdown_it", "mdurl", "pygments")
DISK_MIB = 256


def tree(place: Path, target: str) -> Iterator[tuple[str, Path]]:
    """The Python modules below a folder, by the name that the disk has them by."""
    for file in place.rglob("*"):
        parts = file.relative_to(place).parts
        if file.suffix in (".py", ".so") and not {"test", "tests", "site-packages", "dist-packages"} & {*parts}:
            yield f"{target}/{file.relative_to(place)}", file


def python() -> dict[str, bytes]:
    """The host's Python, the tool and what it depends on."""
    program = Path(sys.executable).resolve()
    stdlib = Path(sysconfig.get_path("stdlib"))
    packages = Path(sysconfig.get_path("purelib"))
    found = {"bin/python3": program, **dict(tree(stdlib, str(stdlib).lstrip("/")))}
    found |= {"opt/xsmmu/" + name: PROJECT / "python/xsmmu" / name for name in ("__init__.py", "__main__.py")}
    found |= {"opt/xsmmu/" + name: PROJECT / "python/xsmmu" / name for name in ("cli.py", "errors.py")}
    found |= dict(tree(PROJECT / "python/xsmmu/operator", "opt/xsmmu/operator"))
    for package in PACKAGES:
        found |= dict(tree(packages / package, f"opt/{package}"))
    needed = [str(file) for file in found.values() if file == program or file.suffix == ".so"]
    for library in re.findall(r"(/\S+) \(0x", host.run(["ldd", *needed]).stdout):
        name = Path(library).name
        found["lib64/" + name if name.startswith("ld-linux") else "lib/" + name] = Path(library)
    return {name: file.read_bytes() for name, file in found.items()}


@pytest.mark.guest
def test_what_the_tool_writes(tmp_path: Path) -> None:
    kernel = kernels.ensure(guests.tools())
    [xsmmu] = build.module(guests.tools(), kernel)
    image = boot.initramfs(guests.tools(), kernel, xsmmu, "initramfs-tools", booted.QUIET)
    words = ("xsmmu.rules=", "xsmmu.min_level=held", "ipv6.disable=1")
    files = {**python(), "etc/modprobe.d/.keep": b""}
    machine = Booted(booted.run(tmp_path, kernel, image, "tool.sh", words, files, DISK_MIB))
    machine.check_end()
    said = machine.said

    def tried(name: str) -> tuple[str, str]:
        return said[f"{name}-status"], said[f"{name}-nic"].strip()

    own_path = "e1000e none off"
    assert tried("bound") == ("1", f"{own_path} DMA-FQ")
    assert "--rebind" in said["bound-says"]
    assert tried("root") == ("1", f"{own_path} DMA-FQ")
    assert "nvme0n1 is mounted on /" in said["root-says"]
    # Half-way: the module refuses when the drivers are unbound and the type is changed.
    assert tried("refused") == ("1", f"{own_path} identity")
    assert re.search("refused policy lazy.*; everything is as it was before", said["refused-says"])
    assert tried("chosen") == ("0", "e1000e fused attached DMA-FQ")
    assert said["window"] == "500"
    assert said["conf"] == "0000:00:02.0=fused,max_window_us:500"
    assert said["softdep"] == "softdep e1000e pre: xsmmu"
    assert said["pinged-nic"].strip() == "e1000e fused active DMA-FQ"
    assert tried("copy") == ("1", "e1000e fused active DMA-FQ")
    assert "--rebind" in said["copy-says"]
    assert tried("strict") == ("0", "e1000e strict active DMA-FQ")
    assert tried("copied") == ("0", "e1000e copy attached DMA-FQ")
    assert tried("unbindable") == ("1", "copy idle DMA-FQ")
    assert "; not put back: e1000e cannot be bound" in said["unbindable-says"]
    assert said["metrics-status"] == "0"
    assert said["metrics-says"].startswith("xsmmu_exposure_seconds_count{")
    assert tried("unset") == ("0", f"{own_path} DMA-FQ")
    assert said["forgotten"] == ""
    assert said["ping"] == "3"
    assert [line for line in machine.xsmmu_lines() if line.startswith("[") and "refused" not in line] == []
