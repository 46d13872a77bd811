"""Several ranks train as one process would on all their samples: Paddle's launcher and gloo."""

import json
import os
import subprocess
import sys
from contextlib import contextmanager

import numpy as np
import psutil
import pytest

RANKS = 2
STEPS = 3
SAMPLES = 8
"""Of each rank in a step."""
CASES = {
    "vgg16": {"model": "vgg16"},
    "vgg16-accumulate": {"model": "vgg16", "accumulate": 2},
    "vgg16-static-accumulate": {"model": "vgg16", "accumulate": 4, "execution": "static"},
    "vgg16-buckets": {"model": "vgg16", "strategy": "fleetx-fp32"},
    "bert": {"model": "bert"},
    "bert-static": {"model": "bert", "execution": "static"},
    "bert-lamb-accumulate": {"model": "bert", "optimizer": "lamb", "accumulate": 2},
}
"""Of models without batch norm, whose statistics are each rank's own."""

SCRIPT = '''
"""Train every case on this process's share of the samples and store the parameters."""

import json
import os
import sys

import numpy as np
import paddle

from perfkit.frameworks.paddle.backend import Trainer, as_tensors, open_device
from perfkit.request.resolve import resolve
from perfkit.inputs import synthetic
from perfkit.worker.loop import compute_seconds
from perfkit.models import MODELS, bert, vgg16

RANKS, STEPS, SAMPLES, CASES, FOLDER = json.loads(sys.argv[1])
rank = int(os.environ.get("PADDLE_TRAINER_ID", "0"))
ranks = int(os.environ.get("PADDLE_TRAINERS_NUM", "1"))

# As they are, only smaller; in float64, where rounding can't be taken for a difference.
bert.LAYERS, bert.WIDTH, bert.INNER, bert.HEADS, bert.VOCABULARY = 2, 32, 64, 4, 1100
vgg16.STAGES, vgg16.DENSE = ((8, 2), (16, 2), (16, 1)), 32
paddle.set_default_dtype("float64")


def config(case):
    """Of this process: one alone takes all samples of a step at once."""
    model = case["model"]
    values = {"device": "cpu", "processes": ranks, "optimizer": MODELS[model].optimizers[0]}
    images = {"image_size": 32, "layout": "NCHW"}
    values |= {"sequence_length": 16} if model == "bert" else images
    values |= case
    values |= {} if ranks > 1 else {"accumulate": 1}
    mine = RANKS * SAMPLES // ranks
    return resolve(values | {"batch_size": mine // values.get("accumulate", 1)})


def micro_batches(chosen, step):
    """Those of one step that are this process's."""
    everyone = chosen.model_copy(update={"batch_size": RANKS * SAMPLES, "seed": step})
    arrays = next(synthetic.batches(everyone, 0))
    arrays = [a.astype("float64") if a.dtype.kind == "f" else a for a in arrays]
    size = chosen.batch_size
    first = rank * chosen.samples_per_step
    for begin in range(first, first + chosen.samples_per_step, size):
        yield as_tensors(tuple(a[begin : begin + size] for a in arrays))


def parameters(trainer):
    return {name: p.numpy().copy() for name, p in trainer.network.named_parameters()}


device = open_device(config(CASES["vgg16"]))
for name, case in CASES.items():
    chosen = config(case)
    assert chosen.global_batch == RANKS * SAMPLES
    # Not one seed for all: ranks have to begin with the first one's parameters all the same.
    paddle.seed(rank)
    trainer = Trainer(chosen)
    for layer in trainer.network.sublayers():
        if isinstance(layer, paddle.nn.Dropout):
            layer.p = 0.0
    begun = parameters(trainer)
    losses = []
    for step in range(STEPS):
        batches = list(micro_batches(chosen, step))
        shares = [
            trainer.backward(batch, sync_gradients=number == chosen.accumulate)
            for number, batch in enumerate(batches, 1)
        ]
        trainer.update()
        losses.append(float(sum(shares)))
        if ranks > 1 and not step:
            # Between two steps: what it left behind would show in the next ones.
            before = parameters(trainer)
            compute_seconds(trainer, iter(batches * 3), device, accumulate=chosen.accumulate)
            after = parameters(trainer)
            assert all(np.array_equal(before[name], after[name]) for name in before)
    trained = parameters(trainer)
    assert all(value.dtype == np.float64 for value in trained.values())
    moved = max(np.abs(trained[name] - begun[name]).max() for name in trained)
    trainer.backward(batches[0], sync_gradients=False)
    own = max((p.grad.numpy() for p in trainer.network.parameters()), key=np.size)
    file = f"{FOLDER}/{name}-{rank}of{ranks}.npz"
    np.savez(file, losses=losses, moved=moved, own=own, **trained)
'''


