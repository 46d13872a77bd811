"""Logs of other suites become measurements, which say of themselves that they are."""

import hashlib
import json
import re
from functools import partial

import numpy as np
import pandas as pd
import pytest
from click.testing import CliRunner
from made import measured, write_all

import perfkit
from perfkit import report
from perfkit.cli import main
from perfkit.comparison import ComparisonError, compare
from perfkit.logs import importing
from perfkit.logs.config_facts import Sourced, by_line
from perfkit.logs.formats import Semantics
from perfkit.logs.log import WINDOW, Log, LogError, ReportedFigure
from perfkit.report.measurement import write_measurement
from perfkit.report.site import write_site
from perfkit.request.errors import RequestError
from perfkit.request.plan import Plan, plan
from perfkit.results.store import Measurement
from perfkit.results.summarize import check_against_raw
from perfkit.sweep import jobs
from perfkit.sweep.jobs import Job
from perfkit.text.language import in_language


def semantics(rate_of="device", covers="window", reader="in", **other):
    return Semantics(rate_of=rate_of, covers=covers, reader=reader, source="our own", **other)


BY_WINDOWS = semantics()
FACTS = {
    "model": "resnet50",
    "framework": "tensorflow",
    "precision": "fp32",
    "batch_size": 32,
    "nodes": 1,
    "devices": 8,
}
GIVEN = {"input": "dali", "accumulate": "1", "device": "gpu"}


@pytest.fixture
def log(tmp_path, monkeypatch):
    """Makes logs that the importers would have read: prints at the steps `ends`, `step_seconds`
    for each step between two, and other columns by name."""
    known = {}

    def made(name="a.log", ends=range(10, 131, 10), *, meaning=BY_WINDOWS, **columns):
        path = tmp_path / name
        path.write_text(name)
        facts = FACTS | columns.pop("facts", {})
        ends = np.array(ends)
        single = meaning.covers == "step"
        rows = pd.DataFrame(np.nan, index=range(len(ends)), columns=[*WINDOW])
        rows["first"] = ends if single else np.concatenate([[1], ends[:-1] + 1])[: len(ends)]
        rows["last"], rows["line"] = ends, np.arange(len(ends))
        rows["rank"], rows["run"], rows["epoch"] = -1, 0, 0
        steps = rows["last"] - rows["first"] + 1
        rows["seconds"] = steps * np.array(columns.pop("step_seconds", 0.5))
        rows = rows.assign(**columns).astype(WINDOW)
        sha256 = hashlib.sha256(path.read_bytes()).hexdigest()
        said = {k: Sourced(v, by_line(3)) for k, v in facts.items() if v is not None}
        known[path] = Log(path, "Suite X", sha256, meaning, rows, said)
        return path

    monkeypatch.setattr(importing, "read_logs", lambda path, given: [known[path]])
    made.known = known
    return made


@pytest.fixture
def imported(tmp_path):
    """Imports logs, with more given by hand, into tmp_path/outputs."""

    def make(*logs, **given):
        texts = GIVEN | {name.replace("__", "."): str(value) for name, value in given.items()}
        return importing.import_logs(logs, texts, tmp_path / "outputs")

    return make


def refused(act, *logs, **given):
    with pytest.raises(RequestError) as error:
        act(*logs, **given)
    return error.value.problems


def test_a_log_becomes_a_measurement_of_the_steps_of_the_protocol(log, imported):
    slow_at_first = [5.0, 5.0, *[0.5] * 10, 9.0]
    result = imported(log(step_seconds=slow_at_first)).result
    assert (result.protocol.warmup_steps, result.protocol.measured_steps) == (20, 100)
    assert result.throughput.value == pytest.approx(32 * 8 / 0.5)
    assert result.throughput.unit == "images/s"
    assert result.throughput.n == 1
    assert result.status == "complete"
    assert result.imported.basis == "seconds"
    assert result.imported.logs[0].lines == (2, 11)


