# SPDX-License-Identifier: GPL-2.0-only
"""Transfers of cache lines in replays (xsmmu-replay-lines), against those of `make scale` for like traffic."""

from __future__ import annotations

import itertools
import json
import random
import subprocess
from collections import deque
from collections.abc import Iterator
from pathlib import Path
from typing import Final

import pytest
from click.testing import CliRunner
from rich.console import Console
from tests.python.documents import fault
from tests.python.recordings import HEADER, PAGE, Player, Recording, place, polls

from xsmmu import replay as command
from xsmmu.cli import app
from xsmmu.errors import UserError
from xsmmu.programs import FOLDER_VARIABLE
from xsmmu_lab import scale
from xsmmu_lab.setup import host, replay, root

CPUS: Final = 4
POLL: Final = 256
RING: Final = 512
POLLS: Final = 40


@pytest.fixture(scope="module")
def player() -> Player:
    return Player(replay.counting())


def traffic(elsewhere: int) -> Recording:
    """As of sim/scale/traffic.c: each CPU polls a ring; a share of the buffers is unmapped in a poll of another CPU."""
    rng = random.Random(1)
    made = Recording(step=50)
    numbers = iter(range(1, 1 << 24))
    taken = [itertools.count() for _ in range(CPUS)]
    rings: list[deque[int]] = [deque() for _ in range(CPUS)]
    inboxes: list[deque[int]] = [deque() for _ in range(CPUS)]

    def unmap(number: int, cpu: int) -> None:
        made.unmap(number, cpu=cpu, iova=place(0) + number * PAGE)

    def poll(cpu: int, count: int) -> Iterator[None]:
        """Unmaps what was received and handed over, then maps as much as was received; a step for each call."""
        received, handed = min(count, len(rings[cpu])), len(inboxes[cpu])
        while received or handed:
            if handed and (not received or rng.random() < 0.5):
                handed -= 1
                unmap(inboxes[cpu].popleft(), cpu)
            else:
                received -= 1
                number = rings[cpu].popleft()
                if rng.randrange(100) < elsewhere:
                    inboxes[rng.choice([each for each in range(CPUS) if each != cpu])].append(number)
                    continue
                unmap(number, cpu)
            yield
        made.poll(cpu=cpu)
        for _ in range(count):
            number = next(numbers)
            rings[cpu].append(number)
            # Each CPU uses its own memory again.
            made.map(number, cpu=cpu, iova=place(0) + number * PAGE, page=1 + cpu + CPUS * (next(taken[cpu]) % 2048))
            yield

    def work(cpu: int) -> Iterator[None]:
        yield from poll(cpu, RING)
        for _ in range(POLLS):
            yield from poll(cpu, POLL)

    running = [work(cpu) for cpu in range(CPUS)]
    while running:
        at = rng.randrange(len(running))
        if next(running[at], running) is running:
            del running[at]
    return made


@pytest.fixture(scope="module")
def scaled() -> Path:
    return scale.compiled(root.ensure(host.cache_dir(), Console(stderr=True)))


@pytest.mark.parametrize("elsewhere", [0, 33])
def test_figures_are_those_of_make_scale(elsewhere: int, player: Player, scaled: Path, tmp_path: Path) -> None:
    """Whose backend also reads what is not the engine's; a replay counts from the first event on, with the set-up."""
    file = traffic(elsewhere).write(tmp_path / "a", HEADER | {"cpus": CPUS})
    for policy in ("strict", "lazy", "fands", "xsmmu", "fused"):
        wanted = scale.counted(scaled, scale.Config(policy, False, CPUS, elsewhere, "short"))
        found = player(file, policy, "--counts", "1000000")["lines"]
        transfers = found["transfers_per_page_unmapped"]
        print(f"{policy}: {transfers:.4f} here, {wanted.transfers():.4f} by make scale")
        assert transfers == pytest.approx(wanted.transfers(), rel=0.15, abs=0.04)
        assert found["accesses"] / found["pages_unmapped"] == pytest.approx(wanted.accesses, rel=0.15)
        kinds = ("read_dirty", "read_clean", "fetch", "upgrade")
        assert sum(found[kind] for kind in kinds) == pytest.approx(transfers * found["pages_unmapped"], rel=1e-4)


