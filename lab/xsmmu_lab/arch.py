# SPDX-License-Identifier: GPL-2.0-only
"""Architectures of the lab's guests: all differences between them. The host's own is always amd64.

Files for guests of another architecture are in a separate private root (setup/root.py), downloaded only for such
guests.
"""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Arch:
    """An architecture."""

    name: str
    """Debian's name, which is also the flavour of its kernels."""
    qemu: str
    """Program and package of the emulator."""
    qemu_package: str
    machine: str
    """QEMU's machine, and the emulated CPU."""
    cpu: str
    cross: str
    """Prefix of the names of its compilers."""
    make: tuple[str, ...]
    """More arguments for the kernel's make."""
    triplet: str
    """Name of its library folder, below usr/lib."""
    loader: str
    """The path of the loader in its programs."""
    console: str
    """The terminal of QEMU's first serial port."""
    kernel_words: tuple[str, ...]
    marker: tuple[str, int]
    """A file in the guest, and an offset: the scratch register of the serial port that marks the trace."""
    marker_port: tuple[str, ...]
    """Arguments of that port, unless the port is a second `-serial`."""

    @property
    def libraries(self) -> str:
        """The folder of its libraries."""
        return f"usr/lib/{self.triplet}"


AMD64 = Arch(
    name="amd64",
    qemu="qemu-system-x86_64",
    qemu_package="qemu-system-x86",
    machine="q35,sata=off,smbus=off",
    # Without the fast string features: an emulated `rep movsb` counts an instruction per byte, so a kernel that
    # believes in fast strings would seem to spend most of its work on copying and clearing pages.
    cpu="max,-erms,-fsrm,-fsrs,-fzrm,-fsrc",
    cross="",
    make=(),
    triplet="x86_64-linux-gnu",
    loader="lib64/ld-linux-x86-64.so.2",
    console="ttyS0",
    # Skip the boot's own measurement of the TSC frequency: the measurement costs time and differs between boots.
    kernel_words=("tsc=reliable", "tsc_early_khz=1000000", "no_timer_check"),
    marker=("/dev/port", 0x2FF),
    marker_port=("-serial", "chardev:marker"),
)

ARM64 = Arch(
    name="arm64",
    qemu="qemu-system-aarch64",
    qemu_package="qemu-system-arm",
    # Its interrupt controller translates messages (ITS), as PCI devices need.
    machine="virt,gic-version=3",
    # Pointer authentication is emulated at a hundred instructions per call; only the host's time is saved.
    cpu="max,pauth=off",
    cross="aarch64-linux-gnu-",
    make=("ARCH=arm64", "CROSS_COMPILE=aarch64-linux-gnu-"),
    triplet="aarch64-linux-gnu",
    loader="lib/ld-linux-aarch64.so.1",
    console="ttyAMA0",
    # Debian's arm64 kernels are strict by default, and the module offers no weaker policy than the kernel.
    kernel_words=("iommu.strict=0",),
    marker=("/sys/bus/pci/devices/0000:00:0b.0/resource0", 7),
    marker_port=("-device", "pci-serial,chardev=marker,bus=pcie.0,addr=b"),
)

ARCHES = {arch.name: arch for arch in (AMD64, ARM64)}
