"""Comparisons, series and published numbers beside measurements of scripts."""

import re

import pytest
from conftest import needs_frameworks
from made.results import keep, script_measured, write_all

import perfkit
from perfkit.analysis.comparison import ComparisonError
from perfkit.analysis.comparison.history import history
from perfkit.analysis.comparison.interleaved import judge_interleaved
from perfkit.analysis.comparison.interleaved_plan import InterleavedPlan, plan_interleaved
from perfkit.analysis.comparison.keys import LIVE_LABEL
from perfkit.report.comparison import ComparisonPage, page, selected_comparison
from perfkit.report.links import Site
from perfkit.report.text.names import configuration_name, variant_names

BASE = (100.0, 101.0, 102.0, 99.0, 100.5, 101.5, 99.5)
SLOWER = tuple(0.9 * value for value in BASE)
OTHER_CONTENT = "b" * 64


@pytest.fixture
def script(tmp_path):
    """A training script that imports what it needs and is never run."""
    path = tmp_path / "train.py"
    path.write_text("import torch\nimport perfkit\n")
    return path


def planned(script, *variants, **shared):
    values = {"script": str(script), "device": "cpu", "processes": 1, "protocol": "quick"}
    return plan_interleaved("script", variants, values | shared)


def folders(tmp_path, *results):
    return [keep(tmp_path / str(k), result).folder for k, result in enumerate(results)]


# Planned comparisons.


@needs_frameworks
def test_variants_of_a_script_are_its_switches(script):
    plan = planned(script, "arguments=", "arguments=--compile")
    assert [each.config.work.arguments for each in plan.plans] == ["", "--compile"]
    assert plan.named == ["arguments"]
    assert plan.folder.name.startswith("train-arguments-")
    start = f"perfkit compare --live {script} arguments= arguments=--compile -p device cpu"
    assert plan.command.startswith(start)
    labels = {each.config.label for each in plan.plans}
    assert all(re.fullmatch(LIVE_LABEL, label) for label in labels)


@needs_frameworks
def test_arguments_are_the_rest_of_a_variant_whatever_they_contain(script):
    plan = planned(script, "cpu_tuning=False,arguments=--set a=1,gpus=2", "arguments=")
    first = plan.plans[0].config
    assert first.work.arguments == "--set a=1,gpus=2"
    assert first.cpu_tuning is False


@needs_frameworks
def test_two_versions_of_a_script_are_variants(script):
    old = script.with_name("old.py")
    old.write_text("import torch\nimport perfkit\nprint(1)\n")
    plan = planned(script, f"script={old}", f"script={script}")
    names = [each.config.work.name for each in plan.plans]
    assert names == ["old.py", "train.py"]


# Judged comparisons.


def judged(tmp_path, *results):
    """Return the interleaved comparison of results whose arguments are the variants."""
    measurements = [keep(tmp_path / str(k), result) for k, result in enumerate(results)]
    variants = {}
    for result in results:
        arguments = result.config.work.arguments
        variants[f"arguments={arguments}"] = {"arguments": arguments}
    plan = InterleavedPlan("command", variants, 0.95, 0.02, "", [])
    return judge_interleaved(plan, measurements)


def test_a_slower_switch_is_found_and_named_by_its_arguments(tmp_path):
    base = script_measured(BASE, arguments="")
    other = script_measured(SLOWER, arguments="--slow")
    comparison = judged(tmp_path, base, other)
    (pair,) = comparison.pairs
    assert (comparison.model, comparison.regressed) == ("train.py", True)
    assert pair.ratio == pytest.approx(0.9)
    assert pair.across == {"arguments": ("", "--slow")}
    assert variant_names(comparison) == ["no arguments", "--slow"]
    section = page(ComparisonPage(tmp_path, comparison, Site(tmp_path)))
    title, verdict, *_rest = repr(section).splitlines()
    assert title == "train.py · 64 images per step · 1x1: no arguments, --slow"
    slower = "■ --slow 0.900 × no arguments (0.900 to 0.900), slower: a regression"
    assert verdict.startswith(slower)


