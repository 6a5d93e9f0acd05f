# SPDX-License-Identifier: GPL-2.0-only
"""Recordings: the C writer and reader against the Python reader, which was written from docs/trace.md.

Each check takes the program of tests/trace/through.c, so that `make mutants` can run the checks with a planted bug.
"""

from __future__ import annotations

import json
import random
import re
import resource
import shutil
import signal
import struct
import subprocess
import zlib
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import zstandard
from click.testing import CliRunner
from tests.python import trace_traffic
from tests.python.trace_traffic import LOST, MAP, POLL, Event, packed, unpacked

from checks import trace as checks
from xsmmu import files, trace
from xsmmu.cli import app
from xsmmu.errors import UserError
from xsmmu_lab.project import PROJECT
from xsmmu_lab.setup import replay

pytestmark = pytest.mark.early

SECOND = 10**9
Check = Callable[[Path, Path], None]


@pytest.fixture(scope="session")
def program() -> Path:
    return checks.through()


def write(program: Path, file: Path, events: list[Event]) -> bytes:
    """A file by the C writer."""
    done = subprocess.run([program, "write", file], input=packed(events), capture_output=True, check=False)
    assert done.returncode == 0, done.stderr
    return file.read_bytes()


def read_c(program: Path, file: Path) -> tuple[list[Event], str]:
    """The events and the damage, or the refusal, by the C reader."""
    done = subprocess.run([program, "read", file], capture_output=True, check=False, timeout=60)
    assert done.returncode in (0, 1), done.stderr
    text = done.stderr.decode().strip()
    return unpacked(done.stdout), re.sub(r"header .* blocks", "blocks", text)


def read_python(file: Path) -> tuple[list[Event], str]:
    """The same by the Python reader."""
    try:
        with trace.Recording(file) as recording:
            found = [Event(*each) for events in recording.events() for each in events.tolist()]
            damage = recording.damage
    except UserError as error:
        return [], error.message
    return found, f"blocks {damage.blocks} bytes {damage.bytes} cut {int(damage.cut)}"


def read_both(program: Path, file: Path) -> tuple[list[Event], str]:
    """What both readers find, which must be the same."""
    found = read_python(file)
    assert read_c(program, file) == found
    return found


def blocks(data: bytes) -> list[bytes]:
    """The blocks of an undamaged file."""
    found, at = [], 0
    while at < len(data):
        size = 36 + struct.unpack_from("<I", data, at + 24)[0]
        found.append(data[at : at + size])
        at += size
    return found


def small(program: Path, folder: Path) -> tuple[bytes, list[list[Event]]]:
    """A small file, and the events of its three blocks: a block ends after ten seconds."""
    parts = [
        [Event(at * 20 * SECOND + n, 0xFFFFF000 - n * 4096, n, 4096, kind=MAP, flags=2, cpu=n) for n in range(3)]
        for at in range(3)
    ]
    return write(program, folder / "small", joined(parts)), parts


def joined(parts: list[list[Event]]) -> list[Event]:
    return [event for part in parts for event in part]


def without_stand_ins(events: list[Event]) -> list[Event]:
    return [event for event in events if event.kind != LOST]


# -- checks ----------------------------------------------------------------------------------------


def check_traffic(program: Path, folder: Path) -> None:
    """Traffic as of iperf3 and fio."""
    for name in trace_traffic.NAMES:
        events = trace_traffic.traffic(name, "lazy", 3000)
        write(program, folder / name, events)
        assert read_both(program, folder / name) == (events, "blocks 0 bytes 0 cut 0"), name