def test_logs_that_are_given_together_are_the_repeats_of_one_measurement(log, imported):
    paths = [log(f"{k}.log", step_seconds=1 / k) for k in (4, 1, 2)]
    result = imported(*paths).result
    assert [repeat.throughput for repeat in result.repeats] == pytest.approx([1024, 256, 512])
    assert result.throughput.value == pytest.approx(512)
    assert result.throughput.interval == pytest.approx((256, 1024))
    assert [one.file for one in result.imported.logs] == ["4.log", "1.log", "2.log"]


def test_all_that_lacks_is_said_at_once_with_what_to_type(log, tmp_path):
    untold = dict.fromkeys([*FACTS, "device"])
    problems = refused(
        partial(importing.import_logs, given={}, outputs=tmp_path), [log(facts=untold)]
    )
    assert sorted(problem.split(":")[0] for problem in problems) == [
        "accumulate",
        "batch_size",
        "device",
        "framework",
        "gpus",
        "input",
        "model",
        "nodes",
        "precision",
    ]
    text = "\n".join(problems)
    assert "-p framework paddle|torch|jax|tensorflow|mxnet|oneflow" in text
    assert "-p batch_size NUMBER" in text
    assert "-p input dali|dataloader|synthetic" in text
    assert "-p device cpu|gpu" in text
    assert not list(tmp_path.glob("*/result.json"))


def test_who_says_what_is_kept_and_what_is_given_takes_the_place_of_what_a_log_tells(
    log, imported
):
    result = imported(log(), batch_size=64).result
    assert result.config.batch_size == 64
    assert result.imported.facts["precision"] == "a.log, line 3"
    assert result.imported.facts["batch_size"] == "given by hand; a.log, line 3 says 32"
    assert result.imported.given == GIVEN | {"batch_size": "64"}


def test_gpus_that_are_given_say_what_trained(log, tmp_path):
    given = {"input": "dali", "accumulate": "1", "gpus": "4"}
    result = importing.import_logs([log(facts={"devices": None})], given, tmp_path).result
    assert (result.config.device, result.config.topology) == ("gpu", "1x4")
    assert result.imported.facts["device"] == "follows from gpus"


def test_one_rank_is_one_device_of_one_node(log, imported):
    path = log(facts={"nodes": None, "devices": None, "ranks": 1})
    assert imported(path).result.config.topology == "1x1"


def test_devices_of_a_training_on_the_cpu_are_processes(log, imported):
    config = imported(log(), device="cpu").result.config
    assert (config.processes, config.gpus, config.topology) == (8, 0, "1x8")


@pytest.mark.parametrize(
    ("given", "told"),
    [
        (
            {"batchsize": 1},
            "batchsize: nothing that is told of a log; did you mean 'batch_size'?",
        ),
        ({"timeout": 60}, "timeout: nothing that is told of a log"),
        ({"environment__gpu": "V100"}, "did you mean 'environment.gpus'?"),
        ({"framework": "caffe"}, "framework: 'caffe' is not available; allowed: paddle, torch"),
        ({"batch_size": "many"}, "batch_size: 'many' is of the wrong type"),
        ({"device": "auto"}, "device: say what trained, cpu with processes or gpu with gpus"),
        ({"gpus": 0}, "device: say what trained, cpu with processes or gpu with gpus"),
        ({"measured_steps": 0}, "measured_steps: 0 is out of range"),
    ],
)
def test_what_is_given_wrong_is_refused(log, imported, given, told):
    (problem,) = refused(imported, log(), **given)
    assert told in problem


def test_a_topology_that_is_not_that_of_the_log_is_refused(log, imported):
    path = log(facts={"nodes": None, "devices": None, "ranks": 32})
    (problem,) = refused(imported, path, nodes=2, gpus=8)
    assert problem == "nodes, gpus: 2x8 makes 16 ranks; a.log, line 3 says 32"


def test_a_batch_of_all_devices_that_is_not_that_of_the_log_is_refused(log, imported):
    (problem,) = refused(imported, log(facts={"global_batch_size": 512}))
    assert problem == (
        "batch_size, accumulate: they and 1x8 make 256 samples an update; "
        "a.log, line 3 says 512"
    )


