"""Exported measurements, whose numbers other tools must read unchanged."""

import json
import re
from datetime import UTC, datetime
from functools import partial

import pytest
from conftest import cli
from made import measured, rank_events, with_raw_files, write_all

from perfkit.logs.export import EXPORTERS, export
from perfkit.logs.importing import import_logs
from perfkit.logs.reader import read_logs
from perfkit.logs.recompute import device_samples
from perfkit.request import RequestError
from perfkit.results.store import ResultError

SECONDS = [[1.5, 0.25, 0.5, 0.125, 0.75], [2.0, 3e-05, 0.31, 0.32, 0.33]]


@pytest.fixture
def measurement(tmp_path):
    """Two repeats of 1 warm-up and 4 measured steps on two ranks, of which rank 1 is slower."""
    result = measured([1.0], processes=2, batch_size=4, warmup_steps=1, measured_steps=4)
    protocol = result.protocol.model_copy(update={"repeats": 2})
    events = [
        [rank_events([s * (1 + rank / 10) for s in seconds], 4) for rank in (0, 1)]
        for seconds in SECONDS
    ]
    result = result.model_copy(update={"protocol": protocol})
    return with_raw_files(tmp_path / "outputs" / "made", result, events)


def read_json(line, prefix):
    assert line.startswith(prefix)
    return json.loads(line.removeprefix(prefix))


def test_dllogger_files_import_without_further_facts(measurement, tmp_path):
    files = export(measurement, "dllogger")
    names = [f"{measurement.folder.name}-{index}.dllogger.json" for index in (1, 2)]
    assert [file.name for file in files] == names
    again = import_logs(files, {}, tmp_path / "again")
    original, copy = measurement.result, again.result
    assert copy.throughput.value == pytest.approx(original.throughput.value, rel=1e-12)
    assert copy.throughput.n == 2
    assert copy.repeats[0].data_wait_share == pytest.approx(0.4 / 1.7875, rel=1e-12)
    for name in ("model", "framework", "precision", "batch_size", "input", "device"):
        assert getattr(copy.config, name) == getattr(original.config, name)
    assert copy.config.topology == "1x2"
    why = r"imported from made-\w+-1\.dllogger\.json"
    with pytest.raises(ResultError, match=why):
        export(again, "mlperf")


def test_audit_and_import_count_exported_tokens(tmp_path):
    parameters = {"processes": 2, "batch_size": 4, "warmup_steps": 1, "measured_steps": 4}
    parameters |= {"model": "gpt", "sequence_length": 64, "input": "synthetic"}
    parameters |= {"image_size": None, "layout": None, "optimizer": "adamw"}
    events = [[rank_events(SECONDS[0], 4) for _rank in (0, 1)]]
    made = with_raw_files(tmp_path / "outputs" / "made", measured([1.0], **parameters), events)
    repeat, (file,) = made.result.repeats[0], export(made, "dllogger")
    assert repeat.throughput == pytest.approx(2 * 4 * 4 * 64 / sum(SECONDS[0][1:]))
    (log,) = read_logs(file)
    tokens = 2 * 4 * 64 / log.windows["seconds"]
    assert log.windows["rate"].to_numpy() == pytest.approx([*tokens], rel=1e-12)
    assert (device_samples(log), log.number("ranks")) == (4 * 64, 2)
    again = import_logs([file], {}, tmp_path / "again").result
    assert again.throughput.unit == "tokens/s"
    assert again.throughput.value == pytest.approx(repeat.throughput, rel=1e-12)
    text = file.read_text().replace('"sequence_length": 64, ', "")
    file.write_text(text)
    with pytest.raises(RequestError, match="sequence_length: not in the logs"):
        import_logs([file], {}, tmp_path / "without")


def test_optimum_reports_have_its_fields_and_import_as_repeats(measurement, tmp_path):
    files = export(measurement, "optimum")
    given = {"model": "resnet50", "framework": "paddle", "precision": "fp32", "nodes": "1"}
    given |= {"batch_size": "4", "accumulate": "1", "input": "dali", "processes": "2"}
    given |= {"warmup_steps": "1", "measured_steps": "4"}
    again = import_logs(files, given, tmp_path / "again").result
    expected = measurement.result.throughput.value
    assert again.throughput.value == pytest.approx(expected, rel=1e-12)
    report = json.loads(files[0].read_text())
    assert list(report) == ["overall", "warmup", "train"]
    latency = report["train"]["latency"]
    assert (latency["count"], latency["unit"]) == (4, "s")
    assert latency["total"] == pytest.approx(1.7875)
    assert latency["mean"] == pytest.approx(1.7875 / 4)
    assert latency["p50"] == pytest.approx(0.375 * 1.1)
    assert report["train"]["throughput"]["value"] == pytest.approx(16 / 1.7875)
    assert report["overall"]["latency"]["count"] == 5


