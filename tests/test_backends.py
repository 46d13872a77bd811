"""Promises of the backends of JAX and TensorFlow, on narrow models."""

from dataclasses import dataclass
from functools import cache
from importlib.util import find_spec
from itertools import product

import numpy as np
import paddle
import pytest
from narrow import replace_sizes
from sides import SIDES, equal, side_of, step, use_float32

from perfkit.core.frameworks.functional.trainer import EPSILON
from perfkit.core.frameworks.networks import NETWORKS, Outline
from perfkit.core.results.schema import Effective
from perfkit.training.frameworks import FRAMEWORKS
from perfkit.training.models import MODELS, multiply_adds, optimizer_settings
from perfkit.training.options import Options
from perfkit.training.paddle.models import new_model

STEPS = 20
"""Steps on the repeated batch."""
RATE = {"resnet50": 32}
"""Batch size that sets the learning rate for training two samples, by default 2."""
LOWER = {"amp": "float16", "bf16": "bfloat16"}


@pytest.fixture(scope="module", autouse=True)
def narrow(tmp_path_factory):
    """Narrow models, and a cache of XLA's compiled programs."""
    if find_spec("jax"):
        import jax

        cache = tmp_path_factory.mktemp("compiled")
        jax.config.update("jax_compilation_cache_dir", str(cache))
        jax.config.update("jax_persistent_cache_min_compile_time_secs", 0)
    with pytest.MonkeyPatch.context() as patch:
        replace_sizes(patch.setattr)
        yield


@pytest.fixture
def side(framework):
    return side_of(framework)


@pytest.fixture
def doubles(side):
    """Makes trainers use float64, so that rounding is not mistaken for a difference."""
    side.backend.enable_float64()
    yield
    use_float32()


def of(*frameworks, models=()):
    """Run a test with each of these frameworks and models, as far as they support them."""
    frameworks = frameworks or SIDES
    if not models:
        return pytest.mark.parametrize("framework", frameworks)
    pairs = []
    for framework, model in product(frameworks, models):
        if FRAMEWORKS[framework].takes(model=model):
            pairs.append((framework, model))
    return pytest.mark.parametrize(("framework", "model"), pairs)


def new_inspector(side, model, seed):
    """Return the inspector of a new trainer, as a worker with this seed creates it."""
    config = side.config(model, seed=seed, batch_size=RATE.get(model, 2))
    side.backend.open_device(config)
    trainer = side.backend.Trainer(config)
    return side.backend.Inspector(trainer)


def take_steps(inspector, batch, count):
    """Return the losses of this many steps on the same batch."""
    return [step(inspector.trainer, batch) for _ in range(count)]


@dataclass
class Training:
    """Results of training a framework and a model on a repeated batch."""

    weights: dict[str, np.ndarray]
    effective: Effective
    multiply_adds: int
    inspected_losses: list[float]
    """of two steps after the inspections above"""
    losses: list[float]
    """of the next steps"""
    evaluated: tuple[float, float]
    """loss and accuracy after them"""


@pytest.fixture(scope="module")
def training():
    """Returns the training of a framework and a model."""

    @cache
    def trained(framework, model):
        side = side_of(framework)
        batch = side.batch(model)
        inspector = new_inspector(side, model, seed=1)
        weights = inspector.weights()
        effective = inspector.effective(batch)
        multiply_adds = inspector.multiply_adds(batch)
        inspected_losses = take_steps(inspector, batch, 2)
        losses = take_steps(inspector, batch, STEPS)
        evaluated = inspector.evaluate(batch)
        return Training(weights, effective, multiply_adds, inspected_losses, losses, evaluated)

    return trained


@of(models=["resnet50", "bert"])
@pytest.mark.slow
def test_a_seed_gives_the_same_losses_even_with_inspection(training, side, model):
    inspected = training(side.framework, model).inspected_losses
    batch = side.batch(model)
    assert take_steps(new_inspector(side, model, seed=1), batch, 2) == inspected
    assert take_steps(new_inspector(side, model, seed=2), batch, 1) != inspected[:1]


@of(models=MODELS)
def test_the_loss_falls_on_a_repeated_batch(training, framework, model):
    trained = training(framework, model)
    losses = trained.losses
    assert np.isfinite(losses).all()
    assert losses[-1] < 0.9 * losses[0]
    loss, accuracy = trained.evaluated
    assert loss < losses[0]
    assert 0 <= accuracy <= 1


