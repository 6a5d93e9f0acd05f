# SPDX-License-Identifier: GPL-2.0-only
"""The schemas of the tool's JSON: each command has one, and wrong documents do not fit."""

from __future__ import annotations

import copy
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import jsonschema
import pytest
from click.testing import CliRunner
from tests.python import documents as json_documents
from tests.python import fake_kernel, fake_model, fake_recorder, fake_replay
from tests.python.documents import Document, fault, read, schemas
from tests.python.fake_kernel import Kernel

from xsmmu import rules
from xsmmu.cli import app, main

COMMANDS = {
    "status": ("status", "--all"),
    "doctor": ("doctor",),
    "set": ("set", "eth1", "fused", "--rebind"),
    "unset": ("unset", "nvme0n1", "--rebind"),
    "apply": ("apply", "--dry-run"),
    "watch": ("watch", "nvme0n1", "--interval", "0.01", "--count", "2"),
    "compare": ("compare", "eth1", "--runs", "1"),
    "bench": ("bench", "eth1", "--rebind", "--rounds", "1"),
    "report": ("report",),
    "record": ("record", "eth1", "--seconds", "1"),
    "replay": ("replay", "--policy", "fused"),
    "predict": ("predict", "--policies", "fused"),
}
"""A command line for each command with -o."""


@pytest.fixture
def kernel(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Kernel]:
    (tmp_path / "proc").mkdir()
    (tmp_path / "proc/stat").write_text("cpu 1000 1 1 999999 7 1 1 5 0 0\n")
    with fake_kernel.booted(tmp_path, monkeypatch) as made:
        rules.conf().write_text("*=fused\n")
        fake_recorder.install(tmp_path / "programs", monkeypatch)
        fake_replay.install(tmp_path / "programs", monkeypatch)
        fake_model.install(tmp_path / "programs", monkeypatch)
        yield made


def said(kernel: Kernel, name: str, form: str) -> str:
    """A command's standard output in a form."""
    folder = kernel.sysfs.parent
    more: tuple[str, ...] = ()
    if name == "compare":
        more = ("--output-folder", str(folder / "out"), "--", "true")
    elif name == "record":
        more = ("-O", str(folder / f"recording-{form}"))
    elif name == "replay":
        (folder / "recorded").write_bytes(b"")
        more = (str(folder / "recorded"),)
    elif name == "predict":
        more = (
            "--machine",
            str(folder / "programs/machine.toml"),
            "--workload",
            str(folder / "programs/workload.toml"),
        )
    return CliRunner().invoke(app, [*COMMANDS[name], "-o", form, *more], catch_exceptions=False).stdout


def test_each_command_has_one() -> None:
    commands = {name for name, command in app.commands.items() if any(each.name == "form" for each in command.params)}
    assert commands == {*COMMANDS}
    assert {f"{name}-1.json" for name in commands} <= {*schemas()}


@pytest.mark.parametrize("form", ["json", "jsonl"])
@pytest.mark.parametrize("name", COMMANDS)
def test_what_a_command_prints_fits(kernel: Kernel, name: str, form: str) -> None:
    found = read(said(kernel, name, form))
    assert found
    assert {each["schema"] for each in found} == {f"xsmmu.{name}/1"}
    assert len(found) == 1 or form == "jsonl"


@pytest.mark.parametrize("file", schemas())
def test_each_file_says_whose_it_is(file: str) -> None:
    schema = schemas()[file]
    jsonschema.Draft202012Validator.check_schema(schema)
    names = _names(schema)
    assert {json_documents.file_of(name) for name in names} == {file}


def _names(schema: Any) -> set[str]:
    """The names of documents in a schema."""
    if isinstance(schema, list):
        return {name for each in schema for name in _names(each)}
    if not isinstance(schema, dict):
        return set()
    own = {schema["schema"]["const"]} if "const" in schema.get("schema", {}) else set()
    return own | {name for each in schema.values() for name in _names(each)}


def test_what_is_wrong_is_named(kernel: Kernel) -> None:
    """An extra field, a missing field, a field of another type; in a document and in a line."""
    document, line = json.loads(said(kernel, "status", "json")), read(said(kernel, "status", "jsonl"))[0]
    for good, row in ((document, ("devices", 0)), (line, ())):
        assert fault(good) is None
        for change in ({"extra": 1}, {"level": "safe"}, {"group": "11"}, {"bad_unmaps": None, "names": [1]}):
            bad = copy.deepcopy(good)
            _at(bad, row).update(change)
            assert fault(bad), change
        bad = copy.deepcopy(good)
        del _at(bad, row)["path"]
        assert "'path' is a required property" in str(fault(bad))
    assert "there is no nosuch-1.json" in str(fault({"schema": "xsmmu.nosuch/1"}))
    assert fault({}) is not None


def _at(document: Document, path: tuple[str | int, ...]) -> Document:
    for key in path:
        document = document[key]  # type: ignore[index]
    return document


def test_errors_fit(kernel: Kernel, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    del kernel
    monkeypatch.setattr("sys.argv", ["xsmmu", "status", "eth9", "-o", "json"])
    with pytest.raises(SystemExit):
        main()
    (error,) = read(capsys.readouterr().err)
    assert (error["schema"], error["code"]) == ("xsmmu.error/1", "unknown-device")


def test_what_a_test_makes_is_checked(documents: list[Document], kernel: Kernel) -> None:
    """The fixture sees documents that no test looks at."""
    said(kernel, "compare", "json")
    assert {each["schema"] for each in documents} == {
        "xsmmu.compare-setup/1",
        "xsmmu.compare-run/1",
        "xsmmu.compare/1",
    }
