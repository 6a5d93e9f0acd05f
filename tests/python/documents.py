# SPDX-License-Identifier: GPL-2.0-only
"""The tool's JSON output, checked against its schemas (tool/xsmmu/schemas).

The fixture `documents` of conftest.py checks everything that a test's own process makes, without a line in the test.
Output of other processes and guests goes through `read`.
"""

from __future__ import annotations

import json
import re
from functools import cache
from pathlib import Path
from typing import Any

import jsonschema
from referencing import Registry, Resource

from xsmmu import output

Document = dict[str, Any]

FOLDER = Path(output.__file__).parent / "schemas"


@cache
def schemas() -> dict[str, Document]:
    """All schemas, by file name."""
    return {path.name: json.loads(path.read_text()) for path in sorted(FOLDER.iterdir())}


def file_of(name: str) -> str:
    """The schema's file for a name such as xsmmu.status/1."""
    found = re.fullmatch(r"xsmmu\.([a-z-]+)/(\d+)", name)
    return f"{found[1]}-{found[2]}.json" if found else f"no file: {name}"


@cache
def _validator(file: str) -> jsonschema.Draft202012Validator:
    resources = {name: Resource.from_contents(schema) for name, schema in schemas().items()}
    return jsonschema.Draft202012Validator(schemas()[file], registry=Registry().with_resources(resources.items()))


def fault(document: Document) -> str | None:
    """The mismatch between a document and its schema, as a reader sees both; None if it fits."""
    name = str(document.get("schema"))
    if file_of(name) not in schemas():
        return f"{name}: there is no {file_of(name)} in {FOLDER}"
    received = json.loads(json.dumps(document))
    error = jsonschema.exceptions.best_match(_validator(file_of(name)).iter_errors(received))
    return f"{name}: {error.json_path}: {error.message}" if error else None


def read(text: str) -> list[Document]:
    """One document, or one per line; each fits its schema."""
    try:
        found = [json.loads(text)]
    except ValueError:
        found = [json.loads(line) for line in text.splitlines()]
    assert [fault(each) for each in found] == [None] * len(found)
    return found
