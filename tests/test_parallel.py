"""JAX's ranks train like one process on all samples, over gloo. Paddle's and PyTorch's are in
test_ranks.py."""

import json
import os
import subprocess
import sys
from contextlib import contextmanager
from functools import partial
from pathlib import Path

import numpy as np
import pytest
from made_once import made_once

from perfkit.core.driver.workers import launcher_command
from perfkit.core.request.resolve import resolve
from perfkit.training.frameworks import FRAMEWORKS, NodeRank

pytestmark = [pytest.mark.slow, pytest.mark.timeout(600)]
SECONDS = 500
"""Limit of all trainings of a framework, or of one with large gradients. Its first test takes a
minute of two cores for JAX, longer if other tests run beside it."""
RANKS, STEPS, SAMPLES = 2, 3, 16
"""SAMPLES: of all ranks per step."""
GRADIENTS, FULL = {"sharding": "gradients"}, {"sharding": "full"}
SHARDED = {
    "llama-gradients": {"model": "llama"} | GRADIENTS,
    "llama-gradients-recompute": {"model": "llama", "recompute": "full"} | GRADIENTS,
    "llama-full": {"model": "llama"} | FULL,
    "llama-full-accumulate": {"model": "llama", "accumulate": 2} | FULL,
    "llama-full-parts": {"model": "llama"} | FULL,
    "llama-full-recompute": {"model": "llama", "recompute": "full"} | FULL,
}
SHARDED_JAX = ("llama-full-accumulate", "llama-full-parts", "llama-gradients-recompute")
CASES = {
    "jax": {
        "gpt": {"model": "gpt"},
        "bert-accumulate": {"model": "bert", "accumulate": 2},
        "llama-parts": {"model": "llama"},
        # Fewer, because each is compiled for a long time.
        **{case: SHARDED[case] for case in SHARDED_JAX},
    },
}
"""Models without batch norm, whose statistics are local to each rank. In cases whose name ends
with `parts`, the loss is computed in parts of the rows."""
EACH = [(framework, case) for framework in CASES for case in CASES[framework]]

