# SPDX-License-Identifier: GPL-2.0-only
"""Semantic patches of real drivers: they fit the kernel's own source, and name themselves when they do not."""

from __future__ import annotations

import re
import shutil
from dataclasses import replace
from pathlib import Path

import pytest
from click.testing import CliRunner, Result
from tests.python import guests

from xsmmu.cli import app
from xsmmu.errors import UserError
from xsmmu_lab.setup import drivers, initramfs, kernels, root

QUICK = ("nvme", "igb", "e1000e")
LONG = tuple(name for name in drivers.table() if name not in QUICK)


def source_of(driver: drivers.Driver) -> Path:
    return kernels.source(guests.tools(), kernels.ensure(guests.tools()), (driver.folder, *driver.also))


@pytest.mark.parametrize("name", [*QUICK, *(pytest.param(name, marks=pytest.mark.long) for name in LONG)])
def test_a_driver_builds_and_finds_the_module_by_weak_symbols(name: str) -> None:
    content = drivers.module(guests.tools(), kernels.ensure(guests.tools()), name).read_bytes()
    assert "xsmmu" in initramfs.module_depends(content)
    assert b"\0__xsmmu_flush\0" in content


def change(folder: Path, driver: drivers.Driver, file: str, old: str, new: str) -> None:
    """A copy of the driver in this folder, with one or more changes to a file."""
    changed = folder / driver.folder / file
    shutil.copytree(source_of(driver) / driver.folder, changed.parent)
    text = changed.read_text()
    assert old in text
    changed.write_text(text.replace(old, new))


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ("nvme_unmap_data(", "nvme_unmap_payload("),
        ("dma_unmap_sgtable(dev->dev, &iod->sgt,", "dma_unmap_sgtable_new(dev->dev, &iod->sgt,"),
    ],
)
def test_a_patch_that_no_longer_fits_names_the_function(tmp_path: Path, old: str, new: str) -> None:
    driver = drivers.table()["nvme"]
    change(tmp_path, driver, "pci.c", old, new)
    with pytest.raises(UserError, match=re.escape("nvme.cocci does not fit")) as caught:
        drivers.patched(guests.tools(), driver, tmp_path)
    assert "nvme_unmap_data()" in caught.value.message


def test_a_patch_that_fits_more_than_it_should_names_the_function(tmp_path: Path) -> None:
    driver = drivers.table()["igb"]
    where = "static void igb_clean_rx_ring(struct igb_ring *rx_ring)\n{\n"
    change(tmp_path, driver, "igb_main.c", where, f"{where}\txsmmu_unmap_page_deferred(rx_ring->dev, 0, 0, 0);\n")
    with pytest.raises(UserError, match=r"igb_clean_rx_ring\(\) in igb_main.c has xsmmu_unmap_page_deferred, not none"):
        drivers.patched(guests.tools(), driver, tmp_path)


def planted(folder: Path, changes: list[tuple[str, str]]) -> drivers.Driver:
    """e1000e with another patch."""
    driver = drivers.table()["e1000e"]
    text = driver.patch.read_text()
    for good, bad in changes:
        assert text.count(good) == 1, good
        text = text.replace(good, bad)
    patch = folder / driver.patch.name
    patch.write_text(text)
    return replace(driver, patch=patch)


def test_a_patch_that_flushes_too_late_names_each_function(tmp_path: Path) -> None:
    bugs = [
        # Nothing declares that the driver flushes.
        ("+ xsmmu_set_batch_aware(&pdev->dev);\n", ""),
        # The loop frees sent packets.
        (
            "- e1000_put_txbuf(tx_ring, buffer_info, false);\n+ e1000_unmap_sent(tx_ring, buffer_info);\n",
            "  e1000_put_txbuf(tx_ring, buffer_info, false);\n",
        ),
        ("+ e1000_free_sent(tx_ring, i);\n", ""),
        # A packet goes to the stack before the flush.
        ("+ list_add_tail(&skb->list, left);\n", "+ napi_gro_receive(&adapter->napi, skb);\n"),
        # All packets do, and buffers are mapped again before the flush.
        ("+ xsmmu_flush(&rx_ring->adapter->pdev->dev);\n  count = unused;\n", "  count = unused;\n"),
        (
            "+ e1000_hand_on(rx_ring->adapter, &left);\n",
            "+ e1000_hand_on(rx_ring->adapter, &left);\n+ xsmmu_flush(&rx_ring->adapter->pdev->dev);\n",
        ),
        # The ring is refilled inside the loop, too.
        (
            "clean = {e1000_clean_rx_irq, e1000_clean_rx_irq_ps};\nidentifier adapter",
            "clean = {e1000_nowhere};\nidentifier adapter",
        ),
        # Neither the maps of a refill since the last write to the tail, nor a sent packet, are flushed.
        (
            "+ xsmmu_flush_maps(&rx_ring->adapter->pdev->dev);\n  rx_ring->next_to_use = i;\n",
            "  rx_ring->next_to_use = i;\n",
        ),
        ("+ xsmmu_flush_maps(&tx_ring->adapter->pdev->dev);\n", ""),
        # A packet with too many bytes is freed before the flush.
        ("  dev_kfree_skb_irq(skb);\n", "  dev_kfree_skb_irq_gone(skb);\n"),
    ]
    with pytest.raises(UserError, match=re.escape("e1000e.cocci does not fit")) as caught:
        drivers.patched(guests.tools(), planted(tmp_path, bugs), source_of(drivers.table()["e1000e"]))
    named = {line.split("()")[0]: line for line in caught.value.lines}
    assert set(named) == {
        *("e1000_probe", "e1000_clean_tx_irq", "e1000_receive_skb"),
        *("e1000_clean_rx_irq", "e1000_clean_rx_irq_ps", "e1000_clean_jumbo_rx_irq"),
        *("e1000_alloc_rx_buffers", "e1000_alloc_rx_buffers_ps", "e1000_tx_map"),
    }


