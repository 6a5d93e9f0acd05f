# SPDX-License-Identifier: GPL-2.0-only
"""The oracle: counts by window, and a lab that fails if the module counts differently."""

from __future__ import annotations

import random
import time

import pytest

from xsmmu.errors import UserError
from xsmmu_lab.vm.iommu import DEFAULT_IOMMU, IOMMUS
from xsmmu_lab.vm.oracle import CANARY, Counts, Oracle, Requests, compare, compare_devices

VTD = IOMMUS[DEFAULT_IOMMU]

PAGE = b"vtd_inv_desc_iotlb_pages invalidate: domain 0x2 addr 0xfffff000 mask 0x0\n"
DOMAIN = b"vtd_inv_desc_iotlb_domain domain 0x2\n"
GLOBAL = b"vtd_inv_desc_iotlb_global \n"
PASID = b"vtd_inv_desc_iotlb_pasid domain 0x2 pasid 0x0\n"
PASID_PAGES = b"vtd_inv_desc_iotlb_pasid_pages domain 0x2 pasid 0x0 addr 0x0\n"
FIRST_PAGES = b"vtd_inv_desc invalidate desc type p-iotlb high 0xfffff040 low 0x20036\n"
FIRST_ALL = b"vtd_inv_desc invalidate desc type p-iotlb high 0x0 low 0x20026\n"
DEVICE = b"vtd_inv_desc invalidate desc type device high 0xfffff001 low 0xc0000000003\n"
DEVICE_PASID = b"vtd_inv_desc invalidate desc type device-piotlb high 0xfffff001 low 0xc0000000008\n"
WAIT = b"vtd_inv_desc invalidate desc type wait high 0x1000 low 0x200000025\n"
CONSOLE = b"serial_write [0x00] <- 0x20\n"


def marker(number: int) -> bytes:
    """QEMU's output for the guest's marker `number`."""
    return b"serial_write [0x07] <- 0x%02x\n" % (number & 0xFF)


def test_windows_are_cut_at_markers() -> None:
    oracle = Oracle(VTD)
    oracle.feed(PAGE + marker(1) + PAGE * 3 + DOMAIN + CONSOLE + marker(2) + GLOBAL + marker(3) + PAGE)
    assert oracle.markers == 3
    assert oracle.window(1, 2) == Counts(3, 1, 0)
    assert oracle.window(2, 3) == Counts(0, 0, 1)
    assert oracle.window(1, 3) == Counts(3, 1, 1)


def test_each_event_has_its_kind() -> None:
    oracle = Oracle(VTD)
    oracle.feed(marker(1) + PAGE + PASID_PAGES + DOMAIN + PASID + GLOBAL + marker(2))
    assert oracle.window(1, 2).as_dict() == {"page": 2, "domain": 2, "global": 1}


def test_commands_for_device_tlbs_are_apart() -> None:
    for name, commands in (("vtd", PAGE + DOMAIN), ("vtd-first", FIRST_PAGES + FIRST_ALL)):
        oracle = Oracle(IOMMUS[name])
        oracle.feed(marker(1) + commands + DEVICE + DEVICE_PASID + WAIT + marker(2))
        found = oracle.window(1, 2)
        assert found == Counts(1, 1, 0, device=2)
        assert found.total == 2
        assert "device" not in found.as_dict()
        assert not oracle.other_lines
        compare("a disk", IOMMUS[name], Counts(1, 1), found)
        compare_devices("a disk", Counts(1, 1, device=2), found)
        with pytest.raises(UserError, match="a disk: 2 commands for the device's own TLB, not 3"):
            compare_devices("a disk", Counts(2, 1, device=3), found)
        with pytest.raises(UserError, match="a disk: 2 commands for the device's own TLB, not 1"):
            compare_devices("a disk", Counts(1, device=1), found)


@pytest.mark.parametrize("seed", range(5))
def test_parts_may_be_cut_anywhere(seed: int) -> None:
    chance = random.Random(seed)
    lines = [chance.choice((PAGE, DOMAIN, GLOBAL, CONSOLE)) for _ in range(300)]
    trace = marker(1) + b"".join(lines) + marker(2)
    oracle = Oracle(VTD)
    while trace:
        size = chance.randint(1, 200)
        oracle.feed(trace[:size])
        trace = trace[size:]
    assert oracle.window(1, 2) == Counts(lines.count(PAGE), lines.count(DOMAIN), lines.count(GLOBAL))


def test_markers_count_past_one_byte() -> None:
    oracle = Oracle(VTD)
    for number in range(1, 600):
        oracle.feed(marker(number) + PAGE)
    assert oracle.window(1, 599) == Counts(598, 0, 0)


def test_a_lost_marker_is_noticed() -> None:
    oracle = Oracle(VTD)
    oracle.feed(marker(1))
    with pytest.raises(UserError, match="lost its place"):
        oracle.feed(marker(3))


