# SPDX-License-Identifier: GPL-2.0-only
"""The project's texts: every link has a target, the README is short, and its picture can be read."""

from __future__ import annotations

import re
import subprocess
import xml.etree.ElementTree as ET
from pathlib import Path

import pytest

from xsmmu_lab.project import PROJECT

_LINK = re.compile(r"\[(?:[^\]\[]|\[[^\]]*\])*\]\(([^)\s]+)\)")
_CODE = re.compile(r"^```.*?^```|`[^`\n]+`", re.DOTALL | re.MULTILINE)


def texts(root: Path) -> list[Path]:
    listed = subprocess.run(
        ["git", "-C", str(root), "ls-files", "-co", "--exclude-standard", "*.md"],
        capture_output=True,
        text=True,
        check=True,
    )
    return [root / name for name in sorted(listed.stdout.split())]


def anchors(text: str) -> set[str]:
    """The anchors of headings as GitHub makes them; the second heading of a name gets a number."""
    found: set[str] = set()
    for heading in re.findall(r"^#{1,6} +(.*?) *#*$", re.sub(r"^```.*?^```", "", text, flags=re.S | re.M), re.M):
        words = re.sub(r"\[([^\]]*)\]\([^)]*\)", r"\1", heading).lower()
        name = "".join(c for c in words if c.isalnum() or c in "-_ ").replace(" ", "-")
        number = 0
        while (unique := f"{name}-{number}" if number else name) in found:
            number += 1
        found.add(unique)
    return found


def broken(path: Path) -> list[str]:
    """The dead links of a text; links to other hosts are not followed."""
    wrong = []
    for link in _LINK.findall(_CODE.sub("", path.read_text())):
        if re.match(r"[a-z]+:", link):
            continue
        file, _, anchor = link.partition("#")
        target = (path.parent / file) if file else path
        if not target.exists() or (anchor and anchor not in anchors(target.read_text())):
            wrong.append(link)
    return wrong


@pytest.mark.parametrize("path", texts(PROJECT), ids=lambda path: str(path.relative_to(PROJECT)))
def test_every_link_leads_somewhere(path: Path) -> None:
    assert broken(path) == []


def test_a_link_that_leads_nowhere_is_found(tmp_path: Path) -> None:
    (tmp_path / "other.md").write_text("# A title, `with` code\n\n## Twice\n\n## Twice\n\n```\n# no title\n```\n")
    text = tmp_path / "text.md"
    good = "[a](other.md) [b](other.md#a-title-with-code) [`c`](other.md#twice-1) ![d](other.md) `[e](blocked.md)`\n"
    text.write_text(f"{good}[f](blocked.md) [g](other.md#no-title) [h](#none)\n\n```\n[i](blocked.md)\n```\n")
    assert broken(text) == ["blocked.md", "other.md#no-title", "#none"]


def test_no_text_gives_a_disk_less_than_strict() -> None:
    """A disk that changes data after its unmap can change verified data; doctor calls that a risk."""
    places = [*texts(PROJECT), *(PROJECT / "tool/boot").iterdir(), *(PROJECT / "tool").glob("xsmmu.conf*")]
    places += (PROJECT / "tool/xsmmu").glob("*.py")
    for place in places:
        found = re.findall(r"class:01\w*=(\w+)|xsmmu set nvme\w* (\w+)", place.read_text())
        assert {one or other for one, other in found} <= {"strict", "auto", "copy"}, place


def test_the_readme_is_short() -> None:
    assert len((PROJECT / "README.md").read_text().splitlines()) <= 90


def test_pictures_have_text_and_colours_for_dark_pages() -> None:
    pictures = sorted((PROJECT / "docs").glob("*.svg"))
    assert pictures
    for picture in pictures:
        root = ET.parse(picture).getroot()
        kinds = [element.tag.rpartition("}")[2] for element in root.iter()]
        assert kinds.count("text") > 10 and "title" in kinds and "desc" in kinds
        assert "prefers-color-scheme: dark" in picture.read_text()
        assert picture.stat().st_size < 60_000


def test_each_code_of_an_error_is_explained() -> None:
    """The codes in `-o json`."""
    explained = (PROJECT / "docs/tool.md").read_text()
    for file in (PROJECT / "tool/xsmmu").glob("*.py"):
        for code in re.findall(r'code="([a-z_-]+)"', file.read_text()):
            assert f"`{code}`" in explained, (file.name, code)
