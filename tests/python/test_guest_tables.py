# SPDX-License-Identifier: GPL-2.0-only
"""Direct page tables: their own cases, and all actions of drivers, including misuse."""

from __future__ import annotations

from dataclasses import replace

from tests.python import guests

from xsmmu_lab.setup import kernels

DEFAULT, KERNELS = kernels.table()[0], kernels.stock_names()
DIRECT: dict[str, str | int] = {"TABLES": "direct"}
# In caching mode and similar modes the kernel's default is DMA, and 6.1 does not change the type of a group of two.
CACHE: dict[str, str | int] = {"GROUP_TYPE": "DMA"}
CACHED = {**DIRECT, **CACHE}
# For two free-running vCPUs.
WORDS = ("tsc_early_khz=0", "no_console_suspend")

SHORT = {
    "tables": guests.Machine(("tables",)),
    # Its entries have other bits.
    "tables vtd-first": guests.Machine(("tables",), iommu="vtd-first"),
    "calls": guests.Machine(
        ("smoke", "rude"), "^(?!a_virtual_function|what_the_kernels)", settings=DIRECT, timeout_s=600
    ),
}
LONG = {f"tables {name}": guests.Machine(("tables",), kernel=name) for name in KERNELS if name != DEFAULT}
LONG |= {
    f"calls {name}": guests.Machine(("smoke", "rude"), kernel=name, settings=DIRECT, timeout_s=600)
    for name in KERNELS
    if name != DEFAULT
}
LONG |= {
    f"cached {name}": guests.Machine(("smoke", "rude"), kernel=name, iommu="vtd-cm", settings=CACHED, timeout_s=900)
    for name in KERNELS
}
LONG |= {
    f"calls {name}": replace(SHORT["calls"], iommu=name, settings=settings, timeout_s=900)
    for name, settings in {"vtd-first": DIRECT, "vtd-first-cm": CACHED, "amd": CACHED}.items()
}
# Another format; its driver of 7.x joins entries.
LONG |= {
    f"tables amd {name}": guests.Machine(("tables",), kernel=name, iommu="amd", settings=CACHE) for name in KERNELS
}
# The test hides entries from callers in an engine section, found by preempt_count(), which Debian's arm64 kernel lacks.
LONG |= {"tables smmuv3": guests.Machine(("tables",), "^(?!tables_surprise)", iommu="smmuv3", timeout_s=900)}
LONG |= {
    "aware": guests.Machine(("aware",), "^(?!aware_on_passthrough)", aware=True, words=WORDS, settings=DIRECT),
    "load": guests.Machine(("load",), mode="free", words=WORDS, settings=DIRECT, timeout_s=1800),
    "no memory": guests.Machine(
        ("nomemory",), mode="free", aware=True, make_args=("KCFLAGS=-DXS_FAIL_NTH",), settings=DIRECT
    ),
}
MACHINES = {**SHORT, **LONG}
test_tables = guests.each_case(MACHINES, SHORT)
