# SPDX-License-Identifier: GPL-2.0-only
"""`xsmmu compare` on a made-up sysfs; its kernel rebinds, and the command's time depends on the policy."""

from __future__ import annotations

import errno
import json
import os
import re
import signal
import statistics
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from click.testing import CliRunner
from tests.python import fake_kernel
from tests.python.fake_kernel import Kernel, Refuses, end, everything, fails, ignore, program, put_back, run
from tests.python.sysfs import IGB, NVME0

from xsmmu import compare as comparing
from xsmmu import exposure, hooks, measure, module, spread
from xsmmu.cli import app
from xsmmu.errors import UserError
from xsmmu.machine import Device
from xsmmu.measure import Figure

WORK = """
device=$XSMMU_SYSFS/bus/pci/devices/0000:01:00.0
mode=$(sed 's/.*\\[\\(.*\\)\\].*/\\1/' $device/xsmmu/policy)
[ $mode = none ] && mode=$(cat $device/iommu_group/type)
echo $mode >>$HERE/order
run=$(wc -l <$HERE/order)
case $mode in DMA) seconds=0.15 ticks=400 ;; DMA-FQ) seconds=0.1 ticks=200 ;; *) seconds=0 ticks=100 ;; esac
read name user rest <$XSMMU_PROC/stat
echo "$name $((user + ticks + run)) $rest" >$XSMMU_PROC/stat
count() { echo $(($(cat $device/xsmmu/stats/$1) + $2)) >$device/xsmmu/stats/$1; }
if [ $mode = fused ]; then
    count mapped_pages 2000; count unmapped_pages 1000; count inv_domain 3; count inv_global 1
    printf '1024 %s\\n2048 3\\n4096 %s\\nmax 3999\\n' $((10 + 990 * run)) $((10 * run)) >$device/xsmmu/exposure_ns
fi
sleep $seconds
echo "{\\"end\\": {\\"runs\\": [$((1000 * run * run))]}}"
"""
"""The script of COMMAND: prints the current mode, and makes the machine's and the module's counters grow."""


@pytest.fixture
def kernel(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Kernel]:
    monkeypatch.setenv("HERE", str(tmp_path))
    (tmp_path / "proc").mkdir()
    (tmp_path / "proc/stat").write_text("cpu 1000 1 1 999999 7 1 1 5 0 0\ncpu0 1 1 1 1 1 1 1 1 0 0\n")
    program(tmp_path / "work", WORK)
    with fake_kernel.booted(tmp_path, monkeypatch) as made:
        yield made


def compare(kernel: Kernel, *words: str) -> tuple[str, ...]:
    """The command line; `--` and COMMAND are among the words, or COMMAND is the script `work`."""
    here = kernel.sysfs.parent
    command = () if "--" in words else ("--", f"{here}/work")
    return ("compare", "eth1", "--output-folder", str(here / "out"), *words, *command)


def lines(kernel: Kernel) -> list[dict[str, Any]]:
    return [json.loads(line) for line in (kernel.sysfs.parent / "out/runs.jsonl").read_text().splitlines()]


def test_rounds_are_interleaved_and_all_is_put_back(kernel: Kernel) -> None:
    before = everything(kernel)
    said = run(*compare(kernel, "--runs", "2"))
    order = (kernel.sysfs.parent / "order").read_text().split()
    assert order == ["DMA", "DMA-FQ", "fused", "copy"] * 3
    assert everything(kernel) == before
    rows = [line.split() for line in said.splitlines()]
    assert rows[0][:5] == ["policy", "level", "wall", "s", "x"]
    assert {row[0]: row[1] for row in rows[1:5]} == {
        "kernel-strict": "strict",
        "kernel-lazy": "lazy",
        "fused": "held",
        "copy": "held",
    }
    walls = {row[0]: (float(row[2]), row[4]) for row in rows[1:5]}
    assert set(walls) == {"fused", "copy", "kernel-lazy", "kernel-strict"}
    assert list(walls.values()) == sorted(walls.values())
    assert walls["kernel-strict"][1] == "1.000"
    assert "medians of 2 runs" in said
    assert "check that COMMAND uses" not in said
    setup, *runs = lines(kernel)
    assert (setup["schema"], setup["baseline"], setup["drivers"]) == ("xsmmu.compare-setup/1", "kernel-strict", ["igb"])
    assert [(row["policy"], row["round"], row["warmup"]) for row in runs] == [
        (policy, at, at == 0) for at in range(3) for policy in setup["policies"]
    ]
    assert {row["schema"] for row in runs} == {"xsmmu.compare-run/1"}


