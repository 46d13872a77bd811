"""Stored results: written atomically, and validated when read."""

import errno
import json
import math
import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import made
import pytest
from made import FACTS, keep, made_result, measured, stored, with_start, write_all

import perfkit
from perfkit.core.results.failures import Timeout, WorkerError
from perfkit.core.results.identity import identity_digest
from perfkit.core.results.schema import Result
from perfkit.core.results.store import (
    MOST_BYTES,
    Measurement,
    ResultError,
    make_folder,
    read_events,
    read_file,
    read_result,
    write_atomically,
    write_result,
)
from perfkit.core.results.summarize import check_against_raw


def test_a_result_survives_writing_and_reading(tmp_path):
    failure = WorkerError(rank=1, detail="<b>took long</b>")
    result = made_result(id=tmp_path.name, failure=failure)
    for _written in range(2):
        write_result(tmp_path, result)
    assert read_result(tmp_path / "result.json") == result
    assert Measurement.read(tmp_path).result == result


def test_a_measurement_is_read_by_the_text_of_its_path(tmp_path):
    folder = stored(tmp_path / "m").folder
    assert Measurement.read(str(folder)) == Measurement.read(folder)


def test_a_fact_of_any_type_hides_no_other_measurement(tmp_path):
    foreign = measured([1.0, 1.1], device="gpu", gpus=1, facts={"gpus": 8})
    outputs = write_all(tmp_path / "outputs", measured([1.0, 1.1]), foreign)
    assert len(perfkit.load(outputs)) == 2


def test_a_copied_measurement_folder_is_left_out(tmp_path):
    write_all(tmp_path, measured([1.0]))
    (folder,) = tmp_path.iterdir()
    shutil.copytree(folder, tmp_path / "copy")
    frame = perfkit.load(tmp_path)
    assert list(frame["folder"]) == [folder.name]
    (reason,) = frame.attrs["unreadable"]
    assert reason.startswith("copy/result.json: its id is")


def test_an_error_gives_its_path_as_seen_from_a_folder():
    error = ResultError(Path("/outputs/m/repeats/1/rank0.jsonl"), "cut off", line=2)
    assert str(error) == "/outputs/m/repeats/1/rank0.jsonl:2: cut off"
    assert error.relative_to(Path("/outputs/m")) == "repeats/1/rank0.jsonl:2: cut off"
    assert error.relative_to(Path("/elsewhere")) == str(error)
    not_utf8 = ResultError(Path(os.fsdecode(b"/outputs/\xff")), "its name is not UTF-8")
    assert str(not_utf8) == r"/outputs/\udcff: its name is not UTF-8"


def refused(folder, result, change, why):
    """Check that a stored result, changed by a function or a text replacement, is rejected."""
    write_result(folder, result)
    path = folder / "result.json"
    if isinstance(change, tuple):
        made.change(path, *change)
    else:
        content = json.loads(path.read_text())
        change(content)
        path.write_text(json.dumps(content))
    with pytest.raises(ResultError, match=rf"result\.json: .*{why}"):
        read_result(path)


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("value", 5.5),
        ("n", 2),
        ("interval", [4.0, 5.0]),
        ("interval_level", 0.95),
        ("unit", "tokens/s"),
        ("steps_per_second", 1.0),
    ],
)
def test_a_throughput_that_is_not_the_median_is_rejected(tmp_path, name, value):
    why = f"{name} is not that of the complete repeats"
    change = setting(f"throughput.{name}", value)
    refused(tmp_path, measured([4.0, 5.0, 6.0]), change, why)


def setting(place, value):
    """Return a change of a result that sets the value at a place such as `repeats.0.index`."""
    *above, name = place.split(".")

    def change(content):
        for key in above:
            content = content[int(key) if key.isdigit() else key]
        content[name] = value

    return change


@pytest.mark.parametrize(
    ("place", "value", "why"),
    [
        ("throughput", None, "there is one if there are complete repeats"),
        ("status", "partial", "with these repeats it is complete"),
        ("repeats.2.index", 4, "not rising, or not 1 to 3"),
        ("repeats.0.index", 2, "not rising, or not 1 to 3"),
        ("protocol.repeats", 2, "not rising, or not 1 to 2"),
        ("repeats.0.steps_per_second", 1.0, "steps_per_second is not"),
        ("repeats.0.wall_seconds", 1, "longer than its wall_seconds"),
        ("created", "0001-01-01T00:00:00+00:00", "no year from 1970"),
        ("created", "2026-01-01T08:00:00", "no time zone"),
        ("repeats.0.ranks.0.samples", 1, "throughput is not that of its ranks"),
        ("config.image_size", None, "one of them must be set"),
        ("repeats.0.throughput", None, "a complete repeat has a"),
        ("repeats.0.ranks", [], "has the windows of its ranks"),
    ],
)
def test_a_self_contradictory_result_is_rejected(tmp_path, place, value, why):
    refused(tmp_path, measured([4.0, 5.0, 6.0]), setting(place, value), why)