@pytest.mark.parametrize(
    ("arguments", "names"),
    [
        (["--lr 0.1 --width 256", "--lr 0.1 --width 512"], ["--width 256", "--width 512"]),
        (["--lr 0.1", "--lr 0.1 --compile"], ["without --compile", "--compile"]),
        (
            ["--a 1", "--a 1 --b -2", "--a 1 --c 'x y' z"],
            ["without --b -2, --c 'x y' z", "--b -2", "--c 'x y' z"],
        ),
    ],
)
def test_variants_are_named_by_the_arguments_in_which_they_differ(tmp_path, arguments, names):
    results = [script_measured(BASE, arguments=line) for line in arguments]
    assert variant_names(judged(tmp_path, *results)) == names


def test_versions_of_a_script_are_named_by_their_paths(tmp_path):
    base = script_measured(BASE)
    other = script_measured(BASE, script_sha256=OTHER_CONTENT)
    measurements = [keep(tmp_path / str(k), each) for k, each in enumerate((base, other))]
    variants = {"script=old/train.py": {"script": "old/train.py"}}
    variants["script=train.py"] = {"script": "train.py"}
    plan = InterleavedPlan("command", variants, 0.95, 0.02, "", [])
    assert variant_names(judge_interleaved(plan, measurements)) == ["old/train.py", "train.py"]


def test_stored_measurements_of_a_script_show_the_arguments_that_differ(tmp_path):
    common = "--data /a/long/folder/of/tokens --steps 60"
    a = script_measured(BASE, arguments=f"{common} --width 256")
    b = script_measured(BASE, arguments=f"{common} --width 512 --compile")
    comparison = perfkit.compare(*folders(tmp_path, a, b), across=["arguments"])
    text = repr(selected_comparison(comparison))
    assert "  arguments --width 256 | --width 512 --compile" in text.splitlines()


def test_arguments_may_change_what_the_script_tells(tmp_path):
    told = {"samples_per_step": 128, "precision": "bf16"}
    base = script_measured(BASE, arguments="")
    other = script_measured(BASE, arguments="--batch 128 --bf16", told=told)
    (pair,) = judged(tmp_path, base, other).pairs
    assert pair.across.keys() == {"arguments", "samples_per_step", "precision"}


def test_arguments_that_change_the_unit_are_not_compared(tmp_path):
    base = script_measured(BASE, arguments="")
    other = script_measured(BASE, arguments="--tokens", told={"unit": "tokens"})
    comparison = judged(tmp_path, base, other)
    assert not comparison.pairs
    assert comparison.variants[1].differs == {"unit": ("images", "tokens")}


@pytest.mark.parametrize(
    ("key", "changes"),
    [
        ("script_sha256", {"script_sha256": OTHER_CONTENT}),
        ("samples_per_step", {"told": {"samples_per_step": 128}}),
    ],
)
def test_measurements_of_different_scripts_are_rejected_unless_allowed(tmp_path, key, changes):
    a, b = folders(tmp_path, script_measured(BASE), script_measured(BASE, **changes))
    with pytest.raises(ComparisonError, match=key):
        perfkit.compare(a, b)
    (pair,) = perfkit.compare(a, b, across=[key]).pairs
    assert pair.across.keys() == {key}


# Series.


def days(tmp_path, *results):
    """Return the history of results, one a day."""
    dated = []
    for day, result in enumerate(results, 1):
        created = f"2026-01-{day:02}T00:00:00+00:00"
        dated.append(result.model_copy(update={"created": created}))
    return history(perfkit.load(write_all(tmp_path, *dated)))


def test_a_change_of_the_script_is_a_change_within_its_series(tmp_path):
    results = []
    for day in range(12):
        is_new = day >= 10
        content = OTHER_CONTENT if is_new else "a" * 64
        values = SLOWER if is_new else BASE
        results.append(script_measured(values, script_sha256=content, label=f"day{day}"))
    found = days(tmp_path, *results)
    (series,) = found.series
    name = configuration_name(series.configuration)
    assert "train.py" in name
    assert "--lr 0.1" in name
    assert "script_sha256" in series.points[10].changes
    assert [change.start for change in series.changes] == [10]
    assert found.regressed


def test_other_arguments_or_told_samples_make_another_series(tmp_path):
    results = []
    for day in range(3):
        label = {"label": f"day{day}"}
        results.append(script_measured(BASE, arguments="", **label))
        results.append(script_measured(BASE, arguments="--compile", **label))
        results.append(script_measured(BASE, told={"samples_per_step": 128}, **label))
    found = days(tmp_path, *results)
    assert len(found.series) == 3
    assert len({configuration_name(series.configuration) for series in found.series}) == 3