def test_figures_are_those_of_the_runs(kernel: Kernel) -> None:
    words = ("--runs", "4", "--json-path", "end.runs.0", "--baseline", "fused", "--policies", "kernel-strict,fused")
    result = json.loads(run(*compare(kernel, *words, "-o", "json")))
    assert result == json.loads((kernel.sysfs.parent / "out/result.json").read_text())
    assert (result["schema"], result["rank"], result["figure"]) == ("xsmmu.compare/1", "highest", "end.runs.0")
    counted = [row for row in lines(kernel)[1:] if not row["warmup"]]
    base = {row["policy"]: row for row in result["ranking"]}["fused"]
    assert [row["policy"] for row in result["ranking"]] == ["fused", "kernel-strict"]
    for rank, row in enumerate(result["ranking"], 1):
        assert row["rank"] == rank
        for name in measure.QUANTITIES:
            values = [each[name] for each in counted if each["policy"] == row["policy"]]
            if values == [None] * 4:
                assert row[name] is None
                continue
            median = statistics.median(values)
            assert row[name] == {
                "median": median,
                "mad": statistics.median(abs(value - median) for value in values),
                "min": min(values),
                "max": max(values),
                "relative": median / base[name]["median"] if base[name] and base[name]["median"] else None,
            }, name
    strict, fused = ([row for row in counted if row["policy"] == name] for name in ("kernel-strict", "fused"))
    assert [row["figure"] for row in fused] == [1000 * at**2 for at in (4, 6, 8, 10)]
    assert [row["cpu_s"] for row in strict] == pytest.approx([(400 + at) / measure.TICKS_PER_S for at in (3, 5, 7, 9)])
    assert all(row["wall_s"] >= 0.15 for row in strict)
    assert all(0 < row["command_cpu_s"] < row["wall_s"] for row in counted)
    assert all(row[name] is None for row in strict for name in measure.MODULES)
    for row in fused:
        assert (row["mapped_pages"], row["unmapped_pages"]) == (2000, 1000)
        assert [row[f"inv_{kind}"] for kind in module.KINDS] == [0, 3, 1]
        assert row["invalidations_per_page"] == pytest.approx(0.004)
        assert (row["exposure_p99_ns"], row["exposure_max_ns"]) == (1024, 3999)


def warned(kernel: Kernel, *words: str) -> list[str]:
    words = ("--json-path", "end.runs.0", "--policies", "kernel-strict,fused", *words)
    found: list[str] = json.loads(run(*compare(kernel, *words, "-o", "json")))["warnings"]
    return found


@pytest.mark.parametrize(("runs", "few"), [(1, True), (3, True), (5, True), (6, False)])
def test_few_runs_are_warned_of(kernel: Kernel, runs: int, few: bool) -> None:
    found = [line for line in warned(kernel, "--runs", str(runs)) if "too few" in line]
    assert len(found) == few
    assert all(f"{runs} run" in line and line.endswith("use --runs 6 or more") for line in found)


@pytest.mark.parametrize(
    ("values", "resolution", "places"),
    [
        ([], 0, []),
        ([1.0], 0, []),
        ([1.0, 9.0], 0, []),
        ([1.05, 1.051, 1.049, 1.05, 1.052, 2.5], 0, [5]),
        ([9.0, 1.0, 1.1, 0.9, 1.05, 0.95], 0, [0]),
        ([1.0, 1.1, 0.9, 1.05, 0.95, 1.2], 0, []),
        ([1.0, 1.0, 1.0, 1.0, 1.01], 0.015, []),
        ([1.0, 1.0, 1.0, 1.0, 1.03], 0.015, [4]),
        ([5.0, 5.0, 5.0, 5.0, 0.0, 11.0], 0, [4, 5]),
        ([0.0] * 6, 0, []),
        # A deviation that equals the bound is none.
        ([0.0] * 5 + [0.5], 0.5, []),
        # On both sides; many equal values, so that there is no deviation; and a deviation that is too small to matter.
        ([1.0, 1.0, 1.0, 1.0, 0.5, 1.0], 0, [4]),
        ([100.0, 100.01, 99.99, 100.0, 100.5, 100.0], 0, []),
        ([0.0, 0.0, 0.0, 7.0, 0.0, 0.0], 0, [3]),
        ([-5.0, -5.0, -5.1, -4.9, -50.0, -5.0], 0, [4]),
    ],
)
def test_outliers(values: list[float], resolution: float, places: list[int]) -> None:
    assert spread.outliers(values, resolution) == places


