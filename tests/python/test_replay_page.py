# SPDX-License-Identifier: GPL-2.0-only
"""The page of `xsmmu replay --html`: one file, with its figures in words, too."""

from __future__ import annotations

import copy
import json
import re
import sys
from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner
from tests.python import fake_replay
from tests.python.pages import Page

from xsmmu import replay, replay_auto, replay_lines, replay_page, replay_plot, replayed, trace
from xsmmu.cli import app
from xsmmu.errors import UserError
from xsmmu.replay_plot import Axis
from xsmmu.units import Processes
from xsmmu_lab.project import PROJECT


def result(policy: str, level: str, commands: float, p99: int, **more: Any) -> dict[str, Any]:
    """A replay with these figures."""
    found = copy.deepcopy(fake_replay.RESULT) | {"file": "eth1.xsr", "policy": policy, "level": level, **more}
    found["exposure_ns"] |= {"p99": p99}
    return found | {"commands_per_page_unmapped": commands}


RESULTS = (
    result("kernel-strict", "strict", 1.0, 0),
    result("kernel-lazy", "lazy", 0.0039, 12_000_000),
    result("copy", "strict", 0.0, 0),
    result("strict", "strict", 1.0, 0),
    result("fused", "held", 0.0156, 6400),
    result("fused", "strict", 0.0156, 6400, aware=True),
    result("fands", "bounded", 0.0156, 6300),
)


@pytest.fixture(scope="module")
def html() -> str:
    return replay_page.html(RESULTS)


def test_the_page_is_whole_and_loads_nothing(html: str) -> None:
    page = Page(html)
    ids = Counter(attrs["id"] for _, attrs in page.attributes if "id" in attrs)
    assert max(ids.values()) == 1
    for tag, attrs in page.attributes:
        assert tag not in ("link", "img", "iframe", "script", "use", "a")
        assert not {"src", "href", "xlink:href"} & {*attrs}
        for name in (attrs.get("aria-labelledby") or "").split():
            assert name in ids
    assert "default-src 'none'" in html
    assert not re.search(r"url\(|@import|https?:", html)


def test_the_picture_has_words(html: str) -> None:
    picture = next(attrs for _, attrs in Page(html).attributes if attrs.get("role") == "img")
    title, words = (picture["aria-labelledby"] or "").split()
    assert re.search(rf'<title id="{title}">Commands for each page against exposure</title>', html)
    found = re.search(rf'<desc id="{words}">(.*)</desc>', html)
    assert found
    assert found[1].split("; ") == [
        "kernel-strict (strict): 1.0000 commands a page, p99 of exposure 0",
        "kernel-lazy (lazy): 0.0039 commands a page, p99 of exposure 12.0ms",
        "copy (strict): 0.0000 commands a page, p99 of exposure 0",
        "strict (strict): 1.0000 commands a page, p99 of exposure 0",
        "fused (held): 0.0156 commands a page, p99 of exposure 6.40us",
        "fused (aware) (strict): 0.0156 commands a page, p99 of exposure 6.40us",
        "fands (bounded): 0.0156 commands a page, p99 of exposure 6.30us",
    ]


def test_the_table_has_all_replays(html: str) -> None:
    rows = re.findall(r'<tr><th scope="row">(.*?)</tr>', html)
    assert [re.sub(r"(<[^>]*>)+", "|", row).strip("|").split("|") for row in rows] == [
        replayed.row(each) for each in RESULTS
    ]
    heads = re.findall(r'<th scope="col"', html)
    assert len(heads) == len(replayed.COLUMNS)


def test_the_table_has_transfers_of_lines() -> None:
    kernel, fused = RESULTS[0], RESULTS[4] | {"lines": {"transfers_per_page_unmapped": 0.25}}
    found = replay_page.html([kernel, fused])
    assert "transfers of lines a page" in found and "transfers of lines a page" not in replay_page.html([kernel])
    assert [row.split("<td>")[-1] for row in found.split("</td></tr>")[:2]] == ["-", "0.2500"]


def test_light_dark_and_print(html: str) -> None:
    light, dark = re.findall(r":root \{(.*?)\}", html)
    used = set(re.findall(r"var\((--\w+)\)", html))
    for scheme in (light, dark):
        assert used <= set(re.findall(r"(--\w+):", scheme))
    assert "@media print" in html


def test_names_are_escaped() -> None:
    html = replay_page.html([{**RESULTS[0], "file": '"><script>alert(1)</script>'}])
    assert "<script>" not in html
    assert "&lt;script&gt;" in html
    Page(html)