SCRIPT = '''
"""Train every case on this process's share of the samples and store the parameters."""

import json
import os
import sys

import numpy as np

TESTS, FRAMEWORK, RANKS, STEPS, SAMPLES, CASES, FOLDER = json.loads(sys.argv[1])
sys.path.insert(0, TESTS)
from sides import side_of

from perfkit.core.frameworks import networks
from perfkit.training.frameworks import FRAMEWORKS
from perfkit.core.frameworks.dimensions import bert, gpt, llama, vgg16
from perfkit.training import models
from perfkit.core.worker.loop import compute_seconds

together = sys.argv[2] == "together"
rank = int(os.environ.get(FRAMEWORKS[FRAMEWORK].rank_variable, "0"))
ranks = RANKS if together else 1
print("this is rank", rank, flush=True)
side, framework = side_of(FRAMEWORK), sys.modules[FRAMEWORK]
seeds = {"paddle": "seed", "torch": "manual_seed"}

# Smaller models in float64, so that rounding does not look like a difference.
bert.LAYERS, bert.WIDTH, bert.INNER, bert.HEADS = 2, 32, 128, 4
models.BERT_SIZE = models.BertSize(2, 32, 4, 1100)
for facts in (bert, gpt, llama):
    facts.VOCABULARY = 1100
models.END_OF_TEXT = 1100
gpt.SIZES["124M"] = gpt.Size(2, 32, 4, 128, 6e-4)
models.GPT_SIZES["124M"] = models.GptSize(2, 32, 4, 1100)
llama.SIZES["tiny"] = llama.Size(2, 32, 4, 2, 64, is_tied=True)
models.LLAMA_SIZES["tiny"] = models.LlamaSize(*llama.SIZES["tiny"], vocabulary=1100)
vgg16.STAGES, vgg16.DENSE = ((8, 2), (16, 2), (16, 1)), 32
side.backend.enable_float64()
ROWS, ROWS_OF_PARTS = networks.LOSS_ROWS, 48


def config(case):
    """Return this process's configuration; a single process takes all samples at once."""
    case = {"accumulate": 1} | case | {"processes": ranks}
    if not together:
        case |= {"accumulate": 1, "sharding": "none"}
    return side.config(**case, batch_size=SAMPLES // ranks // case["accumulate"])


def micro_batches(chosen, step):
    """Yield this process's micro-batches of one step."""
    arrays = side.arrays(chosen.model, size=SAMPLES, dtype="float64", seed=step)
    first = rank * chosen.samples_per_step
    for begin in range(first, first + chosen.samples_per_step, chosen.batch_size):
        end = begin + chosen.batch_size
        yield side.tensors(tuple(array[begin:end] for array in arrays))


def values_held(inspector):
    """Return how many values of the parameters this process has."""
    count = 0
    for _name, parameter in inspector.named_parameters():
        if hasattr(parameter, "to_local"):
            parameter = parameter.to_local()
        elif hasattr(parameter, "addressable_data"):
            parameter = parameter.addressable_data(0)
        count += np.prod(parameter.shape)
    return count


device = side.backend.open_device(config({"model": "llama"}))
for name, case in CASES.items():
    chosen = config(case)
    assert chosen.global_batch == SAMPLES
    networks.LOSS_ROWS = ROWS_OF_PARTS if name.endswith("parts") else ROWS
    if FRAMEWORK in seeds:
        # All ranks must still start from rank 0's parameters. JAX has no seed of its own.
        getattr(framework, seeds[FRAMEWORK])(rank)
    trainer = side.backend.Trainer(chosen)
    inspector = side.backend.Inspector(trainer)
    inspector.disable_dropout()
    begun = inspector.weights()
    losses = []
    for step in range(STEPS):
        batches = list(micro_batches(chosen, step))
        loss = 0.0
        for number, batch in enumerate(batches, 1):
            is_last = number == chosen.accumulate
            loss += float(trainer.backward(batch, sync_gradients=is_last))
        trainer.update()
        losses.append(loss)
        if ranks > 1 and not step:
            # Called between two steps: any side effect would show in the next ones.
            before = inspector.weights()
            compute_seconds(trainer, iter(batches * 3), device, accumulate=chosen.accumulate)
            after = inspector.weights()
            assert all(np.array_equal(before[name], after[name]) for name in before)
    trained = inspector.weights()
    assert all(value.dtype == np.float64 for value in trained.values())
    moved = max(np.abs(trained[name] - begun[name]).max() for name in trained)
    # Not exchanged, so that each rank has gradients of its own.
    trainer.backward(batches[0], sync_gradients=False)
    gradient = max(inspector.gradients().values(), key=np.size)
    trainer.zero_grad()
    held = values_held(inspector)
    file = f"{FOLDER}/{name}-{rank}of{ranks}.npz"
    np.savez(file, losses=losses, moved=moved, gradient=gradient, held=held, **trained)
'''

SUMS = '''
"""Exit with 1 if a mean of the ranks' gradients of 64 MiB is wrong."""

import json
import sys

import jax
import numpy as np

from perfkit.core.frameworks.jax import backend
from perfkit.core.frameworks.jax.parallel import REPLICATED, Ranks, this_rank
from perfkit.core.frameworks.jax.sharding import gathered
from perfkit.core.request.resolve import resolve

backend.open_device(resolve(json.loads(sys.argv[1])))
ranks = Ranks()
# All values and their sums are integers that float32 has.
slopes = np.arange(2**24, dtype=np.float32).reshape(4096, 4096)
spec = ranks.share_spec(slopes.shape)
share = ranks.shared_out(np.zeros_like(slopes), np.float32)
own_slopes = ranks.held(jax.numpy.asarray(2 * this_rank() * slopes))
mean_of_share = np.split(slopes, 2)[this_rank()]


def gradient(share, slopes):
    def loss(share):
        return (gathered(share, 0, "float32") * slopes).sum()

    return jax.grad(loss)(share)


program = jax.jit(ranks.on_each(gradient, (spec, REPLICATED), results=spec))
for _repeat in range(40):
    mean = program(share, own_slopes).addressable_data(0)
    assert np.array_equal(mean, mean_of_share)
'''


