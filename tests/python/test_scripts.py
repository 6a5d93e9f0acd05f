# SPDX-License-Identifier: GPL-2.0-only
"""The guests' scripts, run by dash in a made-up tree: the lab's, and the expectations of guest tests."""

from __future__ import annotations

import re
import subprocess
from pathlib import Path

import pytest

from xsmmu_lab.project import PROJECT
from xsmmu_lab.vm.guest import FAULTS_ARE

BDF = "0000:02:00.0"
COUNTS = {
    "live_pages": 0,
    "held_pages": 0,
    "flushed_pages": 5,
    "deferred_pages": 5,
    "unmapped_pages": 7,
    "mapped_pages": 7,
    "copied_unmaps": 2,
    "copied_maps": 2,
    "map_failures": 0,
}


@pytest.fixture
def tree(tmp_path: Path) -> Path:
    """The root of a guest: /lab, /sys, /tmp, and a serial port's registers."""
    for name in ("lab/parts", "sys/bus/pci/devices", "tmp"):
        (tmp_path / name).mkdir(parents=True)
    (tmp_path / "port").write_bytes(bytes(16))
    (tmp_path / "lab/bytes").write_bytes(bytes(range(256)))
    (tmp_path / "lab/arch.sh").write_text(f"console=/dev/null\nmarker_file={tmp_path}/port\nmarker_register=7\n")
    for name in ("lib.sh", "parts/net.sh", "parts/testdev.sh"):
        (tmp_path / "lab" / name).write_text(inside(tmp_path, PROJECT / "lab/guest" / name))
    return tmp_path


def inside(tree: Path, script: Path) -> str:
    """A script with its paths moved into the tree; a name that follows a variable is no such path."""
    text = re.sub(r"(?<![\w}*])/(lab|sys|tmp|proc)/", rf"{tree}/\1/", script.read_text())
    return text.replace(">/dev/kmsg", f">>{tree}/kmsg")


HARMLESS = "".join(f"{name}() {{ exit 1; }}\n" for name in ("poweroff", "rmmod", "insmod", "modprobe"))
"""An unexpected action of a script does nothing to the host."""


def run(script: str) -> str:
    command = ["dash", "-c", HARMLESS + script]
    done = subprocess.run(command, capture_output=True, text=True, timeout=60)
    assert done.returncode == 0, done.stderr
    return done.stdout


# ---- the lab's ----


def lab(tree: Path, script: str) -> str:
    """The output, results included; a failure is printed and ends the script."""
    head = f". {tree}/lab/lib.sh; . {tree}/lab/parts/net.sh; . {tree}/lab/parts/testdev.sh; exec 3>&1\n"
    head += "ip() { exit 1; }\n"
    return run(head + 'fail() { echo "FAIL $*"; exit 0; }\nsettle() { :; }\n' + script)


def device(tree: Path, name: str, group: str | None) -> Path:
    folder = tree / "sys/bus/pci/devices" / name
    folder.mkdir()
    if group:
        (tree / f"groups/{group}").mkdir(parents=True, exist_ok=True)
        (tree / f"groups/{group}/type").write_text("DMA-FQ\n")
        (folder / "iommu_group").symlink_to(tree / f"groups/{group}")
    return folder


def test_each_marker_is_the_byte_after_the_last_one(tree: Path) -> None:
    script = f"for _ in $(seq 300); do mark; tail -c +8 {tree}/port | head -c 1 | od -An -tu1; done"
    assert [int(each) for each in lab(tree, script).split()] == [each & 0xFF for each in range(1, 301)]


def test_nothing_of_the_last_line_is_left(tree: Path) -> None:
    (tree / "two").write_text("one\ntwo\n")
    (tree / "open").write_text("no end")
    script = "".join(f'line_of {tree}/{name} 2>/dev/null; echo "<$line>"\n' for name in ("two", "none", "open"))
    assert lab(tree, script) == "<one>\n<>\n<no end>\n"