def test_logs_that_are_no_repeats_of_each_other_are_refused(log, imported):
    (problem,) = refused(imported, log("a.log"), log("b.log", facts={"batch_size": 64}))
    assert problem == (
        "batch_size: differs, so these are no repeats: 32 by a.log, line 3, 64 by b.log, line 3"
    )
    log.known[other := log("c.log")].format = "Suite Y"
    (problem,) = refused(imported, log("a.log"), other)
    assert problem == (
        "logs of one measurement have one format: a.log is of Suite X; c.log is of Suite Y"
    )


def test_one_log_is_one_repeat_however_often_it_is_given(log, imported):
    log.known[copy := log("b.log")].sha256 = log.known[path := log("a.log")].sha256
    assert refused(imported, path, copy) == [
        "b.log: the same bytes as a.log; a log is one repeat"
    ]
    assert refused(imported, path, path) == [
        "a.log: the same bytes as a.log; a log is one repeat"
    ]


def test_a_figure_without_steps_is_no_measurement(log, imported):
    path = log(ends=[])
    log.known[path].reported = [ReportedFigure("train_throughput", 9421.36, "9421.36", 9)]
    assert refused(imported, path) == ["a.log: tells of no step, only train_throughput 9421.36"]


def test_every_log_that_cannot_be_read_is_named(tmp_path, monkeypatch):
    def fail(path, given):
        raise LogError(f"{path.name}: of no known format \x1b[31m")

    monkeypatch.setattr(importing, "read_logs", fail)
    make = partial(importing.import_logs, given=GIVEN, outputs=tmp_path)
    problems = refused(make, [tmp_path / "a.log", tmp_path / "b.log"])
    assert problems == [
        "a.log: of no known format \N{REPLACEMENT CHARACTER}[31m",
        "b.log: of no known format \N{REPLACEMENT CHARACTER}[31m",
    ]


@pytest.mark.parametrize(
    ("ends", "steps"),
    [
        (range(50, 401, 50), (51, 150)),
        ([15, 130, 140], (131, 140)),
        ([10, 20, 40], (21, 40)),
        ([5, 10], (1, 10)),
        ([500, 1000], (501, 1000)),
    ],
)
def test_where_no_prints_end_at_the_protocols_steps_the_nearest_are_taken(
    log, imported, ends, steps
):
    protocol = imported(log(ends=ends)).result.protocol
    assert (protocol.warmup_steps + 1, protocol.steps) == steps


def test_other_steps_can_be_asked_for_if_prints_end_there(log, imported):
    path = log()
    protocol = imported(path, warmup_steps=40, measured_steps=50).result.protocol
    assert (protocol.warmup_steps, protocol.measured_steps) == (40, 50)
    (problem,) = refused(imported, path, warmup_steps=45, measured_steps=50)
    assert "steps 46 to 95" in problem
    assert "10, 20, 30" in problem


def test_logs_whose_prints_cover_other_steps_are_refused(log, imported):
    (problem,) = refused(imported, log("a.log"), log("b.log", ends=[7, 77]))
    assert "give logs with the same prints" in problem


def test_the_first_training_in_a_file_that_has_the_steps_is_taken(log, imported):
    ends = [10, 20, 30, *range(10, 131, 10)]
    path = log(ends=ends)
    rows = log.known[path].windows
    rows.loc[3:, "run"], rows.loc[3:, "first"] = 1, rows["last"] - 9
    rows.loc[3:, "seconds"] = 2.0
    result = imported(path).result
    assert result.imported.logs[0].run == 1
    assert result.throughput.value == pytest.approx(32 * 8 / 0.2)


def test_rates_count_by_the_time_that_they_stand_for(log, imported):
    rates = [1, 1, *[100, 300] * 5, 1]
    path = log(step_seconds=np.nan, rate=7.0, own_rate=rates)
    result = imported(path).result
    assert result.imported.basis == "own_rate"
    assert result.throughput.value == pytest.approx(8 * 150)


