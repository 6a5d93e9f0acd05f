# SPDX-License-Identifier: GPL-2.0-only
"""The lab's machine: QEMU's usual machine of an architecture (arch.py), an IOMMU model, the devices under test.

Every guest has every device, at the same address, so a figure never depends on the other workloads of a boot. Devices
under test stand behind the IOMMU; the virtio devices (results, the NICs' peers) do not use the IOMMU.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from xsmmu_lab.arch import Arch
from xsmmu_lab.vm.iommu import IOMMUS

Mode = Literal["cost", "free"]
"""cost: one vCPU, one nanosecond of guest time per instruction; free: several vCPUs, free-running."""

FREE_CPUS = 2
"""Default number of vCPUs of a free-running guest."""

Accel = Literal["tcg", "kvm"]

RESULT_PORT = "xsmmu.result"
DATA_DISK_BYTES = 64 << 20
DATA_DISKS = ("data", "shared")
"""Disks that keep their data: parts of one file."""

PEER_MACS = ("52:54:00:00:01:00", "52:54:00:00:01:01")

# A peer sends by a timer in guest time. By default a peer would send whenever QEMU's main loop runs, so that the
# packets per interrupt, and with them the cost of each packet, would depend on the host.
_PEER = "tx=timer,x-txtimer=20000,ioeventfd=off,romfile="


@dataclass(frozen=True)
class Device:
    """A device under test: name in experiments, address in the guest, stock driver."""

    name: str
    bdf: str
    driver: str
    id: str
    """QEMU's id, for device_del."""


DEVICES = {
    device.name: device
    for device in (
        Device("e1000e", "0000:00:02.0", "e1000e", "dut-e1000e"),
        Device("testdev", "0000:00:03.0", "xsmmu_lab", "dut-testdev"),
        Device("igb", "0000:01:00.0", "igb", "dut-igb"),
        Device("nvme-data", "0000:02:00.0", "nvme", "dut-nvme-data"),
        Device("nvme0", "0000:05:00.0", "nvme", "dut-nvme0"),
        Device("nvme1", "0000:06:00.0", "nvme", "dut-nvme1"),
        # Three devices of one IOMMU group: two with drivers to attack, and the attacker in their domain.
        Device("igb-shared", "0000:09:00.0", "igb", "dut-igb-shared"),
        Device("nvme-shared", "0000:0a:00.0", "nvme", "dut-nvme-shared"),
        Device("neighbour", "0000:0b:00.0", "xsmmu_lab", "dut-neighbour"),
    )
}


@dataclass(frozen=True)
class Endpoints:
    """File descriptors (numbers in QEMU) and files that the machine is connected to."""

    console: int | None
    """None: the terminal that QEMU was started on. Ctrl-C goes to the guest, Ctrl-A X ends QEMU."""
    result: int
    qmp: int
    trace: int
    data_disk: Path


def qemu_arguments(
    mode: Mode,
    accel: Accel,
    iommu: str,
    memory_mib: int,
    trace_events: Sequence[str],
    ends: Endpoints,
    cpus: int = FREE_CPUS,
) -> list[str]:
    """Arguments of QEMU, without the kernel's own (see `boot_arguments`).

    `cpus` is for a free-running guest; any other guest has one vCPU.
    """
    arch = IOMMUS[iommu].arch
    arguments = ["-nodefaults", "-no-user-config", "-display", "none", "-no-reboot"]
    # The guest's random seed and time of day are the same in every boot.
    arguments += ["-seed", "1", "-rtc", "base=2025-01-01,clock=vm"]
    arguments += ["-machine", f"{arch.machine},accel={accel},kernel-irqchip={_irqchip(accel)}"]
    arguments += ["-cpu", "host" if accel == "kvm" else arch.cpu, "-m", f"{memory_mib}M"]
    if mode == "cost":
        arguments += ["-smp", "1"]
        if accel == "tcg":
            arguments += ["-icount", "shift=0,sleep=off"]
    else:
        arguments += ["-smp", str(cpus)]
    arguments += ["-device", IOMMUS[iommu].device]
    arguments += _ports(arch, ends) + _nics() + _disks(ends.data_disk) + _shared()
    arguments += ["-device", f"iommu-testdev,id={DEVICES['testdev'].id},bus=pcie.0,addr=3"]
    for event in trace_events:
        arguments += ["-trace", event]
    return [*arguments, "-D", f"/proc/self/fd/{ends.trace}"]


def _irqchip(accel: Accel) -> str:
    # Interrupt remapping is part of the IOMMU and needs the I/O APIC in QEMU.
    return "split" if accel == "kvm" else "off"


