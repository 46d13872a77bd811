"""Comparisons: ratio and interval, comparability, verdict."""

import json
import random
import re
import shutil
from functools import partial
from math import exp, log
from pathlib import Path

import click
import pytest
import simulations
from conftest import cli
from made.results import FACTS, V100, measured, write_all
from scipy.stats import mannwhitneyu

import perfkit
from perfkit.analysis.comparison.keys import HARDWARE, KEYS
from perfkit.analysis.comparison.stored import SelectedComparison
from perfkit.analysis.verdicts import LEVEL, THRESHOLD, has_regressed, verdict
from perfkit.measuring import statistics
from perfkit.measuring.paths import ROOT
from perfkit.measuring.results.failures import Failure
from perfkit.measuring.results.schema import InputData
from perfkit.measuring.results.store import read_result
from perfkit.measuring.statistics import Estimate, ratio_interval
from perfkit.measuring.work import ModelWork
from perfkit.report.comparison import selected_comparison
from perfkit.report.terminal import wrapped

BASE = [100.0, 100.4, 99.7, 100.1, 99.9]
"""Throughputs of five similar repeats."""
FLEETX = {"device": "gpu", "gpus": 8, "batch_size": 128, "execution": "static"}
FLEETX |= {"strategy": "fleetx-fp32"}
"""The configuration of 2506.47 images/s on the FleetX ResNet-50 page."""


def times(factor, values=BASE):
    return [factor * value for value in values]


@pytest.fixture
def sides(tmp_path):
    """Stores results and returns the folders of A and B."""

    def stored(ones, others):
        a = write_all(tmp_path / "a", *ones)
        b = write_all(tmp_path / "b", *others)
        return a, b

    return stored


@pytest.fixture
def compare(sides):
    """Stores and compares results."""

    def compared(ones, others, **options):
        a, b = sides(ones, others)
        return perfkit.compare(a, b, **options)

    return compared


def on_one_line(text):
    """Return the text of a terminal on one line, without colours."""
    return " ".join(click.unstyle(text).split())


def refused(a, b, **options):
    """Return the error of a rejected comparison on one line."""
    with pytest.raises(perfkit.ComparisonError) as error:
        perfkit.compare(a, b, **options)
    return on_one_line(str(error.value))


def text_of(comparison):
    """Return the text of a comparison on one line."""
    return on_one_line(repr(selected_comparison(comparison)))


@pytest.fixture(scope="module")
def kept(tmp_path_factory):
    """An outputs folder with two measurements, the second 3 % slower."""
    base = measured(BASE, label="base")
    slower = measured(times(0.97), label="new", facts={"paddle": "3.4.0"})
    return write_all(tmp_path_factory.mktemp("kept") / "outputs", base, slower)


@pytest.fixture
def files(kept):
    """The folders of `kept`, for tests that do not change them."""
    return [str(path) for path in sorted(kept.iterdir())]


command = partial(cli, "compare")


# The ratio and its interval.


def test_estimate_and_interval_match_the_textbook():
    # Permeability of the membrane, Hollander, Wolfe and Chicken, example 4.1, with factors
    # instead of shifts. R's wilcox.test(x, y, conf.int = TRUE) agrees.
    x = [0.80, 0.83, 1.89, 1.04, 1.45, 1.38, 1.91, 1.64, 0.73, 1.46]
    y = [1.15, 0.88, 0.90, 0.74, 1.21]
    values = [exp(shift) for shift in x]
    base = [exp(shift) for shift in y]
    ratio = ratio_interval(values, base)
    assert log(ratio.value) == pytest.approx(0.305)
    assert log(ratio.low) == pytest.approx(-0.15)
    assert log(ratio.high) == pytest.approx(0.76)


