# SPDX-License-Identifier: GPL-2.0-only
"""Contents and messages of the packages, and the results of `make install` and `make dist`; nothing is installed.

Installation on a machine is a test of its own.
"""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
import sys
import tarfile
import tomllib
from collections.abc import Iterator
from functools import cache
from pathlib import Path

import click
import pytest
from rich.console import Console
from tests.python import guests
from tests.python.fake_kernel import program
from tests.python.recordings import Recording

from xsmmu import __version__
from xsmmu.cli import app
from xsmmu_lab.project import PROJECT
from xsmmu_lab.setup import build, host, kernels, packages, root

pytestmark = pytest.mark.early
QUIET = Console(stderr=True)

LINTIAN_KNOWN = {
    # Nobody reads mail for this project.
    "bogus-mail-host",
    # The licences that the module's SPDX lines name stay with its source.
    "extra-license-file",
    "package-contains-documentation-outside-usr-share-doc",
    # The folder that is put into sys.path, and the package in it.
    "repeated-path-segment",
    # One program for each Debian with the module: libbpf of Debian 12 is too old.
    "statically-linked-binary",
    "embedded-library",
}

LAB = ("lab", "driver")
"""Commands that the package lacks."""


@cache
def tools() -> root.Root:
    """The root in which packages are built."""
    return root.ensure(host.cache_dir(), QUIET, root.PACKAGING)


@cache
def built() -> dict[str, Path]:
    """The packages by name."""
    return {deb.name.partition("_")[0]: deb for deb in packages.ensure(QUIET)}


def field(package: str, name: str) -> str:
    """A field of a package's control file."""
    found = subprocess.run(["dpkg-deb", "-f", built()[package], name], capture_output=True, text=True, check=True)
    return found.stdout.strip()


def unpacked(package: str, folder: Path) -> Path:
    """A package's files below a folder."""
    subprocess.run(["dpkg-deb", "-x", built()[package], folder], check=True)
    return folder


@pytest.fixture(scope="module")
def tool_in_root() -> Iterator[Path]:
    """The package xsmmu, unpacked in the root that has its dependencies."""
    folder = tools().path / "tmp" / f"tool-{os.getpid()}"
    yield unpacked("xsmmu", folder)
    host.remove_tree(folder)


def test_one_version() -> None:
    """All parts and the Python package state the same version."""
    for file, pattern in {
        "dkms.conf": r'^PACKAGE_VERSION="(.*)"',
        "kmod/main.c": r'^MODULE_VERSION\("(.*)"\)',
        "kmod/bench/main.c": r'^MODULE_VERSION\("(.*)"\)',
        "tool/debian/changelog": r"\Axsmmu \((.*)\)",
        "CHANGELOG.md": r"^## (\S+)",
    }.items():
        found = re.search(pattern, (PROJECT / file).read_text(), re.MULTILINE)
        assert found, file
        assert found[1] == __version__, file
    project = tomllib.loads((PROJECT / "pyproject.toml").read_text())
    assert project["project"]["dynamic"] == ["version"]
    assert project["tool"]["setuptools"]["dynamic"]["version"] == {"attr": "xsmmu.__version__"}


def test_what_they_depend_on() -> None:
    assert field("xsmmu-dkms", "Depends") == "dkms (>= 3.0.10)"
    depends = field("xsmmu", "Depends").split(", ")
    assert {re.sub(r":any$", "", word.split()[0]) for word in depends} == {"python3", "python3-click", "python3-rich"}
    assert field("xsmmu", "Recommends") == f"xsmmu-dkms (= {__version__})"
    architectures = {name: field(name, "Architecture") for name in built()}
    assert architectures == {"xsmmu": "all", "xsmmu-dkms": "all", "xsmmu-trace": "amd64"}
    assert field("xsmmu-trace", "Depends") == ""


def test_the_tool_runs_by_debians_python(tool_in_root: Path) -> None:
    assert (tool_in_root / "usr/bin/xsmmu").read_text().split("\n")[0].split() == ["#!", "/usr/bin/python3"]


