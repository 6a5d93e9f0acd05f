# SPDX-License-Identifier: GPL-2.0-only
"""The private root: nothing half-built, commands inside it, builds in it, and the kernels' table."""

from __future__ import annotations

import os
import time
from dataclasses import replace
from pathlib import Path

import pytest
from rich.console import Console

from xsmmu.errors import UserError
from xsmmu_lab.runs import run
from xsmmu_lab.setup import build, host, kernels, root

QUIET = Console(stderr=True)


@pytest.fixture(scope="session")
def tools() -> root.Root:
    return root.ensure(host.cache_dir(), QUIET)


def broken_mmdebstrap(folder: Path, script: str) -> None:
    (folder / "mmdebstrap").write_text(f"#!/bin/sh\n{script}\n")
    (folder / "mmdebstrap").chmod(0o755)


@pytest.mark.parametrize(
    ("script", "said"),
    [
        ("echo 'E: Temporary failure resolving x' >&2; exit 1", "no network"),
        ("echo 'tar: x: No space left on device' >&2; exit 1", "disk is full"),
        ("exit 1", "building the private root failed"),
        ("exit 0", "reading the private root's versions failed|No such file"),
    ],
)
def test_a_failed_build_leaves_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, script: str, said: str) -> None:
    cache, tools_dir = tmp_path / "cache", tmp_path / "bin"
    cache.mkdir()
    tools_dir.mkdir()
    broken_mmdebstrap(tools_dir, f'for arg; do case $arg in {cache}/*) mkdir -p "$arg"; break;; esac; done\n{script}')
    monkeypatch.setattr(host, "SYSTEM_PATH", f"{tools_dir}:{host.SYSTEM_PATH}")
    with pytest.raises(UserError, match=said):
        root.ensure(cache, QUIET)
    assert sorted(path.name for path in cache.iterdir()) == ["debs", "root.lock"]


NO_ARM64 = """
echo "Skipping acquire of 'main/binary-arm64/Packages' as the repository doesn't support architecture 'arm64'"
echo 'E: Unable to locate package gcc-14-aarch64-linux-gnu'
echo 'E: Unable to locate package busybox-static:arm64'
exit 100
"""


