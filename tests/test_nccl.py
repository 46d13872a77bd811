"""How NCCL connected the ranks, from logs in the formats of its versions."""

import os
import time
from pathlib import Path

import pytest
from accelerator.fake import measured
from made import measured as made_result
from made import script_measured
from several_nodes import NODE_PROGRAM, fake_training

from perfkit.analysis.comparison.keys import differing, may_differ
from perfkit.analysis.warnings import warnings_of
from perfkit.core.request.resolve import resolve
from perfkit.core.results.schema import Nccl
from perfkit.core.results.store import Measurement
from perfkit.core.system import nccl
from perfkit.core.system.nccl import merged, parse, read_logs
from perfkit.report.setup import effective_settings

PREFIX = "box-a:101:107 [0] NCCL INFO "
INFINIBAND = """\
NCCL version 2.18.3+cuda12.1
NET/IB : Using [0]mlx5_0:1/IB [1]mlx5_1:1/RoCE [RO]; OOB eno1:192.0.2.7<0>
Using network IB
comm 0x10 rank 0 nranks 4 cudaDev 0 nvmlDev 0 busId 1b000 commId 0x7 - Init START
NVLS multicast support is available on dev 0
Channel 00/16 :    0   1   3   2
Trees [0] 1/-1/-1->0->-1
Channel 00/0 : 0[0] -> 1[1] via P2P/CUMEM/read
Channel 01/0 : 0[0] -> 1[1] via P2P/CUMEM/read
Channel 00/0 : 3[1] -> 0[0] [receive] via NET/IB/1/GDRDMA
Channel 00/0 : 1[1] -> 3[1] [send] via NET/IB/0(0)/GDRDMA
Channel 01/0 : 1[1] -> 3[1] [send] via NET/IB/1/GDRDMA
Channel 02 : 1[1] -> 0[0] via SHM/direct/direct
Connected all rings
Connected all trees
24 coll channels, 0 collnet channels, 16 nvls channels, 32 p2p channels
comm 0x10 rank 0 nranks 4 cudaDev 0 nvmlDev 0 busId 1b000 commId 0x7 - Init COMPLETE"""
SOCKETS = """\
NCCL version 2.28.9+cuda13.0
NET/IB : No device found.
NET/Socket : Using [0]eth0:192.0.2.7<0> [1]bond0.7:fd00::7%bond0.7<0>
Using network Socket
NVLS multicast support is not available on dev 0
Channel 00/0 : 0[0] -> 1[1] via P2P/IPC
Channel 00/0 : 1[1] -> 2[0] [send] via NET/Socket/0
NET/Socket: Using 2 threads and 8 sockets per thread
Connected all rings, use ring PXN 0 GDR 0"""
LIBFABRIC = """\
NCCL version 2.27.5+cuda12.9
NET/OFI Selected provider is efa, fabric is efa (found 4 nics)
Using network AWS Libfabric
Channel 00/0 : 0[0] -> 2[0] [send] via NET/AWS Libfabric/3/GDRDMA(PCI)
Channel 00/0 : 0[0] -> 1[1] via P2P/indirect/3[3]
Channel 00/0 : 1[1] -> 3[1] via P2P/MNNVL
Connected NVLS tree"""
"""Logs of one process each, with two devices to a node; lines without NCCL's prefix."""


def lines_of(log):
    return [f"{PREFIX}{line}" for line in log.splitlines()]


def write_log(folder, log, name="nccl-box-a-101.txt"):
    (folder / name).write_text("\n".join(lines_of(log)) + "\n")


def config(**changes):
    return resolve({"model": "resnet50", "device": "gpu", "gpus": 2} | changes)


@pytest.fixture
def no_settings(monkeypatch):
    """No variable of NCCL's log is set."""
    for name in list(os.environ):
        if name.startswith("NCCL_DEBUG"):
            monkeypatch.delenv(name)


@pytest.mark.parametrize(
    ("log", "choice"),
    [
        (
            INFINIBAND,
            Nccl(
                version="2.18.3+cuda12.1",
                network="IB",
                adapters=["mlx5_0:1/IB", "mlx5_1:1/RoCE"],
                between_devices={"P2P/CUMEM/read": 1, "SHM/direct/direct": 1},
                between_nodes={"NET/IB/GDRDMA": 1},
                connected=["rings", "trees"],
                multicast=True,
            ),
        ),
        (
            SOCKETS,
            Nccl(
                version="2.28.9+cuda13.0",
                network="Socket",
                adapters=["bond0.7", "eth0"],
                between_devices={"P2P/IPC": 1},
                between_nodes={"NET/Socket": 1},
                connected=["rings"],
                multicast=False,
            ),
        ),
        (
            LIBFABRIC,
            Nccl(
                version="2.27.5+cuda12.9",
                network="AWS Libfabric",
                between_devices={"P2P/indirect": 1},
                between_nodes={"NET/AWS Libfabric/GDRDMA(PCI)": 1, "P2P/MNNVL": 1},
                connected=["NVLS tree"],
            ),
        ),
    ],
    ids=["infiniband", "sockets", "libfabric"],
)
def test_a_log_tells_network_adapters_and_transports(log, choice):
    assert parse(lines_of(log), devices=2) == choice


