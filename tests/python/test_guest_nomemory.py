# SPDX-License-Identifier: GPL-2.0-only
"""No memory at any point of any path of the module: nothing is left, and the statistics balance."""

from __future__ import annotations

from dataclasses import replace

from tests.python import guests

from xsmmu_lab.setup import kernels

DEFAULT, KERNELS = kernels.table()[0], kernels.stock_names()
NO_MEMORY = guests.Machine(("nomemory",), mode="free", aware=True, make_args=("KCFLAGS=-DXS_FAIL_NTH",))
MACHINES = {name: replace(NO_MEMORY, kernel=name) for name in KERNELS}
test_no_memory = guests.each_case(MACHINES, [DEFAULT])
