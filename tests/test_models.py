"""The models in Paddle, and what the backend makes of them."""

import numpy as np
import paddle
import pytest
from paddle import nn

from perfkit.frameworks.paddle.backend import (
    NETWORKS,
    DenseTensor,
    Trainer,
    as_tensors,
    open_device,
)
from perfkit.frameworks.paddle.bert import Bert
from perfkit.frameworks.paddle.resnet50 import Bottleneck, ResNet50
from perfkit.frameworks.paddle.vgg16 import VGG16
from perfkit.inputs import synthetic
from perfkit.models import MODELS, bert, resnet50, training_flops, vgg16
from perfkit.request.resolve import resolve

NAMES = tuple(MODELS)
WORDS = 1100
DENSE = 128


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


@pytest.fixture
def doubles():
    """Models of float64, in which rounding can't be taken for a difference."""
    paddle.set_default_dtype("float64")
    yield
    paddle.set_default_dtype("float32")


def config(model="resnet50", **changes):
    values = {"model": model, "device": "cpu", "processes": 1, "input": "synthetic"}
    values |= {"batch_size": 2, "optimizer": MODELS[model].optimizers[0]}
    images = {"image_size": 32, "layout": "NCHW"}
    values |= {"sequence_length": 16} if model == "bert" else images
    return resolve(values | changes)


def batch(model="resnet50", *, size=2, dtype="float32", seed=0, **changes):
    """A synthetic batch, whatever number of samples a configuration is for."""
    arrays = next(synthetic.batches(config(model, batch_size=size, seed=seed, **changes), 0))
    return as_tensors(tuple(a.astype(dtype) if a.dtype.kind == "f" else a for a in arrays))


def step(trainer, tensors):
    loss = trainer.backward(tensors)
    trainer.update()
    return float(loss)


def without_dropout(network):
    for layer in network.sublayers():
        if isinstance(layer, nn.Dropout):
            layer.p = 0.0
    return network


def tokens(count, length, seed=0):
    """Ids, segments and a mask of ones."""
    random = np.random.default_rng(seed)
    ids = random.integers(0, WORDS, (count, length), np.int64)
    segments = random.integers(0, 2, (count, length), np.int64)
    return as_tensors((ids, segments, np.ones((count, length), np.int64)))


def places(*rows):
    return paddle.to_tensor(rows, dtype="int64")


@pytest.mark.parametrize(
    ("model", "layout", "count"),
    [
        ("resnet50", "NCHW", 25_557_032),
        ("resnet50", "NHWC", 25_557_032),
        ("vgg16", "NCHW", 138_357_544),
        ("vgg16", "NHWC", 138_357_544),
        ("bert", None, 110_106_428),
    ],
)
def test_a_model_has_exactly_as_many_trainable_parameters_as_published(model, layout, count):
    # Shapes alone: filling this many weights takes seconds.
    with paddle.LazyGuard():
        parameters = NETWORKS[model](config(model, layout=layout)).parameters()
    assert sum(p.size for p in parameters if not p.stop_gradient) == count
    assert MODELS[model].parameters == count


def test_the_stride_is_in_the_3x3_convolution_as_v1_5_has_it():
    block = Bottleneck(256, 128, 2, "NCHW")
    strides = {part.weight.shape[-1]: part._stride for part in (block.conv1, block.conv2)}
    assert strides == {1: [1, 1], 3: [2, 2]}


# 96 pixels: VGG's features are then 3x3, so that places, too, could be mixed up.
@pytest.mark.parametrize(("model", "size"), [(ResNet50, 64), (VGG16, 96)])
def test_both_layouts_compute_the_same(narrow, model, size):
    paddle.seed(0)
    first, last = model("NCHW"), model("NHWC")
    last.set_state_dict(first.state_dict())
    first.eval()
    last.eval()
    images = paddle.randn([2, 3, size, size])
    with paddle.no_grad():
        one, other = first(images), last(images.transpose([0, 2, 3, 1]))
    assert np.allclose(one, other, rtol=1e-3, atol=1e-4)
    assert float(one.abs().max()) > 0.01


def test_vgg16_has_thirteen_convolutions_and_7x7_features_at_224_pixels():
    with paddle.LazyGuard():
        network = VGG16("NCHW")
    convolutions = [part for part in network.features if isinstance(part, nn.Conv2D)]
    halvings = [part for part in network.features if isinstance(part, nn.MaxPool2D)]
    assert len(convolutions) == 13
    assert 224 // 2 ** len(halvings) == vgg16.POOLED


