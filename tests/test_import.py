"""Logs of other suites become measurements that are marked as imported."""

import hashlib
import json
from functools import partial

import numpy as np
import pytest
from conftest import cli
from made import measured, window_rows, write_all

import perfkit
from perfkit import report
from perfkit.comparison import ComparisonError, compare
from perfkit.frameworks import FRAMEWORKS
from perfkit.logs import importing
from perfkit.logs.config_facts import Sourced, by_line
from perfkit.logs.formats import Semantics
from perfkit.logs.log import Log, LogError, ReportedFigure
from perfkit.logs.wording import sentence
from perfkit.request import RequestError
from perfkit.request.plan import Plan, plan
from perfkit.results.summarize import check_against_raw
from perfkit.sweep.jobs import Job
from perfkit.sweep.status import StoredResults
from perfkit.text.language import in_language


def semantics(rate_of="device", covers="window", reader="in", **other):
    return Semantics(rate_of=rate_of, covers=covers, reader=reader, source="our own", **other)


BY_WINDOWS = semantics()
FACTS = {
    "model": "resnet50",
    "framework": "oneflow",
    "precision": "fp32",
    "batch_size": 32,
    "nodes": 1,
    "devices": 8,
}
GIVEN = {"input": "dali", "accumulate": "1", "device": "gpu"}


@pytest.fixture
def log(tmp_path, monkeypatch):
    """Makes logs as read by the reader: prints at the steps `ends`, `step_seconds` per step
    between two prints, and other columns by name."""
    known = {}
    every_10 = range(10, 131, 10)

    def made(name="a.log", ends=every_10, *, meaning=BY_WINDOWS, step_seconds=0.5, **columns):
        path = tmp_path / name
        path.write_text(name)
        facts = FACTS | columns.pop("facts", {})
        rows = window_rows(ends, single=meaning.covers == "step", **columns)
        rows["seconds"] = (rows["last"] - rows["first"] + 1) * np.array(step_seconds)
        sha256 = hashlib.sha256(path.read_bytes()).hexdigest()
        sourced = {k: Sourced(v, by_line(3)) for k, v in facts.items() if v is not None}
        known[path] = Log(path, "Suite X", sha256, meaning, rows, sourced)
        return path

    monkeypatch.setattr(importing, "read_logs", lambda path, given: [known[path]])
    made.known = known
    return made


@pytest.fixture
def imported(tmp_path):
    """Imports logs and given facts into tmp_path/outputs."""

    def make(*logs, **given):
        every = GIVEN | {name.replace("__", "."): value for name, value in given.items()}
        texts = {name: str(value) for name, value in every.items() if value is not None}
        return importing.import_logs(logs, texts, tmp_path / "outputs")

    return make


def refused(imported, *logs, **given):
    with pytest.raises(RequestError) as error:
        imported(*logs, **given)
    return error.value.problems


def test_a_log_becomes_a_measurement_of_the_protocols_steps(log, imported):
    result = imported(log(step_seconds=[5.0, 5.0, *[0.5] * 10, 9.0])).result
    assert (result.protocol.warmup_steps, result.protocol.measured_steps) == (20, 100)
    throughput = result.throughput
    assert (throughput.value, throughput.unit) == (pytest.approx(32 * 8 / 0.5), "images/s")
    assert (throughput.n, result.status, result.imported.basis) == (1, "complete", "seconds")
    assert result.imported.logs[0].lines == (3, 12)


def test_logs_become_the_repeats_of_one_measurement(log, imported):
    paths = [log(f"{k}.log", step_seconds=1 / k) for k in (4, 1, 2)]
    result = imported(*paths).result
    assert [repeat.throughput for repeat in result.repeats] == pytest.approx([1024, 256, 512])
    assert result.throughput.value == pytest.approx(512)
    assert result.throughput.interval == pytest.approx((256, 1024))
    assert [source.file for source in result.imported.logs] == ["4.log", "1.log", "2.log"]


def test_all_missing_facts_are_reported_with_the_options_to_type(log, tmp_path):
    unknown = dict.fromkeys([*FACTS, "device"])
    make = partial(importing.import_logs, given={}, outputs=tmp_path)
    problems = refused(make, [log(facts=unknown)])
    expected = "accumulate batch_size device framework gpus input model nodes precision"
    assert sorted(problem.split(":")[0] for problem in problems) == expected.split()
    text = "\n".join(problems)
    for option in (
        "framework paddle|torch|jax|tensorflow|mxnet|oneflow",
        "batch_size NUMBER",
        "input dali|dataloader|synthetic",
        "device cpu|gpu",
    ):
        assert f"-p {option}" in text
    assert not list(tmp_path.glob("*/result.json"))