@pytest.mark.parametrize(
    ("timers", "idle_ns"),
    [
        (".idle_sleeptime : 300 nsecs\n.iowait_sleeptime : 20 nsecs\n.idle_sleeptime : 4 nsecs\n", 324),
        # In ticks, if the kernel shows no more.
        (".nr_events : 5\n", 170_000_000),
    ],
)
def test_without_the_labs_module_timers_tell_the_time(timers: str, idle_ns: int, tree: Path) -> None:
    (tree / "proc").mkdir()
    (tree / "proc/stat").write_text("cpu  1 2 3 12 5 6\ncpu0 9 9 9 9 9 9\n")
    (tree / "proc/timer_list").write_text(f"Timer List Version: v0.9\nnow at 1234567890123 nsecs\n{timers}")
    assert lab(tree, 'clock; echo "$now_ns $idle_ns"') == f"1234567890123 {idle_ns}\n"
    folder = tree / "sys/kernel/debug/xsmmu_lab"
    folder.mkdir(parents=True)
    (folder / "clock").write_text("55 44\n")
    assert lab(tree, 'clock; echo "$now_ns $idle_ns"') == "55 44\n"


def test_which_faults_are_expected_is_in_the_log_that_has_them(tree: Path) -> None:
    assert lab(tree, "faults_are expected; faults_are unexpected") == ""
    lines = (tree / "kmsg").read_text().splitlines()
    # An error to the kernel, as are faults; the kernel puts the time before the rest.
    found = [FAULTS_ARE.search(line.replace("<3>", "[    1.000000] ", 1)) for line in lines]
    assert [each and each[2] for each in found] == ["expected", "unexpected"]


def test_the_time_of_a_run_is_that_of_its_work_between_markers(tree: Path) -> None:
    script = """
    at=0
    mark() { marker=$((marker + 1)); echo "mark at $at"; }
    settle() { at=$((at + 1000)); }
    clock() { now_ns=$at idle_ns=$((at / 2)); }
    snapshot() { printf '"%s"' $at; }
    prepare() { at=$((at + 100)); }
    job() { at=$((at + 10)); echo '{}'; }
    run 3 job
    """
    *marks, record = [line for line in lab(tree, script).splitlines() if "start" not in line]
    assert marks == ["mark at 1100", "mark at 2110"]
    assert '"markers":[1,2],"elapsed_ns":10,"idle_ns":5,"before":"1100","after":"2110","output":{}' in record


def test_a_warm_up_alone_is_less_than_what_is_measured(tree: Path) -> None:
    script = """
    iperf3() { echo "iperf3 $*" >&3; echo '{}'; }
    iperf_server() { net_server=; }
    snapshot() { printf null; }
    clock() { now_ns=1 idle_ns=1; }
    kill() { return 1; }
    net_number=1
    for each in rx tx; do
        warm 1 net_$each streams=4 seconds=1 buffer=256K
        run 1 net_$each streams=4 seconds=1 buffer=256K
    done
    """
    asked = [line for line in lab(tree, script).splitlines() if line.startswith("iperf3")]
    fixed, less, timed = "iperf3 -c 10.0.1.2 -P 4 -w 256K -J", "-n 16M -i 0.1", "-t 1 -i 0"
    assert asked == [f"{fixed} {less} -R", f"{fixed} {timed} -R", f"{fixed} {less}", f"{fixed} {timed}"]


def test_a_test_ends_with_its_server(tree: Path) -> None:
    """The server's remaining work for the test is the test's."""
    script = """
    iperf3() { echo tested; }
    kill() { echo "$*" >&3; left=$((left - 1)); [ $left -gt 0 ]; }
    sleep() { echo "sleep $*"; }
    net_number=1 net_server=77 left=3 arg_seconds=1
    net_tx
    """
    look = "-0 77"
    assert lab(tree, script).splitlines() == ["tested", look, "sleep 0.001", look, "sleep 0.001", look]


