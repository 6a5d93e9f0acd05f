# SPDX-License-Identifier: GPL-2.0-only
"""Commits have a subject of a fixed form, and a body."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest

from checks import commits

GOOD = "core: say flush instead of sync"


@pytest.mark.parametrize(
    "subject", [GOOD, "core, kmod: use one word", "dma.h: call it so", "tests/guest: wait for a link"]
)
def test_a_good_message(subject: str) -> None:
    assert list(commits.faults(subject, "Why.\n")) == []


@pytest.mark.parametrize(
    ("subject", "body", "fault"),
    [
        (GOOD, " \n", "no body"),
        ("core: " + "a" * 33 + " " + "b" * 33, "Why.", "73 characters"),
        ("Say flush instead of sync", "Why.", "not 'area: imperative'"),
        ("core: Say flush instead of sync", "Why.", "not 'area: imperative'"),
        ("core: flush", "Why.", "not 'area: imperative'"),
        ("core:say flush instead of sync", "Why.", "not 'area: imperative'"),
    ],
)
def test_a_bad_message(subject: str, body: str, fault: str) -> None:
    [found] = commits.faults(subject, body)
    assert fault in found


def test_commits_after_the_old_one_are_looked_at(tmp_path: Path) -> None:
    def git(*words: str) -> str:
        who = ("-c", "user.name=me", "-c", "user.email=me@here")
        made = subprocess.run(["git", "-C", str(tmp_path), *who, *words], capture_output=True, text=True, check=True)
        return made.stdout.strip()

    git("init", "-q")
    git("commit", "-q", "--allow-empty", "-m", "Begin")
    old = git("rev-parse", "HEAD")
    git("commit", "-q", "--allow-empty", "-m", f"{GOOD}\n\nWhy.")
    assert list(commits.findings(tmp_path, old)) == []
    git("commit", "-q", "--allow-empty", "-m", "Go on")
    assert [line.split(": ", 1)[1] for line in commits.findings(tmp_path, old)] == [
        "the subject 'Go on' is not 'area: imperative'",
        "there is no body: say why, and how it was checked",
    ]
    assert list(commits.findings(tmp_path, "0123456")) == []
    assert list(commits.findings(tmp_path / ".git", old)) != []
