"""The networks, in any framework's layers; perfkit.core.models names their sources.

A network is called with the layers (see functional.layers.Forward) and the first `inputs`
tensors of a batch (see perfkit.core.inputs). It returns logits of rows x classes: batch x
CLASSES for images of any size, (batch * tokens) x vocabulary for GPT-2, and for BERT a tuple,
(batch * predictions) x vocabulary for masked words and batch x 2 for the next sentence. `loss`
returns the mean loss of a batch, a scalar on the device; `targets` are the remaining tensors of
the batch, the label of each row first.
"""

from typing import Any, NamedTuple

import numpy as np

from perfkit.core.models import bert, gpt, resnet50, vgg16
from perfkit.core.models.model import CLASSES

Array = Any
Layers = Any


def mean_loss(run: Layers, logits: Array, labels: Array) -> Array:
    return run.cross_entropy(logits, labels)


class ResNet50:
    inputs = 1
    loss = staticmethod(mean_loss)

    def __call__(self, run: Layers, images: Array) -> Array:
        x = run.convolution("conv1", images, 3, resnet50.STEM, 7, 2)
        x = run.max_pool(run.relu(run.batch_norm("bn1", x, resnet50.STEM)), 3, 2, 1)
        for stage, blocks in enumerate(resnet50.stages(), 1):
            for block, sizes in enumerate(blocks):
                x = _bottleneck(run, f"layer{stage}.{block}", x, *sizes)
        return run.dense("fc", run.spatial_mean(x), resnet50.features(), CLASSES, None)


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


class VGG16:
    inputs = 1
    loss = staticmethod(mean_loss)

    def __call__(self, run: Layers, images: Array) -> Array:
        x, channels, index = images, 3, 0
        for width, count in vgg16.STAGES:
            for _ in range(count):
                name, sizes = f"features.{index}", (channels, width, 3)
                x = run.relu(run.convolution(name, x, *sizes, bias=True))
                # ReLUs and pools take numbers too.
                channels, index = width, index + 2
            x = run.max_pool(x, 2, 2)
            index += 1
        x = run.flatten(run.average_to(x, vgg16.POOLED))
        *hidden, last = vgg16.dense_layers()
        for number, wide in enumerate(hidden):
            # A ReLU and a dropout follow each dense layer.
            x = run.dense(f"classifier.{3 * number}", x, *wide, vgg16.DEVIATION)
            x = run.dropout(run.relu(x), vgg16.DROPOUT)
        return run.dense(f"classifier.{3 * len(hidden)}", x, *last, vgg16.DEVIATION)


class Bert:
    inputs = 4

    def __call__(
        self, run: Layers, ids: Array, segments: Array, mask: Array, masked_positions: Array
    ) -> tuple[Array, Array]:
        batch, length = ids.shape
        width, sizes = bert.WIDTH, (bert.WIDTH, bert.DEVIATION)
        words = run.embedding("word_embeddings", bert.VOCABULARY, *sizes)
        positions = run.embedding("position_embeddings", bert.POSITIONS, *sizes)
        token_types = run.embedding("token_type_embeddings", 2, *sizes)
        x = run.rows(words, ids) + positions[:length] + run.rows(token_types, segments)
        x = run.layer_norm("embedding_norm", x, width, bert.EPSILON)
        x = run.dropout(x, bert.DROPOUT)
        added = (1 - run.cast(mask, x.dtype)) * bert.MASKED
        added = run.reshape(added, (batch, 1, 1, length))
        for number in range(bert.LAYERS):
            x = _bert_layer(run, f"layers.{number}", x, added)
        pooled = run.tanh(_dense(run, "pooler", x[:, 0], width, width))
        nsp_logits = _dense(run, "seq_relationship", pooled, width, 2)

        masked = run.rows_of_each(x, masked_positions)
        masked = run.gelu(_dense(run, "transform", masked, width, width), approximate=False)
        masked = run.layer_norm("transform_norm", masked, width, bert.EPSILON)
        bias = run.vector("decoder_bias", bert.VOCABULARY)
        return run.logits(masked, words, bias), nsp_logits

    @staticmethod
    def loss(
        run: Layers, logits: tuple[Array, Array], masked_ids: Array, next_sentence: Array
    ) -> Array:
        """The mean over masked words plus the mean over next-sentence predictions."""
        words, sentences = logits
        return run.cross_entropy(words, masked_ids, ignored=bert.PADDING) + run.cross_entropy(
            sentences, next_sentence
        )