def test_outliers_are_warned_of() -> None:
    """As hyperfine does; the first run may be an outlier because it fills caches."""
    [said] = spread.disturbed("fused", "wall_s", [1.0, 1.1, 0.9, 1.05, 9.5, 0.95])
    assert said == ("fused: outliers of wall_s: 9.5 in round 5, the median is 1.025: repeat on an idle machine")
    [said] = spread.disturbed("fused", "wall_s", [9.5, 1.1, 0.9, 1.05, 1.0, 0.95])
    assert said.endswith("use more --warmup")


@pytest.mark.parametrize(
    ("rank", "last", "count"),
    [
        ("wall", 0.1, 0),
        ("wall", 0.11, 1),
        # CPU time is counted in ticks; a difference of a tick means nothing.
        ("cpu", 0.1 + 1 / measure.TICKS_PER_S, 0),
        ("cpu", 0.1 + 3 / measure.TICKS_PER_S, 1),
    ],
)
def test_outliers_are_of_what_is_ranked_by(tmp_path: Path, rank: str, last: float, count: int) -> None:
    quantity = comparing.RANKS[rank]
    about: dict[str, Any] = {"device": IGB, "members": [], "drivers": [], "command": [], "figure": None}
    about |= {"kernel": "", "cpus": 1, "module": None}
    setup = comparing.Setup(**about, policies=["fused", "copy"], runs=6, warmup=0, baseline="copy", rank=rank)
    comparison = comparing.Comparison(setup, Device(IGB), None, tmp_path)
    for policy, row in comparison.rows.items():
        values = [0.1] * 5 + [last if policy == "fused" else 0.1]
        row += [{"wall_s": 0.1, "cpu_s": 0.1, quantity: value} for value in values]
    found = comparison.warnings()
    assert len(found) == count
    assert all(said.startswith(f"fused: outliers of {quantity}: ") for said in found)


def test_what_is_warned_of_is_no_part_of_the_table(kernel: Kernel) -> None:
    result = CliRunner().invoke(app, compare(kernel, "--runs", "1"), catch_exceptions=False)
    assert "warning: 1 run of each policy: too few" in result.stderr
    assert "warning" not in result.stdout


def test_the_exposure_stands_beside_the_bound(kernel: Kernel) -> None:
    """And the cause of many commands beside these."""
    row: dict[str, Any] = {"policy": "fused", "level": "held", "exposure_bound_ns": 1_000_000}
    row |= {"invalidations_per_page": None, "exposure_max_ns": None, "unmapped_pages": None, "deferred_pages": None}
    assert list(comparing._notes(row)) == []
    row |= {"exposure_max_ns": {"max": 6_290_000}, "invalidations_per_page": {"median": 0.97}}
    row |= {"unmapped_pages": {"median": 1000}, "deferred_pages": {"median": 20}}
    first, second = comparing._notes(row)
    assert first.startswith("inv/page: 98 % of the pages were flushed inside their unmap: fused does not defer slab")
    assert second.startswith("max/bound: a page stayed reachable for 6.29ms, beyond 1.00ms")
    ranking = json.loads(run(*compare(kernel, "--runs", "1", "-o", "json")))["ranking"]
    bounds = {row["policy"]: row["exposure_bound_ns"] for row in ranking}
    assert bounds == {"kernel-strict": None, "kernel-lazy": None, "fused": 1_000_000, "copy": 1_000_000}


def test_the_table_has_the_longest_exposure_of_all_runs(capsys: pytest.CaptureFixture[str]) -> None:
    """The bound is a promise for each run, so neither the median nor the shortest run is compared with the bound."""
    row: dict[str, Any] = {"policy": "fused", "level": "held", "exposure_bound_ns": 1_000_000}
    row |= dict.fromkeys((*comparing.MODULES, "unmapped_pages", "deferred_pages"))
    row |= {name: {"median": 1.0, "mad": 0.0, "min": 1.0, "max": 1.0, "relative": 1.0} for name in ("wall_s", "cpu_s")}
    row |= {"exposure_max_ns": {"median": 400_000, "mad": 0, "min": 300_000, "max": 900_000, "relative": None}}
    about: dict[str, Any] = {"device": IGB, "members": [], "drivers": [], "command": [], "figure": None}
    about |= {"kernel": "", "cpus": 1, "module": None, "runs": 3, "warmup": 0}
    comparing._print(comparing.Setup(**about, policies=["fused"], baseline="fused", rank="wall"), [row])
    heads, cells = (line.split() for line in capsys.readouterr().out.splitlines()[:2])
    assert (heads[-1], cells[-1]) == ("max/bound", "900us/1.00ms")