def test_rates_of_all_devices_are_not_multiplied(log, imported):
    meaning = semantics("all", reader=None)
    path = log(meaning=meaning, step_seconds=np.nan, own_rate=800.0)
    assert imported(path).result.throughput.value == pytest.approx(800)


def test_waits_for_input_that_a_step_leaves_out_are_added(log, imported):
    meaning = semantics("device", reader="apart")
    result = imported(log(meaning=meaning, step_seconds=0.4, reader=1.0)).result
    assert result.throughput.value == pytest.approx(32 * 8 / 0.5)
    assert result.repeats[0].data_wait_share == pytest.approx(0.2)


def test_times_of_which_nobody_knows_whether_waits_are_in_them_do_not_count(log, imported):
    meaning = semantics("device", reader=None)
    path = log(meaning=meaning, step_seconds=0.4, reader=1.0, own_rate=80.0)
    result = imported(path).result
    assert result.imported.basis == "own_rate"
    assert result.throughput.value == pytest.approx(640)


def test_single_steps_with_others_between_are_timed_by_the_logs_clock(log, imported):
    meaning = semantics("all", "step", reader=None)
    ends = np.arange(10, 131, 10)
    result = imported(log(ends=ends, meaning=meaning, at=1000 + ends * 0.25)).result
    assert result.imported.basis == "clock"
    assert result.throughput.value == pytest.approx(32 * 8 / 0.25)
    assert check_against_raw(Measurement.read(_folder(result, imported))) == []


def _folder(result, imported):
    return imported.__closure__[0].cell_contents / "outputs" / result.id


def test_single_steps_without_a_clock_say_nothing_of_those_between(log, imported):
    meaning = semantics("all", "step", reader=None)
    (problem,) = refused(imported, log(ends=range(10, 131, 10), meaning=meaning))
    assert "10, 20, 30" in problem


def test_of_ranks_that_print_the_slowest_counts(log, imported):
    ends = [*range(10, 131, 10)] * 2
    path = log(ends=ends, rank=[0] * 13 + [1] * 13, step_seconds=[0.5] * 13 + [0.8] * 13)
    rows = log.known[path].windows
    rows["first"], rows["seconds"] = rows["last"] - 9, [5.0] * 13 + [8.0] * 13
    assert imported(path).result.throughput.value == pytest.approx(32 * 8 / 0.8)


def test_micro_batches_that_a_log_counts_are_no_updates(log, imported):
    meaning = semantics("device", reader="in", step="batch")
    result = imported(log(meaning=meaning), accumulate=4).result
    assert result.throughput.value == pytest.approx(32 * 8 / 0.5)
    assert result.throughput.steps_per_second == pytest.approx(0.5)


def test_a_batch_size_that_the_logs_own_figures_contradict_is_refused(log, imported):
    path = log(own_rate=64.0)
    assert imported(path).result.throughput
    (problem,) = refused(imported, path, batch_size=64)
    assert "make 32 samples a step of a device" in problem


def test_what_is_stored_already_is_left_as_it_is(log, imported):
    first = imported(path := log())
    before = (first.folder / "result.json").stat().st_mtime_ns
    again = imported(path)
    assert again.result == first.result
    assert (again.folder / "result.json").stat().st_mtime_ns == before
    assert imported(path, label="other").folder != first.folder
    assert imported(path, environment__driver="525.60").folder != first.folder


def test_windows_that_were_damaged_are_mended_by_importing_again(log, imported):
    measurement = imported(path := log())
    file = measurement.windows_file(1)
    whole = file.read_text()
    file.write_text("damaged")
    assert imported(path).result == measurement.result
    assert file.read_text() == whole


def test_numbers_are_derived_from_the_windows_again(log, imported):
    measurement = imported(log())
    assert check_against_raw(measurement) == []
    file = measurement.windows_file(1)
    text = file.read_text()
    file.write_text(text.replace('"seconds": 5.0', '"seconds": 6.0'))
    assert check_against_raw(measurement) == [
        "repeat 1: the raw files give another throughput, steps_per_second"
    ]
    file.write_text("".join(text.splitlines(keepends=True)[:-1]))
    assert check_against_raw(measurement) == [
        "repeat 1: the raw files are not those of a finished repeat"
    ]
    file.unlink()
    assert "No such file" in check_against_raw(measurement)[0]