def test_padding_changes_no_output_of_the_real_tokens(narrow):
    paddle.seed(0)
    network = Bert()
    network.eval()
    ids, segments, _mask = tokens(2, 24)
    mask = (paddle.arange(24) < 16).astype("int64").expand([2, 24])
    real = places(range(16), range(16))
    with paddle.no_grad():
        alone = network(ids[:, :16], segments[:, :16], mask[:, :16], real)
        padded = network(ids, segments, mask, real)
        unmasked = network(ids, segments, paddle.ones_like(mask), real)
    for expected, found, without in zip(alone, padded, unmasked, strict=True):
        assert np.allclose(expected, found, atol=1e-5)
        assert not np.allclose(expected, without, atol=1e-3)


def test_words_are_scored_at_the_masked_places_of_their_own_sequence(narrow):
    paddle.seed(0)
    network = Bert()
    network.eval()
    inputs = tokens(2, 16)
    wanted = places([3, 0, 15], [1, 1, 7])
    with paddle.no_grad():
        together, _ = network(*inputs, wanted)
        for row in (0, 1):
            alone = (part[row : row + 1] for part in inputs)
            everywhere, _ = network(*alone, places(range(16)))
            expected = everywhere.numpy()[wanted[row].numpy()]
            assert np.allclose(together[3 * row : 3 * row + 3], expected, atol=1e-5)
    assert together.shape == [6, WORDS]


def test_a_words_score_is_made_with_its_own_embedding(narrow):
    network = Bert()
    network.eval()
    inputs = tokens(1, 16)
    unused = WORDS - 1
    assert unused not in inputs[0].tolist()[0]
    with paddle.no_grad():
        network.word_embeddings.weight[unused] = 0.0
        network.decoder_bias[unused] = 0.25
        scores, _ = network(*inputs, places([1, 2]))
    assert scores[:, unused].tolist() == [0.25, 0.25]
    assert 0.25 not in scores[:, :unused].numpy()


def test_places_without_a_masked_word_do_not_count_in_the_loss(narrow):
    network = Bert()
    network.eval()
    inputs = tokens(2, 16)
    pairs = places([0], [1])
    with paddle.no_grad():
        scores = network(*inputs, places([3, 5], [7, 2]))
        loss = network.loss(scores, places([11, 12], [13, 14]), pairs)
        scores = network(*inputs, places([3, 5, 0], [7, 2, 0]))
        padded = network.loss(scores, places([11, 12, 0], [13, 14, 0]), pairs)
    assert float(padded) == pytest.approx(float(loss), rel=1e-6)


def test_the_loss_of_bert_is_the_words_mean_plus_the_pairs_mean():
    # Scores of zero: all of n choices are equally likely, a cross entropy of log n each.
    scores = paddle.zeros([6, 50]), paddle.zeros([2, 2])
    with paddle.LazyGuard():
        network = Bert()
    loss = network.loss(scores, places([1, 2, 3], [4, 5, 0]), places([0], [1]))
    assert float(loss) == pytest.approx(np.log(50) + np.log(2))


def test_bert_takes_sequences_of_512_tokens(narrow):
    network = Bert()
    network.eval()
    with paddle.no_grad():
        words, pairs = network(*batch("bert", size=1, sequence_length=512)[:4])
    assert (words.shape, pairs.shape) == ([80, WORDS], [1, 2])
    assert np.isfinite(words.numpy()).all()


@pytest.mark.parametrize("model", NAMES)
def test_static_execution_takes_the_same_steps_as_dynamic(narrow, model):
    losses = {}
    for execution in ("dynamic", "static"):
        paddle.seed(0)
        trainer = Trainer(config(model, execution=execution))
        without_dropout(trainer.network)
        losses[execution] = [step(trainer, batch(model)) for _ in range(2)]
    assert losses["dynamic"] == pytest.approx(losses["static"], rel=1e-3)


@pytest.mark.parametrize(
    ("model", "optimizer", "batch_size"),
    [
        ("resnet50", "momentum", 32),
        ("vgg16", "momentum", 32),
        ("bert", "adamw", 2),
        ("bert", "lamb", 1024),
    ],
)
def test_the_loss_falls_over_20_steps_on_a_batch_that_stays_the_same(
    narrow, model, optimizer, batch_size
):
    paddle.seed(0)
    # Recipes have a rate that goes with the batch: here that of a larger one than is trained.
    trainer = Trainer(config(model, optimizer=optimizer, batch_size=batch_size))
    if model == "vgg16":
        # Half of a narrow layer is too little to learn two images in a few steps.
        without_dropout(trainer.network)
    same = batch(model)
    losses = [step(trainer, same) for _ in range(20)]
    assert losses[-1] < 0.9 * losses[0]
    assert np.isfinite(losses).all()