@pytest.mark.parametrize(
    ("longest", "exact", "late"),
    [(1000, True, False), (1001, True, True), (1250, False, False), (1251, False, True)],
)
def test_an_exposure_up_to_the_bound_is_in_time(longest: int, exact: bool, late: bool) -> None:
    assert exposure.is_late(longest, 1000, exact) == late


@pytest.mark.parametrize(("rank", "first"), [("lowest", "kernel-strict"), ("highest", "fused")])
def test_either_end_of_a_figure_may_be_the_best(kernel: Kernel, rank: str, first: str) -> None:
    words = ("--runs", "1", "--warmup", "0", "--json-path", "end.runs.0", "--policies", "kernel-strict,fused")
    ranking = json.loads(run(*compare(kernel, *words, "--rank", rank, "-o", "json")))["ranking"]
    assert [row["figure"]["median"] for row in sorted(ranking, key=lambda row: row["policy"])] == [4000, 1000]
    assert ranking[0]["policy"] == first


def test_what_is_busy(kernel: Kernel) -> None:
    """User, nice, system and both kinds of interrupts; not idle, I/O wait, steal, nor guest time again."""
    (kernel.sysfs.parent / "proc/stat").write_text("cpu  1 2 4 8 16 32 64 128 256 512\ncpu0 9 9 9 9 9 9 9 9 9 9\n")
    assert measure.busy_ticks() == 1 + 2 + 4 + 32 + 64


def test_time_in_the_kernel_is_the_commands_too(kernel: Kernel, monkeypatch: pytest.MonkeyPatch) -> None:
    real = os.wait4

    def wait4(process: int, options: int) -> tuple[int, int, SimpleNamespace]:
        return *real(process, options)[:2], SimpleNamespace(ru_utime=2.0, ru_stime=0.5)

    monkeypatch.setattr(os, "wait4", wait4)
    run(*compare(kernel, "--runs", "1", "--warmup", "0", "--policies", "fused", "--", "true"))
    assert lines(kernel)[1]["command_cpu_s"] == 2.5


def test_drivers_are_rebound_only_where_they_must(kernel: Kernel) -> None:
    """The hooks run around each rebind, and around the restoring rebind; the disk's policies need no rebind."""
    log = kernel.sysfs.parent / "log"
    hooks = ("--before", f"echo before >>{log}", "--after", f"echo after >>{log}")
    run(*compare(kernel, "--runs", "1", "--policies", "kernel-lazy,strict,fused,copy", *hooks, "--", "true"))
    # On the trial of all: to strict and to copy; then, twice, back to kernel-lazy, to strict and to copy; and back.
    assert log.read_text().split() == ["before", "after"] * 9
    assert sum("igb/unbind" in write for write in kernel.writes) == 9
    # The module, which logs refusals, shows whether copying can begin without a rebind.
    assert sum(write.endswith("policy copy") for write in kernel.writes) == 3
    log.unlink()
    kernel.writes.clear()
    folder = str(kernel.sysfs.parent / "disk")
    run("set", "nvme0n1", "xsmmu")
    before = everything(kernel)
    run("compare", "nvme0n1", "--policies", "strict,fused", "--output-folder", folder, *hooks, "--", "true")
    assert everything(kernel) == before
    assert not log.exists()
    assert not any("bind" in write for write in kernel.writes)


def test_a_policy_with_its_own_tunables_comes_back(kernel: Kernel) -> None:
    run("set", "eth1", "copy", "copy_bytes=512", "max_window_us=70", "--tables", "direct", "--rebind")
    before = everything(kernel)
    run(*compare(kernel, "--runs", "1", "--policies", "passthrough,fused,kernel-strict", "--", "true"))
    assert everything(kernel) == before
    assert module.choice(Device(IGB)).tunables["copy_bytes"] == 512


