"""Ranks of a script that go on after their end."""

import pytest
from made.results import event

from perfkit.measuring.driver import rank_processes
from perfkit.measuring.driver.rank_processes import RankProcesses
from perfkit.timing.raw_file import json_line, rank_file

START = event("start", pid=1)
TOLD = event("told", samples_per_step=4)
STEP = event("step", step=1)
END = event("end", memory_bytes=1)


@pytest.fixture
def clock(monkeypatch):
    """The clock of RankProcesses, set to 0 s."""

    class Clock:
        now = 0.0

        def monotonic(self):
            return self.now

    clock = Clock()
    monkeypatch.setattr(rank_processes, "time", clock)
    return clock


@pytest.fixture
def append(tmp_path):
    """Appends events to a rank's raw file."""

    def appended(rank, *events):
        with rank_file(tmp_path, rank).open("a") as stream:
            for one in events:
                stream.write(json_line(one))

    return appended


def test_ranks_may_take_20_seconds_to_exit_after_the_last_of_them_has_ended(
    tmp_path, append, clock
):
    ranks = RankProcesses(tmp_path, range(2))
    assert not ranks.are_overdue()
    append(0, START, TOLD, *[STEP] * 1000, END)
    append(1, START, TOLD, STEP)
    clock.now = 1.0
    assert not ranks.are_overdue()
    clock.now = 15.0
    append(1, END)
    assert not ranks.are_overdue()
    clock.now = 34.9
    assert not ranks.are_overdue()
    clock.now = 35.1
    assert ranks.are_overdue()


def test_a_rank_that_still_trains_is_waited_for(tmp_path, append, clock):
    ranks = RankProcesses(tmp_path, range(2))
    append(0, START, TOLD, STEP, END)
    append(1, START, TOLD, STEP)
    assert not ranks.are_overdue()
    clock.now = 100.0
    assert not ranks.are_overdue()
