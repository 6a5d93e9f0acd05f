# SPDX-License-Identifier: GPL-2.0-only
"""The IOMMU models that a guest can have: a file for each vendor's, a row for each kind."""

from xsmmu_lab.vm.iommu import amd, smmuv3, virtio, vtd
from xsmmu_lab.vm.iommu.kind import Iommu

__all__ = ["DEFAULT_IOMMU", "IOMMUS", "Iommu"]

IOMMUS: dict[str, Iommu] = {**vtd.KINDS, **amd.KINDS, **virtio.KINDS, **smmuv3.KINDS}
"""By their name in experiments and on the command line."""

DEFAULT_IOMMU = "vtd"