def test_what_nobody_told_is_unknown_and_says_why(log, imported, tmp_path):
    result = imported(log(), environment__gpus="V100").result
    assert result.effective is None
    assert result.repeats[0].peak is None
    assert result.environment["gpus"].value == ["V100"]
    missing = {fact.missing for name, fact in result.environment.items() if name != "gpus"}
    assert missing == {"the log does not tell"}
    (row,) = perfkit.load(tmp_path / "outputs").to_dict("records")
    assert (row["imported"], row["effective.precision"]) == ("Suite X", "fp32")
    assert (row["batch_size"], row["topology"], row["accumulate"]) == (32, "1x8", 1)
    untold = ("layout", "dali_threads", "seed", "tf32", "optimizer", "environment.cpu")
    assert [row[name] for name in untold] == [None] * len(untold)


def test_an_imported_measurement_shares_no_table_with_what_perfkit_measured(
    log, imported, tmp_path
):
    own = measured([100.0], device="gpu", gpus=8, batch_size=32)
    write_all(tmp_path / "outputs", own)
    imported(log(), framework="paddle", environment__gpus="Tesla V100-SXM2-32GB, 32 GiB")
    html = report.fastest(report.Summary.read(tmp_path / "outputs")).html
    captions = re.findall("<caption>(.*?)</caption>", html)
    assert len(captions) == 2
    assert sorted("imported from Suite X" in caption for caption in captions) == [False, True]


def test_imported_measurements_share_a_table_if_they_differ_in_nothing_but_topology(
    log, imported, tmp_path
):
    for devices in (1, 8):
        path = log(f"{devices}.log", facts={"devices": devices})
        imported(path, environment__gpus="V100")
    html = report.fastest(report.Summary.read(tmp_path / "outputs")).html
    assert html.count("<table") == 1
    assert re.findall(r">(1x\d)<", html) == ["1x1", "1x8"]


def test_the_page_says_that_it_was_imported_and_from_what(log, imported):
    name = "<b>a.log"
    measurement = imported(log(name), log("b.log", step_seconds=0.6))
    write_measurement(measurement)
    page = (measurement.folder / "report.html").read_text()
    assert "Imported from Suite X" in page
    assert "unknown GPU" in page
    assert "&lt;b&gt;a.log" in page
    assert "<b>a.log" not in page
    assert "perfkit import" in page
    assert "None px" not in page
    assert "worker processes" not in page
    assert "they agree" in report.raw_files(measurement).html
    chinese = (measurement.folder / "report.zh.html").read_text()
    assert "导入自 Suite X" in chinese


@pytest.mark.parametrize("language", ["en", "zh"])
@pytest.mark.parametrize("basis", ["seconds", "own_rate", "clock"])
def test_the_method_is_told_for_every_way_of_timing(log, imported, basis, language):
    meaning = semantics("all", "step" if basis == "clock" else "window")
    columns = {"own_rate": 512.0, "step_seconds": np.nan} if basis == "own_rate" else {}
    ends = np.arange(10, 131, 10)
    measurement = imported(log(ends=ends, meaning=meaning, at=ends * 0.5, **columns))
    assert measurement.result.imported.basis == basis
    with in_language(language):
        told = report.method(measurement).html
    assert "our own" in told
    if language == "en":
        assert ("each of one step." in told) == (basis == "clock")
        assert "Suite X prints rates of all devices, " in " ".join(told.split())


@pytest.mark.usefixtures("processes")
def test_the_site_of_imported_measurements_is_whole(log, imported, tmp_path):
    imported(log(), environment__gpus="V100")
    outputs = tmp_path / "outputs"
    _index, left_out = write_site(outputs, lambda _parts: None)
    assert left_out == []
    assert "imported from Suite X" in (outputs / "index.html").read_text()
    summary = (outputs / "summary" / "report.html").read_text()
    assert "imported from Suite X" in summary
    assert "Suite X" in (outputs / "results.csv").read_text()