def test_no_address_or_host_name_of_a_log_is_kept():
    for log in (INFINIBAND, SOCKETS):
        stored = parse(lines_of(log), devices=2).model_dump_json()
        for secret in ("192.0.2.7", "fd00", "box-a", "0x10"):
            assert secret not in stored


def test_the_logs_of_all_processes_of_a_node_are_read(tmp_path):
    write_log(tmp_path, INFINIBAND)
    second = "Channel 00/0 : 2[0] -> 3[1] via P2P/IPC"
    write_log(tmp_path, second, "nccl-box-a-102.txt")
    write_log(tmp_path, "Using network Socket", "other.txt")
    choice = read_logs(tmp_path, devices=2)
    assert choice.network == "IB"
    assert choice.between_devices["P2P/IPC"] == 1
    assert read_logs(tmp_path / "none", devices=2) is None


def test_the_nodes_of_a_measurement_are_added_up():
    first, second = (
        parse(lines_of(SOCKETS), 2),
        parse(lines_of(SOCKETS.replace("eth0", "ib0")), 2),
    )
    together = merged([first, second])
    assert together.adapters == ["bond0.7", "eth0", "ib0"]
    assert together.between_nodes == {"NET/Socket": 2}
    assert (together.network, together.multicast) == ("Socket", False)
    assert merged([]) is None


@pytest.mark.parametrize(
    "text",
    [
        "\0" * 5000,
        "Using network " + "x" * 10**6,
        "NET/IB : Using " + "[0]" * 10**5,
        "Channel 00/0 : 1[1] -> " + "9" * 10**6 + "[1] via P2P/IPC",
        "NCCL version " + "9." * 10**5,
    ],
)
def test_a_broken_log_is_read_within_limits(tmp_path, text):
    (tmp_path / "nccl-a-1.txt").write_text(f"{text}\n" * 3)
    began = time.monotonic()
    choice = read_logs(tmp_path, devices=2)
    assert time.monotonic() - began < 1
    assert len(choice.model_dump_json()) < 4000


def test_a_flood_of_names_is_cut(tmp_path):
    channels = [f"Channel 0/0 : 0[0] -> 1[1] via P2P/X{n}" for n in range(1000)]
    adapters = [f"NET/IB : Using [0]mlx5_{n}:1/IB" for n in range(1000)]
    write_log(tmp_path, "\n".join(channels + adapters))
    choice = read_logs(tmp_path, devices=2)
    assert len(choice.between_devices) == len(choice.adapters) == nccl.MOST_NAMES


def test_nccl_logs_into_the_scratch_folder(tmp_path, no_settings):
    settings = nccl.log_settings(config(), tmp_path / "100%")
    assert settings == {
        "NCCL_DEBUG": "INFO",
        # NCCL reads %% as a percent sign.
        "NCCL_DEBUG_FILE": f"{tmp_path}/100%%/nccl-%h-%p.txt",
    }


@pytest.mark.parametrize("changes", [{"gpus": 1}, {"device": "cpu", "gpus": 0, "processes": 2}])
def test_without_nccl_there_is_no_log(tmp_path, no_settings, changes):
    assert nccl.log_settings(config(**changes), tmp_path) == {}


@pytest.mark.parametrize("name", ["NCCL_DEBUG", "NCCL_DEBUG_FILE", "NCCL_DEBUG_SUBSYS"])
def test_the_users_own_settings_of_the_log_are_kept(tmp_path, monkeypatch, no_settings, name):
    """With a subsystem such as COLL, INFO would log each collective of the window."""
    monkeypatch.setenv(name, "chosen")
    assert nccl.log_settings(config(), tmp_path) == {}


# From the workers to the page

WRITE_LOG = """
import os, socket
pattern = os.environ["NCCL_DEBUG_FILE"]
assert os.environ["NCCL_DEBUG"] == "INFO"
name = pattern.replace("%h", socket.gethostname()).replace("%p", str(os.getpid()))
with open(name, "w") as log:
    log.write(LINES)
if os.environ.get("WRITTEN"):
    with open(os.environ["WRITTEN"], "a") as written:
        print(name, file=written)
"""
"""Writes LINES as NCCL does, into the log that the environment names, and the log's path into
the file WRITTEN."""


def writing(log):
    """Return code that writes this log as NCCL does."""
    lines = "\n".join(lines_of(log)) + "\n"
    return WRITE_LOG.replace("LINES", repr(lines))