def test_the_interval_excludes_1_exactly_when_the_exact_test_rejects():
    chance = random.Random(7)
    rejections = 0
    for _simulation in range(300):
        m, n = chance.choice([(4, 4), (5, 5), (5, 7), (7, 7), (10, 10)])
        base = [chance.gauss(100, 1) for _repeat in range(n)]
        values = [chance.gauss(101, 1) for _repeat in range(m)]
        ratio = ratio_interval(values, base)
        rejected = mannwhitneyu(values, base, method="exact").pvalue <= 0.05
        assert (not ratio.low <= 1 <= ratio.high) == rejected
        rejections += rejected
    assert 50 < rejections < 250


@pytest.mark.parametrize(
    ("m", "n", "level"),
    [  # 1 - 2 P(U < k) of the tables, 5 % two-sided; below, the range with its level.
        (7, 7, 1 - 130 / 3432),
        (4, 4, 1 - 2 / 70),
        (3, 3, 0.9),
        (1, 1, 0.0),
    ],
)
def test_intervals_achieve_the_tabulated_levels(m, n, level):
    values = (BASE * 2)[:m]
    base = (BASE + times(1.1))[:n]
    ratio = ratio_interval(values, base)
    assert ratio.level == pytest.approx(level, abs=5e-5)


def test_the_intervals_of_many_repeats_are_nearly_exact(monkeypatch):
    # The logarithms of all ratios are 0.001 apart.
    values = [exp(100 * k / 1000) for k in range(10)]
    base = [exp(k / 1000) for k in range(100)]
    exact = ratio_interval(values, base)
    monkeypatch.setattr(statistics, "MOST_EXACT", 0)
    statistics._rank.cache_clear()
    ratio = ratio_interval(values, base)
    statistics._rank.cache_clear()
    for end, exact_end in zip(ratio, exact, strict=True):
        assert log(end) == pytest.approx(log(exact_end), abs=0.0021)


# Short simulations; `benchmarks/simulations.py` runs more.


@pytest.mark.parametrize("drift", [0.0, 0.005, 0.01])
def test_interleaving_raises_no_false_alarms_under_drift(drift):
    assert simulations.drifting(drift, simulations=3000) <= 0.05


@pytest.mark.parametrize("noise", simulations.NOISE)
@pytest.mark.parametrize(("m", "n"), [(5, 7), (7, 7)])
def test_the_interval_covers_the_ratio_at_its_level(noise, m, n):
    covered, printed = simulations.ratio_coverage(noise, m, n, simulations=10_000)
    assert abs(covered - printed) <= 0.01


# Comparability.


@pytest.mark.parametrize(
    ("base", "values", "line"),
    [
        (BASE, times(1.1), "● B 1.100 × A (1.096 to 1.104), faster"),
        (BASE, times(0.99), "■ B 0.990 × A (0.986 to 0.994), slower"),
        (BASE, times(0.97), "■ B 0.970 × A (0.966 to 0.974), slower: a regression"),
        (BASE, times(1.001), "● B 1.00 × A (0.997 to 1.01), no difference over 2 %"),
        (BASE, [100.0, 103.0, 101.0, 99.6, 104.0], "○ B 1.01 × A (0.996 to 1.04), can't tell"),
        (BASE[:3], times(0.5, BASE[:3]), "○ B 0.500 × A, can't tell: n=3, 4 are enough"),
    ],
)
def test_a_verdict_states_equality_only_within_the_threshold(compare, base, values, line):
    comparison = compare([measured(base)], [measured(values)])
    first, *_others = repr(selected_comparison(comparison)).splitlines()
    assert first == line
    assert comparison.regressed == ("a regression" in line)


def test_a_regression_is_judged_by_the_ratio_and_not_by_the_end_of_its_interval():
    slower = Estimate(value=0.985, low=0.97, high=0.995, level=0.96)
    assert verdict(slower, LEVEL, THRESHOLD) == "slower"
    assert not has_regressed(slower, LEVEL, THRESHOLD)
    assert has_regressed(slower._replace(value=0.975), LEVEL, THRESHOLD)


