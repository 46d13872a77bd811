"""The networks, in any framework's layers; perfkit.training.models names their sources.

A network is called with the layers (see functional.layers.Forward) and the first `inputs`
tensors of a batch (see perfkit.inputs). It returns logits of rows x classes: batch x
CLASSES for images of any size, (batch * tokens) x vocabulary for GPT-2, and for BERT a tuple,
(batch * predictions) x vocabulary for masked words and batch x 2 for the next sentence. `loss`
returns the mean loss of a batch, a scalar on the device; `targets` are the remaining tensors of
the batch, the label of each row first.

The logits of a Llama would fill a GPU: those of 131,072 tokens have 63 GiB in float32. Its
network gets the labels too and returns the loss, for which logits of LOSS_ROWS rows at a time
are enough.

A network is a list of blocks: a layer of a transformer, a stage of a ResNet, a group of VGG's
convolutions, and what precedes and follows them.
"""

from collections import Counter
from collections.abc import Callable
from functools import partial
from typing import Any, NamedTuple

import numpy as np

from perfkit.core.config import Config
from perfkit.core.frameworks.dimensions import bert, gpt, llama, resnet50, vgg16
from perfkit.training.models import CLASSES

Array = Any
Layers = Any
State = tuple[Array, ...]
"""Tensors that a block passes to the next one: activations first, then what later blocks need
besides, such as a mask."""
LOSS_ROWS = 8192
"""Rows of which a Llama's logits exist at the same time: 4 GiB in float32. With more rows, the
logits are computed again in the backward pass."""


def loss_parts(rows: int) -> list[slice]:
    """Return the parts of this many rows whose logits exist at the same time."""
    starts = range(0, rows, LOSS_ROWS)
    return [slice(start, min(start + LOSS_ROWS, rows)) for start in starts]


class Block(NamedTuple):
    """A part of a network: `forward(run, *state)` returns the state for the next block; the
    last block returns the logits. If the names of a block's layers share a prefix, `name` is
    that prefix, as in `model.layers.3`."""

    name: str
    forward: Callable[..., Any]


class Network:
    """A chain of blocks. The state of the first block is the network's `inputs` tensors."""

    inputs: int
    blocks: list[Block]
    returns_loss = False
    """Whether the network gets labels, the last of its `inputs`, and returns the mean loss.
    Without labels, it returns the most likely class of each row."""

    @property
    def label_index(self) -> int:
        """Position of the rows' labels in a batch."""
        return self.inputs - 1 if self.returns_loss else self.inputs

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
        names = [f"bert.encoder.layer.{number}" for number in range(bert.LAYERS)]
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
    words = run.embedding("bert.embeddings.word_embeddings", bert.VOCABULARY, *sizes)
    positions = run.embedding("bert.embeddings.position_embeddings", bert.POSITIONS, *sizes)
    token_types = run.embedding("bert.embeddings.token_type_embeddings", 2, *sizes)
    x = run.rows(words, ids) + positions[:length] + run.rows(token_types, segments)
    x = run.layer_norm("bert.embeddings.LayerNorm", x, bert.WIDTH, bert.EPSILON)
    x = run.dropout(x, bert.DROPOUT)
    added = (1 - run.cast(mask, x.dtype)) * bert.MASKED
    added = run.reshape(added, (batch, 1, 1, length))
    return x, added, masked_positions


def _bert_layer(
    name: str, run: Layers, x: Array, mask: Array, masked_positions: Array
) -> State:
    """Encoder layer, post-norm: self-attention and a dense block."""
    width = bert.WIDTH
    query = _bert_dense(run, f"{name}.attention.self.query", x, width, width)
    key = _bert_dense(run, f"{name}.attention.self.key", x, width, width)
    value = _bert_dense(run, f"{name}.attention.self.value", x, width, width)
    attended = run.attention((query, key, value), bert.HEADS, mask, bert.DROPOUT)
    y = _bert_dense(run, f"{name}.attention.output.dense", attended, width, width)
    x = run.add(x, run.dropout(y, bert.DROPOUT))
    x = run.layer_norm(f"{name}.attention.output.LayerNorm", x, width, bert.EPSILON)
    y = _bert_dense(run, f"{name}.intermediate.dense", x, width, bert.INNER)
    y = run.gelu(y, approximate=False)
    y = _bert_dense(run, f"{name}.output.dense", y, bert.INNER, width)
    x = run.add(x, run.dropout(y, bert.DROPOUT))
    x = run.layer_norm(f"{name}.output.LayerNorm", x, width, bert.EPSILON)
    return x, mask, masked_positions


