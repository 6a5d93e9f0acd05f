# SPDX-License-Identifier: GPL-2.0-only
"""virtio-iommu: maps and unmaps are requests. An unmap is the command that makes a range unreachable."""

import re
from dataclasses import replace

from xsmmu_lab.arch import ARM64
from xsmmu_lab.vm.iommu.kind import Iommu

_VIRTIO = Iommu(
    words="virtio-iommu",
    device="virtio-iommu-pci,bus=pcie.0,addr=1,aw-bits=48",
    kernel_words=(),
    faults=re.compile(r"virtio_iommu .*(page fault|fault from EP|device error|error)"),
    refusals=re.compile(r"virtio_iommu .*(page|domain) fault from EP"),
    commands={re.compile(rb"virtio_iommu_unmap "): "page"},
    events=("virtio_iommu_map", "virtio_iommu_unmap", "virtio_iommu_put_domain", "virtio_queue_notify"),
    flushes_maps=True,
    lacking={"6.1": "Debian's kernel 6.1 has no driver for virtio-iommu"},
    no_suspend="its driver does not set up its queues again, and waits for ever in the first map after a suspend",
    module="virtio_iommu",
    groups_late=True,
    traces_maps=True,
    has_queue=True,
)

KINDS = {
    "virtio": _VIRTIO,
    "virtio-arm64": replace(_VIRTIO, words="virtio-iommu, arm64", arch=ARM64, lacking={}),
}
