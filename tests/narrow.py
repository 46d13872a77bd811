"""Narrow models, because training the full models would take minutes and show no more."""

from perfkit.core.models import bert, gpt, llama, resnet50, vgg16

WORDS, DENSE = 1100, 128
"""Vocabulary of language models, and the width of VGG-16's dense layers."""
NARROW_GPT = gpt.Size(2, 192, 4, 384, gpt.SIZES["124M"].learning_rate)
NARROW_LLAMA = {
    "tiny": llama.Size(2, 192, 4, 2, 384, is_tied=True),
    "8b": llama.Size(2, 192, 4, 2, 384, is_tied=False),
}


def replace_sizes(replace):
    """Shrink the models by calls of `replace(module, name, value)`.

    Language models get fewer and narrower layers and a smaller vocabulary, VGG-16 a quarter of
    its channels, and ResNet-50 one narrow block per stage.
    """
    replace(resnet50, "STEM", 16)
    replace(resnet50, "STAGES", ((16, 1), (32, 1), (32, 1), (32, 1)))
    replace(bert, "LAYERS", 2)
    replace(bert, "WIDTH", 192)
    replace(bert, "INNER", 384)
    replace(bert, "HEADS", 4)
    for transformer in (bert, gpt, llama):
        replace(transformer, "VOCABULARY", WORDS)
    replace(gpt, "END_OF_TEXT", WORDS)
    replace(gpt, "SIZES", gpt.SIZES | {"124M": NARROW_GPT})
    replace(llama, "SIZES", llama.SIZES | NARROW_LLAMA)
    narrow_stages = tuple((width // 4, count) for width, count in vgg16.STAGES)
    replace(vgg16, "STAGES", narrow_stages)
    replace(vgg16, "DENSE", DENSE)
