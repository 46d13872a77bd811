"""Llama: grouped attention, rotary positions, and a loss without all logits."""

import numpy as np
import paddle  # noqa: F401 - excludes this file from the quick check; others may be missing
import pytest
from narrow import NARROW_LLAMA, replace_sizes
from sides import side_of, use_float32

from perfkit.core.frameworks import networks

FRAMEWORKS = ("paddle", "torch", pytest.param("jax", marks=pytest.mark.slow))
LENGTH, PART = 24, 20
"""Tokens of a sequence, and rows of a part of the loss: two sequences have three parts, the
last one shorter."""


@pytest.fixture
def narrow(monkeypatch):
    replace_sizes(monkeypatch.setattr)


@pytest.fixture(params=FRAMEWORKS)
def side(request):
    return side_of(request.param)


@pytest.fixture
def doubles(side):
    side.backend.enable_float64()
    yield
    use_float32()


# Layers, attention and positions.


def rms_norm(x, weight):
    return x / np.sqrt((x**2).mean(-1, keepdims=True) + 1e-5) * weight


def rotate(heads):
    """Rotate heads (batch x length x heads x width) by complex numbers, which have the
    precision of the tables, float32."""
    length, half = heads.shape[1], heads.shape[-1] // 2
    angles = np.outer(np.arange(length), 500_000.0 ** -(np.arange(half) / half))
    turns = np.exp(1j * angles).astype(np.complex64)[:, None]
    pairs = turns * (heads[..., :half] + 1j * heads[..., half:])
    return np.concatenate([pairs.real, pairs.imag], -1)


