# SPDX-License-Identifier: GPL-2.0-only
"""Profiling one call, against a stub that plays a function of a few instructions."""

from __future__ import annotations

import asyncio
import json
import re
from collections import Counter
from dataclasses import dataclass, field
from pathlib import Path

import pytest
from click.testing import CliRunner
from rich.console import Console

from xsmmu.cli import app
from xsmmu.errors import UserError
from xsmmu_lab.runs import profile
from xsmmu_lab.runs.profile import EndedError, Part, Profile, Stub, Symbols

SYMBOLS = [
    "0000000000001000 T map_page",
    "0000000000001000 T __map_page_alias",
    "0000000000001100 t helper",
    "0000000000002000 t helper [other]",
    "0000000000003000 t hook [xsmmu]",
    "0000000000004000 t hook [other]",
]

TRACE = [(0x1000, 0x80), (0x1004, 0x80), (0x3000, 0x78), (0x3002, 0x78), (0x1009, 0x80), (0x500, 0x88)]
"""A call: instruction pointer and stack pointer of each step, the last after the return."""


@dataclass
class FakeStub:
    """A stub that starts at TRACE's first entry and advances an entry per step."""

    damaged: bool = False
    ends: bool = False
    at: int = 0
    commands: list[str] = field(default_factory=list)

    def reply(self, command: str) -> str:
        """QEMU's reply."""
        self.commands.append(command)
        if command == "g":
            registers = [0] * 24
            registers[16], registers[7] = TRACE[self.at]
            return "".join(value.to_bytes(8, "little").hex() for value in registers)
        if command == "s":
            self.at += 1
            return "W00" if self.ends else "T05thread:01;"
        if command == "m80,8":
            return (0x500).to_bytes(8, "little").hex()
        return {"bad": "E22"}.get(command, "")

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        """Answer until the client hangs up."""
        data = b""
        while part := await reader.read(100):
            data += part
            while found := re.match(rb"\+*\$([^#]*)#(..)", data):
                assert int(found[2], 16) == sum(found[1]) & 255
                data = data[found.end() :]
                answer = self.reply(found[1].decode()).encode()
                writer.write(b"+$%b#%02x" % (answer, (sum(answer) + self.damaged) & 255))
        writer.close()


def talk(folder: Path, fake: FakeStub, *commands: str) -> Counter[int]:
    """Send the commands, or step through a call if there are none."""

    async def both() -> Counter[int]:
        server = await asyncio.start_unix_server(fake.serve, folder / "gdb")
        stub = Stub(*await asyncio.open_unix_connection(folder / "gdb"))
        try:
            for command in commands:
                await stub.request(command)
            return Counter() if commands else await stub.call()
        finally:
            stub.close()
            server.close()

    return asyncio.run(both())


def test_a_call_is_stepped_until_it_returns(tmp_path: Path) -> None:
    fake = FakeStub()
    seen = talk(tmp_path, fake)
    assert seen == Counter(rip for rip, _ in TRACE[:-1])
    assert fake.commands.count("s") == 5
    assert Symbols(SYMBOLS).parts(seen) == (Part("map_page", "kernel", 3, 0.6), Part("hook", "xsmmu", 2, 0.4))


def test_what_a_stub_may_do_wrong(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for fake, command, message in (
        (FakeStub(), "bad", r"refused 'bad' \(E22\)"),
        (FakeStub(), "Z1,1000,1", r"refused 'Z1,1000,1' \(unknown\)"),
        (FakeStub(damaged=True), "g", "damaged"),
    ):
        with pytest.raises(UserError, match=message):
            talk(tmp_path, fake, command)
    with pytest.raises(EndedError):
        talk(tmp_path, FakeStub(ends=True))
    monkeypatch.setattr(profile, "MAX_STEPS", 3)
    with pytest.raises(UserError, match="within 3 instructions"):
        talk(tmp_path, FakeStub())


def test_functions_by_name() -> None:
    symbols = Symbols(SYMBOLS)
    assert symbols.address("__map_page_alias") == 0x1000
    assert symbols.address("hook") == 0x3000
    with pytest.raises(UserError, match="2 functions are named 'helper'"):
        symbols.address("helper")
    with pytest.raises(UserError, match="unknown function 'map_pages': choose from map_page"):
        symbols.address("map_pages")


def test_the_command_prints_a_table_or_json(monkeypatch: pytest.MonkeyPatch) -> None:
    made = Profile("6.12.1", "an IOMMU", "fused", "map_page", 4500, 5, (Part("map_page", "kernel", 5, 1.0),))
    monkeypatch.setattr(profile, "run", lambda *_: made)
    shown = CliRunner().invoke(app, ["lab", "profile"]).stdout
    assert shown.startswith("map_page, call 4,500 of micro ring=1024: fused on 6.12.1, an IOMMU\n")
    assert re.search(r"map_page +│ kernel +│ +5 │ 100\.0%", shown)
    assert re.search(r"total +│ +│ +5 │ 100\.0%", shown)
    assert "\nCounted: instructions" in shown
    printed = json.loads(CliRunner().invoke(app, ["lab", "profile", "--json"]).stdout)
    assert printed["instructions"] == 5
    assert printed["parts"] == [{"function": "map_page", "module": "kernel", "instructions": 5, "share": 1.0}]


def test_an_unknown_policy_lists_the_valid_ones() -> None:
    with pytest.raises(UserError, match="unknown policy 'fast': choose from passthrough, kernel-strict"):
        profile.run(None, "fast", "map_page", 1, Console())


def test_an_unknown_iommu_lists_the_valid_ones() -> None:
    with pytest.raises(UserError, match="unknown IOMMU 'smmu': choose from vtd, vtd-cm"):
        profile.run(None, "fused", "map_page", 1, Console(), "smmu")
