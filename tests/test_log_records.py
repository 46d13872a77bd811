"""Logs in record_cases.toml, and files of records: JSON lines, tables and documents."""

import json
import tomllib
from pathlib import Path

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from perfkit.audit.auditing import audit
from perfkit.audit.records import FORMATS

_DATA = tomllib.loads(Path(__file__).with_name("record_cases.toml").read_text())
CASES = _DATA["case"]


def having(key):
    """Return the cases with a key, as parameters named by their formats."""
    return [pytest.param(case, id=case["format"]) for case in CASES if key in case]


def windows_in(log, times):
    """Return first step, last step and time of each window of a log."""
    return np.column_stack([log.windows["first"], log.windows["last"], times])


def test_every_record_format_has_a_case():
    assert {form.name for form in FORMATS} <= {case["format"] for case in CASES}


@pytest.mark.parametrize("case", having("windows"))
def test_printed_times_are_those_of_their_steps(read, case):
    log = read(case["log"])
    assert log.format == case["format"]
    assert windows_in(log, log.windows["seconds"]) == pytest.approx(np.array(case["windows"]))


@pytest.mark.parametrize("case", having("clock"))
def test_times_since_the_start_are_a_clock(read, case):
    log = read(case["log"])
    assert log.format == case["format"]
    since_print_before = np.diff(log.windows["at"], prepend=log.windows["at"][0])
    assert windows_in(log, since_print_before) == pytest.approx(np.array(case["clock"]))


@pytest.mark.parametrize("case", having("reported"))
def test_the_logs_own_figures_are_reported(read, case):
    log = read(case["log"])
    assert log.format == case["format"]
    figures = [[figure.name, figure.value, figure.is_rate] for figure in log.reported]
    for figure in case["reported"]:
        assert figure in figures
    assert not any("eval" in figure.name for figure in log.reported)


@pytest.mark.parametrize("case", having("answer"))
def test_the_answer_is_the_time_of_a_step(write, case):
    (audited,) = audit([write(case["log"])]).logs
    answer = audited.answer
    seconds, *steps = case["answer"]
    assert answer.seconds_per_step == pytest.approx(seconds)
    assert [answer.first, answer.last] == steps


# What a figure of a record is not.


def codes_of(text, write):
    (audited,) = audit([write(text)]).logs
    return {finding.code for finding in audited.findings}


def case_of(name):
    return next(case["log"] for case in CASES if case["format"] == name)


def test_a_measurement_of_perfkit_is_left_out_with_where_its_throughput_is(write):
    result = {"schema_version": 1, "config": {}, "protocol": {}, "repeats": []}
    audited = audit([write(json.dumps(result, indent=1), "result.json")])
    assert "its page has its throughput, and perfkit compare compares it" in audited.left_out[0]


def test_no_one_of_several_models_is_the_answer(write):
    (audited,) = audit([write(case_of("SuperBench, results"))]).logs
    assert audited.of_several
    assert audited.answer is None


# Means over the log's own window.


MMENGINE = (
    "2026/03/02 10:00:00 - mmengine - INFO - Epoch(train)  [{epoch}][{step}/4]  lr: 1.0e-02  "
    "eta: 0:01:00  time: {mean:.4f}  data_time: 0.0100  loss: 1.5\n"
)


def test_means_over_an_unknown_window_are_told(read, write):
    text = MMENGINE.format(epoch=1, step=1, mean=1.0) + MMENGINE.format(
        epoch=1, step=2, mean=1.0
    )
    assert read(text).semantics.window == 0
    assert "lagging_means" in codes_of(text, write)
    assert "lagging_means" in codes_of(case_of("mmengine, scalars.json"), write)


# Untrusted files.

ODD_VALUES = [None, True, -1, 1e308, float("nan"), "", "x", [], [1, "x"], {}, {"a": {}}]
untrusted = settings(
    max_examples=8,
    deadline=None,
    derandomize=True,
    suppress_health_check=[HealthCheck.function_scoped_fixture],
)


def audited_or_left_out(path):
    """Audit a file; it may be left out, but not raise anything."""
    audited = audit([path])
    assert len(audited.logs) + len(audited.left_out) >= 1
    audited.model_dump_json()


@pytest.mark.parametrize("case", [pytest.param(case, id=case["format"]) for case in CASES])
@untrusted
@given(data=st.data())
def test_damaged_records_are_read_or_left_out(write, case, data):
    """A value of any type stands in place of another, and the file is cut off."""
    lines = case["log"].splitlines()
    index = data.draw(st.integers(0, len(lines) - 1))
    value = data.draw(st.sampled_from(ODD_VALUES))
    if lines[index].startswith('{"') and lines[index].endswith("}"):
        record = json.loads(lines[index])
        record[data.draw(st.sampled_from([*record]))] = value
        lines[index] = json.dumps(record)
    else:
        cells = lines[index].split(",")
        cells[data.draw(st.integers(0, len(cells) - 1))] = str(value)
        lines[index] = ",".join(cells)
    text = "\n".join(lines) + "\n"
    audited_or_left_out(write(text))
    audited_or_left_out(write(text[: data.draw(st.integers(1, len(text)))]))
