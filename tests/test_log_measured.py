"""perfkit's own measurements are read as logs, so that another log stands beside one."""

import json
import shutil

import pytest
from made import keep, measured, rank_events, script_measured, with_raw_files

from perfkit.audit.auditing import audit, files_of
from perfkit.audit.reader import read_logs
from perfkit.core.paths import ROOT
from perfkit.core.results.store import Measurement, folders
from perfkit.core.script_config import ScriptConfig
from perfkit.report.audit_terminal import audit_text

EXAMPLES = [*folders(ROOT / "outputs/examples")]
OF_SCRIPTS = [
    folder
    for folder in EXAMPLES
    if isinstance(Measurement.read(folder).result.config, ScriptConfig)
]
OF_MODELS = [folder for folder in EXAMPLES if folder not in OF_SCRIPTS]
EXAMPLE = OF_MODELS[0]


def audited(path):
    (log,) = audit(files_of([path])).logs
    return log


@pytest.mark.parametrize("folder", OF_SCRIPTS, ids=lambda folder: folder.name)
def test_the_throughput_of_a_script_is_that_of_the_measurement(folder):
    throughput = Measurement.read(folder).result.throughput
    answer = audited(folder).answer
    assert answer.speed.of_all == throughput.value
    assert answer.period == "steady"


@pytest.mark.parametrize("folder", OF_MODELS, ids=lambda folder: folder.name[:40])
def test_the_steady_throughput_is_that_of_the_measurement(folder):
    """With an even number of repeats, it is the harmonic mean of the two in the middle."""
    result = Measurement.read(folder).result
    throughput = result.throughput
    log = audited(folder)
    tolerance = 1e-9 if throughput.n % 2 else 1e-2
    steady = log.figure("steady", of=["samples/time"])
    assert steady.throughput == pytest.approx(throughput.value, rel=tolerance)
    assert log.answer.period == "steady"
    assert log.answer.speed.of_all == steady.throughput
    (reported,) = [figure for figure in log.figures if figure.statistic == "reported"]
    assert reported.throughput == throughput.value
    assert reported.name.endswith(f", {result.work.unit}")


def test_the_facts_of_a_script_are_what_it_told(tmp_path):
    measurement = keep(tmp_path / "script", script_measured([100.0, 101.0, 102.0]))
    (log,) = read_logs(measurement.result_file)
    assert log.facts["batch_size"].value == 64
    assert "model" not in log.facts


def test_the_slowest_of_several_ranks_counts(tmp_path):
    """Two ranks with 4 samples in each of five steps: 40 samples by the longest window."""
    result = measured([1.0], processes=2)
    warmup = [9.0] * result.protocol.warmup_steps
    fast, slow = [1.0, 1.0, 1.0, 1.0, 1.0], [1.0, 2.0, 3.0, 4.0, 5.0]
    ranks = []
    for window in (fast, slow):
        ranks.append(rank_events(warmup + window, samples=4, measured_steps=5))
    measurement = with_raw_files(tmp_path / "two", result, [ranks])
    log = audited(measurement.folder)
    steady = log.figure("steady", of=["samples/time"])
    assert steady.throughput == pytest.approx(5 * 8 / 15)
    assert log.rank == 1


def test_a_ranks_file_is_the_repeat_of_its_measurement():
    result = Measurement.read(EXAMPLE).result
    repeat = result.complete_repeats[0]
    log = audited(EXAMPLE / f"repeats/{repeat.index}/rank0.jsonl")
    steady = log.figure("steady", of=["samples/time"])
    assert steady.throughput == pytest.approx(repeat.throughput, rel=1e-9)
    assert steady.steps == result.protocol.measured_steps
    assert log.fact("model") == result.config.model


def test_a_ranks_file_without_its_measurement_has_all_steps(tmp_path):
    source = EXAMPLE / "repeats/1/rank0.jsonl"
    path = tmp_path / "rank0.jsonl"
    shutil.copyfile(source, path)
    events = [json.loads(line) for line in path.read_text().splitlines()]
    seconds = [event["seconds"] for event in events if event["event"] == "step"]
    samples = [event["samples"] for event in events if event["event"] == "step"]
    whole = audited(path).figure("all", of=["samples/time"])
    assert whole.per_device == pytest.approx(sum(samples) / sum(seconds))
    assert whole.steps == len(seconds)


def test_a_folder_of_measurements_stands_for_their_results():
    files = files_of([ROOT / "outputs/examples"])
    results = [file for file in files if file.name == "result.json"]
    assert len(results) == len(EXAMPLES)
    assert not any("repeats" in file.parts for file in files)


def test_two_measurements_are_told_apart_by_their_folders(tmp_path):
    for name in ("series-one", "series-two"):
        shutil.copytree(EXAMPLE, tmp_path / name)
    lines = audit_text(audit(files_of([tmp_path]))).splitlines()
    titles = [line.split("/")[0] for line in lines if line.startswith("series")]
    assert titles[-2:] == ["series-one", "series-two"]


def test_a_measurement_without_a_complete_repeat_is_left_out(tmp_path):
    folder = tmp_path / EXAMPLE.name
    folder.mkdir()
    stored = json.loads((EXAMPLE / "result.json").read_text())
    stored |= {"repeats": [], "throughput": None, "status": "partial"}
    (folder / "result.json").write_text(json.dumps(stored))
    (reason,) = audit([folder / "result.json"]).left_out
    assert "without a complete repeat" in reason


@pytest.mark.parametrize("text", ["{", "[]", '{"schema_version": 4}', '{"event":"step"}'])
def test_a_damaged_result_is_left_out(tmp_path, text):
    for name in ("result.json", "rank0.jsonl"):
        (tmp_path / name).write_text(text)
        assert len(audit([tmp_path / name]).left_out) == 1


DAMAGE = {"seconds": "x", "step": None, "samples": [1], "data_wait_seconds": {"a": 1}}


@pytest.mark.parametrize("field", DAMAGE)
def test_a_rank_file_with_a_damaged_step_is_read_or_left_out(tmp_path, field):
    event = {"event": "step", "step": 1, "seconds": 0.5, "samples": 4, "data_wait_seconds": 0}
    event[field] = DAMAGE[field]
    path = tmp_path / "rank0.jsonl"
    path.write_text('{"event":"start","pid":1}\n' + json.dumps(event) + "\n")
    checked = audit([path])
    assert len(checked.logs) + len(checked.left_out) == 1
