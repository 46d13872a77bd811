"""Llama in JAX: a program without a matrix of all pairs of tokens, and a loss without all
logits. Its outputs are compared with PyTorch's in test_verification.py."""

import numpy as np
import pytest
from narrow import NARROW_LLAMA, replace_sizes
from sides import side_of, use_float32

from perfkit.core.frameworks import networks

jax = pytest.importorskip("jax")
SIDE = side_of("jax")
LENGTH, PART = 24, 20
"""Tokens of a sequence, and rows of a part of the loss: two sequences have three parts, the
last one shorter."""


@pytest.fixture(autouse=True)
def narrow(monkeypatch):
    replace_sizes(monkeypatch.setattr)


@pytest.fixture
def doubles():
    SIDE.backend.enable_float64()
    yield
    use_float32()


def test_jax_holds_no_matrix_of_all_pairs_of_tokens_as_a_constant():
    trainer = SIDE.trainer("llama", sequence_length=300)
    batch = SIDE.batch("llama", sequence_length=300)
    state = (trainer.values, trainer.statistics, trainer.key, batch)
    constants = jax.make_jaxpr(trainer.forward)(*state).consts
    assert not [constant for constant in constants if constant.size >= 300 * 300]


class Outcome:
    """What a step with a loss in parts of this many rows has computed."""

    def __init__(self, monkeypatch, rows, weights=None, **changes):
        monkeypatch.setattr(networks, "LOSS_ROWS", rows)
        changes |= {"sequence_length": LENGTH}
        inspector = SIDE.inspector("llama", **changes)
        if weights:
            inspector.load_weights(weights)
        self.weights = inspector.weights()
        batch = SIDE.batch("llama", **changes)
        self.loss = float(inspector.trainer.backward(batch))
        self.gradients = inspector.gradients()
        self.evaluated = inspector.evaluate(batch)
        self.multiply_adds = inspector.multiply_adds(batch)
        self.settings = inspector.effective(batch).settings


@pytest.mark.slow
@pytest.mark.usefixtures("doubles")
@pytest.mark.parametrize("size", NARROW_LLAMA)
def test_a_loss_in_parts_equals_the_loss_of_all_rows_at_once(monkeypatch, size):
    whole = Outcome(monkeypatch, 8192, model_size=size)
    parts = Outcome(monkeypatch, PART, whole.weights, model_size=size)
    assert parts.loss == pytest.approx(whole.loss, rel=1e-12)
    for name, gradient in whole.gradients.items():
        assert np.allclose(parts.gradients[name], gradient, rtol=1e-9, atol=1e-14), name
    assert parts.evaluated == pytest.approx(whole.evaluated, rel=1e-12)
    assert parts.multiply_adds == whole.multiply_adds
    assert whole.settings["loss"] == "of all rows at once"
    expected = "in 3 parts of the rows, whose logits are computed again in the backward pass"
    assert parts.settings["loss"] == expected


@pytest.mark.slow
def test_jaxs_program_needs_less_memory_if_the_loss_has_parts(monkeypatch):
    batch = SIDE.batch("llama", sequence_length=1024)

    def temporary_bytes(rows):
        monkeypatch.setattr(networks, "LOSS_ROWS", rows)
        trainer = SIDE.trainer("llama", sequence_length=1024)
        state = (trainer.values, trainer.statistics, trainer.gathered, trainer.key)
        program = trainer.backward_pass.lower(*state, batch).compile()
        return program.memory_analysis().temp_size_in_bytes

    logits = 2 * 1024 * 1100 * 4
    assert temporary_bytes(128) < temporary_bytes(8192) - logits
