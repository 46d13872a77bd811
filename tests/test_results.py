"""What is stored: whole or not at all, and read as what it is or refused by name."""

import json
import shutil
from typing import get_args

import pytest
from made import made_result, measured, stored, write_all
from pydantic import TypeAdapter

import perfkit
from perfkit.messages import Message
from perfkit.results.schema import Failure, FailureCode, Finding
from perfkit.results.store import (
    Measurement,
    ResultError,
    read_events,
    read_result,
    write_atomically,
    write_result,
)
from perfkit.text import messages
from perfkit.text.messages import sentence


def test_a_result_comes_back_as_it_was_written(tmp_path):
    failure = Failure("timeout", {"detail": "<b>took long</b>"})
    result = made_result(id=tmp_path.name, failure=failure)
    write_result(tmp_path, result)
    assert read_result(tmp_path / "result.json") == result
    assert Measurement.read(tmp_path).result == result


def test_a_copy_of_a_measurement_is_not_another_one(tmp_path):
    write_all(tmp_path, measured([1.0]))
    (folder,) = tmp_path.iterdir()
    shutil.copytree(folder, tmp_path / "copy")
    frame = perfkit.load(tmp_path)
    assert list(frame["folder"]) == [folder.name]
    (reason,) = frame.attrs["unreadable"]
    assert reason.startswith("copy/result.json: its id is")


def test_a_repeat_whose_throughput_is_not_that_of_its_ranks_is_an_error(tmp_path):
    write_result(tmp_path, measured([4.0]))
    path = tmp_path / "result.json"
    content = json.loads(path.read_text())
    content["repeats"][0]["ranks"][0]["samples"] += 1
    path.write_text(json.dumps(content))
    with pytest.raises(ResultError, match="throughput is not that of its ranks"):
        read_result(path)


def test_a_number_that_is_not_the_median_of_its_repeats_is_an_error(tmp_path):
    write_result(tmp_path, measured([4.0, 5.0, 6.0]))
    path = tmp_path / "result.json"
    content = json.loads(path.read_text())
    for change in ({"value": 5.5}, {"n": 2}, {"interval": [4.0, 5.0]}):
        path.write_text(json.dumps(content | {"throughput": content["throughput"] | change}))
        with pytest.raises(ResultError, match="complete repeats"):
            read_result(path)


def test_a_time_without_a_zone_is_an_error_and_one_with_another_is_put_into_utc(tmp_path):
    with pytest.raises(ValueError, match="no time zone"):
        made_result(created="2026-01-01T08:00:00")
    east = made_result(created="2026-01-01T08:00:00+08:00")
    assert east.created == "2026-01-01T00:00:00+00:00"


def test_a_file_without_a_schema_version_is_an_error(tmp_path):
    write_result(tmp_path, made_result())
    path = tmp_path / "result.json"
    content = json.loads(path.read_text())
    del content["schema_version"]
    path.write_text(json.dumps(content))
    with pytest.raises(ResultError, match="schema_version is None"):
        read_result(path)


def test_what_is_said_of_a_file_that_can_not_be_read_is_short(tmp_path):
    (tmp_path / "result.json").write_text('{"schema_version": "' + "9" * 10**6 + '"}')
    with pytest.raises(ResultError) as error:
        read_result(tmp_path / "result.json")
    assert len(str(error.value)) < 400
    (tmp_path / "result.json").write_text("[" * 200_000)
    with pytest.raises(ResultError, match="not JSON"):
        read_result(tmp_path / "result.json")


def test_a_result_cut_off_at_any_byte_never_gives_a_number(tmp_path):
    write_result(tmp_path, made_result())
    path = tmp_path / "result.json"
    whole = path.read_bytes()
    for length in range(len(whole)):
        path.write_bytes(whole[:length])
        with pytest.raises(ResultError, match=r"result\.json"):
            read_result(path)


@pytest.mark.parametrize("version", [0, 1, 2, 4, "3", None])
def test_another_schema_version_is_a_named_error(tmp_path, version):
    write_result(tmp_path, made_result())
    path = tmp_path / "result.json"
    path.write_text(json.dumps(json.loads(path.read_text()) | {"schema_version": version}))
    with pytest.raises(ResultError, match=r"schema_version is .*this perfkit reads 3"):
        read_result(path)


def test_a_file_with_a_wrong_field_is_an_error_that_names_it(tmp_path):
    write_result(tmp_path, made_result())
    path = tmp_path / "result.json"
    content = json.loads(path.read_text())
    content["throughput"]["value"] = "fast"
    path.write_text(json.dumps(content))
    with pytest.raises(ResultError, match=r"throughput\.value"):
        read_result(path)


def test_a_complete_repeat_without_a_throughput_is_an_error(tmp_path):
    write_result(tmp_path, made_result())
    path = tmp_path / "result.json"
    content = json.loads(path.read_text())
    content["repeats"][0]["throughput"] = None
    path.write_text(json.dumps(content))
    with pytest.raises(ResultError, match="a complete repeat has a throughput"):
        read_result(path)


def test_no_file_is_a_named_error(tmp_path):
    with pytest.raises(ResultError, match="No such file"):
        read_result(tmp_path / "result.json")


