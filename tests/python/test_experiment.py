# SPDX-License-Identifier: GPL-2.0-only
"""Experiments as data: names, choices and plans."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from msgspec.structs import replace

from xsmmu.errors import UserError
from xsmmu_lab import policies
from xsmmu_lab.runs import experiment, figures
from xsmmu_lab.vm.iommu import DEFAULT_IOMMU, IOMMUS

SOURCES = Path(__file__).resolve().parents[2]


def test_the_comparison_has_every_policy_and_workload() -> None:
    compare = experiment.load("compare")
    assert set(compare.policies) >= {*experiment.BASELINES, *policies.IDENTITY, *experiment.OURS}
    assert set(compare.policies) - {*experiment.BASELINES, *policies.IDENTITY, *experiment.OURS} == {
        *("copy-direct", "strict-direct", "fused-direct", "fused-copy", "fused-copy-direct")
    }
    names = {each.name for each in compare.workloads}
    assert names >= {"micro", "net-rx", "net-tx", "net-pps", "nvme", "attack", "window"}
    rings = {each.labels["ring"] for each in compare.workloads if each.name == "micro"}
    assert rings == {64, 256, 1024}
    attacks = [each for each in compare.workloads if each.measure == "attack"]
    assert all(int(each.arguments["rounds"]) >= 20 for each in attacks)
    assert {each.labels["device"] for each in compare.workloads if each.measure == "neighbour"} == {"nvme", "igb"}


def test_static_tables_are_run_only_where_named_and_where_the_iommu_has_tables() -> None:
    older = experiment.load("older")
    assert set(older.policies) >= set(policies.IDENTITY)
    assert all(each.has(policy) for each in older.workloads for policy in policies.IDENTITY)
    queued = experiment.load("older", iommu="virtio")
    assert not any(each.has(policy) for each in queued.workloads for policy in policies.IDENTITY)
    compare = experiment.load("compare")
    named = {each.name for each in compare.workloads if each.has("identity-4k")}
    assert named == {"micro", "attack"}
    assert not any(experiment.own_policy(policy) for policy in policies.IDENTITY)


@pytest.mark.parametrize("name", experiment.names())
def test_functions_exist_and_labels_tell_runs_apart(name: str) -> None:
    shell = "".join(path.read_text() for path in (SOURCES / "lab/guest").rglob("*.sh"))
    chosen = experiment.load(name)
    for each in chosen.workloads:
        assert f"\n{each.function}() {{" in shell
        assert not each.needs.start or f"\n{each.needs.start}() {{" in shell
    places = [(each.name, each.driver, each.iommu, *sorted(each.labels.items())) for each in chosen.workloads]
    assert len(places) == len(set(places))


def test_quick_is_micro_only() -> None:
    chosen = experiment.load("compare")
    policies, workloads = experiment.choose(chosen, (), (), quick=True, kernel="6.12")
    assert policies == chosen.policies
    assert {each.function for each in workloads} == {"micro"}
    assert not any(need.programs for plan in experiment.plans(policies, workloads) for need in plan.needs)


def test_a_workload_is_chosen_by_name_or_full_name() -> None:
    chosen = experiment.load("compare")
    _, workloads = experiment.choose(chosen, ("fused",), ("micro/64", "nvme"), quick=True, kernel="6.12")
    assert [each.full_name for each in workloads] == [
        "micro/64",
        "nvme/4k",
        "nvme/4k-batch",
        "nvme/128k",
        "nvme/4k-aware",
        "nvme/4k-batch-aware",
        "nvme/128k-aware",
    ]


def test_a_kernel_has_what_can_be_made_for_it() -> None:
    chosen = experiment.load("compare")
    _, workloads = experiment.choose(chosen, (), ("nvme",), quick=False, kernel="7.2")
    assert [each.full_name for each in workloads] == ["nvme/4k", "nvme/4k-batch", "nvme/128k"]


def test_a_workload_may_name_its_policies() -> None:
    chosen = experiment.load("compare")
    plans = experiment.plans(chosen.policies, chosen.workloads)
    aware = {run.policy for plan in plans for run in plan.runs if run.workload.full_name == "nvme/4k-aware"}
    assert aware == {*experiment.SETS["waiting"], "fused-direct", "fused-copy", "fused-copy-direct"}


@pytest.mark.parametrize("iommu", IOMMUS)
def test_tables_are_written_in_place_where_they_are_known(iommu: str) -> None:
    """All other runs happen on each IOMMU."""

    def runs(iommu: str) -> set[str]:
        chosen = experiment.load("compare", iommu=iommu)
        plans = experiment.plans(chosen.policies, [each for each in chosen.workloads if each.name == "micro"])
        assert {plan.iommu for plan in plans} == {iommu}
        return {run.policy for plan in plans for run in plan.runs}

    direct = {"copy-direct", "strict-direct", "fused-direct", "fused-copy-direct"}
    usual = runs(DEFAULT_IOMMU)
    assert direct & usual
    assert runs(iommu) == (usual - direct - {*policies.IDENTITY} if iommu.startswith("virtio") else usual)


@pytest.mark.parametrize("iommu", IOMMUS)
def test_what_stays_passed_through_comes_last(iommu: str) -> None:
    """Where QEMU never translates again; elsewhere policies are in the order of the experiment."""
    chosen = experiment.load("compare", iommu=iommu)
    [plan] = experiment.plans(chosen.policies, [each for each in chosen.workloads if each.full_name == "micro/64"])
    found = [run.policy for run in plan.runs]
    wanted = [policy for policy in chosen.policies if policy in found]
    assert wanted[0] == "passthrough"
    assert found == (wanted[1:] + wanted[:1] if iommu in ("vtd-first", "vtd-scalable") else wanted)


@pytest.mark.parametrize("name", ["compare", "matrix"])
@pytest.mark.parametrize("iommu", ["vtd-first", "vtd-scalable"])
def test_nothing_comes_behind_what_stays_passed_through(name: str, iommu: str) -> None:
    """Neither devices of another driver, nor a repetition."""
    chosen = experiment.load(name, iommu=iommu)
    mine = [plan for plan in experiment.plans(chosen.policies, chosen.workloads, repeat=2) if plan.iommu == iommu]
    assert mine
    for plan in mine:
        passed = [run.policy == "passthrough" for run in plan.runs]
        assert passed == sorted(passed)
        assert [run.id for run in plan.runs] == [*range(plan.runs[0].id, plan.runs[-1].id + 1)]


def test_an_unknown_iommu_lists_the_valid_ones() -> None:
    with pytest.raises(UserError, match=r"unknown IOMMU 'arm': choose from vtd, .*virtio"):
        experiment.load("compare", iommu="arm")


@pytest.mark.parametrize(
    ("policies", "workloads", "message"),
    [
        (("fuse",), (), "unknown policy 'fuse': choose from passthrough, kernel-strict, .*, xsmmu, fused"),
        ((), ("micro/65",), "unknown workload 'micro/65': choose from micro, .*micro/64, micro/256"),
    ],
)
def test_unknown_names_list_the_valid_ones(policies: tuple[str, ...], workloads: tuple[str, ...], message: str) -> None:
    with pytest.raises(UserError, match=message):
        experiment.choose(experiment.load("compare"), policies, workloads, quick=False, kernel="6.12")


def test_claims_are_a_command_of_their_own() -> None:
    with pytest.raises(UserError, match="use make lab EXPERIMENT=claims"):
        experiment.load("claims")


def test_an_unknown_experiment_lists_the_valid_ones() -> None:
    with pytest.raises(UserError, match=r"unknown experiment 'comparison': choose from .*compare"):
        experiment.load("comparison")


@pytest.mark.parametrize(
    ("good", "bad", "message"),
    [
        ('name = "compare"\n', "", r"Object missing required field `name`"),
        ('name = "compare"\n', "name = \n", r"Invalid value \(at line \d+, column \d+\)"),
        ('name = "compare"\n', 'name = "compare"\nmood = "free"\n', r"Object contains unknown field `mood`"),
        ('name = "compare"\n', 'name = "compare"\nmode = "fast"\n', r"unknown mode 'fast': choose from cost, free"),
        ("quick = true\n", 'quick = "yes"\n', r"workload\[0\]\.quick: Expected `bool`, got `str`"),
        ("quick = true\n", "quik = true\n", r"workload\[0\]: Object contains unknown field `quik`"),
        ('programs = ["usr/bin/fio"]', 'programs = "fio"', r"needs\[\.\.\.\]\.programs: Expected `array`, got `str`"),
        ("ring = 64, rounds = 256 }", "ring = 64, rounds = [] }", r"micro/64.*: Expected `int \| str`, got `array`"),
        ('64 = { devices = ["testdev"], ', "64 = { ", r"micro/64: Object missing required field `devices`"),
    ],
)
def test_a_broken_file_is_named(good: str, bad: str, message: str, tmp_path: Path) -> None:
    text = (experiment.FOLDER / "compare.toml").read_text()
    assert good in text
    (tmp_path / "broken.toml").write_text(text.replace(good, bad, 1))
    with pytest.raises(UserError, match=rf"broken\.toml: {message}"):
        experiment.load("broken", tmp_path)


def test_repetitions_lie_apart_and_are_warmed_up_once() -> None:
    chosen = experiment.load("compare")
    policies, workloads = experiment.choose(chosen, ("strict", "fused"), ("micro/64", "ring/rx"), False, "6.12")
    for once, thrice in zip(
        experiment.plans(policies, workloads), experiment.plans(policies, workloads, repeat=3), strict=True
    ):
        names = [(run.name, run.is_baseline) for run in once.runs]
        assert [(run.name, run.is_baseline) for run in thrice.runs] == 3 * names
        assert [run.repetition for run in thrice.runs] == [n for n in (1, 2, 3) for _ in names]
        assert thrice.script.count("\nwarm ") == once.script.count("\nwarm ")


def test_plans_keep_each_session_apart() -> None:
    chosen = experiment.load("compare")
    plans = experiment.plans(chosen.policies, chosen.workloads)
    assert {plan.guest for plan in plans} >= {"net", "send", "packets", "shared", "disk", "ring", "testdev"}
    ids = [run.id for plan in plans for run in plan.runs]
    assert sorted(ids) == list(range(1, len(ids) + 1))
    for plan in plans:
        words = [line.split()[0] for line in plan.script.splitlines()]
        depth = 0
        for word in words:
            depth += {"session_open": 1, "session_close": -1}.get(word, 0)
            assert depth in (0, 1)
            assert depth == 1 or word not in ("run", "warm")
        assert words.count("run") == len(plan.runs)
        for policy in chosen.policies:
            sessions = {(run.workload.devices, run.workload.driver) for run in plan.runs if run.policy == policy}
            opened = sum(line.startswith(f"session_open {policy} ") for line in plan.script.splitlines())
            assert opened >= len(sessions)
            assert bool(opened) == bool(sessions)
    # Not each guest has work for each policy.
    assert {run.policy for plan in plans for run in plan.runs} == set(chosen.policies)


WITH_FAULTS = ["attack", "claim-d-mapsync", "compare", "concurrency", "matrix", "older"]


def test_experiments_with_faults_are_known() -> None:
    names = sorted(each.stem for each in experiment.FOLDER.glob("*.toml"))
    assert [name for name in names if any(each.faults for each in experiment.load(name).workloads)] == WITH_FAULTS


@pytest.mark.parametrize("name", WITH_FAULTS)
def test_faults_are_expected_in_the_runs_that_are_to_make_them(name: str) -> None:
    chosen = experiment.load(name)
    # As if each run had a baseline that measures the start only.
    works = [replace(each, baseline={"rounds": 1}) if each.faults else each for each in chosen.workloads]
    seen: set[bool] = set()
    for plan in experiment.plans(chosen.policies, works):
        runs = {run.id: run for run in plan.runs}
        expected = False
        for line in plan.script.splitlines():
            word, *rest = line.split()
            if word == "faults_are":
                assert rest == ["unexpected" if expected else "expected"]
                expected = not expected
            elif word in ("warm", "run"):
                assert expected == runs[int(rest[0])].workload.faults, line
                seen.add(expected)
            else:
                assert not expected, line
        assert not expected
    assert True in seen


def test_a_guest_may_have_another_iommu() -> None:
    chosen = experiment.load("claim-d-mapsync")
    plans = experiment.plans(chosen.policies, chosen.workloads)
    assert {plan.guest: plan.iommu for plan in plans} == {"plain": "vtd", "cached": "vtd-cm"}


@pytest.mark.parametrize(
    ("guest", "iommu", "message"),
    [
        ("disk", "vtd-xx", r"odd\.toml: unknown IOMMU 'vtd-xx': choose from vtd, .*vtd-cm"),
        ("dusk", "vtd-cm", r"odd\.toml: unknown guest 'dusk': choose from disk, "),
    ],
)
def test_a_wrong_guest_is_named(guest: str, iommu: str, message: str, tmp_path: Path) -> None:
    text = (experiment.FOLDER / "compare.toml").read_text()
    (tmp_path / "odd.toml").write_text(f'{text}\n[guest.{guest}]\niommu = "{iommu}"\n')
    with pytest.raises(UserError, match=message):
        experiment.load("odd", tmp_path)


def test_a_policy_may_have_arguments_of_its_own() -> None:
    chosen = experiment.load("claim-a-rx")
    script = experiment.plans(chosen.policies, chosen.workloads)[0].script
    lines = [line for line in script.splitlines() if line.startswith("run ") and "release=" in line]
    assert [line.split("release=")[1].split()[0] for line in lines[::2]] == [
        "descriptor",
        "pending",
        "blocks",
        "whole",
    ]
    aware = next(each for each in chosen.workloads if each.full_name == "ring/rx-aware")
    assert aware.arguments_under("fands")["recycle"] == 0
    assert aware.arguments_under("fused")["release"] == "blocks"
    assert "release" not in aware.arguments_under("strict")


def test_arguments_of_an_unknown_policy_are_refused(tmp_path: Path) -> None:
    text = (experiment.FOLDER / "claim-a-rx.toml").read_text().replace("\nfands = ", "\nfand = ")
    (tmp_path / "claim-a-rx.toml").write_text(text)
    with pytest.raises(UserError, match="unknown policy 'fand'"):
        experiment.load("claim-a-rx", tmp_path)


def test_what_only_ours_can_show_is_left_out_for_the_kernel() -> None:
    chosen = experiment.load("compare")
    plans = experiment.plans(chosen.policies, chosen.workloads)
    windows = {run.policy for plan in plans for run in plan.runs if run.workload.name == "window"}
    assert windows == {policy for policy in chosen.policies if experiment.own_policy(policy)}
    assert windows >= {*experiment.OURS, "fused-direct"}


def shell_functions() -> dict[str, str]:
    """The functions of lab/guest/parts, by name; each ends in its own line, or by the next brace at a line's start."""
    functions: dict[str, str] = {}
    for path in (SOURCES / "lab/guest/parts").glob("*.sh"):
        for name, body in re.findall(r"^(\w+)\(\) \{( .* \}$|\n(?:.*\n)*?\}$)", path.read_text(), re.MULTILINE):
            functions[name] = body
    return functions


