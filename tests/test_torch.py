"""The models in PyTorch, and what the backend makes of them."""

import json
import math
import os
import shutil
import subprocess
import sys

import numpy as np
import pytest

torch = pytest.importorskip("torch")
# ruff: noqa: E402 - without PyTorch, an extra, the imports below would fail

from perfkit.frameworks import FRAMEWORKS
from perfkit.frameworks.base import NodeRank
from perfkit.frameworks.torch import launch_command
from perfkit.frameworks.torch.backend import (
    Trainer,
    Workloads,
    data_loader,
    open_device,
    profile,
    tensors,
)
from perfkit.frameworks.torch.bert import Bert
from perfkit.frameworks.torch.resnet50 import Bottleneck, ResNet50
from perfkit.frameworks.torch.vgg16 import VGG16
from perfkit.inputs import InputError, dataloader, synthetic
from perfkit.models import MODELS, bert, multiply_adds, resnet50, training_flops, vgg16
from perfkit.request.resolve import resolve
from perfkit.worker import rank as worker

# Its compiler uses what PyTorch itself has deprecated.
pytestmark = pytest.mark.filterwarnings("ignore:::torch.*")
# What is tested is small; threads that wait for each other only cost time.
torch.set_num_threads(1)
NAMES = tuple(MODELS)
WORDS = 1100
DENSE = 128
STEPS = 3
SAMPLES = 8
"""Of all ranks in a step."""
CASES = {
    "vgg16": {"model": "vgg16"},
    "vgg16-static-accumulate": {"model": "vgg16", "accumulate": 2, "execution": "static"},
    "bert-accumulate": {"model": "bert", "accumulate": 2},
}
"""Of models without batch norm, whose statistics are each rank's own."""

SCRIPT = '''
"""Train every case on this process's share of the samples and store the parameters."""

import json
import os
import sys

import numpy as np
import torch

from perfkit.frameworks.torch.backend import Trainer, open_device, profile, tensors
from perfkit.request.resolve import resolve
from perfkit.inputs import synthetic
from perfkit.worker.loop import compute_seconds
from perfkit.models import MODELS, bert, vgg16

STEPS, SAMPLES, CASES, FOLDER = json.loads(sys.argv[1])
rank = int(os.environ.get("RANK", "0"))
ranks = int(os.environ.get("WORLD_SIZE", "1"))
print("this is rank", rank)

# As they are, only smaller; in float64, where rounding can't be taken for a difference.
bert.LAYERS, bert.WIDTH, bert.INNER, bert.HEADS, bert.VOCABULARY = 2, 32, 64, 4, 1100
vgg16.STAGES, vgg16.DENSE = ((8, 2), (16, 2), (16, 1)), 32
torch.set_default_dtype(torch.float64)


def config(case):
    """Of this process: one alone takes all samples of a step at once."""
    model = case["model"]
    values = {"device": "cpu", "processes": ranks, "optimizer": MODELS[model].optimizers[0]}
    images = {"image_size": 32, "layout": "NHWC"}
    values |= {"sequence_length": 16} if model == "bert" else images
    values |= case if ranks > 1 else {"model": model}
    return resolve(values | {"batch_size": SAMPLES // ranks // values.get("accumulate", 1)})


def micro_batches(chosen, step):
    """Those of one step that are this process's."""
    everyone = chosen.model_copy(update={"batch_size": SAMPLES, "seed": step})
    arrays = next(synthetic.batches(everyone, 0))
    arrays = [a.astype("float64") if a.dtype.kind == "f" else a for a in arrays]
    first = rank * chosen.samples_per_step
    for begin in range(first, first + chosen.samples_per_step, chosen.batch_size):
        yield tuple(a[begin : begin + chosen.batch_size] for a in arrays)


device = open_device(config(CASES["vgg16"]))
for name, case in CASES.items():
    chosen = config(case)
    # Not one seed for all: ranks have to begin with the first one's parameters all the same.
    torch.manual_seed(rank)
    trainer = Trainer(chosen)
    trainer.disable_dropout()
    losses = []
    for step in range(STEPS):
        batches = list(tensors(micro_batches(chosen, step), chosen))
        shares = [
            trainer.backward(batch, sync_gradients=number == chosen.accumulate)
            for number, batch in enumerate(batches, 1)
        ]
        trainer.update()
        losses.append(float(sum(shares)))
        if ranks > 1 and not step:
            # Between two steps: what it left behind would show in the next ones.
            compute_seconds(trainer, iter(batches * 3), device, accumulate=chosen.accumulate)
    trained = {n: p.detach().numpy().copy() for n, p in trainer.network.named_parameters()}
    assert all(value.dtype == np.float64 for value in trained.values())
    trainer.backward(batches[0], sync_gradients=False)
    own = max((p.grad.numpy() for p in trainer.network.parameters()), key=np.size)
    trainer.zero_grad()
    found = profile(lambda: [trainer.backward(batches[0]), trainer.update()], 2)
    assert (0 < found["communication"] < found["step"]) == (ranks > 1), found
    np.savez(f"{FOLDER}/{name}-{rank}of{ranks}.npz", losses=losses, own=own, **trained)
'''