def test_a_kernel_that_frees_elsewhere_is_refused(tmp_path: Path) -> None:
    driver = drivers.table()["e1000e"]
    where = "\t\tbuffer_info->dma = 0;\n\n\t\tlength = le16_to_cpu(rx_desc->wb.upper.length);\n\n\t\t/* !EOP"
    change(tmp_path, driver, "netdev.c", where, "\t\tif (!skb->len)\n\t\t\tdev_kfree_skb_irq(skb);\n" + where)
    with pytest.raises(UserError, match=r"e1000_clean_rx_irq\(\) in netdev.c has .* dev_kfree_skb_irq .*, not"):
        drivers.patched(guests.tools(), driver, tmp_path)


def test_an_unknown_driver_lists_the_known_ones() -> None:
    with pytest.raises(UserError, match="choose from nvme, igb, e1000e, mlx5"):
        drivers.module(guests.tools(), kernels.ensure(guests.tools()), "e1000")


def test_each_semantic_patch_stands_in_the_table() -> None:
    assert {patch.stem for patch in drivers.FOLDER.glob("*.cocci")} == set(drivers.table())


def command(*words: str) -> Result:
    """Run `xsmmu driver build`."""
    return CliRunner().invoke(app, ["driver", "build", *words], catch_exceptions=False)


def test_the_command_puts_the_driver_where_it_is_asked_to(tmp_path: Path) -> None:
    kernel = kernels.ensure(guests.tools())
    result = command("igb", "--kernel", kernel.release, "--output", str(tmp_path / "new"))
    [made] = (tmp_path / "new").iterdir()
    assert result.stdout == f"{made}\n"
    assert made.read_bytes() == drivers.module(guests.tools(), kernel, "igb").read_bytes()
    for line in (f"kernel {kernel.release} ", "modprobe xsmmu", "rmmod igb", "insmod igb.ko"):
        assert line in result.stderr


def test_the_command_names_the_module_as_the_kernel_does(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A - in the file's name is a _ in the module's."""
    (tmp_path / "snd-igb.ko").write_text("built")
    monkeypatch.setattr(drivers, "module", lambda *_: tmp_path / "snd-igb.ko")
    said = command("igb", "--output", str(tmp_path / "new")).stderr
    assert "  rmmod snd_igb\n  insmod snd-igb.ko\n" in said
    assert (tmp_path / "new/snd-igb.ko").read_text() == "built"


def test_the_command_makes_nothing_for_a_driver_that_is_not_there(monkeypatch: pytest.MonkeyPatch) -> None:
    def ensure(*_arguments: object) -> None:
        raise AssertionError("a root was made")

    monkeypatch.setattr(root, "ensure", ensure)
    with pytest.raises(UserError, match="unknown driver 'e1000'"):
        command("e1000")


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (("e1000",), "unknown driver 'e1000': choose from nvme, "),
        (("igb", "--kernel", "2.6"), "unknown kernel '2.6': choose from 6.12, 7.2, 7.3, 6.1, debug"),
        (("igb", "--kernel", "6.12.1+deb13-amd64"), r"no kernel 6.12.1\+deb13-amd64 here, but 6\.12\.\d+\+deb13"),
    ],
)
def test_the_command_names_what_there_is(words: tuple[str, ...], message: str) -> None:
    with pytest.raises(UserError, match=message):
        command(*words)