def _bert_head(
    run: Layers, x: Array, _mask: Array, masked_positions: Array
) -> tuple[Array, Array]:
    width = bert.WIDTH
    pooled = run.tanh(_bert_dense(run, "bert.pooler.dense", x[:, 0], width, width))
    nsp_logits = _bert_dense(run, "cls.seq_relationship", pooled, width, 2)
    masked = run.rows_of_each(x, masked_positions)
    masked = _bert_dense(run, "cls.predictions.transform.dense", masked, width, width)
    masked = run.gelu(masked, approximate=False)
    masked = run.layer_norm("cls.predictions.transform.LayerNorm", masked, width, bert.EPSILON)
    bias = run.vector("cls.predictions.bias", bert.VOCABULARY)
    return run.logits(masked, run.table("bert.embeddings.word_embeddings"), bias), nsp_logits


def _bert_dense(run: Layers, name: str, x: Array, inputs: int, outputs: int) -> Array:
    return run.dense(name, x, inputs, outputs, bert.DEVIATION)


class Gpt(Network):
    inputs = 1

    def __init__(self, size_name: str = gpt.DEFAULT_SIZE) -> None:
        size = gpt.SIZES[size_name]
        self.blocks = [Block("embeddings", partial(_gpt_embeddings, size))]
        for number in range(size.layers):
            name = f"transformer.h.{number}"
            self.blocks.append(Block(name, partial(_gpt_layer, name, size)))
        self.blocks.append(Block("head", partial(_gpt_head, size)))


def _gpt_embeddings(size: gpt.Size, run: Layers, ids: Array) -> State:
    """Return activations (batch x length x width) and the causal mask."""
    sizes = size.width, gpt.DEVIATION
    tokens = run.embedding("transformer.wte", gpt.VOCABULARY, *sizes)
    positions = run.embedding("transformer.wpe", gpt.POSITIONS, *sizes)
    x = run.rows(tokens, ids) + positions[: ids.shape[1]]
    return x, run.causal_mask(x)


def _gpt_layer(name: str, size: gpt.Size, run: Layers, x: Array, mask: Array) -> State:
    """Decoder layer, pre-norm: causal attention and a dense block."""
    width = size.width
    y = run.layer_norm(f"{name}.ln_1", x, width, gpt.EPSILON)
    y = run.dense(f"{name}.attn.c_attn", y, width, 3 * width, gpt.DEVIATION)
    attended = run.attention(run.split(y, 3, -1), size.heads, mask, 0.0)
    y = run.dense(f"{name}.attn.c_proj", attended, width, width, size.residual_deviation)
    x = run.add(x, y)
    y = run.layer_norm(f"{name}.ln_2", x, width, gpt.EPSILON)
    y = run.dense(f"{name}.mlp.c_fc", y, width, size.inner, gpt.DEVIATION)
    y = run.gelu(y, approximate=True)
    y = run.dense(f"{name}.mlp.c_proj", y, size.inner, width, size.residual_deviation)
    return run.add(x, y), mask


def _gpt_head(size: gpt.Size, run: Layers, x: Array, _mask: Array) -> Array:
    x = run.layer_norm("transformer.ln_f", x, size.width, gpt.EPSILON)
    return run.logits(x, run.table("transformer.wte"))


class Rotation(NamedTuple):
    """The tables of llama.rotation_tables, of all positions or of those of the sequences."""

    cosines: Array
    sines: Array


