# SPDX-License-Identifier: GPL-2.0-only
"""`xsmmu lab compare` of nanoseconds: all kinds of files in one table, and files of no kind."""

from __future__ import annotations

import json
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner
from tests.python.conftest import LAZY, RATE

from xsmmu import native
from xsmmu.cli import app
from xsmmu.errors import UserError

Json = dict[str, Any]


def row(**changes: Any) -> Json:
    return asdict(replace(LAZY, **changes))


def native_summary(*rows: Json, **more: Any) -> Json:
    return {"cpu": "CPU A", "kernel": "7.2.12", "commit": "c", "cmpxchg_ns": 2.5, "rows": list(rows), **more}


def bench(*rows: Json) -> Json:
    own = [{**each, "wait_ns": None, "inv_per_page": None} for each in rows]
    facts = {"kernel": "6.12", "processor": "CPU B", "hypervisor": False}
    return {"schema": "xsmmu.bench/1", **facts, "rows": own, "ranking": []}


def engine(*rows: Json) -> Json:
    own = [{**each, "elsewhere_percent": 0} for each in rows]
    for each in own:
        for key in ("tables", "pages", "list", "walk_mib"):
            del each[key]
    return {"schema": 1, "cpu": "CPU A", "commit": "c", "cmpxchg_ns": 2.5, "rows": own}