def test_given_facts_override_the_log_and_sources_are_kept(log, imported):
    result = imported(log(), batch_size=64, tf32=True).result
    assert (result.config.batch_size, result.config.tf32) == (64, True)
    facts = {name: sentence(by) for name, by in result.imported.facts.items()}
    assert facts["precision"] == "a.log, line 3"
    assert facts["batch_size"] == "given by hand; a.log, line 3 says 32"
    assert result.imported.given == GIVEN | {"batch_size": "64", "tf32": "True"}


@pytest.mark.parametrize(
    ("facts", "given", "trained"),
    [
        ({"devices": None}, {"device": None, "gpus": 4}, ("gpu", 4, 1, "1x4")),
        ({"nodes": None, "devices": None, "ranks": 1}, {}, ("gpu", 1, 1, "1x1")),
        ({}, {"device": "cpu"}, ("cpu", 0, 8, "1x8")),
    ],
)
def test_devices_and_topology_follow_from_the_facts(log, imported, facts, given, trained):
    result = imported(log(facts=facts), **given).result
    config = result.config
    assert (config.device, config.gpus, config.processes, config.topology) == trained
    if "gpus" in given:
        assert result.imported.facts["device"].params == {"name": "gpus"}


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ({"batchsize": 1}, "not a parameter of imported logs; did you mean 'batch_size'?"),
        ({"timeout": 60}, "timeout: not a parameter of imported logs"),
        ({"environment__gpu": "V100"}, "did you mean 'environment.gpus'?"),
        ({"framework": "caffe"}, "framework: 'caffe' is not available; allowed: paddle, torch"),
        ({"batch_size": "many"}, "batch_size: 'many' is of the wrong type"),
        ({"batch_size": 1.5}, "batch_size: 1.5 is of the wrong type"),
        ({"device": "auto"}, "device: add -p device cpu with processes, or gpu with gpus"),
        ({"gpus": 0}, "device: add -p device cpu with processes, or gpu with gpus"),
        ({"measured_steps": 0}, "measured_steps: 0 is out of range"),
        ({"warmup_steps": 45, "measured_steps": 50}, "steps 46 to 95: the first log's prints"),
        ({"batch_size": 64}, "makes 32 samples per step of a device"),
    ],
)
def test_invalid_given_facts_are_rejected(log, imported, given, message):
    (problem,) = refused(imported, log(own_rate=64.0), **given)
    assert message in problem


BY_LOG = "a.log, line 3 has"


@pytest.mark.parametrize(
    ("facts", "message"),
    [
        (
            {"nodes": 2, "devices": 8, "ranks": 32},
            f"nodes, gpus: 2x8 makes 16 ranks; {BY_LOG} 32",
        ),
        (
            {"global_batch_size": 512},
            f"batch_size, accumulate and 1x8 make 256 samples per update; {BY_LOG} 512",
        ),
        ({"mode": "inference"}, "a.log: inference, not training"),
    ],
)
def test_facts_contradicting_the_log_are_rejected(log, imported, facts, message):
    assert refused(imported, log(facts=facts)) == [message]


def test_logs_that_are_no_repeats_of_one_measurement_are_rejected(log, imported):
    first = log("a.log")
    (problem,) = refused(imported, first, log("b.log", facts={"batch_size": 64}))
    by = "32 by a.log, line 3, 64 by b.log, line 3"
    assert problem == f"batch_size: differs, so these are not repeats: {by}"
    (problem,) = refused(imported, first, log("b.log", ends=[7, 77]))
    assert "give logs with the same prints" in problem
    log.known[other := log("c.log")].format = "Suite Y"
    (problem,) = refused(imported, first, other)
    kinds = "a.log: Suite X; c.log: Suite Y"
    assert problem == f"logs of one measurement must have the same format: {kinds}"
    log.known[copy := log("d.log")].sha256 = log.known[first].sha256
    for again, name in ((copy, "d.log"), (first, "a.log")):
        message = f"{name}: same content as a.log; each repeat needs its own log"
        assert refused(imported, first, again) == [message]