def test_what_a_sleeping_console_writes_is_no_marker() -> None:
    oracle = Oracle(VTD)
    oracle.feed(marker(1) + marker(CANARY) + marker(2))
    assert oracle.markers == 2
    oracle = Oracle(VTD)
    oracle.feed(b"".join(marker(number) for number in range(1, CANARY + 2)))
    assert oracle.markers == CANARY + 1


def test_a_window_that_was_not_seen_is_refused() -> None:
    oracle = Oracle(VTD)
    oracle.feed(marker(1))
    with pytest.raises(UserError, match="1 markers"):
        oracle.window(1, 2)
    # Commands before the first marker belong to no window.
    with pytest.raises(UserError, match="no window from 0 to 1"):
        oracle.window(0, 1)


def test_other_lines_are_kept_for_messages() -> None:
    oracle = Oracle(VTD)
    oracle.feed(marker(1) + PAGE + PASID_PAGES + b"qemu: something went wrong\n" + marker(2))
    assert oracle.other_lines == [b"qemu: something went wrong"]


def test_a_million_lines_are_no_problem() -> None:
    oracle = Oracle(VTD)
    started = time.monotonic()
    oracle.feed(marker(1))
    for _ in range(1000):
        oracle.feed(PAGE * 1000)
    oracle.feed(marker(2))
    assert oracle.window(1, 2) == Counts(1_000_000, 0, 0)
    assert time.monotonic() - started < 20


DESCRIPTOR = b"vtd_inv_desc invalidate desc type %s high 0x%x low 0x%x\n"
WAIT = DESCRIPTOR % (b"wait", 0x1234, 0x500000025)
OF_KINDS = {
    "vtd": (PAGE * 3 + PASID_PAGES + DOMAIN + PASID + GLOBAL, {"page": 4, "domain": 2, "global": 1}),
    "vtd-first": (
        DESCRIPTOR % (b"p-iotlb", 0xFFFFE006, 0x20036)
        + DESCRIPTOR % (b"p-iotlb", 0xFFFFE046, 0x200F6)
        + DESCRIPTOR % (b"p-iotlb", 0, 0x20026)
        + DESCRIPTOR % (b"iotlb", 0, 0x12)
        + WAIT,
        {"page": 2, "domain": 1, "global": 1},
    ),
    "amd": (b"amdvi_pages_inval AMD-Vi pages for domain 0x2 invalidated\n" * 4, {"page": 4, "domain": 0, "global": 0}),
    "virtio": (
        b"virtio_iommu_map domain=1 virt_start=0x1000 virt_end=0x1fff phys_start=0x5000 flags=3\n"
        b"virtio_iommu_unmap domain=1 virt_start=0x1000 virt_end=0x1fff\n",
        {"page": 1, "domain": 0, "global": 0},
    ),
    "smmuv3": (
        b"".join(
            b"smmuv3_cmdq_opcode <--- SMMU_CMD_%s\n" % name
            for name in (
                *(b"TLBI_NH_VA", b"TLBI_NH_VA", b"TLBI_NH_VAA", b"TLBI_S2_IPA"),
                *(b"TLBI_NH_ASID", b"TLBI_S12_VMALL"),
                *(b"TLBI_NSNH_ALL", b"TLBI_NH_ALL"),
                *(b"FLUSH", b"CFGI_CD", b"CFGI_STE", b"ATC_INV"),
            )
        ),
        {"page": 4, "domain": 2, "global": 2},
    ),
}


@pytest.mark.parametrize("name", OF_KINDS)
def test_each_iommu_has_commands_of_its_own(name: str) -> None:
    trace, counts = OF_KINDS[name]
    oracle = Oracle(IOMMUS[name])
    oracle.feed(marker(1) + trace + marker(2))
    assert oracle.window(1, 2).as_dict() == counts
    assert oracle.other_lines == []


def test_what_a_command_for_the_first_stage_is_for_is_in_two_bits() -> None:
    kinds = {2: Counts(domain=1), 3: Counts(page=1)}
    for digit in range(16):
        for other in (0x30006, 0x27003):
            oracle = Oracle(IOMMUS["vtd-first"])
            oracle.feed(marker(1) + DESCRIPTOR % (b"p-iotlb", 0xFFFFE046, other | digit << 4) + marker(2))
            assert oracle.window(1, 2) == kinds.get(digit & 3, Counts())


