# SPDX-License-Identifier: GPL-2.0-only
"""The packages of the kernel that runs, as far as apt knows them: a name that apt does not have is no advice."""

from __future__ import annotations

import re
import subprocess
from collections.abc import Iterable

from xsmmu.operator import kernel, machine
from xsmmu.operator.machine import root


def has_apt() -> bool:
    """Whether packages are apt's here."""
    return machine.program("apt-cache") is not None


def first_known(names: Iterable[str]) -> str | None:
    """The first of these packages that apt can install."""
    return next((name for name in names if _is_known(name)), None)


def _is_known(name: str) -> bool:
    apt = machine.program("apt-cache")
    if not apt:
        return False
    said = subprocess.run([apt, "show", "--no-all-versions", "--", name], capture_output=True, text=True, check=False)
    # Of a name that others provide it says nothing, and no error.
    return re.search(rf"^Package: {re.escape(name)}$", said.stdout, re.MULTILINE) is not None


def flavour() -> str:
    """The release without its version: amd64 of 6.12.118+deb13-amd64, generic of 6.8.0-45-generic."""
    return re.sub(r"^[\d.]+(?:[~+][\w.+~]+)?-(?:\d+-)?", "", kernel.release())


def headers() -> str:
    """The way to have what modules of the running kernel are built with."""
    release = kernel.release()
    place = root("modules") / release / "build"
    found = first_known(f"{kind}-headers-{release}" for kind in ("linux", "proxmox", "pve"))
    if found:
        return f"apt install {found}"
    if not has_apt():
        return (
            f"install this kernel's headers (kernel-devel, linux-headers) from its distribution: {place} leads to them"
        )
    later = [first_known([f"linux-{kind}-{flavour()}"]) for kind in ("image", "headers")]
    if all(later):
        return f"apt has none for {release}: apt install {' '.join(filter(None, later))}, and reboot"
    return f"apt has none for {release}: take them from where this kernel is from, so that {place} leads to them"


def usual_kernel() -> str | None:
    """The distribution's kernel that is neither real-time nor for clouds."""
    architecture = "arm64" if kernel.architecture() == "aarch64" else "amd64"
    return first_known([f"linux-image-{architecture}", "linux-image-generic"])
