# SPDX-License-Identifier: GPL-2.0-only
"""The command as a process: messages, statuses, bad input."""

from __future__ import annotations

import errno
import io
import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import click
import pytest
from click.testing import CliRunner
from tests.python import documents
from tests.python.fake_kernel import end
from tests.python.sysfs import IGB, make_device

from xsmmu import module, output
from xsmmu.cli import app
from xsmmu_lab.project import PYTHONPATH


def xsmmu(*arguments: str) -> subprocess.CompletedProcess[str]:
    """Run the command line."""
    environment = {**os.environ, "PYTHONPATH": PYTHONPATH}
    command = [sys.executable, "-m", "xsmmu", *arguments]
    return subprocess.run(command, capture_output=True, text=True, env=environment, check=False, timeout=60)


@pytest.mark.parametrize("arguments", [(), ("lab", "run"), ("lab", "profile"), ("watch",), ("set",), ("status",)])
def test_help(arguments: tuple[str, ...]) -> None:
    result = xsmmu(*arguments, "--help")
    assert result.returncode == 0
    assert "Usage: xsmmu" in result.stdout
    assert "Options:" in result.stdout


def commands(command: click.Command, *words: str) -> Iterator[tuple[str, ...]]:
    """All commands, with the words that name each."""
    yield words
    if isinstance(command, click.Group):
        for name, below in command.commands.items():
            yield from commands(below, *words, name)


@pytest.mark.parametrize("words", [*commands(app)], ids=" ".join)
def test_a_help_fits_80_columns_and_nothing_is_cut(words: tuple[str, ...]) -> None:
    said = CliRunner().invoke(app, [*words, "--help"], env={"COLUMNS": "80"}).stdout
    assert max(map(len, said.splitlines())) <= 80
    assert "..." not in said.partition("Commands:")[2]


@pytest.mark.parametrize(
    "arguments",
    [("--experiment", "claim-a-rx", "--quick"), ("--workload", "window", "--policy", "passthrough")],
)
def test_nothing_to_run_is_said(arguments: tuple[str, ...]) -> None:
    result = xsmmu("lab", "run", *arguments)
    assert result.returncode == 1
    assert result.stderr.startswith("xsmmu: ")
    assert "has nothing to run for this choice: leave out --quick" in result.stderr


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("--policy", "fuse"), "unknown policy 'fuse': choose from passthrough,"),
        (("--workload", "net"), "unknown workload 'net': choose from micro,"),
        (("--experiment", "x"), "unknown experiment 'x': choose from attack, claim-a-norecycle,"),
        (("--accel", "hvf"), "unknown accelerator 'hvf': choose from auto, tcg, kvm"),
    ],
)
def test_unknown_names_are_one_line(arguments: tuple[str, ...], message: str) -> None:
    result = xsmmu("lab", "run", *arguments)
    assert result.returncode == 1
    assert result.stdout == ""
    assert result.stderr.startswith(f"xsmmu: {message}")
    assert result.stderr.count("\n") == 1


def test_an_unknown_option_is_explained() -> None:
    result = xsmmu("lab", "run", "--polcy", "fused")
    assert result.returncode == 2
    assert "--policy" in result.stderr


def test_missing_results_are_explained(tmp_path: Path) -> None:
    result = xsmmu("lab", "show", str(tmp_path / "none"))
    assert (result.returncode, result.stderr.count("\n")) == (1, 1)


def test_ctrl_c_is_one_line(tmp_path: Path) -> None:
    make_device(tmp_path, IGB, 11, "fused", "igb")
    command = [sys.executable, "-m", "xsmmu", "watch", "--interval", "0.1"]
    environment = {**os.environ, "PYTHONPATH": PYTHONPATH, "XSMMU_SYSFS": str(tmp_path)}
    process = subprocess.Popen(
        command,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        env=environment,
        start_new_session=True,
        # A test run in the background of a shell inherits an ignored SIGINT.
        preexec_fn=lambda: signal.signal(signal.SIGINT, signal.SIG_DFL),
    )
    assert process.stdout
    assert process.stdout.readline()
    time.sleep(0.2)
    process.send_signal(signal.SIGINT)
    _, stderr = process.communicate(timeout=20)
    assert process.returncode == 130
    assert stderr == "xsmmu: stopped; unfinished work was ended and removed\n"


def test_nohup_is_heard(tmp_path: Path) -> None:
    """A command under nohup outlives its terminal."""
    make_device(tmp_path, IGB, 11, "fused", "igb")
    environment = {**os.environ, "PYTHONPATH": PYTHONPATH, "XSMMU_SYSFS": str(tmp_path)}
    process = subprocess.Popen(
        [sys.executable, "-m", "xsmmu", "watch", "--interval", "0.1", "--count", "5", "-o", "jsonl"],
        stdout=subprocess.PIPE,
        text=True,
        env=environment,
        preexec_fn=lambda: signal.signal(signal.SIGHUP, signal.SIG_IGN),
    )
    assert process.stdout
    assert process.stdout.readline()
    process.send_signal(signal.SIGHUP)
    stdout, _ = process.communicate(timeout=60)
    assert process.returncode == 0
    assert len(stdout.splitlines()) == 4


@pytest.mark.parametrize("form", ["table", "jsonl"])
def test_an_answer_of_the_system_that_nobody_foresaw(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], form: str
) -> None:
    def groups(_wanted: object) -> None:
        raise OSError(errno.EIO, "Input/output error", "/sys/x")

    monkeypatch.setattr(module, "groups", groups)
    status, out, said = end(monkeypatch, capsys, "watch", "-o", form)
    assert (status, out) == (1, "")
    assert "Input/output error (/sys/x)" in said
    assert form == "table" or documents.read(said)[0]["code"] == "failed"