NO_FAULT = (
    "DMAR: IOMMU enabled",
    "AMD-Vi: Disabling interrupt remapping",
    "virtio_iommu virtio0: input address: 48 bits",
    "arm-smmu-v3 c000000.smmuv3: allocated 32768 entries for evtq",
    "arm-smmu-v3 c000000.smmuv3: msi_domain absent - falling back to wired irqs",
)
REFUSALS = {
    "vtd": (
        "DMAR: DRHD: handling fault status reg 1",
        "DMAR: DRHD: handling fault status reg 2",
        "DMAR: DRHD: handling fault status reg 102",
        "DMAR: DRHD: handling fault status reg 3",
        "DMAR: [DMA Write NO_PASID] Request device [00:03.0] fault addr 0xfffff000 [fault reason 0x05] not set",
        "DMAR: [DMA Read] Request device [00:03.0] fault addr 0xfffff000 [fault reason 0x06] PTE Read access",
        "DMAR: [DMA Write PASID 0x1] Request device [00:03.0] fault addr 0xfffff000 [fault reason 0x71] SM:",
    ),
    "amd": (
        "xsmmu_lab 0000:00:03.0: AMD-Vi: Event logged [IO_PAGE_FAULT domain=0x0002 address=0xfffff000 flags=0x0020]",
        "AMD-Vi: Event logged [IO_PAGE_FAULT device=0000:00:03.0 domain=0x0002 address=0xfffff000 flags=0x0020]",
    ),
    "virtio": (
        "virtio_iommu virtio0: page fault from EP 24 at 0xfffff000 [W]",
        "virtio_iommu virtio0: domain fault from EP 24 at 0xfffff000 [R]",
    ),
    "smmuv3": (
        "arm-smmu-v3 c000000.smmuv3: event 0x10 received:",
        "arm-smmu-v3 c000000.smmuv3: event 0x13 received:",
        "arm-smmu-v3 c000000.smmuv3: event: F_PERMISSION client: 0000:00:03.0 sid: 0x18 ssid: 0x0 iova: 0xfffff000",
        "arm-smmu-v3 c000000.smmuv3: event: F_TRANSLATION client: 0000:00:03.0 sid: 0x18 ssid: 0x0 iova: 0xfffff000",
        "arm-smmu-v3 c000000.smmuv3: EVTQ overflow detected -- events lost",
    ),
}
TROUBLES = {
    "vtd": (
        "DMAR: DRHD: handling fault status reg 40",
        "DMAR: DRHD: handling fault status reg 12",
        "DMAR: VT-d detected Invalidation Time-out Error: SID 18",
        "DMAR: VT-d detected Invalidation Queue Error: Reason 4",
        "DMAR: [DMA Write NO_PASID] Request device [00:03.0] fault addr 0xfffff000 [fault reason 0x0c] non-zero",
        "DMAR: [DMA Write NO_PASID] Request device [00:03.0] fault addr 0xfffff000 [fault reason 0x02] Present bit",
        "DMAR: [INTR-REMAP] Request device [00:03.0] fault index 0x0 [fault reason 0x25]",
    ),
    "amd": (
        "AMD-Vi: Event logged [INVALID_DEVICE_REQUEST device=00:03.0 pasid=0x0 address=0x100123000 flags=0x0]",
        "AMD-Vi: Event logged [ILLEGAL_COMMAND_ERROR address=0x100123000]",
        "AMD-Vi: Event logged [IOTLB_INV_TIMEOUT device=00:03.0 address=0x100123000]",
        "AMD-Vi: Completion-Wait loop timed out",
        "AMD-Vi: Command buffer timeout",
    ),
    "virtio": ("virtio_iommu virtio0: unknown fault from EP 24", "virtio_iommu virtio0: device error"),
    "smmuv3": (
        *(f"arm-smmu-v3 c000000.smmuv3: event {event} received:" for event in ("0x04", "0x11", "0x12", "0x20")),
        "arm-smmu-v3 c000000.smmuv3: event: F_WALK_EABT client: 0000:00:03.0 sid: 0x18 ssid: 0x0 iova: 0xfffff000",
        "arm-smmu-v3 c000000.smmuv3: PRIQ overflow detected -- requests lost",
        "arm-smmu-v3 c000000.smmuv3: failed to enable irqs",
        "arm-smmu-v3 c000000.smmuv3: event: C_BAD_STE client: 0000:00:03.0 sid: 0x18 ssid: 0x0 iova: 0x0",
        "arm-smmu-v3 c000000.smmuv3: EVTQ MSI write aborted",
        "arm-smmu-v3 c000000.smmuv3: unexpected global error reported (0x00000001), this could be serious",
        "arm-smmu-v3 c000000.smmuv3: CMD_SYNC timeout at 0x00000012 [hwprod 0x00000012, hwcons 0x00000011]",
    ),
}


