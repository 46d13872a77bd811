"""The built-in models in Paddle: which one an option names, and the loss of a batch (see
perfkit.inputs)."""

from paddle import Tensor, nn
from paddle.nn import functional

from perfkit.training import models
from perfkit.training.models import PADDING
from perfkit.training.options import Options
from perfkit.training.paddle.bert import BertForPreTraining
from perfkit.training.paddle.gpt import GPT
from perfkit.training.paddle.llama import Llama
from perfkit.training.paddle.resnet import ResNet
from perfkit.training.paddle.vgg import VGG

Batch = tuple[Tensor, ...]


def new_model(options: Options) -> nn.Layer:
    match options.model:
        case "resnet50":
            return ResNet(models.RESNET_STAGES, layout=options.layout)
        case "vgg16":
            return VGG(models.VGG_STAGES, models.VGG_DENSE, layout=options.layout)
        case "bert":
            return BertForPreTraining(models.BERT_SIZE)
        case "gpt":
            return GPT(models.GPT_SIZES[options.model_size])
        case "llama":
            return Llama(models.LLAMA_SIZES[options.model_size])
    raise ValueError(f"model={options.model}")


def loss_of(options: Options, model: nn.Layer, batch: Batch) -> Tensor:
    """Return the mean loss of a batch."""
    if options.model == "llama":
        return model(*batch)
    if options.model == "bert":
        *inputs, word_labels, next_sentence = batch
        words, sentences = model(*inputs)
        masked_loss = cross_entropy(words, word_labels, ignored=PADDING)
        return masked_loss + cross_entropy(sentences, next_sentence)
    inputs, labels = batch
    return cross_entropy(model(inputs), labels)


def cross_entropy(logits: Tensor, labels: Tensor, ignored: int = -100) -> Tensor:
    """Return the mean over the rows whose label is not `ignored`."""
    rows = logits.flatten(0, -2) if logits.ndim > 2 else logits
    return functional.cross_entropy(rows, labels.flatten(), ignore_index=ignored)


def inputs_of(options: Options, batch: Batch) -> Batch:
    """Return the tensors of a batch that the model gets without its loss."""
    return batch[:4] if options.model == "bert" else batch[:1]
