# SPDX-License-Identifier: GPL-2.0-only
"""`xsmmu report` on a made-up machine: the contents of a bundle, and the omissions."""

from __future__ import annotations

import hashlib
import json
import os
import tarfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from tests.python import documents as json_documents
from tests.python import fake_kernel
from tests.python.fake_kernel import Kernel, Refuses, fails, run
from tests.python.sysfs import IGB, Machine

from xsmmu import __version__
from xsmmu.scrub import Scrub

SECRETS = {
    "proc/sys/kernel/hostname": "kestrel.example",
    "sys/class/dmi/id/product_serial": "PF2ABCDE",
    "sys/class/nvme/nvme9/serial": "S4EWNX0R",
    "sys/class/block/sdx/device/wwid": "naa.5002538e4",
    "sys/class/block/vdx/serial": "WD 9  Z",
}
RESULT = {
    "schema": "xsmmu.compare/1",
    "command": ["iperf3", "-c", "192.168.7.9", "-B", "fe80::1:2", "kestrel"],
    "folder": "/home/alice/out",
    "note": "enx0011aabbccdd is 00:11:aa:BB:cc:dd, on kestrel.example, disk S4EWNX0R, device 0000:01:00.0, 6.12.118",
    "ranking": [],
}


@pytest.fixture(name="kernel")
def _kernel(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Kernel]:
    monkeypatch.setenv("XSMMU_BOOT", str(tmp_path / "boot"))
    monkeypatch.setenv("XSMMU_MODULES", str(tmp_path / "modules"))
    monkeypatch.chdir(tmp_path)
    described = Machine(tmp_path)
    (tmp_path / "sysfs").rename(tmp_path / "sys")
    described.cmdline("intel_iommu=on", "xsmmu.rules=*=strict", "mitigations=off", "root=UUID=0123-4567")
    described.write("proc/cpuinfo", "model name\t: Made up\nflags\t\t: fpu hypervisor\n")
    described.write("proc/meminfo", "MemTotal:       65809612 kB")
    for name, word in SECRETS.items():
        described.write(name, word)
    (tmp_path / "sys/class/block/sdx/device/vpd_pg80").write_bytes(b"\0\x80\0\x14      WD-WCC6Y3A1BCD2")
    (tmp_path / "compare").mkdir()
    (tmp_path / "compare/result.json").write_text(json.dumps(RESULT))
    runs = [{"schema": "xsmmu.compare-setup/1"}, {"schema": "xsmmu.compare-run/1", "wall_s": 1.5}]
    (tmp_path / "compare/runs.jsonl").write_text("".join(f"{json.dumps(row)}\n" for row in runs))
    (tmp_path / "compare/001-fused.out").write_text("not packed")
    (tmp_path / "bench.json").write_text('{"schema": "xsmmu.bench/1", "ranking": []}')
    with fake_kernel.booted(tmp_path, monkeypatch) as made:
        yield made


def unpacked(bundle: Path) -> dict[str, bytes]:
    with tarfile.open(bundle, "r:xz") as tar:
        members = tar.getmembers()
        assert {(each.uid, each.gid, each.uname, each.gname, each.mode) for each in members} == {(0, 0, "", "", 0o644)}
        files = {each.name: tar.extractfile(each) for each in members}
        return {name.partition("/")[2]: file.read() for name, file in files.items() if file}


@pytest.mark.usefixtures("kernel")
def test_what_is_in_a_bundle(tmp_path: Path) -> None:
    (tmp_path / "state").mkdir()
    (tmp_path / "state/bench.json").write_text('{"schema": "xsmmu.bench/1", "saved": true}')
    said = json.loads(run("report", "--bundle", "--output-file", "a.tar.xz", "bench.json", "compare", "-o", "json"))
    assert (said["schema"], said["bundle"]) == ("xsmmu.report/1", "a.tar.xz")
    files = unpacked(tmp_path / "a.tar.xz")
    manifest = json.loads(files.pop("manifest.json"))
    assert (manifest["schema"], manifest["files"]) == ("xsmmu.report-manifest/1", said["files"])
    assert {row["name"]: (row["bytes"], row["sha256"]) for row in manifest["files"]} == {
        name: (len(content), hashlib.sha256(content).hexdigest()) for name, content in files.items()
    }
    assert {row["name"]: row["document"] for row in manifest["files"]} == {
        "machine.json": "xsmmu.machine/1",
        "status.json": "xsmmu.status/1",
        "doctor.json": "xsmmu.doctor/1",
        "saved-bench.json": "xsmmu.bench/1",
        "results/01-bench.json": "xsmmu.bench/1",
        "results/02-result.json": "xsmmu.compare/1",
        "results/03-runs.jsonl": "xsmmu.compare-setup/1",
    }
    assert json.loads(files["status.json"])["devices"][0]["device"] == IGB
    assert json.loads(files["saved-bench.json"])["saved"] is True
    # Removing names leaves the files valid documents.
    for name in ("machine", "status", "doctor"):
        json_documents.read(files[f"{name}.json"].decode())
    assert [json.loads(line)["schema"][-5:] for line in files["results/03-runs.jsonl"].splitlines()] == [
        "tup/1",
        "run/1",
    ]


