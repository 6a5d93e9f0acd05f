# SPDX-License-Identifier: GPL-2.0-only
"""Each policy in nanoseconds beside the accepted figures of this model of CPU; the rules, by invented runs."""

from __future__ import annotations

import itertools
import os
from collections.abc import Callable

import pytest
from rich.console import Console
from tests.python import guests

from xsmmu import kernel, native
from xsmmu_lab.native import build, check
from xsmmu_lab.native.check import Check
from xsmmu_lab.native.figures import Run
from xsmmu_lab.native.plan import Case


def _row(policy: str, ns: float) -> native.Row:
    driver = "none" if policy == "passthrough" else "unmodified"
    return native.Row(policy, driver, "kernel", 4096, 1, 1024, 0, 0, 1, 0, ns, ns, ns, ns / 2, ns / 2, 0.0)


_ACCEPTED = native.Machine(
    "A CPU", "7.2", "c94207a", 2.6, tuple(map(_row, ("passthrough", "lazy", "fused"), (8, 64, 48)))
)


def _made(run: Callable[[Case, int], tuple[float, float]], seconds: float = 0.0) -> Check:
    """A check whose n-th run takes these nanoseconds a page, with this part of the time for other programs."""
    made = Check(_ACCEPTED, iter(range(10000)).__next__ if seconds else lambda: 0.0)
    for case in itertools.chain.from_iterable(made.rounds()):
        ns, waited = run(case, len(made.runs))
        made.runs.append(
            Run(case, "held", ns / 2, ns / 2, {(1, 0, "work_ps before"): 361.0}, waited, 64, (0, 0, 0), None)
        )
    return made


def _usual(case: Case) -> float:
    return {"passthrough": 8.0, "lazy": 64.0, "fused": 48.0}[case.policy]


def test_runs_as_accepted_end_after_a_round() -> None:
    made = _made(lambda case, _: (_usual(case) * 1.2, 0.0))
    assert [run.case.policy for run in made.runs] == ["passthrough", "lazy", "fused"]
    assert (made.worse(), made.open()) == ([], [])


def test_another_cpu_at_another_clock_is_compared_by_ratios() -> None:
    assert _made(lambda case, _: (_usual(case) * 3, 0.0)).worse() == []


def test_a_worse_case_is_named_after_three_quiet_runs() -> None:
    made = _made(lambda case, _: (_usual(case) * (1.3 if case.policy == "fused" else 1), 0.0))
    assert made.worse() == ["fused, unmodified, wait 0 ns: 7.8 times passthrough, more than 7.5"]
    assert [run.case.policy for run in made.runs].count("fused") == 3
    assert [run.case.policy for run in made.runs].count("lazy") == 1


def test_one_fast_run_shows_that_a_case_is_not_worse() -> None:
    made = _made(lambda case, at: (_usual(case) * (1.9 if case.policy == "fused" and at < 7 else 1), 0.5))
    assert (made.worse(), made.open()) == ([], [])


def test_noise_is_no_failure() -> None:
    made = _made(lambda case, _: (_usual(case) * (1.9 if case.policy == "fused" else 1), 0.5))
    assert made.worse() == []
    assert [case.policy for case in made.open()] == ["fused"]


def test_it_ends_after_a_minute() -> None:
    made = _made(lambda case, _: (_usual(case) * (1.9 if case.policy == "fused" else 1), 0.5), seconds=1.0)
    assert len(made.runs) < 61
    assert made.worse() == []


@pytest.mark.guest
def test_no_policy_is_worse_than_accepted() -> None:
    """A ratio to passthrough may be 25 % worse. A machine in use only makes this longer, and at last skips it."""
    accepted = native.of_cpu(kernel.model())
    if accepted is None:
        pytest.skip(f"no figures are accepted for this CPU ({kernel.model()}): xsmmu lab native --accept")
    tools, console = guests.tools(), Console(stderr=True)
    if not build.is_built(tools, console):
        pytest.skip("User-Mode Linux is not built, which takes 6 minutes of CPU time: make native QUICK=1")
    made = check.run(build.machine(tools, console), max(os.sched_getaffinity(0)), accepted)
    assert made.worse() == []
    if made.open():
        pytest.skip(f"this machine is too noisy: no answer for {'; '.join(map(str, made.open()))}")
