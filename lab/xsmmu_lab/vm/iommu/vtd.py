# SPDX-License-Identifier: GPL-2.0-only
"""Intel VT-d: legacy mode, and scalable mode with tables of the first or the second stage."""

import re
from dataclasses import replace

from xsmmu_lab.vm.iommu.kind import Iommu

_SECOND = Iommu(
    words="Intel VT-d, second stage",
    device="intel-iommu",
    kernel_words=("intel_iommu=on",),
    faults=re.compile(r"DMAR: \[.*\] (Request device|fault)|DMAR: DRHD: handling fault|DMAR: VT-d detected .*Error"),
    # Reasons 05, 06 (second stage) and 71, 85, 86 (first stage) mean not mapped or not writable; other reasons mean
    # broken tables. The low status bits also report errors of the invalidation queue and the like.
    refusals=re.compile(
        r"DMAR: \[DMA .*\] Request device .*\[fault reason 0x(05|06|71|85|86)\]"
        r"|DMAR: DRHD: handling fault status reg (\w*0)?[123]$"
    ),
    commands={
        re.compile(rb"vtd_inv_desc_iotlb_(pasid_)?pages ", re.MULTILINE): "page",
        re.compile(rb"vtd_inv_desc_iotlb_(domain|pasid) ", re.MULTILINE): "domain",
        re.compile(rb"vtd_inv_desc_iotlb_global ", re.MULTILINE): "global",
    },
    events=(
        "vtd_inv_desc_iotlb_pages",
        "vtd_inv_desc_iotlb_pasid_pages",
        "vtd_inv_desc_iotlb_domain",
        "vtd_inv_desc_iotlb_pasid",
        "vtd_inv_desc_iotlb_global",
    ),
    device_commands=re.compile(rb"vtd_inv_desc invalidate desc type device(-piotlb)? ", re.MULTILINE),
    device_event="vtd_inv_desc",
    flushes_maps=False,
    direct=True,
)

# A command for tables of the first stage is traced as a descriptor only. Bits 5:4 of its low word give the scope: 2 for
# a whole PASID, 3 for pages.
_FIRST = replace(
    _SECOND,
    words="Intel VT-d, first stage",
    device="intel-iommu,scalable-mode=on,fsts=on",
    kernel_words=("intel_iommu=on,sm_on",),
    commands={
        re.compile(rb"vtd_inv_desc invalidate desc type p-iotlb high 0x\w+ low 0x\w*[37bf]\w\n"): "page",
        re.compile(rb"vtd_inv_desc invalidate desc type p-iotlb high 0x\w+ low 0x\w*[26ae]\w\n"): "domain",
        re.compile(rb"vtd_inv_desc invalidate desc type iotlb "): "global",
    },
    events=("vtd_inv_desc",),
    passthrough_last=True,
)

KINDS = {
    "vtd": _SECOND,
    "vtd-cm": replace(
        _SECOND,
        words="Intel VT-d, second stage, caching mode",
        device="intel-iommu,caching-mode=on",
        flushes_maps=True,
    ),
    "vtd-scalable": replace(
        _SECOND,
        words="Intel VT-d, second stage, scalable mode",
        device="intel-iommu,scalable-mode=on",
        kernel_words=("intel_iommu=on,sm_on",),
        passthrough_last=True,
    ),
    "vtd-first": _FIRST,
    "vtd-first-cm": replace(
        _FIRST,
        words="Intel VT-d, first stage, caching mode",
        device=f"{_FIRST.device},caching-mode=on",
        passthrough_last=False,
    ),
}
