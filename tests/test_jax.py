"""The models in JAX, and what the backend makes of them."""

import os

import jax
import numpy as np
import paddle
import pytest
from jax import numpy as jnp

from perfkit.frameworks.base import CpuDevice
from perfkit.frameworks.jax import backend
from perfkit.frameworks.jax.backend import (
    NETWORKS,
    Trainer,
    open_device,
    profile,
    tensors,
)
from perfkit.frameworks.jax.bert import Bert
from perfkit.frameworks.jax.layers import (
    Forward,
    declarations,
    first_values,
    from_canonical,
    to_canonical,
)
from perfkit.frameworks.jax.optimizers import adamw, momentum
from perfkit.frameworks.jax.program import factor_dtypes
from perfkit.frameworks.jax.vgg16 import _averaged
from perfkit.frameworks.paddle import backend as paddle_backend
from perfkit.inputs import synthetic
from perfkit.models import (
    MODELS,
    OptimizerSettings,
    bert,
    optimizer_settings,
    resnet50,
    training_flops,
    vgg16,
)
from perfkit.request.resolve import resolve

NAMES = tuple(MODELS)
WORDS = 1100
DENSE = 128


@pytest.fixture(scope="module", autouse=True)
def compiled_once(tmp_path_factory):
    """Trainers that compute the same share what XLA made of it."""
    jax.config.update("jax_compilation_cache_dir", str(tmp_path_factory.mktemp("compiled")))
    jax.config.update("jax_persistent_cache_min_compile_time_secs", 0)
    yield
    jax.config.update("jax_compilation_cache_dir", None)


@pytest.fixture
def narrow(monkeypatch):
    """Fewer layers, words and channels: what they show is the same."""
    for name, value in {"LAYERS": 1, "WIDTH": 64, "HEADS": 2, "INNER": 128}.items():
        monkeypatch.setattr(bert, name, value)
    monkeypatch.setattr(bert, "VOCABULARY", WORDS)
    stages = ((16, 2), (32, 1), (32, 1), (32, 1), (32, 1))
    monkeypatch.setattr(vgg16, "STAGES", stages)
    monkeypatch.setattr(vgg16, "DENSE", DENSE)
    monkeypatch.setattr(resnet50, "STAGES", ((64, 1), (128, 1), (256, 1), (512, 1)))


def config(model="resnet50", **changes):
    values = {"model": model, "framework": "jax", "device": "cpu", "execution": "static"}
    values |= {"batch_size": 2, "input": "synthetic", "optimizer": MODELS[model].optimizers[0]}
    images = {"image_size": 32, "layout": "NHWC"}
    values |= {"sequence_length": 16} if model == "bert" else images
    return resolve(values | changes)


def batch(model="resnet50", *, size=2, seed=0, **changes):
    chosen = config(model, batch_size=size, seed=seed, **changes)
    return next(tensors(synthetic.batches(chosen, 0), chosen))


def step(trainer, arrays):
    loss = trainer.backward(arrays)
    trainer.update()
    return float(loss)


@pytest.mark.parametrize("model", NAMES)
def test_parameters_have_the_names_and_shapes_of_paddles(model):
    with paddle.LazyGuard():
        network = paddle_backend.NETWORKS[model](config(model, layout="NCHW"))
    theirs = dict(network.named_parameters())
    trained = {n: tuple(p.shape) for n, p in theirs.items() if not p.stop_gradient}
    kept = {n: tuple(p.shape) for n, p in theirs.items() if p.stop_gradient}
    parameters, statistics = declarations(NETWORKS[model](), "NHWC")
    assert {name: declared.shape for name, declared in parameters.items()} == trained
    assert {name: declared.shape for name, declared in statistics.items()} == kept


