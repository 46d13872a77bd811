"""The networks as functions of a forward pass; perfkit.models names their sources."""

import numpy as np

from perfkit.frameworks.functional.layers import (
    Array,
    Forward,
    constant,
    mean_loss,
    normal,
    uniform,
)
from perfkit.models import bert, gpt, resnet50, vgg16
from perfkit.models.model import CLASSES


class ResNet50:
    inputs = 1
    loss = staticmethod(mean_loss)

    def __call__(self, run: Forward, images: Array) -> Array:
        x = run.convolution("conv1", images, 3, resnet50.STEM, 7, 2)
        x = run.max_pool(run.relu(run.batch_norm("bn1", x, resnet50.STEM)), 3, 2, padding=1)
        for stage, blocks in enumerate(resnet50.stages(), 1):
            for block, sizes in enumerate(blocks):
                x = _bottleneck(run, f"layer{stage}.{block}", x, *sizes)
        features = resnet50.features()
        # Glorot and Bengio, 2010: the default initialization of Paddle's dense layers.
        limit = (6 / (features + CLASSES)) ** 0.5
        return run.dense("fc", run.spatial_mean(x), features, CLASSES, uniform(limit))


def _bottleneck(
    run: Forward, name: str, x: Array, inputs: int, width: int, stride: int
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

    def __call__(self, run: Forward, images: Array) -> Array:
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
            x = run.dense(f"classifier.{3 * number}", x, *wide, normal(vgg16.DEVIATION))
            x = run.dropout(run.relu(x), vgg16.DROPOUT)
        return run.dense(f"classifier.{3 * len(hidden)}", x, *last, normal(vgg16.DEVIATION))


def _dense(run: Forward, name: str, x: Array, inputs: int, outputs: int) -> Array:
    return run.dense(name, x, inputs, outputs, normal(bert.DEVIATION))


class Bert:
    inputs = 4
    attention = "unfused"

    def __call__(
        self, run: Forward, ids: Array, segments: Array, mask: Array, masked_positions: Array
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
        masked, words = run.cast(masked, run.dtype), run.cast(words, run.dtype)
        mlm_logits = run.product(masked, words, transposed=True)
        bias = run.parameter("decoder_bias", constant(0.0), bert.VOCABULARY)
        mlm_logits = run.reshape(run.add_bias(mlm_logits, bias), (-1, bert.VOCABULARY))
        return mlm_logits, nsp_logits

    @staticmethod
    def loss(
        run: Forward, logits: tuple[Array, Array], masked_ids: Array, next_sentence: Array
    ) -> Array:
        mlm_logits, nsp_logits = logits
        counted = run.cast(run.reshape(masked_ids, (-1,)) != bert.PADDING, run.wide)
        total = run.sum(run.cross_entropies(mlm_logits, masked_ids) * counted)
        mean = total / run.maximum(run.sum(counted), 1)
        return mean + run.mean(run.cross_entropies(nsp_logits, next_sentence))


def _bert_layer(run: Forward, name: str, x: Array, mask: Array) -> Array:
    """Encoder layer (batch x length x width), post-norm: self-attention and a dense block."""
    width, inner = bert.WIDTH, bert.INNER
    names = ("query", "key", "value")
    parts = (_dense(run, f"{name}.{part}", x, width, width) for part in names)
    attended = run.attention(parts, bert.HEADS, mask, bert.DROPOUT)
    y = _dense(run, f"{name}.out_proj", attended, width, width)
    x = run.add(x, run.dropout(y, bert.DROPOUT))
    x = run.layer_norm(f"{name}.attention_norm", x, width, bert.EPSILON)
    y = run.gelu(_dense(run, f"{name}.fc1", x, width, inner), approximate=False)
    y = run.dropout(_dense(run, f"{name}.fc2", y, inner, width), bert.DROPOUT)
    return run.layer_norm(f"{name}.output_norm", run.add(x, y), width, bert.EPSILON)


class Gpt:
    inputs = 1
    attention = "unfused"
    loss = staticmethod(mean_loss)

    def __call__(self, run: Forward, ids: Array) -> Array:
        length = ids.shape[1]
        sizes = gpt.WIDTH, gpt.DEVIATION
        tokens = run.embedding("token_embeddings", gpt.VOCABULARY, *sizes)
        positions = run.embedding("position_embeddings", gpt.POSITIONS, *sizes)
        x = run.rows(tokens, ids) + positions[:length]
        mask = np.triu(np.full((length, length), -np.inf, np.float32), 1)
        for number in range(gpt.LAYERS):
            x = _gpt_layer(run, f"layers.{number}", x, mask)
        x = run.cast(run.layer_norm("final_norm", x, gpt.WIDTH, gpt.EPSILON), run.dtype)
        logits = run.product(x, run.cast(tokens, run.dtype), transposed=True)
        return run.reshape(logits, (-1, gpt.VOCABULARY))


def _gpt_layer(run: Forward, name: str, x: Array, mask: np.ndarray) -> Array:
    """Decoder layer (batch x length x width), pre-norm: causal attention and a dense block."""
    width, inner = gpt.WIDTH, gpt.INNER
    default, residual = normal(gpt.DEVIATION), normal(gpt.RESIDUAL_DEVIATION)
    y = run.layer_norm(f"{name}.attention_norm", x, width, gpt.EPSILON)
    qkv = run.dense(f"{name}.qkv", y, width, 3 * width, default)
    attended = run.attention(run.split(qkv, 3, -1), gpt.HEADS, mask, 0.0)
    x = run.add(x, run.dense(f"{name}.out_proj", attended, width, width, residual))
    y = run.layer_norm(f"{name}.dense_norm", x, width, gpt.EPSILON)
    y = run.gelu(run.dense(f"{name}.fc1", y, width, inner, default), approximate=True)
    return run.add(x, run.dense(f"{name}.fc2", y, inner, width, residual))
