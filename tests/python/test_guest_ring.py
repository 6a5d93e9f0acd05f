# SPDX-License-Identifier: GPL-2.0-only
"""The ring workloads in a guest: every kind of driver, on every kernel."""

from __future__ import annotations

from tests.python import guests

from xsmmu_lab.setup import kernels

DEFAULT, KERNELS = kernels.table()[0], kernels.stock_names()
MACHINES = {name: guests.Machine(("ring",), kernel=name, aware=True, timeout_s=600) for name in KERNELS}
test_ring = guests.each_case(MACHINES, [DEFAULT])
