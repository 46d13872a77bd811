"""Narrow models, because training the full models would take minutes and show no more."""

from perfkit.core.frameworks.dimensions import bert, gpt, llama, resnet50, vgg16
from perfkit.training import models

WORDS, DENSE = 1100, 128
"""Vocabulary of language models, and the width of VGG-16's dense layers."""
NARROW_GPT = gpt.Size(2, 192, 4, 768, 6e-4)
NARROW_LLAMA = {
    "tiny": llama.Size(2, 192, 4, 2, 384, is_tied=True),
    "8b": llama.Size(2, 192, 4, 2, 384, is_tied=False),
}


def replace_sizes(replace):
    """Shrink the models by calls of `replace(module, name, value)`.

    Language models get fewer and narrower layers and a smaller vocabulary, VGG-16 a quarter of
    its channels, and ResNet-50 one narrow block per stage.
    """
    stages = ((16, 1), (32, 1), (32, 1), (32, 1))
    replace(models, "RESNET_STAGES", stages)
    replace(resnet50, "STEM", 16)
    replace(resnet50, "STAGES", stages)
    replace(models, "BERT_SIZE", models.BertSize(2, 192, 4, WORDS))
    replace(bert, "LAYERS", 2)
    replace(bert, "WIDTH", 192)
    replace(bert, "INNER", 768)
    replace(bert, "HEADS", 4)
    for transformer in (bert, gpt, llama):
        replace(transformer, "VOCABULARY", WORDS)
    replace(models, "END_OF_TEXT", WORDS)
    replace(gpt, "SIZES", gpt.SIZES | {"124M": NARROW_GPT})
    replace(llama, "SIZES", llama.SIZES | NARROW_LLAMA)
    sizes = {"124M": models.GptSize(2, 192, 4, WORDS)}
    replace(models, "GPT_SIZES", models.GPT_SIZES | sizes)
    sizes = {
        name: models.LlamaSize(*size, vocabulary=WORDS) for name, size in NARROW_LLAMA.items()
    }
    replace(models, "LLAMA_SIZES", models.LLAMA_SIZES | sizes)
    stages = tuple((width // 4, count) for width, count in models.VGG_STAGES)
    replace(models, "VGG_STAGES", stages)
    replace(models, "VGG_DENSE", DENSE)
    replace(vgg16, "STAGES", stages)
    replace(vgg16, "DENSE", DENSE)
