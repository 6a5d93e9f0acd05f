# SPDX-License-Identifier: GPL-2.0-only
"""The list of published statements: it is whole, evidence alone decides, and the command shows the results."""

from __future__ import annotations

import io
import random
import re
from collections import defaultdict
from dataclasses import replace
from functools import cache
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner
from rich.console import Console

from checks import claims as the_command
from checks import gathered, guest_claims, published, statements
from checks.comparison import Row, Said
from checks.statements import Evidence, Missing, Ran
from xsmmu import native
from xsmmu.errors import UserError
from xsmmu_lab.allocators import cases
from xsmmu_lab.allocators import claims as of_allocators
from xsmmu_lab.project import PROJECT
from xsmmu_lab.report import statements as report
from xsmmu_lab.report import table
from xsmmu_lab.runs import claims as compared
from xsmmu_lab.runs import experiment, results
from xsmmu_lab.runs import run as the_run

Json = dict[str, Any]

LIST = statements.read()
TABLES = published.tables()
SOURCE = PROJECT.parent / "shared/CLAIMS.md"
NO_STATEMENTS = (
    r"^\|---",
    r"^\| flows",
    r"^\| \|",
    r"^Facts and figures only",
    r"^Counters: page-",  # how the counters are counted
    r"^State the bandwidth",
)
"""Lines of the source without a statement."""


# -- the list --------------------------------------------------------------------------------------


def text_of(part: str) -> str:
    return " ".join(re.sub(r"\*\*", "", part).split())


def blocks(section: str) -> list[str]:
    """The rows, bullets and paragraphs of a section."""
    found: list[str] = []
    for line in section.splitlines():
        begins = line.startswith(("|", "- ", "**")) or not found or not found[-1]
        if not line.strip():
            found.append("")
        elif begins:
            found.append(line)
        else:
            found[-1] += f" {line}"
    return [text_of(block) for block in found if block]


@pytest.mark.skipif(not SOURCE.exists(), reason="the source of the list is not in this project")
def test_each_row_and_bullet_of_the_source_is_in_the_list() -> None:
    parts = re.split(r"^## ([A-H])\. .*\n", SOURCE.read_text(), flags=re.MULTILINE)
    sections = dict(zip(parts[1::2], parts[2::2], strict=True))
    assert [*sections] == [each.name for each in LIST.section]
    for each in LIST.statement:
        assert text_of(each.place) in text_of(sections[each.section]), each.place
    for name, section in sections.items():
        places = [text_of(each.place) for each in LIST.statement if each.section == name]
        for block in blocks(section):
            if not any(re.match(pattern, block) for pattern in NO_STATEMENTS):
                assert any(place in block for place in places), f"{name}: {block}"


def test_statements_are_said_once() -> None:
    said = [(each.section, each.says) for each in LIST.statement]
    assert len(said) == len({*said})


def test_all_that_was_published_as_a_statement_is_in_the_list() -> None:
    """Claims of experiments and tables that the list forgets would never be decided by it."""
    used = {each.lab.statement for each in LIST.statement if each.lab}
    for name in ("older", "identity", "claim-d-mapsync"):
        for claim in experiment.load(name).claims:
            assert {each.says for each in claim.statements} <= used, name
    said = {(each.model.table, each.model.statement) for each in LIST.statement if each.model}
    for name in ("fands-xsmmu", "fs-flows", "fs-ablation", "map-sync", "large-pages", "reported"):
        assert {(name, each.says) for each in TABLES[name].statements} <= said, name
    protocols = {each.protocols for each in LIST.statement}
    assert {each.says for each in guest_claims.decide()} <= protocols
    assert {each.says for each in of_allocators.STATEMENTS if each.source == of_allocators.STUDY} <= {
        each.allocators for each in LIST.statement
    }


GOOD = """
[[section]]
name = "A"
title = "a"
source = "b"
conditions = "c"
[[statement]]
section = "A"
place = "d"
says = "e"
why = "f"
"""


