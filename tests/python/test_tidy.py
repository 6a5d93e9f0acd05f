# SPDX-License-Identifier: GPL-2.0-only
"""Each check of `make tidy` can fail, and names the place."""

from __future__ import annotations

from pathlib import Path

import pytest
from rich.console import Console

from checks import tidy
from xsmmu_lab.project import PROJECT, PYTHONPATH
from xsmmu_lab.setup import host
from xsmmu_lab.setup.root import Root, ensure

SPDX = "/* SPDX-License-Identifier: GPL-2.0 OR MIT */\n"
GPL = "/* SPDX-License-Identifier: GPL-2.0-only */\n"
PLATFORM = ("tests/freestanding/platform_bare.h", "core/include/xsmmu/userspace.h", "core/include/xsmmu/modelled.h")


@pytest.fixture(scope="session")
def tools() -> Root:
    return ensure(host.cache_dir(), Console(stderr=True))


@pytest.fixture
def tree(tmp_path: Path) -> tidy.Tree:
    """A small checkout in which every check passes."""
    for name in PLATFORM:
        write(tmp_path, name, (PROJECT / name).read_text())
    write(
        tmp_path,
        "core/one.c",
        SPDX + "#include XS_PLATFORM\n\nu32 xs_one(u32 one);\n\nu32 xs_one(u32 one)\n{\n\treturn one + 1;\n}\n",
    )
    write(tmp_path, "kmod/two.c", GPL + "int two;\n")
    write(tmp_path, "lab/run.sh", '#!/bin/sh\n# SPDX-License-Identifier: GPL-2.0-only\necho "$1"\n')
    return tidy.Tree(tmp_path)


def write(folder: Path, name: str, text: str) -> None:
    (folder / name).parent.mkdir(parents=True, exist_ok=True)
    (folder / name).write_text(text)


def test_a_good_tree_passes(tree: tidy.Tree, tools: Root) -> None:
    for check in (tidy.licences, tidy.function_length, tidy.kernel_style, tidy.engine_words, tidy.version_tests):
        assert list(check(tree)) == []
    assert list(tidy.shell_scripts(tree, tools)) == []
    assert list(tidy.engine_compiles(tree, tools)) == []


@pytest.mark.parametrize(
    ("name", "text"),
    [
        ("core/a.c", "int a;\n"),
        ("core/a.c", GPL),
        ("kmod/a.c", SPDX),
        ("a.py", "import os\n"),
        ("lab/Kbuild", "obj-m := a.o\n"),
        ("lab/init", "#!/bin/busybox sh\n"),
        ("a.py", "# SPDX-License-Identifier: BSD-2-Clause\n"),
    ],
)
def test_licences(tree: tidy.Tree, name: str, text: str) -> None:
    write(tree.path, name, text)
    (finding,) = tidy.licences(tree)
    assert finding.startswith(f"{name}:1: ")


def test_function_length(tree: tidy.Tree) -> None:
    write(tree.path, "kmod/long.c", "int f(void)\n{\n" + "\tg();\n" * 60 + "}\n")
    assert [finding.split(":")[0] for finding in tidy.function_length(tree)] == ["kmod/long.c"]


def test_kernel_style(tree: tidy.Tree) -> None:
    write(tree.path, "lab/module/a.c", "\tif(x)\n")
    assert list(tidy.kernel_style(tree)) == ["lab/module/a.c:1: keyword-space: space between the keyword and (: if(x)"]


def test_engine_words(tree: tidy.Tree) -> None:
    write(tree.path, "core/include/xsmmu/a.h", "#include <linux/types.h>\n")
    assert len(list(tidy.engine_words(tree))) == 1


def test_version_tests_only_in_compat(tree: tidy.Tree) -> None:
    write(tree.path, "kmod/compat/a.h", "#if LINUX_VERSION_CODE\n")
    assert list(tidy.version_tests(tree)) == []
    write(tree.path, "kmod/a.h", "#if LINUX_VERSION_CODE\n")
    assert len(list(tidy.version_tests(tree))) == 1


def test_module_structure(tree: tidy.Tree) -> None:
    starts = "void xs_device_bind(void)\n{\n}\n\nvoid xs_group_choose(void)\n{\n}\n"
    write(tree.path, "kmod/a.c", GPL + starts + "void a(void)\n{\n\tb();\n}\n")
    write(tree.path, "kmod/b.c", GPL + "void b(void)\n{\n}\n")
    assert list(tidy.module_structure(tree)) == []
    write(tree.path, "kmod/b.c", GPL + "void b(void)\n{\n\ta();\n}\n")
    [finding] = tidy.module_structure(tree)
    assert finding.startswith("kmod/a.c, kmod/b.c: use each other;")