def test_the_tool_has_nothing_of_the_lab(tool_in_root: Path) -> None:
    package = tool_in_root / "usr/share/xsmmu/xsmmu"
    own = PROJECT / "tool/xsmmu"
    sources = {
        str(path.relative_to(own)) for path in (*own.glob("*.py"), own / "native.json", *own.glob("schemas/*.json"))
    }
    assert {str(path.relative_to(package)) for path in package.rglob("*") if path.is_file()} == sources


@pytest.mark.parametrize(
    "name",
    [
        "etc/xsmmu.conf",
        "usr/bin/xsmmu",
        "usr/lib/dracut/dracut.conf.d/xsmmu.conf",
        "usr/lib/systemd/system/xsmmu.service",
        "usr/lib/systemd/system/xsmmu-metrics.timer",
        "usr/lib/udev/rules.d/70-xsmmu.rules",
        "usr/share/bash-completion/completions/xsmmu",
        "usr/share/fish/vendor_completions.d/xsmmu.fish",
        "usr/share/initramfs-tools/hooks/xsmmu",
        "usr/share/doc/xsmmu/levels.md.gz",
        "usr/share/doc/xsmmu/record.md.gz",
        "usr/share/doc/xsmmu/replay.md.gz",
        "usr/share/doc/xsmmu/tool.md.gz",
        "usr/share/doc/xsmmu/trace.md.gz",
        "usr/share/doc/xsmmu/use.md.gz",
        "usr/share/man/man5/xsmmu.conf.5.gz",
        "usr/share/zsh/vendor-completions/_xsmmu",
    ],
)
def test_the_tool_comes_with(tool_in_root: Path, name: str) -> None:
    assert (tool_in_root / name).stat().st_size > 0


def test_the_tool_runs_alone(tool_in_root: Path) -> None:
    """With its dependencies only."""
    command = tools().inside(tool_in_root / "usr/bin/xsmmu")
    assert tools().run([command, "--version"]).stdout.strip().endswith(__version__)
    for name in app.commands:
        result = tools().run([command, name, "--help"])
        assert (result.returncode == 0) == (name not in LAB), (name, result.stderr)


def test_completion_knows_commands_and_options(tool_in_root: Path) -> None:
    command = tools().inside(tool_in_root / "usr/bin/xsmmu")
    for words, expected in {"xsmmu sta": "status", "xsmmu set --reb": "--rebind"}.items():
        asked = {
            "_XSMMU_COMPLETE": "bash_complete",
            "COMP_WORDS": words,
            "COMP_CWORD": str(len(words.split()) - 1),
        }
        assert tools().run([command], env=asked).stdout.split() == [f"plain,{expected}"]


def every_command() -> Iterator[tuple[str, click.Command]]:
    """The installed tool's commands, by the names of their man pages."""
    yield "xsmmu", app
    yield from _below("xsmmu", app)


def _below(above: str, group: click.Group) -> Iterator[tuple[str, click.Command]]:
    for name, command in group.commands.items():
        if name not in LAB:
            yield f"{above}-{name}", command
            if isinstance(command, click.Group):
                yield from _below(f"{above}-{name}", command)


def test_every_command_and_option_has_its_place_in_a_man_page(tool_in_root: Path) -> None:
    pages = {path.name.removesuffix(".1.gz"): path for path in (tool_in_root / "usr/share/man/man1").iterdir()}
    assert sorted(pages) == sorted(name for name, _ in every_command())
    for name, command in every_command():
        text = (
            tools().run(["sh", "-c", f"zcat {tools().inside(pages[name])} | mandoc -Tutf8 | sed 's/.\\x08//g'"]).stdout
        )
        for option in [*command.params, command.get_help_option(click.Context(command))]:
            assert option
            for word in [*option.opts, *option.secondary_opts]:
                shown = option.make_metavar(click.Context(command)) if isinstance(option, click.Argument) else word
                assert shown in text, (name, shown)


def test_man_pages_are_sound(tool_in_root: Path) -> None:
    for page in (tool_in_root / "usr/share/man").rglob("*.gz"):
        script = f"zcat {tools().inside(page)} >/tmp/page && mandoc -Tlint -Wwarning /tmp/page"
        assert tools().run(["sh", "-c", script]).stdout == "", page.name


