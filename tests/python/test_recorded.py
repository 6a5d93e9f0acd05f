# SPDX-License-Identifier: GPL-2.0-only
"""`xsmmu predict --trace`: what a recording shows, what it does not, and recordings that are refused."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner
from tests.python import fake_model
from tests.python.recordings import FROM_DEVICE, HEADER, PAGE, TO_DEVICE, Recording

from xsmmu import model_files, recorded
from xsmmu.cli import app
from xsmmu.errors import UserError
from xsmmu_lab.project import PROJECT

FOLDER = PROJECT / "tests/trace/recordings"
KNOWN = model_files.parameters(PROJECT / "model/parameters.toml")
DISK = {"class": "0x010802", "vendor": "0x144d"}
INTEL = {"class": "0x020000", "vendor": "0x8086"}
MELLANOX = {"class": "0x020000", "vendor": "0x15b3"}


def header(*devices: dict[str, str], **more: Any) -> dict[str, Any]:
    return {**HEADER, "devices": [*devices], **more}


def derived(file: Path) -> dict[str, int | str]:
    found = recorded.read(file)
    return {name: each.value for name, each in found.given.items() if each.how == "measured"}


# -- the recordings of guests ----------------------------------------------------------------------

NIC = {"queues": 1, "ring": 255, "descriptor_packets": 1, "descriptor_pages": 1, "stride_bytes": PAGE}


@pytest.mark.parametrize(
    ("name", "values"),
    [
        # e1000e unmaps each buffer, igb uses its pages again; buffers of 1,522 bytes show the MTU.
        ("e1000e-ping-kernel", {**NIC, "driver": "none", "mtu_bytes": 1500}),
        ("e1000e-receive-lazy", {**NIC, "driver": "none", "send_flows": 0}),
        ("igb-iperf3-kernel", {**NIC, "driver": "page_pool", "fragment_bytes": 32768}),
        ("igb-ping_both-lazy", {**NIC, "driver": "page_pool"}),
        # fio with 4 to 64 KiB at a depth of 16; dd with 4 KiB, 64 KiB and 256 KiB.
        ("nvme-fio-kernel", {"jobs": 1, "depth": 16, "block_bytes": 23552}),
        ("nvme-read_and_write-lazy", {"jobs": 1, "depth": 1, "block_bytes": 17408}),
    ],
)
def test_what_a_guest_s_recording_shows(name: str, values: dict[str, int | str]) -> None:
    found = derived(FOLDER / f"{name}.xsr")
    assert found == values


def test_all_parameters_of_the_workload_are_there() -> None:
    """Derived or assumed, of NICs and of disks."""
    for file in sorted(FOLDER.glob("*.xsr")):
        found = recorded.workload(file, KNOWN, None)
        own = {each.name for each in KNOWN.values() if each.part == "workload"}
        needed = {
            name for name in own if KNOWN[name].device in (None, found.described.device) and KNOWN[name].default is None
        }
        assert needed <= found.described.given.keys(), file.name
        assert {row["how"] for row in found.rows} <= {"derived", "assumed"}
        assert found.facts


# -- recordings made by hand -----------------------------------------------------------------------


def receive(count: int, queues: int, each: int, keep: bool) -> Recording:
    """`queues` rings of `count` buffers; then polls of `each` packets, whose buffers are kept or exchanged."""
    made = Recording()
    for number in range(count * queues):
        made.map(number, flags=FROM_DEVICE)
    fresh = count * queues
    for turn in range(4 * queues):
        for number in range(0 if keep else each):
            made.unmap(turn * each + number, flags=FROM_DEVICE)
            made.map(fresh, flags=FROM_DEVICE)
            fresh += 1
        made.poll(bytes=each, queue=100 + turn % queues)
    return made


@pytest.mark.parametrize(("keep", "driver"), [(True, "page_pool"), (False, "none")])
def test_rings_queues_and_recycling(tmp_path: Path, keep: bool, driver: str) -> None:
    file = receive(64, 4, 16, keep).write(tmp_path / "a.xsr", header(INTEL))
    found = derived(file)
    assert (found["queues"], found["ring"], found["driver"]) == (4, 64, driver)
    facts = " ".join(recorded.read(file).facts)
    assert "16.0 packets in a poll that has any, at most 16" in facts
    assert f"{0 if keep else 256} buffers were unmapped for 256 packets" in facts


def test_a_ring_that_was_filled_before_is_not_shown(tmp_path: Path) -> None:
    made = Recording()
    for number in range(100):
        made.unmap(number, flags=FROM_DEVICE)
        made.map(1000 + number, flags=FROM_DEVICE)
        made.poll(bytes=1)
    file = made.write(tmp_path / "a.xsr", header(INTEL))
    assert "ring" not in derived(file)
    assert "the ring is not shown: it was filled before the recording began" in recorded.read(file).facts


def test_descriptors_of_several_packets_are_the_driver_s(tmp_path: Path) -> None:
    file = receive(64, 1, 16, keep=True).write(tmp_path / "a.xsr", header(MELLANOX))
    assert not {"ring", "descriptor_packets", "descriptor_pages", "driver"} & derived(file).keys()


def test_pages_of_a_buffer(tmp_path: Path) -> None:
    made = Recording()
    for number in range(8):
        made.map(number, bytes=9018, flags=FROM_DEVICE)
    made.poll(bytes=3)
    found = derived(made.write(tmp_path / "a.xsr", header(INTEL)))
    assert (found["mtu_bytes"], found["descriptor_pages"], found["ring"]) == (8996, 3, 8)


def test_what_is_sent(tmp_path: Path) -> None:
    made = receive(16, 1, 4, keep=True)
    for number in range(500, 520):
        made.map(number, pages=8, flags=TO_DEVICE).unmap(number, pages=8, flags=TO_DEVICE)
    file = made.write(tmp_path / "a.xsr", header(INTEL))
    assert derived(file)["fragment_bytes"] == 32768
    assert recorded.read(file).given["send_flows"].how == "assumed"
    assert derived(receive(16, 1, 4, keep=True).write(tmp_path / "b.xsr", header(INTEL)))["send_flows"] == 0


def test_requests_of_disks(tmp_path: Path) -> None:
    made = Recording()
    for cpu in (0, 1):
        for number in range(6):
            made.map(cpu * 100 + number, pages=2, cpu=cpu, flags=FROM_DEVICE)
    for cpu in (0, 1):
        for number in range(6):
            made.unmap(cpu * 100 + number, pages=2, cpu=cpu, flags=FROM_DEVICE)
    file = made.write(tmp_path / "a.xsr", header(DISK, DISK))
    assert derived(file) == {"jobs": 2, "depth": 6, "block_bytes": 8192}
    assert any("drives: 2 in the recording" in fact for fact in recorded.read(file).facts)


def test_larger_requests_than_the_model_s(tmp_path: Path) -> None:
    made = Recording().map_list(1, [PAGE] * 256, flags=FROM_DEVICE).unmap_list(1, [PAGE] * 256, flags=FROM_DEVICE)
    assert derived(made.write(tmp_path / "a.xsr", header(DISK)))["block_bytes"] == recorded.LARGEST_BLOCK


# -- what is refused -------------------------------------------------------------------------------


def lossy() -> Recording:
    return receive(8, 1, 2, keep=True).add("lost", bytes=17, span=5)


@pytest.mark.parametrize(
    ("made", "head", "said"),
    [
        (lossy(), header(INTEL), "17 events are lost 0.0"),
        (receive(8, 1, 2, keep=True), header(INTEL, page_bytes="4K"), "pages of '4K' bytes"),
        (receive(8, 1, 2, keep=True), {**HEADER, "devices": 5}, "no NIC and no disk"),
        (receive(8, 1, 2, keep=True), {**HEADER, "devices": ["0x02"]}, "no NIC and no disk"),
        (receive(8, 1, 2, keep=True), header(), "no NIC and no disk: record NICs or disks"),
        (receive(8, 1, 2, keep=True), header(INTEL, DISK), "devices of several kinds"),
        (receive(8, 1, 2, keep=True), header(INTEL, page_bytes=65536), "pages of 65536 bytes: the model has pages of"),
        (Recording().poll(), header(INTEL), "nothing was mapped: record while the device works"),
        (Recording().map(1, bytes=64), header(DISK), "no request was mapped"),
    ],
)
def test_a_recording_that_misleads_is_refused(tmp_path: Path, made: Recording, head: Any, said: str) -> None:
    file = made.write(tmp_path / "a.xsr", head)
    with pytest.raises(UserError) as error:
        recorded.workload(file, KNOWN, None)
    assert said in error.value.message
    assert str(file) in error.value.message and "\n" not in error.value.message


def test_a_damaged_recording_is_refused(tmp_path: Path) -> None:
    file = tmp_path / "a.xsr"
    text = bytearray((FOLDER / "nvme-fio-kernel.xsr").read_bytes())
    text[-2500] ^= 1
    file.write_bytes(text)
    with pytest.raises(UserError, match=r"a part is damaged|events are lost"):
        recorded.read(file)
    with pytest.raises(UserError, match="cannot read"):
        recorded.read(tmp_path / "none.xsr")


def test_a_long_recording_is_derived_from_its_begin(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(recorded, "MOST_EVENTS", 1000)
    file = receive(64, 2, 8, keep=True)
    for number in range(10_000, 80_000):
        file.poll(bytes=1, queue=100 + number % 2)
    found = recorded.read(file.write(tmp_path / "a.xsr", header(INTEL)))
    assert found.facts[-1] == "long: all is derived from the first 65,536 of 70,136 events"
    late = lossy()
    late.events[:0] = file.events
    for number, event in enumerate(late.events):
        event["ns"] = number
    with pytest.raises(UserError, match="17 events are lost"):
        recorded.read(late.write(tmp_path / "b.xsr", header(INTEL)))


# -- the command -----------------------------------------------------------------------------------


@pytest.fixture
def files(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> tuple[Path, Path]:
    return fake_model.install(tmp_path / "model", monkeypatch)


def said(*words: object) -> str:
    made = CliRunner().invoke(app, ["predict", *map(str, words)], catch_exceptions=False)
    assert made.exit_code == 0, made.output
    return made.stdout


def test_the_table_says_what_is_derived(files: tuple[Path, Path]) -> None:
    trace = FOLDER / "igb-iperf3-kernel.xsr"
    lines = said("--machine", files[0], "--trace", trace, "--policies", "fused").splitlines()
    rows = {line.split()[0]: line.split()[1:] for line in lines if line}
    assert rows["ring"][:3] == ["255", "packets", "derived"]
    assert rows["flows"][:3] == ["1", "count", "assumed"]
    assert "assumed: flows: give what you know by --workload W.toml" in lines
    assert f"workload: recording {trace}" in lines


def test_what_a_file_gives_replaces_assumptions_alone(files: tuple[Path, Path]) -> None:
    text = 'kind = "workload"\n[parameters]\nflows = { value = 7, unit = "count", how = "measured", source = "ss" }\n'
    text += 'ring = { value = 64, unit = "packets", how = "measured", source = "ethtool" }\n'
    files[1].write_text(text)
    words = ("--machine", files[0], "--trace", FOLDER / "igb-iperf3-kernel.xsr", "--workload", files[1])
    document = json.loads(said(*words, "--policies", "fused", "-o", "json"))
    rows = {row["parameter"]: (row["value"], row["how"]) for row in document["recorded"]}
    assert rows == {"ring": (255, "derived"), "driver": ("page_pool", "derived"), "flows": (7, "given")}


def test_printed_commands_name_the_recording(files: tuple[Path, Path]) -> None:
    trace = FOLDER / "igb-iperf3-kernel.xsr"
    (line,) = said("--machine", files[0], "--trace", trace, "--policies", "fused", "--print", "parallel").splitlines()
    assert f"--trace {trace}" in line and "--workload" not in line


def test_a_workload_of_another_device_is_refused(files: tuple[Path, Path]) -> None:
    words = ["predict", "--machine", str(files[0]), "--trace", str(FOLDER / "nvme-fio-kernel.xsr")]
    with pytest.raises(UserError, match="device is nic, and the recording is of drives"):
        CliRunner().invoke(app, [*words, "--workload", str(files[1])], catch_exceptions=False, standalone_mode=False)
