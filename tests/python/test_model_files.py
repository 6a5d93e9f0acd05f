# SPDX-License-Identifier: GPL-2.0-only
"""Files of machines, drivers and workloads: what is read, what is refused, and the place that an error names."""

from __future__ import annotations

from pathlib import Path

import pytest
from tests.python import fake_model

from xsmmu import model_files
from xsmmu.errors import UserError
from xsmmu_lab.project import PROJECT

MODEL = PROJECT / "model"


@pytest.fixture
def files(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> tuple[Path, Path]:
    return fake_model.install(tmp_path / "model", monkeypatch)


def change(file: Path, old: str, new: str) -> None:
    assert old in file.read_text()
    file.write_text(file.read_text().replace(old, new, 1))


def refused(machine: Path, workload: Path) -> UserError:
    with pytest.raises(UserError) as error:
        model_files.scene(machine, workload)
    return error.value


def test_a_scene_has_all_values_in_the_order_of_the_list(files: tuple[Path, Path]) -> None:
    scene = model_files.scene(*files)
    assert list(scene.values().items()) == [
        ("cores", 8),
        ("walkers", 2),
        ("table_read_ns", 200),
        ("ring", 256),
        ("driver", "page_pool"),
        ("flows", 10),
    ]
    assert scene.place("ring").endswith("drivers/page_pool.toml:5: ring")


def test_a_machine_may_have_another_ring_than_its_driver(files: tuple[Path, Path]) -> None:
    ring = 'ring = { value = 1024, unit = "packets", how = "measured", source = "ethtool -g" }\n'
    files[0].write_text(files[0].read_text() + ring)
    scene = model_files.scene(*files)
    assert scene.values()["ring"] == 1024
    assert scene.place("ring") == f"{files[0]}:9: ring"


WALKERS = 'walkers = { value = 2, unit = "count", how = "assumed", source = "guess" }'


@pytest.mark.parametrize(
    ("old", "new", "said"),
    [
        ("value = 2,", "value = 0,", ":7: walkers: 0 count is impossible: from 1 to 64"),
        ("value = 2,", "value = 2.5,", ":7: walkers: 2.5 count is no whole number, which the model needs"),
        ("value = 2,", "value = nan,", ":7: walkers: nan is no number"),
        ("value = 2,", 'value = "two",', ":7: walkers: 'two' is no number"),
        ("value = 2,", "value = true,", ":7: walkers: True is no number"),
        ("value = 2,", "", ":7: walkers: has no value"),
        (', unit = "count", how = "assumed"', ', how = "assumed"', "has no unit: give the value in count"),
        ('unit = "ns"', 'unit = "us"', ":8: table_read_ns: has unit 'us': give the value in ns, with unit = \"ns\""),
        ('how = "assumed"', 'how = "guessed"', "how = 'guessed' is none of measured, fitted, published, assumed"),
        ('source = "guess"', 'source = " "', ":7: walkers: has no source"),
        ('how = "assumed"', 'how = "fitted"', ":7: walkers: is fitted and has no range: add lowest and highest"),
        ("value = 2,", "value = 2, lowest = 1,", ":7: walkers: a range is two numbers: give lowest and highest"),
        ("value = 2,", "value = 2, lowest = 3, highest = 4,", "value 2 is not in its range, 3 to 4"),
        ("value = 2,", "value = 2, lowest = 1, highest = 99,", "range: 99 count is impossible"),
        ("value = 2,", "value = 2, shade = 1,", "unknown 'shade': choose from value, unit,"),
        ("walkers =", "walker =", ":7: walker: no such parameter: is it walkers?"),
        (WALKERS, "walkers = 2", ":7: walkers: is no table: write { value = 2, unit"),
        (WALKERS, "", "lacks parameter walkers: add each with value, unit, how and source"),
        ('kind = "machine"', 'kind = "workload"', "kind: is 'workload': a machine is needed here"),
        ('driver = "page_pool"\n', "", 'names no driver: add driver = "NAME", from page_pool, or give --driver'),
        ('driver = "page_pool"', 'driver = "mlx9"', "no driver 'mlx9': choose from page_pool, or give a .toml file"),
        ('title = "A server"', "title = ", "no TOML: Invalid value (at line 3, column 9)"),
        ('title = "A server"', "title = 5", ": title: is no line of text"),
        ('title = "A server"', 'title = "\\u001b[31m"', ": title: is no line of text"),
        ('driver = "page_pool"', "driver = 5", ": driver: is no line of text"),
        ("[parameters]", "[parameterz]\n[parameters]", ": parameterz: unknown: choose from kind"),
        ('title = "A server"', '"a\\nb" = 1', ": 'a\\nb': unknown: choose from kind"),
        ("walkers =", '"walk\\ners" =', ": 'walk\\ners': no such parameter"),
        ('title = "A server"', "title = " + 20_000 * "[", "no TOML: "),
        ('title = "A server"', f'title = "{"x" * (1 << 20)}"', "has more than 1,048,576 bytes: name a machine"),
        ('title = "A server"', "name = 1", "name: unknown: choose from kind, title, device, driver, parameters"),
    ],
)
def test_an_error_names_the_place(files: tuple[Path, Path], old: str, new: str, said: str) -> None:
    change(files[0], old, new)
    error = refused(*files)
    assert said in error.message
    assert "\n" not in error.message
    assert error.code in ("bad-model", "no-file")


def test_all_missing_parameters_are_listed(files: tuple[Path, Path]) -> None:
    files[0].write_text('kind = "machine"\ndriver = "page_pool"\n')
    error = refused(*files)
    assert "lacks 3 parameters of the machine" in error.message
    assert error.lines[1] == "walkers (count): page walks in flight"


@pytest.mark.parametrize("text", ["3", "[3]", '"walkers"'])
def test_parameters_are_a_table(files: tuple[Path, Path], text: str) -> None:
    files[0].write_text(f'kind = "machine"\ndriver = "page_pool"\nparameters = {text}\n')
    assert ": parameters: is no table" in refused(*files).message


def test_a_file_without_an_end_is_refused(files: tuple[Path, Path]) -> None:
    assert "/dev/zero has more than" in refused(Path("/dev/zero"), files[1]).message


def test_a_parameter_of_another_part_is_refused(files: tuple[Path, Path]) -> None:
    change(files[1], "[parameters]", f"[parameters]\n{WALKERS}")
    assert f"{files[1]}:5: walkers: belongs into the file of a machine" in refused(*files).message


def test_other_files_are_refused(files: tuple[Path, Path], tmp_path: Path) -> None:
    assert "does not exist: name a machine (docs/model.md)" in refused(tmp_path / "none", files[1]).message
    (tmp_path / "binary").write_bytes(b"\xff\xfe")
    assert "cannot read" in refused(tmp_path / "binary", files[1]).message
    assert "cannot read" in refused(tmp_path, files[1]).message


# -- sets ------------------------------------------------------------------------------------------

RANGE = "value = 2, lowest = 1, highest = 8,"


def test_without_ranges_there_is_nothing_else(files: tuple[Path, Path]) -> None:
    assert model_files.sets(model_files.scene(*files).ranged(), [{"table_read_ns": 300}]) == []


def test_ranges_are_sampled(files: tuple[Path, Path]) -> None:
    change(files[0], "value = 2,", RANGE)
    found = model_files.sets(model_files.scene(*files).ranged())
    assert sorted({each["walkers"] for each in found}) == [1, 2, 3, 4, 5, 6, 7, 8]
    assert found == model_files.sets(model_files.scene(*files).ranged())


def test_caches_have_sizes_of_powers_of_two() -> None:
    found = model_files.sets({"iotlb_entries": (64, 512)})
    assert {each["iotlb_entries"] for each in found} == {64, 128, 256, 512}
    assert {each["other"] for each in model_files.sets({"other": (64, 65)})} == {64, 65}


def test_a_fit_changes_what_has_a_range_alone(files: tuple[Path, Path]) -> None:
    change(files[0], "value = 2,", RANGE)
    scene = model_files.scene(*files).ranged()
    assert model_files.sets(scene, [{"walkers": 5, "table_read_ns": 300}]) == [{"walkers": 5}]
    assert 1 <= int(model_files.sets(scene, [{"walkers": 50}])[0]["walkers"]) <= 8


def test_the_fitted_machine_has_the_values_of_the_best_fit(files: tuple[Path, Path]) -> None:
    change(files[0], "value = 2,", RANGE)
    fits: list[dict[str, int | str]] = [{"walkers": 5, "table_read_ns": 300}, {"walkers": 6}]
    assert model_files.best(model_files.scene(*files), fits) == {}
    fitted = model_files.folder() / "machines/cascade-lake.toml"
    fitted.parent.mkdir()
    files[0].rename(fitted)
    scene = model_files.scene(fitted, files[1])
    assert model_files.best(scene, fits) == {"walkers": 5}
    assert model_files.best(scene, []) == {}


def test_a_fit_says_nothing_about_other_machines(files: tuple[Path, Path]) -> None:
    change(files[0], "value = 2,", RANGE)
    fits: list[dict[str, int | str]] = [{"walkers": 5}]
    found = model_files.possible(model_files.scene(*files), fits)
    assert len(found) == model_files.SAMPLES and len({each["walkers"] for each in found}) > 5
    fitted = model_files.folder() / "machines/cascade-lake.toml"
    fitted.parent.mkdir()
    files[0].rename(fitted)
    assert model_files.possible(model_files.scene(fitted, files[1]), fits) == fits


def test_the_rest_of_a_fit_is_spread() -> None:
    found = model_files.sets({"walkers": (1, 8), "other": (1, 1000)}, [{"walkers": 5}, {"walkers": 6}])
    assert len(found) == model_files.SAMPLES
    assert {each["walkers"] for each in found} == {5, 6}
    assert len({each["other"] for each in found}) == model_files.SAMPLES


def test_an_impossible_fit_is_refused(files: tuple[Path, Path], tmp_path: Path) -> None:
    del files
    known = model_files.parameters()
    file = tmp_path / "fits.toml"
    assert model_files.fits(known, file) == []
    file.write_text("[[set]]\nwalkers = 5\n[[set]]\nwalkers = 99\n")
    with pytest.raises(UserError, match="set 2: walkers: 99 count is impossible"):
        model_files.fits(known, file)


# -- the model's own files -------------------------------------------------------------------------


@pytest.mark.parametrize("file", sorted(MODEL.glob("*s/*.toml")), ids=lambda file: f"{file.parent.name}-{file.stem}")
def test_each_file_of_the_model_is_whole(file: Path) -> None:
    known = model_files.parameters(MODEL / "parameters.toml")
    found = model_files.described(file, file.parent.name.removesuffix("s"), known)
    assert found.title != file.stem
    if found.part == "machine":
        assert found.driver and (MODEL / f"drivers/{found.driver}.toml").is_file()


@pytest.mark.parametrize("file", sorted((MODEL / "virtual/machines").glob("*.toml")), ids=lambda file: file.stem)
def test_each_virtual_machine_is_whole(file: Path) -> None:
    model_files.described(file, "machine", model_files.parameters(MODEL / "virtual/parameters.toml"))


def test_the_fits_are_possible() -> None:
    model_files.fits(model_files.parameters(MODEL / "parameters.toml"), MODEL / "fits.toml")
