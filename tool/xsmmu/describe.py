# SPDX-License-Identifier: GPL-2.0-only
"""A description of the machine for results, without identifying details."""

from __future__ import annotations

import os
import platform
import re
from typing import Any, Final

from xsmmu import __version__, cmdline, iommu, kernel, module
from xsmmu.machine import root, sysfs, text

WORDS: Final = re.compile(
    r"(?:(?:intel_|amd_)?iommu|xsmmu|module_blacklist|mitigations|nosmt|isolcpus|nohz_full|preempt|intel_pstate|"
    r"processor\.max_cstate|intel_idle\.max_cstate|idle|tsc|clocksource)(?:[.=].*)?"
)
"""Words of the kernel's command line that affect the IOMMU or costs."""


def describe() -> dict[str, Any]:
    """The whole description."""
    proc, cpus = root("proc"), sysfs() / "devices/system/cpu"
    memory = re.search(r"^MemTotal:\s*(\d+) kB", text(proc / "meminfo") or "", re.MULTILINE)
    words = [word.plain for word in cmdline.words()]
    return {
        "tool": __version__,
        "module": module.version(),
        "distribution": _distribution(),
        "kernel": kernel.release(),
        "kernel_version": text(proc / "sys/kernel/version"),
        "architecture": kernel.architecture(),
        "command_line": [word for word in words if WORDS.fullmatch(word.replace("-", "_"))],
        "lockdown": kernel.lockdown(),
        "hypervisor": kernel.is_virtual(),
        "processor": kernel.model(),
        "cpus": os.cpu_count(),
        "numa_nodes": len([*(sysfs() / "devices/system/node").glob("node[0-9]*")]) or None,
        "smt": text(cpus / "smt/control"),
        "governor": text(cpus / "cpu0/cpufreq/scaling_governor"),
        "clock": text(sysfs() / "devices/system/clocksource/clocksource0/current_clocksource"),
        "memory_gib": round(int(memory[1]) / (1 << 20)) if memory else None,
        "iommus": [
            {
                "kind": iommu.kind(unit),
                **{name: text(unit / "intel-iommu" / name) for name in ("version", "cap", "ecap")},
            }
            for unit in iommu.units()
        ],
    }


def _distribution() -> str | None:
    try:
        return platform.freedesktop_os_release().get("PRETTY_NAME")
    except OSError:
        return None
