# SPDX-License-Identifier: GPL-2.0-only
"""The recorder behind its BPF programs, on a kernel, a clock and a memory that a script moves (tests/trace/recorder.c).

Each check takes the program, so that `make mutants` can run the checks with a planted bug.
"""

from __future__ import annotations

import json
import os
import random
import resource
import signal
import stat
import subprocess
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import pytest
from tests.python.test_trace import block, blocks
from tests.python.trace_traffic import ENTRY, LOST, MAP, MAP_LIST, POLL, UNMAP, UNMAP_LIST, Event

from checks.mutants import Mutant, Mutants
from xsmmu import trace
from xsmmu_lab.setup import trace as setup

pytestmark = pytest.mark.early

MUTANTS: Final = Mutants("trace/record/mutants.toml", ("trace/engine", "trace/format", "trace/record", "tests/trace"))
PARTS: Final = ("session", "merge", "identity", "tally", "check", "device", "tracefs")
MS: Final = 1_000_000
FRAME: Final = 1 << 21
FRAMES: Final = 512
"""Frames of the script's machine."""
RAW_PAGE: Final = 0x80
EVERY_CPU: Final = 0xFFFF
IOVA_FREE: Final = 14
Check = Callable[[Path, Path], None]


def compiled(mutant: Mutant | None = None) -> Path:
    """The recorder above tests/trace/recorder.c."""
    files = ["tests/trace/recorder.c", setup.JSON, *(f"{setup.RECORD}/{part}.c" for part in PARTS)]
    if not mutant:
        return setup.compiled("recorder", files, parts=MUTANTS.parts)
    with MUTANTS.planted(mutant) as source_dir:
        return setup.compiled("recorder", files, ("-O1", "-Wno-error"), MUTANTS.parts, source_dir)


@pytest.fixture(scope="session")
def program() -> Path:
    return compiled()


@dataclass(frozen=True)
class Made:
    """A recording."""

    events: list[Event]
    header: dict[str, Any]
    summary: dict[str, Any]


def record(program: Path, folder: Path, lines: Sequence[str], seconds: float = 0.1, *words: str) -> Made:
    """The recording of a script."""
    file = folder / f"{len(list(folder.iterdir()))}.xsr"
    argv = [str(program), str(file), str(seconds), *words]
    done = subprocess.run(argv, input="\n".join(lines), capture_output=True, text=True, check=False, timeout=60)
    assert done.returncode == 0, done.stderr
    with trace.Recording(file) as recording:
        events = [Event(*each) for part in recording.events() for each in part.tolist()]
        assert recording.damage == trace.Damage()
    assert recording.summary
    return Made(events, recording.header, recording.summary)


def line(
    ns: int, cpu: int = 0, kind: int = MAP, *, at: int | None = None, iova: int = 0x1000, phys: int = 0,
    size: int = 4096, span: int = 0, device: int = 0, flags: int = 0,
) -> str:  # fmt: skip
    """An event at `ns`, which is in the ring at `at`."""
    return f"{ns if at is None else at} event {cpu} {kind} {ns} {iova} {phys} {size} {span} {device} {flags}"


def times(made: Made) -> list[tuple[int, int]]:
    return [(event.ns, event.cpu) for event in made.events]


# -- order -----------------------------------------------------------------------------------------


def check_order(program: Path, folder: Path) -> None:
    """Events of both CPUs come in the order of time, also if a ring has many."""
    rng = random.Random(1)
    wanted = sorted((ns, rng.randrange(2)) for ns in rng.sample(range(8 * MS), 1500))
    assert times(record(program, folder, [line(ns, cpu) for ns, cpu in wanted])) == wanted


def check_slack(program: Path, folder: Path) -> None:
    """An event that is in its ring a moment after its time has its place."""
    for before in ([], [7 * MS]):
        lines = [line(ns, 0) for ns in (*before, 9_900_000)]
        made = record(program, folder, [*lines, line(9_500_000, 1, at=10_500_000)])
        assert times(made) == [*((ns, 0) for ns in before), (9_500_000, 1), (9_900_000, 0)]
        assert made.summary["late"] == 0


