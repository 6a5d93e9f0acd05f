# SPDX-License-Identifier: GPL-2.0-only
"""The oracle: counts by window, and a lab that fails when the module counts otherwise."""

from __future__ import annotations

import random
import time

import pytest

from xsmmu.errors import UserError
from xsmmu.vm.oracle import CANARY, Counts, Oracle, compare

PAGE = b"vtd_inv_desc_iotlb_pages invalidate: domain 0x2 addr 0xfffff000 mask 0x0\n"
DOMAIN = b"vtd_inv_desc_iotlb_domain domain 0x2\n"
GLOBAL = b"vtd_inv_desc_iotlb_global \n"
PASID = b"vtd_inv_desc_iotlb_pasid domain 0x2 pasid 0x0\n"
PASID_PAGES = b"vtd_inv_desc_iotlb_pasid_pages domain 0x2 pasid 0x0 addr 0x0\n"
CONSOLE = b"serial_write [0x00] <- 0x20\n"


def marker(number: int) -> bytes:
    """What QEMU writes for the guest's marker `number`."""
    return b"serial_write [0x07] <- 0x%02x\n" % (number & 0xFF)


def test_windows_are_cut_at_markers() -> None:
    oracle = Oracle()
    oracle.feed(PAGE + marker(1) + PAGE * 3 + DOMAIN + CONSOLE + marker(2) + GLOBAL + marker(3) + PAGE)
    assert oracle.markers == 3
    assert oracle.window(1, 2) == Counts(3, 1, 0)
    assert oracle.window(2, 3) == Counts(0, 0, 1)
    assert oracle.window(1, 3) == Counts(3, 1, 1)


def test_each_event_has_its_kind() -> None:
    oracle = Oracle()
    oracle.feed(marker(1) + PAGE + PASID_PAGES + DOMAIN + PASID + GLOBAL + marker(2))
    assert oracle.window(1, 2).as_dict() == {"page": 2, "domain": 2, "global": 1}


@pytest.mark.parametrize("seed", range(5))
def test_parts_may_be_cut_anywhere(seed: int) -> None:
    chance = random.Random(seed)
    lines = [chance.choice((PAGE, DOMAIN, GLOBAL, CONSOLE)) for _ in range(300)]
    trace = marker(1) + b"".join(lines) + marker(2)
    oracle = Oracle()
    while trace:
        size = chance.randint(1, 200)
        oracle.feed(trace[:size])
        trace = trace[size:]
    assert oracle.window(1, 2) == Counts(lines.count(PAGE), lines.count(DOMAIN), lines.count(GLOBAL))


def test_markers_count_past_one_byte() -> None:
    oracle = Oracle()
    for number in range(1, 600):
        oracle.feed(marker(number) + PAGE)
    assert oracle.window(1, 599) == Counts(598, 0, 0)


def test_a_lost_marker_is_noticed() -> None:
    oracle = Oracle()
    oracle.feed(marker(1))
    with pytest.raises(UserError, match="lost its place"):
        oracle.feed(marker(3))


def test_what_a_sleeping_console_writes_is_no_marker() -> None:
    oracle = Oracle()
    oracle.feed(marker(1) + marker(CANARY) + marker(2))
    assert oracle.markers == 2
    oracle = Oracle()
    oracle.feed(b"".join(marker(number) for number in range(1, CANARY + 2)))
    assert oracle.markers == CANARY + 1


def test_a_window_that_was_not_seen_is_refused() -> None:
    oracle = Oracle()
    oracle.feed(marker(1))
    with pytest.raises(UserError, match="1 markers"):
        oracle.window(1, 2)


def test_other_lines_are_kept_for_messages() -> None:
    oracle = Oracle()
    oracle.feed(marker(1) + PAGE + b"qemu: something went wrong\n" + marker(2))
    assert oracle.other_lines == [b"qemu: something went wrong"]


def test_a_million_lines_are_no_problem() -> None:
    oracle = Oracle()
    started = time.monotonic()
    oracle.feed(marker(1))
    for _ in range(1000):
        oracle.feed(PAGE * 1000)
    oracle.feed(marker(2))
    assert oracle.window(1, 2) == Counts(1_000_000, 0, 0)
    assert time.monotonic() - started < 20


@pytest.mark.parametrize("kind", ["page", "domain", "global"])
def test_a_wrong_count_fails_and_says_where(kind: str) -> None:
    right = {"page": 10, "domain": 20, "global": 30}
    compare("micro/64 under fused", Counts(10, 20, 30), Counts.from_mapping(right))
    wrong = {**right, kind: right[kind] + 1}
    with pytest.raises(UserError, match=rf"micro/64 under fused.*{kind}: module {right[kind]}, QEMU {right[kind] + 1}"):
        compare("micro/64 under fused", Counts(10, 20, 30), Counts.from_mapping(wrong))
