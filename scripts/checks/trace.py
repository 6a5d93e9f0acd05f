# SPDX-License-Identifier: GPL-2.0-only
"""The file format of recordings (trace/format): fuzzes its reader.

`make fuzz` calls `python -m checks.trace fuzz`.
"""

from __future__ import annotations

import re
import sys
import time
from contextlib import nullcontext
from dataclasses import dataclass
from pathlib import Path
from typing import Final

import click

from checks import command, fuzzing
from checks.mutants import Mutant, Mutants
from xsmmu_lab.project import PROJECT
from xsmmu_lab.setup import host, trace

PARTS: Final = ("trace/format", "tests/trace")
MUTANTS: Final = Mutants("trace/mutants.toml", PARTS)
CANARY: Final = "shape-not-limited"
"""The mutant that the fuzzer must find, as a test of the fuzzing."""
CANARY_SECONDS: Final = 120

_FUZZ_FLAGS: Final = ("-O1", "-fsanitize=fuzzer,address,undefined", "-fno-sanitize-recover=all")


def compiled(
    name: str, c_file: str, flags: tuple[str, ...] = ("-O2",), mutant: Mutant | None = None, compiler: str = "gcc-14"
) -> Path:
    """A program of a C file and the file format, with a mutant if wanted."""
    with MUTANTS.planted(mutant) if mutant else nullcontext(PROJECT) as source_dir:
        # A mutant may leave a variable without a use.
        flags = (*flags, "-Wno-error") if mutant else flags
        return trace.compiled(name, [c_file], flags, PARTS, source_dir, compiler)


def through(mutant: Mutant | None = None, flags: tuple[str, ...] = ("-O2",)) -> Path:
    """The program of tests/trace/through.c."""
    return compiled("through", "tests/trace/through.c", flags, mutant)


def fuzzer(mutant: Mutant | None = None) -> Path:
    """The fuzz target, under AddressSanitizer and UndefinedBehaviorSanitizer."""
    return compiled("fuzz", "trace/format/fuzz.c", _FUZZ_FLAGS, mutant, "clang-19")


@dataclass(frozen=True)
class Outcome:
    """The end of a run of the fuzzer."""

    status: int
    text: str
    seconds: float

    @property
    def failure(self) -> str:
        """The failure, in a few words; empty without one."""
        found = re.search(r"^FAIL (.*)|^SUMMARY: (.*)", self.text, re.MULTILINE)
        return (found[1] or found[2]) if found else ""


def fuzz(seconds: int, mutant: Mutant | None = None, corpus: Path | None = None) -> Outcome:
    """Fuzz for so long, or until a failure; the text of a failure ends with the line that repeats it."""
    program = fuzzer(mutant)
    started = time.monotonic()
    line = "replay: make fuzz TRACE_INPUT="
    found = fuzzing.run(program, ["-rss_limit_mb=1024"], seconds, line, corpus)
    return Outcome(*found, time.monotonic() - started)


def fuzz_again(packed: str) -> Outcome:
    """One input of the fuzzer, given as in its replay line."""
    content = fuzzing.unpacked(packed, "TRACE_INPUT")
    return Outcome(*fuzzing.again(fuzzer(), content), 0)


@click.group("trace")
def main() -> None:
    """The file format of recordings."""


@main.command("fuzz")
@click.option("--seconds", type=command.whole(1, 10**6), metavar="N", default=60)
@click.option("--input", "packed", help="Run one input again, given as in a replay line.")
def run_fuzz(seconds: int, packed: str | None) -> int:
    """Fuzz for so long, and a canary with a bug in it, which must be found; or one input again."""
    if packed:
        outcome = fuzz_again(packed)
        print(outcome.text)
        return 1 if outcome.status else 0
    corpus = host.cache_dir() / "fuzz" / "trace"
    corpus.mkdir(parents=True, exist_ok=True)
    outcome = fuzz(seconds, corpus=corpus)
    if outcome.status != 0:
        print(outcome.text)
        return 1
    print("reader of recordings:", *re.findall(r"^Done .*", outcome.text, re.MULTILINE))
    [bug] = MUTANTS.named(CANARY)
    canary = fuzz(CANARY_SECONDS, bug)
    if not canary.failure:
        print(f"the fuzzer did not find the planted bug '{CANARY}'")
        return 1
    print(f"canary: '{CANARY}' found in {canary.seconds:.1f} s: {canary.failure}")
    return 0


if __name__ == "__main__":
    sys.exit(command.run(main, "checks.trace"))
