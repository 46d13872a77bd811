"""The committed examples are complete, small, up to date, and measured from clean commits, what
is compared on one machine: benchmarks/examples.py measures them."""

import shutil
import subprocess

import pytest
from conftest import cli
from example_pages import FLEET_OPTIONS

import perfkit
from perfkit.analysis.comparison.interleaved import disagreements
from perfkit.analysis.comparison.stored import read_comparison
from perfkit.analysis.diagnosis import FILE as DIAGNOSIS
from perfkit.analysis.verification.stored import read_verifications
from perfkit.analysis.warnings import check
from perfkit.audit.audit import audit_folders, read_audit
from perfkit.measuring.paths import ROOT
from perfkit.measuring.results.store import Measurement
from perfkit.report.site import write_site

EXAMPLES = ROOT / "outputs" / "examples"
MACHINE = ["cpu", "cpu_cores", "cpu_features", "memory", "kernel", "os"]
"""Facts of the environment that measurements on one machine share."""
FOREIGN = "paddle-perf"
"""Prefix of the audits of logs that others published."""


@pytest.fixture(scope="module")
def measurements():
    return perfkit.load(EXAMPLES)


@pytest.fixture(scope="module")
def comparisons():
    folders = (EXAMPLES / "comparisons").iterdir()
    return [read_comparison(folder) for folder in folders]


def committed():
    listed = subprocess.run(
        ["git", "-C", ROOT, "ls-files", "outputs"], capture_output=True, text=True, check=True
    )
    return [ROOT / line for line in listed.stdout.splitlines()]


def test_the_examples_were_measured_from_clean_commits(measurements):
    assert set(measurements["environment.suite_modified"]) == {False}
    commits = set(measurements["environment.suite_commit"])
    for verification in read_verifications(EXAMPLES, []):
        assert verification.environment["suite_commit"].value in commits
        assert verification.environment["suite_modified"].value is False


def test_the_variants_of_each_example_were_measured_on_one_machine(measurements, comparisons):
    facts = measurements.set_index("folder")[[f"environment.{name}" for name in MACHINE]]
    for comparison in comparisons:
        of_variants = facts.loc[[variant.id for variant in comparison.variants]]
        assert len(of_variants.astype(str).drop_duplicates()) == 1, comparison.named


def test_the_examples_have_no_failure_and_no_warning_of_the_highest_severity(measurements):
    assert set(measurements["status"]) == {"complete"}
    assert not measurements.attrs["unreadable"]
    for folder in measurements["folder"]:
        warnings = check(Measurement.read(EXAMPLES / folder)).warnings
        assert "error" not in {warning.severity for warning in warnings}, folder


def test_the_examples_interleave_frameworks_verified_to_do_the_same_work(comparisons):
    of_frameworks = {
        comparison.model: comparison
        for comparison in comparisons
        if "framework" in comparison.named
    }
    variants = {model: len(found.variants) for model, found in of_frameworks.items()}
    assert variants == {"resnet50": 5, "bert": 4, "gpt": 3, "llama": 3}
    for comparison in of_frameworks.values():
        assert comparison.complete
        assert comparison.repeats >= 6
        assert disagreements(comparison, EXAMPLES) == []
        assert {pair.same_work.state for pair in comparison.pairs} == {"verified"}
        assert not any(pair.out_of_turn for pair in comparison.pairs)


@pytest.mark.parametrize(
    ("model", "named"),
    [
        ("gpt_torch.py", "arguments"),
        ("huggingface.py", "flags"),
        ("resnet50", "input"),
    ],
)
def test_the_examples_interleave_variants_of_a_script_a_command_and_inputs(
    model, named, comparisons
):
    (comparison,) = [found for found in comparisons if found.named == [named]]
    assert comparison.model == model
    assert comparison.complete
    assert not any(pair.out_of_turn for pair in comparison.pairs)


def test_the_examples_diagnose_an_input(measurements):
    diagnosed = [
        name for name in measurements["folder"] if (EXAMPLES / name / DIAGNOSIS).exists()
    ]
    assert len(diagnosed) == 1


def test_the_examples_have_a_profile(measurements):
    profiled = measurements[measurements["profile"] == True]  # noqa: E712
    (folder,) = profiled["folder"]
    assert (EXAMPLES / folder / "profile" / "profile.json").exists()


def test_the_examples_have_a_series_that_fell_while_its_machine_was_throttled_and_recovered(
    measurements,
):
    assert cli("history", EXAMPLES, "--check").exit_code == 0
    labels = measurements["label"]
    throughput = measurements["throughput"]
    throttled = throughput[labels.str.startswith("throttled")]
    others = throughput[labels.str.startswith(("before", "after"))]
    assert (len(throttled), len(others)) == (2, 5)
    assert throttled.max() < 0.9 * others.min()


def test_the_examples_have_a_fleet_of_four_nodes_one_of_which_is_slow(measurements, tmp_path):
    nodes = measurements["node"].fillna("")
    assert {*nodes} - {""} == {"node1", "node2", "node3", "node4"}
    copy = tmp_path / "fleet"
    copy.mkdir()
    for folder in measurements["folder"][nodes != ""]:
        shutil.copytree(EXAMPLES / folder, copy / folder)
    assert cli("fleet", copy, *FLEET_OPTIONS).exit_code == 1
    assert (copy / "slow-nodes.txt").read_text().split() == ["node2"]
    assert (EXAMPLES / "slow-nodes.txt").read_text().split() == ["node2"]


def test_the_examples_audit_logs_made_here_with_right_and_wrong_claims():
    states = {}
    for folder in audit_folders(EXAMPLES):
        if not folder.name.startswith(FOREIGN):
            audit = read_audit(folder)
            (claim,) = audit.claims
            states[audit.label] = claim.state
    assert states == {
        "huggingface-reproduced": "reproduced",
        "huggingface-not-reproduced": "not reproduced",
    }


def test_the_examples_have_all_raw_steps_behind_their_numbers(measurements):
    for row in measurements.itertuples():
        steps = perfkit.load_steps(EXAMPLES / row.folder)
        windows = steps[steps["measured"]]
        result = Measurement.read(EXAMPLES / row.folder).result
        # A print of a command's log tells of one step or more.
        steps_of = [result.steps(each) - result.warmup_steps(each) for each in result.repeats]
        expected = sum(steps_of) * row.processes
        assert windows["steps"].sum() == expected


def test_the_examples_are_small_and_hold_no_local_paths():
    pages = [path for path in committed() if path.suffix == ".html"]
    assert sum(page.stat().st_size for page in pages) < 8_000_000
    for path in committed():
        content = path.read_bytes()
        assert not any(folder in content for folder in (b"/home/", b"/root/", b"/tmp/")), path


@pytest.mark.usefixtures("processes")
@pytest.mark.slow
def test_the_examples_pages_are_up_to_date(tmp_path):
    copy = tmp_path / "examples"
    shutil.copytree(EXAMPLES, copy)
    write_site(copy, print)
    stale = []
    for path in committed():
        new = copy / path.relative_to(EXAMPLES)
        is_written = path.suffix in (".html", ".csv", ".json")
        if is_written and path.read_bytes() != new.read_bytes():
            stale.append(path.name)
    assert stale == [], "refresh them: perfkit report outputs/examples"
