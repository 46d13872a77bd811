"""The line that shows a measurement's progress: what it says, and where it is written."""

import io
import re
from itertools import pairwise
from types import SimpleNamespace

import pytest

from perfkit.measuring.driver import progress
from perfkit.measuring.driver.progress import KernelOutput, RepeatsProgress


class Clock:
    now = 0.0

    def monotonic(self):
        return self.now


class Terminal(io.StringIO):
    def isatty(self):
        return True


@pytest.fixture
def clock(monkeypatch):
    clock = Clock()
    monkeypatch.setattr(progress, "time", clock)
    return clock


@pytest.fixture
def open_terminal(monkeypatch, clock):
    """Makes standard error a terminal of 80 columns and returns it. The test calls it, because
    pytest replaces the streams again between a fixture and its test."""

    def opened(stream=Terminal):
        monkeypatch.setenv("TERM", "xterm")
        monkeypatch.setenv("COLUMNS", "80")
        terminal = stream()
        monkeypatch.setattr("sys.stderr", terminal)
        return terminal

    return opened


@pytest.fixture
def open_log(open_terminal):
    """Makes standard error a file and returns it."""
    return lambda: open_terminal(stream=io.StringIO)


@pytest.fixture
def open_notebook(monkeypatch, clock):
    """Makes this process a kernel and returns its standard output, with \f where it clears the
    output."""

    def opened():
        output = io.StringIO()
        monkeypatch.setattr("IPython.display.clear_output", lambda wait: output.write("\f"))
        monkeypatch.setattr("IPython.get_ipython", lambda: SimpleNamespace(kernel=None))
        monkeypatch.setattr("sys.stdout", output)
        return output

    return opened


def lines(written):
    """The states of a line, without spaces at the end."""
    return [line.rstrip() for line in re.split(r"[\r\n]+", written.getvalue()) if line.strip()]


def test_time_left_is_estimated_from_all_variants_steps(clock, open_terminal):
    terminal = open_terminal()
    with RepeatsProgress(3, 10, "images/s", variants=["a", "b"]) as shown:
        shown.show(1, 0, None)
        assert "-:--:-- left" in terminal.getvalue()
        clock.now = 10.0
        shown.show(1, 5, 2.0)
        assert lines(terminal)[-1].endswith("0:01:50 left")
        shown.variant = "b"
        clock.now = 60.0
        shown.show(1, 10, 2.0)
    assert lines(terminal)[-1] == "b repeat 1/3 step 10/10 2.000 images/s, 33%, 0:02:00 left"


def test_the_rate_of_an_earlier_repeat_is_marked_until_the_window_begins(clock, open_terminal):
    terminal = open_terminal()
    with RepeatsProgress(2, 10, "images/s") as shown:
        shown.show(1, 10, 2.0)
        last = "last 2.000"
        for step, throughput, rate in ((0, None, last), (3, None, last), (9, 3.0, "3.000")):
            clock.now += 1
            shown.show(2, step, throughput)
            assert f" {rate} images/s, " in lines(terminal)[-1]


@pytest.mark.parametrize(
    ("repeats", "budget", "left"), [(100, 60, "0:00:40"), (11, None, "0:00:20")]
)
def test_time_left_is_bounded_by_the_budget_and_ignores_old_repeats(
    clock, open_terminal, repeats, budget, left
):
    terminal = open_terminal()
    with RepeatsProgress(repeats, 10, "images/s", budget=budget) as shown:
        shown.show(11, 0, None)
        clock.now = 20.0
        shown.show(11, 5, None)
    assert lines(terminal)[-1].endswith(f" {left} left")


def test_a_notebook_shows_a_state_once_and_the_last_one(clock, open_notebook):
    notebook = open_notebook()
    with RepeatsProgress(2, 10, "images/s") as shown:
        for clock.now, step in ((0, 0), (10, 0), (20, 0), (30, 1), (30.5, 2), (40, 2)):
            shown.show(1, step, None)
        shown.show(1, 10, None)
    states = re.findall(r"\f\rrepeat 1/2 (.*?) -", notebook.getvalue())
    assert states == ["starting", "step 1/10", "step 2/10", "step 10/10"]


def test_a_log_gets_a_line_every_15_s_and_later_at_5_percent_of_the_time(clock, open_log):
    log = open_log()
    written_at = []
    with RepeatsProgress(1, 10_000, "images/s") as shown:
        for second in range(2000):
            clock.now = float(second)
            before = log.getvalue()
            shown.show(1, second + 1, 2.0)
            if log.getvalue() != before:
                written_at.append(second)
    assert written_at[:3] == [15, 30, 45]
    pauses = [later - earlier for earlier, later in pairwise(written_at)]
    assert pauses[-1] == pytest.approx(written_at[-1] / 20, abs=2)
    assert all(len(line) < 80 for line in log.getvalue().splitlines())
    assert "\x1b" not in log.getvalue()
    assert "\r" not in log.getvalue()


def test_the_kernels_states_are_shown_here_and_its_other_output_is_printed(open_terminal):
    terminal = open_terminal()
    with KernelOutput() as output:
        output.write("a user's text\n\rrepeat 1/2 step 1/10, 5%, 0:00:10 left\n")
        output.write("and [b]another[/b]\n")
    shown = lines(terminal)
    assert "a user's text" in shown
    assert "and [b]another[/b]" in shown
    assert shown[-1] == "repeat 1/2 step 1/10, 5%, 0:00:10 left"