@pytest.mark.parametrize("name", IOMMUS)
def test_lines_that_tell_of_a_fault_are_known(name: str) -> None:
    kind, iommu = name.split("-")[0], IOMMUS[name]
    table = ((REFUSALS[kind], True, True), (TROUBLES[kind], True, False), (NO_FAULT, False, False))
    for lines, is_fault, is_refusal in table:
        for line in lines:
            said = f"[    1.000000] {line}"
            assert [bool(iommu.faults.search(said)), bool(iommu.refusals.search(said))] == [is_fault, is_refusal], line


def test_what_stays_mapped_in_the_device_is_known() -> None:
    def event(what: str, domain: int, first: int, pages: int) -> bytes:
        last = first + pages * 4096 - 1
        return f"virtio_iommu_{what} domain={domain} virt_start={first:#x} virt_end={last:#x}\n".encode()

    oracle = Oracle(IOMMUS["virtio"])
    oracle.feed(event("map", 1, 0x1000, 1) + event("map", 1, 0x2000, 2) + event("map", 2, 0x1000, 4) + marker(1))
    # No mapping is split, and none belongs to another domain.
    oracle.feed(event("unmap", 1, 0x3000, 1) + event("unmap", 2, 0x1000, 3) + marker(2))
    oracle.feed(event("unmap", 1, 0, 8) + event("unmap", 2, 0x1000, 1 << 30) + marker(3) + event("map", 1, 0, 1))
    assert [oracle.mapped_pages(each) for each in (1, 2, 3)] == [7, 7, 0]
    # Mappings that end or begin with an unmap are within it; a mapping that begins before is not. Of few pages, and of
    # many.
    oracle.feed(b"".join(event("map", 3, each * 0x1000, 1) for each in range(8, 13)) + event("map", 3, 0x1000, 3))
    oracle.feed(event("unmap", 3, 0x2000, 2) + event("unmap", 3, 0x9000, 2) + marker(4))
    oracle.feed(event("unmap", 3, 0x2000, 10) + marker(5) + event("unmap", 3, 0x1000, 12) + marker(6))
    assert [oracle.mapped_pages(each) for each in (4, 5, 6)] == [1 + 3 + 3, 1 + 3 + 1, 1]
    # A domain goes whole.
    oracle.feed(event("map", 4, 0x1000, 2) + b"virtio_iommu_put_domain Free domain=3\n" + marker(7))
    assert oracle.mapped_pages(7) == 1 + 2
    assert oracle.other_lines == []
    other = Oracle(VTD)
    other.feed(marker(1))
    assert other.mapped_pages(1) is None


def test_kinds_that_a_trace_does_not_tell_apart_are_compared_as_one() -> None:
    compare("micro", IOMMUS["amd"], Counts(3, 1, 0), Counts(4, 0, 0))
    with pytest.raises(UserError, match="all: module 5, QEMU 4"):
        compare("micro", IOMMUS["amd"], Counts(4, 1, 0), Counts(4, 0, 0))
    with pytest.raises(UserError, match="all: module 5, QEMU 4"):
        compare("micro", IOMMUS["amd"], Counts(4, 0, 1), Counts(4, 0, 0))


@pytest.mark.parametrize("kind", ["page", "domain", "global"])
def test_a_wrong_count_fails_and_says_where(kind: str) -> None:
    right = {"page": 10, "domain": 20, "global": 30}
    compare("micro/64 under fused", VTD, Counts(10, 20, 30), Counts.from_mapping(right))
    wrong = {**right, kind: right[kind] + 1}
    with pytest.raises(UserError, match=rf"micro/64 under fused.*{kind}: module {right[kind]}, QEMU {right[kind] + 1}"):
        compare("micro/64 under fused", VTD, Counts(10, 20, 30), Counts.from_mapping(wrong))


def test_requests_and_kicks_of_the_iommus_own_queue() -> None:
    def kick(device: int, queue: int = 0) -> bytes:
        return b"virtio_queue_notify vdev 0x%x n %d vq 0x7f00\n" % (device, queue)

    request = b"virtio_iommu_map domain=1 virt_start=0x%x virt_end=0x%x phys_start=0x5000 flags=3\n"
    some = b"".join(request % (page << 12, (page << 12) + 4095) for page in range(3))
    oracle = Oracle(IOMMUS["virtio"])
    # Another device's queue, the IOMMU's, and its event queue; the first before the IOMMU's queue is known.
    oracle.feed(kick(0xA) + kick(0xB) + marker(1) + kick(0xA) * 5 + kick(0xB) + some + kick(0xB, 1) + marker(2))
    oracle.feed(some + kick(0xB) * 2 + marker(3))
    assert oracle.requests(1, 2) == Requests(maps=3, kicks=1)
    assert oracle.requests(2, 3) == Requests(maps=3, kicks=2)
    assert oracle.requests(1, 3) == Requests(maps=6, kicks=3)
    assert oracle.other_lines == []
    other = Oracle(VTD)
    other.feed(marker(1) + marker(2))
    assert other.requests(1, 2) is None
