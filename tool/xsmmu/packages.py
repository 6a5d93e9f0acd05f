# SPDX-License-Identifier: GPL-2.0-only
"""The packages of the kernel that runs, as far as apt knows them: a name that apt does not have is no advice."""

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
"""How long apt may take; it reads all its lists where it keeps no cache of them, as in images of containers."""


def has_apt() -> bool:
    """Whether packages are apt's here."""
    return machine.program("apt-cache") is not None


def _known() -> frozenset[str] | None:
    """Those of the packages named here that apt can install; None if apt does not answer in time."""
    apt = machine.program("apt-cache")
    return _of_apt(apt, (*_own_headers(), *_later(), *_usual())) if apt else frozenset()


@cache
def _of_apt(apt: str, names: tuple[str, ...]) -> frozenset[str] | None:
    """One question for all names, asked once."""
    try:
        with tempfile.TemporaryFile() as said, Path(os.devnull).open("wb") as nothing:
            command = (apt, "show", "--no-all-versions", "--", *names)
            with process.started(command, said, nothing) as asked:
                asked.wait(APT_S)
            said.seek(0)
            text = said.read().decode(errors="replace")
    except (OSError, subprocess.TimeoutExpired):
        return None
    # Of a name that others provide it says nothing, and no error.
    return frozenset(re.findall(r"^Package: (.+)$", text, re.MULTILINE)) & {*names}


def _own_headers() -> list[str]:
    release = kernel.release()
    return [f"{kind}-headers-{release}" for kind in ("linux", "proxmox", "pve")] if release else []


def _later() -> list[str]:
    """A kernel of this flavour and its headers, of whatever version there is."""
    return [f"linux-{kind}-{flavour()}" for kind in ("image", "headers")] if flavour() else []


def _usual() -> list[str]:
    return [f"linux-image-{'arm64' if kernel.architecture() == 'aarch64' else 'amd64'}", "linux-image-generic"]


def flavour() -> str:
    """The release without its version: amd64 of 6.12.118+deb13-amd64, generic of 6.8.0-45-generic."""
    return re.sub(r"^[\d.]+(?:[~+][\w.+~]+)?-(?:\d+-)?", "", kernel.release())


def headers() -> str:
    """The way to have what modules of the running kernel are built with."""
    release = kernel.release()
    if not release:
        return "mount /proc, whose sys/kernel/osrelease says for which release they have to be"
    place = root("modules") / release / "build"
    if not has_apt():
        return (
            f"install this kernel's headers (kernel-devel, linux-headers) from its distribution: {place} leads to them"
        )
    known = _known()
    if known is None:
        return f"install the headers of {release}, so that {place} leads to them (apt-cache did not say their name)"
    found = next((name for name in _own_headers() if name in known), None)
    if found:
        return f"apt install {found}"
    if _later() and known.issuperset(_later()):
        return f"apt has no headers of {release}: apt install {' '.join(_later())}, and reboot"
    return f"apt has no headers of {release}: install those that came with this kernel, so that {place} leads to them"


def usual_kernel() -> str | None:
    """The distribution's kernel that is neither real-time nor for clouds."""
    known = _known() or ()
    return next((name for name in _usual() if name in known), None)
