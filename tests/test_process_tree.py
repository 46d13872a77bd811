"""CPU time of a repeat's processes, on a fake /proc."""

import os
import shutil

import psutil
import pytest

from perfkit.measuring.system.process_tree import ProcessTree

TICKS = os.sysconf("SC_CLK_TCK")


@pytest.fixture
def process(tmp_path, monkeypatch):
    """Return a function that writes a process; CPU times of itself and ended children in s."""
    monkeypatch.setattr(psutil, "PROCFS_PATH", str(tmp_path))

    def write(pid, parent, module="bash", seconds=0, children_seconds=0, started=1):
        ticks, children_ticks = round(seconds * TICKS), round(children_seconds * TICKS)
        times = f"{ticks} 0 {children_ticks} 0"
        fields = f"S {parent} 0 0 0 0 0 0 0 0 0 {times} 20 0 1 0 {started}{' 0' * 30}"
        folder = tmp_path / str(pid)
        folder.mkdir(exist_ok=True)
        (folder / "stat").write_text(f"{pid} (a (strange) name) {fields}\n")
        (folder / "cmdline").write_text(f"python\0-m\0{module}\0rest\0")

    return write


@pytest.fixture
def tree(process):
    """The tree of supervisor 10, its launcher 11 and rank 12; process 5 is unrelated."""
    process(5, 1, seconds=1000)
    process(10, 5, "perfkit.measuring.driver.supervisor", seconds=1)
    process(11, 10, "paddle.distributed.launch", seconds=2)
    process(12, 11, "perfkit.timing.rank", seconds=30)
    return ProcessTree(psutil.Process(10))


def test_only_processes_of_the_repeat_are_counted(tree, process):
    assert tree.cpu_seconds() == 1 + 2 + 30
    process(13, 12, seconds=4)
    process(14, 13, seconds=5)
    process(20, 5, seconds=500)
    process(21, 20, seconds=500)
    assert tree.cpu_seconds() == 33 + 4 + 5


def test_cpu_time_of_ended_children_is_kept(tree, process, tmp_path):
    process(13, 12, seconds=4)
    assert tree.cpu_seconds() == 37
    shutil.rmtree(tmp_path / "13")
    process(12, 11, "perfkit.timing.rank", seconds=30, children_seconds=4)
    assert tree.cpu_seconds() == 37
    shutil.rmtree(tmp_path / "12")
    process(11, 10, seconds=2, children_seconds=34)
    assert tree.cpu_seconds() == 37


def test_a_reused_pid_is_not_counted(tree, process):
    process(13, 12, seconds=4)
    tree.cpu_seconds()
    process(13, 5, seconds=500, started=2)
    assert [tree.cpu_seconds(), tree.cpu_seconds()] == [33, 33]
    process(10, 5, "perfkit.measuring.driver.supervisor", seconds=1, started=2)
    with pytest.raises(psutil.NoSuchProcess):
        tree.cpu_seconds()


def test_unreadable_processes_are_not_counted(tree, monkeypatch):
    """With hidepid, other users' processes exist but cannot be opened."""
    read = psutil.Process.ppid

    def hidden(self):
        if self.pid == 5:
            raise psutil.AccessDenied(5)
        return read(self)

    monkeypatch.setattr(psutil.Process, "ppid", hidden)
    assert [tree.cpu_seconds(), tree.cpu_seconds()] == [33, 33]