def test_what_is_read_meanwhile_is_of_a_whole_test(tree: Path) -> None:
    script = """
    iperf3() { echo "iperf3 $*" >&3; }
    snapshot() { printf 1; }
    sleep() { return 1; }
    kill() { return 1; }
    net_number=1 arg_streams=4 arg_seconds=1 arg_buffer=256K arg_interval_s=0.2
    net_window
    """
    assert lab(tree, script) == 'iperf3 -c 10.0.1.2 -P 4 -w 256K -J -t 1 -i 0 -R\n{"samples":[1]}'


@pytest.mark.parametrize("direction", ["rx", "tx"])
def test_packets_are_those_that_were_counted_meanwhile(direction: str, tree: Path) -> None:
    for name in ("rx_packets", "tx_packets"):
        (tree / name).write_text("1000\n")
    script = f"""
    counter() {{ line_of {tree}/$1; }}
    pktgen() {{ echo 1050 >{tree}/tx_packets; sent_us=77; }}
    ip() {{ echo 1050 >{tree}/rx_packets; echo 77 >{tree}/tmp/sent_us; }}
    net_number=1 net_link=eth net_mac=mac arg_packets=50 line=3
    pps_{direction}
    """
    assert lab(tree, script) == '{"packets":50,"sent_us":77}'


@pytest.mark.parametrize(("text", "has"), [("1\n", "yes"), ("0\n", "no"), ("", "no"), (None, "no")])
def test_a_carrier(text: str | None, has: str, tree: Path) -> None:
    (tree / "sys/class/net/eth").mkdir(parents=True)
    if text is not None:
        (tree / "sys/class/net/eth/carrier").write_text(text)
    assert lab(tree, "line=1; has_carrier eth && echo yes || echo no") == f"{has}\n"


@pytest.mark.parametrize(
    ("names", "said"),
    [
        ("a", "up"),
        ("a b", "up"),
        ("a c", "FAIL a c must be one IOMMU group, and are several"),
        ("a b c", "FAIL a b c must be one IOMMU group, and are several"),
        ("c a", "FAIL c a must be one IOMMU group, and are several"),
        ("d", "FAIL d is not behind an IOMMU"),
    ],
)
def test_the_devices_of_a_session_are_one_group(names: str, said: str, tree: Path) -> None:
    for name, group in {"a": "1", "b": "1", "c": "2", "d": None}.items():
        device(tree, name, group)
    script = "policy_set() { type=DMA-FQ; }; device_bind() { :; }; lo_up() { echo up; }\n"
    assert lab(tree, f"{script}session_open kernel-lazy lo unmodified {names}").splitlines()[-1] == said


def test_what_a_driver_got_is_what_was_asked_for(tree: Path) -> None:
    """The kernel falls back to DMA if it can have no flush queue."""
    device(tree, "a", "1")
    script = f"kind=DMA-FQ; lo_up() {{ echo up; }}; device_bind() {{ echo $kind >{tree}/groups/1/type; }}\n"
    opens = "session_open kernel-lazy lo unmodified a"
    assert lab(tree, script + opens).endswith("up\n")
    assert "FAIL a: group type became DMA, from DMA-FQ" in lab(tree, f"{script}kind=DMA; {opens}")


def test_a_policy_is_what_was_asked_for(tree: Path) -> None:
    folder = device(tree, "a", "1") / "xsmmu"
    folder.mkdir()
    (tree / "menu").write_text("none [strict] fused\n")
    # A file that accepts any word and does not change.
    script = f'line_of() {{ case $1 in */policy) read -r line <{tree}/menu ;; *) read -r line <"$1" ;; esac; }}\n'
    (folder / "policy").touch()
    words = {"strict": ("kernel\n", ""), "strict-direct": ("direct\n", "")}
    words |= {"strict-copy": ("kernel\n", "256\n"), "strict-copy-direct": ("direct\n", "256\n")}
    for word, tunables in words.items():
        (folder / "copy_bytes").write_text("")
        assert lab(tree, f"{script}policy_set {word} a; echo done") == "done\n"
        assert (folder / "policy").read_text() == "strict\n"
        assert ((folder / "tables").read_text(), (folder / "copy_bytes").read_text()) == tunables
    assert lab(tree, f"{script}policy_set fused a; echo done") == "FAIL a: policy is none [strict] fused, not fused\n"


