# SPDX-License-Identifier: GPL-2.0-only
"""A CPU of the host for each guest under -icount.

Of its QEMU's threads one works at a time. Where they are on two CPUs, one has to be woken for each turn of the other,
which takes long on a host that is a virtual machine itself.
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
"""Each CPU's folder in it is the lock, which all users have in common, but for network namespaces: each has a /sys."""


@contextlib.contextmanager
def own() -> Iterator[int | None]:
    """A CPU that no other guest has; None if there is none left. A killed run gives it back.

    Containers, which do not see each other's locks, have the same one by chance only.
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
    """A wrapper that has all threads of a command stay there; nothing where there is no such CPU, or no taskset."""
    taskset = shutil.which("taskset")
    return [taskset, "-c", str(number)] if taskset and number in os.sched_getaffinity(0) else []