@of(models=MODELS)
def test_counted_multiply_adds_match_the_formula(training, side, model):
    counted = training(side.framework, model).multiply_adds
    assert counted == 2 * multiply_adds(side.config(model))


@of(models=MODELS)
def test_effective_settings_are_reported(training, side, model):
    trained = training(side.framework, model)
    effective = trained.effective
    assert effective.precision == "fp32"
    assert {*effective.dtypes} == {"float32"}
    assert effective.device == "cpu"
    assert not effective.tf32
    assert effective.loss_scaling is None
    assert effective.parameters == sum(array.size for array in trained.weights.values())
    assert effective.threads
    assert {*effective.variables} <= {*side.backend.Inspector.variables}
    config = side.config(model, batch_size=RATE.get(model, 2))
    assert effective.optimizer_settings == optimizer_settings(config).description
    is_image = MODELS[model].sample == "image"
    assert effective.attention == (None if is_image else "unfused")


@of(models=MODELS)
def test_initial_weights_match_paddles_names_shapes_and_spread(training, framework, model):
    ours = training(framework, model).weights
    theirs = weights_of_paddle(model)
    assert shapes(ours) == shapes(theirs)
    for name, expected in theirs.items():
        if expected.ndim == 1:
            assert np.array_equal(ours[name], expected), name
        else:
            assert_same_spread(ours[name], expected, name)


def weights_of_paddle(model):
    """Return the initial weights of Paddle's script."""
    paddle.seed(0)
    created = new_model(Options(framework="paddle", model=model, device="cpu"))
    weights = {}
    for name, parameter in created.named_parameters():
        # The statistics of batch norms are not trained.
        if not parameter.stop_gradient:
            weights[name] = parameter.numpy()
    return weights


def shapes(weights):
    return {name: array.shape for name, array in weights.items()}


def assert_same_spread(values, expected, name):
    # Six standard errors.
    tolerance = 6 / expected.size**0.5
    deviation = float(expected.std())
    assert values.std() == pytest.approx(deviation, rel=tolerance), name
    assert values.mean() == pytest.approx(0, abs=tolerance * deviation), name
    reach = abs(expected).max() / deviation
    assert abs(values).max() / values.std() == pytest.approx(reach, rel=0.4), name


@of(models=MODELS)
def test_every_parameter_belongs_to_a_layer_of_one_block(training, framework, model):
    blocks = Outline(NETWORKS[model]()).blocks
    layers = [name for layers in blocks.values() for name in layers]
    assert len(layers) == len({*layers})
    owners = set()
    for name in training(framework, model).weights:
        owners.add(name if name in layers else name.rpartition(".")[0])
    assert owners == {*layers}


@pytest.mark.parametrize(
    ("framework", "model", "precision"),
    [
        *product(["tensorflow"], ["bert"], LOWER),
        pytest.param("tensorflow", "resnet50", "amp", marks=pytest.mark.slow),
        pytest.param("tensorflow", "resnet50", "bf16", marks=pytest.mark.slow),
        ("jax", "bert", "bf16"),
        ("jax", "llama", "bf16"),
    ],
)
def test_products_run_in_the_lower_precision_on_a_cpu(side, model, precision):
    assert precision in FRAMEWORKS[side.framework].cpu_precisions
    inspector = side.inspector(model, precision=precision)
    batch = side.batch(model)
    effective = inspector.effective(batch)
    assert effective.precision == precision
    assert {*effective.dtypes} - {"float32"} == {LOWER[precision]}
    assert effective.loss_scaling == (2.0**15 if precision == "amp" else None)
    assert np.isfinite(step(inspector.trainer, batch))
    dtypes = {array.dtype for array in inspector.weights().values()}
    assert dtypes == {np.dtype(np.float32)}


@of("tensorflow")
def test_an_overflow_skips_the_step_and_halves_the_loss_scale(side):
    inspector = side.inspector("bert", precision="amp")
    trainer = inspector.trainer
    batch = side.batch("bert")
    step(trainer, batch)
    before = inspector.weights()
    huge = {name: array * np.float32(1e30) for name, array in before.items()}
    inspector.load_weights(huge)
    for skipped in (1, 2):
        step(trainer, batch)
        assert equal(inspector.weights(), huge)
        assert trainer.skipped_steps == skipped
        assert trainer.loss_scale == 2.0**15 / 2**skipped
    inspector.load_weights(before)
    step(trainer, batch)
    assert not equal(inspector.weights(), before)
    assert trainer.skipped_steps == 2
    assert trainer.loss_scale == 2.0**13


