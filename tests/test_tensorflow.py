"""TensorFlow's layers, optimizers and batches, which must match those of PyTorch, and a
measurement."""

import numpy as np
import pytest

torch = pytest.importorskip("torch")
# Other tests import Paddle, which crashes after TensorFlow.
pytest.importorskip("paddle")
tf = pytest.importorskip("tensorflow")
# ruff: noqa: E402 - the frameworks are optional; the imports below need them
from perfkit.inputs import synthetic
from perfkit.measuring.results.summarize import check_against_raw
from perfkit.training.options import Options
from perfkit.training.tensorflow.batches import loaded, new_batches
from perfkit.training.tensorflow.layers import BatchNorm, Dropout, max_pool
from perfkit.training.tensorflow.optimizers import AdamW, Momentum
from perfkit.training.torch.train import new_optimizer

random = np.random.default_rng(0)


def last(images):
    """Return the images with channels last."""
    return np.ascontiguousarray(images.transpose(0, 2, 3, 1))


# Layers.


def test_dropout_drops_its_share_and_keeps_the_mean():
    dropout, ones = Dropout(0.1), tf.ones((400, 500))
    dropped = dropout(ones, training=True).numpy()
    assert (dropped == 0).mean() == pytest.approx(0.1, abs=0.01)
    assert dropped.mean() == pytest.approx(1, abs=0.01)
    assert not np.array_equal(dropped, dropout(ones, training=True))
    assert np.array_equal(ones, dropout(ones, training=False))


def test_batch_norm_matches_pytorchs_output_and_statistics():
    images = random.standard_normal((4, 3, 5, 6), np.float32) * 3 + 1
    ours, theirs = BatchNorm(3), torch.nn.BatchNorm2d(3)
    for training in (True, True, False):
        theirs.train(training)
        expected = theirs(torch.tensor(images)).detach().numpy()
        assert np.allclose(ours(last(images), training), last(expected), atol=1e-5)
        assert np.allclose(ours.running_mean, theirs.running_mean, atol=1e-6)
        assert np.allclose(ours.running_var, theirs.running_var, atol=1e-5)


@pytest.mark.parametrize("pixels", [8, 7])
def test_max_pooling_and_its_gradient_match_pytorchs(pixels):
    # Small integers give many ties.
    values = random.integers(0, 3, (2, 3, pixels, pixels)).astype(np.float32)
    theirs = torch.tensor(values, requires_grad=True)
    expected = torch.nn.functional.max_pool2d(theirs, 3, 2, 1)
    weights = random.standard_normal(expected.shape).astype(np.float32)
    expected.backward(torch.tensor(weights))
    images = tf.constant(last(values))
    with tf.GradientTape() as tape:
        tape.watch(images)
        pooled = max_pool(images, 3, 2)
    gradient = tape.gradient(pooled, images, tf.constant(last(weights)))
    assert np.array_equal(pooled, last(expected.detach().numpy()))
    assert np.allclose(gradient, last(theirs.grad.numpy()), atol=1e-6)


# Optimizers.


@pytest.mark.parametrize(
    ("kind", "model"), [(Momentum, "resnet50"), (AdamW, "bert")], ids=["momentum", "adamw"]
)
def test_an_optimizer_takes_pytorchs_steps(kind, model):
    given = Options(framework="torch", model=model, device="cpu")
    settings = given.optimizer_settings
    initial = [random.standard_normal((3, 4)), random.standard_normal(5)]
    ours = [tf.Variable(each) for each in initial]
    theirs = [torch.tensor(each, requires_grad=True) for each in initial]
    optimizer = kind(ours, settings)
    other = new_optimizer(given, torch.nn.ParameterList(theirs))
    for _step in range(4):
        gradients = [random.standard_normal(each.shape) for each in initial]
        optimizer.apply([tf.constant(each) for each in gradients])
        for parameter, gradient in zip(other_parameters(other), gradients, strict=True):
            parameter.grad = torch.tensor(gradient)
        other.step()
    for one, parameter in zip(ours, other_parameters(other), strict=True):
        assert np.allclose(one, parameter.detach().numpy(), rtol=1e-12, atol=1e-15)


def other_parameters(optimizer):
    return [each for group in optimizer.param_groups for each in group["params"]]


# Batches.


def test_dalis_arrays_which_it_overwrites_become_copies(monkeypatch):
    dali = pytest.importorskip("nvidia.dali.tensors")
    images = random.standard_normal((2, 8, 8, 3), np.float32)
    labels = np.asarray([[3], [999]], np.int64)
    arrays = dali.TensorCPU(images, "NHWC"), dali.TensorCPU(labels)
    monkeypatch.setattr(synthetic, "batches", lambda *_given: iter([arrays]))
    options = Options(framework="tensorflow", model="resnet50", device="cpu")
    image_tensor, label_tensor = next(new_batches(options))
    expected = images.copy()
    images[:] = 0
    assert np.array_equal(image_tensor, expected)
    assert np.array_equal(label_tensor, labels)


def test_a_data_loader_keeps_the_order_of_the_indices():
    samples = [(np.full(3, n * n, np.float32), np.array([n])) for n in range(12)]
    indices = [[5, 2], [0, 7], [1, 1], [11, 3]]
    batches = loaded(samples, iter(indices), 2)
    for (squares, numbers), expected in zip(batches, indices, strict=True):
        assert numbers.numpy().ravel().tolist() == expected
        assert squares.numpy().tolist() == [[n * n] * 3 for n in expected]


# A measurement.


@pytest.mark.slow
def test_a_measurement_has_samples_losses_and_effective_settings(measure):
    measurement = measure(framework="tensorflow", input="dataloader", dataloader_workers=2)
    result = measurement.result
    assert result.status == "complete", result.failure
    effective = result.effective
    assert (effective.precision, effective.device) == ("fp32", "cpu")
    assert effective.step_clock == "host"
    assert effective.parameters == 25_557_032
    assert effective.threads["tf_Compute"] > 0
    assert effective.variables["TF_NUM_INTRAOP_THREADS"]
    assert effective.settings["execution"] == "tf.function"
    (repeat,) = result.repeats
    assert sum(rank.samples for rank in repeat.ranks) == 2 * 2
    assert check_against_raw(measurement) == ""