@pytest.mark.parametrize("model", NAMES)
def test_first_values_are_spread_as_paddles(model):
    paddle.seed(0)
    ours = first_values(declarations(NETWORKS[model](), "NHWC")[0], seed=0)
    if model == "bert":
        names = ("word_embeddings.weight", "pooler.weight")
        theirs = dict.fromkeys(names, bert.DEVIATION)
    elif model == "vgg16":
        theirs = {"classifier.3.weight": 0.01, "features.28.weight": (2 / (9 * 512)) ** 0.5}
    else:
        network = paddle_backend.NETWORKS[model](config(model, layout="NCHW"))
        theirs = {n: p.numpy() for n, p in network.named_parameters()}
    for name, expected in theirs.items():
        if name not in ours:
            continue
        values = np.asarray(ours[name])
        if isinstance(expected, float):
            assert values.std() == pytest.approx(expected, rel=0.02), name
        elif expected.ndim > 1:
            assert values.std() == pytest.approx(expected.std(), rel=0.05), name
            if name == "fc.weight":
                assert abs(values).max() == pytest.approx(abs(expected).max(), rel=1e-3)
        else:
            assert np.array_equal(values, expected), name


@pytest.mark.slow
@pytest.mark.parametrize("model", NAMES)
def test_the_loss_falls_over_60_steps_on_a_batch_that_stays_the_same(narrow, model):
    # Recipes have a rate that goes with the batch: here that of a larger one than is trained.
    size = {"resnet50": 32, "vgg16": 16, "bert": 2}[model]
    trainer = Trainer(config(model, batch_size=size))
    if model == "vgg16":
        trainer.disable_dropout()
    same = batch(model)
    losses = [step(trainer, same) for _ in range(60)]
    assert losses[-1] < 0.9 * losses[0]
    assert np.isfinite(losses).all()
    loss, accuracy = trainer.evaluate(same)
    assert loss < losses[0]
    assert 0 <= accuracy <= 1


@pytest.mark.parametrize("model", ["vgg16", "bert"])
def test_a_seed_gives_the_same_first_loss_every_time_and_another_seed_another(narrow, model):
    losses = []
    for seed in (1, 1, 2):
        chosen = config(model, seed=seed)
        open_device(chosen)
        losses.append(float(Trainer(chosen).backward(batch(model))))
    assert losses[0] == losses[1] != losses[2]


@pytest.mark.parametrize("model", ["vgg16", "bert"])
def test_dropout_changes_the_loss_from_pass_to_pass_until_nothing_is_dropped(narrow, model):
    trainer = Trainer(config(model))
    same = batch(model)
    dropped = [float(trainer.backward(same)) for _ in range(2)]
    assert dropped[0] != dropped[1]
    trainer.disable_dropout()
    assert float(trainer.backward(same)) == float(trainer.backward(same))


@pytest.mark.parametrize("rate", [0.1, 0.5])
def test_dropout_drops_its_share_and_keeps_the_mean(rate):
    run = Forward({}, {}, jax.random.key(0), jnp.float32)
    kept = np.asarray(run.dropout(jnp.ones((400, 500)), rate))
    assert (kept == 0).mean() == pytest.approx(rate, abs=0.01)
    assert kept.mean() == pytest.approx(1, abs=0.01)
    assert set(np.unique(kept)) == {np.float32(0), np.float32(1) / np.float32(1 - rate)}
    assert not np.array_equal(kept, run.dropout(jnp.ones((400, 500)), rate))


@pytest.mark.parametrize("model", ["vgg16", "bert"])
def test_accumulated_micro_batches_are_one_step_on_the_joined_batch(narrow, model):
    """Without batch norm, which sees micro-batches one by one."""
    found = []
    for accumulate in (1, 2):
        size = 4 // accumulate
        trainer = Trainer(config(model, batch_size=size, accumulate=accumulate))
        trainer.disable_dropout()
        joined = batch(model, size=4)
        shares = [
            trainer.backward(tuple(part[i : i + size] for part in joined))
            for i in range(0, 4, size)
        ]
        found.append((float(sum(shares)), trainer.gradients()))
    (loss, gradients), (other_loss, others) = found
    assert other_loss == pytest.approx(loss, rel=1e-5)
    for name, gradient in gradients.items():
        error = np.linalg.norm(gradient - others[name])
        # A bias of keys has no gradient but rounding.
        assert error < 2e-3 * np.linalg.norm(gradient) + 1e-6, name


def test_gradients_are_gone_after_a_step_and_when_discarded(narrow):
    trainer = Trainer(config("bert"))
    same = batch("bert")
    trainer.backward(same)
    assert trainer.gradients().keys() == trainer.weights().keys()
    trainer.zero_grad()
    assert trainer.gradients() == {}
    step(trainer, same)
    assert trainer.gradients() == {}


