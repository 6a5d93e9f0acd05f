# SPDX-License-Identifier: GPL-2.0-only
"""Units of work on a Dask cluster: each unit is the command that --print prints.

A worker needs the command `xsmmu`, the inputs and the folder of results, and nothing of this package: it runs a
function of the standard library. If a worker dies, another one gets its unit.
"""

from __future__ import annotations

import subprocess
from collections.abc import Callable, Mapping, Sequence

from xsmmu.errors import UserError
from xsmmu.trace import library
from xsmmu.units import Cache, Result, U

RETRIES = 3
TIMEOUT_S = 30


def run(address: str, commands: Sequence[Sequence[str]]) -> None:
    """Run all commands on the cluster; the first failure cancels those that have not begun."""
    distributed = library("distributed", "apt install python3-distributed")
    try:
        client = distributed.Client(address, timeout=TIMEOUT_S)
    except (OSError, ValueError) as error:
        raise UserError(
            f"no Dask scheduler answers at {address} ({error}): start one, or correct the address", code="no-cluster"
        ) from None
    with client:
        waiting = {
            client.submit(
                subprocess.run, [*words], capture_output=True, text=True, check=False, pure=False, retries=RETRIES
            ): words
            for words in commands
        }
        try:
            for done in distributed.as_completed([*waiting]):
                _check(waiting[done], done)
        except BaseException:
            client.cancel([*waiting])
            raise


def run_all(
    address: str, keys: Mapping[U, str], cache: Cache, words: Callable[[U], Sequence[str]], program: str
) -> dict[U, Result]:
    """The results of all units; the cluster makes those that are missing in the cache, a folder of all machines.

    `words` is the command of a unit, `keys` has the name of each unit's file.
    """
    run(address, [words(unit) for unit, key in keys.items() if cache.get(key) is None])
    found = {unit: cache.get(key) for unit, key in keys.items()}
    if any(result is None for result in found.values()):
        raise UserError(
            f"the workers have put results of the same version of {program} elsewhere than {cache.folder.absolute()}: "
            "name a folder of a file system of all machines with --cache, and install the same version on all",
            code="no-file",
        )
    return {unit: result for unit, result in found.items() if result is not None}


def _check(words: Sequence[str], done: object) -> None:
    """An error if the command has failed, or could not run."""
    try:
        ended: subprocess.CompletedProcess[str] = done.result()  # type: ignore[attr-defined]
    except Exception as error:  # what a worker raises comes here as it is
        raise UserError(
            f"a worker cannot run {words[0]} ({error}): install xsmmu and xsmmu-trace on all workers", code="failed"
        ) from None
    if ended.returncode:
        said = (ended.stderr or ended.stdout).strip().splitlines() or [f"status {ended.returncode}"]
        raise UserError(f"on a worker: {said[-1].removeprefix('xsmmu: ')}", said[:-1], code="failed")
