# SPDX-License-Identifier: GPL-2.0-only
"""A user's own kernel (`--kernel FOLDER`): unsuitable trees are refused with the reason; others are booted."""

from __future__ import annotations

import struct
from pathlib import Path

import pytest
from rich.console import Console
from tests.python import guests

from xsmmu.errors import UserError
from xsmmu_lab.runs import results
from xsmmu_lab.runs import run as lab
from xsmmu_lab.setup import build, initramfs, kernels, tree

RELEASE = "6.99.0-mine"


def image(version: str) -> bytes:
    """The head of a bzImage."""
    head = bytearray(0x300)
    head[0x202:0x206] = b"HdrS"
    struct.pack_into("<H", head, 0x20E, 0x80)
    head[0x280 : 0x280 + len(version)] = version.encode()
    return bytes(head)


@pytest.fixture
def made(tmp_path: Path) -> Path:
    """A build tree as make leaves it, with as little in it as possible."""
    options = {"X86_64": "y", "CC_VERSION_TEXT": '"gcc-13 (Debian 13.3) 13.3.0"'}
    options |= {name: allowed[0] for name, allowed in tree.OPTIONS.items() if allowed[0] != "n"}
    files = {
        ".config": "".join(f"CONFIG_{name}={value}\n" for name, value in options.items()).encode(),
        "Module.symvers": b"",
        "modules.order": b"drivers/igb.o\ndrivers/net/e1000e.ko\n",
        "include/config/kernel.release": f"{RELEASE}\n".encode(),
        tree.IMAGE: image(f"{RELEASE} (me@here) #7 SMP Mon"),
        "drivers/igb.ko": b"igb",
        "drivers/net/e1000e.ko": b"e1000e",
        "drivers/old.ko": b"of another configuration",
    }
    for name, content in files.items():
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_bytes(content)
    return tmp_path


def test_a_tree_is_read(made: Path) -> None:
    found = tree.read(made)
    assert (found.release, found.compiler, found.source) == (RELEASE, "gcc-13", made)
    assert found.build.endswith(" #7 SMP Mon")
    modules = initramfs.Modules(made)
    assert modules.load_order(["igb", "e1000e"]) == [("igb", b"igb"), ("e1000e", b"e1000e")]
    with pytest.raises(UserError, match="no module 'old'"):
        modules.load_order(["old"])


def test_another_build_is_another_kernel(made: Path) -> None:
    before = tree.read(made).build
    (made / "Module.symvers").write_text("0x1\tdma_map_page_attrs\tvmlinux\tEXPORT_SYMBOL\n")
    assert tree.read(made).build != before


def test_clang_is_asked_for_with_its_linker(made: Path) -> None:
    with (made / ".config").open("a") as config:
        config.write("CONFIG_CC_IS_CLANG=y\nCONFIG_LD_IS_LLD=y\n")
    assert (tree.read(made).compiler, tree.read(made).make) == ("clang", ("LLVM=1",))


@pytest.mark.parametrize(("name", "allowed"), tree.OPTIONS.items())
def test_each_option_that_the_lab_needs_is_named(made: Path, name: str, allowed: str) -> None:
    config = made / ".config"
    wrong = "y" if "n" in allowed else "n"
    lines = [line for line in config.read_text().splitlines() if not line.startswith(f"CONFIG_{name}=")]
    config.write_text("\n".join([*lines, f"CONFIG_{name}={wrong}" if wrong != "n" else f"# CONFIG_{name} is not set"]))
    with pytest.raises(UserError, match="without options that the lab needs; build it again with these:") as caught:
        tree.read(made)
    [line] = caught.value.lines
    assert line.startswith(f"CONFIG_{name}")


@pytest.mark.parametrize(
    ("config", "architecture"),
    [("# Linux/arm64 6.12.0 Kernel Configuration\nCONFIG_ARM64=y\n", "arm64"), ("CONFIG_X86_32=y\n", "32-bit x86")],
)
def test_another_architecture_is_named(made: Path, config: str, architecture: str) -> None:
    (made / ".config").write_text(config)
    with pytest.raises(UserError, match=f"is a kernel for {architecture}, and the lab's guests are x86-64"):
        tree.read(made)


def test_what_is_not_built_is_named(made: Path) -> None:
    (made / tree.IMAGE).unlink()
    (made / "modules.order").unlink()
    with pytest.raises(UserError, match=r"lacks arch/x86/boot/bzImage, modules.order.*make -C .* bzImage modules"):
        tree.read(made)


@pytest.mark.parametrize(("content", "release"), [(image("6.98.0-mine (me@here) #6"), "6.98.0-mine"), (b"", "nothing")])
def test_an_image_of_another_kernel_is_named(made: Path, content: bytes, release: str) -> None:
    (made / tree.IMAGE).write_bytes(content)
    with pytest.raises(UserError, match=f"bzImage is of kernel {release}, and the rest is {RELEASE}"):
        tree.read(made)


def test_a_folder_that_is_no_kernel_is_refused_by_the_command(tmp_path: Path) -> None:
    with pytest.raises(UserError, match=f"no kernel was built in {tmp_path}, which has no .config: give the folder"):
        lab.run(lab.Options(kernel=str(tmp_path)), Console(stderr=True))
    with pytest.raises(UserError, match="no kernel was built in /none/such, which is no folder"):
        kernels.named("/none/such")
    with pytest.raises(UserError, match=r"unknown kernel 'mine': choose from 6\.12,.*, a folder that a kernel"):
        kernels.named("mine")


def test_modules_are_built_by_the_hosts_make_as_the_kernel_was(made: Path) -> None:
    (made / "Makefile").write_text("modules:\n\techo $(CC) for $(CURDIR) >$(M)/xsmmu.ko\n")
    [module] = build.module(guests.tools(), kernels.ensure(guests.tools(), str(made)))
    assert module.read_text() == f"gcc-13 for {made}\n"
    (made / "Makefile").write_text("modules:\n\t@echo no such compiler; exit 1\n")
    (made / "Module.symvers").write_text("another build\n")
    with pytest.raises(UserError, match=f"xsmmu.ko for {RELEASE} does not build") as caught:
        build.module(guests.tools(), kernels.ensure(guests.tools(), str(made)))
    assert "no such compiler" in caught.value.lines


@pytest.mark.guest
@pytest.mark.long
def test_a_kernel_of_ones_own_is_measured(tmp_path: Path) -> None:
    """In the folder in which the lab's debug kernel was built."""
    folder = kernels.ensure(guests.tools(), "debug").source
    options = lab.Options(kernel=str(folder), workloads=("micro/64",), policies=("fused",), output=tmp_path)
    summary = results.load(lab.run(options, Console(stderr=True)))
    assert summary["kernel"].endswith("-debug")
    assert summary["versions"]["linux-image"].startswith("own build ")
    assert [each["policy"] for each in summary["runs"]] == ["fused"]
