"""FLOPs of a language model per token, from its size."""

import pytest

from perfkit.analysis.token_flops import flops_per_token
from perfkit.training.models import model_named

LLAMA_8B = {"parameters": 8_030_261_248, "layers": 32, "hidden_size": 4096}


def test_attention_in_full_adds_12_l_d_t():
    flops, formula = flops_per_token(**LLAMA_8B, sequence_length=8192)
    assert flops == 6 * 8_030_261_248 + 12 * 32 * 4096 * 8192
    assert formula == "6 N + 12 L d T"


def test_causal_attention_adds_half_as_much():
    full = flops_per_token(**LLAMA_8B, sequence_length=8192)
    causal = flops_per_token(**LLAMA_8B, sequence_length=8192, causal=True)
    weights = flops_per_token(LLAMA_8B["parameters"])
    assert causal.flops - weights.flops == (full.flops - weights.flops) / 2
    assert causal.formula == "6 N + 6 L d T"


@pytest.mark.parametrize("missing", ["layers", "hidden_size", "sequence_length"])
def test_without_the_models_shape_only_its_weights_count_and_the_formula_says_so(missing):
    shape = LLAMA_8B | {"sequence_length": 8192, missing: None}
    assert flops_per_token(**shape) == (6 * 8_030_261_248, "6 N")


@pytest.mark.parametrize(("model", "size"), [("gpt", "124M"), ("llama", "1b"), ("llama", "8b")])
def test_the_formula_agrees_with_the_products_of_the_suites_own_models(model, size):
    facts, length = model_named(model, size), 1024
    decoder = facts.decoder
    first, others = facts.multiply_adds(length)
    counted = 6 * (first + others) / length
    size = {"parameters": decoder.product_weights, "layers": decoder.layers}
    flops, _formula = flops_per_token(**size, hidden_size=decoder.width, sequence_length=length)
    assert flops == counted
