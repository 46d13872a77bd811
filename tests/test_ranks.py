"""Ranks of the training scripts train like one process on all samples: under Paddle's launcher,
torchrun, and perfkit's for JAX, over gloo."""

import json
import os
import shutil
import subprocess
import sys
from contextlib import contextmanager
from functools import partial
from pathlib import Path

import pytest
from filelock import FileLock

from perfkit.measuring.driver.workers import launcher_command
from perfkit.measuring.paths import ROOT
from perfkit.measuring.request.resolve import resolve
from perfkit.training.frameworks import FRAMEWORKS, NodeRank

pytestmark = [pytest.mark.slow, pytest.mark.timeout(600)]
SECONDS = 500
RANKS = 2
LLAMA = {"model": "llama"}
FULL = {"sharding": "full"} | LLAMA
CASES = {
    "paddle": {
        "vgg16-static-accumulate": {"model": "vgg16", "accumulate": 4, "execution": "static"},
        "vgg16-buckets": {"model": "vgg16", "strategy": "fleetx-fp32", "accumulate": 2},
        "bert-lamb-accumulate": {"model": "bert", "optimizer": "lamb", "accumulate": 2},
        "gpt": {"model": "gpt"},
        "llama-recompute": {"model": "llama", "recompute": "full"},
    },
    "torch": {
        "vgg16-accumulate": {"model": "vgg16", "accumulate": 2},
        "gpt": {"model": "gpt"},
        "llama-gradients": {"model": "llama", "sharding": "gradients"},
        "llama-full-accumulate": {"accumulate": 2} | FULL,
        "llama-full-recompute": {"recompute": "full"} | FULL,
    },
    # Fewer, because each is compiled for a long time.
    "jax": {
        "bert-accumulate": {"model": "bert", "accumulate": 2},
        "llama-gradients-recompute": {"sharding": "gradients", "recompute": "full"} | LLAMA,
        "llama-full-parts": FULL,
    },
}
"""Models without batch norm, whose statistics are local to each rank."""
EACH = [(framework, case) for framework in CASES for case in CASES[framework]]


@contextmanager
def supervised(folder, name, command):
    """Run `command`; all its processes have ended afterwards."""
    scratch = folder / name
    scratch.mkdir()
    supervisor = [
        sys.executable,
        "-m",
        "perfkit.measuring.driver.supervisor",
        str(scratch),
        "inf",
    ]
    env = {k: v for k, v in os.environ.items() if not k.startswith("PADDLE_")}
    path = f"{ROOT}:{Path(__file__).parent}"
    with (scratch / "log").open("wb") as log:
        process = subprocess.Popen(
            [*supervisor, *command],
            stdin=subprocess.PIPE,
            stdout=log,
            stderr=subprocess.STDOUT,
            env=env | {"OMP_NUM_THREADS": "1", "PYTHONPATH": path},
            start_new_session=True,
        )
        try:
            yield process
        finally:
            # Closing stdin tells the supervisor to end all remaining processes.
            process.stdin.close()
            process.wait()


@pytest.fixture(scope="module")
def trained(processes, tmp_path_factory):
    """Returns a folder with what the ranks of a framework have stored for every case, and what
    a single process has."""

    def folder_of(framework):
        pytest.importorskip(framework)
        make = partial(train, framework)
        return made_once(tmp_path_factory, f"ranks-{framework}", make)

    return folder_of


def made_once(factory, name, make):
    """Return a folder that `make` has filled, once in this run of the tests, whichever process
    has the first test that needs it: the tests of a module can be in several."""
    runs = factory.getbasetemp()
    if "PYTEST_XDIST_WORKER" in os.environ:
        runs = runs.parent
    folder = runs / name
    with FileLock(runs / f"{name}.lock"):
        if not folder.exists():
            unfinished = runs / f"{name}-unfinished"
            shutil.rmtree(unfinished, ignore_errors=True)
            unfinished.mkdir()
            make(unfinished)
            unfinished.rename(folder)
    return folder