class StartedAlike:
    """Gives trainers without dropout the weights of the first one."""

    def __init__(self, side, model):
        self.side = side
        self.model = model
        self.weights = None

    def inspector(self, **changes):
        inspector = self.side.inspector(self.model, **changes)
        inspector.disable_dropout()
        if self.weights is None:
            self.weights = inspector.weights()
        inspector.load_weights(self.weights)
        return inspector


@of("jax")
@pytest.mark.slow
def test_both_layouts_compute_the_same(side, doubles):
    model, size = "resnet50", 64
    started = StartedAlike(side, model)
    images, labels = side.arrays(model, dtype="float64", image_size=size, layout="NHWC")
    last = started.inspector(image_size=size, layout="NHWC")
    last_batch = side.tensors((images, labels))
    first = started.inspector(image_size=size, layout="NCHW")
    first_batch = side.tensors((images.transpose(0, 3, 1, 2).copy(), labels))
    loss = float(last.trainer.backward(last_batch))
    assert float(first.trainer.backward(first_batch)) == pytest.approx(loss, rel=1e-9)
    assert first.multiply_adds(first_batch) == last.multiply_adds(last_batch)
    gradients = first.gradients()
    for name, gradient in last.gradients().items():
        assert distance(gradient, gradients[name]) < 1e-9, name


def distance(array, other):
    """Return the relative distance of two arrays, ignoring rounding."""
    return np.linalg.norm(array - other) / (np.linalg.norm(array) + 1e-4)


@pytest.mark.usefixtures("processes", "doubles")
@of("tensorflow")
@pytest.mark.slow
def test_static_execution_takes_the_same_steps_as_dynamic(side):
    started = StartedAlike(side, "bert")
    arrays = side.arrays("bert", dtype="float64")
    dynamic = started.inspector(execution="dynamic")
    expected = take_steps(dynamic, side.tensors(arrays), 2)
    static = started.inspector(execution="static")
    assert static.computed_dtypes(side.tensors(arrays)).keys() == {"float64"}
    assert take_steps(static, side.tensors(arrays), 2) == pytest.approx(expected, rel=1e-9)


@of(models=["bert", "llama"])
@pytest.mark.slow
def test_accumulated_micro_batches_equal_one_step_on_the_whole_batch(side, doubles, model):
    """Excludes ResNet-50, whose batch norm sees each micro-batch alone."""
    started = StartedAlike(side, model)
    whole = started.inspector(batch_size=4, accumulate=1)
    halves = started.inspector(batch_size=2, accumulate=2)
    for seed in range(2):
        arrays = side.arrays(model, size=4, dtype="float64", seed=seed)
        first_half = side.tensors(tuple(array[:2] for array in arrays))
        second_half = side.tensors(tuple(array[2:] for array in arrays))
        loss = float(halves.trainer.backward(first_half))
        loss += float(halves.trainer.backward(second_half))
        halves.trainer.update()
        assert loss == pytest.approx(step(whole.trainer, side.tensors(arrays)), rel=1e-9)
    weights = halves.weights()
    for name, expected in whole.weights().items():
        assert expected.dtype == np.float64
        assert np.allclose(expected, weights[name], rtol=1e-9, atol=1e-11), name


@of()
@pytest.mark.usefixtures("processes")
def test_adamw_takes_the_steps_of_its_formula(side, doubles):
    inspector = new_inspector(side, "bert", seed=0)
    inspector.disable_dropout()
    settings = optimizer_settings(side.config("bert", batch_size=2))
    beta1, beta2 = settings.betas
    # Without weight decay, as all parameters of one axis.
    name = "cls.seq_relationship.bias"
    first_moment = second_moment = 0.0
    for seed in range(3):
        before = inspector.weights()[name]
        inspector.trainer.backward(side.batch("bert", seed=seed))
        gradient = inspector.gradients()[name]
        inspector.trainer.update()
        first_moment = beta1 * first_moment + (1 - beta1) * gradient
        second_moment = beta2 * second_moment + (1 - beta2) * gradient**2
        mean = first_moment / (1 - beta1 ** (seed + 1))
        square = second_moment / (1 - beta2 ** (seed + 1))
        expected = settings.learning_rate * mean / (np.sqrt(square) + EPSILON)
        change = before - inspector.weights()[name]
        assert np.allclose(change, expected, rtol=1e-9, atol=1e-18)