@pytest.mark.slow
def test_what_nccl_logs_in_the_workers_is_stored(plugin, tmp_path, no_settings):
    fault = tmp_path / "write.py"
    fault.write_text(writing("Using network Socket\nChannel 00/0 : 0[0] -> 1[1] via P2P/IPC"))
    request = {"batch_size": 2, "image_size": 32, "input": "synthetic", "repeats": 1}
    request |= {"warmup_steps": 1, "measured_steps": 3, "timeout": 200, "gpus": 2}
    outputs = tmp_path / "outputs"
    written = tmp_path / "written"
    variables = {"FAKE_FAULT": str(fault), "WRITTEN": str(written)}
    done, result = measured(plugin, "gpu", request, outputs, **variables)
    assert done.returncode == 0, done.stderr
    choice = result.effective.nccl
    assert choice == Nccl(network="Socket", between_devices={"P2P/IPC": 1})
    logs = [Path(line) for line in written.read_text().splitlines()]
    assert logs
    assert not any(log.parent.exists() for log in logs)


ON_NODES = f"""
import sys
if "fake_trainer.py" in " ".join(sys.orig_argv):
    from pathlib import Path
    exec(Path(__file__).with_name("write.py").read_text())
if sys.orig_argv[1:2] == ["-c"] or sys.orig_argv[1:4] == ["-P", "-m", "{NODE_PROGRAM}"]:
    from perfkit.core.system import nccl

    def log_settings(config, scratch):
        return {{"NCCL_DEBUG": "INFO", "NCCL_DEBUG_FILE": f"{{scratch}}/nccl-%h-%p.txt"}}

    nccl.log_settings = log_settings
"""
"""Gives CPU workers the variables of GPU workers, and writes the log in the fake trainer."""


def test_the_logs_of_all_nodes_are_stored(over_ssh):
    (over_ssh.folder / "planted" / "write.py").write_text(
        writing(
            "NET/Socket : Using [0]wire:192.0.2.7<0>\n"
            "Channel 00/0 : 0[0] -> 1[0] [send] via NET/Socket/0"
        )
    )
    over_ssh.plant(fake_training(0.5, 0.5) + ON_NODES)
    result = over_ssh.measure()
    assert result.status == "complete", result.failure
    choice = result.effective.nccl
    # Each node's process has written the same channel.
    assert choice == Nccl(adapters=["wire"], between_nodes={"NET/Socket": 2})
    assert "nccl_over_sockets" in [warning.code for warning in warnings_of(result, [])]


def with_nccl(choice, **parameters):
    """Return a measurement on GPUs whose ranks NCCL connected so."""
    result = made_result([100.0, 100.1], device="gpu", gpus=2, **parameters)
    effective = result.effective.model_copy(update={"nccl": choice})
    return result.model_copy(update={"effective": effective})


@pytest.mark.parametrize(
    ("choice", "warned"),
    [
        (Nccl(network="Socket", adapters=["eth0"], between_nodes={"NET/Socket": 2}), True),
        (Nccl(network="IB", between_nodes={"NET/IB/GDRDMA": 2}), False),
        # NCCL names a network on a single node too.
        (Nccl(network="Socket", between_devices={"P2P/IPC": 2}), False),
        (None, False),
    ],
)
def test_nodes_connected_over_sockets_are_warned_of(choice, warned):
    codes = [warning.code for warning in warnings_of(with_nccl(choice, nodes=2), [])]
    assert ("nccl_over_sockets" in codes) == warned


def test_what_nccl_did_for_a_script_is_compared_shown_and_warned_of(tmp_path):
    choice = Nccl(network="Socket", adapters=["eth0"], between_nodes={"NET/Socket": 2})
    hosts = {"nodes": 2, "launcher": "ssh", "hosts": "a,b"}
    result = script_measured([100.0], **hosts).model_copy(update={"nccl": choice})
    assert "nccl_over_sockets" in [warning.code for warning in warnings_of(result, [])]
    measurement = Measurement(tmp_path, result)
    assert may_differ(measurement)["nccl.transports"] == "NET/Socket"
    assert "NET/Socket 2" in effective_settings(measurement).html


def test_a_comparison_lists_other_transports(tmp_path):
    """Such as SHM, because a device lost peer-to-peer access to its neighbour."""
    direct = Nccl(network="IB", between_devices={"P2P/IPC": 2})
    by_memory = Nccl(network="IB", between_devices={"P2P/IPC": 1, "SHM/direct": 1})
    a, b = [
        may_differ(Measurement(tmp_path, with_nccl(choice))) for choice in (direct, by_memory)
    ]
    assert differing(a, b) == {"nccl.transports": ("P2P/IPC", "P2P/IPC, SHM/direct")}


def test_the_page_shows_network_and_transports(tmp_path):
    choice = parse(lines_of(INFINIBAND), devices=2)
    page = effective_settings(Measurement(tmp_path, with_nccl(choice, nodes=2))).html
    for text in ("mlx5_1:1/RoCE", "P2P/CUMEM/read 1; SHM/direct/direct 1", "NET/IB/GDRDMA 1"):
        assert text in page
    unknown = effective_settings(Measurement(tmp_path, with_nccl(None))).html
    assert "NCCL" not in unknown