@pytest.mark.parametrize(
    ("words", "form"),
    [
        ("status -o json", "json"),
        ("status -ojson eth1", "json"),
        ("status -o=jsonl", "jsonl"),
        ("status --output=json", "json"),
        ("status --output jsonl", "jsonl"),
        ("status", "table"),
        ("status -o table", "table"),
        ("status -o jsonx", "table"),
        ("compare eth1 -- work -o json", "table"),
    ],
)
def test_which_form_is_asked_for(words: str, form: str) -> None:
    """Errors in the command line must be reported in the requested form, too."""
    assert output.asked(words.split()) == form


def test_errors_are_json_where_output_is(tmp_path: Path) -> None:
    environment = {**os.environ, "PYTHONPATH": PYTHONPATH, "XSMMU_SYSFS": str(tmp_path)}
    command = [sys.executable, "-m", "xsmmu"]
    for words, status, code in (
        (["status", "eth9", "-o", "json"], 1, "unknown-device"),
        (["watch", "-o", "jsonl"], 1, "no-module"),
        (["status", "--nosuch", "-o", "json"], 2, "usage"),
    ):
        result = subprocess.run([*command, *words], capture_output=True, text=True, env=environment, check=False)
        assert result.returncode == status
        assert result.stdout == ""
        assert [error["code"] for error in documents.read(result.stderr)] == [code]


@pytest.mark.parametrize("words", ["metrics", "status -o json", "doctor", "top", "status eth9"])
@pytest.mark.parametrize("closed", ["<&-", ">&-", "2>&-", "<&- >&- 2>&-"])
def test_streams_that_were_closed_from_the_start(tmp_path: Path, words: str, closed: str) -> None:
    """The status is the same as with open streams, and no traceback replaces a message."""
    environment = {**os.environ, "PYTHONPATH": PYTHONPATH, "XSMMU_SYSFS": str(tmp_path)}
    command = f"{sys.executable} -m xsmmu {words}"
    found = [
        subprocess.run(
            ["bash", "-c", f"{command} {more}"], capture_output=True, text=True, env=environment, check=False
        )
        for more in ("</dev/null >/dev/null 2>&1", closed)
    ]
    assert found[0].returncode == found[1].returncode
    assert "Traceback" not in found[1].stderr


@pytest.mark.parametrize("number", [0, 1, 2])
def test_what_is_started_has_streams_too(tmp_path: Path, number: int) -> None:
    """Else a child's first opened file would be its standard error, or a script would end at its first output."""
    words = ["-c", "from xsmmu import cli; cli._open_streams(); import os; os.system(os.environ['STARTED'])"]
    started = f"is=$(readlink /proc/$$/fd/{number}); echo $is >&9"
    environment = {**os.environ, "PYTHONPATH": PYTHONPATH, "STARTED": started}
    with (tmp_path / "said").open("w") as said:
        script = f'exec 9>&{said.fileno()} {number}>&-; exec "$@"'
        subprocess.run(
            ["bash", "-c", script, "bash", sys.executable, *words],
            check=True,
            env=environment,
            pass_fds=[said.fileno()],
        )
    assert (tmp_path / "said").read_text() == "/dev/null\n"


@pytest.mark.parametrize("encoding", ["utf-8:strict", "ascii"])
def test_what_a_terminal_has_no_characters_for(tmp_path: Path, encoding: str) -> None:
    """File names are bytes; an error causes no second error, and its text does not move the cursor."""
    file = os.fsdecode(os.fsencode(tmp_path) + b"/\xff\x1b[31m\xc3\xa4.json")
    environment = {**os.environ, "PYTHONPATH": PYTHONPATH, "PYTHONIOENCODING": encoding}
    command = [sys.executable, "-m", "xsmmu", "report", file]
    ended = subprocess.run(command, env=environment, capture_output=True)
    assert ended.returncode == 1
    assert ended.stderr.startswith(b"xsmmu: /")
    assert rb"\udcff\x1b[31m" in ended.stderr


def test_only_what_the_terminal_itself_fails_is_its_end(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Other errors are reported and set the status, even without a reader."""

    def full(*_: object) -> list[dict[str, object]]:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    monkeypatch.setattr("xsmmu.status.rows", full)
    monkeypatch.setattr("xsmmu.cli._has_hung_up", lambda: True)
    status, _, said = end(monkeypatch, capsys, "status")
    assert (status, said) == (1, f"xsmmu: {os.strerror(errno.ENOSPC)}\n")


def test_progress_that_no_terminal_takes(monkeypatch: pytest.MonkeyPatch) -> None:
    class Gone(io.StringIO):
        def isatty(self) -> bool:
            return True

        def write(self, _text: str) -> int:
            raise OSError(errno.EIO, os.strerror(errno.EIO))

    monkeypatch.setattr(sys, "stderr", Gone())
    output.progress("binding igb")


@pytest.mark.parametrize(
    "words", ["watch --interval 0.01 --count 50 | head -n 1", "status | head -c 1", "status | :", "doctor | :"]
)
def test_a_pipe_that_closes_is_no_error(tmp_path: Path, words: str) -> None:
    make_device(tmp_path, IGB, 11, "fused", "igb")
    environment = {**os.environ, "PYTHONPATH": PYTHONPATH, "XSMMU_SYSFS": str(tmp_path)}
    command = f"{sys.executable} -m xsmmu {words}; echo ' '${{PIPESTATUS[0]}}"
    result = subprocess.run(["bash", "-c", command], capture_output=True, text=True, env=environment, check=False)
    assert result.stdout.split()[-1] == "0"
    assert result.stderr == ""