def train(framework, folder):
    script = Path(__file__).with_name("rank_cases.py")
    cases = json.dumps(CASES[framework])
    run = [sys.executable, str(script), framework, cases, str(folder)]
    request = {"model": "llama", "framework": framework, "device": "cpu", "processes": RANKS}
    logs = folder / "together"
    command = launcher_command(resolve(request), NodeRank(), logs, "job", [*run, str(RANKS)])
    with (
        supervised(folder, "together", command) as together,
        supervised(folder, "alone", [*run, "1"]) as alone,
    ):
        statuses = [together.wait(SECONDS), alone.wait(SECONDS)]
    ends = [log.read_text()[-3000:] for log in folder.rglob("*log*") if log.is_file()]
    assert statuses == [0, 0], "\n".join(ends)


def stored(folder, case, rank=0, ranks=RANKS):
    return json.loads((folder / f"{case}-{rank}of{ranks}.json").read_text())


@pytest.mark.parametrize(("framework", "case"), EACH)
def test_ranks_train_like_one_process_on_the_joined_batch(trained, framework, case):
    folder = trained(framework)
    alone = stored(folder, case, ranks=1)["losses"]
    losses = [stored(folder, case, rank)["losses"] for rank in range(RANKS)]
    # Each rank has its own samples; the loss of all is the mean over the ranks.
    assert losses[0] != losses[1]
    means = [sum(of_step) / RANKS for of_step in zip(*losses, strict=True)]
    assert means == pytest.approx(alone, rel=1e-5)
    # The weights have changed.
    assert len({*alone}) == len(alone)


@pytest.mark.parametrize("framework", CASES)
def test_the_time_without_exchange_is_noted_unless_passes_exchange_weights(trained, framework):
    for case, given in CASES[framework].items():
        notes = stored(trained(framework), case)["notes"]
        assert ("compute_seconds" in notes) == ("sharding" not in given), case
        assert notes.get("compute_seconds", 1.0) > 0


def test_jaxs_ranks_hold_shares_of_the_weights(trained):
    settings = stored(trained("jax"), "llama-full-parts")["notes"]["settings"]
    assert settings["sharding"] == "20 of 20 arrays divided"


SUMS = '''
"""Exit with 1 if a mean of the ranks' gradients of 64 MiB is wrong."""

import jax
import numpy as np

from perfkit.training.jax import parallel
from perfkit.training.jax.parallel import WHOLE, held, local, placed, program
from perfkit.training.jax.sharding import gathered, spec_of
from perfkit.training.options import Options

options = Options.parse("jax", ["--model", "llama", "--device", "cpu"])
parallel.join(options)
mesh = parallel.mesh_of_ranks()
# All values and their sums are integers that float32 has.
slopes = np.arange(2**24, dtype=np.float32).reshape(4096, 4096)
share = placed(np.zeros_like(slopes), mesh, spec_of(0))
own_slopes = held(jax.numpy.asarray(2 * options.rank * slopes), mesh)
mean_of_share = np.split(slopes, 2)[options.rank]
assert local(share).shape == mean_of_share.shape


def gradient(share, slopes):
    def loss(share):
        return (gathered(share, 0, "float32") * slopes).sum()

    return jax.grad(loss)(share)


run = program(gradient, mesh, specs=(spec_of(0), WHOLE), results=spec_of(0))
for _repeat in range(40):
    assert np.array_equal(local(run(share, own_slopes)), mean_of_share)
'''


@pytest.mark.usefixtures("processes")
def test_jaxs_ranks_share_out_right_sums_of_large_gradients(tmp_path):
    """gloo's reduce-scatter gets some sums wrong, without an error (jax-ml/jax#40830)."""
    pytest.importorskip("jax")
    script = tmp_path / "sums.py"
    script.write_text(SUMS)
    request = {"model": "llama", "framework": "jax", "device": "cpu", "processes": RANKS}
    logs = tmp_path / "together"
    run = [sys.executable, str(script)]
    command = launcher_command(resolve(request), NodeRank(), logs, "job", run)
    with supervised(tmp_path, "together", command) as together:
        status = together.wait(SECONDS)
    ends = [log.read_text()[-3000:] for log in logs.glob("*log")]
    assert status == 0, "\n".join(ends)


@pytest.mark.parametrize("framework", CASES)
def test_rank_output_is_where_the_driver_expects_it(trained, framework):
    logs = trained(framework) / "together"
    pattern = FRAMEWORKS[framework].log_pattern
    for rank in range(RANKS):
        files = sorted(logs.glob(pattern.format(index=rank)))
        output = "".join(file.read_text() for file in files)
        assert f"this is rank {rank}\n" in output
