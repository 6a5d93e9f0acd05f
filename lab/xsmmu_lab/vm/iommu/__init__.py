# SPDX-License-Identifier: GPL-2.0-only
"""The IOMMU models for guests: a file per vendor, a row per kind."""

from xsmmu_lab.vm.iommu import amd, smmuv3, virtio, vtd
from xsmmu_lab.vm.iommu.kind import Iommu

__all__ = ["DEFAULT_IOMMU", "IOMMUS", "Iommu"]

IOMMUS: dict[str, Iommu] = {**vtd.KINDS, **amd.KINDS, **virtio.KINDS, **smmuv3.KINDS}
"""Keyed by the name in experiments and on the command line."""

DEFAULT_IOMMU = "vtd"
