# SPDX-License-Identifier: GPL-2.0-only
"""Compares this tree with the accepted figures of this model of CPU, in a minute and on a machine that is in use.

A disturbance makes a run slower, never faster. So one run as fast as the accepted figure shows that a case is no worse,
and only quiet runs that are all slower show that the case is worse.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Final

from xsmmu import native
from xsmmu_lab.native import build, machine, plan
from xsmmu_lab.native.figures import Run
from xsmmu_lab.native.plan import PASSTHROUGH, Case
from xsmmu_lab.native.rounds import quiet
from xsmmu_lab.native.run import run_cases

WORSE: Final = 1.25
"""Smallest ratio to passthrough that is worse, as a multiple of the accepted ratio."""
QUIET: Final = 3
"""Quiet runs that show that a case is worse."""
_ROUNDS: Final = 16
_LIMIT_S: Final = 60


@dataclass
class Check:
    """Runs of cases beside passthrough, until each is as fast as accepted or shown to be worse."""

    accepted: native.Machine
    now: Callable[[], float] = time.monotonic
    runs: list[Run] = field(default_factory=list)

    def __post_init__(self) -> None:
        found = [case for case in plan.cases((0,), quick=True) if self._accepted_ns(case)]
        self.cases: Sequence[Case] = [case for case in plan.in_order_of_runs(found) if case.policy != PASSTHROUGH]
        [self._base] = [case for case in found if case.policy == PASSTHROUGH]

    def _accepted_ns(self, case: Case) -> float | None:
        return self.accepted.ns_at(case.wait_ns, case.policy, case.driver)

    def limit(self, case: Case) -> float:
        """The largest ratio to passthrough that is not worse."""
        ns, passed = self._accepted_ns(case), self._accepted_ns(self._base)
        assert ns is not None
        assert passed is not None
        return WORSE * ns / passed

    def ratio(self, case: Case) -> float | None:
        """The ratio to passthrough of a case's fastest run; None without a run."""
        found = [[run.ns for run in self.runs if run.case == each] for each in (case, self._base)]
        return min(found[0]) / min(found[1]) if all(found) else None

    def open(self) -> list[Case]:
        """Cases without an answer: none of their runs is fast enough, and too few are quiet."""
        counted = [run.case for run in quiet(self.runs)]
        return [case for case in self._slow() if counted.count(case) < QUIET]

    def worse(self) -> list[str]:
        """Cases that are worse, for people."""
        unanswered = self.open()
        return [
            f"{case}: {self.ratio(case):.1f} times passthrough, more than {self.limit(case):.1f}"
            for case in self._slow()
            if case not in unanswered
        ]

    def _slow(self) -> list[Case]:
        ratios = {case: self.ratio(case) for case in self.cases}
        return [case for case, ratio in ratios.items() if ratio is None or ratio > self.limit(case)]

    def rounds(self) -> Iterator[Iterator[Case]]:
        """The cases of each round; `runs` must have a case's run before the next case is asked for."""
        until = self.now() + _LIMIT_S
        for _ in range(_ROUNDS):
            left = self.open()
            if not left or self.now() > until:
                return
            yield self._round([self._base, *left], until)

    def _round(self, cases: Sequence[Case], until: float) -> Iterator[Case]:
        for case in cases:
            if self.now() > until:
                return
            yield case


def run(made: build.Machine, cpu: int, accepted: native.Machine) -> Check:
    """Boot for each round, on a CPU of the host."""
    check = Check(accepted)
    for boots, of_round in enumerate(check.rounds()):
        machine.pad(made, boots)
        run_cases(made, of_round, [cpu], check.runs)
    return check