def test_a_name_of_any_bytes_can_be_written(tmp_path: Path) -> None:
    """A surrogate stands for a byte that is no UTF-8; a control character for no terminal and no page."""
    replay_page.write(tmp_path / "a.html", [{**RESULTS[0], "file": "a\udcff\x1b[31m.xsr"}])
    assert r"<h2>a\udcff\x1b[31m.xsr</h2>" in (tmp_path / "a.html").read_text()


def test_what_was_not_replayed() -> None:
    left = copy.deepcopy(RESULTS[0])
    left["not_replayed"]["gap"] = {"count": 2, "first": {"event": 5, "ns": 5000, "cpu": 1, "device": 0, "iova": 0}}
    whole = {**RESULTS[0], "not_replayed": {}}
    both = "1 x unmap without map, first at event 2 (0.000000 s, CPU 0, device 0, address 0x1000)"
    one = "kernel-strict: 2 x gap, first at event 5 (0.000005 s, CPU 1, device 0, address 0x0)"
    held = f"fused: {replayed.UNDERSTATED}"
    assert [*replayed.notes([left, RESULTS[4]])] == [both, one, held]
    page = replay_page.html([left, RESULTS[4]])
    assert re.findall(r"<li>(.*)</li>", page) == [both, one, held]
    assert "Nothing: all events of the recording." in replay_page.html([whole])


def test_each_recording_has_its_part() -> None:
    html = replay_page.html([*RESULTS, *({**each, "file": "nvme.xsr"} for each in RESULTS)])
    assert re.findall(r"<h2>(.*)</h2>", html)[:2] == ["eth1.xsr", "nvme.xsr"]
    assert html.count("<svg ") == 3 * html.count("<table>") == 6
    ids = re.findall(r' id="(.*?)"', html)
    assert len(ids) == len({*ids}) == 12


def test_each_figure_of_a_row_is_its_own() -> None:
    made = result("fused", "held", 0.0156, 6400)
    made["exposure_ns"] |= {"p50": 1200, "max": 71_000}
    gauges = ("memory_held_pages", "table_pages", "iova_held_pages", "iova_mapped_pages")
    made |= {name: {"max": 100 + at, "mean": 50 + at, "end": at} for at, name in enumerate(gauges)}
    made |= {"pages_mapped": 4000, "pages_unmapped": 3000, "recording_ns": 1_500_000_000}
    row = ["fused", "held", "0.0156", "1.20us", "6.40us", "71.0us", "100", "101", "333"]
    assert replayed.row(made) == row
    assert replayed.traffic(made) == "8 events in 1.500 s, 4,000 pages mapped, 3,000 unmapped"


@pytest.mark.parametrize(
    ("damage", "said"),
    [
        (
            {"cut": True},
            "the recording is cut: its end is missing, and what stands behind the last whole block is left out",
        ),
        ({"blocks": 2, "bytes": 1234}, "2 damaged blocks (1,234 bytes) were left out"),
        ({"lost_events": 5678}, "the recorder lost 5,678 events"),
    ],
)
def test_damage_is_named(damage: dict[str, Any], said: str) -> None:
    made = {**RESULTS[0], "not_replayed": {}, "damage": {**RESULTS[0]["damage"], **damage}}
    assert [*replayed.notes([made])] == [said]


# -- over time, lifetimes, auto ------------------------------------------------------------------


def test_timelines_have_words_and_a_row_for_each_policy() -> None:
    svg = replay_lines.timelines(RESULTS, 1)
    for each in RESULTS:
        assert f">{replayed.name(each)}</text>" in svg
    assert svg.count('class="area"') == 2 * (len(RESULTS) + 1)
    assert "Most in a step of 1.02us: 3 maps. Commands and held pages: kernel-strict: 1 and 3; " in svg
    assert [*map(float, re.findall(r'd="M([\d.]+)', svg))][:2] == [170.0, 515.0]


def test_panels_of_a_column_have_one_scale() -> None:
    most, half = ({**RESULTS[0], "timeline": {**RESULTS[0]["timeline"], "commands": [each]}} for each in (10, 5))
    svg = replay_lines.timelines([most, half], 1)
    areas = re.findall(r'd="M([\d.]+) ([\d.]+)V([\d.]+)', svg)
    high = [float(bottom) - float(top) for x, bottom, top in areas if float(x) == 170]
    # The maps of all policies, then the commands of each.
    assert high == pytest.approx([replay_lines.HIGH, replay_lines.HIGH, replay_lines.HIGH / 2])


