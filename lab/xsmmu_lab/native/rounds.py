# SPDX-License-Identifier: GPL-2.0-only
"""The order of runs: all cases once, then all once more, so that a slower hour of the machine slows all.

Each round is a boot of its own. Once a case has enough quiet runs, later rounds leave it out.
"""

from __future__ import annotations

import itertools
import time
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Final

from xsmmu.errors import UserError
from xsmmu_lab.native.figures import Run
from xsmmu_lab.native.plan import Case
from xsmmu_lab.native.statistics import REMEDY, undisturbed

TIMES_MAX: Final = 4
"""If fewer than one run in so many of the first rounds is quiet, the machine is too noisy."""
LIMIT_S: Final = 600
WAITED_MAX: Final = 0.08
"""Largest part of a run for which another program may have its CPU."""


def quiet(runs: Sequence[Run]) -> list[Run]:
    """The quiet runs."""
    return undisturbed(runs, lambda run: run.calibrations, _is_crowded)


class TooNoisyError(UserError):
    """Too few runs were quiet."""


@dataclass
class Rounds:
    """Runs of cases, until each case has enough quiet ones."""

    cases: Sequence[Case]
    wanted: int
    """Quiet runs of each case."""
    now: Callable[[], float] = time.monotonic
    runs: list[Run] = field(default_factory=list)

    def quiet(self) -> list[Run]:
        """The quiet runs, as far as the runs until now tell."""
        return quiet(self.runs)

    def enough(self) -> int:
        """The number of quiet runs, without those that no case needs."""
        return sum(min(count, self.wanted) for count in self._counts().values())

    def progress(self) -> str:
        """For people."""
        return f"{self.enough()} of {self.wanted * len(self.cases)} quiet runs, {len(self.runs)} runs made"

    def _counts(self) -> Counter[Case]:
        return Counter(run.case for run in self.quiet())

    def rounds(self) -> Iterator[Iterator[Case]]:
        """The cases of each round; `runs` must have a case's run before the next case is asked for.

        Raises TooNoisyError if the machine is too noisy.
        """
        until = self.now() + LIMIT_S
        for done in itertools.count():
            counts = self._counts()
            # At this rate, ten minutes will not do.
            if done == self.wanted and self.enough() * TIMES_MAX < self.wanted * len(self.cases):
                raise self._too_noisy()
            lacking = [case for case in self.cases if counts[case] < self.wanted]
            if not lacking:
                return
            yield self._round(lacking, until)

    def _round(self, cases: Sequence[Case], until: float) -> Iterator[Case]:
        for case in cases:
            if self.now() > until:
                raise self._too_noisy()
            yield case

    def _too_noisy(self) -> TooNoisyError:
        crowded, kept = sum(map(_is_crowded, self.runs)), len(self.quiet())
        return TooNoisyError(
            f"this machine is too noisy: {kept} of {len(self.runs)} runs were quiet, and"
            f" {self.enough()} of the {self.wanted * len(self.cases)} that are needed; other programs had the CPU in"
            f" {crowded} runs, and the CPU was slow in {len(self.runs) - kept - crowded} others: {REMEDY}"
        )


def _is_crowded(run: Run) -> bool:
    return run.waited > WAITED_MAX
