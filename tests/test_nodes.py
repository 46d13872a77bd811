"""Measurements on two nodes, over ssh and in a Slurm job, and the faults they survive."""

import signal
import time

import pytest
from drivers import AT_BATCHES
from made.clusters import (
    NODE_PROGRAM,
    fake_training,
    namespaces_missing,
    nodes_in_slurm,
    nodes_over_ssh,
    skip_if,
    slurm_missing,
    ssh_missing,
    wait_for,
)
from made.results import forget_repeats

from perfkit.measuring.driver.node_files import PREFIX
from perfkit.measuring.results.frames import load_steps

pytestmark = pytest.mark.usefixtures("processes")
QUICK = fake_training(0.5, 0.5)
THEN_MINUTES = fake_training(0.5, 200)
THEN_TRAINING = fake_training(0.5, None)
"""Code to plant for a first repeat of half a second, and repeats that only a fault ends."""


# Two nodes measure


@pytest.mark.slow
def test_two_nodes_train_and_both_are_in_the_result(nodes):
    result = nodes.measure()
    assert result.status == "complete", result.failure
    assert result.config.topology == "2x1", result.failure
    assert tuple(node.name for node in result.nodes) == nodes.names
    (repeat,) = result.repeats
    assert [rank.rank for rank in repeat.ranks] == [0, 1]
    samples = sum(rank.samples for rank in repeat.ranks)
    assert repeat.throughput == samples / max(rank.window_seconds for rank in repeat.ranks)
    assert all(rank.compute_seconds > 0 for rank in repeat.ranks)
    assert repeat.telemetry.process_cores > 0
    folder = nodes.outputs / result.id
    assert {*load_steps(folder)["rank"]} == {0, 1}
    logs = {path.name for path in folder.rglob("*.log")}
    assert {"1-rank0.log", "1-rank1.log", "1-launcher-node1.log"} <= logs
    assert not [*folder.glob(f"{PREFIX}*")]
    nodes.assert_nothing_left()


@pytest.mark.slow
def test_each_node_names_the_interface_of_its_host(over_ssh):
    over_ssh.plant(QUICK)
    result = over_ssh.measure()
    assert [node.interface for node in result.nodes] == ["wire", "wire"]


@pytest.mark.slow
def test_repeats_of_different_nodes_are_not_combined(over_ssh):
    over_ssh.plant(QUICK)
    first = over_ssh.measure(repeats=2)
    changed = first.nodes[1].model_copy(update={"differs": {"cpu": "another"}})
    nodes = [first.nodes[0], changed]
    forget_repeats(over_ssh.outputs / first.id, after=1, nodes=nodes)
    second = over_ssh.measure(repeats=2)
    assert second.failure.code == "nodes_differ"
    assert "-p label NAME" in second.failure.reason
    assert second.complete_repeats == first.repeats[:1]


@pytest.mark.slow
def test_each_node_resolves_the_interpreter_path_itself(new_environment, tmp_path):
    skip_if(ssh_missing())
    for number in (0, 1):
        new_environment(f"home{number}/own", h5py=f"0.0.{number}")
    with nodes_over_ssh(tmp_path, HOME=str(tmp_path / "home1")) as nodes:
        request = nodes.request(python="~/own/bin/python")
        result = nodes.result_of(nodes.start(request, HOME=str(tmp_path / "home0")))
    assert result.status == "complete", result.failure
    assert result.fact("h5py") == "0.0.0"
    assert result.nodes[1].differs == {"h5py": "0.0.1"}


@pytest.mark.slow
def test_ssh_leaves_no_connection_for_later_calls(over_ssh):
    """As the user's configuration may ask for."""
    path = over_ssh.ssh.client_config.with_name("%C")
    over_ssh.ssh.configure("ControlMaster auto", "ControlPersist 60", f"ControlPath {path}")
    over_ssh.plant(fake_training(0.5, later=0.5))
    assert over_ssh.measure().status == "complete"
    over_ssh.assert_nothing_left()


# A rank fails