def test_a_failed_write_leaves_the_old_file_and_no_other(tmp_path, monkeypatch):
    path = tmp_path / "file"
    write_atomically(path, "old")

    def fail(_descriptor):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr("os.fsync", fail)
    with pytest.raises(OSError, match=r"No space left on device: '.*/file'"):
        write_atomically(path, "new")
    assert [p.name for p in tmp_path.iterdir()] == ["file"]
    assert path.read_text() == "old"


def test_a_raw_file_whose_last_line_is_cut_off_gives_the_lines_before_it(tmp_path):
    path = tmp_path / "rank0.jsonl"
    path.write_bytes(b'{"event": "start"}\n{"event": "step", "st')
    assert read_events(path) == [{"event": "start"}]


@pytest.mark.parametrize("line", [b"nonsense", b"[1]", b"\x00\x00", b"[" * 200_000])
def test_a_raw_line_that_is_no_event_is_an_error_with_its_number(tmp_path, line):
    path = tmp_path / "rank0.jsonl"
    path.write_bytes(b'{"event": "start"}\n' + line + b"\n")
    with pytest.raises(ResultError, match=r"rank0\.jsonl:2: "):
        read_events(path)


def test_load_leaves_unreadable_files_out_and_names_them(tmp_path):
    for name in ("b", "a", "broken"):
        (tmp_path / name).mkdir()
        write_result(tmp_path / name, made_result(id=name))
    (tmp_path / "broken" / "result.json").write_text("{")
    frame = perfkit.load(tmp_path)
    assert list(frame["id"]) == ["a", "b"]
    assert list(frame["throughput"]) == [4.0, 4.0]
    (reason,) = frame.attrs["unreadable"]
    assert "broken/result.json" in reason


def test_load_has_every_parameter_and_fact_as_a_column(tmp_path):
    stored(tmp_path / "a")
    frame = perfkit.load(tmp_path)
    named = {"id", "status", "model", "throughput", "throughput_low", "throughput_high", "unit"}
    assert {*perfkit.config.parameters(), *named, "environment.gpus"} <= {*frame}


def test_load_has_the_throughput_of_every_complete_repeat(tmp_path):
    write_all(tmp_path, measured([3.0, 5.0, 4.0]), measured([]))
    frame = perfkit.load(tmp_path)
    assert list(frame["repeat_throughputs"]) == [(3.0, 5.0, 4.0), ()]
    assert list(frame["throughput"].isna()) == [False, True]
    assert list(frame["failure"]) == [None, "out_of_memory"]


def test_load_of_a_folder_that_is_not_there_is_an_error(tmp_path):
    with pytest.raises(ResultError, match=r"no folder .*/typo"):
        perfkit.load(tmp_path / "typo")


@pytest.mark.parametrize("value", ["NaN", "Infinity", "-1.0", "0.0"])
def test_a_throughput_that_can_not_be_is_an_error(tmp_path, value):
    write_result(tmp_path, made_result())
    path = tmp_path / "result.json"
    path.write_text(path.read_text().replace('"value": 4.0', f'"value": {value}'))
    with pytest.raises(ResultError, match=r"throughput\.value"):
        read_result(path)


def test_load_of_nothing_is_an_empty_frame(tmp_path):
    assert perfkit.load(tmp_path).empty


@pytest.mark.parametrize(
    "event",
    [
        {"event": "step", "step": 1, "samples": 4, "data_wait_seconds": 0.1},
        {"event": "step", "step": 1, "seconds": float("nan"), "data_wait_seconds": 0.1},
        {"event": "step", "step": [], "seconds": 1.0, "data_wait_seconds": 0.1},
        {"step": 1},
        {"event": "step", "step": 1, "seconds": 0.0, "data_wait_seconds": 0.0, "samples": 4},
        {"event": "step", "step": 1, "seconds": 1.0, "data_wait_seconds": 0.0, "samples": 0},
    ],
)
def test_raw_steps_that_are_none_are_an_error_that_names_the_file(tmp_path, event):
    measurement = stored(tmp_path / "m")
    measurement.rank_file(2, 0).write_text(json.dumps(event) + "\n")
    with pytest.raises(ResultError, match=r"repeats/2/rank0\.jsonl: not the events of a rank"):
        perfkit.load_steps(measurement.folder)


def test_a_failure_is_a_code_and_its_sentence_has_only_what_is_known(monkeypatch):
    parts = ["rank %(rank)s exited", " after step %(step)s", "; %(detail)s"]
    monkeypatch.setitem(messages.FAILURES, "worker_died", parts)
    lost = Failure("worker_died", {"rank": 1, "detail": "100 % <b>lost</b>"})
    assert sentence(lost) == "rank 1 exited; 100 % <b>lost</b>"
    assert sentence(Failure("worker_died", {"rank": 1, "step": 2000})) == (
        "rank 1 exited after step 2,000"
    )


def test_every_failure_code_has_a_sentence():
    assert {*messages.FAILURES} == {*get_args(FailureCode)}


def test_messages_within_a_message_are_read_back_as_messages():
    inner = Message("by_line", {"line": 3})
    found = Finding("contradiction", {"by": inner, "value": {"x": 1}}, "a.log", 3)
    stored = TypeAdapter(Finding).dump_json(found)
    assert TypeAdapter(Finding).validate_json(stored) == found
