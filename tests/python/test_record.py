# SPDX-License-Identifier: GPL-2.0-only
"""`xsmmu record`, with a program in the place of xsmmu-record."""

from __future__ import annotations

import os
import signal
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from click.testing import CliRunner, Result
from tests.python import fake_kernel, fake_recorder
from tests.python.fake_kernel import Kernel

from xsmmu import programs, record
from xsmmu.cli import app
from xsmmu.errors import UserError


@pytest.fixture
def kernel(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Kernel]:
    with fake_kernel.booted(tmp_path, monkeypatch) as made:
        yield made


def run(*words: str) -> Result:
    return CliRunner().invoke(app, ["record", *words], catch_exceptions=False)


def refusal(*words: str) -> UserError:
    result = CliRunner().invoke(app, ["record", *words])
    assert isinstance(result.exception, UserError), result.output
    return result.exception


@pytest.mark.usefixtures("kernel")
def test_a_time(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    words = fake_recorder.install(tmp_path / "programs", monkeypatch)
    file = tmp_path / "eth1.xsr"
    result = run("eth1", "-O", str(file), "--seconds", "2", "--raw", "--max-overhead", "5", "--check")
    assert result.exit_code == 0
    said = words.read_text().split()
    assert said[:2] == ["-O", str(file)]
    assert " ".join(said[2:-1]) == "--raw --check --seconds 2.0 --max-overhead 5.0"
    assert "638 events in 2.0 s, 5 bytes, 0.0 bytes an event" in result.stdout
    assert "295 map, 295 unmap" in result.stdout
    assert "lost: nothing" in result.stdout
    assert "31.2 % of 0.2 s of busy CPUs" in result.stdout
    assert "check: equal: mapped pages 304 of 304" in result.stdout


@pytest.mark.usefixtures("kernel")
def test_nothing_was_mapped(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    nothing = {**fake_recorder.SUMMARY["check"], "mapped_pages": [2, 0], "equal": False}
    summary = {**fake_recorder.SUMMARY, "events": 0, "by_kind": {}, "check": nothing}
    words = fake_recorder.install(tmp_path / "programs", monkeypatch, summary)
    result = run("eth1", "-O", str(tmp_path / "a"), "--seconds", "1", "--ring-kib", "64")
    assert "0 events in 2.0 s, 5 bytes\n" in result.stdout
    assert "events: none: the devices have mapped nothing" in result.stdout
    assert "ratio -)" in result.stdout
    assert "--ring-kib 64" in words.read_text()


@pytest.mark.usefixtures("kernel")
def test_a_command_ends_the_recording(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    words = fake_recorder.install(tmp_path / "programs", monkeypatch)
    mark = tmp_path / "mark"
    assert run("eth1", "-O", str(tmp_path / "a"), "--", "touch", str(mark)).exit_code == 0
    assert mark.exists() and "touch" not in words.read_text()
    error = refusal("eth1", "-O", str(tmp_path / "b"), "--", "sh", "-c", "exit 3")
    assert "status 3; the recording is kept" in error.message
    assert (tmp_path / "b").exists()


@pytest.mark.usefixtures("kernel")
def test_losses_and_slices_are_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    summary = {
        **fake_recorder.SUMMARY,
        "lost": 12,
        "nested": 2,
        "lost_by_cpu": {"3": 10},
        "covered_seconds": 0.5,
        "slices": 7,
        "devices": [{"address": "0000:01:00.0", "events": 638, "removed": 1}],
        "overhead": {**fake_recorder.SUMMARY["overhead"], "programs_s": None, "ns_per_call": None, "share": None},
        "check": {**fake_recorder.SUMMARY["check"], "mapped_pages": [152, 304], "equal": False},
    }
    fake_recorder.install(tmp_path / "programs", monkeypatch, summary)
    result = run("eth1", "-O", str(tmp_path / "a"), "--seconds", "1")
    assert "lost: 12 events (10 on CPU 3, 2 inside of other calls)" in result.stdout
    assert "covered: 0.5 of 2.0 s, in 7 slices" in result.stdout
    assert "does not measure" in result.stdout
    assert "check: not equal" in result.stdout and "ratio 0.5" in result.stdout
    assert "0000:01:00.0 was removed" in result.stderr


@pytest.mark.usefixtures("kernel")
def test_what_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    file = str(tmp_path / "a")
    monkeypatch.setenv(programs.FOLDER_VARIABLE, str(tmp_path / "nowhere"))
    assert "correct XSMMU_PROGRAMS" in refusal("eth1", "-O", file).message
    words = fake_recorder.install(tmp_path / "programs", monkeypatch)
    assert "are the same device" in refusal("eth1", "0000:01:00.0", "-O", file).message
    assert "exclude each other" in refusal("eth1", "-O", file, "--seconds", "1", "--", "true").message
    assert "no-such-program" in refusal("eth1", "-O", file, "--", "no-such-program").message
    assert "there is no COMMAND" in refusal("eth1", "-O", file, "--").message
    assert "there is no folder" in refusal("eth1", "-O", f"{file}/b").message
    assert "exists" in refusal("eth1", "-O", str(tmp_path)).message
    (tmp_path / "link").symlink_to(tmp_path / "nowhere else")
    assert "exists" in refusal("eth1", "-O", str(tmp_path / "link")).message
    assert refusal("eth9", "-O", file).code == "unknown-device"
    assert not words.exists()


@pytest.mark.usefixtures("kernel")
def test_the_programs_error_is_the_commands(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    then = "echo xsmmu-record: first >&2; echo xsmmu-record: no space left >&2; exit 1"
    fake_recorder.install(tmp_path / "programs", monkeypatch, then=then)
    error = refusal("eth1", "-O", str(tmp_path / "a"), "--seconds", "1")
    assert (error.message, error.lines) == ("no space left", ("first",))


@pytest.mark.usefixtures("kernel")
def test_a_command_is_not_left_behind(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The recorder has failed, and the command goes on to its end."""
    fake_recorder.install(tmp_path / "programs", monkeypatch)
    (tmp_path / "programs" / record.PROGRAM).write_text(
        """#!/bin/sh
echo '{"event":"recording"}'
echo 'xsmmu-record: No space left on device' >&2
exit 1
"""
    )
    mark = tmp_path / "mark"
    error = refusal("eth1", "-O", str(tmp_path / "a"), "--", "sh", "-c", f"sleep 0.5; touch {mark}")
    assert error.message == "No space left on device"
    assert mark.exists()


def in_one_thread(check: Callable[[], None]) -> None:
    """Check in a process with one thread, as the tool has: a thread of the test runner could take a signal."""
    child = os.fork()
    if not child:
        signal.alarm(60)
        status = 1
        try:
            check()
            status = 0
        finally:
            os._exit(status)
    assert os.waitpid(child, 0)[1] == 0


@pytest.mark.usefixtures("kernel")
@pytest.mark.parametrize("names", [("TERM",), ("HUP",), ("TERM", "HUP")])
def test_a_signal_ends_the_recording_and_the_command(
    names: tuple[str, ...], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As Ctrl-C does; the file is complete when the tool has ended."""
    fake_recorder.install(tmp_path / "programs", monkeypatch)
    before = signal.getsignal(signal.Signals[f"SIG{names[0]}"])
    script = f"trap 'exit 7' {' '.join(names)}; {''.join(f'kill -{name} $PPID; ' for name in names)}"
    script += "while kill -0 $PPID; do sleep 0.05; done"

    def check() -> None:
        error = refusal("eth1", "-O", str(tmp_path / "a"), "--", "sh", "-c", script)
        assert "status 7; the recording is kept" in error.message
        assert (tmp_path / "a").exists()
        assert signal.getsignal(signal.Signals[f"SIG{names[0]}"]) == before

    in_one_thread(check)


def test_an_ignored_signal_stays_ignored() -> None:
    """As SIGHUP by nohup."""
    before = signal.signal(signal.SIGHUP, signal.SIG_IGN)
    try:
        with record.Command(None).told():
            assert signal.getsignal(signal.SIGHUP) == signal.SIG_IGN
    finally:
        signal.signal(signal.SIGHUP, before)


@pytest.mark.usefixtures("kernel")
def test_warnings_of_the_recorder_are_printed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    fake_recorder.install(tmp_path / "programs", monkeypatch, then="echo 'xsmmu-record: pages have no identity' >&2")
    assert run("eth1", "-O", str(tmp_path / "a"), "--seconds", "1").stderr == "pages have no identity\n"


@pytest.mark.usefixtures("kernel")
def test_a_second_ctrl_c_leaves_the_command(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The recording has ended at the first."""

    def interrupted(_: record.Command) -> None:
        raise KeyboardInterrupt

    fake_recorder.install(tmp_path / "programs", monkeypatch)
    monkeypatch.setattr(record.Command, "wait", interrupted)
    error = refusal("eth1", "-O", str(tmp_path / "a"), "--", "true")
    assert (error.message, error.status) == ("stopped; the recording is kept, and the command goes on", 130)
    assert (tmp_path / "a").exists()


@pytest.mark.usefixtures("kernel")
def test_a_recorder_that_is_killed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    fake_recorder.install(tmp_path / "programs", monkeypatch, then="printf '{\"event\":'; kill -KILL $$")
    error = refusal("eth1", "-O", str(tmp_path / "a"), "--seconds", "1")
    assert error.message == "xsmmu-record was killed by signal 9"