def test_the_first_events_are_counted(player: Player, tmp_path: Path) -> None:
    file = polls(1000, 64).write(tmp_path / "a")
    found = player(file, "fused", "--counts", "300")
    # Two polls of 64 maps, 64 unmaps and an end, then 42 maps.
    assert (found["events"], found["maps"], found["lines"]["pages_unmapped"]) == (300, 170, 128)
    whole = player(file, "fused", "--counts", "1000000")
    assert whole["lines"]["pages_unmapped"] == 1000
    assert "lines" not in player(file, "fused")


def test_pages_are_those_of_the_counted_events(player: Player, tmp_path: Path) -> None:
    """What is unmapped between the passes of a repeated recording is not counted."""
    file = polls(1000, 64).write(tmp_path / "a")
    once, again = (player(file, "fused", "--counts", "200", *words) for words in ((), ("--repeat", "3")))
    assert (once["pages_unmapped"], again["pages_unmapped"]) == (64 + 7, 64 + 64)
    assert once["lines"] == again["lines"]
    assert once["lines"]["pages_unmapped"] == 64 + 7
    left = Recording().map(1).map(2).unmap(1).write(tmp_path / "b")
    found = player(left, "fused", "--counts", "9", "--repeat", "2")
    assert (found["events"], found["lines"]["pages_unmapped"]) == (6, 2)


def test_memory_is_limited(player: Player, tmp_path: Path) -> None:
    """That of the engine, too, although its address space is larger than the limit."""
    made = Recording()
    for device in range(300):
        made.map(device + 1, device=device)
    file = made.write(tmp_path / "a", HEADER | {"cpus": 64})
    argv = [str(player.program), str(file), "--policy", "copy", "--counts", "9999"]
    for limit, said in (
        ("", "of address space: raise the limit"),
        (":unlimited", "no memory for an engine of 64 CPUs"),
    ):
        words = ["prlimit", f"--as={256 << 20}{limit}", *argv]
        done = subprocess.run(words, capture_output=True, text=True, check=False)
        assert done.returncode == 3 and said in done.stderr


def test_one_cpu_has_no_transfers(player: Player, tmp_path: Path) -> None:
    found = player(polls(1000, 64).write(tmp_path / "a", HEADER | {"cpus": 1}), "xsmmu", "--counts", "9999")
    assert (found["lines"]["transfers_per_page_unmapped"], found["lines"]["fetch"]) == (0, 0)
    assert found["lines"]["accesses"] > 10_000


def test_what_cannot_be_counted(player: Player, tmp_path: Path) -> None:
    file = polls(10, 5).write(tmp_path / "a", HEADER | {"cpus": 65})
    assert player.try_(file, "kernel-lazy", "--counts", "9")[0] == 2
    assert Player(replay.compiled()).try_(file, "fused", "--counts", "9")[0] == 2
    status, text = player.try_(file, "fused", "--counts", "9")
    assert status == 3 and "of at most 64 CPUs, and the recording has 65" in text


def test_the_command(player: Player, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "programs").mkdir()
    for name, program in ((command.PROGRAM, replay.compiled()), (command.COUNTING, player.program)):
        (tmp_path / "programs" / name).symlink_to(program)
    monkeypatch.setenv(FOLDER_VARIABLE, str(tmp_path / "programs"))
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    file = polls(100, 50).write(tmp_path / "a")

    def said(*words: str) -> str:
        argv = ["replay", str(file), "--policy", "kernel-strict,fused", *words]
        return CliRunner().invoke(app, argv, catch_exceptions=False).stdout

    assert "LINES/PAGE" not in said()
    head, kernel, fused = said("--counts").splitlines()[1:4]
    assert head.endswith("LINES/PAGE") and kernel.endswith(" -") and not fused.endswith(" -")
    document = json.loads(said("--counts", "-o", "json"))
    assert not fault(document)
    assert ["lines" in each for each in document["replays"]] == [False, True]
    assert document["replays"][1]["lines"]["events"] == document["replays"][1]["events"] == 202
    (tmp_path / "programs" / command.COUNTING).unlink()
    assert "LINES/PAGE" not in said()
    with pytest.raises(UserError, match="xsmmu-replay-lines does not exist: name xsmmu-replay and"):
        said("--counts")
