"""The committed examples are complete, small and up to date."""

import shutil
import subprocess

import pytest

import perfkit
from perfkit.analysis.comparison.interleaved import disagreements
from perfkit.analysis.comparison.stored import read_comparison
from perfkit.core.models import MODELS
from perfkit.core.paths import ROOT
from perfkit.report.site import write_site

EXAMPLES = ROOT / "outputs" / "examples"


@pytest.fixture(scope="module")
def measurements():
    return perfkit.load(EXAMPLES)


def committed():
    listed = subprocess.run(
        ["git", "-C", ROOT, "ls-files", "outputs"], capture_output=True, text=True, check=True
    )
    return [ROOT / line for line in listed.stdout.splitlines()]


def test_the_examples_vary_batch_size_input_and_processes(measurements):
    assert measurements["batch_size"].nunique() >= 3
    assert measurements["input"].nunique() >= 2
    assert {1, 2} <= set(measurements["processes"])
    assert set(measurements["status"]) == {"complete"}
    assert not measurements.attrs["unreadable"]


def test_the_examples_interleave_frameworks_verified_to_do_the_same_work():
    comparisons = [read_comparison(folder) for folder in (EXAMPLES / "comparisons").iterdir()]
    of_frameworks = [found for found in comparisons if "framework" in found.named]
    assert {comparison.model for comparison in of_frameworks} == {*MODELS}
    for comparison in of_frameworks:
        assert comparison.complete
        assert disagreements(comparison, EXAMPLES) == []
        assert {pair.same_work.state for pair in comparison.pairs} == {"verified"}
        assert not any(pair.out_of_turn for pair in comparison.pairs)


def test_the_examples_have_all_raw_steps_behind_their_numbers(measurements):
    for row in measurements.itertuples():
        steps = perfkit.load_steps(EXAMPLES / row.folder)
        expected = row.repeats * row.processes * (row.warmup_steps + row.measured_steps)
        assert len(steps) == expected


def test_the_examples_were_measured_by_a_clean_commit(measurements):
    assert set(measurements["environment.suite_modified"]) == {False}


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
