"""Scripts on two nodes, which share the folder of the script."""

from pathlib import Path

import pytest
from made.clusters import nodes_over_ssh, skip_if, ssh_missing

from perfkit.measuring.results.store import Measurement, read_events
from perfkit.measuring.results.summarize import check_against_raw
from perfkit.timing.failure import portable

pytestmark = pytest.mark.usefixtures("processes")
SCRIPT = """
import time
from pathlib import Path

import torch
import torch.distributed
import perfkit

print("runs in", Path.cwd())
torch.distributed.init_process_group("gloo")
timer = perfkit.StepTimer(samples_per_step=4, unit="images")
for number in range(1_000_000):
    loss = torch.ones(1) / (number + 1)
    torch.distributed.all_reduce(loss)
    time.sleep(0.05)
    timer.step(loss)
"""


@pytest.fixture
def script(tmp_path):
    """The path of a script in a folder of its own."""
    path = tmp_path / "work" / "train.py"
    path.parent.mkdir()
    path.write_text(SCRIPT)
    return path


@pytest.mark.slow
def test_two_nodes_run_a_script_and_end_its_warm_up_after_the_same_step(nodes, script):
    result = nodes.measure_script(script, warmup_steps="auto", measured_steps=5)
    assert result.status == "complete", result.failure
    (repeat,) = result.repeats
    assert [rank.samples for rank in repeat.ranks] == [20, 20]
    assert repeat.warmup.ended_by == "steady"
    measurement = Measurement.read(nodes.outputs / result.id)
    ends = []
    for rank in range(2):
        for event in read_events(measurement.rank_file(1, rank)):
            if event["event"] == "warmup":
                ends.append(event["steps"])
    assert ends == [repeat.warmup.steps] * 2
    assert check_against_raw(measurement) == ""
    for rank in range(2):
        log = measurement.log_file(1, f"rank{rank}").read_text()
        assert f"runs in {portable(str(Path.cwd()))}" in log
    nodes.assert_nothing_left()


def test_a_script_that_a_node_does_not_see_is_named(tmp_path, script):
    skip_if(ssh_missing())
    with nodes_over_ssh(tmp_path, f"mount -t tmpfs tmpfs {script.parent}") as nodes:
        result = nodes.measure_script(script)
        nodes.assert_nothing_left()
    assert result.failure.code == "script_unreadable"
    sentence = result.failure.reason
    assert sentence.startswith(f"{nodes.names[1]} can't run the script: ")
    assert str(script) in sentence
    assert sentence.endswith("it must lie in a folder that all nodes share")
    assert result.complete_repeats == []


def test_a_script_that_differs_between_nodes_fails_the_first_repeat(tmp_path, script):
    skip_if(ssh_missing())
    changed = tmp_path / "changed.py"
    changed.write_text(f"{SCRIPT}# changed on the second node\n")
    with nodes_over_ssh(tmp_path, f"mount --bind {changed} {script}") as nodes:
        result = nodes.measure_script(script)
    assert result.failure.code == "script_changed"
    assert result.failure.reason.startswith(f"{nodes.names[1]} can't run the script: ")
    assert result.complete_repeats == []