def test_logs_without_steps_or_with_several_trainings_are_rejected(log, imported, monkeypatch):
    path = log(ends=[])
    log.known[path].reported = [ReportedFigure("train_throughput", 9421.36, "9421.36", 9)]
    assert refused(imported, path) == ["a.log: no printed steps, only train_throughput 9421.36"]
    monkeypatch.setattr(importing, "read_logs", lambda path, given: [log.known[path]] * 2)
    (problem,) = refused(imported, log())
    several = "2 trainings of different configurations; split the file by training"
    assert problem == f"{log.known[path].path}: {several}"


def test_every_unreadable_log_is_named(tmp_path, monkeypatch):
    def fail(path, given):
        raise LogError("of no known format \x1b[31m")

    monkeypatch.setattr(importing, "read_logs", fail)
    make = partial(importing.import_logs, given=GIVEN, outputs=tmp_path)
    problems = refused(make, [tmp_path / "a.log", tmp_path / "b.log"])
    escaped = "of no known format \N{REPLACEMENT CHARACTER}[31m"
    assert problems == [f"{tmp_path / name}: {escaped}" for name in ("a.log", "b.log")]


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
def test_prints_nearest_to_the_protocols_steps_are_used(log, imported, ends, steps):
    protocol = imported(log(ends=ends)).result.protocol
    assert (protocol.warmup_steps + 1, protocol.steps) == steps


@pytest.mark.parametrize("with_clock", [False, True])
def test_a_window_does_not_span_a_lost_print(log, imported, with_clock):
    ends = np.array([50, *range(150, 601, 50)])
    clock = {"at": ends * 0.6} if with_clock else {}
    result = imported(log(ends=ends, first=ends - 49, **clock)).result
    assert result.imported.basis == "seconds"
    assert (result.protocol.warmup_steps + 1, result.protocol.steps) == (101, 200)
    assert result.throughput.value == pytest.approx(32 * 8 / 0.5)


def test_other_steps_can_be_requested_if_prints_end_there(log, imported):
    protocol = imported(log(), warmup_steps=40, measured_steps=50).result.protocol
    assert (protocol.warmup_steps, protocol.measured_steps) == (40, 50)


def test_the_first_training_with_the_steps_is_used(log, imported):
    ends = [10, 20, 30, *range(10, 131, 10)]
    path = log(ends=ends)
    rows = log.known[path].windows
    rows.loc[3:, "run"], rows.loc[3:, "seconds"] = 1, 2.0
    rows.loc[3:, "first"] = rows["last"] - 9
    result = imported(path).result
    assert result.imported.logs[0].run == 1
    assert result.throughput.value == pytest.approx(32 * 8 / 0.2)


@pytest.mark.parametrize(
    ("meaning", "columns", "basis", "throughput"),
    [
        # Rates are weighted by their time.
        (
            BY_WINDOWS,
            {"step_seconds": np.nan, "rate": 7.0, "own_rate": [1, 1, *[100, 300] * 5, 1]},
            *("own_rate", 8 * 150),
        ),
        # Rates of all devices are not multiplied.
        (semantics("all"), {"step_seconds": np.nan, "own_rate": 800.0}, "own_rate", 800),
        # Waits outside the step times are added.
        (
            semantics(reader="apart"),
            {"step_seconds": 0.4, "reader": 1.0},
            *("seconds", 32 * 8 / 0.5),
        ),
        # Times that may or may not include waits are ignored.
        (
            semantics(reader=None),
            {"step_seconds": 0.4, "reader": 1.0, "own_rate": 80.0},
            *("own_rate", 640),
        ),
    ],
)
def test_step_times_follow_from_the_printed_values(
    log, imported, meaning, columns, basis, throughput
):
    result = imported(log(meaning=meaning, **columns)).result
    assert result.imported.basis == basis
    assert result.throughput.value == pytest.approx(throughput)
    if meaning.reader == "apart":
        assert result.repeats[0].data_wait_share == pytest.approx(0.2)


def test_rates_with_waits_apart_from_the_step_times_do_not_refuse_the_batch_size(log, imported):
    known = {"step_seconds": 0.4, "reader": 1.0, "rate": 64.0}
    result = imported(log(meaning=semantics(reader="apart"), **known)).result
    assert result.throughput.value == pytest.approx(8 * 64)


def test_the_gpu_that_a_log_names_is_a_fact_of_the_environment(log, imported):
    result = imported(log(facts={"gpu": "H100"})).result
    assert result.fact("gpus") == ["H100"]
    assert imported(log(facts={"gpu": "H100"}), environment__gpus="V100").result.fact(
        "gpus"
    ) == ["V100"]