def numpy_layer(x, weights, size):
    """Return the output of a Llama layer; each key and value head is repeated for the query
    heads that share it."""
    batch, length, _width = x.shape
    y = rms_norm(x, weights["attention_norm.weight"])
    query, key, value = (y @ weights[f"{name}.weight"] for name in ("query", "key", "value"))
    query = rotate(query.reshape(batch, length, size.heads, -1))
    key = rotate(key.reshape(batch, length, size.kv_heads, -1))
    value = value.reshape(batch, length, size.kv_heads, -1)
    key = np.repeat(key, size.heads // size.kv_heads, 2)
    value = np.repeat(value, size.heads // size.kv_heads, 2)
    scores = np.einsum("bqhw,bkhw->bhqk", query, key) / query.shape[-1] ** 0.5
    shares = np.exp(np.where(np.tri(length, dtype=bool), scores, -np.inf))
    shares /= shares.sum(-1, keepdims=True)
    attended = np.einsum("bhqk,bkhw->bqhw", shares, value).reshape(x.shape)
    x = x + attended @ weights["out_proj.weight"]
    y = rms_norm(x, weights["dense_norm.weight"])
    gate = y @ weights["gate.weight"]
    gated = gate / (1 + np.exp(-gate)) * (y @ weights["up.weight"])
    return x + gated @ weights["down.weight"]


def numpy_loss(ids, labels, weights, size):
    """Return the mean loss of a Llama whose head shares the embedding's weights."""
    embedding = weights["token_embeddings.weight"]
    x = embedding[ids]
    for number in range(size.layers):
        prefix = f"layers.{number}."
        of_layer = {}
        for name, value in weights.items():
            if name.startswith(prefix):
                of_layer[name.removeprefix(prefix)] = value
        x = numpy_layer(x, of_layer, size)
    logits = rms_norm(x, weights["final_norm.weight"]) @ embedding.T
    of_labels = np.take_along_axis(logits, labels[..., None], -1)[..., 0]
    return (np.log(np.exp(logits).sum(-1)) - of_labels).mean()


@pytest.mark.usefixtures("narrow", "doubles")
def test_the_loss_is_that_of_a_llama_in_numpy(side):
    inspector = side.inspector("llama")
    weights = {}
    chance = np.random.default_rng(0)
    for name, initial in inspector.weights().items():
        # Greater than the initial ones: attention must not be nearly uniform.
        weights[name] = chance.normal(1.0 if initial.ndim == 1 else 0.0, 0.1, initial.shape)
    inspector.load_weights(weights)
    ids, labels = side.arrays("llama")
    loss = float(inspector.trainer.backward(side.tensors((ids, labels))))
    expected = numpy_loss(ids, labels, weights, NARROW_LLAMA["tiny"])
    assert loss == pytest.approx(expected, rel=1e-9)


def test_pytorch_makes_no_matrix_of_all_pairs_of_tokens(narrow, monkeypatch):
    torch = pytest.importorskip("torch")
    from torch.utils._python_dispatch import TorchDispatchMode

    shapes = set()

    class Shapes(TorchDispatchMode):
        def __torch_dispatch__(self, operator, _types, args=(), kwargs=None):
            result = operator(*args, **(kwargs or {}))
            for tensor in result if isinstance(result, tuple | list) else [result]:
                if isinstance(tensor, torch.Tensor):
                    shapes.add(tuple(tensor.shape))
            return result

    side = side_of("torch")
    trainer = side.trainer("llama", sequence_length=300)
    with Shapes():
        trainer.backward(side.batch("llama", sequence_length=300))
    assert (2, 300, 192) in shapes
    assert not [shape for shape in shapes if shape[-2:] == (300, 300)]


def test_jax_holds_no_matrix_of_all_pairs_of_tokens_as_a_constant(narrow):
    jax = pytest.importorskip("jax")
    side = side_of("jax")
    trainer = side.trainer("llama", sequence_length=300)
    batch = side.batch("llama", sequence_length=300)
    state = (trainer.values, trainer.statistics, trainer.key, batch)
    constants = jax.make_jaxpr(trainer.forward)(*state).consts
    assert not [constant for constant in constants if constant.size >= 300 * 300]


# The loss.


class Outcome:
    """What a step with a loss in parts of this many rows has computed."""

    def __init__(self, side, monkeypatch, rows, weights=None, **changes):
        monkeypatch.setattr(networks, "LOSS_ROWS", rows)
        changes |= {"sequence_length": LENGTH}
        inspector = side.inspector("llama", **changes)
        if weights:
            inspector.load_weights(weights)
        self.weights = inspector.weights()
        batch = side.batch("llama", **changes)
        self.loss = float(inspector.trainer.backward(batch))
        self.gradients = inspector.gradients()
        self.evaluated = inspector.evaluate(batch)
        self.multiply_adds = inspector.multiply_adds(batch)
        self.settings = inspector.effective(batch).settings


@pytest.mark.usefixtures("narrow", "doubles")
@pytest.mark.filterwarnings("ignore:Tensor do not have 'place' interface")
@pytest.mark.parametrize("size", NARROW_LLAMA)
def test_a_loss_in_parts_equals_the_loss_of_all_rows_at_once(side, monkeypatch, size):
    whole = Outcome(side, monkeypatch, 8192, model_size=size)
    parts = Outcome(side, monkeypatch, PART, whole.weights, model_size=size)
    assert parts.loss == pytest.approx(whole.loss, rel=1e-12)
    for name, gradient in whole.gradients.items():
        assert np.allclose(parts.gradients[name], gradient, rtol=1e-9, atol=1e-14), name
    assert parts.evaluated == pytest.approx(whole.evaluated, rel=1e-12)
    assert parts.multiply_adds == whole.multiply_adds
    assert whole.settings["loss"] == "of all rows at once"
    expected = "in 3 parts of the rows, whose logits are computed again in the backward pass"
    assert parts.settings["loss"] == expected


@pytest.mark.usefixtures("narrow")
@pytest.mark.parametrize("framework", ["paddle", "torch"])
def test_logits_exist_in_parts_and_are_computed_again(monkeypatch, framework):
    side = side_of(framework)
    monkeypatch.setattr(networks, "LOSS_ROWS", PART)
    trainer = side.trainer("llama", sequence_length=LENGTH)
    head = trainer.network.lm_head
    rows = []
    compute = head.logits

    def logits(part):
        rows.append(part.shape[0])
        return compute(part)

    monkeypatch.setattr(type(head), "logits", lambda _head, part: logits(part))
    trainer.backward(side.batch("llama", sequence_length=LENGTH))
    assert rows[:3] == [20, 20, 8]
    assert sorted(rows[3:]) == [8, 20, 20]


@pytest.mark.slow
def test_jaxs_program_needs_less_memory_if_the_loss_has_parts(narrow, monkeypatch):
    side = side_of("jax")
    batch = side.batch("llama", sequence_length=1024)

    def temporary_bytes(rows):
        monkeypatch.setattr(networks, "LOSS_ROWS", rows)
        trainer = side.trainer("llama", sequence_length=1024)
        state = (trainer.values, trainer.statistics, trainer.gathered, trainer.key)
        program = trainer.backward_pass.lower(*state, batch).compile()
        return program.memory_analysis().temp_size_in_bytes

    logits = 2 * 1024 * 1100 * 4
    assert temporary_bytes(128) < temporary_bytes(8192) - logits
