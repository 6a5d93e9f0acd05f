# SPDX-License-Identifier: GPL-2.0-only
"""Stock drivers of devices that the lab does not measure, under each policy (`make test-devices`)."""

from __future__ import annotations

from pathlib import Path

from tests.python import guests

from xsmmu_lab.runs.experiment import Needs

DISK_BYTES = 64 << 20

NEEDS = (
    Needs(("ahci", "sd_mod", "xhci_pci", "usb_storage", "uas", "sdhci_pci", "mmc_block")),
    Needs(("vmxnet3", "virtio_blk")),
)


def devices(folder: Path) -> list[str]:
    """Each in an IOMMU group of its own; NICs are on the first wire."""
    arguments = []
    for name in ("ahci", "usb", "uas", "sd", "virtio"):
        file = folder / f"{name}.disk"
        with file.open("wb") as disk:
            disk.truncate(DISK_BYTES)
        arguments += ["-blockdev", f"driver=file,node-name={name},filename={file}"]
    for name in ("vmxnet3", "virtio"):
        arguments += ["-netdev", f"hubport,id=wire-{name},hubid=0"]
    virtio = "iommu_platform=on,disable-legacy=on"
    for device in (
        "ahci,id=ahci,bus=pcie.0,addr=10",
        "ide-hd,bus=ahci.0,drive=ahci",
        "qemu-xhci,id=xhci,bus=pcie.0,addr=11",
        "usb-storage,bus=xhci.0,drive=usb",
        "usb-uas,id=uas-port,bus=xhci.0",
        "scsi-hd,bus=uas-port.0,scsi-id=0,lun=0,drive=uas",
        "sdhci-pci,id=sdhci,bus=pcie.0,addr=12",
        "sd-card,drive=sd",
        "vmxnet3,bus=pcie.0,addr=13,netdev=wire-vmxnet3,romfile=",
        f"virtio-blk-pci,bus=pcie.0,addr=14,drive=virtio,{virtio}",
        f"virtio-net-pci,bus=pcie.0,addr=15,netdev=wire-virtio,romfile=,{virtio}",
    ):
        arguments += ["-device", device]
    return arguments


# The lab gives its kernels a clock rate that is right only with -icount; 0 makes them measure the rate.
DEVICES = guests.Machine(
    ("devices",),
    mode="free",
    words=("tsc_early_khz=0",),
    needs=(*guests.DEVICES, *NEEDS),
    qemu_options=devices,
    timeout_s=1800,
)
test_devices = guests.each_case({"devices": DEVICES}, ())