def test_weights_are_copies_with_paddles_axes_that_can_be_loaded_again(narrow):
    trainer = Trainer(config("vgg16"))
    weights = trainer.weights()
    kernel = weights["features.2.weight"]
    assert kernel.shape == (16, 16, 3, 3)
    assert kernel[5, 7, 0, 2] == trainer.values["features.2.weight"][0, 2, 7, 5]
    before = {name: array.copy() for name, array in weights.items()}
    step(trainer, batch("vgg16"))
    # The step has given up the memory that these were copied from.
    assert all(np.array_equal(before[name], array) for name, array in weights.items())
    assert not np.array_equal(
        trainer.weights()["classifier.0.weight"], before["classifier.0.weight"]
    )
    trainer.load_weights(before)
    for name, array in trainer.weights().items():
        assert np.array_equal(array, before[name]), name


@pytest.mark.parametrize("change", ["missing", "more", "shape"])
def test_weights_of_another_network_are_refused_by_name(narrow, change):
    trainer = Trainer(config("bert"))
    weights = trainer.weights()
    bias = weights.pop("pooler.bias")
    if change != "missing":
        weights["pooler.bias" if change == "shape" else "poolers.bias"] = bias[:-1]
    with pytest.raises(ValueError, match=r"pooler\.bias"):
        trainer.load_weights(weights)


@pytest.mark.parametrize("optimizer", ["momentum", "adamw"])
def test_an_optimizer_takes_the_steps_of_paddles(optimizer):
    random = np.random.default_rng(0)
    chosen = OptimizerSettings(optimizer, 0.05, 0.1)
    first = {"dense": random.standard_normal((3, 4)), "bias": random.standard_normal(4)}
    network = paddle.nn.Layer()
    for name, value in first.items():
        network.add_parameter(
            name,
            paddle.create_parameter(
                value.shape,
                "float32",
                default_initializer=paddle.nn.initializer.Assign(value.astype(np.float32)),
            ),
        )
    theirs = paddle_backend.build_optimizer(chosen, network)
    rule, slots = {"momentum": (momentum, 1), "adamw": (adamw, 2)}[optimizer]
    ours = {name: jnp.asarray(value, jnp.float32) for name, value in first.items()}
    kept = {name: (jnp.zeros_like(value),) * slots for name, value in ours.items()}
    for number in range(1, 6):
        for name, parameter in network.named_parameters():
            gradient = random.standard_normal(parameter.shape).astype(np.float32)
            parameter.grad = paddle.to_tensor(gradient)
            ours[name], kept[name] = rule(
                chosen, ours[name], jnp.asarray(gradient), kept[name], number
            )
        theirs.step()
        for name, parameter in network.named_parameters():
            assert np.allclose(ours[name], parameter.numpy(), rtol=1e-5, atol=1e-6), name


@pytest.mark.slow
@pytest.mark.parametrize(("model", "layout"), [("resnet50", "NCHW"), ("vgg16", "NCHW")])
def test_both_layouts_compute_the_same(narrow, model, layout):
    losses, statistics = [], []
    for chosen in ("NHWC", layout):
        trainer = Trainer(config(model, layout=chosen))
        trainer.disable_dropout()
        images, labels = batch(model, layout="NHWC")
        images = images.transpose(0, 3, 1, 2) if chosen == "NCHW" else images
        losses.append(float(trainer.backward((images, labels))))
        statistics.append(trainer.statistics)
    assert losses[0] == pytest.approx(losses[1], rel=1e-4)
    for name, kept in statistics[0].items():
        assert np.allclose(kept, statistics[1][name], rtol=1e-3, atol=1e-4), name


def test_batch_norm_keeps_the_statistics_that_paddle_keeps():
    random = np.random.default_rng(0)
    images = random.standard_normal((4, 3, 5, 6), np.float32) * 3 + 1
    layer = paddle.nn.BatchNorm2D(3)
    expected = layer(paddle.to_tensor(images)).numpy()
    parameters = {"norm.weight": jnp.ones(3), "norm.bias": jnp.zeros(3)}
    before = {"norm._mean": jnp.zeros(3), "norm._variance": jnp.ones(3)}
    run = Forward(parameters, before, None, jnp.float32, "NCHW")
    found = run.batch_norm("norm", jnp.asarray(images))
    assert np.allclose(found, expected, atol=1e-5)
    assert np.allclose(run.statistics["norm._mean"], layer._mean.numpy(), atol=1e-6)
    assert np.allclose(run.statistics["norm._variance"], layer._variance.numpy(), atol=1e-5)


