# SPDX-License-Identifier: GPL-2.0-only
"""A CPU of the host for each guest under -icount.

Only one thread of such a QEMU works at a time. On two CPUs each turn would have to wake the other CPU, which takes long
on a host that is a virtual machine itself.
"""

from __future__ import annotations

import contextlib
import fcntl
import os
import random
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Final

FOLDER: Final = Path("/sys/devices/system/cpu")
"""A CPU's folder here is the CPU's lock, shared by all users.

Other network namespaces have their own /sys.
"""


@contextlib.contextmanager
def own() -> Iterator[int | None]:
    """A CPU that no other guest uses; None if none is left. A killed run releases its CPU.

    Containers do not see each other's locks and choose the same CPU only by chance.
    """
    allowed = sorted(os.sched_getaffinity(0))
    for number in random.sample(allowed, len(allowed)):
        with contextlib.ExitStack() as held:
            try:
                folder = os.open(FOLDER / f"cpu{number}", os.O_RDONLY | os.O_DIRECTORY)
                held.callback(os.close, folder)
                fcntl.flock(folder, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except OSError:
                continue
            yield number
            return
    yield None


def stay_on(number: int | None) -> list[str]:
    """A wrapper that keeps all threads of a command on a CPU; empty without such a CPU or without taskset."""
    taskset = shutil.which("taskset")
    return [taskset, "-c", str(number)] if taskset and number in os.sched_getaffinity(0) else []