def test_lifetimes_have_a_bar_for_each_power_of_two() -> None:
    svg = replay_lines.lifetimes(RESULTS[0], 1)
    assert re.findall(r"<title>(.*?)</title>", svg) == ["2 from 64ns on", "0 from 128ns on", "1 from 256ns on"]
    assert "3 mappings: half of them for 120ns at most" in svg
    nothing = {**RESULTS[0], "lifetime_ns": {"p50": 0, "p99": 0, "max": 0, "mappings": 0, "from_ns": []}}
    assert replay_lines.lifetimes(nothing, 1) == ""
    empty = {**nothing, "timeline": {"step_ns": 1024, "maps": [], "commands": [], "mapped_pages": [], "held_pages": []}}
    Page(replay_page.html([empty]))


def header(*devices: dict[str, Any]) -> str:
    return json.dumps({"devices": [{"name": "0000:01:00.0", "driver": "igb", **each} for each in devices]})


def test_auto_is_the_modules() -> None:
    source = (PROJECT / "kmod/policy/auto.c").read_text()
    for needs, policy, why in replay_auto.LINES:
        facts = " | ".join(f"XS_FACT_{need}" for need in needs) or "0"
        assert re.search(rf'\t\t{re.escape(facts)}, "{policy}",\n\t\t"{re.escape(why)}"\n', source), why
    left_out = {"FLOOR_STRICT", "AWARE", "TOLD_OF_MAPS"}
    lines = re.findall(r'\t\t([\w |]+), "(\w+)",\n', source)
    known = [each for each in lines if not any(f"XS_FACT_{fact}" in each[0] for fact in left_out)]
    assert [policy for _, policy in known] == [policy for _, policy, _ in replay_auto.LINES]


@pytest.mark.parametrize(
    ("devices", "policy"),
    [
        (({"class": "0x020000", "type": "DMA-FQ", "group": 3},), "fused, because: an Ethernet NIC"),
        (({"class": "0x020000", "type": "DMA", "group": 3},), "strict, because: the kernel's own path"),
        (({"class": "0x020000", "type": "identity", "group": 3},), "strict, because: the group does not translate"),
        (({"class": "0x010802", "type": "DMA-FQ", "group": 3},), "strict, because: storage"),
        (({"class": "0x028000", "type": "DMA-FQ", "group": 3},), "strict, because: a device that is neither"),
    ],
)
def test_what_auto_would_choose(devices: tuple[dict[str, Any], ...], policy: str) -> None:
    [line] = replay_auto.choices(header(*devices))
    assert line.startswith(f"0000:01:00.0 (igb): {policy}")
    assert "unless min_level is strict" in line


def test_auto_decides_for_groups() -> None:
    nic, disk = {"class": "0x020000", "type": "DMA-FQ"}, {"class": "0x010802", "type": "DMA-FQ"}
    assert len([*replay_auto.choices(header({**nic, "group": 1}, {**disk, "group": 1}))]) == 1
    assert len([*replay_auto.choices(header({**nic, "group": 1}, {**disk, "group": 2}))]) == 2
    assert len([*replay_auto.choices(header({**nic, "group": -1}, {**nic, "group": -1}))]) == 2
    deep = '{"devices":' + "[" * 100_000
    for damaged in ("", "[]", '{"devices": 3}', '{"devices": [1]}', '{"devices": [{}]}', deep):
        assert [*replay_auto.choices(damaged)] == []
    assert "The recording does not describe its devices." in replay_page.html(RESULTS)


def test_auto_names_the_devices_of_a_recorder() -> None:
    with trace.Recording(PROJECT / "tests/trace/recordings/igb-ping_both-lazy.xsr") as recording:
        [line] = replay_auto.choices(json.dumps(recording.header))
    assert line.startswith("0000:01:00.0 (no driver): fused")


def test_a_program_may_print_any_bytes() -> None:
    """Such as the header of a recording, or the name of a file, that is no UTF-8."""
    program = "import sys; sys.stdout.buffer.write(b'a\\xff'); sys.stderr.buffer.write(b'b\\xfe\\n')"
    status, text, lines = Processes().run([sys.executable, "-c", program], lambda _: None)
    assert (status, text, lines) == (0, "a\ufffd", ["b\ufffd"])


# -- the picture ---------------------------------------------------------------------------------


@pytest.mark.parametrize("values", [(0.0,), (5.0,), (1.0, 10.0), (0.0, 3e-5, 7e8), (0.0, 0.0)])
def test_an_axis_has_a_place_for_each_value(values: Sequence[float]) -> None:
    axis = Axis.of(values, 420, 50)
    places = [axis.place(value) for value in values]
    assert all(50 <= place <= 420 for place in places)
    assert [*sorted(places, reverse=True)] == places
    ticks = axis.ticks(str)
    assert 2 <= len(ticks) <= 9
    assert any(name == "0" for _, name in ticks) == (0.0 in values)
    if 0.0 in values:
        assert axis.place(0) > axis.gap > axis.place(10.0**axis.low)