def test_a_driver_is_of_the_kind_that_is_asked_for(tree: Path) -> None:
    kinds = "unmodified batch-aware batch-aware unmodified unmodified"
    script = f'rmmod() {{ :; }}; insmod() {{ echo "$1"; }}\nfor kind in {kinds}; do stock_or_patched igb $kind; done'
    assert lab(tree, script).split() == ["/modules/patched/igb.ko", "/modules/igb.ko"]


def test_a_link_that_does_not_come_up_says_what_is_wrong(tree: Path) -> None:
    script = "session_bdfs=a; ip() { return 1; }; has_carrier() { :; }\nnic_up 0"
    assert lab(tree, script) == "FAIL a: no network link\n"
    (tree / "sys/bus/pci/devices/a/net/eth").mkdir(parents=True)
    (tree / "sys/bus/pci/devices/a/net/eth/address").write_text("52:54:00:00:00:00\n")
    assert lab(tree, script) == "FAIL eth does not come up\n"


# ---- expectations of guest tests ----


@pytest.fixture
def files(tree: Path) -> Path:
    """The module's folder of the device BDF."""
    folder = tree / "sys/bus/pci/devices" / BDF / "xsmmu"
    (folder / "stats").mkdir(parents=True)
    for name, count in COUNTS.items():
        (folder / "stats" / name).write_text(f"{count}\n")
    for name, text in {"level": "held\n", "policy": "none [fused]\n", "note": " two\nlines"}.items():
        (folder / name).write_text(text)
    return folder


def said(tree: Path, script: str, log: str = "") -> list[str]:
    """The output, failures included; `log` has the kernel's messages after each mark."""
    (tree / "log").write_text(f"xsmmu: before\nlog mark 1\n{log}")
    lib = inside(tree, PROJECT / "tests/guest/lib.sh")
    stubs = f'failure() {{ echo "$*"; }}\ndmesg() {{ cat {tree}/log; }}\nlog_mark() {{ log_marks=1; }}\n'
    return run(f"TABLES= COPY=\n{lib}\n{stubs}log_mark\n{script}\n:").splitlines()


@pytest.mark.parametrize(
    ("script", "failures"),
    [
        ("expect_equal it one one", 0),
        ("expect_equal it '' ''", 0),
        ("expect_equal it one two", 1),
        ("expect_equal it '' one", 1),
        ("expect_equal it one ''", 1),
        ("expect it true", 0),
        ("expect it false", 1),
    ],
)
def test_expectations(script: str, failures: int, tree: Path) -> None:
    assert len(said(tree, script)) == failures


@pytest.mark.parametrize("name", COUNTS)
def test_each_count_of_the_balance(name: str, tree: Path, files: Path) -> None:
    assert said(tree, f"expect_balance {BDF}") == []
    (files / "stats" / name).write_text("1\n")
    assert len(said(tree, f"expect_balance {BDF}")) == 1
    (files / "stats" / name).unlink()
    assert any("cannot be read" in each for each in said(tree, f"expect_balance {BDF}"))


def test_maps_that_were_made_to_fail_are_no_failures(tree: Path, files: Path) -> None:
    (tree / f"tmp/map_failures.{BDF}").write_text("3\n")
    assert len(said(tree, f"expect_balance {BDF}")) == 1
    (files / "stats/map_failures").write_text("3\n")
    assert said(tree, f"expect_balance {BDF}") == []