def test_the_source_is_all_that_the_module_needs(tmp_path: Path) -> None:
    """The source is the lab's, so that the build is the same."""
    source = unpacked("xsmmu-dkms", tmp_path) / f"usr/src/xsmmu-{__version__}"
    [module] = build.module(guests.tools(), kernels.ensure(guests.tools()), source)
    assert [module] == build.module(guests.tools(), kernels.ensure(guests.tools()))
    assert {path.name for path in source.iterdir()} == {*build.MODULE_PARTS, "LICENSES", "dkms.conf"}


def test_lintian_says_what_is_known() -> None:
    changes = next(built()["xsmmu"].parent.glob("*.changes"))
    (tools().path / "etc/dpkg/origins/default").unlink(missing_ok=True)
    (tools().path / "etc/dpkg/origins/default").symlink_to("debian")
    result = tools().run(["lintian", "--allow-root", "-EI", "--pedantic", tools().inside(changes)], proc=True)
    tags = re.findall(r"^[A-Z]: \S+(?: \S+)?: (\S+)", result.stdout, re.MULTILINE)
    assert tags, result.stderr
    assert set(tags) <= LINTIAN_KNOWN, result.stdout


@pytest.mark.parametrize(
    ("name", "said"),
    [
        ("xsmmu-record", "usage: "),
        ("xsmmu-replay", "one file is needed; see xsmmu-replay --help"),
        ("xsmmu-model", "cores is missing"),
    ],
)
def test_a_program_of_recordings_runs_alone(tmp_path: Path, name: str, said: str) -> None:
    program = unpacked("xsmmu-trace", tmp_path) / "usr/libexec/xsmmu" / name
    result = subprocess.run([program], capture_output=True, text=True, check=False, env={})
    assert result.returncode == 2
    assert result.stderr.startswith(f"{name}: {said}")
    assert {path.name for path in program.parent.iterdir()} == {
        "xsmmu-record",
        "xsmmu-replay",
        "xsmmu-replay-lines",
        "xsmmu-model",
    }


def test_the_replayer_replays_alone(tmp_path: Path) -> None:
    """The static program gives the figures of the one that the tests of replays run."""
    program = unpacked("xsmmu-trace", tmp_path) / "usr/libexec/xsmmu/xsmmu-replay"
    file = Recording().map(1).map(2).unmap(1).unmap(2).poll().write(tmp_path / "two.dma")
    result = subprocess.run([program, file, "--policy", "fused"], capture_output=True, text=True, check=True, env={})
    found = json.loads(result.stdout)
    assert (found["events"], found["pages_unmapped"], found["commands"]) == (5, 2, {"page": 1, "domain": 0})


@pytest.mark.parametrize("package", ["xsmmu-dkms", "xsmmu"])
def test_the_initramfs_is_made_anew(package: str) -> None:
    """One of them is the module, the other has the rules; debhelper handles the latter, which has a hook."""
    shown = subprocess.run(["dpkg-deb", "-I", built()[package], "triggers"], capture_output=True, text=True, check=True)
    assert "activate-noawait update-initramfs\n" in shown.stdout


def test_the_same_tree_gives_the_same_packages() -> None:
    """Built again, beside a file that no package contains."""
    again = build.packages(tools(), {**packages.files(), "unused.h": b""}, packages.epoch_s())
    assert {deb.name: deb.read_bytes() for deb in again} == {deb.name: deb.read_bytes() for deb in built().values()}
    assert {deb.parent for deb in again}.isdisjoint({deb.parent for deb in built().values()})


def after_install(folder: Path, mokutil: bool = True, knows: str = "") -> str:
    """The output of the package's own part of postinst on the machine in a folder; `knows`: mokutil's output."""
    script = PROJECT / "tool/debian/xsmmu-dkms.postinst"
    programs = folder / "bin"
    programs.mkdir(parents=True, exist_ok=True)
    for name in ("grep", "od", "sed", "tr"):
        if not (programs / name).exists():
            (programs / name).symlink_to(f"/usr/bin/{name}")
    if mokutil:
        program(programs / "mokutil", f"echo {knows}" if knows else "exit 1")
    env = {**os.environ, "DPKG_ROOT": str(folder), "PATH": str(programs)}
    return subprocess.run(["/bin/sh", script, "configure"], capture_output=True, text=True, check=True, env=env).stdout


