# SPDX-License-Identifier: GPL-2.0-only
"""The module's refusals as an operator sees them: errno and log line; rules, and the floor; on each kernel."""

from __future__ import annotations

import struct
import tempfile
from functools import cache, partial
from pathlib import Path

import pytest
from tests.python import guests

from xsmmu_lab.setup import build, kernels

DEFAULT, KERNELS = kernels.table()[0], kernels.stock_names()


def _aml_package(*elements: bytes) -> bytes:
    return b"\x12" + _aml_length(bytes([len(elements)]) + b"".join(elements))


def _aml_length(body: bytes) -> bytes:
    """PkgLength of two bytes, which includes its own bytes, and the body."""
    length = len(body) + 2
    return bytes([0x40 | length & 0xF, length >> 4]) + body


def external_facing_port(folder: Path) -> list[str]:
    """An SSDT that makes the root port of igb an external-facing one, as firmware marks Thunderbolt ports.

    Scope (\\_SB.PCI0.S20) { Name (_DSD, Package () {
        ToUUID ("efcc06cc-73ac-4bc3-bff0-76143807c389"), Package () { Package () { "ExternalFacingPort", 1 } } }) }
    """
    uuid = bytes.fromhex("cc06ccef ac73 c34b bff0 76143807c389")
    property_ = _aml_package(b"\x0dExternalFacingPort\0", b"\x01")
    data = _aml_package(b"\x11" + _aml_length(b"\x0a\x10" + uuid), _aml_package(property_))
    scope = b"\\\x2f\x03_SB_PCI0S20_"
    body = b"\x10" + _aml_length(scope + b"\x08_DSD" + data)
    head = struct.pack("<4sIBB6s8sI4sI", b"SSDT", 36 + len(body), 2, 0, b"XSMMU ", b"EXTPORT ", 1, b"TEST", 1)
    table = bytearray(head + body)
    table[9] = -sum(table) & 0xFF
    path = folder / "external.aml"
    path.write_bytes(table)
    return ["-acpitable", f"file={path}"]


def scalable_mode(_folder: Path) -> list[str]:
    return ["-global", "intel-iommu.scalable-mode=on"]


def newer(kernel: str, source: Path) -> dict[str, bytes]:
    """The module for the kernel, changed to be for older kernels only."""
    with tempfile.TemporaryDirectory() as folder:
        change = {"XS_NEWEST_MAJOR\t7": "XS_NEWEST_MAJOR\t5"}
        changed = guests.broken_sources(Path(folder), "kmod/compat/range.h", change, source)
        [module] = build.module(guests.tools(), kernels.ensure(guests.tools(), kernel), changed)
    return {"modules/newer.ko": module.read_bytes()}


def refusals(kernel: str) -> guests.Machine:
    topics = ("refusals", "choice", "auto")
    files = partial(newer, kernel)
    # With no more than 4 GiB of memory, x86 has no swiotlb, through which the kernel's own path copies partial pages.
    words = ("swiotlb=8192,force",)
    return guests.Machine(
        topics, kernel=kernel, words=words, qemu_options=external_facing_port, files=files, timeout_s=600
    )


REFUSALS = refusals(DEFAULT)
NO_IOMMU = guests.Machine(("noiommu",), words=("intel_iommu=off",))
STRICT = guests.Machine(("floor",), words=('"iommu.strict=1"', "intel_iommu=on,sm_off"), qemu_options=scalable_mode)
STRICT_DRIVER = guests.Machine(("floor",), words=("intel-iommu=on", "amd_iommu=fullflush", "iommu.strict=0"))


@cache
def outcomes() -> list[guests.Outcome]:
    return guests.boot(REFUSALS, NO_IOMMU, STRICT, STRICT_DRIVER)


@pytest.mark.guest
@pytest.mark.parametrize("case", REFUSALS.cases())
def test_refusals(case: str) -> None:
    outcomes()[0].check(case)


@pytest.mark.guest
@pytest.mark.parametrize("case", NO_IOMMU.cases())
def test_no_iommu(case: str) -> None:
    outcomes()[1].check(case)


@pytest.mark.guest
@pytest.mark.parametrize("case", STRICT.cases())
def test_strict_kernel(case: str) -> None:
    outcomes()[2].check(case)


@pytest.mark.guest
@pytest.mark.parametrize("case", STRICT_DRIVER.cases())
def test_strict_by_a_driver(case: str) -> None:
    outcomes()[3].check(case)


@cache
def outcome_on(kernel: str) -> guests.Outcome:
    return guests.boot(refusals(kernel))[0]


@pytest.mark.guest
@pytest.mark.long
@pytest.mark.parametrize("kernel", [name for name in KERNELS if name != DEFAULT])
@pytest.mark.parametrize("case", REFUSALS.cases())
def test_refusals_on_another_kernel(kernel: str, case: str) -> None:
    outcome_on(kernel).check(case)