@pytest.mark.parametrize(
    ("key", "changes", "values"),
    [
        ("batch_size", {"batch_size": 16}, "32 | 16"),
        ("precision", {"used": "bf16"}, "fp32 | bf16"),
        ("gpus", {"facts": {"gpus": [V100] * 2}}, f"– | 2 × {V100.split(',')[0]}"),
    ],
)
def test_differences_are_rejected_unless_allowed_by_across(sides, key, changes, values):
    other = measured(times(1.1), **changes)
    folders = sides([measured(BASE)], [other])
    message = refused(*folders)
    assert f"{key}: {values}" in message
    assert message.endswith(f"the differences: --across {key}")
    comparison = perfkit.compare(*folders, across=[key])
    (pair,) = comparison.pairs
    assert [*pair.across] == [key]
    assert f"{key} {values}" in text_of(comparison)


def test_across_input_does_not_allow_another_data_set(sides):
    data = InputData(samples=512, sha256="1" * 64)
    other = measured(BASE, input="dataloader").model_copy(update={"input_data": data})
    folders = sides([measured(BASE)], [other])
    message = refused(*folders, across=["input"])
    assert re.search(r"input_sha256: 0+… [|] 1+…", message)


@pytest.mark.parametrize(
    ("changes", "messages"),
    [
        ({"facts": {"paddle": "3.4.0"}}, ["  paddle 3.3.1 | 3.4.0"]),
        ({"label": "new"}, ["  label – | new"]),
        ({"timeout": 7}, []),
    ],
)
def test_software_and_labels_may_differ_and_are_reported(compare, changes, messages):
    other = measured(times(1.01), **changes)
    comparison = compare([measured(BASE)], [other])
    assert comparison.pairs[0].across == {}
    lines = repr(selected_comparison(comparison)).splitlines()
    differing = [line for line in lines if re.match(r"  \S", line)]
    assert differing == messages


def test_a_comparison_cautions_about_warnings_but_not_about_notices(compare):
    comparison = compare([measured(BASE)], [measured([value + 1 for value in BASE])])
    (pair,) = comparison.pairs

    def with_warnings(*codes):
        side = pair.a.model_copy(update={"warnings": codes})
        changed = pair.model_copy(update={"a": side})
        return text_of(comparison.model_copy(update={"pairs": [changed]}))

    both = with_warnings("drift", "tensor_cores_unused")
    assert "Caution: see the warnings of A (drift)." in both
    assert "Caution" not in with_warnings("of_another_version")


def test_framework_settings_may_differ_and_are_reported(compare):
    result = measured(BASE)
    results = []
    for optimizer in ("fused", "foreach"):
        settings = {"optimizer": optimizer}
        effective = result.effective.model_copy(update={"settings": settings})
        results.append(result.model_copy(update={"effective": effective}))
    fused, foreach = results
    (pair,) = compare([fused], [foreach]).pairs
    assert pair.differs == {"settings.optimizer": ("fused", "foreach")}
    assert not pair.across


def test_every_fact_is_hardware_or_software():
    software = {"os", "kernel", "driver", "python", "paddle", "paddle_commit"}
    software |= {"cuda", "cudnn", "nccl", "dali", "h5py", "pillow", "variables", "numpy"}
    software |= {"suite", "suite_source", "suite_commit", "suite_modified"}
    # Follows from `gpus`; results that were stored before lack it.
    implied = {"compute_capability"}
    assert {*FACTS, "data_disk"} - {*HARDWARE} - implied == software


def test_every_parameter_is_a_key_or_does_not_define_the_work():
    not_work = {"label", "launcher", "hosts", "data_dir", "timeout", "port", "outputs_dir"}
    # The package versions of `python` are compared instead.
    not_work |= {"python", "profile"}
    in_topology = {"nodes", "processes", "gpus"}
    work = {*perfkit.Config.model_fields, *ModelWork.model_fields} - {"work"}
    work -= not_work | in_topology
    assert work <= {*KEYS}
    assert not not_work & {*KEYS}
    assert "topology" in KEYS


