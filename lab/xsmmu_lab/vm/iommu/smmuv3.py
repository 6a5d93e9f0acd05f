# SPDX-License-Identifier: GPL-2.0-only
"""Arm's SMMUv3, tables of the first stage. One range may take several commands, and each is counted."""

import re

from xsmmu_lab.arch import ARM64
from xsmmu_lab.vm.iommu.kind import Iommu

KINDS = {
    "smmuv3": Iommu(
        words="Arm SMMUv3, first stage",
        device="arm-smmuv3,primary-bus=pcie.0",
        # 6.12 logs faults at level 6 (info).
        kernel_words=("loglevel=7",),
        faults=re.compile(r"arm-smmu-v3 .*(\bevent\b|unexpected|timeout|error|overflow|aborted|ignoring|[Ff]ailed)"),
        # QEMU's model has no overflow; hardware has.
        refusals=re.compile(r"arm-smmu-v3 .*(event 0x1[03] received|event: F_(TRANSLATION|PERMISSION) |EVTQ overflow)"),
        commands={
            re.compile(rb"smmuv3_cmdq_opcode <--- SMMU_CMD_TLBI_(NH_VAA?|S2_IPA)\n"): "page",
            re.compile(rb"smmuv3_cmdq_opcode <--- SMMU_CMD_TLBI_(NH_ASID|S12_VMALL)\n"): "domain",
            re.compile(rb"smmuv3_cmdq_opcode <--- SMMU_CMD_TLBI_(NH_ALL|NSNH_ALL)\n"): "global",
        },
        events=("smmuv3_cmdq_opcode",),
        flushes_maps=False,
        arch=ARM64,
        direct=True,
        groups_late=True,
    )
}