@pytest.mark.usefixtures("kernel")
def test_a_saved_result_that_is_named_is_packed_once(tmp_path: Path) -> None:
    (tmp_path / "state").mkdir()
    (tmp_path / "state/bench.json").write_text('{"schema": "xsmmu.bench/1"}')
    rows = json.loads(run("report", "state/bench.json", "-o", "json"))["files"]
    assert [row["name"] for row in rows if row["document"] == "xsmmu.bench/1"] == ["results/01-bench.json"]


@pytest.mark.usefixtures("kernel")
def test_the_machine(tmp_path: Path) -> None:
    run("report", "--bundle", "--output-file", "a.tar.xz")
    found: dict[str, Any] = json.loads(unpacked(tmp_path / "a.tar.xz")["machine.json"])
    expected = {
        "schema": "xsmmu.machine/1",
        "tool": __version__,
        "module": __version__,
        "kernel": Machine.RELEASE,
        "processor": "Made up",
        "hypervisor": True,
        "command_line": ["intel_iommu=on", "xsmmu.rules=*=strict", "mitigations=off"],
        "memory_gib": 63,
        "iommus": [{"kind": "Intel VT-d", "version": None, "cap": "d2008c222f0606", "ecap": "f00f4a"}],
    }
    assert {name: found[name] for name in expected} == expected


@pytest.mark.usefixtures("kernel")
def test_nothing_says_which_machine_it_was(tmp_path: Path) -> None:
    said = run("report", "--bundle", "--output-file", "a.tar.xz", "compare")
    files = unpacked(tmp_path / "a.tar.xz")
    whole = b"\n".join(files.values()).decode()
    for secret in ("kestrel", "PF2", "S4EW", "aabbcc", "BB:cc", "192.168", "fe80", "alice", "UUID", "not packed"):
        assert secret not in whole, secret
    assert json.loads(files["results/01-result.json"]) == {
        **RESULT,
        "command": ["iperf3", "-c", "IP", "-B", "IP", "HOST"],
        "folder": "/home/USER/out",
        "note": "NAMED-BY-MAC is MAC, on HOST, disk SERIAL, device 0000:01:00.0, 6.12.118",
    }
    assert "removed: 2 of HOST, 2 of IP, 1 of MAC, 1 of NAMED-BY-MAC, 1 of SERIAL, 1 of USER" in said