@pytest.mark.parametrize("model", NAMES)
def test_a_seed_gives_the_same_first_loss_every_time_and_another_seed_another(narrow, model):
    losses = []
    for seed in (1, 1, 2):
        chosen = config(model, seed=seed)
        open_device(chosen)
        losses.append(step(Trainer(chosen), batch(model)))
    assert losses[0] == losses[1] != losses[2]


@pytest.mark.parametrize("optimizer", ["adamw", "lamb"])
def test_biases_and_norms_of_bert_do_not_decay(narrow, optimizer):
    trainer = Trainer(config("bert", optimizer=optimizer))
    before = {name: p.numpy().copy() for name, p in trainer.network.named_parameters()}
    for parameter in trainer.network.parameters():
        # Nothing but decay is left to move a parameter.
        parameter.grad = paddle.zeros_like(parameter)
    trainer.update()
    for name, parameter in trainer.network.named_parameters():
        decayed = not np.array_equal(before[name], parameter)
        assert decayed == (parameter.ndim > 1), name


@pytest.mark.parametrize("model", ["vgg16", "bert"])
def test_accumulated_micro_batches_are_one_step_on_the_joined_batch(narrow, doubles, model):
    """Without batch norm, which sees micro-batches one by one."""
    trained, losses = [], []
    for accumulate in (1, 2):
        paddle.seed(0)
        size = 4 // accumulate
        trainer = Trainer(config(model, batch_size=size, accumulate=accumulate))
        without_dropout(trainer.network)
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
        assert joined.dtype == paddle.float64
        assert np.allclose(joined, trained[1][name], rtol=1e-9, atol=1e-12), name


@pytest.mark.parametrize("execution", ["dynamic", "static"])
def test_effective_precision_is_read_from_what_the_layers_produce(execution):
    found = Trainer(config(execution=execution)).effective(batch())
    assert found["precision"] == "fp32"
    assert found["dtypes"] == {"float32": 109}
    assert found["parameters"] == 25_557_032


def test_tensors_as_dalis_paddle_plugin_fills_them_are_taken():
    images, labels = np.ones((2, 3, 4, 4), np.float32), np.ones((2, 1), np.int64)
    filled = []
    for array in (images, labels):
        tensor = DenseTensor()
        tensor.set(array, paddle.CPUPlace())
        filled.append(tensor)
    taken = as_tensors(tuple(filled))
    assert np.array_equal(taken[0], images)
    assert np.array_equal(taken[1], labels)


@pytest.mark.parametrize("execution", ["dynamic", "static"])
@pytest.mark.parametrize("model", NAMES)
def test_looking_at_the_layers_does_not_change_the_training(narrow, model, execution):
    after = []
    for look in (False, True):
        paddle.seed(0)
        trainer = Trainer(config(model, execution=execution))
        if look:
            trainer.computed_dtypes(batch(model))
        after.append([step(trainer, batch(model)) for _ in range(2)])
    assert after[0] == after[1]


def counted_multiply_adds(network, *inputs):
    """Those of one forward pass of convolutions and dense layers, by their outputs' sizes."""
    counts = []

    def count(layer, _inputs, output):
        places = output.size // output.shape[1 if isinstance(layer, nn.Conv2D) else -1]
        counts.append(places * layer.weight.size)

    for layer in network.sublayers():
        if isinstance(layer, nn.Conv2D | nn.Linear):
            layer.register_forward_post_hook(count)
    network.eval()
    with paddle.no_grad():
        network(*inputs)
    return counts


@pytest.mark.parametrize("model", ["resnet50", "vgg16"])
@pytest.mark.parametrize("size", [64, 75])
def test_the_arithmetic_of_a_step_is_that_of_the_networks_own_layers(model, size):
    found = counted_multiply_adds(
        NETWORKS[model](config(model)), paddle.randn([1, 3, size, size])
    )
    # Two operations each, in the forward pass and in both parts of the backward pass; the
    # first convolution has no gradient of the images.
    assert training_flops(config(model, image_size=size)) == 6 * sum(found) - 2 * found[0]


def test_the_arithmetic_of_bert_is_that_of_its_layers_attention_and_words():
    length, words = 32, 20
    one = batch("bert", size=1, sequence_length=length)
    layers = counted_multiply_adds(Bert(), *one[:4])
    attention = bert.LAYERS * 2 * length * length * bert.WIDTH
    scores = words * bert.WIDTH * bert.VOCABULARY
    expected = 6 * (sum(layers) + attention + scores)
    assert training_flops(config("bert", sequence_length=length)) == expected


def test_resnet50_takes_24_gigaflop_an_image():
    # 4.09 billion multiply-adds forward, as its reference implementations count.
    flops = training_flops(config("resnet50", image_size=224))
    assert flops / 6e9 == pytest.approx(4.09, rel=0.01)
