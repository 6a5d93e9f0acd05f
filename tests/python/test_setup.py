# SPDX-License-Identifier: GPL-2.0-only
"""The entry: help needs nothing, set-up is quick when warm, and a missing package is one clear error."""

from __future__ import annotations

import os
import shutil
import subprocess
import time
from contextlib import ExitStack
from pathlib import Path

import pytest
from rich.console import Console

from xsmmu.errors import UserError
from xsmmu_lab.arch import AMD64
from xsmmu_lab.project import PROJECT
from xsmmu_lab.setup import build, host
from xsmmu_lab.setup.root import Root

SETUP = PROJECT / "lab" / "setup.sh"


def test_help_lists_every_target(tmp_path: Path) -> None:
    env = {**os.environ, "XSMMU_CACHE": str(tmp_path / "none")}
    result = subprocess.run(["make", "-C", str(PROJECT)], capture_output=True, text=True, env=env, check=True)
    for target in ("packages", "modules", "install", "dist", "lab", "test", "test-long", "tidy", "clean", "help"):
        assert f"\n  {target} " in result.stdout
    assert not (tmp_path / "none").exists()


@pytest.mark.parametrize("target", ["test", "test-long", "mutants"])
def test_a_missing_test_is_named(target: str) -> None:
    tests = "TESTS=tests/python/test_setup.py tests/python/test_missing.py::test_it"
    result = subprocess.run(["make", "-C", str(PROJECT), target, tests], capture_output=True, text=True, check=False)
    assert result.returncode == 2
    assert "error: TESTS: tests/python/test_missing.py does not exist" in result.stderr


def test_warm_set_up_is_quick() -> None:
    subprocess.run([str(SETUP)], check=True, capture_output=True)
    start = time.monotonic()
    result = subprocess.run([str(SETUP)], check=True, capture_output=True, text=True)
    assert time.monotonic() - start < 1.0
    assert Path(result.stdout.strip()).exists()
    assert not result.stderr


def bare_host(folder: Path, user: int, *tools: str) -> Path:
    """A PATH with only the tools of a Debian base system, as seen by a user id."""
    for tool in ("sh", "cut", "dirname", "flock", "mkdir", "rm", "sha256sum", "touch", *tools):
        found = shutil.which(tool)
        assert found
        (folder / tool).symlink_to(found)
    (folder / "id").write_text(f"#!/bin/sh\necho {user}\n")
    (folder / "id").chmod(0o755)
    return folder


def set_up(path: Path, cache: Path) -> subprocess.CompletedProcess[str]:
    env = {"PATH": str(path), "XSMMU_CACHE": str(cache), "HOME": str(cache)}
    return subprocess.run([str(path / "sh"), str(SETUP)], capture_output=True, text=True, env=env, check=False)


def test_an_ordinary_user_is_told_the_one_command(tmp_path: Path) -> None:
    path = tmp_path / "bin"
    path.mkdir()
    result = set_up(bare_host(path, 1000), tmp_path / "cache")
    assert result.returncode == 1
    assert "install with: sudo apt-get install --no-install-recommends -y mmdebstrap" in result.stderr
    assert not (tmp_path / "cache").exists()


def test_root_installs_what_is_missing(tmp_path: Path) -> None:
    path = tmp_path / "bin"
    path.mkdir()
    bare_host(path, 0)
    calls = tmp_path / "calls"
    (path / "apt-get").write_text(
        f'#!/bin/sh\necho "$@" >>{calls}\n[ "$1" = update ] || {{ echo "#!/bin/sh" >{path}/mmdebstrap; '
        f"/bin/chmod +x {path}/mmdebstrap; }}\n"
    )
    (path / "apt-get").chmod(0o755)
    # No Python packages are fetched: a file is in the cache folder's place.
    (tmp_path / "cache").touch()
    result = set_up(path, tmp_path / "cache")
    assert "cannot create the cache folder" in result.stderr
    assert calls.read_text().splitlines()[0] == "update -q"
    assert "install --no-install-recommends -y mmdebstrap" in calls.read_text()
    assert "installing on this host: mmdebstrap" in result.stderr


def test_root_is_told_when_installing_fails(tmp_path: Path) -> None:
    path = tmp_path / "bin"
    path.mkdir()
    bare_host(path, 0)
    (path / "apt-get").write_text("#!/bin/sh\necho 'E: no network' >&2\nexit 100\n")
    (path / "apt-get").chmod(0o755)
    result = set_up(path, tmp_path / "cache")
    assert result.returncode == 1
    assert "installing mmdebstrap" in result.stderr
    assert "check the network" in result.stderr


@pytest.mark.parametrize("made", ["root-abc/usr", "venv-abc", "debs"])
def test_clean_takes_what_the_lab_made_only(tmp_path: Path, made: str) -> None:
    project, cache = tmp_path / "project", tmp_path / "cache"
    (project / "lab").mkdir(parents=True)
    shutil.copy(PROJECT / "lab" / "clean.sh", project / "lab")
    (cache / made).mkdir(parents=True)
    (cache / "mine").touch()
    env = {**os.environ, "XSMMU_CACHE": str(cache)}
    subprocess.run([str(project / "lab" / "clean.sh")], check=True, env=env, capture_output=True)
    assert [path.name for path in cache.iterdir()] == ["mine"]


def test_builds_in_other_folders_have_other_locks(tmp_path: Path) -> None:
    assert len({build._lock_of(tmp_path, tmp_path / "build" / f"{number}") for number in range(1000)}) == 16
    assert build._lock_of(tmp_path, tmp_path / "a") == build._lock_of(tmp_path, tmp_path / "a")


def test_what_is_built_does_not_wait_for_another_build(tmp_path: Path) -> None:
    """Finished builds are not made again, either."""
    root = Root(tmp_path, tmp_path, {}, AMD64, tmp_path)

    def make(script: str) -> bytes:
        made = build._build(root, {"in": b"1\n"}, (), "it", script, on_host=True)
        return (made.folder / "out").read_bytes()

    script = "cat in >>out"
    assert make(script) == b"1\n"
    with ExitStack() as locks:
        for digit in "0123456789abcdef":
            locks.enter_context(host.locked(tmp_path / f"build-{digit}.lock", Console(stderr=True), "building"))
        assert make(script) == b"1\n"
    with pytest.raises(UserError, match="it does not build"):
        make("false")
    assert len([*tmp_path.glob("build/*/.done")]) == 1