def test_measurements_are_paired_by_their_keys_and_the_rest_named(compare):
    ones = [measured(times(size), batch_size=size) for size in (4, 8, 16)]
    near = measured(times(8.001), batch_size=8)
    slower = measured(times(0.9 * 16), batch_size=16)
    alone = measured(times(32), batch_size=32)
    comparison = compare(ones, [near, slower, alone])
    of_8, of_16 = comparison.pairs
    assert of_8.keys["batch_size"] == 8
    assert of_16.keys["batch_size"] == 16
    (alone_a,) = comparison.alone_a
    (alone_b,) = comparison.alone_b
    assert alone_a[:-9] == "resnet50-fp32-1x1-b4-0"
    assert alone_b[:-9] == "resnet50-fp32-1x1-b32-2"
    text = text_of(comparison)
    assert f"1 of A without a partner, not compared: {alone_a}" in text
    assert f"1 of B without a partner, not compared: {alone_b}" in text
    counts = "2 pairs: 1 slower, 1 no difference over 2 %; 1 regression over 2 %"
    assert text.startswith(counts)


def test_ambiguous_matches_are_rejected_and_named(sides):
    ones = [measured(BASE, label=label) for label in ("monday", "tuesday")]
    folders = sides(ones, [measured(BASE)])
    message = refused(*folders)
    assert "matches 2 measurements in A" in message
    for number in (0, 1):
        assert f"b32-{number}" in message


def test_a_measurement_is_not_compared_with_itself(files):
    assert "the same measurement" in refused(files[0], files[0])


def test_a_new_failure_is_a_regression_and_named_with_its_code(sides):
    failure = Failure(code="worker_error", reason="Traceback:\n  no room")
    failed = measured([]).model_copy(update={"failure": failure})
    folders = sides([measured(BASE)], [failed])
    done = command(*folders)
    message = on_one_line(done.stdout)
    assert done.exit_code == 1
    assert "B resnet50-fp32-1x1-b32-0-" in message
    assert "has no number: worker_error: Traceback: no room; A has the number" in message


def test_other_failures_and_unfinished_measurements_are_no_regression(compare):
    failed = measured([], batch_size=8)
    amp = measured([], precision="amp")
    unfinished = measured([], batch_size=16).model_copy(update={"failure": None})
    ones = [measured(BASE, batch_size=4), failed, measured(BASE)]
    ones.append(measured(BASE, batch_size=16))
    others = [measured(times(1.01), batch_size=4), failed, amp, unfinished]
    comparison = compare(ones, others)
    assert not comparison.regressed
    assert sorted(failure.side for failure in comparison.failed) == ["A", "B", "B", "B"]
    assert compare([], [], across=["precision"]).regressed


def test_partial_measurements_are_compared_and_named(compare):
    complete = measured(times(1.1))
    protocol = complete.protocol.model_copy(update={"repeats": 7})
    partial = complete.model_copy(update={"status": "partial", "protocol": protocol})
    comparison = compare([measured(BASE)], [partial])
    (pair,) = comparison.pairs
    assert pair.verdict == "faster"
    assert "incomplete" in pair.b.warnings
    text = text_of(comparison)
    assert "Throughput: 110.0 images/s ± 0.35 % Repeats: 5 of 7 Warnings: ▲ incomplete" in text
    method = selected_comparison(comparison).html
    assert "does not cover drift of the machine between A and B" in method


# Against a published table.


def test_a_measurement_is_compared_with_its_published_number(tmp_path):
    values = [2506.47 * 1.1] * 7
    write_all(tmp_path, measured(values, **FLEETX))
    comparison = perfkit.compare("fleetx-resnet50", tmp_path)
    (pair,) = comparison.pairs
    assert pair.a.value == 2506.47
    assert pair.a.n is None
    assert pair.a.interval is None
    assert pair.a.source == "FleetX ResNet-50 benchmark page"
    assert pair.verdict == "faster"
    assert pair.ratio == pytest.approx(1.1)
    assert pair.interval_level == pytest.approx(0.984375)
    assert "The published number has no interval" in selected_comparison(comparison).html
    assert len(comparison.alone_a) == 25