def machine_with(folder: Path, secure_boot: int, config: str = "", key: bool = False) -> Path:
    """A made-up machine: its firmware's variable, its kernel's configuration, and DKMS's key."""
    variable = folder / "sys/firmware/efi/efivars/SecureBoot-8be4df61-93ca-11d2-aa0d-00e098032b8c"
    for file, content in {
        variable: bytes([6, 0, 0, 0, secure_boot]),
        folder / "boot/config-6.12.1-rt-amd64": config.encode(),
        **({folder / "var/lib/dkms/mok.pub": b"key"} if key else {}),
    }.items():
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_bytes(content)
    return folder


def test_nothing_is_said_of_a_machine_that_will_load_it(tmp_path: Path) -> None:
    assert after_install(tmp_path) == ""
    assert after_install(machine_with(tmp_path, 0, "# CONFIG_PREEMPT_RT is not set\n")) == ""


def test_it_says_where_the_module_will_not_load(tmp_path: Path) -> None:
    assert "no key to sign with" in after_install(machine_with(tmp_path / "a", 1))
    assert "mokutil --import /var/lib/dkms/mok.pub" in after_install(machine_with(tmp_path / "b", 1, key=True))
    without = after_install(machine_with(tmp_path / "d", 1, key=True), mokutil=False)
    assert "apt install mokutil, then dpkg-reconfigure xsmmu-dkms" in without
    said = after_install(machine_with(tmp_path / "c", 0, "CONFIG_PREEMPT_RT=y\n"))
    assert said.startswith("xsmmu-dkms: not built for 6.12.1-rt-amd64: this kernel has PREEMPT_RT")


def kernel_range() -> tuple[tuple[int, int], tuple[int, int]]:
    """The oldest and newest kernel in the module's source."""
    text = (PROJECT / "kmod/compat/range.h").read_text()
    found = {name: int(value) for name, value in re.findall(r"^#define XS_(\w+)\s+(\d+)$", text, re.MULTILINE)}
    oldest, newest = ((found[f"{end}_MAJOR"], found[f"{end}_MINOR"]) for end in ("OLDEST", "NEWEST"))
    assert f"build for Linux {oldest[0]}.{oldest[1]} or later" in text
    return oldest, newest


def test_one_range_of_kernels() -> None:
    """DKMS builds for the kernels that the module accepts, from the lab's oldest to its newest."""
    oldest, newest = kernel_range()
    found = re.search(r'^BUILD_EXCLUSIVE_KERNEL="(.*)"$', (PROJECT / "dkms.conf").read_text(), re.MULTILINE)
    assert found
    # Kernels 2.6 to 6.19 exist.
    series = [(major, minor) for major in range(2, 10) for minor in range(20)]
    for release in ("{}.{}.0-56-amd64", "{}.{}.118+deb13-amd64", "{}.{}.0"):
        built = [each for each in series if re.search(found[1], release.format(*each))]
        assert built == [each for each in series if oldest <= each <= newest]
    stock = {tuple(map(int, name.partition("-")[0].split("."))) for name in kernels.names() if name[0].isdigit()}
    assert (min(stock), max(stock)) == (oldest, newest)


def test_it_says_for_which_kernels_it_is_not(tmp_path: Path) -> None:
    dkms = tmp_path / f"usr/src/xsmmu-{__version__}/dkms.conf"
    dkms.parent.mkdir(parents=True)
    shutil.copy(PROJECT / "dkms.conf", dkms)
    machine = machine_with(tmp_path, 0)
    _, (major, minor) = kernel_range()
    releases = (f"{major}.{minor}.4+deb13-amd64", f"{major}.{minor + 1}.1+deb14-amd64", "5.10.0-30-amd64")
    for release in releases:
        (machine / f"boot/config-{release}").write_text("")
    said = after_install(machine).splitlines()
    assert sorted(line.split(": ")[1] for line in said) == sorted(f"not built for {each}" for each in releases[1:])