@pytest.mark.usefixtures("kernel")
@pytest.mark.parametrize(
    ("text", "clean"),
    [
        ("0000:01:00.0 01:00.0 8086:10c9 class:0108", None),
        ("6.12.118+deb13-amd64 1.2.3 1.2.3.4.5", None),
        ("12:30:01 :: 12::34 dead::beef ::1 std::vector cafe::", None),
        ("2001:db8::7 and fd00::1.", "IP and IP."),
        ("no route to 10.0.0.1. fe80::1:/tmp", "no route to IP. IP:/tmp"),
        ("/dev/disk/by-id/nvme-Made_Up_980_S4EWNX0R-part1", "/dev/disk/by-id/nvme-Made_Up_980_SERIAL-part1"),
        ("nvme-Made_Up_S4EWNX0R_1 xS4EWNX0R", "nvme-Made_Up_SERIAL_1 xS4EWNX0R"),
        ("wwn-0x5002538e4 ata-Made_Up_WD_9_Z wwn-0x5002538e41", "wwn-SERIAL ata-Made_Up_SERIAL wwn-0x5002538e41"),
        ("scsi-35002538e4-part1 scsi-45002538e4", "scsi-SERIAL-part1 scsi-45002538e4"),
        ("/dev/disk/by-id/ata-Made_Up_WD-WCC6Y3A1BCD2-part1", "/dev/disk/by-id/ata-Made_Up_SERIAL-part1"),
        ("10.0.0.1:80 10.0.0.1/24", "IP:80 IP/24"),
        ("00-11-22-33-44-55 001122334455", "MAC 001122334455"),
        ("80:00:02:08:fe:80:00:00:00:00:00:00:e4:1d:2d:03:00:aa:bb:cc", "MAC"),
        ("kestrels kestrel-2 xkestrel kestrel's", "kestrels kestrel-2 xkestrel HOST's"),
        ("Kestrel KESTREL.example s4ewnx0r WWN-0X5002538E4", "HOST HOST SERIAL WWN-SERIAL"),
        ("v10.2.3.4 version 10.2.3.4 Version 1.2.3.4 10.2.3.4+dfsg 10.2.3.4~bpo 10.2.3.4rc1 x10.2.3.4", None),
        ("ssh://10.2.3.4/ log_10.2.3.4.txt (10.2.3.4) ip-10.2.3.4-eth0", "ssh://IP/ log_IP.txt (IP) ip-IP-eth0"),
        ("fe80::a%eth0 ff02::1 ::ffff:a02:304 64:ff9b::a02:304", "IP%eth0 IP IP IP"),
        ("luks-3b1fd1a2-0c5b-4e0a-9d57-0123456789ab", "luks-UUID"),
        ("{3B1FD1A2-0C5B-4E0A-9D57-0123456789AB} 3b1fd1a20c5b4e0a9d570123456789ab", "{UUID} UUID"),
        ("root=UUID=0123-ABCD PARTUUID=3b1fd1a2-02", "root=UUID=UUID PARTUUID=UUID"),
        ("d41d8cd98f00b204e9800998ecf8427e0 3b1fd1a2-0c5b-4e0a-9d57 UUID= 8086:10d3:8086:a01f", None),
        ("iqn.2004-10.com.ubuntu:01:5f2c.", "IQN."),
        ("nqn.2014-08.org.nvmexpress:uuid:3b1fd1a2-0c5b-4e0a-9d57-0123456789ab x", "IQN x"),
        ("/home/bob /home/", "/home/USER /home/"),
        ("/home/b.o-b/out '/home/bob'", "/home/USER/out '/home/USER'"),
    ],
)
def test_words_that_look_alike(text: str, clean: str | None) -> None:
    assert Scrub().text(text) == (clean or text)


@pytest.mark.usefixtures("kernel")
@pytest.mark.parametrize(
    "file",
    [
        "class/dmi/id/board_serial",
        "class/dmi/id/chassis_serial",
        "class/dmi/id/chassis_asset_tag",
        "class/dmi/id/board_asset_tag",
        "class/infiniband/mlx5_0/node_guid",
        "class/dmi/id/product_uuid",
        "class/nvme/nvme9/serial",
        "class/nvme-subsystem/nvme-subsys9/subsysnqn",
        "class/block/sda/device/serial",
        "class/block/sda/device/wwid",
        "class/block/nvme9n1/wwid",
        "class/block/nvme9n1/eui",
    ],
)
def test_each_number_that_no_other_machine_has(tmp_path: Path, file: str) -> None:
    place = tmp_path / "sys" / file
    place.parent.mkdir(parents=True, exist_ok=True)
    place.write_text("naa.5000c500a1b2c3d4\n")
    assert Scrub().text("disk naa.5000c500a1b2c3d4 of two") == "disk SERIAL of two"


ORDINARY = (
    *("0", "n/a", "None", "none", "Not Specified", "To Be Filled By O.E.M.", "Default string", "System Serial Number"),
    *(
        "Chassis Serial Number",
        "INVALID",
        "Not Applicable",
        "unknown",
        "fused",
        "strict",
        "copy",
        "deadbeef",
        "xxxxxxxx",
    ),
    *("0000", "1234", "12345", "00000000", "0123456789", "123456789", "1234567890", "23456789", "............", "6.12"),
    *("6.12.118", "1.0.0", "nvme0n1", "eth1", "igb"),
)


@pytest.mark.usefixtures("kernel")
@pytest.mark.parametrize(
    ("number", "text", "clean"),
    [
        ("eui.0025385b1", "nvme-eui.0025385b1 0025385b1", "nvme-SERIAL SERIAL"),
        ("uuid.6f1b-22", "nvme-uuid.6f1b-22 6f1b-22", "nvme-SERIAL SERIAL"),
        ("t10.ATA  MODEL  S1", "disk t10.ATA_MODEL_S1", "disk SERIAL"),
        ("ab12", "disk ab12", "disk SERIAL"),
        # Placeholders and ordinary words.
        *((word, f"disk {word}", f"disk {word}") for word in ORDINARY),
    ],
)
def test_a_number_and_its_kind(tmp_path: Path, number: str, text: str, clean: str) -> None:
    (tmp_path / "sys/class/block/sdx/device/wwid").write_text(f"{number}\n")
    assert Scrub().text(text) == clean