@contextmanager
def supervised(folder, name, command):
    """Run `command`; nothing of it is left afterwards, however that ends."""
    scratch = folder / name
    scratch.mkdir()
    env = {k: v for k, v in os.environ.items() if not k.startswith("PADDLE_")}
    with (scratch / "log").open("wb") as log:
        process = subprocess.Popen(
            [sys.executable, "-m", "perfkit.driver.supervisor", str(scratch), "0", *command],
            stdin=subprocess.PIPE,
            stdout=log,
            stderr=subprocess.STDOUT,
            env=env | {"OMP_NUM_THREADS": "1"},
            start_new_session=True,
        )
        try:
            yield process
        finally:
            # This tells the supervisor to end all that still runs.
            process.stdin.close()
            process.wait()


@pytest.fixture(scope="module")
def folder(processes, tmp_path_factory):
    """A folder with what ranks together and one process alone came to in every case."""
    folder = tmp_path_factory.mktemp("parallel")
    script = folder / "train.py"
    script.write_text(SCRIPT)
    run = [str(script), json.dumps([RANKS, STEPS, SAMPLES, CASES, str(folder)])]
    launch = [sys.executable, "-m", "paddle.distributed.launch", "--log_dir"]
    launch += [str(folder / "together"), "--nproc_per_node", str(RANKS), *run]
    with (
        supervised(folder, "together", launch) as together,
        supervised(folder, "alone", [sys.executable, *run]) as alone,
    ):
        statuses = [process.wait(120) for process in (together, alone)]
    logs = [log.read_text()[-3000:] for log in folder.glob("*/*log*") if log.is_file()]
    assert statuses == [0, 0], "\n".join(logs)
    return folder


def stored(folder, case, rank=0, ranks=RANKS):
    with np.load(folder / f"{case}-{rank}of{ranks}.npz") as arrays:
        return dict(arrays)


@pytest.mark.parametrize("case", CASES)
def test_all_ranks_end_with_the_same_parameters_from_different_samples(folder, case):
    one, other = (stored(folder, case, rank) for rank in range(RANKS))
    assert not np.array_equal(one.pop("losses"), other.pop("losses"))
    assert one.pop("moved") == other.pop("moved") > 1e-6
    # Gradients that were not exchanged are each rank's own.
    assert not np.allclose(one.pop("own"), other.pop("own"))
    assert one.keys() == other.keys()
    for name in one:
        assert np.array_equal(one[name], other[name]), name


@pytest.mark.parametrize("case", CASES)
def test_ranks_train_as_one_process_does_on_the_joined_batch(folder, case):
    together = [stored(folder, case, rank) for rank in range(RANKS)]
    alone = stored(folder, case, ranks=1)
    # What one sees as its loss is the mean over the ranks, micro-batches joined.
    mean = sum(rank.pop("losses") for rank in together) / RANKS
    assert mean == pytest.approx(alone.pop("losses"), rel=1e-9)
    del alone["moved"], alone["own"]
    for name, expected in alone.items():
        assert np.allclose(together[0][name], expected, rtol=1e-9, atol=1e-12), name


def test_no_process_is_left(folder):
    lines = (process.info["cmdline"] or [] for process in psutil.process_iter(["cmdline"]))
    assert not [line for line in lines if str(folder) in " ".join(line)]