def check_late(program: Path, folder: Path) -> None:
    """An event that comes too late gets the time of the event before it, and is counted; time never goes back."""
    made = record(program, folder, [line(2 * MS, 0), line(MS, 1, at=15 * MS)])
    assert times(made) == [(2 * MS, 0), (2 * MS, 1)]
    assert made.summary["late"] == 1
    made = record(program, folder, [line(2 * MS, 0), line(MS, 1, ENTRY, at=15 * MS)])
    assert made.summary["late"] == 0


def check_unfinished(program: Path, folder: Path) -> None:
    """A ring that begins with an unfinished event holds back the others for 100 ms."""
    lines = ["0 stop 0", line(2 * MS, 0), line(3 * MS, 1)]
    made = record(program, folder, [*lines, "55000000 go 0"])
    assert times(made) == [(2 * MS, 0), (3 * MS, 1)]
    made = record(program, folder, [*lines, "155000000 go 0"], 0.2)
    assert times(made) == [(3 * MS, 1), (3 * MS, 0)]


# -- what is missing -------------------------------------------------------------------------------


def lost(made: Made) -> list[tuple[int, int, int, int]]:
    return [(event.ns, event.cpu, event.bytes, event.span) for event in made.events if event.kind == LOST]


def check_losses(program: Path, folder: Path) -> None:
    """Lost events stand at the time of the last of them, with the time since the rings were read before."""
    made = record(
        program,
        folder,
        [
            *(line(3 * MS, 1), "4000000 lose 1 3 4000000", line(4_500_000, 0), line(5 * MS, 1)),
            # Too young to be told at 20 ms, and grown before 30 ms.
            *("19000000 lose 1 2 19000000", "21000000 lose 1 5 21000000", "35000000 lose 0 1 35000000"),
        ],
    )
    assert lost(made) == [(4 * MS, 1, 3, 4 * MS), (21 * MS, 1, 7, 13 * MS), (35 * MS, 0, 1, 7 * MS)]
    assert times(made)[:4] == [(3 * MS, 1), (4 * MS, 1), (4_500_000, 0), (5 * MS, 1)]
    assert (made.summary["lost"], made.summary["lost_by_cpu"]) == (11, {"0": 1, "1": 10})
    assert made.summary["events"] == 3


def check_missed(program: Path, folder: Path) -> None:
    """Calls that the kernel passed to no program are lost events of all CPUs."""
    made = record(program, folder, ["500000000 missed 4", line(1100 * MS), "1200000000 missed 1"], 1.3)
    assert lost(made) == [(1000 * MS, EVERY_CPU, 4, 1000 * MS), (1300 * MS, EVERY_CPU, 1, 1000 * MS)]
    assert (made.summary["lost"], made.summary["nested"]) == (5, 5)
    # Programs run before the recording begins.
    made = record(program, folder, ["0 missed 7", line(1100 * MS)], 1.3)
    assert (lost(made), made.summary["lost"], made.summary["nested"]) == ([], 0, 0)


def check_slices(program: Path, folder: Path) -> None:
    """Time that was not recorded stands in the file."""
    made = record(program, folder, [line(MS), "20000000 off", "50000000 on", line(60 * MS)])
    assert lost(made) == [(50 * MS, EVERY_CPU, 0, 30 * MS)]
    assert made.summary["first_slices_ns"] == [[0, 20 * MS], [50 * MS, 100 * MS]]
    assert (made.summary["slices"], made.summary["covered_seconds"]) == (2, pytest.approx(0.07))
    assert made.summary["lost"] == 0


