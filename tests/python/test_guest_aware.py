# SPDX-License-Identifier: GPL-2.0-only
"""A batch-aware driver: the API of include/xsmmu/dma.h with and without the module's path, and its misuse."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import pytest
from tests.python import guests

from xsmmu_lab.runs import run as lab
from xsmmu_lab.setup import build
from xsmmu_lab.setup.kernels import Kernel
from xsmmu_lab.setup.root import Root

WORDS = ("swiotlb=force",)
AWARE = guests.Machine(("aware",), aware=True, words=WORDS)
# Machines where maps need a flush.
FLUSHED = {
    name: replace(AWARE, pattern="^aware$|of_maps$|^maps_", iommu=name, settings={"GROUP_TYPE": "DMA"})
    for name in ("virtio", "vtd-cm")
}
# The driver joins pages that are adjacent in memory.
FLUSHED["amd 7.2"] = replace(FLUSHED["vtd-cm"], pattern="^aware$", iommu="amd", kernel="7.2")
LONG = {"amd": replace(FLUSHED["vtd-cm"], iommu="amd")}
MACHINES = {"api": AWARE, **FLUSHED, **LONG}
PASSTHROUGH = guests.Machine(("aware",), "^aware_on_passthrough$", aware=True, words=WORDS)
test_aware = guests.each_case(MACHINES, ["api", *FLUSHED])


# See sim/README.md.
FAULTS_OF_THE_FORKS = {
    "bounce slot": ("dma_unmap_page_attrs(dev, addr, size, dir, attrs);", "do { } while (0);"),
    "no operations": ("xs_is_instance(dev->dma_ops)", "dev->dma_ops->mmap == mmap_coherent"),
}


@pytest.mark.guest
@pytest.mark.planted
@pytest.mark.parametrize("fault", FAULTS_OF_THE_FORKS)
def test_a_fault_of_the_forks_is_noticed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, fault: str) -> None:
    old, new = FAULTS_OF_THE_FORKS[fault]
    sources = guests.broken_sources(tmp_path, "kmod/dma/aware.c", {old: new})
    real = lab.modules

    def broken(root: Root, kernel: Kernel) -> Sequence[Path]:
        return [*build.module(root, kernel, sources), *real(root, kernel)[1:]]

    monkeypatch.setattr(lab, "modules", broken)
    with pytest.raises(pytest.fail.Exception, match=r"aware: wrong|NULL pointer"):
        guests.boot(PASSTHROUGH)[0].check("aware_on_passthrough")
