# SPDX-License-Identifier: GPL-2.0-only
"""The HTML report: whole, self-contained, honest about what its figures are."""

from __future__ import annotations

import re
from collections import Counter
from html.parser import HTMLParser
from pathlib import Path
from typing import Any

import pytest

from xsmmu.report import page as report
from xsmmu.report.view import SummaryError

Summary = dict[str, Any]
VOID = {"meta", "br", "link", "img", "hr"}


class Page(HTMLParser):
    """Checks that tags are balanced, and collects what the tests ask for."""

    def __init__(self, html: str) -> None:
        super().__init__()
        self.open: list[str] = []
        self.attributes: list[tuple[str, dict[str, str | None]]] = []
        self.words = ""
        self.feed(html)
        self.close()
        assert self.open == []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.attributes.append((tag, dict(attrs)))
        if tag not in VOID:
            self.open.append(tag)

    def handle_startendtag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.attributes.append((tag, dict(attrs)))

    def handle_endtag(self, tag: str) -> None:
        assert self.open.pop() == tag

    def handle_data(self, data: str) -> None:
        if "style" not in self.open:
            self.words += f" {data}"


@pytest.fixture(scope="module")
def path(pristine: Summary, tmp_path_factory: pytest.TempPathFactory) -> Path:
    return report.write(pristine, tmp_path_factory.mktemp("report") / "results")


@pytest.fixture(scope="module")
def html(path: Path) -> str:
    return path.read_text()


def written(summary: Summary, folder: Path) -> str:
    return report.write(summary, folder).read_text()


def test_files(path: Path) -> None:
    assert path.name == "report.html"
    assert sorted(p.name for p in path.parent.iterdir()) == [
        "cost-exposure.png",
        "invalidations.png",
        "map-unmap.png",
        "relative-cost.png",
        "report.html",
    ]


def test_page_is_well_formed_and_self_contained(path: Path, html: str) -> None:
    page = Page(html)
    ids = Counter(attrs["id"] for _, attrs in page.attributes if "id" in attrs)
    assert ids and max(ids.values()) == 1
    for tag, attrs in page.attributes:
        assert tag not in ("script", "link", "img", "iframe")
        target = attrs.get("href") or attrs.get("xlink:href")
        if target and target.startswith("#"):
            assert target[1:] in ids
        elif target:
            assert (path.parent / target).is_file()
    assert not re.search(r"url\((?!#)|@import", html)


def test_each_picture_has_words_and_its_command(html: str) -> None:
    pictures = [attrs for _, attrs in Page(html).attributes if attrs.get("role") == "img"]
    assert len(pictures) == 4
    assert all(len(attrs["aria-label"] or "") > 100 for attrs in pictures)
    captions = re.findall(r"<figcaption>(.*?)</figcaption>", html, re.DOTALL)
    assert len(captions) == 4
    for caption in captions:
        assert "Made by <code>make synthetic</code>" in caption
        assert "guest instructions under -icount; emulated invalidations complete at once" in caption


def test_words(html: str) -> None:
    words = " ".join(Page(html).words.split())
    for text in ("0.0-synthetic", "synthetic IOMMU", "QEMU 0.0", "synthetic-fio 0", "micro-1024", "nvme 4k"):
        assert text in words
    for text in ("in all 30 runs", "a stale translation may outlive the reuse of the page", "11,000"):
        assert text in words


def test_rows_are_cut_by_level(html: str) -> None:
    first = html.split("</table>")[0]
    bodies = [re.findall(r'<th scope="row">(.*?)</th>', body) for body in first.split("<tbody>")[1:]]
    assert bodies == [
        ["kernel-strict", "strict"],
        ["xsmmu", "fused"],
        ["fands"],
        ["kernel-lazy", "lazy"],
        ["passthrough"],
    ]


def test_light_dark_and_print(html: str) -> None:
    light, dark = re.findall(r":root \{(.*?)\}", html, re.DOTALL)
    used = set(re.findall(r"var\((--\w+)\)", html))
    for scheme in (light, dark):
        assert used <= set(re.findall(r"(--\w+):", scheme))
    assert "@media print" in html


def test_the_same_summary_gives_the_same_page(synthetic: Summary, html: str, tmp_path: Path) -> None:
    assert written(synthetic, tmp_path) == html


def test_names_are_escaped(synthetic: Summary, tmp_path: Path) -> None:
    synthetic["command"] = "<script>alert(1)</script>"
    for run in synthetic["runs"]:
        if run["policy"] == "fands":
            run["policy"] = '<b>"$x--_</b>'
    html = written(synthetic, tmp_path)
    assert "<script" not in html and "<b>" not in html
    assert "&lt;script&gt;" in html
    Page(html)


@pytest.mark.parametrize("accel", ["tcg", None])
def test_an_emulated_clock_measures_no_cost(synthetic: Summary, tmp_path: Path, accel: str | None) -> None:
    words = Page(written({**synthetic, "accel": accel}, tmp_path)).words
    assert "costs and throughput are omitted" in words
    assert "instruction" not in words
    assert not (tmp_path / "cost-exposure.png").exists()


def test_a_real_clock_measures_nanoseconds(synthetic: Summary, tmp_path: Path) -> None:
    html = written({**synthetic, "accel": "kvm"}, tmp_path)
    assert "Cost: nanoseconds on this machine." in html
    assert "instructions per" not in html


def test_little_input(tmp_path: Path) -> None:
    html = written({"schema": 1, "runs": []}, tmp_path / "none")
    assert "no runs" in html
    html = written(
        {"schema": 1, "runs": [{"workload": "micro", "policy": "fused", "level": "held"}]}, tmp_path / "bare"
    )
    assert "command that made it is not recorded" in html
    Page(html)


def test_bad_input_writes_nothing(synthetic: Summary, tmp_path: Path) -> None:
    synthetic["runs"][0]["level"] = "quite"
    with pytest.raises(SummaryError):
        report.write(synthetic, tmp_path / "results")
    assert not (tmp_path / "results").exists()


def test_a_write_that_fails_leaves_the_old_report(
    synthetic: Summary, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    before = "the report of an earlier run"
    (tmp_path / "report.html").write_text(before)
    real = Path.write_bytes

    def full_disk(path: Path, data: bytes) -> int:
        real(path, data[: len(data) // 2])
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(Path, "write_bytes", full_disk)
    with pytest.raises(OSError, match="No space left"):
        report.write(synthetic, tmp_path)
    assert (tmp_path / "report.html").read_text() == before
    assert not list(tmp_path.glob(".*"))
