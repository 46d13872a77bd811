"""The networks, in any framework's layers; perfkit.core.models names their sources.

A network is called with the layers (see functional.layers.Forward) and the first `inputs`
tensors of a batch (see perfkit.core.inputs). It returns logits of rows x classes: batch x
CLASSES for images of any size, (batch * tokens) x vocabulary for GPT-2, and for BERT a tuple,
(batch * predictions) x vocabulary for masked words and batch x 2 for the next sentence. `loss`
returns the mean loss of a batch, a scalar on the device; `targets` are the remaining tensors of
the batch, the label of each row first.

A network is a list of blocks: a layer of a transformer, a stage of a ResNet, a group of VGG's
convolutions, and what precedes and follows them.
"""

from collections import Counter
from collections.abc import Callable
from functools import partial
from typing import Any, NamedTuple

import numpy as np

from perfkit.core.models import bert, gpt, resnet50, vgg16
from perfkit.core.models.model import CLASSES

Array = Any
Layers = Any
State = tuple[Array, ...]
"""Tensors that a block passes to the next one: activations first, then what later blocks need
besides, such as a mask."""


class Block(NamedTuple):
    """A part of a network: `forward(run, *state)` returns the state for the next block; the
    last block returns the logits. If the names of a block's layers share a prefix, `name` is
    that prefix, as in `layers.3`."""

    name: str
    forward: Callable[..., Any]


class Network:
    """A chain of blocks. The state of the first block is the network's `inputs` tensors."""

    inputs: int
    blocks: list[Block]

    def __call__(self, run: Layers, *inputs: Array) -> Any:
        state: Any = inputs
        for block in self.blocks:
            state = block.forward(run, *state)
        return state

    def loss(self, run: Layers, logits: Any, *targets: Array) -> Array:
        """Return the mean loss of a batch."""
        (labels,) = targets
        return run.cross_entropy(logits, labels)

    def logits_and_loss(self, run: Layers, batch: State) -> tuple[Any, Array]:
        logits = self(run, *batch[: self.inputs])
        return logits, self.loss(run, logits, *batch[self.inputs :])


class ResNet50(Network):
    inputs = 1

    def __init__(self) -> None:
        self.blocks = [Block("stem", _resnet_stem)]
        for number, bottlenecks in enumerate(resnet50.stages(), 1):
            name = f"layer{number}"
            self.blocks.append(Block(name, partial(_resnet_stage, name, bottlenecks)))
        self.blocks.append(Block("head", _resnet_head))


def _resnet_stem(run: Layers, images: Array) -> State:
    x = run.convolution("conv1", images, 3, resnet50.STEM, 7, 2)
    x = run.relu(run.batch_norm("bn1", x, resnet50.STEM))
    return (run.max_pool(x, 3, 2, 1),)


def _resnet_stage(
    name: str, bottlenecks: list[tuple[int, int, int]], run: Layers, x: Array
) -> State:
    for number, sizes in enumerate(bottlenecks):
        x = _bottleneck(run, f"{name}.{number}", x, *sizes)
    return (x,)


def _bottleneck(
    run: Layers, name: str, x: Array, inputs: int, width: int, stride: int
) -> Array:
    """1x1, strided 3x3 and 1x1 convolutions, and a projected or identity shortcut."""
    outputs = width * resnet50.EXPANSION
    y = run.convolution(f"{name}.conv1", x, inputs, width, 1)
    y = run.relu(run.batch_norm(f"{name}.bn1", y, width))
    y = run.convolution(f"{name}.conv2", y, width, width, 3, stride)
    y = run.relu(run.batch_norm(f"{name}.bn2", y, width))
    y = run.convolution(f"{name}.conv3", y, width, outputs, 1)
    y = run.batch_norm(f"{name}.bn3", y, outputs)
    if stride != 1 or inputs != outputs:
        x = run.convolution(f"{name}.downsample.0", x, inputs, outputs, 1, stride)
        x = run.batch_norm(f"{name}.downsample.1", x, outputs)
    return run.relu(y + x)


def _resnet_head(run: Layers, x: Array) -> Array:
    pooled = run.spatial_mean(x)
    return run.dense("fc", pooled, resnet50.features(), CLASSES, None)