@pytest.mark.parametrize("how", ["refused", "refused after it was done", "Ctrl-C", "SIGTERM"])
def test_any_write_may_fail(kernel: Kernel, tmp_path: Path, how: str) -> None:
    (kernel.sysfs / "kernel/iommu_groups/11/type").write_text("identity\n")
    before = everything(kernel)
    words = ("compare", "eth1", "--runs", "1", "--warmup", "0", "--policies", "kernel-lazy,fused,copy")

    def arguments(number: int) -> tuple[str, ...]:
        return (*words, "--output-folder", str(tmp_path / f"out{number}"), "--", "true")

    run(*arguments(0))
    assert everything(kernel) == before
    writes = [*kernel.writes]
    assert len(writes) == 22
    for nth, write in enumerate(writes, 1):
        if how != "refused" and write.endswith("policy copy") and writes[nth].endswith("unbind " + IGB):
            continue  # The kernel refuses this write, so it never happens.
        kernel.writes.clear()

        def strike(_write: str, at: int = nth) -> None:
            if len(kernel.writes) == at:
                if how in ("Ctrl-C", "SIGTERM"):
                    os.kill(os.getpid(), signal.SIGINT if how == "Ctrl-C" else signal.SIGTERM)
                else:
                    raise OSError(errno.EIO, "Input/output error")

        kernel.before, kernel.after = (strike, ignore) if how == "refused" else (ignore, strike)
        error = fails(*arguments(nth))
        assert "; everything was restored; the finished runs are in " in error.message
        assert everything(kernel) == before, nth


def has_ended(process: int) -> bool:
    """Whether a process is gone, or waits for its parent."""
    try:
        return Path(f"/proc/{process}/stat").read_text().split()[2] == "Z"
    except OSError:
        return True


def until_ended(kernel: Kernel, began: float) -> None:
    """Wait until the child has ended whose number a script has written."""
    child = int((kernel.sysfs.parent / "child").read_text())
    while not has_ended(child):
        assert time.monotonic() - began < 300
        time.sleep(0.01)


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_a_signal_while_the_command_runs(kernel: Kernel, number: signal.Signals) -> None:
    """The command ends with all its children."""
    # Only once the parent watches this shell: before, the parent blocks the signal, but other threads of the test do
    # not.
    watched = 'until grep -qs "^Pid:[[:space:]]*$$\\$" /proc/$PPID/fdinfo/*; do sleep 0.01; done'
    again = f"sleep 600 & echo $! >$HERE/child; {watched}; kill -{number.value} $PPID; wait"
    script = f"if [ -e $HERE/once ]; then {again}; fi; touch $HERE/once"
    began = time.monotonic()
    error = put_back(kernel, *compare(kernel, "--policies", "kernel-strict,fused", "--", "sh", "-c", script))
    assert time.monotonic() - began < 300
    assert (error.status, error.code) == (130, "stopped")
    until_ended(kernel, began)
    assert [row["policy"] for row in lines(kernel)[1:]] == ["kernel-strict"]


def test_a_run_that_fails_stops_all(kernel: Kernel) -> None:
    script = "echo said; echo why >&2; echo x >>$HERE/count; [ $(wc -l <$HERE/count) -lt 3 ]"
    words = ("--runs", "2", "--warmup", "1", "--policies", "kernel-strict,fused", "--", "sh", "-c", script)
    error = put_back(kernel, *compare(kernel, *words))
    assert error.code == "command-failed"
    assert error.message.startswith("kernel-strict, round 1: 'sh -c ")
    assert "ended with status 1; everything was restored; the finished runs are in" in error.message
    assert error.lines == ("said", "why")
    assert len(lines(kernel)) == 3
    assert (kernel.sysfs.parent / "out/003-kernel-strict.err").read_text() == "why\n"


@pytest.mark.parametrize("name", ["002-fused.out", "002-fused.err", "result.json"])
def test_a_link_that_somebody_has_put_into_the_folder(kernel: Kernel, name: str) -> None:
    """Root must not write through a link: the folder may be below /tmp, and another user's."""
    here = kernel.sysfs.parent
    (here / "precious").write_text("precious\n")
    script = f"ln -sf $HERE/precious $HERE/out/{name}"
    words = ("--runs", "1", "--warmup", "0", "--policies", "strict,fused", "--", "sh", "-c", script)
    error = put_back(kernel, *compare(kernel, *words))
    assert (here / "precious").read_text() == "precious\n"
    assert name == "result.json" or (error.code == "not-empty" and f"{name} was created by another" in error.message)