def test_markers_tell_level_kernel_and_driver(html: str) -> None:
    found = re.findall(r'class="([\w ]+)"><title>(\S+(?: \(aware\))?) \(', html)
    assert sorted(found) == sorted(
        [
            ("strict kernel", "kernel-strict"),
            ("lazy kernel", "kernel-lazy"),
            ("strict", "copy"),
            ("strict", "strict"),
            ("held", "fused"),
            ("strict", "fused (aware)"),
            ("bounded", "fands"),
        ]
    )
    assert html.count('class="dot"') == 2  # of the marker and of the legend


def test_markers_of_a_place_stand_side_by_side(html: str) -> None:
    places = {
        name: (float(x), float(y)) for x, y, name in re.findall(r"translate\((\S+) (\S+)\)[^<]*<title>(\S+)", html)
    }
    assert places["strict"][0] - places["kernel-strict"][0] == pytest.approx(replay_plot.NEAR)
    assert places["strict"][1] == places["kernel-strict"][1] < places["copy"][1]


def test_markers_stand_by_commands_and_p99() -> None:
    made = [result(f"policy-{p99}", "held", commands, p99) for p99, commands in ((1000, 1.0), (10_000, 0.1))]
    made[0]["exposure_ns"]["max"] = 10**9
    places = re.findall(r"translate\((\S+) (\S+)\)[^<]*<title>(\S+)", replay_plot.svg(made, 1))
    [(x, y, _), (other_x, other_y, _)] = [(float(x), float(y), name) for x, y, name in places]
    # A decade right of the other, and a decade below.
    assert other_x - x == pytest.approx(replay_plot.RIGHT - 20 - replay_plot.LEFT, abs=replay_plot.NEAR)
    assert other_y - y == pytest.approx(replay_plot.BOTTOM - replay_plot.TOP - 40, abs=1)


def test_names_do_not_cover_each_other() -> None:
    near = [result(f"policy-{at}", "held", 0.01 * 1.05**at, 1000 + 40 * at) for at in range(12)]
    picture = replay_plot.svg(near, 1)
    names = re.findall(r'<text x="(\S+)" y="(\S+)" text-anchor="middle" class="name">(.*?)</text>', picture)
    assert ", ".join(name.rstrip(",") for _, _, name in names).count("policy-") == len(near)
    boxes = [
        replay_plot.Box(float(x) - 3 * len(name), float(y) - 10, 6 * len(name), replay_plot.ROW - 2)
        for x, y, name in names
    ]
    assert not any(one.covers(other) for at, one in enumerate(boxes) for other in boxes[:at])
    assert all(box.x > 0 and box.x + box.width < replay_plot.WIDTH for box in boxes)


# -- the command ---------------------------------------------------------------------------------


@pytest.fixture
def recording(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    fake_replay.install(tmp_path / "programs", monkeypatch)
    (tmp_path / "eth1.xsr").write_bytes(b"")
    return tmp_path / "eth1.xsr"


def run(*words: object) -> str:
    made = CliRunner().invoke(app, ["replay", *map(str, words)], catch_exceptions=False, standalone_mode=False)
    return made.stdout


def test_the_page_comes_beside_the_output(recording: Path, tmp_path: Path) -> None:
    page = tmp_path / "eth1.html"
    plain = run(recording, "--policy", "fused", "-o", "json")
    assert run(recording, "--policy", "fused", "--html", page, "-o", "json") == plain
    first = page.read_text()
    Page(first)
    assert f"<h2>{recording}</h2>" in first
    assert run(recording, "--policy", "fused", "--html", page).startswith(f"{recording}: 8 events")
    assert page.read_text() == first


def test_other_files_are_not_replaced(recording: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def unused(*_: object) -> None:
        raise AssertionError("work has begun")

    monkeypatch.setattr(replay, "replay_all", unused)
    other = tmp_path / "other"
    other.write_text("mine")
    for page in (recording, other, tmp_path):
        with pytest.raises(UserError, match="is no page of xsmmu replay: name another file"):
            run(recording, "--html", page)
    with pytest.raises(UserError, match="there is no folder"):
        run(recording, "--html", tmp_path / "none/page.html")
    assert (recording.read_bytes(), other.read_text()) == (b"", "mine")
