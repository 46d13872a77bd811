"""PyTorch's models give the logits of torchvision's and transformers' with the same weights,
and Paddle's, JAX's and TensorFlow's those of PyTorch's."""

from functools import partial

import numpy as np
import pytest

torch = pytest.importorskip("torch")
torchvision = pytest.importorskip("torchvision")
transformers = pytest.importorskip("transformers")
paddle = pytest.importorskip("paddle")
jax = pytest.importorskip("jax")
# ruff: noqa: E402 - the frameworks are optional; the imports below need them
from perfkit.training import models
from perfkit.training.jax import bert as jax_bert
from perfkit.training.jax import gpt as jax_gpt
from perfkit.training.jax import llama as jax_llama
from perfkit.training.jax import resnet as jax_resnet
from perfkit.training.jax.verify import from_pytorchs_axes
from perfkit.training.paddle import bert as paddle_bert
from perfkit.training.paddle import gpt as paddle_gpt
from perfkit.training.paddle import llama as paddle_llama
from perfkit.training.paddle import resnet as paddle_resnet
from perfkit.training.paddle import vgg as paddle_vgg
from perfkit.training.torch.bert import BertForPreTraining
from perfkit.training.torch.gpt import GPT
from perfkit.training.torch.llama import Llama
from perfkit.training.torch.resnet import ResNet
from perfkit.training.torch.vgg import VGG

BERT = models.BertSize(2, 64, 4, vocabulary=500, positions=32)
GPT2 = models.GptSize(2, 64, 4, vocabulary=500, positions=32)
TIED = models.LlamaSize(2, 64, 4, 2, 128, is_tied=True, vocabulary=500, positions=64)
UNTIED = TIED._replace(is_tied=False)
ROUNDING = 5e-6
"""Largest difference by rounding to float32, as a share of the largest logit."""
random = np.random.default_rng(0)
IDS = random.integers(0, 500, (2, 16))
SEGMENTS = IDS % 2
MASK = np.ones_like(IDS)
MASK[0, 12:] = 0
POSITIONS = np.array([[1, 3], [2, 15]])
BERT_INPUTS = (IDS, SEGMENTS, MASK, POSITIONS)
IMAGES = random.standard_normal((2, 3, 64, 64), np.float32)


@pytest.fixture(autouse=True)
def seed():
    torch.manual_seed(0)


def difference(ours, theirs):
    """Return the largest difference of two tensors as a share of the largest value."""
    ours, theirs = map(as_array, (ours, theirs))
    return abs(ours - theirs).max() / abs(theirs).max()


def as_array(tensor):
    return np.asarray(tensor.detach() if hasattr(tensor, "detach") else tensor)


def tensors(*arrays):
    return tuple(map(torch.tensor, arrays))


@pytest.mark.parametrize(("model", "theirs"), [(ResNet, "resnet50"), (VGG, "vgg16")])
def test_an_image_model_gives_the_logits_of_torchvisions(model, theirs):
    ours = model().eval()
    other = getattr(torchvision.models, theirs)().eval()
    other.load_state_dict(ours.state_dict())
    (images,) = tensors(IMAGES)
    with torch.no_grad():
        assert difference(ours(images), other(images)) < ROUNDING


def test_bert_gives_the_logits_of_transformers():
    ours = BertForPreTraining(BERT).eval()
    config = transformers.BertConfig(
        vocab_size=500,
        max_position_embeddings=32,
        hidden_size=64,
        num_hidden_layers=2,
        num_attention_heads=4,
        intermediate_size=256,
    )
    other = transformers.BertForPreTraining(config).eval()
    loaded = other.load_state_dict(ours.state_dict(), strict=False)
    assert loaded.unexpected_keys == []
    words, sentences = ours(*tensors(*BERT_INPUTS))
    ids, segments, mask, positions = tensors(*BERT_INPUTS)
    expected = other(ids, attention_mask=mask, token_type_ids=segments)
    # Ours computes the logits at the masked positions alone.
    of_masked = expected.prediction_logits[torch.arange(2)[:, None], positions]
    assert difference(words, of_masked) < ROUNDING
    assert difference(sentences, expected.seq_relationship_logits) < ROUNDING


