# SPDX-License-Identifier: GPL-2.0-only
"""Pages that the IOMMU driver fails to remove: the module fails closed, and recovers, on each kernel."""

from __future__ import annotations

from tests.python import guests

from xsmmu_lab.setup import kernels
from xsmmu_lab.vm.iommu import IOMMUS

VIRTIO = IOMMUS["virtio"]
KERNELS = [name for name in kernels.stock_names() if name not in VIRTIO.lacking]

# The virtio-iommu driver fails by itself. For others a build of the module makes removals fail.
MACHINES = {f"{name}-virtio": guests.Machine(("stuck",), kernel=name, iommu="virtio") for name in KERNELS}
MACHINES["vtd"] = guests.Machine(("stuck",), make_args=("KCFLAGS=-DXS_FAIL_NTH",))
# From 7.2 on a helper of the kernel has another meaning.
QUICK = ("7.2-virtio", "vtd")
test_stuck = guests.each_case(MACHINES, QUICK)
