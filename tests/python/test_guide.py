# SPDX-License-Identifier: GPL-2.0-only
"""The short table of policies and levels agrees with core/policy.c and docs/levels.md."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

from click.testing import CliRunner

from xsmmu import guide, metrics, module
from xsmmu.cli import app
from xsmmu_lab import policies
from xsmmu_lab.project import PROJECT, PYTHONPATH

LEVELS_MD = (PROJECT / "docs/levels.md").read_text()


def test_it_has_the_policies_of_the_table_with_their_defaults() -> None:
    assert {*guide.POLICIES} == {*policies.names()}
    source = policies.SOURCE.read_text()
    for name, policy in guide.POLICIES.items():
        row = source[source.index(f'.name = "{name}"') :].partition("}")[0]
        fields = {key: int(value) for key, value in re.findall(r"\.(\w+) = (\d+),", row)}
        defaults = (fields["window_us"], fields["batch_pages"], fields.get("copy_bytes", 0))
        assert (policy.window_us, policy.batch_pages, policy.copy_bytes) == defaults, name
    pool = re.search(r"XS_POOL_MIB\s+(\d+)", (PROJECT / "core/include/xsmmu/engine.h").read_text())
    for policy in guide.POLICIES.values():
        assert {*policy.tunables} == {*module.TUNABLES}
        assert f".range_commands_max = {policy.tunables['range_commands_max']}," in source
        assert not pool or policy.tunables["pool_mib"] == int(pool[1])


def test_levels_are_those_of_the_document() -> None:
    rows = re.findall(r"^\| `([\w-]+)` \| (\w+) \|", LEVELS_MD, re.MULTILINE)
    documented = {name: level for name, level in rows if name in guide.POLICIES}
    assert documented == {name: policy.level for name, policy in guide.POLICIES.items()}
    assert [*guide.LEVELS] == [*reversed(metrics.LEVELS)]


def test_the_help_of_set_has_it() -> None:
    said = CliRunner().invoke(app, ["set", "--help"], env={"COLUMNS": "80"}).stdout
    lines = [line.strip() for line in said.splitlines()]
    at = lines.index(guide.lines()[0])
    assert lines[at : at + len(guide.lines())] == guide.lines()


def test_the_man_pages_have_it(tmp_path: Path) -> None:
    conf = PROJECT / "tool/xsmmu.conf.5"
    words = [sys.executable, str(PROJECT / "tool/manpages.py"), str(tmp_path), str(conf)]
    subprocess.run(words, check=True, env={**os.environ, "PYTHONPATH": PYTHONPATH})
    for page in ("man1/xsmmu-set.1", "man5/xsmmu.conf.5"):
        text = (tmp_path / page).read_text().replace("\\-", "-").replace("\\&", "")
        assert "\n".join(guide.lines()) in text, page
        assert "@GUIDE@" not in text
    for path in tmp_path.glob("man*/*"):
        # range_com-mands_max would be copied with its hyphen.
        assert path.read_text().partition("\n.SH ")[0].endswith("\n.nh"), path.name


def test_the_refusal_of_an_unknown_policy_names_all() -> None:
    """The log line of the module parameter; the package has no copy of the table for the kernel log to point to."""
    line = re.search(r'unknown policy \\"%s\\"; valid are ([^\\]*)', (PROJECT / "kmod/main.c").read_text())
    assert line and re.findall(r"[\w-]+", line[1].replace(" and ", " ")) == ["none", "auto", *policies.names()]


def test_the_strongest_of_a_group() -> None:
    for names, strongest in {
        ("lazy", "fused"): "fused",
        ("fused", "strict"): "strict",
        ("none", "lazy"): "lazy",
        ("none",): "none",
        ("auto", "lazy"): "auto",
        ("mine", "lazy"): "lazy",
    }.items():
        assert guide.strongest(list(names)) == strongest
