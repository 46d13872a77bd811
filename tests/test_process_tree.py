"""CPU time of a repeat's processes, in a /proc made by hand."""

import os
import shutil

import psutil
import pytest

from perfkit.driver.workers import find_supervisor
from perfkit.system.telemetry import ProcessTree

TICKS = os.sysconf("SC_CLK_TCK")


@pytest.fixture
def process(tmp_path, monkeypatch):
    """Make or change a process: its CPU time in seconds, of itself and of ended children."""
    monkeypatch.setattr(psutil, "PROCFS_PATH", str(tmp_path))

    def made(pid, parent, module="bash", seconds=0, children_seconds=0, started=1):
        own, children = round(seconds * TICKS), round(children_seconds * TICKS)
        fields = f"S {parent} 0 0 0 0 0 0 0 0 0 {own} 0 {children} 0 20 0 1 0 {started}"
        (tmp_path / str(pid)).mkdir(exist_ok=True)
        (tmp_path / f"{pid}/stat").write_text(f"{pid} (a (strange) name) {fields}{' 0' * 30}\n")
        (tmp_path / f"{pid}/cmdline").write_text(f"python\0-m\0{module}\0rest\0")

    return made


@pytest.fixture
def tree(process):
    """Of a supervisor 10, its launcher 11 and a rank 12; a process 5 is someone else's."""
    process(5, 1, seconds=1000)
    process(10, 5, "perfkit.driver.supervisor", seconds=1)
    process(11, 10, "paddle.distributed.launch", seconds=2)
    process(12, 11, "perfkit.worker.rank", seconds=30)
    return ProcessTree(find_supervisor(12))


def test_the_processes_of_a_repeat_are_counted_also_later_ones_and_those_of_others_are_not(
    tree, process
):
    assert tree.cpu_seconds() == 1 + 2 + 30
    process(13, 12, seconds=4)
    process(14, 13, seconds=5)
    process(20, 5, seconds=500)
    process(21, 20, seconds=500)
    assert tree.cpu_seconds() == 33 + 4 + 5


def test_the_time_of_a_child_that_has_ended_is_its_parents(tree, process, tmp_path):
    process(13, 12, seconds=4)
    assert tree.cpu_seconds() == 37
    shutil.rmtree(tmp_path / "13")
    process(12, 11, "perfkit.worker.rank", seconds=30, children_seconds=4)
    assert tree.cpu_seconds() == 37
    shutil.rmtree(tmp_path / "12")
    process(11, 10, seconds=2, children_seconds=34)
    assert tree.cpu_seconds() == 37


def test_a_process_that_took_an_ended_ones_number_is_not_counted(tree, process):
    process(13, 12, seconds=4)
    tree.cpu_seconds()
    process(13, 5, seconds=500, started=2)
    assert [tree.cpu_seconds(), tree.cpu_seconds()] == [33, 33]
    process(10, 5, "perfkit.driver.supervisor", seconds=1, started=2)
    with pytest.raises(psutil.NoSuchProcess):
        tree.cpu_seconds()


def test_processes_that_may_not_be_read_are_not_counted(tree, monkeypatch):
    """As with hidepid, where others' are there and can't be opened."""
    read = psutil.Process.ppid

    def hidden(self):
        if self.pid == 5:
            raise psutil.AccessDenied(5)
        return read(self)

    monkeypatch.setattr(psutil.Process, "ppid", hidden)
    assert [tree.cpu_seconds(), tree.cpu_seconds()] == [33, 33]


def test_of_others_the_parent_is_read_once(tree, monkeypatch):
    asked, read = [], psutil.Process.ppid
    monkeypatch.setattr(psutil.Process, "ppid", lambda p: asked.append(p.pid) or read(p))
    for _ in range(3):
        tree.cpu_seconds()
    assert sorted(asked) == [5, 11, 12]


@pytest.mark.parametrize("rank", [5, 99, -3, 10**30])
def test_a_number_that_is_no_rank_of_this_machine_has_no_supervisor(tree, rank):
    assert find_supervisor(rank) is None


def test_a_rank_that_no_supervisor_of_this_machine_watches_has_none(process):
    process(12, 1, "perfkit.worker.rank")
    assert find_supervisor(12) is None