def drawn(rng: random.Random, count: int) -> list[Event]:
    """Events with any values of the fields, small and large."""

    def number(bits: int) -> int:
        return rng.choice((0, 1, 4095, 4096, (1 << bits) - 1, rng.getrandbits(bits), rng.getrandbits(bits // 2)))

    def event(ns: int) -> Event:
        iova = number(64)
        offset = rng.choice((0, 1, 2, iova & 4095, number(32)))
        shape = {"cpu": number(16), "device": number(16), "kind": rng.randint(1, 16), "flags": rng.randrange(64)}
        return Event(ns, iova, number(64), number(64), number(64), number(32), offset, **shape)

    times = sorted(rng.choice((rng.getrandbits(64), rng.getrandbits(40))) for _ in range(count))
    return [event(ns) for ns in times]


def check_drawn(program: Path, folder: Path) -> None:
    """Events that no driver makes."""
    for seed in range(30):
        rng = random.Random(seed)
        events = drawn(rng, rng.choice((1, 2, 50, 400)))
        write(program, folder / f"{seed}", events)
        assert read_both(program, folder / f"{seed}") == (events, "blocks 0 bytes 0 cut 0"), f"seed {seed}"


def check_full_block(program: Path, folder: Path) -> None:
    """Blocks of 65,536 events, of which each has a shape of its own."""
    events = [Event(n, n, n, n, kind=MAP, cpu=n & 0xFFFF, device=n >> 16) for n in range(65536 + 7)]
    found = blocks(write(program, folder / "full", events))
    assert [struct.unpack_from("<I", block, 16)[0] for block in found] == [0, 65536, 7, 0]
    assert read_both(program, folder / "full") == (events, "blocks 0 bytes 0 cut 0")
    # So many that the table of shapes has several in a row, and of the largest values, so that they take most bytes.
    most = (1 << 64) - 1
    where = {"offset": 1 << 31, "cpu": 0xFFFF, "device": 0xFFFF, "kind": LOST, "flags": 63}
    queues = [Event(n, most, most, most, most, (1 << 32) - 1 - n, **where) for n in range(65536)]
    write(program, folder / "queues", queues)
    assert read_both(program, folder / "queues") == (queues, "blocks 0 bytes 0 cut 0")


def check_few_values(program: Path, folder: Path) -> None:
    """Small blocks whose events differ in one field or two, so that shapes and columns recur and have one value."""
    values: dict[str, tuple[int, ...]] = {"iova": (0x1000, 0x1040), "offset": (0, 0x40), "kind": (1, 2)}
    values |= dict.fromkeys(("page", "bytes", "span", "queue", "cpu", "device", "flags"), (0, 1))
    rng = random.Random(1)
    events = []
    for number in range(400):
        base = {name: rng.choice(each) for name, each in values.items()}
        for _ in range(rng.randint(1, 6)):
            changed = rng.sample(sorted(values), 2)
            fields = base | {name: rng.choice(values[name]) for name in changed}
            events.append(Event(20 * number * SECOND, **fields))
    write(program, folder / "few", events)
    assert read_both(program, folder / "few") == (events, "blocks 0 bytes 0 cut 0")


def check_cut(program: Path, folder: Path) -> None:
    """A file that is cut at any byte keeps its whole blocks."""
    data, parts = small(program, folder)
    ends = [0]
    for block in blocks(data):
        ends.append(ends[-1] + len(block))
    file = folder / "cut"
    for size in range(len(data)):
        file.write_bytes(data[:size])
        events, text = read_both(program, file)
        whole = sum(end <= size for end in ends[1:])
        if not whole:
            assert re.search(r": byte \d+: (the file is empty|cut within|the header is cut)", text), text
            continue
        assert events == joined(parts[: whole - 1])
        assert text == f"blocks 0 bytes {size - ends[whole]} cut 1"


def check_damage(program: Path, folder: Path) -> None:
    """A wrong bit anywhere costs one block."""
    data, parts = small(program, folder)
    found = blocks(data)
    file = folder / "damaged"
    for at in range(len(found[0]), len(data)):
        wrong = bytearray(data)
        wrong[at] ^= 1 << at % 8
        file.write_bytes(wrong)
        events, text = read_both(program, file)
        block = next(n for n in range(len(found)) if at < sum(map(len, found[: n + 1])))
        kept = parts[: block - 1] + parts[block:]
        assert without_stand_ins(events) == joined(kept), at
        last = block == len(found) - 1
        assert re.fullmatch(rf"blocks [01] bytes {len(found[block])} cut {int(last)}", text), (at, text)
        if not last:
            assert sum(event.kind == LOST for event in events) == 1
    for at in range(len(found[0])):
        wrong = bytearray(data)
        wrong[at] ^= 1 << at % 8
        file.write_bytes(wrong)
        assert not read_both(program, file)[0]


def check_order(program: Path, folder: Path) -> None:
    """Blocks that are missing, doubled, exchanged, or have something between."""
    data, parts = small(program, folder)
    head, first, second, third, end = blocks(data)
    cases: list[tuple[list[bytes], list[list[Event]], str]] = [
        ([head, first, third, end], [parts[0], parts[2]], "blocks 1 bytes 0 cut 0"),
        ([head, third, end], [parts[2]], "blocks 2 bytes 0 cut 0"),
        ([head, first, second, end], parts[:2], "blocks 1 bytes 0 cut 0"),
        ([head, first, first, second, third, end], parts, f"blocks 1 bytes {len(first)} cut 0"),
        ([head, second, first, third, end], parts[1:], f"blocks 2 bytes {len(first)} cut 0"),
        ([head, first, b"x" * 99, second, third, end], parts, "blocks 0 bytes 99 cut 0"),
        ([head, first, trace.MAGIC * 9, second, third, end], parts, "blocks 0 bytes 72 cut 0"),
        ([head, first, (trace.MAGIC + b"\1") * 4, second[:35], second, third, end], parts, "blocks 0 bytes 71 cut 0"),
        ([data, data], parts, f"blocks 0 bytes {len(data)} cut 0"),
    ]
    for number, (made, events, text) in enumerate(cases):
        file = folder / f"order{number}"
        file.write_bytes(b"".join(made))
        found, said = read_both(program, file)
        assert (without_stand_ins(found), said) == (joined(events), text), number


def check_far(program: Path, folder: Path) -> None:
    """A head that begins in the last bytes of a read is found."""
    data, parts = small(program, folder)
    head, *others = blocks(data)
    for before in (1, 7, 8, 20):
        gap = (1 << 18) - len(head) - before
        file = folder / f"far{before}"
        file.write_bytes(head + b"\0" * gap + b"".join(others))
        assert read_both(program, file) == (joined(parts), f"blocks 0 bytes {gap} cut 0")


def block(kind: int, sequence: int, events: int, contents: bytes, **changes: Any) -> bytes:
    """A block with right checksums and these contents."""
    frame: bytes = changes.get("frame", zstandard.ZstdCompressor().compress(contents))
    plain = changes.get("plain", len(contents))
    packed = changes.get("packed", len(frame))
    fields = (changes.get("version", 1), kind, sequence, events, plain, packed, zlib.crc32(frame))
    start = struct.pack("<8sHHIIIII", trace.MAGIC, *fields)
    return start + struct.pack("<I", zlib.crc32(start)) + frame


# An empty frame that decoders skip.
SKIPPABLE = b"\x50\x2a\x4d\x18" + bytes(4)

# One event: a shape (kind, flags, CPU, device, queue), its number; ns, unit, low, bytes, span, offset, page.
ONE = bytes((1, 1, 2, 0, 0, 0, 0, 5, 2, 0, 9, 0, 0, 3))


def changed(at: int, *values: int) -> bytes:
    return ONE[:at] + bytes(values) + ONE[at + 1 :]


WRONG = {
    "no shape": bytes((0,)) + ONE[1:],
    "more shapes than events": bytes((2, 1, 0, 0, 0, 0)) + ONE[1:],
    "kind 0": changed(1, 0),
    "kind 17": changed(1, 17),
    "flags": changed(2, 64),
    "cpu": changed(3, 0x80, 0x80, 4),
    "device": changed(4, 0x80, 0x80, 4),
    "queue": changed(5, 0x80, 0x80, 0x80, 0x80, 0x10),
    "shape": changed(6, 1),
    "shape far away": changed(6, 0xFF, 0xFF, 0xFF, 0xFF, 7),
    "unit": changed(8, *[0x80] * 8, 1),
    "low": changed(9, 0x80, 0x20),
    "offset": changed(12, 0x81, 0x80, 0x80, 0x80, 0x10),
    "eleven bytes": changed(10, *[0x80] * 10, 1),
    "tenth byte": changed(10, *[0x80] * 9, 2),
    "too short": ONE[:-1],
    "too long": ONE + b"\0",
    "no end": ONE[:-1] + b"\x80",
    "empty": b"",
}


def check_contents(program: Path, folder: Path) -> None:
    """Contents that no writer makes, behind right checksums, are left out as a block."""
    header, end = block(1, 0, 0, b"{}"), block(3, 3, 0, b"{}")
    good = block(2, 2, 1, ONE)
    wanted = Event(5, 1 << 12, 3, 9, kind=MAP, flags=2)
    file = folder / "contents"
    file.write_bytes(header + block(2, 1, 1, ONE) + good + end)
    assert read_both(program, file) == ([wanted, wanted], "blocks 0 bytes 0 cut 0")
    cases = {name: block(2, 1, 1, contents) for name, contents in WRONG.items()}
    cases["no events"] = block(2, 1, 0, ONE)
    cases["more events"] = block(2, 1, 2, ONE)
    cases["most events"] = block(2, 1, 65536, ONE)
    cases["type"] = block(4, 1, 1, ONE)
    cases["a second header"] = block(1, 1, 0, b"{}")
    cases["other size"] = block(2, 1, 1, ONE, plain=len(ONE) + 1)
    cases["no frame"] = block(2, 1, 1, ONE, frame=b"\x28\xb5\x2f\xfd")
    cases["no size"] = block(2, 1, 1, ONE, frame=zstandard.ZstdCompressor(write_content_size=False).compress(ONE))
    # A frame that claims 2^62 bytes.
    cases["huge frame"] = block(2, 1, 1, ONE, frame=b"\x28\xb5\x2f\xfd\xe0" + (1 << 62).to_bytes(8, "little"))
    frame = zstandard.ZstdCompressor().compress(ONE)
    cases["bytes behind the frame"] = block(2, 1, 1, ONE, frame=frame + b"\0")
    cases["a frame behind the frame"] = block(2, 1, 1, ONE, frame=frame + SKIPPABLE)
    for name, made in cases.items():
        file.write_bytes(header + made + good + end)
        events, text = read_both(program, file)
        assert (without_stand_ins(events), text) == ([wanted], f"blocks 1 bytes {len(made)} cut 0"), name
        assert [event.kind for event in events] == [LOST, MAP], name
    heads = {"version": block(2, 1, 1, ONE, version=2), "size": block(2, 1, 1, ONE, plain=9 << 20)}
    heads["frame's size"] = block(2, 1, 1, ONE, packed=(8 << 20) + (1 << 17) + 1)
    heads["events"] = block(2, 1, 10**6, bytes((1, 1, 2, 0, 0, 0)) + bytes(8 * 10**6))
    for name, made in heads.items():
        file.write_bytes(header + made + good + end)
        events, text = read_both(program, file)
        assert (without_stand_ins(events), text) == ([wanted], f"blocks 1 bytes {len(made)} cut 0"), name
    back = block(2, 2, 1, changed(7, 4))
    file.write_bytes(header + block(2, 1, 1, ONE) + back + end)
    assert without_stand_ins(read_both(program, file)[0]) == [wanted]
    over = block(2, 1, 2, bytes((1, 1, 2, 0, 0, 0, 0, 0, *[0xFF] * 9, 1, 5, *[0] * 12)))
    file.write_bytes(header + over + good + end)
    assert without_stand_ins(read_both(program, file)[0]) == [wanted]
    zero = block(3, 2, 0, b"{}\0")
    file.write_bytes(header + block(2, 1, 1, ONE) + zero)
    assert read_c(program, file)[1] == f"blocks 1 bytes {len(zero)} cut 1"


REFUSED = {
    "empty": (b"", "byte 0: the file is empty: nothing was recorded"),
    "foreign": (b"PAR1" * 20, "byte 0: not a recording of xsmmu"),
    "short and foreign": (b"PAR", "byte 0: not a recording of xsmmu"),
    "text": (b"XSMMU\r\n" * 20, "byte 0: not a recording of xsmmu"),
    "newer": (
        block(1, 0, 0, b"{}", version=2),
        "byte 8: format 2 is newer than format 1 of this program: update xsmmu",
    ),
    "newer and short": (
        block(1, 0, 0, b"{}", version=300)[:12],
        "byte 8: format 300 is newer than format 1 of this program: update xsmmu",
    ),
    "short": (block(1, 0, 0, b"{}")[:20], "byte 20: cut within its header: nothing can be read"),
    "no header": (
        block(2, 0, 1, ONE),
        "byte 0: the header is cut or damaged: nothing tells which devices were recorded",
    ),
}


def check_refused(program: Path, folder: Path) -> None:
    """A file that is no recording is refused in one line, with the place."""
    for name, (content, message) in REFUSED.items():
        file = folder / f"refused {name}"
        file.write_bytes(content)
        assert read_both(program, file) == ([], f"{file}: {message}")
    assert read_c(program, folder / "none") == ([], f"{folder / 'none'}: No such file or directory")


def refused(program: Path, file: Path, events: list[Event]) -> str:
    """The writer's message about these events."""
    done = subprocess.run([program, "write", file], input=packed(events), capture_output=True, check=False)
    assert done.returncode == 1
    return done.stderr.decode().splitlines()[0]


def check_writer(program: Path, folder: Path) -> None:
    """The writer refuses what no reader takes, and replaces no file."""
    part = f"{folder / 'back'}.part"
    ten = [Event(at, kind=MAP) for at in range(65536)] + [Event(65534, kind=MAP)]
    assert refused(program, folder / "back", ten) == f"{part}: time goes back from 65535 to 65534 ns"
    two = [Event(20 * SECOND, kind=MAP), Event(20 * SECOND - 1, kind=POLL)]
    assert "time goes back" in refused(program, folder / "back2", two)
    assert refused(program, folder / "kind", [Event(0)]).endswith("there is no event of kind 0")
    assert refused(program, folder / "kind17", [Event(0, kind=17)]).endswith("there is no event of kind 17")
    assert refused(program, folder / "flags", [Event(0, kind=1, flags=64)]).endswith("unknown flags 0x40 of an event")
    (folder / "taken").write_text("mine")
    assert refused(program, folder / "taken", []) == f"{folder / 'taken'}: exists: remove it, or choose another name"
    assert (folder / "taken").read_text() == "mine"
    (folder / "runs.part").write_text("mine")
    assert "a recording runs or did not end" in refused(program, folder / "runs", [])
    assert (folder / "runs.part").read_text() == "mine"
    assert "No such file or directory" in refused(program, folder / "no/where", [])


def check_name(program: Path, folder: Path) -> None:
    """A file has its name only when complete; until then its whole blocks can be read under another."""
    file, part = folder / "name", folder / "name.part"
    events = [Event(at, kind=MAP) for at in range(2 * 65536 + 1)]
    with subprocess.Popen([program, "write", file], stdin=subprocess.PIPE) as writer:
        assert writer.stdin
        writer.stdin.write(packed(events))
        writer.stdin.flush()
        # All but the last bytes of the pipe were taken, so the first block is written.
        assert not file.exists()
        assert part.exists()
        writer.kill()
    events_left, text = read_both(program, part)
    assert events_left == events[: len(events_left)]
    assert len(events_left) in (65536, 2 * 65536)
    assert text.endswith("cut 1")
    assert not file.exists()
    late = folder / "late"
    with subprocess.Popen([program, "write", late], stdin=subprocess.PIPE, stderr=subprocess.PIPE) as writer:
        assert writer.stdin
        assert writer.stderr
        writer.stdin.write(packed(events))
        writer.stdin.flush()
        late.write_text("mine")
        writer.stdin.close()
        assert f"{late}.part: complete, but not renamed to {late}: File exists" in writer.stderr.read().decode()
    assert late.read_text() == "mine"
    assert read_both(program, folder / "late.part") == (events, "blocks 0 bytes 0 cut 0")


def _limited(size: int) -> Callable[[], None]:
    def limit() -> None:
        # Without the signal, write() fails instead.
        signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
        resource.setrlimit(resource.RLIMIT_FSIZE, (size, size))

    return limit


def check_full_disk(program: Path, folder: Path) -> None:
    """A full disk ends the recording, and costs one block."""
    data, parts = small(program, folder)
    ends = [0]
    for each in blocks(data):
        ends.append(ends[-1] + len(each))
    for size in range(1, len(data), 7):
        file = folder / f"disk{size}"
        done = subprocess.run(
            [program, "write", file],
            input=packed(joined(parts)),
            capture_output=True,
            check=False,
            preexec_fn=_limited(size),
        )
        assert done.returncode == 1
        whole = sum(end <= size for end in ends[1:])
        assert f"{file}.part: byte {ends[whole]}: File too large" in done.stderr.decode()
        assert not file.exists()
        if whole:
            assert read_both(program, Path(f"{file}.part")) == (joined(parts[: whole - 1]), "blocks 0 bytes 0 cut 1")
        else:
            assert not Path(f"{file}.part").exists()


CHECKS: tuple[Check, ...] = (
    *(check_traffic, check_drawn, check_few_values, check_full_block, check_order, check_far, check_contents),
    *(check_refused, check_writer, check_name, check_full_disk, check_cut, check_damage),
)


@pytest.mark.parametrize("check", CHECKS, ids=lambda check: check.__name__)
def test_format(check: Check, program: Path, tmp_path: Path) -> None:
    check(program, tmp_path)


@pytest.mark.planted
@pytest.mark.parametrize("name", [mutant.name for mutant in checks.MUTANTS.named()])
def test_planted_bug_is_found(name: str, tmp_path: Path) -> None:
    [mutant] = checks.MUTANTS.named(name)
    program = checks.through(mutant)
    found = []
    for check in CHECKS:
        folder = tmp_path / check.__name__
        folder.mkdir()
        try:
            check(program, folder)
        except (AssertionError, struct.error, subprocess.TimeoutExpired):
            found.append(check.__name__)
    print(f"{name}: found by {', '.join(found) or 'nothing'}")
    assert found


def test_under_sanitizers(tmp_path: Path) -> None:
    """The checks with AddressSanitizer and UndefinedBehaviorSanitizer."""
    program = checks.through(flags=("-O1", "-fsanitize=address,undefined", "-fno-sanitize-recover=all"))
    wrapper = tmp_path / "wrapper"
    wrapper.write_text(f'#!/bin/sh\nexec setarch x86_64 -R {program} "$@"\n')
    wrapper.chmod(0o755)
    for check in (check_drawn, check_few_values, check_contents, check_order, check_far, check_writer):
        folder = tmp_path / check.__name__
        folder.mkdir()
        check(wrapper, folder)


def test_every_byte_counts(program: Path, tmp_path: Path) -> None:
    """At most 6 bytes an event, of traffic as of iperf3 and fio."""
    for name in trace_traffic.NAMES:
        events = trace_traffic.traffic(name, "lazy", 65536)
        assert len(write(program, tmp_path / name, events)) / len(events) < 6, name


# -- the specification -----------------------------------------------------------------------------


def test_example_of_the_specification(program: Path, tmp_path: Path) -> None:
    text = (PROJECT / "docs/trace.md").read_text()
    lines = re.findall(r"^[0-9a-f]{4}  ((?:[0-9a-f]{2} ?)+)", text, re.MULTILINE)
    file = tmp_path / "example"
    file.write_bytes(bytes.fromhex("".join(lines)))
    events, said = read_both(program, file)
    assert said == "blocks 0 bytes 0 cut 0"
    assert events == [
        Event(1000, 0xFFFFF000, 0x1234, 2048, queue=7, cpu=1, kind=MAP, flags=2),
        Event(1200, 0xFFFFE040, 0x1235, 1514, queue=7, offset=0x40, cpu=1, kind=MAP, flags=2),
        Event(1500, 0xFFFFF000, 0, 2048, queue=7, cpu=1, kind=2, flags=2),
    ]


@pytest.mark.skipif(not shutil.which("valgrind"), reason="no valgrind on this host")
def test_packing_takes_few_instructions(tmp_path: Path) -> None:
    """Packing takes about 250 instructions an event, and making the events up 64."""

    def instructions(events: int) -> int:
        valgrind = ("valgrind", "--tool=callgrind", f"--callgrind-out-file={tmp_path}/out")
        argv = (*valgrind, replay.writer(), tmp_path / f"{events}", "{}", str(events))
        done = subprocess.run(argv, capture_output=True, text=True, check=True)
        return int(re.findall(r"Collected : (\d+)", done.stderr)[0])

    assert (instructions(200_000) - instructions(100_000)) / 100_000 <= 335


def test_kinds_are_those_of_the_header() -> None:
    text = (PROJECT / "trace/format/trace.h").read_text()
    names = re.findall(r"^\tTRACE_(\w+)(?: = 1)?,$", text, re.MULTILINE)
    assert [name.upper() for name in trace.KINDS[1:]] == names[:16]


# -- the command -----------------------------------------------------------------------------------


def ran(*words: str) -> str:
    return CliRunner().invoke(app, ["trace", *words], catch_exceptions=False).stdout


def test_info(program: Path, tmp_path: Path) -> None:
    events = [*trace_traffic.traffic("both", "strict", 2000), Event(1 << 40, bytes=12, kind=LOST, cpu=1)]
    data = write(program, tmp_path / "a", events)
    found = json.loads(ran("info", str(tmp_path / "a"), "-o", "json"))
    assert (found["events"], found["lost_events"], found["file_bytes"]) == (2001, 12, len(data))
    assert sum(found["kinds"].values()) == sum(found["cpus"].values()) == 2001
    assert found["damage"] == {"blocks": 0, "bytes": 0, "cut": False}
    text = ran("info", str(tmp_path / "a"))
    assert "events          2,001" in text
    assert "damage          none" in text
    (tmp_path / "b").write_bytes(data[:-20])
    assert "no summary" in ran("info", str(tmp_path / "b"))


def test_pages_without_identity_are_named(tmp_path: Path) -> None:
    for header, said in (
        (b'{"pages_known": false, "pages_unknown": "by \\u001b[31m"}', r"does not show: by \x1b[31m"),
        (b'{"pages_known": false}', "does not show: the recording does not say why"),
        (b'{"pages_known": true}', None),
        (b"{}", None),
    ):
        (tmp_path / "a").write_bytes(block(1, 0, 0, header) + block(3, 1, 0, b"{}"))
        found = [line for line in ran("info", str(tmp_path / "a")).splitlines() if line.startswith("warning")]
        assert [line.endswith(str(said)) for line in found] == ([True] if said else []), found


def test_a_text_that_is_no_object_is_named(tmp_path: Path) -> None:
    """Also text of more levels than Python's parser takes."""
    deep = b'{"a":' + b"[" * 100_000 + b"]" * 100_000 + b"}"
    for text in (deep, b"[1]", b"{", b'{"a":' + b"9" * 5000 + b"}"):
        (tmp_path / "a").write_bytes(block(1, 0, 0, text) + block(3, 1, 0, b"{}"))
        with pytest.raises(UserError, match="byte 0: the header is no JSON object"):
            ran("info", str(tmp_path / "a"))
        (tmp_path / "a").write_bytes(block(1, 0, 0, b"{}") + block(3, 1, 0, text))
        with pytest.raises(UserError, match=r"byte \d+: the summary is no JSON object"):
            ran("info", str(tmp_path / "a"))


def test_a_name_of_a_file_cannot_command_the_terminal(program: Path, tmp_path: Path) -> None:
    file = tmp_path / "red\x1b[31m\n"
    write(program, file, [Event(0, kind=MAP)])
    made = CliRunner().invoke(app, ["trace", "info", str(file)], catch_exceptions=False, color=True)
    assert r"red\x1b[31m\n" in made.stdout and "\x1b" not in made.stdout


def test_info_counts_what_is_in_the_file(program: Path, tmp_path: Path) -> None:
    """Gaps of all CPUs are, although they have no number; what stands for a damaged block is not."""
    gap = Event(3 * SECOND, span=SECOND, cpu=0xFFFF, kind=LOST)
    events = [Event(n * 20 * SECOND, kind=MAP) for n in range(3)]
    head, first, _, third, end = blocks(write(program, tmp_path / "a", [events[0], gap, *events[1:]]))
    (tmp_path / "a").write_bytes(head + first + third + end)
    found = trace.info_of(tmp_path / "a")
    assert (found.events, found.kinds, found.cpus) == (3, {"map": 2, "lost": 1}, {0: 2})
    assert found.damage == trace.Damage(1)


@pytest.mark.parametrize("name", ["numpy", "zstandard", "pyarrow", "bt2"])
def test_a_missing_library_is_named(name: str, program: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    write(program, tmp_path / "a", [Event(0, kind=MAP)])
    monkeypatch.setitem(__import__("sys").modules, name, None)
    to = {"pyarrow": "parquet", "bt2": "ctf"}.get(name, "perfetto")
    with pytest.raises(UserError, match=rf"library {name}, which is not installed: .*(apt|pip) install"):
        CliRunner().invoke(
            app, ["trace", "export", str(tmp_path / "a"), "--to", to, "-O", str(tmp_path / "b")], catch_exceptions=False
        )
    assert [each.name for each in tmp_path.iterdir()] == ["a"]


def test_perfetto(program: Path, tmp_path: Path) -> None:
    write(program, tmp_path / "a", trace_traffic.traffic("both", "strict", 2000))
    assert "2,000 events" in ran("export", str(tmp_path / "a"), "--to", "perfetto", "-O", str(tmp_path / "b"))
    found = json.loads((tmp_path / "b").read_text())["traceEvents"]
    assert {event["ph"] for event in found} == {"b", "e", "i"}
    with pytest.raises(UserError, match="exists"):
        ran("export", str(tmp_path / "a"), "--to", "perfetto", "-O", str(tmp_path / "b"))


def test_perfetto_of_a_failed_map(tmp_path: Path) -> None:
    header = b'{"devices": [{"name": "0000:00:01.0"}]}'
    failed = block(2, 1, 1, changed(2, 6))
    (tmp_path / "a").write_bytes(block(1, 0, 0, header) + failed + block(3, 2, 0, b"{}"))
    assert "1 events" in ran("export", str(tmp_path / "a"), "--to", "perfetto", "-O", str(tmp_path / "b"))
    name, event = json.loads((tmp_path / "b").read_text())["traceEvents"]
    assert (name["ph"], name["args"]["name"]) == ("M", "0000:00:01.0")
    assert (event["ph"], event["name"]) == ("i", "map")


def test_nothing_is_left_of_an_export_that_failed(tmp_path: Path) -> None:
    for make in (Path.mkdir, Path.touch):
        with pytest.raises(RuntimeError), files.complete(tmp_path / "a") as part:
            make(part)
            raise RuntimeError
    assert not [*tmp_path.iterdir()]


@pytest.mark.parametrize("name", ["b", "b.part"])
@pytest.mark.parametrize("to", ["parquet", "ctf", "perfetto"])
def test_an_export_follows_no_link(to: str, name: str, program: Path, tmp_path: Path) -> None:
    """Also one that leads nowhere, where a file would be made."""
    pytest.importorskip({"parquet": "pyarrow", "ctf": "bt2"}.get(to, "json"))
    write(program, tmp_path / "a", [Event(0, kind=MAP)])
    (tmp_path / name).symlink_to(tmp_path / "elsewhere")
    with pytest.raises(UserError, match=rf"{name} exists"):
        ran("export", str(tmp_path / "a"), "--to", to, "-O", str(tmp_path / "b"))
    assert (tmp_path / name).is_symlink() and not (tmp_path / "elsewhere").exists()


def test_parquet(program: Path, tmp_path: Path) -> None:
    table = pytest.importorskip("pyarrow.parquet")
    events = trace_traffic.traffic("both", "strict", 2000)
    write(program, tmp_path / "a", events)
    ran("export", str(tmp_path / "a"), "--to", "parquet", "-O", str(tmp_path / "b"))
    rows = table.read_table(tmp_path / "b").to_pylist()
    assert [Event(**row) for row in rows] == events


def test_ctf(program: Path, tmp_path: Path) -> None:
    bt2 = pytest.importorskip("bt2")
    events = trace_traffic.traffic("both", "strict", 500)
    write(program, tmp_path / "a", events)
    ran("export", str(tmp_path / "a"), "--to", "ctf", "-O", str(tmp_path / "b"))
    found = [each for each in bt2.TraceCollectionMessageIterator(str(tmp_path / "b")) if hasattr(each, "event")]
    assert [(each.event.name, int(each.event["iova"])) for each in found] == [
        (trace.KINDS[event.kind], event.iova) for event in events
    ]
