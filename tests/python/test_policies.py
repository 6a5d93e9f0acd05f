# SPDX-License-Identifier: GPL-2.0-only
"""The list of policies in Python equals the engine's."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from xsmmu.errors import UserError
from xsmmu_lab import policies


def test_the_table_is_read() -> None:
    rows = {policy.name: policy for policy in policies.table()}
    assert {"copy", "strict", "lazy", "fands", "xsmmu", "fused"} <= set(rows)
    assert rows["strict"].flushes == {"unmap"}
    assert rows["fands"].flushes == {"full", "time", "block", "explicit"}
    assert set(rows) - set(policies.mapping()) == {"copy"}
    assert {"fands", "xsmmu", "fused"} <= set(policies.waiting())
    assert not {"copy", "strict", "lazy"} & set(policies.waiting())
    assert policies.by_page() == ("strict-identity", "fused-identity")
    assert list(rows) == re.findall(r'\.name = "([\w-]+)"', policies.SOURCE.read_text())


def test_a_row_is_enough(tmp_path: Path) -> None:
    text = policies.SOURCE.read_text()
    first = "const struct xs_policy xs_policies[] = {\n"
    assert first in text
    row = '\t{\n\t\t.name = "mine",\n\t\t.flushes = XS_DEFERRED | XS_FLUSH_BIT(XS_FLUSH_EXPLICIT),\n\t}, '
    file = tmp_path / "policy.c"
    file.write_text(text.replace(first, first + row + "\n"))
    assert policies.names(file) == ("mine", *policies.names())
    assert policies.waiting(file) == ("mine", *policies.waiting())


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("int x;\n", "no table"),
        ("const struct xs_policy xs_policies[] = {\n};\n", "no table"),
        ('const struct xs_policy xs_policies[] = {\n\t{\n\t\t.name = "a",\n\t},\n};\n', "no flush point"),
    ],
)
def test_what_cannot_be_read_is_said(text: str, message: str, tmp_path: Path) -> None:
    file = tmp_path / "policy.c"
    file.write_text(text)
    with pytest.raises(UserError, match=message):
        policies.table(file)