class Files:
    """Files that are compared."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder

    def make(self, name: str, content: Any) -> str:
        path = self.folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(content if isinstance(content, str) else json.dumps(content))
        return str(path.parent if path.name == "summary.json" else path)

    def compare(self, *words: str) -> str:
        made = CliRunner().invoke(app, ["lab", "compare", *words], catch_exceptions=False)
        assert made.exit_code == 0, made.output
        return made.output

    def table(self, *words: str) -> dict[tuple[str, str], list[Json | None]]:
        found = json.loads(self.compare(*words, "--json"))
        assert found["schema"] == "xsmmu.lab-beside/1"
        # Single pages of a large ring come first.
        return {(each["policy"], each["driver"]): each["figures"] for each in reversed(found["rows"])}


@pytest.fixture
def files(tmp_path: Path) -> Files:
    return Files(tmp_path)


FUSED = row(policy="fused", ns_per_page=25.0)


def test_all_kinds_stand_in_one_table(files: Files, synthetic: Json) -> None:
    """A column for each file; ratios are to kernel-lazy of the same file."""
    words = [
        files.make("native/summary.json", native_summary(row(), FUSED)),
        files.make("bench.json", bench(row(ns_per_page=200.0), row(policy="fused", ns_per_page=80.0))),
        files.make("engine/summary.json", engine(row(policy="lazy", ns_per_page=50.0), row(policy="fused"))),
        files.make("lab/summary.json", synthetic),
        str(native.FILE),
    ]
    said = files.compare(*words).splitlines()
    heads = said[0].split("  ")
    for head in ("1: ns", "1: x kernel-lazy", "3: x lazy", "4: x kernel-lazy", "5: ns"):
        assert head in [each.strip() for each in heads]
    facts = {line[0]: line[3:] for line in said if line[1:3] == ": "}
    assert facts["1"] == f"{words[0]}, make native, CPU A, Linux 7.2.12, wait 1,000 ns"
    assert facts["2"] == f"{words[1]}, xsmmu bench, CPU B, Linux 6.12, its own waits"
    assert facts["3"] == f"{words[2]}, make native-engine, CPU A, wait 1,000 ns"
    assert facts["4"].endswith(f"wait 1,000 ns, instructions at {RATE.short}")
    table = files.table(*words)
    through = table["passthrough", "none"]
    assert through[3] and through[4], "both files name no driver of passthrough"
    fused = table["fused", "unmodified"]
    assert [each and each["relative"] for each in fused[:3]] == [0.25, 0.4, 2.0]
    lab, accepted, *_ = fused[3:]
    assert lab and accepted
    assert lab["ns_per_page"] == pytest.approx(RATE.ns(580.75, 0.0156, 1000))
    machine = native.accepted()[0]
    assert accepted["ns_per_page"] == machine.ns_at(native.HARDWARE_WAIT_NS, "fused", "unmodified")


def test_a_base_is_the_first_that_the_file_has(files: Files) -> None:
    """A base has the same buffers as the row; a row without a base has no ratio."""
    through = row(policy="passthrough", driver="none", tables="none", ns_per_page=10.0)
    small = row(policy="fused", bytes=256)
    found = files.table(files.make("a.json", native_summary(through, FUSED)), files.make("b.json", bench(FUSED)))
    assert [each and each["relative"] for each in found["fused", "unmodified"]] == [2.5, None]
    found = files.table(files.make("c.json", native_summary(row(), small)))
    assert found["fused", "unmodified"][0] == {
        "ns_per_page": 100.0,
        "low": 99.0,
        "high": 101.0,
        "inv_per_page": 0.004,
        "relative": None,
    }


def test_a_bench_in_a_virtual_machine_is_told(files: Files) -> None:
    said = files.compare(files.make("a.json", {**bench(FUSED), "hypervisor": True}))
    assert "xsmmu bench in a virtual machine: its emulated IOMMU, CPU B" in said


def test_small_buffers_of_the_lab_have_their_own_rows(files: Files, synthetic: Json) -> None:
    small = [{**each, "variant": "256 bytes"} for each in synthetic["runs"] if each.get("ring") == 1024]
    synthetic["runs"] += [{**each, "map_instructions_per_page": 1.0} for each in small]
    found = json.loads(files.compare(files.make("lab/summary.json", synthetic), "--json"))["rows"]
    mine = [each for each in found if (each["policy"], each["driver"], each["ring"]) == ("fused", "unmodified", 1024)]
    ns = {each["bytes"]: each["figures"][0]["ns_per_page"] for each in mine}
    assert ns[256] < ns[4096] == pytest.approx(RATE.ns(580.75, 0.0156, 1000))


def test_single_pages_of_a_large_ring_come_first(files: Files) -> None:
    found = json.loads(files.compare(files.make("a.json", native_summary(row(bytes=256), row())), "--json"))
    assert [each["bytes"] for each in found["rows"]] == [4096, 256]


def test_one_wait_of_several_is_shown(files: Files) -> None:
    rows = [row(wait_ns=wait, ns_per_page=100.0 + wait) for wait in (0, 300, 1000)]
    several = {"rows": [row(cpus=1), row(cpus=2, ns_per_page=300.0)]}
    path = files.make("native/summary.json", native_summary(*rows, several_cpus=several))
    for words, ns in (([], 1100.0), (["--wait", "300"], 400.0), (["--wait", "0"], 100.0)):
        [figure] = files.table(path, *words)["kernel-lazy", "unmodified"]
        assert figure and figure["ns_per_page"] == ns
    assert "2 CPUs" in files.compare(path)
    own, only = files.make("b.json", bench(FUSED)), files.make("c.json", native_summary(FUSED))
    said = files.compare(path, own, "--wait", "300")
    assert "wait 300 ns" in said and "its own waits" in said
    with pytest.raises(UserError, match=r"c\.json has no rows at a wait of 300 ns: choose --wait from 1000$"):
        files.compare(path, only, "--wait", "300")
    rest = files.make("d.json", native_summary(*(row(wait_ns=wait) for wait in (0, 300))))
    with pytest.raises(UserError, match=r"has no rows at a wait of 1000 ns: choose --wait from 0, 300$"):
        files.compare(rest)
    with pytest.raises(UserError, match=r"has no rows at a wait of 7 ns: choose --wait from 0, 300, 1000$"):
        files.compare(path, "--wait", "7")


def test_rows_that_no_two_files_share_are_explained(files: Files) -> None:
    words = (files.make("a.json", native_summary(FUSED)), files.make("b.json", bench(row(policy="fused", ring=256))))
    said = files.compare(*words)
    assert "ring 256" in said
    assert "No row is in two files: buffers differ. xsmmu bench --ring 1024 has the rows of make native." in said
    assert "No row" not in files.compare(words[0])


@pytest.mark.parametrize(
    ("content", "message"),
    [
        ("maps/s", r"a\.json is no JSON document \(.*\): name results of the lab, or output of xsmmu bench -o json$"),
        ("[]", r"a\.json is none of the files that can be compared: name a summary of make lab, make native or make n"),
        ({"schema": "xsmmu.status/1"}, r"is none of the files that can be compared"),
        ({"schema": "xsmmu.bench/1", "ranking": []}, r"has no rows, so an older xsmmu bench made it: run xsmmu bench"),
        (native_summary(), r"a\.json has no figure of a page: name another file$"),
        (
            {"schema": "xsmmu.native/1", "machines": [native_summary(row()), native_summary()]},
            r"a\.json has no figure of a page: name another file$",
        ),
        (native_summary({"policy": "fused"}), r"has content of an unknown form \(KeyError: 'wait_ns'\): measure again"),
        (native_summary(row(ns_per_page="12 ns")), r"has content of an unknown form \(ValueError"),
        ({"runs": [], "schema": 1}, r"has no counts of instructions: name results of xsmmu lab run --accel tcg$"),
        ({"runs": []}, r"summary: schema must be 1"),
    ],
)
def test_other_files_are_refused(files: Files, content: Any, message: str) -> None:
    with pytest.raises(UserError, match=message):
        files.compare(files.make("a.json", content), files.make("b.json", native_summary(row())))


def test_a_missing_file_and_a_folder_without_results_are_refused(files: Files) -> None:
    for name in ("none.json", "."):
        with pytest.raises(UserError, match=r"does not exist: name a file or a folder of results$"):
            files.compare(str(files.folder / name))


def test_two_results_of_the_lab_have_no_wait(files: Files, synthetic: Json) -> None:
    words = [files.make(f"{name}/summary.json", synthetic) for name in "ab"]
    made = CliRunner().invoke(app, ["lab", "compare", "--wait", "0", *words])
    assert made.exit_code == 2
    assert "two results of make lab have none: leave out --wait" in made.output
    with pytest.raises(UserError, match=r"a/summary\.json: the summary does not fit .*: repeat the run with this ver"):
        files.compare(*words)


def test_changes_are_of_two_results_of_the_lab(files: Files, synthetic: Json) -> None:
    words = [files.make("a/summary.json", synthetic), files.make("b.json", native_summary(row()))]
    made = CliRunner().invoke(app, ["lab", "compare", "--changed", *words])
    assert made.exit_code == 2
    assert "--changed needs two results of make lab" in made.output
