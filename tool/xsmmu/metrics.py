# SPDX-License-Identifier: GPL-2.0-only
"""`xsmmu metrics`: the module's statistics in Prometheus format, for node_exporter's textfile collector.

Each group is a series; its label `device` has all addresses of the group. Statistics count from the module's load and
go on across policy changes. The policy is a label of xsmmu_group_info only, so a policy change ends no series.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Final, NamedTuple

import click

from xsmmu import files, machine, module
from xsmmu.errors import UserError
from xsmmu.machine import Device
from xsmmu.module import Sample

LEVELS: Final = ("none", "lazy", "bounded", "held", "strict")
"""Levels from weakest to strongest; the index is the metric's value."""

BUCKETS_NS: Final = tuple(1 << power for power in range(8, 35))
"""Bucket bounds: powers of two from 256 ns to 17 s, each within 1 ns of a bound of the module's histogram."""


class Row(NamedTuple):
    """A metric: a statistic, or with `label` all statistics with a prefix, labelled by the rest of their names."""

    name: str
    kind: str
    help: str
    statistic: str
    label: str | None = None


ROWS: Final = (
    Row("mapped_pages_total", "counter", "Pages of 4 KiB that were mapped", "mapped_pages"),
    Row("unmapped_pages_total", "counter", "Pages of 4 KiB that were unmapped", "unmapped_pages"),
    Row("deferred_pages_total", "counter", "Unmapped pages that were not flushed inside their unmap", "deferred_pages"),
    Row("live_pages", "gauge", "Pages that are mapped now", "live_pages"),
    Row("held_pages", "gauge", "Unmapped pages that wait for their flush", "held_pages"),
    Row("stuck_pages", "gauge", "Unmapped pages that the IOMMU driver could not remove", "stuck_pages"),
    Row("invalidations_total", "counter", "Invalidation commands, including commands for maps", "inv_", "kind"),
    Row("map_flushes_total", "counter", "Invalidation commands for maps", "map_flushes"),
    Row("flushes_total", "counter", "Flushes by cause", "flush_", "cause"),
    Row("bad_unmaps_total", "counter", "Unmaps that matched no mapping", "bad_unmaps"),
    Row(
        "torn_pages",
        "gauge",
        "Pages of buffers that were unmapped with a wrong size or address, and are still reachable",
        "torn_pages",
    ),
    Row("map_failures_total", "counter", "Maps that failed", "map_failures"),
    Row("copied_maps_total", "counter", "Buffers that were copied instead of mapped", "copied_maps"),
    Row("copied_unmaps_total", "counter", "Unmaps of buffers that were copied", "copied_unmaps"),
    Row("copied_bytes_total", "counter", "Copied bytes in both directions", "copied_bytes"),
    Row("copy_misses_total", "counter", "Buffers that were mapped because the bounce pool had no room", "copy_misses"),
    Row("pool_bytes", "gauge", "Memory of the bounce pool", "pool_bytes"),
)


class Exposition:
    """The exposition text: metrics in order, each with help, type, and the samples of all groups."""

    def __init__(self) -> None:
        self._metrics: dict[str, list[str]] = {}

    def add(self, name: str, kind: str, text: str, labels: Mapping[str, str], value: float, suffix: str = "") -> None:
        """Add a sample."""
        name = f"xsmmu_{name}"
        words = ",".join(f'{key}="{_escaped(word)}"' for key, word in labels.items())
        number = str(int(value)) if value == int(value) else repr(value)
        lines = self._metrics.setdefault(name, [f"# HELP {name} {text}", f"# TYPE {name} {kind}"])
        lines.append(f"{name}{suffix}{{{words}}} {number}" if words else f"{name}{suffix} {number}")

    def __str__(self) -> str:
        return "".join(f"{line}\n" for lines in self._metrics.values() for line in lines)


def _escaped(word: str) -> str:
    return word.replace("\\", r"\\").replace('"', r"\"")