@pytest.mark.parametrize(
    ("body", "said"),
    [
        ("\tchar big[2000];\n\n\tg(big);\n", "stack usage"),
        ("\tunused(1);\n", "unused"),
        ("\tchar big[one];\n\n\tg(big);\n", "variable length"),
        ("\tone += (u32)(one * 1.5);\n", "SSE|floating"),
        ("\tlibc_call();\n", "libc_call"),
    ],
)
def test_engine_compiles(tree: tidy.Tree, tools: Root, body: str, said: str) -> None:
    head = "#include XS_PLATFORM\nvoid g(char *p);\nint unused(int a);\nvoid libc_call(void);\nu32 xs_a(u32 one);\n"
    unused = "static int unused_one(void)\n{\n\treturn 1;\n}\n" if "unused" in body else ""
    escape = "void g(char *p)\n{\n\t*(char *volatile *)&p = p;\n}\n"
    text = f"{head}{escape}{unused}u32 xs_a(u32 one)\n{{\n{body}\treturn one;\n}}\n"
    write(tree.path, "core/a.c", SPDX + text)
    findings = "\n".join(tidy.engine_compiles(tree, tools))
    assert any(word in findings for word in said.split("|"))


def test_shell_scripts(tree: tidy.Tree, tools: Root) -> None:
    write(tree.path, "lab/init", "#!/bin/busybox sh\nrm -r $1\n")
    (finding,) = tidy.shell_scripts(tree, tools)
    assert finding.startswith("lab/init:2:")


def test_modules_compile(tree: tidy.Tree, tools: Root) -> None:
    write(tree.path, "lab/module/Kbuild", "obj-m := a.o\n")
    write(
        tree.path,
        "lab/module/a.c",
        '#include <linux/module.h>\nint x(void)\n{\n\treturn 1;\n}\nMODULE_DESCRIPTION("a");\nMODULE_LICENSE("GPL");\n',
    )
    write(tree.path, "Kbuild", "obj-m := b.o\n")
    for name in ("core/b.h", "include/c.h", "b.c"):
        write(tree.path, name, "\n")
    findings = "\n".join(tidy.modules_compile(tree, tools, Console(stderr=True)))
    assert "no previous prototype for" in findings


@pytest.mark.parametrize(("tool", "text"), [("ruff", "import os\n"), ("mypy", "def f(x):\n    return x\n")])
def test_python_tools(tree: tidy.Tree, tool: str, text: str) -> None:
    (tree.path / "pyproject.toml").write_text((PROJECT / "pyproject.toml").read_text())
    write(tree.path, "tests/a.py", '"""A test."""\n')
    for name in ("scripts/a.py", "lab/xsmmu_lab/a.py", "tool/xsmmu/a.py"):
        write(tree.path, name, '"""A module."""\n')
    check = {"ruff": tidy.ruff, "mypy": tidy.mypy}[tool]
    assert list(check(tree)) == []
    write(tree.path, "tool/xsmmu/a.py", text)
    assert any("tool/xsmmu/a.py" in finding for finding in check(tree))


@pytest.mark.parametrize(
    ("file", "text", "finding"),
    [
        ("lab/xsmmu_lab/policies.py", "import xsmmu_lab.runs.run\n", "xsmmu_lab.policies cannot import xsmmu_lab.runs"),
        ("lab/xsmmu_lab/setup/a.py", "import xsmmu_lab.vm.machine\n", "xsmmu_lab.setup cannot import xsmmu_lab.vm"),
        ("lab/xsmmu_lab/runs/a.py", "import checks.sim\n", "xsmmu_lab.runs cannot import checks"),
        ("tool/xsmmu/status.py", "import xsmmu_lab.project\n", "xsmmu cannot import xsmmu_lab"),
        ("tool/xsmmu/cli.py", "import xsmmu_lab.setup.host\n", "xsmmu cannot import xsmmu_lab"),
        ("tool/xsmmu/status.py", "import checks.sim\n", "xsmmu cannot import checks"),
    ],
)
def test_floors(tree: tidy.Tree, file: str, text: str, finding: str) -> None:
    (tree.path / "pyproject.toml").write_text((PROJECT / "pyproject.toml").read_text())
    for folder in PYTHONPATH.split(":"):
        for path in Path(folder).rglob("*.py"):
            write(tree.path, str(path.relative_to(PROJECT)), "")
    cli = "from xsmmu_lab.runs.commands import lab\nfrom xsmmu_lab.runs.driver import driver\n"
    write(tree.path, "tool/xsmmu/cli.py", cli)
    assert list(tidy.floors(tree)) == []
    write(tree.path, file, cli + text if file.endswith("cli.py") else text)
    said = finding.replace("cannot", "is not allowed to")
    assert any(said in each for each in tidy.floors(tree))


def test_build_products_and_caches_are_not_read(tree: tidy.Tree) -> None:
    write(tree.path, "results/a.py", "x\n")
    write(tree.path, "kmod/a.mod.c", "x\n")
    assert {str(file) for file in tree.files()} == {
        "core/one.c",
        "kmod/two.c",
        "lab/run.sh",
        *PLATFORM,
    }