@pytest.fixture
def narrow(monkeypatch):
    """BERT with fewer and thinner layers and fewer words, VGG-16 with a quarter of its
    channels, ResNet-50 with one thin block in each stage: training them whole shows no more
    and takes minutes."""
    monkeypatch.setattr(resnet50, "STEM", 16)
    monkeypatch.setattr(resnet50, "STAGES", ((16, 1), (32, 1), (32, 1), (32, 1)))
    for name, value in (("LAYERS", 2), ("WIDTH", 192), ("INNER", 384), ("HEADS", 4)):
        monkeypatch.setattr(bert, name, value)
    monkeypatch.setattr(bert, "VOCABULARY", WORDS)
    stages = tuple((width // 4, count) for width, count in vgg16.STAGES)
    monkeypatch.setattr(vgg16, "STAGES", stages)
    monkeypatch.setattr(vgg16, "DENSE", DENSE)


def config(model="resnet50", **changes):
    values = {"model": model, "framework": "torch", "device": "cpu", "processes": 1}
    values |= {"input": "synthetic", "batch_size": 2}
    values |= {"optimizer": MODELS[model].optimizers[0]}
    images = {"image_size": 32, "layout": "NHWC"}
    values |= {"sequence_length": 16} if model == "bert" else images
    return resolve(values | changes)


def batch(model="resnet50", *, size=2, dtype="float32", seed=0, **changes):
    """A synthetic batch, whatever number of samples a configuration is for."""
    arrays = next(synthetic.batches(config(model, batch_size=size, seed=seed, **changes), 0))
    arrays = (a.astype(dtype) if a.dtype.kind == "f" else a for a in arrays)
    return tuple(map(torch.from_numpy, arrays))


@pytest.mark.parametrize(
    ("model", "build"),
    [
        ("resnet50", lambda: ResNet50("NCHW")),
        ("resnet50", lambda: ResNet50("NHWC")),
        ("vgg16", lambda: VGG16("NCHW")),
        ("vgg16", lambda: VGG16("NHWC")),
        ("bert", Bert),
    ],
)
def test_a_model_has_exactly_as_many_trainable_parameters_as_published(model, build):
    # Shapes alone: filling this many weights takes seconds.
    with torch.device("meta"):
        parameters = build().parameters()
    assert sum(p.numel() for p in parameters) == MODELS[model].parameters


def test_the_stride_is_in_the_3x3_convolution_as_v1_5_has_it():
    block = Bottleneck(256, 128, 2)
    strides = {part.kernel_size: part.stride for part in (block.conv1, block.conv2)}
    assert strides == {(1, 1): (1, 1), (3, 3): (2, 2)}


# 96 pixels: VGG's features are then 3x3, so that places, too, could be mixed up.
@pytest.mark.parametrize(("model", "size"), [(ResNet50, 64), (VGG16, 96)])
def test_both_layouts_compute_the_same(narrow, model, size):
    torch.manual_seed(0)
    first, last = model("NCHW").eval(), model("NHWC").eval()
    last.load_state_dict(first.state_dict())
    images = torch.randn(2, 3, size, size)
    with torch.no_grad():
        one, other = first(images), last(images.permute(0, 2, 3, 1).contiguous())
    assert np.allclose(one, other, rtol=1e-3, atol=1e-4)
    assert float(one.abs().max()) > 0.01


@pytest.mark.parametrize("model", [ResNet50, VGG16])
def test_with_nhwc_channels_are_last_in_memory_all_the_way(narrow, model):
    network = model("NHWC")
    seen = []

    def look(layer, _inputs, output):
        seen.append(output.is_contiguous(memory_format=torch.channels_last))

    convolutions = [part for part in network.modules() if isinstance(part, torch.nn.Conv2d)]
    for layer in convolutions:
        layer.register_forward_hook(look)
    with torch.no_grad():
        network(torch.randn(2, 64, 64, 3))
    assert seen == [True] * len(convolutions)


def step(trainer, tensors):
    loss = trainer.backward(tensors)
    trainer.update()
    return float(loss)


@pytest.fixture
def doubles():
    """Models of float64, in which rounding can't be taken for a difference."""
    torch.set_default_dtype(torch.float64)
    yield
    torch.set_default_dtype(torch.float32)


@pytest.mark.usefixtures("processes")
@pytest.mark.parametrize("model", NAMES)
def test_static_execution_takes_the_same_steps_as_dynamic(narrow, model):
    losses = {}
    for execution in ("dynamic", "static"):
        torch.manual_seed(0)
        trainer = Trainer(config(model, execution=execution))
        trainer.disable_dropout()
        losses[execution] = [step(trainer, batch(model)) for _ in range(2)]
    assert losses["dynamic"] == pytest.approx(losses["static"], rel=1e-3)


@pytest.mark.parametrize("model", NAMES)
def test_looking_at_the_layers_does_not_change_the_training(narrow, model):
    after = []
    for look in (False, True):
        torch.manual_seed(0)
        trainer = Trainer(config(model))
        if look:
            trainer.computed_dtypes(batch(model))
            trainer.multiply_adds(batch(model))
        after.append([step(trainer, batch(model)) for _ in range(2)])
    assert after[0] == after[1]


@pytest.mark.parametrize(
    ("precision", "low"), [("fp32", None), ("amp", "float16"), ("bf16", "bfloat16")]
)
@pytest.mark.parametrize("model", NAMES)
def test_a_precision_is_what_the_layers_produce_also_on_a_cpu(narrow, model, precision, low):
    trainer = Trainer(config(model, precision=precision))
    found = trainer.effective(batch(model))
    assert found["precision"] == precision
    assert {*found["dtypes"]} - {"float32"} == ({low} if low else set())
    products = sum(
        isinstance(layer, torch.nn.Linear | torch.nn.Conv2d)
        for layer in trainer.network.modules()
    )
    assert found["dtypes"][low or "float32"] >= products
    assert np.isfinite(step(trainer, batch(model)))


@pytest.mark.parametrize("precision", ["fp32", "bf16"])
@pytest.mark.parametrize(
    ("model", "batch_size"), [("resnet50", 32), ("vgg16", 96), ("bert", 2)]
)
def test_the_loss_falls_over_20_steps_on_a_batch_that_stays_the_same(
    narrow, model, batch_size, precision
):
    torch.manual_seed(0)
    # Recipes have a rate that goes with the batch: here that of a larger one than is trained.
    trainer = Trainer(config(model, batch_size=batch_size, precision=precision))
    if model == "vgg16":
        # Half of a narrow layer is too little to learn two images in a few steps.
        trainer.disable_dropout()
    same = batch(model)
    losses = [step(trainer, same) for _ in range(20)]
    assert losses[-1] < 0.9 * losses[0]
    assert np.isfinite(losses).all()


def test_a_step_whose_gradients_overflow_is_left_out_and_counted(narrow):
    trainer = Trainer(config("vgg16", precision="amp"))
    assert trainer.loss_scale == 2.0**15
    step(trainer, batch("vgg16"))
    before = trainer.weights()
    for broken in (True, True, False):
        trainer.backward(batch("vgg16"))
        if broken:
            next(trainer.network.parameters()).grad[0] = float("inf")
        trainer.update()
        changed = [n for n, w in trainer.weights().items() if not np.array_equal(w, before[n])]
        assert bool(changed) == (not broken)
    assert trainer.skipped_steps == 2
    assert trainer.loss_scale == 2.0**13


@pytest.mark.parametrize("model", NAMES)
def test_a_seed_gives_the_same_first_loss_every_time_and_another_seed_another(narrow, model):
    losses = []
    for seed in (1, 1, 2):
        chosen = config(model, seed=seed)
        open_device(chosen)
        losses.append(step(Trainer(chosen), batch(model)))
    assert losses[0] == losses[1] != losses[2]


def test_biases_and_norms_of_bert_do_not_decay(narrow):
    trainer = Trainer(config("bert"))
    before = {name: p.detach().clone() for name, p in trainer.network.named_parameters()}
    for parameter in trainer.network.parameters():
        # Nothing but decay is left to move a parameter.
        parameter.grad = torch.zeros_like(parameter)
    trainer.update()
    for name, parameter in trainer.network.named_parameters():
        assert torch.equal(before[name], parameter) == (parameter.ndim == 1), name


@pytest.mark.parametrize("model", ["vgg16", "bert"])
def test_accumulated_micro_batches_are_one_step_on_the_joined_batch(narrow, doubles, model):
    """Without batch norm, which sees micro-batches one by one."""
    trained, losses = [], []
    for accumulate in (1, 2):
        torch.manual_seed(0)
        size = 4 // accumulate
        trainer = Trainer(config(model, batch_size=size, accumulate=accumulate))
        trainer.disable_dropout()
        for seed in range(3):
            joined = batch(model, size=4, dtype="float64", seed=seed)
            shares = [
                trainer.backward(tuple(part[i : i + size] for part in joined))
                for i in range(0, 4, size)
            ]
            trainer.update()
            losses.append(float(sum(shares)))
        trained.append(trainer.network.state_dict())
    assert losses[:3] == pytest.approx(losses[3:], rel=1e-9)
    for name, joined in trained[0].items():
        assert joined.dtype == torch.float64
        assert np.allclose(joined, trained[1][name], rtol=1e-9, atol=1e-12), name


@pytest.mark.parametrize("model", NAMES)
def test_weights_taken_from_one_trainer_make_another_compute_the_same(narrow, model):
    first, second = (Trainer(config(model, seed=seed)) for seed in (0, 1))
    second.load_weights(first.weights())
    for trainer in (first, second):
        trainer.disable_dropout()
    assert float(first.backward(batch(model))) == float(second.backward(batch(model)))
    one, other = first.gradients(), second.gradients()
    assert [*one] == [*first.weights()]
    assert all(np.array_equal(one[name], other[name]) for name in one)


def test_dense_weights_are_told_as_inputs_x_outputs_and_convolutions_as_they_are(narrow):
    trainer = Trainer(config("vgg16"))
    told = trainer.weights()
    first = trainer.network.classifier[0].weight
    assert np.array_equal(told["classifier.0.weight"], first.detach().T)
    assert told["features.0.weight"].shape == (16, 3, 3, 3)
    assert all(array.flags.c_contiguous for array in told.values())
    # A copy: the next step must not change it.
    before = told["classifier.0.weight"].copy()
    step(trainer, batch("vgg16"))
    assert np.array_equal(told["classifier.0.weight"], before)


def test_weights_of_another_network_are_refused_and_nothing_is_changed(narrow):
    trainer = Trainer(config("vgg16"))
    before = trainer.weights()
    turned = before | {"classifier.6.weight": before["classifier.6.weight"].T.copy()}
    with pytest.raises(ValueError, match=r"classifier.6.weight: expected \(128, 1000\), found"):
        trainer.load_weights(turned)
    fewer = {name: array for name, array in before.items() if "bias" not in name}
    with pytest.raises(ValueError, match=r"classifier.0.bias: expected .*, found None, and 15"):
        trainer.load_weights(fewer)
    after = trainer.weights()
    assert all(np.array_equal(before[name], after[name]) for name in before)


@pytest.mark.parametrize("layout", ["NCHW", "NHWC"])
@pytest.mark.parametrize("model", ["resnet50", "vgg16"])
def test_the_counted_multiply_adds_of_an_image_are_those_of_the_arithmetic(model, layout):
    chosen = config(model, image_size=64, layout=layout)
    counted = Trainer(chosen).multiply_adds(batch(model, size=2, image_size=64, layout=layout))
    assert counted == 2 * multiply_adds(chosen)


def test_the_counted_multiply_adds_of_a_sequence_are_those_of_the_arithmetic(monkeypatch):
    chosen = config("bert", sequence_length=32)
    monkeypatch.setattr(bert, "LAYERS", 2)
    counted = Trainer(chosen).multiply_adds(batch("bert", size=3, sequence_length=32))
    assert 6 * counted == 3 * training_flops(chosen)


def test_an_image_batch_of_dali_is_read_where_it_lies(samples):
    from perfkit.inputs import dali

    chosen = config(input="dali", data_dir=str(samples))
    lying = []

    def seen():
        for images, labels in dali.batches(chosen, 0):
            lying.append(images.data_ptr())
            yield images, labels

    images, labels = next(tensors(seen(), chosen))
    assert images.shape == (2, 32, 32, 3)
    assert images.data_ptr() == lying[0]
    assert labels.dtype == torch.int64
    assert np.isfinite(step(Trainer(chosen), (images, labels)))


def test_numpy_arrays_are_read_where_they_lie():
    arrays = (np.ones((2, 4), np.float32), np.zeros((2, 1), np.int64))
    taken = next(tensors(iter([arrays]), config()))
    assert [t.data_ptr() for t in taken] == [a.ctypes.data for a in arrays]


def test_the_data_loader_gives_batches_of_tensors_in_the_order_of_the_indices():
    squares = [(np.full(3, n * n, np.float32), np.array([n])) for n in range(8)]
    batches = data_loader(squares, iter([[5, 2], [0, 7], [1, 1]]), 2)
    found = [(numbers[:, 0].tolist(), of.flatten().tolist()) for numbers, of in batches]
    assert found == [([25, 4], [5, 2]), ([0, 49], [0, 7]), ([1, 1], [1, 1])]


def test_an_image_that_cant_be_read_by_the_data_loader_is_named(samples, tmp_path):
    folder = tmp_path / "data"
    shutil.copytree(samples, folder)
    listed = (folder / "train_list.txt").read_text().splitlines()
    for line in listed:
        (folder / line.split()[0]).write_bytes(b"no image")
    chosen = config(input="dataloader", data_dir=str(folder), dataloader_workers=1)
    with pytest.raises(InputError, match=r"train_list.txt:\d+: train/.*cannot identify"):
        next(dataloader.batches(chosen, 0))


def test_a_profile_has_the_seconds_of_each_part_of_a_step(narrow):
    trainer = Trainer(config("vgg16"))
    same = batch("vgg16")
    found = profile(lambda: step(trainer, same), 2)
    assert found.keys() == {"step", "forward", "backward", "optimizer", "communication"}
    parts = [found[part] for part in ("forward", "backward", "optimizer")]
    assert min(parts) > 0
    assert sum(parts) <= found["step"]
    assert found["communication"] == 0


def test_a_want_of_memory_on_a_cpu_is_recognised():
    with pytest.raises(RuntimeError) as raised:
        torch.empty(2**55, dtype=torch.int8)
    assert worker.classify(raised.value)[0] == "out_of_memory"


def test_peaks_are_measured_by_products_and_copies_that_are_right():
    workloads = Workloads(config(precision="bf16"))
    assert workloads.matmul(64)().dtype == torch.bfloat16
    assert workloads.copy(100)().numel() == 100


@pytest.mark.usefixtures("processes")
@pytest.mark.parametrize("model", ["vgg16", "bert"])
def test_dropout_acts_at_the_same_places_and_rates_as_in_paddle(narrow, monkeypatch, model):
    paddle = pytest.importorskip("paddle")
    from perfkit.frameworks.paddle import bert as bert_paddle
    from perfkit.frameworks.paddle import vgg16 as vgg16_paddle

    seen = {"paddle": [], "torch": []}

    def counting(framework, drop):
        def dropped(x, p, *rest, **named):
            seen[framework].append((float(p), math.prod(x.shape)))
            return drop(x, p, *rest, **named)

        return dropped

    def attending(query, key, value, *, attn_mask, dropout_p):
        seen["torch"].append((dropout_p, math.prod(query.shape[:-1]) * key.shape[-2]))
        return attend(query, key, value, attn_mask=attn_mask, dropout_p=dropout_p)

    functional = torch.nn.functional
    attend = functional.scaled_dot_product_attention
    for framework, module in (("paddle", paddle.nn.functional), ("torch", functional)):
        monkeypatch.setattr(module, "dropout", counting(framework, module.dropout))
    monkeypatch.setattr(functional, "scaled_dot_product_attention", attending)
    arrays = next(synthetic.batches(config(model, layout="NCHW"), 0))
    networks = {
        "vgg16": (vgg16_paddle.VGG16, VGG16),
        "bert": (lambda _: bert_paddle.Bert(), lambda _: Bert()),
    }
    theirs, ours = (build("NCHW") for build in networks[model])
    theirs(*map(paddle.to_tensor, arrays[: theirs.inputs]))
    ours(*map(torch.from_numpy, arrays[: ours.inputs]))
    assert seen["torch"] == seen["paddle"]
    assert len(seen["torch"]) == {"vgg16": 2, "bert": 1 + 3 * 2}[model]


@pytest.fixture(scope="module")
def trained(processes, tmp_path_factory):
    """A folder with what two ranks and one process alone came to in every case."""
    folder = tmp_path_factory.mktemp("parallel")
    script = folder / "train.py"
    script.write_text(SCRIPT)
    run = [sys.executable, str(script), json.dumps([STEPS, SAMPLES, CASES, str(folder)])]
    together = launch_command(config(processes=2), NodeRank(), folder / "logs", "job", run)
    env = os.environ | {"OMP_NUM_THREADS": "1"}
    for command in (together, run):
        subprocess.run(command, env=env, check=True, capture_output=True, timeout=120)
    return folder


def stored(folder, case, rank, ranks):
    with np.load(folder / f"{case}-{rank}of{ranks}.npz") as arrays:
        return dict(arrays)


@pytest.mark.parametrize("case", CASES)
def test_two_ranks_train_as_one_process_does_on_the_joined_batch(trained, case):
    one, other = (stored(trained, case, rank, 2) for rank in (0, 1))
    alone = stored(trained, case, 0, 1)
    # What one sees as its loss is the mean over the ranks, micro-batches joined.
    losses = [ranks.pop("losses") for ranks in (one, other)]
    assert not np.array_equal(*losses)
    assert sum(losses) / 2 == pytest.approx(alone.pop("losses"), rel=1e-9)
    # Gradients that were not exchanged are each rank's own.
    assert not np.allclose(one.pop("own"), other.pop("own"))
    alone.pop("own")
    for name, expected in alone.items():
        assert np.array_equal(one[name], other[name]), name
        assert np.allclose(one[name], expected, rtol=1e-9, atol=1e-12), name


def test_the_output_of_every_rank_is_where_the_driver_looks_for_it(trained):
    place = FRAMEWORKS["torch"].log_pattern
    for rank in (0, 1):
        files = sorted((trained / "logs").glob(place.format(index=rank)))
        assert f"this is rank {rank}\n" in "".join(file.read_text() for file in files)
