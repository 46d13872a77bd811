"""Stored results: written atomically, and validated when read."""

import json
import math
import os
import subprocess
import sys

import pytest
from made import results as made
from made.results import FACTS, keep, made_result, measured, stored, with_start, write_all

import perfkit
from perfkit.measuring.results.failures import Failure
from perfkit.measuring.results.store import (
    Measurement,
    ResultError,
    read_events,
    read_result,
    write_atomically,
    write_result,
)


def test_a_result_survives_writing_and_reading(tmp_path):
    failure = Failure(code="worker_error", reason="<b>took long</b>", rank=1)
    result = made_result(id=tmp_path.name, failure=failure)
    for _written in range(2):
        write_result(tmp_path, result)
    assert read_result(tmp_path / "result.json") == result
    assert Measurement.read(tmp_path).result == result


WALL, VALUE = '"wall_seconds": null', '"value": 4.0'


@pytest.mark.parametrize(
    ("old", "new", "why"),
    [
        (WALL, '"wall_seconds": 1e999', "wall_seconds: .*finite"),
        (VALUE, '"value": NaN', r"throughput\.value: .*finite"),
        (VALUE, '"value": 0.0', r"throughput\.value: .*greater than 0"),
        (VALUE, '"value": 4.0, "later": 1', r"throughput\.later: Extra inputs"),
        ('"batch_size": 4', '"batch_size": 0', r"ModelWork\.batch_size: .*greater than"),
        ('"schema_version": 9', '"schema_version": 8', "is 8, this perfkit reads 9"),
    ],
)
def test_an_invalid_field_is_named(tmp_path, old, new, why):
    write_result(tmp_path, made_result())
    path = tmp_path / "result.json"
    made.change(path, old, new)
    with pytest.raises(ResultError, match=rf"result\.json: .*{why}"):
        read_result(path)


def test_a_result_truncated_at_any_byte_is_rejected(tmp_path):
    write_result(tmp_path, made_result())
    path = tmp_path / "result.json"
    for length in reversed(range(path.stat().st_size)):
        os.truncate(path, length)
        with pytest.raises(ResultError, match=r"result\.json"):
            read_result(path)


def test_a_failed_write_keeps_the_old_file(tmp_path, monkeypatch):
    path = tmp_path / "file"
    write_atomically(path, "old")

    def fail(_descriptor):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr("os.fsync", fail)
    with pytest.raises(OSError, match=r"No space left on device: '.*/file'"):
        write_atomically(path, "new")
    assert [p.name for p in tmp_path.iterdir()] == ["file"]
    assert path.read_text() == "old"


def test_a_truncated_last_raw_line_is_ignored(tmp_path):
    path = tmp_path / "rank0.jsonl"
    path.write_bytes(b'{"event": "start"}\n{"event": "step", "st')
    assert read_events(path) == [{"event": "start"}]


@pytest.mark.parametrize("line", [b"nonsense", b"[1]", b"\x00\x00"])
def test_an_invalid_raw_line_is_reported_with_its_number(tmp_path, line):
    path = tmp_path / "rank0.jsonl"
    path.write_bytes(b'{"event": "start"}\n' + line + b"\n")
    with pytest.raises(ResultError, match=r"rank0\.jsonl: line 2: "):
        read_events(path)


def test_load_skips_unreadable_files_and_names_them(tmp_path):
    b = keep(tmp_path / "b", made_result())
    a = keep(tmp_path / "a", made_result())
    broken = keep(tmp_path / "broken", made_result())
    broken.result_file.write_text("{")
    frame = perfkit.load(tmp_path)
    assert list(frame["id"]) == [a.folder.name, b.folder.name]
    assert list(frame["throughput"]) == [4.0, 4.0]
    (reason,) = frame.attrs["unreadable"]
    assert f"{broken.folder.name}/result.json" in reason