@pytest.mark.parametrize(
    ("log", "is_silent", "is_a"),
    [
        ("", True, False),
        ("other: a\n", True, False),
        ("xsmmu: a\n", False, True),
        ("xsmmu: b\n", False, False),
        ("xsmmu: a\nxsmmu: a\n", False, False),
    ],
)
def test_what_the_log_says(log: str, is_silent: bool, is_a: bool, tree: Path) -> None:
    assert (said(tree, "expect_silence", log) == []) == is_silent
    assert (said(tree, "expect_log a", log) == []) == is_a


@pytest.mark.parametrize(("level", "has"), [("held\n", True), ("none\n", False), ("", False), ("\n", False)])
def test_a_level(level: str, has: bool, tree: Path, files: Path) -> None:
    (files / "level").write_text(level)
    assert said(tree, f"has_level {BDF} && echo yes") == ["yes"] * has


def test_a_file_is_read_to_its_end(tree: Path, files: Path) -> None:
    assert (files / "note").exists()
    assert said(tree, f"get {BDF} note") == [" two", "lines"]
    assert said(tree, f"policy_of {BDF}") == ["fused"]


def test_what_cannot_be_written_is_no_success(tree: Path, files: Path) -> None:
    assert said(tree, f"put {BDF} none/such x || echo refused") == ["refused"]
    assert said(tree, f"put {BDF} level x && echo done") == ["done"]
    assert (files / "level").read_text() == "x\n"


@pytest.mark.parametrize(
    ("settings", "file", "content", "tables", "copied"),
    [
        ("", "policy", "fused", "", ""),
        ("TABLES=direct COPY=256", "policy", "fused", "direct\n", "256\n"),
        ("TABLES=direct COPY=256", "policy", "none", "", ""),
        ("TABLES=direct COPY=256", "level", "x", "", ""),
    ],
)
def test_tunables_of_the_whole_guest_follow_a_policy(
    settings: str, file: str, content: str, tables: str, copied: str, tree: Path, files: Path
) -> None:
    for name in ("tables", "copy_bytes"):
        (files / name).write_text("")
    assert said(tree, f"{settings}\nput {BDF} {file} {content} && echo done") == ["done"]
    assert ((files / "tables").read_text(), (files / "copy_bytes").read_text()) == (tables, copied)
    for name in ("tables", "copy_bytes"):
        (files / name).unlink()
        (files / name).mkdir()
    assert len(said(tree, f"{settings}\nput {BDF} {file} {content}")) == 2 * bool(tables)


@pytest.mark.parametrize(
    ("put", "log", "failures"),
    [
        ("echo Invalid >{tmp}/put; return 1", "xsmmu: no such level\n", 0),
        ("echo Invalid >{tmp}/put; return 1", "", 1),
        ("echo Busy >{tmp}/put; return 1", "xsmmu: no such level\n", 1),
        ("echo Invalid >{tmp}/put; echo x >$PCI/$1/xsmmu/$2; return 1", "xsmmu: no such level\n", 1),
        (":", "xsmmu: no such level\n", 1),
    ],
)
def test_what_is_refused_leaves_all_as_it_was_and_one_line(
    put: str, log: str, failures: int, tree: Path, files: Path
) -> None:
    assert (files / "level").exists()
    script = f"put() {{ {put.format(tmp=tree / 'tmp')}; }}\nrefused {BDF} level x Invalid 'no such level'"
    assert len(said(tree, script, log)) == failures


def test_a_case_begins_without_the_failures_of_the_last_one(tree: Path) -> None:
    script = """
    MAPS_ARE_SEEN=0 marker=0
    emit() { echo "$1"; }
    mark() { :; }
    clock() { now_ns=0; }
    failure() { failures="$failures${failures:+,}x"; }
    case_a() { failure; failure; }
    case_b() { :; }
    run_case a; run_case b
    """
    lines = said(tree, script)
    assert [line.split('"failures":')[1].split("]")[0] for line in lines if "failures" in line] == ["[x,x", "["]
