# SPDX-License-Identifier: GPL-2.0-only
"""Predictions as Parquet: a row a point, a column a figure. Written by pyarrow."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from xsmmu.errors import UserError
from xsmmu.predicted import Result
from xsmmu.trace import library

_INSTALL = "it has no Debian package: pip install pyarrow"


def flat(result: Result, before: str = "") -> Iterator[tuple[str, Any]]:
    """The columns of a prediction: the names of JSON's fields, with _ between; lists are left out."""
    for name, value in result.items():
        if isinstance(value, dict):
            yield from flat(value, f"{before}{name}_")
        elif not isinstance(value, list):
            yield before + name, value


def parquet(results: Sequence[Result], out: Path) -> None:
    """Write all predictions; a present file is not replaced."""
    arrow, writer = library("pyarrow", _INSTALL), library("pyarrow.parquet", _INSTALL)
    part = out.with_name(f"{out.name}.part")
    try:
        writer.write_table(arrow.Table.from_pylist([dict(flat(result)) for result in results]), part)
        part.rename(out)
    except OSError as error:
        raise UserError(f"cannot write {out}: {error.strerror}: name another file", code="cannot-write") from None
    finally:
        part.unlink(missing_ok=True)


def check(out: Path) -> None:
    """Refuse a place where no file can be written, before the work begins."""
    library("pyarrow", _INSTALL)
    if out.exists():
        raise UserError(f"{out} exists: name another file", code="file-exists")
    if not out.absolute().parent.is_dir():
        raise UserError(f"there is no folder {out.absolute().parent}: make it, or name another file", code="bad-value")
