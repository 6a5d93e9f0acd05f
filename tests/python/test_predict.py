# SPDX-License-Identifier: GPL-2.0-only
"""`xsmmu predict`: the table, intervals, sweeps, the cache, and what is refused, with a small program as the model."""

from __future__ import annotations

import json
import shlex
import sys
import types
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner
from tests.python import fake_model
from tests.python.pages import Page

from xsmmu import cluster, model_files, predict, predict_export, predict_page, predicted
from xsmmu.cli import app
from xsmmu.errors import UserError

Files = tuple[Path, Path]


@pytest.fixture
def files(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Files:
    monkeypatch.setenv("FAKE_LOG", str(tmp_path / "log"))
    return fake_model.install(tmp_path / "model", monkeypatch)


def words(files: Files, *more: object) -> list[str]:
    return ["predict", "--machine", str(files[0]), "--workload", str(files[1]), *map(str, more)]


def said(files: Files, *more: object) -> str:
    made = CliRunner().invoke(app, words(files, *more), catch_exceptions=False)
    assert made.exit_code == 0, made.output
    return made.stdout


def found(files: Files, *more: object) -> list[dict[str, Any]]:
    document: dict[str, Any] = json.loads(said(files, *more, "-o", "json"))
    assert document["schema"] == "xsmmu.predict/1"
    rows: list[dict[str, Any]] = document["predictions"]
    return rows


def refused(files: Files, *more: object) -> UserError:
    with pytest.raises(UserError) as error:
        CliRunner().invoke(app, words(files, *more), catch_exceptions=False, standalone_mode=False)
    return error.value


def runs(files: Files) -> int:
    """How often the program has run."""
    log = files[0].parents[1] / "log"
    return len(log.read_text().splitlines()) if log.exists() else 0


def widen(files: Files, lowest: int, highest: int) -> None:
    """Give the table's read a range."""
    text = files[0].read_text()
    files[0].write_text(text.replace("value = 200,", f"value = 200, lowest = {lowest}, highest = {highest},"))


# -- figures ---------------------------------------------------------------------------------------


def test_the_table(files: Files) -> None:
    lines = said(files, "--policies", "kernel-off,kernel-strict,fused").splitlines()
    assert lines[:3] == ["machine: A server", "driver: a driver", "workload: some flows"]
    assert [line.split()[:3] for line in lines[3:7]] == [
        ["POLICY", "LEVEL", "GBIT/S"],
        ["kernel-off", "none", "91.0"],
        ["kernel-strict", "strict", "71.0"],
        ["fused", "held", "91.0"],
    ]
    assert "page walks (75 %)" in lines[5]
    assert lines[7] == "note: kernel-off: limited by page walks (75 %), raised by none of the changes that were tried"
    assert lines[-1].startswith("note: kernel-off ~ fused > kernel-strict (>: at least 1 % faster with each set")


def test_a_lift_is_tried(files: Files) -> None:
    text = files[0].read_text().replace("walkers = { value = 2", "walkers = { value = 20")
    files[0].write_text(text)
    (row,) = found(files, "--policies", "kernel-strict")
    assert [each["parameter"] for each in row["lifts"]] == ["walkers", "cores", "ring", "flows"]
    assert "raised by twice the walkers (109.0 Gb/s)" in said(files, "--policies", "kernel-strict")


def test_a_point_that_has_not_settled_is_named(files: Files) -> None:
    files[1].write_text(files[1].read_text().replace("value = 10,", "value = 17,"))
    (row,) = found(files, "--policies", "fused")
    assert row["time_ms"] == 40
    assert row["longer"] == {"time_ms": 160, "throughput_gbps": pytest.approx(84.01)}
    assert row["throughput_gbps"]["high"] < 43, "no run of the interval"
    note = "note: fused: has not settled in 40 ms: 160 ms give 84.0 Gb/s; add --ms 160 or more"
    assert note in said(files, "--policies", "fused").splitlines()
    assert "has not settled" not in said(files, "--policies", "fused", "--ms", "160")
    for more in (("--sweep", "ring=256"), ("--ms", "401")):
        assert "longer" not in found(files, "--policies", "fused", *more)[0]


def test_an_interval_is_that_of_all_sets(files: Files) -> None:
    widen(files, 150, 210)
    (row,) = found(files, "--policies", "kernel-strict")
    gbps = row["throughput_gbps"]
    assert gbps["value"] == 71.02
    assert gbps["low"] == pytest.approx(70.0, abs=1) and gbps["high"] == pytest.approx(76, abs=1)
    assert gbps["determined"] and (row["runs"], row["seeds"]) == (3 + model_files.SAMPLES, 3)


def test_a_wide_interval_is_not_determined(files: Files) -> None:
    widen(files, 10, 600)
    text = said(files, "--policies", "kernel-strict,fused")
    assert "not determined " in text
    # The order is known all the same.
    assert "note: fused > kernel-strict (" in text
    assert "note: 1 of 2 throughputs are not determined" in text
    rows = found(files, "--policies", "kernel-strict,fused")
    assert [row["throughput_gbps"]["determined"] for row in rows] == [False, True]


def test_fits_are_used(files: Files) -> None:
    widen(files, 10, 600)
    (files[0].parent / "fits.toml").write_text("[[set]]\ntable_read_ns = 210\n[[set]]\ntable_read_ns = 190\n")
    (row,) = found(files, "--policies", "kernel-strict")
    assert row["runs"] == 3 + model_files.SAMPLES, "another machine than the fitted one"
    fitted = files[0].parent / "machines/cascade-lake.toml"
    fitted.parent.mkdir(exist_ok=True)
    files[0].rename(fitted)
    (row,) = found((fitted, files[1]), "--policies", "kernel-strict")
    assert row["runs"] == 5
    assert (row["throughput_gbps"]["low"], row["throughput_gbps"]["high"]) == (70.01, 72.02)


def test_measured_values_are_not_changed(files: Files) -> None:
    (files[0].parent / "fits.toml").write_text("[[set]]\ntable_read_ns = 900\n")
    (row,) = found(files, "--policies", "kernel-strict")
    assert row["runs"] == 3


def test_a_link_limits_only_if_it_is_full() -> None:
    assert predicted._limit({"link": 0.62, "lock": 0.3, "cpu": 0.08}) == "lock"
    assert predicted._limit({"link": 0.97, "lock": 0.03}) == "link"
    assert predicted._limit({"link": 0.62, "lock": 0.0}) == "link"
    assert predicted._limit({"link": 0.0}) is None


def test_without_an_iommu_everything_is_always_exposed(files: Files) -> None:
    (line,) = [each for each in said(files, "--policies", "kernel-off").splitlines() if each.startswith("kernel-off")]
    assert " always " in line
    (row,) = found(files, "--policies", "kernel-off")
    assert row["exposure_us"] == {}


def test_a_range_that_contradicts_the_machine_is_named(files: Files) -> None:
    text = files[0].parent.joinpath("drivers/page_pool.toml")
    text.write_text(text.read_text().replace("value = 256", "value = 256, lowest = 8, highest = 60000"))
    error = refused(files, "--policies", "fused")
    assert error.message.endswith("is too much, with values of the files' ranges: narrow the ranges, or measure")


def test_levels() -> None:
    levels = {"kernel-off": "none", "kernel-lazy": "lazy", "fused": "held", "fused-direct-aware": "strict"}
    assert {name: predicted.level(name) for name in levels} == levels
    assert predicted.level("lazy-aware") == "lazy"


@pytest.mark.parametrize(("seconds", "words"), [(0.2, "1 s"), (90, "90 s"), (600, "10 minutes"), (9000, "2.5 hours")])
def test_times_for_people(seconds: float, words: str) -> None:
    assert predicted.long(seconds) == words


# -- sweeps and the cache --------------------------------------------------------------------------


def test_a_sweep_has_a_row_for_each_place(files: Files) -> None:
    rows = found(files, "--policies", "fused", "--sweep", "ring=256,1024", "--sweep", "flows=1..3")
    assert [row["at"] for row in rows] == [{"ring": r, "flows": f} for r in (256, 1024) for f in (1, 2, 3)]
    assert [row["throughput_gbps"]["value"] for row in rows[:3]] == [100.02, 99.02, 98.02]
    assert not rows[0]["lifts"]


def test_a_swept_parameter_has_the_value_of_its_place(files: Files) -> None:
    """Also if its file gives it a range."""
    widen(files, 150, 210)
    rows = found(files, "--policies", "kernel-strict", "--sweep", "table_read_ns=150,200")
    assert [row["throughput_gbps"]["low"] for row in rows] == [76.01, 71.01]


def test_finished_points_are_kept(files: Files) -> None:
    first = said(files, "--policies", "fused", "--sweep", "flows=1,2", "--seeds", "1", "-o", "json")
    assert runs(files) == 2
    assert said(files, "--policies", "fused", "--sweep", "flows=1,2", "--seeds", "1", "-o", "json") == first
    said(files, "--policies", "fused,lazy", "--sweep", "flows=1,2", "--seeds", "1")
    assert runs(files) == 4
    files[0].write_text(files[0].read_text().replace('"lscpu"', '"nproc"'))
    said(files, "--policies", "fused", "--sweep", "flows=1,2", "--seeds", "1")
    assert runs(files) == 4, "words of a file do not change a result"
    files[0].write_text(files[0].read_text().replace("value = 8", "value = 9"))
    said(files, "--policies", "fused", "--sweep", "flows=1,2", "--seeds", "1")
    assert runs(files) == 6


def test_a_point_that_fails_costs_no_other(files: Files) -> None:
    error = refused(files, "--policies", "fused", "--sweep", "flows=11,12,13", "--seeds", "1", "--jobs", "1")
    assert (error.code, error.message) == ("failed", "fused flows=13: xsmmu-model ended with status 1")
    assert error.lines == ("xsmmu-model: at 7 ns: lost",)
    before = runs(files)
    said(files, "--policies", "fused", "--sweep", "flows=11,12", "--seeds", "1")
    assert runs(files) == before


def test_a_command_for_each_point(files: Files, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    more = ("--policies", "fused,lazy", "--sweep", "flows=1,2", "--seeds", "1", "--cache", tmp_path / "kept")
    lines = said(files, *more, "--print", "parallel").splitlines()
    assert runs(files) == 0
    assert len(lines) == 4
    monkeypatch.chdir(tmp_path)
    for line in lines:
        CliRunner().invoke(app, shlex.split(line)[1:], catch_exceptions=False)
    assert runs(files) == len([*(tmp_path / "kept").iterdir()]) == 4
    said(files, *more)
    assert runs(files) == 4
    (job,) = {shlex.split(line)[0] for line in said(files, *more, "--print", "slurm").splitlines()}
    assert job == "sbatch"


def test_a_cluster_runs_the_same_commands(files: Files, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[list[str]] = []

    def run(address: str, commands: list[list[str]]) -> None:
        asked.append([address, *(command[0] for command in commands)])
        for command in commands:
            CliRunner().invoke(app, command[1:], catch_exceptions=False)

    monkeypatch.setattr(cluster, "run", run)
    more = ("--policies", "fused,lazy", "--sweep", "flows=1,2", "--seeds", "1", "--cache", tmp_path / "kept")
    table = said(files, *more, "--dask", "tcp://head:8786")
    assert said(files, *more) == table
    assert (asked, runs(files)) == ([["tcp://head:8786", *["xsmmu"] * 4]], 4)


def test_a_long_sweep_is_announced(files: Files) -> None:
    made = CliRunner().invoke(app, words(files, "--policies", "fused", "--sweep", "flows=21..70", "--seeds", "1"))
    assert made.exit_code == 0
    assert made.stderr.startswith("50 points take about ")
    assert "the same command continues after a stop" in made.stderr


def test_a_table_looks_at_its_points_once(files: Files, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Which columns there are is asked for the whole table, not for each row: 10,000 rows would take minutes."""
    asked: list[int] = []
    also_of = predicted.also_of

    def counted(results: list[predicted.Result]) -> list[str]:
        asked.append(len(results))
        return also_of(results)

    monkeypatch.setattr(predicted, "also_of", counted)
    said(files, "--policies", "fused", "--sweep", "flows=1..9", "--seeds", "1", "--html", tmp_path / "page.html")
    assert asked and max(asked) == 9
    assert len(asked) <= 4


def test_a_range_that_ends_before_it_begins_is_refused(files: Files) -> None:
    error = refused(files, "--sweep", "ring=512..256")
    assert (error.code, error.message) == ("usage", "--sweep ring=512..256: the first value is above the last")


def test_a_range_of_too_many_values_is_refused(files: Files, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(predict, "MOST_VALUES", 1000)
    scene = model_files.scene(*files)
    assert predict.size_of(predict.read_sweep(["ring=1..1000"], scene)) == 1000
    error = refused(files, "--sweep", "ring=5,1..1001", "--print", "parallel")
    assert (error.code, error.message) == ("usage", "--sweep ring=1..1001: more than 1,000 values: name fewer")


def test_more_cores_have_more_queues() -> None:
    assert predict._queues({"queues": 4}, 8) == {"queues": 8}
    assert predict._queues({"queues": 16}, 8) == {}
    assert predict.Lift("cores", 8, "twice", {"queues": 8}).changes == {"cores": 8, "queues": 8}


def test_a_sweep_that_takes_too_long_is_refused(files: Files, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(predict, "LONGEST_S", 1e-9)
    error = refused(files, "--policies", "fused", "--sweep", "flows=1..1000", "--sweep", "ring=1..1000", "--jobs", "2")
    assert error.message.startswith("--sweep: 1,000,000 points take about ")
    assert "with 2 jobs: add --long to run them all here, --print to run them elsewhere" in error.message
    assert runs(files) == 1
    assert found(files, "--policies", "fused", "--sweep", "flows=21..70", "--seeds", "1", "--long")


# -- refused ---------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("more", "said"),
    [
        (("--policies", "fuse"), "unknown policy 'fuse': choose from kernel-off, kernel-strict"),
        (("--policies", "kernel-strict-direct"), "unknown policy 'kernel-strict-direct'"),
        (("--policies", ","), "--policies names no policy"),
        (("--sweep", "ring"), "--sweep ring: write NAME=VALUE,VALUE or NAME=FIRST..LAST"),
        (("--sweep", "rings=1"), "unknown parameter 'rings'"),
        (("--sweep", "ring=x"), "ring: 'x' is no whole number"),
        (("--sweep", "ring=0"), "--sweep ring: 0 packets is impossible: from 1 to 65,536"),
        (("--sweep", "driver=mlx9"), "--sweep driver: 'mlx9' is none of none, page_pool"),
        (("--sweep", "ring=1", "--sweep", "ring=2"), "--sweep ring is given twice"),
        (("--print", "slurm", "-o", "json"), "--print excludes --html, --parquet, --dask and -o"),
    ],
)
def test_what_is_refused(files: Files, more: tuple[str, ...], said: str) -> None:
    assert said in refused(files, *more).message
    assert runs(files) == 0


def test_what_the_program_refuses_has_a_place(files: Files) -> None:
    error = refused(files, "--sweep", "ring=8192", "--policies", "fused")
    assert error.message == "--sweep ring=8192: ring 8192 is too much"
    driver = files[0].parent / "drivers/page_pool.toml"
    driver.write_text(driver.read_text().replace("256", "8192"))
    assert refused(files, "--policies", "fused").message == f"{driver}:5: ring 8192 is too much"


# -- the page --------------------------------------------------------------------------------------


def test_the_page_of_all_policies(files: Files, tmp_path: Path) -> None:
    said(files, "--html", tmp_path / "a.html")
    text = (tmp_path / "a.html").read_text()
    page = Page(text)
    assert page.words.count("kernel-strict") >= 2
    assert "table_read_ns" in page.words and "lscpu" in page.words
    assert "the median of 3 seeds, each of 40 ms." in text
    assert "http" not in text.replace("http-equiv", "")


def test_the_page_of_a_sweep(files: Files, tmp_path: Path) -> None:
    widen(files, 10, 600)
    said(
        files,
        "--policies",
        "kernel-strict,fused",
        "--sweep",
        "flows=1,2",
        "--sweep",
        "ring=64,128",
        "--html",
        tmp_path / "a.html",
    )
    text = (tmp_path / "a.html").read_text()
    assert text.count("<svg") == 2
    assert "flows=2" in text and "not determined" in text


def test_other_files_are_not_replaced(files: Files) -> None:
    assert refused(files, "--html", files[0]).code == "file-exists"
    assert refused(files, "--html", "/nowhere/a.html").code == "bad-value"


def test_names_cannot_break_the_page(files: Files) -> None:
    files[0].write_text(files[0].read_text().replace("A server", "<script>alert(1)</script>"))
    scene = model_files.scene(*files)
    rows = found(files, "--policies", "fused")
    assert "<script>" not in predict_page.html(scene, rows)


# -- Parquet ---------------------------------------------------------------------------------------


def test_a_row_has_flat_columns(files: Files) -> None:
    (row,) = found(files, "--policies", "fused", "--sweep", "ring=64")
    columns = dict(predict_export.flat(row))
    wanted = {"policy": "fused", "at_ring": 64, "throughput_gbps_determined": True, "limits_walks": 0.75}
    assert wanted.items() <= columns.items()
    assert not [value for value in columns.values() if isinstance(value, dict | list)]


def test_the_library_and_the_place_are_checked_first(
    files: Files, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "pyarrow", types.ModuleType("pyarrow"))
    assert refused(files, "--parquet", files[0]).code == "file-exists"
    assert refused(files, "--parquet", "/nowhere/a.parquet").code == "bad-value"
    monkeypatch.setitem(sys.modules, "pyarrow", None)
    assert "pip install pyarrow" in refused(files, "--parquet", tmp_path / "a.parquet").message
    assert runs(files) == 0


def test_parquet(files: Files, tmp_path: Path) -> None:
    table = pytest.importorskip("pyarrow.parquet")
    said(files, "--policies", "fused,lazy", "--sweep", "flows=1,2", "--parquet", tmp_path / "a.parquet")
    rows = table.read_table(tmp_path / "a.parquet").to_pylist()
    assert [(row["policy"], row["at_flows"]) for row in rows] == [(p, f) for f in (1, 2) for p in ("fused", "lazy")]
