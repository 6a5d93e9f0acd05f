# SPDX-License-Identifier: GPL-2.0-only
"""Static 1:1 tables in results: beside passthrough as baselines, never ours, with their size and set-up."""

from __future__ import annotations

import io
from pathlib import Path
from typing import Any

import pytest
from rich.console import Console

from xsmmu.errors import UserError
from xsmmu_lab import policies
from xsmmu_lab.report import page, table, verdict, view
from xsmmu_lab.runs import results

Json = dict[str, Any]

LARGE: Json = {
    "policy": "identity-2m",
    "iommu": "vtd",
    "devices": "0000:00:03.0",
    "leaves": {"1g": 0, "2m": 512, "4k": 0},
    "mapped_bytes": 1 << 30,
    "table_pages": 2,
    "table_pages_by_kernel": 2,
    "set_up": {"value": 337_263, "unit": "instructions"},
}
SMALL = LARGE | {
    "policy": "identity-4k",
    "leaves": {"1g": 0, "2m": 511, "4k": 300},
    "table_pages": 3,
    "table_pages_by_kernel": None,
}

GOLDEN = """\
Static 1:1 tables
the level is none; pages of 4 KiB below the root, by the leaves and by the kernel's counter of such pages
                                                       mapped  pages of  the same by        set-up
policy       level       devices               leaves     MiB    tables   the kernel  instructions
──────────────────────────────────────────────────────────────────────────────────────────────────
identity-4k  none   0000:00:03.0  511 x 2m + 300 x 4k   1,024         3            -       337,263
identity-2m  none   0000:00:03.0             512 x 2m   1,024         2            2       337,263
"""


def with_tables(summary: Json) -> Json:
    """The summary with runs under a static table that cost as much as passthrough."""
    runs = [
        {**run, "policy": policy}
        for run in summary["runs"]
        if run["policy"] == "passthrough"
        for policy in policies.IDENTITY
    ]
    return {**summary, "runs": [*summary["runs"], *runs], "identity": [SMALL, LARGE]}


def rendered(summary: Json) -> str:
    file = io.StringIO()
    table.render(summary, Console(file=file, width=140, legacy_windows=False))
    return file.getvalue()


def test_the_table_of_tables(synthetic: Json) -> None:
    text = rendered(with_tables(synthetic))
    assert text[text.index("Static 1:1") :].startswith(f"{GOLDEN}\n")
    assert "Static 1:1" not in rendered(synthetic)


def test_a_table_stands_behind_passthrough_and_is_none_of_ours(synthetic: Json) -> None:
    seen = view.read(with_tables(synthetic))
    rows = [row for row in seen.rows() if row[1] == "none"]
    assert rows == [(policy, "none") for policy in policies.UNCONFINED]
    cheapest = verdict.cheapest(seen)
    assert cheapest
    assert not any("identity" in cell for row in cheapest.rows for cell in row)
    assert not any(run.ours for w in seen.workloads for run in w.runs if run.policy in policies.IDENTITY)


def test_the_report_has_the_table(synthetic: Json, tmp_path: Path) -> None:
    html = page.write(with_tables(synthetic), tmp_path).read_text()
    assert "Static 1:1 tables" in html and "511 x 2m + 300 x 4k" in html


def test_the_schema_knows_the_tables() -> None:
    nulls = "pages_mapped pages_unmapped map_instructions_per_page unmap_instructions_per_page invalidations"
    nulls += " oracle_invalidations invalidations_per_page exposure_us throughput relative_to_passthrough"
    run: Json = dict.fromkeys(nulls.split())
    summary: Json = dict.fromkeys(("time", "commit", "kernel", "iommu", "qemu", "experiment", "command"), "x")
    summary |= {"schema": 1, "accel": "tcg-icount", "versions": {}, "identity": [SMALL, {**LARGE, "set_up": None}]}
    summary["runs"] = [{"workload": "micro", "policy": "identity-2m", "driver": "unmodified", "level": "none", **run}]
    results.validate(summary)
    summary["identity"][0] = {**SMALL, "table_pages": None}
    with pytest.raises(UserError, match="table_pages"):
        results.validate(summary)
