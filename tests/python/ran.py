# SPDX-License-Identifier: GPL-2.0-only
"""What a test has run on what, for docs/ran.json (scripts/checks/ran.py)."""

from __future__ import annotations

import json

from checks import ran
from xsmmu_lab.runs.run import commit, unchanged

BEGAN_AT = commit()
"""Before anything is built."""


def note(test: str, what: str, kernel: str, iommu: str, result: str) -> None:
    """It has passed just now; `test` is the file that repeats it."""
    entry = ran.Entry(what, kernel, iommu, unchanged(BEGAN_AT), f"make test-long TESTS={test}", result)
    others = [each for each in ran.load(ran.NOTED) if each.place != entry.place]
    ran.NOTED.parent.mkdir(parents=True, exist_ok=True)
    part = ran.NOTED.with_suffix(".tmp")
    part.write_text(json.dumps([each.as_dict() for each in (*others, entry)], indent=1) + "\n")
    part.rename(ran.NOTED)
