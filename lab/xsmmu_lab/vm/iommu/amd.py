# SPDX-License-Identifier: GPL-2.0-only
"""AMD-Vi, with page tables of version 1. QEMU's model announces that it caches absent entries (NpCache)."""

import re

from xsmmu_lab.vm.iommu.kind import Iommu

KINDS = {
    "amd": Iommu(
        words="AMD-Vi, version 1 tables, NpCache",
        # With interrupt remapping this version of QEMU cannot count instructions.
        device="amd-iommu,dma-remap=on,intremap=off",
        kernel_words=("amd_iommu=pgtbl_v1",),
        faults=re.compile(r"AMD-Vi: (Event logged|.*(error|timed out|timeout))"),
        refusals=re.compile(r"AMD-Vi: Event logged \[IO_PAGE_FAULT "),
        commands={re.compile(rb"amdvi_pages_inval "): "page"},
        events=("amdvi_pages_inval",),
        flushes_maps=True,
        direct=True,
        one_kind=True,
        lacking={"6.1": "kernel 6.1 stalls while it logs the attack's faults, on its own path"},
    )
}
