"""Narrow models, because training the full models would take minutes and show no more."""

from perfkit.training import models

WORDS, DENSE = 1100, 128
"""Vocabulary of language models, and the width of VGG-16's dense layers."""
NARROW_LLAMA = models.LlamaSize(2, 192, 4, 2, 384, is_tied=True, vocabulary=WORDS)


def replace_sizes(replace):
    """Shrink the models by calls of `replace(module, name, value)`.

    Language models get fewer and narrower layers and a smaller vocabulary, VGG-16 a quarter of
    its channels, and ResNet-50 one narrow block per stage.
    """
    stages = tuple((width // 4, count) for width, count in models.VGG_STAGES)
    llamas = {"tiny": NARROW_LLAMA, "8b": NARROW_LLAMA._replace(is_tied=False)}
    replace(models, "RESNET_STAGES", ((16, 1), (32, 1), (32, 1), (32, 1)))
    replace(models, "VGG_STAGES", stages)
    replace(models, "VGG_DENSE", DENSE)
    replace(models, "BERT_SIZE", models.BertSize(2, 192, 4, WORDS))
    replace(models, "END_OF_TEXT", WORDS)
    replace(models, "GPT_SIZES", models.GPT_SIZES | {"124M": models.GptSize(2, 192, 4, WORDS)})
    replace(models, "LLAMA_SIZES", models.LLAMA_SIZES | llamas)