class Llama(Network):
    inputs = 2
    returns_loss = True

    def __init__(self, size_name: str = llama.CPU_SIZE) -> None:
        size = llama.SIZES[size_name]
        # Computed once, because this takes a core tens of milliseconds.
        tables = Rotation(*llama.rotation_tables(size.head_width))
        self.blocks = [Block("embeddings", partial(_llama_embeddings, size, tables))]
        for number in range(size.layers):
            name = f"model.layers.{number}"
            self.blocks.append(Block(name, partial(_llama_layer, name, size)))
        self.blocks.append(Block("head", partial(_llama_head, size)))

    def loss(self, run: Layers, logits: Any, *targets: Array) -> Array:
        """Return the loss, which the network has computed."""
        return logits


def _llama_embeddings(
    size: llama.Size, tables: Rotation, run: Layers, ids: Array, labels: Array | None = None
) -> State:
    """Return activations (batch x length x width), the causal mask, the rotation's tables and
    the labels."""
    x = run.embed("model.embed_tokens", ids, llama.VOCABULARY, size.width, llama.DEVIATION)
    length = ids.shape[1]
    cosines = run.constant("cosines", tables.cosines)[:length]
    sines = run.constant("sines", tables.sines)[:length]
    return x, run.causal_mask(x), cosines, sines, labels


def _llama_layer(
    name: str,
    size: llama.Size,
    run: Layers,
    x: Array,
    mask: Array,
    cosines: Array,
    sines: Array,
    labels: Array | None,
) -> State:
    """Decoder layer, pre-norm: causal attention and a gated dense block."""
    rotation = Rotation(cosines, sines)
    x = run.add(x, _llama_attention(name, size, run, x, mask, rotation))
    x = run.add(x, _llama_dense_block(name, size, run, x))
    return x, mask, cosines, sines, labels


def _llama_attention(
    name: str, size: llama.Size, run: Layers, x: Array, mask: Array, rotation: Rotation
) -> Array:
    width, kv_width = size.width, size.kv_width
    x = run.rms_norm(f"{name}.input_layernorm", x, width, llama.EPSILON)
    query = _llama_product(run, f"{name}.self_attn.q_proj", x, width, width)
    key = _llama_product(run, f"{name}.self_attn.k_proj", x, width, kv_width)
    value = _llama_product(run, f"{name}.self_attn.v_proj", x, width, kv_width)
    query = run.rotate(query, size.heads, *rotation)
    key = run.rotate(key, size.kv_heads, *rotation)
    parts = query, key, value
    attended = run.attention(parts, size.heads, mask, 0.0, kv_heads=size.kv_heads)
    deviation = size.residual_deviation
    return _llama_product(run, f"{name}.self_attn.o_proj", attended, width, width, deviation)


def _llama_dense_block(name: str, size: llama.Size, run: Layers, x: Array) -> Array:
    width, inner = size.width, size.inner
    x = run.rms_norm(f"{name}.post_attention_layernorm", x, width, llama.EPSILON)
    gate = _llama_product(run, f"{name}.mlp.gate_proj", x, width, inner)
    up = _llama_product(run, f"{name}.mlp.up_proj", x, width, inner)
    gated = run.swiglu(gate, up)
    return _llama_product(
        run, f"{name}.mlp.down_proj", gated, inner, width, size.residual_deviation
    )


def _llama_product(
    run: Layers,
    name: str,
    x: Array,
    inputs: int,
    outputs: int,
    deviation: float = llama.DEVIATION,
) -> Array:
    return run.dense(name, x, inputs, outputs, deviation, bias=False)


def _llama_head(
    size: llama.Size,
    run: Layers,
    x: Array,
    _mask: Array,
    _cosines: Array,
    _sines: Array,
    labels: Array | None,
) -> Array:
    """Return the mean loss; without labels, the most likely token after each one."""
    x = run.rms_norm("model.norm", x, size.width, llama.EPSILON)
    if size.is_tied:
        return run.tied_head("lm_head", x, labels, "model.embed_tokens")
    return run.head("lm_head", x, labels, llama.VOCABULARY, size.width, llama.DEVIATION)