@pytest.mark.parametrize(
    ("old", "new", "said"),
    [
        ("", "", None),
        ('why = "f"', "", "statement[0]: nothing decides: name lab, model"),
        ('why = "f"', 'protocols = "x"\nallocators = "y"', "statement[0]: protocols and allocators decide: leave one"),
        ('section = "A"', 'section = "B"', "statement[0]: unknown section 'B': choose from A"),
        ('why = "f"', "holds = true", "unknown field `holds`"),
        ('why = "f"', 'lab = { experiment = "x" }', "missing required field `statement`"),
        ('why = "f"', "why = ", "Invalid value"),
    ],
)
def test_an_error_names_the_place(tmp_path: Path, old: str, new: str, said: str | None) -> None:
    file = tmp_path / "claims.toml"
    file.write_text(GOOD.replace(old, new, 1) if old else GOOD)
    if said is None:
        assert statements.read(file).statement[0].says == "e"
        return
    with pytest.raises(UserError) as error:
        statements.read(file)
    assert str(file) in error.value.message
    assert said in error.value.message


# -- evidence decides ------------------------------------------------------------------------------


def entry(chance: random.Random) -> Json:
    """The figures of a run that claims compare, at random."""
    pages = chance.uniform(0.001, 1.2)
    return {
        "invalidations_per_page": chance.choice([pages, 1.0, 0.01, 0.001]),
        "invalidations_per_unit": chance.uniform(0, 1),
        "cost": {"value": chance.uniform(100, 150), "unit": "instructions/KiB"},
        "relative_to_passthrough": chance.uniform(1, 10),
        "unmapped_pages_per_gib": chance.choice([1000, 5000]),
        "allocator_pages_per_gib": chance.uniform(1, 100),
        "oracle_invalidations": {"page": chance.randrange(10_000)},
        "map_flushes": chance.choice([0, 100]),
        "maps": 100,
        "ios": 100,
    }


@cache
def claims_of(name: str) -> tuple[compared.Claim, ...]:
    return statements.claims_of(LIST, name, experiment.load(name))


def ran(name: str, chance: random.Random) -> Ran:
    found = claims_of(name)
    here = {system.here for claim in found for system in claim.systems if system.here}
    return Ran("0123456789", compared.compare(found, {place: entry(chance) for place in sorted(here)}))


def drawn(chance: random.Random) -> Evidence:
    """Evidence at random."""
    names = dict.fromkeys(each.lab.experiment for each in LIST.statement if each.lab)
    rows = {
        name: [
            Row(name, cell.figure, "", cell.name, "seen", cell.value, value, value, value, 0.1, 0.0)
            for cell in each.cells
            for value in (cell.value * factor,)
        ]
        for factor in (chance.choice([1.0, 2.0]),)
        for name, each in TABLES.items()
    }
    said = {
        name: [Said(name, each.says, chance.choice(["holds", "does not hold"]), "") for each in table.statements]
        for name, table in TABLES.items()
    }
    counts: Json = {
        **{key: chance.uniform(0, 3) for key in ("accesses_per_pair", "contended_per_pair", "longest_wait_us")},
        **{when: {"levels": chance.uniform(1, 25), "nodes": chance.uniform(1, 40) ** 2} for when in ("rest", "load")},
    }
    made = [
        {"allocator": name, "workload": figure.workload, "counted": [{**_scaled(counts, chance), "cpus": figure.cpus}]}
        for name in cases.ALLOCATORS
        for figure in of_allocators.FIGURES
    ]
    machine = native.accepted()[0]
    changed = tuple(replace(row, ns_per_page=row.ns_per_page * chance.choice([1, 1, 1, 3])) for row in machine.rows)
    return Evidence(
        lab={name: ran(name, chance) for name in names},
        tables=TABLES,
        rows=rows,
        said=said,
        protocols=[replace(each, holds=chance.choice([True, False])) for each in DECIDED],
        allocators={"commit": "0" * 40, "claims": of_allocators.decide(made)},
        machine=replace(machine, rows=changed),
    )


DECIDED = guest_claims.decide()


def _scaled(counts: Json, chance: random.Random) -> Json:
    factor = chance.choice([0.01, 1.0, 1.0])
    return {
        key: {name: number * factor for name, number in value.items()} if isinstance(value, dict) else value * factor
        for key, value in counts.items()
    }