def test_without_arm64_packages_there_are_amd64_guests(
    tools: root.Root, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    broken_mmdebstrap(tmp_path, NO_ARM64)
    monkeypatch.setattr(host, "SYSTEM_PATH", f"{tmp_path}:{host.SYSTEM_PATH}")
    missing = replace(root.TOOLS_ARM64, packages=("none",))
    monkeypatch.setitem(root.OF_GUESTS, "arm64", missing)
    with pytest.raises(UserError, match=r"for arm64 guests \(amd64 ones do without it\) failed: the .* lacks packages"):
        run.run(run.Options(iommu="smmuv3", quick=True), QUIET)
    assert not root.place(tools.cache, missing).exists()
    assert root.ensure(tools.cache, QUIET, root.OF_GUESTS["amd64"]) == tools


def test_full_disk_is_told_before_the_build(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(root, "_ROOT_BYTES", 1 << 60)
    with pytest.raises(UserError, match="free some space"):
        root.ensure(tmp_path, QUIET)


def test_what_a_killed_build_left_is_removed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "root-old.tmp" / "usr").mkdir(parents=True)
    (tmp_path / "setup-old").mkdir()
    broken_mmdebstrap(tmp_path, "exit 1")
    monkeypatch.setattr(host, "SYSTEM_PATH", f"{tmp_path}:{host.SYSTEM_PATH}")
    with pytest.raises(UserError):
        root.ensure(tmp_path, QUIET)
    assert not [*tmp_path.glob("root-*"), *tmp_path.glob("setup-*")]


def test_a_complete_root_costs_nothing(tools: root.Root) -> None:
    start = time.monotonic()
    assert root.ensure(tools.cache, QUIET) == tools
    assert time.monotonic() - start < 0.1


def test_versions_are_recorded(tools: root.Root) -> None:
    assert tools.versions["qemu-system-x86"].startswith("1:")
    assert "gcc-14" in tools.versions


def test_commands_run_inside(tools: root.Root) -> None:
    result = tools.run(
        ["sh", "-c", "pwd; echo $WORD; id -u; echo x >/dev/null; ls /build >/dev/null 2>&1 || true"],
        "/usr",
        {"WORD": "w"},
    )
    assert result.stdout.split() == ["/usr", "w", "0"]
    assert tools.run(["false"]).returncode == 1


def test_nothing_stays_mounted(tools: root.Root) -> None:
    tools.run(["true"])
    assert str(tools.path) not in Path("/proc/self/mountinfo").read_text()


def test_qemu_starts_outside(tools: root.Root) -> None:
    result = host.run([*tools.qemu_command(), "-machine", "q35", "-device", "help"])
    assert result.returncode == 0
    for device in ("intel-iommu", "igb", "e1000e", "nvme", "iommu-testdev", "x3130-upstream"):
        assert f'"{device}"' in result.stdout


def test_unknown_kernel_lists_the_valid_ones(tools: root.Root) -> None:
    with pytest.raises(UserError, match=r"unknown kernel '2\.6': choose from 6\.12, 7\.2, 7\.3, 6\.1"):
        kernels.ensure(tools, "2.6", QUIET)


def test_kernels_of_the_table_are_complete(tools: root.Root) -> None:
    for name in kernels.stock_names():
        kernel = kernels.ensure(tools, name, QUIET)
        assert kernel.release.startswith(name)
        assert kernel.vmlinuz.stat().st_size > 1 << 20
        assert (kernel.modules_dir / "modules.dep").exists()
        assert tools.run([kernel.gcc, "--version"]).returncode == 0
        assert kernel.gcc in (tools.path / kernel.headers[1:] / ".kernelvariables").read_text()


@pytest.fixture
def module(tmp_path: Path) -> Path:
    (tmp_path / "Kbuild").write_text("obj-m := hello.o\n")
    (tmp_path / "hello.c").write_text(
        '#include <linux/module.h>\nMODULE_LICENSE("GPL");\nMODULE_DESCRIPTION("nothing");\n'
    )
    return tmp_path


def test_modules_are_cached_by_content(tools: root.Root, module: Path) -> None:
    kernel = kernels.ensure(tools, None, QUIET)
    parts = ["Kbuild", "hello.c"]
    (first,) = build.module(tools, kernel, module, outputs=["hello.ko"], parts=parts)
    made = first.stat().st_mtime_ns
    (again,) = build.module(tools, kernel, module, outputs=["hello.ko"], parts=parts)
    assert (again, again.stat().st_mtime_ns) == (first, made)
    with (module / "hello.c").open("a") as file:
        file.write("/* changed */\n")
    (changed,) = build.module(tools, kernel, module, outputs=["hello.ko"], parts=parts)
    assert changed != first


def test_builds_that_are_least_used_go(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(build, "_KEPT", 2)
    monkeypatch.setattr(build, "_lock_of", lambda cache, folder: cache / f"{folder.name}.lock")
    builds = [tmp_path / "builds" / f"{number}" for number in range(4)]
    for used, folder in enumerate(builds):
        folder.mkdir(parents=True)
        (folder / build._DONE).touch()
        os.utime(folder / build._DONE, (used, used))
    assert build._is_finished(builds[0] / build._DONE, "a digest")
    with host.locked(build._lock_of(tmp_path, builds[1]), QUIET, "building it anew"):
        build._drop_old(tmp_path / "builds", tmp_path)
    assert sorted((tmp_path / "builds").iterdir()) == [builds[0], builds[1], builds[3]]
    build._drop_old(tmp_path / "builds", tmp_path)
    assert sorted((tmp_path / "builds").iterdir()) == [builds[0], builds[3]]


def test_compile_errors_are_shown_in_full(tools: root.Root, module: Path) -> None:
    (module / "hello.c").write_text("int x = y;\nint z = w;\n")
    with pytest.raises(UserError, match=r"hello\.ko for .* does not build") as caught:
        build.module(
            tools, kernels.ensure(tools, None, QUIET), module, outputs=["hello.ko"], parts=["Kbuild", "hello.c"]
        )
    assert [line.split(": ")[0] for line in caught.value.lines if "error: " in line] == ["hello.c:1:9", "hello.c:2:9"]


def test_a_missing_output_is_an_error_each_time(tools: root.Root, module: Path) -> None:
    for _ in range(2):
        with pytest.raises(UserError, match=r"did not make \./other\.ko|did not make other\.ko"):
            build.module(
                tools, kernels.ensure(tools, None, QUIET), module, outputs=["other.ko"], parts=["Kbuild", "hello.c"]
            )


def test_missing_sources_are_named(tools: root.Root, tmp_path: Path) -> None:
    with pytest.raises(UserError, match="Kbuild does not exist"):
        build.module(tools, kernels.ensure(tools, None, QUIET), tmp_path)


FAULTS = """\
#include <pthread.h>
#include <stdlib.h>
int count;
void *bump(void *p) { for (int i = 0; i < 1000; i++) count++; return p; }
int main(int argc, char **argv)
{
	if (argv[1][0] == 'a') return ((volatile char *)malloc(argc))[argc];
	if (argv[1][0] == 'u') { volatile int x = 0x7fffffff; return (x + argc) == 1; }
	if (argv[1][0] == 't') { pthread_t t; pthread_create(&t, 0, bump, 0); bump(0); pthread_join(t, 0); }
	return 0;
}
"""


@pytest.mark.parametrize(
    ("sanitizers", "fault", "said"),
    [
        ("address,undefined", "a", "heap-buffer-overflow"),
        ("address,undefined", "u", "signed integer overflow"),
        ("thread", "t", "data race"),
    ],
)
def test_sanitizers_see_faults(tools: root.Root, tmp_path: Path, sanitizers: str, fault: str, said: str) -> None:
    (tmp_path / "faults.c").write_text(FAULTS)
    program = build.userspace(
        tools, "faults", ["faults.c"], ["-g", f"-fsanitize={sanitizers}"], source_dir=tmp_path, parts=["faults.c"]
    )
    status, output = build.run_userspace(program, [fault], timeout=60)
    assert status != 0
    assert said in output
    assert build.run_userspace(program, ["none"], timeout=60) == (0, "")
