"""The page, the rows and the index of a script's measurement."""

import re
from html import unescape

import pandas as pd
import pytest
from made.results import keep, measured, script_measured, steady_peak, write_all

import perfkit
from perfkit.analysis.comparison.blocks import placed
from perfkit.report.exploring import named
from perfkit.report.index_rows import device_groups
from perfkit.report.links import Site
from perfkit.report.measurement import checked, write_measurement
from perfkit.report.peaks import limits
from perfkit.report.setup import parameters
from perfkit.report.step_charts import overlaid
from perfkit.report.steps import repeats
from perfkit.report.text import names
from perfkit.report.tiles import headline
from perfkit.report.told import script

HOSTILE = "<script>alert(1)</script>"
PEAK = steady_peak(1e12)


def kept(folder, values=(100.0, 101.0, 102.0), **changes):
    result = script_measured(values, **changes)
    return keep(folder / result.id, result)


def text_of(section):
    """Return the text of a section without elements."""
    return " ".join(unescape(re.sub("<[^>]*>", " ", section.html)).split())


def test_the_tiles_say_that_the_script_told_its_samples_and_that_they_are_not_checked(tmp_path):
    text = text_of(headline(checked(kept(tmp_path))))
    assert "101.0 images/s" in text
    assert "samples per step: 64, as told by the script" in text
    assert "Not checked: spread, telemetry, measured peak, samples per step." in text


def test_the_page_of_a_script_has_a_section_on_the_script(tmp_path):
    measurement = kept(tmp_path)
    write_measurement(measurement)
    text = measurement.page_file.read_text()
    assert '<details id="Script">' in text
    assert "train.py · --lr 0.1 · PyTorch · 64 images per step" in text
    assert measurement.folder.joinpath("report.zh.html").exists()


def test_an_unknown_wait_for_data_is_never_shown_as_zero(tmp_path):
    measurement = kept(tmp_path)
    assert "Data wait" not in text_of(headline(checked(measurement)))
    assert "Data wait" not in text_of(repeats(measurement))
    assert "Wait for data unknown" in text_of(script(measurement))


def test_a_wait_for_data_that_the_script_counts_is_shown(tmp_path):
    measurement = kept(tmp_path, told={"counts_data_wait": True})
    table = text_of(repeats(measurement))
    assert "Data wait" in table
    assert table.count(" 1 % ") == 3


def test_the_chart_of_steps_has_no_data_wait_if_that_is_unknown(tmp_path):
    measurement = kept(tmp_path)
    (axes,) = overlaid(checked(measurement).checks.steps, "blue").axes
    entries = [entry.get_text() for entry in axes.get_legend().get_texts()]
    assert entries == ["a repeat", "median of the repeats", "warm-up"]


def test_what_the_script_told_is_marked_and_what_the_timer_recognized_is_not(tmp_path):
    measurement = kept(tmp_path, told={"precision": "bf16", "flops_per_sample": 3e9})
    text = text_of(script(measurement))
    assert "Precision bf16 told by the script" in text
    assert "GFLOP per sample, forward and backward 3.000 told by the script" in text
    assert "Trainable parameters not told GFLOP" in text
    assert "Framework PyTorch 2.13.0 recognized by the timer" in text
    assert "a" * 64 in text
    assert "Local modules net" in text


def test_texts_of_a_script_are_shown_as_text(tmp_path):
    measurement = kept(tmp_path, arguments=f"--name '{HOSTILE}'", told={"device_name": HOSTILE})
    for section in (headline, script, parameters):
        assert HOSTILE not in section(checked(measurement)).html
    assert f"--name '{HOSTILE}'" in text_of(script(measurement))


def test_the_command_runs_the_script_with_its_arguments_after_dashes():
    result = script_measured([100.0], arguments="--name 'a b' --lr 0.1", label="monday")
    command = names.command(result)
    assert command.startswith("perfkit run train.py -p ")
    assert "-p label monday" in command
    assert command.endswith(" -- --name 'a b' --lr 0.1")


