# SPDX-License-Identifier: GPL-2.0-only
"""CONTRIBUTING.md: a researcher's addition has one place.

A copy of the tree gets the page's own policy and workload, and an IOMMU, and all other places follow.
"""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from xsmmu_lab.project import PROJECT, PYTHONPATH

PAGE = (PROJECT / "CONTRIBUTING.md").read_text()
NOT_COPIED = (".git", "results", "*_cache", "__pycache__", "*.egg-info")


def example(language: str, word: str) -> str:
    """The page's example in this language that contains the word."""
    [found] = [text for text in re.findall(rf"```{language}\n(.*?)```", PAGE, re.DOTALL) if word in text]
    return str(found)


def insert(file: Path, before: str, text: str) -> None:
    """Insert text before a piece that occurs once in a file."""
    content = file.read_text()
    assert content.count(before) == 1, f"{file}: {before}"
    file.write_text(content.replace(before, text + before))


@pytest.fixture(scope="module")
def tree(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A copy of the tree with an additional policy, IOMMU and workload: three files have changed."""
    copy = tmp_path_factory.mktemp("tree") / "xsmmu"
    shutil.copytree(PROJECT, copy, ignore=shutil.ignore_patterns(*NOT_COPIED), symlinks=True)
    insert(copy / "core/policy.c", "\t},\n};\n", example("c", "mine").removesuffix("\t},\n"))
    insert(copy / "lab/xsmmu_lab/vm/iommu/vtd.py", '    "vtd-cm": replace(', example("python", "vtd-snoop"))
    workload = example("toml", "[[workload]]").replace('guest = "testdev"', 'guest = "mine"')
    guest = example("toml", "[guest.NAME]").replace("NAME", "mine")
    with (copy / "lab/experiments/compare.toml").open("a") as file:
        file.write(f"\n{workload}\n{guest}")
    return copy


def run(tree: Path, *words: str) -> str:
    """The output of Python in the copy, with the copy's own modules."""
    env = {**os.environ, "PYTHONPATH": PYTHONPATH.replace(str(PROJECT), str(tree))}
    result = subprocess.run([sys.executable, *words], cwd=tree, env=env, capture_output=True, text=True, check=False)
    assert result.returncode == 0, f"{result.stdout[-4000:]}\n{result.stderr[-4000:]}"
    return result.stdout


def test_tests_of_the_tables_pass(tree: Path) -> None:
    tests = [f"tests/python/test_{name}.py" for name in ("policies", "experiment")]
    run(tree, "-m", "pytest", "-q", "-p", "no:cacheprovider", *tests)


COMPILED = """
import sys
sys.path.insert(0, "tests/python")
import test_unit as unit
from checks import sim
from rich.console import Console
from xsmmu_lab.setup import host, root
tools = root.ensure(host.cache_dir(), Console(stderr=True))
program = unit.compiled(tools, "-O0")
unit.run(program, "only=policy_rows")
unit.run(program, "only=engine_hold_across_policies")
for words in (["--policy", "mine"], ["--policy", "any", "--swarm"]):
    outcome = sim.run(sim.compiled(tools), *words, "--seeds", "1000000", "--events", "100000", "--seconds", "1")
    assert outcome.status == 0, outcome.text
    print(outcome.text)
"""


def test_engine_and_simulated_world_know_the_policy(tree: Path) -> None:
    assert "observed bounded" in run(tree, "-c", COMPILED)


@pytest.mark.guest
def test_lab_measures_it(tree: Path) -> None:
    words = ["--quick", "--policy", "mine", "--workload", "micro/64", "--workload", "mine", "--json"]
    summary = json.loads(run(tree, "-m", "xsmmu", "lab", "run", *words, "--output", str(tree / "results")))
    runs = {(each["workload"], each["iommu"]): each for each in summary["runs"]}
    assert set(runs) == {("micro", "vtd"), ("mine", "vtd-snoop")}
    for each in runs.values():
        assert each["policy"] == "mine"
        assert each["level"] == "bounded"
        assert each["invalidations"] == each["oracle_invalidations"]
        assert each["invalidations"]["domain"] > 0
        assert each["map_instructions_per_page"] > 0
