# SPDX-License-Identifier: GPL-2.0-only
"""Packages of the running kernel, as far as apt knows them; unknown package names are not suggested."""

from __future__ import annotations

import os
import re
import subprocess
import tempfile
from functools import cache
from pathlib import Path
from typing import Final

from xsmmu import kernel, machine, process
from xsmmu.machine import root

APT_S: Final = 10.0
"""Timeout for apt, which reads all package lists in images without a package cache."""


def has_apt() -> bool:
    """Whether the system has apt."""
    return machine.program("apt-cache") is not None


def _known() -> frozenset[str] | None:
    """Installable packages among the names used here; None if apt does not answer in time."""
    apt = machine.program("apt-cache")
    return _of_apt(apt, (*_own_headers(), *_later(), *_usual())) if apt else frozenset()


@cache
def _of_apt(apt: str, names: tuple[str, ...]) -> frozenset[str] | None:
    """A cached query for all names."""
    try:
        with tempfile.TemporaryFile() as said, Path(os.devnull).open("wb") as nothing:
            command = (apt, "show", "--no-all-versions", "--", *names)
            with process.started(command, said, nothing) as asked:
                asked.wait(APT_S)
            said.seek(0)
            text = said.read().decode(errors="replace")
    except (OSError, subprocess.TimeoutExpired):
        return None
    # apt prints nothing, and no error, for a virtual package.
    return frozenset(re.findall(r"^Package: (.+)$", text, re.MULTILINE)) & {*names}


def _own_headers() -> list[str]:
    release = kernel.release()
    return [f"{kind}-headers-{release}" for kind in ("linux", "proxmox", "pve")] if release else []


def _later() -> list[str]:
    """Latest kernel of the running flavour, and its headers."""
    return [f"linux-{kind}-{flavour()}" for kind in ("image", "headers")] if flavour() else []


def _usual() -> list[str]:
    return [f"linux-image-{'arm64' if kernel.architecture() == 'aarch64' else 'amd64'}", "linux-image-generic"]


def flavour() -> str:
    """The release without version: amd64 of 6.12.118+deb13-amd64, generic of 6.8.0-45-generic."""
    return re.sub(r"^[\d.]+(?:[~+][\w.+~]+)?-(?:\d+-)?", "", kernel.release())


def headers() -> str:
    """Command or hint to install headers for the running kernel."""
    release = kernel.release()
    if not release:
        return "mount /proc, because sys/kernel/osrelease names the release of the needed headers"
    place = root("modules") / release / "build"
    if not has_apt():
        return (
            f"install this kernel's headers (kernel-devel, linux-headers) from its distribution, so that {place} "
            "leads to them"
        )
    known = _known()
    if known is None:
        return f"install the headers of {release}, so that {place} leads to them (apt-cache did not answer)"
    found = next((name for name in _own_headers() if name in known), None)
    if found:
        return f"apt install {found}"
    if _later() and known.issuperset(_later()):
        return f"apt has no headers of {release}: apt install {' '.join(_later())}, and reboot"
    return (
        f"apt has no headers of {release}: install the headers that came with this kernel, so that {place} leads to "
        "them"
    )


def usual_kernel() -> str | None:
    """The distribution's kernel that is neither real-time nor for clouds."""
    known = _known() or ()
    return next((name for name in _usual() if name in known), None)
