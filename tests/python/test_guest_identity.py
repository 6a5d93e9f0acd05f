# SPDX-License-Identifier: GPL-2.0-only
"""Static 1:1 tables in a guest: what a device reaches, refusals, failures, and nothing left behind."""

from __future__ import annotations

from tests.python import guests

from xsmmu_lab.setup import kernels

DEFAULT, KERNELS = kernels.table()[0], kernels.stock_names()
MACHINES = {name: guests.Machine(("rude", "identity"), "^identity_", kernel=name) for name in KERNELS}
MACHINES |= {name: guests.Machine(("rude", "identity"), "^identity_", iommu=name) for name in ("amd", "vtd-first")}
test_identity = guests.each_case(MACHINES, [DEFAULT])
