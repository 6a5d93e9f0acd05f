# SPDX-License-Identifier: GPL-2.0-only
"""`xsmmu replay --print`: a command for each replay, and `+aware` in --policy."""

from __future__ import annotations

import shlex
from pathlib import Path

import pytest
from click.testing import CliRunner
from tests.python import fake_replay

from xsmmu import replay
from xsmmu.cli import app
from xsmmu.errors import UserError


def run(*words: object) -> str:
    made = CliRunner().invoke(app, list(map(str, words)), catch_exceptions=False, standalone_mode=False)
    return made.stdout


@pytest.fixture
def files(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> tuple[Path, Path]:
    """Two recordings, of which one has a name that a shell would split; results are in the folder `cache`."""
    fake_replay.install(tmp_path / "programs", monkeypatch)
    monkeypatch.chdir(tmp_path)
    for name in ("a.xsr", "it's b.xsr"):
        Path(name).write_text(name)
    return Path("a.xsr"), Path("it's b.xsr")


WORDS = ("--policy", "kernel-lazy,fused", "--aware", "--cache", "cache")


def test_a_command_for_each_unit(files: tuple[Path, Path], tmp_path: Path) -> None:
    lines = [shlex.split(line) for line in run("replay", *files, *WORDS, "--print", "parallel").splitlines()]
    assert lines == [
        ["xsmmu", "replay", str(tmp_path / file), "--policy", policy, "--cache", str(tmp_path / "cache"), "--jobs", "1"]
        for file in files
        for policy in ("kernel-lazy", "fused", "fused+aware")
    ]


def test_commands_have_the_options_of_the_results(files: tuple[Path, Path]) -> None:
    words = (files[0], "--policy", "fused", "--check", "--counts", "--print", "parallel")
    assert shlex.split(run("replay", *words))[3:7] == ["--policy", "fused", "--check", "--counts"]


def test_counts_are_kept_for_the_program_that_counts() -> None:
    """The kernel's modes are not counted, and have the same result without it."""
    counted, kernel = (replay.Unit(Path("a"), policy, False, counts=True) for policy in ("fused", "kernel-lazy"))
    plain = [replay.Unit(Path("a"), policy, False) for policy in ("fused", "kernel-lazy")]
    keys = [replay.key_of(unit, "file", "tool", counting) for unit in (counted, kernel) for counting in "ab"]
    assert len({*keys, *(replay.key_of(unit, "file", "tool") for unit in plain)}) == 4
    assert keys[2] == keys[3] == replay.key_of(plain[1], "file", "tool")


def test_slurm_gets_the_same_commands(files: tuple[Path, Path]) -> None:
    plain = run("replay", *files, *WORDS, "--print", "parallel").splitlines()
    jobs = [shlex.split(line) for line in run("replay", *files, *WORDS, "--print", "slurm").splitlines()]
    assert [job[-1] for job in jobs] == plain
    assert {(job[0], job[-2]) for job in jobs} == {("sbatch", "--wrap")}


def test_the_commands_do_all_the_work(
    files: tuple[Path, Path], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    lines = run("replay", *files, *WORDS, "--print", "parallel").splitlines()
    (tmp_path / "elsewhere").mkdir()
    monkeypatch.chdir(tmp_path / "elsewhere")
    for line in lines:
        run(*shlex.split(line)[1:])
    assert len([*(tmp_path / "cache").iterdir()]) == len(lines) == 6
    monkeypatch.chdir(tmp_path)

    def unused(*_: object) -> None:
        raise AssertionError("a result is missing")

    monkeypatch.setattr(replay.Runner, "run", unused)
    assert run("replay", *files, *WORDS).count("COMMANDS/PAGE") == 2


def test_nothing_runs_while_commands_are_printed(files: tuple[Path, Path], tmp_path: Path) -> None:
    (tmp_path / "programs" / replay.PROGRAM).unlink()
    assert run("replay", *files, *WORDS, "--print", "slurm")
    assert not (tmp_path / "cache").exists()


def test_results_of_another_program_are_not_used(files: tuple[Path, Path], tmp_path: Path) -> None:
    assert "8 events" in run("replay", files[0], *WORDS)
    program = tmp_path / "programs" / replay.PROGRAM
    program.write_text(program.read_text().replace('"events": 8', '"events": 9'))
    assert "9 events" in run("replay", files[0], *WORDS)


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (("--print", "slurm", "-o", "json"), "excludes --html, --dask and -o"),
        (("--print", "slurm", "--html", "a.html"), "excludes --html, --dask and -o"),
        (("--policy", "strict+aware"), "leave out +aware"),
        (("--policy", "fuse+aware"), "unknown policy 'fuse+aware'"),
    ],
)
def test_what_is_refused(files: tuple[Path, Path], words: tuple[str, ...], said: str) -> None:
    with pytest.raises(UserError) as error:
        run("replay", *files, *words)
    assert said in error.value.message


def test_a_unit_is_named_once() -> None:
    units = replay.units_of([Path("a")], ["fused", "fused+aware", "fused"], aware=True)
    assert [unit.word for unit in units] == ["fused", "fused+aware"]
