"""Thin models: training them whole shows no more and takes minutes."""

from perfkit.models import bert, gpt, resnet50, vgg16

WORDS, DENSE = 1100, 128
"""BERT's vocabulary, and the width of VGG-16's dense layers."""


def replace_sizes(replace):
    """BERT and GPT-2 with fewer and thinner layers and fewer words, VGG-16 with a quarter of
    its channels, ResNet-50 with one thin block in each stage, by `replace(module, name,
    value)`."""
    replace(resnet50, "STEM", 16)
    replace(resnet50, "STAGES", ((16, 1), (32, 1), (32, 1), (32, 1)))
    for name, value in (("LAYERS", 2), ("WIDTH", 192), ("INNER", 384), ("HEADS", 4)):
        replace(bert, name, value)
        replace(gpt, name, value)
    replace(bert, "VOCABULARY", WORDS)
    replace(gpt, "VOCABULARY", WORDS)
    replace(gpt, "END_OF_TEXT", WORDS)
    replace(vgg16, "STAGES", tuple((width // 4, count) for width, count in vgg16.STAGES))
    replace(vgg16, "DENSE", DENSE)
