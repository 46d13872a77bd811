"""Sweeps that measure every configuration on each node of a fleet."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest
from conftest import SMALL, cli
from made.clusters import skip_if, slurm_cluster, slurm_missing

from perfkit.measuring.paths import ROOT
from perfkit.measuring.request import RequestError
from perfkit.measuring.request.plan import plan
from perfkit.measuring.results.store import read_result
from perfkit.sweep.jobs import read_jobs
from perfkit.sweep.nodes import Nodes, slurm_nodes
from perfkit.sweep.progress import print_failures
from perfkit.sweep.slurm import SlurmSweep
from perfkit.sweep.status import JobStatus, StoredResults

COMMAND = [str(Path(sys.executable).parent / "perfkit"), "sweep"]


@pytest.fixture
def fleet_file(tmp_path):
    """A sweep of two small configurations."""
    parameters = SMALL | {"input": "synthetic", "outputs_dir": str(tmp_path / "outputs")}
    del parameters["batch_size"]
    matrix = {"batch_size": [1, 2]}
    content = {"notebook": "resnet50", "protocol": "quick"}
    content |= {"parameters": parameters, "matrix": matrix}
    path = tmp_path / "fleet.yaml"
    path.write_text(json.dumps(content))
    return path


def measured(outputs):
    """Return node and batch size of the complete measurements."""
    pairs = []
    for path in outputs.glob("*/result.json"):
        result = read_result(path)
        if result.status == "complete":
            pairs.append((result.config.node, result.config.work.batch_size))
    return sorted(pairs)


def test_every_configuration_is_a_job_on_each_node_the_first_one_first(fleet_file):
    jobs = read_jobs(fleet_file, {}, elsewhere=True, each_node=["a", "b"])
    configs = [job.plan.config for job in jobs]
    assert [(config.work.batch_size, config.node) for config in configs] == [
        (1, "a"),
        (1, "b"),
        (2, "a"),
        (2, "b"),
    ]
    assert jobs[0].label == "batch_size 1, node a"
    assert len({job.digest for job in jobs}) == 4


def test_a_list_of_models_has_every_configuration():
    jobs = read_jobs(ROOT / "parameters" / "fleet.yaml", {}, elsewhere=True)
    labels = [job.label for job in jobs]
    assert labels == ["resnet50, gpus 1", "resnet50, gpus 8", "bert, gpus 1", "bert, gpus 8"]


def test_no_more_slurm_jobs_are_submitted_than_allowed(fleet_file, tmp_path, slurm_command):
    slurm_command("squeue", "true")
    slurm_command("sbatch", "echo 1")
    jobs = read_jobs(fleet_file, {}, elsewhere=True, each_node=["a", "b"])
    (tmp_path / "outputs" / "sweeps").mkdir(parents=True)
    stored = StoredResults(tmp_path / "outputs", elsewhere=True)
    before = [stored.before_run(job) for job in jobs]
    sweep = SlurmSweep(before, stored, [], most_jobs=3, notify=print)
    sweep.advance()
    assert len(sweep.followed) == 3


SINFO = """\
node1|all*|idle|none
node2|all*|alloc|none
node3|all*|down*|Not responding
node1|gpu|idle|none
node9|gpu|drain|broken fan"""


@pytest.fixture
def sinfo(slurm_command, tmp_path):
    """Replaces sinfo; the file with its arguments."""
    file = tmp_path / "words"
    slurm_command("sinfo", f"echo \"$@\" >{file}\ncat <<'END'\n{SINFO}\nEND")
    return file


@pytest.mark.usefixtures("sinfo")
def test_the_nodes_of_the_default_partition_are_measured_and_lost_ones_reported():
    nodes = slurm_nodes("all", [])
    assert nodes == Nodes(["node1", "node2"], ["node3 is down*: Not responding"])


def test_the_partition_of_sbatch_is_that_of_the_nodes(sinfo):
    slurm_nodes("all", ["-p", "gpu", "--time", "30"])
    assert "--partition gpu" in sinfo.read_text()


def test_a_named_node_that_slurm_does_not_have_is_reported(sinfo, slurm_command):
    """sinfo lists only those that exist."""
    slurm_command("scontrol", "echo node1; echo node7")
    nodes = slurm_nodes("node[1,7]", [])
    assert "--nodes node[1,7]" in sinfo.read_text()
    assert "node1" in nodes.names
    assert nodes.unusable[-1] == "node7 is no node of this cluster"


def test_without_a_cluster_the_program_is_named_once_and_where_to_start(
    fleet_file, slurm_command
):
    """Printed by Slurm 22.05 without a configuration."""
    lines = ["resolve_ctls_from_dns_srv: res_nsearch error: Unknown host", "no config"]
    printed = "\n".join(f"sinfo: error: {line}" for line in lines)
    slurm_command("sinfo", f"echo '{printed}' >&2; exit 1")
    done = cli("sweep", fleet_file, "--slurm", "--each-node")
    assert done.exit_code == 2
    assert (
        f"--each-node: sinfo: error: {lines[0]} error: {lines[1]}; start the sweep where "
        "Slurm's commands work, such as a login node"
    ) in " ".join(done.stderr.split())


def test_a_failed_job_is_told_with_the_node_on_which_to_repeat_it(fleet_file, capsys):
    job, *_others = read_jobs(fleet_file, {}, elsewhere=True, each_node=["node7"])
    print_failures([JobStatus(job, "failed", reason="out of memory")])
    _heading, line = capsys.readouterr().err.splitlines()
    assert line.startswith("  on node7: perfkit run resnet50 ")


@pytest.mark.parametrize(
    ("options", "problem"),
    [
        (["--each-node"], "without Slurm, type on one node after the other: perfkit sweep"),
        (["--sbatch", "--partition gpu"], "--sbatch and --jobs are only for --slurm"),
    ],
)
def test_options_of_a_sweep_on_slurm_need_slurm(fleet_file, options, problem):
    done = cli("sweep", fleet_file, *options)
    assert done.exit_code == 2
    assert problem in done.stderr


def test_a_node_of_a_fleet_is_measured_alone():
    with pytest.raises(RequestError, match="nodes: '2' is not for node=a"):
        plan("resnet50", {"device": "cpu", "nodes": 2, "launcher": "srun", "node": "a"})


def test_a_measurement_in_a_slurm_job_on_another_node_is_refused(monkeypatch):
    monkeypatch.setenv("SLURMD_NODENAME", "node2")
    request = {"device": "cpu", "input": "synthetic", "node": "node1"}
    with pytest.raises(RequestError, match="this Slurm job runs on node2; submit it with"):
        plan("resnet50", request)
    assert plan("resnet50", request | {"node": "node2"}).config.node == "node2"


@pytest.mark.slow
@pytest.mark.timeout(400)
@pytest.mark.usefixtures("processes")
def test_slurm_measures_each_node_that_is_up(fleet_file, tmp_path, monkeypatch):
    skip_if(slurm_missing())
    monkeypatch.delenv("TMPDIR", raising=False)
    words = [*COMMAND, str(fleet_file), "--slurm", "--each-node", "--jobs", "1"]
    words += ["-p", "batch_size", "1"]
    with slurm_cluster(3) as cluster:
        down = ["scontrol", "update", "NodeName=node2", "State=DOWN", "Reason=broken"]
        cluster.output(*down)
        environment = os.environ | cluster.environment
        done = subprocess.run(
            words, env=environment, capture_output=True, text=True, check=False
        )
    assert done.returncode == 0, done.stderr
    assert "left out: node2 is down: broken" in done.stderr
    assert measured(tmp_path / "outputs") == [("node1", 1), ("node3", 1)]
    fleet = cli("fleet", tmp_path / "outputs")
    printed = " ".join(fleet.stdout.split())
    none = "No workload was completed on at least three nodes. Node No measurement node1 "
    assert printed.startswith(none)
