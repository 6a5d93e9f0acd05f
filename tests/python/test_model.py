# SPDX-License-Identifier: GPL-2.0-only
"""The machine model: its parameters, its parts, and its results."""

from __future__ import annotations

import json
import re
import subprocess
import tomllib
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final

import pytest

from xsmmu_lab.project import PROJECT
from xsmmu_lab.setup import model, replay

pytestmark = pytest.mark.early

FOLDER: Final = PROJECT / "model"
LIST: Final[dict[str, dict[str, Any]]] = tomllib.loads((FOLDER / "parameters.toml").read_text())
HOW: Final = ("measured", "fitted", "published", "assumed")

Point = dict[str, str | int]


@pytest.fixture(scope="session")
def program() -> Path:
    return model.compiled()


def described(*files: str) -> Point:
    """The values of machine, driver and workload files."""
    point: Point = {name: row["default"] for name, row in LIST.items() if "default" in row}
    point |= {name: row["lowest"] for name, row in LIST.items() if row.get("device") == "drives" and name not in point}
    for file in files:
        parameters = tomllib.loads((FOLDER / f"{file}.toml").read_text())["parameters"]
        point |= {name: parameter["value"] for name, parameter in parameters.items()}
    return point


def fitted(**others: str | int) -> Point:
    """The point that is fitted, at 5 flows, with other values."""
    point = described("machines/cascade-lake", "drivers/mlx5-6.0", "workloads/fands-iperf")
    return point | {"policy": "kernel-strict", "seed": 1, "time_ms": 20} | others


