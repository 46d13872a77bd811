"""The built-in models in TensorFlow: which one an option names, and the loss of a batch (see
perfkit.inputs)."""

import tensorflow as tf
from tensorflow import Tensor

from perfkit.training import models
from perfkit.training.models import PADDING
from perfkit.training.options import Options
from perfkit.training.tensorflow.bert import BertForPreTraining
from perfkit.training.tensorflow.resnet import ResNet

Batch = tuple[Tensor, ...]


def new_model(options: Options) -> tf.Module:
    match options.model:
        case "resnet50":
            return ResNet(models.RESNET_STAGES)
        case "bert":
            return BertForPreTraining(models.BERT_SIZE)
    raise ValueError(f"model={options.model}: TensorFlow trains resnet50 and bert")


def loss_of(options: Options, model: tf.Module, batch: Batch) -> Tensor:
    """Return the mean loss of a batch, in training."""
    outputs = model(*inputs_of(options, batch), training=True)
    if options.model == "bert":
        words, sentences = outputs
        *_inputs, word_labels, next_sentence = batch
        return masked_loss(words, word_labels) + cross_entropy(sentences, next_sentence)
    _images, labels = batch
    return cross_entropy(outputs, labels)


def cross_entropy(logits: Tensor, labels: Tensor) -> Tensor:
    labels = tf.reshape(labels, (-1,))
    return tf.reduce_mean(tf.nn.sparse_softmax_cross_entropy_with_logits(labels, logits))


def masked_loss(logits: Tensor, labels: Tensor) -> Tensor:
    """Return the mean over the masked words; unused predictions are padding."""
    losses = tf.nn.sparse_softmax_cross_entropy_with_logits(labels, logits)
    counted = tf.cast(labels != PADDING, losses.dtype)
    return tf.reduce_sum(losses * counted) / tf.maximum(tf.reduce_sum(counted), 1)


def inputs_of(options: Options, batch: Batch) -> Batch:
    """Return the tensors of a batch that the model gets without its loss."""
    return batch[:4] if options.model == "bert" else batch[:1]
