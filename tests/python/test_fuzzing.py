# SPDX-License-Identifier: GPL-2.0-only
"""Runs of fuzzers, with a shell script in the place of a fuzzer."""

from __future__ import annotations

from pathlib import Path

import pytest

from checks import fuzzing
from xsmmu.errors import UserError

SCRIPT = """#!/bin/sh
for word; do case $word in -artifact_prefix=*) prefix=${word#*=} ;; esac; last=$word; done
echo "$* $(cat "$last" 2>/dev/null)"
[ ! -e "$0.fails" ] || { printf 'a\\1' >"${prefix}crash-1"; exit 77; }
"""


@pytest.fixture
def program(tmp_path: Path) -> Path:
    made = tmp_path / "fuzz"
    made.write_text(SCRIPT)
    made.chmod(0o755)
    return made


def test_a_failure_ends_with_the_line_that_repeats_it(program: Path, tmp_path: Path) -> None:
    status, text = fuzzing.run(program, ["-more=1"], 5, "replay: INPUT=", tmp_path / "corpus")
    assert status == 0 and "-max_total_time=5" in text and "-more=1" in text and "INPUT=" not in text
    assert text.rstrip().endswith(str(tmp_path / "corpus"))
    (tmp_path / "fuzz.fails").touch()
    status, text = fuzzing.run(program, [], 5, "replay: INPUT=")
    assert status == 77
    assert text.splitlines()[-1] == "replay: INPUT=YQE="
    assert fuzzing.unpacked("YQE=", "INPUT") == b"a\1"


def test_an_input_is_run_again(program: Path) -> None:
    status, text = fuzzing.again(program, b"content", ["-policy=x"])
    assert status == 0 and text.startswith("-policy=x ") and text.endswith(" content\n")


def test_what_is_no_input_is_refused() -> None:
    with pytest.raises(UserError, match="TRACE_INPUT is not what a replay line of the fuzzer has"):
        fuzzing.unpacked("?", "TRACE_INPUT")