def called(program: Path, text: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run([program], input=text, capture_output=True, text=True, check=False, timeout=60)


def text_of(point: Mapping[str, str | int]) -> str:
    return "".join(f"{name} {value}\n" for name, value in point.items())


def result(program: Path, point: Mapping[str, str | int]) -> dict[str, Any]:
    done = called(program, text_of(point))
    assert done.returncode == 0, done.stderr
    found: dict[str, Any] = json.loads(done.stdout)
    return found


def test_the_list_and_the_program_have_the_same_parameters() -> None:
    table = re.findall(r"^\tP\((\w+), (\d+), (\d+)\)", (FOLDER / "params.h").read_text(), re.MULTILINE)
    numbers = {name: (int(lowest), int(highest)) for name, lowest, highest in table}
    listed = {name: row for name, row in LIST.items() if row["unit"] != "word" and row["part"] != "point"}
    assert numbers == {name: (row["lowest"], row["highest"]) for name, row in listed.items()}


def test_each_file_has_the_parameters_of_its_part() -> None:
    for file in sorted(FOLDER.glob("*s/*.toml")):
        described_file = tomllib.loads(file.read_text())
        assert file.parent.name == f"{described_file['kind']}s", file
        device = described_file.get("device", "nic")
        wanted = {name for name, row in LIST.items() if row["part"] == described_file["kind"] and "default" not in row}
        wanted = {name for name in wanted if LIST[name].get("device", device) == device}
        assert wanted <= set(described_file["parameters"]), file
        for name, parameter in described_file["parameters"].items():
            assert parameter["how"] in HOW and parameter["source"], f"{file}: {name}"
            if LIST[name]["unit"] == "word":
                assert parameter["value"] in LIST[name]["words"], f"{file}: {name}"
                continue
            lowest, highest = parameter.get("lowest", parameter["value"]), parameter.get("highest", parameter["value"])
            assert LIST[name]["lowest"] <= lowest <= parameter["value"] <= highest <= LIST[name]["highest"], name
            assert parameter["how"] != "fitted" or "lowest" in parameter, f"{file}: {name}"


@pytest.mark.parametrize(
    ("change", "said"),
    [
        ({"flows": None}, "flows is missing"),
        ({"flows": 5000}, "flows takes a whole number from 0 to 4096, not '5000'"),
        ({"flows": -1}, "not '-1'"),
        ({"flows": "5.5"}, "not '5.5'"),
        ({"flows": "5 5"}, "a line is 'name value'"),
        ({"flow": 5}, "unknown parameter 'flow'"),
        ({"driver": "mlx4"}, "driver cannot be 'mlx4', only one of none mlx5_cache"),
        ({"policy": "lax"}, "policy 'lax' is not modelled"),
        ({"policy": "kernel-strict-direct"}, "is not modelled"),
        ({"iotlb_ways": 5}, "iotlb_entries 128 is not a multiple of iotlb_ways 5"),
        ({"stride_bytes": 3000}, "stride_bytes 3000 does not divide a descriptor"),
        ({"queues": 6}, "queues 6 is more than cores 5"),
        ({"flows": 0}, "flows 0 with send_flows 0"),
        ({"mtu_bytes": 65536, "descriptor_pages": 1, "descriptor_packets": 32}, "ring 256 is too small for a packet"),
        ({"ring": 65536, "descriptor_packets": 1}, "has more than 16777216 pages"),
        ({"flows": 4096, "window_bytes": 67108864}, "is more than 67108864 packets"),
    ],
)
def test_bad_input_ends_with_one_line(program: Path, change: dict[str, str | int | None], said: str) -> None:
    point = {name: value for name, value in (fitted() | change).items() if value is not None}
    done = called(program, text_of(point))
    assert done.returncode == 2 and not done.stdout
    assert said in done.stderr and done.stderr.count("\n") == 1


def test_a_parameter_may_be_given_once(program: Path) -> None:
    done = called(program, text_of(fitted()) + "flows 5\n")
    assert done.returncode == 2 and "flows is given twice" in done.stderr


@pytest.mark.parametrize("flags", [replay.FAST, replay.SANITIZED], ids=["fast", "sanitized"])
def test_parts_by_hand(flags: tuple[str, ...]) -> None:
    parts = model.compiled(flags, more=("tests/model/test_parts.c",), name="test-parts")
    done = subprocess.run(
        [parts], capture_output=True, text=True, check=False, timeout=60, env={"ASAN_OPTIONS": "detect_leaks=0"}
    )
    assert done.returncode == 0, done.stdout + done.stderr
    assert done.stdout.count("ok ") == 14


def test_without_an_iommu_nothing_is_walked_and_the_given_rate_arrives(program: Path) -> None:
    found = result(program, fitted(policy="kernel-off"))
    assert found["throughput_gbps"] == pytest.approx(97.6, rel=0.02)
    assert not found["counters"]["iotlb_misses_per_page"] and not found["counters"]["commands"]["page"]


def test_lost_acks_would_show(program: Path) -> None:
    """Each flow is told of what it has sent: nothing waits for a timeout, and each drop is sent again once."""
    found = result(program, fitted(flows=10, off_mbps=91500, time_ms=40))
    assert found["counters"]["resent_share"] == pytest.approx(found["drops_share"], rel=0.2)
    assert found["counters"]["acks_per_page"] > 1 / 64


def test_answers_to_the_requests_of_a_read_share_a_packet(program: Path) -> None:
    """Two requests of 8 KiB a page of 4 KiB each; reads of 64 KiB have an answer, and an ACK, for 16 pages."""
    point = fitted(policy="kernel-off", flows=10, request_bytes=8192, request_ns=100, read_bytes=65536)
    assert result(program, point)["counters"]["acks_per_page"] < 2 / 16 * 1.5


def test_a_read_that_opens_the_window_is_told(program: Path) -> None:
    """Else a flow whose window has closed while a hole was filled stops for ever."""
    point = described("machines/emerald-rapids-guest", "drivers/mlx5-6.0", "workloads/guest-iperf")
    point |= {"cores": 1, "queues": 1, "flows": 1, "ring": 512, "descriptor_packets": 16}
    assert result(program, point | {"policy": "kernel-strict", "seed": 1, "time_ms": 60})["throughput_gbps"] > 15


def test_strict_sends_a_command_for_each_unmap_and_exposes_nothing(program: Path) -> None:
    found = result(program, fitted(flows=20, off_mbps=87600))
    counters = found["counters"]
    assert counters["inv_per_page"] == 1 and counters["commands"]["page"] == counters["pages_unmapped"]
    assert found["exposure_us"]["max"] == 0


def test_blocks_need_a_command_for_64_pages(program: Path) -> None:
    point = fitted() | described("drivers/fands-6.0")
    counters = result(program, point)["counters"]
    acks = counters["acks_per_page"]
    blocks = counters["unmapped_per_page"] - acks
    assert counters["inv_per_page"] == pytest.approx((blocks / 64 + acks) / (blocks + acks), rel=0.02)
    assert not counters["l1_misses_per_page"]


def test_a_poll_needs_one_domain_command(program: Path) -> None:
    point = fitted(flows=20, off_mbps=87600) | described("drivers/xsmmu-6.0")
    counters = result(program, point)["counters"]
    assert 0 < counters["commands"]["domain"] <= counters["polls_per_page"] * counters["pages"] * 1.01


@pytest.mark.parametrize("policy", ["kernel-lazy", "strict", "lazy", "fands", "xsmmu", "fused", "copy"])
@pytest.mark.parametrize("driver", ["none", "mlx5_cache", "page_pool", "large_pages"])
def test_each_policy_runs_with_each_driver(program: Path, policy: str, driver: str) -> None:
    for ending in ("", "-direct", "-aware") if not policy.startswith("kernel") else ("",):
        found = result(program, fitted(policy=f"{policy}{ending}", driver=driver, time_ms=8))
        assert found["throughput_gbps"] > 1
        assert sum(found["limits"].values()) == pytest.approx(1, abs=0.1)


def test_windows_bound_exposure(program: Path) -> None:
    lazy = result(program, fitted(policy="kernel-lazy"))["exposure_us"]
    fused = result(program, fitted(policy="fused", driver="none"))["exposure_us"]
    assert 0 < fused["max"] <= 1100 < lazy["max"] <= 21000


def sending(**others: str | int) -> Point:
    """A machine that sends and receives no data."""
    return fitted(flows=0, send_flows=5, off_mbps=0) | others


def test_a_sent_segment_is_three_ranges_of_17_pages(program: Path) -> None:
    """A head, and two fragments of 32 KiB: strict flushes each, xSMMU's rule all at once."""
    strict = result(program, sending())
    assert strict["transmit_gbps"] > 20 and not strict["throughput_gbps"]
    assert strict["counters"]["inv_per_page"] == pytest.approx(3 / 17, rel=0.01)
    together = result(program, sending(send_together=2))
    assert together["counters"]["inv_per_page"] == pytest.approx(1 / 17, rel=0.01)
    assert together["counters"]["commands"]["page"] == 0


def test_a_machine_that_only_sends_has_limits(program: Path) -> None:
    full = result(program, sending(policy="kernel-off", cores=10, queues=10, send_flows=10))
    assert max(full["limits"], key=full["limits"].__getitem__) == "link"
    small = result(program, sending(policy="kernel-off", window_bytes=131072, base_rtt_ns=1000000))
    assert max(small["limits"], key=small["limits"].__getitem__) == "sender"
    assert full["counters"]["pages"] > 0 == small["counters"]["iotlb_misses_per_page"]


def test_full_links_of_drives_limit(program: Path) -> None:
    found = result(program, stored(policy="kernel-off", drive_mbps=8000))
    assert found["limits"]["pcie"] > 0.9


def test_sent_data_take_walks_from_received_data(program: Path) -> None:
    """Reads have many translations under way and writes a few, so received data lose."""
    point = fitted(off_mbps=0, cores=10, queues=10, send_flows=5, walkers=4)
    alone = result(program, point | {"send_flows": 0})["throughput_gbps"]
    both = result(program, point)
    assert both["throughput_gbps"] < 0.7 * alone and both["transmit_gbps"] > both["throughput_gbps"]


def stored(**others: str | int) -> Point:
    """Two drives."""
    point = fitted(flows=0, cores=4, queues=1, driver="none", jobs=4, depth=32, block_bytes=4096, moderation_ns=0)
    point |= {"drives": 2, "drive_parallel": 64, "drive_service_ns": 50000, "drive_mbps": 28000, "pcie_mbps": 100000}
    return point | {"io_submit_ns": 500, "io_complete_ns": 500, "time_ms": 10} | others


def test_requests_of_drives(program: Path) -> None:
    """64 requests of 50 us under way at each of two drives."""
    off = result(program, stored(policy="kernel-off"))
    assert off["kiops"] == pytest.approx(128 / 50 * 1000 * 0.5, rel=0.5)
    assert off["throughput_gbps"] == pytest.approx(off["kiops"] * 4096 * 8 / 1e6, rel=0.01)
    strict = result(program, stored(cores=1))
    assert strict["counters"]["inv_per_page"] == 1
    assert strict["kiops"] < result(program, stored(cores=1, policy="kernel-lazy"))["kiops"]


def test_a_batch_of_requests_is_flushed_once(program: Path) -> None:
    strict = result(program, stored(cores=1, policy="strict"))
    batch = result(program, stored(cores=1, policy="fused-aware"))
    assert batch["counters"]["inv_per_page"] < 0.5 < strict["counters"]["inv_per_page"]
    assert batch["kiops"] > strict["kiops"] and batch["exposure_us"]["max"] == 0


def test_a_translation_covers_a_large_page(program: Path) -> None:
    """ACKs alone are unmapped, and 5 rings of 512 pages are in few large ones."""
    small = result(program, fitted(policy="kernel-lazy", driver="page_pool"))["counters"]
    large = result(program, fitted(policy="kernel-lazy", driver="large_pages"))["counters"]
    assert large["unmapped_per_page"] == pytest.approx(large["acks_per_page"], rel=0.05)
    assert large["iotlb_misses_per_page"] < 0.35 < 1 < small["iotlb_misses_per_page"]
    assert large["reads_per_page"] < small["reads_per_page"] / 3


def test_a_lock_of_all_maps_bounds_the_rate(program: Path) -> None:
    found = result(program, stored(map_lock_ns=2000, policy="kernel-lazy"))
    assert found["kiops"] == pytest.approx(500, rel=0.03)


@pytest.mark.parametrize(
    "policy", ["kernel-off", "kernel-lazy", "strict", "lazy", "fused-aware", "fused-direct", "copy"]
)
def test_each_policy_runs_with_drives(program: Path, policy: str) -> None:
    found = result(program, stored(policy=policy, block_bytes=131072))
    assert found["kiops"] > 10
    assert sum(found["limits"].values()) == pytest.approx(1, abs=0.1)


def test_a_collapse_needs_a_lock_that_grows(program: Path) -> None:
    point = fitted(driver="none", flows=40, off_mbps=0)
    without = result(program, point)
    grown = result(program, point | {"lock_waiter_ns": 5000})
    assert grown["throughput_gbps"] < 0.7 * without["throughput_gbps"]
    assert grown["lock_share"] > without["lock_share"]


def test_the_same_point_has_the_same_bytes(program: Path) -> None:
    text = text_of(fitted())
    first, again = called(program, text), called(program, text)
    assert first.returncode == 0 and first.stdout == again.stdout
    assert json.loads(first.stdout)["seed"] == 1