def check_merged(program: Path, folder: Path) -> None:
    """Losses and gaps have their places among events that come in bursts of a CPU, and later than their times."""
    gap = 50 * MS
    for seed in range(4):
        rng = random.Random(seed)
        free = [ns for ns in rng.sample(range(97 * MS), 2000) if abs(ns - gap) > 3 * MS]
        cpus = [cpu for _ in range(2000) for cpu in [rng.randrange(2)] * rng.choice((1, 2, 40))]
        events = [*zip(sorted(free), cpus, strict=False), *((gap + n * MS // 4, 0) for n in (-2, -1, 0, 1))]
        wanted = [(gap, -1, EVERY_CPU, 0), *((ns, 1, cpu, 4096) for ns, cpu in events)]
        lines = [(20 * MS, f"{20 * MS} off"), (gap, f"{gap} on")]
        for cpu in range(2):
            mine, at = sorted(ns for ns, theirs in events if theirs == cpu), 0
            for ns in mine:
                at = max(at, ns + (MS if abs(ns - gap) < MS else rng.choice((0, 0, rng.randrange(2 * MS)))))
                lines.append((at, line(ns, cpu, at=at)))
            # At most one at each look at the rings: at the time of an event, or just before.
            told = {ns // (10 * MS): ns - rng.randrange(2) for ns in mine if MS < ns % (10 * MS) < 8 * MS}
            wanted += [(ns, 0, cpu, 3) for ns in told.values()]
            lines += [(ns, f"{ns} lose {cpu} 3 {ns}") for ns in told.values()]
        made = record(program, folder, [text for _, text in sorted(lines, key=lambda each: each[0])])
        kinds = [(1 if event.kind == MAP else 0 if event.bytes else -1) for event in made.events]
        found = [(event.ns, kind, event.cpu, event.bytes) for event, kind in zip(made.events, kinds, strict=True)]
        assert found == sorted(wanted), seed
        assert made.summary["late"] == 0


# -- events ----------------------------------------------------------------------------------------


def check_fields(program: Path, folder: Path) -> None:
    """What the programs say of an event is in the file."""
    made = record(
        program,
        folder,
        [
            line(1, iova=0x5040, phys=7 * FRAME + 0x3040, size=100, flags=2),
            line(2, iova=0x6000, phys=9, size=300, span=0x80, flags=RAW_PAGE | 9),
            line(3, 1, UNMAP, iova=0x5040, phys=1, size=100, span=3, flags=2),
            line(4, 1, MAP_LIST, iova=0x9000, phys=3, size=8192, span=2, flags=1),
            line(4, 1, ENTRY, iova=0x9000, phys=0x2000, size=4096, span=8192, flags=1),
            line(5, 1, POLL, size=64, span=8193),
            line(6, 1, MAP, phys=0x1000, size=1, flags=4, iova=0),
        ],
        0.1,
        "raw",
    )
    assert made.events == [
        Event(1, 0x5040, 7 * 512 + 3, 100, 0, 0, 0x40, kind=MAP, flags=2),
        Event(2, 0x6000, 9, 300, 0, 0, 0x80, kind=MAP, flags=9),
        Event(3, 0x5040, 0, 100, cpu=1, kind=UNMAP, flags=2),
        Event(4, 0x9000, 0, 8192, 2, cpu=1, kind=MAP_LIST, flags=1),
        Event(4, 0x9000, 2, 4096, 8192, cpu=1, kind=ENTRY, flags=1),
        Event(5, 0x1000, 0, 64, queue=8193, cpu=1, kind=POLL),
        Event(6, 0, 1, 1, cpu=1, kind=MAP, flags=4),
    ]
    assert (made.header["pages"], made.header["cpus"]) == ("raw", 2)


def check_totals(program: Path, folder: Path) -> None:
    """Pages and calls are counted as the kernel counts them."""
    lines = [
        line(1, iova=0x1F00, size=0x1000),
        line(2, iova=0x9000, size=1, flags=4),
        line(3, 0, MAP_LIST, iova=0x20000, phys=5, size=3 * 4096, span=5),
        line(4, 0, UNMAP_LIST, iova=0x20000, phys=5, size=3 * 4096, span=5),
        line(5, 0, UNMAP, iova=0x1F00, size=0x1000),
        line(6, 0, IOVA_FREE, iova=0x1000, size=0),
    ]
    counted = ["7 count 0 2 8192 1 8192", "7 count 1 1 20480 1 20480"]
    check = record(program, folder, lines + counted).summary["check"]
    assert (check["mapped_pages"], check["unmapped_pages"], check["unmaps"]) == ([7, 7], [7, 7], [2, 2])
    assert (check["iommu_maps"], check["equal"]) == (3, True)
    for more in ("8 count 1 0 4096 0 0", "8 count 1 0 0 0 4096", "8 count 1 0 0 1 0"):
        assert not record(program, folder, [*lines, *counted, more]).summary["check"]["equal"]


# -- identities ------------------------------------------------------------------------------------


def frames(made: Made) -> list[int]:
    """Identities of the frames."""
    return [(event.page >> 9) - 1 for event in made.events]


def check_permutation(program: Path, folder: Path) -> None:
    """The frames of memory change places among themselves, by another key in each recording."""
    lines = [line(n, phys=n * FRAME + n * 4096 + 0x10) for n in range(FRAMES)]
    made = record(program, folder, lines)
    assert sorted(frames(made)) == [*range(FRAMES)]
    assert [event.page & 511 for event in made.events[1:]] == [*range(1, FRAMES)]
    assert {event.offset for event in made.events} == {0x10}
    assert made.header["memory_pages"] == (FRAMES + 1) * 512
    moved = sum(found != n for n, found in enumerate(frames(made)))
    assert moved > FRAMES * 0.9
    assert sum(a == b for a, b in zip(frames(made), frames(record(program, folder, lines)), strict=True)) < 50
    # Frames whose numbers differ in one bit are not neighbours.
    differences = Counter((frames(made)[n] ^ frames(made)[n + 32]) >> 5 for n in range(0, FRAMES, 64))
    assert len(differences) > 2


def check_recurrence(program: Path, folder: Path) -> None:
    """The same frame has the same identity, and no other frame has it, whichever came between."""
    numbers = [3, 3 + 4096, 700, 3, 3 + 8192, 3 + 4096, 700, 3]
    made = record(program, folder, [line(at, phys=n * FRAME) for at, n in enumerate(numbers)])
    found = dict(zip(numbers, frames(made), strict=True))
    assert [found[n] for n in numbers] == frames(made)
    assert len({*found.values()}) == len(found)
    # What is not memory stays apart from memory.
    assert [n for n in found if found[n] < FRAMES] == [3]


def check_addresses(program: Path, folder: Path) -> None:
    """Addresses of a device that sees physical ones are permuted as memory is; IOVAs are not."""
    phys = [n * FRAME + 0x5678 for n in range(64)]
    lines = [line(2 * at, iova=each, phys=each, device=1) for at, each in enumerate(phys)]
    lines += [line(2 * at + 1, 0, UNMAP, iova=each, device=1) for at, each in enumerate(phys)]
    lines.append(line(999, 0, iova=0xFFFF5000, phys=FRAME))
    made = record(program, folder, sorted(lines, key=lambda each: int(each.split()[0])))
    *pairs, other = made.events
    for mapped, unmapped in zip(pairs[::2], pairs[1::2], strict=True):
        assert mapped.iova == unmapped.iova == mapped.page << 12 | 0x678
    assert sum(event.iova == phys[at // 2] for at, event in enumerate(pairs)) < 20
    assert other.iova == 0xFFFF5000
    raw = record(program, folder, lines[:64], 0.1, "raw")
    assert [event.iova for event in raw.events] == phys


def check_identity_later(program: Path, folder: Path) -> None:
    """A device that gets physical addresses during the recording is seen within a second, and its addresses hidden."""
    phys = [n * FRAME + 0x5678 for n in range(1, 33)]
    lines = [line(ns * MS, iova=0xFFFF5000, phys=FRAME) for ns in (100, 400)]
    lines += ["500000000 identity"]
    lines += [line(1100 * MS + at, iova=each, phys=each) for at, each in enumerate(phys)]
    first, second, *others = record(program, folder, lines, 1.3).events
    assert first.iova == second.iova == 0xFFFF5000
    assert all(event.iova == event.page << 12 | 0x678 for event in others)
    assert sum(event.iova == each for event, each in zip(others, phys, strict=True)) < 10


def check_killed(program: Path, folder: Path) -> None:
    """A recorder that is killed loses the events of ten seconds at most, also of a quiet device."""
    file = folder / "killed"
    lines = [line(5 * MS), line(6 * MS), line(3000 * MS)]
    subprocess.run(
        [program, file, "60"], input="\n".join([*lines, "11500000000 kill"]), text=True, check=True, timeout=60
    )
    with trace.Recording(Path(f"{file}.part")) as recording:
        assert sum(len(part) for part in recording.events()) == 3
        assert recording.damage == trace.Damage(cut=True)


def check_failed_write(program: Path, folder: Path) -> None:
    """After a failed write, of a full block or of one that has waited for ten seconds, nothing more is recorded."""
    (folder / "whole").mkdir()
    record(program, folder / "whole", [])
    [header, *_] = blocks((folder / "whole/0.xsr").read_bytes())

    def limit() -> None:
        # The header fits, and no block of events.
        signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
        resource.setrlimit(resource.RLIMIT_FSIZE, (len(header) + 9, len(header) + 9))

    for number, lines in enumerate(([line(MS), line(10_500 * MS)], [line(MS)])):
        file = folder / f"full{number}"
        done = subprocess.run(
            [program, file, "60"],
            input="\n".join(lines),
            capture_output=True,
            text=True,
            check=False,
            timeout=60,
            preexec_fn=limit,
        )
        assert done.returncode == 1
        assert f"{file}.part: byte " in done.stderr and "File too large" in done.stderr
        said = [json.loads(each) for each in done.stdout.splitlines()]
        assert [each["event"] for each in said] == ["recording", *["progress"] * (len(said) - 1)]
        assert 9 <= said[-1]["seconds"] <= 12
        with trace.Recording(Path(f"{file}.part")) as recording:
            assert not [*recording.events()] and recording.damage.cut


CHECKS: tuple[Check, ...] = (
    *(check_order, check_slack, check_late, check_unfinished, check_losses, check_missed, check_slices),
    check_merged,
    *(check_fields, check_totals, check_permutation, check_recurrence, check_addresses),
    *(check_identity_later, check_killed, check_failed_write),
)


@pytest.mark.parametrize("check", CHECKS, ids=lambda check: check.__name__)
def test_recorder(check: Check, program: Path, tmp_path: Path) -> None:
    check(program, tmp_path)


def test_a_file_may_have_any_name(program: Path, tmp_path: Path) -> None:
    """Each line of the program is JSON, which `xsmmu record` reads."""
    file = tmp_path / 'a "name"\\\n'
    done = subprocess.run([program, file, "0.1"], input="", capture_output=True, text=True, check=True, timeout=60)
    said = [json.loads(each) for each in done.stdout.splitlines()]
    assert [each["event"] for each in said] == ["recording", "end"]
    assert said[-1]["summary"]["events"] == 0
    assert file.exists()


def test_pages_without_identity_are_named(program: Path, tmp_path: Path) -> None:
    """In the header, and at once."""
    file = tmp_path / "a"
    done = subprocess.run(
        [program, file, "0.1", "nopages"], input="", capture_output=True, text=True, check=True, timeout=60
    )
    [said] = [each for each in done.stderr.splitlines() if "no identity" in each]
    assert said.endswith("a replay cannot show that memory is used again: nobody says")
    with trace.Recording(file) as recording:
        assert (recording.header["pages_known"], recording.header["pages_unknown"]) == (False, "nobody says")
    assert "pages_unknown" not in record(program, tmp_path, []).header


def test_page_frame_numbers_are_for_the_owner(program: Path, tmp_path: Path) -> None:
    """As in /proc/PID/pagemap; other recordings have the usual permissions."""
    for words, mode in (((), 0o640), (("raw",), 0o600)):
        file = tmp_path / f"file{len(words)}"
        subprocess.run([program, file, "0.1", *words], input="", check=True, timeout=60, umask=0o026, text=True)
        assert stat.S_IMODE(file.stat().st_mode) == mode


@pytest.fixture(scope="session")
def parts() -> Path:
    """Parts of the recorder that need no kernel."""
    names = ("print", "tally", "device")
    files = ["tests/trace/record_parts.c", setup.JSON, *(f"{setup.RECORD}/{part}.c" for part in names)]
    return setup.compiled("record-parts", files, parts=MUTANTS.parts)


def test_text_of_a_recording_cannot_command_the_terminal(parts: Path, tmp_path: Path) -> None:
    text = b'{"a":"\x1b[31m\x7f\n"}'
    (tmp_path / "a").write_bytes(block(1, 0, 0, text) + block(3, 1, 0, text))
    said = subprocess.run([parts, "print", tmp_path / "a"], capture_output=True, text=True, check=True).stdout
    assert said == '# {"a":"?[31m??"}\n# ns cpu device kind iova bytes\n# {"a":"?[31m??"}\n'


def test_names_of_any_characters_are_json(parts: Path) -> None:
    odd = 'a "driver"\\\x1b\n'
    done = subprocess.run([parts, "odd", odd], capture_output=True, text=True, check=True)
    found = json.loads(done.stdout)
    assert (found["name"], found["driver"], found["group"], found["physical"]) == ("0000:01:00.0", odd, 1, False)


@pytest.mark.parametrize("name", [".", "..", "", "/", "0000:00:00.0/..", "0000:ff:1f.7", "x" * 99])
def test_what_is_no_device_is_refused(parts: Path, name: str) -> None:
    done = subprocess.run([parts, "device", name], capture_output=True, text=True, check=False)
    assert done.returncode == 1 and done.stderr.startswith("there is no PCI device")


# -- trace_pipe ------------------------------------------------------------------------------------


def piped(*lines: str) -> list[str]:
    """The events of lines of trace_pipe."""
    program = setup.compiled("trace-pipe", ["tests/trace/trace_pipe.c"], parts=MUTANTS.parts)
    done = subprocess.run(
        [program, "0000:01:00.0"], input="\n".join([*lines, ""]), capture_output=True, text=True, check=True, timeout=60
    )
    return done.stdout.splitlines()


def mapped(task: str, device: str = "0000:01:00.0") -> str:
    """A line as the kernel prints it."""
    fields = "dir=FROM_DEVICE dma_addr=fffff000 size=4096 phys_addr=12345000 attrs=0x0"
    return f"{task:>16}-{4321:<7} [003] d..1.    12.345678: dma_map_page: {device} {fields}"


@pytest.mark.parametrize("task", ["iperf3", "a: dma_map_page", "x [9] 1.0: dma_", ": dma_map_page:", "[a 1.5"])
def test_a_task_cannot_hide_events(task: str) -> None:
    """The name of a task, which any user can choose, stands before the event."""
    assert piped(mapped(task), mapped(task, "0000:02:00.0")) == ["1 12345678000 3 0 fffff000 4096 12345000"]
    assert piped(mapped("b").replace("b-", "a\nb-")) == ["1 12345678000 3 0 fffff000 4096 12345000"]


def test_losses_of_the_kernel_are_events() -> None:
    assert piped("CPU:2 [LOST 17 EVENTS]", mapped("a"))[0] == f"{LOST} 0 2 0 0 17 0"


def test_entries_that_the_kernel_leaves_out_are_lost() -> None:
    counts = "nents=2/300 ents=2/300 [TRUNCATED]"
    arrays = "dma_addrs={0x1000,0x2000} sizes={4096,512} phys_addrs={0x5000,0x7000}"
    made = mapped("a").split("dma_map_page")[0]
    assert piped(f"{made}dma_map_sg: 0000:01:00.0 dir=TO_DEVICE {counts} {arrays} attrs=") == [
        f"{MAP_LIST} 12345678000 3 0 1000 4608 0",
        f"{ENTRY} 12345678000 3 0 1000 4096 5000",
        f"{ENTRY} 12345678000 3 0 2000 512 7000",
        f"{LOST} 12345678000 3 0 0 298 0",
    ]


def test_what_a_killed_recorder_has_left_is_removed(tmp_path: Path) -> None:
    """But neither a running recorder's, nor another program's."""
    program = setup.compiled("trace-pipe", ["tests/trace/trace_pipe.c"], parts=MUTANTS.parts)
    kept = [f"xsmmu-record-{os.getpid()}", "xsmmu-record-x", "xsmmu-record-0", "other-1"]
    for name in (*kept, f"xsmmu-record-{2**31 - 1}"):
        (tmp_path / "instances" / name).mkdir(parents=True)
    subprocess.run([program, "--left"], cwd=tmp_path, check=True, timeout=60)
    assert {each.name for each in (tmp_path / "instances").iterdir()} == {*kept}


def test_planted_bugs_fit() -> None:
    assert all(MUTANTS.changed(mutant) for mutant in MUTANTS.named())


@pytest.mark.planted
@pytest.mark.parametrize("mutant", MUTANTS.named(), ids=lambda mutant: mutant.name)
def test_planted_bug_is_found(mutant: Mutant, tmp_path: Path) -> None:
    program = compiled(mutant)
    found = []
    for check in CHECKS:
        folder = tmp_path / check.__name__
        folder.mkdir()
        try:
            check(program, folder)
        except (AssertionError, subprocess.TimeoutExpired):
            found.append(check.__name__)
    print(f"{mutant.name}: found by {', '.join(found) or 'nothing'}")
    assert found