def test_a_published_number_may_be_b(tmp_path):
    values = [2000.0, 2010.0, 2020.0, 2030.0, 2040.0, 2050.0, 2060.0]
    write_all(tmp_path, measured(values, **FLEETX))
    (pair,) = perfkit.compare(tmp_path, "fleetx-resnet50").pairs
    low, high = pair.interval
    assert pair.ratio == pytest.approx(2506.47 / 2030)
    assert low == pytest.approx(2506.47 / 2060)
    assert high == pytest.approx(2506.47 / 2000)


H100 = "NVIDIA H100 80GB HBM3"


def test_differences_from_published_are_rejected_unless_allowed(tmp_path):
    other = measured([2600.0] * 7, **FLEETX, facts={"gpus": [f"{H100}, 80 GiB"] * 8})
    write_all(tmp_path, other)
    assert f"gpus: V100 | {H100}" in refused("fleetx-resnet50", tmp_path)
    (pair,) = perfkit.compare("fleetx-resnet50", tmp_path, across=["gpus"]).pairs
    assert [*pair.across] == ["gpus"]


def test_few_repeats_against_a_published_number_are_undecided(tmp_path):
    few = measured([2600.0] * 5, **FLEETX)
    write_all(tmp_path, few)
    comparison = perfkit.compare("fleetx-resnet50", tmp_path, across=["statistic"])
    assert comparison.pairs[0].verdict == "undecided"
    assert "can't tell: n=5, 6 are enough" in text_of(comparison)


def test_a_published_number_is_compared_only_with_its_configuration(kept):
    message = refused(kept, "fleetx-resnet50", across=["device"])
    assert "in its place only" in message
    assert "device: cpu | gpu" in message
    assert "both published" in refused("fleetx-resnet50", "dlperf-resnet50")


# Names of A and B.


def test_a_name_may_be_a_file_a_folder_or_a_label(kept, files, tmp_path):
    folder = Path(files[0])
    copy = tmp_path / "base.json"
    shutil.copy(folder / "result.json", copy)
    (pair_of_copy,) = perfkit.compare(copy, "new", outputs=kept).pairs
    names = {
        folder: "result",
        folder.name: "result",
        "label:base": "label",
        "base": "label",
    }
    for name, taken_as in names.items():
        comparison = perfkit.compare(str(name), "new", outputs=kept)
        (pair,) = comparison.pairs
        assert comparison.a.taken_as == taken_as
        # The copy of the result has no raw files beside it.
        assert {*pair_of_copy.a.warnings} == {*pair.a.warnings, "raw_steps_unreadable"}


def test_an_empty_label_selects_the_measurements_without_one(tmp_path):
    outputs = write_all(tmp_path, measured(BASE, label="new"), measured(times(1.1)))
    (pair,) = perfkit.compare("new", "label:", outputs=outputs).pairs
    assert pair.verdict == "faster"


def test_an_unknown_name_is_reported_with_the_alternatives(kept, files, tmp_path):
    message = refused("fleetx-resnet5", "label:nwe", outputs=kept)
    assert f"A: no file or folder {ROOT / 'fleetx-resnet5'}" in message
    assert "did you mean 'fleetx-resnet50'?" in message
    assert "which has base, new; did you mean 'new'?" in message
    assert "no readable measurement" in refused(tmp_path, files[0])


def test_unreadable_results_are_left_out_and_named(kept, tmp_path):
    outputs = shutil.copytree(kept, tmp_path / "outputs")
    (outputs / "bad").mkdir()
    (outputs / "bad" / "result.json").write_text("{")
    comparison = perfkit.compare("base", "new", outputs=outputs)
    assert "left out: bad/result.json: Invalid JSON" in text_of(comparison)


