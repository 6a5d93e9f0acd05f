# SPDX-License-Identifier: GPL-2.0-only
"""The count of backward-looking words covers prose, and nothing else."""

from __future__ import annotations

from checks import language

SOURCE = """\
/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * What it does, who calls it.
 */
static const char *what = "what /* who */"; // that one
"""


def test_comments_of_c_count() -> None:
    found = language.count("core", [("core/a.c", SOURCE)])
    assert found.words == 8
    assert (found.what, found.who, found.pronouns) == (125.0, 125.0, 500.0)


PYTHON = '''\
# SPDX-License-Identifier: GPL-2.0-only
"""What it does."""

LIMIT = "which one"
"""Who `asks` for it."""


def count() -> str:
    """These."""
    return "that"  # and those
'''


def test_comments_and_docstrings_of_python_count() -> None:
    found = language.count("tool", [("tool/a.py", PYTHON)])
    assert (found.words, found.what, found.who, found.pronouns) == (9, 111.1, 111.1, 444.4)


def test_text_of_markdown_counts_without_its_code() -> None:
    text = "The `what` of it\n\n```\nwho\n```\n"
    found = language.count("docs", [("docs/a.md", text)])
    assert (found.words, found.what, found.who, found.pronouns) == (3, 0.0, 0.0, 333.3)


def test_a_part_without_words() -> None:
    assert language.count("core", []).is_plain()


def test_all_parts_of_this_checkout_have_words() -> None:
    assert all(each.words > 100 for each in language.counts())
