# SPDX-License-Identifier: GPL-2.0-only
"""The profile of `make native PERF=1`, from invented samples."""

from __future__ import annotations

from pathlib import Path

import pytest

from xsmmu.errors import UserError
from xsmmu_lab.native import perf
from xsmmu_lab.native.perf import Listing, Symbol
from xsmmu_lab.native.plan import AWARE, UNMODIFIED, Case
from xsmmu_lab.setup import host

_OBJDUMP = """
xsmmu.ko:     file format elf64-x86-64

Disassembly of section .text:

0000000000000010 <xs_map>:
      10:	push   %rbp
      14:	lock cmpxchg %r9,(%rsi)
      19:	jne    30 <xs_map+0x20>
      1b:	xchg   %ax,%ax
      1d:	ret

0000000000000040 <twice>:
      40:	ret
0000000000000050 <twice>:
      50:	xchg   %rax,(%rdi)
"""

_SYMBOLS = perf.symbols_of(
    "00000000a0000010 xs_map [xsmmu],0000000060001000 dma_map_phys,0000000060002000 schedule,"
    "00000000a0001000 swaps_ticks [xsmmu_native],"
)


class _Listed(Listing):
    def __init__(self) -> None:
        pass

    def of(self, symbol: Symbol, end: int) -> dict[int, str]:
        del end
        return perf.functions_of(_OBJDUMP).get(symbol.name, {})


def test_symbols_are_read_in_order() -> None:
    assert [(symbol.name, symbol.module) for symbol in _SYMBOLS] == [
        ("dma_map_phys", ""),
        ("schedule", ""),
        ("xs_map", "xsmmu"),
        ("swaps_ticks", "xsmmu_native"),
    ]


def test_instructions_are_read_by_function() -> None:
    found = perf.functions_of(_OBJDUMP)
    assert found["xs_map"][4] == "lock cmpxchg %r9,(%rsi)"
    assert [*found["xs_map"]] == [0, 4, 9, 11, 13]
    assert found["twice"] == {}, "two functions of a name cannot be told apart"


def test_time_is_counted_by_function_and_locked_instruction() -> None:
    """At a locked instruction and behind it; not in other parts of the kernel, the bench's own loops, and the host."""
    start = 0xA0000010
    path = [start + 4, start + 9, start + 9, start + 0xB, start + 0xD, 0x60001004, 0x60001004, 0x60001008]
    others = [0x60002004, 0xA0001004, 0x7F0000000000, 0x1000]
    found = perf.counted(Case("fused"), [*path, *others], _SYMBOLS, _Listed())
    assert found.samples == 8
    assert found.functions == [("xs_map", "xsmmu", 0.625), ("dma_map_phys", "", 0.375)]
    assert found.locked == [("xs_map", "+0x4 lock cmpxchg %r9,(%rsi)", 0.375)]


def test_no_sample_of_the_path_is_an_error() -> None:
    with pytest.raises(UserError, match="saw nothing"):
        perf.counted(Case("fused"), [0x60002004], _SYMBOLS, _Listed())


def test_a_policy_has_a_profile_for_each_kind_of_driver() -> None:
    assert [case.driver for case in perf.cases_of("fused-direct", 0)] == [UNMODIFIED, AWARE]
    assert [case.driver for case in perf.cases_of("kernel-lazy", 1000)] == [UNMODIFIED]
    with pytest.raises(UserError, match=r"unknown policy 'fast': choose from passthrough, .*fused-direct"):
        perf.cases_of("fast", 0)


def test_a_machine_without_perf_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(host, "system_env", lambda: {"PATH": str(tmp_path)})
    with pytest.raises(UserError, match="there is no perf on this machine: install it"):
        perf.program()


def test_a_perf_that_may_not_sample_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(host, "system_env", lambda: {"PATH": f"{tmp_path}:/usr/bin:/bin"})
    program = tmp_path / "perf"
    program.write_text("#!/bin/sh\necho 'No permission to enable cpu-clock event.' >&2\nexit 255\n")
    program.chmod(0o755)
    with pytest.raises(UserError, match="perf may not sample here: run as root, or lower") as raised:
        perf.program()
    assert raised.value.lines == ("No permission to enable cpu-clock event.",)