NETWORKS: dict[str, Callable[..., Network]] = {
    "resnet50": ResNet50,
    "vgg16": VGG16,
    "bert": Bert,
    "gpt": Gpt,
    "llama": Llama,
}
"""Classes by model; those of models that exist in several sizes take a size's name."""


def network_of(config: Config) -> Network:
    """Return a new network of a configuration."""
    create = NETWORKS[config.model]
    return create(config.model_size) if config.model_size else create()


NORMS = ("batch_norm", "layer_norm", "rms_norm")
WITH_BIAS = ("dense", "batch_norm", "layer_norm")
"""Kinds of layers that have a bias unless their option `bias` says otherwise."""


class Layer(NamedTuple):
    """A layer with parameters: the arguments with which a network calls it, without tensors."""

    kind: str
    sizes: tuple[Any, ...]
    options: dict[str, Any]

    def parameters(self, name: str) -> dict[str, tuple[int, ...]]:
        """Return the shapes of the layer's parameters by their names, if `name` is the layer's;
        the axes are those of inspector.Weights."""
        if self.kind == "vector":
            return {name: self.sizes}
        weight = self._weight_shape()
        shapes = {f"{name}.weight": weight}
        if self.options.get("bias", self.kind in WITH_BIAS):
            # The first axis of a convolution's weight is its outputs, the last one of others'.
            outputs = weight[0 if self.kind == "convolution" else -1]
            shapes[f"{name}.bias"] = (outputs,)
        return shapes

    def _weight_shape(self) -> tuple[int, ...]:
        if self.kind in NORMS:
            return self.sizes[:1]
        if self.kind == "convolution":
            inputs, outputs, size, *_stride = self.sizes
            return outputs, inputs, size, size
        # A dense layer, an embedding or a head.
        *shape, _deviation = self.sizes
        return tuple(shape)


class Outline:
    """Layers that compute nothing and record those that have parameters: `blocks` has them by
    the name of their block and their own name, `layers` by their name alone, both in the order
    in which the network calls them. `calls` counts the calls of each kind, also of layers
    without parameters. `constants` has the arrays that the network only reads, `tied_heads` the
    embeddings whose weights the heads without parameters share, both by name."""

    kinds = (*("convolution", "dense", "head", "embedding", "vector"), *NORMS)
    blank = np.zeros((1, 1))

    def __init__(self, network: Network) -> None:
        self.layers: dict[str, Layer] = {}
        self.blocks: dict[str, dict[str, Layer]] = {}
        self.constants: dict[str, np.ndarray] = {}
        self.tied_heads: dict[str, str] = {}
        self.calls: Counter[str] = Counter()
        state: Any = [self.blank] * network.inputs
        for block in network.blocks:
            self.current = self.blocks[block.name] = {}
            state = block.forward(self, *state)
            self.layers |= self.current

    def shares_name(self, block: str) -> bool:
        """Return whether the names of a block's layers begin with that of the block, as those
        of a layer of a transformer do."""
        return all(name.startswith(f"{block}.") for name in self.blocks[block])

    def constant(self, name: str, array: np.ndarray) -> Array:
        self.constants[name] = array
        return self.blank

    def embed(self, name: str, _ids: Array, *sizes: Any) -> Array:
        return self._call("embedding", name, *sizes)

    def tied_head(self, name: str, _x: Array, _labels: Array, embedding: str) -> Array:
        self.tied_heads[name] = embedding
        self.calls["head"] += 1
        return self.blank

    def __getattr__(self, kind: str) -> Any:
        return partial(self._call, kind)

    def _call(self, kind: str, *arguments: Any, **options: Any) -> Array:
        self.calls[kind] += 1
        if kind in self.kinds:
            stated = [value for value in arguments if not isinstance(value, np.ndarray)]
            name, *sizes = stated
            self.current[name] = Layer(kind, tuple(sizes), options)
        return self.blank