def test_gpt2_gives_the_logits_of_transformers():
    ours = GPT(GPT2)
    config = transformers.GPT2Config(
        vocab_size=500, n_positions=32, n_embd=64, n_layer=2, n_head=4
    )
    other = transformers.GPT2LMHeadModel(config).eval()
    weights = {}
    for name, weight in ours.state_dict().items():
        # Theirs are Conv1D, with transposed weights.
        is_product = name.endswith(("c_attn.weight", "c_proj.weight", "c_fc.weight"))
        weights[name] = weight.T if is_product else weight
    loaded = other.load_state_dict(weights, strict=False)
    assert loaded.unexpected_keys == []
    (ids,) = tensors(IDS)
    assert difference(ours(ids), other(ids).logits) < ROUNDING


@pytest.mark.parametrize("size", [TIED, UNTIED], ids=["tied", "untied"])
def test_llama_gives_the_logits_and_the_loss_of_transformers(size):
    ours = Llama(size)
    config = transformers.LlamaConfig(
        vocab_size=500,
        hidden_size=64,
        intermediate_size=128,
        num_hidden_layers=2,
        num_attention_heads=4,
        num_key_value_heads=2,
        max_position_embeddings=64,
        rms_norm_eps=1e-5,
        rope_theta=5e5,
        tie_word_embeddings=size.is_tied,
    )
    other = transformers.LlamaForCausalLM(config).eval()
    loaded = other.load_state_dict(ours.state_dict(), strict=False)
    assert loaded.unexpected_keys == []
    ids, labels = tensors(IDS, np.roll(IDS, -1, 1))
    logits = other(ids).logits
    assert difference(ours(ids), logits) < ROUNDING
    expected = torch.nn.functional.cross_entropy(logits.flatten(0, 1), labels.flatten())
    assert ours(ids, labels).item() == pytest.approx(expected.item(), rel=1e-5)


def copy_weights(ours, theirs):
    """Give a model of Paddle the weights of PyTorch's, by name."""
    dense = set()
    for path, layer in ours.named_sublayers():
        if isinstance(layer, paddle.nn.Linear):
            # Paddle stores inputs x outputs.
            dense.add(f"{path}.weight")
    weights = dict(theirs.named_parameters())
    names = set()
    for name, parameter in ours.named_parameters():
        if parameter.stop_gradient:
            # A statistic of batch norm.
            continue
        array = weights[name].detach().numpy()
        parameter.set_value(array.T if name in dense else array)
        names.add(name)
    assert names == weights.keys()


@pytest.mark.slow
@pytest.mark.parametrize(
    ("of_paddle", "of_torch"), [(paddle_resnet.ResNet, ResNet), (paddle_vgg.VGG, VGG)]
)
def test_paddles_image_models_in_nhwc_give_pytorchs_logits(of_paddle, of_torch):
    """Those in NCHW are compared in test_verification.py."""
    theirs = of_torch()
    ours = of_paddle(layout="NHWC")
    copy_weights(ours, theirs)
    theirs.eval()
    ours.eval()
    images = IMAGES.transpose(0, 2, 3, 1).copy()
    with torch.no_grad():
        expected = theirs(torch.tensor(IMAGES))
    assert difference(ours(paddle.to_tensor(images)), expected) < ROUNDING


@pytest.mark.parametrize(
    ("of_paddle", "of_torch", "size", "inputs"),
    [
        (paddle_bert.BertForPreTraining, BertForPreTraining, BERT, BERT_INPUTS),
        (paddle_gpt.GPT, GPT, GPT2, (IDS,)),
        (paddle_llama.Llama, Llama, TIED, (IDS,)),
        (paddle_llama.Llama, Llama, UNTIED, (IDS,)),
    ],
)
def test_paddles_language_models_give_pytorchs_logits(of_paddle, of_torch, size, inputs):
    theirs = of_torch(size).eval()
    ours = of_paddle(size)
    ours.eval()
    copy_weights(ours, theirs)
    given = ours(*map(paddle.to_tensor, inputs))
    expected = theirs(*tensors(*inputs))
    if not isinstance(given, tuple):
        given, expected = (given,), (expected,)
    for one, other in zip(given, expected, strict=True):
        assert difference(one, other) < ROUNDING


def weights_of(model, shapes):
    """Return the weights of a model of PyTorch with the axes of JAX's."""
    weights = {}
    for name, parameter in model.named_parameters():
        array = from_pytorchs_axes(name, parameter.detach().numpy())
        weights[name] = jax.numpy.asarray(array)
    assert {name: each.shape for name, each in weights.items()} == shapes
    return weights