@pytest.mark.parametrize(
    ("launcher", "fault", "code", "expected"),
    [
        ("over_ssh", "raise KeyError('planted')", "worker_error", "KeyError: 'planted'"),
        (
            "in_slurm",
            "os.kill(os.getpid(), signal.SIGKILL)",
            "worker_died",
            "without reporting an error",
        ),
    ],
    ids=["raises", "killed"],
)
@pytest.mark.slow
def test_a_failed_rank_ends_the_run_and_is_named_with_its_node(
    request, launcher, fault, code, expected
):
    nodes = request.getfixturevalue(launcher)
    nodes.plant(AT_BATCHES.format(fault=f"if rank == 1 and number == 2: {fault}"))
    failure = nodes.measure(measured_steps=400).failure
    assert failure.code == code, failure
    assert failure.reason.startswith(f"rank 1 on {nodes.names[1]}")
    assert expected in failure.reason
    nodes.assert_nothing_left()


@pytest.mark.slow
def test_a_hanging_rank_is_named_at_the_timeout_with_its_stack_in_the_log(over_ssh):
    over_ssh.plant(AT_BATCHES.format(fault="rank == 1 and number == 2 and time.sleep(1000)"))
    began = time.monotonic()
    result = over_ssh.measure(measured_steps=400, timeout=30)
    # Python's starts take 10 s, on a busy machine more.
    assert time.monotonic() - began < 90
    assert result.failure.code == "timeout"
    who = f"furthest behind: rank 1 on {over_ssh.names[1]} after step 1"
    assert who in result.failure.reason
    log = over_ssh.outputs / result.id / "logs" / "1-rank1.log"
    assert "sitecustomize.py" in log.read_text()
    over_ssh.assert_nothing_left()


# A node does not start


@pytest.mark.slow
def test_more_nodes_than_the_allocation_has_are_refused(in_slurm):
    output = in_slurm.start(in_slurm.request(nodes=5)).wait()
    assert "nodes: 5 requested, but this Slurm allocation has 4" in output
    assert not any(in_slurm.outputs.iterdir())


def test_a_node_that_refuses_ssh_is_named_with_the_reason(over_ssh):
    over_ssh.ssh.revoke_keys()
    failure = over_ssh.measure().failure
    assert failure.code == "node_lost"
    assert failure.reason.startswith(over_ssh.names[1])
    assert "Permission denied" in failure.reason
    over_ssh.assert_nothing_left()


@pytest.mark.slow
def test_a_node_that_does_not_answer_is_named_at_the_timeout(over_ssh):
    skip_if(namespaces_missing("nft"))
    over_ssh.namespaces.lose(1, 100)
    failure = over_ssh.measure(timeout=5).failure
    assert failure.code == "node_timeout"
    assert over_ssh.names[1] in failure.reason
    over_ssh.assert_nothing_left()


# Something fails during the second repeat; the first is kept


@pytest.fixture
def second_repeat(nodes):
    """A driver in the second of two repeats, for which a fake trainer takes minutes."""
    return begin_second_repeat(nodes)


def begin_second_repeat(nodes, code=THEN_MINUTES, **changes):
    """Start a driver and wait until both ranks are in the second repeat."""
    nodes.plant(code)
    driver = nodes.start(nodes.request(repeats=2, measured_steps=400, **changes))
    wait_for(nodes.in_second_repeat, 120)
    return driver


def failure_after(driver, nodes, seconds=60):
    """Wait until the driver ends by itself and return the failure of the second repeat."""
    finished = nodes.result().repeats[0]
    output = driver.wait(seconds)
    result = nodes.result()
    assert result.status == "partial", output
    assert result.repeats[0] == finished, output
    nodes.assert_nothing_left(0)
    return result.failure


def assert_second_node_lost(driver, nodes):
    failure = failure_after(driver, nodes)
    assert failure.code == "node_lost", failure
    assert failure.reason.startswith(nodes.names[1])
    assert "; the raw steps there are lost" in failure.reason


@pytest.mark.slow
def test_a_killed_node_program_ends_the_run_and_its_node_is_named(nodes, second_repeat):
    nodes.node_program().kill()
    assert_second_node_lost(second_repeat, nodes)
    nodes.assert_nothing_left()


