# SPDX-License-Identifier: GPL-2.0-only
"""A CPU of the host for each guest that has one vCPU.

Of QEMU's threads one works at a time then. Where they are on two CPUs, one has to be woken for each turn of the
other, which is a sixth of what a test takes on a host that is a virtual machine itself.
"""

from __future__ import annotations

import contextlib
import fcntl
import os
from collections.abc import Iterator

from xsmmu.setup import host


@contextlib.contextmanager
def own() -> Iterator[int | None]:
    """A CPU that no other guest has, of this run or another; None if there is none left. A killed run gives it back."""
    folder = host.cache_dir() / "cpus"
    folder.mkdir(parents=True, exist_ok=True)
    for number in sorted(os.sched_getaffinity(0)):
        with (folder / str(number)).open("w") as file:
            try:
                fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                continue
            yield number
            return
    yield None