class VGG16(Network):
    inputs = 1

    def __init__(self) -> None:
        self.blocks = []
        index, channels = 0, 3
        for number, (width, count) in enumerate(vgg16.STAGES, 1):
            forward = partial(_vgg_stage, index, count, channels, width)
            self.blocks.append(Block(f"stage{number}", forward))
            # ReLUs and pools take numbers too.
            index += 2 * count + 1
            channels = width
        self.blocks.append(Block("classifier", _vgg_classifier))


def _vgg_stage(
    index: int, count: int, channels: int, width: int, run: Layers, x: Array
) -> State:
    """`count` convolutions and a max-pool; the first convolution is `features.index`."""
    for number in range(count):
        x = run.convolution(f"features.{index + 2 * number}", x, channels, width, 3, bias=True)
        x = run.relu(x)
        channels = width
    return (run.max_pool(x, 2, 2),)


def _vgg_classifier(run: Layers, x: Array) -> Array:
    x = run.flatten(run.average_to(x, vgg16.POOLED))
    *hidden, last = vgg16.dense_layers()
    for number, widths in enumerate(hidden):
        # A ReLU and a dropout follow each dense layer.
        x = run.dense(f"classifier.{3 * number}", x, *widths, vgg16.DEVIATION)
        x = run.dropout(run.relu(x), vgg16.DROPOUT)
    return run.dense(f"classifier.{3 * len(hidden)}", x, *last, vgg16.DEVIATION)


class Bert(Network):
    inputs = 4

    def __init__(self) -> None:
        names = [f"layers.{number}" for number in range(bert.LAYERS)]
        layers = [Block(name, partial(_bert_layer, name)) for name in names]
        self.blocks = [
            Block("embeddings", _bert_embeddings),
            *layers,
            Block("head", _bert_head),
        ]

    def loss(self, run: Layers, logits: tuple[Array, Array], *targets: Array) -> Array:
        """Return the mean over masked words plus the mean over next-sentence predictions."""
        words, sentences = logits
        masked_ids, next_sentence = targets
        masked_loss = run.cross_entropy(words, masked_ids, ignored=bert.PADDING)
        return masked_loss + run.cross_entropy(sentences, next_sentence)


def _bert_embeddings(
    run: Layers, ids: Array, segments: Array, mask: Array, masked_positions: Array
) -> State:
    """Return activations (batch x length x width), the mask that is added to attention scores
    and the masked positions."""
    batch, length = ids.shape
    sizes = bert.WIDTH, bert.DEVIATION
    words = run.embedding("word_embeddings", bert.VOCABULARY, *sizes)
    positions = run.embedding("position_embeddings", bert.POSITIONS, *sizes)
    token_types = run.embedding("token_type_embeddings", 2, *sizes)
    x = run.rows(words, ids) + positions[:length] + run.rows(token_types, segments)
    x = run.layer_norm("embedding_norm", x, bert.WIDTH, bert.EPSILON)
    x = run.dropout(x, bert.DROPOUT)
    added = (1 - run.cast(mask, x.dtype)) * bert.MASKED
    added = run.reshape(added, (batch, 1, 1, length))
    return x, added, masked_positions


def _bert_layer(
    name: str, run: Layers, x: Array, mask: Array, masked_positions: Array
) -> State:
    """Encoder layer, post-norm: self-attention and a dense block."""
    width = bert.WIDTH
    query = _bert_dense(run, f"{name}.query", x, width, width)
    key = _bert_dense(run, f"{name}.key", x, width, width)
    value = _bert_dense(run, f"{name}.value", x, width, width)
    attended = run.attention((query, key, value), bert.HEADS, mask, bert.DROPOUT)
    y = _bert_dense(run, f"{name}.out_proj", attended, width, width)
    x = run.add(x, run.dropout(y, bert.DROPOUT))
    x = run.layer_norm(f"{name}.attention_norm", x, width, bert.EPSILON)
    y = _bert_dense(run, f"{name}.fc1", x, width, bert.INNER)
    y = run.gelu(y, approximate=False)
    y = _bert_dense(run, f"{name}.fc2", y, bert.INNER, width)
    x = run.add(x, run.dropout(y, bert.DROPOUT))
    x = run.layer_norm(f"{name}.output_norm", x, width, bert.EPSILON)
    return x, mask, masked_positions


