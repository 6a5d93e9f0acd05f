# SPDX-License-Identifier: GPL-2.0-only
"""Accepted figures of `make native` in the tree: the file, estimates at any wait, and the acceptance of a run."""

from __future__ import annotations

import dataclasses
import json
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner
from rich.console import Console
from tests.python.conftest import LAZY
from tests.python.documents import fault

from xsmmu import guide, native
from xsmmu.errors import UserError
from xsmmu_lab import policies
from xsmmu_lab.native import accepted, run
from xsmmu_lab.runs.commands import lab

_ROW = dataclasses.replace(
    LAZY, policy="lazy", wait_ns=0, ns_per_page=60.0, low=58.0, high=61.5, map_ns=25.0, unmap_ns=35.0
)
_NAMED = "c94207afc830a577d289e2e030b72573a353b5c1"


def _summary(**changes: Any) -> dict[str, Any]:
    row = {**dataclasses.asdict(_ROW), "rounds": 7}
    return {"cpu": "A CPU", "kernel": "7.2.12", "commit": _NAMED, "cmpxchg_ns": 2.6, "rows": [row], **changes}


def test_the_file_is_as_it_would_be_written() -> None:
    text = native.FILE.read_text()
    assert fault(json.loads(text)) is None
    assert accepted.text_of(native.accepted()) == text


@pytest.mark.parametrize("machine", native.accepted(), ids=lambda machine: machine.cpu)
def test_each_machine_has_all_policies(machine: native.Machine) -> None:
    assert native.of_cpu(machine.cpu) is machine
    # One of the machines is not at hand, and has no figures of later policies, which are for research.
    usual = [name for name in policies.names() if name not in guide.RESEARCH]
    for name in ("passthrough", "kernel-strict", "kernel-lazy", *usual):
        ns = machine.ns_at(native.HARDWARE_WAIT_NS, name)
        assert ns is not None, name
        assert ns > 0
    keys = [
        dataclasses.replace(row, ns_per_page=0, low=0, high=0, map_ns=0, unmap_ns=0, inv_per_page=0)
        for row in machine.rows
    ]
    assert len(set(keys)) == len(keys), "two rows of one case"
    assert all(row.low <= row.ns_per_page <= row.high for row in machine.rows)


def test_no_figures_of_an_unknown_cpu() -> None:
    assert native.of_cpu("no such CPU") is None
    assert native.of_cpu(None) is None


def test_an_estimate_at_any_wait() -> None:
    at_300 = dataclasses.replace(_ROW, wait_ns=300, ns_per_page=66.0)
    rows = [_ROW, at_300]
    assert native.at_wait(rows, 0) == 60
    assert native.at_wait(rows, 100) == pytest.approx(62)
    assert native.at_wait(rows, 300) == 66
    assert native.at_wait(rows, 1300) == pytest.approx(70), "each invalidation waits for 1,000 ns more"
    assert native.at_wait([at_300], 0) == pytest.approx(64.8)
    waits_more = dataclasses.replace(_ROW, wait_ns=1000, ns_per_page=99.0, inv_per_page=0.5)
    assert native.at_wait([at_300, waits_more], 0) == pytest.approx(64.8), "the nearest row's invalidations"
    machine = native.Machine("A CPU", "7.2", _NAMED, 2.6, (at_300, _ROW, dataclasses.replace(_ROW, ring=64)))
    assert machine.ns_at(150, "lazy", "unmodified") == pytest.approx(63)
    assert machine.ns_at(150, "lazy", "batch-aware") is None


def test_rows_of_several_cpus_are_not_plain() -> None:
    machine = native.Machine("A CPU", "7.2", _NAMED, 2.6, (dataclasses.replace(_ROW, cpus=2),))
    assert machine.ns_at(0, "lazy") is None


def test_another_schema_is_refused() -> None:
    with pytest.raises(ValueError, match=r"the schema is xsmmu.native/2, not xsmmu.native/1"):
        native.parse('{"schema": "xsmmu.native/2", "machines": []}')


def test_a_run_is_accepted(tmp_path: Path) -> None:
    file = tmp_path / "native.json"
    file.write_text(native.FILE.read_text())
    several = {"rows": [dataclasses.asdict(dataclasses.replace(_ROW, cpus=cpus)) for cpus in (1, 2)]}
    accepted.accept(_summary(several_cpus=several), file)
    [found] = [machine for machine in native.parse(file.read_text()) if machine.cpu == "A CPU"]
    assert found.rows == (_ROW, dataclasses.replace(_ROW, cpus=2))
    cpus = [machine.cpu for machine in native.parse(file.read_text())]
    assert cpus == sorted([*(machine.cpu for machine in native.accepted()), "A CPU"])
    accepted.accept(_summary(cmpxchg_ns=3.0), file)
    assert [machine.cmpxchg_ns for machine in native.parse(file.read_text()) if machine.cpu == "A CPU"] == [3.0]
    assert fault(json.loads(file.read_text())) is None


@pytest.mark.parametrize("commit", [f"{_NAMED}-dirty", "unknown"])
def test_a_run_of_an_unnamed_tree_is_not_accepted(commit: str, tmp_path: Path) -> None:
    with pytest.raises(UserError, match="commit first"):
        accepted.accept(_summary(commit=commit), tmp_path / "native.json")


def test_a_run_of_an_unnamed_tree_is_refused_before_it_is_measured(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(run, "commit", lambda: f"{_NAMED}-dirty")
    monkeypatch.setattr(run, "ensure", lambda *_: pytest.fail("the run has begun"))
    with pytest.raises(UserError, match="commit first"):
        run.run(run.Options(accept=True), Console())


@pytest.mark.parametrize("words", [["--wait", "0"], ["--quick"]])
def test_part_of_the_rows_is_not_accepted(words: list[str]) -> None:
    result = CliRunner().invoke(lab, ["native", "--accept", *words])
    assert result.exit_code == 2
    assert "leave out --wait and --quick" in result.output