@contextmanager
def supervised(folder, name, command):
    """Run `command`; all its processes have ended afterwards."""
    scratch = folder / name
    scratch.mkdir()
    supervisor = [sys.executable, "-m", "perfkit.core.driver.supervisor", str(scratch), "inf"]
    env = {k: v for k, v in os.environ.items() if not k.startswith("PADDLE_")}
    with (scratch / "log").open("wb") as log:
        process = subprocess.Popen(
            [*supervisor, *command],
            stdin=subprocess.PIPE,
            stdout=log,
            stderr=subprocess.STDOUT,
            env=env | {"OMP_NUM_THREADS": "1"},
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
    """Returns a folder with a framework's results of every case: of ranks together and of a
    single process."""

    def folder_of(framework):
        pytest.importorskip(framework)
        make = partial(train, framework)
        return made_once(tmp_path_factory, f"parallel-{framework}", make)

    return folder_of


def train(framework, folder):
    script = folder / "train.py"
    script.write_text(SCRIPT)
    tests = str(Path(__file__).parent)
    sizes = [RANKS, STEPS, SAMPLES]
    values = json.dumps([tests, framework, *sizes, CASES[framework], str(folder)])
    run = [sys.executable, str(script), values]
    request = {"model": "llama", "framework": framework, "device": "cpu", "processes": RANKS}
    config = resolve(request)
    logs = folder / "together"
    command = launcher_command(config, NodeRank(), logs, "job", [*run, "together"])
    with (
        supervised(folder, "together", command) as together,
        supervised(folder, "alone", [*run, "alone"]) as alone,
    ):
        statuses = [together.wait(SECONDS), alone.wait(SECONDS)]
    ends = [log.read_text()[-3000:] for log in folder.rglob("*log*") if log.is_file()]
    assert statuses == [0, 0], "\n".join(ends)


def stored(folder, case, rank=0, ranks=RANKS):
    with np.load(folder / f"{case}-{rank}of{ranks}.npz") as arrays:
        return dict(arrays)


@pytest.mark.parametrize(("framework", "case"), EACH)
def test_ranks_train_like_one_process_on_the_joined_batch(trained, framework, case):
    folder = trained(framework)
    first = stored(folder, case, rank=0)
    second = stored(folder, case, rank=1)
    alone = stored(folder, case, ranks=1)
    # The single process's loss is the mean over ranks, with micro-batches joined.
    losses = first.pop("losses"), second.pop("losses")
    assert not np.array_equal(*losses)
    assert sum(losses) / RANKS == pytest.approx(alone.pop("losses"), rel=1e-9)
    assert first.pop("moved") == second.pop("moved") > 1e-6
    # Gradients that were not exchanged differ between ranks; those of a sharded network always
    # are exchanged.
    is_exchanged = np.allclose(first.pop("gradient"), second.pop("gradient"))
    is_sharded = "sharding" in CASES[framework][case]
    assert is_exchanged == is_sharded
    share = 1 / RANKS if is_sharded else 1
    assert first.pop("held") == second.pop("held") == share * alone.pop("held")
    del alone["moved"], alone["gradient"]
    assert first.keys() == second.keys() == alone.keys()
    for name, expected in alone.items():
        assert np.array_equal(first[name], second[name]), name
        assert np.allclose(first[name], expected, rtol=1e-9, atol=1e-12), name


@pytest.mark.parametrize("framework", CASES)
def test_rank_output_is_where_the_driver_expects_it(trained, framework):
    logs = trained(framework) / "together"
    pattern = FRAMEWORKS[framework].log_pattern
    for rank in range(RANKS):
        files = sorted(logs.glob(pattern.format(index=rank)))
        output = "".join(file.read_text() for file in files)
        assert f"this is rank {rank}\n" in output


@pytest.mark.usefixtures("processes")
def test_jaxs_ranks_share_out_right_sums_of_large_gradients(tmp_path):
    """gloo's reduce-scatter gets some sums wrong, without an error (jax-ml/jax#40830)."""
    script = tmp_path / "sums.py"
    script.write_text(SUMS)
    request = {"model": "llama", "framework": "jax", "device": "cpu"}
    request |= {"processes": RANKS, "sharding": "full"}
    run = [sys.executable, str(script), json.dumps(request)]
    logs = tmp_path / "together"
    command = launcher_command(resolve(request), NodeRank(), logs, "job", run)
    with supervised(tmp_path, "together", command) as together:
        status = together.wait(SECONDS)
    ends = [log.read_text()[-3000:] for log in logs.glob("*log")]
    assert status == 0, "\n".join(ends)
