"""Promises of every backend, on narrow models: Paddle, PyTorch, JAX and TensorFlow."""

from functools import cache
from importlib.util import find_spec
from itertools import product
from types import SimpleNamespace

import numpy as np
import paddle  # noqa: F401 - excludes this file from the quick check; others may be missing
import pytest
from narrow import replace_sizes
from sides import PADDLE_2, SIDES, equal, side_of, step, use_float32

from perfkit.core.frameworks import FRAMEWORKS
from perfkit.core.models import MODELS, model_named, multiply_adds, optimizer_settings

# PyTorch's compiler uses deprecated parts of PyTorch.
pytestmark = pytest.mark.filterwarnings("ignore:::torch.*")
STEPS = {"vgg16": 60}
"""Steps on the repeated batch, by default 20."""
RATE = {"resnet50": 32, "vgg16": 96}
"""Batch size that sets the learning rate for training two samples, by default 2."""
LOWER = {"amp": "float16", "bf16": "bfloat16"}


@pytest.fixture(scope="module", autouse=True)
def narrow(tmp_path_factory):
    """Narrow models, and a cache of XLA's compiled programs."""
    if find_spec("jax"):
        import jax

        jax.config.update("jax_compilation_cache_dir", str(tmp_path_factory.mktemp("compiled")))
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
    """Run a test with each of these frameworks and models."""

    def marked(test):
        test = pytest.mark.parametrize("framework", frameworks or SIDES)(test)
        return pytest.mark.parametrize("model", models)(test) if models else test

    return marked


@pytest.fixture(scope="module")
def training():
    """Results of training on a repeated batch, by framework and model."""

    @cache
    def trained(framework, model):
        side, found = side_of(framework), SimpleNamespace()
        batch, rate = side.batch(model), RATE.get(model, 2)

        def begun(seed):
            chosen = side.config(model, seed=seed, batch_size=rate)
            side.backend.open_device(chosen)
            return side.backend.Trainer(chosen)

        trainer = begun(1)
        inspector = side.backend.Inspector(trainer)
        found.first = inspector.weights()
        found.effective = inspector.effective(batch)
        found.multiply_adds = inspector.multiply_adds(batch)
        found.inspected = [step(trainer, batch) for _ in range(2)]
        again = begun(1)
        found.again = [step(again, batch) for _ in range(2)]
        found.other = step(begun(2), batch)
        if model == "vgg16":
            # Half of a narrow layer cannot learn two images in a few steps.
            inspector.disable_dropout()
        found.losses = [step(trainer, batch) for _ in range(STEPS.get(model, 20))]
        found.evaluated = inspector.evaluate(batch)
        return found

    return trained


@of(models=MODELS)
@pytest.mark.slow
def test_a_seed_gives_the_same_losses_even_with_inspection(training, framework, model):
    found = training(framework, model)
    assert found.inspected == found.again
    assert found.other != found.again[0]


@of(models=MODELS)
def test_the_loss_falls_on_a_repeated_batch(training, framework, model):
    found = training(framework, model)
    assert found.losses[-1] < 0.9 * found.losses[0]
    assert np.isfinite(found.losses).all()
    loss, accuracy = found.evaluated
    assert loss < found.losses[0] and 0 <= accuracy <= 1


@of(models=MODELS)
def test_counted_multiply_adds_match_the_formula(training, side, model):
    counted = training(side.framework, model).multiply_adds
    assert counted == 2 * multiply_adds(side.config(model))


@of(models=MODELS)
def test_effective_settings_are_reported(training, side, model):
    trained = training(side.framework, model)
    found = trained.effective
    assert (found.precision, {*found.dtypes}) == ("fp32", {"float32"})
    assert (found.device, found.tf32, found.loss_scaling) == ("cpu", False, None)
    assert found.parameters == sum(array.size for array in trained.first.values())
    assert found.threads and {*found.variables} <= {*side.backend.Inspector.variables}
    rate = side.config(model, batch_size=RATE.get(model, 2))
    assert found.optimizer_settings == optimizer_settings(rate).description
    kernel = None if model_named(model).sample == "image" else "unfused"
    if kernel and side.framework == "torch":
        kernel = "_scaled_dot_product_flash_attention_for_cpu"
    assert found.attention == kernel


@of("torch", "jax", "tensorflow", models=MODELS)
def test_initial_weights_match_paddles_names_shapes_and_spread(training, framework, model):
    ours, theirs = training(framework, model).first, training("paddle", model).first
    assert {n: a.shape for n, a in ours.items()} == {n: a.shape for n, a in theirs.items()}
    for name, expected in theirs.items():
        if expected.ndim == 1:
            assert np.array_equal(ours[name], expected), name
            continue
        # Six standard errors.
        tolerance, deviation = 6 / expected.size**0.5, float(expected.std())
        assert ours[name].std() == pytest.approx(deviation, rel=tolerance), name
        assert ours[name].mean() == pytest.approx(0, abs=tolerance * deviation), name
        reach = abs(expected).max() / expected.std()
        assert abs(ours[name]).max() / ours[name].std() == pytest.approx(reach, rel=0.4), name


