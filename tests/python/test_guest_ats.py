# SPDX-License-Identifier: GPL-2.0-only
"""Devices with a TLB (ATS): their work stays correct, and an unmap's IOMMU commands each have a device TLB command.

QEMU's virtio devices have ATS but cache no translations, so a stale translation cannot be made here: the tests check
that commands are sent, not the effect of a missing command.
"""

from __future__ import annotations

from pathlib import Path

from tests.python import guests
from tests.python.test_guest_devices import DISK_BYTES

from xsmmu_lab.runs.experiment import Needs
from xsmmu_lab.vm.iommu import IOMMUS


def machine(kernel: str | None, iommu: str) -> guests.Machine:
    """The lab's machine, with a disk and a NIC that have ATS."""

    def options(folder: Path) -> list[str]:
        file = folder / "ats.disk"
        with file.open("wb") as disk:
            disk.truncate(DISK_BYTES)
        ats = "iommu_platform=on,ats=on,disable-legacy=on"
        return [
            *("-global", f"{IOMMUS[iommu].device.split(',')[0]}.device-iotlb=on", "-trace", IOMMUS[iommu].device_event),
            *("-blockdev", f"driver=file,node-name=ats,filename={file}"),
            *("-netdev", "hubport,id=wire-ats,hubid=0"),
            *("-device", "pcie-root-port,id=port-ats-disk,bus=pcie.0,addr=10,chassis=60"),
            *("-device", f"virtio-blk-pci,bus=port-ats-disk,drive=ats,{ats}"),
            *("-device", "pcie-root-port,id=port-ats-nic,bus=pcie.0,addr=11,chassis=61"),
            *("-device", f"virtio-net-pci,bus=port-ats-nic,netdev=wire-ats,romfile=,{ats}"),
        ]

    return guests.Machine(
        ("devices", "ats"),
        "^ats_",
        mode="free",
        kernel=kernel,
        iommu=iommu,
        # The lab gives its kernels a clock rate that is right only with -icount; 0 makes them measure the rate.
        words=("tsc_early_khz=0",),
        needs=(*guests.DEVICES, Needs(("virtio_blk",))),
        qemu_options=options,
        timeout_s=1800,
    )


MACHINES = {
    f"{iommu} {kernel or 'default'}": machine(kernel, iommu)
    for iommu, kernel in (
        ("vtd", None),
        ("vtd", "7.2"),
        ("vtd", "6.1"),
        ("vtd-cm", None),
        ("vtd-cm", "6.1"),
        ("vtd-first", None),
    )
}
test_ats = guests.each_case(MACHINES, ())