@pytest.mark.parametrize(
    ("said", "warns"),
    [("/var/lib/dkms/mok.pub is already enrolled", False), ("/var/lib/dkms/mok.pub is not enrolled", True)],
)
def test_a_key_that_the_firmware_knows(tmp_path: Path, said: str, warns: bool) -> None:
    asked = after_install(machine_with(tmp_path / "machine", 1, key=True), knows=said)
    assert ("mokutil --import" in asked) == warns


@pytest.mark.parametrize("action", ["upgrade", "purge", "failed-upgrade", "abort-install"])
def test_what_apply_made_outlives_an_upgrade(tmp_path: Path, action: str) -> None:
    """Only a removal deletes the file; files left afterwards were not made by the removed tool."""
    made = tmp_path / "etc/modprobe.d/xsmmu.conf"
    made.parent.mkdir(parents=True)
    made.write_text("# made by xsmmu apply from /etc/xsmmu.conf\n")
    script = PROJECT / "tool/debian/xsmmu.postrm"
    subprocess.run(["sh", script, action], check=True, env={**os.environ, "DPKG_ROOT": str(tmp_path)})
    assert made.exists()


def test_removal_takes_only_what_apply_made(tmp_path: Path) -> None:
    made = tmp_path / "etc/modprobe.d/xsmmu.conf"
    made.parent.mkdir(parents=True)
    for text, stays in {
        "# made by xsmmu apply from /etc/xsmmu.conf\n": False,
        "options xsmmu rules=*=strict\n": True,
    }.items():
        made.write_text(text)
        script = PROJECT / "tool/debian/xsmmu.postrm"
        subprocess.run(["sh", script, "remove"], check=True, env={**os.environ, "DPKG_ROOT": str(tmp_path)})
        assert made.exists() == stays


def test_a_purge_takes_what_the_tool_has_kept(tmp_path: Path) -> None:
    kept = tmp_path / "var/lib/xsmmu"
    kept.mkdir(parents=True)
    (kept / "bench.json").write_text("{}")
    for word, stays in {"remove": True, "upgrade": True, "purge": False}.items():
        script = PROJECT / "tool/debian/xsmmu.postrm"
        subprocess.run(["sh", script, word], check=True, env={**os.environ, "DPKG_ROOT": str(tmp_path)})
        assert kept.exists() == stays


def test_install_elsewhere(tmp_path: Path) -> None:
    """The tool by `make install`, below another folder."""
    install = ["sh", f"{PROJECT}/tool/install.sh", "tool", f"{tmp_path}", "/usr/local"]
    lacking = subprocess.run(install, env={**os.environ, "PYTHON": "false"}, capture_output=True, text=True)
    assert (lacking.returncode, list(tmp_path.iterdir())) == (1, [])
    assert "false lacks click or rich: install both" in lacking.stderr
    env = {**os.environ, "PYTHON": sys.executable}
    subprocess.run(install, check=True, env=env, umask=0o077)
    assert not [path for path in tmp_path.rglob("*") if not path.stat().st_mode & 0o4]
    (tmp_path / "etc/xsmmu.conf").write_text("*=strict\n")
    earlier = tmp_path / "usr/local/share/xsmmu/xsmmu/earlier.py"
    earlier.touch()
    subprocess.run(install, check=True, env=env)
    assert (tmp_path / "etc/xsmmu.conf").read_text() == "*=strict\n"
    assert not earlier.exists()
    units = {unit.name: unit.read_text() for unit in (tmp_path / "usr/local/lib/systemd/system").iterdir()}
    assert "ExecStart=/usr/local/bin/xsmmu status" in units["xsmmu.service"]
    assert not [name for name, unit in units.items() if "/usr/bin/xsmmu" in unit]
    env.pop("PYTHONPATH", None)
    command = [f"{tmp_path}/usr/local/bin/xsmmu", "--version"]
    # By a name that is valid in the source's folder only, too, and by none: the checked interpreter runs the tool.
    first = f"{Path(sys.executable).parent}:{env['PATH']}"
    for more in ({"PYTHON": os.path.relpath(sys.executable, PROJECT)}, {"PYTHON": "", "PATH": first}):
        subprocess.run(install, check=True, env={**env, **more})
        said = subprocess.run(command, check=True, env=env, cwd=tmp_path, capture_output=True, text=True).stdout
        assert __version__ in said


