"""The network over which NCCL connects nodes, from its log to the page."""

import os

import pytest
from made.clusters import NODE_PROGRAM, fake_training
from made.results import measured, warnings_of

from perfkit.analysis.comparison.keys import may_differ
from perfkit.measuring.request.resolve import resolve
from perfkit.measuring.results.store import Measurement
from perfkit.measuring.system import nccl
from perfkit.report.setup import effective_settings

TWO_NODES = {"nodes": 2, "launcher": "ssh", "hosts": "a,b"}
PREFIX = "box-a:101:107 [0] NCCL INFO "
INFINIBAND = f"""\
{PREFIX}NCCL version 2.18.3+cuda12.1
{PREFIX}NET/IB : Using [0]mlx5_0:1/IB [1]mlx5_1:1/RoCE [RO]; OOB eno1:192.0.2.7<0>
{PREFIX}Using network IB
{PREFIX}comm 0x10 rank 0 nranks 4 cudaDev 0 nvmlDev 0 busId 1b000 commId 0x7 - Init START
"""
SOCKETS = f"""\
{PREFIX}NET/IB : No device found.
{PREFIX}NET/Socket : Using [0]eth0:192.0.2.7<0> [1]bond0.7:fd00::7%bond0.7<0>
{PREFIX}Using network Socket
{PREFIX}NET/Socket: Using 2 threads and 8 sockets per thread
"""
LIBFABRIC = f"""\
{PREFIX}NET/OFI Selected provider is efa, fabric is efa (found 4 nics)
{PREFIX}Using network AWS Libfabric
"""


def config(**changes):
    request = {"model": "resnet50", "device": "gpu", "gpus": 2}
    return resolve(request | TWO_NODES | changes)


@pytest.fixture
def no_settings(monkeypatch):
    """No variable of NCCL's log is set."""
    for name in list(os.environ):
        if name.startswith("NCCL_DEBUG"):
            monkeypatch.delenv(name)


@pytest.mark.parametrize(
    ("log", "network"),
    [
        (INFINIBAND, "IB"),
        (SOCKETS, "Socket"),
        (LIBFABRIC, "AWS Libfabric"),
        (f"{PREFIX}Bootstrap : Using eth0", None),
    ],
    ids=["infiniband", "sockets", "libfabric", "none"],
)
def test_a_log_names_the_network(tmp_path, log, network):
    (tmp_path / "nccl-box-a-100.txt").write_text("")
    (tmp_path / "nccl-box-a-101.txt").write_text(log)
    assert nccl.network(tmp_path) == network


def test_nccl_logs_into_the_scratch_folder(tmp_path, no_settings):
    settings = nccl.log_settings(config(), tmp_path / "100%")
    assert settings == {
        "NCCL_DEBUG": "INFO",
        # NCCL reads %% as a percent sign.
        "NCCL_DEBUG_FILE": f"{tmp_path}/100%%/nccl-%h-%p.txt",
    }


@pytest.mark.parametrize(
    "changes",
    [{"nodes": 1, "launcher": None, "hosts": None}, {"device": "cpu", "gpus": 0}],
    ids=["one node", "cpu"],
)
def test_where_nccl_connects_no_nodes_there_is_no_log(tmp_path, no_settings, changes):
    assert nccl.log_settings(config(**changes), tmp_path) == {}


def test_the_users_own_settings_of_the_log_are_kept(tmp_path, monkeypatch, no_settings):
    """With the subsystem COLL, INFO would log each collective of the window."""
    monkeypatch.setenv("NCCL_DEBUG_SUBSYS", "COLL")
    assert nccl.log_settings(config(), tmp_path) == {}


ON_NODES = f"""
import os, socket, sys
if "fake_trainer.py" in " ".join(sys.orig_argv):
    pattern = os.environ["NCCL_DEBUG_FILE"]
    name = pattern.replace("%h", socket.gethostname()).replace("%p", str(os.getpid()))
    with open(name, "w") as log:
        log.write({SOCKETS!r})
if sys.orig_argv[1:2] == ["-c"] or sys.orig_argv[1:4] == ["-P", "-m", "{NODE_PROGRAM}"]:
    from perfkit.measuring.system import nccl

    def log_settings(config, scratch):
        return {{"NCCL_DEBUG": "INFO", "NCCL_DEBUG_FILE": f"{{scratch}}/nccl-%h-%p.txt"}}

    nccl.log_settings = log_settings
"""
"""Gives CPU workers the variables of GPU workers, and writes the log in the fake trainer."""


@pytest.mark.slow
def test_the_network_in_the_logs_of_the_nodes_is_stored(over_ssh):
    over_ssh.plant(fake_training(0.5, 0.5) + ON_NODES)
    result = over_ssh.measure()
    assert result.status == "complete", result.failure
    assert result.nccl_network == "Socket"


@pytest.mark.parametrize("network", ["Socket", "IB", None])
def test_the_network_is_compared_shown_and_if_it_is_sockets_warned_of(tmp_path, network):
    result = measured([100.0], **TWO_NODES).model_copy(update={"nccl_network": network})
    measurement = Measurement(tmp_path, result)
    codes = [warning.code for warning in warnings_of(result)]
    assert ("nccl_over_sockets" in codes) == (network == "Socket")
    assert may_differ(measurement).get("nccl_network") == network
    page = effective_settings(measurement).html
    assert ("Network that NCCL chose" in page) == (network is not None)