def test_mlperf_lines_pass_mlperfs_parser(measurement):
    parser = pytest.importorskip("mlperf_logging.compliance_checker.mlp_parser")
    for file in export(measurement, "mlperf"):
        for ruleset in ("0.7.0", "3.1.0", "6.1.0"):
            lines, errors = parser.parse_file(str(file), ruleset)
            assert errors == []
            assert len(lines) == len(file.read_text().splitlines())
        keys = [line.key for line in lines]
        assert keys[-3:] == ["tracked_stats", "block_stop", "run_stop"]
        assert keys.index("run_start") < keys.index("block_start")


def test_mlperf_lines_hold_the_window_and_step_throughputs(measurement, tmp_path):
    file = export(measurement, "mlperf")[0]
    events = [read_json(line, ":::MLLOG ") for line in file.read_text().splitlines()]
    values = {event["key"]: event["value"] for event in events}
    at = {event["key"]: event["time_ms"] / 1000 for event in events}
    throughput = measurement.result.repeats[0].throughput
    seconds = at["block_stop"] - at["block_start"]
    assert 8 * 4 / seconds == pytest.approx(throughput, rel=0.001)
    rates = [e["value"]["throughput"] for e in events if e["key"] == "tracked_stats"]
    assert rates == pytest.approx([8 / (s * 1.1) for s in SECONDS[0]])
    assert values["global_batch_size"] == 8 and "max_sequence_length" not in values
    with pytest.raises(RequestError, match="no printed steps, only"):
        import_logs([file], {}, tmp_path / "again")


def test_dllogger_lines_have_dlloggers_format(measurement):
    lines = export(measurement, "dllogger")[0].read_text().splitlines()
    records = [read_json(line, "DLLL ") for line in lines]
    assert [record["type"] for record in records] == ["METADATA"] * 4 + ["LOG"] * 7
    logs, steps = records[4:], [[0, step] for step in range(1, 6)]
    assert [record["step"] for record in logs] == ["PARAMETER", *steps, []]
    for record in records:
        moment = datetime.fromisoformat(record["datetime"]).replace(tzinfo=UTC)
        assert moment.timestamp() == pytest.approx(float(record["timestamp"]), abs=1e-5)
    assert float(logs[-1]["elapsedtime"]) == pytest.approx(sum(SECONDS[0]) * 1.1)
    assert logs[-1]["data"] == {"train_throughput": measurement.result.repeats[0].throughput}
    assert logs[1]["data"]["train.loss"] == 9.0


def test_an_export_without_warm_up_omits_it(tmp_path):
    result = measured([1.0], processes=1, batch_size=4, warmup_steps=0, measured_steps=3)
    events = [[rank_events([0.5, 0.5, 0.5], 4, 3)]]
    bare = with_raw_files(tmp_path / "bare", result, events)
    assert json.loads(export(bare, "optimum")[0].read_text())["warmup"] is None
    assert export(bare, "mlperf")[0].read_text().count('"key": "block_start"') == 1


def test_numbers_contradicting_their_raw_steps_are_not_exported(measurement):
    raw = measurement.rank_file(2, 1)
    raw.write_text(raw.read_text().replace('"samples": 16', '"samples": 17'))
    for form in EXPORTERS:
        with pytest.raises(ResultError, match="raw steps and result differ: repeat 2"):
            export(measurement, form)
    assert not (measurement.folder / "exported").exists()


def test_export_writes_atomically(measurement, monkeypatch):
    def files():
        return {file: file.read_bytes() for file in (measurement.folder / "exported").iterdir()}

    def fail(self, target):
        raise OSError(28, "No space left on device")

    export(measurement, "mlperf")
    before = files()
    monkeypatch.setattr("pathlib.Path.replace", fail)
    with pytest.raises(OSError, match="No space"):
        export(measurement, "mlperf")
    assert files() == before


command = partial(cli, "export")


def test_export_writes_a_file_per_repeat(measurement, tmp_path):
    deep = tmp_path / "there" / "deep"
    done = command(measurement.folder, "--as", "mlperf", "--to", deep)
    assert done.exit_code == 0, done.output
    assert done.stdout == f"2 repeats of 1 measurement as mlperf: {deep}\n"
    names = {f"{measurement.folder.name}-{k}.mlperf.txt" for k in (1, 2)}
    assert {file.name for file in deep.iterdir()} == names


def test_export_of_a_folder_names_left_out_measurements(measurement):
    outputs = measurement.folder.parent
    write_all(outputs, measured([]))
    done = command(outputs, "--as", "optimum")
    assert done.exit_code == 1
    assert done.stdout == f"2 repeats of 1 measurement as optimum: {outputs}/*/exported\n"
    assert re.match(r"left out: resnet50-fp32-1x1-b32-0-\w+: no complete", done.stderr)


def test_export_rejects_unreadable_and_unwritable_paths(measurement, tmp_path):
    (tmp_path / "file").write_text("")
    for words, why in (
        ((tmp_path / "nothing", "--as", "mlperf"), "contains no measurement"),
        (
            (measurement.folder, "--as", "mlperf", "--to", tmp_path / "file"),
            f"{tmp_path / 'file'}: File exists; use another path",
        ),
        ((measurement.folder, "--as", "xml"), "'dllogger', 'mlperf', 'optimum', 'otava'"),
    ):
        done = command(*words)
        assert done.exit_code == 2 and why in " ".join(done.stderr.split())