def _add_group(to: Exposition, sample: Sample, labels: Mapping[str, str]) -> None:
    taken = sample.state in module.TAKEN
    path, level = sample.path
    names = ",".join(name for address in sample.devices for name in Device(address).names)
    info = {**labels, "names": names, "policy": sample.policy, "path": path, "level": level, "state": sample.state}
    to.add("group_info", "gauge", "Policy of the group, and present path of its DMA with the level", info, 1)
    to.add("attached", "gauge", "1 if the module serves the group's DMA", labels, taken)
    levels = ", ".join(f"{at} {name}" for at, name in enumerate(LEVELS))
    # An unknown level of a newer module counts as none.
    number = LEVELS.index(level) if level in LEVELS else 0
    to.add("protection_level", "gauge", f"Level of the present path of DMA: {levels}", labels, number)
    for name, kind, text, statistic, label in ROWS:
        for each, value in sample.stats.items():
            if each == statistic:
                to.add(name, kind, text, labels, value)
            elif label and each.startswith(statistic):
                to.add(name, kind, text, {**labels, label: each.removeprefix(statistic)}, value)


def _add_bound(to: Exposition, sample: Sample, longest_ns: int | None, labels: Mapping[str, str]) -> None:
    if longest_ns is not None:
        text = "Longest exposure of an unmapped page since the module was loaded"
        to.add("exposure_max_seconds", "gauge", text, labels, longest_ns / 1e9)
    if sample.bound_ns is not None:
        text = "Bound of the exposure under the present policy; no sample if no timer ends the exposure"
        to.add("exposure_bound_seconds", "gauge", text, labels, sample.bound_ns / 1e9)


def _add_exposure(to: Exposition, exposure: Sequence[tuple[int, int]], labels: Mapping[str, str]) -> None:
    about = ("exposure_seconds", "histogram", "Exposure of unmapped pages; the sum is not counted")
    for end in BUCKETS_NS:
        pages = sum(pages for last, pages in exposure if last <= end)
        to.add(*about, {**labels, "le": repr(end / 1e9)}, pages, "_bucket")
    total = sum(pages for _, pages in exposure)
    to.add(*about, {**labels, "le": "+Inf"}, total, "_bucket")
    to.add(*about, labels, total, "_count")


def exposition() -> str:
    """The whole text; groups that were always on the kernel's own path are left out."""
    made = Exposition()
    made.add("module_loaded", "gauge", "1 if the module is loaded", {}, module.is_loaded())
    if module.is_loaded():
        made.add("module_info", "gauge", "The loaded module", {"version": module.version() or ""}, 1)
    for number, devices in _groups().items():
        seen = module.of_group(_seen, devices)
        if not seen:
            continue
        sample, exposure, longest_ns = seen
        if sample.policy == "none" and not sample.stats["mapped_pages"]:
            continue
        labels = {"device": ",".join(sample.devices), "group": str(number)}
        _add_group(made, sample, labels)
        _add_bound(made, sample, longest_ns, labels)
        _add_exposure(made, exposure, labels)
    return str(made)


def _seen(device: Device) -> tuple[Sample, list[tuple[int, int]], int | None]:
    return module.read(device), module.exposure_ns(device), module.exposure_max_ns(device)


def _groups() -> dict[int, list[Device]]:
    """Devices that the module offers policies for, by group number."""
    found: dict[int, list[Device]] = {}
    for device in machine.devices():
        if device.module_folder and (group := device.group):
            found.setdefault(group.number, []).append(device)
    return found


@click.command()
@click.option(
    "--output-file",
    type=click.Path(dir_okay=False, path_type=Path),
    help="File to replace atomically; node_exporter needs a name that ends in .prom.",
)
def metrics(output_file: Path | None) -> None:
    """Print the module's statistics in the text format of Prometheus.

    Each group of devices is a series with the labels device and group; policy and level are labels of
    xsmmu_group_info. Counters start when the module is loaded. Without the module, xsmmu_module_loaded is 0.

    \b
    Examples:
      xsmmu metrics
      xsmmu metrics --output-file /var/lib/prometheus/node-exporter/xsmmu.prom
    """
    made = exposition()
    if not output_file:
        click.echo(made, nl=False)
        return
    if not output_file.parent.is_dir():
        raise UserError(f"folder {output_file.parent} does not exist: create the folder", code="no-file")
    # No link is followed: /var/lib/prometheus does not belong to root, so root could be led to overwrite any file.
    files.replace(output_file, made, follow=False)
