# SPDX-License-Identifier: GPL-2.0-only
"""Runs of fuzzers (libFuzzer): for a time, or of one input again, given as in the line that repeats a failure."""

from __future__ import annotations

import base64
import binascii
import tempfile
from collections.abc import Sequence
from pathlib import Path

from xsmmu.errors import UserError
from xsmmu_lab.setup import build


def run(program: Path, words: Sequence[str], seconds: int, line: str, corpus: Path | None = None) -> tuple[int, str]:
    """Status and text of fuzzing for so long, or until a failure, whose input stands behind `line` in the text."""
    with tempfile.TemporaryDirectory(prefix="xsmmu-fuzz-") as folder:
        argv = [f"-max_total_time={seconds}", "-max_len=4096", "-timeout=20", "-seed=1", *words]
        argv += [f"-artifact_prefix={folder}/", str(corpus or folder)]
        status, text = build.run_userspace(program, argv, timeout=seconds + 120)
        # A crash, a leak or a time-out: at most one, because the fuzzer ends then.
        for artifact in sorted(Path(folder).glob("*-*")):
            text += f"\n{line}{base64.b64encode(artifact.read_bytes()).decode()}\n"
    return status, text


def unpacked(packed: str, name: str) -> bytes:
    """An input as in such a line; `name` is the variable of make that has it."""
    try:
        return base64.b64decode(packed, validate=True)
    except binascii.Error as error:
        raise UserError(f"{name} is not what a replay line of the fuzzer has: {error}") from error


def again(program: Path, content: bytes, words: Sequence[str] = ()) -> tuple[int, str]:
    """Status and text of one input."""
    with tempfile.TemporaryDirectory(prefix="xsmmu-fuzz-") as folder:
        file = Path(folder) / "input"
        file.write_bytes(content)
        return build.run_userspace(program, [*words, str(file)], timeout=120)