@pytest.mark.parametrize("layout", ["NCHW", "NHWC"])
def test_jaxs_resnet_gives_pytorchs_logits_and_statistics(layout):
    theirs = ResNet()
    expected = theirs(torch.tensor(IMAGES))
    weights = weights_of(theirs, jax_resnet.shapes())
    before = jax_resnet.initial_statistics()
    images = IMAGES if layout == "NCHW" else IMAGES.transpose(0, 2, 3, 1)
    run = jax.jit(jax_resnet.resnet, static_argnames="layout")
    logits, statistics = run(weights, before, images, layout=layout)
    # Batch norms of two images, of which the deepest have 2 x 2 pixels, add to the rounding.
    assert difference(jax.device_get(logits), expected) < 20 * ROUNDING
    buffers = {name: value.numpy() for name, value in theirs.named_buffers() if value.ndim}
    assert statistics.keys() == buffers.keys()
    for name, value in statistics.items():
        if name.endswith("mean"):
            scale = abs(buffers[name]).max()
            assert np.allclose(value, buffers[name], atol=1e-4 * scale), name


@pytest.mark.parametrize(
    ("module", "function", "of_torch", "size", "inputs"),
    [
        (jax_bert, jax_bert.bert, BertForPreTraining, BERT, BERT_INPUTS),
        (jax_gpt, jax_gpt.gpt, GPT, GPT2, (IDS,)),
        (jax_llama, jax_llama.llama, Llama, TIED, (IDS,)),
        (jax_llama, jax_llama.llama, Llama, UNTIED, (IDS,)),
    ],
)
def test_jaxs_language_models_give_pytorchs_logits(module, function, of_torch, size, inputs):
    theirs = of_torch(size).eval()
    expected = theirs(*tensors(*inputs))
    weights = weights_of(theirs, module.shapes(size))
    given = jax.jit(partial(function, size=size))(weights, *inputs)
    if not isinstance(given, tuple):
        given, expected = (given,), (expected,)
    for one, other in zip(given, expected, strict=True):
        assert difference(jax.device_get(one), other) < ROUNDING


def parameters_of(model):
    return {name: each.detach().numpy() for name, each in model.named_parameters()}


def test_tensorflows_resnet_gives_pytorchs_logits():
    tf = pytest.importorskip("tensorflow")
    from perfkit.training.tensorflow.resnet import ResNet as OfTensorFlow
    from perfkit.training.tensorflow.verify import load

    theirs, ours = ResNet().eval(), OfTensorFlow(models.RESNET_STAGES)
    load(ours, parameters_of(theirs))
    images = tf.constant(IMAGES.transpose(0, 2, 3, 1))
    with torch.no_grad():
        assert difference(ours(images), theirs(torch.tensor(IMAGES))) < ROUNDING


def test_tensorflows_bert_gives_pytorchs_logits():
    tf = pytest.importorskip("tensorflow")
    from perfkit.training.tensorflow.bert import BertForPreTraining as OfTensorFlow
    from perfkit.training.tensorflow.verify import load

    theirs, ours = BertForPreTraining(BERT).eval(), OfTensorFlow(BERT)
    load(ours, parameters_of(theirs))
    for given, expected in zip(
        ours(*map(tf.constant, BERT_INPUTS)), theirs(*tensors(*BERT_INPUTS)), strict=True
    ):
        assert difference(given, expected) < ROUNDING


@pytest.mark.parametrize(
    ("model", "size", "count"),
    [
        ("resnet50", None, 25_557_032),
        ("vgg16", None, 138_357_544),
        ("bert", None, 110_106_428),
        ("gpt", "124M", 124_475_904),
        ("gpt", "1558M", 1_557_686_400),
        ("llama", "1b", 1_235_814_400),
        ("llama", "8b", 8_030_261_248),
    ],
)
def test_parameter_counts_match_the_published_models(model, size, count):
    from perfkit.training.options import Options
    from perfkit.training.torch.models import new_model

    # Shapes only: drawing so many weights takes minutes.
    with torch.device("meta"):
        created = new_model(Options(framework="torch", model=model, model_size=size))
    assert sum(each.numel() for each in created.parameters()) == count
    assert models.model_named(model, size).parameters == count
