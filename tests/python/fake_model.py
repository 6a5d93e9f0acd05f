# SPDX-License-Identifier: GPL-2.0-only
"""A small model: its list of parameters, files, and a program in the place of xsmmu-model."""

from __future__ import annotations

from pathlib import Path
from typing import Final

import pytest

from xsmmu import model_files, predict, programs

PARAMETERS: Final = """
[cores]
part = "machine"
unit = "count"
lowest = 1
highest = 64
text = "CPUs"
[walkers]
part = "machine"
unit = "count"
lowest = 1
highest = 64
text = "page walks in flight"
[table_read_ns]
part = "machine"
unit = "ns"
lowest = 1
highest = 10000
text = "one read of a table"
[ring]
part = "driver"
unit = "packets"
lowest = 1
highest = 65536
text = "receive ring"
[driver]
part = "driver"
unit = "word"
words = ["none", "page_pool"]
text = "recycling"
[flows]
part = "workload"
unit = "count"
lowest = 1
highest = 4096
text = "connections"
[seed]
part = "point"
unit = "number"
lowest = 0
highest = 100
text = "of a point"
"""
MACHINE: Final = """
kind = "machine"
title = "A server"
driver = "page_pool"
[parameters]
cores = { value = 8, unit = "count", how = "measured", source = "lscpu" }
walkers = { value = 2, unit = "count", how = "assumed", source = "guess" }
table_read_ns = { value = 200, unit = "ns", how = "measured", source = "bench" }
"""
DRIVER: Final = """
kind = "driver"
title = "a driver"
[parameters]
ring = { value = 256, unit = "packets", how = "published", source = "ethtool -g" }
driver = { value = "page_pool", unit = "word", how = "published", source = "its source" }
"""
WORKLOAD: Final = """
kind = "workload"
title = "some flows"
[parameters]
flows = { value = 10, unit = "count", how = "measured", source = "ss" }
"""
PROGRAM: Final = """#!/bin/sh
[ -z "$FAKE_LOG" ] || echo run >>"$FAKE_LOG"
exec awk '{ v[$1] = $2 }
END {
	if (v["ring"] > 4096) { print "xsmmu-model: ring " v["ring"] " is too much" >"/dev/stderr"; exit 2 }
	if (v["flows"] == 13) { print "xsmmu-model: at 7 ns: lost" >"/dev/stderr"; exit 1 }
	gbps = 100 - v["flows"] - v["ring"] / 256 + v["walkers"] + v["seed"] / 100
	if (v["flows"] == 17 && v["time_ms"] < 100) gbps = gbps / 2
	if (v["policy"] ~ /strict/) gbps = gbps - v["table_read_ns"] / 10
	printf "{\\"throughput_gbps\\": %.6f, \\"cpu_share\\": 0.5, \\"lock_share\\": 0.1, \\"drops_share\\": 0.01, ", gbps
	printf "\\"exposure_us\\": {\\"p50\\": 1.0, \\"p99\\": 2.5, \\"max\\": 9.0}, "
	printf "\\"limits\\": {\\"link\\": 0.25, \\"walks\\": 0.75}, "
	printf "\\"counters\\": {\\"pages\\": 10, \\"commands\\": {\\"page\\": 1, \\"domain\\": 0}, "
	printf "\\"inv_per_page\\": 0.1}, "
	printf "\\"events\\": 5, \\"seed\\": %d}\\n", v["seed"]
}'
"""


def install(folder: Path, monkeypatch: pytest.MonkeyPatch) -> tuple[Path, Path]:
    """Put the program and the model's files in place, and keep results beside them; returns machine and workload."""
    (folder / "drivers").mkdir(parents=True, exist_ok=True)
    program = folder / predict.PROGRAM
    program.write_text(PROGRAM)
    program.chmod(0o755)
    files = {"parameters": PARAMETERS, "drivers/page_pool": DRIVER, "machine": MACHINE, "workload": WORKLOAD}
    for name, text in files.items():
        (folder / f"{name}.toml").write_text(text)
    monkeypatch.setenv(programs.FOLDER_VARIABLE, str(folder))
    monkeypatch.setenv(model_files.FOLDER_VARIABLE, str(folder))
    monkeypatch.setenv("XDG_CACHE_HOME", str(folder / "cache"))
    return folder / "machine.toml", folder / "workload.toml"
