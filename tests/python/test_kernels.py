# SPDX-License-Identifier: GPL-2.0-only
"""docs/kernels.md has a row for each function that kmod/ uses from some kernel headers, and no other row."""

from __future__ import annotations

import re
from pathlib import Path

from xsmmu_lab.project import PROJECT

_FUNCTIONS = re.compile(
    r"(?<![.>\w])((?:iommu|iommupt|dma|pci|pcim|hrtimer|folio|devres|bus|device|dev|tracepoint|register_trace|unregister_trace"
    r"|srcu|synchronize|rcu|cpuhp|cpus|napi|netif_napi|is_pci|is_zone|page_folio|page_is|per_cpu|this_cpu|platform|ktime"
    r"|set_dma|get_device|put_device|alloc_percpu|free_percpu)_?\w*)\("
)
"""The function names of those headers."""

_LOGS = re.compile(r"dev_(err|warn|info|name|get_drvdata|err_probe|err_ratelimited)$")
"""Functions of devices with no more meaning to the module than printk()."""


def _sources() -> list[Path]:
    folders = (PROJECT / "kmod",)
    files = [file for folder in folders for file in sorted(folder.rglob("*.[ch]"))]
    return [*files, PROJECT / "include/xsmmu/dma.h"]


def _code(file: Path) -> str:
    """Code without comments and strings, with each function's head in a line."""
    text = re.sub(r"/\*.*?\*/", " ", file.read_text(), flags=re.DOTALL)
    text = re.sub(r'"(?:\\.|[^"\\\n])*"', '""', text)
    return re.sub(r"//[^\n]*", "", text)


def _own(code: str) -> set[str]:
    """Functions and macros defined or declared here: their names stand in lines that begin at the margin."""
    heads = [line for line in code.splitlines() if line[:1].isalpha() and "=" not in line]
    defined = {name for line in heads for name in re.findall(r"\b(\w+)\(", line)}
    return defined | set(re.findall(r"#define (\w+)\(", code))


def _listed() -> str:
    """The tables, without the findings."""
    return (PROJECT / "docs/kernels.md").read_text().split("\n## Findings")[0]


def _used() -> set[str]:
    codes = [_code(file) for file in _sources()]
    own = {name for code in codes for name in _own(code)} - {"hrtimer_setup", "iommu_map"}  # stand-ins for the kernel's
    found = {name for code in codes for name in _FUNCTIONS.findall(code)} - own
    return {name for name in found if not _LOGS.match(name)}


def test_each_function_of_the_kernel_that_is_used_is_listed() -> None:
    """A new function must be read in the source of each kernel, and documented."""
    listed = set(re.findall(r"`(\w+)\(\)`", _listed()))
    assert sorted(_used() - listed) == [], "docs/kernels.md: no row for these functions of the kernel"


def test_each_function_that_is_listed_is_used() -> None:
    """An unused function has no row: readers of a new kernel must not read in vain."""
    everything = "\n".join(_code(file) for file in _sources())
    rows = [line for line in _listed().splitlines() if line.startswith("| `")]
    named = {name for row in rows for name in re.findall(r"`(\w+)\(\)`", row.split("|")[1])}
    assert sorted(name for name in named if not re.search(rf"\b{name}\b", everything)) == []


def test_each_dma_operation_that_is_filled_is_listed() -> None:
    """The kernel calls these with the meaning of its own version."""
    filled = set(re.findall(r"\.(\w+) = ", _code(PROJECT / "kmod/dma/ops.c"))) - {"ops", "backend"}
    assert len(filled) > 10
    assert sorted(name for name in filled if f"`.{name}`" not in _listed()) == []


def _used_in() -> list[str]:
    """The column "used in" of each table that has one."""
    found: list[str] = []
    at = None
    for line in _listed().splitlines():
        cells = [cell.strip() for cell in line.split("|")]
        if "used in" in cells:
            at = cells.index("used in")
        elif not line.startswith("|"):
            at = None
        elif at is not None:
            found.append(cells[at])
    return found


def _exists(name: str) -> bool:
    """Whether a name is a path in kmod/ or in the checkout, or the name of a file that the module is built from."""
    path = name.rstrip("/")
    return (
        (PROJECT / "kmod" / path).exists()
        or (PROJECT / path).exists()
        or ("/" not in path and any(file.name == path for file in _sources()))
    )


def test_files_and_functions_that_use_a_function_exist() -> None:
    """A reader of a row looks there; files move, and are renamed."""
    everything = "\n".join(_code(file) for file in _sources())
    cells = _used_in()
    assert len(cells) > 50
    for cell in cells:
        names = re.findall(r"(?<![\w/])(?:[\w-]+/)*[\w-]+\.[ch]\b|(?<![\w/])(?:[\w-]+/)+\w*", cell)
        assert [name for name in names if not _exists(name)] == [], cell
        functions = re.findall(r"`(\w+)\(\)`", cell)
        assert [name for name in functions if not re.search(rf"\b{name}\b", everything)] == [], cell