@pytest.mark.parametrize("size", [1, 3, 7, 14])
def test_features_are_averaged_as_paddle_does(size):
    features = np.random.default_rng(0).standard_normal((1, 2, size, size), np.float32)
    expected = paddle.nn.functional.adaptive_avg_pool2d(paddle.to_tensor(features), 7)
    found = _averaged(_averaged(jnp.asarray(features), 2), 3)
    assert np.allclose(found, expected.numpy(), atol=1e-6)


@pytest.mark.parametrize(("size", "stride", "padding"), [(3, 2, 1), (2, 2, 0)])
@pytest.mark.parametrize("pixels", [8, 7])
def test_a_pool_takes_the_largest_and_gives_it_the_gradient_as_paddle_does(
    size, stride, padding, pixels
):
    # Small integers: many are equal.
    values = np.random.default_rng(0).integers(0, 3, (2, 3, pixels, pixels)).astype(np.float32)
    theirs = paddle.to_tensor(values, stop_gradient=False)
    expected = paddle.nn.functional.max_pool2d(theirs, size, stride, padding)
    weights = np.random.default_rng(1).standard_normal(expected.shape).astype(np.float32)
    (expected * paddle.to_tensor(weights)).sum().backward()
    run = Forward({}, {}, None, jnp.float32, "NCHW")
    found, back = jax.vjp(lambda x: run.max_pool(x, size, stride, padding), values)
    assert np.array_equal(found, expected.numpy())
    assert np.allclose(back(jnp.asarray(weights))[0], theirs.grad.numpy(), atol=1e-6)


def test_places_without_a_masked_word_do_not_count_in_loss_and_accuracy():
    words = jnp.asarray(np.random.default_rng(0).standard_normal((4, 50)), jnp.float32)
    pairs, answer = jnp.zeros((2, 2)), jnp.asarray([[0], [1]])
    best = int(words[0].argmax())
    used, padded = jnp.asarray([[best, 5]]), jnp.asarray([[best, 5, 0, 0]])
    network = Bert()
    expected = network.loss((words[:2], pairs), used, answer)
    assert float(network.loss((words, pairs), padded, answer)) == pytest.approx(float(expected))
    trainer = object.__new__(Trainer)
    trainer.config, trainer.network = config("bert"), network
    trainer.predict = lambda batch: (0.0, (words, pairs))
    assert trainer.evaluate((None, None, None, None, padded, answer)) == (0.0, 0.5)
    uniform = network.loss((jnp.zeros((4, 50)), pairs), padded, answer)
    assert float(uniform) == pytest.approx(np.log(50) + np.log(2))


@pytest.mark.parametrize("model", NAMES)
def test_what_is_multiplied_is_what_the_architecture_says(model):
    # Traced alone: no weight is filled, nothing is computed.
    chosen = config(model, batch_size=1, image_size=None if model == "bert" else 224)
    network = NETWORKS[model]()
    trainer = object.__new__(Trainer)
    trainer.network, trainer.dtype, trainer.layout = network, jnp.float32, "NHWC"
    trainer.key = None
    trainer.values, trainer.statistics = (
        {name: own_shape(declared.shape) for name, declared in group.items()}
        for group in declarations(network, "NHWC")
    )
    forward = trainer.multiply_adds(batch(model, size=1, image_size=chosen.image_size))
    flops = training_flops(chosen)
    stem = {"resnet50": 112**2 * 49 * 3 * 64, "vgg16": 224**2 * 9 * 3 * 64, "bert": 0}[model]
    assert 6 * forward - 2 * stem == flops


def own_shape(shape):
    return jax.ShapeDtypeStruct(from_canonical(np.empty(shape)).shape, jnp.float32)


def late(array):
    """The same values, that are being computed for a while yet."""
    size = 2000
    busy = jax.jit(lambda one: (one @ one @ one @ one).sum() * 0)(jnp.ones((size, size)))
    return array + busy


