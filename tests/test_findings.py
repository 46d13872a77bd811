"""Findings about a log, and several logs side by side."""

import json

import numpy as np
import pytest
from conftest import cli
from made.logs import FALLING, SUITES, codes, findings_of, make_log, recomputed, windows

from perfkit.audit.printed import DeclaredQuantity


@pytest.mark.parametrize(
    ("code", "rows", "fields"),
    [
        ("loss_not_falling", windows(loss=FALLING[::-1]), {"first": 6.5, "last": 6.5}),
        ("input_wait", windows(seconds=2.0, reader=0.3), {"share": 0.15}),
        (
            "mean_of_rates",
            windows(rate=[200.0, 400.0] * 6),
            {"mean": 2400.0, "share": 0.125},
        ),
    ],
)
def test_a_finding_has_its_figures(code, rows, fields):
    stated = findings_of(make_log(rows))[code].finding.fields()
    for name, value in fields.items():
        assert stated[name] == pytest.approx(value, rel=0.1)


def test_losses_that_are_no_numbers_are_told_with_their_first_line():
    losses = [*FALLING[:8], *[np.inf] * 4]
    located = findings_of(make_log(windows(loss=losses)))["loss_not_falling"]
    assert (located.line, located.finding.last) == (9, "nan")


def test_a_sound_log_has_no_findings():
    # A step that loss scaling skips has no printed loss.
    losses = [*np.linspace(7, 6, 13), np.nan]
    rows = windows(14, seconds=2.0, rate=1280.0, reader=0.01, loss=losses)
    assert findings_of(make_log(rows)) == {}


# Pauses and the warm-up.


def test_pauses_are_told_first_with_the_answer_without_them():
    rows = windows(30, seconds=[5.05] * 14 + [65.05] + [5.05] * 15, loss=7.0)
    (pauses, _loss) = recomputed(make_log(rows)).log.findings
    assert pauses.line == 15
    assert pauses.finding.text() == (
        "Pauses, such as checkpoints, take 28.4 % of the time of steps 1–300: 1, at steps "
        "141–150; without them: 4055.45 images/s."
    )


def test_ordinary_noise_and_regular_slow_steps_are_no_pauses():
    noise = np.random.default_rng(0).lognormal(0, 0.1, 300)
    every_fourth = np.tile([1.0, 1.0, 1.0, 2.5], 75)
    every_tenth = np.tile([1.0] * 9 + [4.0], 30)
    for seconds in (noise, every_fourth, every_tenth):
        assert "pauses" not in findings_of(make_log(windows(300, 1, seconds=seconds)))


@pytest.mark.parametrize(
    ("seconds", "first"),
    [
        ([16.0] + [8.0] * 11, 2),
        # Steps that are dispatched asynchronously have times that are not theirs at first.
        ([40.0, 24.0, 0.25] + [8.0] * 9, 4),
        ([8.0] * 12, 1),
    ],
)
def test_the_answer_of_a_short_log_leaves_slow_first_steps_out(seconds, first):
    log = recomputed(make_log(windows(12, 1, seconds=seconds))).log
    assert log.answer.first == first
    assert log.answer.seconds_per_step == pytest.approx(8.0)
    assert ("first_steps_left_out" in codes(log.findings)) == (first > 1)


# What no GPU can have.


@pytest.mark.parametrize(
    ("quantity", "value", "gpu", "share"),
    [
        ("MFU", 563.0, "", 5.63),
        ("TFLOP/s", 624.0, "A100", 2.0),
        # In FP8, an H100 has twice the peak of bf16.
        ("TFLOP/s", 1200.0, "H100", None),
    ],
)
def test_a_print_over_the_peak_is_impossible(quantity, value, gpu, share):
    log = make_log(windows(seconds=2.0).assign(printed0=value), facts={"gpu": gpu})
    log.printed = (DeclaredQuantity("shown", quantity, "device", "printed0"),)
    found = findings_of(log)
    assert ("impossible" in found) == bool(share)
    if share:
        assert found["impossible"].finding.fields() == {"name": "shown", "share": share}


# Several logs.


def write(folder, devices, seconds, precision="fp32"):
    """Write a log of steps of so many seconds, whose name tells the devices."""
    path = folder / f"PaddleClas_ResNet50_bs32_{precision}_DP_N1C{devices}_log"
    path.write_text(SUITES["PaddleClas, static graph"].text(np.full(140, seconds)))
    return path


def table_of(text):
    """Return the cells of each log in the terminal's table, without its name."""
    rows = [line.split() for line in text.splitlines() if "images/s" in line]
    return [row[1:] for row in rows]


def test_several_logs_are_a_table_with_their_speed_ups(tmp_path):
    for devices, seconds in {1: 0.5, 2: 0.5, 8: 0.8}.items():
        write(tmp_path, devices, seconds)
    done = cli("audit", tmp_path, "--label", "x", "--outputs", tmp_path / "out")
    table, _blank, findings = done.stdout.partition("\n\n")
    assert max(map(len, table.splitlines())) <= 80
    assert table_of(table) == [
        ["1", "64.00", "64.00", "images/s", "0.5000", "1.00"],
        ["2", "128.0", "64.00", "images/s", "0.5000", "2.00"],
        ["8", "320.0", "40.00", "images/s", "0.8000", "5.00"],
    ]
    assert findings.startswith("Findings (--all shows them): 3 input_wait, 3 loss")
    page = (tmp_path / "out" / "audits" / "x" / "report.html").read_text()
    assert ">Speed-up</th>" in page


def test_logs_of_other_work_have_no_speed_up(tmp_path):
    paths = [write(tmp_path, 1, 0.5), write(tmp_path, 8, 0.5, "amp")]
    output = cli("audit", *paths).stdout
    assert "Speed-up" not in output


def test_a_file_that_is_no_log_is_left_out_and_counted(tmp_path):
    (tmp_path / "notes.txt").write_text("nothing that is known\n")
    done = cli("audit", tmp_path, "--json", "-")
    audited = json.loads(done.stdout)
    assert done.exit_code == 1
    assert (audited["logs"], len(audited["left_out"])) == ([], 1)