def _ports(arch: Arch, ends: Endpoints) -> list[str]:
    return [
        *("-chardev", _console(ends.console)),
        *("-serial", "chardev:console"),
        # The second port is never read: a write to its scratch register is a marker in the trace.
        *("-chardev", "null,id=marker", *arch.marker_port),
        *("-device", "virtio-serial-pci,id=ports,ioeventfd=off,bus=pcie.0,addr=8"),
        *("-chardev", f"socket,id=result,fd={ends.result}"),
        *("-device", f"virtserialport,bus=ports.0,nr=1,chardev=result,name={RESULT_PORT}"),
        *("-chardev", f"socket,id=qmp,fd={ends.qmp}", "-mon", "chardev=qmp,mode=control"),
    ]


def _console(end: int | None) -> str:
    return "stdio,id=console,signal=off,mux=on" if end is None else f"file,id=console,path=/proc/self/fd/{end}"


def _nics() -> list[str]:
    return [
        *("-netdev", "hubport,id=wire0,hubid=0", "-netdev", "hubport,id=peer0,hubid=0"),
        *("-netdev", "hubport,id=wire1,hubid=1", "-netdev", "hubport,id=peer1,hubid=1"),
        *("-device", f"e1000e,id={DEVICES['e1000e'].id},bus=pcie.0,addr=2,netdev=wire0,romfile="),
        *("-device", "pcie-root-port,id=port-igb,bus=pcie.0,addr=4,chassis=1"),
        *("-device", f"igb,id={DEVICES['igb'].id},bus=port-igb,netdev=wire1,romfile="),
        *("-device", f"virtio-net-pci,id=net-peer0,bus=pcie.0,addr=9,netdev=peer0,mac={PEER_MACS[0]},{_PEER}"),
        *("-device", f"virtio-net-pci,id=net-peer1,bus=pcie.0,addr=a,netdev=peer1,mac={PEER_MACS[1]},{_PEER}"),
    ]


def _disks(data_disk: Path) -> list[str]:
    arguments = ["-blockdev", f"driver=file,node-name=file,filename={data_disk},cache.no-flush=on"]
    for index, name in enumerate(DATA_DISKS):
        part = f"offset={index * DATA_DISK_BYTES},size={DATA_DISK_BYTES}"
        arguments += ["-blockdev", f"driver=raw,node-name={name},file=file,{part}"]
    arguments += ["-device", "pcie-root-port,id=port-data,bus=pcie.0,addr=5,chassis=2"]
    arguments += _nvme("nvme-data", "port-data", "data")
    arguments += _switch("", 6, 3, 2)
    for index in (0, 1):
        arguments += ["-blockdev", f"driver=null-co,node-name=null{index},size=1073741824"]
        arguments += _nvme(f"nvme{index}", f"downstream{index}", f"null{index}")
    return arguments


def _nvme(name: str, bus: str, drive: str) -> list[str]:
    return ["-device", f"nvme,id={DEVICES[name].id},bus={bus},serial={drive},drive={drive},share-rw=on"]


def _switch(name: str, slot: int, chassis: int, ports: int) -> list[str]:
    """A switch whose downstream ports, functions of one device without ACS, put their devices into one IOMMU group."""
    arguments = [
        *("-device", f"pcie-root-port,id=port-switch{name},bus=pcie.0,addr={slot},chassis={chassis}"),
        *("-device", f"x3130-upstream,id=upstream{name},bus=port-switch{name}"),
    ]
    for index in range(ports):
        port = f"xio3130-downstream,id=downstream{name}{index},bus=upstream{name},addr=0.{index},multifunction=on"
        arguments += ["-device", f"{port},chassis={chassis * 10 + index},slot={index}"]
    return arguments


def _shared() -> list[str]:
    """A NIC on the wire of igb, a disk, and a device that attacks both: one IOMMU group."""
    return [
        *_switch("-shared", 7, 4, 3),
        *("-netdev", "hubport,id=wire-shared,hubid=1"),
        *("-device", f"igb,id={DEVICES['igb-shared'].id},bus=downstream-shared0,netdev=wire-shared,romfile="),
        *_nvme("nvme-shared", "downstream-shared1", "shared"),
        *("-device", f"iommu-testdev,id={DEVICES['neighbour'].id},bus=downstream-shared2"),
    ]


def boot_arguments(kernel: Path, initramfs: Path, iommu: str, extra: Sequence[str] = ()) -> list[str]:
    """Kernel, initramfs and command line: only warnings and worse are printed, and nothing is hidden."""
    arch = IOMMUS[iommu].arch
    words = [
        *(f"console={arch.console}", "panic=-1", "loglevel=5", "net.ifnames=0", *IOMMUS[iommu].kernel_words),
        *arch.kernel_words,
        # The self-tests of the crypto code would run beside the first workload, for a second of guest time.
        *("printk.devkmsg=on", "printk.time=1", "random.trust_cpu=on", "cryptomgr.notests=1", *extra),
    ]
    return ["-kernel", str(kernel), "-initrd", str(initramfs), "-append", " ".join(words)]
