"""A sweep's progress display: it fits the terminal and escapes untrusted text. A measurement's
progress in a log."""

import io
import re

import pytest
from made import measured, write_all
from rich.console import Console

from perfkit.driver import progress as bar
from perfkit.request.plan import Plan
from perfkit.results.store import Measurement
from perfkit.sweep.engine import JobStatus
from perfkit.sweep.jobs import Job
from perfkit.sweep.progress import Progress, headline, print_failures


def status(name, state, measurement=None, reason=""):
    result = measured([4.0] * 3, protocol="quick")
    job = Job(
        name,
        f"batch_size {name}",
        "resnet50",
        {"batch_size": name},
        Plan(result.config, result.protocol),
    )
    return JobStatus(job, state, measurement, reason)


@pytest.fixture
def measurement(tmp_path):
    (folder,) = write_all(tmp_path, measured([40.0, 50.0, 60.0], protocol="quick")).iterdir()
    return Measurement.read(folder)


def shown(statuses, **console):
    """Return what the progress display writes, by default on a terminal of 80 columns."""
    written = io.StringIO()
    settings = {
        "width": 80,
        "height": 24,
        "force_terminal": True,
        "color_system": None,
    } | console
    with Progress(Console(file=written, **settings), "quick", in_turn=True) as progress:
        for current in statuses:
            progress.show(current)
    return written.getvalue()


def test_the_headline_shows_counts_and_remaining_time(measurement):
    statuses = [
        status("1", "done", measurement),
        status("2", "running"),
        status("3", "waiting"),
    ]
    assert headline("quick", statuses, in_turn=True) == (
        "quick: 1 done, 1 running of 3; about 67 s of measuring left"
    )
    assert headline("quick", statuses[1:], in_turn=True).endswith(
        "known after the first repeat"
    )
    assert headline("quick", statuses[:1], in_turn=True) == (
        "quick: 1 done of 1; writing the report"
    )


def test_a_row_shows_finished_repeats_and_throughput(measurement):
    text = shown([[status("2", "done", measurement), status("4", "waiting")]])
    assert "batch_size 2   done     3/3      50.00 images/s" in text
    assert "batch_size 4   waiting  0/3" in text


def test_running_and_failed_jobs_are_shown_and_the_rest_counted():
    many = [status(str(n), "waiting") for n in range(100)]
    many[50] = status("50", "running")
    many[60] = status("60", "failed", reason="out_of_memory: no room" * 20)
    frame = shown([many]).split("quick: ")[-1].splitlines()
    assert len(frame) <= 24
    assert max(map(len, frame)) <= 80
    assert any("batch_size 50" in line for line in frame)
    assert any("out_of_memory" in line for line in frame)
    assert "and 81 waiting" in frame


def test_without_a_terminal_each_finished_job_prints_one_line(measurement):
    first, second = status("2", "running"), status("4", "waiting")
    failed = status("4", "failed", reason="timeout: repeat 1 took over 9 s")
    text = shown(
        [
            [first, second],
            [status("2", "done", measurement), second],
            [first, failed],
            [first, failed],
        ],
        force_terminal=False,
    )
    assert text.splitlines() == [
        "1/2 done    batch_size 2: 50.00 images/s",
        "2/2 failed  batch_size 4: timeout: repeat 1 took over 9 s",
    ]


def test_failure_reasons_are_printed_without_markup():
    written = io.StringIO()
    hostile = "[bold red]x[/] [link=http://evil.example]here[/link]"
    console = Console(file=written, width=80, force_terminal=True)
    print_failures(console, [status("2", "failed", reason=hostile)])
    assert hostile in written.getvalue().replace("\n", " ")


def test_without_a_terminal_a_measurement_prints_a_line_every_15_seconds(monkeypatch):
    log, now = io.StringIO(), [100.0]
    monkeypatch.setattr("sys.stderr", log)
    monkeypatch.setattr(bar.time, "monotonic", lambda: now[0])
    monkeypatch.setattr(bar, "SECONDS_BETWEEN", 0)
    with bar.Progress(2, 20, "images/s") as progress:
        for step in range(1, 21):
            now[0] += 4
            progress.show(1, step, 5.0)
    shown = r"repeat 1/2 step (\d+)/20 5 images/s \|[# \d]+\| \S+ left"
    steps = [re.fullmatch(shown, line)[1] for line in log.getvalue().splitlines()]
    assert steps == ["4", "8", "12", "16", "20"]


def test_lines_of_a_long_measurement_become_rarer_and_a_closed_log_is_ignored(monkeypatch):
    log, now = io.StringIO(), [0.0]
    monkeypatch.setattr(bar.time, "monotonic", lambda: now[0])
    lines = bar.Lines(log)
    for second in range(36_000):
        now[0] = float(second)
        lines.write(f"\rstep {second}")
    assert 60 < len(log.getvalue().splitlines()) < 120

    class Closed(io.StringIO):
        def write(self, text):
            raise BrokenPipeError

    ignored = bar.Lines(Closed())
    now[0] += 20
    ignored.write("\rstep 1")
