# SPDX-License-Identifier: GPL-2.0-only
"""The host: mirrors as apt names them, locks, free space, stopped commands, and the meaning of failures."""

from __future__ import annotations

import os
import subprocess
import sys
import threading
import time
from pathlib import Path

import pytest
from rich.console import Console

from xsmmu.errors import UserError
from xsmmu_lab.setup import host


def listed(*places: str) -> str:
    return "".join(
        f"'{place}/InRelease' some_file 0 \n'{place}/main/binary-amd64/Packages.xz' x 0 \n" for place in places
    )


@pytest.mark.parametrize(
    ("places", "main"),
    [
        (["http://a/debian/dists/trixie", "http://a/debian/dists/trixie-updates"], "http://a/debian"),
        # another vendor's archive uses the codename too, and comes first
        (
            ["http://b/dists/trixie", "http://a/debian/dists/trixie", "http://a/debian/dists/trixie-updates"],
            "http://a/debian",
        ),
        (["http://a/debian/dists/trixie"], "http://a/debian"),
        (["mirror+file:/etc/apt/mirrors/debian.list/dists/trixie"], "mirror+file:/etc/apt/mirrors/debian.list"),
        (["http://a/debian//dists/trixie"], "http://a/debian"),
        (["http://a/ubuntu/dists/noble"], None),
    ],
)
def test_main_archive(places: list[str], main: str | None) -> None:
    assert host.main_archive(host.archive_bases(listed(*places)), "trixie") == main


def test_mirrors_can_be_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XSMMU_MIRROR", "http://here/debian/")
    monkeypatch.setenv("XSMMU_SECURITY_MIRROR", "http://here/security")
    assert host.debian_mirrors() == ("http://here/debian", "http://here/security")


def test_cache_folder_that_cannot_be_made(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XSMMU_CACHE", "/dev/null/cache")
    with pytest.raises(UserError, match="XSMMU_CACHE"):
        host.cache_dir()


def test_need_space(tmp_path: Path) -> None:
    host.need_space(tmp_path, 1, "a test")
    with pytest.raises(UserError, match=r"a test needs .* MiB free"):
        host.need_space(tmp_path, 1 << 60, "a test")


@pytest.mark.parametrize(
    ("line", "meaning"),
    [
        ("E: Write error - write (28: No space left on device)", "disk is full"),
        ("E: You don't have enough free space in /x.", "disk is full"),
        ("Err:1 http://x  Temporary failure resolving 'x'", "no network"),
        ("Could not connect to x:80 (1.2.3.4). - connect (111: Connection refused)", "no network"),
        ("E: Failed to fetch http://x  Hash Sum mismatch", "arrived broken"),
        ("W: GPG error: http://x InRelease: NO_PUBKEY 123", "debian-archive-keyring"),
    ],
)
def test_download_error_says_what_to_do(line: str, meaning: str) -> None:
    error = host.download_error("building", ["first", line, "last"])
    assert meaning in error.message
    assert error.lines == (line,)


def test_other_download_errors_show_the_end() -> None:
    error = host.download_error("building", [str(number) for number in range(50)])
    assert error.lines[-1] == "49"


def test_lock_waits_and_says_so(tmp_path: Path) -> None:
    console = Console(record=True, file=open(os.devnull, "w"))  # noqa: PTH123, SIM115
    order: list[str] = []

    def second() -> None:
        with host.locked(tmp_path / "a.lock", console, "building"):
            order.append("second")

    with host.locked(tmp_path / "a.lock", console, "building"):
        thread = threading.Thread(target=second)
        thread.start()
        time.sleep(0.3)
        order.append("first")
    thread.join()
    assert order == ["first", "second"]
    assert "another run is building" in console.export_text()


def alive(pid: int) -> bool:
    try:
        return Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()[0] != "Z"
    except OSError:
        return False


def test_timeout_ends_the_whole_group(tmp_path: Path) -> None:
    pid_file = tmp_path / "pid"
    with pytest.raises(subprocess.TimeoutExpired):
        host.run(["sh", "-c", f"sleep 60 & echo $! >{pid_file}; wait"], timeout=1)
    # The group is killed when run() returns; an orphan is gone when init has reaped it.
    until = time.monotonic() + 10
    while alive(int(pid_file.read_text())) and time.monotonic() < until:
        time.sleep(0.05)
    assert not alive(int(pid_file.read_text()))


def test_sigterm_ends_what_was_started(tmp_path: Path) -> None:
    pid_file = tmp_path / "pid"
    script = (
        "from xsmmu_lab.setup import host\nhost.interrupt_on_sigterm()\n"
        f"try:\n    host.run(['sh', '-c', 'echo $$ >{pid_file}; exec sleep 60'])\n"
        "except KeyboardInterrupt:\n    raise SystemExit(130)\n"
    )
    process = subprocess.Popen([sys.executable, "-c", script], env={**os.environ, "PYTHONPATH": ":".join(sys.path)})
    while not (pid_file.exists() and pid_file.read_text().strip()):
        time.sleep(0.05)
    process.terminate()
    assert process.wait(10) == 130
    assert not alive(int(pid_file.read_text()))


def test_a_killed_command_takes_its_children_along(tmp_path: Path) -> None:
    pid_file = tmp_path / "pid"
    script = f"from xsmmu_lab.setup import host\nhost.run(['sh', '-c', 'echo $$ >{pid_file}; exec sleep 60'])\n"
    process = subprocess.Popen([sys.executable, "-c", script], env={**os.environ, "PYTHONPATH": ":".join(sys.path)})
    while not (pid_file.exists() and pid_file.read_text().strip()):
        time.sleep(0.05)
    process.kill()
    process.wait()
    time.sleep(0.2)
    assert not alive(int(pid_file.read_text()))


def test_remove_tree_of_read_only_folders(tmp_path: Path) -> None:
    inner = tmp_path / "tree" / "inner"
    inner.mkdir(parents=True)
    (inner / "file").touch()
    inner.chmod(0o500)
    host.remove_tree(tmp_path / "tree")
    assert not (tmp_path / "tree").exists()