def test_an_initramfs_has_the_rule_of_either_prefix() -> None:
    words = f'. {PROJECT}/tool/boot/dracut.conf; echo "$install_optional_items"'
    taken = subprocess.run(["bash", "-c", words], check=True, capture_output=True, text=True).stdout.split()
    rules = [f"{prefix}/lib/udev/rules.d/70-xsmmu.rules" for prefix in ("/usr", "/usr/local")]
    assert taken == ["/etc/modprobe.d/xsmmu.conf", *rules]
    assert all(each in (PROJECT / "tool/boot/initramfs-hook").read_text() for each in rules)


def test_install_of_the_module(tmp_path: Path) -> None:
    """Both modules, below another folder and for another kernel; unbuilt ones are reported."""
    script = tmp_path / "tree/tool/install.sh"
    script.parent.mkdir(parents=True)
    script.write_bytes((PROJECT / "tool/install.sh").read_bytes())
    install = ["sh", f"{script}", "module", f"{tmp_path}/to", "/usr/local"]
    env = {**os.environ, "KERNEL": "6.12.1-amd64"}
    lacking = subprocess.run(install, env=env, capture_output=True, text=True, check=False)
    assert (lacking.returncode, "run make modules first" in lacking.stderr) == (1, True)
    for name in ("xsmmu", "xsmmu_bench"):
        (tmp_path / f"tree/{name}.ko").write_text(name)
    subprocess.run(install, check=True, env=env)
    place = tmp_path / "to/lib/modules/6.12.1-amd64/updates"
    assert {file.name: file.read_text() for file in place.iterdir()} == {
        "xsmmu.ko": "xsmmu",
        "xsmmu_bench.ko": "xsmmu_bench",
    }


def test_uninstall_leaves_nothing(tmp_path: Path) -> None:
    """Except shared folders, and changed rules."""
    tree, root = tmp_path / "tree", tmp_path / "root"
    for name in ("tool", "docs", "model"):
        shutil.copytree(PROJECT / name, tree / name)
    for name in ("xsmmu.ko", "xsmmu_bench.ko"):
        (tree / name).touch()
    (temporary := tmp_path / "temporary").mkdir()
    env = {**os.environ, "PYTHON": sys.executable, "KERNEL": "6.12.1-amd64", "TMPDIR": str(temporary)}
    others = root / "usr/local/share/xsmmu.txt"
    others.parent.mkdir(parents=True)
    others.touch()

    def script(part: str) -> str:
        install = ["sh", f"{tree}/tool/install.sh", part, f"{root}", "/usr/local"]
        return subprocess.run(install, check=True, env=env, capture_output=True, text=True).stdout

    def left() -> list[Path]:
        return [path.relative_to(root) for path in root.rglob("*") if path.is_file() or path.name == "xsmmu"]

    for part in ("tool", "module"):
        script(part)
    assert len(left()) > 30
    (root / "usr/local/share/xsmmu/xsmmu/__pycache__").mkdir()
    (root / "usr/local/share/xsmmu/xsmmu/__pycache__/cli.pyc").touch()
    made = root / "etc/modprobe.d/xsmmu.conf"
    made.parent.mkdir()
    made.write_text("# made by xsmmu apply from /etc/xsmmu.conf\n")
    assert script("uninstall") == ""
    assert left() == [others.relative_to(root)]
    script("tool")
    (root / "usr/local/bin/xsmmu").unlink()
    (root / "etc/xsmmu.conf").write_text("*=strict\n")
    assert script("uninstall") == f"{root}/etc/xsmmu.conf was changed, so it stays\n"
    assert sorted(left()) == [Path("etc/xsmmu.conf"), others.relative_to(root)]
    assert not [*temporary.iterdir()]