@pytest.mark.slow
def test_a_killed_supervisor_of_workers_is_named_with_its_node(in_slurm):
    driver = begin_second_repeat(in_slurm)
    in_slurm.workers_supervisor().kill()
    failure = failure_after(driver, in_slurm)
    assert failure.code == "worker_died"
    assert failure.reason.startswith(f"{in_slurm.names[1]} lost its workers: signal 9")
    in_slurm.assert_nothing_left()


@pytest.mark.slow
def test_a_killed_launcher_ends_the_run_and_its_node_is_named(nodes, second_repeat):
    for process in nodes.processes(0):
        if process.name() in ("ssh", "srun"):
            process.kill()
    assert_second_node_lost(second_repeat, nodes)
    nodes.assert_nothing_left()


@pytest.mark.slow
def test_a_slurm_node_without_power_ends_the_run(in_slurm):
    driver = begin_second_repeat(in_slurm, THEN_TRAINING)
    in_slurm.cluster.kill_node("node2")
    failure = failure_after(driver, in_slurm)
    assert in_slurm.names[1] in failure.reason


@pytest.mark.slow
def test_a_cut_link_ends_the_run_and_the_other_node_at_its_time_limit(over_ssh):
    driver = begin_second_repeat(over_ssh, timeout=40)
    over_ssh.namespaces.cut()
    assert_second_node_lost(driver, over_ssh)
    over_ssh.assert_nothing_left(1, seconds=150)


@pytest.mark.slow
def test_a_one_way_link_ends_the_run(over_ssh):
    skip_if(namespaces_missing("nft"))
    driver = begin_second_repeat(over_ssh)
    over_ssh.namespaces.lose(1, 100)
    assert_second_node_lost(driver, over_ssh)


@pytest.mark.slow
def test_a_killed_driver_leaves_nothing_on_any_node(nodes, second_repeat):
    finished = nodes.result().repeats[0]
    second_repeat.process.kill()
    nodes.assert_nothing_left()
    assert nodes.result().repeats[0] == finished


@pytest.mark.slow
def test_an_interrupt_leaves_nothing_on_any_node(nodes, second_repeat):
    second_repeat.process.send_signal(signal.SIGINT)
    assert failure_after(second_repeat, nodes).code == "interrupted"
    nodes.assert_nothing_left()


# Slurm's GPUs

AS_GPU = f"""
import ctypes, os, sys
from pathlib import Path

ctypes.CDLL("LIBRARY")
if sys.orig_argv[1:4] == ["-P", "-m", "{NODE_PROGRAM}"]:
    names = ("CUDA_VISIBLE_DEVICES", "SLURM_CPUS_ON_NODE")
    Path(__file__).with_name("has").write_text(" ".join(os.environ[n] for n in names))
if "perfkit" in " ".join(sys.orig_argv):
    from perfkit.measuring.system import software

    read = software.constants
    cuda = dict.fromkeys(("cuda_version", "cudnn_version", "nccl_version"), "fake")
    software.constants = lambda name, file: read(name, file) | cuda
"""
"""Plants a note of a node program's GPUs and cores, a Paddle like a GPU build, and two GPUs, of
which CUDA_VISIBLE_DEVICES may hide one."""


@pytest.mark.slow
@pytest.mark.parametrize("option", ["--gres=gpu:2", "--gpus=4", "--gpus-per-task=2"])
def test_a_node_has_the_gpus_of_the_request_and_all_cores_of_its_allocation(
    tmp_path, option, nvml_library
):
    skip_if(slurm_missing())
    options = ("--ntasks-per-node", "1", option)
    with nodes_in_slurm(tmp_path, 2, gpus=2, options=options) as nodes:
        nodes.plant(AS_GPU.replace("LIBRARY", str(nvml_library)) + QUICK)
        request = nodes.request(device="gpu", gpus=1)
        # As a batch script with several tasks per node has it.
        nodes.start(request, SRUN_CPUS_PER_TASK="1").wait()
    assert (tmp_path / "planted" / "has").read_text() == "0 2"