INDEX, WALL, VALUE = '"index": 1', '"wall_seconds": null', '"value": 4.0'


@pytest.mark.parametrize(
    ("old", "new", "why"),
    [
        ('"status": "complete"', '"status": "failed", "status": "complete"', "given twice"),
        (INDEX, '"index": 1, "index": 1', "the key 'index' is given twice"),
        (INDEX, '"index": 10000000000000000', "a whole number of over 16 digits"),
        (WALL, '"wall_seconds": 1e999', "wall_seconds: .*finite"),
        (WALL, '"wall_seconds": NaN', "wall_seconds: .*finite"),
        (VALUE, '"value": NaN', r"throughput\.value"),
        (VALUE, '"value": Infinity', r"throughput\.value"),
        (VALUE, '"value": -1.0', r"throughput\.value"),
        (VALUE, '"value": "fast"', r"throughput\.value"),
        (VALUE, '"value": 0.0', r"throughput\.value"),
    ],
)
def test_an_invalid_field_is_named(tmp_path, old, new, why):
    refused(tmp_path, made_result(), (old, new), why)


@pytest.mark.parametrize("version", [0, 1, 4, 6, "5", 5.0, True, None, ...])
def test_a_different_schema_version_is_rejected(tmp_path, version):
    def change(content):
        content["schema_version"] = version
        if version is ...:
            del content["schema_version"]

    refused(tmp_path, made_result(), change, "schema_version is .*this perfkit reads 5")


UNKNOWN = "unknown field; if a newer perfkit wrote it, update perfkit"


@pytest.mark.parametrize(
    ("place", "value"),
    [
        ("later", None),
        ("config.later", 1),
        ("repeats.0.ranks.0.later", 1),
        ("failure.later", 1),
    ],
)
def test_a_field_of_a_newer_perfkit_is_refused_by_name(tmp_path, place, value):
    failure = Timeout(repeat=1, seconds=9)
    result = made_result(status="partial", failure=failure)
    why = f"{re.escape(place)}: {UNKNOWN}"
    refused(tmp_path, result, setting(place, value), why)


SNAPSHOT = Path(__file__).with_name("snapshots") / "result-5.txt"
"""Required fields of each model when version 5 began."""


def test_no_field_is_required_that_files_of_this_version_may_lack():
    """A field that was added since needs a default."""
    schema = Result.model_json_schema()
    models = {"Result": schema} | schema["$defs"]
    for line in SNAPSHOT.read_text().splitlines():
        name, _colon, fields = line.partition(":")
        added = {*models[name].get("required", ())} - {*fields.split()}
        assert not added, name


def test_a_result_without_the_fields_that_have_a_default_is_read(tmp_path):
    """A later perfkit may have added them. The id has the digest of those that are stored."""
    measurement = keep(tmp_path / "made", measured([4.0, 5.0, 6.0]))
    content = measurement.result.model_dump(mode="json", exclude_defaults=True)
    assert not {"failure", "nodes"} & content.keys()
    assert not {"tf32", "seed", "label"} & content["config"].keys()
    older = Result.model_validate_json(json.dumps(content))
    digest = identity_digest(
        older.config, older.protocol, older.environment, older.input_data.sha256
    )
    folder = tmp_path / f"older-{digest}"
    shutil.copytree(measurement.folder, folder)
    content["id"] = folder.name
    (folder / "result.json").write_text(json.dumps(content))
    read = Measurement.read(folder)
    assert read.result == measurement.result.model_copy(update={"id": folder.name})
    assert check_against_raw(read) == []


def test_times_are_converted_to_utc():
    east = made_result(created="2026-01-01T08:00:00+08:00")
    assert east.created == "2026-01-01T00:00:00+00:00"


def test_errors_for_missing_and_unreadable_files_are_short(tmp_path):
    with pytest.raises(ResultError, match="No such file"):
        read_result(tmp_path / "result.json")
    (tmp_path / "result.json").write_text('{"schema_version": "' + "9" * 10**6 + '"}')
    with pytest.raises(ResultError) as error:
        read_result(tmp_path / "result.json")
    assert len(str(error.value)) < 400
    (tmp_path / "result.json").write_text("[" * 200_000)
    with pytest.raises(ResultError, match="not JSON"):
        read_result(tmp_path / "result.json")


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


@pytest.mark.parametrize("line", [b"nonsense", b"[1]", b"\x00\x00", b"[" * 200_000])
def test_an_invalid_raw_line_is_reported_with_its_number(tmp_path, line):
    path = tmp_path / "rank0.jsonl"
    path.write_bytes(b'{"event": "start"}\n' + line + b"\n")
    with pytest.raises(ResultError, match=r"rank0\.jsonl:2: "):
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
    raw_file = raw_changed.rank_file(1, 0)
    made.change(raw_file, '"data_wait_seconds": 0.0', '"a": 0')
    raw_file.with_name(os.fsdecode(b"\xff.jsonl")).touch()
    made.change(result_changed.result_file, '"cpu_tuning": true', '"cpu_tuning": false')
    unchecked = perfkit.load(tmp_path)
    assert len(unchecked) == 3
    assert unchecked.attrs["unreadable"] == []
    frame = perfkit.load(tmp_path, check=True)
    assert list(frame["id"]) == [good.folder.name]
    assert frame.attrs["unreadable"] == [
        f"{raw_changed.folder.name}: contradicts its raw files: "
        r"repeat 1: rank0.jsonl, \udcff.jsonl: changed since (SHA-256)",
        f"{result_changed.folder.name}: contradicts its raw files: "
        "id: not that of configuration, protocol, environment and data",
    ]