def test_evidence_alone_decides() -> None:
    """Each statement with checks has both verdicts, with some evidence; each without any has none."""
    chance = random.Random(1)
    seen: dict[str, set[bool | None]] = defaultdict(set)
    for _ in range(100):
        for decided in statements.decide(LIST, drawn(chance)):
            seen[f"{decided['section']}: {decided['says']}"].add(decided["holds"])
    checked = {says for says, _ in _checked()}
    for each in LIST.statement:
        name = f"{each.section}: {each.says}"
        decides = any(getattr(each, decider) for decider in statements.DECIDERS)
        if not decides or (each.lab and each.lab.statement not in checked) or _is_undecided(each):
            assert seen[name] == {None}, name
        elif each.model and each.model.formula:
            assert len(seen[name]) == 1  # of published figures only
        else:
            assert {True, False} <= seen[name], name


def _checked() -> list[tuple[str, compared.Statement]]:
    """Statements of experiments with checks of measured figures."""
    found = []
    for name in dict.fromkeys(each.lab.experiment for each in LIST.statement if each.lab):
        for claim in claims_of(name):
            here = {system.name for system in claim.systems if system.here}
            for each in claim.statements:
                systems = {term.system for check in each.checks for term in check.terms if term.system}
                if each.checks and systems <= here:
                    found.append((each.says, each))
    return found


def _is_undecided(each: statements.Statement) -> bool:
    """Allocators have statements without checks."""
    return each.allocators in {said.says for said in of_allocators.STATEMENTS if not said.checks}


def test_a_published_wait_decides_where_a_statement_depends_on_it() -> None:
    def decided(strict: float, fands: float) -> statements.Verdict:
        def of(cost: float, commands: float) -> Json:
            return {**entry(random.Random(1)), "cost": {"value": cost}, "invalidations_per_unit": commands}

        runs = {
            ("ring/rx", "kernel-strict"): of(1000, strict),
            ("ring/rx-aware", "fands"): of(1100, fands),
            ("ring/rx-aware", "xsmmu"): of(900, 0.0),
        }
        found = compared.compare(experiment.load("claim-a-rx").claims, runs)
        wanted = statements.Lab("claim-a-rx", "throughput order: xSMMU > FANDS > strict")
        return statements._by_lab(wanted, Evidence(lab={"claim-a-rx": Ran("0" * 40, found)}))

    # 22 instructions a ns: 100 more instructions, with 0.1 fewer commands, are even at a wait of 45 ns.
    assert decided(0.1, 0.0).holds is True
    assert decided(0.0001, 0.0).holds is False
    half = decided(100 / (1500 * 22), 0.0)
    assert half.holds is None
    assert half.why.startswith("it depends on the wait: from 1,")


def test_what_was_not_run_cannot_be_said() -> None:
    lab = Evidence(lab={}, tables=TABLES, not_run=dict.fromkeys(TABLES, Missing("no time")), protocols=DECIDED)
    found = statements.decide(replace_list("E"), lab)
    assert {each["holds"] for each in found if each["by"].startswith(("lab", "model"))} == {None}
    assert any("no time" in each["why"] for each in found)


def replace_list(section: str) -> statements.List:
    kept = tuple(each for each in LIST.statement if each.section == section)
    return statements.List(LIST.section, kept, LIST.of)


# -- results that exist ----------------------------------------------------------------------------


def fake_summary(name: str, commit: str, chance: random.Random) -> Json:
    """A summary with all runs of an experiment."""
    chosen = experiment.load(name)
    runs = [
        {
            "workload": each.name,
            "policy": policy,
            **each.labels,
            "iommu": each.iommu,
            "driver": each.driver,
            **entry(chance),
        }
        for each in chosen.workloads
        for policy in chosen.policies
        if each.names(policy)
    ]
    return {"experiment": name, "commit": commit, "kernel": "6.12.1-amd64", "runs": runs}


@pytest.mark.parametrize("name", ["claim-d-mapsync", "older", "compare"])
def test_runs_of_a_summary_are_found_again(name: str) -> None:
    chosen = experiment.load(name)
    found = gathered.entries_of(chosen, fake_summary(name, "0", random.Random(1)))
    wanted = {
        system.here for claim in statements.claims_of(LIST, name, chosen) for system in claim.systems if system.here
    }
    assert wanted
    assert wanted <= found.keys()