def arguments_of(function: str, functions: dict[str, str]) -> set[str]:
    """The $arg_* of a function and of its callees."""
    todo, seen, found = [function], {function}, set()
    while todo:
        body = functions[todo.pop()]
        found |= set(re.findall(r"\$\{?arg_(\w+)", body))
        # Neither a file nor a key of JSON.
        called = set(re.findall(r'(?<![/"\w.-])\w+(?!["\w/.])', body)) & set(functions) - seen
        seen |= called
        todo += called
    return found


@pytest.mark.parametrize("name", experiment.names())
def test_each_variant_has_all_arguments_of_its_function(name: str) -> None:
    functions = shell_functions()
    assert arguments_of("attacked_disk", functions) >= {"block", "depth", "bytes"}
    for workload in experiment.load(name).workloads:
        missing = arguments_of(workload.function, functions) - {"all", *workload.arguments}
        assert not missing, f"{workload.full_name} lacks {missing}"


@pytest.mark.parametrize(
    ("good", "bad", "message"),
    [
        ('function = "micro"', 'function = "macro"', "unknown function 'macro': choose from .*micro"),
        ('needs = "nvme"', 'needs = "nvmf"', "unknown needs 'nvmf': choose from net, nvme, testdev"),
        ('kernels = ["6.12"]', 'kernels = ["6.13"]', "unknown kernel '6.13': choose from 6.12, .*debug"),
        ('start = "net_init"', 'start = "net_start"', "unknown function 'net_start'"),
        (
            'policies = ["waiting"]',
            'policies = ["waited"]',
            "unknown policy 'waited': choose from kernel, identity, module, mapping, waiting",
        ),
    ],
)
def test_names_are_checked_before_a_guest_boots(good: str, bad: str, message: str, tmp_path: Path) -> None:
    text = (experiment.FOLDER / "compare.toml").read_text()
    assert good in text
    (tmp_path / "odd.toml").write_text(text.replace(good, bad))
    with pytest.raises(UserError, match=message):
        experiment.load("odd", tmp_path)


def test_every_measure_is_known() -> None:
    assert {work.measure for name in experiment.names() for work in experiment.load(name).workloads} <= set(
        figures.MEASURES
    )