@pytest.mark.parametrize(
    ("key", "message"),
    [
        ("bach_size", "did you mean 'batch_size'?"),
        ("paddle", "software and labels may differ anyway"),
    ],
)
def test_an_invalid_across_key_is_explained(files, key, message):
    assert message in refused(*files, across=[key])


# The command.


def test_compare_exits_with_1_only_for_a_regression(files):
    done = command(*files)
    assert done.exit_code == 1
    assert done.stderr == ""
    assert "slower: a regression" in done.stdout
    assert command(*files, "--threshold", 4).exit_code == 0
    assert command(*reversed(files)).exit_code == 0


def test_compare_exits_with_2_for_an_invalid_request(files, tmp_path):
    done = command(files[0], "nothing")
    assert done.exit_code == 2
    assert done.stdout == ""
    assert done.stderr.startswith("Not compared.")
    assert command(*files, "--level", 0.95).exit_code == 2
    done = command(*files, "--json", tmp_path / "none" / "x.json")
    assert done.exit_code == 2
    assert "slower: a regression" in done.stdout
    assert "No such file or directory" in on_one_line(done.stderr)
    assert [*tmp_path.iterdir()] == []


def of_two_sizes(factor):
    """Return results of two batch sizes, so many times as fast as BASE."""
    values = times(factor)
    return [measured(values, batch_size=size) for size in (4, 128)]


def test_the_text_fits_80_columns(compare):
    comparison = compare(of_two_sizes(1.0), of_two_sizes(1.1), across=["gpus"])
    text = repr(selected_comparison(comparison))
    assert comparison.pairs[0].across == {}
    for name in (comparison.a.name, comparison.b.name):
        # Long names stay whole, so that they can be pasted.
        text = text.replace(name, "")
    for line in text.splitlines():
        assert len(line) <= 80


def test_a_command_is_never_broken():
    command = "perfkit run resnet50 --frameworks paddle,torch" + " -p image_size 32" * 3
    assert wrapped(command, "  ") == f"  {command}"
    first, second = wrapped(f"same work: not verified; {command}", "  ").splitlines()
    assert first == "  same work: not verified;"
    assert second.strip() == command


def test_the_json_holds_the_whole_comparison(files, tmp_path):
    path = tmp_path / "comparison.json"
    assert command(*files, "--json", path).exit_code == 1
    stored = SelectedComparison.model_validate_json(path.read_text())
    assert stored == perfkit.compare(*files)
    done = command(*files, "--json", "-")
    assert json.loads(done.stdout) == json.loads(path.read_text())
    assert "slower: a regression" in done.stderr


def double_throughput(file):
    """Double all throughputs in a result.json, so that it stays consistent in itself."""
    content = json.loads(file.read_text())
    throughput = content["throughput"]
    throughput["value"] *= 2
    throughput["steps_per_second"] *= 2
    throughput["interval"] = [end * 2 for end in throughput["interval"]]
    for repeat in content["repeats"]:
        repeat["throughput"] *= 2
        repeat["steps_per_second"] *= 2
        for rank in repeat["ranks"]:
            rank["window_seconds"] /= 2
    file.write_text(json.dumps(content))


def test_a_result_contradicting_its_raw_files_is_rejected(kept, tmp_path):
    """Even if it is consistent in itself."""
    outputs = shutil.copytree(kept, tmp_path / "outputs")
    base, new = sorted(outputs.iterdir())
    double_throughput(new / "result.json")
    read_result(new / "result.json")
    reason = "repeat 1: the raw files give another throughput"
    done = command(base, new)
    message = on_one_line(done.stderr)
    assert done.exit_code == 2
    assert "contradicts its raw files" in message
    assert reason in message
    # Among several results, it is left out and named.
    done = command("label:base", "label:new", "--outputs", outputs)
    assert done.exit_code == 2
    assert reason in on_one_line(done.stderr)