@pytest.mark.parametrize("asked", ["6.12.1-amd64", ""])
def test_uninstall_of_a_kernels_modules(tmp_path: Path, asked: str) -> None:
    """The modules of the named or running kernel. A package of another name does not count."""
    kernels = ("6.12.1-amd64", os.uname().release)
    files = {kernel: tmp_path / f"lib/modules/{kernel}/updates/xsmmu.ko" for kernel in kernels}
    for file in (
        *files.values(),
        tmp_path / "usr/local/bin/xsmmu",
        listed := tmp_path / "var/lib/dpkg/info/xsmmu.list",
    ):
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text("/usr/bin/xsmmu-more\n")
    words = ["make", "uninstall", f"DESTDIR={tmp_path}", f"KERNEL={asked}"]
    subprocess.run(words, cwd=PROJECT, env={**os.environ, "PYTHON": sys.executable}, check=True, capture_output=True)
    assert [kernel for kernel, file in files.items() if not file.exists()] == [asked or kernels[1]]
    assert listed.exists()


@pytest.mark.parametrize(
    ("prefix", "said"),
    [
        *((prefix, "is no ") for prefix in ("", "/", "usr", "/usr/", "/opt/a b", "/opt/a&b", "/opt/../usr")),
        ("/opt", "xsmmu is not installed below "),
        ("/usr", "xsmmu is not installed below "),
        ("/usr/local", "xsmmu is installed as a package"),
    ],
)
def test_uninstall_of_what_is_not_there_removes_nothing(tmp_path: Path, prefix: str, said: str) -> None:
    """Rules and hooks are outside PREFIX; a wrong PREFIX must not remove another install's or a package's."""
    files = ["usr/local/bin/xsmmu", "etc/xsmmu.conf", "etc/modprobe.d/xsmmu.conf", "var/lib/dpkg/info/xsmmu.list"]
    for name in files:
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text("# made by xsmmu apply\n/usr/bin/xsmmu\n")
    words = ["make", "uninstall", f"DESTDIR={tmp_path}", f"PREFIX={prefix}"]
    env = {**os.environ, "PYTHON": sys.executable}
    refused = subprocess.run(words, cwd=PROJECT, env=env, capture_output=True, text=True, check=False)
    assert refused.returncode
    assert said in refused.stderr
    assert sorted(str(path.relative_to(tmp_path)) for path in tmp_path.rglob("*") if path.is_file()) == sorted(files)


def test_the_source_archive_has_no_lab(tmp_path: Path) -> None:
    archive = tmp_path / "source.tar"
    subprocess.run(["git", "-C", PROJECT, "archive", "-o", archive, "HEAD"], check=True)
    with tarfile.open(archive) as tar:
        names = set(tar.getnames())
    source = tmp_path / "source"
    source.mkdir()
    subprocess.run(["tar", "-xf", archive, "-C", source], check=True)
    refused = subprocess.run(["make", "packages"], cwd=source, capture_output=True, text=True)
    assert refused.returncode
    assert refused.stderr.startswith("error: the source archive has no lab, which this needs: use a git checkout\n")
    shown = subprocess.run(["make", "help"], cwd=source, capture_output=True, text=True, check=True).stdout
    assert re.findall(r"^  (\S+) ", shown, re.MULTILINE) == ["help", "modules", "install", "uninstall"]
    assert "Downloads" not in shown
    assert {"Kbuild", "Makefile", "tool/debian/control", "tool/xsmmu/cli.py"} <= names
    assert not {name for name in names if name.startswith(("lab", "tests", "sim/run", "sim/fuzz", "scripts"))}
    # xsmmu-replay has the checkers and the model of lines of sim/.
    text = "".join(file.read_text() for file in (PROJECT / "trace").rglob("*.[ch]"))
    seen = set(re.findall(r'#include "\.\./\.\./(sim/[^"]+)"', text))
    assert {"sim/world/event.h", "sim/scale/hooks.c"} <= seen <= names
    assert {f"sim/check/{file.name}" for file in (PROJECT / "sim/check").glob("*.[ch]")} <= names
    own = {*(PROJECT / "tool/xsmmu").glob("*.py"), *(PROJECT / "tool/xsmmu").rglob("*.json")}
    assert {str(path.relative_to(PROJECT)) for path in own} <= names