def test_sampled_single_steps_are_timed_only_by_timestamps(log, imported):
    meaning = semantics("all", "step", reader=None)
    ends = np.arange(10, 131, 10)
    (problem,) = refused(imported, log(ends=ends, meaning=meaning))
    assert "10, 20, 30" in problem and "covers only its last step" in problem
    (problem,) = refused(imported, log(ends=ends, meaning=meaning), measured_steps=10)
    assert "-p" not in problem
    measurement = imported(log(ends=ends, meaning=meaning, at=1000 + ends * 0.25))
    assert measurement.result.imported.basis == "clock"
    assert measurement.result.throughput.value == pytest.approx(32 * 8 / 0.25)
    assert check_against_raw(measurement) == []


def test_the_slowest_printing_rank_counts(log, imported):
    ends = [*range(10, 131, 10)] * 2
    path = log(ends=ends, rank=[0] * 13 + [1] * 13, step_seconds=[0.5] * 13 + [0.8] * 13)
    rows = log.known[path].windows
    rows["first"], rows["seconds"] = rows["last"] - 9, [5.0] * 13 + [8.0] * 13
    assert imported(path).result.throughput.value == pytest.approx(32 * 8 / 0.8)


def test_counted_micro_batches_are_no_updates(log, imported):
    meaning = semantics("device", reader="in", step="batch")
    result = imported(log(meaning=meaning), accumulate=4).result
    assert result.throughput.value == pytest.approx(32 * 8 / 0.5)
    assert result.throughput.steps_per_second == pytest.approx(0.5)


def test_only_damaged_windows_are_replaced_by_a_new_import(log, imported):
    measurement = imported(path := log())
    before = (measurement.folder / "result.json").stat().st_mtime_ns
    assert imported(path).result == measurement.result
    assert (measurement.folder / "result.json").stat().st_mtime_ns == before
    assert imported(path, label="other").folder != measurement.folder
    assert imported(path, environment__driver="525.60").folder != measurement.folder
    assert check_against_raw(measurement) == []
    file = measurement.windows_file(1)
    text = file.read_text()
    file.write_text(text.replace('"seconds": 5.0', '"seconds": 6.0'))
    assert check_against_raw(measurement) == [
        "repeat 1: windows.jsonl: changed since (SHA-256); "
        "the raw files give another throughput, steps_per_second"
    ]
    file.write_text("".join(text.splitlines(keepends=True)[:-1]))
    assert check_against_raw(measurement) == [
        "repeat 1: the raw files are not those of a finished repeat"
    ]
    file.unlink()
    assert "No such file" in check_against_raw(measurement)[0]
    assert imported(path).result.repeats == measurement.result.repeats
    assert file.read_text() == text


def test_unknown_facts_are_missing_with_a_reason(log, imported, tmp_path):
    result = imported(log(), environment__gpus="V100").result
    assert result.effective is None
    assert result.repeats[0].peak is None
    assert result.environment["gpus"].value == ["V100"]
    missing = {fact.missing for name, fact in result.environment.items() if name != "gpus"}
    assert missing == {"the log does not tell"}
    (row,) = perfkit.load(tmp_path / "outputs").to_dict("records")
    assert (row["imported"], row["effective.precision"]) == ("Suite X", "fp32")
    assert (row["batch_size"], row["topology"], row["accumulate"]) == (32, "1x8", 1)
    unknown = ("layout", "dali_threads", "seed", "tf32", "optimizer", "environment.cpu")
    assert [row[name] for name in unknown] == [None] * len(unknown)


def test_the_page_names_the_source_of_an_import(log, imported):
    name = "<b>a.log"
    measurement = imported(log(name), log("b.log", step_seconds=0.6))
    report.publish(measurement)
    page = (measurement.folder / "report.html").read_text()
    outputs = measurement.folder.parent
    assert "imported from Suite X" in (outputs / "index.html").read_text()
    assert "Suite X" in (outputs / "results.csv").read_text()
    assert "Imported from Suite X" in page
    assert "unknown GPU" in page
    assert "&lt;b&gt;a.log" in page
    assert "<b>a.log" not in page
    assert "perfkit import" in page
    assert "None px" not in page and "worker processes" not in page
    assert "and agree" in report.raw_files(measurement).html
    chinese = (measurement.folder / "report.zh.html").read_text()
    assert "导入自 Suite X" in chinese