def test_what_it_said_last_is_in_the_error_as_json(
    kernel: Kernel, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    words = compare(kernel, "-o", "json", "--", "sh", "-c", "echo said; echo why >&2; exit 3")
    status, out, said = end(monkeypatch, capsys, *words)
    error = json.loads(said)
    assert (status, out, error["code"], error["lines"]) == (1, "", "command-failed", ["said", "why"])


def test_a_command_that_is_killed(kernel: Kernel) -> None:
    error = put_back(kernel, *compare(kernel, "--", "sh", "-c", "kill -9 $$"))
    assert "warm-up 1: 'sh -c 'kill -9 $$'' was ended by SIGKILL" in error.message.replace("'\"'\"'", "'")


def test_a_hook_can_be_ended_while_all_is_put_back(kernel: Kernel) -> None:
    """Then signals are delayed for the tool, but not for its children."""
    log = kernel.sysfs.parent / "log"
    # In place of a shell: some shells unblock all signals by themselves.
    shell = kernel.sysfs.parent / "bin/sh"
    shell.write_text(f"#!{sys.executable}\nprint(open('/proc/self/status').read(), file=open('{log}', 'a'))\n")
    shell.chmod(0o755)
    error = put_back(kernel, *compare(kernel, "--policies", "fused", "--after", "true", "--", "false"))
    assert error.code == "command-failed"
    assert re.findall(r"^SigBlk:\s*(\w+)", log.read_text(), re.MULTILINE) == ["0" * 16] * 2


def test_a_hook_that_fails(kernel: Kernel) -> None:
    error = put_back(kernel, *compare(kernel, "--before", "echo no; exit 4"))
    assert error.code == "hook-failed"
    assert "--before 'echo no; exit 4' ended with status 4" in error.message
    assert error.lines == ("no",)


@pytest.mark.parametrize(
    ("stop", "code"),
    [
        ("", "hook-failed"),
        # As soon as the parent no longer blocks signals.
        ('until grep -q "^SigBlk:.0*$" /proc/$PPID/status; do sleep 0.01; done; kill -INT $PPID', "stopped"),
    ],
    ids=["too slow", "Ctrl-C"],
)
def test_a_slow_hook_ends_with_all_that_it_has_started(
    kernel: Kernel, monkeypatch: pytest.MonkeyPatch, stop: str, code: str
) -> None:
    monkeypatch.setattr(hooks, "HOOK_S", 300.0 if stop else 0.5)
    began = time.monotonic()
    error = put_back(kernel, *compare(kernel, "--before", f"sleep 600 & echo $! >$HERE/child\n{stop}\nwait"))
    assert error.code == code
    assert time.monotonic() - began < 300
    until_ended(kernel, began)


def test_a_child_that_will_not_end_is_killed(kernel: Kernel, monkeypatch: pytest.MonkeyPatch) -> None:
    """Also if the hook itself has ended by then."""
    monkeypatch.setattr(hooks, "HOOK_S", 0.5)
    monkeypatch.setattr("xsmmu.process.END_S", 0.5)
    began = time.monotonic()
    child = "trap '' TERM; echo $$ >$HERE/child; while :; do sleep 0.1; done"
    error = put_back(kernel, *compare(kernel, "--before", f'sh -c "{child}" & wait'.replace("$$", r"\$\$")))
    assert error.code == "hook-failed"
    until_ended(kernel, began)


def test_a_name_that_does_not_come_back(kernel: Kernel, monkeypatch: pytest.MonkeyPatch) -> None:
    link = kernel.sysfs / "class/net/eth1"
    target = link.readlink()
    kernel.after = lambda write: link.unlink() if "igb/bind" in write and link.exists() else None
    monkeypatch.setattr(hooks, "NAMES_S", 0.05)
    error = fails(*compare(kernel))
    assert "eth1 did not reappear within 0 s" in error.message
    link.symlink_to(target)
    assert Device(IGB).driver == "igb"


def test_a_dry_run_says_what_would_be_run(kernel: Kernel) -> None:
    words = compare(kernel, "--runs", "2", "--policies", "fused,kernel-lazy", "--before", "touch $HERE/log")
    before = {*kernel.sysfs.parent.iterdir()}
    setup = json.loads(run(*words[:-2], "--dry-run", "-o", "json", *words[-2:]))
    assert run(*words[:-2], "--dry-run", *words[-2:]).splitlines() == [
        f"{IGB} (eth1): fused, kernel-lazy in turn, once without COMMAND, then in each round",
        "rounds: 1 to warm up, 2 counted",
        f"COMMAND: {kernel.sysfs.parent}/work",
        "drivers to unbind and bind if a policy needs it: igb",
        f"all runs: {kernel.sysfs.parent}/out",
    ]
    assert {*kernel.sysfs.parent.iterdir()} == before
    assert not kernel.writes
    run(*words)
    assert lines(kernel)[0] == setup


def test_what_is_in_use_is_refused_first(kernel: Kernel) -> None:
    (kernel.sysfs.parent / "proc/swaps").write_text("Filename Type\n/dev/nvme0n1 partition 1 0 -2\n")
    words = ("compare", "nvme0n1", "--runs", "1", "--output-folder")
    error = put_back(kernel, *words, str(kernel.sysfs.parent / "a"), "--", "true")
    assert error.code == "essential"
    assert not kernel.writes
    # Not in the middle, because an earlier policy was possible.
    mark = kernel.sysfs.parent / "mark"
    late = ("--policies", "strict,kernel-lazy", "--", "touch", str(mark))
    for more in ((), ("--dry-run",)):
        assert put_back(kernel, *words, str(kernel.sysfs.parent / "d"), *more, *late).code == "essential"
    assert not kernel.writes
    assert not mark.exists()
    assert not (kernel.sysfs.parent / "d").exists()
    # Of both, one is in force now, and the other is not.
    both = ("--policies", "kernel-lazy,kernel-strict", "--", "true")
    assert put_back(kernel, *words, str(kernel.sysfs.parent / "e"), *both).code == "essential"
    run(*words, str(kernel.sysfs.parent / "b"), "--policies", "strict,fused", "--", "true")
    run(*words, str(kernel.sysfs.parent / "c"), "--force", "--", "true")
    assert f"bus/pci/drivers/nvme/unbind {NVME0}" in kernel.writes


def test_a_policy_that_cannot_be_had_is_refused_before_the_first_run(kernel: Kernel) -> None:
    """A policy that the module refuses, and a policy that only needs a rebind of a device in use."""
    here = kernel.sysfs.parent

    def refuse(write: str) -> None:
        if write.endswith("policy lazy"):
            raise PermissionError(errno.EPERM, "Operation not permitted")

    run("set", "nvme0n1", "xsmmu")
    kernel.before = refuse
    (here / "proc/swaps").write_text("Filename Type\n/dev/nvme0n1 partition 1 0 -2\n")
    for policies, code in {"strict,fused,lazy": "refused", "strict,copy": "essential"}.items():
        words = ("--policies", policies, "--output-folder", str(here / code), "--", "touch", str(here / "mark"))
        assert put_back(kernel, "compare", "nvme0n1", *words).code == code
        assert not (here / "mark").exists()


def test_what_is_in_use_may_be_run_under_what_it_has(kernel: Kernel) -> None:
    (kernel.sysfs.parent / "proc/net").mkdir()
    routes = "Iface Destination Gateway Flags RefCnt Use Metric Mask\neth1 00000000 0 0003 0 0 0 00000000\n"
    (kernel.sysfs.parent / "proc/net/route").write_text(routes)
    run(*compare(kernel, "--policies", "kernel-lazy", "--runs", "1", "--", "true"))
    assert not any("bind" in write for write in kernel.writes)


def test_what_comes_after_a_rebind_comes_after_one_that_is_put_back(kernel: Kernel) -> None:
    """Back to xsmmu no rebind is needed; the rebind to copy has taken the addresses."""
    run("set", "nvme0n1", "xsmmu")
    log = kernel.sysfs.parent / "log"
    words = ("compare", "nvme0n1", "--policies", "copy", "--output-folder", str(kernel.sysfs.parent / "out"))
    error = put_back(kernel, *words, "--after", f"echo after >>{log}; [ $(wc -l <{log}) = 2 ]", "--", "true")
    assert error.code == "hook-failed"
    assert log.read_text().split() == ["after"] * 2


def test_progress_is_seen_on_a_terminal(kernel: Kernel, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("FORCE_COLOR", "1")
    said = run(*compare(kernel, "--runs", "1", "--policies", "fused", "--", "true"))
    assert "warm-up 1: fused" in said
    assert "round 1: fused" in said
    assert "2/2" in said
    assert f"check that COMMAND uses {IGB} (eth1)" in re.sub(r"\x1b\[[0-9;?]*[a-zA-Z]", "", said)


@pytest.mark.parametrize(
    ("figure", "value"),
    [
        (Figure(re.compile(r"([\d.,]+) req/s")), 2345.5),
        (Figure(re.compile(r"\d+$", re.MULTILINE)), 7.0),
        (Figure(path="a.1.b"), 4.5),
        (Figure(path="a.0"), "printed no number at a.0"),
        (Figure(path="a.9"), "printed no number at a.9"),
        (Figure(path="c"), "printed no number at c"),
        (Figure(re.compile("nothing")), "printed no number at 'nothing'"),
        (Figure(re.compile("[a-z]+")), "printed no number at '[a-z]+'"),
        (Figure(path="d"), "printed no number at d"),
        (Figure(path="e"), "printed no number at e"),
    ],
)
def test_a_figure_in_what_was_printed(figure: Figure, value: float | str) -> None:
    text = (
        '{"a": ["x", {"b": 4.5}], "c": true, "d": NaN, "e": "-inf"}' if figure.path else "1 req/s\n2,345.5 req/s, 7\n"
    )
    if isinstance(value, str):
        with pytest.raises(UserError, match=re.escape(value)) as error:
            figure.of(text)
        assert error.value.code == "no-figure"
    else:
        assert figure.of(text) == value


@pytest.mark.parametrize(
    ("said", "value"),
    [
        ("1,234", 1234.0),
        ("-12,345,678.5", -12_345_678.5),
        ("12,5", None),
        ("0,75", None),
        ("1234,5", None),
        ("1,2,3", None),
        ("1.234,5", None),
        ("1,23e4", None),
    ],
)
def test_a_comma_may_begin_the_decimals(said: str, value: float | None) -> None:
    """As programs print numbers in the session's language: 12,5 is not 125."""
    figure = Figure(re.compile(r"(\S+) req/s"))
    if value is not None:
        assert figure.of(f"{said} req/s") == value
    else:
        with pytest.raises(UserError, match="printed no number"):
            figure.of(f"{said} req/s")


def test_no_json(kernel: Kernel) -> None:
    error = put_back(kernel, *compare(kernel, "--json-path", "a", "--", "echo", "words"))
    assert error.code == "no-figure"
    assert "kernel-strict, warm-up 1: 'echo words' printed no JSON" in error.message
    assert error.lines == ("words",)


BAD = [
    (["eth9", "--", "true"], (1, "unknown-device", "no device 'eth9'")),
    (["eth1", "--policies", "fused,turbo", "--", "true"], (1, "unknown-name", "'turbo': choose from kernel-strict")),
    (["eth1", "--policies", "none", "--", "true"], (1, "unknown-name", "unknown policy 'none'")),
    (["eth1", "--policies", "fused,fused", "--", "true"], (2, "usage", "each policy once")),
    (["eth1", "--baseline", "lazy", "--", "true"], (2, "usage", "--baseline lazy is not among")),
    (["eth1", "--metric", "x", "--json-path", "x", "--", "true"], (2, "usage", "exclude each other")),
    (["eth1", "--metric", "(", "--", "true"], (1, "bad-value", "'(' is no regular expression")),
    (["eth1", "--rank", "lowest", "--", "true"], (2, "usage", "--rank lowest needs a figure")),
    (["eth1", "--rank", "size", "--", "true"], (2, "usage", "'size' is not one of")),
    (["eth1", "--runs", "0", "--", "true"], (2, "usage", "0 is not in the range")),
    (["eth1", "--", "no-such-program", "-o", "json"], (1, "no-command", "program 'no-such-program' does not exist")),
    (["eth1", "--output-folder", "/", "--", "true"], (1, "not-empty", "/ is not empty")),
    (["eth1", "--output-folder", "/proc/x", "--", "true"], (1, "cannot-write", "cannot write to /proc/x")),
    (["eth1"], (2, "usage", "Missing argument 'COMMAND...'")),
]


@pytest.mark.parametrize("dry_run", [[], ["--dry-run"]], ids=" ".join)
@pytest.mark.parametrize(("words", "expected"), BAD, ids=[" ".join(case[0]) for case in BAD])
def test_bad_input(refuses: Refuses, words: list[str], expected: tuple[int, str, str], dry_run: list[str]) -> None:
    refuses(["compare", *dry_run, *words], expected)
    assert not [*Path().glob("xsmmu-compare-*")]
