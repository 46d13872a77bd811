"""ResNet-50 v1.5 in Paddle, and what the backend makes of it."""

import numpy as np
import paddle
import pytest

from perfkit.backends.paddle import Trainer, as_tensors, effective
from perfkit.config import Config
from perfkit.models.resnet50_paddle import Bottleneck, ResNet50


def config(**changes):
    values = {"model": "resnet50", "device": "cpu", "batch_size": 2, "image_size": 32}
    return Config(**values | {"processes": 1, "input": "synthetic"} | changes)


def batch(layout="NCHW"):
    random = np.random.default_rng(0)
    shape = (2, 3, 32, 32) if layout == "NCHW" else (2, 32, 32, 3)
    images = random.standard_normal(shape, np.float32)
    return as_tensors((images, random.integers(0, 1000, (2, 1), np.int64)))


@pytest.mark.parametrize("layout", ["NCHW", "NHWC"])
def test_resnet50_has_exactly_25_557_032_trainable_parameters(layout):
    parameters = ResNet50(layout).parameters()
    assert sum(p.size for p in parameters if not p.stop_gradient) == 25_557_032


def test_the_stride_is_in_the_3x3_convolution_as_v1_5_has_it():
    block = Bottleneck(256, 128, 2, "NCHW")
    strides = {
        part[0].weight.shape[-1]: part[0]._stride for part in (block.reduce, block.spatial)
    }
    assert strides == {1: [1, 1], 3: [2, 2]}


def test_both_layouts_compute_the_same():
    paddle.seed(0)
    first, last = ResNet50("NCHW"), ResNet50("NHWC")
    last.set_state_dict(first.state_dict())
    first.eval()
    last.eval()
    images = paddle.randn([2, 3, 64, 64])
    with paddle.no_grad():
        one, other = first(images), last(images.transpose([0, 2, 3, 1]))
    assert np.allclose(one, other, rtol=1e-3, atol=1e-4)


def test_static_execution_takes_the_same_steps_as_dynamic():
    losses = {}
    for execution in ("dynamic", "static"):
        paddle.seed(0)
        trainer = Trainer(config(execution=execution))
        losses[execution] = [float(trainer.step(batch())) for _ in range(2)]
    assert losses["dynamic"] == pytest.approx(losses["static"], rel=1e-3)


def test_the_loss_falls_on_a_batch_that_stays_the_same():
    paddle.seed(0)
    trainer = Trainer(config(batch_size=32))
    losses = [float(trainer.step(batch())) for _ in range(10)]
    assert losses[-1] < losses[0] / 2


def test_effective_precision_is_read_from_what_the_layers_produce():
    found = effective(Trainer(config()), batch())
    assert found["precision"] == "fp32"
    assert set(found["dtypes"]) == {"float32"}
    assert found["parameters"] == 25_557_032


def test_tensors_as_dalis_paddle_plugin_fills_them_are_taken():
    images, labels = np.ones((2, 3, 4, 4), np.float32), np.ones((2, 1), np.int64)
    filled = []
    for array in (images, labels):
        tensor = paddle.base.core.DenseTensor()
        tensor.set(array, paddle.CPUPlace())
        filled.append(tensor)
    taken = as_tensors(tuple(filled))
    assert np.array_equal(taken[0], images)
    assert np.array_equal(taken[1], labels)


def test_looking_at_the_layers_does_not_change_the_training():
    after = []
    for look in (False, True):
        paddle.seed(0)
        trainer = Trainer(config())
        if look:
            trainer.produced_dtypes(batch())
        after.append(float(trainer.step(batch())))
    assert after[0] == after[1]