def test_only_a_checking_load_leaves_out_results_that_contradict_their_raw_files(tmp_path):
    good = keep(tmp_path / "a", made_result())
    raw_changed = keep(tmp_path / "b", made_result())
    result_changed = keep(tmp_path / "c", made_result())
    made.change(raw_changed.rank_file(1, 0), '"data_wait_seconds": 0.0', '"a": 0')
    made.change(result_changed.result_file, '"value": 4.0', '"value": 5.0')
    unchecked = perfkit.load(tmp_path)
    assert len(unchecked) == 3
    assert unchecked.attrs["unreadable"] == []
    frame = perfkit.load(tmp_path, check=True)
    assert list(frame["id"]) == [good.folder.name]
    assert frame.attrs["unreadable"] == [
        f"{raw_changed.folder.name}: contradicts its raw files: "
        "repeat 1: rank0.jsonl: missing or changed since (SHA-256)",
        f"{result_changed.folder.name}: contradicts its raw files: "
        "the repeats give another throughput",
    ]


PUBLISH_ONE = """
import sys
from perfkit.report.site import publish
from perfkit.measuring.results.store import Measurement

opened = set()
def note(event, arguments):
    if event == "open" and str(arguments[0]).endswith(".jsonl"):
        opened.add(arguments[0])
sys.addaudithook(note)
publish(Measurement.read(sys.argv[1]))
print(*sorted(opened), sep="\\n")
"""


@pytest.mark.usefixtures("processes")
def test_publishing_one_measurement_reads_no_other_raw_file(tmp_path):
    published = stored(tmp_path / "m0")
    for number in range(1, 10):
        stored(tmp_path / f"m{number}")
    command = [sys.executable, "-c", PUBLISH_ONE, str(published.folder)]
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    assert done.stdout.splitlines() == [str(path) for path in published.raw_files()]
    rows = json.loads((tmp_path / "results.json").read_text())
    assert len(rows) == 10


def test_load_has_every_parameter_fact_and_throughput(tmp_path):
    write_all(tmp_path, measured([3.0, 5.0, 4.0]), measured([]))
    frame = perfkit.load(tmp_path)
    columns = {*frame}
    assert {"id", "status", "model", "unit"} <= columns
    assert {"throughput", "throughput_low", "throughput_high"} <= columns
    assert {*perfkit.measuring.parameters.parameters()} <= columns
    assert {f"environment.{fact}" for fact in FACTS} <= columns
    assert list(frame["repeat_throughputs"]) == [pytest.approx((3.0, 5.0, 4.0)), ()]
    assert list(frame["throughput"].isna()) == [False, True]
    assert list(frame["failure"]) == [None, "out_of_memory"]


def test_load_has_speed_per_device_memory_and_the_time_to_the_first_step(tmp_path):
    work = {"model": "gpt", "input": "synthetic", "sequence_length": 1024, "gpus": 8}
    work |= {"image_size": None, "layout": None, "optimizer": "adamw", "device": "gpu"}
    keep(tmp_path / "new", with_start(measured([3.2e6, 3.2e6], **work), 2**30, 12.5))
    keep(tmp_path / "old", measured([3.2e6], **work))
    frame = perfkit.load(tmp_path).set_index("folder").sort_index()
    new, old = frame.iloc[0], frame.iloc[1]
    assert new["throughput_per_device"] == 400_000
    assert new["tflops_per_device"] == pytest.approx(400_000 * 0.8546e-3, rel=1e-3)
    assert new["peak_memory_bytes"] == 2**30
    assert new["first_step_seconds"] == pytest.approx(12.5)
    assert old["peak_memory_bytes"] is None
    assert math.isnan(old["first_step_seconds"])


def test_load_returns_an_empty_frame_and_raises_for_a_missing_folder(tmp_path):
    assert perfkit.load(tmp_path).empty
    with pytest.raises(ResultError, match="/typo: no folder"):
        perfkit.load(tmp_path / "typo")


def test_invalid_raw_steps_are_reported_with_the_file(tmp_path):
    measurement = stored(tmp_path / "m")
    measurement.rank_file(2, 0).write_text('{"event": "step", "step": 1}\n')
    with pytest.raises(ResultError, match=r"repeats/2/rank0\.jsonl: not the events of a rank"):
        perfkit.load_steps(measurement.folder)