@of()
def test_loaded_weights_give_the_same_loss_and_gradients(side):
    batch = side.batch("bert")
    first = side.inspector("bert", seed=0)
    second = side.inspector("bert", seed=1)
    weights = first.weights()
    second.load_weights(weights)
    first.disable_dropout()
    second.disable_dropout()
    assert float(first.trainer.backward(batch)) == float(second.trainer.backward(batch))
    gradients = first.gradients()
    assert gradients.keys() == weights.keys()
    assert equal(second.gradients(), gradients)


@of()
def test_a_step_does_not_change_weights_returned_before(side):
    inspector = side.inspector("bert")
    weights = inspector.weights()
    copies = {name: array.copy() for name, array in weights.items()}
    step(inspector.trainer, side.batch("bert"))
    assert equal(weights, copies)
    assert not equal(weights, inspector.weights())


@of()
def test_gradients_do_not_accumulate_after_zero_grad(side):
    batch = side.batch("bert")
    inspector = side.inspector("bert")
    inspector.disable_dropout()
    inspector.trainer.backward(batch)
    gradients = inspector.gradients()
    inspector.trainer.zero_grad()
    inspector.trainer.backward(batch)
    assert equal(inspector.gradients(), gradients)


@of()
def test_weights_of_another_network_are_rejected_without_changes(side):
    inspector = side.inspector("resnet50")
    before = inspector.weights()
    assert before["conv1.weight"].shape == (16, 3, 7, 7)
    turned = before | {"fc.weight": before["fc.weight"].T.copy()}
    with pytest.raises(ValueError, match=r"fc.weight: expected \(128, 1000\), found"):
        inspector.load_weights(turned)
    fewer = {name: array + 1 for name, array in before.items() if "bias" not in name}
    with pytest.raises(ValueError, match=r"bn1.bias: expected .*, found None, and 17"):
        inspector.load_weights(fewer)
    assert equal(before, inspector.weights())


@of()
@pytest.mark.slow
def test_dropout_changes_the_loss_until_it_is_disabled(side):
    batch = side.batch("bert")
    inspector = side.inspector("bert")
    backward = inspector.trainer.backward
    assert float(backward(batch)) != float(backward(batch))
    inspector.disable_dropout()
    assert float(backward(batch)) == float(backward(batch))


@of()
def test_padding_does_not_count_in_loss_and_accuracy(side):
    inspector = side.inspector("bert")
    inspector.disable_dropout()
    *tokens, positions, labels, next_sentence = side.arrays("bert")
    _loss, (scores, _pairs) = inspector.predict(side.batch("bert"))
    first_score = inspector.array(scores).reshape(-1, scores.shape[-1])[0]
    # Make one prediction correct.
    labels[0, 0] = first_score.argmax()
    batch = side.tensors((*tokens, positions, labels, next_sentence))
    loss, accuracy = inspector.evaluate(batch)
    assert accuracy >= 1 / labels.size
    margins = ((0, 0), (0, 2))
    padding = np.pad(positions, margins), np.pad(labels, margins)
    padded = inspector.evaluate(side.tensors((*tokens, *padding, next_sentence)))
    assert padded == pytest.approx((loss, accuracy), rel=1e-5)


@of()
@pytest.mark.parametrize("source", ["numpy", "dali"])
def test_arrays_of_an_input_become_equal_tensors(side, source):
    images = np.random.default_rng(0).standard_normal((2, 8, 8, 3), np.float32)
    labels = np.asarray([[3], [999]], np.int64)
    arrays = images, labels
    if source == "dali":
        dali = pytest.importorskip("nvidia.dali.tensors")
        arrays = dali.TensorCPU(images, "NHWC"), dali.TensorCPU(labels)
    image_tensor, label_tensor = side.tensors(arrays)
    assert np.array_equal(np.asarray(image_tensor), images)
    assert np.array_equal(np.asarray(label_tensor), labels)


@of("tensorflow")
def test_a_data_loader_keeps_the_order_of_the_indices(side):
    samples = [(np.full(3, n * n, np.float32), np.array([n])) for n in range(12)]
    indices = [[5, 2], [0, 7], [1, 1], [11, 3]]
    batches = side.backend.data_loader(samples, iter(indices), 2)
    for (squares, numbers), expected in zip(batches, indices, strict=True):
        assert numbers.numpy().ravel().tolist() == expected
        assert squares.numpy().tolist() == [[n * n] * 3 for n in expected]


@of()
def test_peak_workloads_run(side):
    workloads = side.backend.Workloads(side.config())
    assert tuple(workloads.matmul(64)().shape) == (64, 64)
    workloads.copy(2**20)()
