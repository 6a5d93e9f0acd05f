# SPDX-License-Identifier: GPL-2.0-only
"""Where the tool finds the programs of xsmmu-trace."""

from __future__ import annotations

from pathlib import Path

import pytest

from xsmmu import programs, record, replay
from xsmmu.errors import UserError

NAMES = (record.PROGRAM, replay.PROGRAM)


@pytest.fixture
def prefixes(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> tuple[Path, Path]:
    """The tool's own prefix, and that of the package; both are empty."""
    monkeypatch.delenv(programs.FOLDER_VARIABLE, raising=False)
    monkeypatch.setattr(programs, "PREFIX", tmp_path / "local")
    monkeypatch.setattr(programs, "DEBIAN", tmp_path / "usr")
    return tmp_path / "local", tmp_path / "usr"


def install(folder: Path, name: str, mode: int = 0o755) -> Path:
    folder.mkdir(parents=True, exist_ok=True)
    (folder / name).touch()
    (folder / name).chmod(mode)
    return folder / name


@pytest.mark.parametrize("name", NAMES)
def test_the_own_prefix_comes_before_the_package(prefixes: tuple[Path, Path], name: str) -> None:
    local, usr = prefixes
    package = install(usr / "libexec/xsmmu", name)
    assert programs.find(name) == package
    own = install(local / "libexec/xsmmu", name)
    assert programs.find(name) == own


@pytest.mark.parametrize("name", NAMES)
def test_a_named_folder_is_the_only_one(
    prefixes: tuple[Path, Path], tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str
) -> None:
    install(prefixes[1] / "libexec/xsmmu", name)
    monkeypatch.setenv(programs.FOLDER_VARIABLE, str(tmp_path / "build"))
    with pytest.raises(UserError, match=r"is not in .*/build: correct XSMMU_PROGRAMS"):
        programs.find(name)
    built = install(tmp_path / "build", name)
    assert programs.find(name) == built


@pytest.mark.parametrize("name", NAMES)
def test_a_missing_program_names_its_package(prefixes: tuple[Path, Path], name: str) -> None:
    with pytest.raises(UserError, match="install the package xsmmu-trace") as error:
        programs.find(name)
    assert error.value.code == "not-installed"
    (prefixes[1] / "libexec/xsmmu" / name).mkdir(parents=True)
    with pytest.raises(UserError, match="install the package"):
        programs.find(name)