def test_a_comparison_with_what_perfkit_measured_must_be_meant(log, imported, tmp_path):
    own = measured([100.0] * 4, device="gpu", gpus=8, batch_size=32)
    outputs = write_all(tmp_path / "own", own)
    measurement = imported(log(), framework="paddle")
    with pytest.raises(ComparisonError, match="--across imported"):
        compare(str(outputs), str(measurement.folder))
    found = compare(str(outputs), str(measurement.folder), across=["imported"])
    (pair,) = found.pairs
    assert pair.across == {"imported": (None, "Suite X")}
    assert "imported" in pair.b.warnings
    assert "across imported: – | Suite X" in str(found)


def test_a_comparison_with_a_published_number_says_that_the_other_is_imported(log, imported):
    path = log(facts={"framework": "paddle", "precision": "pure_fp16", "batch_size": 256})
    measurement = imported(path, environment__gpus="Tesla V100-SXM2-32GB")
    with pytest.raises(ComparisonError, match="--across imported"):
        compare("paddle-resnet50-report", str(measurement.folder))
    across = ("imported", "statistic", "input")
    found = compare("paddle-resnet50-report", str(measurement.folder), across=across)
    (pair,) = found.pairs
    assert pair.across["imported"][1] == "Suite X"
    assert "imported" in pair.b.warnings


def test_imported_measurements_are_compared_in_what_is_known_of_both(log, imported):
    fast = imported(log("a.log", step_seconds=0.4))
    slow = imported(log("b.log"), environment__gpus="V100")
    (pair,) = compare(str(slow.folder), str(fast.folder)).pairs
    assert pair.ratio == pytest.approx(1.25)
    other = imported(log("c.log"), precision="amp")
    with pytest.raises(ComparisonError, match="precision"):
        compare(str(slow.folder), str(other.folder))


def test_a_framework_that_perfkit_cannot_run_is_stored_but_not_measured(log, imported):
    assert imported(log()).result.config.framework == "tensorflow"
    with pytest.raises(RequestError) as error:
        plan("resnet50", {"framework": "tensorflow", "device": "cpu"})
    (problem,) = error.value.problems
    assert problem == "framework: 'tensorflow' is not available; allowed: paddle, torch, jax"
    result = imported(log()).result
    with pytest.raises(RequestError, match="'tensorflow' is not available"):
        perfkit.measure(result.config, result.protocol)


def test_a_sweep_takes_nothing_imported_for_what_it_has_to_measure(log, imported, tmp_path):
    result = imported(log(), framework="paddle").result
    job = Job("one", "", "resnet50", {}, Plan(result.config, result.protocol))
    outputs = tmp_path / "outputs"
    assert jobs.measured([job], outputs, elsewhere=True) == {}
    own = result.model_copy(update={"imported": None})
    write_all(outputs, own)
    assert [*jobs.measured([job], outputs, elsewhere=True)] == ["one"]


def test_the_command_stores_and_shows_and_says_of_which_steps_the_number_is(log, tmp_path):
    words = ["import", str(log()), "--outputs", str(tmp_path / "outputs")]
    options = [word for one in GIVEN.items() for word in ("-p", *one)]
    done = CliRunner().invoke(main, [*words, *options])
    assert done.exit_code == 0, done.output
    assert "512.0 images/s, median of n=1; steps 21 to 120" in done.stderr
    page = done.stdout.strip()
    assert page.endswith("report.html")
    refused = CliRunner().invoke(main, words)
    assert refused.exit_code == 2
    assert "-p input dali|dataloader|synthetic" in refused.stderr
    stored = [*(tmp_path / "outputs").glob("*/result.json")]
    assert len(stored) == 1
    assert json.loads(stored[0].read_text())["imported"]["format"] == "Suite X"


def test_a_folder_that_cannot_be_written_to_is_told(log, imported, tmp_path):
    (tmp_path / "outputs").write_text("a file")
    (problem,) = refused(imported, log())
    assert "--outputs" in problem