@pytest.mark.slow
def test_a_step_is_done_when_its_call_returns_even_if_its_batch_was_not(narrow):
    """The clock of CpuDevice is right only then; JAX's default is to return before."""
    trainer = Trainer(config("vgg16"))
    images, labels = batch("vgg16")
    # The sum is compiled already.
    late(images).block_until_ready()
    trainer.backward((images, labels))
    trainer.zero_grad()
    pending = late(images)
    assert not pending.is_ready()
    loss = trainer.backward((pending, labels))
    assert loss.is_ready()
    assert all(gradient.is_ready() for gradient in trainer.gathered.values())
    trainer.gathered = {n: late(gradient) for n, gradient in trainer.gathered.items()}
    trainer.update()
    assert all(value.is_ready() for value in jax.tree.leaves((trainer.values, trainer.slots)))
    assert isinstance(open_device(config()), CpuDevice)


def test_a_batch_is_copied_and_a_peaks_work_is_done_when_they_are_handed_out():
    images = np.ones((64, 224, 224, 3), np.float32)
    # Not where JAX would take the memory as it is.
    shifted = np.empty(images.nbytes + 64, np.uint8)[1:][: images.nbytes].view(np.float32)
    (taken,) = next(tensors(iter([(shifted,)]), config()))
    assert taken.is_ready()
    assert backend.Workloads(config()).matmul(1500)().is_ready()


def test_bf16_is_told_by_the_factors_that_xla_really_multiplies(narrow):
    for precision, dtypes in (("fp32", {"float32"}), ("bf16", {"bfloat16", "float32"})):
        trainer = Trainer(config("bert", precision=precision))
        found = trainer.effective(batch("bert"))
        assert found["precision"] == precision
        assert set(found["dtypes"]) <= dtypes
        assert found["device"] == "cpu"
        assert all(value.dtype == jnp.float32 for value in trainer.values.values())
    # What XLA turned into a product of float32 does not count as one of bfloat16.
    assert factor_dtypes(
        "%a = bf16[2,2]{1,0} parameter(0)\n"
        "%b = f32[2,2]{1,0} convert(%a)\n"
        "%c = bf16[2,2]{1,0} dot(%b, %b), lhs_contracting_dims={1}\n"
        "ROOT %d = f32[2,2]{1,0} convolution(%a, %a), window={size=1}\n"
    ) == {"float32": 1, "bfloat16": 1}


def test_looking_at_what_is_multiplied_changes_no_training(narrow):
    after = []
    for look in (False, True):
        trainer = Trainer(config("bert"))
        if look:
            trainer.effective(batch("bert"))
            trainer.multiply_adds(batch("bert"))
        after.append([step(trainer, batch("bert")) for _ in range(2)])
    assert after[0] == after[1]


def test_threads_are_those_that_xla_has(narrow):
    found = Trainer(config("bert")).effective(batch("bert"))
    assert found["threads"] == {"tf_XLAEigen": len(os.sched_getaffinity(0))}


def test_the_profiler_tells_the_optimizer_from_the_rest_of_a_step(narrow):
    trainer = Trainer(config("bert"))
    step(trainer, batch("bert"))
    seconds = profile(lambda: step(trainer, batch("bert")), 2)
    assert 0 < seconds["optimizer"] < seconds["step"]
    assert seconds["forward"] is None
    assert seconds["backward"] is None


def test_dalis_batches_are_taken_by_dlpack():
    from nvidia.dali import tensors as dali

    images = np.random.default_rng(0).standard_normal((2, 8, 8, 3), np.float32)
    labels = np.asarray([[3], [999]], np.int64)
    filled = iter([(dali.TensorCPU(images, "NHWC"), dali.TensorCPU(labels))])
    taken = next(tensors(filled, config()))
    assert np.array_equal(taken[0], images)
    assert taken[0].dtype == jnp.float32
    assert np.array_equal(taken[1], labels)


def test_canonical_axes_are_turned_and_turned_back():
    kernel = np.arange(2 * 3 * 5 * 5, dtype=np.float32).reshape(2, 3, 5, 5)
    assert from_canonical(kernel).shape == (5, 5, 3, 2)
    assert np.array_equal(to_canonical(from_canonical(kernel)), kernel)
    assert Trainer(config()).optimizer_settings == optimizer_settings(config())
    assert backend.memory_bytes(config()) is None
