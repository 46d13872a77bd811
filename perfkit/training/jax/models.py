"""The built-in models in JAX: which one an option names, and the loss of a batch (see
perfkit.inputs)."""

from collections.abc import Iterator
from typing import Any

import numpy as np
from jax import Array
from jax import numpy as jnp

from perfkit.training import models
from perfkit.training.jax import bert, gpt, llama, resnet
from perfkit.training.jax.layers import Shapes, Weights, cross_entropies
from perfkit.training.jax.resnet import Statistics
from perfkit.training.jax.sharding import checkpoint_of
from perfkit.training.models import PADDING
from perfkit.training.options import Options

Batch = tuple[Array, ...]


def model_of(options: Options) -> tuple[Any, Any]:
    """Return the module of a model, and its size."""
    match options.model:
        case "resnet50":
            return resnet, models.RESNET_STAGES
        case "bert":
            return bert, models.BERT_SIZE
        case "gpt":
            return gpt, models.GPT_SIZES[options.model_size]
        case "llama":
            return llama, models.LLAMA_SIZES[options.model_size]
    raise ValueError(f"model={options.model}")


def shapes_of(options: Options) -> Shapes:
    module, size = model_of(options)
    shapes: Shapes = module.shapes(size)
    return shapes


def initial_weights(options: Options) -> Iterator[tuple[str, np.ndarray]]:
    """Yield one weight after the other, since a rank may not have room for all; every rank
    draws the same."""
    module, size = model_of(options)
    return module.initial_weights(size, np.random.default_rng(options.seed))


def initial_statistics(options: Options) -> dict[str, np.ndarray]:
    """Return the statistics of ResNet-50's batch norms; other models have none."""
    if options.model != "resnet50":
        return {}
    return resnet.initial_statistics(models.RESNET_STAGES)


def dtype_of(options: Options) -> Any:
    """Return the dtype of the factors of products: by default that of the weights."""
    return jnp.bfloat16 if options.precision == "bf16" else jnp.result_type(float)


def fuses_attention(options: Options) -> bool:
    """Return whether causal attention is cuDNN's, which computes in half precision."""
    is_half = options.precision == "bf16"
    return options.device == "gpu" and is_half and options.tunes("fused_attention")


def logits_of(
    options: Options,
    weights: Weights,
    statistics: Statistics,
    rng: Array | None,
    inputs: Batch,
) -> tuple[Any, Statistics]:
    """Return the logits of a model other than Llama, and the statistics after this batch."""
    _module, size = model_of(options)
    dtype = dtype_of(options)
    if options.model == "resnet50":
        (images,) = inputs
        images = images.astype(dtype)
        return resnet.resnet(weights, statistics, images, size, options.layout)
    if options.model == "bert":
        return bert.bert(weights, *inputs, size=size, dtype=dtype, rng=rng), statistics
    fused = fuses_attention(options)
    return gpt.gpt(weights, *inputs, size=size, dtype=dtype, fused=fused), statistics


def llama_settings(options: Options) -> dict[str, Any]:
    return {
        "size": models.LLAMA_SIZES[options.model_size],
        "dtype": dtype_of(options),
        "fused": fuses_attention(options),
        "checkpoint": checkpoint_of(options),
    }


def loss_of(
    options: Options,
    weights: Weights,
    statistics: Statistics,
    rng: Array | None,
    batch: Batch,
) -> tuple[Array, Statistics]:
    """Return the mean loss of a batch, and the statistics after it. Without a random key, there
    is no dropout."""
    if options.model == "llama":
        return llama.llama(weights, *batch, **llama_settings(options)), statistics
    inputs, labels = divided(options, batch)
    logits, statistics = logits_of(options, weights, statistics, rng, inputs)
    if options.model != "bert":
        return cross_entropy(logits, *labels), statistics
    words, sentences = logits
    word_labels, next_sentence = labels
    loss = masked_loss(words, word_labels) + cross_entropy(sentences, next_sentence)
    return loss, statistics


def cross_entropy(logits: Array, labels: Array) -> Array:
    return cross_entropies(logits.reshape(-1, logits.shape[-1]), labels.ravel()).mean()


def masked_loss(logits: Array, labels: Array) -> Array:
    """Return the mean over the masked words; unused predictions are padding."""
    labels = labels.ravel()
    losses = cross_entropies(logits.reshape(-1, logits.shape[-1]), labels)
    is_counted = labels != PADDING
    return (losses * is_counted).sum() / jnp.maximum(is_counted.sum(), 1)


def divided(options: Options, batch: Batch) -> tuple[Batch, Batch]:
    """Return the inputs and the labels of a batch."""
    count = 4 if options.model == "bert" else 1
    return batch[:count], batch[count:]
