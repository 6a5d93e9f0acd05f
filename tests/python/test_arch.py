# SPDX-License-Identifier: GPL-2.0-only
"""Architectures of guests: each has its own kernels, programs and IOMMUs, and wrong combinations are refused early."""

from __future__ import annotations

import re
import subprocess
from pathlib import Path

import pytest
from rich.console import Console
from tests.python import guests

from xsmmu.errors import UserError
from xsmmu_lab.arch import AMD64, ARCHES, ARM64
from xsmmu_lab.runs import experiment, profile, run
from xsmmu_lab.runs.matrix import Cell
from xsmmu_lab.setup import build, initramfs, kernels, root
from xsmmu_lab.vm.iommu import IOMMUS

QUIET = Console(stderr=True)


def test_every_architecture_has_a_root_a_kernel_and_an_iommu() -> None:
    assert {*root.OF_GUESTS} == {*ARCHES}
    assert {iommu.arch for iommu in IOMMUS.values()} == {*ARCHES.values()}
    assert {*kernels.of(AMD64)} | {*kernels.of(ARM64)} == {*kernels.names()}
    assert kernels.of(ARM64) == ("6.12", "7.2", "7.3", "6.12-16k")
    for arch in ARCHES.values():
        assert kernels.table()[0] in kernels.of(arch)


def test_a_root_of_one_architecture_is_not_another() -> None:
    places = {root.place(Path("/cache"), contents) for contents in root.OF_GUESTS.values()}
    assert len(places) == len(ARCHES)
    assert not any("arm" in package or "aarch64" in package for package in root.TOOLS.packages)


def test_a_release_is_of_its_architecture() -> None:
    assert kernels.named("6.12.118+deb13-arm64", ARM64) == "6.12"
    assert kernels.named("6.12.118+deb13-amd64") == "6.12"
    assert kernels.named("6.12.118+deb13-arm64-16k", ARM64) == "6.12-16k"
    with pytest.raises(UserError, match="unknown kernel"):
        kernels.named("6.12.118+deb13-arm64")


@pytest.mark.parametrize("name", ["6.1", "debug"])
def test_a_kernel_that_the_guest_cannot_have_is_refused(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("xsmmu_lab.setup.root.ensure", lambda *_: pytest.fail("begun"))
    can_have = "6.12, 7.2, 7.3, 6.12-16k"
    with pytest.raises(UserError, match=f"kernel {name} is not for arm64 guests; they can have: {can_have}"):
        run.run(run.Options(iommu="smmuv3", kernel=name, quick=True), QUIET)


def test_what_is_for_amd64_only_is_refused() -> None:
    with pytest.raises(
        UserError, match="steps through amd64 code, and guests with smmuv3 run other code: choose another IOMMU"
    ):
        profile.run(None, "strict", "xs_map", 1, QUIET, "smmuv3")
    assert Cell("6.1", "smmuv3").excluded == "the lab has no kernel 6.1 for arm64"
    assert Cell("7.2", "smmuv3").excluded is None


def test_guests_of_another_architecture_are_left_out() -> None:
    """The guests for which the experiment itself names an IOMMU."""
    chosen = experiment.load("claim-d-mapsync", iommu="smmuv3")
    fixed = {each.iommu for each in chosen.workloads} - {"smmuv3"}
    assert fixed
    for arch in (AMD64, ARM64):
        [*_], workloads = experiment.choose(chosen, (), (), False, "6.12", arch)
        assert all(IOMMUS[each.iommu].arch == arch for each in workloads)
    [*_], workloads = experiment.choose(chosen, (), (), False, "6.12", AMD64)
    assert {each.iommu for each in workloads} == fixed


def test_libraries_are_those_that_the_loader_would_find() -> None:
    place = guests.tools().path
    for program in ("usr/bin/fio", "usr/bin/ip", "usr/bin/iperf3"):
        found = initramfs.libraries_of(place, place / program)
        folders = {str(path.parent) for path in found.values()} | {str(place / AMD64.libraries)}
        loader = [str(place / "usr" / AMD64.loader), "--library-path", ":".join(sorted(folders)), "--list"]
        listed = subprocess.run([*loader, str(place / program)], capture_output=True, text=True, check=True).stdout
        wanted = re.findall(r"^\s*([^/\s]\S*) => (\S+)", listed, re.MULTILINE)
        assert found == {name: Path(path).resolve() for name, path in wanted}
    assert initramfs.libraries_of(place, place / "usr/bin/busybox") == {}


def test_a_library_that_is_missing_is_named(tmp_path: Path) -> None:
    (tmp_path / AMD64.libraries).mkdir(parents=True)
    with pytest.raises(UserError, match=r"cannot resolve the libraries of .*fio: there is no lib"):
        initramfs.libraries_of(tmp_path, guests.tools().path / "usr/bin/fio")


def test_only_programs_need_libraries() -> None:
    assert initramfs.needed(b"#!/bin/sh\n") == initramfs.needed(b"\x7fELF\x01\x01") == []


@pytest.mark.long
def test_kernels_for_arm64_are_complete() -> None:
    tools = guests.tools(ARM64)
    for name in kernels.of(ARM64):
        kernel = kernels.ensure(tools, name, QUIET)
        version, _, flavour = name.partition("-")
        assert kernel.release.startswith(version) and kernel.release.endswith(f"-arm64-{flavour}".removesuffix("-"))
        assert (kernel.modules_dir / "modules.dep").exists()
        assert tools.run([kernel.gcc, "--version"]).returncode == 0
        [module] = build.module(tools, kernel)
        # e_machine: 183 is AArch64.
        assert module.read_bytes()[18:20] == (183).to_bytes(2, "little")
        assert ".c:" not in build.module_log(module)


def test_kinds_differ_by_architecture_in_words() -> None:
    words = [iommu.words for iommu in IOMMUS.values()]
    assert len(words) == len({*words})