def _bert_head(
    run: Layers, x: Array, _mask: Array, masked_positions: Array
) -> tuple[Array, Array]:
    width = bert.WIDTH
    pooled = run.tanh(_bert_dense(run, "pooler", x[:, 0], width, width))
    nsp_logits = _bert_dense(run, "seq_relationship", pooled, width, 2)
    masked = run.rows_of_each(x, masked_positions)
    masked = _bert_dense(run, "transform", masked, width, width)
    masked = run.gelu(masked, approximate=False)
    masked = run.layer_norm("transform_norm", masked, width, bert.EPSILON)
    bias = run.vector("decoder_bias", bert.VOCABULARY)
    return run.logits(masked, run.table("word_embeddings"), bias), nsp_logits


def _bert_dense(run: Layers, name: str, x: Array, inputs: int, outputs: int) -> Array:
    return run.dense(name, x, inputs, outputs, bert.DEVIATION)


class Gpt(Network):
    inputs = 1

    def __init__(self) -> None:
        names = [f"layers.{number}" for number in range(gpt.LAYERS)]
        layers = [Block(name, partial(_gpt_layer, name)) for name in names]
        self.blocks = [Block("embeddings", _gpt_embeddings), *layers, Block("head", _gpt_head)]


def _gpt_embeddings(run: Layers, ids: Array) -> State:
    """Return activations (batch x length x width) and the causal mask."""
    sizes = gpt.WIDTH, gpt.DEVIATION
    tokens = run.embedding("token_embeddings", gpt.VOCABULARY, *sizes)
    positions = run.embedding("position_embeddings", gpt.POSITIONS, *sizes)
    x = run.rows(tokens, ids) + positions[: ids.shape[1]]
    return x, run.causal_mask(x)


def _gpt_layer(name: str, run: Layers, x: Array, mask: Array) -> State:
    """Decoder layer, pre-norm: causal attention and a dense block."""
    width = gpt.WIDTH
    y = run.layer_norm(f"{name}.attention_norm", x, width, gpt.EPSILON)
    y = run.dense(f"{name}.qkv", y, width, 3 * width, gpt.DEVIATION)
    attended = run.attention(run.split(y, 3, -1), gpt.HEADS, mask, 0.0)
    y = run.dense(f"{name}.out_proj", attended, width, width, gpt.RESIDUAL_DEVIATION)
    x = run.add(x, y)
    y = run.layer_norm(f"{name}.dense_norm", x, width, gpt.EPSILON)
    y = run.dense(f"{name}.fc1", y, width, gpt.INNER, gpt.DEVIATION)
    y = run.gelu(y, approximate=True)
    y = run.dense(f"{name}.fc2", y, gpt.INNER, width, gpt.RESIDUAL_DEVIATION)
    return run.add(x, y), mask


def _gpt_head(run: Layers, x: Array, _mask: Array) -> Array:
    x = run.layer_norm("final_norm", x, gpt.WIDTH, gpt.EPSILON)
    return run.logits(x, run.table("token_embeddings"))


NETWORKS: dict[str, type[Network]] = {
    "resnet50": ResNet50,
    "vgg16": VGG16,
    "bert": Bert,
    "gpt": Gpt,
}


class Layer(NamedTuple):
    """A layer with parameters: the arguments with which a network calls it, without tensors."""

    kind: str
    sizes: tuple[Any, ...]
    options: dict[str, Any]


class Outline:
    """Layers that compute nothing and record those that have parameters: `blocks` has them by
    the name of their block and their own name, `layers` by their name alone, both in the order
    in which the network calls them. `calls` counts the calls of each kind, also of layers
    without parameters."""

    kinds = ("convolution", "dense", "batch_norm", "layer_norm", "embedding", "vector")
    blank = np.zeros((1, 1))

    def __init__(self, network: Network) -> None:
        self.layers: dict[str, Layer] = {}
        self.blocks: dict[str, dict[str, Layer]] = {}
        self.calls: Counter[str] = Counter()
        state: Any = [self.blank] * network.inputs
        for block in network.blocks:
            self.current = self.blocks[block.name] = {}
            state = block.forward(self, *state)
            self.layers |= self.current

    def __getattr__(self, kind: str) -> Any:
        return partial(self._call, kind)

    def _call(self, kind: str, *arguments: Any, **options: Any) -> Array:
        self.calls[kind] += 1
        if kind in self.kinds:
            stated = [value for value in arguments if not isinstance(value, np.ndarray)]
            name, *sizes = stated
            self.current[name] = Layer(kind, tuple(sizes), options)
        return self.blank
