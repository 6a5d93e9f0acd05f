# SPDX-License-Identifier: GPL-2.0-only
"""The file of rules: rules that the module would refuse are refused, and a new line goes where it decides."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from tests.python.sysfs import IGB, MENU, NVME0, make_device

from xsmmu import module, rules
from xsmmu.errors import UserError
from xsmmu.machine import Device
from xsmmu_lab.project import PROJECT


@pytest.mark.parametrize(
    "text",
    [
        "0000:01:00.0=fused,max_window_us:500",
        "01:00.0=fused",
        "0000:01:00.0/8086:10c9=fused",
        "1:0.0/8086:10C9=none",
        "1:0.0=fused",
        "class:02=fused",
        "class:0108=strict",
        "class:010802=copy",
        "8086:10d3=none",
        "driver:igb=fused,tables:direct,copy_bytes:0",
        "driver:SAA716x Budget=strict",
        "driver:b.c+d:e=strict",
        "class:02=auto",
        "*=auto,tables:direct",
        "*=strict",
    ],
)
def test_rules(text: str) -> None:
    assert rules.parse(text, MENU).text == text


@pytest.mark.parametrize(
    ("text", "message"),
    [
        # As in tests/guest/choice.sh.
        ("class:02", "the rule has no policy: write MATCH=POLICY"),
        ("class:02=turbo", "'turbo' is no policy: choose from none, auto, copy"),
        ("01:00.0 = strict", "the module accepts no blanks beside = , or :, so write 01:00.0=strict"),
        ("01:00.0\t=strict", "write 01:00.0=strict"),
        ("01:00.0= strict", "write 01:00.0=strict"),
        ("01:00.0=fused, max_window_us: 5", "write 01:00.0=fused,max_window_us:5"),
        ("driver:SAA716x Budget = strict", "write driver:SAA716x Budget=strict"),
        (
            "eth0=strict",
            "'eth0' is no match of a rule, because rules take no names: run xsmmu set eth0 POLICY --persist",
        ),
        ("class:0=strict", "'class:0' is no class of 2, 4 or 6 hexadecimal digits: write class:02"),
        ("class:2=strict", "'class:2' is no class of 2, 4 or 6 hexadecimal digits"),
        ("class:020=strict", "'class:020' is no class"),
        ("class:0108021=strict", "'class:0108021' is no class"),
        ("class:0x02=strict", "'class:0x02' is no class"),
        ("class:=strict", "'class:' is no class"),
        ("class:zz=strict", "is no class"),
        ("driver:=strict", "is no driver name directly behind the colon"),
        ("driver: igb=strict", "is no driver"),
        ('driver:a"b=strict', "is no driver"),
        ("driver:a,b=strict", "is no driver"),
        ("0x8086:0x10d3=strict", "is no vendor:device of 4 hexadecimal digits each: write 8086:10d3"),
        ("8086:=strict", "is no match of a rule: write an address"),
        ("8086:10d=strict", "is no vendor:device"),
        ("808:610d3=strict", "is no vendor:device"),
        ("0000:01:00.8=strict", "is no address"),
        ("0000:01:00.=strict", "is no address"),
        ("nvme0n1=strict", "xsmmu set nvme0n1 POLICY --persist to write the address"),
        ("enp1s0f0np0.5=strict", "take no names"),
        ("**=strict", "is no match of a rule: write an address, class:, vendor:device, driver: or *"),
        ("00:20.0=strict", "is no address"),
        ("01:00.0/=strict", "is no address"),
        ("01:00.0/8086=strict", "is no address"),
        ("01:00.0/8086:10c9:1=strict", "is no address"),
        ("01:00.0/8086:10g9=strict", "is no address"),
        ("8086:10d3:1=strict", "is no match of a rule"),
        ("*=fused,max_window_us:0", "max_window_us '0' is invalid: choose a whole number from 1 to 10000000"),
        ("*=fused,fast", "unknown tunable 'fast'"),
        ("*=fused,tables:fast", "unknown tunable 'tables'"),
        ("*=none,batch_pages:7", "none has no tunables: leave out batch_pages:7"),
        ("*=auto,max_window_us:5", "auto has no tunables: leave out max_window_us:5, or name a policy"),
        ("*=auto,tables:direct,fast", "auto has no tunables"),
        ("*=autos", "'autos' is no policy"),
        # Errors of a single line.
        ("*=strict;*=fused", "is no policy"),
        ("*= strict", "write *=strict"),
        ('*=strict"', "is no policy"),
        ("*=fused,max_window_us=5", "has no colon before the value: write max_window_us:5"),
        ("*=fused,max_window_us=5=6", "write max_window_us:5=6"),
        ("*=fused,max_window_us:5=6", "max_window_us '5=6' is invalid"),
        ("=strict", "is no match of a rule"),
    ],
)
def test_wrong_rules(text: str, message: str) -> None:
    with pytest.raises(UserError, match=re.escape(message)):
        rules.parse(text, MENU)


def test_without_the_module_any_policy_may_be_one() -> None:
    assert rules.parse("*=turbo", None).policy == "turbo"
    with pytest.raises(UserError, match="'Turbo' is no policy: choose from none, auto, copy"):
        rules.parse("*=Turbo", None)


def test_rules_that_the_kernel_would_not_take() -> None:
    text = "".join(f"0000:01:{device:02x}.{function}=fused\n" for device in range(32) for function in range(2))
    with pytest.raises(UserError, match="characters together, but the kernel accepts 1024"):
        rules.read(text, MENU)
    assert len(rules.read(text[: len(text) // 2], MENU)) == 32
    # The longest accepted text, and a character more.
    rest = "*=strict\n" * 112
    assert len(rules.joined(rules.read(f"{rest}driver:igbv=lazy\n", MENU))) == 1024
    with pytest.raises(UserError, match="the rules have 1025 characters"):
        rules.read(f"{rest}driver:igbvf=lazy\n", MENU)


def test_ranges_are_the_modules() -> None:
    defines = {"XS_CHUNK_BYTES >> 20": 2, "XS_BOUNCE_MAX_BYTES": 4096, "XS_POOL_MAX_MIB": 256}
    header = (PROJECT / "core/include/xsmmu/engine.h").read_text()
    defines |= {name: int(value) for name, value in re.findall(r"#define (XS_\w+)\s+(\d+)u?\b", header)}
    source = (PROJECT / "kmod/sysfs.c").read_text()
    found = {
        name: tuple(int(word) if word.isdigit() else defines[word] for word in (first, last))
        for name, first, last in re.findall(r"^XS_TUNING\((\w+), \w+, ([^,]+), (\w+)\);", source, re.MULTILINE)
    }
    assert found == module.TUNABLES


@pytest.mark.parametrize(
    ("match", "found"),
    [
        ("*", True),
        ("01:00.0", True),
        ("1:0.0", True),
        ("0001:01:00.0", False),
        ("01:00.0/8086:10C9", True),
        ("01:00.0/8086:10d3", False),
        ("01:00.0/8087:10c9", False),
        ("class:02", True),
        ("class:0200", True),
        ("class:0108", False),
        ("8086:10C9", True),
        ("8086:10d3", False),
        ("driver:igb", True),
        ("driver:ig", False),
    ],
)
def test_what_a_rule_matches(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, match: str, found: bool) -> None:
    monkeypatch.setenv("XSMMU_SYSFS", str(tmp_path))
    make_device(tmp_path, IGB, 11, "none", "igb")
    assert rules.parse(f"{match}=strict", None).matches(Device(IGB), "igb") is found


def test_only_a_newline_ends_a_comment() -> None:
    found = rules.read("# a\x0cb\x0bc\x85d\u2028e\r\n*=strict # f\x0cg\n", None)
    assert [rule.text for rule in found] == ["*=strict"]


@pytest.mark.parametrize(
    ("before", "choice", "after"),
    [
        ("", "fused", f"{IGB}/8086:10c9=fused\n"),
        ("# mine\n\n", "fused", f"# mine\n\n{IGB}/8086:10c9=fused\n"),
        (f"{NVME0}=strict\n", "fused", f"{NVME0}=strict\n{IGB}/8086:10c9=fused\n"),
        # An existing line is replaced, however written, with its comment.
        (f"01:00.0=strict # why\n{NVME0}=strict\n", "fused", f"{IGB}/8086:10c9=fused # why\n{NVME0}=strict\n"),
        (f"{IGB}=strict\n1:0.0=lazy\n*=none\n", "fused", f"{IGB}/8086:10c9=fused\n*=none\n"),
        # Before the first line that would match.
        (
            "# disks\nclass:01=strict\n\n# rest\n*=none\n",
            "fused",
            f"{IGB}/8086:10c9=fused\n# disks\nclass:01=strict\n\n# rest\n*=none\n",
        ),
        (f"{IGB}/144d:a808=strict # why\n*=none\n", "fused", f"{IGB}/8086:10c9=fused # why\n*=none\n"),
        (f"*=none\n{IGB}=strict\n", "fused", f"{IGB}/8086:10c9=fused\n*=none\n"),
        (f"# {IGB}=lazy\n{IGB}=strict\n*=none", None, f"# {IGB}=lazy\n*=none\n"),
        ("what is wrong is not touched\n", None, "what is wrong is not touched\n"),
        # Only a newline ends a line: form feeds, and other programs' line ends, may be part of a comment.
        ("# a\x0cb\x0b\x85\u2028c\r\n\n", "fused", f"# a\x0cb\x0b\x85\u2028c\r\n\n{IGB}/8086:10c9=fused\n"),
    ],
)
def test_a_line_of_the_file(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, before: str, choice: str | None, after: str
) -> None:
    monkeypatch.setenv("XSMMU_SYSFS", str(tmp_path))
    make_device(tmp_path, IGB, 11, "none", "igb")
    assert rules.with_choice(before, Device(IGB), choice) == after