@pytest.mark.usefixtures("kernel")
@pytest.mark.parametrize("name", ["", "(none)", "localhost", "localhost.localdomain"])
def test_a_name_that_every_machine_may_have(tmp_path: Path, name: str) -> None:
    (tmp_path / "proc/sys/kernel/hostname").write_text(f"{name}\n")
    assert Scrub().text("of (none) at localhost: none") == "of (none) at localhost: none"


@pytest.mark.usefixtures("kernel")
@pytest.mark.parametrize("name", ["strict", "debian", "igb", "none", "lazy", "fused", "amd64", "q35", "dmar0"])
def test_a_name_that_is_an_ordinary_word(tmp_path: Path, name: str) -> None:
    """The name is removed from a user's own words, and from nothing else."""
    (tmp_path / "proc/sys/kernel/hostname").write_text(f"{name}\n")
    row = {"policy": name, "level": name, "kernel": f"6.12-{name}", "drivers": [name]}
    row |= {"subject": name, "names": [name], "command_line": [f"iommu.{name}=1"]}
    assert Scrub().value({**row, "command": ["ping", name]}) == {**row, "command": ["ping", "HOST"]}


@pytest.mark.usefixtures("kernel")
@pytest.mark.parametrize("field", ["reason", "remedy", "message", "note"])
def test_a_reason_may_have_words_of_a_user(field: str) -> None:
    said = "nvme0n1 (S4EWNX0R) is mounted on /srv/acme.kestrel.example"
    assert Scrub().value({field: said}) == {field: "nvme0n1 (SERIAL) is mounted on /srv/acme.HOST"}


def test_a_report_says_nothing_of_mounts_and_programs(kernel: Kernel, tmp_path: Path) -> None:
    """Also of a passthrough group whose disk is in use."""
    (tmp_path / "sys/kernel/iommu_groups/13/type").write_text("identity\n")
    (tmp_path / "proc/self").mkdir(parents=True, exist_ok=True)
    mount = "22 1 259:0 / /srv/acme-merger-kestrel.example rw - ext4 /dev/nvme0n1 rw\n"
    (tmp_path / "proc/self/mountinfo").write_text(mount)
    run("report", "--bundle", "--output-file", "a.tar.xz")
    whole = b"\n".join(unpacked(tmp_path / "a.tar.xz").values()).decode()
    assert "group-type" in whole
    for secret in ("acme", "merger", "kestrel"):
        assert secret not in whole
    assert not kernel.writes


@pytest.mark.usefixtures("kernel")
def test_a_uuid_of_the_board_is_known_without_dashes(tmp_path: Path) -> None:
    (tmp_path / "sys/class/dmi/id/product_uuid").write_text("4c4c4544-0042-3510-8058-b4c04f564432\n")
    for word in ("4c4c4544-0042-3510-8058-b4c04f564432", "4c4c4544004235108058b4c04f564432"):
        assert Scrub().text(f"disk x{word} of {word}").rpartition(" ")[2] in ("SERIAL", "UUID")


@pytest.mark.usefixtures("kernel")
def test_what_looks_like_an_address_stays_where_none_can_be() -> None:
    row = {"module": "1.2.3.4", "kernel": "5.4.0.1", "processor": "E5 v2 @ 10.0.0.1", "schema": "xsmmu.x/1"}
    assert Scrub().value(row) == row
    assert Scrub().value({"reason": "enx001122334455 at 10.0.0.1"}) == {"reason": "NAMED-BY-MAC at IP"}
    for kind in ("en", "wl", "ww", "sl", "ib"):
        assert Scrub().value([f"{kind}x001122334455 is down"], "reason") == ["NAMED-BY-MAC is down"]
    assert Scrub().text("300.1.2.3 1.2.3.256 255.1.2.3") == "300.1.2.3 1.2.3.256 IP"


@pytest.mark.usefixtures("kernel")
def test_names_of_files_and_lines_say_nothing_either(tmp_path: Path) -> None:
    row = {"schema": "xsmmu.status/1", "note": "on kestrel"}
    (tmp_path / "kestrel.jsonl").write_text(f"{json.dumps(row)}\n" * 2)
    run("report", "--bundle", "--output-file", "a.tar.xz", "kestrel.jsonl")
    files = unpacked(tmp_path / "a.tar.xz")
    assert [json.loads(line)["note"] for line in files["results/01-HOST.jsonl"].splitlines()] == ["on HOST"] * 2
    assert "kestrel" not in b"\n".join([*map(str.encode, files), *files.values()]).decode()