def gatherer(quick: bool, now: str = "new") -> gathered.Gatherer:
    return gathered.Gatherer(LIST, now, quick, 1, Console(file=io.StringIO()))


def test_results_of_this_commit_are_not_made_again(monkeypatch: pytest.MonkeyPatch) -> None:
    made = [fake_summary("older", "old", random.Random(1))]
    monkeypatch.setattr(gathered, "summaries", lambda _: iter(made))
    assert gatherer(quick=False).kept("older") is None
    kept = gatherer(quick=True).kept("older")
    assert kept is not None and kept.commit == "old"
    made.insert(0, fake_summary("older", "new", random.Random(1)))
    kept = gatherer(quick=False).kept("older")
    assert kept is not None and kept.commit == "new"
    made[0]["runs"] = made[0]["runs"][:1]
    assert gatherer(quick=False).kept("older") is None  # a part is no evidence


def test_a_failed_run_is_a_reason(monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(*_: object) -> None:
        raise UserError("no guest boots")

    monkeypatch.setattr(the_run, "run", fail)
    mine = gatherer(quick=False)
    assert mine.ran("older") == Missing("the run failed: no guest boots")
    assert mine.failures == ["no guest boots"]


def test_of_the_comparison_of_all_policies_a_part_is_run(monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[the_run.Options] = []
    made = fake_summary("compare", "new", random.Random(1))
    monkeypatch.setattr(the_run, "run", lambda options, _: asked.append(options))
    monkeypatch.setattr(gathered, "summaries", lambda _: iter([made]))
    found = gatherer(quick=False).ran("compare")
    assert isinstance(found, Ran) and len(found.claims) == len(LIST.of["compare"])
    (options,) = asked
    assert {*options.policies} == {"passthrough", "kernel-strict", "xsmmu", "copy"}
    assert "net-pps/e1000e-rx" in options.workloads and len(options.workloads) == 4
    gatherer(quick=False).ran("older")
    assert (asked[1].workloads, asked[1].policies) == ((), ())


def test_what_will_be_run_is_said_first(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(gathered, "summaries", lambda _: iter([]))
    mine = gatherer(quick=False)
    mine.announce()
    said = mine.console.file.getvalue()  # type: ignore[attr-defined]
    names = ", ".join(mine.experiments())
    assert f"{len(mine.experiments())} experiments, {len(mine.experiments())} to run ({names})" in said


# -- the command -----------------------------------------------------------------------------------


@pytest.fixture
def invoked(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> tuple[str, Path]:
    """Output and results of the command with evidence at random."""
    evidence = drawn(random.Random(1))
    monkeypatch.setattr(gathered.Gatherer, "model", lambda _: evidence)
    monkeypatch.setattr(gathered.Gatherer, "allocators", lambda _: evidence.allocators)
    monkeypatch.setattr(gathered.Gatherer, "lab", lambda _: evidence.lab)
    made = CliRunner().invoke(
        the_command.claims, ["--quick", "--output", str(tmp_path)], catch_exceptions=False, standalone_mode=False
    )
    assert made.return_value == 0
    return made.output, tmp_path / "latest"


def test_the_command_prints_each_statement(invoked: tuple[str, Path]) -> None:
    text, folder = invoked
    words = " ".join(text.split())
    for each in LIST.statement:
        assert f": {each.says} by " in words, each.says
    assert f"{len(LIST.statement)} statements: " in words
    assert str((folder.resolve() / report.NAME).name) in words


def test_results_are_shown_again_and_have_claims(invoked: tuple[str, Path]) -> None:
    text, folder = invoked
    summary = results.load(folder)
    file = io.StringIO()
    table.render(summary, Console(file=file, width=100))
    assert file.getvalue().split() == text.split()[:-1]
    titles = {claim["title"] for claim in summary["claims"]}
    assert {"Virtual IOMMUs", "Allocators of IOVAs", "What users report", "Static 1:1 tables"} <= titles


def test_the_page_has_each_statement() -> None:
    text = (PROJECT / "docs/claims.md").read_text()
    for each in LIST.statement:
        assert f"| {each.says} | **" in text, f"make lab EXPERIMENT=claims writes docs/claims.md anew: {each.says}"
