"""The built-in models in PyTorch: which one an option names, and the loss of a batch (see
perfkit.inputs)."""

from torch import Tensor, nn
from torch.nn import functional

from perfkit.training import models
from perfkit.training.models import PADDING
from perfkit.training.options import Options
from perfkit.training.torch.bert import BertForPreTraining
from perfkit.training.torch.gpt import GPT
from perfkit.training.torch.llama import Llama
from perfkit.training.torch.resnet import ResNet
from perfkit.training.torch.vgg import VGG

Batch = tuple[Tensor, ...]


def new_model(options: Options) -> nn.Module:
    match options.model:
        case "resnet50":
            return ResNet(models.RESNET_STAGES)
        case "vgg16":
            return VGG(models.VGG_STAGES, models.VGG_DENSE)
        case "bert":
            return BertForPreTraining(models.BERT_SIZE)
        case "gpt":
            return GPT(models.GPT_SIZES[options.model_size])
        case "llama":
            return Llama(models.LLAMA_SIZES[options.model_size])
    raise ValueError(f"model={options.model}")


def loss_of(options: Options, model: nn.Module, batch: Batch) -> Tensor:
    """Return the mean loss of a batch."""
    if options.model == "llama":
        loss: Tensor = model(*batch)
        return loss
    if options.model == "bert":
        *inputs, word_labels, next_sentence = batch
        words, sentences = model(*inputs)
        return masked_loss(words, word_labels) + cross_entropy(sentences, next_sentence)
    inputs, labels = batch
    return cross_entropy(model(inputs), labels)


def cross_entropy(logits: Tensor, labels: Tensor) -> Tensor:
    return functional.cross_entropy(logits.flatten(0, -2), labels.flatten())


def masked_loss(logits: Tensor, labels: Tensor) -> Tensor:
    """Return the mean over the masked words; unused predictions are padding. PyTorch's own mean
    over no words would be NaN."""
    labels = labels.flatten()
    total = functional.cross_entropy(
        logits.flatten(0, 1), labels, ignore_index=PADDING, reduction="sum"
    )
    return total / (labels != PADDING).sum().clamp(min=1)


def inputs_of(options: Options, batch: Batch) -> Batch:
    """Return the tensors of a batch that the model gets without its loss."""
    return batch[:4] if options.model == "bert" else batch[:1]