def test_only_said(kernel: Kernel, tmp_path: Path) -> None:
    before = {*tmp_path.iterdir()}
    rows = [line.split() for line in run("report", "bench.json").splitlines()]
    assert [row[0] for row in rows[:5]] == [
        "file",
        "machine.json",
        "status.json",
        "doctor.json",
        "results/01-bench.json",
    ]
    assert " ".join(rows[-1]) == "nothing was written: add --bundle"
    assert {*tmp_path.iterdir()} == before
    assert not kernel.writes


@pytest.mark.usefixtures("kernel")
def test_a_bundle_is_not_written_over(tmp_path: Path) -> None:
    run("report", "--bundle")
    [bundle] = tmp_path.glob("xsmmu-report-*.tar.xz")
    content = bundle.read_bytes()
    error = fails("report", "--bundle", "--output-file", bundle.name)
    assert (error.code, error.message) == ("file-exists", f"{bundle.name} exists already: name another --output-file")
    assert bundle.read_bytes() == content


@pytest.mark.usefixtures("kernel")
def test_nothing_is_left_of_one_that_fails(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def full(*_arguments: object) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(tarfile.TarFile, "addfile", full)
    error = fails("report", "--bundle", "--output-file", "a.tar.xz")
    assert (error.code, error.message) == (
        "cannot-write",
        "cannot write a.tar.xz: No space left on device: name another --output-file",
    )
    assert not (tmp_path / "a.tar.xz").exists()


@pytest.mark.usefixtures("kernel")
def test_what_bench_prints_is_taken(tmp_path: Path) -> None:
    (tmp_path / "lines.jsonl").write_text(run("status", "-o", "jsonl"))
    assert "results/01-lines.jsonl  xsmmu.status/1" in run("report", "lines.jsonl")


BAD = [
    (["nothing.json"], (1, "no-file", "nothing.json does not exist")),
    (["state"], (1, "no-file", "state has no result.json")),
    (["words"], (1, "bad-value", "words is no result (Expecting value")),
    (["empty"], (1, "bad-value", "empty is no result (empty file)")),
    (["other"], (1, "bad-value", "other is no result (unknown schema xsmmu.set/1)")),
    (["none"], (1, "bad-value", "none is no result (no schema)")),
    (["list"], (1, "bad-value", "list is no result (no schema)")),
    (["deep"], (1, "bad-value", "deep is no result (maximum recursion depth")),
    (["deep-result"], (1, "bad-value", "deep-result is no result (maximum recursion depth")),
    (["bytes"], (1, "bad-value", "bytes is no result (")),
    (["pipe"], (1, "bad-value", "pipe is no result (not a regular file)")),
    (["/dev/null"], (1, "bad-value", "/dev/null is no result (not a regular file)")),
    (["huge"], (1, "bad-value", "huge is no result (1e999 is no number)")),
    (["nan"], (1, "bad-value", "nan is no result (-Infinity is no number)")),
    (["most"], (1, "bad-value", "most is no result (Expecting value")),
    (["large"], (1, "bad-value", "large is no result (more than 16 MiB)")),
    (["--output-file", "a.tar.xz"], (2, "usage", "--output-file needs --bundle")),
    (["--bundle", "--output-file", "a.zip"], (1, "bad-value", "does not end with .tar.xz")),
    (["--bundle", "--output-file", "blocked/a.tar.xz"], (1, "cannot-write", "cannot write blocked/a.tar.xz")),
]


@pytest.mark.parametrize(("words", "expected"), BAD, ids=[" ".join(case[0]) for case in BAD])
def test_bad_input(tmp_path: Path, refuses: Refuses, words: list[str], expected: tuple[int, str, str]) -> None:
    (tmp_path / "state").mkdir()
    for name, text in {
        "words": "words",
        "empty": "",
        "other": '{"schema": "xsmmu.set/1"}',
        "none": "{}",
        "deep": "[" * 100_000,
        # Read by C code, which nests deeper than the code that removes names.
        "deep-result": f'{{"schema": "xsmmu.bench/1", "x": {"[" * 600}{"]" * 600}}}',
        "list": "[1]",
        "huge": '{"schema": "xsmmu.bench/1",\n"rounds": 1e999}',
        "nan": '{"schema": "xsmmu.bench/1"}\n{"schema": "xsmmu.bench/1", "rounds": -Infinity}',
    }.items():
        (tmp_path / name).write_text(text)
    (tmp_path / "bytes").write_bytes(b"\xff\xfe")
    os.mkfifo(tmp_path / "pipe")
    for name, more in (("most", 0), ("large", 1)):
        with (tmp_path / name).open("wb") as file:
            file.truncate((16 << 20) + more)
    refuses(["report", *words], expected)
    assert not [*tmp_path.glob("*.tar.xz")]
