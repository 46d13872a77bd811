"""Narrow models, because training the full models would take minutes and show no more."""

from perfkit.core.models import bert, gpt, resnet50, vgg16

WORDS, DENSE = 1100, 128
"""BERT's vocabulary, and the width of VGG-16's dense layers."""


def replace_sizes(replace):
    """Shrink the models by calls of `replace(module, name, value)`.

    BERT and GPT-2 get fewer and narrower layers and a smaller vocabulary, VGG-16 a quarter of
    its channels, and ResNet-50 one narrow block per stage.
    """
    replace(resnet50, "STEM", 16)
    replace(resnet50, "STAGES", ((16, 1), (32, 1), (32, 1), (32, 1)))
    for transformer in (bert, gpt):
        replace(transformer, "LAYERS", 2)
        replace(transformer, "WIDTH", 192)
        replace(transformer, "INNER", 384)
        replace(transformer, "HEADS", 4)
        replace(transformer, "VOCABULARY", WORDS)
    replace(gpt, "END_OF_TEXT", WORDS)
    narrow_stages = tuple((width // 4, count) for width, count in vgg16.STAGES)
    replace(vgg16, "STAGES", narrow_stages)
    replace(vgg16, "DENSE", DENSE)