def _dense(run: Layers, name: str, x: Array, inputs: int, outputs: int) -> Array:
    return run.dense(name, x, inputs, outputs, bert.DEVIATION)


def _bert_layer(run: Layers, name: str, x: Array, mask: Array) -> Array:
    """Encoder layer (batch x length x width), post-norm: self-attention and a dense block."""
    width, inner = bert.WIDTH, bert.INNER
    names = ("query", "key", "value")
    parts = [_dense(run, f"{name}.{part}", x, width, width) for part in names]
    attended = run.attention(parts, bert.HEADS, mask, bert.DROPOUT)
    y = _dense(run, f"{name}.out_proj", attended, width, width)
    x = run.add(x, run.dropout(y, bert.DROPOUT))
    x = run.layer_norm(f"{name}.attention_norm", x, width, bert.EPSILON)
    y = run.gelu(_dense(run, f"{name}.fc1", x, width, inner), approximate=False)
    y = run.dropout(_dense(run, f"{name}.fc2", y, inner, width), bert.DROPOUT)
    return run.layer_norm(f"{name}.output_norm", run.add(x, y), width, bert.EPSILON)


class Gpt:
    inputs = 1
    loss = staticmethod(mean_loss)

    def __call__(self, run: Layers, ids: Array) -> Array:
        sizes = gpt.WIDTH, gpt.DEVIATION
        tokens = run.embedding("token_embeddings", gpt.VOCABULARY, *sizes)
        positions = run.embedding("position_embeddings", gpt.POSITIONS, *sizes)
        x = run.rows(tokens, ids) + positions[: ids.shape[1]]
        mask = run.causal_mask(x)
        for number in range(gpt.LAYERS):
            x = _gpt_layer(run, f"layers.{number}", x, mask)
        return run.logits(run.layer_norm("final_norm", x, gpt.WIDTH, gpt.EPSILON), tokens)


def _gpt_layer(run: Layers, name: str, x: Array, mask: Array) -> Array:
    """Decoder layer (batch x length x width), pre-norm: causal attention and a dense block."""
    width, inner = gpt.WIDTH, gpt.INNER
    y = run.layer_norm(f"{name}.attention_norm", x, width, gpt.EPSILON)
    qkv = run.dense(f"{name}.qkv", y, width, 3 * width, gpt.DEVIATION)
    attended = run.attention(run.split(qkv, 3, -1), gpt.HEADS, mask, 0.0)
    y = run.dense(f"{name}.out_proj", attended, width, width, gpt.RESIDUAL_DEVIATION)
    x = run.add(x, y)
    y = run.layer_norm(f"{name}.dense_norm", x, width, gpt.EPSILON)
    y = run.gelu(run.dense(f"{name}.fc1", y, width, inner, gpt.DEVIATION), approximate=True)
    return run.add(x, run.dense(f"{name}.fc2", y, inner, width, gpt.RESIDUAL_DEVIATION))


NETWORKS: dict[str, Any] = {"resnet50": ResNet50, "vgg16": VGG16, "bert": Bert, "gpt": Gpt}


class Layer(NamedTuple):
    """A layer with parameters: the arguments with which a network calls it, without tensors."""

    kind: str
    sizes: tuple[Any, ...]
    options: dict[str, Any]


class Outline:
    """Layers that compute nothing and record those that have parameters, by name."""

    kinds = ("convolution", "dense", "batch_norm", "layer_norm", "embedding", "vector")
    blank = np.zeros((1, 1))

    def __init__(self, network: Any) -> None:
        self.layers: dict[str, Layer] = {}
        network(self, *[self.blank] * network.inputs)

    def __getattr__(self, kind: str) -> Any:
        def layer(*arguments: Any, **options: Any) -> Array:
            if kind in self.kinds:
                name, *sizes = (a for a in arguments if not isinstance(a, np.ndarray))
                self.layers[name] = Layer(kind, tuple(sizes), options)
            return self.blank

        return layer