PUBLISH_ONE = """
import sys
from perfkit.report import publish
from perfkit.core.results.store import Measurement

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
    assert {*perfkit.core.parameters.parameters()} <= columns
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


STEP = {"event": "step", "step": 1, "seconds": 1.0, "data_wait_seconds": 0.0, "samples": 4}


@pytest.mark.parametrize(
    "event",
    [
        {name: value for name, value in STEP.items() if name != "seconds"},
        STEP | {"seconds": float("nan")},
        STEP | {"step": []},
        {"step": 1},
        STEP | {"seconds": 0.0},
        STEP | {"samples": 0},
        STEP | {"seconds": 10**400},
    ],
)
def test_invalid_raw_steps_are_reported_with_the_file(tmp_path, event):
    measurement = stored(tmp_path / "m")
    measurement.rank_file(2, 0).write_text(json.dumps(event) + "\n")
    with pytest.raises(ResultError, match=r"repeats/2/rank0\.jsonl: not the events of a rank"):
        perfkit.load_steps(measurement.folder)


def replaced(path, kind):
    """Replace the file by an oversized file or by something that is no regular file."""
    path.unlink()
    if kind == "pipe":
        os.mkfifo(path)
    elif kind == "folder":
        path.mkdir()
    elif kind == "large":
        with path.open("wb") as file:
            file.truncate(MOST_BYTES + 1)
    else:
        path.symlink_to({"device": "/dev/zero", "link": path.with_name("other")}[kind])


def test_a_failed_read_names_the_file():
    with pytest.raises(OSError, match="Input/output error: '/proc/self/mem'"):
        read_file(Path("/proc/self/mem"))


@pytest.mark.parametrize("kind", ["pipe", "folder", "large", "device", "link"])
@pytest.mark.timeout(60)
def test_only_regular_files_are_read(tmp_path, kind):
    """Reading a pipe would block; a device or a large file would fill the memory."""
    without_result = keep(tmp_path / "a", made_result())
    without_raw_file = keep(tmp_path / "b", made_result())
    shutil.copy(without_result.result_file, without_result.folder / "other")
    replaced(without_result.result_file, kind)
    replaced(without_raw_file.rank_file(1, 0), kind)
    why = {
        "large": "over 512 MiB, too large",
        "pipe": "not a regular file",
        "folder": "not a regular file",
        "device": "a link, which is not followed",
        "link": "a link, which is not followed",
    }
    with pytest.raises(ResultError, match=why[kind]):
        read_result(without_result.result_file)
    frame = perfkit.load(tmp_path, check=True)
    assert frame.empty
    of_result, of_raw_file = frame.attrs["unreadable"]
    assert why[kind] in of_result
    assert why[kind] in of_raw_file


def test_writes_do_not_follow_links(tmp_path):
    elsewhere = tmp_path / "elsewhere"
    elsewhere.mkdir()
    outputs = tmp_path / "outputs"
    measurement = keep(outputs / "m", made_result())
    (outputs / "linked").symlink_to(elsewhere)
    for path in (outputs / "linked" / "file", outputs / "linked" / "deep" / "file"):
        with pytest.raises(OSError, match="a link leads there, which is not followed"):
            write_atomically(path, "text")
    with pytest.raises(OSError, match="a link leads there"):
        make_folder(outputs / "linked" / "new")
    # The link itself is replaced, not its target.
    target = elsewhere / "target"
    target.write_text("unchanged")
    measurement.page_file.symlink_to(target)
    write_atomically(measurement.page_file, "page")
    assert [*elsewhere.iterdir()] == [target]
    assert target.read_text() == "unchanged"
    # The requested folder itself may be a link.
    (tmp_path / "asked").symlink_to(outputs)
    write_atomically(Path(os.path.realpath(tmp_path / "asked")) / "file", "text")
    assert (outputs / "file").read_text() == "text"


def test_an_inaccessible_measurement_is_named(tmp_path, monkeypatch):
    measurement = keep(tmp_path / "m", made_result())
    lstat = Path.lstat

    def refused(path):
        if path.name == "result.json":
            raise PermissionError(errno.EACCES, "Permission denied", str(path))
        return lstat(path)

    monkeypatch.setattr(Path, "lstat", refused)
    (reason,) = perfkit.load(tmp_path).attrs["unreadable"]
    assert reason == f"{measurement.folder.name}/result.json: Permission denied"
