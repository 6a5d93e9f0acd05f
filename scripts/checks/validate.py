# SPDX-License-Identifier: GPL-2.0-only
"""Compares the machine model with the published tables (checks.published). `make validate` calls it.

A published value with a policy is a point, which runs with several seeds and with all sets of parameters that fit the
fitted row. The order is: structure, ranges and inputs; then the fit; then the comparison. So model/validation.toml
keeps, for each version, hashes of all sources and inputs, and all figures. If anything has changed since the last
version, the command refuses to compare until the change has a version of its own (--accept REASON), which keeps the
old figures. docs/validation.md is the output of the last version.
"""

from __future__ import annotations

import os
import sys
from typing import Final

import click

from checks import command, published, validation_page, versions
from checks.comparison import Points, Row, Said, points_of, rows_of, statements_of
from checks.published import Table
from checks.versions import Version
from xsmmu import files
from xsmmu_lab.project import PROJECT, commit
from xsmmu_lab.setup import model

PAGE: Final = PROJECT / "docs/validation.md"


def compared(jobs: int) -> tuple[dict[str, Table], list[Row], list[Said], int]:
    """All tables with the model's values."""
    tables = published.tables()
    points = Points(tables, model.compiled(), jobs)
    wanted = [point for table in tables.values() for cell in table.cells for point in points_of(table, cell)]
    results = points.run(wanted)
    rows = [row for table in tables.values() for row in rows_of(table, results)]
    said = [each for table in tables.values() for each in statements_of(table, results)]
    return tables, rows, said, len(points.fits)


@click.command()
@click.option("--accept", metavar="REASON", help="Give the present state of the model a version, and write the page.")
@click.option("--jobs", type=click.IntRange(1, 1024), default=os.cpu_count() or 1, help="Points at the same time.")
def validate(accept: str | None, jobs: int) -> int:
    """Compare the machine model with the published tables."""
    all_, now = versions.versions(), versions.inputs()
    if not accept:
        versions.check_unchanged(all_[-1] if all_ else None, now)
    tables, rows, said, sets = compared(jobs)
    found = versions.figures(rows)
    if accept:
        all_.append(Version(len(all_) + 1, accept, commit(), versions.fit_commit(), now, found))
        files.replace(versions.FILE, versions.text_of(all_))
    wrong = versions.differences(all_[-1], found)
    text = validation_page.page(tables, rows, said, all_, sets)
    click.echo(text)
    for each in wrong:
        click.echo(f"not as in version {all_[-1].number}: {each}", err=True)
    if accept:
        files.replace(PAGE, text)
    elif not PAGE.exists() or PAGE.read_text() != text:
        click.echo(f"{PAGE.relative_to(PROJECT)} is not this output: make validate ACCEPT='REASON' writes it", err=True)
        return 1
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(command.run(validate, "checks.validate"))
