# SPDX-License-Identifier: GPL-2.0-only
"""Copies of small buffers: their own cases, and the other cases of drivers while small buffers are copied."""

from __future__ import annotations

from tests.python import guests

from xsmmu_lab.setup import kernels

DEFAULT, KERNELS = kernels.table()[0], kernels.stock_names()
COPY: dict[str, str | int] = {"COPY": 4096}
# For two free-running vCPUs.
WORDS = ("tsc_early_khz=0", "no_console_suspend")

SHORT = {
    # Memory is not zeroed by the kernel.
    "copy": guests.Machine(("copy",), words=("init_on_alloc=0",)),
    "calls": guests.Machine(("smoke",), settings=COPY),
}
LONG = {f"copy {name}": guests.Machine(("copy",), kernel=name) for name in KERNELS if name != DEFAULT}
LONG |= {
    f"cached {name}": guests.Machine(
        ("copy", "smoke"), kernel=name, iommu="vtd-cm", settings={"GROUP_TYPE": "DMA"}, timeout_s=900
    )
    for name in KERNELS
}
LONG |= {
    "direct": guests.Machine(("copy",), settings={"TABLES": "direct"}, timeout_s=600),
    "calls direct": guests.Machine(("smoke",), settings={**COPY, "TABLES": "direct"}, timeout_s=600),
    "aware": guests.Machine(
        ("aware",), "^(?!aware_on_passthrough|level_is_not)", aware=True, words=WORDS, settings=COPY
    ),
    "load": guests.Machine(("load",), mode="free", words=WORDS, settings=COPY, timeout_s=1800),
    "no memory": guests.Machine(
        ("nomemory",), mode="free", aware=True, make_args=("KCFLAGS=-DXS_FAIL_NTH",), settings=COPY
    ),
}
MACHINES = {**SHORT, **LONG}
test_copy = guests.each_case(MACHINES, SHORT)
