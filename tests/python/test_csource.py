# SPDX-License-Identifier: GPL-2.0-only
"""Pieces of C are found by their tokens, whatever the white space, the comments and the names of local variables."""

from __future__ import annotations

import pytest

from checks import csource

TEXT = """\
static int count(struct block *block, u32 pages)
{
	/* A comment. */
	if (block->free && pages > 1)
		xs_a64_set(&block->free,
			   pages); // and one more
	return pages;
}
"""


@pytest.mark.parametrize(
    ("piece", "found"),
    [
        ("if (block->free && pages > 1)\n", "if (block->free && pages > 1)"),
        ("xs_a64_set(&block->free, pages);\n\treturn pages;", None),
        ("xs_a64_set(&area->free, count);\n\treturn count;", None),
        ("if (b->free &&\n\tn > 1) xs_a64_set(&b->free, n);", None),
        ("return other;", "return pages;"),
    ],
)
def test_found(piece: str, found: str | None) -> None:
    [place] = csource.find(TEXT, piece)
    text = TEXT[place.start : place.end]
    assert text == found if found else text.startswith(("xs_a64_set", "if"))


@pytest.mark.parametrize(
    "piece",
    [
        "",
        "/* A comment. */",
        "if (block->used && pages > 1)",
        "if (block->free && pages > 2)",
        "xs_a64_put(&block->free, pages);",
        "if (same->free && same > 1)",
        "if (XS_PAGES->free && pages > 1)",
        "if (area->free && pages > 1) xs_a64_set(&block->free, pages);",
    ],
)
def test_not_found(piece: str) -> None:
    assert csource.find(TEXT, piece) == []


def test_each_place_is_found() -> None:
    assert len(csource.find(TEXT, "&block->free")) == 1
    assert len(csource.find(TEXT, "block->free")) == 2


def test_the_change_has_the_names_of_the_place() -> None:
    [place] = csource.find(TEXT, "xs_a64_set(&area->free, count);")
    assert place.renamed("xs_a64_or(&area->count, count);") == "xs_a64_or(&block->count, pages);"