@pytest.mark.parametrize(
    ("framework", "model", "precision"),
    [
        *product(["torch"], MODELS, LOWER),
        *product(["tensorflow"], ["bert", "gpt"], LOWER),
        pytest.param("tensorflow", "resnet50", "amp", marks=pytest.mark.slow),
        pytest.param("tensorflow", "resnet50", "bf16", marks=pytest.mark.slow),
        ("jax", "bert", "bf16"),
    ],
)
def test_products_run_in_the_lower_precision_on_a_cpu(side, model, precision):
    assert precision in FRAMEWORKS[side.framework].cpu_precisions
    inspector, batch = side.inspector(model, precision=precision), side.batch(model)
    trainer = inspector.trainer
    found = inspector.effective(batch)
    assert found.precision == precision
    assert {*found.dtypes} - {"float32"} == {LOWER[precision]}
    assert found.loss_scaling == (2.0**15 if precision == "amp" else None)
    assert np.isfinite(step(trainer, batch))
    assert {array.dtype for array in inspector.weights().values()} == {np.dtype(np.float32)}


@of("torch", "tensorflow")
def test_an_overflow_skips_the_step_and_halves_the_loss_scale(side):
    inspector = side.inspector("vgg16", precision="amp")
    trainer = inspector.trainer
    images, labels = side.arrays("vgg16")
    step(trainer, side.tensors((images, labels)))
    before = inspector.weights()
    for factor in (1e30, 1e30, 1):
        step(trainer, side.tensors((images * np.float32(factor), labels)))
        assert equal(inspector.weights(), before) == (factor > 1)
    assert (trainer.skipped_steps, trainer.loss_scale) == (2, 2.0**13)


# With 96 pixels, VGG's features are 3x3, so that a transposition would be noticed.
@pytest.mark.parametrize(("model", "size"), [("resnet50", 64), ("vgg16", 96)])
@of("paddle", "torch", "jax")
@pytest.mark.slow
def test_both_layouts_compute_the_same(side, doubles, model, size):
    weights, found = None, []
    for layout in ("NHWC", "NCHW"):
        inspector = side.inspector(model, image_size=size, layout=layout)
        trainer = inspector.trainer
        inspector.disable_dropout()
        weights = weights or inspector.weights()
        inspector.load_weights(weights)
        images, labels = side.arrays(model, dtype="float64", image_size=size, layout="NHWC")
        images = images.transpose(0, 3, 1, 2).copy() if layout == "NCHW" else images
        batch = side.tensors((images, labels))
        loss = float(trainer.backward(batch))
        found.append((inspector.multiply_adds(batch), loss, inspector.gradients()))
    (counted, loss, gradients), (other_counted, other_loss, others) = found
    assert counted == other_counted
    assert loss == pytest.approx(other_loss, rel=1e-9)
    for name, gradient in gradients.items():
        assert distance(gradient, others[name]) < 1e-9, name


def distance(one, other):
    """Return the relative distance of two arrays, ignoring rounding."""
    return np.linalg.norm(one - other) / (np.linalg.norm(one) + 1e-4)


@pytest.mark.usefixtures("processes", "doubles")
@pytest.mark.parametrize(
    ("framework", "model"),
    [*product(("paddle", "torch"), MODELS), ("tensorflow", "gpt")],
)
@pytest.mark.slow
def test_static_execution_takes_the_same_steps_as_dynamic(side, model):
    batch, weights, losses = side.arrays(model, dtype="float64"), None, {}
    for execution in ("dynamic", "static"):
        inspector = side.inspector(model, execution=execution)
        trainer = inspector.trainer
        inspector.disable_dropout()
        weights = weights or inspector.weights()
        inspector.load_weights(weights)
        if execution == "static":
            # Paddle's operator statistics do not name float64.
            dtype = "other" if side.framework == "paddle" else "float64"
            assert inspector.computed_dtypes(side.tensors(batch)).keys() == {dtype}
        losses[execution] = [step(trainer, side.tensors(batch)) for _ in range(2)]
    assert losses["dynamic"] == pytest.approx(losses["static"], rel=1e-9)


