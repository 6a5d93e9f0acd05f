# SPDX-License-Identifier: GPL-2.0-only
"""Run a reproduction of this folder in a guest of the lab, and print the guest's report.

PYTHONPATH=tool:lab $(lab/setup.sh) docs/upstream/reproduce.py tables|range|padding|middle [KERNEL]

KERNEL is a name of lab/kernels.toml or a folder where `make O=FOLDER bzImage modules` was run.
"""

from __future__ import annotations

import asyncio
import sys
import tempfile
from pathlib import Path

from rich.console import Console

from xsmmu.errors import UserError
from xsmmu_lab.project import PROJECT
from xsmmu_lab.runs import run as lab
from xsmmu_lab.setup import build, host, kernels, root
from xsmmu_lab.vm.guest import Boot, Guest, Record

HERE = "docs/upstream"
IOMMU = {"tables": "vtd", "range": "vtd-first", "padding": "vtd", "middle": "vtd"}


def main(case: str, asked: str | None) -> None:
    """Build the module, boot a guest, print the lines of its report."""
    console = Console(stderr=True)
    the_root = root.ensure(host.cache_dir(), console)
    kernel = kernels.ensure(the_root, asked, console)
    parts = (HERE, "lab/module")
    module = build.module(the_root, kernel, make_dir=HERE, outputs=("xsmmu_upstream.ko",), parts=parts)
    script = (PROJECT / HERE / "reproduce.sh").read_text() + f"reproduce_{case}\n"
    image = lab.image(the_root, kernel, (), module, script, iommu=IOMMU[case])
    print(f"{case} on {kernel.release} ({kernel.version}), {IOMMU[case]}")

    async def on_record(_guest: Guest, record: Record) -> None:
        if record["event"] == "report":
            print(record["text"], flush=True)

    boot = Boot(kernel.vmlinuz, image, iommu=IOMMU[case], timeout_s=420, words=("iommu.strict=1",))
    with tempfile.TemporaryDirectory(prefix="xsmmu-upstream-") as folder:
        asyncio.run(Guest(case, the_root.qemu_command(), boot, Path(folder), on_record).run())


if __name__ == "__main__":
    if len(sys.argv) not in (2, 3) or sys.argv[1] not in IOMMU:
        sys.exit(__doc__)
    try:
        main(sys.argv[1], sys.argv[2] if len(sys.argv) == 3 else None)
    except UserError as error:
        sys.exit("\n".join([error.message, *error.lines]))
