"""The models in PyTorch, and what the backend makes of them."""

import numpy as np
import pytest

torch = pytest.importorskip("torch")
# ruff: noqa: E402 - without PyTorch, an extra, the imports below would fail

from perfkit.config import Config
from perfkit.inputs import synthetic
from perfkit.models import MODELS, bert_torch, vgg16_torch
from perfkit.models.bert_torch import Bert
from perfkit.models.resnet50_torch import Bottleneck, ResNet50
from perfkit.models.vgg16_torch import VGG16

WORDS = 1100
DENSE = 128


@pytest.fixture
def narrow(monkeypatch):
    """BERT with fewer layers and words, VGG-16 with a quarter of its channels: training them
    whole shows no more and takes minutes."""
    monkeypatch.setattr(bert_torch, "LAYERS", 2)
    monkeypatch.setattr(bert_torch, "VOCABULARY", WORDS)
    monkeypatch.setattr(synthetic, "VOCABULARY", WORDS)
    stages = tuple((width // 4, count) for width, count in vgg16_torch.STAGES)
    monkeypatch.setattr(vgg16_torch, "STAGES", stages)
    monkeypatch.setattr(vgg16_torch, "DENSE", DENSE)


def config(model="resnet50", **changes):
    values = {"model": model, "device": "cpu", "processes": 1, "input": "synthetic"}
    values |= {"batch_size": 2, "optimizer": MODELS[model].optimizers[0]}
    images = {"image_size": 32, "layout": "NHWC"}
    values |= {"sequence_length": 16} if model == "bert" else images
    return Config(**values | changes)


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
    strides = {part[0].kernel_size: part[0].stride for part in (block.reduce, block.spatial)}
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