@pytest.mark.parametrize("basis", ["seconds", "own_rate", "clock"])
def test_the_method_section_covers_every_timing_basis(log, imported, basis):
    meaning = semantics("all", "step" if basis == "clock" else "window")
    columns = {"own_rate": 512.0, "step_seconds": np.nan} if basis == "own_rate" else {}
    ends = np.arange(10, 131, 10)
    measurement = imported(log(ends=ends, meaning=meaning, at=ends * 0.5, **columns))
    assert measurement.result.imported.basis == basis
    english = report.method(measurement).html
    assert ("each of one step." in english) == (basis == "clock")
    sums = {"seconds": "the sum of the printed step times", "clock": "the log's clock at the"}
    sums["own_rate"] = "the sum of samples / printed rate"
    assert [name for name, words in sums.items() if words in english] == [basis]
    assert "Suite X prints rates of all devices, " in " ".join(english.split())
    assert "our own" in english
    with in_language("zh"):
        assert "our own" in report.method(measurement).html


def test_comparing_imported_with_other_numbers_needs_across(log, imported, tmp_path):
    own = measured([100.0] * 4, device="gpu", gpus=8, batch_size=32)
    outputs = write_all(tmp_path / "own", own)
    measurement = imported(log(), framework="paddle")
    facts = {"framework": "paddle", "precision": "pure_fp16", "batch_size": 256}
    published = imported(log(facts=facts), environment__gpus="Tesla V100-SXM2-32GB")
    for a, b, further in (
        (str(outputs), measurement, []),
        ("paddle-resnet50-report", published, ["statistic", "input"]),
    ):
        with pytest.raises(ComparisonError, match="--across imported"):
            compare(a, str(b.folder))
        found = compare(a, str(b.folder), across=["imported", *further])
        (pair,) = found.pairs
        assert pair.across["imported"][1] == "Suite X"
        assert "imported" in pair.b.warnings
        assert "across imported: – | Suite X" in str(found)


def test_imported_measurements_are_compared_by_their_known_facts(log, imported):
    fast = imported(log("a.log", step_seconds=0.4))
    slow = imported(log("b.log"), environment__gpus="V100")
    (pair,) = compare(str(slow.folder), str(fast.folder)).pairs
    assert pair.ratio == pytest.approx(1.25)
    other = imported(log("c.log"), precision="amp")
    with pytest.raises(ComparisonError, match="precision"):
        compare(str(slow.folder), str(other.folder))


def test_an_unsupported_framework_is_imported_but_not_measured(log, imported):
    assert imported(log()).result.config.framework == "oneflow"
    with pytest.raises(RequestError) as error:
        plan("resnet50", {"framework": "oneflow", "device": "cpu"})
    (problem,) = error.value.problems
    assert problem == f"framework: 'oneflow' is not available; allowed: {', '.join(FRAMEWORKS)}"
    result = imported(log()).result
    with pytest.raises(RequestError, match="'oneflow' is not available"):
        perfkit.measure(result.config, result.protocol)


def test_a_sweep_does_not_reuse_imported_measurements(log, imported, tmp_path):
    result = imported(log(), framework="paddle").result
    job = Job("", "resnet50", {}, Plan(result.config, result.protocol))
    outputs = tmp_path / "outputs"
    assert StoredResults(outputs, on_slurm=True).of(job) is None
    own = result.model_copy(update={"imported": None})
    write_all(outputs, own)
    assert StoredResults(outputs, on_slurm=True).of(job).result.config == own.config


def test_import_reports_the_steps_and_overridden_facts(log, tmp_path):
    words = ["import", str(log()), "--outputs", str(tmp_path / "outputs")]
    given = GIVEN | {"batch_size": "64", "precision": "fp32"}
    options = (word for pair in given.items() for word in ("-p", *pair))
    done = cli(*words, *options)
    assert done.exit_code == 0, done.output
    assert "1024 images/s, median of n=1; steps 21 to 120\n" in done.stderr
    assert "batch_size: 64, given by hand; a.log, line 3 says 32\n" in done.stderr
    assert "precision:" not in done.stderr
    assert done.stdout.strip().endswith("report.html")
    refused = cli(*words)
    assert refused.exit_code == 2
    assert "-p input dali|dataloader|synthetic" in refused.stderr
    (stored,) = (tmp_path / "outputs").glob("*/result.json")
    assert json.loads(stored.read_text())["imported"]["format"] == "Suite X"