def test_pauses_are_listed_by_repeat(tmp_path):
    text = text_of(repeats(kept(tmp_path, repeat={"pauses_seconds": 1.5})))
    assert "Pauses (s)" in text
    assert "1.500" in text
    assert "Pauses" not in text_of(repeats(kept(tmp_path, label="without")))


def test_no_rank_of_a_script_is_called_the_fastest(tmp_path):
    text = text_of(repeats(kept(tmp_path, processes=2)))
    assert "Rank Node Window (s)" in text
    assert "0 / 3" not in text
    assert "Computation does" not in text


def test_the_share_of_the_peak_follows_from_told_flops(tmp_path):
    told = {"flops_per_sample": 3e9, "precision": "bf16"}
    text = text_of(limits(kept(tmp_path, told=told, repeat={"peak": PEAK})))
    assert "Share of measured peak (MFU) 30.3 %" in text
    assert "The script told 3.000 GFLOP per sample; the suite can't check them." in text


def test_without_told_flops_the_page_says_what_to_tell(tmp_path):
    text = text_of(limits(kept(tmp_path, repeat={"peak": PEAK})))
    assert "StepTimer(…, flops_per_sample=…)" in text
    assert "No peak was measured" not in text


@pytest.mark.parametrize(("flops", "codes"), [(3e9, []), (3e11, ["told_above_peak"])])
def test_flops_that_exceed_the_peak_are_a_warning(tmp_path, flops, codes):
    told = {"flops_per_sample": flops, "precision": "bf16"}
    measurement = kept(tmp_path, told=told, repeat={"peak": PEAK})
    warnings = checked(measurement).checks.warnings
    assert [warning.code for warning in warnings] == codes


def test_rows_of_scripts_have_what_the_script_told_and_models_keep_their_columns(tmp_path):
    outputs = write_all(tmp_path / "both", script_measured([100.0]), measured([10.0]))
    frame = perfkit.load(outputs).set_index("model")
    script = frame.loc["train.py"]
    assert script["arguments"] == "--lr 0.1"
    assert script["told.samples_per_step"] == 64
    assert script["unit"] == "images/s"
    assert script["script_sha256"] == "a" * 64
    assert pd.isna(script["batch_size"])
    assert pd.isna(script["data_wait_share"])
    of_models = perfkit.load(write_all(tmp_path / "models", measured([10.0])))
    assert not [name for name in of_models if name.startswith(("told.", "script"))]


def test_the_index_tells_runs_of_a_script_apart_by_their_arguments(tmp_path):
    plain = script_measured([100.0], arguments="")
    compiled = script_measured([110.0], arguments="--compile")
    outputs = write_all(tmp_path, plain, compiled)
    rows = perfkit.load(outputs).to_dict("records")
    (group,) = device_groups(Site(outputs), rows)
    assert sorted(unescape(re.sub("<[^>]*>", "", row.name)) for row in group.rows) == [
        "train.py · --compile · batch 64 · 1x1",
        "train.py · batch 64 · 1x1",
    ]


def test_a_summary_of_scripts_alone_has_a_row_for_each_of_their_arguments(tmp_path):
    plain = script_measured([100.0], arguments="")
    compiled = script_measured([110.0], arguments="--compile")
    frame = placed(perfkit.load(write_all(tmp_path, plain, compiled)))
    assert frame["row"].nunique() == 2


def test_scripts_are_named_by_their_arguments_in_the_notebook_explore(tmp_path):
    outputs = write_all(tmp_path, script_measured([100.0], label="a"), measured([10.0]))
    frame = named(perfkit.load(outputs)).set_index("model")
    assert frame.loc["train.py", "name"] == "torch · 64 · 1x1 · --lr 0.1 · a"
    assert frame.loc["resnet50", "name"].startswith("paddle · fp32 · 32 · 1x1 · dali · ")