@of(models=["vgg16", "bert", "gpt"])
@pytest.mark.slow
def test_accumulated_micro_batches_equal_one_step_on_the_whole_batch(side, doubles, model):
    """Excludes ResNet-50, whose batch norm sees each micro-batch alone."""
    weights, found = None, []
    for accumulate in (1, 2):
        size = 4 // accumulate
        inspector = side.inspector(model, batch_size=size, accumulate=accumulate)
        trainer = inspector.trainer
        inspector.disable_dropout()
        weights = weights or inspector.weights()
        inspector.load_weights(weights)
        losses = []
        for seed in range(2):
            joined = side.arrays(model, size=4, dtype="float64", seed=seed)
            parts = (tuple(part[i : i + size] for part in joined) for i in range(0, 4, size))
            losses.append(sum(float(trainer.backward(side.tensors(part))) for part in parts))
            trainer.update()
        found.append((losses, inspector.weights()))
    (losses, trained), (other_losses, others) = found
    assert losses == pytest.approx(other_losses, rel=1e-9)
    for name, joined in trained.items():
        assert joined.dtype == np.float64
        assert np.allclose(joined, others[name], rtol=1e-9, atol=1e-11), name


@of(models=["vgg16", "bert"])
def test_loaded_weights_give_the_same_loss_and_gradients(side, model):
    first, second = (side.inspector(model, seed=seed) for seed in (0, 1))
    batch, weights = side.batch(model), first.weights()
    kept = {name: array.copy() for name, array in weights.items()}
    second.load_weights(weights)
    losses = []
    for inspector in (first, second):
        inspector.disable_dropout()
        losses.append(float(inspector.trainer.backward(batch)))
    assert losses[0] == losses[1]
    gradients = second.gradients()
    assert equal(first.gradients(), gradients) and gradients.keys() == weights.keys()
    first.trainer.update()
    # The step does not change weights handed out before.
    assert equal(weights, kept) and not equal(weights, first.weights())
    # After zero_grad, gradients do not accumulate.
    second.trainer.zero_grad()
    second.trainer.backward(batch)
    assert equal(second.gradients(), gradients)


@of()
def test_weights_of_another_network_are_rejected_without_changes(side):
    inspector = side.inspector("vgg16")
    before = inspector.weights()
    assert before["features.0.weight"].shape == (16, 3, 3, 3)
    turned = before | {"classifier.6.weight": before["classifier.6.weight"].T.copy()}
    with pytest.raises(ValueError, match=r"classifier.6.weight: expected \(128, 1000\), found"):
        inspector.load_weights(turned)
    fewer = {name: array + 1 for name, array in before.items() if "bias" not in name}
    with pytest.raises(ValueError, match=r"classifier.0.bias: expected .*, found None, and 15"):
        inspector.load_weights(fewer)
    assert equal(before, inspector.weights())


@of(models=["vgg16", "bert"])
@pytest.mark.slow
def test_dropout_changes_the_loss_until_it_is_disabled(side, model):
    inspector, batch = side.inspector(model), side.batch(model)
    trainer = inspector.trainer
    assert float(trainer.backward(batch)) != float(trainer.backward(batch))
    inspector.disable_dropout()
    assert float(trainer.backward(batch)) == float(trainer.backward(batch))


@of()
def test_padding_does_not_count_in_loss_and_accuracy(side):
    inspector = side.inspector("bert")
    inspector.disable_dropout()
    *tokens, positions, labels, next_sentence = side.arrays("bert")
    # Make one prediction correct.
    _loss, (scores, _pairs) = inspector.predict(side.batch("bert"))
    labels[0, 0] = inspector.array(scores).reshape(-1, scores.shape[-1])[0].argmax()
    padded = (np.pad(array, ((0, 0), (0, 2))) for array in (positions, labels))
    found = [
        inspector.evaluate(side.tensors((*tokens, *masked, next_sentence)))
        for masked in ((positions, labels), padded)
    ]
    assert found[0] == pytest.approx(found[1], rel=1e-5)
    assert found[0][1] >= 1 / labels.size


@of()
def test_numpy_and_dali_arrays_become_equal_tensors(side):
    dali = pytest.importorskip("nvidia.dali.tensors")
    images = np.random.default_rng(0).standard_normal((2, 8, 8, 3), np.float32)
    labels = np.asarray([[3], [999]], np.int64)
    dali_arrays = dali.TensorCPU(images, "NHWC"), dali.TensorCPU(labels)
    for arrays in ((images, labels), dali_arrays):
        tensors = side.tensors(arrays)
        assert np.array_equal(np.asarray(tensors[0]), images)
        assert np.array_equal(np.asarray(tensors[1]), labels)
        if side.framework == "torch" or (side.framework == "paddle" and not PADDLE_2):
            assert tensors[0].data_ptr() == images.ctypes.data


@of("torch", "tensorflow")
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
